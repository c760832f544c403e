"""Tools of MCP servers: the stdio servers of a session, started in its folder, ended with it.

The Model Context Protocol over stdio is line-delimited JSON-RPC, which `wire` implements. Each
server runs under a guard, so that no process it starts outlives the session. One task owns all
servers of a session and ends when the session is closed. The environment of a server is ours
without the providers' keys, plus the variables that the client passed for it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskStatus

from quarterdeck._version import __version__
from quarterdeck.acp import decode, schema, to_dict
from quarterdeck.agent.builtin.files import describe_error
from quarterdeck.agent.builtin.modes import ToolKind
from quarterdeck.agent.builtin.tools.base import (
    Action,
    Outcome,
    Progress,
    SessionGrant,
    Tool,
    ToolScope,
    shortened,
    text_content,
)
from quarterdeck.errors import (
    AgentNotFound,
    ConnectionFailed,
    JsonInvalid,
    RpcError,
    SchemaMismatch,
    ToolFailed,
)
from quarterdeck.jsontext import encode_json
from quarterdeck.machine import guarded_command
from quarterdeck.wire import (
    INTERNAL_ERROR,
    Connection,
    ConnectionOptions,
    method_not_found,
    open_connection,
    open_process,
)

if TYPE_CHECKING:
    from quarterdeck.agent.checks import McpServer

PROTOCOL_VERSION = "2025-06-18"
_START_SECONDS = 30.0
_CALL_SECONDS = 300.0
_STOP_SECONDS = 1.0
_PAGES = 100  # of tools; a server with more is repeating itself
_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NAME_LENGTH = 64  # the limit of providers


logger = logging.getLogger(__name__)


class McpServers:
    """The MCP servers of one session."""

    def __init__(self) -> None:
        self.tools: tuple[Tool, ...] = ()
        self._closing = anyio.Event()
        self._ended = anyio.Event()

    async def serve(
        self,
        servers: Sequence[McpServer],
        cwd: str,
        environ: Mapping[str, str],
        *,
        task_status: TaskStatus[None],
    ) -> None:
        """Start all servers and run them until `close`.

        Raises:
            RpcError: if one of them cannot be started; none of them runs then.
        """
        is_started = False
        try:
            async with AsyncExitStack() as running:
                tools: list[Tool] = []
                for server in servers:
                    tools += await _start(server, cwd, environ, running)
                self.tools = _distinct(tools)
                task_status.started()
                is_started = True
                await self._closing.wait()
        except Exception:
            if not is_started:
                raise
            # Other sessions must not be affected.
            logger.exception("the MCP servers of a session failed")
        finally:
            self._ended.set()

    async def close(self) -> None:
        self._closing.set()
        await self._ended.wait()


def _distinct(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Number tools whose names are the same after the replacement of characters."""
    named: dict[str, Tool] = {}
    for tool in tools:
        name, count = tool.name, 1
        while name in named:
            count += 1
            name = f"{tool.name[: _NAME_LENGTH - 4]}_{count}"
        named[name] = replace(tool, name=name)
    return tuple(named.values())


async def _start(
    server: McpServer, cwd: str, environ: Mapping[str, str], running: AsyncExitStack
) -> list[Tool]:
    env = {**environ, **dict(server.env)}
    stderr: list[str] = []
    try:
        command = guarded_command([server.command, *server.args], env=env, cwd=cwd)
        started = open_process(
            command, cwd=cwd, env=env, on_stderr=stderr.append, stop_seconds=_STOP_SECONDS
        )
        process = await running.enter_async_context(started)
        connection = await running.enter_async_context(
            open_connection(process, on_request=_answer, options=_OPTIONS)
        )
        await _initialize(connection)
        return [_tool(server.name, described, connection) for described in await _tools(connection)]
    except AgentNotFound as error:
        raise _not_started(server.name, f"{server.command}: {error.reason}", stderr) from error
    except RpcError as error:
        raise _not_started(server.name, describe_error(error), stderr) from error
    except ConnectionFailed as error:
        raise _not_started(server.name, str(error), stderr) from error


_OPTIONS = ConnectionOptions(answers_garbage=False, cancel_method="notifications/cancelled")


def _not_started(name: str, reason: str, stderr: Sequence[str]) -> RpcError:
    sentence = f"the MCP server {name!r} could not be started: {reason}"
    if stderr and stderr[-1] not in reason:
        sentence += f"; its last output: {stderr[-1]}"
    return RpcError(INTERNAL_ERROR, f"{sentence}; check its command or leave it out")


