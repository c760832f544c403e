"""A session as an editor with ACP 2 follows it: updates, states, its prompts, pending requests.

The editor gets the log as `quarterdeck.views.acp_v2` shows it, its own prompts included: a prompt
is answered with the id of its message when the queue hands it to the agent, which is when the log
has it. The end of a turn is a state. After a reset, the history that the agent sends again is not
sent. In a replay, the first piece of each message, call and terminal replaces what the editor has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

import anyio
from msgspec import UNSET
from typing_extensions import override

from quarterdeck.errors import RpcError
from quarterdeck.hub.editors.editor import Editor
from quarterdeck.hub.editors.follower import LogFollower, OnChild
from quarterdeck.protocol import ELICITATION_UPDATED, Event, SessionState, to_json
from quarterdeck.protocol.acp2_words import permission_params
from quarterdeck.runner import PromptEntry
from quarterdeck.views.acp import prompt_key
from quarterdeck.views.acp_replay import ReplayRuns, ReplayUpdates, Update, can_join
from quarterdeck.views.acp_v2 import AcpV2Updates
from quarterdeck.wire import INTERNAL_ERROR, REQUEST_CANCELLED


class EditorPrompt:
    """A prompt of an editor until it is inserted."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.is_cancelled = False
        """The editor does not want it any more."""
        self._message_id: str | None = None
        self._failure: RpcError | None = None
        self._settled = anyio.Event()

    @property
    def is_settled(self) -> bool:
        return self._settled.is_set()

    def insert(self, message_id: str) -> None:
        """The agent has it."""
        self._message_id = message_id
        self._settled.set()

    def give_up(self, entry: PromptEntry) -> None:
        """It never ran."""
        match entry.state:
            case "cancelled" | "interrupted":
                message = "the prompt was cancelled before it ran"
                self._failure = RpcError(REQUEST_CANCELLED, message)
            case "queued" | "running" | "failed" | "done":
                reason = "the prompt failed" if entry.error is UNSET else entry.error.message
                self._failure = RpcError(INTERNAL_ERROR, reason)
            case _:
                assert_never(entry.state)
        self._settled.set()

    async def wait(self) -> dict[str, Any]:
        """Wait until it is inserted.

        Raises:
            RpcError: if it never was.
        """
        await self._settled.wait()
        if self._message_id is None:
            assert self._failure is not None
            raise self._failure
        return {"messageId": self._message_id}


class EditorSubscriptionV2(LogFollower):
    """One session of one editor that speaks ACP 2."""

    def __init__(self, editor: Editor, session_id: str, on_child: OnChild) -> None:
        self._view = AcpV2Updates()
        self._replay = ReplayUpdates()
        self._runs = ReplayRuns()
        self._prompts: dict[str, EditorPrompt] = {}
        self._is_own_turn = False
        super().__init__(editor, session_id, permission_params, on_child)

    @property
    def prompts(self) -> list[EditorPrompt]:
        """The prompts of this editor that are not inserted."""
        return [each for each in self._prompts.values() if not each.is_settled]

    def expect(self, prompt: EditorPrompt) -> None:
        """Know a prompt of this editor when it comes by."""
        self._prompts[prompt.key] = prompt

    def forget(self, prompt: EditorPrompt) -> None:
        self._prompts.pop(prompt.key, None)

    async def send_facts(self, state: SessionState, seq: int, *, is_whole: bool) -> None:
        """Send what holds now, the state last; after a replay that is the state alone."""
        facts: list[Update] = [] if is_whole else _facts(state)
        await self._send_between([*facts, self._view.state], seq)

    @override
    def _is_its_turn(self) -> bool:
        return self._is_own_turn

    @override
    async def _take(self, event: Event) -> None:
        updates = list(self._view.updates(event))
        self._heed(event)
        if self._is_replaying:
            await self._end_run()
        elif event.seq <= self._history_until:
            await self._take_history(event.seq, updates)
        else:
            shown = [self._replay.prepared(each, is_history=False) for each in updates]
            await self._send(shown, event.seq, self._since)
        self._note_prompt(event, updates)
        if event.type == "unrecognized-update" and not self._is_replaying:
            self._note_child(event.payload, event.seq)

    async def _take_history(self, seq: int, updates: list[Update]) -> None:
        """Send what an event of the history is; what follows it may belong to the same update."""
        if can_join(updates) and (seq, 0) >= (self._since.seq, self._since.part):
            if not self._runs.continues(updates[0]):
                await self._end_run()
            self._runs.add(updates[0], seq, is_first=self._replay.is_first(updates[0]))
        elif updates:
            await self._end_run()
            shown = [self._replay.prepared(each, is_history=True) for each in updates]
            await self._send(shown, seq, self._since)
        if seq == self._history_until:
            await self._end_run()

    async def _end_run(self) -> None:
        if self._runs.is_open:
            seq = self._runs.seq
            await self._send([[self._runs.end()]], seq, self._since)

    def _heed(self, event: Event) -> None:
        """Take what is not an update, or changes whether updates are sent."""
        payload: Mapping[str, Any] = event.payload
        match event.type:
            case "permission-request-created" | "permission-request-resolved":
                self.requests.on_permission(payload["requestId"])
            case "unrecognized-update":
                if payload.get("sessionUpdate") == ELICITATION_UPDATED:
                    self.requests.on_elicitation(payload["requestId"])
            case "prompt-finished":
                self._is_own_turn = False
            case "session-reset":
                self._is_replaying = True
            case "session-status-change":
                if payload.get("resumed"):
                    self._is_replaying = False
            case _:
                pass

    def _note_prompt(self, event: Event, updates: list[Update]) -> None:
        prompt = self._prompts.get(prompt_key(event) or "")
        if prompt is None or prompt.is_settled or not updates:
            return
        self._is_own_turn = True
        prompt.insert(str(updates[0].get("messageId")))
        if prompt.is_cancelled:
            self._editor.start_soon("cancelling a turn", self.cancel_turn)


def _facts(state: SessionState) -> list[Update]:
    plain = to_json(state)
    info = {key: value for key, value in (plain["info"] or {}).items() if value is not None}
    facts: list[Update] = []
    if info:
        known = {key: info[key] for key in ("title", "updatedAt") if key in info}
        facts.append({"sessionUpdate": "session_info_update", **known})
    if plain["usage"]:
        facts.append({"sessionUpdate": "usage_update", **plain["usage"]})
    return facts
