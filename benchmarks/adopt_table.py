"""What it costs to adopt sessions of another program."""

from __future__ import annotations

import sys

from harness import HERE, Figures, Table, best, contest, middle, table

PROGRAMS = ("claude", "codex", "opencode")
WHAT = ("import", "huge", "find", "watch")
ROWS = (
    ("import of 100 MB, MB/s of CPU time", "import", "mb_per_cpu_second", "at least 50"),
    ("memory before it, MB", "import", "rss_before_mb", ""),
    ("memory at most during it, MB", "import", "rss_mb", "flat"),
    ("1 GB with a line of 900 MB, seconds", "huge", "seconds", ""),
    ("memory at most during it, MB", "huge", "rss_mb", "flat"),
    ("1,000 sessions are found, seconds", "find", "first_seconds", "2"),
    ("the same again, seconds", "find", "again_seconds", ""),
    ("50 idle sessions are watched, % of a core", "watch", "percent", "1"),
)


def adopt(rounds: int) -> Table:
    """Show what adopting sessions costs."""
    commands = {
        f"{what} {program}": [sys.executable, str(HERE / "adopt_cost.py"), what, program]
        for what in WHAT
        for program in PROGRAMS
        if (what, program) != ("huge", "opencode")  # it has no lines
    }
    results = contest(commands, rounds)
    rows = [
        [about, *(_text(results.get(f"{what} {each}"), key) for each in PROGRAMS), target]
        for about, what, key, target in ROWS
    ]
    return [
        "**Sessions of other programs** (best, median)",
        "",
        *table(["", *PROGRAMS, "target"], rows),
        "",
    ]


def _text(figures: list[Figures] | None, key: str) -> str:
    if figures is None:
        return "-"
    choose = max if key.startswith("mb_per") else min
    return f"{best(figures, key, choose):.3g} ({middle(figures, key):.3g})"
