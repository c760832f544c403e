"""Play a recording of a real agent through a host, both sides: the agent's verbatim.

By hand, over all recordings of a folder: `python -m tests.host.faults.replay FOLDER`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import anyio

from quarterdeck.errors import AcpError, RpcError
from quarterdeck.host import Host
from quarterdeck.protocol import Event, Normalized, initial_state, normalize_session_update, reduce
from tests.host.faults.kit import HERE, Seen, definition, running

OURS = {
    "session-config-init",
    "session-reset",
    "session-status-change",
    "permission-request-created",
    "permission-request-resolved",
    "prompt-finished",
}
SET_BY_US = {"current-mode-update", "config-options-update"}  # also emitted when the host sets one
CANCELLED = {"outcome": "cancelled"}
Json = dict[str, Any]
Calls = dict[str, Callable[[Host, Json, str], Awaitable[Any]]]

CALLS: Calls = {
    "session/new": lambda host, params, cwd: host.create_session(
        "agent-1", cwd=cwd, mcp_servers=params.get("mcpServers") or ()
    ),
    "session/load": lambda host, params, cwd: host.load_session(
        "agent-1", params["sessionId"], cwd=cwd
    ),
    "session/resume": lambda host, params, cwd: host.resume_session(
        "agent-1", params["sessionId"], cwd=cwd
    ),
    "session/list": lambda host, params, _cwd: host.list_sessions("agent-1", cwd=params.get("cwd")),
    "session/close": lambda host, params, _cwd: host.close_session(params["sessionId"]),
    "session/delete": lambda host, params, _cwd: host.delete_session(
        "agent-1", params["sessionId"]
    ),
    "session/prompt": lambda host, params, _cwd: host.prompt(
        params["sessionId"], params.get("prompt") or []
    ),
    "session/cancel": lambda host, params, _cwd: host.cancel(params["sessionId"]),
    "session/set_mode": lambda host, params, _cwd: host.set_mode(
        params["sessionId"], params["modeId"]
    ),
    "session/set_config_option": lambda host, params, _cwd: host.set_config_option(
        params["sessionId"],
        params["configId"],
        {k: params[k] for k in ("type", "value") if k in params},
    ),
}


@dataclass
class Call:
    """A call of the recording's client, and its position there."""

    n: int
    method: str
    params: Json
    answered_at: int | None = None
    done: anyio.Event = field(default_factory=anyio.Event)


class Recording:
    """A recording, as steps for the agent and calls for the host.

    Left out: what a host never sends (garbage, unknown methods, a second `initialize`, a second
    prompt while one runs) and the answers to that. What a host only sends later (`session/new`
    before `initialize` was answered) is expected later.
    """

    def __init__(self, path: Path) -> None:
        self.steps: list[list[Any]] = []
        self.calls: list[Call] = []
        self.updates: dict[str, list[Json]] = {}
        self.outcomes: list[Json] = []
        """How the permission requests were answered, in their order."""
        self._permissions: dict[Any, int] = {}
        self._pending: dict[Any, Call] = {}
        records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for n, record in enumerate(records):
            if record["dir"] != "stderr" and isinstance(record["msg"], dict):
                self._take(n, record["dir"], record["msg"])
        self._answer_initialize_at_once()

    def _take(self, n: int, direction: str, message: Json) -> None:
        method = message.get("method")
        is_first = method == "initialize" and not self.calls
        if direction == "c2a" and (method in CALLS or is_first):
            self._take_call(n, message)
        elif direction == "c2a" and message.get("id") in self._permissions:
            answered = (message.get("result") or {}).get("outcome")
            self.outcomes[self._permissions.pop(message["id"])] = answered or CANCELLED
        elif direction == "a2c" and method is not None:
            self.steps.append(["send", message])
            if method == "session/request_permission":
                self._permissions[message["id"]] = len(self.outcomes)
                self.outcomes.append(CANCELLED)
            if method == "session/update":
                params = message["params"]
                self.updates.setdefault(params["sessionId"], []).append(params["update"])
        elif direction == "a2c" and message.get("id") in self._pending:
            call = self._pending.pop(message["id"])
            call.answered_at = n
            self.steps.append(["answer", call.n, message])

    def _take_call(self, n: int, message: Json) -> None:
        call = Call(n, message["method"], message.get("params") or {})
        if call.method == "session/prompt" and any(
            other.method == call.method
            and other.params.get("sessionId") == call.params.get("sessionId")
            for other in self._pending.values()
        ):
            return
        if "id" in message:
            self._pending[message["id"]] = call
        self.calls.append(call)
        self.steps.append(["expect", n, call.method])

    def _answer_initialize_at_once(self) -> None:
        for step in self.steps:
            if step[0] == "answer" and step[1] == self.calls[0].n:
                self.steps.remove(step)
                self.steps.insert(1, step)
                return


