"""Clients built on the official Python SDK: on stdio by `quarterdeck proxy`, and on a WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import acp
import acp.schema
import anyio
import pytest
from acp.connection import StreamDirection, StreamEvent
from acp.ws import create_websocket_stream
from anyio import to_thread

from tests.agent.official import check_all
from tests.cli.kit import ASK, COMMAND, Console, agent_toml
from tests.hub.api.kit import ASK as EDIT, paired
from tests.hub.editors.kit import hub_with

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PATIENCE = 90


class Watching:
    """A client of the SDK that records updates; requests wait for another client."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.asked = anyio.Event()
        self.received: list[Any] = []
        self.methods: dict[Any, str] = {}
        self.choice: str | None = None
        self._changed = anyio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self._changed.set()
        self._changed = anyio.Event()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> acp.RequestPermissionResponse:
        self.asked.set()
        if self.choice is None:
            await anyio.sleep_forever()
        chosen = next(each for each in options if each.kind == self.choice)
        outcome = acp.schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        return acp.RequestPermissionResponse(outcome=outcome)

    def observe(self, event: StreamEvent) -> None:
        if event.direction is StreamDirection.INCOMING:
            self.received.append(event.message)
        elif "id" in event.message and "method" in event.message:
            self.methods[event.message["id"]] = event.message["method"]

    async def until(self, is_true: Callable[[], Any]) -> None:
        while not is_true():
            await self._changed.wait()

    def texts(self, kind: str = "agent_message_chunk") -> list[str]:
        return [each.content.text for each in self.updates if each.session_update == kind]


@asynccontextmanager
async def proxy(desk: Console, client: Watching, agent: str) -> AsyncIterator[tuple[Any, Any]]:
    async with acp.spawn_agent_process(
        cast("acp.Client", client),
        *COMMAND,
        "proxy",
        agent,
        env=desk.environ,
        cwd=desk.work,
        transport_kwargs={"stderr": None, "shutdown_timeout": 60},
        observers=[client.observe],
        use_unstable_protocol=True,
    ) as (connection, process):
        await connection.initialize(
            protocol_version=1, client_info=acp.schema.Implementation(name="zed", version="1")
        )
        yield connection, process


async def test_a_session_begun_in_an_editor_is_approved_elsewhere_and_outlives_the_editor(
    tmp_path: Path,
) -> None:
    desk = Console(tmp_path, agent_toml("mine", {"say": "before"}, ASK, {"say": "after"}))
    first, second = Watching(), Watching()
    with anyio.fail_after(PATIENCE), desk.hub() as hub:
        async with proxy(desk, first, "mine") as (editor, process), anyio.create_task_group() as t:
            session_id = (await editor.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
            t.start_soon(_prompt_in_vain, editor, session_id)
            await first.asked.wait()
            await first.until(lambda: first.texts() == ["before"])
            process.kill()
        async with proxy(desk, second, "mine") as (editor, _):
            listed = await editor.list_sessions()
            assert [each.session_id for each in listed.sessions] == [session_id]
            await editor.load_session(cwd=str(desk.work), session_id=session_id, mcp_servers=[])
            await second.asked.wait()
            await second.until(lambda: second.texts() == ["before"])
            assert second.texts("user_message_chunk") == ["go"]
            asked = await to_thread.run_sync(hub.pending)
            await to_thread.run_sync(hub.answer, asked, "allow_once")
            await second.until(lambda: "after" in second.texts())
            second.choice = "reject_once"
            again = await editor.prompt(session_id, [acp.text_block("again")])
            assert again.stop_reason == "end_turn"
            told = ["before", "It was allowed.", "after", "before", "It was rejected.", "after"]
            await second.until(lambda: second.texts() == told)
        assert second.texts("user_message_chunk") == ["go"]
        decisions = await to_thread.run_sync(hub.call, "GET", "/api/decisions")
        names = [each["by"]["deviceName"] for each in decisions["decisions"]]
        assert names[0].endswith("via zed")
        assert "via" not in names[1]
    for client in (first, second):
        check_all(client.received, client.methods)


async def _prompt_in_vain(editor: Any, session_id: str) -> None:
    with pytest.raises((ConnectionError, acp.RequestError)):
        await editor.prompt(session_id, [acp.text_block("go")])


async def test_without_a_hub_the_proxy_is_one_and_a_second_editor_joins_it(tmp_path: Path) -> None:
    desk = Console(tmp_path, agent_toml("mine", {"say": "hello"}))
    first, second = Watching(), Watching()
    with anyio.fail_after(PATIENCE):
        async with proxy(desk, first, "mine") as (editor, process):
            session_id = (await editor.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
            async with proxy(desk, second, "mine") as (other, _):
                await other.resume_session(cwd=str(desk.work), session_id=session_id)
                await editor.prompt(session_id, [acp.text_block("hi")])
                await second.until(lambda: second.texts() == ["hello"])
                assert second.texts("user_message_chunk") == ["hi"]
                await first.until(lambda: first.texts() == ["hello"])
                assert first.texts("user_message_chunk") == []
        assert process.returncode == 0


async def test_a_client_on_a_websocket_has_a_whole_session(tmp_path: Path) -> None:
    client = Watching()
    client.choice = "allow_once"
    async with hub_with(tmp_path / "home", EDIT) as (_, owner):
        url = str(owner.http.base_url).replace("http", "ws", 1).rstrip("/")
        headers = {"Authorization": f"Bearer {await paired(owner, 'admin')}"}
        stream = await create_websocket_stream(f"{url}/acp", headers=headers)
        agent = acp.connect_to_agent(
            cast("acp.Client", client),
            stream,
            use_unstable_protocol=True,
            observers=[client.observe],
        )
        told = await agent.initialize(protocol_version=1)
        assert told.agent_info is not None
        assert told.agent_info.name == "mine"
        session_id = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        done = await agent.prompt(session_id, [acp.text_block("go")])
        assert done.stop_reason == "end_turn"
        await client.until(lambda: client.texts() == ["done"])
        await agent.close()
    check_all(client.received, client.methods)
