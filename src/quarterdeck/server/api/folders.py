"""Folders of the hub's computer, for choosing where a session works; names only, no files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import anyio
from msgspec import Meta

from quarterdeck.errors import RequestRefused
from quarterdeck.server.handling import Answer, Asked, Query, json_app
from quarterdeck.server.hub import Hub
from quarterdeck.server.refusals import not_found
from quarterdeck.server.routes import Endpoint

MOST_FOLDERS: Final = 1000
MOST_RECENT: Final = 12


class FolderQuery(Query, frozen=True, kw_only=True):
    path: Annotated[str, Meta(pattern="^/", max_length=4096)] | None = None
    """The home of whoever runs the hub, if left out."""


class Folder(Answer, frozen=True, kw_only=True):
    name: str
    path: str
    is_project: bool
    """Whether it is under version control."""


class FolderList(Answer, frozen=True, kw_only=True):
    """Folders in a folder by name, without hidden ones."""

    path: str
    parent: str | None
    folders: list[Folder]
    recent: list[str]
    """Where sessions worked, the newest first."""


def folder_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the folders' part of the route table."""

    async def folders(asked: Asked) -> FolderList:
        path = Path.home() if asked.query.path is None else Path(asked.query.path)
        newest_first = reversed([session.cwd for session in hub.library.all()])
        recent = list(dict.fromkeys(newest_first))[:MOST_RECENT]
        # On a thread: a disk may be slow, or far away.
        found = await anyio.to_thread.run_sync(_folders, path)
        parent = None if path.parent == path else str(path.parent)
        return FolderList(path=str(path), parent=parent, folders=found, recent=recent)

    return [
        Endpoint(
            method="GET",
            path="/api/folders",
            scope="prompt",
            app=json_app(folders, query=FolderQuery),
            summary="List folders of the hub's computer",
            tag="sessions",
            query=FolderQuery,
            answer=FolderList,
            errors=(400, 403, 404),
        )
    ]


def _folders(path: Path) -> list[Folder]:
    try:
        found = sorted(_inner(path), key=lambda each: each.name.lower())
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise not_found(f"folder {str(path)!r}", "choose another") from error
    except OSError as error:
        message = f"{str(path)!r} cannot be read: {error.strerror}; choose another folder"
        raise RequestRefused(403, "forbidden", message) from error
    return found[:MOST_FOLDERS]


def _inner(path: Path) -> Iterator[Folder]:
    for each in path.iterdir():
        if each.name.startswith("."):
            continue
        try:
            if each.is_dir():
                yield _folder(each)
        except OSError:
            continue  # it cannot be looked at, so it cannot be chosen


def _folder(path: Path) -> Folder:
    # A name need not be text on this system; JSON must be.
    name, whole = (
        text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for text in (path.name, str(path))
    )
    return Folder(name=name, path=whole, is_project=(path / ".git").exists())
