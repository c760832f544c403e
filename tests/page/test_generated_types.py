"""The page's generated types are those of the hub and the protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tools.gen_web_types import (
    API,
    EVENTS,
    STATE,
    api_module,
    events_module,
    hub_document,
    state_module,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "generate"),
    [
        (API, lambda: api_module(anyio.run(hub_document))),
        (EVENTS, events_module),
        (STATE, state_module),
    ],
    ids=["api", "events", "state"],
)
def test_generated_types_are_up_to_date(name: str, generate: Callable[[], str]) -> None:
    committed = (ROOT / name).read_text(encoding="utf-8")
    assert committed == generate(), "run python tools/gen_web_types.py"
