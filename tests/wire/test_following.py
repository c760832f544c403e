"""What follows an answer, and what is sent without waiting."""

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from quarterdeck.wire import (
    ConnectionOptions,
    Report,
    ReportKind,
    Response,
    background_tasks,
    memory_pair,
    open_connection,
)


async def test_what_follows_an_answer_follows_it_at_once() -> None:
    ours, theirs = memory_pair()
    order: list[str] = []

    async def answer(_method: str, _params: Any) -> Any:
        return Response("done", lambda: connection.post("told", {"after": "the answer"}))

    async with (
        open_connection(theirs, on_request=answer) as connection,
        open_connection(ours, on_notification=lambda name, _params: order.append(name)) as client,
    ):
        with anyio.fail_after(30):
            for _ in range(2):
                await client.call("x", on_response=lambda _answer: order.append("answer"))
    assert order[:3] == ["answer", "told", "answer"]


async def test_a_failure_of_what_follows_an_answer_is_reported_and_the_answer_stands() -> None:
    ours, theirs = memory_pair()
    reports: list[Report] = []

    def fail() -> None:
        raise ValueError

    async def answer(_method: str, _params: Any) -> Any:
        return Response("done", fail)

    options = ConnectionOptions(on_report=reports.append)
    async with (
        open_connection(theirs, on_request=answer, options=options),
        open_connection(ours) as client,
    ):
        assert await client.call("x") == "done"
    assert [report.kind for report in reports] == [ReportKind.HANDLER_FAILED]


@pytest.mark.slow
async def test_what_is_posted_is_counted_until_the_peer_reads_it() -> None:
    ours, theirs = memory_pair(buffer=100)
    options = ConnectionOptions(high_water=1000)
    async with open_connection(theirs, options=options) as connection:
        connection.post("note", {"text": "x" * 1000})
        while connection.unsent:  # until it is being written, which takes for ever
            await checkpoint()
        for _ in range(100):
            connection.post("note", {"text": "x" * 100})
        assert connection.unsent > 10_000
        with anyio.move_on_after(0.05) as waiting:
            await connection.room()
        assert waiting.cancelled_caught
        async with background_tasks() as tasks:

            async def read() -> None:
                while await ours.receive():
                    pass

            tasks.start_soon(read)
            with anyio.fail_after(30):
                await connection.room()
        assert connection.unsent == 0
