"""Updates of ACP 2 as events: `UpdateFold` turns each update of one session into 0..n events. Pure.

`normalize_session_update` needs no memory, because in ACP 1 an update and an event are the same
thing. ACP 2 has upserts: an update changes a message, a call or a terminal that may exist. So the
fold remembers, per session and within bounds, what exists.

- An event type of ACP 1 is used wherever it says the same; the types that only agents with ACP 2
  have (`message-update` and others) where it would not.
- What the types cannot say is in `extensions.acp2`; `quarterdeck.views.acp_v2` reads it and makes
  the updates again. Both together keep the state of ACP 2, not its lines: an update that changes
  nothing has no event.
- `_meta` is verbatim in `extensions`, as a patch of keys, null included.
- What is not modelled is an `unrecognized-update`. An update that breaks its own rules is one, too,
  with the reason in `extensions.quarterdeck.invalid`: it is stored, but not acted on.

The end of a turn is not decided here: the host makes it of a `foreground` event and its own turns.

| update                               | events                                                    |
| ------------------------------------ | ----------------------------------------------------------|
| `*_chunk` of a message               | the chunk                                                 |
| whole message, id is new             | a chunk for each block                                    |
| whole message, id is known           | `message-update`, if the content differs                  |
| `tool_call_update`                   | `tool-call` if the id is new, else `tool-call-update`     |
| `tool_call_content_chunk`            | `tool-call-content-chunk`                                 |
| `terminal_output_chunk`              | `terminal-output`                                         |
| `terminal_update`                    | `terminal-output` for what is appended and for the end,   |
|                                      | `terminal-update` for the rest                            |
| `state_update`                       | `foreground`, if it differs from the last one             |
| `plan_update`, `plan_removed`        | `plan`; with several plans, or one that is not a list,    |
|                                      | `plan-update`, `plan-removed` and a `plan` for the newest |
| options, commands, title, usage      | as in ACP 1, `configId` as `id`, `groupId` as `group`     |
| everything else                      | `unrecognized-update`                                     |
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from quarterdeck.protocol.acp2_fields import (
    ACP2,
    InvalidUpdate,
    JsonObject,
    bound,
    take_id,
    take_list,
)
from quarterdeck.protocol.acp2_messages import MessageFold
from quarterdeck.protocol.acp2_options import options_from_acp2
from quarterdeck.protocol.acp2_terminals import TerminalFold
from quarterdeck.protocol.normalization import Normalized
from quarterdeck.protocol.payloads import MessageKind

CALLS: Final = 10_000
"""Calls known by id, those that changed last."""
_WORKING: Final = ("running", "requires_action")
_CALL_EMPTY: Final[Mapping[str, Any]] = {
    "title": "",
    "kind": "other",
    "status": "pending",
    "content": [],
    "locations": [],
    "rawInput": None,
    "rawOutput": None,
}
"""The fields of a call, and what null sets them to."""
_CHUNKS: Final[Mapping[str, MessageKind]] = {
    "user_message_chunk": "user",
    "agent_message_chunk": "agent",
    "agent_thought_chunk": "thought",
}
_Reader: TypeAlias = Callable[[JsonObject], list[Normalized]]


class UpdateFold:
    """The updates of one session, in the order in which they arrive."""

    def __init__(
        self, *, knows_all: bool = True, has_call: Callable[[str], bool] | None = None
    ) -> None:
        """Begin a session, or continue one whose log has a past (`knows_all` is False then).

        `has_call` returns whether the log has a tool call of an id.
        """
        self._has_call = has_call or (lambda _call_id: False)
        self._calls: OrderedDict[str, str | None] = OrderedDict()
        """The names of tools by the ids of their calls."""
        self._state: JsonObject | None = None
        self._messages = messages = MessageFold(knows_all=knows_all)
        terminals = TerminalFold(knows_all=knows_all)
        plans = PlanFold()
        self._readers: Mapping[object, _Reader] = {
            "user_message_chunk": partial(messages.chunk, "user"),
            "agent_message_chunk": partial(messages.chunk, "agent"),
            "agent_thought_chunk": partial(messages.chunk, "thought"),
            "user_message": partial(messages.message, "user"),
            "agent_message": partial(messages.message, "agent"),
            "agent_thought": partial(messages.message, "thought"),
            "tool_call_update": self._tool_call,
            "tool_call_content_chunk": self._tool_call_content,
            "terminal_output_chunk": terminals.output,
            "terminal_update": terminals.update,
            "state_update": self._state_update,
            "plan_update": plans.update,
            "plan_removed": plans.removed,
            "config_option_update": _options,
            "available_commands_update": _commands,
            "session_info_update": _info,
            "usage_update": _usage,
        }

    @property
    def is_working(self) -> bool:
        """Whether the agent reported work in the foreground and not its end."""
        return self._state is not None and self._state.get("state") in _WORKING

    def fold(self, update: Any) -> list[Normalized]:
        """Return the events of an update; what is in them is shared with it, not copied."""
        if not isinstance(update, dict):
            return [Normalized("unrecognized-update", {"update": update})]
        name = update.get("sessionUpdate")
        kind = _CHUNKS.get(name) if len(update) == 3 and isinstance(name, str) else None
        if kind is not None:  # by far the most frequent
            events = self._messages.plain_chunk(kind, update)
            if events is not None:
                return events
        reader = self._readers.get(name) if isinstance(name, str) else None
        if reader is None:
            return [Normalized("unrecognized-update", update)]
        fields = dict(update)
        del fields["sessionUpdate"]
        try:
            return reader(fields)
        except InvalidUpdate as error:
            note = {"quarterdeck": {"invalid": str(error)}}
            return [Normalized("unrecognized-update", update, note)]

    def _tool_call(self, fields: JsonObject) -> list[Normalized]:
        call_id = take_id(fields, "toolCallId")
        name = self._calls.get(call_id)
        is_new = call_id not in self._calls and not self._has_call(call_id)
        payload, cleared = _call_payload(call_id, fields, is_new=is_new)
        own: JsonObject = {"cleared": cleared} if cleared else {}
        if "capabilities" in fields:
            own["capabilities"] = fields.pop("capabilities")
        if own:
            fields[ACP2] = own
        if fields and name is not None:
            fields.setdefault("name", name)  # states replace the extensions of a call
        self._calls[call_id] = fields.get("name", name)
        self._calls.move_to_end(call_id)
        bound(self._calls, CALLS)
        if not is_new and len(payload) == 1 and not fields:
            return []
        return [Normalized("tool-call" if is_new else "tool-call-update", payload, fields or None)]

    def _tool_call_content(self, fields: JsonObject) -> list[Normalized]:
        call_id, content = take_id(fields, "toolCallId"), fields.pop("content", None)
        if not isinstance(content, dict):
            raise InvalidUpdate("a chunk of a tool call needs `content`, one element")
        is_known = call_id in self._calls or self._has_call(call_id)
        before = [] if is_known else self._tool_call({"toolCallId": call_id})
        payload = {"toolCallId": call_id, "content": content}
        return [*before, Normalized("tool-call-content-chunk", payload, fields or None)]

    def _state_update(self, fields: JsonObject) -> list[Normalized]:
        if not isinstance(fields.get("state"), str):
            raise InvalidUpdate("a state update needs `state`, a text")
        if fields == self._state:
            return []
        reported = dict(fields)
        background = take_list(fields, "background")
        self._state = reported
        payload: JsonObject = {"state": fields.pop("state")}
        if background:
            payload["background"] = background
        meta = {"_meta": fields.pop("_meta")} if "_meta" in fields else {}
        extensions = {**meta, **({ACP2: fields} if fields else {})}
        return [Normalized("foreground", payload, extensions or None)]


def _call_payload(
    call_id: str, fields: JsonObject, *, is_new: bool
) -> tuple[JsonObject, list[str]]:
    """Take the fields of a call; return them and the names of those that null has removed."""
    payload: JsonObject = {"toolCallId": call_id}
    is_untitled = fields.get("title") is None and (is_new or "title" in fields)
    if is_new:
        payload["title"] = ""
    for key, empty in _CALL_EMPTY.items():
        if key in fields:
            value = fields.pop(key)
            _check_call_field(key, value)
            payload[key] = empty if value is None else value
    return payload, ["title"] if is_untitled else []


def _check_call_field(key: str, value: Any) -> None:
    if value is None or key in ("rawInput", "rawOutput"):
        return
    expected = list if key in ("content", "locations") else str
    if not isinstance(value, expected):
        raise InvalidUpdate(f"the `{key}` of a tool call is not a {expected.__name__}")


def _options(fields: JsonObject) -> list[Normalized]:
    given = fields.pop("configOptions", None)
    if not isinstance(given, list):
        raise InvalidUpdate("an update of options needs `configOptions`, a list")
    options, own = options_from_acp2(given)
    if own is not None:
        fields[ACP2] = {"configOptions": own}
    return [Normalized("config-options-update", {"configOptions": options}, fields or None)]


def _commands(fields: JsonObject) -> list[Normalized]:
    commands = fields.pop("availableCommands", None)
    if not isinstance(commands, list):
        raise InvalidUpdate("an update of commands needs `availableCommands`, a list")
    payload = {"availableCommands": commands}
    return [Normalized("available-commands-update", payload, fields or None)]


def _info(fields: JsonObject) -> list[Normalized]:
    keys = ("title", "updatedAt")
    payload: JsonObject = {key: fields.pop(key) for key in keys if key in fields}
    return [Normalized("session-info-update", payload, fields or None)]


def _usage(fields: JsonObject) -> list[Normalized]:
    keys = ("used", "size", "cost")
    payload: JsonObject = {key: fields.pop(key) for key in keys if fields.get(key) is not None}
    fields.pop("cost", None)
    if not isinstance(payload.get("used"), int) or not isinstance(payload.get("size"), int):
        raise InvalidUpdate("an update of usage needs `used` and `size`, two numbers")
    return [Normalized("usage-update", payload, fields or None)]


class PlanFold:
    """The plans of one session.

    A session has one plan in ACP 1 and any number in ACP 2. The only plan of a session is a `plan`,
    as in ACP 1. From the second on, and for plans that are no list of entries, each is a
    `plan-update` with its id, and a `plan` shows the list that changed last to everything that
    knows only one.
    """

    def __init__(self) -> None:
        self._plan: tuple[str, list[Any]] | None = None
        """The only plan so far: its id and its entries."""
        self._has_plans = False
        self._shown_plan: str | None = None

    def update(self, fields: JsonObject) -> list[Normalized]:
        """Return the events of a plan that was set."""
        plan = fields.pop("plan", None)
        if not isinstance(plan, dict):
            raise InvalidUpdate("an update of a plan needs `plan`")
        rest = dict(plan)
        plan_id, kind = take_id(rest, "planId"), rest.pop("type", None)
        if not isinstance(kind, str):
            raise InvalidUpdate("a plan needs `type`, a text")
        entries = rest.get("entries") if kind == "items" else None
        if kind == "items" and not isinstance(entries, list):
            raise InvalidUpdate("a plan of items needs `entries`, a list")
        is_only = entries is not None and not self._has_plans
        if is_only and (self._plan is None or self._plan[0] == plan_id):
            self._plan = (plan_id, rest.pop("entries"))
            self._shown_plan = plan_id
            own = {"planId": plan_id, **({"plan": rest} if rest else {})}
            return [Normalized("plan", {"entries": self._plan[1]}, {**fields, ACP2: own})]
        events = self._list_first_plan(plan_id)
        payload = {"planId": plan_id, "type": kind, **rest}
        events.append(Normalized("plan-update", payload, fields or None))
        if entries is not None:
            self._shown_plan = plan_id
            events.append(Normalized("plan", {"entries": entries}, {ACP2: {"derived": True}}))
        return events

    def _list_first_plan(self, but: str) -> list[Normalized]:
        """Return the update that puts the only plan so far among the plans."""
        first, self._plan, self._has_plans = self._plan, None, True
        if first is None or first[0] == but:
            return []
        payload = {"planId": first[0], "type": "items", "entries": first[1]}
        return [Normalized("plan-update", payload, {ACP2: {"derived": True}})]

    def removed(self, fields: JsonObject) -> list[Normalized]:
        """Return the events of a plan that was removed."""
        plan_id = take_id(fields, "planId")
        events = [Normalized("plan-removed", {"planId": plan_id}, fields or None)]
        if self._plan is not None and self._plan[0] == plan_id:
            self._plan = None
        if self._shown_plan == plan_id:
            self._shown_plan = None
            events.append(Normalized("plan", {"entries": []}, {ACP2: {"derived": True}}))
        return events
