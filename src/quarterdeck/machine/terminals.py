"""The default terminal handler: real processes, output in bounded memory, ended with their owner.

    async with DefaultTerminalHandler(emit) as handler:   # or enter it in an exit stack
        terminal_id = await handler.create_terminal(session_id, request)

Enter it before the first terminal is created; leaving it, or `aclose`, ends them all. The host
checks that a terminal belongs to the session of a request; here the terminal of another session is
unknown.

Processes. Every command runs under a guard (`guard_program`), in a session and process group of its
own. It ends, with everything it started, when it is killed, released or cleaned up, and when the
host dies. What a command leaves in the background ends shortly after it. There is no terminal
device and nothing on standard input.

Command lines. Some agents send a whole command line as `command`, without arguments. It is run by a
shell if it contains a blank or another character with a meaning to a shell and no program has that
name. An agent gains nothing by this: it can run the shell by name just as well.

Output. A terminal keeps the end of its output: `output_byte_limit` bytes, cut between characters,
1 MiB if the agent names no limit, never more than 16 MiB. The exit is reported after the last
output. Nothing is emitted after a terminal was released.

Events. `emit` gets payloads of `terminal-output` events, few of them from much output. Text is
collected until there is enough for an event, or until `due`. The first megabyte may arrive at any
speed; after that, until the output calms down, only the newest text is kept until `due`. So a
command that never stops writing costs a bounded rate of events and bytes, some 640 KiB a second. An
event whose text has a gap says so in the text and in `truncated`; the agent itself is not affected.
"""

from __future__ import annotations

import codecs
import logging
import math
import os
import signal
import subprocess
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import anyio
from anyio import to_thread
from anyio.abc import Process, TaskGroup
from msgspec import UNSET, UnsetType
from typing_extensions import override

from quarterdeck.acp import schema
from quarterdeck.errors import AgentNotFound, ConfinementUnavailable
from quarterdeck.machine.confinement import UNCONFINED, ConfinedStart
from quarterdeck.machine.hidden import NOTHING_HIDDEN, HiddenFolders
from quarterdeck.machine.processes import guarded_command, guarded_env
from quarterdeck.protocol.terminal_output import TailBuffer
from quarterdeck.wire import INTERNAL_ERROR, INVALID_PARAMS, background_tasks, rpc_error

_EVENT_CHARACTERS = 32 * 1024
_EVENT_SECONDS = 0.05
_BURST_CHARACTERS = 1024 * 1024  # what a state keeps of a terminal


class Deltas:
    """Collects text and emits it as payloads of `terminal-output` events, without the id.

    Pure: the caller passes the time and calls `flush` when it is due.
    """

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        self._emit = emit
        self._text = ""
        self._left_out = 0
        self._burst = _BURST_CHARACTERS
        self.due = math.inf

    def add(self, text: str, now: float) -> None:
        if not text:
            return
        self.due = min(self.due, now + _EVENT_SECONDS)
        self._text += text
        if len(self._text) < _EVENT_CHARACTERS:
            return
        if len(self._text) <= self._burst:
            self._burst -= len(self._text)
            self._emit_text()
        else:
            self._burst = 0
            self._left_out += len(self._text) - _EVENT_CHARACTERS
            self._text = self._text[-_EVENT_CHARACTERS:]

    def flush(self) -> None:
        """Emit the collected text; little of it ends a flood."""
        if len(self._text) < _EVENT_CHARACTERS and not self._left_out:
            self._burst = _BURST_CHARACTERS
        self._emit_text()

    def _emit_text(self) -> None:
        text, left_out = self._text, self._left_out
        self._text, self._left_out, self.due = "", 0, math.inf
        if left_out:
            text = f"\n[{left_out} characters left out]\n{text}"
        for start in range(0, len(text), _EVENT_CHARACTERS):
            payload: dict[str, Any] = {"delta": text[start : start + _EVENT_CHARACTERS]}
            self._emit(payload | {"truncated": True} if left_out else payload)


Emit = Callable[[str, dict[str, Any]], None]
"""Takes a session id and the payload of a `terminal-output` event."""

_DEFAULT_LIMIT = 1024 * 1024
_MAX_LIMIT = 16 * 1024 * 1024
_MAX_TERMINALS = 64  # per session; a new one replaces the oldest that has ended
_READ_SIZE = 64 * 1024
_EOF_SECONDS = 0.5  # from the exit to the end of the output, if another process holds the pipe open
_STOP_SECONDS = 5.0  # for a killed process to end; the guard does it in milliseconds

DEFAULT_SHELL = ("/bin/sh", "-c")
_SHELL_CHARACTERS = frozenset(" \t\n|&;<>()$`\\\"'*?[]#~=%!{}")

logger = logging.getLogger(__name__)


