"""Recordings of real agents through a host, and one made up of what no agent sends, as packets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quarterdeck.views.packets import PACKET_TYPES, packet_type
from tests.views.packets.golden import GOLDEN, golden, kept, projected, recorded
from tests.views.packets.support import VECTORS, Json

FILES = sorted(GOLDEN.glob("*.json"))
TRACES = VECTORS.parent / "traces"
PLAYABLE = [path for path in FILES if (TRACES / f"{path.stem}.jsonl").exists()]


def read(path: Path) -> list[Json]:
    sessions: list[Json] = json.loads(path.read_text(encoding="utf-8"))
    return sessions


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_log_of_a_recording_gives_the_packets_that_were_reviewed(path: Path) -> None:
    for session in read(path):
        assert projected(session["session"], session["log"]) == session["packets"]
        assert kept(session["session"], session["log"]) == session["rows"]


def test_every_packet_is_in_a_recording() -> None:
    packets = [packet for path in FILES for session in read(path) for packet in session["packets"]]
    assert {packet_type(packet) for packet in packets} == set(PACKET_TYPES)


def test_some_recordings_can_be_played() -> None:
    assert len(PLAYABLE) >= 4


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("path", PLAYABLE, ids=lambda path: path.stem)
async def test_a_recording_played_through_a_host_gives_the_same(path: Path) -> None:
    assert golden(await recorded(TRACES / f"{path.stem}.jsonl")) == read(path)
