"""Envelopes over a WebSocket: scopes, order, bounds, and frames that are none."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from quarterdeck.host import Host
from quarterdeck.hub.auth.device import SCOPES
from quarterdeck.hub.streams.envelope import METHOD_SCOPES, MOST_SUBSCRIPTIONS
from quarterdeck.protocol import HOST_RPC_METHODS, AcpRpcMethod, Event
from quarterdeck.storage import SqliteStorage
from tests.host.test_host import ASK, Seen, running
from tests.hub.streams.serving import bare_hub, serving
from tests.hub.streams.test_sse import PIECES, opened, stored

pytestmark = pytest.mark.anyio
ALLOW = {"outcome": "selected", "optionId": "allow_once"}


class Peer:
    """A client of envelopes made of bare frames."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.heard: list[dict[str, Any]] = []

    async def say(self, **frame: Any) -> None:
        await self.socket.send(json.dumps(frame))

    async def hear(self, key: str) -> Any:
        """Return the value of the next frame that has a key."""
        with anyio.fail_after(30):
            while True:
                frame = json.loads(await self.socket.recv())
                self.heard.append(frame)
                if key in frame:
                    return frame[key]

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        await self.say(request={"id": "1", "method": method, "params": params})
        response: dict[str, Any] = await self.hear("response")
        return response


@asynccontextmanager
async def peer(port: int, token: str = "admin") -> AsyncIterator[Peer]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with connect(
        f"ws://127.0.0.1:{port}/api/envelope", additional_headers=headers, proxy=None
    ) as socket:
        yield Peer(socket)


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[Host, int]]:
    async with running(**options) as host, serving(bare_hub(host)) as port:
        yield host, port


def test_every_method_has_a_scope() -> None:
    assert set(METHOD_SCOPES) == set(HOST_RPC_METHODS.values())


async def test_a_cursor_before_the_beginning_is_the_beginning(tmp_path: Path) -> None:
    async with served() as (host, port):
        session_id = await opened(host, tmp_path)
        async with peer(port) as client:
            asked = {"subscription": "s", "sessionId": session_id, "fromSeq": -(10**30)}
            await client.say(subscribe=asked)
            assert (await client.hear("events"))[0]["seq"] == 1


async def test_a_cursor_beyond_the_newest_event_is_reported_and_gets_what_follows_it(
    tmp_path: Path,
) -> None:
    async with served() as (host, port):
        session_id = await opened(host, tmp_path)
        head = host.last_seq(session_id)
        async with peer(port) as client:
            asked = {"subscription": "s", "sessionId": session_id, "fromSeq": head + 2}
            await client.say(subscribe=asked)
            told = await client.hear("subscriptionAhead")
            assert (told["subscription"], told["fromSeq"], told["head"]) == ("s", head + 2, head)
            assert "subscribe from 0" in told["message"]
            await host.prompt(session_id, "x")
            assert (await client.hear("events"))[0]["seq"] == head + 3


async def test_a_method_is_refused_to_devices_with_less_than_its_scope() -> None:
    async with served() as (_host, port):
        for scope in SCOPES:
            async with peer(port, scope) as client:
                for method, needed in METHOD_SCOPES.items():
                    code = (await client.call(method)).get("error", {}).get("code")
                    is_too_low = SCOPES.index(scope) < SCOPES.index(needed)
                    assert (code == "quarterdeck/forbidden") == is_too_low, (scope, method)


async def test_only_admin_starts_mcp_servers_which_are_commands() -> None:
    server = {"name": "x", "command": "/bin/true", "args": [], "env": []}
    openings = (AcpRpcMethod.CREATE_SESSION, AcpRpcMethod.LOAD_SESSION, AcpRpcMethod.RESUME_SESSION)
    async with served() as (_host, port):
        for scope in SCOPES:
            async with peer(port, scope) as client:
                for method in openings:
                    answer = await client.call(method, mcpServers=[server])
                    is_refused = answer["error"]["code"] == "quarterdeck/forbidden"
                    assert is_refused == (scope != "admin"), (scope, method)


