"""A transport over file descriptors: standard input and output, or any other pair.

The event loop polls pipes, sockets and terminals; what it cannot poll (a regular file, /dev/null)
is read and written in a thread. Only pipes and sockets are made non-blocking: the mode of a
terminal is shared with the shell that started the process.

This module and `calls` use asyncio directly. anyio can only wait for a descriptor in a task, once
per read: registering, waking that task and unregistering cost more than a third of a short call
(docs/adr/0002-reading-by-callback.md has the figures).
"""

from __future__ import annotations

import array
import asyncio  # noqa: TID251 - see above
import contextvars
import fcntl
import os
import select
import stat
import sys
import termios
from collections.abc import Callable
from contextlib import suppress

import anyio
from anyio.lowlevel import checkpoint

from quarterdeck.errors import ConnectionClosed
from quarterdeck.wire.transports.base import OnBytes

_READ_SIZE = 64 * 1024  # the capacity of a Linux pipe; a larger buffer costs a mapping per read
_PIPE_BUF = 4096  # a blocking descriptor that is writable takes this much without blocking


class FdTransport:
    """Read from one descriptor, write to another; closes both."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._can_poll = {fd: _can_poll(fd) for fd in (read_fd, write_fd)}
        self._is_nonblocking = {fd: _make_nonblocking(fd) for fd in (read_fd, write_fd)}
        self._stop_pump: Callable[[], None] | None = None
        self._written = 0
        self._is_closed = False
        self._is_write_closed = False

    async def pump(self, on_bytes: OnBytes) -> None:
        if self._is_closed:
            return
        if not self._can_poll[self._read_fd]:
            await self._pump_in_thread(on_bytes)
            return
        reader = _DescriptorReader(self._read_fd, on_bytes)
        self._stop_pump = reader.stop
        try:
            await reader.run()
        finally:
            self._stop_pump = None

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                if self._is_write_closed or self._is_closed:
                    raise ConnectionClosed("the transport is closed")
                written = await self._write_some(view)
                self._written += written
                view = view[written:]
        except (anyio.ClosedResourceError, OSError) as error:
            raise ConnectionClosed("the other side no longer reads") from error

    def send_now(self, data: bytes) -> int:
        if self._is_write_closed or self._is_closed:
            raise ConnectionClosed("the transport is closed")
        if not self._is_nonblocking[self._write_fd]:
            return 0
        try:
            written = os.write(self._write_fd, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ConnectionClosed("the other side no longer reads") from error
        self._written += written
        return written

    def read_progress(self) -> tuple[int, int]:
        """Return how many bytes the other side has read, and how many it has yet to read.

        Of a descriptor that cannot tell, such as a regular file, all bytes count as read.
        """
        unread = array.array("i", [0])
        if not self._is_write_closed and not self._is_closed:
            with suppress(OSError):
                fcntl.ioctl(self._write_fd, termios.FIONREAD, unread)
        return self._written - unread[0], unread[0]

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._stop_pump is not None:
            self._stop_pump()
        self.close_writing()
        self._close(self._read_fd)

    def close_writing(self) -> None:
        """Close the writing side, so that the other side sees its end; reading continues."""
        if not self._is_write_closed and self._write_fd != self._read_fd:
            self._close(self._write_fd)
        self._is_write_closed = True

    def _close(self, fd: int) -> None:
        if self._can_poll[fd]:
            anyio.notify_closing(fd)
        os.close(fd)

    async def explain_refusal(self) -> str:
        return "the other side no longer reads"

    async def explain_end(self) -> str:
        return "the other side closed the connection"

    async def wait_unread(self) -> None:
        """Wait until the reader of our output is gone; for ever where that cannot be detected."""
        if self._can_poll[self._write_fd] and hasattr(select, "epoll"):
            # epoll reports errors and hang-ups even for an empty set of events.
            with select.epoll() as poll:
                poll.register(self._write_fd, 0)
                await anyio.wait_readable(poll.fileno())
        else:
            await anyio.sleep_forever()

    async def _pump_in_thread(self, on_bytes: OnBytes) -> None:
        while data := await anyio.to_thread.run_sync(self._read_in_thread):
            if (hold := on_bytes(data)) is not None:
                await hold.wait()

    def _read_in_thread(self) -> bytes:
        try:
            return os.read(self._read_fd, _READ_SIZE)
        except OSError:  # closed meanwhile, or a directory: the end either way
            return b""

    async def _write_some(self, view: memoryview) -> int:
        if not self._can_poll[self._write_fd]:
            return await anyio.to_thread.run_sync(os.write, self._write_fd, view)
        if self._is_nonblocking[self._write_fd]:
            try:
                written = os.write(self._write_fd, view)
            except BlockingIOError:
                await anyio.wait_writable(self._write_fd)
                return 0
            await checkpoint()
            return written
        await anyio.wait_writable(self._write_fd)
        return os.write(self._write_fd, view[:_PIPE_BUF])


class _DescriptorReader:
    """Reads a descriptor when it is readable and calls `on_bytes` in the same step."""

    def __init__(self, fd: int, on_bytes: OnBytes) -> None:
        self._fd = fd
        self._on_bytes = on_bytes
        self._loop = asyncio.get_running_loop()
        self._woken = anyio.Event()
        self._hold: anyio.Event | None = None
        self._holding = anyio.CancelScope()
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Return at the end of the stream or after `stop`; raise what `on_bytes` raised."""
        try:
            while self._fd >= 0:
                self._loop.add_reader(self._fd, _task_like_context().run, self._ready)
                await self._woken.wait()
                if self._hold is not None:
                    with self._holding:
                        await self._hold.wait()
                    self._hold, self._woken = None, anyio.Event()
                    self._holding = anyio.CancelScope()
        finally:
            self.stop()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1
        self._woken.set()
        self._holding.cancel()

    def _ready(self) -> None:
        try:
            data = os.read(self._fd, _READ_SIZE)
        except BlockingIOError:  # another reader of the same pipe was faster
            return
        except OSError:  # a terminal that went away
            data = b""
        if not data:
            self.stop()
            return
        try:
            self._hold = self._on_bytes(data)
        except BaseException as error:  # noqa: BLE001 - a callback has no caller: `run` raises it
            self._failure = error
            self.stop()
        if self._hold is not None:
            self._loop.remove_reader(self._fd)
            self._woken.set()


def _task_like_context() -> contextvars.Context:
    """Return a context in which anyio finds its event loop although no task is running.

    If sniffio is installed, anyio uses it to find the loop, and sniffio looks for a task or for
    this variable. Callbacks of the loop have no task.
    """
    context = contextvars.copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, "asyncio")
    return context


def _can_poll(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


def _make_nonblocking(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    os.set_blocking(fd, False)
    return True


def stdio_transport() -> FdTransport:
    """Reserve standard input and output for messages; `print` goes to standard error from now on.

    The descriptors are duplicated and 0 and 1 are replaced, so that neither a stray `print` nor a
    child process that inherits them can write between the messages or read them. A server that is
    fed from a file or a pipe sees the end of its input before it has answered: set `grace_seconds`
    on its connection.
    """
    read_fd, write_fd = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout.flush()  # what is in its buffer is no message either
    return FdTransport(read_fd, write_fd)
