"""Request bodies: within a size and a time, and what is discarded of a rejected one."""

from __future__ import annotations

import anyio
import pytest

from quarterdeck.http.asgi import (
    BodyCutOff,
    BodyLimits,
    BodyRejected,
    DrainLimits,
    Message,
    Receive,
    drain,
    read_body,
    replayed,
)

LIMITS = BodyLimits(size=10, seconds=5.0)


def sending(*parts: bytes, ends: bool = True) -> Receive:
    """Return a client that sends parts and then nothing more."""
    waiting: list[Message] = [
        {"type": "http.request", "body": part, "more_body": not ends or part is not parts[-1]}
        for part in parts
    ]

    async def receive() -> Message:
        if not waiting:
            await anyio.sleep_forever()
        return waiting.pop(0)

    return receive


async def leaving() -> Message:
    return {"type": "http.disconnect"}


async def test_a_body_is_put_together() -> None:
    assert await read_body(sending(b"12345", b"67890"), LIMITS, None) == b"1234567890"


@pytest.mark.parametrize("length", [None, 11, 10**12])
async def test_a_body_over_the_limit_is_rejected(length: int | None) -> None:
    with pytest.raises(BodyRejected, match="more than 10 bytes") as caught:
        await read_body(sending(b"123456", b"789012"), LIMITS, length)
    assert caught.value.status == 413


@pytest.mark.parametrize(
    "limits",
    [BodyLimits(size=10, seconds=0.01), BodyLimits(size=10, seconds=60, idle_seconds=0.01)],
)
async def test_a_body_that_stalls_is_rejected(limits: BodyLimits) -> None:
    with pytest.raises(BodyRejected, match="took longer") as caught:
        await read_body(sending(b"1", ends=False), limits, None)
    assert caught.value.status == 408


async def test_a_client_that_leaves_is_no_error_of_the_body() -> None:
    with pytest.raises(BodyCutOff):
        await read_body(leaving, LIMITS, None)


async def test_draining_ends_with_the_body_its_size_or_its_time() -> None:
    plenty = DrainLimits(size=100, seconds=5.0)
    assert await drain(sending(b"12345", b"67890"), plenty)
    assert not await drain(sending(b"x" * 60, b"x" * 60, b"x"), plenty)
    assert not await drain(sending(b"1", ends=False), DrainLimits(size=100, seconds=0.01))
    assert not await drain(leaving, plenty)


async def test_a_body_that_was_read_is_received_again() -> None:
    receive = replayed(b"body", leaving)
    assert (await receive())["body"] == b"body"
    assert (await receive())["type"] == "http.disconnect"
