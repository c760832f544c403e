"""Where installed agents are: a folder each, with a folder per version, switched in one step.

    agents/
      claude/
        current.json                which version new processes use
        0.99.1.1/                   a version: never changed once it is complete
          installed.json            what it is and how it starts; written last
          node_modules/…
        0.98.0.1/                   an earlier one, kept while a process runs it
        .cache/                     downloads of an installation that was interrupted
        lock                        held while something is installed or removed
      .node/24.19.0/…               Node.js, where the machine has none

A folder without `installed.json` is one whose installation was interrupted; the next one removes
it. Nothing moves: a virtual environment knows its own path.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from quarterdeck.errors import InstallFailed

_CURRENT: Final = "current.json"
_MANIFEST: Final = "installed.json"
_CACHE: Final = ".cache"
_LOCK: Final = "lock"
_MOST_BYTES: Final = 4 << 20
_PRIVATE: Final = 0o700


class InstalledAgent(Struct, frozen=True, kw_only=True, rename="camel"):
    """A version of an agent that was installed here."""

    name: str
    version: str
    kind: Literal["npm", "pypi", "binary"]
    source: str
    """The package, or the address of the archive."""
    program: str
    """Its program, beneath the folder of this version."""
    args: tuple[str, ...] | None = None
    """Its arguments, if they differ from those in the catalogue."""
    env: dict[str, str] = {}
    search: tuple[str, ...] = ()
    """Folders of programs that it needs on PATH; relative ones are beneath its folder."""
    packages: dict[str, str] = {}
    """Everything that was installed for it, with versions."""
    sha256: str | None = None
    """Of the archive, which was verified."""
    installed_at: float = 0.0
    node: str | None = None
    """The version of the Node.js that was installed for it."""


class _Current(Struct, frozen=True):
    folder: str


_FOLDER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def is_folder_name(name: str) -> bool:
    """Return whether a name, which a client may have sent, is that of one folder."""
    return _FOLDER_NAME.fullmatch(name) is not None


class AgentFolder:
    """The versions of one agent."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def cache(self) -> Path:
        return self.path / _CACHE

    def current(self) -> tuple[Path, InstalledAgent] | None:
        """Return the version that new processes use, and its folder; None if there is none."""
        chosen = _read(self.path / _CURRENT, _Current)
        if chosen is None or chosen.folder in ("", ".", "..") or "/" in chosen.folder:
            return None
        folder = self.path / chosen.folder
        found = _read(folder / _MANIFEST, InstalledAgent)
        return None if found is None else (folder, found)

    def begin(self, version: str) -> Path:
        """Create the folder of a version that is to be installed; the caller holds the lock."""
        self.remove_unfinished()
        for number in range(1, 1000):
            folder = self.path / f"{version}.{number}"
            with suppress(FileExistsError):
                folder.mkdir(mode=_PRIVATE)
                return folder
        raise InstallFailed(f"{self.path} is full of old versions", f"remove {self.path}")

    def commit(self, folder: Path, manifest: InstalledAgent) -> None:
        """Declare a version complete, and use it from now on."""
        _write(folder / _MANIFEST, manifest)
        _write(self.path / _CURRENT, _Current(folder.name))

    def remove_unfinished(self) -> None:
        """Remove what an interrupted installation has left, but its downloads."""
        for folder in self._folders():
            if not (folder / _MANIFEST).exists():
                remove_tree(folder)

    def prune(self, in_use: Sequence[str]) -> None:
        """Remove versions that are neither current nor used by a process, by their programs."""
        found = self.current()
        for folder in self._folders():
            is_used = any(each.startswith(f"{folder}/") for each in in_use)
            if (found is None or folder != found[0]) and not is_used:
                remove_tree(folder)

    def remove(self, in_use: Sequence[str]) -> None:
        """Forget the agent; versions that a process uses are removed later."""
        (self.path / _CURRENT).unlink(missing_ok=True)
        remove_tree(self.cache)
        self.prune(in_use)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from installing or removing this agent.

        Raises:
            InstallFailed: if another process does so now, or the folder cannot be written.
        """
        try:
            self.path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            reason = f"cannot write in {self.path}: {error.strerror}"
            raise InstallFailed(reason, "check the disk and that you can write there") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            reason = f"{self.path.name} is being installed by another process"
            raise InstallFailed(reason, "wait for it, then try again") from error
        try:
            yield
        finally:
            os.close(lock)

    def _folders(self) -> list[Path]:
        with suppress(OSError):
            return [
                each
                for each in self.path.iterdir()
                if each.is_dir() and not each.is_symlink() and each.name != _CACHE
            ]
        return []


class InstallFolder:
    """The folder of all installed agents."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def agent(self, name: str) -> AgentFolder:
        """Return the folder of an agent.

        Raises:
            InstallFailed: if the name leads elsewhere.
        """
        if not is_folder_name(name):
            raise InstallFailed(f"{name!r} is no name of an agent", "list them: quarterdeck agents")
        return AgentFolder(self.path / name)

    @property
    def node(self) -> Path:
        """Where Node.js is installed, a folder per version."""
        return self.path / ".node"

    def names(self) -> list[str]:
        """Return the agents that are installed."""
        try:
            found = sorted(each.name for each in self.path.iterdir() if each.is_dir())
        except OSError:
            return []
        return [
            name
            for name in found
            if is_folder_name(name) and self.agent(name).current() is not None
        ]

    def used_node_versions(self) -> set[str]:
        """Return the versions of Node.js that installed agents need."""
        found = (self.agent(name).current() for name in self.names())
        return {each[1].node for each in found if each is not None and each[1].node is not None}


def remove_tree(path: Path) -> None:
    """Remove a folder, if it is there; what cannot be removed stays."""
    shutil.rmtree(path, ignore_errors=True)


def _read(path: Path, kind: type[Any]) -> Any:
    """Return what a file holds; None if it is missing, or damaged."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MOST_BYTES), type=kind)
    except (OSError, msgspec.DecodeError):
        return None


def _write(path: Path, value: Struct) -> None:
    """Replace a file in one step, on disk before it is seen."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(value), indent=1))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
