"""The hub works over a runner that is reached through the link as over one in its own process."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarterdeck.runner import RunnerApi
from quarterdeck.runner.link.remote import RemoteRunner
from tests.runner.link.linked import LinkedRunner
from tests.runner.test_api_copies import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_hub_works_over_the_link(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.hub.hub.Runner", LinkedRunner)
    await case(tmp_path)


def test_a_remote_runner_has_everything_of_the_api() -> None:
    names = [name for name in dir(RunnerApi) if not name.startswith("_")]
    assert len(names) > 50
    assert [name for name in names if not hasattr(RemoteRunner, name)] == []
