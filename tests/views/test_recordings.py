"""Recordings of real agents, played through a real host, in both vocabularies."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quarterdeck.protocol import Event
from quarterdeck.views.context import ContextProjector, decode_context_event, encode_context_event
from quarterdeck.views.packets import PACKET_TYPES, PacketProjector, packet_type
from tests.host.faults.replay import play
from tests.views.context.consumer import Consumer as ContextConsumer
from tests.views.packets.consumer import Consumer as PacketConsumer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

RECORDINGS = sorted((Path(__file__).parents[1] / "vectors/traces").glob("*.jsonl"))


def fed(projector: Any, events: list[Event]) -> list[Any]:
    return [emitted for event in events for emitted in projector.feed(event)]


def in_two_pieces(projector: Any, events: list[Event]) -> list[list[Any]]:
    """Return the output if a copy of the projector continues after the first, second, … event."""
    emitted: list[Any] = []
    pieces = []
    for at, event in enumerate(events):
        rest = fed(copy.deepcopy(projector), events[at:])
        pieces.append([*copy.deepcopy(emitted), *rest])
        emitted += projector.feed(event)
    return pieces


def check_context(session_id: str, events: list[Event]) -> None:
    facts = {"sessionId": session_id, "cwd": "/workspace/project", "agentDefinitionId": "x"}
    whole = fed(ContextProjector(facts), events)
    consumer = ContextConsumer()
    for event in whole:
        sent = encode_context_event(event)
        assert decode_context_event(sent) == event
        consumer.take(json.loads(sent))
    assert all(piece == whole for piece in in_two_pieces(ContextProjector(facts), events))
    assert whole


def check_packets(session_id: str, events: list[Event]) -> None:
    whole = fed(PacketProjector(session_id), events)
    consumer = PacketConsumer()
    for packet in whole:
        msgspec.convert(packet, PACKET_TYPES[packet_type(packet) or ""])
        consumer.take(packet)
    assert all(piece == whole for piece in in_two_pieces(PacketProjector(session_id), events))


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
async def test_a_log_of_the_host_gives_valid_output_and_the_same_at_every_cut(
    recording: Path, tmp_path: Path
) -> None:
    outcome = await play(recording, tmp_path)
    assert outcome.problems == []
    assert outcome.logs
    for session_id, events in outcome.logs.items():
        check_context(session_id, events)
        check_packets(session_id, events)