class DefaultTerminalHandler(anyio.AsyncContextManagerMixin):
    """Serves `terminal/*` with processes of this machine.

    Args:
        emit: called with output; `send_output_to` may set it later.
        environ: what commands inherit; by default the environment of this process.
        shell: runs command lines that are not a program; None rejects them.
        hidden: folders that no command may start in.
        confine: returns how to start the commands of a session; it may block for a moment.
    """

    def __init__(
        self,
        emit: Emit | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        shell: Sequence[str] | None = DEFAULT_SHELL,
        hidden: HiddenFolders = NOTHING_HIDDEN,
        confine: Callable[[str], ConfinedStart] | None = None,
    ) -> None:
        self._emit = emit
        self._hidden = hidden
        self._confine = confine
        self._environ = environ
        self._shell = shell
        self._terminals: dict[str, _Terminal] = {}
        self._tasks: TaskGroup | None = None

    def send_output_to(self, emit: Emit) -> None:
        """Call `emit` with the output of all terminals from now on; a host does this."""
        self._emit = emit

    @override
    @asynccontextmanager
    async def __asynccontextmanager__(self) -> AsyncGenerator[Self]:
        async with background_tasks() as tasks:
            self._tasks = tasks
            try:
                yield self
            finally:
                await self.aclose()

    async def aclose(self) -> None:
        """End all terminals; no new ones can be created."""
        self._tasks = None
        await self._release(list(self._terminals.values()))

    async def create_terminal(self, session_id: str, request: schema.CreateTerminalRequest) -> str:
        """Start a command and return the id of its terminal; `request.session_id` is not used.

        Raises:
            RpcError: if it cannot be started, or the session has too many terminals.
        """
        if self._tasks is None:
            raise rpc_error(INTERNAL_ERROR, "the terminal handler is not open")
        self._make_room(session_id)
        tasks = self._tasks
        process, output_fd = await self._start(session_id, request)
        if self._tasks is not tasks:  # closed meanwhile
            await _discard(process, output_fd)
            raise rpc_error(INTERNAL_ERROR, "the terminal handler is not open")
        terminal_id = str(uuid.uuid4())

        def send(payload: dict[str, Any]) -> None:
            self._send(session_id, {"terminalId": terminal_id, **payload})

        limit = _limit(request.output_byte_limit)
        terminal = _Terminal(session_id, process, output_fd, limit, send)
        self._terminals[terminal_id] = terminal
        tasks.start_soon(terminal.run)
        return terminal_id

    async def terminal_output(self, session_id: str, terminal_id: str) -> dict[str, Any]:
        terminal = self._terminal(session_id, terminal_id)
        answer: dict[str, Any] = {"output": terminal.output, "truncated": terminal.truncated}
        if terminal.exit is not None:
            answer["exitStatus"] = terminal.exit
        return answer

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str) -> dict[str, Any]:
        terminal = self._terminal(session_id, terminal_id)
        await terminal.ended.wait()
        return terminal.exit or {}

    async def kill_terminal(self, session_id: str, terminal_id: str) -> None:
        """End the command; its terminal stays."""
        self._terminal(session_id, terminal_id).kill()

    async def release_terminal(self, session_id: str, terminal_id: str) -> None:
        """End the command and forget its terminal."""
        await self._release([self._terminal(session_id, terminal_id)])

    async def cleanup_session(self, session_id: str) -> None:
        """End and forget all terminals of a session."""
        await self._release([t for t in self._terminals.values() if t.session_id == session_id])

    def _terminal(self, session_id: str, terminal_id: str) -> _Terminal:
        terminal = self._terminals.get(terminal_id)
        if terminal is None or terminal.session_id != session_id:
            raise rpc_error(INVALID_PARAMS, "unknown terminal")
        return terminal

    def _make_room(self, session_id: str) -> None:
        own = [key for key, held in self._terminals.items() if held.session_id == session_id]
        if len(own) < _MAX_TERMINALS:
            return
        for key in own:
            if self._terminals[key].exit is not None:
                del self._terminals[key]
                return
        sentence = f"{_MAX_TERMINALS} terminals are running already; release one first"
        raise rpc_error(INVALID_PARAMS, sentence)

    async def _start(
        self, session_id: str, request: schema.CreateTerminalRequest
    ) -> tuple[Process, int]:
        env = dict(os.environ if self._environ is None else self._environ)
        env |= {variable.name: variable.value for variable in request.env or ()}
        cwd = _folder(request.cwd)
        if self._hidden and self._hidden.contains(cwd or os.curdir):
            raise rpc_error(INVALID_PARAMS, "cwd is a folder of the hub; use one of the session's")
        try:
            start = await self._confined_start(session_id)
            command = self._command(request, env, cwd, start)
            return await _start_process(command, guarded_env(env, start), cwd)
        except ConfinementUnavailable as error:
            raise rpc_error(INVALID_PARAMS, f"cannot start {request.command!r}: {error}") from error
        except AgentNotFound as error:
            sentence = f"cannot start {request.command!r}: {error.reason}"
            raise rpc_error(INVALID_PARAMS, sentence) from error
        except (OSError, ValueError) as error:  # ValueError: a NUL or half a surrogate pair
            reason = getattr(error, "strerror", None) or "its arguments or variables are not valid"
            raise rpc_error(
                INVALID_PARAMS, f"cannot start {request.command!r}: {reason}"
            ) from error

    async def _confined_start(self, session_id: str) -> ConfinedStart:
        if self._confine is None:
            return UNCONFINED
        return await to_thread.run_sync(self._confine, session_id)

    def _command(
        self,
        request: schema.CreateTerminalRequest,
        env: Mapping[str, str],
        cwd: str | None,
        start: ConfinedStart,
    ) -> list[str]:
        command = [request.command, *(request.args or ())]
        try:
            return guarded_command(command, env=env, cwd=cwd, start=start)
        except AgentNotFound:
            if self._shell is None or request.args or not _is_command_line(request.command):
                raise
            line = [*self._shell, request.command]
            return guarded_command(line, env=env, cwd=cwd, start=start)

    async def _release(self, terminals: Sequence[_Terminal]) -> None:
        """Forget terminals at once, kill them all, and wait a moment for each to end."""
        self._terminals = {k: t for k, t in self._terminals.items() if t not in terminals}
        for terminal in terminals:
            terminal.kill()
        with anyio.move_on_after(_STOP_SECONDS, shield=True):
            for terminal in terminals:
                await terminal.ended.wait()
        for terminal in terminals:
            terminal.silence()

    def _send(self, session_id: str, payload: dict[str, Any]) -> None:
        if self._emit is not None:
            try:
                self._emit(session_id, payload)
            except Exception:  # a callback is foreign code
                logger.exception("callback for terminal output failed")


