"""Machines that are away and come back: logs stay readable, commands wait, nothing is doubled."""

# ruff: noqa: ASYNC110 - a copy has no event for tests

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from quarterdeck.agents import AgentSettings
from quarterdeck.client import Client as EnvelopeClient, WebSocketTransport
from quarterdeck.errors import RequestRejected
from quarterdeck.hub.fleet import waiting
from quarterdeck.testing import scripted_agent
from tests.hub.api.kit import ASK, Client, Json, options, running, scripted
from tests.hub.fleet.kit import OtherMachine, on_hub, other_machine, until

SAY = scripted({"say": "hello"})


async def begin(client: Client, machine: OtherMachine, cwd: Path, agent: str = "mine") -> str:
    body = {"agent": agent, "cwd": str(cwd), "machine": machine.id}
    made = await client.post("/api/sessions", body, status=201)
    session_id: str = made["sessionId"]
    return session_id


async def stored(machine: OtherMachine, session_id: str) -> list[Json]:
    """Return the log of a session on its machine, with the hub's ids."""
    _, inner = session_id.split("~", 1)
    events = await machine.runner.read_events(inner, 0, 5000)
    read = [json.loads(each) for each in events]
    for event in read:
        event["sessionId"] = session_id
        if "requestId" in event["payload"]:
            event["payload"]["requestId"] = machine.hub_id(event["payload"]["requestId"])
    return read


async def test_a_session_of_another_machine_is_listed_prompted_and_read(tmp_path: Path) -> None:
    async with (
        running(options(tmp_path / "home", mine=SAY)) as (hub, client),
        other_machine(tmp_path / "other", mine=SAY) as laptop,
    ):
        await laptop.join(hub, "laptop")
        session = await begin(client, laptop, tmp_path)
        assert session.startswith(f"{laptop.id}~")
        await client.prompt(session, "k1")
        assert (await client.ended(session, "k1"))["state"] == "done"
        (listed,) = (await client.get("/api/sessions"))["sessions"]
        assert (listed["sessionId"], listed["machine"]) == (session, laptop.id)
        assert await client.events(session) == await stored(laptop, session)


async def test_two_machines_may_use_the_same_session_id(tmp_path: Path) -> None:
    async with (
        running(options(tmp_path / "home", mine=scripted({"say": "from here"}))) as (hub, client),
        other_machine(tmp_path / "a", "m0000000a", mine=scripted({"say": "from a"})) as first,
        other_machine(tmp_path / "b", "m0000000b", mine=scripted({"say": "from b"})) as second,
    ):
        await first.join(hub)
        await second.join(hub)
        sessions = [
            await client.session("mine", tmp_path),
            await begin(client, first, tmp_path),
            await begin(client, second, tmp_path),
        ]
        assert {each.rpartition("~")[2] for each in sessions} == {sessions[0]}
        for session in sessions:
            await client.prompt(session, "same-key")
        for session, words in zip(sessions, ("here", "a", "b"), strict=True):
            await client.ended(session, "same-key")
            said = [
                event["payload"]["content"]["text"]
                for event in await client.events(session)
                if event["type"] == "agent-message-chunk"
            ]
            assert "".join(said) == f"from {words}"


async def test_the_log_of_a_machine_that_is_away_can_be_read_also_after_a_restart(
    tmp_path: Path,
) -> None:
    given = options(tmp_path / "home")
    async with other_machine(tmp_path / "other", mine=SAY) as laptop:
        async with running(given) as (hub, client):
            await laptop.join(hub, "laptop")
            session = await begin(client, laptop, tmp_path)
            await client.prompt(session, "k1")
            await client.ended(session, "k1")
            expected = await stored(laptop, session)
            await laptop.cut(hub)
            assert await client.events(session) == expected
        async with running(given) as (hub, client):
            await hub.fleet.add(laptop.id, "laptop")
            (listed,) = (await client.get("/api/sessions"))["sessions"]
            assert listed["sessionId"] == session
            assert listed["lastSeq"] == len(expected)
            assert await client.events(session) == expected
            transcript = await client.get(f"/api/sessions/{session}/transcript")
            assert "hello" in json.dumps(transcript["entries"])
            refused = await client.post(f"/api/sessions/{session}/end-agent", status=503)
            assert (
                "laptop cannot be reached: it has been away since 20" in refused["error"]["message"]
            )


