"""The default file handler: text files beneath a session's roots, treated as an editor does.

`roots` decides where a file may be.

Reading. UTF-8. A byte order mark is dropped. Bytes that are not UTF-8 become U+FFFD, as in every
editor. Only line feeds end a line; carriage returns are part of it. `line` counts from 1, and less
means 1; `limit` below 1 returns nothing; beyond the end there is nothing. With `line` or `limit`
the file is read in pieces and may have any size; the result never exceeds `max_bytes`. Rejected:
what is not a regular file (a pipe would block, a device never ends), and what has a NUL byte in its
first 8 KiB (a binary file, or UTF-16).

Writing. The text is written to a new file in the same folder, synced, and renamed over the old one:
a reader sees the old text or the new one, and a full disk leaves the old one. The mode, byte order
mark and, if permitted, owner of the old file are kept; its other hard links keep the old text;
extended attributes are not copied. A link is kept and its target replaced. A read-only file is
rejected although its folder would allow replacing it. Folders are not created: a misspelt path
should fail, and an agent has other means to create one.

Everything runs in threads. A cancelled call returns at once; its thread stops at the next piece and
does not replace the file.
"""

from __future__ import annotations

import codecs
import errno
import logging
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import anyio
from anyio import to_thread

from quarterdeck.acp import methods
from quarterdeck.errors import RpcError
from quarterdeck.machine.hidden import NOTHING_HIDDEN, HiddenFolders
from quarterdeck.machine.roots import Locate, LocatedFile, is_beneath, locate_by_openat2
from quarterdeck.wire import INTERNAL_ERROR, INVALID_PARAMS, rpc_error

_MAX_BYTES = 32 * 1024 * 1024  # of text per read or write; far more than a model can read
_PIECE = 256 * 1024
_BINARY_PROBE = 8 * 1024
_THREADS = 8  # a few, for a network file system that hangs
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_PATH = 4096  # the limit of Linux
_ABOUT_THE_PATH = (errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL)
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}

T = TypeVar("T")
Abandoned = Callable[[], bool]
"""Returns whether the caller of a thread was cancelled."""

logger = logging.getLogger(__name__)


class DefaultFsHandler:
    """Serves `fs/read_text_file` and `fs/write_text_file` on the file system of the host."""

    def __init__(
        self,
        *,
        max_bytes: int = _MAX_BYTES,
        locate: Locate | None = None,
        hidden: HiddenFolders = NOTHING_HIDDEN,
        read_only: HiddenFolders = NOTHING_HIDDEN,
    ) -> None:
        """Serve no file in a `hidden` folder, whatever the roots are; write none in `read_only`."""
        self._max_bytes = max_bytes
        self._locate = locate or partial(locate_by_openat2, hidden=hidden)
        self._read_only = read_only
        self._limiter = anyio.CapacityLimiter(_THREADS)

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        *,
        line: int | None = None,
        limit: int | None = None,
        roots: Sequence[str],
    ) -> str:
        """Return the text of a file, or `limit` lines of it from number `line` on.

        Raises:
            RpcError: -32002 if there is no such file, -32602 if it is not one that may be read
                here, -32603 if the system failed.
        """
        _require_sane(path)

        def read(abandoned: Abandoned) -> str:
            with _refusals(path, missing=path), self._locate(path, roots) as located:
                return self._read(located, path, _Lines(line, limit), abandoned)

        return await self._in_thread(read)

    async def write_text_file(
        self, session_id: str, path: str, content: str, *, roots: Sequence[str]
    ) -> None:
        """Create a file or replace its text, all or nothing.

        Raises:
            RpcError: -32002 if its folder does not exist, -32602 if it is not one that may be
                written here, -32603 if the system failed.
        """
        _require_sane(path)

        def write(abandoned: Abandoned) -> None:
            text = self._encoded(content)
            missing = f"the folder of {path}; create it first"
            with _refusals(path, missing), self._locate(path, roots) as located:
                if is_beneath(located, self._read_only.folders()):
                    raise rpc_error(INVALID_PARAMS, f"{path} is part of the hub's own program")
                _replace(located, path, text, abandoned)

        await self._in_thread(write)

    async def _in_thread(self, work: Callable[[Abandoned], T]) -> T:
        ended = threading.Event()
        try:
            return await to_thread.run_sync(
                work, ended.is_set, abandon_on_cancel=True, limiter=self._limiter
            )
        finally:
            ended.set()

    def _read(self, located: LocatedFile, path: str, lines: _Lines, abandoned: Abandoned) -> str:
        if located.status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        _require_regular(located.status, path)
        if lines.limit is not None and lines.limit <= 0:
            return ""
        with _opened(located, os.O_RDONLY) as fd:
            status = os.fstat(fd)
            _require_regular(status, path)
            if lines.is_everything and status.st_size > self._max_bytes:
                raise self._too_large(path)
            text = bytearray()
            for piece in lines.of(_pieces(fd, path, abandoned)):
                text += piece
                if len(text) > self._max_bytes:
                    raise self._too_large(path)
        return _decoded(text, path)

    def _too_large(self, path: str) -> RpcError:
        sentence = f"{path} has more than {self._max_bytes} bytes of text; use line and limit"
        return rpc_error(INVALID_PARAMS, sentence)

    def _encoded(self, content: str) -> bytes:
        try:
            text = content.encode()
        except UnicodeEncodeError as error:
            sentence = "the content has half a surrogate pair, which no file can hold"
            raise rpc_error(INVALID_PARAMS, sentence) from error
        if len(text) > self._max_bytes:
            sentence = f"the content has {len(text)} bytes; the limit is {self._max_bytes}"
            raise rpc_error(INVALID_PARAMS, sentence)
        return text


