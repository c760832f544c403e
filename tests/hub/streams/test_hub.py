"""The streams through a whole hub: its guard, its inbox, its closed sessions."""

from __future__ import annotations

import json
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from quarterdeck.client import Client, WebSocketTransport
from quarterdeck.errors import AcpError
from quarterdeck.hub import Hub, serving
from quarterdeck.protocol import AgentDefinition
from quarterdeck.protocol.timestamps import seconds_of
from tests.hub.api.kit import ASK, options, running, scripted
from tests.hub.context.test_connection import Phone
from tests.hub.local_owner import owner_websocket
from tests.hub.runners import admin_token, runner_of
from tests.hub.streams.serving import events_of, reading

pytestmark = pytest.mark.anyio


def port_of(hub: Hub) -> int:
    address = json.loads((hub.options.home / "hub.json").read_text())
    return int(address["url"].rpartition(":")[2])


async def test_a_stream_needs_a_token_and_goes_through_the_guard(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home", demo=scripted({"say": "hi"}))) as (hub, client):
        session_id = await client.session("demo", tmp_path)
        path, token = events_of(session_id), await admin_token(hub)
        for stream in (path, "/api/events", f"/api/stream?session={session_id}:0"):
            status, said = await ask(port_of(hub), stream, "")
            assert status == 401, stream
            status, said = await ask(port_of(hub), stream, token)
            assert status == 200
            assert said
        status, _ = await ask(port_of(hub), path, token, origin="http://evil.example")
        assert status == 403


async def ask(port: int, path: str, token: str, origin: str = "") -> tuple[int, list[Any]]:
    headers = f"Origin: {origin}\r\n" if origin else ""
    host = f"127.0.0.1:{port}"
    async with reading(port, path, token=token, headers=headers, host=host) as reader:
        said = await reader.until("caught-up") if reader.status == 200 else []
        return reader.status, said


async def test_streams_of_a_hub_that_ends_report_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = options(tmp_path / "home")
    async with Hub(given) as hub, AsyncExitStack() as readers:
        async with serving(hub) as address:
            headers = {"Authorization": f"Bearer {await admin_token(hub)}"}
            url = f"ws://127.0.0.1:{address.port}/api/envelope"
            socket = await readers.enter_async_context(
                connect(url, additional_headers=headers, proxy=None)
            )
            await socket.recv()
            host = f"127.0.0.1:{address.port}"
            reader = await readers.enter_async_context(
                reading(address.port, "/api/events", token=await admin_token(hub), host=host)
            )
            await reader.until("caught-up")
        (told,) = await reader.until("dropped")
        assert "the hub ends" in told.data["reason"]
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
    assert [each.message for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_a_session_that_was_closed_before_the_hub_began_can_be_read(tmp_path: Path) -> None:
    given = options(tmp_path / "home", demo=scripted({"say": "kept"}))
    async with running(given) as (hub, client):
        session_id = await client.session("demo", tmp_path)
        await runner_of(hub).host.prompt(session_id, "x")
        await runner_of(hub).host.close_session(session_id)
        log = await runner_of(hub).host.options.storage.read(session_id, 0, 1000)
    async with running(given) as (hub, _client):
        _status, said = await ask(port_of(hub), events_of(session_id), await admin_token(hub))
        assert [each.data for each in said[:-1]] == [json.loads(data) for data in log]


async def test_an_answer_by_envelope_is_recorded_with_its_device(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home", demo=scripted(ASK))) as (hub, http):
        session_id = await http.session("demo", tmp_path)
        async with (
            Client(WebSocketTransport(socket=hub.options.home / "hub.sock")) as client,
            anyio.create_task_group() as tasks,
        ):
            session = client.sessions.get(session_id)
            assert session is not None
            tasks.start_soon(session.prompt, "x")
            (waiting,) = await http.pending_permissions()
            allow = {"outcome": "selected", "optionId": "allow_once"}
            await client.permissions.respond(waiting["requestId"], allow)
            with pytest.raises(AcpError) as caught:
                await client.permissions.respond(waiting["requestId"], allow)
            assert caught.value.code == "acpjs/already-answered"
        (decision,) = await hub.runner.list_decisions(before=None, session_id=session_id, limit=5)
        assert decision.state == "answered"
        assert decision.by
        assert (decision.by.kind, decision.by.device_id) == ("device", "owner")


async def test_an_agent_started_by_envelope_comes_back_after_a_restart(tmp_path: Path) -> None:
    given, agent = options(tmp_path / "home"), scripted({"say": "hi"})
    definition = AgentDefinition("mine", agent.command, agent.args)
    async with running(given) as (hub, http):
        url = f"http://127.0.0.1:{port_of(hub)}"
        async with Client(WebSocketTransport(url, token=await admin_token(hub))) as client:
            started = await client.agents.spawn(definition)
            session = await client.sessions.create(started.agent_id, cwd=str(tmp_path))
            (listed,) = (await http.get("/api/agents"))["agents"]
            assert listed["name"] == "mine"
    async with running(given) as (hub, http):
        await http.prompt(session.id, "k")
        assert (await http.ended(session.id, "k"))["state"] == "done"


async def test_a_stream_of_sessions_reports_changes_of_their_queues(tmp_path: Path) -> None:
    given = options(tmp_path / "home", demo=scripted({"say": "hi"}, {"stall": True}))
    async with running(given) as (hub, http):
        session, other = [await http.session("demo", tmp_path) for _ in range(2)]
        host, path = f"127.0.0.1:{port_of(hub)}", f"/api/stream?session={session}:0"
        async with reading(port_of(hub), path, token=await admin_token(hub), host=host) as reader:
            await reader.until("caught-up")
            await http.prompt(other, "unseen")
            await http.prompt(session, "k1")
            (*_, told) = await reader.until("queue")
            assert (told.id, told.data) == (None, {"sessionId": session})
            place = f"/api/sessions/{session}/prompts/k1"
            await http.until(place, lambda entry: entry["state"] == "running")
            await http.prompt(session, "k2")
            await reader.until("queue")
            await http.call("DELETE", f"/api/sessions/{session}/prompts/k2")
            (*_, told) = await reader.until("queue")
            assert told.data == {"sessionId": session}
            await http.call("DELETE", f"/api/sessions/{session}", status=204)
            said = await reader.to_the_end()
            assert "ended" in [each.name for each in said]


async def test_a_stream_of_the_host_reports_that_the_runner_restarts_soon(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home")) as (hub, _):
        host, path = f"127.0.0.1:{port_of(hub)}", "/api/stream?host="
        token = await admin_token(hub)
        async with reading(port_of(hub), path, token=token, host=host) as reader:
            assert "runner" not in [each.name for each in await reader.until("caught-up")]
            await hub.runner.drain()
            (*_, told) = await reader.until("runner")
            assert (told.id, told.data) == (None, {"isConnected": True, "isDraining": True})
            async with reading(port_of(hub), path, token=token, host=host) as late:
                frames = await late.until("runner")
                assert [each.data["isDraining"] for each in frames if each.name == "runner"]
            await hub.runner.resume_turns()
            (*_, told) = await reader.until("runner")
            assert not told.data["isDraining"]


async def test_a_stream_of_unknown_sessions_ends(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home")) as (hub, _):
        host, path = f"127.0.0.1:{port_of(hub)}", "/api/stream?session=gone:0"
        async with reading(port_of(hub), path, token=await admin_token(hub), host=host) as reader:
            assert [each.name for each in await reader.to_the_end()] == ["ended"]


async def test_a_denial_by_the_context_protocol_keeps_its_reason(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home", demo=scripted(ASK))) as (hub, http):
        session_id = await http.session("demo", tmp_path)
        await http.prompt(session_id, "k")
        (waiting,) = await http.pending_permissions()
        async with owner_websocket(hub.options.home, "/api/context") as socket:
            phone = Phone(socket)
            asked = (await phone.hear("approval:requested"))["event"]
            ids = {"requestId": waiting["requestId"], "toolCallId": asked["toolCallId"]}
            await phone.command(session_id, "deny_tool_call", **ids, reason="x" * 2_001)
            assert "2000" in (await phone.hear("error"))["message"]
            await phone.command(session_id, "deny_tool_call", **ids, reason="wrong file")
            told = (await phone.hear("approval:resolved"))["event"]
        assert (told["resolvedBy"], told["reason"]) == ("user", "wrong file")
        (decision,) = await hub.runner.list_decisions(before=None, session_id=session_id, limit=5)
        assert decision.by
        assert (decision.by.device_id, decision.by.reason) == ("owner", "wrong file")


async def test_a_form_is_filled_in_by_the_context_protocol(tmp_path: Path) -> None:
    fields = {"name": {"type": "string"}, "age": {"type": "integer"}}
    form = {
        "mode": "form",
        "sessionId": "{session}",
        "message": "Who are you?",
        "requestedSchema": {
            "type": "object",
            "properties": fields,
            "required": list(fields),
        },
    }
    agent = scripted({"request": "elicitation/create", "params": form}, {"say": "{last}"})
    async with running(options(tmp_path / "home", demo=agent)) as (hub, http):
        session_id = await http.session("demo", tmp_path)
        async with owner_websocket(hub.options.home, "/api/context") as socket:
            phone = Phone(socket)
            declared = (await phone.hear("auth_success"))["capabilities"]
            assert all(each["features"]["userInteraction"]["questions"] for each in declared)
            assert declared
            await phone.command(session_id, "send_message", message="go")
            frames: list[dict[str, Any]] = []
            while not (len(ids := _question_ids(frames)) == len(fields) and _waits(frames)):
                frames.append(json.loads(await socket.recv()))
            name, age = ids
            (entry,) = _waits(frames)
            assert seconds_of(entry["lastActivity"]) >= seconds_of(entry["createdAt"]) > 0
            await phone.command(session_id, "answer_question", questionId=age, answer="old")
            assert (await phone.hear("error"))["code"] == "INVALID_MESSAGE"
            await phone.command(session_id, "answer_question", questionId=age, answer="7")
            await phone.command(session_id, "answer_question", questionId=name, answer="Ann")
            told = await phone.hear("message:complete", sessionId=session_id, role="assistant")
            assert '"age":7' in json.dumps(told).replace("\\", "").replace(" ", "")
            await phone.command(session_id, "answer_question", questionId=name, answer="Bob")
            assert (await phone.hear("error"))["code"] == "ALREADY_ANSWERED"
        noted = await http.until("/api/decisions", lambda told: told["decisions"])
        (decision,) = noted["decisions"]
        assert (decision["by"]["kind"], decision["by"]["deviceId"]) == ("device", "owner")


def _question_ids(frames: list[dict[str, Any]]) -> list[str]:
    told = [frame["event"] for frame in frames if frame["type"] == "acp_event"]
    return [event["questionId"] for event in told if event["type"] == "interaction:question"]


def _waits(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sessions that are listed by their prompt and wait for input."""
    lists = [frame["sessions"] for frame in frames if frame["type"] == "sessions_list"]
    waiting = ("waiting_for_input", "go")
    entries = lists[-1] if lists else []
    return [each for each in entries if (each["status"], each["sessionName"]) == waiting]


async def test_the_context_protocol_authenticates_by_frame_and_disconnects_a_revoked_device(
    tmp_path: Path,
) -> None:
    async with running(options(tmp_path / "home", demo=scripted({"say": "hi"}))) as (hub, _http):
        address = f"ws://127.0.0.1:{port_of(hub)}/ws"
        with pytest.raises(InvalidStatus) as refused:
            await connect(address, origin="http://evil.example", proxy=None)  # type: ignore[arg-type]
        assert refused.value.response.status_code == 403
        async with connect(address, proxy=None) as socket:
            phone = Phone(socket)
            device, token = await hub.auth.devices.create("a test", "admin")
            await phone.say("auth", token=token)
            await phone.hear("auth_success")
            await phone.say("start_session", agent="demo", projectPath=str(tmp_path), prompt="x")
            started = await phone.hear("session_started")
            await phone.hear("message:complete", sessionId=started["sessionId"], role="assistant")
            await hub.auth.devices.revoke(device.id)
            with pytest.raises(ConnectionClosed) as caught:
                await phone.hear("nothing that is ever said")
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 4401
