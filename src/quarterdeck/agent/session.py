"""`AgentSession`: one open session, its settings, and the updates it records and sends.

Order: an update is recorded first and sent second, so a client never sees what a later load would
not replay. `send` never waits; agents that send a lot await `room`.

Growing tool output. ACP's updates of a tool call replace what was shown before, so a command that
prints 64 KiB in small pieces sends thousands of times that. `GrowingOutput` keeps the recording
small: a text that begins like the previous one of its call is recorded without that beginning, and

    "_grown": [characters kept of the previous text, checksum of the previous text]

replaces it. Writer and reader keep the same texts by the same rules.
"""

from __future__ import annotations

import logging
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio import to_thread
from msgspec import Raw
from msgspec.structs import replace

from quarterdeck.acp import PROTOCOL_VERSION
from quarterdeck.agent import definition
from quarterdeck.agent.checks import Json, McpServer, as_recorded
from quarterdeck.agent.client import ClientFacts, ClientProxy
from quarterdeck.agent.definition import ServedAgent
from quarterdeck.agent.store import SessionRecord, StoredSession
from quarterdeck.agent.updates_v2 import HistoryV2, UpdatesV2, updates_to_acp2
from quarterdeck.errors import AgentError, ConnectionClosed, JsonInvalid, StorageFailed
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol.acp2_options import options_to_acp2
from quarterdeck.protocol.acp2_words import command_to_acp2
from quarterdeck.wire import Connection

if TYPE_CHECKING:
    from quarterdeck.agent.turn import RunningTurn


