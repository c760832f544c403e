"""`hub.reach.probe`: addresses that do not lead to the hub, and names that only seem to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from quarterdeck.hub.auth.device_keys import HubKey, hub_key
from quarterdeck.hub.auth.request_signatures import NonceAndTime
from quarterdeck.hub.reach.probe import try_target
from quarterdeck.hub.reach.ways import Target

GIVEN = NonceAndTime("nonce", 5)


@pytest.fixture
def key(tmp_path: Path) -> HubKey:
    return hub_key(tmp_path / "identity.key")


def public(origin: str) -> Target:
    return Target(kind="public", origin=origin)


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["127.0.1.1", "::1"], ["0.0.0.0"], ["::ffff:127.0.0.1"], []]
)
async def test_a_name_that_leads_to_this_computer_alone_is_refused_unasked(
    key: HubKey, addresses: list[str]
) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return addresses

    outcome = await try_target(public("https://desk.example"), key, resolve=resolve)
    assert outcome.problem == "it resolves to this computer only"


async def test_a_name_that_cannot_be_resolved_is_refused(key: HubKey) -> None:
    async def resolve(_host: str, _port: int) -> Sequence[str]:
        raise OSError("no such name")

    outcome = await try_target(public("https://desk.example"), key, resolve=resolve)
    assert outcome.problem == "its name cannot be resolved"


async def test_an_address_without_tls_is_refused(key: HubKey) -> None:
    assert (await try_target(public("http://desk.example"), key)).problem == "it has no TLS"


def test_only_the_hub_itself_signs_a_challenge_for_its_origin(key: HubKey, tmp_path: Path) -> None:
    signature = key.answer("challenge", "https://desk.example", GIVEN)
    assert key.is_own_answer(signature, "challenge", "https://desk.example", GIVEN)
    other = hub_key(tmp_path / "other.key")
    for stranger, challenge, origin in (
        (other, "challenge", "https://desk.example"),
        (key, "another", "https://desk.example"),
        (key, "challenge", "https://other.example"),
    ):
        assert not stranger.is_own_answer(signature, challenge, origin, GIVEN)
    assert not key.is_own_answer("not base64!", "challenge", "https://desk.example", GIVEN)
