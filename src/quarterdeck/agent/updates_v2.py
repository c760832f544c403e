"""Updates of ACP 1, which agents' code sends and sessions record, in the words of ACP 2. Pure.

ACP 2 requires an id of every message. `UpdatesV2.named` gives one to the messages of a turn before
they are recorded, so a replay has the same. Messages that a client of ACP 1 recorded have none:
`HistoryV2` counts them, which gives the same ids in every replay, and sends each message whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from quarterdeck.agent.checks import Json
from quarterdeck.protocol.acp2_options import options_to_acp2
from quarterdeck.protocol.acp2_words import ONLY_PLAN, command_to_acp2, content_to_acp2

Update = dict[str, Any]

CHUNKS: Final = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
_CALLS: Final = ("tool_call", "tool_call_update")
_CALL_FIELDS: Final = ("content", "locations", "rawInput", "rawOutput")
_NOT_HISTORY: Final = ("config_option_update", "notice")  # the answer has the options
_PLAIN_TEXT: Final = {"type", "text"}


class UpdatesV2:
    """Names the messages of a session while they are sent."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._open: tuple[str, str] | None = None
        """The kind and our id of the newest message, while chunks without an id continue it."""

    def begin_message(self) -> str:
        """Return the id of a new message; chunks without an id do not continue the one before."""
        self._open = None
        return self._new_id()

    def named(self, update: Json) -> Json:
        """Return an update with the id that its message needs; chunks in a row are one message."""
        name = update["sessionUpdate"]
        if name == "tool_call":
            self._open = None
        if name not in CHUNKS:
            return update
        if isinstance(update.get("messageId"), str):
            self._open = None
            return update
        if self._open is None or self._open[0] != name:
            self._open = (name, self._new_id())
        return {**update, "messageId": self._open[1]}


class HistoryV2:
    """Turns the record of a session into a replay: messages whole, calls from nothing."""

    def __init__(self) -> None:
        self._count = 0
        self._names = UpdatesV2(self._next_id)
        self._key: tuple[str, str] | None = None
        """The kind and id of the message that is being put together, and its content."""
        self._content: list[Any] = []
        self._messages: set[tuple[str, str]] = set()
        self._calls: set[str] = set()

    def updates(self, recorded: Json) -> Iterator[Update]:
        """Yield the updates that are complete with the next one of the record."""
        update = self._names.named(recorded)
        if update["sessionUpdate"] in CHUNKS:
            yield from self._chunk(update)
            return
        yield from self.end()
        if update["sessionUpdate"] not in _NOT_HISTORY:
            for each in updates_to_acp2(update):
                yield self._from_nothing(each)

    def end(self) -> Iterator[Update]:
        """Yield the message that nothing continues."""
        if self._key is not None:
            name, message_id = self._key
            yield {"sessionUpdate": name, "messageId": message_id, "content": self._content}
        self._key, self._content = None, []

    def _next_id(self) -> str:
        self._count += 1
        return f"message-{self._count}"

    def _chunk(self, update: Json) -> Iterator[Update]:
        name, message_id = update["sessionUpdate"].removesuffix("_chunk"), update["messageId"]
        if self._key != (name, message_id):
            yield from self.end()
            if (name, message_id) in self._messages:  # something came in between
                yield dict(update)
                return
            self._key = (name, message_id)
            self._messages.add(self._key)
        _append(self._content, update.get("content"))

    def _from_nothing(self, update: Update) -> Update:
        """Return the first update of a call so that it replaces what a client has of it."""
        call_id = update.get("toolCallId")
        if update["sessionUpdate"] != "tool_call_update" or str(call_id) in self._calls:
            return update
        self._calls.add(str(call_id))
        return {**update, **{field: None for field in _CALL_FIELDS if field not in update}}


def _append(content: list[Any], block: Any) -> None:
    """Add a block to a message; text that follows text continues it."""
    last: Any = content[-1] if content else None
    if _is_plain_text(last) and _is_plain_text(block):
        content[-1] = {"type": "text", "text": last["text"] + block["text"]}
    else:
        content.append(block)


def _is_plain_text(block: Any) -> bool:
    return isinstance(block, dict) and block.keys() == _PLAIN_TEXT and block["type"] == "text"


def updates_to_acp2(update: Json) -> list[Update]:
    """Return an update in the words of ACP 2; one that ACP 2 does not have is left out."""
    name = update["sessionUpdate"]
    if name in _CALLS:
        return [_call(update)]
    match name:
        case "plan":
            plan = {key: value for key, value in update.items() if key != "sessionUpdate"}
            items = {"type": "items", "planId": ONLY_PLAN, **plan}
            return [{"sessionUpdate": "plan_update", "plan": items}]
        case "current_mode_update":
            return []  # the mode is an option, which is sent beside it
        case "config_option_update":
            return [{**update, "configOptions": options_to_acp2(update.get("configOptions") or ())}]
        case "available_commands_update":
            commands = [command_to_acp2(each) for each in update.get("availableCommands") or ()]
            return [{**update, "availableCommands": commands}]
        case _:
            return [dict(update)]


def _call(update: Json) -> Update:
    """Return an update of a call; null means in ACP 1 that nothing changes, in ACP 2 it clears."""
    given = {key: value for key, value in update.items() if value is not None}
    if isinstance(given.get("content"), list | tuple):
        given["content"] = [content_to_acp2(each) for each in given["content"]]
    return {**given, "sessionUpdate": "tool_call_update"}
