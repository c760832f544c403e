"""What survives `kill -9` of the hub, and how it ends when it is asked to."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from quarterdeck.errors import StartRefused
from quarterdeck.hub import Hub, HubOptions
from quarterdeck.machine.guard_program import living_descendants
from tests.host.faults.kit import gone
from tests.hub.api.kit import ASK, Client, Json, scripted
from tests.hub.api.processes import hub_process
from tests.storage.support import edited

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PATIENCE = 90


def prompts_in(events: list[Json]) -> list[str]:
    return [
        event["payload"]["content"]["text"]
        for event in events
        if event["type"] == "user-message-chunk"
    ]


async def test_a_hub_that_is_killed_in_a_turn_loses_nothing_and_runs_nothing_twice(
    tmp_path: Path,
) -> None:
    home, agent = tmp_path / "home", scripted({"say": "working"}, ASK)
    with anyio.fail_after(PATIENCE):
        async with hub_process(home, agent) as hub:
            session = await hub.client.session("mine", tmp_path)
            await hub.client.prompt(session, "k1", "first")
            (request,) = await hub.client.pending_permissions()
            await hub.client.prompt(session, "k2", "second")
            seen = await hub.client.events(session)
            await hub.kill()
        async with hub_process(home, agent) as hub:
            client = hub.client
            interrupted = await client.get(f"/api/sessions/{session}/prompts/k1")
            assert interrupted["state"] == "interrupted"
            assert "the hub stopped during the turn" in interrupted["error"]["message"]
            again = await client.prompt(session, "k1", "first")
            assert again == interrupted
            await client.pending_permissions()  # the second one runs by itself
            events = await client.events(session)
            assert events[: len(seen)] == seen
            assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
            assert prompts_in(events) == ["first", "second"]
            late = {"optionId": "allow_once", "digest": request["digest"]}
            path = f"/api/permissions/{request['requestId']}/answer"
            refused = await client.post(path, late, status=410)
            assert refused["error"]["code"] == "quarterdeck/gone"
            lines = (await client.get("/api/decisions"))["decisions"]
            (line,) = [each for each in lines if each["requestId"] == request["requestId"]]
            assert (line["state"], line["by"]["kind"]) == ("superseded", "restart")
            state = (await client.get(f"/api/sessions/{session}?at={len(seen) + 1}"))["state"]
            assert state["pendingPermissionRequests"] == []


async def test_retries_of_one_prompt_during_kills_run_it_once(tmp_path: Path) -> None:
    home, agent = tmp_path / "home", scripted({"say": "hi"})
    with anyio.fail_after(PATIENCE):
        async with hub_process(home, agent) as hub:
            session = await hub.client.session("mine", tmp_path)
        for number in range(5):
            key = f"key-{number}"
            async with hub_process(home, agent) as hub, anyio.create_task_group() as tasks:
                for _ in range(50):
                    tasks.start_soon(_send_quietly, hub.client, session, key)
                await anyio.sleep(0.02 * number)  # somewhere in it
                await hub.kill()
        async with hub_process(home, agent) as hub:
            for number in range(5):
                await hub.client.prompt(session, f"key-{number}", f"key-{number}")
                await hub.client.ended(session, f"key-{number}")
            sent = prompts_in(await hub.client.events(session))
            assert len(sent) == len(set(sent))
            listed = (await hub.client.get(f"/api/sessions/{session}/prompts"))["prompts"]
            assert len(listed) == 5
            states = {entry["state"] for entry in listed}
            assert states <= {"done", "interrupted"}
            # What the hub reported as done is in the log, at the reported number.
            events = {event["seq"]: event for event in await hub.client.events(session)}
            for entry in listed:
                if entry["state"] == "done":
                    assert events[entry["seq"]]["payload"]["content"]["text"] == entry["key"]


async def _send_quietly(client: Client, session: str, key: str) -> None:
    try:
        body = {"key": key, "prompt": key}
        await client.http.post(f"/api/sessions/{session}/prompts", json=body)
    except httpx2.TransportError:
        pass  # it was killed


async def test_an_answer_that_did_not_reach_the_agent_is_not_reported_as_delivered(
    tmp_path: Path,
) -> None:
    home, agent = tmp_path / "home", scripted(ASK)
    with anyio.fail_after(PATIENCE):
        async with hub_process(home, agent) as hub:
            session = await hub.client.session("mine", tmp_path)
            await hub.client.prompt(session, "k1")
            (request,) = await hub.client.pending_permissions()
            # It is shown before it is noted.
            await hub.client.until("/api/decisions", lambda answer: answer["decisions"])
            await hub.kill()
        # As if it had been killed between its own commit and the answer to the agent.
        with edited(home / "runner.db") as database:
            database.execute(
                "UPDATE decisions SET state = 'answered', outcome = '{}', by = ?",
                ('{"kind":"device"}',),
            )
        async with hub_process(home, agent) as hub:
            (line,) = (await hub.client.get("/api/decisions"))["decisions"]
            assert line["requestId"] == request["requestId"]
            assert (line["state"], line["by"]["kind"]) == ("superseded", "restart")
            events = await hub.client.events(session)
            resolved = [
                event["payload"]
                for event in events
                if event["type"] == "permission-request-resolved"
            ]
            assert [each["status"] for each in resolved] == ["superseded"]


async def test_a_second_hub_is_refused_also_while_the_first_was_killed_and_came_back(
    tmp_path: Path,
) -> None:
    home, agent = tmp_path / "home", scripted({"say": "hi"})
    with anyio.fail_after(PATIENCE):
        async with hub_process(home, agent) as first:
            assert f"process {first.process.pid}" in await _refusal(home)
            await first.kill()
        async with hub_process(home, agent) as second:
            assert await second.client.get("/healthz") == {"status": "ok"}
            assert f"process {second.process.pid}" in await _refusal(home)


async def _refusal(home: Path) -> str:
    with pytest.raises(StartRefused) as refused:
        await Hub(HubOptions(home=home)).__aenter__()
    return str(refused.value)


STUBBORN: Json = {"ignore": ["eof", "TERM"]}


@pytest.mark.parametrize(
    ("steps", "more"),
    [([], {}), ([ASK], {}), ([{"spawn": 60}, {"stall": True, "deaf": True}], STUBBORN)],
    ids=["idle", "asking", "stubborn"],
)
async def test_a_hub_ends_in_time_on_a_signal_and_leaves_no_process(
    tmp_path: Path, steps: list[Any], more: Json
) -> None:
    home, agent = tmp_path / "home", scripted(*steps, **more)
    with anyio.fail_after(PATIENCE):
        async with hub_process(home, agent) as hub:
            session = await hub.client.session("mine", tmp_path)
            await hub.client.prompt(session, "k1")
            await hub.client.prompt(session, "k2")
            await hub.client.until(
                f"/api/sessions/{session}/prompts/k1", lambda entry: entry["state"] != "queued"
            )
            children = living_descendants(hub.process.pid)
            assert children
            hub.process.send_signal(signal.SIGTERM)
            # In ten seconds by the hub's own clocks; a busy machine may need more.
            assert await hub.process.wait() == 0
            await gone(children)
        assert not (home / "hub.json").exists()
        async with hub_process(home, agent) as hub:
            listed = (await hub.client.get(f"/api/sessions/{session}/prompts"))["prompts"]
            assert [entry["key"] for entry in listed] == ["k1", "k2"]
