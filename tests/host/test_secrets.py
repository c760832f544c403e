"""Values of variables and headers reach the agent and nothing else (INV-7)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.client import Client, InProcessTransport
from quarterdeck.errors import AcpError, RpcError
from quarterdeck.host import HostEndpoint
from quarterdeck.host.secrets import Secrets, inherited, secret_values, without_secrets
from quarterdeck.protocol import to_json
from quarterdeck.storage import JsonlStorage, SqliteStorage, Storage
from tests.host.scenarios import Changes, Wire
from tests.host.test_host import Seen, agent, running

pytestmark = pytest.mark.anyio

RECORDER = Path(__file__).with_name("recording_agent.py")
CANARY = "canary-8f1c2e"
SERVERS: list[dict[str, Any]] = [
    {"name": "one", "command": "x", "args": [], "env": [{"name": "T", "value": f"{CANARY}-env"}]},
    {
        "type": "http",
        "name": "two",
        "url": "https://example.test",
        "headers": [{"name": "Authorization", "value": f"{CANARY}-header"}],
    },
]
SHOWN: list[dict[str, Any]] = [
    {"name": "one", "command": "x", "args": [], "env": [{"name": "T"}]},
    {
        "type": "http",
        "name": "two",
        "url": "https://example.test",
        "headers": [{"name": "Authorization"}],
    },
]
CAN = {"loadSession": True, "sessionCapabilities": {"resume": {}, "close": {}}}
RESUME: dict[str, Any] = {"session/resume": [{"result": {}}], "session/close": [{"result": {}}]}
STORAGES: dict[str, Callable[[Path], Storage]] = {
    "jsonl": lambda folder: JsonlStorage(folder / "log.jsonl"),
    "sqlite": lambda folder: SqliteStorage(folder / "log.db"),
}


def command_lines() -> Iterator[bytes]:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield process.read_bytes()
        except OSError:  # it has ended meanwhile
            continue


def recorded(wire: Wire, definition: dict[str, Any]) -> dict[str, Any]:
    """Return an agent that also writes what it is sent to `wire`."""
    arguments = definition["args"][3:]
    command = ["-P", str(RECORDER), str(wire.path), *arguments]
    return {**definition, "command": sys.executable, "args": command}


@pytest.mark.skipif(sys.platform != "linux", reason="uses /proc")
@pytest.mark.parametrize("kind", STORAGES)
async def test_a_secret_reaches_its_agent_and_is_nowhere_else(kind: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    wire = Wire(tmp_path / "wire", Changes())
    complains = [{"stderr": f"connecting with {CANARY}-env and {CANARY}-agent"}]
    garbage = [{"garbage": f"not a message {CANARY}-header"}]
    methods = {"session/load": [{"fail": f"bad token {CANARY}-env"}], **RESUME}
    definition = agent(*complains, *garbage, capabilities=CAN, methods=methods)
    definition = recorded(wire, definition) | {"env": {"TOKEN": f"{CANARY}-agent"}}
    shown: list[Any] = []
    async with wire.recording(), running(STORAGES[kind](log)) as host:
        host_seen, seen = Seen(), Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(
            spawned.agent_id, cwd=str(tmp_path), mcp_servers=SERVERS
        )
        host.subscribe(session.session_id, 0, seen)
        await host.prompt(session.session_id, "hello")
        folders: dict[str, Any] = {"cwd": str(tmp_path), "mcp_servers": SERVERS}
        with pytest.raises(RpcError):
            await host.load_session(spawned.agent_id, session.session_id, **folders)
        await host.resume_session(spawned.agent_id, session.session_id, **folders)
        await host_seen.first("diagnostic", code="session/load-failed")
        await host_seen.first("diagnostic", code="agent/stderr")
        await host_seen.first("diagnostic", code="agent/misbehaved")
        assert not any(CANARY.encode() in line for line in command_lines() if b"--json" not in line)
        async with Client(InProcessTransport(HostEndpoint(host))) as client:
            shown += [each.snapshot for each in client.sessions.all()]
        shown += [*host.get_sessions(), *host.get_agents(), session]
        await host.close_session(session.session_id)
    texts = [json.dumps(to_json(each)) for each in [*host_seen.events, *seen.events, *shown]]
    assert not any(CANARY in text for text in texts)
    files = [path for path in log.rglob("*") if path.is_file()]
    assert files
    assert not any(CANARY.encode() in path.read_bytes() for path in files)
    sent = [each["params"]["mcpServers"] for each in wire.messages if "mcp" in json.dumps(each)]
    assert sent == [SERVERS] * 3
    assert session.mcp_servers == tuple(SHOWN)


def test_no_agent_inherits_a_token_of_ours() -> None:
    ours = {"PATH": "/bin", "QUARTERDECK_ACP_TOKEN": "a", "QUARTERDECK_TOKEN": "b", "TOKEN": "c"}
    assert inherited(ours) == {"PATH": "/bin", "TOKEN": "c"}


async def test_the_last_words_of_an_agent_do_not_give_its_secrets_away(tmp_path: Path) -> None:
    dies = agent({"stderr": f"cannot use {CANARY}-env and {CANARY}-agent"}, {"crash": 1})
    async with running() as host:
        spawned = await host.spawn_agent(dies | {"env": {"TOKEN": f"{CANARY}-agent"}})
        session = await host.create_session(
            spawned.agent_id, cwd=str(tmp_path), mcp_servers=SERVERS
        )
        with pytest.raises(AcpError) as caught:
            await host.prompt(session.session_id, "x")
        assert "cannot use [hidden] and [hidden]" in caught.value.message


async def test_after_a_crash_of_the_agent_its_session_is_resumed_with_its_secrets(
    tmp_path: Path,
) -> None:
    wire = Wire(tmp_path / "wire", Changes())
    definition = recorded(wire, agent({"crash": 1}, capabilities=CAN, methods=RESUME))
    backoff = {"initialMs": 1, "factor": 1, "maxMs": 1}
    options: dict[str, Any] = {"restart": "on-crash", "restart_backoff": backoff}
    async with wire.recording(), running(**options) as host:
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(
            spawned.agent_id, cwd=str(tmp_path), mcp_servers=SERVERS
        )
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        with pytest.raises(AcpError):
            await host.prompt(session.session_id, "die")
        await seen.first("session-status-change", status="active", resumed=True)
    (resumed,) = [each for each in wire.messages if each.get("method") == "session/resume"]
    assert resumed["params"]["mcpServers"] == SERVERS


async def test_after_a_restart_of_the_host_the_caller_of_resume_passes_the_secrets_again(
    tmp_path: Path,
) -> None:
    wire = Wire(tmp_path / "wire", Changes())
    definition = recorded(wire, agent(capabilities=CAN, methods=RESUME))
    log = tmp_path / "log.db"
    async with wire.recording():
        async with running(SqliteStorage(log)) as host:
            spawned = await host.spawn_agent(definition)
            session = await host.create_session(
                spawned.agent_id, cwd=str(tmp_path), mcp_servers=SERVERS
            )
        async with running(SqliteStorage(log)) as host:
            (restored,) = await host.restore_sessions()
            assert restored.mcp_servers == tuple(SHOWN)
            spawned = await host.spawn_agent(definition)
            ids = spawned.agent_id, session.session_id
            await host.resume_session(*ids, cwd=str(tmp_path))
            await host.resume_session(*ids, cwd=str(tmp_path), mcp_servers=SERVERS)
    resumed = [each["params"] for each in wire.messages if each.get("method") == "session/resume"]
    # Never the names without their values: an agent would start its servers with nothing in them.
    assert [each.get("mcpServers") for each in resumed] == [None, SERVERS]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (SERVERS[0], SHOWN[0]),
        ({"name": "n", "env": {"A": CANARY}}, {"name": "n", "env": [{"name": "A"}]}),
        ({"name": "n", "headers": CANARY}, {"name": "n", "headers": []}),
        ({"name": "n", "env": [CANARY, 7]}, {"name": "n", "env": []}),
        ({"name": "n"}, {"name": "n"}),
    ],
    ids=["a list", "an object", "a text", "texts", "none"],
)
def test_however_secrets_are_written_they_are_not_shown(given: Any, shown: Any) -> None:
    assert without_secrets(given) == shown


def test_values_are_hidden_in_texts_the_longest_first_and_short_ones_are_left() -> None:
    secrets = Secrets(secret_values(SERVERS))
    secrets.add([CANARY, "1"])
    text = f"1 {CANARY}-env {CANARY}-header {CANARY} 1"
    assert secrets.hidden(text) == "1 [hidden] [hidden] [hidden] 1"
