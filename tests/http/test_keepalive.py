"""One timer for all streams."""

from __future__ import annotations

import anyio

from quarterdeck.http.keepalive import KeepAlive, LiveConnection

PATIENCE = 30.0


async def test_a_quiet_connection_is_woken() -> None:
    keep_alive, connection = KeepAlive(0.01, quiet_ticks=2), LiveConnection()
    keep_alive.add(connection)
    with anyio.fail_after(PATIENCE):
        await connection.wait()
    assert keep_alive.is_quiet(connection)
    keep_alive.remove(connection)
    assert len(keep_alive) == 0


async def test_a_wake_up_before_the_wait_counts() -> None:
    connection = LiveConnection()
    connection.wake()
    with anyio.fail_after(PATIENCE):
        await connection.wait()


async def test_a_connection_whose_client_does_not_read_is_cancelled() -> None:
    keep_alive, connection = KeepAlive(0.01, stalled_ticks=2), LiveConnection()
    keep_alive.add(connection)
    connection.stalled = 0
    with anyio.fail_after(PATIENCE), connection.scope:
        await anyio.sleep_forever()
    assert connection.is_stuck
    keep_alive.remove(connection)


async def test_without_a_limit_a_stalled_connection_stays() -> None:
    keep_alive, stalled, quiet = KeepAlive(0.01, stalled_ticks=None), *_two()
    keep_alive.add(stalled)
    keep_alive.add(quiet)
    stalled.stalled = 0
    with anyio.fail_after(PATIENCE):
        while stalled.stalled < 5:
            quiet.quiet = 0
            await quiet.wait()
    assert not stalled.is_stuck
    keep_alive.remove(stalled)
    keep_alive.remove(quiet)


def _two() -> tuple[LiveConnection, LiveConnection]:
    return LiveConnection(), LiveConnection()


async def test_the_end_of_a_server_cancels_every_connection_and_later_ones() -> None:
    keep_alive, early, late = KeepAlive(), *_two()
    keep_alive.add(early)
    keep_alive.end()
    keep_alive.add(late)
    for connection in (early, late):
        with anyio.fail_after(PATIENCE), connection.scope:
            await anyio.sleep_forever()
        assert connection.server_ends
        keep_alive.remove(connection)
