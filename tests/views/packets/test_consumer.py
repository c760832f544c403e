"""A consumer that knows only the description of packets can live on what we stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.host import Host
from quarterdeck.testing import scripted_agent
from quarterdeck.views.packets import PacketProjector, PacketReader, encode_packet
from tests.views.packets.consumer import PACKETS, Consumer
from tests.views.packets.golden import GOLDEN
from tests.views.shapes import Misfit

FILES = sorted(GOLDEN.glob("*.json"))
Json = dict[str, Any]


def sessions(path: Path) -> list[list[Json]]:
    return [session["packets"] for session in json.loads(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_reads_the_golden_projections(path: Path) -> None:
    for packets in sessions(path):
        consumer = Consumer()
        for packet in packets:
            consumer.take(packet)
        assert sum(consumer.seen.values()) + sum(consumer.skipped.values()) == len(packets)


def test_the_golden_projections_have_every_packet_that_is_described() -> None:
    consumers = []
    for packets in (packets for path in FILES for packets in sessions(path)):
        consumers.append(Consumer())
        for packet in packets:
            consumers[-1].take(packet)
    assert {kind for consumer in consumers for kind in consumer.seen} == set(PACKETS)
    assert any(consumer.artifacts and consumer.plan for consumer in consumers)


CHUNK: Json = {
    "_meta": None,
    "content": {"_meta": None, "annotations": None, "text": "I'll help", "type": "text"},
    "sessionUpdate": "agent_message_chunk",
    "type": "agent_message_chunk",
}
START: Json = {
    "_meta": None,
    "content": None,
    "kind": "search",
    "locations": [],
    "rawInput": {},
    "rawOutput": None,
    "status": "pending",
    "title": "glob",
    "toolCallId": "toolu_01",
    "sessionUpdate": "tool_call",
}
PROGRESS = {
    **START,
    "type": "tool_call_progress",
    "sessionUpdate": "tool_call_update",
    "status": "completed",
    "timestamp": "2026-01-22T19:13:30.917345+00:00",
}


@pytest.mark.parametrize(
    "stream",
    [
        [{**CHUNK, "content": "text"}],
        [{key: value for key, value in CHUNK.items() if key != "_meta"}],
        [{**CHUNK, "timestamp": "2026-01-22T19:13:30+00:00"}],
        [{**START, "status": "in_progress"}],
        [{**START, "kind": "fetch"}],
        [{**PROGRESS, "status": "in_progress"}],
        [START, {**PROGRESS, "timestamp": "yesterday"}],
        [START, START],
        [START, {"_meta": {}, "stopReason": "end_turn", "type": "prompt_response"}],
        [{"_meta": None, "stopReason": "end_turn", "type": "prompt_response"}],
        [{"type": "error", "message": "no", "code": 5}],
    ],
)
def test_it_refuses_what_is_not_described(stream: list[Json]) -> None:
    consumer = Consumer()
    *right, wrong = stream
    for packet in right:
        consumer.take(packet)
    with pytest.raises(Misfit):
        consumer.take(wrong)


@pytest.mark.anyio
async def test_it_follows_a_session_of_a_real_agent_over_a_stream(tmp_path: Path) -> None:
    diff = {"path": "{cwd}/outputs/a.py", "new": "print()\n"}
    todos = [{"content": "Write", "status": "pending", "activeForm": "Writing"}]
    steps = [
        {"say": "I'll write it.", "pieces": 3},
        {"tool": "t1", "title": "todowrite", "kind": "other"},
        {"finish": "t1", "title": "1 todos", "input": {"todos": todos}},
        {"plan": ["[>] Write"]},
        {"tool": "t2", "title": "write", "kind": "edit"},
        {"finish": "t2", "title": "outputs/a.py", "diff": diff, "text": "Wrote file."},
    ]
    program, *arguments = scripted_agent({"name": "x", "turns": [{"steps": steps}]}, pace=0)
    consumer, reader = Consumer(), PacketReader()
    with anyio.fail_after(60):
        async with Host() as host:
            agent = await host.spawn_agent({"id": "x", "command": program, "args": arguments})
            session = await host.create_session(agent.agent_id, cwd=str(tmp_path))
            projector = PacketProjector(session)
            stream: list[bytes] = []
            over = anyio.Event()

            def on_event(event: Any) -> None:
                stream.extend(map(encode_packet, projector.feed(event)))
                if event.type == "prompt-finished":
                    over.set()

            host.subscribe(session.session_id, 0, on_event)
            await host.prompt(session.session_id, "Write a page")
            await over.wait()
    for packet in (packet for part in stream for packet in reader.feed(part)):
        consumer.take(packet)
    assert consumer.text == "I'll write it."
    assert [card.title for card in consumer.cards.values()] == ["Todos", "Writing file"]
    assert [entry["status"] for entry in consumer.plan] == ["in_progress"]
    assert consumer.turns == ["end_turn"]
