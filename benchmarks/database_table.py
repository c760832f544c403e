"""What copies of logs cost in PostgreSQL."""

from __future__ import annotations

import sys

from harness import HERE, Figures, Table, best, contest, middle, table

WHAT = ("append", "runs", "read")
ROWS = (
    ("an event alone, 50 sessions at once: CPU of PostgreSQL", "append", "postgres_us", "µs", ""),
    ("the same: CPU of the hub", "append", "client_us", "µs", ""),
    ("the same: until it is stored, p50", "append", "p50_ms", "ms", ""),
    ("an event in runs of 16: CPU of PostgreSQL", "runs", "postgres_us", "µs", ""),
    ("the same: CPU of the hub", "runs", "client_us", "µs", ""),
    ("100,000 rows of one event read: CPU of PostgreSQL", "read", "postgres_s", "s", "1 s"),
    ("the same: CPU of the hub", "read", "client_s", "s", ""),
)


def database(rounds: int) -> Table:
    """Show what PostgreSQL and the hub need for each event."""
    commands = {each: [sys.executable, str(HERE / "database_cost.py"), each] for each in WHAT}
    results = contest(commands, rounds)
    rows = [
        [about, f"{_text(results[what], key)} {unit}", target]
        for about, what, key, unit, target in ROWS
    ]
    title = "**Copies of logs in PostgreSQL** (best, median)"
    return [title, "", *table(["", "measured", "target, at most"], rows), ""]


def _text(figures: list[Figures], key: str) -> str:
    return f"{best(figures, key):.2f} ({middle(figures, key):.2f})"
