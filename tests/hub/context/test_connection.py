"""The context protocol over a WebSocket: authentication, events, and commands by scope."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from quarterdeck.host import Host
from quarterdeck.hub.auth.device import Device
from quarterdeck.hub.context import connection
from quarterdeck.hub.context.commands import COMMAND_SCOPES
from quarterdeck.hub.streams.shared_log import Logs
from quarterdeck.protocol import decode_event
from quarterdeck.views.context import ContextProjector, encode_context_event
from quarterdeck.views.context.contract import COMMAND_CLASSES
from tests.host.test_host import ASK, running
from tests.hub.streams.serving import DEVICES, bare_hub, serving
from tests.hub.streams.test_sse import PIECES, opened, stored

pytestmark = pytest.mark.anyio


@dataclass
class Cut:
    scope: anyio.CancelScope


class FakeDevices:
    """Knows each scope by a token of its name."""

    def __init__(self) -> None:
        self.live: list[Cut] = []

    async def authenticate(self, token: str) -> Device | None:
        return DEVICES.get(token)

    @contextmanager
    def connection(self, _device: Device) -> Iterator[Cut]:
        cut = Cut(anyio.CancelScope())
        self.live.append(cut)
        yield cut


class FakeGate:
    def __init__(self) -> None:
        self.devices = FakeDevices()


class Phone:
    """A client of the context protocol made of bare frames."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def command(self, session_id: str, command: str, **fields: Any) -> None:
        await self.say("command", sessionId=session_id, command={"command": command, **fields})

    async def hear(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return the next frame of a type; events are distinguished by their own type."""
        return (await self.hear_all(kind, **fields))[-1]

    async def hear_all(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Return all frames up to the one of a type."""
        frames = []
        with anyio.fail_after(30):
            while True:
                frame: dict[str, Any] = json.loads(await self.socket.recv())
                frames.append(frame)
                told = frame["event"] if frame["type"] == "acp_event" else frame
                if told["type"] == kind and fields.items() <= told.items():
                    return frames


@asynccontextmanager
async def phone(port: int, token: str = "admin", path: str = "/ws") -> AsyncIterator[Phone]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    address = f"ws://127.0.0.1:{port}{path}"
    async with connect(address, additional_headers=headers, proxy=None) as socket:
        yield Phone(socket)


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[Host, int, FakeDevices]]:
    gate = FakeGate()
    async with running(**options) as host, serving(bare_hub(host, gate.devices)) as port:
        yield host, port, gate.devices


async def context_log(host: Host, session_id: str) -> list[dict[str, Any]]:
    snapshot = host.get_session(session_id)
    assert snapshot is not None
    projector = ContextProjector(snapshot)
    log = [decode_event(data) for data in await stored(host, session_id)]
    return [json.loads(encode_context_event(t)) for event in log for t in projector.feed(event)]


def events(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [frame["event"] for frame in frames if frame["type"] == "acp_event"]


@pytest.mark.parametrize("path", ["/ws", "/api/context"])
async def test_a_client_says_auth_and_gets_the_list(tmp_path: Path, path: str) -> None:
    async with served() as (host, port, _devices), phone(port, "", path) as client:
        session_id = await opened(host, tmp_path, {"say": "hi"})
        await client.say("subscribe", sessionIds=[session_id])
        assert (await client.hear("error"))["code"] == "NOT_AUTHENTICATED"
        await client.say("ping")
        await client.hear("pong")
        await client.say("auth", token="view")
        success = await client.hear("auth_success")
        (capabilities,) = success["capabilities"]
        assert capabilities["agent"]["name"] == "scripted"
        (entry,) = (await client.hear("sessions_list"))["sessions"]
        assert (entry["id"], entry["agent"], entry["status"]) == (session_id, "scripted", "idle")
        assert entry["projectPath"] == str(tmp_path)
        await client.say("ping")
        await client.hear("pong")


async def test_a_wrong_token_is_refused_and_the_connection_closed() -> None:
    async with served() as (_host, port, _devices), phone(port, "") as client:
        await client.say("auth", token="guess")
        assert "token" in (await client.hear("auth_error"))["message"]
        with pytest.raises(ConnectionClosed) as caught:
            await client.socket.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 4002


async def test_a_client_that_does_not_authenticate_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "AUTH_SECONDS", 0.05)
    async with served() as (_host, port, _devices), phone(port, "") as client:
        await client.hear("auth_error")
        with pytest.raises(ConnectionClosed) as caught:
            await client.socket.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 4002


