"""Golden projections: recordings of real agents, played through a host, and their context events.

To make them again after a deliberate change, and then to read what changed:

    python -m tests.views.context.golden
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio

from quarterdeck.protocol import decode_event, to_json
from quarterdeck.views.context import ContextProjector, encode_context_event
from tests.views.context.example_log import everything
from tests.views.packets.golden import recorded, written

VECTORS = Path(__file__).parents[2] / "vectors"
TRACES = VECTORS / "traces"
GOLDEN = VECTORS / "context"
MADE_UP = "made-up"
RECORDINGS = (
    "claude-edit_allow",
    "cline-cancel_stream",
    "codex-perm_cancel",
    "fast-agent-sessions_2",
    "gemini-edit_allow",
    "gemini-sigkill_running",
    "goose-shell_allow",
    "kimi-code-ask",
    "kimi-code-task",
    "opencode-errors",
    "opencode-plan",
    "vibe-outside",
)
# Long, and emitted as they are.
LEFT_OUT = frozenset({"available-commands-update", "config-options-update"})
Json = dict[str, Any]


def projected(session: str, log: Iterable[Json]) -> list[Json]:
    """Project a log, with the facts that every golden projection has."""
    facts = {"sessionId": session, "cwd": "/workspace/project", "agentDefinitionId": "recorded"}
    projector = ContextProjector(facts)
    emitted = [event for each in log for event in projector.feed(decode_event(each))]
    return [json.loads(encode_context_event(event)) for event in emitted]


def golden(logs: dict[str, list[Json]]) -> list[Json]:
    return [
        {"session": name, "log": log, "context": projected(name, log)} for name, log in logs.items()
    ]


def made_up() -> dict[str, list[Json]]:
    """Return the log of what no agent of the recordings does."""
    return {"s": [to_json(event) for event in everything().events]}


def read(name: str) -> list[Json]:
    sessions: list[Json] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return sessions


async def main() -> None:
    logs = {name: await recorded(TRACES / f"{name}.jsonl", LEFT_OUT) for name in RECORDINGS}
    logs[MADE_UP] = made_up()
    for name, each in logs.items():
        (GOLDEN / f"{name}.json").write_text(written(golden(each)), encoding="utf-8")


if __name__ == "__main__":
    anyio.run(main)
