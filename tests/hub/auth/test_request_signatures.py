"""Requests that browsers sign: what a proof is for, how long, and how often."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given, strategies as st

from quarterdeck.http.p256 import (
    from_base64url,
    is_signed,
    point as p256_point,
    public_key,
    sign,
)
from quarterdeck.hub.auth.request_signatures import (
    LATE_SECONDS,
    NONCE_SECONDS,
    Nonces,
    Proof,
    SignedTarget,
    is_proof_of,
    read_proof,
)
from tests.hub.auth.support import GuardedServer, open_guarded
from tests.hub.browser_keys import (
    Signing,
    SigningBrowser,
    authorization,
    base64url,
    pair_browser,
    point,
    proof,
    random_text,
    registration,
)
from tests.hub.served import PARSERS, Parser

KEY = ec.generate_private_key(ec.SECP256R1())
OTHER = ec.generate_private_key(ec.SECP256R1())
SIGNING = Signing("POST", "http://127.0.0.1:7272", "/api/x?y=1", "dev_1", "n" * 22, 5_000, b"{}")


class Ticks:
    """A monotonic clock that tests set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def made(nonces: Nonces, *, seconds: float = 0.0) -> Proof:
    """Return a proof for the newest nonce, `seconds` ahead of the hub's clock."""
    now = nonces.newest()
    time = now.milliseconds + round(seconds * 1000)
    found = read_proof(proof(KEY, replace(SIGNING, nonce=now.nonce, time=time, id=random_text())))
    assert found is not None
    return found


# ---- signatures --------------------------------------------------------------------------------


def test_a_proof_is_for_one_method_origin_and_target_and_of_one_key() -> None:
    found = read_proof(proof(KEY, SIGNING))
    assert found is not None
    wanted = SignedTarget("POST", "http://127.0.0.1:7272", "/api/x?y=1")
    assert is_proof_of(KEY.public_key(), found, wanted)
    assert not is_proof_of(OTHER.public_key(), found, wanted)
    for other in (
        replace(wanted, method="GET"),
        replace(wanted, origin="http://localhost:7272"),
        replace(wanted, origin="http://127.0.0.1:7273"),
        replace(wanted, target="/api/x"),
        # Lines cannot be shifted from one field into the next.
        SignedTarget("POST\nhttp://127.0.0.1:7272", "/api/x?y=1", "dev_1"),
    ):
        assert not is_proof_of(KEY.public_key(), found, other)


@given(st.data())
def test_no_changed_character_of_a_proof_verifies(data: st.DataObject) -> None:
    text = proof(KEY, SIGNING)
    at = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from("ABCxyz019-_."))
    changed = text[:at] + letter + text[at + 1 :]
    found = read_proof(changed)
    if found is None or changed == text:
        return
    wanted = SignedTarget(SIGNING.method, SIGNING.origin, SIGNING.target)
    is_same = from_base64url(found.signature) == from_base64url(text.rpartition(".")[2])
    is_valid = is_proof_of(KEY.public_key(), found, wanted)
    # The last letter of a signature has four bits that mean nothing; its id is used once anyway.
    assert not is_valid or (is_same and found.id == SIGNING.id)


@given(st.text(max_size=200))
def test_any_text_is_read_or_is_no_proof(text: str) -> None:
    found = read_proof(text)
    if found is not None:
        is_proof_of(KEY.public_key(), found, SignedTarget("GET", "", ""))


def test_signatures_are_those_of_the_library() -> None:
    signature = sign(KEY, b"text")
    r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
    KEY.public_key().verify(encode_dss_signature(r, s), b"text", ec.ECDSA(SHA256()))
    assert is_signed(KEY.public_key(), signature, b"text")
    for wrong in (signature[:-1], signature + b"\0", bytes(64), b"\xff" * 64, b""):
        assert not is_signed(KEY.public_key(), wrong, b"text")
    with pytest.raises(InvalidSignature):
        KEY.public_key().verify(encode_dss_signature(1, 1), b"text", ec.ECDSA(SHA256()))


