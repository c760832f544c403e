"""What serving an agent costs, and the built-in agent itself."""

from __future__ import annotations

import statistics

from harness import Figures, Table, lines_of, table

# How a figure is shown; of those that swing with the machine, the best round and the median.
SWINGING = {
    "ms": "{:,.0f} ({:,.0f}) ms",
    "cpu_ms": "{:,.0f} ({:,.0f}) ms of CPU to its end",
    "per_second": "{:,.0f} ({:,.0f}) a second",
    "cpu_us": "{:.1f} ({:.1f}) µs of CPU each",
    "p50_us": "p50 {:.0f} ({:.0f}) µs",
    "p99_us": "p99 {:.0f} ({:.0f}) µs",
}
STEADY = {
    "count": "{:,} messages",
    "rss_mb": "{} MB",
    "reconnects": "{} reconnects",
    "lost": "{} lost",
}


def agent(rounds: int) -> Table:
    """Show every measurement of agent_cost.py in one line."""
    measured: dict[str, list[Figures]] = {}
    for _ in range(rounds):
        for each in lines_of("agent_cost.py"):
            measured.setdefault(each["name"], []).append(each)
    rows = [[name, "; ".join(_shown(each))] for name, each in measured.items()]
    title = "**Agent**, a process of its own read by blocking pipes and sockets (best, median)"
    return [title, "", *table(["", ""], rows), ""]


def _shown(rounds: list[Figures]) -> list[str]:
    """Return the figures of one measurement in words."""
    words = []
    for key in rounds[0]:
        values = [each[key] for each in rounds]
        if key in SWINGING:
            best = max(values) if key == "per_second" else min(values)
            words.append(SWINGING[key].format(best, statistics.median(values)))
        elif key in STEADY:
            words.append(STEADY[key].format(max(values)))
    return words
