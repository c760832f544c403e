"""What the hub costs beside a bare Starlette that sends the same bytes."""

from __future__ import annotations

import sys

from harness import HERE, Figures, Table, best, contest, middle, table

LIVE = {"1": "100000", "100": "10000", "1000": "2000"}
"""How many updates the agent sends to so many clients."""
RELAYED = {"1": "100000", "100": "2000", "1000": "400"}
"""The same where every event is a write of its own."""
PACED = {"1": ("500", "0.005"), "100": ("300", "0.01"), "1000": ("60", "0.1")}
"""The same, and the seconds between them."""
KINDS = {"sse": "SSE", "ws": "WebSocket"}


def hub(rounds: int) -> Table:
    """Show deliveries a second, CPU and memory, then how late paced events come."""
    counts = {"hub": LIVE, "bare": LIVE, "relay": RELAYED}
    runs = {(what, kind, clients): (counts[what][clients],) for clients in LIVE for kind in KINDS
            for what in counts}  # fmt: skip
    results = contest({" ".join(key): _command(*key, *rest) for key, rest in runs.items()}, rounds)
    rows = [
        [
            f"{KINDS[kind]}, {clients} clients" if clients != "1" else f"{KINDS[kind]}, 1 client",
            *_costs(*(results[f"{what} {kind} {clients}"] for what in counts)),
        ]
        for kind in KINDS
        for clients in LIVE
    ]
    head = [
        "deliveries",
        "per second",
        "CPU µs",
        "KB per client",
        "bare, from memory: per second",
        "CPU µs",
        "hub of that",
        "bare, from the agent: per second",
        "CPU µs",
        "hub of that",
    ]
    title = "**Hub**, from an agent's output to clients in another process (best, median)"
    return [title, "", *table(head, rows), "", *_late(rounds)]


def _costs(ours: list[Figures], *bares: list[Figures]) -> list[str]:
    cells = [*_speed(ours), f"{middle(ours, 'kb_per_client'):.0f}"]
    for bare in bares:
        share = best(ours, "per_second", max) / best(bare, "per_second", max)
        middle_share = middle(ours, "per_second") / middle(bare, "per_second")
        cells += [*_speed(bare), f"{share:.0%} ({middle_share:.0%})"]
    return cells


def _speed(figures: list[Figures]) -> list[str]:
    return [
        f"{best(figures, 'per_second', max):,.0f} ({middle(figures, 'per_second'):,.0f})",
        f"{best(figures, 'cpu_us'):.2f} ({middle(figures, 'cpu_us'):.2f})",
    ]


def _late(rounds: int) -> Table:
    runs = {(what, kind, clients): rest for clients, rest in PACED.items() for kind in KINDS
            for what in ("hub", "bare")}  # fmt: skip
    results = contest({" ".join(key): _command(*key, *rest) for key, rest in runs.items()}, rounds)
    rows = [
        [
            f"{KINDS[kind]}, {clients}",
            *(
                f"{best(results[f'{what} {kind} {clients}'], key):.1f}"
                f" ({middle(results[f'{what} {kind} {clients}'], key):.1f})"
                for what in ("hub", "bare")
                for key in ("p50_ms", "p99_ms")
            ),
        ]
        for kind in KINDS
        for clients in PACED
    ]
    head = ["ms from the agent's write to the client", "p50", "p99", "bare: p50", "p99"]
    return [*table(head, rows), ""]


def _command(what: str, kind: str, clients: str, *rest: str) -> list[str]:
    return [sys.executable, str(HERE / "hub_cost.py"), what, kind, clients, *rest]