async def test_stored_servers_are_not_moved_by_those_who_could_not_start_them(
    tmp_path: Path,
) -> None:
    server = {"name": "x", "command": "./server", "args": [], "env": []}
    async with served() as (host, port):
        await opened(host, tmp_path)
        agent = host.get_agents()[0]
        session = await host.create_session(agent.agent_id, cwd=str(tmp_path), mcp_servers=[server])
        ids = {"agentId": agent.agent_id, "sessionId": session.session_id}
        for scope in SCOPES[1:]:
            async with peer(port, scope) as client:
                for servers in ({}, {"mcpServers": None}):
                    for cwd in ("/etc", f"{tmp_path}/", f"{tmp_path}/../x"):
                        answer = await client.call(
                            AcpRpcMethod.RESUME_SESSION,
                            cwd=cwd,
                            additionalDirectories=[],
                            **ids,
                            **servers,
                        )
                        code = answer.get("error", {}).get("code")
                        assert (code == "quarterdeck/forbidden") == (scope != "admin"), answer


@pytest.mark.parametrize("place", [{"cwd": "."}, {"cwd": "/", "additionalDirectories": ["x"]}])
async def test_folders_are_absolute_whatever_the_hub_was_started_in(place: dict[str, Any]) -> None:
    async with served() as (_host, port), peer(port, "prompt") as client:
        answer = await client.call(AcpRpcMethod.CREATE_SESSION, agentId="agent-1", **place)
        assert answer["error"]["code"] == "acpjs/config-invalid"
        assert "not an absolute path" in answer["error"]["message"]


@pytest.mark.parametrize(("scope", "is_kept"), [("prompt", False), ("approve", True)])
async def test_the_meta_of_a_prompt_is_for_those_who_may_choose_modes(
    tmp_path: Path, scope: str, *, is_kept: bool
) -> None:
    async with served() as (host, port), peer(port, scope) as client:
        told: list[Event] = []
        host.subscribe(None, 0, told.append)
        session_id = await opened(host, tmp_path)
        meta = {"permissionMode": "bypassPermissions"}
        inner = {"uri": "file:///x", "text": "x", "_meta": meta}
        blocks = [
            {"type": "text", "text": "go", "_meta": meta},
            {"type": "resource", "resource": inner},
        ]
        answer = await client.call(AcpRpcMethod.PROMPT, sessionId=session_id, prompt=blocks)
        assert "error" not in answer
        lines = await host.read_events(session_id, 0, 100)
        assert ("bypassPermissions" in repr(lines)) is is_kept
        codes = [each.payload["code"] for each in told if each.type == "diagnostic"]
        assert ("prompt/meta-left-out" in codes) is not is_kept


@pytest.mark.parametrize(("scope", "is_sent"), [("prompt", False), ("approve", True)])
async def test_a_command_that_changes_what_is_asked_is_for_those_who_may_choose_modes(
    tmp_path: Path, scope: str, *, is_sent: bool
) -> None:
    async with served() as (host, port), peer(port, scope) as client:
        session_id = await opened(host, tmp_path)
        for blocks in ([{"type": "text", "text": "/yolo"}], "/yolo"):
            answer = await client.call(AcpRpcMethod.PROMPT, sessionId=session_id, prompt=blocks)
            if is_sent:
                assert "error" not in answer
            else:
                assert answer["error"]["code"] == "quarterdeck/forbidden"
        lines = await host.read_events(session_id, 0, 100)
        assert ("/yolo" in repr(lines)) is is_sent


async def test_without_a_token_there_is_no_connection() -> None:
    async with served() as (_host, port):
        with pytest.raises(InvalidStatus) as caught:
            async with peer(port, ""):
                pass
        assert caught.value.response.status_code == 401


async def test_a_method_that_does_not_exist_is_rejected_for_every_scope() -> None:
    async with served() as (_host, port):
        async with peer(port, "approve") as client:
            assert (await client.call("x/y"))["error"]["code"] == "quarterdeck/forbidden"
        async with peer(port) as client:
            assert (await client.call("x/y"))["error"]["code"] == "acpjs/config-invalid"


def _first(heard: list[dict[str, Any]], key: str, kind: str, **payload: Any) -> int:
    """Return the place of the first frame that has an event of a kind and with that payload."""
    return next(
        place
        for place, frame in enumerate(heard)
        for event in frame.get("events", ())
        if frame.get("subscription") == key
        and event["type"] == kind
        and event["payload"].items() >= payload.items()
    )


