"""Tools of MCP servers: stdio servers of one session, started in its folder, ended with it.

The Model Context Protocol over stdio is JSON-RPC by lines, which `wire` speaks. Each server runs
under a guard, so that nothing it started outlives the session. One task owns all servers of a
session; it ends when the session is closed. The environment of a server is ours without the keys
of providers, and what the client gave for it.
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
_PAGES = 100  # of tools; a server that has more repeats itself
_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NAME_LENGTH = 64  # what providers take


logger = logging.getLogger(__name__)


class McpServers:
    """The servers of one session."""

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
        """Start all servers and keep them until `close`.

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
            # Other sessions go on whatever happened to these servers.
            logger.exception("servers of a session ended badly")
        finally:
            self._ended.set()

    async def close(self) -> None:
        self._closing.set()
        await self._ended.wait()


def _distinct(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Give a number to tools that have the same name now that strange characters are gone."""
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
    words: list[str] = []
    try:
        command = guarded_command([server.command, *server.args], env=env, cwd=cwd)
        started = open_process(
            command, cwd=cwd, env=env, on_stderr=words.append, stop_seconds=_STOP_SECONDS
        )
        process = await running.enter_async_context(started)
        connection = await running.enter_async_context(
            open_connection(process, on_request=_answer, options=_OPTIONS)
        )
        await _greet(connection)
        return [_tool(server.name, told, connection) for told in await _tools(connection)]
    except AgentNotFound as error:
        raise _not_started(server.name, f"{server.command}: {error.reason}", words) from error
    except RpcError as error:
        raise _not_started(server.name, describe_error(error), words) from error
    except ConnectionFailed as error:
        raise _not_started(server.name, str(error), words) from error


_OPTIONS = ConnectionOptions(answers_garbage=False, cancel_method="notifications/cancelled")


def _not_started(name: str, reason: str, words: Sequence[str]) -> RpcError:
    sentence = f"the MCP server {name!r} could not be started: {reason}"
    if words and words[-1] not in reason:
        sentence += f"; it said: {words[-1]}"
    return RpcError(INTERNAL_ERROR, f"{sentence}; check its command or leave it out")


async def _answer(method: str, _params: Any) -> Any:
    if method == "ping":
        return {}
    raise method_not_found(method)


async def _greet(connection: Connection) -> None:
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
            raise RpcError(INTERNAL_ERROR, "its answer to tools/list is no list of tools")
        tools += listed
        cursor = page.get("nextCursor")
        if not cursor:
            break
    return tools


def _is_tool(told: Any) -> bool:
    return isinstance(told, dict) and isinstance(told.get("name"), str)


def tool_name(server: str, tool: str) -> str:
    """Return `mcp__<server>__<tool>` in the characters that providers allow."""
    return _NAME.sub("_", f"mcp__{server}__{tool}")[:_NAME_LENGTH]


def _tool(server: str, told: Mapping[str, Any], connection: Connection) -> Tool:
    own_name = told["name"]
    name = tool_name(server, own_name)
    kind, schema = _claimed_kind(told.get("annotations")), told.get("inputSchema")
    title = f"{server}: {told.get('title') or own_name}"

    async def prepare(arguments: Mapping[str, Any], _scope: ToolScope) -> Action:
        async def run(_progress: Progress) -> Outcome:
            return await _call(connection, server, own_name, arguments)

        words = f"Allow {title} for this session"
        asked = f"```json\n{encode_json(dict(arguments)).decode()}\n```"
        if kind == "read":
            asked += f"\n{server} says that this only reads; nobody has checked that."
        scope = SessionGrant(f"mcp:{server}:{own_name}", words)
        return Action(title, run, preview=(text_content(asked),), grant=scope)

    if not isinstance(schema, dict) or not schema:
        schema = {"type": "object", "properties": {}}
    description = str(told.get("description") or title)
    return Tool(name, kind, description, schema, prepare, place="server", asks=True)


def _claimed_kind(hints: Any) -> ToolKind:
    """Return what a server says of a tool; what contradicts itself says nothing."""
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
        raise ToolFailed(f"the MCP server {server!r} answered without content")
    known = (shown_block(block) for block in blocks)
    content = [{"type": "content", "content": block} for block in known if block is not None]
    text = "\n".join(_told(block) for block in blocks) or "[no content]"
    is_error = answer.get("isError") is True
    return Outcome(shortened(text), content, is_error=is_error)


def shown_block(block: Any) -> dict[str, Any] | None:
    """Return a block of a server as ACP has it; None if ACP has none such.

    MCP's blocks and ACP's are the same but for later inventions, and for what a server gets wrong.
    """
    if not isinstance(block, dict):
        return None
    try:
        known: dict[str, Any] = to_dict(decode(schema.ContentBlock, block))
    except (SchemaMismatch, JsonInvalid):
        return None
    known.pop("annotations", None)  # hints for whoever reads the server itself, of any kind
    match known:
        case {"type": "text" | "image" | "audio" | "resource_link"}:
            return known
        case {"type": "resource", "resource": {"text": str()} | {"blob": str()}}:
            return known
        case _:
            return None


def _told(block: Any) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return f"{uri}:\n{text}"
        case {"type": str(kind)}:
            name = block.get("name") or block.get("mimeType") or block.get("uri") or ""
            return f"[{kind} {name}]".replace(" ]", "]")
        case _:
            return "[something that is no content]"
