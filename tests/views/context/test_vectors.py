"""Recordings of real agents through a host, and a log made up, as they were once read."""

from __future__ import annotations

import pytest

from quarterdeck.views.context.events import EVENT_CLASSES
from tests.views.context.golden import (
    GOLDEN,
    LEFT_OUT,
    MADE_UP,
    RECORDINGS,
    TRACES,
    golden,
    made_up,
    projected,
    read,
)
from tests.views.packets.golden import recorded


@pytest.mark.parametrize("name", [*RECORDINGS, MADE_UP])
def test_the_log_of_a_recording_gives_the_reviewed_events(name: str) -> None:
    for session in read(name):
        assert projected(session["session"], session["log"]) == session["context"]


def test_every_golden_projection_has_its_log() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted([*RECORDINGS, MADE_UP])
    assert len(RECORDINGS) >= 12


def test_every_event_type_is_in_a_golden_projection() -> None:
    emitted = [
        event["type"]
        for name in [*RECORDINGS, MADE_UP]
        for session in read(name)
        for event in session["context"]
    ]
    assert set(emitted) == set(EVENT_CLASSES)


def test_the_log_that_is_made_up_is_the_one_that_is_kept() -> None:
    assert golden(made_up()) == read(MADE_UP)


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("name", RECORDINGS)
async def test_a_recording_played_through_a_host_gives_the_same(name: str) -> None:
    assert golden(await recorded(TRACES / f"{name}.jsonl", LEFT_OUT)) == read(name)