async def test_many_events_come_in_one_frame_and_before_the_answer_that_follows_them(
    tmp_path: Path,
) -> None:
    storage = SqliteStorage(tmp_path / "log.db")
    async with served(storage=storage) as (host, port), peer(port) as client:
        session_id = await opened(host, tmp_path, PIECES, {"title": "Words"})
        await client.say(subscribe={"subscription": "s", "sessionId": session_id, "fromSeq": 0})
        await client.say(subscribe={"subscription": "h", "fromSeq": 0})
        text = [{"type": "text", "text": "x"}]
        await client.call("sessions/prompt", sessionId=session_id, prompt=text)
        log = [json.loads(data) for data in await stored(host, session_id)]
        frames = [each for each in client.heard if each.get("subscription") == "s"]
        events = [event for frame in frames for event in frame["events"]]
        assert events == log
        assert len(frames) < len(log) / 4
        # The host tells of the title; the session's own event of it comes before.
        told = _first(client.heard, "s", "session-info-update")
        assert told < _first(client.heard, "h", "session-updated", title="Words")


async def test_an_answer_needs_the_scope_and_counts_once(tmp_path: Path) -> None:
    async with served() as (host, port), anyio.create_task_group() as tasks:
        session_id = await opened(host, tmp_path, ASK)
        tasks.start_soon(host.prompt, session_id, "x")
        async with peer(port, "prompt") as low, peer(port, "approve") as high:
            question = await low.hear("inboundRequest")
            assert await high.hear("inboundRequest") == question
            answer = {"id": question["id"], "result": ALLOW}
            await low.say(inboundResponse=answer, ref="a")
            refused = await low.hear("inboundResult")
            assert (refused["ref"], refused["ok"]) == ("a", False)
            assert refused["error"]["code"] == "quarterdeck/forbidden"
            await high.say(inboundResponse=answer, ref="b")
            assert await high.hear("inboundResult") == {"ref": "b", "ok": True}
            await high.say(inboundResponse=answer, ref="c")
            again = await high.hear("inboundResult")
            assert again["error"]["code"] == "acpjs/already-answered"


@pytest.mark.parametrize(
    "frame",
    [
        *("", "x", "[]", "{}", '{"request": 5}', '{"request": {"id": 1}}', "\x00", '{"a":' * 900),
        '{"request": {"\\ud83d": 1}}',
    ],
)
async def test_an_invalid_frame_is_rejected_and_the_connection_stays_open(frame: str) -> None:
    async with served() as (_host, port), peer(port) as client:
        await client.socket.send(frame)
        error = await client.hear("error")
        assert error["code"] == "acpjs/config-invalid"
        assert (await client.call("agents/list"))["result"] == []
        await client.socket.send(frame.encode())
        await client.hear("error")


async def test_a_call_outlives_its_connection(tmp_path: Path) -> None:
    async with served() as (host, port):
        session_id = await opened(host, tmp_path, ASK)
        async with peer(port) as client:
            params = {"sessionId": session_id, "prompt": [{"type": "text", "text": "x"}]}
            await client.say(request={"id": "1", "method": "sessions/prompt", "params": params})
            question = await client.hear("inboundRequest")
        seen = Seen()
        host.subscribe(session_id, 0, seen)
        await host.respond_permission(question["id"], ALLOW)
        await seen.first("prompt-finished", stopReason="end_turn")


async def test_subscriptions_have_names_of_their_own_and_are_bounded(tmp_path: Path) -> None:
    async with served() as (host, port), peer(port) as client:
        session_id = await opened(host, tmp_path, {"say": "hi"})
        await client.say(subscribe={"subscription": "s", "sessionId": session_id, "fromSeq": 0})
        await client.say(subscribe={"subscription": "s", "sessionId": session_id, "fromSeq": 0})
        failed = await client.hear("subscriptionError")
        assert failed["error"]["code"] == "acpjs/config-invalid"
        for number in range(MOST_SUBSCRIPTIONS):
            await client.say(subscribe={"subscription": str(number), "fromSeq": 10**9})
        failed = await client.hear("subscriptionError")
        assert failed["error"]["code"] == "quarterdeck/too-many"