SESSION_UPDATE: Final = "session/update"
UNSENT_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of updates that may wait for a client that does not read; more are rejected."""

_NOT_RECORDED: Final = frozenset({"available_commands_update"})  # sent again by every load
_GROWN: Final = "_grown"
_MIN_SHARED_CHARACTERS: Final = 512  # a shorter common beginning is not worth the bookkeeping

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class ClientLink:
    """The connection a session belongs to; compared by identity."""

    connection: Connection
    facts: ClientFacts
    max_sessions: int | None = None
    """How many sessions it may have open; None is unlimited."""
    opening: int = 0
    """Sessions being opened; they count against `max_sessions`."""
    version: int = 1
    """The version of ACP that `initialize` chose."""


class AgentSession:
    """One session, from `session/new`, `load` or `resume` until it is closed."""

    def __init__(
        self,
        session_id: str,
        agent: ServedAgent,
        link: ClientLink,
        record: SessionRecord,
        *,
        mcp_servers: Sequence[McpServer] = (),
        stored: StoredSession | None = None,
    ) -> None:
        """Created by `AgentSessions` only."""
        self.id = session_id
        self.mcp_servers = tuple(mcp_servers)
        self.data: Any = None
        """For the agent's own use while the session is open."""
        self.client = ClientProxy(link.connection, session_id, link.facts, self.requesting)
        self.link = link
        self.turn: RunningTurn | None = None
        self.leftover: RunningTurn | None = None
        """A cancelled turn whose code is still running."""
        self.settling = anyio.Lock()
        """Held while mode or options change: a prompt received meanwhile waits for it."""
        self.stored = stored
        self.is_open = True
        self._agent = agent
        self._record = record
        self._memory = None if stored is None else stored.memory
        self._thread = get_ident()
        self._idle = anyio.Event()
        self._growing = GrowingOutput()
        is_newer = link.version > PROTOCOL_VERSION
        self._names = UpdatesV2(lambda: f"msg-{secrets.token_hex(8)}") if is_newer else None
        self._history = HistoryV2() if is_newer else None
        self._requests = 0

    @property
    def cwd(self) -> Path:
        return Path(self._record.cwd)

    @property
    def roots(self) -> tuple[Path, ...]:
        """The directories the agent may work in, `cwd` first."""
        return (self.cwd, *map(Path, self._record.additional_directories))

    @property
    def mode(self) -> str | None:
        """The id of the current mode; None if the agent has no modes."""
        return self._record.mode

    @property
    def config(self) -> Mapping[str, Any]:
        """The current value of each of the agent's config options, by its id."""
        return self._record.config

    @property
    def initial_message(self) -> str | None:
        """Text from the server's operator that every session begins with."""
        return self._record.initial_message

    @property
    def title(self) -> str | None:
        return self._record.title

    @title.setter
    def title(self, title: str | None) -> None:
        """Store the title and send it to the client."""
        self.change(title=title)
        self.send({"sessionUpdate": "session_info_update", "title": title})

    @property
    def memory(self) -> bytes | None:
        """What the agent stored with `remember`, in this process or an earlier one."""
        return self._memory

    @memory.setter
    def memory(self, memory: bytes) -> None:
        self.remember(memory)

    def remember(self, memory: bytes) -> None:
        """Store what the agent needs to continue after a restart; replaces what was stored.

        Raises:
            StorageFailed: if it cannot be written; the previous content is still stored.
        """
        if self.stored is not None:
            self.stored.remember(memory)
        self._memory = memory

    def send(self, update: Json) -> None:
        """Record an update and send it to the client, in order, without waiting.

        Raises:
            AgentError: if it is not an update, the session is closed, or the client does not read.
            StorageFailed: if it cannot be recorded; then it is not sent.
        """
        self._check_sending(update)
        if self._names is not None:
            update = self._names.named(update)
        text = _encode(update)
        if self.stored is not None and update["sessionUpdate"] not in _NOT_RECORDED:
            shorter = self._growing.shortened(update)
            self.stored.append(text if shorter is None else _encode(shorter))
            self._growing.follow(update)
        self.post(text)

    def send_ending(self, update: Json) -> None:
        """Send the end of a tool call even if it cannot be recorded: the client waits for it.

        A load of the session reports calls without a recorded end as failed.
        """
        try:
            self.send(update)
        except StorageFailed:
            self.post(_encode(update))

    def record(self, update: Json) -> None:
        """Record an update without sending it, such as the user's own prompt."""
        if self.stored is not None:
            self.stored.append(_encode(update))

    def insert_prompt(self, prompt: Sequence[Json]) -> str:
        """Record a prompt and send it to a client with ACP 2; return the id of its message."""
        assert self._names is not None, "a client of ACP 1 does not get its own prompt"
        message_id = self._names.begin_message()
        blocks = [as_recorded(block) for block in prompt]
        for block in blocks:
            self.record(
                {
                    "sessionUpdate": "user_message_chunk",
                    "content": block,
                    "messageId": message_id,
                }
            )
        self._post({"sessionUpdate": "user_message", "messageId": message_id, "content": blocks})
        return message_id

    def post_state(self, state: str, **more: Any) -> None:
        """Send a state to a client with ACP 2."""
        self._post({"sessionUpdate": "state_update", "state": state, **more})

    @contextmanager
    def requesting(self) -> Iterator[None]:
        """While a request waits for the user, a client with ACP 2 sees it in the state."""
        self._change_requests(1)
        try:
            yield
        finally:
            self._change_requests(-1)

    def _change_requests(self, change: int) -> None:
        before = self._requests > 0
        self._requests += change
        is_waiting = self._requests > 0
        if self._names is None or self.turn is None or before == is_waiting:
            return
        with suppress(AgentError):  # the client has disconnected
            self.post_state("requires_action" if is_waiting else "running")

    def post(self, update: bytes) -> None:
        """Send an update, as it is recorded, to the client."""
        if self._names is None:
            self._post_raw(Raw(update))
        else:
            for each in updates_to_acp2(decode_json(update)):
                self._post(each)

    def post_history(self, update: bytes) -> None:
        """Send the next update of the record; a client with ACP 2 gets messages whole."""
        if self._history is None:
            self.post(update)
            return
        for each in self._history.updates(decode_json(update)):
            self._post(each)

    def end_history(self) -> None:
        """Send the rest of the record."""
        if self._history is not None:
            for each in self._history.end():
                self._post(each)
            self._history = None

    def _post(self, update: Json) -> None:
        self._post_raw(Raw(_encode(update)))

    def _post_raw(self, update: Raw) -> None:
        params = {"sessionId": self.id, "update": update}
        try:
            self.link.connection.post(SESSION_UPDATE, params)
        except ConnectionClosed as error:
            raise AgentError(f"the client of {self.id} has disconnected") from error

    async def room(self) -> None:
        """Wait while the client is far behind with reading; for agents that send a lot."""
        await self.link.connection.room()

    def change_mode(self, mode_id: str) -> None:
        """Change the session's mode and notify the client.

        Raises:
            AgentError: if the agent has no such mode.
        """
        if all(mode["id"] != mode_id for mode in self._agent.modes):
            raise AgentError(f"there is no mode {mode_id!r}")
        self.change(mode=mode_id)
        self.send({"sessionUpdate": "current_mode_update", "currentModeId": mode_id})
        self.announce_config_options()

    def change_config(self, config_id: str, value: Any) -> None:
        """Change the value of a config option and notify the client."""
        self.change(config={**self._record.config, config_id: value})
        self.announce_config_options()

    def announce_config_options(self) -> None:
        """Send the current config options to the client."""
        options = self.config_options()
        self.send({"sessionUpdate": "config_option_update", "configOptions": options})

    def announce_commands(self) -> None:
        """Send the available commands to the client."""
        if self._agent.commands is not None:
            commands = [dict(each) for each in self._agent.commands(self)]
            self.send({"sessionUpdate": "available_commands_update", "availableCommands": commands})

    def config_options(self) -> list[dict[str, Any]]:
        """Return all config options with their current values."""
        list_own = self._agent.config_options
        own = () if list_own is None else list_own(self)
        return definition.option_state(self._agent.modes, self.mode, own, self.config)

    def state(self) -> dict[str, Any]:
        """Return modes and config options for the response to new, load and resume."""
        modes = definition.mode_state(self._agent.modes, self.mode)
        state: dict[str, Any] = {} if modes is None else {"modes": modes}
        if self._agent.has_config_options:
            state["configOptions"] = self.config_options()
        return state

    def state_v2(self) -> dict[str, Any]:
        """Return options and commands for the response to new and resume of ACP 2."""
        state: dict[str, Any] = {}
        if self._agent.has_config_options:
            state["configOptions"] = options_to_acp2(self.config_options())
        if self._agent.commands is not None:
            commands = [command_to_acp2(dict(each)) for each in self._agent.commands(self)]
            state["availableCommands"] = commands
        return state

    def fill_config(self) -> None:
        """Give `config` a value for every option, after the agent has opened the session."""
        own = {each["id"]: each["currentValue"] for each in self.config_options()}
        if self._agent.modes:
            own.pop(definition.MODE_OPTION, None)
        if own != self._record.config:
            self.change(config=own)

    def change(self, **facts: Any) -> None:
        """Change fields of the session record, on disk first."""
        record = replace(self._record, **facts)
        if self.stored is not None:
            self.stored.save(record)
        self._record = record

    def end_turn(self) -> None:
        if self.turn is not None and self.turn.is_running:
            self.leftover = self.turn
        elif self.leftover is not None and not self.leftover.is_running:
            self.leftover = None
        self.turn = None
        self._idle.set()
        self._idle = anyio.Event()

    async def wait_idle(self) -> None:
        while self.turn is not None:
            await self._idle.wait()

    async def sync(self) -> None:
        """Wait until everything written is on disk."""
        if self.stored is not None:
            await to_thread.run_sync(self.stored.sync)

    def _check_sending(self, update: Json) -> None:
        if not is_update(update):
            raise AgentError("an update is a mapping with a sessionUpdate")
        if not self.is_open:
            raise AgentError(f"{self.id} is closed; nothing can be sent")
        if get_ident() != self._thread:
            hint = "use anyio.from_thread.run_sync(turn.send, update)"
            raise AgentError(f"an update was sent from another thread; {hint}")
        if self.link.connection.unsent > UNSENT_LIMIT:
            raise AgentError(f"the client of {self.id} does not read; it has missed too much")


