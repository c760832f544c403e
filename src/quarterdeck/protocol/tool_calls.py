"""The one fold of what is known of a tool call; pure.

An agent announces a call, sends updates of it, and may ask for permission to make it. Each of
these messages repeats as much or as little as the agent likes. `FIELD_RULES` decides, field by
field, what a message changes, in two columns:

- `DOCUMENTED` is what `reduce` does: the documented behaviour of states, taken literally. An
  announcement replaces everything, null is "no change" except for raw input and output.
- `KNOWN` is what everything else uses: agents reset fields that they do not repeat, so an empty
  field does not erase one that has a value.

| field              | DOCUMENTED                   | KNOWN                                  |
| ------------------ | ---------------------------- | -------------------------------------- |
| title, kind        | all but null replaces        | only a non-empty text replaces         |
| status             | all but null replaces        | only a non-empty text replaces; a      |
|                    |                              | final one gives way to a final one     |
| content, locations | a list replaces; null keeps; | a list replaces; all else keeps        |
|                    | all else: its only element   |                                        |
| rawInput           | every value replaces         | null, `{}`, `[]` and `""` keep; all    |
|                    |                              | else replaces, 0 and false too         |
| rawOutput          | every value replaces         | null keeps; all else replaces          |

In a second announcement, and in a permission request, null, `[]` and `{}` mean "not repeated": they
keep what is known. A permission request never changes the status.

**A call ends what can be inherited from it.** Agents reuse ids. An announcement begins a new call,
which inherits nothing, if the last call of that id has ended or belongs to an earlier turn; a
permission request likewise inherits from an open call of its own turn only. Otherwise the input of
a harmless call could get the next one allowed. `generation` counts the calls of one id.

In the log of a host both columns agree, because the host adds an update wherever they do not. They
differ in logs that other programs wrote, and between a message and the update added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from quarterdeck.jsontext import encode_json
from quarterdeck.protocol.payloads import AcpEventExtensions
from quarterdeck.protocol.persistent import Blocks
from quarterdeck.protocol.state import ToolCallState

FINAL_STATUSES: Final = frozenset({"completed", "failed", "cancelled"})
_NOT_REPEATED: Final[tuple[Any, ...]] = (None, [], {})
_TEXTS: Final = frozenset({"title", "kind", "status"})
_LISTS: Final = frozenset({"content", "locations"})
_SEQUENCES: Final = (list, tuple)  # named: `list | tuple` makes a new object at each call
_CAN_BE_EMPTY: Final = (dict, list, str)

Rule: TypeAlias = Callable[[Any, Any], Any]
"""Returns the next value of a field, from the last one and the one in a message."""


class ToolCallFacts(Struct, frozen=True, gc=False):
    """What is known of one tool call; values are what the agent sent, not copies."""

    id: str
    turn: int
    """The turn in which the call began."""
    generation: int = 1
    """1 for the first call of this id, 2 for the next."""
    title: str = ""
    """Empty if there is none."""
    first_title: str = ""
    """The title in the first message; some agents put the name of the tool there."""
    kind: str | None = None
    status: str | None = None
    """What the agent sent, known or not."""
    is_final: bool = False
    """Whether the agent has ended the call; False for a call that only we have ended."""
    content: Sequence[Any] = ()
    """As sent: elements need not be objects. A tuple; once an element was appended, `Blocks`."""
    locations: tuple[Any, ...] = ()
    raw_input: Any = None
    raw_output: Any = None


# ---- field rules -----------------------------------------------------------------------------


def _unless_null(old: Any, new: Any) -> Any:
    return old if new is None else new


def _always(_old: Any, new: Any) -> Any:
    return new


def _as_elements(old: Any, new: Any) -> Any:
    if isinstance(new, _SEQUENCES):
        return tuple(new)
    return old if new is None else (new,)


def _if_text(old: Any, new: Any) -> Any:
    return new if new and isinstance(new, str) else old


def _if_list(old: Any, new: Any) -> Any:
    return tuple(new) if isinstance(new, _SEQUENCES) else old


def _if_input(old: Any, new: Any) -> Any:
    return new if new or not (new is None or isinstance(new, _CAN_BE_EMPTY)) else old


class FieldRule(NamedTuple):
    """How a message changes one field of a call."""

    field: str
    attribute: str
    documented: Rule
    known: Rule


FIELD_RULES: Final = (
    FieldRule("title", "title", _unless_null, _if_text),
    FieldRule("kind", "kind", _unless_null, _if_text),
    FieldRule("status", "status", _unless_null, _if_text),
    FieldRule("content", "content", _as_elements, _if_list),
    FieldRule("locations", "locations", _as_elements, _if_list),
    FieldRule("rawInput", "raw_input", _always, _if_input),
    FieldRule("rawOutput", "raw_output", _always, _unless_null),
)
Column: TypeAlias = Mapping[str, tuple[str, Rule]]
DOCUMENTED: Final[Column] = {each.field: (each.attribute, each.documented) for each in FIELD_RULES}
KNOWN: Final[Column] = {each.field: (each.attribute, each.known) for each in FIELD_RULES}


# ---- KNOWN -----------------------------------------------------------------------------------
# Written out field by field like DOCUMENTED below: going through the table took the views of tool
# calls a third longer. A test compares both. Arguments are positional: keywords take twice as long.


def announced(facts: ToolCallFacts | None, payload: Mapping[str, Any], turn: int) -> ToolCallFacts:
    """Return the facts after an announcement; `facts` is the last call of this id, if any.

    An update or request of a call that was never announced is its announcement, too.
    """
    if facts is None or not is_open(facts, turn):
        return _begun(facts, payload, turn)
    return updated(facts, _repeated(payload))


def updated(facts: ToolCallFacts, payload: Mapping[str, Any]) -> ToolCallFacts:
    """Return the facts after an update."""
    title, kind, status = facts.title, facts.kind, facts.status
    content, locations, is_final = facts.content, facts.locations, facts.is_final
    raw_input, raw_output = facts.raw_input, facts.raw_output
    for name, value in payload.items():
        if name == "status":
            if isinstance(value, str) and value and not (is_final and value not in FINAL_STATUSES):
                status, is_final = value, value in FINAL_STATUSES
        elif name == "content":
            content = tuple(value) if isinstance(value, _SEQUENCES) else content
        elif name == "rawOutput":
            raw_output = raw_output if value is None else value
        elif name == "rawInput":
            raw_input = value or _if_input(raw_input, value)
        elif name == "title":
            title = value if value and isinstance(value, str) else title
        elif name == "kind":
            kind = value if value and isinstance(value, str) else kind
        elif name == "locations":
            locations = tuple(value) if isinstance(value, _SEQUENCES) else locations
    return ToolCallFacts(
        facts.id,
        facts.turn,
        facts.generation,
        title,
        facts.first_title,
        kind,
        status,
        is_final,
        content,
        locations,
        raw_input,
        raw_output,
    )


def extended(facts: ToolCallFacts, payload: Mapping[str, Any]) -> ToolCallFacts:
    """Return the facts after one more element of the content."""
    content, element = facts.content, payload.get("content")
    blocks = content if isinstance(content, Blocks) else Blocks.of(content)
    return replace(facts, content=blocks.appended(element))


def requested(
    facts: ToolCallFacts | None, tool_call: Mapping[str, Any], turn: int
) -> ToolCallFacts:
    """Return the facts after a permission request; a new call, unless it is open in this turn."""
    repeated = _repeated(tool_call)
    repeated.pop("status", None)
    if facts is None or not is_open(facts, turn):
        return _begun(facts, repeated, turn)
    return updated(facts, repeated)


def ended_by_us(facts: ToolCallFacts) -> ToolCallFacts:
    """Return the facts of a call that its agent left open; the agent may still change the end."""
    return replace(facts, status="failed", is_final=False)


def is_final_status(status: object) -> bool:
    """Return whether a status ends a call; an agent may send any JSON as one."""
    return isinstance(status, str) and status in FINAL_STATUSES


def is_closed_by_host(extensions: AcpEventExtensions | None) -> bool:
    """Return whether an update is the host's, for a call that the agent left open in its turn."""
    ours = None if extensions is None else extensions.get("quarterdeck")
    return isinstance(ours, Mapping) and "closed" in ours


