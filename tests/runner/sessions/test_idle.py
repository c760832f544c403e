"""Agents that do nothing are stopped, and started again on demand."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from quarterdeck.agents import AgentSettings
from quarterdeck.hub import Hub, HubOptions
from tests.hub.api.kit import ASK, Client, running, scripted
from tests.hub.runners import runner_of

pytestmark = pytest.mark.anyio

NO_TIME = 1e-9  # minutes


def set_up(home: Path, agent: AgentSettings, minutes: float = NO_TIME) -> HubOptions:
    return HubOptions(home=home, port=0, agents={"mine": agent}, idle_agent_minutes=minutes)


async def looked(hub: Hub) -> None:
    """Look as often as it takes to find an agent idle that is."""
    await runner_of(hub).idle_agents.look()
    await runner_of(hub).idle_agents.look()


async def agents(client: Client) -> int:
    return len((await client.get("/api/agents"))["agents"])


async def test_an_idle_agent_is_stopped_and_comes_back_for_a_prompt(tmp_path: Path) -> None:
    async with running(set_up(tmp_path / "home", scripted({"say": "hi"}))) as (hub, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k1")
        await client.ended(session, "k1")
        while await agents(client):  # it is busy until the queue has noted its end
            await runner_of(hub).idle_agents.look()
        view = await client.get(f"/api/sessions/{session}")
        assert view["session"]["status"] == "disconnected"
        await client.prompt(session, "k2")
        assert (await client.ended(session, "k2"))["state"] == "done"
        assert await agents(client) == 1


async def test_a_prompt_that_comes_while_its_agent_is_being_stopped_is_not_lost(
    tmp_path: Path,
) -> None:
    async with running(set_up(tmp_path / "home", scripted({"say": "hi"}))) as (hub, client):
        session = await client.session("mine", tmp_path)
        (agent,) = (await client.get("/api/agents"))["agents"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runner_of(hub).manager.stop_idle, agent["agentId"])
            await client.prompt(session, "k1")
            await client.post("/api/agents/known/mine")
        assert (await client.ended(session, "k1"))["state"] == "done"
        assert await agents(client) == 1


async def test_an_agent_that_works_or_waits_or_could_not_come_back_is_left_alone(
    tmp_path: Path,
) -> None:
    async with running(set_up(tmp_path / "asks", scripted(ASK))) as (hub, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k1")
        await client.pending_permissions()
        await looked(hub)
        assert await agents(client) == 1
    forgetful = scripted({"say": "hi"}, capabilities={})
    async with running(set_up(tmp_path / "forgets", forgetful)) as (hub, client):
        await client.session("mine", tmp_path)
        await looked(hub)
        assert await agents(client) == 1


async def test_by_default_an_agent_runs_on(tmp_path: Path) -> None:
    async with running(set_up(tmp_path / "home", scripted({"say": "hi"}), 0.0)) as (hub, client):
        await client.session("mine", tmp_path)
        await looked(hub)
        assert await agents(client) == 1
