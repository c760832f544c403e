"""A child process whose standard input and output carry the messages.

Standard error is read all the time, because a full pipe would block the child. ACP: "The agent MAY
write UTF-8 strings to its standard error (stderr) for logging purposes"; the last lines are kept to
explain an exit. The child leads a process group of its own; `open_process` ends the whole group.
"""

from __future__ import annotations

import codecs
import logging
import os
import re
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import ByteReceiveStream, Process

from quarterdeck.errors import AgentNotFound, ConnectionClosed
from quarterdeck.wire.tasks import background_tasks, foreign_errors
from quarterdeck.wire.transports.base import OnBytes
from quarterdeck.wire.transports.file_descriptors import FdTransport

_READ_SIZE = 64 * 1024  # the capacity of a Linux pipe; a larger buffer costs a mapping per read
_STDERR_LINES = 100  # kept to explain how the child ended
_STDERR_LINE = 2000  # characters per line; a longer line is split
_REFUSAL_SECONDS = 0.2  # between closing its input and its exit
_REAP_SECONDS = 5.0  # for the kernel to end a killed child
_EXIT_SECONDS = 1.0  # between its exit, the end of its output and its last words
RECENT_SECONDS = 10.0  # before a signal ends a child: what it wrote earlier does not explain that

logger = logging.getLogger(__name__)

OnStderr = Callable[[str], None]


def _ignore(_line: str) -> None:
    """Ignore a line of standard error."""


