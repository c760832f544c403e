"""The methods of ACP 2 that a client calls, on the sessions of an agent.

The code of an agent is the same for both versions: what it sends is translated by `updates_v2`. A
prompt is answered when its message is inserted, and its turn ends with the state `idle`. A prompt
that comes while a turn runs waits for its end; `session/cancel` cancels both, and a prompt that was
not inserted is answered with -32800. A replay ends with the state, then comes the answer.

Every agent can list and resume sessions, as ACP 2 requires; without a store, those that are open.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

import anyio
from anyio import to_thread
from typing_extensions import override

from quarterdeck.acp.methods import RESOURCE_NOT_FOUND
from quarterdeck.agent import checks, words_v2
from quarterdeck.agent.checks import Json
from quarterdeck.agent.client import ClientFacts
from quarterdeck.agent.methods import AgentHandler, AgentMethods, resume_params
from quarterdeck.agent.session import AgentSession, ClientLink
from quarterdeck.agent.sessions import AgentSessions, UnknownSession
from quarterdeck.agent.turn import AgentTurn, RunningTurn, to_rpc_error
from quarterdeck.errors import AgentError, RpcError, StorageFailed
from quarterdeck.protocol.acp2_options import options_to_acp2
from quarterdeck.wire import REQUEST_CANCELLED, Response

_SWITCHES: Json = {"configOptions": {"boolean": {}}}
"""Every client of ACP 2 shows boolean options."""


def facts_v2(params: Json) -> ClientFacts:
    """Return who a client of ACP 2 is and what it offers: neither files nor terminals.

    Raises:
        RpcError: if it does not say who it is.
    """
    info = words_v2.client_info(params)
    offered = checks.optional_object(params, "capabilities")
    known = {name: offered[name] for name in ("auth", "elicitation", "_meta") if name in offered}
    return ClientFacts(info, {**known, "session": _SWITCHES})


class _QueuedPrompt:
    """A prompt that waits for the end of a turn."""

    def __init__(self, running: RunningTurn) -> None:
        self.running = running
        self.is_next = anyio.Event()
        self.is_withdrawn = False

    def withdraw(self) -> None:
        self.is_withdrawn = True
        self.is_next.set()


class AgentMethodsV2(AgentMethods):
    """What a client with ACP 2 can call."""

    def __init__(self, sessions: AgentSessions, link: ClientLink) -> None:
        super().__init__(sessions, link)
        self._queues: dict[str, list[_QueuedPrompt]] = {}

    @property
    @override
    def handlers(self) -> Mapping[str, AgentHandler]:
        found: dict[str, AgentHandler] = {
            "session/new": self._new,
            "session/list": self._list_all,
            "session/resume": self._resume,
            "session/close": self._close,
            "session/prompt": self._prompt,
        }
        if self._agent.auth_methods:
            found |= {"auth/login": self._authenticate, "auth/logout": self._log_out}
        if self._agent.has_config_options:
            found["session/set_config_option"] = self._set_config_option
        if self._sessions.store is not None:
            found["session/delete"] = self._delete_queued
        return found

    @override
    def introduce(self) -> dict[str, Any]:
        session = words_v2.session_capabilities(
            {
                "promptCapabilities": self._agent.prompt_capabilities,
                "sessionCapabilities": {"additionalDirectories": {}},
            }
        )
        if self._sessions.store is not None:
            session["delete"] = {}
        in_terminal = self.link.facts.can_authenticate_in_terminal
        methods = words_v2.auth_methods(self._agent.auth_methods, in_terminal=in_terminal)
        return {
            "protocolVersion": words_v2.NEWEST,
            "info": self._agent.info,
            "capabilities": {"session": session},
            "authMethods": methods,
        }

    async def _log_out(self, params: Json) -> Any:
        """Sign out; an agent that only signs in has nothing to forget."""
        return {} if self._agent.logout is None else await self._logout(params)

    # ---- sessions ------------------------------------------------------------------------------

    async def _new(self, params: Json) -> Any:
        opening = await to_thread.run_sync(resume_params, words_v2.servers_as_acp1(params))
        session = await self._sessions.create(self.link, opening)
        return {"sessionId": session.id, **session.state_v2()}

    async def _resume(self, params: Json) -> Any:
        session_id = checks.session_id(params)
        replay = _wants_replay(params.get("replayFrom"))
        async with self._sessions.alone(session_id):
            session = await self._reopened(session_id, params, replay=replay)
        session.post_state("idle")
        return session.state_v2()

    async def _reopened(self, session_id: str, params: Json, *, replay: bool) -> AgentSession:
        if self._sessions.store is None:
            return self._open_session(session_id)
        opening = await to_thread.run_sync(resume_params, words_v2.servers_as_acp1(params))
        try:
            return await self._sessions.reopen(session_id, self.link, opening, replay=replay)
        except UnknownSession as error:
            raise _not_found(session_id, error) from error

    async def _list_all(self, params: Json) -> Any:
        if self._sessions.store is not None:
            return await self._list(params)
        cwd = checks.optional_string(params, "cwd")
        return {"sessions": self._sessions.listed(self.link, cwd)}

    async def _close(self, params: Json) -> Any:
        """Close a session; its last state comes before the answer. An unknown one is closed."""
        session_id = checks.session_id(params)
        self._withdraw(session_id)
        async with self._sessions.alone(session_id):
            try:
                await self._sessions.close(session_id, self.link)
            except UnknownSession:
                return {}
        return {}

    async def _delete_queued(self, params: Json) -> Any:
        self._withdraw(checks.session_id(params))
        return await self._delete(params)

    def _open_session(self, session_id: str) -> AgentSession:
        try:
            return self._sessions.find(session_id, self.link)
        except UnknownSession as error:
            raise _not_found(session_id, error) from error

    # ---- turns ---------------------------------------------------------------------------------

    def _prompt(self, params: Json) -> Awaitable[Any]:
        session = self._open_session(checks.session_id(params))
        blocks = checks.prompt_blocks(params, self._agent.prompt_capabilities)
        running = RunningTurn(AgentTurn(session, blocks))
        if session.turn is None:
            session.turn = running
            return self._insert(session, running)
        queued = _QueuedPrompt(running)
        self._queues.setdefault(session.id, []).append(queued)
        return self._wait(session, queued)

    async def _wait(self, session: AgentSession, queued: _QueuedPrompt) -> Any:
        try:
            await queued.is_next.wait()
        except BaseException:  # by $/cancel_request
            if session.turn is queued.running:
                self._end(session)
            else:
                self._remove(session.id, queued)
            raise
        if queued.is_withdrawn:
            raise RpcError(REQUEST_CANCELLED, "the prompt was cancelled before it ran")
        return await self._insert(session, queued.running)

    async def _insert(self, session: AgentSession, running: RunningTurn) -> Any:
        try:
            message_id = session.insert_prompt(running.turn.prompt)
        except BaseException:
            self._end(session)
            raise
        return Response(
            {"messageId": message_id}, then=_nothing, rest=lambda: self._run(session, running)
        )

    async def _run(self, session: AgentSession, running: RunningTurn) -> None:
        """Run a turn after its prompt was answered, and report how it ended."""
        ending: dict[str, Any]
        try:
            session.post_state("running")
            ending = {"stopReason": await running.run(self._agent.prompt)}
            with anyio.CancelScope(shield=True):
                await session.sync()
        except (RpcError, AgentError, StorageFailed) as failure:
            error = to_rpc_error(failure)
            ending = {"stopReason": "error", "error": _error(error)}
        except BaseException:
            self._end(session)
            raise
        try:
            session.post_state("idle", **ending)
        except AgentError:
            return  # the client has disconnected
        finally:
            self._end(session)

    def _end(self, session: AgentSession) -> None:
        """End a turn; the prompt that has waited longest is next."""
        session.end_turn()
        queue = self._queues.get(session.id)
        if queue:
            queued = queue.pop(0)
            session.turn = queued.running
            queued.is_next.set()
        if not queue:
            self._queues.pop(session.id, None)

    @override
    def on_cancel(self, session_id: str) -> None:
        try:
            session = self._sessions.find(session_id, self.link)
        except RpcError:
            return  # a notification has no response, and there is nothing to cancel
        self._withdraw(session_id)
        if session.turn is not None:
            session.turn.cancel()

    def _withdraw(self, session_id: str) -> None:
        """Give up the prompts that wait."""
        for queued in self._queues.pop(session_id, ()):
            queued.withdraw()

    def _remove(self, session_id: str, queued: _QueuedPrompt) -> None:
        queue = self._queues.get(session_id, [])
        if queued in queue:
            queue.remove(queued)

    # ---- settings ------------------------------------------------------------------------------

    async def _set_config_option(self, params: Json) -> Any:
        session = self._open_session(checks.session_id(params))
        config_id = checks.required_string(params, "configId")
        value = words_v2.option_value(params)
        async with session.settling:
            await self._change_option(session, config_id, value)
        return {"configOptions": options_to_acp2(session.config_options())}


def _wants_replay(replay_from: Any) -> bool:
    if replay_from is None:
        return False
    if isinstance(replay_from, dict) and replay_from.get("type") == "start":
        return True
    raise checks.invalid('replayFrom must be {"type": "start"}')


def _not_found(session_id: str, error: UnknownSession) -> RpcError:
    return RpcError(RESOURCE_NOT_FOUND, error.sentence, {"sessionId": session_id})


def _error(error: RpcError) -> dict[str, Any]:
    known = {"code": error.code, "message": error.message}
    return known if error.data is None else {**known, "data": error.data}


def _nothing() -> None:
    """Send nothing right behind the answer."""