async def test_a_prompt_for_a_machine_that_is_away_runs_once_when_it_is_back(
    tmp_path: Path,
) -> None:
    given = options(tmp_path / "home")
    async with other_machine(tmp_path / "other", mine=SAY) as laptop:
        async with running(given) as (hub, client):
            await laptop.join(hub, "laptop")
            session = await begin(client, laptop, tmp_path)
            await laptop.cut(hub)
            for key in ("k1", "k2", "k1"):
                entry = await client.prompt(session, key)
                assert entry["state"] == "queued"
                assert entry["waitsUntil"] > entry["createdAt"]
            listed = await client.get(f"/api/sessions/{session}/prompts")
            assert [each["key"] for each in listed["prompts"]] == ["k1", "k2"]
            body = {"key": "k2", "prompt": "other words"}
            await client.post(f"/api/sessions/{session}/prompts", body, status=409)
        async with running(given) as (hub, client):  # it is kept by the hub, not by its memory
            await hub.fleet.add(laptop.id, "laptop")
            await laptop.connect(hub)
            for key in ("k1", "k2"):
                assert (await client.ended(session, key))["state"] == "done"
            log = await stored(laptop, session)
            assert [event["type"] for event in log].count("prompt-finished") == 2
            await until(lambda: not hub.fleet.state_of(laptop.id).waiting)
            assert await client.events(session) == log


async def test_a_prompt_that_waits_is_changed_and_cancelled(tmp_path: Path) -> None:
    async with (
        running(options(tmp_path / "home")) as (hub, client),
        other_machine(tmp_path / "other", mine=SAY) as laptop,
    ):
        await laptop.join(hub)
        session = await begin(client, laptop, tmp_path)
        await laptop.cut(hub)
        await client.prompt(session, "k1")
        await client.prompt(session, "k2")
        path = f"/api/sessions/{session}/prompts"
        await client.call("DELETE", f"{path}/k1")
        await client.call("PATCH", f"{path}/k2", {"prompt": "other words"})
        await laptop.connect(hub)
        await client.ended(session, "k2")
        log = json.dumps(await stored(laptop, session))
        assert "other words" in log
        assert log.count('"prompt-finished"') == 1


async def test_a_command_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "EXPIRY_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "SWEEP_SECONDS", 0.02)
    async with (
        running(options(tmp_path / "home")) as (hub, client),
        other_machine(tmp_path / "other", mine=SAY) as laptop,
    ):
        await laptop.join(hub)
        session = await begin(client, laptop, tmp_path)
        await laptop.cut(hub)
        await client.prompt(session, "k1")
        ended = await client.ended(session, "k1")
        assert (ended["state"], ended["error"]["code"]) == ("failed", "quarterdeck/expired")
        await laptop.connect(hub)
        await client.prompt(session, "k2")
        await client.ended(session, "k2")
        assert json.dumps(await stored(laptop, session)).count('"prompt-finished"') == 1
        path = f"/api/sessions/{session}/prompts"
        listed = (await client.get(path))["prompts"]
        assert {each["key"]: each["state"] for each in listed} == {"k1": "failed", "k2": "done"}
        await client.call("DELETE", f"{path}/k1")
        assert [each["key"] for each in (await client.get(path))["prompts"]] == ["k2"]


async def test_an_answer_waits_for_its_machine_and_the_first_one_counts(tmp_path: Path) -> None:
    async with (
        running(options(tmp_path / "home")) as (hub, client),
        other_machine(tmp_path / "other", mine=scripted(ASK)) as laptop,
    ):
        await laptop.join(hub)
        session = await begin(client, laptop, tmp_path)
        await client.prompt(session, "k1")
        (card,) = await client.pending_permissions()
        assert card["requestId"] == laptop.hub_id("perm-1")
        await laptop.cut(hub)
        path = f"/api/permissions/{card['requestId']}/answer"
        wrong = {"digest": "0" * 64, "optionId": "allow_once", "key": "w"}
        assert (await client.post(path, wrong, status=409))["error"]["code"] == "quarterdeck/stale"
        answer = {"digest": card["digest"], "optionId": "allow_once", "key": "a"}
        decision = await client.post(path, answer)
        assert "is away; the answer waits for it until" in decision["problem"]
        assert await client.post(path, answer) == decision
        other = {**answer, "optionId": "reject_once", "key": "b"}
        refused = await client.post(path, other, status=409)
        assert refused["error"]["code"] == "quarterdeck/already-answered"
        await laptop.connect(hub)
        assert (await client.ended(session, "k1"))["state"] == "done"
        (recorded,) = (await client.get(f"/api/decisions?session={session}"))["decisions"]
        assert recorded["outcome"] == {"outcome": "selected", "optionId": "allow_once"}


