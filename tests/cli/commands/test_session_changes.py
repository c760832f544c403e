"""`fork`, `rename`, `archive`: in words and in JSON."""

from pathlib import Path

import pytest

from tests.cli.kit import Console, agent_toml

pytestmark = pytest.mark.slow


def test_a_session_is_renamed_archived_and_listed_again(tmp_path: Path) -> None:
    console = Console(tmp_path, agent_toml("says", {"say": "hello"}))
    with console.hub():
        assert console.run("run", "says", "go").returncode == 0
        named = console.run("rename", "says-1", "A better\ntitle")
        assert named.stdout == "says-1-session: A better title\n"
        assert console.run("archive", "says-1").stdout == "says-1-session: archived\n"
        assert console.json("sessions", "--all")["sessions"] == []
        [listed] = console.json("sessions", "--archived")["sessions"]
        assert (listed["title"], listed["archived"]) == ("A better title", True)
        assert console.json("archive", "--undo", "says-1")["archived"] is False
        assert len(console.json("sessions")["sessions"]) == 1


def test_what_cannot_be_done_is_one_sentence(tmp_path: Path) -> None:
    console = Console(tmp_path, agent_toml("says", {"say": "hello"}))
    with console.hub():
        assert console.run("run", "says", "go").returncode == 0
        refused = console.run("fork", "says-1")
        assert refused.returncode != 0
        assert "cannot fork sessions" in refused.stderr
        assert "a title has 1 to 1000 characters" in console.run("rename", "says-1", " ").stderr
        assert "unknown session" in console.run("archive", "nothing").stderr