@dataclass
class Outcome:
    """What came of it."""

    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    logs: dict[str, list[Event]] = field(default_factory=dict)
    """What the host recorded, by session."""


class Player:
    """The client's side of one recording."""

    def __init__(self, recording: Recording, folder: Path, host: Host, host_seen: Seen) -> None:
        self._recording = recording
        self._host_seen = host_seen
        self._host = host
        self._cwd = str(folder)
        self._skipped = folder / "skipped"
        self.refused: Counter[str] = Counter()

    async def play(self) -> None:
        calls = [call for call in self._recording.calls if call.method != "initialize"]
        async with anyio.create_task_group() as tasks:
            for call, following in zip_longest(calls, calls[1:]):
                for earlier in calls:
                    if earlier.answered_at is not None and earlier.answered_at < call.n:
                        await earlier.done.wait()
                await self._until_expected(call)
                end = following.n if following is not None else sys.maxsize
                if call.answered_at is not None and call.answered_at < end:
                    await self._make(call)
                else:
                    tasks.start_soon(self._make, call)
                    await anyio.wait_all_tasks_blocked()

    async def _until_expected(self, call: Call) -> None:
        """Wait until the agent has sent everything that it sent before this call."""
        facts = {"kind": "noise", "text": f"replay expects {call.n}"}
        await self._host_seen.first("diagnostic", code="agent/misbehaved", data=facts)

    async def _make(self, call: Call) -> None:
        try:
            await CALLS[call.method](self._host, call.params, self._cwd)
        except (AcpError, RpcError) as error:
            self.refused[f"{call.method}: {getattr(error, 'code', '')}"] += 1
            with self._skipped.open("a") as file:
                file.write(f"{call.n}\n")
        finally:
            call.done.set()


async def play(path: Path, folder: Path) -> Outcome:
    """Play a recording and compare the log with it."""
    recording = Recording(path)
    (folder / "steps.json").write_text(json.dumps(recording.steps))
    (folder / "skipped").write_text("")
    command = [sys.executable, "-I", "-S", str(HERE / "replay_agent.py")]
    agent = definition([*command, str(folder / "steps.json"), str(folder / "skipped")])
    outcome = Outcome()
    outcomes = iter(recording.outcomes)
    host_seen = Seen()
    logs = outcome.logs
    async with running(kill_timeout_ms=2000) as host:
        player = Player(recording, folder, host, host_seen)

        def follow(event: Event) -> None:
            host_seen(event)
            if event.type == "session-updated" and event.payload["sessionId"] not in logs:
                session_id = event.payload["sessionId"]
                host.subscribe(session_id, 0, logs.setdefault(session_id, []).append)
            if event.type == "permission-updated" and event.payload["status"] == "pending":
                _ = host.respond_permission(event.payload["requestId"], next(outcomes, CANCELLED))

        host.subscribe(None, 0, follow)
        try:
            await host.spawn_agent(agent)
        except AcpError as error:
            outcome.counts["agents that refused to start"] += 1
            outcome.counts[f"refused initialize: {error.code}"] += 1
            return outcome
        await player.play()
        await host_seen.first("diagnostic", code="agent/exit")
    outcome.counts.update({f"refused {name}": n for name, n in player.refused.items()})
    _compare(recording, logs, host_seen, outcome)
    return outcome


