"""States at any event: the same as a fold from the beginning, and without one."""

from __future__ import annotations

import pytest

from quarterdeck.hub.view_cache import EVERY, SessionStates
from quarterdeck.protocol import (
    SessionState,
    decode_event,
    encode_event,
    initial_state,
    make_session_event,
    reduce,
    to_json,
)

pytestmark = pytest.mark.anyio

LENGTH = 3 * EVERY + 700


def stored_log() -> list[bytes]:
    def event(seq: int) -> bytes:
        content = {"type": "text", "text": f"{seq} "}
        kind = "user-message-chunk" if seq % 1000 == 0 else "agent-message-chunk"
        payload = {"content": content, "messageId": str(seq // 1000)}
        made = make_session_event(kind, "s", seq=seq, ts=seq, payload=payload)
        return encode_event(made)

    return [event(seq) for seq in range(1, LENGTH + 1)]


class Log:
    """A log that counts what is read of it."""

    def __init__(self) -> None:
        self.events = stored_log()
        self.read = 0

    async def page(self, _session_id: str, after: int, limit: int) -> list[bytes]:
        page = self.events[after : after + limit]
        self.read += len(page)
        return page

    def folded(self, seq: int) -> SessionState:
        state = initial_state("s")
        for data in self.events[:seq]:
            state = reduce(state, decode_event(data))
        return state


async def test_states_in_any_order_are_those_of_a_fold_from_the_beginning() -> None:
    log = Log()
    states = SessionStates(log.page)
    for seq in (EVERY + 1, 0, LENGTH, 1, EVERY, 2 * EVERY - 1, LENGTH - 1, 499, 500, 501):
        assert to_json(await states.at("s", seq)) == to_json(log.folded(seq)), seq


async def test_a_log_that_was_read_once_is_not_read_again_from_its_beginning() -> None:
    log = Log()
    states = SessionStates(log.page)
    await states.at("s", LENGTH)
    assert log.read == LENGTH
    for seq in (LENGTH, LENGTH - 1, EVERY + 3, 2 * EVERY):
        log.read = 0
        await states.at("s", seq)
        assert log.read <= EVERY


async def test_an_event_that_is_damaged_does_not_hide_the_others() -> None:
    log = Log()
    log.events[10] = b"{damaged"
    told = await SessionStates(log.page).at("s", 20)
    texts = [block["text"] for message in told.messages for block in message.content]
    assert "12 " in texts
    assert "11 " not in texts
    assert texts[-1] == "20 "


async def test_events_that_were_deleted_leave_the_state_of_the_others() -> None:
    log = Log()
    log.events = log.events[:30]
    state = await SessionStates(log.page).at("s", 100)
    assert to_json(state) == to_json(log.folded(30))
