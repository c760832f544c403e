"""The release gate of the hub, with a runner in another process: over the link."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quarterdeck.runner import RunnerOptions
from tests.hub import test_whole_hub as gate
from tests.hub.auth import test_local_peers as peers
from tests.hub.served import PARSERS, Parser
from tests.runner.link.linked import LinkedRunner

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _over_the_link(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[LinkedRunner] = []

    def make(options: RunnerOptions) -> LinkedRunner:
        made.append(LinkedRunner(options))
        return made[-1]

    monkeypatch.setattr("quarterdeck.hub.hub.Runner", make)
    yield
    assert [each.server.identity.pid for each in made]


@pytest.mark.parametrize("parser", PARSERS)
async def test_no_attack_gets_through_to_any_endpoint(tmp_path: Path, parser: Parser) -> None:
    await gate.test_no_attack_gets_through_to_any_endpoint_of_a_hub(tmp_path, parser)


async def test_a_device_reaches_nothing_above_its_scope(tmp_path: Path) -> None:
    await gate.test_a_device_reaches_nothing_above_its_scope(tmp_path)


async def test_after_a_whole_turn_tokens_are_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await gate.test_after_a_whole_turn_tokens_are_nowhere(tmp_path, caplog)


async def test_no_process_of_an_agent_reaches_a_route(tmp_path: Path) -> None:
    await peers.test_no_process_of_an_agent_reaches_a_route_as_the_owner_or_with_a_stolen_token(
        tmp_path, "daemon", False
    )
