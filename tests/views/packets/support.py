"""Vectors, and logs to project."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from quarterdeck.protocol import Event, make_session_event, normalize_session_update
from quarterdeck.views.packets import PacketProjector
from quarterdeck.views.packets.projection import Style

Json = dict[str, Any]
VECTORS = Path(__file__).parents[2] / "vectors/packets"
SESSION = "s"
TS = 1769109210917.345
"""2026-01-22T19:13:30.917345+00:00"""
TIME = "2026-01-22T19:13:30.917345+00:00"


def vectors(*names: str, key: str = "vectors") -> list[Json]:
    """Return the vectors of some files, each with the number of its file in its id."""
    found = []
    for name in names:
        (path,) = VECTORS.glob(f"{name}-*.json")
        for number, vector in enumerate(json.loads(path.read_text(encoding="utf-8"))[key]):
            found.append({**vector, "id": f"{name}/{vector.get('id', number)}"})
    return found


def event(kind: str, payload: Mapping[str, Any], seq: int = 1, **fields: Any) -> Event:
    fields = {"session_id": SESSION, "ts": TS, **fields}
    session_id = fields.pop("session_id")
    return make_session_event(kind, session_id, seq=seq, payload=payload, **fields)


def update(sent: Json, seq: int = 1, **fields: Any) -> Event:
    """Return the event of what an agent sent."""
    normalized = normalize_session_update(sent)
    return event(
        normalized.type, normalized.payload, seq, extensions=normalized.extensions, **fields
    )


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def finished(reason: str = "end_turn", **more: Any) -> Event:
    return event("prompt-finished", {"stopReason": reason, **more})


def status(name: str) -> Event:
    return event("session-status-change", {"status": name})


def project(events: Iterable[Event], style: Style = "plain") -> list[Json]:
    projector = PacketProjector(SESSION, style=style)
    return [packet for each in events for packet in projector.feed(each)]


def types(packets: Iterable[Json]) -> list[str]:
    return [packet.get("type") or packet["sessionUpdate"] for packet in packets]
