"""A phone pairs, approves and reads through a relay, which sees nothing of it.

sudo apt-get install iproute2 chromium libnss3-tools pebble
sudo .venv/bin/python -m pytest -m proof tests/proof/test_phone.py -n0 -s
"""

from __future__ import annotations

import base64
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.page.browsing import FLAGS, chromium
from tests.proof.agents import COMMANDS, FILES, OUTPUTS, PLANTED, PROMPTS, TITLES
from tests.proof.capture import Capture, Ends
from tests.proof.network import PREFIX, SECONDS, address, connected, until
from tests.proof.world import World

pytestmark = [pytest.mark.proof, pytest.mark.timeout(600)]

CONTROL: Final = b"control-" + PLANTED[0].encode()[::-1]


@contextmanager
def phone_browser(world: World) -> Iterator[Page]:
    """Chromium on the phone, which trusts the authority that issued the hub's certificate."""
    folder = world.computers["phone"].folder
    store = folder / ".pki" / "nssdb"
    store.mkdir(parents=True)
    certutil = ("certutil", "-d", f"sql:{store}")
    subprocess.run([*certutil, "-N", "--empty-password"], check=True)
    trusted = ("-A", "-n", "authority", "-t", "C,,", "-i", str(world.root))
    subprocess.run([*certutil, *trusted], check=True)
    program = folder / "chromium"
    command = shlex.join(["ip", "netns", "exec", f"{PREFIX}phone", str(chromium())])
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    program.chmod(0o755)
    environ = {"HOME": str(folder), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=list(FLAGS), env=environ  # type: ignore[arg-type]
        )  # fmt: skip
        context = browser.new_context(
            viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True
        )
        context.set_default_timeout(SECONDS * 1000)
        expect.set_options(timeout=SECONDS * 1000)
        yield context.new_page()
        browser.close()


def approve_on_phone(world: World, page: Page, session: str, turns: int = 1) -> None:
    page.goto(f"https://{world.name}/#/s/{session}")
    allow = page.get_by_role("button", name="Allow once")
    expect(allow).to_have_attribute("aria-disabled", "false")
    allow.tap()
    expect(page.get_by_text("It was allowed.")).to_have_count(turns)
    expect(page.get_by_text("The end.")).to_have_count(turns)


def forms(text: str) -> Iterator[bytes]:
    """Yield how a text could be found in a capture: plain, in hex, in base64 at any offset."""
    plain = text.encode()
    yield plain
    yield plain.hex().encode()
    yield text.encode("utf-16-le")
    for skipped in range(3):
        encoded = base64.b64encode(b"x" * skipped + plain)
        yield encoded[4 if skipped else 0 : len(encoded) - 4]


def secrets_of(world: World, link: str, token: str) -> list[str]:
    """Return all that must not be seen on the way."""
    pairing = world.hub.facts["pairing"]
    return [
        *PLANTED,
        link.partition("=")[2],
        pairing["code"],
        world.codes["a"],
        world.codes["c"],
        token,
        world.line.rpartition(".")[2],  # admits hubs to the relay
        world.machines()["a"]["id"],
        "asking-1-session",
        "It was allowed.",
        "Pair this device",  # of the page itself
    ]


def test_a_phone_approves_through_the_relay_which_sees_nothing(world: World) -> None:
    machine = world.computers["a"]
    machine.run("join", "--leave", f"https://{world.name}")  # to capture a join
    world.call("DELETE", f"/api/machines/{world.machines()['a']['id']}")
    capture = Capture("relay")
    world.codes["a"] = world.join("a")
    link = world.hub.facts["pairing"]["link"]
    token = world.call("POST", "/api/devices", {"name": "a program", "scope": "prompt"})["token"]
    with phone_browser(world) as page:
        page.goto(link)
        page.get_by_role("button", name="Pair this device").tap()
        page.get_by_role("navigation", name="Main").wait_for()
        _approve_a_turn(world, page, token, "")
        session = _approve_a_turn(world, page, token, "a")
        _prompt_from_phone(world, page, session)
        with connected("phone", "relay") as control:
            control.sendall(CONTROL)
        time.sleep(0.5)
        capture.end()
        _stream_while_the_relay_is_killed(world, page)
    print(f"\ntyped: {world.typed}; on the phone: 1 scan, 1 tap to pair, 1 for each approval")
    flows = capture.flows()
    _assert_hidden(world, capture, flows, secrets_of(world, link, token))
    everything = b"".join(b"".join(events) for events in world.logs(session))
    planted = [*PROMPTS, *OUTPUTS, *FILES, *TITLES[:3], *COMMANDS]
    assert [text for text in planted if text.encode() not in everything] == [], "was it sent?"
    _replay(world, flows)


