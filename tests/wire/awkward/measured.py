"""A client under load in a process of its own, so that its memory can be measured.

    python -m tests.wire.awkward.measured SCENARIO

prints one JSON object: the facts the scenario found out, and by how many MiB its peak grew.
"""

from __future__ import annotations

import json
import resource
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

from quarterdeck.errors import AnswerInvalid, ConnectionClosed
from quarterdeck.wire import ConnectionOptions, Report
from quarterdeck.wire.framing import MAX_MESSAGE
from tests.wire.awkward.helpers import awkward_peer, line, update

MEGABYTE = "x" * 1_000_000


def peak_mebibytes() -> float:
    """Return the most memory this process ever held.

    Linux hands `ru_maxrss` of a parent down to what it starts; `VmHWM` is the program's own.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(each for each in status.read_text().splitlines() if each.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


async def never(_method: str, _params: Any) -> Any:
    await anyio.sleep_forever()


class Reports:
    """Counts reports: keeping a hundred thousand of them would be what is measured."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()

    def __call__(self, report: Report) -> None:
        self.kinds[report.kind.value] += 1


async def largest_answer() -> dict[str, Any]:
    head, end = '{"jsonrpc":"2.0","id":$ID,"result":"', '"}'
    size = MAX_MESSAGE - len(head.replace("$ID", "0")) - len(end)
    async with awkward_peer() as peer:
        answer = await peer.do(["unanswered"], ["write", head], ["repeat", size, "x", end + "\n"])
        return {"received": len(answer), "expected": size, "refused": len(peer.reports)}


async def answer_beyond_the_limit() -> dict[str, Any]:
    head, problem = '{"jsonrpc":"2.0","id":$ID,"result":"', ""
    async with awkward_peer(options=ConnectionOptions(max_message=1_000_000)) as peer:
        try:
            await peer.do(["unanswered"], ["write", head], ["repeat", 400_000_000, "x", '"}\n'])
        except AnswerInvalid as error:
            problem = str(error)
        await peer.connection.call("echo")
    return {"problem": problem}


async def updates_behind_a_handler_that_never_returns() -> dict[str, Any]:
    count, in_order = 0, True

    def note(_method: str, params: Any) -> None:
        nonlocal count, in_order
        in_order = in_order and params["update"]["text"] == f"{count} {MEGABYTE[:200]}"
        count += 1

    text = update({"text": f"$N {MEGABYTE[:200]}"})
    async with awkward_peer(on_notification=note, on_request=never) as peer:
        await peer.do(["write", line(id="r", method="ask", params={})], ["flood", 100_000, text])
        return {"count": count, "in_order": in_order}


async def prompts_to_a_peer_that_does_not_read() -> dict[str, Any]:
    outcomes: Counter[str] = Counter()
    waiting: list[anyio.CancelScope] = []

    async def prompt() -> None:
        with anyio.CancelScope() as scope:
            waiting.append(scope)
            try:
                await connection.call("prompt", {"text": MEGABYTE})
            except ConnectionClosed:
                outcomes["failed"] += 1
        outcomes["cancelled"] += scope.cancelled_caught

    options = ConnectionOptions(close_seconds=0.1, answers_garbage=False)
    async with (
        anyio.create_task_group() as tasks,
        awkward_peer(["hang"], options=options, stop_seconds=0.1) as peer,
    ):
        connection = peer.connection
        for _ in range(200):
            tasks.start_soon(prompt)
        await anyio.wait_all_tasks_blocked()
        for scope in waiting[:100]:
            scope.cancel()
        await anyio.wait_all_tasks_blocked()
        outcomes["cancelled while open"] = outcomes["cancelled"]
    return dict(outcomes)


async def requests_that_never_end() -> dict[str, Any]:
    reports = Reports()
    options = ConnectionOptions(on_report=reports, answers_garbage=False)
    request = '{"jsonrpc":"2.0","id":$N,"method":"ask","params":{"text":"' + "x" * 200 + '"}}\n'
    async with awkward_peer(on_request=never, options=options) as peer:
        # The peer reads no answer before all is written.
        await peer.do(["flood", 100_000, request])
        assert await peer.connection.call("echo", {"a": 1}) == {"a": 1}
    return dict(reports.kinds)


async def garbage_from_a_peer_that_reads_nothing() -> dict[str, Any]:
    reports = Reports()
    options = ConnectionOptions(on_report=reports, close_seconds=0.1)  # it answers garbage
    done = anyio.Event()
    async with awkward_peer(
        ["flood", 100_000, '{"garbage": $N}\n'],
        ["write", line(method="done")],
        ["hang"],
        on_notification=lambda _method, _params: done.set(),
        options=options,
        stop_seconds=0.1,
    ):
        await done.wait()
    return dict(reports.kinds)


async def standard_error_without_end() -> dict[str, Any]:
    async with awkward_peer() as peer:
        await peer.do(["complain", "x" * 1000, 100_000])
        return {"kept": len(peer.process.last_stderr)}


SCENARIOS: dict[str, Callable[[], Awaitable[dict[str, Any]]]] = {
    scenario.__name__: scenario
    for scenario in (
        largest_answer,
        answer_beyond_the_limit,
        updates_behind_a_handler_that_never_returns,
        prompts_to_a_peer_that_does_not_read,
        requests_that_never_end,
        garbage_from_a_peer_that_reads_nothing,
        standard_error_without_end,
    )
}


async def measure(name: str) -> None:
    async with awkward_peer() as peer:  # so that all that is ever imported is imported
        await peer.connection.call("echo")
    before = peak_mebibytes()
    facts = await SCENARIOS[name]()
    facts["grown"] = round(peak_mebibytes() - before, 1)
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    anyio.run(measure, sys.argv[1])