def _encode(update: Json) -> bytes:
    try:
        return encode_json(dict(update))
    except (TypeError, JsonInvalid) as error:
        raise AgentError(f"an update cannot be written as JSON: {error}") from error


def is_update(update: Any) -> bool:
    return isinstance(update, Mapping) and isinstance(update.get("sessionUpdate"), str)


def follow_call(update: Json, unfinished: dict[str, None]) -> None:
    """Maintain `unfinished`, the tool calls without an end, by one more update."""
    match update:
        case {"toolCallId": str(call_id), "status": "completed" | "failed"}:
            unfinished.pop(call_id, None)
        case {"sessionUpdate": "tool_call", "toolCallId": str(call_id)}:
            unfinished[call_id] = None
        case _:
            pass


def call_failed(call_id: str, **more: Any) -> Json:
    """Return the update that fails a tool call; content shown so far stays."""
    ended = {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": "failed"}
    return {**ended, **more}


def recorded_update(line: bytes) -> Json | None:
    """Decode a recorded line; None if it is damaged."""
    try:
        update = decode_json(line)
    except JsonInvalid:
        update = None
    if not is_update(update):
        return None
    known: Json = update
    return known


class GrowingOutput:
    """The latest text of each running tool call. Pure."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def shortened(self, update: Json) -> Json | None:
        """Return what to record instead of `update`; None to record it unchanged."""
        call_id, text = _shown(update)
        before = self._texts.get(call_id)
        if before is None or text is None:
            return None
        kept = _common(before, text)
        if kept < _MIN_SHARED_CHARACTERS:
            return None
        return {**_with_text(update, text[kept:]), _GROWN: [kept, _checksum(before)]}

    def follow(self, update: Json) -> None:
        """Remember the text of a complete update, after it was recorded or read."""
        call_id, text = _shown(update)
        if update.get("status") in ("completed", "failed"):
            self._texts.pop(call_id, None)
        elif text is not None and len(text) >= _MIN_SHARED_CHARACTERS:
            self._texts[call_id] = text

    def restored(self, recorded: Json) -> Json | None:
        """Return the original of a recorded update; None if the text it continues is missing."""
        if _GROWN not in recorded:
            return recorded
        call_id, text = _shown(recorded)
        before = self._texts.get(call_id)
        match recorded[_GROWN]:
            case [int(kept), int(checksum)] if text is not None and before is not None:
                if checksum == _checksum(before):
                    whole = {key: value for key, value in recorded.items() if key != _GROWN}
                    return _with_text(whole, before[:kept] + text)
        return None


def _shown(update: Json) -> tuple[str, str | None]:
    """Return an update's call id, and its text if its content is exactly one text."""
    match update:
        case {
            "sessionUpdate": "tool_call_update",
            "toolCallId": str(call_id),
            "content": [{"type": "content", "content": {"type": "text", "text": str(text)}}],
        }:
            return call_id, text
        case {"toolCallId": str(call_id)}:
            return call_id, None
        case _:
            return "", None


def _with_text(update: Json, text: str) -> dict[str, Any]:
    shown = update["content"][0]
    return {**update, "content": [{**shown, "content": {**shown["content"], "text": text}}]}


def _common(before: str, text: str) -> int:
    """Return the length of the common prefix; bisection beats comparing character by character."""
    low, high = 0, min(len(before), len(text))
    while low < high:
        middle = (low + high + 1) // 2
        if before.startswith(text[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))
