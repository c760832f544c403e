"""Files in the folders of a session, for naming one in a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import anyio
from msgspec import Meta

from quarterdeck.server.handling import Answer, Asked, Query, way
from quarterdeck.server.hub import Hub
from quarterdeck.server.routes import Endpoint
from quarterdeck.server.session_files import FileNames, best_matches

MOST_FILES: Final = 50


class FileQuery(Query, frozen=True, kw_only=True):
    query: Annotated[str, Meta(max_length=200)] = ""
    """Letters of a name or a path, in their order."""


class SessionFile(Answer, frozen=True, kw_only=True):
    name: str
    """From the session's folder on; in another of its folders, with that one's name first."""
    uri: str


class FileList(Answer, frozen=True, kw_only=True):
    """The likeliest first."""

    files: list[SessionFile]


def file_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the files' part of the route table."""
    names = FileNames()

    async def files(asked: Asked) -> FileList:
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
