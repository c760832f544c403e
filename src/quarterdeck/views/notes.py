"""What an agent reports that is neither a message nor a tool call, as notes: nothing is invisible.

The log holds such updates verbatim (`unrecognized-update`): notices, compactions, plans of drafts,
sub-agents, messages between sessions, the elicitations that the host records, and updates that we
do not know. `note_key` says which updates are about one thing; `Note` collects those; `note_text`
puts them into words. A note keeps the whole update, so a reader can open what the words leave out.

The page has the same rules in `web/src/protocol/notes.ts`; `tests/views/notes.json` checks both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import ELICITATION_UPDATED, Event, UnknownEvent, UnrecognizedUpdateEvent

SEVERITIES: Final = ("info", "warning", "error")
_CHUNKS: Final = {
    "compaction_summary_chunk": ("compaction_update", "summary"),
    "session_message_chunk": ("session_message", "content"),
}
"""Updates that append a block: the update they continue, and its list of blocks."""
_LISTS: Final = dict(_CHUNKS.values())
_SUB_AGENT_IDS: Final = ("subAgentId", "subagentId", "childSessionId", "sessionId")
_ENDS: Final = {
    "end_turn": "done",
    "cancelled": "cancelled",
    "error": "failed",
    "refusal": "refused",
    "max_tokens": "stopped: token limit reached",
    "max_turn_requests": "stopped: step limit reached",
}


class NoteText(NamedTuple):
    """A note in words."""

    severity: str
    """`info`, `warning` or `error`."""
    title: str
    """One line."""
    text: str
    """All else that is worth reading; may be empty."""


def noted_update(event: Event) -> dict[str, Any] | None:
    """Return the update that an event is a note of; None for an event that has its own view."""
    payload: Any = event.payload
    if isinstance(event, UnrecognizedUpdateEvent):
        return dict(payload) if isinstance(payload, Mapping) else {"update": payload}
    if isinstance(event, UnknownEvent):
        facts = payload if isinstance(payload, Mapping) else {"payload": payload}
        return {"sessionUpdate": event.type, **facts}
    return None


def note_key(update: Mapping[str, Any]) -> str | None:
    """Return what an update is about, if later ones may be about the same; else None."""
    name = update.get("sessionUpdate")
    match name:
        case "compaction_update" | "compaction_summary_chunk":
            return _key("compaction", update.get("compactionId"))
        case "plan_update" | "plan_removed":
            return _key("plan", _plan(update).get("planId"))
        case "session_message" | "session_message_chunk":
            return _key("message", update.get("messageId"))
        case str() if name == ELICITATION_UPDATED:
            return _key("elicitation", update.get("requestId"))
        case str() if name.startswith("subagent_"):
            return _key("sub-agent", sub_agent_id(update))
        case _:
            return None


def is_notice(update: Mapping[str, Any]) -> bool:
    """Return whether an update is a notice: it is for the moment, and not replayed to editors."""
    return update.get("sessionUpdate") == "notice"


def sub_agent_id(update: Mapping[str, Any]) -> str | None:
    """Return the session of the sub-agent that an update is about."""
    given = (update.get(name) for name in _SUB_AGENT_IDS)
    return next((each for each in given if isinstance(each, str) and each), None)


def _key(kind: str, value: object) -> str | None:
    return None if value is None else f"{kind} {_text(value)}"


class Note:
    """Updates about one thing: their facts, the later over the earlier, and appended blocks."""

    __slots__ = ("_blocks", "_facts", "count", "is_unresponsive", "seq")

    def __init__(self, event: Event) -> None:
        """The first event; its update is still to be added."""
        self.seq = event.seq
        ours = (event.extensions or {}).get("quarterdeck")
        self.is_unresponsive = isinstance(ours, Mapping) and "unresponsive" in ours
        self.count = 0
        self._facts: dict[str, Any] = {}
        self._blocks: list[Any] = []

    def add(self, update: Mapping[str, Any]) -> None:
        """Add the next update."""
        self.count += 1
        name = update.get("sessionUpdate")
        continued = _CHUNKS.get(name) if isinstance(name, str) else None
        if continued is None:
            self._facts = {**self._facts, **update}
            if isinstance(name, str) and _LISTS.get(name) in update:
                self._blocks = []
            return
        rest = {key: value for key, value in update.items() if key != "content"}
        self._facts = {**rest, **self._facts, "sessionUpdate": continued[0]}
        self._blocks.append(update.get("content"))

    def is_repeated_by(self, update: Mapping[str, Any]) -> bool:
        """Return whether an update right after it only counts: an unknown one of the same name."""
        name = update.get("sessionUpdate")
        return name == self.name and not is_notice(update)

    @property
    def name(self) -> object:
        return self._facts.get("sessionUpdate")

    @property
    def update(self) -> dict[str, Any]:
        """Everything that the updates say, as one."""
        if not self._blocks:
            return self._facts
        field = _LISTS[str(self.name)]
        given = self._facts.get(field)
        blocks = [*(given if isinstance(given, list) else ()), *self._blocks]
        return {**self._facts, field: _joined(blocks)}


def _joined(blocks: Iterable[Any]) -> list[Any]:
    """Return blocks with adjacent texts as one."""
    joined: list[Any] = []
    texts: list[str] = []
    for block in (*blocks, None):
        if isinstance(block, dict) and block.keys() == {"type", "text"} and _is_text(block):
            texts.append(block["text"])
            continue
        if texts:
            joined.append({"type": "text", "text": "".join(texts)})
            texts = []
        joined.append(block)
    return joined[:-1]


def _is_text(block: Mapping[str, Any]) -> bool:
    return block["type"] == "text" and isinstance(block["text"], str)


# ---- words -------------------------------------------------------------------------------------


def note_text(update: Mapping[str, Any], session_id: str = "") -> NoteText:
    """Return an update in words; `session_id` is the session whose log it is in."""
    name = update.get("sessionUpdate")
    if name == "session_message":
        return _message(update, session_id)
    if isinstance(name, str) and name.startswith("subagent_"):
        return _sub_agent(update)
    words = _WORDS.get(name) if isinstance(name, str) else None
    if words is not None:
        return words(update)
    return NoteText("info", _text(name) or "Unnamed update", "")


def _notice(update: Mapping[str, Any]) -> NoteText:
    severity = update.get("severity")
    title = _text(update.get("title")) or "Notice"
    shown = str(severity) if severity in SEVERITIES else "info"
    return NoteText(shown, title, _text(update.get("description")))


def _compaction(update: Mapping[str, Any]) -> NoteText:
    status, error = update.get("status"), _text(update.get("error"))
    summary = _blocks_text(update.get("summary"))
    match status:
        case "in_progress" | None:
            return NoteText("info", "Compacting the context", summary)
        case "completed":
            return NoteText("info", "Context compacted", summary)
        case "failed":
            return NoteText("error", "The context could not be compacted", error or summary)
        case "cancelled":
            return NoteText("info", "Compaction cancelled", error or summary)
        case _:
            return NoteText("info", f"Compaction: {_text(status)}", error or summary)


def _plan_update(update: Mapping[str, Any]) -> NoteText:
    plan = _plan(update)
    entries = plan.get("entries")
    if isinstance(entries, list):
        tables = [each for each in entries if isinstance(each, Mapping)]
        done = sum(each.get("status") == "completed" for each in tables)
        lines = (
            f"{_text(each.get('status')).replace('_', ' ')}: {_text(each.get('content'))}"
            for each in tables
        )
        return NoteText("info", f"Plan: {done} of {len(tables)} done", "\n".join(lines))
    words = _text(plan.get("content")) or _text(plan.get("uri"))
    return NoteText("info", "Plan", words)


def _sub_agent(update: Mapping[str, Any]) -> NoteText:
    name = _text(update.get("title")) or _text(update.get("name")) or sub_agent_id(update) or ""
    given = update.get("state", update.get("status"))
    state = given.get("state") if isinstance(given, Mapping) else given
    words = {"idle": "done", "requires_action": "waiting for an answer"}.get(_text(state))
    severity = "info"
    if state == "idle" and isinstance(given, Mapping) and given.get("stopReason") is not None:
        reason = _text(given["stopReason"])
        words = _ENDS.get(reason, reason)
        severity = "warning" if reason == "error" else "info"
    shown = words or _text(state)
    title = f"Sub-agent {name}: {shown}" if shown else f"Sub-agent {name}"
    child = sub_agent_id(update)
    below = [_text(update.get("description")), "" if child is None else f"Session: {child}"]
    return NoteText(severity, title, "\n".join(filter(None, below)))


def _message(update: Mapping[str, Any], session_id: str) -> NoteText:
    sender, recipient = (
        _text(update.get("senderSessionId")),
        _text(update.get("recipientSessionId")),
    )
    text = _blocks_text(update.get("content"))
    if sender and sender != session_id:
        return NoteText("info", f"Message from {sender}", text)
    return NoteText("info", f"Message to {recipient or 'another session'}", text)


def _elicitation(update: Mapping[str, Any]) -> NoteText:
    request = update.get("request")
    question = _text(request.get("message")) if isinstance(request, Mapping) else ""
    action = _text(update.get("action"))
    ends = {"accept": "answered", "decline": "declined", "cancel": "cancelled"}
    status = _text(update.get("status"))
    states = {"pending": "waiting for an answer", "superseded": "withdrawn"}
    shown = ends.get(action) or states.get(status, status)
    return NoteText("info", f"Input request: {shown}" if shown else "Input request", question)


def _removed(update: Mapping[str, Any]) -> NoteText:
    return NoteText("info", "Plan removed", _text(update.get("planId")))


_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], NoteText]]] = {
    "notice": _notice,
    "compaction_update": _compaction,
    "plan_update": _plan_update,
    "plan_removed": _removed,
    ELICITATION_UPDATED: _elicitation,
}


def _plan(update: Mapping[str, Any]) -> Mapping[str, Any]:
    plan = update.get("plan")
    is_removed = update.get("sessionUpdate") == "plan_removed"
    return plan if isinstance(plan, Mapping) and not is_removed else update


def _blocks_text(value: object) -> str:
    blocks = value if isinstance(value, list) else [] if value is None else [value]
    return "".join(map(_block_text, blocks))


def _block_text(block: object) -> str:
    if not isinstance(block, Mapping):
        return _text(block)
    text, kind = block.get("text"), block.get("type")
    return text if kind == "text" and isinstance(text, str) else f"[{_text(kind)}]"


def _text(value: object) -> str:
    """Return a text, or the JSON of anything else: an agent may send anything."""
    if value is None:
        return ""
    return value if isinstance(value, str) else encode_json(value).decode()
