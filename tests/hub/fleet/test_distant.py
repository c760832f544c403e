"""The hub works over the runner of another machine as over its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarterdeck.hub.fleet.fleet import Fleet
from quarterdeck.hub.fleet.translated import TranslatedRunner
from quarterdeck.runner import RunnerApi
from tests.hub.fleet.distant import DistantFleet
from tests.runner.test_api_copies import CASES, Case

BEHIND = {
    "test_a_session_is_forked_and_listed_with_its_source",
    "test_history_comes_in_pages_as_it_is_stored",
    "test_a_session_that_was_closed_before_the_hub_began_can_be_read",
}
"""Cases that look behind the hub with its ids, which the machine spells otherwise."""
DISTANT = [case for case in CASES if case.__name__ not in BEHIND]


@pytest.mark.parametrize("case", DISTANT, ids=lambda case: case.__name__)
async def test_the_hub_works_over_another_machine(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.hub.hub.Fleet", DistantFleet)
    monkeypatch.setattr("quarterdeck.hub.editors.access.agent_name_of", lambda each: each.agent)
    await case(tmp_path)


@pytest.mark.parametrize("kind", [Fleet, TranslatedRunner])
def test_a_fleet_has_everything_of_the_api(kind: type) -> None:
    names = [name for name in dir(RunnerApi) if not name.startswith("_")]
    assert [name for name in names if not hasattr(kind, name)] == []