async def test_a_stream_stays_open_while_a_machine_is_away(tmp_path: Path) -> None:
    async with (
        running(options(tmp_path / "home")) as (hub, client),
        other_machine(tmp_path / "other", mine=SAY) as laptop,
    ):
        await laptop.join(hub)
        session = await begin(client, laptop, tmp_path)
        seen: list[int] = []

        async def follow() -> None:
            async for event in hub.runner.events(session):
                seen.append(event.seq)  # noqa: PERF401 - it never ends

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            for round_ in range(3):
                await client.prompt(session, f"k{round_}")
                await client.ended(session, f"k{round_}")
                await laptop.cut(hub)
                await client.prompt(session, f"w{round_}")
                await laptop.connect(hub)
                await client.ended(session, f"w{round_}")
            head = len(await stored(laptop, session))
            await until(lambda: len(seen) >= head)
            tasks.cancel_scope.cancel()
        assert seen == list(range(1, head + 1))


async def test_a_deletion_waits_and_the_session_is_hidden(tmp_path: Path) -> None:
    async with (
        running(options(tmp_path / "home")) as (hub, client),
        other_machine(tmp_path / "other", mine=SAY) as laptop,
    ):
        await laptop.join(hub)
        session = await begin(client, laptop, tmp_path)
        await laptop.cut(hub)
        await client.call("DELETE", f"/api/sessions/{session}", status=204)
        assert (await client.get("/api/sessions"))["sessions"] == []
        await laptop.connect(hub)
        await until(lambda: not laptop.runner.sessions())
        inner = session.split("~")[1]
        while await on_hub(hub, laptop.id).replica.read(inner, 0, 10):
            await anyio.sleep(0.01)  # it is deleted in the background


async def test_a_removed_machine_leaves_nothing(tmp_path: Path) -> None:
    async with (
        running(options(tmp_path / "home")) as (hub, client),
        other_machine(tmp_path / "other", mine=SAY) as laptop,
    ):
        await laptop.join(hub)
        session = await begin(client, laptop, tmp_path)
        await hub.fleet.remove(laptop.id)
        assert laptop.link is not None
        await until(lambda: not laptop.link.is_open if laptop.link else False)
        assert (await client.get("/api/sessions"))["sessions"] == []
        await client.get(f"/api/sessions/{session}", status=404)
        assert not (tmp_path / "home" / "machines" / laptop.id).exists()
        with pytest.raises(RequestRejected, match="it may have been removed"):
            hub.fleet.accepting(laptop.id)


async def test_what_a_machine_reported_is_forgotten_with_it(tmp_path: Path) -> None:
    given = options(tmp_path / "home")
    async with other_machine(tmp_path / "other", mine=SAY) as laptop:
        async with running(given) as (hub, client):
            await laptop.join(hub)
            await begin(client, laptop, tmp_path)
        async with running(given) as (hub, client):
            await hub.fleet.add(laptop.id, "laptop")
            assert len((await client.get("/api/sessions"))["sessions"]) == 1
            await hub.fleet.remove(laptop.id)
            await hub.fleet.add(laptop.id, "laptop")
            assert (await client.get("/api/sessions"))["sessions"] == []


async def test_the_copy_of_a_log_has_the_bytes_of_the_machine(tmp_path: Path) -> None:
    async with (
        running(options(tmp_path / "home")) as (hub, client),
        other_machine(tmp_path / "other", mine=SAY) as laptop,
    ):
        await laptop.join(hub)
        session = await begin(client, laptop, tmp_path)
        await client.prompt(session, "k1")
        await client.ended(session, "k1")
        inner = session.split("~", 1)[1]
        copied = await on_hub(hub, laptop.id).replica.read(inner, 0, 1000)
        assert copied == await laptop.runner.read_events(inner, 0, 1000)


