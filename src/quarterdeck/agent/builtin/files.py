"""Files of a session: by the client if it offers them, else on this machine, never elsewhere.

A client shows its editor's text, unsaved changes included, and guards its own files; but what our
own file system says of a path counts as well, so that a link cannot lead out of the roots unseen.

PART: What another program said went wrong, in words for the model: its error, and its details.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from quarterdeck.errors import ConnectionFailed, RpcError, ToolFailed
from quarterdeck.machine import DefaultFsHandler, locate_by_openat2, open_folder

if TYPE_CHECKING:
    from quarterdeck.agent.client import ClientProxy


_NOT_FOUND = -32002


class Files:
    """What the tools may read and write."""

    def __init__(
        self, *, cwd: str, roots: Sequence[str], local: DefaultFsHandler, client: ClientProxy | None
    ) -> None:
        self.cwd = cwd
        self.roots = tuple(roots)
        self._local = local
        self._client = client

    def absolute(self, path: str) -> str:
        """Return the path a tool was given as an absolute one, without `.` and `..`."""
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
        """Return text of the file; raises `ToolFailed` and, if there is none, `FileMissing`."""
        try:
            if self._client is not None and self._client.can_read_files:
                await to_thread.run_sync(self._check, path)
                return await self._client.read_text_file(path, line=line, limit=limit)
            return await self._local.read_text_file(
                "", path, line=line, limit=limit, roots=self.roots
            )
        except RpcError as error:
            raise refused(error, path) from error
        except ConnectionFailed as error:
            raise ToolFailed(f"the client did not hand over {path}: {error}") from error

    async def read_if_there(self, path: str) -> str | None:
        try:
            return await self.read(path)
        except FileMissing:
            return None

    async def write(self, path: str, text: str) -> None:
        """Create or replace a file, and the folders it is in."""
        try:
            if self._client is not None and self._client.can_write_files:
                await to_thread.run_sync(self._check, path)
                await self._client.write_text_file(path, text)
                return
            await to_thread.run_sync(self._make_folders, path)
            await self._local.write_text_file("", path, text, roots=self.roots)
        except RpcError as error:
            raise refused(error, path) from error
        except ConnectionFailed as error:
            raise ToolFailed(f"the client did not write {path}: {error}") from error
        except OSError as error:
            raise ToolFailed(f"{path}: {error.strerror}") from error

    def _check(self, path: str) -> None:
        """Refuse what is outside, as far as it can be told from here; raises `RpcError`."""
        seems_inside = any(PurePosixPath(path).is_relative_to(root) for root in self.roots)
        if seems_inside and not any(Path(root).is_dir() for root in self.roots):
            return  # the client's files are on another machine
        with suppress(OSError), locate_by_openat2(path, self.roots):  # missing, or a folder
            pass

    def _make_folders(self, path: str) -> None:
        missing: list[str] = []
        folder = PurePosixPath(path).parent
        while not self._is_folder(str(folder)) and folder.name:
            missing.append(folder.name)
            folder = folder.parent
        for name in reversed(missing):
            with open_folder(str(folder), self.roots) as fd, suppress(FileExistsError):
                os.mkdir(name, dir_fd=fd)
            folder /= name

    def _is_folder(self, path: str) -> bool:
        try:
            with open_folder(path, self.roots):
                return True
        except FileNotFoundError:
            return False


class FileMissing(ToolFailed):
    """There is no such file."""


def refused(error: RpcError, path: str) -> ToolFailed:
    """Say why a path cannot be used."""
    if error.code == _NOT_FOUND:
        return FileMissing(f"there is no file {path}")
    reason = describe_error(error)
    if reason.endswith("outside session roots"):
        return ToolFailed(f"{path} is outside the session's folders; nothing there can be used")
    return ToolFailed(f"{path}: {reason}")


_NAMES = ("Internal error", "Invalid params", "Invalid request")  # of codes: they say nothing
_CHARACTERS = 1000  # of the details; a traceback would push the task out of the model's window


def describe_error(error: RpcError) -> str:
    """Return the message of a JSON-RPC error and what its `data` adds to it."""
    details = _details(error.data)[:_CHARACTERS]
    if not details or details in error.message:
        return error.message
    return details if error.message in _NAMES else f"{error.message}: {details}"


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
