"""What an earlier hub left running: its log tells how far each prompt came."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from quarterdeck.errors import EventInvalid
from quarterdeck.protocol import Event, decode_event
from quarterdeck.server.prompt_rows import PromptError, PromptRow, PromptState, PromptStore
from quarterdeck.storage import Storage

PAGE = 1000

_HEARD = PromptError(
    code="quarterdeck/interrupted",
    message="the hub ended while this ran; see how far it came before you send it again",
)
_UNHEARD = PromptError(
    code="quarterdeck/interrupted",
    message="the hub ended when this began; the log does not have it, so send it again",
)


async def settle_left_prompts(storage: Storage, store: PromptStore) -> None:
    """Store how each prompt that was running ended; none is run again."""
    for row, after in await store.left_running():
        await _settle(storage, store, row, after)


async def _settle(storage: Storage, store: PromptStore, row: PromptRow, after: int) -> None:
    seq: int | None = None
    ended: Mapping[str, Any] | None = None
    async for event in _stored(storage, row.entry.session_id, after):
        if seq is None and begins(event, row.entry.key):
            seq = event.seq
        elif seq is not None and event.type == "prompt-finished":
            ended = event.payload
            break
    state: PromptState = "interrupted"
    stop_reason: str | None = None
    error: PromptError | None = _UNHEARD if seq is None else _HEARD
    if ended is not None:
        state, stop_reason, error = outcome_of(ended)
    await store.end(row.id, state, seq=seq, stop_reason=stop_reason, error=error)


def begins(event: Event, key: str) -> bool:
    """Tell whether an event is the beginning of the prompt with this key."""
    if event.type != "user-message-chunk" or event.extensions is None:
        return False
    ours = event.extensions.get("quarterdeck")
    return isinstance(ours, dict) and ours.get("promptKey") == key


def outcome_of(
    finished: Mapping[str, Any],
) -> tuple[PromptState, str | None, PromptError | None]:
    """Return how a prompt ended, from the payload of its `prompt-finished`."""
    stop_reason = finished.get("stopReason")
    reason = stop_reason if isinstance(stop_reason, str) else None
    failure = finished.get("error")
    if isinstance(failure, Mapping):
        facts = PromptError(code="acpjs/agent-error", message=str(failure.get("message")))
        return "failed", reason, facts
    return "cancelled" if reason == "cancelled" else "done", reason, None


async def _stored(storage: Storage, session_id: str, after: int) -> AsyncIterator[Event]:
    while page := await storage.read(session_id, after, PAGE):
        after += len(page)
        for data in page:
            try:
                event = decode_event(data)
            except EventInvalid:
                continue  # told of when the session is read
            after = max(after, event.seq)
            yield event
