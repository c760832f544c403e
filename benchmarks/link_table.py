"""What a hub and a runner in two processes cost."""

from __future__ import annotations

import sys

from harness import HERE, Figures, Table, best, contest, middle, table

WHAT = ("hop", "latency", "processes", "list")
ROWS = (
    ("CPU of both ends of the link for an event, in runs of 16", "hop", "us", "µs", "2 µs"),
    ("agent's write to an event stream, p50, one process", "latency", "one_p50_ms", "ms", ""),
    ("the same, two processes", "latency", "two_p50_ms", "ms", "0.3 ms more"),
    ("`up` until ready, with the start of the runner", "processes", "up_s", "s", "1.5 s"),
    ("`up` until ready, beside a runner", "processes", "up_with_runner_s", "s", ""),
    ("a stream is away while the hub restarts", "processes", "stream_away_s", "s", "1 s"),
    ("idle hub and runner, shared pages once", "processes", "share_mb", "MB", "110 MB"),
    ("idle hub and runner, shared pages twice", "processes", "resident_mb", "MB", ""),
    ("first list of 10,000 sessions, hub restarted", "list", "after_hub_s", "s", "0.5 s"),
    ("the same, hub and runner restarted", "list", "after_both_s", "s", ""),
)


def link(rounds: int) -> Table:
    """Show what the second process costs."""
    commands = {each: [sys.executable, str(HERE / "link_cost.py"), each] for each in WHAT}
    results = contest(commands, rounds)
    rows = [
        [about, f"{_text(results[what], key)} {unit}", target]
        for about, what, key, unit, target in ROWS
    ]
    title = "**Hub and runner in two processes** (best, median)"
    return [title, "", *table(["", "measured", "target, at most"], rows), ""]


def _text(figures: list[Figures], key: str) -> str:
    return f"{best(figures, key):.2f} ({middle(figures, key):.2f})"
