"""`EditorConnection`: one editor and an agent, with every method of ACP that an agent can offer.

Towards the editor it is the agent. It works on the sessions of the runner, so everything is in the
log, and phones and browsers see and control the same session. Sessions continue when the editor
disconnects.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import anyio.lowlevel
from msgspec import UNSET

from quarterdeck._version import __version__
from quarterdeck.acp import PROTOCOL_VERSION
from quarterdeck.agent import checks
from quarterdeck.agent.checks import Json
from quarterdeck.agent.client import ClientFacts
from quarterdeck.errors import RequestRejected, RpcError
from quarterdeck.hub.editors.access import EditorAccess, OpenParams, listed
from quarterdeck.hub.editors.editor import RESOURCE_NOT_FOUND, Editor, as_rpc_errors
from quarterdeck.hub.editors.subscription import EditorSubscription, EditorTurn
from quarterdeck.protocol import AgentSnapshotWire, SessionState, to_json
from quarterdeck.runner import META_SCOPE, RunnerApi, permitted_blocks
from quarterdeck.views.acp import session_settings
from quarterdeck.wire import INVALID_REQUEST, Response, method_not_found, rpc_error

MOST_SESSIONS: Final = 256
"""That one connection may follow."""

Handler = Callable[[Json], Awaitable[Any]]


class EditorConnection:
    """Give its two functions to a connection, and what comes of that to `attach`."""

    def __init__(self, agent: str, max_sessions: int | None = None) -> None:
        self._agent = agent
        self._most = max_sessions or MOST_SESSIONS
        self._editor: Editor | None = None
        self._openings: EditorAccess | None = None
        self._is_initialized = False
        self._is_over = False
        self._sessions: dict[str, EditorSubscription] = {}
        self._methods: dict[str, Handler] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "logout": self._logout,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config_option,
        }

    def attach(self, editor: Editor) -> None:
        self._editor = editor
        self._openings = EditorAccess(editor, self._agent)

    def leave(self) -> None:
        """The editor disconnects; its sessions continue."""
        self._is_over = True
        for attached in self._sessions.values():
            attached.leave()

    def on_notification(self, method: str, params: Json) -> None:
        if method != "session/cancel":
            return
        attached = self._sessions.get(str(params.get("sessionId")))
        if attached is not None:
            if attached.turn is not None:
                attached.turn.is_cancelled = True
            self._at.start_soon("cancelling a turn", lambda: self._cancel(attached))

    def on_request(self, method: str, params: Json) -> Awaitable[Any]:
        handler = self._methods.get(method)
        if handler is None:
            raise method_not_found(method)
        if not self._is_initialized and method != "initialize":
            raise rpc_error(INVALID_REQUEST, f"call initialize before {method}")
        return as_rpc_errors(handler(params))

    @property
    def _at(self) -> Editor:
        assert self._editor is not None, "attached before the first message is read"
        return self._editor

    @property
    def _runner(self) -> RunnerApi:
        return self._at.hub.runner

    @property
    def _open(self) -> EditorAccess:
        assert self._openings is not None, "attached before the first message is read"
        return self._openings

    # ---- the agent -----------------------------------------------------------------------------

    def _initialize(self, params: Json) -> Awaitable[Any]:
        checks.protocol_version(params)
        info = checks.optional_object(params, "clientInfo")
        capabilities = checks.optional_object(params, "clientCapabilities")
        self._at.facts = ClientFacts(info, capabilities)
        self._is_initialized = True  # at once: what comes right behind need not wait for the agent
        return self._introduce()

    async def _introduce(self) -> Any:
        agent = await self._open.running_agent()
        methods = [] if agent.auth_methods is UNSET else list(agent.auth_methods)
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": {
                "name": self._agent,
                "title": f"{self._agent} (Quarterdeck)",
                "version": __version__,
            },
            "agentCapabilities": self._capabilities(agent),
            "authMethods": methods,
        }

    def _capabilities(self, agent: AgentSnapshotWire) -> dict[str, Any]:
        """Return what the agent takes, and what the hub does for any agent."""
        declared = {} if agent.capabilities is UNSET else to_json(agent.capabilities)
        theirs = declared.get("sessionCapabilities") or {}
        sessions: dict[str, Any] = {"list": {}, "resume": {}, "close": {}}
        if self._at.device.may("admin"):
            sessions["delete"] = {}
        if theirs.get("additionalDirectories") not in (None, False):
            sessions["additionalDirectories"] = theirs["additionalDirectories"]
        return {
            "loadSession": True,
            "promptCapabilities": declared.get("promptCapabilities") or {},
            "mcpCapabilities": declared.get("mcpCapabilities") or {},
            "sessionCapabilities": sessions,
        }

    async def _authenticate(self, params: Json) -> Any:
        method_id = checks.required_string(params, "methodId")
        self._at.need("admin", "signing an agent in")
        agent = await self._open.running_agent()
        await self._runner.authenticate(agent.agent_id, method_id, by=self._at.as_device.actor)
        return {}

    async def _logout(self, _params: Json) -> Any:
        self._at.need("admin", "signing an agent out")
        agent = await self._open.running_agent()
        await self._runner.logout(agent.agent_id, by=self._at.as_device.actor)
        return {}

    # ---- sessions ------------------------------------------------------------------------------

    async def _new(self, params: Json) -> Any:
        opening = _open_params(params, needs_servers=True)
        self._check_room()
        session = await self._open.create(opening)
        state, seq = await self._state(session.session_id)
        attached = self._attach(session.session_id)

        def follow() -> None:
            attached.follow(0, history_until=seq)

        return Response({"sessionId": session.session_id, **session_settings(state)}, follow)

    async def _load(self, params: Json) -> Any:
        session_id = checks.required_string(params, "sessionId")
        opening = _open_params(params, needs_servers=True)
        self._detach(session_id)
        self._check_room()
        await self._open.reopen(session_id, opening)
        state, seq = await self._state(session_id)
        attached = self._attach(session_id)
        begins = await self._open.history_begins(session_id, seq)
        attached.follow(begins, history_until=seq)
        await attached.reached(seq)
        return session_settings(state)

    async def _resume(self, params: Json) -> Any:
        session_id = checks.required_string(params, "sessionId")
        opening = _open_params(params, needs_servers=False)
        self._detach(session_id)
        self._check_room()
        await self._open.reopen(session_id, opening)
        state, seq = await self._state(session_id)
        attached = self._attach(session_id)
        attached.learn(state)
        return Response(session_settings(state), lambda: attached.follow(seq, history_until=seq))

    async def _list(self, params: Json) -> Any:
        cwd = checks.optional_string(params, "cwd")
        cursor = checks.optional_string(params, "cursor")
        sessions = await self._runner.list_sessions()
        return listed(sessions, agent=self._agent, cwd=cwd, cursor=cursor)

    async def _close(self, params: Json) -> Any:
        session_id = checks.required_string(params, "sessionId")
        self._known(session_id)
        self._detach(session_id)
        await self._runner.close_session(session_id, by=self._at.as_device.actor)
        return {}

    async def _delete(self, params: Json) -> Any:
        session_id = checks.required_string(params, "sessionId")
        self._at.need("admin", "deleting sessions")
        self._known(session_id)
        self._detach(session_id)
        await self._runner.delete_session(session_id, by=self._at.as_device.actor)
        return {}

    def _known(self, session_id: str) -> None:
        if self._open.known(session_id) is None:
            raise RpcError(RESOURCE_NOT_FOUND, f"there is no session {session_id!r}")

    def _check_room(self) -> None:
        if len(self._sessions) >= self._most:
            message = f"{len(self._sessions)} sessions are open on this connection; close some"
            raise RpcError(INVALID_REQUEST, message, {"code": "quarterdeck/too-many"})

    def _attach(self, session_id: str) -> EditorSubscription:
        attached = self._sessions[session_id] = EditorSubscription(self._at, session_id)
        return attached

    def _detach(self, session_id: str) -> None:
        attached = self._sessions.pop(session_id, None)
        if attached is not None:
            attached.leave()

    async def _state(self, session_id: str) -> tuple[SessionState, int]:
        """Return the state of a session without messages, and the event it is as of.

        Of the transcript: a session of any size has one.
        """
        async with self._at.hub.transcripts.read(session_id) as transcript:
            return transcript.state, transcript.seq

    def _session(self, params: Json) -> EditorSubscription:
        session_id = checks.required_string(params, "sessionId")
        attached = self._sessions.get(session_id)
        if attached is None:
            message = f"session {session_id!r} is not open here; load or resume it"
            raise RpcError(RESOURCE_NOT_FOUND, message)
        return attached

    # ---- turns ---------------------------------------------------------------------------------

    def _prompt(self, params: Json) -> Awaitable[Any]:
        attached = self._session(params)
        may_send_meta = self._at.device.may(META_SCOPE)
        blocks, is_less = permitted_blocks(_blocks(params), may_send_meta=may_send_meta)
        if attached.turn is not None:
            raise rpc_error(INVALID_REQUEST, "prompt already running")
        if is_less:
            device = self._at.as_device
            self._runner.report_removed_meta(
                attached.session_id, scope=device.scope, by=device.actor
            )
        turn = attached.turn = EditorTurn(f"acp-{secrets.token_hex(16)}")
        attached.expect(turn)
        return self._run(attached, turn, blocks)

    async def _run(self, attached: EditorSubscription, turn: EditorTurn, blocks: list[Any]) -> Any:
        author = self._at.as_device.actor
        try:
            await self._runner.add_prompt(attached.session_id, turn.key, blocks, by=author)
            if turn.is_cancelled:
                await self._cancel(attached)
            self._at.start_soon("waiting for a prompt", lambda: self._heed_queue(attached, turn))
            return await turn.wait()
        except anyio.get_cancelled_exc_class():
            turn.answered.set()  # by an error, and nothing waits behind that
            if not self._is_over and self._at.connection.is_open:  # by $/cancel_request
                turn.is_cancelled = True
                self._at.start_soon("cancelling a turn", lambda: self._cancel(attached, turn))
            raise
        finally:
            attached.turn = None
            if not turn.has_ended:
                turn.answered.set()

    async def _heed_queue(self, attached: EditorSubscription, turn: EditorTurn) -> None:
        """End a turn that the log says nothing of: cancelled before it ran, or not finished."""
        session_id = attached.session_id
        entry = await self._runner.wait_prompt(session_id, turn.key)
        await attached.reached(self._runner.last_seq(session_id))
        attached.forget(turn)
        if not turn.has_ended:
            turn.give_up(entry)

    async def _cancel(self, attached: EditorSubscription, turn: EditorTurn | None = None) -> None:
        """Cancel what the editor waits for: its own prompt, or else the turn it sees running."""
        # A client that the hub disconnects has not cancelled anything: then this ends here.
        await anyio.lowlevel.checkpoint()
        turn = turn or attached.turn
        if turn is None or turn.has_begun:
            await attached.cancel_turn()
            return
        try:
            actor = self._at.as_device.actor
            await self._runner.cancel_prompt(attached.session_id, turn.key, by=actor)
        except RequestRejected:
            return  # it starts just now: the follower of the log cancels it

    # ---- settings ------------------------------------------------------------------------------

    async def _set_mode(self, params: Json) -> Any:
        session_id = self._session(params).session_id
        mode_id = checks.required_string(params, "modeId")
        runner, actor = self._runner, self._at.as_device.actor
        self._at.need("approve", "choosing a mode")
        await runner.ensure_active(session_id)
        await runner.set_mode(session_id, mode_id, by=actor)
        return {}

    async def _set_config_option(self, params: Json) -> Any:
        session_id = self._session(params).session_id
        config_id = checks.required_string(params, "configId")
        self._at.need("approve", "choosing an option")
        if "value" not in params:
            raise checks.invalid("value is required")
        value = {name: params[name] for name in ("type", "value") if name in params}
        await self._runner.ensure_active(session_id)
        options = await self._runner.set_option(
            session_id, config_id, value, by=self._at.as_device.actor
        )
        return {"configOptions": options}


def _open_params(params: Json, *, needs_servers: bool) -> OpenParams:
    cwd = checks.required_string(params, "cwd")
    servers = params.get("mcpServers")
    if servers is None and needs_servers:
        raise checks.invalid("mcpServers is required")
    if servers is not None and not _is_list(servers, dict):
        raise checks.invalid("mcpServers must be an array of objects")
    folders = params.get("additionalDirectories") or []
    if not _is_list(folders, str):
        raise checks.invalid("additionalDirectories must be an array of strings")
    for folder in (cwd, *folders):
        if not folder.startswith("/") or "\0" in folder:
            raise checks.invalid(f"{folder!r} is not an absolute path")
    return OpenParams(
        cwd=cwd, mcp_servers=tuple(servers or ()), additional_directories=tuple(folders)
    )


def _blocks(params: Json) -> list[Any]:
    blocks = params.get("prompt")
    if not isinstance(blocks, list) or not blocks:
        raise checks.invalid("prompt must be a list of content blocks, and not empty")
    if not all(isinstance(each, dict) and isinstance(each.get("type"), str) for each in blocks):
        raise checks.invalid("each block of a prompt needs a type")
    return blocks


def _is_list(value: Any, of: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, of) for each in value)
