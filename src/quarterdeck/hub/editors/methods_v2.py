"""The methods of ACP 2 that an editor calls, on the sessions of the runner.

A prompt is answered when the queue hands it to the agent; an editor may have several in the queue.
`session/cancel` cancels the running turn and the prompts of the editor that have not run. A replay
ends with the state of the session, then comes the answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Mapping
from typing import Any

import anyio
import anyio.lowlevel
from msgspec import UNSET
from typing_extensions import override

from quarterdeck._version import __version__
from quarterdeck.agent import checks, words_v2
from quarterdeck.agent.checks import Json
from quarterdeck.errors import RequestRejected
from quarterdeck.hub.editors.access import EditorAccess, open_params, prompt_blocks
from quarterdeck.hub.editors.attached import AttachedSessions, read_children
from quarterdeck.hub.editors.editor import Editor
from quarterdeck.hub.editors.methods import EditorMethods, Handler, declared
from quarterdeck.hub.editors.replay_cursors import NUMBERS, read_cursor
from quarterdeck.hub.editors.subscription_v2 import EditorPrompt, EditorSubscriptionV2
from quarterdeck.protocol import AgentSnapshotWire, SessionState
from quarterdeck.protocol.acp2_options import options_to_acp2
from quarterdeck.views.acp_replay import START, ReplayCursor
from quarterdeck.views.acp_v2 import session_settings_v2
from quarterdeck.wire import Response


class MethodsV2(EditorMethods):
    """What an editor with ACP 2 can call."""

    def __init__(self, editor: Editor, agent: str, most: int) -> None:
        access = EditorAccess(editor, agent)
        self._sessions = AttachedSessions(editor, access, EditorSubscriptionV2, most)
        super().__init__(agent, self._sessions)

    @property
    @override
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "auth/login": self._authenticate,
            "auth/logout": self._logout,
            "session/new": self._new,
            "session/resume": self._resume,
            "session/fork": self._new_fork,
            "session/list": self._list_absolute,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/prompt": self._prompt,
            "session/set_config_option": self._set_config_option,
            **self._optional.handlers,
            **self._optional.cancels,
        }

    @override
    async def introduce(self) -> Any:
        agent = await self._access.running_agent()
        methods: list[Any] = [] if agent.auth_methods is UNSET else list(agent.auth_methods)
        in_terminal = self._editor.facts.can_authenticate_in_terminal
        return {
            "protocolVersion": words_v2.NEWEST,
            "info": {
                "name": self._agent,
                "title": f"{self._agent} (Quarterdeck)",
                "version": __version__,
            },
            "capabilities": await self._capabilities(agent),
            "authMethods": words_v2.auth_methods(methods, in_terminal=in_terminal),
        }

    async def _capabilities(self, agent: AgentSnapshotWire) -> dict[str, Any]:
        """Return what the agent takes, and what the hub does for any agent."""
        given = declared(agent)
        session = {**words_v2.session_capabilities(given), **self._optional.of_sessions()}
        if self._editor.device.may("admin"):
            session["delete"] = {}
        beside = await self._optional.of_agent(agent.agent_id)
        return {"session": session, **beside, "_meta": NUMBERS}

    # ---- sessions ------------------------------------------------------------------------------

    def _settings(self, state: SessionState, seq: int) -> dict[str, Any]:
        return {**session_settings_v2(state), "_meta": self._numbers(state.session_id, seq)}

    async def _new(self, params: Json) -> Any:
        opening = open_params(words_v2.servers_as_acp1(params), needs_servers=False)
        self._sessions.check_room()
        session = await self._access.create(opening)
        state, seq = await self._sessions.state(session.session_id)
        attached = self._sessions.attach(session.session_id)

        def follow() -> None:
            attached.follow(0, history_until=0)

        return Response({"sessionId": session.session_id, **self._settings(state, seq)}, follow)

    async def _new_fork(self, params: Json) -> Any:
        session_id = checks.required_string(params, "sessionId")
        forked = await self._fork(session_id, checks.required_string(params, "cwd"))
        state, seq = await self._sessions.state(forked)
        attached = self._sessions.attach(forked)

        def follow() -> None:
            attached.follow(0, history_until=seq, since=ReplayCursor(seq + 1))

        return Response({"sessionId": forked, **self._settings(state, seq)}, follow)

    async def _resume(self, params: Json) -> Any:
        session_id = checks.required_string(params, "sessionId")
        opening = open_params(words_v2.servers_as_acp1(params), needs_servers=False)
        replay_from = params.get("replayFrom")
        read_cursor(replay_from)  # before anything happens
        self._sessions.detach(session_id)
        self._sessions.check_room()
        await self._access.reopen(session_id, opening)
        since = await self._cursor(session_id, replay_from)
        state, seq = await self._sessions.state(session_id)
        attached = self._sessions.attach(session_id)
        attached.children = read_children(replay_from)
        begins = await self._sessions.first_seq(session_id, since or START, seq)
        attached.follow(begins, history_until=seq, since=since or ReplayCursor(seq + 1))
        await self._sessions.replayed(session_id, seq)
        await attached.send_facts(state, seq, is_whole=since is not None)
        return self._settings(state, seq)

    async def _list_absolute(self, params: Json) -> Any:
        cwd = checks.optional_string(params, "cwd")
        if cwd is not None and not cwd.startswith("/"):
            raise checks.invalid("cwd must be an absolute path")
        return await self._list(params)

    async def _close(self, params: Json) -> Any:
        """Close a session; its last state comes before the answer. An unknown one is closed."""
        session_id = checks.required_string(params, "sessionId")
        if self._access.known(session_id) is None:
            return {}
        attached = self._sessions.get(session_id)
        if attached is not None:
            await self._cancel_prompts(attached)
        await self._runner.close_session(session_id, by=self._editor.as_device.actor)
        closed = self._runner.find_session(session_id)
        if attached is not None and closed is not None:
            await attached.reached(closed.last_seq)
        self._sessions.detach(session_id)
        return {}

    # ---- turns ---------------------------------------------------------------------------------

    def _prompt(self, params: Json) -> Awaitable[Any]:
        attached = self._sessions.find(params)
        blocks, is_less = self._editor.permitted(prompt_blocks(params))
        if is_less:
            device = self._editor.as_device
            self._runner.report_removed_meta(
                attached.session_id, scope=device.scope, by=device.actor
            )
        prompt = EditorPrompt(f"acp-{secrets.token_hex(16)}")
        attached.expect(prompt)
        return self._insert(attached, prompt, blocks)

    async def _insert(
        self, attached: EditorSubscriptionV2, prompt: EditorPrompt, blocks: list[Any]
    ) -> Any:
        author = self._editor.as_device.actor
        try:
            await self._runner.add_prompt(attached.session_id, prompt.key, blocks, by=author)
            if prompt.is_cancelled:
                await self._cancel_prompt(attached, prompt)
            self._editor.start_soon(
                "waiting for a prompt", lambda: self._heed_queue(attached, prompt)
            )
            return await prompt.wait()
        except anyio.get_cancelled_exc_class():
            if not self._is_over and self._editor.connection.is_open:  # by $/cancel_request
                prompt.is_cancelled = True
                self._editor.start_soon(
                    "cancelling a prompt", lambda: self._cancel_prompt(attached, prompt)
                )
            raise

    async def _heed_queue(self, attached: EditorSubscriptionV2, prompt: EditorPrompt) -> None:
        """Answer a prompt that the log does not have: it was cancelled before it ran."""
        session_id = attached.session_id
        entry = await self._runner.wait_prompt(session_id, prompt.key)
        await attached.reached(self._runner.last_seq(session_id))
        attached.forget(prompt)
        if not prompt.is_settled:
            prompt.give_up(entry)

    @override
    def on_cancel(self, session_id: str) -> None:
        attached = self._sessions.get(session_id)
        if attached is not None:
            for prompt in attached.prompts:
                prompt.is_cancelled = True
            self._editor.start_soon("cancelling a turn", lambda: self._cancel(attached))

    async def _cancel(self, attached: EditorSubscriptionV2) -> None:
        # A client that the hub disconnects has not cancelled anything: then this ends here.
        await anyio.lowlevel.checkpoint()
        await self._cancel_prompts(attached)
        await attached.cancel_turn()

    async def _cancel_prompts(self, attached: EditorSubscriptionV2) -> None:
        for prompt in attached.prompts:
            prompt.is_cancelled = True
            await self._cancel_prompt(attached, prompt)

    async def _cancel_prompt(self, attached: EditorSubscriptionV2, prompt: EditorPrompt) -> None:
        try:
            actor = self._editor.as_device.actor
            await self._runner.cancel_prompt(attached.session_id, prompt.key, by=actor)
        except RequestRejected:
            return  # it is not queued yet, or starts just now: the follower of the log cancels it

    # ---- settings ------------------------------------------------------------------------------

    async def _set_config_option(self, params: Json) -> Any:
        session_id = self._sessions.find(params).session_id
        config_id = checks.required_string(params, "configId")
        self._editor.need("approve", "choosing an option")
        chosen = words_v2.option_value(params)
        kind = {"type": "boolean"} if isinstance(chosen, bool) else {}
        value = {**kind, "value": chosen}
        await self._runner.ensure_active(session_id)
        runner, actor = self._runner, self._editor.as_device.actor
        given = await runner.set_option(session_id, config_id, value, by=actor)
        return {"configOptions": options_to_acp2(given)}
