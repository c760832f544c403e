"""Files in the folders of a session, for naming one in a prompt.

Folders of the hub's computer, for choosing where a session works; names only, no files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import anyio
from msgspec import Meta

from quarterdeck.errors import RequestRejected
from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Endpoint,
    Query,
    json_app,
    not_found,
    way,
)
from quarterdeck.hub.hub import Hub
from quarterdeck.runner.workspaces.files import FileNames, best_matches

MOST_FILES: Final = 50


class FileQuery(Query, frozen=True, kw_only=True):
    query: Annotated[str, Meta(max_length=200)] = ""
    """Letters of a name or a path, in their order."""


class SessionFile(ApiResponse, frozen=True, kw_only=True):
    name: str
    """From the session's folder on; in another of its folders, with that one's name first."""
    uri: str


class FileList(ApiResponse, frozen=True, kw_only=True):
    """The likeliest first."""

    files: list[SessionFile]


def file_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the files' part of the route table."""
    names = FileNames()

    async def files(asked: ApiRequest) -> FileList:
        session = hub.library.get(asked.path["id"])
        places: dict[str, Path] = {}
        for root in (session.cwd, *session.additional_directories):
            before = "" if root == session.cwd else f"{Path(root).name}/"
            for name in await names.under(root):
                places.setdefault(before + name, Path(root) / name)
        found = await anyio.to_thread.run_sync(_found, places, asked.query.query)
        return FileList(files=found)

    return [
        way(
            "prompt",
            "GET /api/sessions/{id}/files",
            files,
            "List files in the folders of a session by letters of their names",
            query=FileQuery,
            answer=FileList,
            errors=(400, 404),
        )
    ]


def _found(places: dict[str, Path], wanted: str) -> list[SessionFile]:
    names = best_matches(list(places), wanted, MOST_FILES)
    # Git also knows files that are deleted, and folders of other repositories.
    return [
        SessionFile(name=name, uri=places[name].as_uri())
        for name in names
        if places[name].is_file()
    ]


MOST_FOLDERS: Final = 1000
MOST_RECENT: Final = 12


class FolderQuery(Query, frozen=True, kw_only=True):
    path: Annotated[str, Meta(pattern="^/", max_length=4096)] | None = None
    """The home of whoever runs the hub, if left out."""


class Folder(ApiResponse, frozen=True, kw_only=True):
    name: str
    path: str
    is_project: bool
    """Whether it is under version control."""


class FolderList(ApiResponse, frozen=True, kw_only=True):
    """Folders in a folder by name, without hidden ones."""

    path: str
    parent: str | None
    folders: list[Folder]
    recent: list[str]
    """Where sessions worked, the newest first."""


def folder_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the folders' part of the route table."""

    async def folders(asked: ApiRequest) -> FolderList:
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
            continue  # it cannot be looked at, so it cannot be chosen


def _folder(path: Path) -> Folder:
    # A name need not be text on this system; JSON must be.
    name, whole = (
        text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        for text in (path.name, str(path))
    )
    return Folder(name=name, path=whole, is_project=(path / ".git").exists())
