"""The methods that agents may call: permission requests, elicitations, files, terminals.

Every request names a session; only an elicitation may name a request of ours instead. The session
must be one of the calling agent's, live, and not in the middle of a load, resume, close or delete;
otherwise the request is refused before any handler sees it. A terminal belongs to the session that
created it and to no other.

`RequestHandlers.serve` runs in wire order, in the read loop: what a request changes at once, such
as a permission request becoming pending, has happened before the agent's next message is read. The
awaitable that it returns is the answer; the connection runs it in a task of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from quarterdeck.acp import decode, schema
from quarterdeck.acp.methods import RESOURCE_NOT_FOUND
from quarterdeck.errors import ProtocolError, RpcError
from quarterdeck.host.agent_process import AgentProcess
from quarterdeck.host.capabilities import has_method, serves_terminals
from quarterdeck.host.options import ResolvedHostOptions
from quarterdeck.host.requests.all_requests import AllRequests
from quarterdeck.host.requests.table import AgentRequest
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.wire import INVALID_PARAMS, method_not_found, rpc_error

_MISSING_AS_EMPTY: Final = frozenset({"gemini-cli"})
"""Names of agents that read a file before they create it, and give up at any error. They look at
the disk themselves before they read a file for its text."""


def reads_missing_as_empty(agent: AgentProcess) -> bool:
    """Return whether an agent gets the text of a missing file as empty, and not an error.

    Known agents are recognised by the name that they declare; others by `missingFiles: "empty"` in
    the `meta` of their definition.
    """
    meta = agent.definition.meta
    if meta is not None and meta.get("missingFiles") is not None:
        return bool(meta["missingFiles"] == "empty")
    return (agent.info or {}).get("name") in _MISSING_AS_EMPTY


FindSession = Callable[[str, Any], HostSession]
"""Find the live session of an agent that a request names, or raise `RpcError`."""
_Handler = Callable[[AgentProcess, HostSession, Any], Awaitable[Any]]


class RequestHandlers:
    """Serves the requests of all agents of a host."""

    def __init__(
        self, options: ResolvedHostOptions, requests: AllRequests, find_session: FindSession
    ) -> None:
        self._fs = options.fs
        self._terminal = options.terminal
        self._requests = requests
        self._offers_elicitation = bool(options.elicitation)
        self._find_session = find_session
        self._owners: dict[tuple[str, str], str] = {}  # (agent, terminal) → session
        self._served: dict[str, _Handler] = {
            "session/request_permission": self._request_permission,
            **self._served_files(),
            **self._served_terminals(),
        }

    def serve(self, agent: AgentProcess, method: str, params: Any) -> Awaitable[Any]:
        """Start to answer a request, in wire order.

        Raises:
            RpcError: if the method is unknown, or refused for this session.
        """
        if method == "elicitation/create" and self._offers_elicitation:
            return self._create_elicitation(agent, params)
        handler = self._served.get(method)
        if handler is None:
            raise method_not_found(method)
        session_id = params.get("sessionId") if isinstance(params, dict) else None
        return handler(agent, self._find_session(agent.id, session_id), params)

    def forget(self, agent_id: str) -> None:
        """Forget the terminals of an agent that has ended."""
        for key in [key for key in self._owners if key[0] == agent_id]:
            del self._owners[key]

    def _served_files(self) -> dict[str, _Handler]:
        served: dict[str, _Handler] = {}
        if has_method(self._fs, "read_text_file"):
            served["fs/read_text_file"] = self._read_text_file
        if has_method(self._fs, "write_text_file"):
            served["fs/write_text_file"] = self._write_text_file
        return served

    def _served_terminals(self) -> dict[str, _Handler]:
        terminal = self._terminal
        if terminal is None or not serves_terminals(terminal):
            return {}

        async def create(agent: AgentProcess, session: HostSession, params: Any) -> Any:
            request = _read(schema.CreateTerminalRequest, params)
            arguments = [each for each in request.args or () if isinstance(each, str)]
            permissions = self._requests.permissions
            permissions.check_terminal(session, request.command, arguments, request.cwd or None)
            if not request.cwd:
                request = msgspec.structs.replace(request, cwd=session.folders.cwd)
            terminal_id = await terminal.create_terminal(session.id, request)
            self._owners[agent.id, terminal_id] = session.id
            return {"terminalId": terminal_id}

        return {
            "terminal/create": create,
            "terminal/output": self._owned(terminal.terminal_output),
            "terminal/wait_for_exit": self._owned(terminal.wait_for_terminal_exit),
            "terminal/kill": self._owned(terminal.kill_terminal),
            "terminal/release": self._owned(terminal.release_terminal, forgets=True),
        }

    def _request_permission(
        self, agent: AgentProcess, session: HostSession, params: Any
    ) -> Awaitable[Any]:
        # A plain function: the rules have decided, or the request is pending, before the next
        # message is read.
        if not isinstance(params.get("toolCall"), dict):
            raise rpc_error(INVALID_PARAMS, "the toolCall of a permission request is an object")
        return self._wait_for_answer(agent, self._requests.permissions.open(session, params))

    def _create_elicitation(self, agent: AgentProcess, params: Any) -> Awaitable[Any]:
        if not isinstance(params, dict):
            raise rpc_error(INVALID_PARAMS, "the params of elicitation/create are an object")
        session_id, request_id = params.get("sessionId"), params.get("requestId")
        if session_id is None and request_id is None:
            raise rpc_error(INVALID_PARAMS, "elicitation/create names a session or a request")
        session = None if session_id is None else self._find_session(agent.id, session_id)
        request = self._requests.elicitations.open(agent.id, session, params)
        return self._wait_for_answer(agent, request)

    async def _wait_for_answer(self, agent: AgentProcess, request: AgentRequest) -> Any:
        try:
            answer = await request.answer()
        finally:
            # Still pending: the agent withdrew its request. If instead the agent has ended,
            # `Host.on_disconnected` withdraws all its requests.
            if request.status == "pending" and agent.is_connected:
                self._requests.supersede(lambda each: each is request)
        if request.needs_log:
            await self._requests.wait_stored()
        return answer

    async def _read_text_file(self, agent: AgentProcess, session: HostSession, params: Any) -> Any:
        request = _read(schema.ReadTextFileRequest, params)
        try:
            text = await self._fs.read_text_file(
                session.id,
                request.path,
                line=request.line or None,
                limit=request.limit if isinstance(request.limit, int) else None,
                roots=session.folders.roots,
            )
        except RpcError as error:
            if error.code == RESOURCE_NOT_FOUND and reads_missing_as_empty(agent):
                return {"content": ""}
            raise
        return {"content": text}

    async def _write_text_file(
        self, _agent: AgentProcess, session: HostSession, params: Any
    ) -> Any:
        request = _read(schema.WriteTextFileRequest, params)
        self._requests.permissions.check_file(session, request.path, request.content)
        await self._fs.write_text_file(
            session.id, request.path, request.content, roots=session.folders.roots
        )
        return {}

    def _owned(
        self, method: Callable[[str, str], Awaitable[Any]], *, forgets: bool = False
    ) -> _Handler:
        """Wrap a method of the terminal handler: only the owner of a terminal may call it."""

        async def serve(agent: AgentProcess, session: HostSession, params: Any) -> Any:
            terminal_id = params.get("terminalId")
            is_named = isinstance(terminal_id, str)
            owner = self._owners.get((agent.id, terminal_id)) if is_named else None
            if owner is None:
                raise rpc_error(INVALID_PARAMS, f"unknown terminal {terminal_id}")
            if owner != session.id:
                raise rpc_error(INVALID_PARAMS, "terminal belongs to another session")
            result = await method(session.id, terminal_id)
            if forgets:
                self._owners.pop((agent.id, terminal_id), None)
            return {} if result is None else result

        return serve


def _read(expected: Any, params: Any) -> Any:
    try:
        return decode(expected, params)
    except ProtocolError as error:
        raise rpc_error(INVALID_PARAMS, str(error)) from error
