"""Plays recordings of agents with ACP 2 through a host: the agent's side verbatim.

A prompt of ACP 2 is answered when it is inserted, and its turn ends with `idle`: that is where a
call of the host returns. A resume with `replayFrom` is what the host calls a load.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quarterdeck.host import Host
from quarterdeck.protocol import Event
from tests.host.faults import replay
from tests.host.faults.kit import HERE, Seen, definition, running
from tests.host.faults.replay import CANCELLED, Json, Player, Recording


async def _resume(host: Host, params: Json, cwd: str) -> None:
    open_session = host.resume_session if params.get("replayFrom") is None else host.load_session
    await open_session("agent-1", params["sessionId"], cwd=cwd)


class Acp2Recording(Recording):
    """A recording whose prompts end when the agent is idle."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for call in self.calls:
            if call.method == "session/prompt" and call.answered_at is not None:
                call.answered_at = _idle_after(records, call.answered_at, call.params["sessionId"])


def _idle_after(records: list[Json], answered_at: int, session_id: str) -> int | None:
    if "error" in records[answered_at]["msg"]:
        return answered_at
    for n, record in enumerate(records[answered_at:], answered_at):
        message = record["msg"]
        params = message.get("params") if isinstance(message, dict) else None
        if record["dir"] == "a2c" and isinstance(params, dict):
            update = params.get("update") or {}
            is_idle = update.get("state") == "idle" and params.get("sessionId") == session_id
            if is_idle and update.get("sessionUpdate") == "state_update":
                return n
    return None


@dataclass
class Played:
    """What a host made of a recording."""

    recording: Recording
    logs: dict[str, list[Event]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    host_events: list[Event] = field(default_factory=list)

    def diagnostics(self) -> list[str]:
        codes = [each.payload for each in self.host_events if each.type == "diagnostic"]
        return [
            each["code"]
            for each in codes
            if each["level"] != "info"
            and not str((each.get("data") or {}).get("text")).startswith("replay expects ")
        ]


async def play(path: Path, folder: Path, *, protocol: Any = "auto") -> Played:
    """Play a recording; permission requests are answered as they were."""
    is_second = "-v2-" in path.name
    recording = Acp2Recording(path) if is_second else Recording(path)
    (folder / "steps.json").write_text(json.dumps(recording.steps))
    (folder / "skipped").write_text("")
    command = [sys.executable, "-I", "-S", str(HERE / "replay_agent.py")]
    agent = definition([*command, str(folder / "steps.json"), str(folder / "skipped")])
    played, outcomes, host_seen = Played(recording), iter(recording.outcomes), Seen()
    async with running(kill_timeout_ms=2000) as host:
        player = Player(recording, folder, host, host_seen)

        def follow(event: Event) -> None:
            host_seen(event)
            session_id = event.payload.get("sessionId")
            if event.type == "session-updated" and session_id not in played.logs:
                host.subscribe(session_id, 0, played.logs.setdefault(session_id, []).append)
            if event.type == "permission-updated" and event.payload["status"] == "pending":
                _ = host.respond_permission(event.payload["requestId"], next(outcomes, CANCELLED))

        host.subscribe(None, 0, follow)
        await host.spawn_agent({**agent, "protocol": protocol})
        await player.play()
        await host_seen.first("diagnostic", code="agent/exit")
    played.refused, played.host_events = dict(player.refused), host_seen.events
    return played


replay.CALLS["session/resume"] = _resume
