"""`adopt`: programs are followed and released, agents' own sessions listed and loaded."""

import json
from pathlib import Path

import pytest

from quarterdeck.testing.foreign import ClaudeProgram
from quarterdeck.testing.opencode_program import OpenCodeProgram
from tests.cli.kit import Console, agent_toml

pytestmark = pytest.mark.slow


def test_programs_are_followed_with_their_past_and_released(tmp_path: Path) -> None:
    console = Console(tmp_path, agent_toml("says", {"say": "hello"}))
    folder = tmp_path / "claude"
    console.environ["CLAUDE_CONFIG_DIR"] = str(folder)
    claude = ClaudeProgram(folder, cwd=str(tmp_path))
    claude.prompt("from the terminal")
    claude.answer("done")
    console.environ["XDG_DATA_HOME"] = str(tmp_path)
    other = OpenCodeProgram(tmp_path / "opencode" / "opencode.db", cwd=str(tmp_path))
    other.prompt("from another terminal")
    with console.hub():
        listed = console.run("adopt")
        assert listed.stdout.split()[:3] == ["claude", "not", "followed"]
        refused = console.run("adopt", "claude")
        assert refused.returncode == 1
        assert "pass --yes, or --no-hook" in refused.stderr
        assert not (folder / "settings.json").exists()
        adopted = console.run("adopt", "claude", "--past", "--yes")
        assert adopted.returncode == 0, adopted.stderr
        assert adopted.stdout.startswith("Claude Code: follows 1 sessions, answers requests; undo")
        hooks = json.loads((folder / "settings.json").read_text())["hooks"]
        assert list(hooks) == ["PermissionRequest"]
        (session,) = console.json("sessions", "--all")["sessions"]
        assert (session["title"], session["agent"]) == ("from the terminal", "claude")
        assert "from the terminal" in console.run("show", session["sessionId"]).stdout
        (found,) = console.json("adopt", "claude", "--list")["sessions"]
        assert found["isAdopted"]
        assert console.run("adopt", "claude", claude.session_id).returncode == 0
        undone = console.run("adopt", "claude", "--undo")
        assert undone.stdout.startswith("Claude Code is not followed any more")
        assert not (folder / "settings.json").exists()
        assert len(console.json("sessions", "--all")["sessions"]) == 1
        opencode = console.run("adopt", "opencode", "--past")
        assert opencode.stdout.startswith("OpenCode: follows 1 sessions; undo it with")
        assert "start OpenCode as `opencode --port 0`" in opencode.stderr
        misused = console.run("adopt", "--past")
        assert misused.returncode == 2
        assert "name a program" in misused.stderr
        unknown = console.run("adopt", "nothing")
        assert unknown.returncode == 1
