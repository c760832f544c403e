"""The wheel is all that a user needs: each installer, in an empty home folder."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from quarterdeck._version import __version__
from quarterdeck.cli.shared_files import PATHS
from tests.cli import wheels
from tests.cli.kit import SECONDS

pytestmark = pytest.mark.slow

NEWER = "99.0.1"
Installer = Callable[[Path, dict[str, str]], Path]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.build_wheel(tmp_path_factory.mktemp("wheel"))


class Installed:
    """The command that an installer has put on PATH."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ = environ
        self.home = Path(environ["HOME"])
        self._command = self.home / ".local/bin/quarterdeck"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._command, *arguments],
            env=self.environ,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def text(self, *arguments: str) -> str:
        """Run a command that succeeds; return what it prints."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def answered(self, answer: str, *arguments: str) -> str:
        """Run a command in a terminal, answer its question and return what is shown."""
        keyboard, screen = pty.openpty()
        command = [str(self._command), *arguments]
        with subprocess.Popen(
            command, env=self.environ, stdin=screen, stdout=screen, stderr=screen
        ) as process:
            os.close(screen)
            shown = b""
            while b"[Y/n] " not in shown:
                shown += os.read(keyboard, 4096)
            os.write(keyboard, f"{answer}\n".encode())
            with suppress(OSError):  # on Linux: the other end is closed
                while received := os.read(keyboard, 4096):
                    shown += received
        os.close(keyboard)
        assert process.returncode == 1
        return shown.decode()

    @contextmanager
    def hub(self) -> Iterator[dict[str, Any]]:
        """Run `up`; yield what it prints when it is ready."""
        command = [str(self._command), "up", "--port", "0", "--json"]
        with subprocess.Popen(
            command, env=self.environ, cwd=self.home, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                yield json.loads(process.stdout.readline())
            finally:
                self.run("down")
                process.kill()


@pytest.mark.parametrize(
    ("install", "words"),
    [
        (wheels.installed_by_uv, "uv tool install"),
        (wheels.installed_by_pipx, "pipx install --force"),
        (wheels.installed_by_pip, "-m pip install --upgrade"),
    ],
)
def test_the_wheel_works_and_is_upgraded_by_its_installer(
    tmp_path: Path, wheel: Path, install: Installer, words: str
) -> None:
    environ = wheels.empty_environ(tmp_path / "home")
    prefix = install(wheel, environ)
    command = Installed(environ)
    assert command.text("--version") == f"quarterdeck {__version__}\n"
    for path in PATHS.values():
        assert (prefix / "share" / path).stat().st_size > 1_000
    played = command.text("demo", "--plain", "--fast", "--yes")
    assert "end_turn" in played
    with command.hub() as facts:
        with urllib.request.urlopen(facts["url"], timeout=SECONDS) as response:
            assert b"<title>" in response.read()
        newer = wheels.renumbered(wheel, NEWER, tmp_path)
        declined = command.run("upgrade", "--from", str(newer))
        assert (declined.returncode, "pass --yes" in declined.stderr) == (1, True)
        shown = command.answered("n", "upgrade", "--from", str(newer))
        assert words in shown
        assert "nothing was changed" in shown
        done = command.run("upgrade", "--from", str(newer), "--yes")
        assert done.returncode == 0, done.stderr
        assert words in done.stderr
        assert f"installed version {NEWER} in place of {__version__}" in done.stderr
        status = json.loads(command.text("status", "--json"))
        assert (status["hub"]["version"], status["runner"]["version"]) == (NEWER, NEWER)
        assert status["hub"]["url"] == facts["url"]
    assert command.text("--version") == f"quarterdeck {NEWER}\n"
    command.text("completion", "install", "--shell", "bash")
    linked = command.home / ".local/share" / PATHS["bash"]
    assert linked.samefile(prefix / "share" / PATHS["bash"])
    advice = command.run("upgrade")
    assert (advice.returncode, "quarterdeck upgrade --from FILE" in advice.stderr) == (0, True)
