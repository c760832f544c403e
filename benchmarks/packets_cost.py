"""What one event costs as packets: logs of 1,000 and 100,000 events through the projector.

    PYTHONPATH=src python benchmarks/packets_cost.py [repeats]

Prints one JSON object with events per second of processor time and microseconds per event, best of
the repeats, with the garbage collector on, and the memory that a projector holds after the longest
log. `ratio` is 100,000 against 1,000: the cost must not grow.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

from reduce_cost import microseconds

from quarterdeck.protocol import Event, decode_event, encode_event, make_session_event
from quarterdeck.views.packets import PacketProjector, PacketRows

SIZES = (1_000, 100_000)
MOST_SHORT_RUNS = 20


def made(kind: str, seq: int, payload: dict[str, Any]) -> Event:
    return make_session_event(kind, "s", seq=seq, ts=1718000000000 + seq, payload=payload)


def message(seq: int) -> Event:
    return made("agent-message-chunk", seq, {"content": {"type": "text", "text": f"word {seq} "}})


def tool_calls(seq: int) -> Event:
    """Four events a call: announced, begun, with content, ended."""
    step, call = seq % 4, f"call-{seq // 4}"
    if step == 0:
        return made("tool-call", seq, {"toolCallId": call, "title": "bash", "kind": "execute"})
    payload: dict[str, Any] = {"toolCallId": call, "status": "in_progress"}
    if step == 1:
        payload["rawInput"] = {"command": "ls", "description": "List"}
    elif step == 2:
        shown = {"type": "content", "content": {"type": "text", "text": "a\nb\n"}}
        payload["content"] = [shown]
    else:
        payload |= {"status": "completed", "rawOutput": {"output": "a\nb\n"}}
    return made("tool-call-update", seq, payload)


def mixed(seq: int) -> Event:
    """Per 100 events: thoughts, calls, terminal output, a plan, usage, a turn end, messages."""
    step = seq % 100
    if step < 20:
        content = {"type": "text", "text": f"thought {seq} "}
        return made("agent-thought-chunk", seq, {"content": content})
    if step < 40:
        return tool_calls(seq)
    if step < 50:
        return made("terminal-output", seq, {"terminalId": f"t{seq // 100}", "delta": "line\n"})
    if step == 96:
        entries = [{"content": "step", "priority": "medium", "status": "pending"}] * 5
        return made("plan", seq, {"entries": entries})
    if step == 98:
        return made("usage-update", seq, {"used": seq, "size": 200_000})
    if step == 99:
        return made("prompt-finished", seq, {"stopReason": "end_turn"})
    return message(seq)


def long_call(seq: int) -> Event:
    """One call that never ends and says something new with every event."""
    if seq == 1:
        return made("tool-call", seq, {"toolCallId": "c", "title": "bash", "kind": "execute"})
    return made("tool-call-update", seq, {"toolCallId": "c", "title": f"step {seq}"})


KINDS = (message, tool_calls, long_call, mixed)


def project(events: list[Event]) -> None:
    projector = PacketProjector("s")
    for event in events:
        projector.feed(event)


def keep(events: list[Event]) -> None:
    rows = PacketRows("s")
    for event in events:
        rows.feed(event)


def costs(run: Callable[[list[Event]], None], events: list[Event], repeats: int) -> dict[str, Any]:
    best = dict.fromkeys(SIZES, float("inf"))
    for _ in range(repeats):
        for size in SIZES:
            part = events[:size]
            more = min(SIZES[-1] // size, MOST_SHORT_RUNS)
            cost = microseconds(lambda part=part: run(part), size, more)  # type: ignore[misc]
            best[size] = min(best[size], cost)
    longest = best[SIZES[-1]]
    return {
        "events/s": round(1e6 / longest),
        "µs per event": {f"{size}": round(cost, 2) for size, cost in best.items()},
        "ratio": round(longest / best[SIZES[0]], 2),
    }


def kibibytes_held(events: list[Event]) -> int:
    """Return what a projector of its own holds after a log."""
    tracemalloc.start()
    projector = PacketProjector("s")
    for event in events:
        projector.feed(event)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return round(held / 1024)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    figures: dict[str, Any] = {"project": {}, "rows": {}, "KiB held": {}}
    for kind in KINDS:
        # Decoded from JSON, as a log is: every event has strings and objects of its own.
        events = [decode_event(encode_event(kind(seq))) for seq in range(1, SIZES[-1] + 1)]
        figures["project"][kind.__name__] = costs(project, events, repeats)
        figures["rows"][kind.__name__] = costs(keep, events, repeats)
        figures["KiB held"][kind.__name__] = {
            f"{size}": kibibytes_held(events[:size]) for size in SIZES
        }
    print(json.dumps(figures, ensure_ascii=False))


if __name__ == "__main__":
    main()
