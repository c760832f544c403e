"""Sessions that are opened, closed and deleted at the same time, or fail half-way."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from quarterdeck.agent import AgentServer, AgentSession, AgentTurn, SessionStore
from tests.agent.support import PATIENCE, Json, conversing


class Gated:
    """Opens and closes sessions when the test says so."""

    def __init__(self) -> None:
        self.may_open = anyio.Event()
        self.is_opening = anyio.Event()
        self.sessions: list[AgentSession] = []
        self.closed: list[str] = []

    async def prompt(self, turn: AgentTurn) -> AsyncIterator[str]:
        yield "begun"
        await anyio.sleep_forever()

    async def open_session(self, session: AgentSession) -> None:
        self.is_opening.set()
        await self.may_open.wait()
        self.sessions.append(session)

    async def close_session(self, session: AgentSession) -> None:
        self.closed.append(session.id)


def load(session_id: str) -> Json:
    return {"sessionId": session_id, "cwd": "/", "mcpServers": []}


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "sessions")


async def test_operations_on_one_session_happen_in_the_order_of_the_requests(
    store: SessionStore,
) -> None:
    agent = Gated()
    agent.may_open.set()
    async with conversing(agent, store=store) as client:
        session_id = await client.open_session()
        agent.may_open = anyio.Event()
        methods = ("close", "load", "resume", "close", "close", "load", "delete", "load")
        requests = [await client.ask(f"session/{method}", **load(session_id)) for method in methods]
        other = await client.result("session/list")  # which need not wait
        agent.may_open.set()
        answers = [await client.answered(request) for request in requests]
        order = [each["id"] for each in client.messages if each.get("id") in requests]
    assert other["sessions"] != []
    assert order == requests
    assert ["result" in answer for answer in answers] == [True] * 4 + [False] + [True] * 2 + [False]


async def test_options_that_fail_let_the_agent_close_what_it_has_opened() -> None:
    class Broken(Gated):
        def config_options(self, _session: AgentSession) -> list[Json]:
            raise KeyError("model")

    agent = Broken()
    agent.may_open.set()
    async with conversing(agent) as client:
        error = await client.error("session/new", cwd="/", mcpServers=[])
    assert error == {"code": -32603, "message": "the agent failed: KeyError: 'model'"}
    assert agent.closed == [agent.sessions[0].id]


async def test_a_session_with_a_running_prompt_is_not_loaded_over_it(store: SessionStore) -> None:
    agent = Gated()
    agent.may_open.set()
    async with conversing(agent, store=store) as client:
        session_id = await client.open_session()
        prompt = await client.ask_prompt(session_id)
        await client.came(lambda each: each.get("method") == "session/update")
        error = await client.error("session/load", **load(session_id))
        await client.result("session/delete", sessionId=session_id)
        assert (await client.answered(prompt))["result"] == {"stopReason": "cancelled"}
    assert error["data"] == "prompt already running"
    assert agent.closed == [session_id]
    assert store.list() == []


async def test_an_opening_that_is_cancelled_leaves_nothing_behind(store: SessionStore) -> None:
    agent = Gated()
    async with conversing(agent, store=store) as client:
        request = await client.ask("session/new", cwd="/", mcpServers=[])
        await agent.is_opening.wait()
        await client.notify("$/cancel_request", requestId=request)
        assert (await client.answered(request))["error"]["code"] == -32800
        assert store.list() == []


async def test_what_is_being_opened_when_the_client_leaves_can_be_opened_by_another(
    store: SessionStore,
) -> None:
    agent = Gated()
    agent.may_open.set()
    server = AgentServer(agent, store=store)
    async with conversing(server) as client:
        session_id = await client.open_session()
    agent.may_open = anyio.Event()
    agent.is_opening = anyio.Event()
    async with conversing(server) as client:
        await client.ask("session/load", **load(session_id))
        await agent.is_opening.wait()
    agent.may_open.set()
    async with conversing(server) as client:
        assert "result" in await client.call("session/load", **load(session_id))


async def test_an_agent_that_does_not_close_its_session_is_not_waited_for(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Gated):
        pass

    async def never(_session: AgentSession) -> None:
        await anyio.sleep_forever()

    async def fails(_session: AgentSession) -> None:
        raise ValueError("cannot")

    monkeypatch.setattr("quarterdeck.agent.sessions.HOOK_SECONDS", 0.05)
    for hook in (never, fails):
        agent = Slow()
        agent.may_open.set()
        monkeypatch.setattr(agent, "close_session", hook)
        with anyio.fail_after(PATIENCE):
            async with conversing(agent, store=store) as client:
                session_id = await client.open_session()
                assert await client.result("session/close", sessionId=session_id) == {}
                assert "result" in await client.call("session/load", **load(session_id))
