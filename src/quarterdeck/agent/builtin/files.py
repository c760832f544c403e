"""`Files`: the files that tools may read and write, through the client or on this machine.

A client that offers file access is used first: it has its editor's text, including unsaved changes,
and guards its own files. The path is checked against our own file system as well, so that a
symbolic link cannot lead out of the session's roots. `describe_error` puts errors of clients and
MCP servers into words for the model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from quarterdeck.errors import ConnectionFailed, RpcError, ToolFailed
from quarterdeck.machine import (
    NOTHING_HIDDEN,
    DefaultFsHandler,
    HiddenFolders,
    locate_by_openat2,
    open_folder,
)

if TYPE_CHECKING:
    from quarterdeck.agent.client import ClientProxy


_NOT_FOUND = -32002
_GENERIC_MESSAGES = ("Internal error", "Invalid params", "Invalid request")  # add no information
_DETAIL_CHARACTERS = 1000  # a traceback would fill the model's context window


class Files:
    """Reads and writes files beneath the session's roots."""

    def __init__(
        self,
        *,
        cwd: str,
        roots: Sequence[str],
        local: DefaultFsHandler,
        client: ClientProxy | None,
        hidden: HiddenFolders = NOTHING_HIDDEN,
    ) -> None:
        self.hidden = hidden
        self.cwd = cwd
        self.roots = tuple(roots)
        self._local = local
        self._client = client

    def absolute(self, path: str) -> str:
        """Return a tool's path argument as an absolute path without `.` and `..`."""
        if not path or "\0" in path:
            raise ToolFailed("no file can have such a path; give one inside the project")
        whole = PurePosixPath(self.cwd, path.removeprefix("file://"))
        parts: list[str] = []
        for part in whole.parts[1:]:
            if part != "..":
                parts.append(part)
            elif parts:
                parts.pop()
        return "/" + "/".join(parts)

    async def read(self, path: str, *, line: int | None = None, limit: int | None = None) -> str:
        """Return the text of a file; raises `ToolFailed`, or `FileMissing` if it does not exist."""
        try:
            if self._client is not None and self._client.can_read_files:
                await to_thread.run_sync(self._check, path)
                return await self._client.read_text_file(path, line=line, limit=limit)
            return await self._local.read_text_file(
                "", path, line=line, limit=limit, roots=self.roots
            )
        except RpcError as error:
            raise to_tool_error(error, path) from error
        except ConnectionFailed as error:
            raise ToolFailed(f"the client did not hand over {path}: {error}") from error

    async def read_if_present(self, path: str) -> str | None:
        """Return the text of a file; None if it does not exist.

        Few clients use ACP's error for a missing file: a handler that throws sends any error. So
        any error means that, if the file does not exist on this machine either.
        """
        try:
            return await self.read(path)
        except FileMissing:
            return None
        except ToolFailed:
            if await to_thread.run_sync(self._is_missing, path):
                return None
            raise

    async def write(self, path: str, text: str) -> None:
        """Create or replace a file; creates missing folders."""
        try:
            if self._client is not None and self._client.can_write_files:
                await to_thread.run_sync(self._check, path)
                await self._client.write_text_file(path, text)
                return
            await to_thread.run_sync(self._make_folders, path)
            await self._local.write_text_file("", path, text, roots=self.roots)
        except RpcError as error:
            raise to_tool_error(error, path) from error
        except ConnectionFailed as error:
            raise ToolFailed(f"the client did not write {path}: {error}") from error
        except OSError as error:
            raise ToolFailed(f"{path}: {error.strerror}") from error

    def _check(self, path: str) -> None:
        """Raise `RpcError` for a path that is outside the roots on this machine."""
        seems_inside = any(PurePosixPath(path).is_relative_to(root) for root in self.roots)
        if seems_inside and not any(Path(root).is_dir() for root in self.roots):
            return  # the client's files are on another machine
        # Suppressed: a file that is missing, or a folder.
        with suppress(OSError), locate_by_openat2(path, self.roots, self.hidden):
            pass

    def _is_missing(self, path: str) -> bool:
        """Return whether a path beneath the roots does not exist on this machine."""
        if not any(Path(root).is_dir() for root in self.roots):
            return False  # the client's files are on another machine
        try:
            with locate_by_openat2(path, self.roots, self.hidden) as located:
                return located.status is None
        except FileNotFoundError:
            return True  # its folder does not exist either
        except (OSError, RpcError, ValueError):
            return False

    def _make_folders(self, path: str) -> None:
        missing: list[str] = []
        folder = PurePosixPath(path).parent
        while not self._is_folder(str(folder)) and folder.name:
            missing.append(folder.name)
            folder = folder.parent
        for name in reversed(missing):
            with open_folder(str(folder), self.roots, self.hidden) as fd, suppress(FileExistsError):
                os.mkdir(name, dir_fd=fd)
            folder /= name

    def _is_folder(self, path: str) -> bool:
        try:
            with open_folder(path, self.roots, self.hidden):
                return True
        except FileNotFoundError:
            return False


class FileMissing(ToolFailed):
    """The file does not exist."""


def to_tool_error(error: RpcError, path: str) -> ToolFailed:
    """Convert the error of a file access to one for the model."""
    if error.code == _NOT_FOUND:
        return FileMissing(f"there is no file {path}")
    reason = describe_error(error)
    if reason.endswith("outside session roots"):
        return ToolFailed(f"{path} is outside the session's folders; nothing there can be used")
    return ToolFailed(f"{path}: {reason}")


def describe_error(error: RpcError) -> str:
    """Return the message of a JSON-RPC error and what its `data` adds to it."""
    details = _details(error.data)[:_DETAIL_CHARACTERS]
    if not details or details in error.message:
        return error.message
    return details if error.message in _GENERIC_MESSAGES else f"{error.message}: {details}"


def _details(data: Any) -> str:
    match data:
        case str():
            return data.strip()
        case {"details": str(details)} | {"message": str(details)} | {"error": str(details)}:
            return details.strip()
        case {"details": inner} | {"error": inner}:
            return _details(inner)
        case _:
            return ""
