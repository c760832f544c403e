"""Files of a session, for naming one in a prompt; what a new session can have on a machine: its
folder, and MCP servers.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from quarterdeck.agents import McpServerView
from quarterdeck.errors import RequestRejected
from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Endpoint,
    Query,
    json_app,
    json_endpoint,
)
from quarterdeck.hub.fleet.identifiers import LOCAL
from quarterdeck.hub.fleet.translated import TranslatedRunner
from quarterdeck.hub.hub import Hub
from quarterdeck.runner import Folder, RunnerApi, SessionFile

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
            returns=FileList,
            errors=(400, 404),
        )
    ]


MOST_RECENT: Final = 12


class FolderQuery(Query, frozen=True, kw_only=True):
    path: Annotated[str, Meta(pattern="^/", max_length=4096)] | None = None
    """A folder; the home of the user that runs the hub, if left out."""
    machine: Annotated[str, Meta(max_length=200)] | None = None
    """The id or name of a machine; the hub's own if left out."""


class FolderList(ApiResponse, frozen=True, kw_only=True):
    """Folders in a folder by name, without hidden ones."""

    path: str
    parent: str | None
    folders: list[Folder]
    recent: list[str]
    """Where sessions worked, the newest first."""


class McpServerList(ApiResponse, frozen=True, kw_only=True):
    servers: list[McpServerView]


def _runner_on(hub: Hub, request: ApiRequest, machine: str | None) -> RunnerApi:
    """Return the runner of a machine.

    Raises:
        RequestRejected: if the device may not start sessions there.
    """
    runner = hub.fleet.on(machine)
    machine_id = runner.machine_id if isinstance(runner, TranslatedRunner) else LOCAL
    device = request.by.on(machine_id)
    if not device.may("prompt"):
        message = f"on that machine, this device has the scope {device.scope}; this needs prompt"
        raise RequestRejected("forbidden", message)
    return runner


def folder_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the part of the route table about what a new session can have."""

    async def servers(request: ApiRequest) -> McpServerList:
        query = request.query_as(FolderQuery)
        runner = _runner_on(hub, request, query.machine)
        return McpServerList(servers=await runner.list_mcp_servers(query.path))

    async def folders(request: ApiRequest) -> FolderList:
        query = request.query_as(FolderQuery)
        runner = _runner_on(hub, request, query.machine)
        newest_first = reversed([session.cwd for session in runner.sessions()])
        recent = list(dict.fromkeys(newest_first))[:MOST_RECENT]
        listing = await runner.list_folder(query.path)
        return FolderList(
            path=listing.path, parent=listing.parent, folders=listing.folders, recent=recent
        )

    return [
        Endpoint(
            method="GET",
            path="/api/folders",
            scope="prompt",
            app=json_app(folders, query=FolderQuery),
            summary="List folders of a machine",
            tag="sessions",
            query=FolderQuery,
            returns=FolderList,
            errors=(400, 403, 404, 503),
        ),
        Endpoint(
            method="GET",
            path="/api/mcp",
            scope="prompt",
            app=json_app(servers, query=FolderQuery),
            summary="List the MCP servers of the configuration, and which a folder gets",
            tag="sessions",
            query=FolderQuery,
            returns=McpServerList,
            errors=(400, 403, 404, 503),
        ),
    ]