def is_regular(payload: Mapping[str, Any]) -> bool:
    """Return whether both columns read an update alike: each field has a value of its type.

    The status is the exception: KNOWN keeps a final one.
    """
    for name, value in payload.items():
        if name in _TEXTS:
            if not value or not isinstance(value, str):
                return False
        elif name in _LISTS:
            if not isinstance(value, list):
                return False
        elif name == "rawInput":
            if not value:
                return False
        elif name == "rawOutput" and value is None:
            return False
    return True


def is_open(facts: ToolCallFacts, turn: int) -> bool:
    """Return whether messages of `turn` may inherit from a call."""
    return facts.turn == turn and not facts.is_final


def _begun(before: ToolCallFacts | None, payload: Mapping[str, Any], turn: int) -> ToolCallFacts:
    get = payload.get
    title, kind, status = get("title"), get("kind"), get("status")
    content, locations = get("content"), get("locations")
    title = title if title and isinstance(title, str) else ""
    status = status if status and isinstance(status, str) else None
    return ToolCallFacts(
        tool_call_key(payload),
        turn,
        1 if before is None else before.generation + 1,
        title,
        title,
        kind if kind and isinstance(kind, str) else None,
        status,
        status in FINAL_STATUSES,
        tuple(content) if isinstance(content, _SEQUENCES) else (),
        tuple(locations) if isinstance(locations, _SEQUENCES) else (),
        _if_input(None, get("rawInput")),
        get("rawOutput"),
    )