async def test_a_device_that_is_revoked_is_cut_off() -> None:
    async with served() as (_host, port, devices), phone(port, "") as client:
        await client.say("auth", token="view")
        await client.hear("sessions_list")
        devices.live[0].scope.cancel()
        with pytest.raises(ConnectionClosed) as caught:
            await client.socket.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 4401


async def test_history_comes_from_any_number_and_live_events_follow_it(tmp_path: Path) -> None:
    async with served() as (host, port, _devices):
        session_id = await opened(host, tmp_path, PIECES)
        await host.prompt(session_id, "one")
        log = await context_log(host, session_id)
        for start in (0, 7, len(log)):
            async with phone(port) as client:
                await client.hear("sessions_list")
                await client.say("subscribe", sessionIds=[session_id], fromSeq=start)
                frames = await client.hear_all("history_complete")
                assert frames[-1] == {
                    "type": "history_complete",
                    "sessionId": session_id,
                    "lastSeq": len(log),
                }
                assert events(frames) == log[start:]
        async with phone(port) as client:
            await client.say("subscribe", sessionIds=[session_id])
            frames = await client.hear_all("history_complete")
            await host.prompt(session_id, "two")
            whole = await context_log(host, session_id)
            while len(events(frames)) < len(whole):
                frames += await client.hear_all(whole[-1]["type"])
            assert events(frames) == whole
        assert [event["seq"] for event in whole] == list(range(1, len(whole) + 1))


async def test_a_session_that_is_not_there_has_a_code_of_its_own() -> None:
    async with served() as (_host, port, _devices), phone(port) as client:
        await client.say("subscribe", sessionIds=["nobody"])
        error = await client.hear("error")
        assert (error["code"], error["sessionId"]) == ("SESSION_CLOSED", "nobody")
        await client.hear("history_complete")
        await client.command("nobody", "cancel")
        assert (await client.hear("error"))["code"] == "SESSION_CLOSED"
        for kind in ("nonsense", "\ud83d"):
            await client.say(kind)
            assert (await client.hear("error"))["code"] == "INVALID_MESSAGE"


async def test_who_subscribed_to_nothing_gets_everything_from_now_on(tmp_path: Path) -> None:
    async with served() as (host, port, _devices):
        old = await opened(host, tmp_path, {"say": "old"})
        await host.prompt(old, "before")
        before = len(await context_log(host, old))
        async with phone(port) as client:
            await client.hear("sessions_list")
            new = (await host.create_session("agent-1", cwd=str(tmp_path))).session_id
            frames = await client.hear_all("session:started", sessionId=new)
            await host.prompt(old, "after")
            frames += await client.hear_all("message:complete", sessionId=old, role="assistant")
        told = [event for event in events(frames) if event["sessionId"] == old]
        assert told == (await context_log(host, old))[before : before + len(told)]


async def test_a_session_created_while_others_are_opened_is_sent_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as (host, port, _devices):
        await opened(host, tmp_path, {"say": "old"})
        begun: list[str] = []
        open_log = Logs.open

        async def open_slowly(logs: Logs, session_id: str | None) -> Any:
            if not begun:
                begun.append("")
                begun[0] = (await host.create_session("agent-1", cwd=str(tmp_path))).session_id
            return await open_log(logs, session_id)

        monkeypatch.setattr(Logs, "open", open_slowly)
        async with phone(port) as client:
            frames = await client.hear_all("session:started")
            assert events(frames)[-1]["sessionId"] == begun[0]


async def test_a_subscription_made_while_a_session_is_opened_gets_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as (host, port, _devices):
        session_id = await opened(host, tmp_path, {"say": "hi"})
        await host.prompt(session_id, "one")
        log = await context_log(host, session_id)
        asked, has_subscribed, open_log = 0, anyio.Event(), Logs.open

        async def open_slowly(logs: Logs, session_id: str | None) -> Any:
            nonlocal asked
            asked += 1
            if asked == 1:  # by who follows everything
                await has_subscribed.wait()
                return await open_log(logs, session_id)
            found = await open_log(logs, session_id)
            has_subscribed.set()
            return found

        monkeypatch.setattr(Logs, "open", open_slowly)
        async with phone(port) as client:
            await client.hear("sessions_list")
            await client.say("subscribe", sessionIds=[session_id])
            assert events(await client.hear_all("history_complete")) == log
            assert asked == 2


