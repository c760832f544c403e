"""Golden projections: recordings of real agents, played through a host, and their packets.

To make them again after a deliberate change, and then to read what changed:

    python -m tests.views.packets.golden RECORDING...
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import anyio

from quarterdeck.protocol import Event, decode_event, to_json
from quarterdeck.views.packets import PacketProjector, PacketRows
from quarterdeck.views.packets.projector import ClearRows
from tests.host.faults.replay import play
from tests.views.packets.support import VECTORS, Json

GOLDEN = VECTORS / "golden"
FIRST_TS = 1769109210000
# Long, and of no packet.
LEFT_OUT = frozenset(
    {
        "available-commands-update",
        "config-options-update",
        "session-config-init",
        "session-info-update",
    }
)


async def recorded(recording: Path, left_out: Collection[str] = LEFT_OUT) -> dict[str, list[Json]]:
    """Play a recording; return the log of each session, the same every time."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = await play(recording, Path(folder))
    assert not outcome.problems
    return {name: _settled(events, left_out) for name, events in outcome.logs.items()}


def _settled(events: list[Event], left_out: Collection[str]) -> list[Json]:
    """Replace what differs from run to run: numbers, times, and the ids that the host gives."""
    settled: list[Json] = []
    names: dict[str, str] = {}
    for event in events:
        if event.type in left_out:
            continue
        seq = len(settled) + 1
        settled.append({**to_json(event), "seq": seq, "ts": FIRST_TS + 10 * seq})
        payload = settled[-1]["payload"]
        if "requestId" in payload:
            given = payload["requestId"]
            payload["requestId"] = names.setdefault(given, f"request-{len(names) + 1}")
        if str(payload.get("messageId")).startswith("quarterdeck-prompt-"):
            payload["messageId"] = names.setdefault(
                payload["messageId"], f"prompt-{len(names) + 1}"
            )
    return settled


def projected(session: str, log: Iterable[Json]) -> list[Json]:
    projector = PacketProjector(session)
    return [packet for each in log for packet in projector.feed(decode_event(each))]


def kept(session: str, log: Iterable[Json]) -> list[Any]:
    packet_rows = PacketRows(session)
    rows = [
        row for each in log for row in packet_rows.feed(decode_event(each))
    ] + packet_rows.finish()
    return [
        "clear" if isinstance(row, ClearRows) else [type(row).__name__, row.turn, row.packet]
        for row in rows
    ]


def golden(logs: dict[str, list[Json]]) -> list[Json]:
    return [
        {"session": name, "log": log, "packets": projected(name, log), "rows": kept(name, log)}
        for name, log in logs.items()
    ]


def written(sessions: list[Json]) -> str:
    """Write one line per event, packet and row, to be read by people."""
    parts = []
    for session in sessions:
        lines = [f'{{"session": {json.dumps(session["session"])}']
        for key in [key for key in session if key != "session"]:
            inner = ",\n  ".join(json.dumps(each, ensure_ascii=False) for each in session[key])
            lines.append(f'"{key}": [\n  {inner}\n ]' if inner else f'"{key}": []')
        parts.append(",\n ".join(lines) + "}")
    return "[" + ",\n".join(parts) + "]\n"


async def main(recordings: list[Path]) -> None:
    GOLDEN.mkdir(exist_ok=True)
    for path in recordings:
        name = path.stem if path.parent.name == "traces" else f"{path.parent.name}-{path.stem}"
        (GOLDEN / f"{name}.json").write_text(
            written(golden(await recorded(path))), encoding="utf-8"
        )


if __name__ == "__main__":
    anyio.run(main, [Path(name) for name in sys.argv[1:]])