def _approve_a_turn(world: World, page: Page, token: str, machine: str) -> str:
    session = world.begin("asking", machine)
    body = {"key": "k1", "prompt": " ".join(PROMPTS[:8])}
    sent = world.ask("POST", f"/api/sessions/{session}/prompts", token, body)
    assert sent["status"] < 300, sent
    approve_on_phone(world, page, session)
    return session


def _prompt_from_phone(world: World, page: Page, session: str) -> None:
    world.computers["hub"].run("rename", session, TITLES[3])
    expect(page.get_by_text(TITLES[3]).first).to_be_visible()
    page.get_by_label("Prompt", exact=True).fill(" ".join(PROMPTS[8:]))
    page.get_by_role("button", name="Send", exact=True).tap()
    until(lambda: len(world.call("GET", "/api/permissions")["permissions"]) == 1)
    approve_on_phone(world, page, session, 2)


def _assert_hidden(
    world: World, capture: Capture, flows: Mapping[Ends, bytes], hidden: list[str]
) -> None:
    heap = b"\0".join([*flows.values(), *capture.packets])
    assert CONTROL in heap, "the capture finds what is there"
    assert world.name.encode() in heap, "the name of the hub is not secret"
    assert len(hidden) == len(set(hidden)) == 50
    found = [text for text in hidden if any(form in heap for form in forms(text))]
    carried = sum(map(len, flows.values()))
    print(f"capture: {len(capture.packets)} packets, {len(flows)} flows, {carried} bytes; {found=}")
    assert found == []


def _stream_while_the_relay_is_killed(world: World, page: Page) -> None:
    """The page shows the rest of a turn without being touched."""
    session = world.begin("slow", "a")
    page.goto(f"https://{world.name}/#/s/{session}")
    world.prompt(session, "k1", "one")
    shown = page.get_by_text("Heard one.")
    expect(shown).to_contain_text("word word word")
    world.relay.kill()
    before = shown.inner_text().count("word")
    time.sleep(2)
    begun = time.monotonic()
    world.relay.start()
    until(lambda: shown.inner_text().count("word") > before + 30)
    seconds = time.monotonic() - begun
    until(lambda: world.prompt_states(session) == {"k1": "done"})
    until(lambda: shown.inner_text().count("word") >= 180)
    assert shown.inner_text().count("word") == 180, "all, and none twice"
    print(f"\nthe page had {before} of 180 words at the kill, more {seconds:.1f} s after the start")


def _replay(world: World, flows: Mapping[Ends, bytes]) -> None:
    """Send again what each client of the relay has sent; nothing may come of it."""
    before = _facts(world)
    tried = 0
    for place in ("phone", "a", "hub"):
        source, target = address(place, "relay"), address("relay", place)
        recorded = [
            content
            for ends, content in flows.items()
            if (ends[0], ends[2], ends[3]) == (source, target, 443) and len(content) > 500
        ]
        for content in sorted(recorded, key=len)[-6:]:
            tried += 1
            with connected(place, "relay", seconds=2) as again, suppress(OSError):
                again.sendall(content)
                while again.recv(65_536):
                    pass
    print(f"replay: {tried} recorded connections sent again")
    assert tried >= 8
    assert _facts(world) == before
    assert world.hub.process.poll() is None
    assert world.relay.process.poll() is None


def _facts(world: World) -> Any:
    """Return what a replayed request could change."""
    sessions = world.call("GET", "/api/sessions")["sessions"]
    prompts = {each["sessionId"]: world.prompt_states(each["sessionId"]) for each in sessions}
    devices = [each["id"] for each in world.call("GET", "/api/devices")["devices"]]
    joined = {name: each["id"] for name, each in world.machines().items()}
    return prompts, devices, joined, world.call("GET", "/api/permissions")
