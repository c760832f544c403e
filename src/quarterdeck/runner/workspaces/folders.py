"""Folders of the runner's computer: listed for pickers, and checked when clients name them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio
from msgspec import Struct

from quarterdeck.errors import AcpError, RequestRejected
from quarterdeck.machine.hidden import NOTHING_HIDDEN, HiddenFolders
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
