"""Codes that work once, for a short time, and cannot be guessed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from hypothesis import example, given, strategies as st

from quarterdeck.hub.auth.pairing import (
    ALPHABET,
    LIFETIME_SECONDS,
    Attempts,
    Budget,
    Paired,
    TooManyAttempts,
    canonical,
)
from tests.hub.auth.support import Clock, open_authentication, open_guarded
from tests.hub.served import PARSERS, Parser, Reply


async def test_the_short_code_accepts_lower_case_spaces_and_dashes(tmp_path: Path) -> None:
    async with open_authentication(tmp_path) as (auth, _):
        for typed in (str, str.lower, lambda code: f" {code.replace('-', ' ')} "):
            _, codes = await auth.pairings.create(scope="approve", name="phone")
            assert len(codes.short) == 9
            assert set(codes.short.replace("-", "")) <= set(ALPHABET)
            paired = await auth.pairings.pair(typed(codes.short), name="", address="a")
            assert isinstance(paired, Paired)
            assert (paired.device.name, paired.device.scope) == ("phone", "approve")


async def test_a_pairing_works_once_with_either_code(tmp_path: Path) -> None:
    async with open_authentication(tmp_path) as (auth, _):
        for first, second in (("short", "long"), ("long", "short"), ("long", "long")):
            _, codes = await auth.pairings.create(scope="view")
            pair = auth.pairings.pair
            used = await pair(getattr(codes, first), name="", address=first)
            assert isinstance(used, Paired)
            assert await pair(getattr(codes, second), name="", address=second) is None


async def test_a_code_expires_and_can_be_cancelled(tmp_path: Path) -> None:
    clock = Clock()
    async with open_authentication(tmp_path, now=clock) as (auth, _):
        _, late = await auth.pairings.create(scope="view")
        cancelled, codes = await auth.pairings.create(scope="view", seconds=LIFETIME_SECONDS * 2)
        clock.now += LIFETIME_SECONDS + 1
        assert [each.id for each in await auth.pairings.usable()] == [cancelled.id]
        assert await auth.pairings.pair(late.short, name="", address="a") is None
        assert await auth.pairings.cancel(cancelled.id)
        assert not await auth.pairings.cancel(cancelled.id)
        assert await auth.pairings.pair(codes.long, name="", address="a") is None


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("kind", ["short", "long"])
async def test_fifty_requests_with_one_code_create_one_device(
    tmp_path: Path, parser: Parser, kind: str
) -> None:
    async with open_guarded(tmp_path, parser) as guarded:
        _, codes = await guarded.auth.pairings.create(scope="view")
        replies: list[Reply] = []

        async def pair() -> None:
            body = {"code": getattr(codes, kind)}
            replies.append(await guarded.served.call("POST", "/api/pair", json=body))

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(pair)
        won = [reply for reply in replies if reply.status == 200]
        assert len(won) == 1
        assert {reply.status for reply in replies} <= {200, 403, 429}
        assert len(guarded.auth.devices.all) == 2
        with closing(sqlite3.connect(tmp_path / "hub.db")) as database:
            assert database.execute("SELECT count(*) FROM devices").fetchone() == (2,)


async def test_wrong_used_and_expired_codes_get_the_same_error(tmp_path: Path) -> None:
    clock = Clock()
    async with open_guarded(tmp_path, now=clock) as guarded:
        _, expired = await guarded.auth.pairings.create(scope="view", seconds=10)
        clock.now += 11
        _, used = await guarded.auth.pairings.create(scope="view")
        await guarded.served.call("POST", "/api/pair", json={"code": used.long})
        cancelled, gone = await guarded.auth.pairings.create(scope="view")
        await guarded.auth.pairings.cancel(cancelled.id)
        bodies = set()
        for code in (expired.short, used.long, used.short, gone.long, "AAAA-AAAA", "x", "x" * 43):
            reply = await guarded.served.call("POST", "/api/pair", json={"code": code})
            bodies.add((reply.status, reply.body))
        assert len(bodies) == 1
        assert next(iter(bodies))[0] == 403


async def test_guessing_is_limited_and_the_error_has_the_time_to_wait(tmp_path: Path) -> None:
    clock = Clock()
    async with open_guarded(tmp_path, now=clock) as guarded:
        _, codes = await guarded.auth.pairings.create(scope="view")

        async def guess(code: str) -> Reply:
            return await guarded.served.call("POST", "/api/pair", json={"code": code})

        statuses = [(await guess(f"AAAA-AAA{digit}")).status for digit in range(2, 10)]
        assert statuses == [403] * 8
        assert [(await guess("nothing")).status for _ in range(3)] == [403, 403, 429]
        slowed = await guess(codes.short)
        assert slowed.status == 429
        assert slowed.header("retry-after") == "30"
        assert slowed.json["error"]["message"] == "too many wrong codes; try again in 30 s"
        clock.now += 30
        assert (await guess(codes.short)).status == 200


async def test_guesses_from_all_addresses_share_a_limit_and_links_still_work(
    tmp_path: Path,
) -> None:
    async with open_authentication(tmp_path, now=Clock()) as (auth, _):
        _, codes = await auth.pairings.create(scope="view")

        async def guess(number: int) -> object:
            return await auth.pairings.pair("AAAAAAAA", name="", address=f"10.0.0.{number}")

        results = [await guess(number) for number in range(60)]
        assert results[:50] == [None] * 50
        assert all(isinstance(result, TooManyAttempts) for result in results[50:])
        slowed = await auth.pairings.pair(codes.short, name="", address="10.1.1.1")
        assert isinstance(slowed, TooManyAttempts)
        by_link = await auth.pairings.pair(codes.long, name="", address="10.1.1.1")
        assert isinstance(by_link, Paired)


@pytest.mark.parametrize("wrong", ["AAAAAAAA", "x", "w" * 43], ids=["short", "none", "long"])
async def test_wrong_codes_of_an_address_do_not_block_its_links(wrong: str, tmp_path: Path) -> None:
    async with open_authentication(tmp_path, now=Clock()) as (auth, _):
        _, codes = await auth.pairings.create(scope="view")
        results = [await auth.pairings.pair(wrong, name="", address="10.0.0.1") for _ in range(20)]
        assert isinstance(results[-1], TooManyAttempts)
        by_link = await auth.pairings.pair(codes.long, name="", address="10.0.0.1")
        assert isinstance(by_link, Paired)
        again = await auth.pairings.pair(codes.long, name="", address="10.0.0.1")
        assert not isinstance(again, Paired)  # once


async def test_wrong_links_of_an_address_do_not_block_typed_codes(tmp_path: Path) -> None:
    async with open_authentication(tmp_path, now=Clock()) as (auth, _):
        _, codes = await auth.pairings.create(scope="view")
        for _ in range(20):
            await auth.pairings.pair("w" * 43, name="", address="10.0.0.1")
        typed = await auth.pairings.pair(codes.short, name="", address="10.0.0.1")
        assert isinstance(typed, Paired)


def test_addresses_of_one_network_share_a_budget() -> None:
    attempts = Attempts(Budget(1, 60), Budget(100, 60))

    def take(address: str) -> bool:
        return attempts.take(address, 0.0, is_guessable=True) == 0

    assert take("2001:db8::1")
    assert not take("2001:db8::2")
    assert take("2001:db8:0:1::1")
    assert take("::ffff:10.0.0.1")
    assert not take("10.0.0.1")
    assert take("fe80::1%eth0")
    assert not take("fe80::2")
    assert take("unix")


def test_the_number_of_known_addresses_is_bounded() -> None:
    attempts = Attempts(Budget(1, 60), Budget(10_000, 60))
    for number in range(5_000):
        assert attempts.take(f"a{number}", 0.0, is_guessable=True) == 0
    assert attempts.take("a4999", 0.0, is_guessable=True) > 0
    assert attempts.take("a0", 0.0, is_guessable=True) == 0


@given(st.lists(st.floats(0, 30), max_size=200))
def test_no_timing_gets_more_guesses_than_the_budget(pauses: list[float]) -> None:
    attempts = Attempts(Budget(5, 10), Budget(1_000, 1))
    now, taken = 1_000.0, 0
    for pause in pauses:
        now += pause
        taken += attempts.take("a", now, is_guessable=True) == 0
    assert taken <= 5 + (now - 1_000.0) / 10 + 1e-6


@example("-\x850")
@given(st.text(max_size=60))
def test_canonical_is_idempotent(code: str) -> None:
    assert canonical(canonical(code)) == canonical(code)
