"""What projecting an event costs: logs of 1,000, 10,000 and 100,000 events.

    PYTHONPATH=src python benchmarks/views_cost.py context [repeats]

Prints JSON lines: microseconds of processor time per event of the log, the best of the repeats with
the garbage collector on; events per second of the longest log; `ratio` is 100,000 against 1,000:
the cost must not grow. `kept_kb` is what a projector holds after the longest log.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any, Protocol

from reduce_cost import (
    SIZES,
    many_messages,
    many_tool_calls,
    microseconds,
    mixed,
    one_long_message,
)

from quarterdeck.protocol import Event, decode_event, encode_event, make_session_event
from quarterdeck.views.context import ContextProjector

MOST_SHORT_RUNS = 20


class Projector(Protocol):
    def feed(self, event: Event) -> object: ...


PROJECTORS: dict[str, Callable[[], Projector]] = {"context": lambda: ContextProjector("s")}
LINES = (
    "npm test",
    "ls -la src/{n}",
    "git status",
    "cd part{n} && npm run build 2>&1 | tail -n 20",
    "grep -rn 'def f{n}' src | head -5",
    "python -m pytest tests/test_{n}.py -x -q",
    "git add -A && git commit -m 'step {n}'",
    "cat src/part{n}.py",
)


def command_lines(seq: int) -> Event:
    """Return one of the four events of a call; nearly every call runs a line of its own."""
    step, n = seq % 4, seq // 4
    payload: dict[str, Any] = {"toolCallId": f"call-{n}", "status": "in_progress"}
    if step == 0:
        payload |= {"title": "bash", "kind": "execute", "status": "pending"}
    elif step == 1:
        payload["rawInput"] = {"command": LINES[n % len(LINES)].format(n=n)}
    elif step == 2:
        payload["content"] = [{"type": "content", "content": {"type": "text", "text": "a\nb\n"}}]
    else:
        payload |= {"status": "completed", "rawOutput": {"output": "a\nb\n", "exit": 0}}
    kind = "tool-call-update" if step else "tool-call"
    return make_session_event(kind, "s", seq=seq, ts=1718000000000 + seq, payload=payload)


KINDS = (mixed, one_long_message, many_messages, many_tool_calls, command_lines)


def run(make: Callable[[], Projector], events: list[Event]) -> Projector:
    projector = make()
    for event in events:
        projector.feed(event)
    return projector


def costs(
    make: Callable[[], Projector], parts: dict[int, list[Event]], repeats: int
) -> dict[int, float]:
    """Return the microseconds per event by size; sizes take turns, as slow spells do."""
    best = dict.fromkeys(parts, float("inf"))
    for _ in range(repeats):
        for size, part in parts.items():
            more = min(SIZES[-1] // size, MOST_SHORT_RUNS)
            cost = microseconds(lambda part=part: run(make, part), size, more)  # type: ignore[misc]
            best[size] = min(best[size], cost)
    return best


def kept(make: Callable[[], Projector], events: list[Event]) -> float:
    tracemalloc.start()
    projector = run(make, events)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del projector
    return size / 1024


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "context"
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    make = PROJECTORS[name]
    for kind in KINDS:
        events = [decode_event(encode_event(kind(seq))) for seq in range(1, SIZES[-1] + 1)]
        parts = {size: events[:size] for size in SIZES}
        measured = costs(make, parts, repeats)
        figures = {
            "projector": name,
            "kind": kind.__name__,
            "µs per event": {str(size): round(cost, 2) for size, cost in measured.items()},
            "events per second": round(1e6 / measured[SIZES[-1]]),
            "ratio": round(measured[SIZES[-1]] / measured[SIZES[0]], 2),
            "kept_kb": round(kept(make, events)),
        }
        print(json.dumps(figures, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
