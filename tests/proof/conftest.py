"""The computers that all proofs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proof.agents import AGENTS
from tests.proof.network import PLACES
from tests.proof.world import World, running_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_world(tmp_path_factory.mktemp("world"), dict.fromkeys(PLACES, AGENTS)) as found:
        found.codes["a"] = found.join("a")
        found.codes["b"] = found.join("b", is_direct=True)
        found.codes["c"] = found.join("c")
        print(f"\njoin, from the command to the list: {found.join_seconds}")
        assert max(found.join_seconds.values()) <= 10
        yield found
