"""What the hub costs beside a bare Starlette that sends the same bytes."""

from __future__ import annotations

import sys

from harness import HERE, Figures, Table, best, contest, middle, table

LIVE = {"1": "100000", "100": "10000", "1000": "4000"}
"""How many updates the agent sends to so many clients."""
PACED = {"1": ("500", "0.005"), "100": ("300", "0.01"), "1000": ("60", "0.1")}
"""The same, and the seconds between them."""
KINDS = {"sse": "SSE", "ws": "WebSocket"}


def hub(rounds: int) -> Table:
    """Show deliveries a second, CPU and memory, then how late paced events come."""
    runs = {(what, kind, clients): (count,) for clients, count in LIVE.items() for kind in KINDS
            for what in ("hub", "bare")}  # fmt: skip
    results = contest({" ".join(key): _command(*key, *rest) for key, rest in runs.items()}, rounds)
    rows = [
        [
            f"{KINDS[kind]}, {clients} clients" if clients != "1" else f"{KINDS[kind]}, 1 client",
            *_costs(results[f"hub {kind} {clients}"], results[f"bare {kind} {clients}"]),
        ]
        for kind in KINDS
        for clients in LIVE
    ]
    head = [
        "deliveries",
        "per second",
        "CPU µs",
        "KB per client",
        "bare: per second",
        "CPU µs",
        "of bare",
    ]
    title = "**Hub**, from an agent's output to clients in another process (best, median)"
    return [title, "", *table(head, rows), "", *_late(rounds)]


def _costs(ours: list[Figures], bare: list[Figures]) -> list[str]:
    share = best(ours, "per_second", max) / best(bare, "per_second", max)
    middle_share = middle(ours, "per_second") / middle(bare, "per_second")
    return [
        f"{best(ours, 'per_second', max):,.0f} ({middle(ours, 'per_second'):,.0f})",
        f"{best(ours, 'cpu_us'):.2f} ({middle(ours, 'cpu_us'):.2f})",
        f"{middle(ours, 'kb_per_client'):.0f}",
        f"{best(bare, 'per_second', max):,.0f} ({middle(bare, 'per_second'):,.0f})",
        f"{best(bare, 'cpu_us'):.2f} ({middle(bare, 'cpu_us'):.2f})",
        f"{share:.0%} ({middle_share:.0%})",
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
