"""`AgentServer` serves one agent to any number of clients, each by an `AgentConnection`.

There is one connection on stdio, and one for each client on HTTP. A session belongs to the
connection that opened it. A connection handles every method of ACP that an agent can offer. A
method that needs a member the agent lacks is not announced by `initialize` and gets the error
"method not found". Invalid params get an error with a sentence (see `checks`).

Order: a request takes effect when it is read, so a cancel sent right after a prompt finds it, and a
prompt sent right after a change of mode waits for the change. Updates of a turn are sent before
its response.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Protocol

import anyio
from anyio import to_thread

from quarterdeck.acp import PROTOCOL_VERSION
from quarterdeck.agent import checks, definition
from quarterdeck.agent.checks import Json
from quarterdeck.agent.client import ClientFacts
from quarterdeck.agent.definition import Agent, Prompt, inspect_agent
from quarterdeck.agent.session import AgentSession, ClientLink
from quarterdeck.agent.sessions import AgentSessions, SessionParams
from quarterdeck.agent.store import SessionStore, StoredSessionInfo
from quarterdeck.agent.turn import AgentTurn, RunningTurn, to_rpc_error
from quarterdeck.errors import RpcError
from quarterdeck.wire import (
    INVALID_REQUEST,
    ByteTransport,
    Connection,
    ConnectionOptions,
    Response,
    method_not_found,
    open_connection,
    rpc_error,
)

PAGE: Final = 50
"""Sessions in one response to `session/list`."""

CLOSE_SECONDS: Final = 10.0
"""Limit for closing all sessions of a disconnected client."""

_BAD_CURSOR: Final = "cursor was not returned by session/list"

logger = logging.getLogger(__name__)

Handler = Callable[[Json], Awaitable[Any]]


class AgentConnection:
    """One client's requests, over one connection.

    Pass `on_notification` and `on_request` to `open_connection`, and its connection to `attach`.
    """

    def __init__(self, sessions: AgentSessions) -> None:
        self._sessions = sessions
        self._agent = sessions.agent
        self._link: ClientLink | None = None
        self._is_initialized = False
        self._methods: dict[str, Handler] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/prompt": self._prompt,
            "session/close": self._close,
        }
        self._add_optional_methods()

    def attach(self, connection: Connection, max_sessions: int | None = None) -> ClientLink:
        self._link = ClientLink(connection, ClientFacts(), max_sessions)
        return self._link

    def on_notification(self, method: str, params: Json) -> None:
        if method == "session/cancel" and isinstance(params.get("sessionId"), str):
            try:
                session = self._sessions.find(params["sessionId"], self.link)
            except RpcError:
                return  # a notification has no response, and there is nothing to cancel
            if session.turn is not None:
                session.turn.cancel()

    def on_request(self, method: str, params: Json) -> Awaitable[Any]:
        handler = self._methods.get(method)
        if handler is None:
            raise method_not_found(method)
        if not self._is_initialized and method != "initialize":
            raise rpc_error(INVALID_REQUEST, f"call initialize before {method}")
        return _with_rpc_errors(handler(params))

    @property
    def link(self) -> ClientLink:
        assert self._link is not None, "attach() is called before the first message is read"
        return self._link

    def _add_optional_methods(self) -> None:
        if self._sessions.store is not None:
            self._methods["session/list"] = self._list
            self._methods["session/load"] = self._load
            self._methods["session/resume"] = self._resume
            self._methods["session/delete"] = self._delete
        if self._agent.modes:
            self._methods["session/set_mode"] = self._set_mode
        if self._agent.has_config_options:
            self._methods["session/set_config_option"] = self._set_config_option
        if self._agent.logout is not None:
            self._methods["logout"] = self._logout

    def _initialize(self, params: Json) -> Awaitable[Any]:
        checks.protocol_version(params)
        info = checks.optional_object(params, "clientInfo")
        capabilities = checks.optional_object(params, "clientCapabilities")
        self.link.facts = ClientFacts(info, capabilities)
        self._is_initialized = True
        return _answered(
            {
                "protocolVersion": PROTOCOL_VERSION,
                "agentInfo": self._agent.info,
                "agentCapabilities": self._capabilities(),
                "authMethods": list(self._agent.auth_methods),
            }
        )

    def _capabilities(self) -> dict[str, Any]:
        named = ("list", "resume", "delete", "close")
        offered: dict[str, Any] = {name: {} for name in named if f"session/{name}" in self._methods}
        capabilities: dict[str, Any] = {
            "loadSession": "session/load" in self._methods,
            "promptCapabilities": self._agent.prompt_capabilities,
            "mcpCapabilities": {"http": False, "sse": False},
            "sessionCapabilities": {**offered, "additionalDirectories": {}},
        }
        if "logout" in self._methods:
            capabilities["auth"] = {"logout": {}}
        return capabilities

    async def _authenticate(self, params: Json) -> Any:
        method_id = checks.required_string(params, "methodId")
        known = [method.get("id") for method in self._agent.auth_methods]
        if known and method_id not in known:
            raise checks.invalid(f"there is no auth method {method_id!r}")
        if self._agent.authenticate is not None:
            await self._agent.authenticate(method_id)
        return {}

    async def _logout(self, _params: Json) -> Any:
        assert self._agent.logout is not None
        await self._agent.logout()
        return {}

    async def _new(self, params: Json) -> Any:
        session_params = await to_thread.run_sync(_session_params, params)
        session = await self._sessions.create(self.link, session_params)
        return Response({"sessionId": session.id, **session.state()}, session.announce_commands)

    async def _load(self, params: Json) -> Any:
        return await self._reopen(params, replay=True)

    async def _resume(self, params: Json) -> Any:
        return await self._reopen(params, replay=False)

    async def _reopen(self, params: Json, *, replay: bool) -> Any:
        session_id = checks.session_id(params)
        async with self._sessions.alone(session_id):
            read = _session_params if replay else _resume_params
            session_params = await to_thread.run_sync(read, params)
            session = await self._sessions.reopen(
                session_id, self.link, session_params, replay=replay
            )
        return Response(session.state(), session.announce_commands)

    async def _close(self, params: Json) -> Any:
        session_id = checks.session_id(params)
        async with self._sessions.alone(session_id):
            await self._sessions.close(session_id, self.link)
        return {}

    async def _delete(self, params: Json) -> Any:
        session_id = checks.session_id(params)
        async with self._sessions.alone(session_id):
            await self._sessions.delete(session_id, self.link)
        return {}

    async def _list(self, params: Json) -> Any:
        cwd = checks.optional_string(params, "cwd")
        if cwd is not None and not cwd.startswith("/"):
            raise checks.invalid("cwd must be an absolute path")
        after = _read_cursor(checks.optional_string(params, "cursor"))
        assert self._sessions.store is not None, "without a store there is no session/list"
        listed = await to_thread.run_sync(self._sessions.store.list)
        wanted = [
            each
            for each in listed
            if (cwd is None or each.record.cwd == cwd) and (after is None or each.sort_key < after)
        ]
        answer: dict[str, Any] = {"sessions": [_session_info(each) for each in wanted[:PAGE]]}
        if len(wanted) > PAGE:
            answer["nextCursor"] = _write_cursor(wanted[PAGE - 1])
        return answer

    def _prompt(self, params: Json) -> Awaitable[Any]:
        session = self._session(params)
        blocks = checks.prompt_blocks(params, self._agent.prompt_capabilities)
        if session.turn is not None:
            raise rpc_error(INVALID_REQUEST, "prompt already running")
        running = RunningTurn(AgentTurn(session, blocks))
        session.turn = running
        return self._run(session, running)

    async def _run(self, session: AgentSession, running: RunningTurn) -> Any:
        try:
            for block in running.turn.prompt:
                session.record(
                    {"sessionUpdate": "user_message_chunk", "content": checks.as_recorded(block)}
                )
            stop_reason = await running.run(self._agent.prompt)
            with anyio.CancelScope(shield=True):
                await session.sync()
            return {"stopReason": stop_reason}
        finally:
            session.end_turn()

    async def _set_mode(self, params: Json) -> Any:
        session = self._session(params)
        mode_id = checks.required_string(params, "modeId")
        definition.check_mode(self._agent.modes, mode_id)
        async with session.settling:
            await self._change_mode(session, mode_id)
        return {}

    async def _set_config_option(self, params: Json) -> Any:
        session = self._session(params)
        config_id = checks.required_string(params, "configId")
        if "value" not in params:
            raise checks.invalid("value is required")
        async with session.settling:
            await self._change_option(session, config_id, params["value"])
        return {"configOptions": session.config_options()}

    async def _change_mode(self, session: AgentSession, mode_id: str) -> None:
        if self._agent.set_mode is not None:
            await self._agent.set_mode(session, mode_id)
        session.change_mode(mode_id)

    async def _change_option(self, session: AgentSession, config_id: str, value: Any) -> None:
        option = definition.find_option(session.config_options(), config_id)
        problem = definition.option_problem(option, value)
        if problem is not None:
            raise checks.invalid(problem)
        if config_id == definition.MODE_OPTION and self._agent.modes:
            await self._change_mode(session, value)
            return
        if self._agent.set_config_option is not None:
            await self._agent.set_config_option(session, config_id, value)
        session.change_config(config_id, value)

    def _session(self, params: Json) -> AgentSession:
        return self._sessions.find(checks.session_id(params), self.link)


async def _answered(result: Any) -> Any:
    return result


async def _with_rpc_errors(handling: Awaitable[Any]) -> Any:
    """Await a handler; convert its exceptions to errors for the client."""
    try:
        return await handling
    except RpcError:
        raise
    except Exception as error:
        raise to_rpc_error(error) from error


def _session_params(params: Json) -> SessionParams:
    cwd = checks.directory(params.get("cwd"), "cwd")
    servers = checks.mcp_servers(params)
    return SessionParams(cwd, checks.additional_directories(params), servers)


def _resume_params(params: Json) -> SessionParams:
    return _session_params({**params, "mcpServers": params.get("mcpServers") or []})


def _session_info(listed: StoredSessionInfo) -> dict[str, Any]:
    record = listed.record
    info: dict[str, Any] = {"sessionId": listed.id, "cwd": record.cwd}
    if record.additional_directories:
        info["additionalDirectories"] = list(record.additional_directories)
    if record.title is not None:
        info["title"] = record.title
    return {**info, "updatedAt": listed.updated_at}


def _write_cursor(last: StoredSessionInfo) -> str:
    return base64.urlsafe_b64encode(" ".join(last.sort_key).encode()).decode()


def _read_cursor(cursor: str | None) -> tuple[str, str] | None:
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise checks.invalid(_BAD_CURSOR) from error
    updated_at, _, session_id = text.partition(" ")
    if not checks.SESSION_ID.fullmatch(session_id):
        raise checks.invalid(_BAD_CURSOR)
    return updated_at, session_id


class AcpService(Protocol):
    """What a transport serves: an agent, or a hub that acts as one."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Hold open what all clients share."""
        ...

    def serve_client(
        self,
        transport: ByteTransport,
        options: ConnectionOptions | None = None,
        *,
        max_sessions: int | None = None,
    ) -> AbstractAsyncContextManager[Connection]:
        """Serve one client until the body ends."""
        ...