class _Terminal:
    """One command, its output and its exit; `run` is the task that owns them."""

    def __init__(
        self,
        session_id: str,
        process: Process,
        output_fd: int,
        limit: int,
        send: Callable[[dict[str, Any]], None],
    ) -> None:
        self.session_id = session_id
        self.truncated = False
        self.exit: dict[str, Any] | None = None
        self.ended = anyio.Event()
        self._process = process
        self._fd = output_fd
        self._limit = limit
        self._send: Callable[[dict[str, Any]], None] | None = send
        self._deltas = Deltas(self._emit)
        self._buffer = TailBuffer.empty()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._output_ended = anyio.Event()

    @property
    def output(self) -> str:
        return self._buffer.text

    def kill(self) -> None:
        _kill(self._process)

    def silence(self) -> None:
        self._send = None

    async def run(self) -> None:
        """Read the output and wait for the exit; cancelling ends the command."""
        try:
            async with background_tasks() as tasks:
                tasks.start_soon(self._read)
                await self._process.wait()
                with anyio.move_on_after(_EOF_SECONDS):
                    await self._output_ended.wait()
            self._finish()
        finally:
            await _discard(self._process, self._fd)
            self.ended.set()

    async def _read(self) -> None:
        while True:
            with anyio.CancelScope(deadline=self._deltas.due) as patience:
                await anyio.wait_readable(self._fd)
            if not patience.cancelled_caught:
                data = os.read(self._fd, _READ_SIZE)
                if not data:
                    break
                self._take(self._decoder.decode(data))
            if anyio.current_time() >= self._deltas.due:
                self._deltas.flush()
        self._output_ended.set()

    def _take(self, text: str) -> None:
        self._buffer, was_cut = self._buffer.extended(text, self._limit)
        self.truncated |= was_cut
        self._deltas.add(text, anyio.current_time())

    def _finish(self) -> None:
        self._take(self._decoder.decode(b"", final=True))
        self._deltas.flush()
        assert self._process.returncode is not None
        self.exit = _exit_status(self._process.returncode)
        self._emit({"exit": self.exit})

    def _emit(self, payload: dict[str, Any]) -> None:
        if self._send is not None:
            self._send(payload)


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):  # it has ended already
        process.kill()  # the outer guard; the inner one kills the rest at once


async def _discard(process: Process, output_fd: int) -> None:
    _kill(process)
    os.close(output_fd)
    with anyio.move_on_after(_STOP_SECONDS, shield=True):
        await process.wait()


def _is_command_line(command: str) -> bool:
    return not _SHELL_CHARACTERS.isdisjoint(command.strip())


def _limit(requested: int | UnsetType | None) -> int:
    if requested is None or requested is UNSET:
        return _DEFAULT_LIMIT
    return min(max(requested, 0), _MAX_LIMIT)


def _folder(requested: str | UnsetType | None) -> str | None:
    if requested is None or requested is UNSET:
        return None
    try:
        if Path(requested).is_absolute() and Path(requested).is_dir():
            return requested
    except ValueError:  # a NUL
        pass
    raise rpc_error(INVALID_PARAMS, "cwd must be the absolute path of a folder that exists")


def _exit_status(returncode: int) -> dict[str, Any]:
    if returncode >= 0:
        return {"exitCode": returncode}
    try:
        return {"signal": signal.Signals(-returncode).name}
    except ValueError:  # a real-time signal
        return {"signal": f"SIG{-returncode}"}


async def _start_process(
    command: Sequence[str], env: Mapping[str, str], cwd: str | None
) -> tuple[Process, int]:
    """Start a command with one pipe for both outputs, so that their order is kept."""
    read_fd, write_fd = os.pipe()
    try:
        process = await anyio.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=write_fd,
            stderr=write_fd,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    except BaseException:
        os.close(read_fd)
        raise
    finally:
        os.close(write_fd)
    return process, read_fd