class ProcessTransport:
    """The pipes of a child; made by `open_process`."""

    def __init__(
        self, process: Process, pipes: FdTransport, program: str, on_stderr: OnStderr
    ) -> None:
        self.process = process
        self.last_stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._stderr_times: deque[float] = deque(maxlen=_STDERR_LINES)
        self._exited_at: float | None = None
        self._pipes = pipes
        self._program = program
        self._on_stderr = on_stderr
        self._stderr_ended = anyio.Event()
        self._reading = anyio.CancelScope()

    @property
    def exit_status(self) -> int | None:
        """The status it exited with; negative for a signal; None while it runs."""
        return self.process.returncode

    def exit_record(self) -> dict[str, Any]:
        """Return how it exited, as JSON: a `code`, a `signal`, or nothing while it runs."""
        status = self.exit_status
        if status is None:
            return {}
        if status >= 0:
            return {"code": status}
        try:
            return {"signal": signal.Signals(-status).name}
        except ValueError:
            return {"signal": str(-status)}

    async def pump(self, on_bytes: OnBytes) -> None:
        def take(data: bytes) -> anyio.Event | None:
            if self.process.returncode is not None:
                self._await_silence()
            return on_bytes(data)

        with self._reading:
            if self.process.returncode is not None:
                self._await_silence()
            await self._pipes.pump(take)

    async def end_output_on_exit(self) -> None:
        """End the output of a child that has exited, although another process may hold it open."""
        await self.process.wait()
        self._exited_at = anyio.current_time()
        self._await_silence()

    def _await_silence(self) -> None:
        """End the output at its first pause: a child of the child may hold it open for ever."""
        self._reading.deadline = anyio.current_time() + _EXIT_SECONDS

    async def send(self, data: bytes) -> None:
        try:
            await self._pipes.send(data)
        except ConnectionClosed as error:
            raise ConnectionClosed(f"{self._program} no longer reads its input") from error

    def send_now(self, data: bytes) -> int:
        try:
            return self._pipes.send_now(data)
        except ConnectionClosed as error:
            raise ConnectionClosed(f"{self._program} no longer reads its input") from error

    async def wait_unread(self) -> None:
        """Wait until the child has closed its input."""
        await self._pipes.wait_unread()

    def read_progress(self) -> tuple[int, int]:
        """Return how many bytes of its input the child has read, and has yet to read."""
        return self._pipes.read_progress()

    async def watch_unread(self, seconds: float, on_unread: Callable[[], bool]) -> None:
        """Call `on_unread` when the child has left its input unread for some time.

        If it returns False, that was of no interest, and it is called again.
        """
        taken, since, is_reported = -1, anyio.current_time(), False
        while True:
            await anyio.sleep(seconds / 2)
            now, unread = self.read_progress()
            if not unread or now != taken:
                taken, since, is_reported = now, anyio.current_time(), False
            elif not is_reported and anyio.current_time() - since >= seconds:
                is_reported = on_unread()

    def close_input(self) -> None:
        """Close the input of the child; its output can still be read."""
        self._pipes.close_writing()

    async def aclose(self) -> None:
        await self._pipes.aclose()

    async def explain_refusal(self) -> str:
        # A child that fails at its start is first noticed by a failing write.
        with anyio.move_on_after(_REFUSAL_SECONDS):
            await self.process.wait()
        if self.process.returncode is None:
            return f"{self._program} no longer reads its input"
        return await self.explain_end()

    async def explain_end(self) -> str:
        with anyio.move_on_after(_EXIT_SECONDS):
            await self.process.wait()
            await self._stderr_ended.wait()
        text = f"{self._program} {_ending(self.process.returncode)}"
        line = explaining_line([_STYLES.sub("", each) for each in self._last_words()])
        return f"{text}; its last words: {line}" if line else text

    def _last_words(self) -> list[str]:
        """Return the lines that can explain the end: a signal can come long after the last one."""
        status, ended_at = self.process.returncode, self._exited_at
        if status is None or status >= 0 or ended_at is None:
            return list(self.last_stderr)
        lines = zip(self._stderr_times, self.last_stderr, strict=True)
        return [line for at, line in lines if at >= ended_at - RECENT_SECONDS]

    async def drain_stderr(self, stream: ByteReceiveStream) -> None:
        """Read standard error to its end, line by line, in bounded memory."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        rest = ""
        with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                rest += decoder.decode(await stream.receive(_READ_SIZE))
                *lines, rest = rest.split("\n")
                for line in lines:
                    self._take_stderr(line)
                while len(rest) > _STDERR_LINE:
                    self._take_stderr(rest[:_STDERR_LINE])
                    rest = rest[_STDERR_LINE:]
        if rest := rest + decoder.decode(b"", final=True):
            self._take_stderr(rest)
        self._stderr_ended.set()

    def _take_stderr(self, line: str) -> None:
        line = line.rstrip("\r")
        for start in range(0, len(line), _STDERR_LINE):
            piece = line[start : start + _STDERR_LINE]
            self.last_stderr.append(piece)
            self._stderr_times.append(anyio.current_time())
            try:
                self._on_stderr(piece)
            except foreign_errors():
                logger.exception("callback for standard error failed")


_STYLES: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_NOISE: Final = re.compile(
    r"\s*$|\s+at .*[:(]|\s*File \".*\", line \d+|\s*[\^~]+\s*$|Node\.js v\d|stack backtrace:"
    r"|note: run with `RUST_BACKTRACE|\s+\d+: |goroutine \d+|npm (error|ERR!) A complete log"
    r"|\s*\.{3}|\s*[\])}]+;?\s*$"
)
"""Lines of a stack trace and what runtimes print around it."""
_COMPLAINT: Final = re.compile(
    r"(?i)\w*(error|exception)\b|panic|fatal|cannot|can't|could not|not found|no such|denied"
    r"|invalid|missing|failed|refused|unauthori[sz]ed|expired|unknown|required|unsupported"
)
_LOOKED_AT: Final = 30  # lines from the end


def explaining_line(lines: Sequence[str]) -> str | None:
    """Return the line of standard error that best explains an end; None without lines.

    That is the last one that reports an error and is no part of a stack trace, or else the last one
    that is no part of it.
    """
    newest = list(lines)[-_LOOKED_AT:][::-1]
    plain = [line for line in newest if not _NOISE.match(line)]
    complaints = [line for line in plain if _COMPLAINT.search(line)]
    return next(iter((*complaints, *plain, *newest)), None)


def _ending(status: int | None) -> str:
    if status is None:
        return "closed its output but still runs"
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


@asynccontextmanager
async def open_process(
    command: Sequence[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    name: str | None = None,
    on_stderr: OnStderr = _ignore,
    stop_seconds: float = 5.0,
) -> AsyncIterator[ProcessTransport]:
    """Start a child; leaving the body stops it and everything in its process group.

    Errors call it `name`, or else by the name of its program.

    Raises:
        AgentNotFound: if the command cannot be started.
    """
    process, pipes = await _start(command, cwd=cwd, env=env)
    transport = ProcessTransport(process, pipes, name or Path(command[0]).name, on_stderr)
    assert process.stderr is not None
    async with background_tasks() as tasks:
        tasks.start_soon(transport.drain_stderr, process.stderr)
        tasks.start_soon(transport.end_output_on_exit)
        try:
            yield transport
        finally:
            # Every wait inside is bounded, so the shield cannot hang.
            with anyio.CancelScope(shield=True):
                await _stop(transport, stop_seconds)


async def _start(
    command: Sequence[str], *, cwd: str | Path | None, env: Mapping[str, str] | None
) -> tuple[Process, FdTransport]:
    """Start a child on pipes of our own: those of the event loop have a buffer without a limit."""
    if not command:
        raise AgentNotFound("", "no command was given")
    with ExitStack() as opened, ExitStack() as of_the_child:
        try:
            child_reads, we_write = _pipe(of_the_child, opened)
            we_read, child_writes = _pipe(opened, of_the_child)
            process = await anyio.open_process(
                list(command),
                stdin=child_reads,
                stdout=child_writes,
                cwd=cwd,
                env=env,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL or a lone surrogate
            raise AgentNotFound(command[0], _why(error, cwd)) from error
        opened.pop_all()  # the transport closes them
        return process, FdTransport(we_read, we_write)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """Open a pipe; each end is closed by the stack of the side that uses it."""
    read_end, write_end = os.pipe()
    reader.callback(os.close, read_end)
    writer.callback(os.close, write_end)
    return read_end, write_end


def _why(error: OSError | ValueError, cwd: str | Path | None) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    is_cwd = cwd is not None and getattr(error, "filename", None) == cwd
    return f"its working directory {str(cwd)!r}: {reason}" if is_cwd else reason


async def _stop(transport: ProcessTransport, grace_seconds: float) -> None:
    """Close its input, send SIGTERM, then SIGKILL, with a grace period between; kill its group."""
    process = transport.process
    await transport.aclose()
    for number in (None, signal.SIGTERM):
        if number is not None:
            _signal_group(process.pid, number)
        with anyio.move_on_after(grace_seconds):
            await process.wait()
        if process.returncode is not None:
            break
    _signal_group(process.pid, signal.SIGKILL)
    # The grace is the child's; a killed child needs none, but a busy kernel may take a while.
    with anyio.move_on_after(max(grace_seconds, _REAP_SECONDS)):
        await process.wait()
        await process.aclose()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # gone already, or of another user
        os.killpg(pid, number)
