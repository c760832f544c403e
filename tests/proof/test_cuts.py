"""Machines that are cut off, and `kill -9` of a relay, a hub and a runner: nothing is lost."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from typing import Final

import pytest

from tests.proof.network import pids_in, set_cable, until
from tests.proof.world import World

pytestmark = [
    pytest.mark.proof,
    pytest.mark.timeout(600),
    # Sockets of connections that were cut are closed when nothing refers to them.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PASSED: Final = {"done", "failed", "cancelled", "interrupted"}


def _is_served(world: World, token: str) -> bool:
    try:
        return bool(world.ask("GET", "/api/device", token)["status"] == 200)
    except OSError:
        return False


def _slow_turn(world: World, machine: str) -> str:
    session = world.begin("slow", machine)
    world.prompt(session, "k1", "one")
    until(lambda: len(world.logs(session)[0]) > 15)
    return session


def _all_passed(world: World, session: str, **expected: str) -> None:
    """Wait until all prompts have run; assert that each did once and nothing is lost or doubled."""
    until(lambda: set(world.prompt_states(session).values()) <= PASSED)
    assert world.prompt_states(session) == expected
    until(lambda: len(set(map(len, world.logs(session)))) == 1)
    on_machine, on_hub = world.logs(session)
    assert on_machine == on_hub, "number by number, byte by byte"
    for number, event in enumerate(on_hub, start=1):
        assert json.loads(event)["seq"] == number


def _times_heard(world: World, session: str, text: str) -> int:
    return b"".join(world.logs(session)[0]).count(f"Heard {text}. ".encode())


@pytest.mark.parametrize("place", ["a", "b", "c"])
def test_a_machine_that_is_cut_off_loses_and_doubles_nothing(world: World, place: str) -> None:
    """`b` dials the hub directly, the others through the relay."""
    session = _slow_turn(world, place)
    to = "hub" if place == "b" else "relay"
    set_cable(place, to, is_up=False)
    begun = time.monotonic()
    sender = threading.Thread(target=world.prompt, args=(session, "k2", "two"))
    sender.start()  # the hub does not know yet
    at_cut, copied = world.logs(session)
    until(lambda: len(world.logs(session)[0]) > len(world.logs(session)[1]) + 10)
    until(lambda: world.state(place) == "away")
    noticed = time.monotonic() - begun
    for _ in range(2):  # with the same key: it is one prompt
        world.prompt(session, "k3", "three")
    on_machine, on_hub = world.logs(session)
    assert on_hub == on_machine[: len(on_hub)]
    assert len(on_machine) > len(on_hub) + 10, "the turn has run on"
    set_cable(place, to, is_up=True)
    begun = time.monotonic()
    until(lambda: world.state(place) == "connected")
    back = time.monotonic() - begun
    sender.join()
    _all_passed(world, session, k1="done", k2="done", k3="done")
    assert [_times_heard(world, session, text) for text in ("one", "two", "three")] == [1, 1, 1]
    print(
        f"\n{place}: cut at event {len(at_cut)} (the copy had {len(copied)}), noticed after"
        f" {noticed:.1f} s with {len(on_machine)} (the copy {len(on_hub)}), back {back:.1f} s after"
        f" the cable; {len(world.logs(session)[1])} events on both"
    )


def test_kill_9_of_the_relay(world: World) -> None:
    token = world.call("POST", "/api/devices", {"name": "x", "scope": "view"})["token"]
    session = _slow_turn(world, "a")
    world.relay.kill()
    until(lambda: world.state("a") == "away")
    assert not _is_served(world, token)
    world.prompt(session, "k2", "two")
    begun = time.monotonic()
    world.relay.start()
    started = time.monotonic() - begun
    until(lambda: _is_served(world, token))
    served = time.monotonic() - begun
    until(lambda: world.state("a") == "connected")
    print(
        f"\nthe relay: starts in {started:.1f} s, the phone is served after {served:.1f} s,"
        f" the machine is back after {time.monotonic() - begun:.1f} s"
    )
    _all_passed(world, session, k1="done", k2="done")
    assert [_times_heard(world, session, text) for text in ("one", "two")] == [1, 1]
    path = f"/api/sessions/{session}/history?from_seq=0&limit=1000"
    events = world.ask("GET", path, token)["json"]["events"]
    assert [each["seq"] for each in events] == [*range(1, len(world.logs(session)[0]) + 1)]


def test_kill_9_of_the_hub(world: World) -> None:
    sessions = {place: _slow_turn(world, place) for place in ("a", "b")}
    for session in sessions.values():
        world.prompt(session, "k2", "two")
    world.hub.kill()
    begun = time.monotonic()
    world.hub.start()
    started = time.monotonic() - begun
    for place in sessions:
        until(lambda place=place: world.state(place) == "connected")  # type: ignore[misc]
    print(f"\nthe hub: starts in {started:.1f} s, machines back {time.monotonic() - begun:.1f} s")
    for session in sessions.values():
        _all_passed(world, session, k1="done", k2="done")
        assert [_times_heard(world, session, text) for text in ("one", "two")] == [1, 1]


@pytest.mark.parametrize("place", ["a", "b"])
def test_kill_9_of_a_runner(world: World, place: str) -> None:
    session = _slow_turn(world, place)
    victim = world.computers[place].runner_pid
    assert victim in pids_in(place)
    subprocess.run(["kill", "-9", str(victim)], check=True)
    until(lambda: world.state(place) == "away")
    world.prompt(session, "k2", "two")
    begun = time.monotonic()
    world.computers[place].run("join")
    until(lambda: world.state(place) == "connected")
    print(f"\n{place}: back {time.monotonic() - begun:.1f} s after `join`")
    _all_passed(world, session, k1="interrupted", k2="done")
    assert [_times_heard(world, session, text) for text in ("one", "two")] == [1, 1]