def _compare(
    recording: Recording, logs: dict[str, list[Event]], host_seen: Seen, outcome: Outcome
) -> None:
    codes = Counter(each["code"] for each in host_seen.of("diagnostic") if not _is_marker(each))
    for code in ("event/unserializable", "subscriber/error", "agent/misbehaved"):
        if codes[code]:
            outcome.problems.append(f"{codes[code]} times {code}")
    prompts = [
        block
        for call in recording.calls
        if call.method == "session/prompt"
        for block in call.params.get("prompt") or ()
    ]
    for session_id, updates in recording.updates.items():
        outcome.counts["updates"] += len(updates)
        if session_id not in logs:
            outcome.counts["updates of sessions that were never opened"] += len(updates)
            continue
        expected = map(normalize_session_update, updates)
        lost, unsaid = _differences(expected, logs[session_id], prompts, outcome.counts)
        outcome.problems += unsaid
        # By design, and reported: an agent that resumes a session is not to send its history again.
        if len(lost) == codes["session/resume-replayed-history"]:
            outcome.counts["updates refused while resuming, with a diagnostic"] += len(lost)
        else:
            outcome.problems += lost
    for session_id, events in logs.items():
        outcome.counts["sessions"] += 1
        outcome.counts["events"] += len(events)
        if [event.seq for event in events] != list(range(1, len(events) + 1)):
            outcome.problems.append(f"the log of {session_id} is not dense")
        state = initial_state(session_id)
        for event in events:
            state = reduce(state, event)


def _differences(
    expected: Iterator[Normalized], events: list[Event], prompts: list[Json], counts: Counter[str]
) -> tuple[list[str], list[str]]:
    """Match the recording with the log, in order; return what is only in one of them."""
    logged = [event for event in events if event.type not in OURS and not _is_marked(event)]
    position, lost = 0, []
    for update in expected:
        found = position
        while (
            found < len(logged)
            and logged[found].type in SET_BY_US
            and not _is(logged[found], update)
        ):
            found += 1
        if found < len(logged) and _is(logged[found], update):
            counts["updates recorded"] += 1
            counts["unknown variants kept"] += update.type == "unrecognized-update"
            position = found + 1
        elif update.type == "user-message-chunk" and update.payload.get("content") in prompts:
            counts["echoes of prompts"] += 1
        else:
            lost.append(f"lost or changed: {update}"[:300])
    left = [event for event in logged[position:] if event.type not in SET_BY_US]
    return lost, [f"not in the recording: {event}"[:300] for event in left]


def _is(event: Event, update: Normalized) -> bool:
    return (event.type, event.payload, event.extensions) == (
        update.type,
        update.payload,
        update.extensions,
    )


def _is_marker(diagnostic: Json) -> bool:
    facts = diagnostic.get("data")
    return isinstance(facts, dict) and str(facts.get("text")).startswith("replay expects ")


def _is_marked(event: Event) -> bool:
    return "quarterdeck" in (event.extensions or {})


async def main(paths: list[Path]) -> None:
    total: Counter[str] = Counter()
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcome = await play(path, Path(folder))
            except BaseException as error:  # noqa: BLE001 - a survey: the next one is tried
                outcome = Outcome([f"raised {error!r}"])
        total += outcome.counts
        total["recordings"] += 1
        total["recordings with problems"] += bool(outcome.problems)
        for problem in outcome.problems[:4]:
            print(path, problem, flush=True)  # noqa: T201 - a program
    print(json.dumps(total, indent=1))  # noqa: T201 - a program


if __name__ == "__main__":
    anyio.run(main, sorted(Path(sys.argv[1]).glob("**/*.jsonl")))
