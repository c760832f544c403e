"""Recordings of real agents, projected: each as it was once read and found right."""

from __future__ import annotations

import json

import pytest

from quarterdeck.dialects.context import EVENT_CLASSES
from tests.dialects.context.recordings import (
    GOLDEN,
    RECORDINGS,
    TRACES,
    log_of,
    project,
    shortened,
)
from tests.dialects.context.story import everything


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_is_told_as_its_golden_projection(name: str) -> None:
    golden = (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    told = [shortened(event) for event in project(log_of(TRACES / f"{name}.jsonl"))]
    assert told == [json.loads(line) for line in golden]


def test_every_golden_projection_has_its_recording() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.jsonl")) == sorted(RECORDINGS)


def test_every_event_type_is_told_by_something_in_a_log() -> None:
    assert set(everything().types()) == set(EVENT_CLASSES)


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_every_recording_is_told_with_dense_numbers(path: object) -> None:
    numbers: dict[str, int] = {}
    for event in project(log_of(TRACES / str(path))):
        assert event.seq == numbers.get(event.session_id, 0) + 1
        numbers[event.session_id] = event.seq
    assert numbers
