"""The folders that sessions work in, and the names of the files in them; never their contents.

`list_folder` lists folders for pickers, `check_absolute` checks those that clients name.
`FileNames` finds the files of a session that a prompt may name, by `git ls-files` where it can.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.abc
from msgspec import Struct

from quarterdeck.errors import (
    AcpError,
    AgentNotFound,
    ConfinementUnavailable,
    RequestRejected,
)
from quarterdeck.machine import UNCONFINED, ConfinedStart, guarded_command, guarded_env
from quarterdeck.machine.hidden import NOTHING_HIDDEN, HiddenFolders, identity
from quarterdeck.protocol import ERROR_CODES
from quarterdeck.runner.actor import not_found

MOST_FOLDERS: Final = 1000


class Folder(Struct, frozen=True, kw_only=True, rename="camel"):
    """A folder that a session can work in."""

    name: str
    path: str
    is_project: bool
    """Whether it is under version control."""


class FolderListing(Struct, frozen=True, kw_only=True, rename="camel"):
    """The folders in a folder by name, without hidden ones."""

    path: str
    parent: str | None
    folders: list[Folder]


async def list_folder(path: str | None, hidden: HiddenFolders = NOTHING_HIDDEN) -> FolderListing:
    """Return the folders in a folder, without hidden ones; None is the user's home.

    Raises:
        RequestRejected: if it is not there, or cannot be read.
    """
    folder = Path.home() if path is None else Path(path)
    # On a thread: a disk may be slow, or remote.
    found = await anyio.to_thread.run_sync(_folders, folder, hidden)
    parent = None if folder.parent == folder else str(folder.parent)
    return FolderListing(path=str(folder), parent=parent, folders=found)


def _folders(path: Path, hidden: HiddenFolders) -> list[Folder]:
    try:
        if hidden.contains(path):
            raise not_found(f"folder {str(path)!r}", "choose another")
        inner = (each for each in _inner(path) if not hidden.contains(each.path))
        found = sorted(inner, key=lambda each: each.name.lower())
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise not_found(f"folder {str(path)!r}", "choose another") from error
    except OSError as error:
        message = f"{str(path)!r} cannot be read: {error.strerror}; choose another folder"
        raise RequestRejected("forbidden", message) from error
    return found[:MOST_FOLDERS]


def _inner(path: Path) -> Iterator[Folder]:
    for each in path.iterdir():
        if each.name.startswith("."):
            continue
        try:
            if each.is_dir():
                yield _folder(each)
        except OSError:
            continue  # it cannot be read, so it cannot be chosen


def _folder(path: Path) -> Folder:
    # A name need not be text on this system; JSON must be.
    name, whole = (
        text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for text in (path.name, str(path))
    )
    return Folder(name=name, path=whole, is_project=(path / ".git").exists())


def relative_folder(*folders: Any) -> str | None:
    """Return why a folder cannot be used; a relative one depends on where the hub was started."""
    for folder in folders:
        if not isinstance(folder, str):
            continue
        if not folder.startswith("/"):
            return f"{folder!r} is not an absolute path; start it with /"
        if "\0" in folder or not _is_writable(folder):
            return f"{folder!r} is not a valid path: it contains a NUL or an invalid character"
    return None


def _is_writable(folder: str) -> bool:
    try:
        folder.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_absolute(*folders: Any) -> None:
    """Reject a relative folder.

    Raises:
        AcpError: `acpjs/config-invalid`.
    """
    sentence = relative_folder(*folders)
    if sentence is not None:
        raise AcpError(ERROR_CODES["config_invalid"], sentence)


MOST_FILES: Final = 50_000
"""Of one folder; larger projects are cut off."""
MOST_BYTES: Final = 8 << 20
PATIENCE_SECONDS: Final = 4.0
FRESH_SECONDS: Final = 10.0
"""How long a list is used again: while a query is typed, each letter is a request."""
MOST_ROOTS: Final = 8
SKIPPED: Final = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})
PASSED_ON: Final = ("PATH", "HOME", "XDG_CONFIG_HOME")
SETTINGS: Final = ("-c", "core.fsmonitor=false", "-c", "safe.bareRepository=explicit")
"""The second: folders that a repository brings along can look like one, settings and all."""
CAREFUL: Final = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # older ones do not know the former; no setting overrides this
}
LIST_FILES: Final = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")


class SessionFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """A file that a prompt can name."""

    name: str
    """From the session's folder on; in another of its folders, with that one's name first."""
    uri: str


class FileNames:
    """Lists folders, and keeps the last lists for a moment; never names in `hidden` folders.

    `confine` returns how git is started: an agent may have put a program of that name on PATH.
    """

    def __init__(
        self,
        hidden: HiddenFolders = NOTHING_HIDDEN,
        confine: Callable[[], ConfinedStart] = lambda: UNCONFINED,
    ) -> None:
        self._hidden = hidden
        self._confine = confine
        self._known: dict[str, tuple[float, list[str]]] = {}

    async def under(self, root: str) -> list[str]:
        """Return the files beneath a folder, relative to it; without those that git ignores."""
        known = self._known.pop(root, None)
        if known is None or time.monotonic() - known[0] > FRESH_SECONDS:
            names = await _listed_by_git(root, self._confine)
            if names is None:
                # On a thread: a disk may be slow, or far away.
                names = await anyio.to_thread.run_sync(_walked, root)
            known = (time.monotonic(), names)
        self._known[root] = known
        while len(self._known) > MOST_ROOTS:
            self._known.pop(next(iter(self._known)))
        return known[1]

    async def find(self, roots: Sequence[str], query: str, limit: int) -> list[SessionFile]:
        """Return the files beneath some folders that match a query, the best match first.

        Names begin in the first folder; those of the others have the name of their folder first.
        """
        paths: dict[str, Path] = {}
        for root in roots:
            before = "" if root == roots[0] else f"{Path(root).name}/"
            for name in await self.under(root):
                paths.setdefault(before + name, Path(root) / name)
        return await anyio.to_thread.run_sync(_found, paths, query, limit, self._hidden)


def _found(
    paths: dict[str, Path], query: str, limit: int, hidden: HiddenFolders
) -> list[SessionFile]:
    names = best_matches(_visible(paths, hidden), query, limit)
    # Git also lists files that are deleted, and folders of other repositories.
    return [
        SessionFile(name=name, uri=paths[name].as_uri()) for name in names if paths[name].is_file()
    ]


def _visible(paths: dict[str, Path], hidden: HiddenFolders) -> list[str]:
    """Return the names of files that are not in a hidden folder; each folder is checked once."""
    if not hidden:
        return list(paths)
    folders = {path.parent for path in paths.values()}
    closed = {folder for folder in folders if hidden.contains(folder)}
    files = hidden.everything()

    def is_visible(path: Path) -> bool:
        if path.parent in closed:
            return False
        try:
            return identity(path.stat()) not in files
        except OSError:  # deleted; such names are left out later
            return True

    return [name for name, path in paths.items() if is_visible(path)]


def best_matches(names: Sequence[str], wanted: str, limit: int) -> list[str]:
    """Return the names that match what is typed, the best match first."""
    sought = wanted.lower()
    ranked = ((_rank(name.lower(), sought), name) for name in names)
    found = [(rank, name.count("/"), len(name), name) for rank, name in ranked if rank is not None]
    return [name for *_, name in sorted(found)[:limit]]


def _rank(name: str, sought: str) -> int | None:
    last = name.rpartition("/")[2]
    if last.startswith(sought):
        return 0
    if sought in last:
        return 1
    if sought in name:
        return 2
    letters = iter(name)
    return 3 if all(letter in letters for letter in sought) else None


async def _listed_by_git(root: str, confine: Callable[[], ConfinedStart]) -> list[str] | None:
    """Return what git knows and does not ignore; None without a repository, or without git."""
    # Whatever the repository's own settings say, no program of theirs is started: not to watch
    # files, and not to fetch what is missing, which a protocol of theirs would do.
    command = ("git", *SETTINGS, "-C", root, *LIST_FILES)
    plain = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    env = {**plain, **CAREFUL}
    try:
        start = await anyio.to_thread.run_sync(confine)
        process = await anyio.open_process(
            guarded_command(command, env=env, start=start),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=guarded_env(env, start),
            cwd="/",
        )
    except (OSError, AgentNotFound, ConfinementUnavailable):
        return None
    async with process:
        output = await _output(process)
    if output is None or (process.returncode != 0 and not output):
        return None
    return _names(output)


async def _output(process: anyio.abc.Process) -> bytes | None:
    """Return what a process says, up to a limit; None if that takes too long."""
    assert process.stdout is not None
    parts, size = [], 0
    with anyio.move_on_after(PATIENCE_SECONDS) as patience:
        async for part in process.stdout:
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                break
        else:
            await process.wait()
    if process.returncode is None:
        process.kill()
    return None if patience.cancelled_caught else b"".join(parts)


def _names(output: bytes) -> list[str]:
    names: dict[str, None] = {}
    # What follows the last zero is cut off, or nothing.
    for each in output.split(b"\0")[:-1]:
        try:
            name = each.decode()
        except UnicodeDecodeError:
            continue  # it could not be named in a prompt
        if name and not name.startswith("/") and ".." not in name.split("/"):
            names[name] = None
        if len(names) == MOST_FILES:
            break
    return list(names)


def _walked(root: str) -> list[str]:
    ends = time.monotonic() + PATIENCE_SECONDS
    names: list[str] = []
    for name in _files_beneath(root):
        names.append(name)
        if len(names) == MOST_FILES or time.monotonic() > ends:
            break
    return names


def _files_beneath(root: str) -> Iterator[str]:
    """Yield names without hidden folders and those that tools fill; links are not followed."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            each for each in folders if not each.startswith(".") and each not in SKIPPED
        )
        for file in sorted(files):
            name = os.path.relpath(Path(folder) / file, root)  # noqa: TID251 - names of any bytes
            if name.isprintable():  # what is not text in this system's names is not
                yield name
