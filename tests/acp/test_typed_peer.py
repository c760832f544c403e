"""Typed calls over a connection: both sides, every kind of call, and what a side does not offer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec import UNSET

from quarterdeck.acp import Handlers, Peer, Unknown, methods, open_peer, schema
from quarterdeck.errors import AnswerInvalid, RpcError
from quarterdeck.wire import memory_pair

pytestmark = pytest.mark.anyio

CHUNK = schema.AgentMessageChunk(content=schema.TextContentBlock(text="hello"))


@asynccontextmanager
async def connected(client: Handlers, agent: Handlers) -> AsyncIterator[tuple[Peer, Peer]]:
    """Yield the agent as the client sees it, and the client as the agent sees it."""
    client_end, agent_end = memory_pair()
    with anyio.fail_after(10):
        async with (
            open_peer(client_end, client) as to_agent,
            open_peer(agent_end, agent) as to_client,
        ):
            yield to_agent, to_client


async def test_a_turn_of_both_sides_is_typed_from_end_to_end() -> None:
    client, agent = Handlers(), Handlers()
    seen: list[schema.SessionNotification] = []
    client.on(methods.SESSION_UPDATE, seen.append)

    async def allow(request: schema.RequestPermissionRequest) -> schema.RequestPermissionResponse:
        chosen = schema.AllowedOutcome(option_id=request.options[0].option_id)
        return schema.RequestPermissionResponse(outcome=chosen)

    client.answer(methods.SESSION_REQUEST_PERMISSION, allow)

    async def new(request: schema.NewSessionRequest) -> schema.NewSessionResponse:
        return schema.NewSessionResponse(session_id=f"session of {request.cwd}")

    async def prompt(request: schema.PromptRequest) -> schema.PromptResponse:
        await to_client.notify(
            methods.SESSION_UPDATE,
            schema.SessionNotification(session_id=request.session_id, update=CHUNK),
        )
        answer = await to_client.call(
            methods.SESSION_REQUEST_PERMISSION,
            schema.RequestPermissionRequest(
                session_id=request.session_id,
                tool_call=schema.ToolCallUpdate(tool_call_id="t"),
                options=(schema.PermissionOption(option_id="ok", name="OK", kind="allow_once"),),
            ),
        )
        allowed = isinstance(answer.outcome, schema.AllowedOutcome)
        return schema.PromptResponse(stop_reason="end_turn" if allowed else "refusal")

    agent.answer(methods.SESSION_NEW, new)
    agent.answer(methods.SESSION_PROMPT, prompt)

    async with connected(client, agent) as (to_agent, to_client):
        created = await to_agent.call(
            methods.SESSION_NEW, schema.NewSessionRequest(cwd="/tmp", mcp_servers=())
        )
        assert created.session_id == "session of /tmp"
        answer = await to_agent.call(
            methods.SESSION_PROMPT,
            schema.PromptRequest(
                session_id=created.session_id, prompt=(schema.TextContentBlock(text="hi"),)
            ),
        )
    assert answer.stop_reason == "end_turn"
    assert [each.update for each in seen] == [CHUNK]


async def test_an_update_of_a_kind_we_do_not_know_arrives_whole() -> None:
    client = Handlers()
    seen: list[schema.SessionNotification] = []
    client.on(methods.SESSION_UPDATE, seen.append)
    update = {"sessionUpdate": "hologram", "depth": [1, None]}
    async with connected(client, Handlers()) as (_, to_client):
        await to_client.connection.notify("session/update", {"sessionId": "s", "update": update})
        await to_client.notify(
            methods.SESSION_UPDATE, schema.SessionNotification(session_id="s", update=CHUNK)
        )
        while len(seen) < 2:
            await anyio.lowlevel.checkpoint()
    first = seen[0].update
    assert isinstance(first, Unknown)
    assert first.data == update
    assert seen[1].update == CHUNK


async def test_a_method_without_a_handler_is_not_found() -> None:
    async with connected(Handlers(), Handlers()) as (to_agent, _):
        with pytest.raises(RpcError, match="Method not found: logout") as caught:
            await to_agent.call(methods.LOGOUT, schema.LogoutRequest())
    assert caught.value.code == methods.METHOD_NOT_FOUND


async def test_notifications_of_extensions_reach_on_other() -> None:
    others: list[tuple[str, Any]] = []
    client = Handlers(on_other=lambda method, params: others.append((method, params)))
    async with connected(client, Handlers()) as (_, to_client):
        await to_client.connection.notify("qwen/notify/thing", {"a": 1})
        while not others:
            await anyio.lowlevel.checkpoint()
    assert others == [("qwen/notify/thing", {"a": 1})]


async def test_an_answer_that_is_not_what_the_method_promises_fails_the_call() -> None:
    agent = Handlers()

    async def wrong(_request: schema.NewSessionRequest) -> Any:
        return {"session": 1}

    agent.answer(methods.SESSION_NEW, wrong)
    async with connected(Handlers(), agent) as (to_agent, _):
        with pytest.raises(AnswerInvalid, match="session/new"):
            await to_agent.call(
                methods.SESSION_NEW, schema.NewSessionRequest(cwd="/tmp", mcp_servers=())
            )


async def test_params_that_break_the_schema_are_refused_before_the_handler() -> None:
    agent = Handlers()

    async def never(_request: schema.NewSessionRequest) -> schema.NewSessionResponse:
        raise AssertionError

    agent.answer(methods.SESSION_NEW, never)
    async with connected(Handlers(), agent) as (to_agent, _):
        with pytest.raises(RpcError) as caught:
            await to_agent.connection.call("session/new", {"cwd": 5})
    assert caught.value.code == methods.INVALID_PARAMS


async def test_meta_is_a_field_of_its_own_and_overwrites_no_argument() -> None:
    client = Handlers()
    written: list[schema.WriteTextFileRequest] = []

    async def write(request: schema.WriteTextFileRequest) -> schema.WriteTextFileResponse:
        written.append(request)
        return schema.WriteTextFileResponse()

    client.answer(methods.FS_WRITE_TEXT_FILE, write)
    params = {"sessionId": "s", "path": "/a", "content": "x", "_meta": {"path": "/etc/passwd"}}
    async with connected(client, Handlers()) as (_, to_client):
        await to_client.connection.call("fs/write_text_file", params)
    assert (written[0].path, written[0].meta) == ("/a", {"path": "/etc/passwd"})


async def test_a_title_can_be_cleared() -> None:
    client = Handlers()
    seen: list[schema.SessionNotification] = []
    client.on(methods.SESSION_UPDATE, seen.append)
    cleared = schema.SessionInfoUpdate(title=None)
    async with connected(client, Handlers()) as (_, to_client):
        await to_client.notify(
            methods.SESSION_UPDATE, schema.SessionNotification(session_id="s", update=cleared)
        )
        while not seen:
            await anyio.lowlevel.checkpoint()
    update = seen[0].update
    assert isinstance(update, schema.SessionInfoUpdate)
    assert update.title is None
    assert update.updated_at is UNSET
