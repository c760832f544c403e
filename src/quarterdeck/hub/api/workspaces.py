"""Files of a session, for naming one in a prompt; folders, for choosing where a session works."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Endpoint,
    Query,
    json_app,
    json_endpoint,
)
from quarterdeck.hub.hub import Hub
from quarterdeck.runner import Folder, SessionFile

MOST_FILES: Final = 50


class FileQuery(Query, frozen=True, kw_only=True):
    query: Annotated[str, Meta(max_length=200)] = ""
    """Letters of a name or a path, in their order."""


class FileList(ApiResponse, frozen=True, kw_only=True):
    """The best match first."""

    files: list[SessionFile]


def file_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the files' part of the route table."""

    async def files(request: ApiRequest) -> FileList:
        query = request.query_as(FileQuery).query
        found = await hub.runner.find_files(request.path["id"], query, MOST_FILES)
        return FileList(files=found)

    return [
        json_endpoint(
            "prompt",
            "GET /api/sessions/{id}/files",
            files,
            "List files in the folders of a session by letters of their names",
            query=FileQuery,
            answer=FileList,
            errors=(400, 404),
        )
    ]


MOST_RECENT: Final = 12


class FolderQuery(Query, frozen=True, kw_only=True):
    path: Annotated[str, Meta(pattern="^/", max_length=4096)] | None = None
    """The home of the user that runs the hub, if left out."""


class FolderList(ApiResponse, frozen=True, kw_only=True):
    """Folders in a folder by name, without hidden ones."""

    path: str
    parent: str | None
    folders: list[Folder]
    recent: list[str]
    """Where sessions worked, the newest first."""


def folder_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the folders' part of the route table."""

    async def folders(request: ApiRequest) -> FolderList:
        newest_first = reversed([session.cwd for session in hub.runner.sessions()])
        recent = list(dict.fromkeys(newest_first))[:MOST_RECENT]
        listing = await hub.runner.list_folder(request.query_as(FolderQuery).path)
        return FolderList(
            path=listing.path, parent=listing.parent, folders=listing.folders, recent=recent
        )

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