class AgentServer:
    """One agent with its sessions, shared by all its clients."""

    def __init__(
        self,
        agent: Agent | Prompt,
        *,
        store: SessionStore | None = None,
        initial_message: str | None = None,
    ) -> None:
        """Serve `agent`; with a `store`, its sessions are stored and can be listed and loaded.

        Raises:
            AgentError: if it is not an agent.
        """
        self.sessions = AgentSessions(inspect_agent(agent), store, initial_message)
        self._agent: object = agent

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Enter the agent if it is an async context manager, as the built-in one is."""
        if isinstance(self._agent, AbstractAsyncContextManager):
            async with self._agent:
                yield
        else:
            yield

    @asynccontextmanager
    async def serve_client(
        self,
        transport: ByteTransport,
        options: ConnectionOptions | None = None,
        *,
        max_sessions: int | None = None,
    ) -> AsyncIterator[Connection]:
        """Serve one client until the body ends; then cancel its turns and close its sessions."""
        client = AgentConnection(self.sessions)
        try:
            async with open_connection(
                transport,
                on_notification=client.on_notification,
                on_request=client.on_request,
                options=options,
            ) as connection:
                client.attach(connection, max_sessions)
                try:
                    yield connection
                finally:
                    await self._close_sessions(client.link)
        finally:
            await self._close_sessions(client.link)  # sessions that were still being opened above

    async def _close_sessions(self, link: ClientLink) -> None:
        # Every wait inside is bounded, so the shield cannot hang.
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_SECONDS) as scope:
            await self.sessions.close_all(link)
        if scope.cancelled_caught:
            logger.warning("closing the sessions of a client took too long; some were not closed")
