"""Measure Quarterdeck beside its peers in one run and print the ratios.

    python3 dev.py bench                      everything
    python3 dev.py bench receive reduce       only these
    python3 dev.py bench --rounds 5           more rounds, best of each
    python3 dev.py bench --record             also write the results into benchmarks/README.md

Contenders take turns, round by round, so that a busy moment of the machine hits all of them. The
best round counts; compare CPU per message, since wall-clock rates swing with the neighbours.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from adopt_table import adopt
from agent_table import agent
from database_table import database
from harness import (
    HERE,
    OURS,
    ROOT,
    TYPESCRIPT,
    Figures,
    Table,
    best,
    commands,
    contest,
    lines_of,
    middle,
    run,
    table,
)
from hub_table import hub
from link_table import link
from page_table import page
from relay_table import relay
from traffic import KINDS, write_traffic
from views_table import views

README = HERE / "README.md"
START, END = "<!-- results -->", "<!-- end of results -->"
TRAFFIC = ROOT / "build" / "benchmarks"


def messages(results: dict[str, list[Figures]]) -> Table:
    """Show CPU and rate per message, and how many times ours fits into theirs."""
    own = best(results[OURS], "cpu_us")
    own_middle = middle(results[OURS], "cpu_us")
    rows = [
        [
            name,
            f"{best(each, 'cpu_us'):.2f} ({middle(each, 'cpu_us'):.2f})",
            f"{best(each, 'per_second', max):,.0f} ({middle(each, 'per_second'):,.0f})",
            f"{best(each, 'rss_mb'):.0f}",
            f"{best(each, 'cpu_us') / own:.1f} ({middle(each, 'cpu_us') / own_middle:.1f})",
        ]
        for name, each in results.items()
    ]
    return table(["", "CPU µs", "per second", "RSS MB", "times our CPU"], rows)


def receive(rounds: int) -> Table:
    write_traffic(TRAFFIC)
    lines: Table = []
    for kind in KINDS:
        results = contest(commands("receive", str(TRAFFIC / f"{kind}.ndjson")), rounds)
        lines += [f"**Notifications received, {kind}** (best round, median in brackets)", ""]
        lines += [*messages(results), ""]
    return lines


def send(rounds: int) -> Table:
    results = contest(commands("send"), rounds)
    title = "**Notifications sent**, one object built and awaited at a time (best, median)"
    return [title, "", *messages(results), ""]


def roundtrip(rounds: int) -> Table:
    results = contest(commands("roundtrip"), rounds)
    own = best(results[OURS], "p50_us")
    rows = [
        [
            name,
            f"{best(each, 'p50_us'):.0f} ({middle(each, 'p50_us'):.0f})",
            f"{best(each, 'p99_us'):.0f} ({middle(each, 'p99_us'):.0f})",
            f"{best(each, 'per_second', max):,.0f} ({middle(each, 'per_second'):,.0f})",
            f"{best(each, 'p50_us') / own:.1f}",
        ]
        for name, each in results.items()
    ]
    head = ["", "p50 µs", "p99 µs", "per second, 64 at once", "times our p50"]
    return ["**Requests**, round trip (best, median)", "", *table(head, rows), ""]


def reduce(rounds: int) -> Table:
    kinds, calls = [], ""
    for each in lines_of("reduce_cost.py", str(2 * rounds + 1)):
        if "kind" in each:
            costs = (f"{cost:.2f}" for cost in each["µs per event"].values())
            kinds.append([each["kind"].replace("_", " "), *costs, f"{each['ratio']:.2f}"])
        else:
            single = each["µs per call"].items()
            calls = ", ".join(f"`{name}` {cost:.2f}" for name, cost in single)
    head = ["µs per event", "1,000 events", "10,000", "100,000", "100,000 / 1,000"]
    title = "**`reduce`**, one event at a time (best, CPU time, garbage collector on)"
    return [title, "", *table(head, kinds), "", f"Single calls, µs: {calls}.", ""]


STREAMS = {
    "memory, mix": ("stream", "memory", "mix", "1"),
    "memory, mix, 100 subscribers": ("stream", "memory", "mix", "100"),
    "memory, chunks": ("stream", "memory", "chunks", "1"),
    "memory, chunks, 100 subscribers": ("stream", "memory", "chunks", "100"),
    "memory, mix, ACP 2": ("stream", "memory", "acp2-mix", "1"),
    "memory, chunks, ACP 2": ("stream", "memory", "acp2-chunks", "1"),
    "SQLite, mix": ("stream", "sqlite", "mix", "1"),
    "SQLite, mix, 100 subscribers": ("stream", "sqlite", "mix", "100"),
    "SQLite, chunks": ("stream", "sqlite", "chunks", "1"),
    "SQLite, chunks, 100 subscribers": ("stream", "sqlite", "chunks", "100"),
    "replay, memory": ("replay", "memory", "mix"),
    "replay, SQLite": ("replay", "sqlite", "mix"),
}
COUNTING = f"{TYPESCRIPT}, counting only"
LATENCIES = {"memory": ("latency", "memory"), "SQLite": ("latency", "sqlite")}


def host_commands(runs: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {name: [sys.executable, str(HERE / "host_cost.py"), *run] for name, run in runs.items()}


def host(rounds: int) -> Table:
    write_traffic(TRAFFIC)
    theirs = {
        f"{COUNTING}, {kind}": [
            *commands("receive")[TYPESCRIPT],
            str(TRAFFIC / f"{kind}.ndjson"),
        ]
        for kind in KINDS
    }
    results = contest(host_commands(STREAMS) | theirs, rounds)
    mix, chunks = (best(results[f"{COUNTING}, {kind}"], "cpu_us") for kind in ("mix", "chunks"))
    rows = [
        [
            name,
            f"{best(each, 'cpu_us'):.2f} ({middle(each, 'cpu_us'):.2f})",
            f"{best(each, 'per_second', max):,.0f} ({middle(each, 'per_second'):,.0f})",
            f"{(chunks if 'chunks' in name else mix) / best(each, 'cpu_us'):.1f}",
        ]
        for name, each in results.items()
    ]
    head = ["per event", "CPU µs", "per second", "fits into TypeScript's"]
    return [
        "**Host**, from the agent's output to a subscriber's callback (best, median)",
        "",
        *table(head, rows),
        "",
        *acp2_ratios(results),
        *host_latency(rounds),
        *host_memory(),
    ]


def acp2_ratios(results: Mapping[str, list[Figures]]) -> Table:
    costs = {name: best(each, "cpu_us") for name, each in results.items()}
    pairs = {kind: (costs[f"memory, {kind}, ACP 2"], costs[f"memory, {kind}"]) for kind in KINDS}
    ratios = [f"{kind} {second / first:.2f}" for kind, (second, first) in pairs.items()]
    return [f"An update of ACP 2 costs, times one of ACP 1 (memory): {', '.join(ratios)}.", ""]


def host_latency(rounds: int) -> Table:
    results = contest(host_commands(LATENCIES), rounds)
    parts = [
        f"{name} {best(each, 'p50_us') / 1000:.2f} ({middle(each, 'p50_us') / 1000:.2f}) ms"
        for name, each in results.items()
    ]
    return [f"From an agent's write to the callback, p50, best (median): {'; '.join(parts)}.", ""]


def host_memory() -> Table:
    runs = {"idle": ("idle", "sqlite"), "long": ("long", "sqlite", "mix")}
    figures = {name: run(command) for name, command in host_commands(runs).items()}
    return [
        f"Memory: {figures['idle']['kb_per_session']} KB for an idle session; a session of"
        f" {figures['long']['count']:,} events adds {figures['long']['mb_after_last']} MB"
        f" ({figures['long']['mb_after_first']} MB after its first tenth).",
        "",
    ]


START_UP = {
    "bare Python": ["-c", "pass"],
    "import quarterdeck": ["-c", "import quarterdeck"],
    "quarterdeck --version": ["-m", "quarterdeck", "--version"],
    "import quarterdeck.protocol": ["-c", "import quarterdeck.protocol"],
    "import quarterdeck.acp (wire and types)": ["-c", "import quarterdeck.acp"],
    "import acp (official Python SDK)": ["-c", "import acp"],
}


def startup(rounds: int) -> Table:
    taken: dict[str, list[float]] = {name: [] for name in START_UP}
    for _ in range(5 * rounds):
        for name, arguments in START_UP.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
            taken[name].append((time.perf_counter() - started) * 1000)
    bare = min(taken["bare Python"])
    rows = [[name, f"{min(each):.0f}", f"{min(each) - bare:+.0f}"] for name, each in taken.items()]
    head = ["ms", "fresh interpreter, best", "over bare Python"]
    return ["**Start-up**", "", *table(head, rows), ""]


BENCHMARKS: dict[str, Callable[[int], Table]] = {
    "receive": receive,
    "roundtrip": roundtrip,
    "send": send,
    "reduce": reduce,
    "host": host,
    "views": views,
    "agent": agent,
    "hub": hub,
    "link": link,
    "relay": relay,
    "database": database,
    "adopt": adopt,
    "startup": startup,
    "page": page,
}


def machine() -> str:
    node = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False)
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {platform.machine()}, "
        f"{platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, Node {node.stdout.strip().lstrip('v')}"
    )


def record(lines: Table) -> None:
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(START)
    after = rest.split(END)[1]
    body = "\n".join(["", *lines, ""])
    README.write_text(f"{before}{START}{body}{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--record", action="store_true", help="write benchmarks/README.md")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    if chosen.record and chosen.names:
        parser.error("--record writes all results; leave the names out")
    lines = [f"Measured {machine()}; {chosen.rounds} rounds.", ""]
    print(lines[0], flush=True)
    for name in chosen.names or BENCHMARKS:
        part = BENCHMARKS[name](chosen.rounds)
        print("\n" + "\n".join(part), flush=True)
        lines += part
    if chosen.record:
        record(lines)


if __name__ == "__main__":
    main()
