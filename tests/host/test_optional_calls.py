"""What an agent need not offer, in both versions of ACP: asked of the agent, ours, or refused."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import AcpError, RpcError
from quarterdeck.host import Host, HostOptions
from quarterdeck.protocol import ERROR_CODES, Event
from quarterdeck.storage import SqliteStorage
from tests.host.faults.kit import Seen

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
VERSIONS = (1, 2)
RECORDER = Path(__file__).parent / "recording_agent.py"
SECRET = "Bearer very-secret-value"
PROVIDER = {
    "providerId": "main",
    "apiType": "anthropic",
    "baseUrl": "http://x",
    "headers": {"authorization": SECRET},
}
LISTED = [{"providerId": "main", "supported": ["anthropic"], "required": False}]
STATUS = {"state": "authenticated", "accounts": [{"id": "a", "label": "me@example.com"}]}
OFFERS = ("fork", "title", "archive", "status")
METHODS: Json = {
    "session/fork": [{"result": {"sessionId": "forked"}}],
    "session/set_title": [{"result": {"title": "as stored"}}],
    "session/archive": [{"result": {}}],
    "session/unarchive": [{"result": {}}],
    "session/status": [{"result": {"status": "open"}}],
    "auth/status": [{"result": STATUS}],
    "providers/list": [{"result": {"providers": LISTED}}],
    "providers/set": [{"result": {}}],
    "providers/disable": [{"result": {}}],
    "authenticate": [{"result": {}}],
    "logout": [{"result": {}}],
    "auth/login": [{"result": {}}],
    "auth/logout": [{"result": {}}],
    "tool_call/cancel": [{"result": {}}],
    "terminal/cancel": [{"result": {}}],
}


def scenario(
    version: int, *, offered: bool, turn: list[Json] | None = None, **methods: Any
) -> Json:
    """Return a scripted agent of a version that offers everything, or nothing."""
    session: Json = {name: {} for name in OFFERS} if offered else {}
    if version == 1:
        capabilities: Json = {"sessionCapabilities": session}
        if offered:
            capabilities |= {"auth": {"status": {}, "logout": {}}, "providers": {}}
        steps = turn or [{"say": "hello"}]
        answer = {
            "protocolVersion": 1,
            "agentCapabilities": capabilities,
            "authMethods": [{"id": "key", "name": "Key"}] if offered else [],
        }
    else:
        capabilities = {"session": session}
        if offered:
            capabilities |= {"auth": {"status": {}}, "providers": {}}
        steps = [
            {"update": {"sessionUpdate": "state_update", "state": "running"}},
            {
                "update": {
                    "sessionUpdate": "user_message",
                    "messageId": "u",
                    "content": [{"type": "text", "text": "go"}],
                }
            },
            *(turn or []),
            {"update": {"sessionUpdate": "state_update", "state": "idle"}},
            {"result": {"messageId": "u"}},
        ]
        answer = {
            "protocolVersion": 2,
            "info": {"name": "scripted", "version": "1"},
            "capabilities": capabilities,
            "authMethods": [{"methodId": "key", "type": "agent", "name": "Key"}] if offered else [],
        }
    known = {**METHODS, **methods} if offered else methods
    return {
        "name": "optional",
        "sessions": {"id": "s"},
        "turns": [{"steps": steps}],
        "methods": {**known, "initialize": [{"result": answer}]},
    }


class Running:
    """A host with one session of a scripted agent, and what the agent received."""

    def __init__(self, host: Host, agent_id: str, session_id: str, wire: Path) -> None:
        self.host, self.agent_id, self.session_id = host, agent_id, session_id
        self._wire = wire
        self.log: list[Event] = []
        host.subscribe(session_id, 0, self.log.append)

    def received(self, method: str) -> list[Json]:
        lines = [json.loads(line) for line in self._wire.read_text().splitlines()]
        return [each["params"] for each in lines if each.get("method") == method]


@asynccontextmanager
async def running(
    folder: Path, version: int, script: Json, **options: Any
) -> AsyncIterator[Running]:
    wire = folder / "wire"
    wire.touch()
    command = ["-P", str(RECORDER), str(wire), "--json", json.dumps(script)]
    definition = {"id": "a", "command": sys.executable, "args": command, "protocol": version}
    with anyio.fail_after(60):
        async with Host(HostOptions(**options)) as host:
            agent = await host.spawn_agent(definition)
            session = await host.create_session(agent.agent_id, cwd=str(folder))
            yield Running(host, agent.agent_id, session.session_id, wire)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_fork_names_its_source_also_after_a_restart(tmp_path: Path, version: int) -> None:
    storage = SqliteStorage(tmp_path / "log.db")
    script = scenario(version, offered=True)
    async with running(tmp_path, version, script, storage=storage) as one:
        await one.host.prompt(one.session_id, "go")
        seq = one.host.last_seq(one.session_id)
        forked = await one.host.fork_session(one.session_id)
        origin = {"sessionId": one.session_id, "seq": seq}
        assert forked.forked_from == origin
        assert [each["sessionId"] for each in one.received("session/fork")] == [one.session_id]
    async with Host(HostOptions(storage=SqliteStorage(tmp_path / "log.db"))) as host:
        await host.restore_sessions()
        restored = host.get_session("forked")
        assert restored is not None
        assert restored.forked_from == origin


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offered", [True, False])
async def test_a_title_is_the_agents_or_ours(tmp_path: Path, version: int, offered: bool) -> None:
    async with running(tmp_path, version, scenario(version, offered=offered)) as one:
        stored = await one.host.optional.set_title(one.session_id, "  my\n title ")
        expected = "as stored" if offered else "my title"
        assert stored == expected
        sent = [{"sessionId": one.session_id, "title": "my title"}] if offered else []
        assert one.received("session/set_title") == sent
        snapshot = one.host.get_session(one.session_id)
        assert snapshot is not None
        assert snapshot.title == expected
        event = next(each for each in one.log if each.type == "session-info-update")
        assert event.payload == {"title": expected}
        assert event.extensions is not None
        assert "quarterdeck" in event.extensions


@pytest.mark.parametrize("title", ["", " \n", "x" * 1001, 7])
async def test_what_is_no_title_is_refused(tmp_path: Path, title: Any) -> None:
    async with running(tmp_path, 1, scenario(1, offered=True)) as one:
        with pytest.raises(AcpError) as caught:
            await one.host.optional.set_title(one.session_id, title)
        assert caught.value.code == ERROR_CODES["config_invalid"]
        assert one.received("session/set_title") == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("offered", [True, False])
async def test_archive_and_status_are_asked_of_an_agent_that_has_them(
    tmp_path: Path, version: int, offered: bool
) -> None:
    async with running(tmp_path, version, scenario(version, offered=offered)) as one:
        optional, session_id = one.host.optional, one.session_id
        assert await optional.set_archived(session_id, is_archived=True) is offered
        assert await optional.set_archived(session_id, is_archived=False) is offered
        status = await optional.session_status(session_id)
        assert status["status"] == "open"
        assert ("state" in status) is not offered
        for method in ("session/archive", "session/unarchive", "session/status"):
            assert one.received(method) == ([{"sessionId": session_id}] if offered else [])


@pytest.mark.parametrize("version", VERSIONS)
async def test_providers_pass_through_and_their_headers_are_hidden(
    tmp_path: Path, version: int
) -> None:
    failing: Json = {
        "providers/set": [[{"result": {}}], [{"stderr": SECRET}, {"fail": f"no: {SECRET}"}]]
    }
    script = scenario(version, offered=True, **failing)
    async with running(tmp_path, version, script) as one:
        host_seen = Seen()
        one.host.subscribe(None, 0, host_seen)
        optional = one.host.optional
        assert await optional.list_providers(one.agent_id) == LISTED
        await optional.set_provider(one.agent_id, PROVIDER)
        with pytest.raises(RpcError) as caught:
            await optional.set_provider(one.agent_id, PROVIDER)
        await optional.disable_provider(one.agent_id, "main")
        assert one.received("providers/set") == [PROVIDER, PROVIDER]
        assert one.received("providers/disable") == [{"providerId": "main"}]
        assert SECRET not in str(caught.value)
        await host_seen.first("diagnostic", code="agent/stderr")
        assert SECRET not in str([each.payload for each in host_seen.events])


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_agent_without_providers_is_not_asked(tmp_path: Path, version: int) -> None:
    async with running(tmp_path, version, scenario(version, offered=False)) as one:
        with pytest.raises(AcpError) as caught:
            await one.host.optional.set_provider(one.agent_id, PROVIDER)
        assert caught.value.code == ERROR_CODES["capability_unsupported"]
        assert await one.host.optional.auth_status(one.agent_id) == {"state": "unknown"}


@pytest.mark.parametrize("version", VERSIONS)
async def test_sign_in_and_out_have_the_names_of_the_version(tmp_path: Path, version: int) -> None:
    async with running(tmp_path, version, scenario(version, offered=True)) as one:
        await one.host.authenticate(one.agent_id, "key")
        await one.host.logout(one.agent_id)
        assert await one.host.optional.auth_status(one.agent_id) == STATUS
        names = ("authenticate", "logout") if version == 1 else ("auth/login", "auth/logout")
        others = ("auth/login", "auth/logout") if version == 1 else ("authenticate", "logout")
        assert [one.received(each) for each in names] == [[{"methodId": "key"}], [{}]]
        assert [one.received(each) for each in others] == [[], []]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("method", ["auth/status_update", "_auth/status_update"])
async def test_a_reported_sign_in_is_in_the_snapshot(
    tmp_path: Path, version: int, method: str
) -> None:
    turn = [{"notify": method, "params": STATUS}]
    async with running(tmp_path, version, scenario(version, offered=False, turn=turn)) as one:
        await one.host.prompt(one.session_id, "go")
        agent = one.host.get_agent(one.agent_id)
        assert agent is not None
        assert agent.auth_status == STATUS
        assert await one.host.optional.auth_status(one.agent_id) == STATUS


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_elicitation_is_completed_by_its_agent(tmp_path: Path, version: int) -> None:
    asked = {
        "sessionId": "s",
        "mode": "url",
        "message": "Sign in",
        "url": "https://example.com",
        "elicitationId": "e1",
    }
    turn = [
        {"request": "elicitation/create", "params": asked},
        {"notify": "elicitation/complete", "params": {"elicitationId": "e1"}},
    ]
    script = scenario(version, offered=False, turn=turn)
    options: Json = {"elicitation": ("form", "url")}
    async with running(tmp_path, version, script, **options) as one:
        host_seen = Seen()
        one.host.subscribe(None, 0, host_seen)

        def on_event(_event: Event) -> None:
            for pending in one.host.pending_elicitations():
                _ = one.host.respond_elicitation(pending.request_id, {"action": "accept"})

        one.host.subscribe(None, 0, on_event)
        await one.host.prompt(one.session_id, "go")
        assert "agent/notification-dropped" not in str(host_seen.of("diagnostic"))
        [request] = one.host.get_elicitations()
        assert request.completed


async def test_one_call_or_terminal_is_cancelled_where_that_is_offered(
    tmp_path: Path,
) -> None:
    can: Json = {"capabilities": {"cancel": {}}}
    turn: list[Json] = [
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "yes", **can}},
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "no"}},
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "gone", **can}},
        {
            "update": {
                "sessionUpdate": "tool_call_update",
                "toolCallId": "gone",
                "capabilities": None,
            }
        },
        {"update": {"sessionUpdate": "terminal_update", "terminalId": "t", **can}},
    ]
    async with running(tmp_path, 2, scenario(2, offered=True, turn=turn)) as one:
        await one.host.prompt(one.session_id, "go")
        optional, session_id = one.host.optional, one.session_id
        await optional.cancel_tool_call(session_id, "yes")
        await optional.cancel_terminal(session_id, "t")
        for wanted in ("no", "gone", "t", "unknown"):
            with pytest.raises(AcpError) as caught:
                await optional.cancel_tool_call(session_id, wanted)
            assert caught.value.code == ERROR_CODES["capability_unsupported"]
        assert one.received("tool_call/cancel") == [{"sessionId": session_id, "toolCallId": "yes"}]
        assert one.received("terminal/cancel") == [{"sessionId": session_id, "terminalId": "t"}]


async def test_an_agent_with_version_1_cancels_no_single_call(tmp_path: Path) -> None:
    turn: list[Json] = [{"tool": "yes", "title": "t"}]
    async with running(tmp_path, 1, scenario(1, offered=True, turn=turn)) as one:
        await one.host.prompt(one.session_id, "go")
        with pytest.raises(AcpError, match="cancel the turn"):
            await one.host.optional.cancel_tool_call(one.session_id, "yes")
        assert one.received("tool_call/cancel") == []
