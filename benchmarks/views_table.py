"""What an event of a log costs in the vocabularies of consumers."""

from __future__ import annotations

from harness import Figures, Table, lines_of, table

WAYS = {"project": "packets", "rows": "packets, kept as rows"}


def views(rounds: int) -> Table:
    (figures,) = lines_of("packets_cost.py", str(rounds))
    rows = [
        _row(f"{title}, {kind.replace('_', ' ')}", each)
        for way, title in WAYS.items()
        for kind, each in figures[way].items()
    ]
    for each in lines_of("views_cost.py", "context", str(rounds)):
        name = f"context, {each['kind'].replace('_', ' ')}"
        rows.append(_row(name, {**each, "events/s": each["events per second"]}))
    held = ", ".join(
        f"{kind.replace('_', ' ')} {sizes['100000']}" for kind, sizes in figures["KiB held"].items()
    )
    head = ["µs per event", "1,000 events", "100,000", "100,000 / 1,000", "per second"]
    title = "**Views**, one event at a time (best, CPU time, garbage collector on)"
    after = f"KiB that a projector of packets holds after 100,000 events: {held}."
    return [title, "", *table(head, rows), "", after, ""]


def _row(name: str, figures: Figures) -> list[str]:
    costs = figures["µs per event"]
    return [
        name,
        f"{costs['1000']:.2f}",
        f"{costs['100000']:.2f}",
        f"{figures['ratio']:.2f}",
        f"{figures['events/s']:,}",
    ]
