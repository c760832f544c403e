"""The tool `shell`: runs commands in a terminal of the client if it offers them, else locally.

Locally a command runs under a guard: it is killed with all processes it started when it exceeds its
time limit, when the turn is cancelled and when this process ends. The providers' keys are not in
its environment.
"""

from __future__ import annotations

import shutil
from typing import Annotated, Any

import anyio
from anyio import to_thread
from msgspec import UNSET, Meta, Struct

from quarterdeck.acp import schema
from quarterdeck.agent.builtin.files import describe_error
from quarterdeck.agent.builtin.tools.base import (
    Action,
    Content,
    Outcome,
    Progress,
    SessionGrant,
    ToolScope,
    define_tool,
    shortened,
    text_content,
)
from quarterdeck.errors import ConnectionFailed, RpcError, ToolFailed

_OUTPUT_BYTES = 64 * 1024  # of output that is kept, from its end
_READ_SECONDS = 0.2  # between two reads of the output, at least
_SHOWN_PER_SECOND = 32 * 1024  # each update has all output, so long output is updated less often
_MAX_SECONDS = 3600.0
_RELEASE_SECONDS = 0.5  # for the client to release a terminal when the turn is cancelled
_TITLE = 80


class ShellArguments(Struct, forbid_unknown_fields=True):
    """Run a command line in a shell, in the working directory; nothing is on standard input."""

    command: str
    timeout_seconds: Annotated[float, Meta(description="120 by default", gt=0)] | None = None


async def _prepare_shell(given: ShellArguments, scope: ToolScope) -> Action:
    command = given.command.strip()
    if not command or "\0" in command:
        raise ToolFailed("the command is empty")
    allowed = given.timeout_seconds or scope.setup.settings.shell_seconds
    seconds = min(allowed, _MAX_SECONDS)

    async def run(progress: Progress) -> Outcome:
        if scope.client is not None and scope.client.has_terminals:
            return await _run_in_client(command, seconds, scope, progress)
        return await _run_locally(command, seconds, scope, progress)

    first_line = command.split("\n")[0]
    title = first_line if len(first_line) <= _TITLE else f"{first_line[: _TITLE - 1]}…"
    words = f"Allow `{title}` for this session"
    return Action(
        f"`{title}`",
        run,
        locations=({"path": scope.cwd},),
        preview=(text_content(f"```sh\n{command}\n```"),),
        grant=SessionGrant(f"shell:{scope.cwd}:{command}", words),
    )


def _shell(command: str) -> list[str]:
    return [shutil.which("bash") or "/bin/sh", "-c", command]


async def _run_locally(
    command: str, seconds: float, scope: ToolScope, progress: Progress
) -> Outcome:
    handler, session_id = scope.terminals, scope.session_id
    program, *arguments = await to_thread.run_sync(
        scope.wrap_command, _shell(command), abandon_on_cancel=True
    )
    request = schema.CreateTerminalRequest(
        session_id=session_id,
        command=program,
        args=tuple(arguments),
        cwd=scope.cwd,
        output_byte_limit=_OUTPUT_BYTES,
    )
    try:
        terminal_id = await handler.create_terminal(session_id, request)
    except RpcError as error:
        raise ToolFailed(describe_error(error)) from error
    try:
        ended = False
        shown = ""
        with anyio.move_on_after(seconds) as limit:
            while not ended:
                with anyio.move_on_after(max(_READ_SECONDS, len(shown) / _SHOWN_PER_SECOND)):
                    await handler.wait_for_terminal_exit(session_id, terminal_id)
                    ended = True
                state = await handler.terminal_output(session_id, terminal_id)
                if not ended and state["output"] != shown:
                    shown = state["output"]
                    progress([_fenced(shown)])
        if limit.cancelled_caught:
            await handler.kill_terminal(session_id, terminal_id)
        state = await handler.terminal_output(session_id, terminal_id)
        if limit.cancelled_caught:
            state.pop("exitStatus", None)  # we killed it
    finally:
        await handler.release_terminal(session_id, terminal_id)
    return _outcome(state, seconds, None)


async def _run_in_client(
    command: str, seconds: float, scope: ToolScope, progress: Progress
) -> Outcome:
    assert scope.client is not None
    program, *arguments = _shell(command)
    try:
        terminal = await scope.client.create_terminal(
            program, arguments, cwd=scope.cwd, output_byte_limit=_OUTPUT_BYTES
        )
        try:
            content = [{"type": "terminal", "terminalId": terminal.id}]
            progress(content)
            with anyio.move_on_after(seconds) as limit:
                await terminal.wait_for_exit()
            if limit.cancelled_caught:
                await terminal.kill()
            output = await terminal.output()
        finally:
            with anyio.move_on_after(_RELEASE_SECONDS, shield=True):
                await terminal.release()
    except RpcError as error:
        raise ToolFailed(f"the client's terminal failed: {describe_error(error)}") from error
    except ConnectionFailed as error:
        raise ToolFailed(f"the client's terminal failed: {error}") from error
    state = {"output": output.output, "truncated": output.truncated}
    if not limit.cancelled_caught and output.exit_status not in (None, UNSET):
        status = output.exit_status
        state["exitStatus"] = {
            "exitCode": _known(getattr(status, "exit_code", None)),
            "signal": _known(getattr(status, "signal", None)),
        }
    return _outcome(state, seconds, content)


def _known(value: Any) -> Any:
    return None if value is UNSET else value


def _outcome(state: dict[str, Any], seconds: float, content: list[Content] | None) -> Outcome:
    output, status = state["output"], state.get("exitStatus")
    notes = ["[the beginning was left out]"] if state["truncated"] else []
    notes.append(shortened(output.rstrip("\n")) if output.strip() else "[no output]")
    if status is None:
        notes.append(f"[killed: it ran longer than {seconds:g} s]")
    elif status.get("signal"):
        notes.append(f"[ended by {status['signal']}]")
    else:
        notes.append(f"[exit status {status.get('exitCode')}]")
    is_error = status is None or status.get("exitCode") != 0
    shown = content if content is not None else [_fenced(output)]
    return Outcome("\n".join(notes), shown, raw=status, is_error=is_error)


def _fenced(output: str) -> Content:
    fence = "```"
    while fence in output:
        fence += "`"
    return text_content(f"{fence}console\n{output.rstrip()}\n{fence}")


SHELL = define_tool("shell", "execute", ShellArguments, _prepare_shell, asks=True)
