"""Two machines as real processes: a hub with TLS (`up`), and a runner that joins it and dials."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.machine.home_locks import lock_owner
from quarterdeck.runner.link import read_links
from tests.certificates import certify_by_authority
from tests.cli.kit import SECONDS, Console, RunningHub, agent_toml
from tests.hub.local_owner import owner_call

pytestmark = pytest.mark.slow


class Desk:
    """A user of a hub with a certificate of an authority that all machines of the test trust."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.authority = certify_by_authority(folder)
        self.console = Console(folder)
        self._tls = ("--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"))

    @contextmanager
    def up(self, port: str = "0") -> Iterator[RunningHub]:
        with self.console.hub(*self._tls, "--port", port) as hub:
            yield hub

    def machines(self) -> list[dict[str, Any]]:
        found = owner_call(self.console.home, "GET", "/api/machines")
        listed: list[dict[str, Any]] = found["machines"]
        return listed


def machine(folder: Path, *desks: Desk) -> Console:
    """Return the user of another machine."""
    folder.mkdir()
    console = Console(folder, agent_toml("mine", {"say": "from the other machine"}))
    bundle = folder / "authorities.pem"
    bundle.write_bytes(b"".join(each.authority.read_bytes() for each in desks))
    console.environ["SSL_CERT_FILE"] = str(bundle)
    return console


def join(desk: Desk, console: Console, *more: str) -> None:
    command = desk.console.run("machines", "add").stdout.split()
    joined = console.run(*command[1:], *more)
    assert joined.returncode == 0, joined.stderr


def until(is_true: Callable[[], Any]) -> Any:
    end = time.monotonic() + SECONDS
    while not (found := is_true()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
    return found


def doctored(console: Console) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(console.run("doctor", "--json").stdout)["checks"]
    return found


def kill_runner(console: Console) -> None:
    owner = lock_owner(console.home, "runner")
    assert owner is not None
    os.kill(int(owner), signal.SIGKILL)


def link_of(console: Console) -> str:
    """Return the state of a machine's only link."""
    (link,) = read_links(console.home)[1]
    return link.state


def state_of(desk: Desk) -> str:
    return " ".join(each["state"] for each in desk.machines())


@pytest.fixture
def ended() -> Iterator[ExitStack]:
    """Ends the runners that tests leave."""
    with ExitStack() as stack:
        yield stack


def test_a_machine_survives_the_death_of_its_runner_and_of_the_hub(
    tmp_path: Path, ended: ExitStack
) -> None:
    desk = Desk(tmp_path / "desk")
    box = machine(tmp_path / "box", desk)
    ended.callback(box.end_runner)
    ended.callback(desk.console.end_runner)
    with desk.up() as hub:
        join(desk, box, "--name", "box")
        (listed,) = desk.machines()
        assert (listed["name"], listed["state"], listed["skew"]) == ("box", "connected", "")
        session = hub.call(
            "POST", "/api/sessions", {"agent": "mine", "cwd": str(box.work), "machine": "box"}
        )
        assert session["sessionId"].startswith(f"{listed['id']}~")

        kill_runner(box)
        until(lambda: state_of(desk) == "away")
        shown = box.run("join")  # starts it again
        assert "connected" in shown.stdout, shown.stderr
        until(lambda: state_of(desk) == "connected")

        checks = {each["name"]: each for each in doctored(box)}
        assert checks["joined hubs"]["status"] == "ok"
        owner = lock_owner(box.home, "runner")
        restarted = box.run("restart", "--runner")  # without a hub of its own
        assert restarted.returncode == 0, restarted.stderr
        assert lock_owner(box.home, "runner") not in (None, owner)
        upgraded = box.run("upgrade", "--no-install")
        assert "already" in upgraded.stderr, upgraded.stderr
        until(lambda: state_of(desk) == "connected")

        port = hub.url.rpartition(":")[2]
        hub.process.kill()
        hub.process.wait(SECONDS)
        until(lambda: link_of(box) == "connecting")
        with desk.up(port):
            until(lambda: state_of(desk) == "connected")
            removed = desk.console.run("machines", "remove", "BOX")
            assert removed.returncode == 1
            assert "add --yes" in removed.stderr
            removed = desk.console.run("machines", "remove", "BOX", "--yes")
            assert removed.returncode == 0, removed.stderr
            until(lambda: link_of(box) == "removed")
            status = box.run("status")
            assert "quarterdeck machines add" in status.stdout
            assert desk.machines() == []


def test_a_machine_joins_two_hubs_and_leaves_one(tmp_path: Path, ended: ExitStack) -> None:
    first, second = Desk(tmp_path / "first"), Desk(tmp_path / "second")
    box = machine(tmp_path / "box", first, second)
    ended.callback(box.end_runner)
    with first.up() as hub, second.up() as other:
        join(first, box)
        join(second, box)
        assert [each["url"] for each in box.json("join")["hubs"]] == [hub.url, other.url]
        ambiguous = box.run("join", "--leave")
        assert ambiguous.returncode == 2
        assert "name the one to leave" in ambiguous.stderr
        assert box.run("join", "--leave", hub.url).returncode == 0
        until(lambda: state_of(first) == "away")
        assert state_of(second) == "connected"
        shown = first.console.run("status")
        assert "away for" in shown.stdout
        renamed = second.console.run("machines", "rename", second.machines()[0]["name"], "new box")
        assert renamed.returncode == 0, renamed.stderr
        assert [each["name"] for each in second.machines()] == ["new box"]
        facts = json.loads((box.home / "joined.json").read_bytes())
        assert [each["url"] for each in facts["hubs"]] == [other.url]
