"""What several tests of the protocol need: vectors, events in one line, any JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from quarterdeck.protocol import (
    HOST_EVENT_TYPES,
    Event,
    SessionState,
    initial_state,
    make_host_event,
    make_session_event,
    reduce,
)

VECTORS = Path(__file__).parents[1] / "vectors"

MODELLED_UPDATES = {
    "user_message_chunk": "user-message-chunk",
    "agent_message_chunk": "agent-message-chunk",
    "agent_thought_chunk": "agent-thought-chunk",
    "tool_call": "tool-call",
    "tool_call_update": "tool-call-update",
    "plan": "plan",
    "available_commands_update": "available-commands-update",
    "current_mode_update": "current-mode-update",
    "config_option_update": "config-options-update",
    "session_info_update": "session-info-update",
    "usage_update": "usage-update",
}
"""ACP's updates that have an event of their own."""

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
# Lone surrogates too: JavaScript agents cut text between the halves of a pair.
texts = st.text(st.characters(), max_size=8)
any_json = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, any_json, max_size=4)


def expand(value: Any) -> Any:
    """Write out the recipes for long strings: `{"$str": [["a", 3]]}` is "aaa"."""
    if isinstance(value, dict):
        if list(value) == ["$str"]:
            return "".join(piece * times for piece, times in value["$str"])
        return {key: expand(inner) for key, inner in value.items()}
    return [expand(inner) for inner in value] if isinstance(value, list) else value


def vectors(folder: str) -> dict[str, dict[str, Any]]:
    files = sorted((VECTORS / folder).glob("*.json"))
    return {file.stem: expand(json.loads(file.read_text())) for file in files}


def event(
    name: str, /, seq: int = 1, *, extensions: dict[str, Any] | None = None, **payload: Any
) -> Event:
    """Build an event of session "s" with the payload keys given as keywords."""
    if name in HOST_EVENT_TYPES:
        return make_host_event(name, seq=seq, ts=seq, payload=payload, extensions=extensions)
    return make_session_event(name, "s", seq=seq, ts=seq, payload=payload, extensions=extensions)


def chunk(text: str, seq: int = 1, *, kind: str = "agent", **payload: Any) -> Event:
    name = "agent-thought-chunk" if kind == "thought" else f"{kind}-message-chunk"
    return event(name, seq, content={"type": "text", "text": text}, **payload)


def fold(events: Iterable[Event], state: SessionState | None = None) -> SessionState:
    state = initial_state("s") if state is None else state
    for one in events:
        state = reduce(state, one)
    return state


def words(state: SessionState) -> list[str]:
    """The text of every message, chunks joined by a bar."""
    return ["|".join(block["text"] for block in message.content) for message in state.messages]
