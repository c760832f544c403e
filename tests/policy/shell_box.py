"""Runs command lines in real shells, in an empty folder and without network, and reports effects.

`Box` is a folder with a few files, and a folder of programs which is the whole PATH. Every program
in it is the same script: it records its name and its arguments, and does nothing. So whatever a
line runs is known, and whatever else it does is seen as a change of the folder.

The lines run in one process of its own (`python -m tests.policy.shell_box`), in a network namespace
of its own where the machine offers that. It reads lines from its standard input and writes what
happened to its standard output, both as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SHELLS: Final[dict[str, tuple[str, ...]]] = {
    "bash": ("bash", "--norc", "--noprofile", "-c"),
    "dash": ("dash", "-c"),
    "zsh": ("zsh", "-f", "-c"),
    "mksh": ("mksh", "-c"),
    "busybox": ("busybox", "sh", "-c"),
}
INTERACTIVE: Final[dict[str, tuple[str, ...]]] = {
    "bash -i": ("bash", "--norc", "--noprofile", "-i", "-c"),
    "zsh -i": ("zsh", "-f", "-i", "-c"),
    "mksh -i": ("mksh", "-i", "-c"),
}
"""The same shells as a person uses them: with history, and without comments in zsh."""
_COMMANDS: Final = {**SHELLS, **INTERACTIVE}
_LOCALES: Final = ("C.UTF-8", "C")
WRAPPERS: Final = ("timeout", "nice", "env", "stdbuf", "ionice")
"""Programs that are real, because they only run others."""
RECORDED: Final = (
    *("git", "npm", "ls", "cat", "echo", "grep", "head", "wc", "true", "make", "node", "python3"),
    *("touch", "rm", "cp", "mv", "ln", "sh", "bash", "dash", "zsh", "mksh", "busybox", "id", "tee"),
    *("curl", "wget", "find", "sort", "xargs", "sed", "awk", "perl", "python", "lsof", "lsblk"),
    *("sudo", "su", "eval", "ls2", "gitx", "npmx", "time", "more", "-p", "#", "1", "CI=true", "in"),
)
"""Programs that record that they ran."""
_FILES: Final = ("canary", "-x", "--output=PWN", "a b", "ls1", "x.py", "PATH", "git")
_FOLDERS: Final = ("0", "1", "2", "5")
"""Folders with a program `ls`: a path that is set to a number finds it."""
_SCRIPT: Final = """#!/bin/sh
IFS='\x1f'
printf '%s\x1f%s\x1e' "${{0##*/}}" "$*" >>'{log}'
"""
_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Effect:
    """What a line did in one shell."""

    shell: str
    ran: tuple[tuple[str, ...], ...]
    """Each program that ran, with its arguments."""
    changed: tuple[str, ...]
    """Files that appeared, disappeared or changed."""


def found_shells(*, interactive: bool = False) -> list[str]:
    chosen = _COMMANDS if interactive else SHELLS
    return [name for name, command in chosen.items() if shutil.which(command[0])]


class Box:
    """A folder in which lines run, one after another."""

    def __init__(self, folder: Path) -> None:
        self._work = folder / "work"
        self._programs = folder / "programs"
        self._log = folder / "log"
        self._programs.mkdir(parents=True)
        script = self._programs / ".recorder"
        script.write_text(_SCRIPT.format(log=self._log))
        script.chmod(0o755)
        for name in RECORDED:
            (self._programs / name).symlink_to(script)
        for name in WRAPPERS:
            real = shutil.which(name)
            if real is not None:
                (self._programs / name).symlink_to(real)
        self._commands = {name: self._started(name) for name in found_shells(interactive=True)}
        self._runs = 0
        self._renew()

    @property
    def work(self) -> Path:
        return self._work

    def run(self, line: str, shells: Sequence[str]) -> list[Effect]:
        """Run a line in some shells and return what it did in each."""
        return [self._effect(line, shell) for shell in shells]

    def _started(self, name: str) -> list[str]:
        program, *rest = _COMMANDS[name]
        return [str(shutil.which(program)), *rest]

    def _renew(self) -> None:
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir()
        for name in _FILES:
            (self._work / name).write_text("")
        for name in ("ls/evil", "#/evil", *(f"{folder}/ls" for folder in _FOLDERS)):
            evil = self._work / name
            evil.parent.mkdir(exist_ok=True)
            evil.write_text(f"#!/bin/sh\n: > '{self._work}/PWN'\n")
            evil.chmod(0o755)
        self._before = self._listing()

    def _listing(self) -> dict[str, tuple[int, int]]:
        facts = {path: path.lstat() for path in self._work.rglob("*")}
        return {
            str(path.relative_to(self._work)): (each.st_size, each.st_mtime_ns)
            for path, each in facts.items()
        }

    def _effect(self, line: str, shell: str) -> Effect:
        self._log.unlink(missing_ok=True)
        self._runs += 1
        locale = _LOCALES[self._runs // len(self._commands) % 2]
        home = {"PATH": str(self._programs), "HOME": str(self._work), "LC_ALL": locale}
        with suppress(subprocess.TimeoutExpired):  # what it did so far counts
            subprocess.run(
                [*self._commands[shell], line],
                cwd=self._work,
                env=home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_SECONDS,
                check=False,
            )
        after = self._listing()
        changed = [
            name for name in {*after, *self._before} if after.get(name) != self._before.get(name)
        ]
        if changed:
            self._renew()
        return Effect(shell, self._ran(), tuple(sorted(changed)))

    def _ran(self) -> tuple[tuple[str, ...], ...]:
        if not self._log.exists():
            return ()
        records = self._log.read_bytes().decode("utf-8", "replace").split("\x1e")[:-1]
        return tuple(_arguments(record) for record in records)


def _arguments(record: str) -> tuple[str, ...]:
    name, _, rest = record.partition("\x1f")
    return (name, *rest.split("\x1f")) if rest else (name,)


@contextmanager
def opened(folder: Path) -> Iterator[BoxClient]:
    """Start the process that runs lines, without network if the machine can do that."""
    command = [sys.executable, "-m", "tests.policy.shell_box", str(folder)]
    isolated = ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*isolated, "true"], check=False, capture_output=True).returncode == 0:
        command = [*isolated, *command]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield BoxClient(process, folder / "work")
        if process.stdin is not None:
            process.stdin.close()


class BoxClient:
    """Sends lines to the process that runs them."""

    def __init__(self, process: subprocess.Popen[str], work: Path) -> None:
        self._process = process
        self.work = work

    def run(self, line: str, shells: Sequence[str]) -> list[Effect]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(
            json.dumps({"line": line, "shells": list(shells)}), file=self._process.stdin, flush=True
        )
        effects: list[dict[str, Any]] = json.loads(self._process.stdout.readline())
        return [
            Effect(each["shell"], tuple(map(tuple, each["ran"])), tuple(each["changed"]))
            for each in effects
        ]


def main(folder: str) -> None:
    box = Box(Path(folder))
    for text in sys.stdin:
        asked = json.loads(text)
        effects = box.run(asked["line"], asked["shells"])
        sys.stdout.write(json.dumps([vars(each) for each in effects]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
