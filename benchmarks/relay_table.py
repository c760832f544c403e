"""What a relay costs."""

from __future__ import annotations

import sys

from harness import HERE, Figures, Table, best, contest, middle, table

WHAT = ("message", "idle", "restart")
ROWS = (
    ("round trip of 300 bytes over TLS, direct, p50", "message", "direct_p50_ms", "ms", ""),
    ("the same through a relay, p50", "message", "relayed_p50_ms", "ms", ""),
    ("added by the relay, p50", "message", "added_p50_ms", "ms", "1 ms"),
    ("added by the relay, p99", "message", "added_p99_ms", "ms", ""),
    ("CPU of the relay for a message", "message", "cpu_us", "µs", "30 µs"),
    ("a phone connects, TLS included, p50", "message", "connect_p50_ms", "ms", ""),
    ("memory of a relay without hubs", "idle", "empty_mb", "MB", ""),
    ("memory with 1,000 idle hubs", "idle", "resident_mb", "MB", "200 MB"),
    ("CPU of the relay with 1,000 idle hubs", "idle", "cpu_percent", "% of a core", ""),
    ("1,000 hubs connect, 25 at a time", "idle", "connect_s", "s", ""),
    ("the relay starts after kill -9", "restart", "start_s", "s", ""),
    ("a phone is answered again after that, median of 5", "restart", "back_s", "s", ""),
    ("the longest of them", "restart", "longest_back_s", "s", "a few seconds"),
)


def relay(rounds: int) -> Table:
    """Show what a relay costs."""
    commands = {each: [sys.executable, str(HERE / "relay_cost.py"), each] for each in WHAT}
    results = contest(commands, rounds)
    rows = [
        [about, f"{_text(results[what], key)} {unit}", target]
        for about, what, key, unit, target in ROWS
    ]
    title = "**A relay between phone and hub** (best, median)"
    return [title, "", *table(["", "measured", "target, at most"], rows), ""]


def _text(figures: list[Figures], key: str) -> str:
    return f"{best(figures, key):.3g} ({middle(figures, key):.3g})"
