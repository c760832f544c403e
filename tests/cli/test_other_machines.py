"""The commands of a terminal at a hub that another machine has joined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import Console

pytestmark = pytest.mark.slow


@pytest.fixture
def console(tmp_path: Path) -> Console:
    folder = tmp_path / "desk"
    folder.mkdir()
    return Console(folder)


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Console]:
    folder = tmp_path / "laptop"
    folder.mkdir()
    made = Console(folder)
    yield made
    made.end_runner()


def test_commands_reach_sessions_of_another_machine_and_say_that_it_is_away(
    console: Console, laptop: Console
) -> None:
    with console.hub():
        line = console.json("machines", "add")["command"]
        assert laptop.run(*line.split()[1:], "--name", "laptop").returncode == 0
        where = ("--machine", "laptop", "--cwd", str(laptop.work))
        ran = console.run("run", *where, "demo", "hello", "--yes")
        assert ran.returncode == 0, ran.stderr
        (session,) = console.json("sessions")["sessions"]
        assert "laptop" in console.run("sessions").stdout
        assert "demo" in console.run("agents", "--machine", "laptop").stdout
        assert console.run("completion", "machines").stdout.split() == ["laptop"]
        laptop.end_runner()
        for command in ("show", "export"):
            read = console.run(command, session["shortId"])
            assert read.returncode == 0, read.stderr
            assert "hello" in read.stdout
        assert "laptop (away for" in console.run("sessions").stdout
        with console.start("run", "--session", session["shortId"], "again", "--yes") as sent:
            assert sent.stderr is not None
            assert "away; the prompt waits for it until" in sent.stderr.readline()
            assert laptop.run("join").returncode == 0  # starts the runner
            assert sent.wait(60) == 0
