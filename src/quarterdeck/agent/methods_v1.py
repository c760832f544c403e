"""The methods of ACP 1 that a client calls, on the sessions of an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

import anyio
from anyio import to_thread
from typing_extensions import override

from quarterdeck.acp import PROTOCOL_VERSION
from quarterdeck.agent import checks, definition
from quarterdeck.agent.checks import Json
from quarterdeck.agent.methods import AgentHandler, AgentMethods, resume_params, session_params
from quarterdeck.agent.session import AgentSession, ClientLink
from quarterdeck.agent.sessions import AgentSessions
from quarterdeck.agent.turn import AgentTurn, RunningTurn
from quarterdeck.errors import RpcError
from quarterdeck.wire import INVALID_REQUEST, Response, rpc_error


class AgentMethodsV1(AgentMethods):
    """What a client with ACP 1 can call."""

    def __init__(self, sessions: AgentSessions, link: ClientLink) -> None:
        super().__init__(sessions, link)
        self._handlers: dict[str, AgentHandler] = {
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/prompt": self._prompt,
            "session/close": self._close,
        }
        self._add_optional_methods()

    @property
    @override
    def handlers(self) -> Mapping[str, AgentHandler]:
        return self._handlers

    def _add_optional_methods(self) -> None:
        if self._sessions.store is not None:
            self._handlers["session/list"] = self._list
            self._handlers["session/load"] = self._load
            self._handlers["session/resume"] = self._resume
            self._handlers["session/delete"] = self._delete
        if self._agent.modes:
            self._handlers["session/set_mode"] = self._set_mode
        if self._agent.has_config_options:
            self._handlers["session/set_config_option"] = self._set_config_option
        if self._agent.logout is not None:
            self._handlers["logout"] = self._logout

    @override
    def introduce(self) -> dict[str, Any]:
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": self._agent.info,
            "agentCapabilities": self._capabilities(),
            "authMethods": list(self._agent.auth_methods),
        }

    @override
    def on_cancel(self, session_id: str) -> None:
        try:
            session = self._sessions.find(session_id, self.link)
        except RpcError:
            return  # a notification has no response, and there is nothing to cancel
        if session.turn is not None:
            session.turn.cancel()

    def _capabilities(self) -> dict[str, Any]:
        named = ("list", "resume", "delete", "close")
        offered: dict[str, Any] = {
            name: {} for name in named if f"session/{name}" in self._handlers
        }
        capabilities: dict[str, Any] = {
            "loadSession": "session/load" in self._handlers,
            "promptCapabilities": self._agent.prompt_capabilities,
            "mcpCapabilities": {"http": False, "sse": False},
            "sessionCapabilities": {**offered, "additionalDirectories": {}},
        }
        if "logout" in self._handlers:
            capabilities["auth"] = {"logout": {}}
        return capabilities

    async def _new(self, params: Json) -> Any:
        opening = await to_thread.run_sync(session_params, params)
        session = await self._sessions.create(self.link, opening)
        return Response({"sessionId": session.id, **session.state()}, session.announce_commands)

    async def _load(self, params: Json) -> Any:
        return await self._reopen(params, replay=True)

    async def _resume(self, params: Json) -> Any:
        return await self._reopen(params, replay=False)

    async def _reopen(self, params: Json, *, replay: bool) -> Any:
        session_id = checks.session_id(params)
        async with self._sessions.alone(session_id):
            read = session_params if replay else resume_params
            opening = await to_thread.run_sync(read, params)
            session = await self._sessions.reopen(session_id, self.link, opening, replay=replay)
        return Response(session.state(), session.announce_commands)

    async def _close(self, params: Json) -> Any:
        session_id = checks.session_id(params)
        async with self._sessions.alone(session_id):
            await self._sessions.close(session_id, self.link)
        return {}

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