async def _answer(method: str, _params: Any) -> Any:
    if method == "ping":
        return {}
    raise method_not_found(method)


async def _initialize(connection: Connection) -> None:
    client = {"name": "quarterdeck", "version": __version__}
    hello = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
    await connection.call("initialize", hello, timeout_seconds=_START_SECONDS)
    await connection.notify("notifications/initialized")


async def _tools(connection: Connection) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        params = {} if cursor is None else {"cursor": cursor}
        page: Any = await connection.call("tools/list", params, timeout_seconds=_START_SECONDS)
        listed = page.get("tools") if isinstance(page, dict) else None
        if not isinstance(listed, list) or not all(map(_is_tool, listed)):
            raise RpcError(INTERNAL_ERROR, "its response to tools/list is not a list of tools")
        tools += listed
        cursor = page.get("nextCursor")
        if not cursor:
            break
    return tools


def _is_tool(described: Any) -> bool:
    return isinstance(described, dict) and isinstance(described.get("name"), str)


def tool_name(server: str, tool: str) -> str:
    """Return `mcp__<server>__<tool>` in the characters that providers allow."""
    return _NAME.sub("_", f"mcp__{server}__{tool}")[:_NAME_LENGTH]


def _tool(server: str, described: Mapping[str, Any], connection: Connection) -> Tool:
    own_name = described["name"]
    name = tool_name(server, own_name)
    kind, schema = _claimed_kind(described.get("annotations")), described.get("inputSchema")
    title = f"{server}: {described.get('title') or own_name}"

    async def prepare(arguments: Mapping[str, Any], _scope: ToolScope) -> Action:
        async def run(_progress: Progress) -> Outcome:
            return await _call(connection, server, own_name, arguments)

        words = f"Allow {title} for this session"
        preview = f"```json\n{encode_json(dict(arguments)).decode()}\n```"
        if kind == "read":
            preview += f"\n{server} declares that this only reads; this is not verified."
        scope = SessionGrant(f"mcp:{server}:{own_name}", words)
        return Action(title, run, preview=(text_content(preview),), grant=scope)

    if not isinstance(schema, dict) or not schema:
        schema = {"type": "object", "properties": {}}
    description = str(described.get("description") or title)
    return Tool(name, kind, description, schema, prepare, location="server", asks=True)


def _claimed_kind(hints: Any) -> ToolKind:
    """Return the kind that a server's hints declare; contradictory hints declare nothing."""
    match hints:
        case {"readOnlyHint": True, "destructiveHint": True}:
            return "other"
        case {"readOnlyHint": True}:
            return "read"
        case _:
            return "other"


async def _call(
    connection: Connection, server: str, name: str, arguments: Mapping[str, Any]
) -> Outcome:
    params = {"name": name, "arguments": arguments}
    try:
        answer: Any = await connection.call("tools/call", params, timeout_seconds=_CALL_SECONDS)
    except RpcError as error:
        raise ToolFailed(f"the MCP server {server!r} failed: {describe_error(error)}") from error
    except ConnectionFailed as error:
        raise ToolFailed(f"the MCP server {server!r} failed: {error}") from error
    blocks = answer.get("content") if isinstance(answer, dict) else None
    if not isinstance(blocks, list):
        raise ToolFailed(f"the MCP server {server!r} responded without content")
    known = (shown_block(block) for block in blocks)
    content = [{"type": "content", "content": block} for block in known if block is not None]
    text = "\n".join(_block_text(block) for block in blocks) or "[no content]"
    is_error = answer.get("isError") is True
    return Outcome(shortened(text), content, is_error=is_error)


def shown_block(block: Any) -> dict[str, Any] | None:
    """Return a server's content block as ACP's; None if ACP has no such block.

    MCP's and ACP's blocks are the same, except for newer types and a server's mistakes.
    """
    if not isinstance(block, dict):
        return None
    try:
        known: dict[str, Any] = to_dict(decode(schema.ContentBlock, block))
    except (SchemaMismatch, JsonInvalid):
        return None
    known.pop("annotations", None)  # hints of any shape for the server's direct client
    match known:
        case {"type": "text" | "image" | "audio" | "resource_link"}:
            return known
        case {"type": "resource", "resource": {"text": str()} | {"blob": str()}}:
            return known
        case _:
            return None


def _block_text(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return f"{uri}:\n{text}"
        case {"type": str(kind)}:
            name = block.get("name") or block.get("mimeType") or block.get("uri") or ""
            return f"[{kind} {name}]".replace(" ]", "]")
        case _:
            return "[not a content block]"
