"""The methods of ACP 1 that an editor calls, on the sessions of the runner."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
from msgspec import UNSET
from typing_extensions import override

from quarterdeck._version import __version__
from quarterdeck.acp import PROTOCOL_VERSION
from quarterdeck.agent import checks
from quarterdeck.agent.checks import Json
from quarterdeck.errors import RequestRejected, RpcError
from quarterdeck.hub.editors.access import EditorAccess, open_params, prompt_blocks
from quarterdeck.hub.editors.attached import AttachedSessions, read_children
from quarterdeck.hub.editors.editor import RESOURCE_NOT_FOUND, Editor
from quarterdeck.hub.editors.methods import EditorMethods, Handler, declared
from quarterdeck.hub.editors.replay_cursors import NUMBERS
from quarterdeck.hub.editors.subscription import EditorSubscription, EditorTurn
from quarterdeck.protocol import AgentSnapshotWire, SessionState, to_json
from quarterdeck.protocol.config_options import MODEL, option_of_category
from quarterdeck.views.acp import SWITCH_ON, is_switch, session_settings, without_switches
from quarterdeck.wire import INVALID_REQUEST, Response, method_not_found, rpc_error


class MethodsV1(EditorMethods):
    """What an editor with ACP 1 can call."""

    def __init__(self, editor: Editor, agent: str, most: int) -> None:
        access = EditorAccess(editor, agent)
        self._sessions = AttachedSessions(editor, access, EditorSubscription, most)
        super().__init__(agent, self._sessions)

    @property
    @override
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "authenticate": self._authenticate,
            "logout": self._logout,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._new_fork,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_model": self._set_model,
            "session/set_config_option": self._set_config_option,
            **self._optional.handlers,
        }

    @override
    def on_cancel(self, session_id: str) -> None:
        attached = self._sessions.get(session_id)
        if attached is not None:
            if attached.turn is not None:
                attached.turn.is_cancelled = True
            self._editor.start_soon("cancelling a turn", lambda: self._cancel(attached))

    @override
    async def introduce(self) -> Any:
        agent = await self._access.running_agent()
        methods: list[Any] = [] if agent.auth_methods is UNSET else list(agent.auth_methods)
        in_terminal = self._editor.facts.can_authenticate_in_terminal
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": {
                "name": self._agent,
                "title": f"{self._agent} (Quarterdeck)",
                "version": __version__,
            },
            "agentCapabilities": await self._capabilities(agent),
            "authMethods": [
                each for each in methods if in_terminal or each.get("type") != "terminal"
            ],
        }

    async def _capabilities(self, agent: AgentSnapshotWire) -> dict[str, Any]:
        """Return what the agent takes, and what the hub does for any agent."""
        given = declared(agent)
        theirs = given.get("sessionCapabilities") or {}
        sessions: dict[str, Any] = {"list": {}, "resume": {}, "close": {}}
        sessions |= self._optional.of_sessions()
        if self._editor.device.may("admin"):
            sessions["delete"] = {}
        if self._can_fork(agent):
            sessions["fork"] = {}
        if theirs.get("additionalDirectories") not in (None, False):
            sessions["additionalDirectories"] = theirs["additionalDirectories"]
        return {
            "loadSession": True,
            "promptCapabilities": given.get("promptCapabilities") or {},
            "mcpCapabilities": given.get("mcpCapabilities") or {},
            "sessionCapabilities": sessions,
            **(await self._optional.of_agent(agent.agent_id)),
            "_meta": NUMBERS,
        }

    # ---- sessions ------------------------------------------------------------------------------

    def _settings(self, state: SessionState, seq: int) -> dict[str, Any]:
        settings = session_settings(state)
        if not self._editor.facts.can_show_switches:
            settings = without_switches(settings)
        return {**settings, "_meta": self._numbers(state.session_id, seq)}

    async def _new(self, params: Json) -> Any:
        opening = open_params(params, needs_servers=True)
        self._sessions.check_room()
        session = await self._access.create(opening)
        state, seq = await self._sessions.state(session.session_id)
        attached = self._sessions.attach(session.session_id)

        def follow() -> None:
            attached.follow(0, history_until=seq)

        return Response({"sessionId": session.session_id, **self._settings(state, seq)}, follow)

    async def _new_fork(self, params: Json) -> Any:
        session_id = checks.required_string(params, "sessionId")
        forked = await self._fork(session_id, checks.required_string(params, "cwd"))
        state, seq = await self._sessions.state(forked)
        attached = self._sessions.attach(forked)
        attached.learn(state)
        answer = {"sessionId": forked, **self._settings(state, seq)}
        return Response(answer, lambda: attached.follow(seq, history_until=seq))

    async def _load(self, params: Json) -> Any:
        session_id = checks.required_string(params, "sessionId")
        opening = open_params(params, needs_servers=True)
        self._sessions.detach(session_id)
        self._sessions.check_room()
        await self._access.reopen(session_id, opening)
        return await self._replay(session_id, _replay_from(params) or {"type": "start"})

    async def _resume(self, params: Json) -> Any:
        session_id = checks.required_string(params, "sessionId")
        opening = open_params(params, needs_servers=False)
        self._sessions.detach(session_id)
        self._sessions.check_room()
        await self._access.reopen(session_id, opening)
        replay_from = _replay_from(params)
        if replay_from is not None:
            return await self._replay(session_id, replay_from)
        state, seq = await self._sessions.state(session_id)
        attached = self._sessions.attach(session_id)
        attached.learn(state)
        answer = self._settings(state, seq)
        return Response(answer, lambda: attached.follow(seq, history_until=seq))

    async def _replay(self, session_id: str, replay_from: Any) -> Any:
        """Send the history from a cursor, then answer."""
        since = await self._cursor(session_id, replay_from)
        assert since is not None
        state, seq = await self._sessions.state(session_id)
        attached = self._sessions.attach(session_id)
        attached.children = read_children(replay_from)
        begins = await self._sessions.first_seq(session_id, since, seq)
        attached.follow(begins, history_until=seq, since=since)
        await self._sessions.replayed(session_id, seq)
        return self._settings(state, seq)

    async def _close(self, params: Json) -> Any:
        session_id = checks.required_string(params, "sessionId")
        if self._access.known(session_id) is None:
            raise RpcError(RESOURCE_NOT_FOUND, f"there is no session {session_id!r}")
        self._sessions.detach(session_id)
        await self._runner.close_session(session_id, by=self._editor.as_device.actor)
        return {}

    # ---- turns ---------------------------------------------------------------------------------

    def _prompt(self, params: Json) -> Awaitable[Any]:
        attached = self._sessions.find(params)
        blocks, is_less = self._editor.permitted(prompt_blocks(params))
        if attached.turn is not None:
            raise rpc_error(INVALID_REQUEST, "prompt already running")
        if is_less:
            device = self._editor.as_device
            self._runner.report_removed_meta(
                attached.session_id, scope=device.scope, by=device.actor
            )
        turn = attached.turn = EditorTurn(f"acp-{secrets.token_hex(16)}")
        attached.expect(turn)
        return self._run(attached, turn, blocks)

    async def _run(self, attached: EditorSubscription, turn: EditorTurn, blocks: list[Any]) -> Any:
        author = self._editor.as_device.actor
        try:
            await self._runner.add_prompt(attached.session_id, turn.key, blocks, by=author)
            if turn.is_cancelled:
                await self._cancel(attached)
            self._editor.start_soon(
                "waiting for a prompt", lambda: self._heed_queue(attached, turn)
            )
            return await turn.wait()
        except anyio.get_cancelled_exc_class():
            turn.answered.set()  # by an error, and nothing waits behind that
            if not self._is_over and self._editor.connection.is_open:  # by $/cancel_request
                turn.is_cancelled = True
                self._editor.start_soon("cancelling a turn", lambda: self._cancel(attached, turn))
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
            actor = self._editor.as_device.actor
            await self._runner.cancel_prompt(attached.session_id, turn.key, by=actor)
        except RequestRejected:
            return  # it starts just now: the follower of the log cancels it

    # ---- settings ------------------------------------------------------------------------------

    async def _set_mode(self, params: Json) -> Any:
        session_id = self._sessions.find(params).session_id
        mode_id = checks.required_string(params, "modeId")
        runner, actor = self._runner, self._editor.as_device.actor
        self._editor.need("approve", "choosing a mode")
        await runner.ensure_active(session_id)
        await runner.set_mode(session_id, mode_id, by=actor)
        return {}

    async def _set_model(self, params: Json) -> Any:
        """Choose a model by the method that options have replaced; older editors use it."""
        session_id = self._sessions.find(params).session_id
        model_id = checks.required_string(params, "modelId")
        self._editor.need("approve", "choosing a model")
        await self._runner.ensure_active(session_id)
        state, _ = await self._sessions.state(session_id)
        option = option_of_category(to_json(state)["configOptions"], MODEL)
        if option is None:
            raise method_not_found("session/set_model")
        actor, value = self._editor.as_device.actor, {"value": model_id}
        await self._runner.set_option(session_id, str(option["id"]), value, by=actor)
        return {}

    async def _set_config_option(self, params: Json) -> Any:
        session_id = self._sessions.find(params).session_id
        config_id = checks.required_string(params, "configId")
        self._editor.need("approve", "choosing an option")
        if "value" not in params:
            raise checks.invalid("value is required")
        value = {name: params[name] for name in ("type", "value") if name in params}
        await self._runner.ensure_active(session_id)
        can_switch = self._editor.facts.can_show_switches
        if not can_switch and isinstance(value["value"], str):
            value = await self._switched(session_id, config_id, value)
        options = await self._runner.set_option(
            session_id, config_id, value, by=self._editor.as_device.actor
        )
        answer = {"configOptions": options}
        return answer if can_switch else without_switches(answer)

    async def _switched(
        self, session_id: str, config_id: str, value: dict[str, Any]
    ) -> dict[str, Any]:
        """Return a choice of `without_switches` as the value of the boolean option behind it."""
        state, _ = await self._sessions.state(session_id)
        for option in to_json(state)["configOptions"]:
            if is_switch(option) and option.get("id") == config_id:
                return {"type": "boolean", "value": value["value"] == SWITCH_ON}
        return value


def _replay_from(params: Json) -> Any:
    """Return our cursor in a request of ACP 1, which has none of its own."""
    meta = params.get("_meta")
    ours = meta.get("quarterdeck") if isinstance(meta, dict) else None
    return ours.get("replayFrom") if isinstance(ours, dict) else None