class _Lines:
    """A range of lines."""

    def __init__(self, line: int | None, limit: int | None) -> None:
        self.limit = limit
        self._skipped = max(line or 1, 1) - 1
        self.is_everything = limit is None and self._skipped == 0

    def of(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the lines, joined by line feeds, with none after the last of a limited number."""
        to_skip, to_take = self._skipped, self.limit
        for piece in pieces:
            start = 0
            if to_skip:
                start, to_skip = _after_newlines(piece, 0, to_skip)
            if to_skip:
                continue
            if to_take is None:
                yield piece[start:]
                continue
            end, to_take = _after_newlines(piece, start, to_take)
            if to_take == 0:
                yield piece[start : end - 1]
                return
            yield piece[start:]


def _after_newlines(piece: bytes, start: int, count: int) -> tuple[int, int]:
    """Return the position after `count` newlines, and how many of them were not there."""
    there = piece.count(b"\n", start)
    if there < count:
        return len(piece), count - there
    for _ in range(count):
        start = piece.index(b"\n", start) + 1
    return start, 0


def _pieces(fd: int, path: str, abandoned: Abandoned) -> Iterator[bytes]:
    """Read to the end, without the byte order mark; reject what is not text."""
    first = b""
    while len(first) < _BINARY_PROBE and (more := os.read(fd, _PIECE)):
        first += more
    if b"\0" in first[:_BINARY_PROBE]:
        raise rpc_error(INVALID_PARAMS, f"{path} is not text: it has NUL bytes")
    yield first.removeprefix(codecs.BOM_UTF8)
    while not abandoned() and (piece := os.read(fd, _PIECE)):
        yield piece


def _decoded(text: bytearray, path: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        logger.info("file is not valid utf-8; its bytes were replaced", extra={"path": path})
        return text.decode(errors="replace")


def _replace(located: LocatedFile, path: str, text: bytes, abandoned: Abandoned) -> None:
    """Write a new file next to the old one and rename it."""
    old = _old_file(located, path)
    if old is not None and old.has_mark and not text.startswith(codecs.BOM_UTF8):
        text = codecs.BOM_UTF8 + text
    temporary = f".quarterdeck-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN
    fd = os.open(temporary, flags, 0o666 if old is None else 0o600, dir_fd=located.folder)
    try:
        try:
            _fill(fd, text, old)
        finally:
            os.close(fd)
        _require_wanted(abandoned)
        os.rename(temporary, located.name, src_dir_fd=located.folder, dst_dir_fd=located.folder)
    except BaseException:
        with suppress(OSError):  # nothing more can be done
            os.unlink(temporary, dir_fd=located.folder)
        raise


@dataclass(frozen=True)
class _OldFile:
    status: os.stat_result
    has_mark: bool


def _old_file(located: LocatedFile, path: str) -> _OldFile | None:
    """Inspect the file to be replaced; opening it for writing checks the permission."""
    if located.status is None:
        return None
    _require_regular(located.status, path)
    with suppress(FileNotFoundError), _opened(located, os.O_RDWR) as fd:
        status = os.fstat(fd)
        _require_regular(status, path)
        return _OldFile(status, os.pread(fd, 3, 0) == codecs.BOM_UTF8)
    return None


def _fill(fd: int, text: bytes, old: _OldFile | None) -> None:
    view = memoryview(text)
    while view:
        view = view[os.write(fd, view) :]
    if old is not None:
        own = os.fstat(fd)
        if (own.st_uid, own.st_gid) != (old.status.st_uid, old.status.st_gid):
            with suppress(PermissionError):  # then it belongs to this user from now on
                os.fchown(fd, old.status.st_uid, old.status.st_gid)
        os.fchmod(fd, old.status.st_mode & 0o777)  # writing to it would drop the other bits too
    os.fsync(fd)


@contextmanager
def _opened(located: LocatedFile, flags: int) -> Iterator[int]:
    fd = os.open(located.name, flags | _OPEN, dir_fd=located.folder)
    try:
        yield fd
    finally:
        os.close(fd)


def _require_wanted(abandoned: Abandoned) -> None:
    if abandoned():
        raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))  # the caller is gone


def _require_regular(status: os.stat_result, path: str) -> None:
    """Reject what is no file: before opening, which may have effects, and again after it."""
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise rpc_error(INVALID_PARAMS, f"{path} is {kind}, not a file")


@contextmanager
def _refusals(path: str, missing: str) -> Iterator[None]:
    """Convert errors of the system to the error for the agent."""
    try:
        yield
    except FileNotFoundError as error:
        sentence = f"Resource not found: {missing}"
        raise RpcError(methods.RESOURCE_NOT_FOUND, sentence, {"uri": path}) from error
    except IsADirectoryError as error:
        raise rpc_error(INVALID_PARAMS, f"{path} is a folder, not a file") from error
    except BlockingIOError as error:
        raise rpc_error(INVALID_PARAMS, f"{path} has nothing to read yet") from error
    except OSError as error:
        code = INVALID_PARAMS if error.errno in _ABOUT_THE_PATH else INTERNAL_ERROR
        raise rpc_error(code, f"{path}: {error.strerror}") from error
    except ValueError as error:  # NUL, or half a surrogate pair
        raise rpc_error(INVALID_PARAMS, "no file can have this path") from error


def _require_sane(path: str) -> None:
    if not path.startswith("/"):
        raise rpc_error(INVALID_PARAMS, "path must be absolute")
    if len(path) > _MAX_PATH:
        raise rpc_error(INVALID_PARAMS, "path is too long")
