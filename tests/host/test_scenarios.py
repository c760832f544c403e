"""Whole scenarios, compared with the original: returned, raised, published, sent and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import AcpError, RpcError
from quarterdeck.protocol import to_json
from quarterdeck.storage import JsonlStorage, MemoryStorage, SqliteStorage, Storage
from tests.host.scenarios import Json, Played, scenario, scenarios, sent_lines, without_ours

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

EARLIER = {"restore-part2": "restore-part1"}
"""Scenarios that continue with the storage of another one."""
ERRORS = {"AcpError": AcpError, "RequestError": RpcError}


STORAGES: dict[str, Callable[[Path], Storage]] = {
    "memory": lambda _folder: MemoryStorage(),
    "jsonl": lambda folder: JsonlStorage(folder / "log.jsonl"),
    "sqlite": lambda folder: SqliteStorage(folder / "log.db"),
}


STORED = ("close-and-reopen", "delete", "load-existing", "restore-part2", "session-info-update")
"""Scenarios whose logs are read again or written anew: these are played with every storage."""
STATUSES = {"crash-restart-no-resume": {"agent-1": "restarting", "sess-1": "disconnected"}}
"""What agents and sessions are in the moment in which the last call of a scenario ends."""


def played_with(name: str) -> Iterable[str]:
    return STORAGES if name in STORED else ("memory",)


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name in scenarios() for kind in played_with(name)]
)
async def test_a_scenario_gives_the_events_of_the_original(
    name: str, kind: str, tmp_path: Path
) -> None:
    storage = STORAGES[kind](tmp_path)
    with anyio.fail_after(100):
        if name in EARLIER:
            await Played(scenario(EARLIER[name]), storage, tmp_path).play()
        played = Played(scenario(name), storage, tmp_path)
        await played.play()
    recorded = played.scenario
    for call, outcome in zip(recorded["calls"], played.outcomes, strict=True):
        _check_outcome(call, outcome)
    _check_wire(played)
    _check_session_events(played)
    _check_host_events(played)
    assert played.snapshots == recorded["snapshotsBeforeDispose"]
    assert _metas(played.metas) == _metas(recorded["storedMetasAfterDispose"])
    assert played.statuses[-1] == STATUSES.get(name, played.statuses[-1])


@pytest.mark.parametrize(
    ("method", "outcome"),
    [("session/prompt", "returns"), ("session/load", "throws")],
)
async def test_a_session_continues_after_an_answer_that_cannot_be_read(
    method: str, outcome: str, tmp_path: Path
) -> None:
    neither_result_nor_error = {"raw": {"jsonrpc": "2.0", "id": 2}}
    recorded = scenario("load-existing")
    recorded["agentScript"][method] = [neither_result_nor_error, {"result": {}}]
    del recorded["calls"][3 if method == "session/prompt" else 2]
    recorded |= {"wire": {"lines": []}, "hostEvents": []}
    played = Played(recorded, MemoryStorage(), tmp_path)
    with anyio.fail_after(100):
        await played.play()
    assert list(played.outcomes[2]) == [outcome]
    assert played.statuses[2] == {"agent-1": "ready", "sess-1": "active"}


def _check_outcome(call: Json, outcome: Json) -> None:
    if "throws" not in call:
        assert outcome == {"returns": call["returns"]}
        return
    error, expected = outcome["throws"], call["throws"]
    assert (type(error), error.code) == (ERRORS[expected["name"]], expected["code"])
    assert error.data == expected.get("data")


def _check_wire(played: Played) -> None:
    assert _wire(played.wire.messages) == _wire(sent_lines(played.scenario))


def _check_session_events(played: Played) -> None:
    recorded = _logs(played.scenario["sessionEvents"])
    assert list(played.session_events) == list(recorded)
    for session_id, events in played.session_events.items():
        # Numbers continue after a load; events that the original does not have are numbered, too.
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert all(event.session_id == session_id for event in events)
        expected = [(event["type"], event["payload"]) for event in recorded[session_id]]
        assert [(event.type, event.payload) for event in without_ours(events)] == expected


def _logs(recorded: Json) -> Json:
    """Put together what the originals had in two logs: a session that is reopened keeps its own."""
    logs: Json = {}
    for name, events in recorded.items():
        logs.setdefault(name.removesuffix(" (before reopen)"), []).extend(events)
    return logs


def _check_host_events(played: Played) -> None:
    recorded, count = (
        played.scenario,
        len(without_ours(played.host_events[: played.before_dispose])),
    )
    assert [each.seq for each in played.host_events] == list(range(1, len(played.host_events) + 1))
    events = [to_json(event) for event in without_ours(played.host_events)]
    assert _facts(events[:count]) == _facts(recorded["hostEvents"])
    # Agents are disposed at the same time: each has its order, two of them have none.
    dispose = sorted(_facts(events[count:]), key=_agent)
    assert dispose == sorted(_facts(recorded["hostEventsDuringDispose"]), key=_agent)


def _facts(events: Iterable[Json]) -> list[Any]:
    return [(each["type"], each.get("agentId"), _payload(each)) for each in events]


def _payload(event: Json) -> Json:
    payload = dict(event["payload"])
    if event["type"] == "diagnostic":
        del payload["message"]
        if payload["code"] == "agent/spawn":
            assert "envKeys" in payload.pop("data")
    return payload


def _agent(facts: Any) -> str:
    _, agent_id, payload = facts
    return str(agent_id or payload["agentId"])


def _wire(messages: Iterable[Json]) -> list[Json]:
    """Leave out what may differ: ids, our name, the texts of errors."""
    facts = []
    for message in messages:
        fact: Json = {key: message[key] for key in ("method", "params", "result") if key in message}
        if message.get("method") == "initialize":
            fact["params"] = {**message["params"], "clientInfo": None}
        if "error" in message:
            fact["error"] = {key: message["error"].get(key) for key in ("code", "data")}
        facts.append(fact)
    return facts


def _metas(metas: Iterable[Json]) -> list[Json]:
    """Leave out how many events are stored, which the originals did not say, and defaults."""
    defaults = {"lifecycle": "open", "additionalDirectories": []}
    return [{**defaults, **{k: v for k, v in meta.items() if k != "lastSeq"}} for meta in metas]
