"""What one event costs: folding 1,000, 10,000 and 100,000 of them, and making and reading one.

    PYTHONPATH=src python benchmarks/reduce_cost.py [repeats]

Prints JSON lines with microseconds of processor time per event, best of the repeats, with the
garbage collector on. `ratio` is 100,000 against 1,000: the cost must not grow
(docs/understand/invariants.md, INV-3).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from quarterdeck.protocol import (
    Event,
    SessionState,
    decode_event,
    encode_event,
    initial_state,
    make_session_event,
    normalize_session_update,
    reduce,
    to_json,
)

SIZES = (1_000, 10_000, 100_000)
MOST_SHORT_FOLDS = 20


def chunk(seq: int, message_id: str | None, kind: str = "agent-message-chunk") -> Event:
    payload: dict[str, Any] = {"content": {"type": "text", "text": f"word {seq} "}}
    if message_id is not None:
        payload["messageId"] = message_id
    return make_session_event(kind, "s", seq=seq, ts=1718000000000 + seq, payload=payload)


def one_long_message(seq: int) -> Event:
    return chunk(seq, "m")


def one_long_message_without_id(seq: int) -> Event:
    return chunk(seq, None)


def many_messages(seq: int) -> Event:
    return chunk(seq, f"m{seq}")


def many_messages_revisited(seq: int) -> Event:
    """Every second chunk goes to a message anywhere in the past."""
    return chunk(seq, f"m{seq if seq % 2 else seq * 7919 % (seq + 1) | 1}")


def many_tool_calls(seq: int) -> Event:
    call = f"call-{(seq + 1) // 2}"
    if seq % 2:
        kind, payload = "tool-call", {"toolCallId": call, "title": "Read", "status": "pending"}
    else:
        kind, payload = "tool-call-update", {"toolCallId": call, "status": "completed"}
    return make_session_event(kind, "s", seq=seq, ts=seq, payload=payload)


def long_terminal(seq: int) -> Event:
    payload = {"terminalId": "t", "delta": f"{seq:>99}\n"}
    return make_session_event("terminal-output", "s", seq=seq, ts=seq, payload=payload)


def mixed(seq: int) -> Event:
    """Per 100 events: thoughts, messages, tool calls, terminal output, a usage and a turn end."""
    step, turn = seq % 100, seq // 100
    if step < 20:
        return chunk(seq, f"t{turn}", "agent-thought-chunk")
    if step < 40:
        return many_tool_calls(seq)
    if step < 50:
        return long_terminal(seq)
    if step == 98:
        payload: dict[str, Any] = {"used": seq, "size": 200_000}
        return make_session_event("usage-update", "s", seq=seq, ts=seq, payload=payload)
    if step == 99:
        payload = {"stopReason": "end_turn"}
        return make_session_event("prompt-finished", "s", seq=seq, ts=seq, payload=payload)
    return chunk(seq, f"m{turn}")


KINDS = (
    one_long_message,
    one_long_message_without_id,
    many_messages,
    many_messages_revisited,
    many_tool_calls,
    long_terminal,
    mixed,
)


def microseconds(run: Callable[[], object], count: int, repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        result = run()
        best = min(best, time.process_time() - start)
        del result  # after the clock: freeing a state is not part of making it
    return best / count * 1e6


def fold(events: list[Event]) -> SessionState:
    state = initial_state("s")
    for event in events:
        state = reduce(state, event)
    return state


def fold_costs(kind: Callable[[int], Event], repeats: int) -> dict[int, float]:
    """Return the microseconds per event by size, the best of the repeats.

    The sizes take turns, so that a slow spell of the machine does not hit one of them only.
    """
    # Decoded from JSON, as a log is: every event has strings and objects of its own.
    events = [decode_event(encode_event(kind(seq))) for seq in range(1, SIZES[-1] + 1)]
    parts = {size: events[:size] for size in SIZES}
    costs = dict.fromkeys(SIZES, float("inf"))
    for _ in range(repeats):
        for size, part in parts.items():
            # A short fold is timed more often, so that all sizes take about as long.
            more = min(SIZES[-1] // size, MOST_SHORT_FOLDS)
            costs[size] = min(costs[size], microseconds(lambda part=part: fold(part), size, more))  # type: ignore[misc]
    return costs


def single_costs(repeats: int) -> dict[str, float]:
    count = 100_000
    event = one_long_message(1)
    data, json_object = encode_event(event), to_json(event)
    update = {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": "word 1 "},
        "messageId": "m",
    }
    odd = data[:-1] + b',"fromTheFuture":1}'
    payload = json_object["payload"]

    def construct() -> object:
        return make_session_event("agent-message-chunk", "s", seq=1, ts=2, payload=payload)

    actions: dict[str, Callable[[], object]] = {
        "make_session_event": construct,
        "encode_event": lambda: encode_event(event),
        "decode_event": lambda: decode_event(data),
        "decode_event, unknown key": lambda: decode_event(odd),
        "decode_event, dict": lambda: decode_event(json_object),
        "normalize_session_update": lambda: normalize_session_update(update),
    }

    def repeated(action: Callable[[], object]) -> None:
        for _ in range(count):
            action()

    # The empty lambda is what calling costs; it is not part of the action.
    calling = microseconds(lambda: repeated(lambda: None), count, repeats)
    return {
        name: round(microseconds(lambda a=action: repeated(a), count, repeats) - calling, 2)  # type: ignore[misc]
        for name, action in actions.items()
    }


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    for kind in KINDS:
        costs = fold_costs(kind, repeats)
        line = {f"{size}": round(cost, 2) for size, cost in costs.items()}
        ratio = round(costs[SIZES[-1]] / costs[SIZES[0]], 2)
        figures = {"kind": kind.__name__, "µs per event": line, "ratio": ratio}
        print(json.dumps(figures, ensure_ascii=False))
    print(json.dumps({"µs per call": single_costs(repeats)}, ensure_ascii=False))


if __name__ == "__main__":
    main()