async def test_streams_report_that_a_machine_comes_and_goes(tmp_path: Path) -> None:
    async with (
        running(options(tmp_path / "home")) as (hub, client),
        other_machine(tmp_path / "other", mine=SAY) as laptop,
    ):
        await laptop.join(hub)
        seen: list[str] = []
        async with (
            client.http.stream("GET", "/api/stream?host=") as stream,
            anyio.create_task_group() as tasks,
        ):

            async def read() -> None:
                async for line in stream.aiter_lines():
                    seen.append(line)  # noqa: PERF401 - it never ends

            tasks.start_soon(read)
            await until(lambda: "event: reset" in seen)
            await laptop.cut(hub)
            await until(lambda: seen.count("event: machines") == 1)
            await laptop.connect(hub)
            await until(lambda: seen.count("event: machines") >= 2)
            tasks.cancel_scope.cancel()
        listed = await client.get("/api/sessions")
        assert listed["epochs"].keys() == {laptop.id}
        assert listed["epochs"][laptop.id] != listed["epoch"]


async def test_an_agent_that_wants_to_control_another_machine_is_recorded(tmp_path: Path) -> None:
    async with (
        running(options(tmp_path / "home")) as (hub, client),
        other_machine(tmp_path / "other", mine=SAY) as laptop,
    ):
        laptop.server.peers.refused_agent = "process 7 of claude"
        await laptop.join(hub, "laptop")
        log = await client.until("/api/devices/log", lambda answer: answer["events"])
        (event,) = [each for each in log["events"] if each["what"] == "refused-agent"]
        assert event["detail"] == "on laptop: process 7 of claude"


async def test_a_client_of_envelopes_resumes_a_session_of_another_machine(tmp_path: Path) -> None:
    given = options(tmp_path / "home")
    async with (
        running(given) as (hub, client),
        other_machine(tmp_path / "other", mine=SAY) as laptop,
    ):
        await laptop.join(hub)
        session = await begin(client, laptop, tmp_path)
        await client.prompt(session, "k1")
        await client.ended(session, "k1")
        log = await stored(laptop, session)
        seen: list[int] = []
        resets: list[bool] = []
        transport = WebSocketTransport(socket=given.home / "hub.sock")
        async with EnvelopeClient(transport) as envelopes:
            found = envelopes.sessions.get(session)
            assert found is not None
            found.on_event(
                lambda event: seen.append(event.seq),
                from_seq=2,
                epoch=envelopes.connection.epoch_of(session),
                on_reset=lambda: resets.append(True),
            )
            await until(lambda: len(seen) >= len(log) - 2)
        assert seen == list(range(3, len(log) + 1))
        assert not resets


async def test_a_machine_that_is_cut_off_in_a_turn_loses_nothing(tmp_path: Path) -> None:
    words = " ".join(f"w{number}" for number in range(120))
    steps = [{"say": words, "pieces": 120}]
    command = scripted_agent({"name": "slow", "turns": [{"steps": steps}]}, pace=0.005)
    slow = AgentSettings(command=command[0], args=tuple(command[1:]))
    async with (
        running(options(tmp_path / "home")) as (hub, client),
        other_machine(tmp_path / "other", mine=slow) as laptop,
    ):
        await laptop.join(hub)
        session = await begin(client, laptop, tmp_path)
        seen: list[int] = []

        async def follow() -> None:
            async for event in hub.runner.events(session):
                seen.append(event.seq)  # noqa: PERF401 - it never ends

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await client.prompt(session, "k")
            for key in ("w1", "w2"):
                before = len(seen)
                await until(lambda before=before: len(seen) > before + 10)  # type: ignore[misc]
                await laptop.cut(hub)
                await client.prompt(session, key)
                await laptop.connect(hub)
            for key in ("k", "w1", "w2"):
                assert (await client.ended(session, key))["state"] == "done"
            log = await stored(laptop, session)
            await until(lambda: len(seen) >= len(log))
            tasks.cancel_scope.cancel()
        assert seen == list(range(1, len(log) + 1))
        assert await client.events(session) == log
        assert [event["type"] for event in log].count("prompt-finished") == 3
