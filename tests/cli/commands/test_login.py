"""`login` in a terminal: a sign-in that hangs can be left."""

import os
import pty
import sys
import termios
from pathlib import Path

import pytest

from quarterdeck.cli.sign_in import _raw_keyboard
from tests.cli.kit import Console, agent_toml

IGNORES = """
import signal, time, tty
signal.signal(signal.SIGINT, signal.SIG_IGN)
tty.setraw(0)
print("waiting", flush=True)
while True:
    print(f"read {input()!r}", flush=True)
"""


@pytest.mark.slow
def test_a_sign_in_that_ignores_ctrl_c_is_cancelled(tmp_path: Path) -> None:
    program = tmp_path / "ignores.py"
    program.write_text(IGNORES)
    command = {"command": sys.executable, "args": [str(program)]}
    method = {"id": "tty", "name": "Log in", "_meta": {"terminal-auth": command}}
    console = Console(tmp_path, agent_toml("mine", initialize={"authMethods": [method]}))
    with console.hub(), console.terminal("login", "mine") as terminal:
        terminal.wait_for("press Ctrl-] to cancel")
        terminal.wait_for("waiting")
        terminal.type("\x03\n")
        terminal.wait_for("read '\\x03'")
        terminal.type("\x1d")
        terminal.wait_for("it was cancelled")
        assert terminal.end() == 1


@pytest.mark.parametrize("is_used", [False, True])
def test_ctrl_c_ends_the_command_unless_it_is_typed_into_a_program(
    is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyboard, screen = pty.openpty()
    with os.fdopen(keyboard, "rb"), os.fdopen(screen) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        before = termios.tcgetattr(screen)
        with _raw_keyboard(is_used=is_used):
            has_signals = bool(termios.tcgetattr(screen)[3] & termios.ISIG)
        assert has_signals is not is_used
        assert termios.tcgetattr(screen) == before
