"""The release gate of the hub, whole: through a relay, and over a machine that has joined."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarterdeck.hub import hub_endpoints
from tests.hub import test_whole_hub as gate
from tests.hub.attacks import Target, attack_every
from tests.hub.auth.support import owner_token
from tests.hub.fleet.distant import DistantFleet
from tests.hub.relay.kit import watched_behind_relay
from tests.hub.served import PARSERS, Parser

pytestmark = [pytest.mark.anyio, pytest.mark.proof, pytest.mark.timeout(1800)]

# Through a relay there is no other name: rejected before the proof is looked at.
STRICTER = "a proof for another name of the hub: 421"


async def test_no_attack_gets_through_a_relay_to_any_endpoint(tmp_path: Path) -> None:
    reached: list[str] = []
    async with watched_behind_relay(tmp_path, reached) as found:
        endpoints = hub_endpoints(found.hub)
        browser, other = await found.browser("admin"), await found.browser("admin")
        token, newest = owner_token(found.hub.auth.devices), found.hub.auth.nonces.newest
        target = Target(found.phone, token, browser, other, newest, lambda: len(reached))
        holes = [each for each in await attack_every(endpoints, target) if STRICTER not in each]
        assert not holes, "\n".join(holes)
        assert (await browser.call("GET", "/api/device")).status == 200


@pytest.fixture
def _over_a_joined_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quarterdeck.hub.hub.Fleet", DistantFleet)
    monkeypatch.setattr("quarterdeck.hub.editors.access.agent_name_of", lambda each: each.agent)


@pytest.mark.usefixtures("_over_a_joined_machine")
@pytest.mark.parametrize("parser", PARSERS)
async def test_no_attack_gets_through_over_a_joined_machine(tmp_path: Path, parser: Parser) -> None:
    await gate.test_no_attack_gets_through_to_any_endpoint_of_a_hub(tmp_path, parser)


@pytest.mark.usefixtures("_over_a_joined_machine")
async def test_a_device_reaches_nothing_above_its_scope_over_a_joined_machine(
    tmp_path: Path,
) -> None:
    await gate.test_a_device_reaches_nothing_above_its_scope(tmp_path)


@pytest.mark.usefixtures("_over_a_joined_machine")
async def test_tokens_are_nowhere_after_a_turn_on_a_joined_machine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await gate.test_after_a_whole_turn_tokens_are_nowhere(tmp_path, caplog)
