"""Awkward peers, part 6: closing here, at any moment, leaves nothing behind that waits."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from quarterdeck.errors import ConnectionClosed
from quarterdeck.wire import ConnectionOptions
from tests.wire.awkward.helpers import PATIENCE, awkward_peer, line

pytestmark = pytest.mark.anyio


async def never(_method: str, _params: Any) -> Any:
    await anyio.sleep_forever()


async def test_waiting_calls_fail_when_the_connection_is_closed_here() -> None:
    problems: list[str] = []

    async def call() -> None:
        try:
            await connection.call("never")
        except ConnectionClosed as problem:
            problems.append(str(problem))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks, awkward_peer() as peer:
            connection = peer.connection
            for _ in range(3):
                tasks.start_soon(call)
            tasks.start_soon(connection.wait_closed)
            await connection.call("echo")
    assert problems == ["never was not answered: the connection was closed here"] * 3


async def test_a_closed_connection_refuses_each_call_and_notification_at_once() -> None:
    async with awkward_peer() as peer:
        pass
    depths = []
    with anyio.fail_after(PATIENCE):
        for _ in range(3):
            with pytest.raises(ConnectionClosed):
                await peer.connection.call("late")
            with pytest.raises(ConnectionClosed) as caught:
                await peer.connection.notify("late")
            depths.append(len(caught.traceback))
    assert depths[0] == depths[-1], "an exception that is raised again and again grows"


async def test_an_exception_of_the_body_leaves_as_itself() -> None:
    async def converse() -> None:
        async with awkward_peer(on_request=never) as peer:
            await peer.do(["write", line(id=1, method="ask")])
            raise LookupError("mine")

    with anyio.fail_after(PATIENCE), pytest.raises(LookupError, match="mine"):
        await converse()


async def test_cancelling_the_body_closes_the_connection_and_stops_the_peer() -> None:
    with anyio.fail_after(PATIENCE):
        with anyio.CancelScope() as scope:
            async with awkward_peer(on_request=never) as peer:
                await peer.do(["write", line(id=1, method="ask")])
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert not peer.connection.is_open
        assert peer.process.exit_status is not None


async def test_a_cancelled_body_gives_the_peer_no_time_to_read() -> None:
    """The writer is cancelled with the body: nothing else would end the wait for its writes."""
    options = ConnectionOptions(close_seconds=600)
    with anyio.fail_after(PATIENCE), anyio.CancelScope() as scope:
        async with awkward_peer(options=options) as peer:
            await peer.connection.call("echo")
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_request_that_arrives_while_closing_leaves_no_work_unawaited() -> None:
    for _ in range(5):
        async with awkward_peer(["flood", 20_000, line(id="$N", method="ask")], on_request=never):
            pass