async def test_approvals_reach_clients_of_other_sessions_and_late_ones(tmp_path: Path) -> None:
    async with served() as (host, port, _devices), anyio.create_task_group() as tasks:
        asking = await opened(host, tmp_path, ASK)
        quiet = (await host.create_session("agent-1", cwd=str(tmp_path))).session_id
        async with phone(port) as early:
            await early.say("subscribe", sessionIds=[quiet])
            await early.hear("history_complete")
            tasks.start_soon(host.prompt, asking, "x")
            asked = (await early.hear("approval:requested"))["event"]
            assert asked["sessionId"] == asking
            async with phone(port, "approve") as late:
                assert (await late.hear("approval:requested"))["event"] == asked
                ids = {"requestId": asked["requestId"], "toolCallId": asked["toolCallId"]}
                await late.command(asking, "approve_tool_call", **{**ids, "toolCallId": "other"})
                assert (await late.hear("error"))["code"] == "INVALID_MESSAGE"
                await late.command(quiet, "approve_tool_call", **ids)
                assert (await late.hear("error"))["code"] == "INVALID_MESSAGE"
                await late.command(asking, "approve_tool_call", **ids)
                await late.hear("approval:resolved", requestId=asked["requestId"])
                await late.command(asking, "deny_tool_call", **ids)
                assert (await late.hear("error"))["code"] == "ALREADY_ANSWERED"
            frames = await early.hear_all("approval:resolved")
            kinds = {event["type"] for event in events(frames) if event["sessionId"] == asking}
            assert kinds == {"approval:resolved"}


def test_every_command_has_a_scope() -> None:
    assert set(COMMAND_SCOPES) == set(COMMAND_CLASSES)


async def test_commands_are_refused_to_devices_with_less_than_their_scope(tmp_path: Path) -> None:
    async with served() as (host, port, _devices), phone(port, "view") as client:
        session_id = await opened(host, tmp_path, {"say": "hi"})
        await client.command(session_id, "send_message", message="x")
        assert (await client.hear("error"))["code"] == "FORBIDDEN"
        await client.say("start_session", agent="scripted", projectPath=str(tmp_path), prompt="x")
        assert (await client.hear("error"))["code"] == "FORBIDDEN"
        await client.say("terminate_session", sessionId=session_id)
        assert (await client.hear("error"))["code"] == "FORBIDDEN"
    async with served() as (host, port, _devices), phone(port, "prompt") as client:
        session_id = await opened(host, tmp_path, {"say": "hi"})
        await client.command(session_id, "send_message", message="/allow-all")
        assert (await client.hear("error"))["code"] == "FORBIDDEN"
        await client.command(session_id, "resume", prompt="/yolo on")
        assert (await client.hear("error"))["code"] == "FORBIDDEN"
        await client.say(
            "start_session", agent="scripted", projectPath=str(tmp_path), prompt="/yolo"
        )
        assert (await client.hear("error"))["code"] == "FORBIDDEN"
    async with served() as (host, port, _devices), phone(port, "approve") as client:
        session_id = await opened(host, tmp_path, {"say": "hi"})
        policy = {"autoApprove": {"commands": True}}
        await client.command(session_id, "set_permission_policy", policy=policy)
        assert (await client.hear("error"))["code"] == "FORBIDDEN"


async def test_a_project_is_named_by_its_whole_path() -> None:
    async with served() as (_host, port, _devices), phone(port, "prompt") as client:
        await client.say("start_session", agent="scripted", projectPath="here", prompt="x")
        assert "not an absolute path" in (await client.hear("error"))["message"]


async def test_a_session_is_started_steered_and_ended(tmp_path: Path) -> None:
    async with served() as (host, port, _devices), phone(port, "prompt") as client:
        await opened(host, tmp_path, {"say": "hi"})
        await client.hear("sessions_list")
        await client.say(
            "start_session", agent="scripted", projectPath=str(tmp_path), prompt="hello"
        )
        started = await client.hear("session_started")
        session_id = started["sessionId"]
        await client.hear("message:complete", sessionId=session_id, role="assistant")
        await client.say("terminate_session", sessionId=session_id)
        await client.hear("session:completed", sessionId=session_id)
        snapshot = host.get_session(session_id)
        assert snapshot is not None
        assert snapshot.status == "closed"
        await client.command(session_id, "pause")
        assert (await client.hear("error"))["code"]