def _repeated(payload: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if value not in _NOT_REPEATED}


# ---- DOCUMENTED -----------------------------------------------------------------------------
# Written out field by field, because `reduce` runs this for every event: going through the table
# takes a fifth longer. A test compares both.


def documented_announcement(
    payload: Any, extensions: AcpEventExtensions | None = None, seq: int = 0
) -> ToolCallState:
    """Return the state of a call after its announcement; any earlier state is replaced."""
    content, locations = payload.get("content"), payload.get("locations")
    return ToolCallState(
        tool_call_id=payload.get("toolCallId"),
        title=payload.get("title"),
        kind=payload.get("kind"),
        status=payload.get("status"),
        content=() if content is None else _as_elements((), content),
        locations=() if locations is None else _as_elements((), locations),
        raw_input=payload.get("rawInput", UNSET),
        raw_output=payload.get("rawOutput", UNSET),
        extensions=UNSET if extensions is None else extensions,
        seq=seq,
    )


def documented_update(
    call: ToolCallState, payload: Any, extensions: AcpEventExtensions | None = None
) -> ToolCallState:
    """Return the state of a call after an update."""
    title, kind, status = payload.get("title"), payload.get("kind"), payload.get("status")
    content, locations = payload.get("content"), payload.get("locations")
    return ToolCallState(
        tool_call_id=call.tool_call_id,
        title=call.title if title is None else title,
        kind=call.kind if kind is None else kind,
        status=call.status if status is None else status,
        content=call.content if content is None else _as_elements((), content),
        locations=call.locations if locations is None else _as_elements((), locations),
        raw_input=payload.get("rawInput", call.raw_input),
        raw_output=payload.get("rawOutput", call.raw_output),
        extensions=call.extensions if extensions is None else extensions,
        seq=call.seq,
    )


def documented_chunk(call: ToolCallState, payload: Any) -> ToolCallState:
    """Return the state of a call after one more element of its content."""
    content, element = call.content, payload.get("content")
    blocks = content if isinstance(content, Blocks) else Blocks.of(content)
    return replace(call, content=blocks.appended(element))


def corrections(
    documented: ToolCallState, known: ToolCallFacts, named: Container[str] = KNOWN
) -> dict[str, Any]:
    """Return the fields of the update after which DOCUMENTED shows what is KNOWN.

    Only the fields in `named` are compared; an update changes no others. A field of which nothing
    is known is not corrected: no update could remove its value.
    """
    fields: dict[str, Any] = {}
    for rule in FIELD_RULES:
        if rule.field not in named:
            continue
        value, shown = getattr(known, rule.attribute), getattr(documented, rule.attribute)
        if value is shown or value is None or value == "" or _is_same(value, shown):
            continue
        fields[rule.field] = list(value) if isinstance(value, tuple | Blocks) else value
    return fields


def _is_same(one: Any, other: Any) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except RecursionError:  # an agent may nest its input as deeply as it likes
        return False


def is_turn_boundary(event_type: str, payload: Mapping[str, Any]) -> bool:
    """Return whether an event of a log begins or ends a turn; what is between turns is one, too."""
    if event_type == "prompt-finished":
        return True
    return event_type == "session-status-change" and payload.get("status") == "prompting"


def tool_call_key(payload: Mapping[str, Any]) -> str:
    """Return the id of a call as a key: a text as it is, any other JSON as its text."""
    call_id = payload.get("toolCallId", "")
    return call_id if isinstance(call_id, str) else encode_json(call_id).decode()