@pytest.mark.parametrize("content", [b"", bytes(65), b"\x04" + bytes(64), b"\x02" + bytes(32)])
def test_what_is_no_point_is_no_key(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        public_key(content)


_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_PRIME = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_EDGES = (0, 1, 2, _ORDER - 1, _ORDER, _ORDER + 1, _PRIME, 2**255, 2**256 - 1)


@pytest.mark.parametrize("r", _EDGES)
@pytest.mark.parametrize("s", _EDGES)
def test_numbers_that_no_key_made_are_no_signature(r: int, s: int) -> None:
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    assert not is_signed(KEY.public_key(), signature, b"content")


@pytest.mark.parametrize("length", [0, 1, 63, 65, 70, 71, 72, 128])
def test_a_signature_of_another_form_is_none(length: int) -> None:
    der = KEY.sign(b"content", ec.ECDSA(SHA256()))
    raw = sign(KEY, b"content")
    assert not is_signed(KEY.public_key(), (der + bytes(128))[:length], b"content")
    assert not is_signed(KEY.public_key(), (raw + bytes(128))[:length], b"content")
    assert not is_signed(KEY.public_key(), raw[32:] + raw[:32], b"content")


@pytest.mark.parametrize("curve", [ec.SECP256K1(), ec.BrainpoolP256R1()])
def test_a_point_of_another_curve_is_no_key(curve: ec.EllipticCurve) -> None:
    content = p256_point(ec.generate_private_key(curve).public_key())
    with pytest.raises(ValueError, match=r"(?i)point|key|curve"):
        public_key(content)


@pytest.mark.parametrize("first", [0, 2, 3, 5, 6, 7, 255])
def test_a_point_in_another_form_is_no_key(first: int) -> None:
    x_and_y = p256_point(KEY.public_key())[1:]
    with pytest.raises(ValueError, match=r"(?i)point|key|encod"):
        public_key(bytes([first]) + x_and_y)


# ---- nonces and ids ----------------------------------------------------------------------------


def test_an_id_is_used_once() -> None:
    nonces = Nonces(Ticks())
    first = made(nonces)
    assert nonces.is_fresh(first)
    assert nonces.is_fresh(first), "looking does not use it"
    nonces.use(first)
    assert not nonces.is_fresh(first)
    assert nonces.is_fresh(made(nonces))


def test_a_nonce_that_ends_while_a_proof_is_verified_makes_it_stale() -> None:
    ticks = Ticks()
    nonces = Nonces(ticks)
    first = made(nonces)
    assert nonces.is_fresh(first)
    ticks.now += 2 * NONCE_SECONDS
    assert not nonces.use(first)
    again = made(nonces)
    assert nonces.use(again)
    assert not nonces.use(again)


def test_a_proof_is_valid_within_a_minute_of_the_hubs_clock() -> None:
    ticks = Ticks()
    nonces = Nonces(ticks)
    assert nonces.is_fresh(made(nonces, seconds=LATE_SECONDS))
    assert not nonces.is_fresh(made(nonces, seconds=LATE_SECONDS + 1))
    old = made(nonces)
    ticks.now += LATE_SECONDS + 1
    assert not nonces.is_fresh(old)


def test_a_nonce_is_replaced_and_stays_valid_for_as_long_again() -> None:
    ticks = Ticks()
    nonces = Nonces(ticks)
    first = nonces.newest().nonce
    ticks.now += NONCE_SECONDS - 1
    assert nonces.newest().nonce == first
    ticks.now += 1
    second = nonces.newest().nonce
    assert second != first
    assert nonces.is_valid(first)
    ticks.now += NONCE_SECONDS
    assert not nonces.is_valid(first)
    assert nonces.is_valid(second)
    ticks.now += 2 * NONCE_SECONDS
    assert not nonces.is_valid(second), "also if no request was sent meanwhile"


def test_another_start_has_other_nonces() -> None:
    before, after = Nonces(Ticks()), Nonces(Ticks())
    assert not after.is_fresh(made(before))


def test_ids_take_a_bounded_memory_and_stay_used_while_their_nonce_is_valid() -> None:
    nonces = Nonces(Ticks(), ids_per_nonce=100)
    used: list[Proof] = []
    for _ in range(1_000):
        used.append(made(nonces))
        assert nonces.is_fresh(used[-1])
        nonces.use(used[-1])
        assert nonces.stored_ids <= 200
    assert not any(nonces.is_fresh(each) for each in used)


# ---- over the network --------------------------------------------------------------------------


@asynccontextmanager
async def paired(
    folder: Path, parser: Parser = "h11"
) -> AsyncIterator[tuple[GuardedServer, SigningBrowser]]:
    async with open_guarded(folder, parser) as guarded:
        yield guarded, await guarded.browser("admin")


@pytest.mark.parametrize("parser", PARSERS)
async def test_a_browser_signs_what_it_sends_whatever_its_address_contains(
    tmp_path: Path, parser: Parser
) -> None:
    async with paired(tmp_path, parser) as (_guarded, browser):
        for path in (
            "/api/secret",
            "/api/secret?",
            "/api/secret?session=a%3A1&session=b%3A2&host=",
            "/api/secret?q=%E6%BC%A2+%2520&x=a/b?c",
        ):
            target = path.removesuffix("?")  # a browser leaves out a lone question mark
            line = await browser.line("GET", target)
            reply = await browser.served.ask(f"GET {path} HTTP/1.1", line)
            assert reply.status == 200, (path, reply.body)
        assert (await browser.call("GET", "/api/devices/~Li4vZGV2aWNlcw")).status == 405


async def test_a_proof_that_was_sent_works_neither_again_nor_after_a_restart(
    tmp_path: Path,
) -> None:
    async with paired(tmp_path) as (guarded, browser):
        line = await browser.line("GET", "/api/secret")
        unsent = await browser.line("GET", "/api/secret")
        assert (await guarded.get("/api/secret", line)).status == 200
        again = await guarded.get("/api/secret", line)
        assert (again.status, again.json["error"]["code"]) == (401, "quarterdeck/stale-signature")
        assert "GET /api/nonce" in again.json["error"]["message"]
    async with open_guarded(tmp_path) as restarted:
        here = replace(browser, served=restarted.served, host=restarted.served.host)
        here = replace(here, origin=restarted.served.origin)
        for old in (line, unsent):
            assert (await restarted.get("/api/secret", old)).status == 401
        assert (await here.call("GET", "/api/secret")).status == 200, "the key is stored"


async def test_a_rejected_proof_says_what_is_wrong(tmp_path: Path) -> None:
    async with paired(tmp_path) as (guarded, browser):
        signing = await browser.signing("GET", "/api/secret")
        codes = {
            "quarterdeck/stale-signature": replace(signing, time=signing.time - 70_000),
            "quarterdeck/wrong-signature": replace(signing, target="/api/ticks"),
            "quarterdeck/unauthorized": replace(signing, device_id="dev_gone"),
        }
        for code, wrong in codes.items():
            refused = await guarded.get("/api/secret", authorization(browser.proof(wrong)))
            assert (refused.status, refused.json["error"]["code"]) == (401, code)
            assert refused.header("www-authenticate") is not None
        await guarded.auth.devices.revoke(browser.device_id)
        refused = await browser.call("GET", "/api/secret")
        assert (refused.status, refused.json["error"]["code"]) == (401, "quarterdeck/unauthorized")


async def test_the_hub_proves_who_it_is(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        _, codes = await guarded.auth.pairings.create(scope="view")
        _, reply = await pair_browser(guarded.served, codes.long)
        key = public_key(from_base64url(reply.json["hubKey"]))
        challenge = random_text()
        answer = (await guarded.get(f"/api/nonce?challenge={challenge}")).json
        signature = from_base64url(answer["signature"])
        lines = ("quarterdeck-hub-1", guarded.served.origin, challenge)
        said = (*lines, answer["nonce"], str(answer["time"]))
        assert is_signed(key, signature, "\n".join(said).encode())
        assert not is_signed(key, signature, "\n".join((*lines[:2], random_text())).encode())
        for query in ("", "?challenge=short", f"?challenge={'x' * 200}", "?challenge=a%0Ab" * 8):
            assert (await guarded.get(f"/api/nonce{query}")).status == 400
    async with open_guarded(tmp_path) as restarted:
        assert restarted.auth.hub_key.public == reply.json["hubKey"]
        other = (await restarted.get(f"/api/nonce?challenge={challenge}")).json
        assert other["nonce"] != answer["nonce"]


async def test_a_key_is_registered_only_by_the_browser_that_holds_it(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        _, codes = await guarded.auth.pairings.create(scope="admin")
        origin, code = guarded.served.origin, codes.long
        nonce = guarded.auth.nonces.newest().nonce
        valid = registration(KEY, code, origin, nonce)
        off_curve = base64url(b"\x04" + bytes(64))
        for wrong in (
            {**valid, "publicKey": point(OTHER)},
            {**valid, "publicKey": off_curve},
            {**valid, "signature": base64url(bytes(64))},
            registration(KEY, code, "http://127.0.0.1:1", nonce),
            registration(KEY, "AAAA-AAAA", origin, nonce),
            registration(KEY, code, origin, random_text()),
            {**valid, "nonce": random_text()},
        ):
            body = {"code": code, "key": wrong}
            refused = await guarded.served.call("POST", "/api/pair", json=body)
            assert refused.status == 400, wrong
            assert refused.json["error"]["message"].endswith("try again")
        assert len(guarded.auth.devices.all) == 1
        paired = await guarded.served.call("POST", "/api/pair", json={"code": code, "key": valid})
        assert paired.status == 200, "the code was not used up"


async def test_codes_end_with_the_hub(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        _, codes = await guarded.auth.pairings.create(scope="admin")
    async with open_guarded(tmp_path) as restarted:
        for code in (codes.long, codes.short):
            refused = await restarted.served.call("POST", "/api/pair", json={"code": code})
            assert refused.status == 403
        assert await restarted.auth.pairings.usable() == []


async def test_the_public_key_of_a_browser_is_no_secret(tmp_path: Path) -> None:
    async with paired(tmp_path) as (guarded, browser):
        public = point(browser.key)
        for guess in (public, from_base64url(public).hex(), browser.device_id, "", "qd_" + public):
            assert (await guarded.get("/api/secret", token=guess)).status == 401
            basic = authorization(guess)
            assert (await guarded.get("/api/secret", basic)).status == 401
