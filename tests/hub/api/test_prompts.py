"""The queue: in order, once each, seen, changed and cancelled while it waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.hub.auth.device import Device
from quarterdeck.protocol import Event
from quarterdeck.runner import META_SCOPE, permitted_blocks
from tests.hub.api.kit import ASK, Client, client_of, options, paired, running, scripted
from tests.hub.runners import runner_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def allow(client: Client) -> None:
    (request,) = await client.pending_permissions()
    answer = {"optionId": "allow_once", "digest": request["digest"]}
    await client.post(f"/api/permissions/{request['requestId']}/answer", answer)


async def texts(client: Client, session: str) -> list[Any]:
    events = await client.events(session)
    return [
        event["payload"]["content"]["text"]
        for event in events
        if event["type"] == "user-message-chunk"
    ]


async def test_a_prompt_that_another_device_has_changed_is_that_devices(tmp_path: Path) -> None:
    home = tmp_path / "home"
    given = options(home, mine=scripted(ASK))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        for key in ("k1", "k2"):
            assert (await client.prompt(session, key))["by"]["id"] == "owner"
        url, token = str(client.http.base_url), await paired(client, "prompt")
        async with client_of(home, url, token) as other:
            path = f"/api/sessions/{session}/prompts/k2"
            changed = await other.call("PATCH", path, {"prompt": "other words"})
        assert changed["by"]["id"] != "owner"


async def test_prompts_wait_are_changed_cancelled_and_run_in_order(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted(ASK))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        path = f"/api/sessions/{session}/prompts"
        for key in ("k1", "k2", "k3", "k4"):
            await client.prompt(session, key, f"prompt {key}")
        await client.pending_permissions()
        changed = await client.call("PATCH", f"{path}/k2", {"prompt": "other words"})
        assert changed["prompt"] == [{"type": "text", "text": "other words"}]
        cancelled = await client.call("DELETE", f"{path}/k3")
        assert cancelled["state"] == "cancelled"
        refused = await client.call("PATCH", f"{path}/k1", {"prompt": "too late"}, status=409)
        assert refused["error"]["code"] == "quarterdeck/stale"
        await client.call("DELETE", f"{path}/k1", status=409)
        await client.call("DELETE", f"{path}/k9", status=404)
        # The phone that sent k2 did not hear that it was taken, and sends it again.
        assert (await client.prompt(session, "k2", "prompt k2"))["prompt"] == changed["prompt"]
        for key in ("k1", "k2", "k4"):
            await allow(client)
            assert (await client.ended(session, key))["state"] == "done"
        assert await texts(client, session) == ["prompt k1", "other words", "prompt k4"]
        listed = (await client.get(path))["prompts"]
        assert [(each["key"], each["state"]) for each in listed] == [
            ("k1", "done"),
            ("k2", "done"),
            ("k3", "cancelled"),
            ("k4", "done"),
        ]


async def test_an_interrupting_prompt_cancels_the_turn_and_comes_next(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted(ASK))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k1", "first")
        await client.pending_permissions()
        await client.prompt(session, "k2", "second")
        await client.prompt(session, "now", "stop, do this", mode="interrupt")
        assert (await client.ended(session, "k1"))["state"] == "cancelled"
        await allow(client)
        assert (await client.ended(session, "now"))["state"] == "done"
        await allow(client)
        assert (await client.ended(session, "k2"))["state"] == "done"
        assert await texts(client, session) == ["first", "stop, do this", "second"]


async def test_a_key_that_was_used_for_another_prompt_is_refused(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k1", "one")
        body = {"key": "k1", "prompt": "two"}
        refused = await client.post(f"/api/sessions/{session}/prompts", body, status=409)
        assert refused["error"]["code"] == "quarterdeck/key-reused"


async def test_fifty_retries_at_once_are_one_prompt(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(client.prompt, session, "k1", "only once")
        await client.ended(session, "k1")
        assert await texts(client, session) == ["only once"]


NO_PROMPTS: list[Any] = [
    {},
    {"key": "k"},
    {"key": "k", "prompt": ""},
    {"key": "k", "prompt": " \n"},
    {"key": "k", "prompt": []},
    {"key": "k", "prompt": [{"text": "no type"}]},
    {"key": "k", "prompt": 7},
    {"key": "k", "prompt": "x", "mode": "now"},
    {"key": "k", "prompt": "x", "meta": {"permissionMode": "bypass"}},
    {"key": "", "prompt": "x"},
    {"key": "a/b", "prompt": "x"},
    {"key": "k\n", "prompt": "x"},
]


async def test_what_is_no_prompt_is_refused_in_a_sentence(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home")) as (_, client):
        for body in NO_PROMPTS:
            refused = await client.post("/api/sessions/any/prompts", body, status=400)
            assert refused["error"]["code"] == "quarterdeck/invalid"
            assert refused["error"]["message"]


async def test_a_prompt_for_a_session_that_is_not_there_or_closed_is_refused(
    tmp_path: Path,
) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    async with running(given) as (_, client):
        body = {"key": "k", "prompt": "x"}
        await client.post("/api/sessions/nobody/prompts", body, status=404)
        session = await client.session("mine", tmp_path)
        assert (await client.post(f"/api/sessions/{session}/close"))["status"] == "closed"
        refused = await client.post(f"/api/sessions/{session}/prompts", body, status=409)
        assert "reopen it first" in refused["error"]["message"]


async def test_what_waits_in_a_session_that_is_closed_is_cancelled(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted(ASK))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k1")
        await client.pending_permissions()
        await client.prompt(session, "k2")
        await client.post(f"/api/sessions/{session}/close")
        assert (await client.ended(session, "k2"))["state"] == "cancelled"
        assert (await client.ended(session, "k1"))["state"] == "cancelled"


async def test_a_prompt_whose_agent_cannot_be_started_fails_with_the_reason(
    tmp_path: Path,
) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
    async with running(options(tmp_path / "home")) as (_, client):
        await client.prompt(session, "k1")
        ended = await client.ended(session, "k1")
        assert ended["state"] == "failed"
        assert "there is no agent named 'mine'" in ended["error"]["message"]


async def test_a_prompt_is_run_after_the_crash_of_its_agent(tmp_path: Path) -> None:
    turns = [{"steps": [{"crash": 3}], "when": "crash"}, {"steps": [{"say": "hi"}]}]
    given = options(tmp_path / "home", mine=scripted(turns=turns))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k1", "please crash")
        await client.prompt(session, "k2", "go on")
        crashed = await client.ended(session, "k1")
        assert crashed["state"] == "failed"
        assert crashed["error"]["code"] == "acpjs/agent-exited"
        assert (await client.ended(session, "k2"))["state"] == "done"


async def test_a_database_that_fails_while_a_prompt_runs_ends_neither_it_nor_the_hub(
    tmp_path: Path,
) -> None:
    fails = (
        "CREATE TRIGGER fails BEFORE UPDATE OF seq ON prompts"
        " WHEN NEW.state = 'running' AND NEW.seq IS NOT NULL"
        " BEGIN SELECT RAISE(FAIL, 'no room'); END"
    )
    async with running(options(tmp_path / "home", mine=scripted(ASK))) as (hub, client):
        session = await client.session("mine", tmp_path)
        await runner_of(hub).database.write(lambda connection: connection.execute(fails))
        await client.prompt(session, "first")
        await allow(client)
        entry = await client.ended(session, "first")
        assert entry["state"] == "done"
        assert entry["seq"] > 0  # noted with its end


async def test_the_meta_of_a_prompt_is_for_those_who_may_choose_modes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with running(options(home, mine=scripted({"say": "hi"}))) as (hub, owner):
        session = await owner.session("mine", tmp_path)
        path = f"/api/sessions/{session}/prompts"
        told: list[Event] = []
        runner_of(hub).host.subscribe(None, 0, told.append)
        block = {"type": "text", "text": "go", "_meta": {"permissionMode": "bypassPermissions"}}
        for scope, kept in (("prompt", {"type": "text", "text": "go"}), ("approve", block)):
            _, made = await hub.auth.pairings.create(scope=scope)  # type: ignore[arg-type]
            token = (await owner.post("/api/pair", {"code": made.long}))["token"]
            async with client_of(home, str(owner.http.base_url), token) as client:
                entry = await client.post(path, {"key": scope, "prompt": [block]}, status=202)
                assert entry["prompt"] == [kept]
                await client.ended(session, scope)
        codes = [each.payload["code"] for each in told if each.type == "diagnostic"]
        assert codes.count("prompt/meta-left-out") == 1


async def test_a_command_that_changes_what_is_asked_is_for_those_who_may_choose_modes(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with running(options(home, mine=scripted({"say": "hi"}))) as (hub, owner):
        session = await owner.session("mine", tmp_path)
        path = f"/api/sessions/{session}/prompts"
        for scope, status in (("prompt", 403), ("approve", 202)):
            _, made = await hub.auth.pairings.create(scope=scope)  # type: ignore[arg-type]
            token = (await owner.post("/api/pair", {"code": made.long}))["token"]
            async with client_of(home, str(owner.http.base_url), token) as client:
                wanted = {"key": scope, "prompt": "/allow-all"}
                answer = await client.post(path, wanted, status=status)
                if status == 403:
                    assert answer["error"]["code"] == "quarterdeck/forbidden"
        keys = [each["key"] for each in (await owner.get(path))["prompts"]]
        assert keys == ["approve"]


def test_meta_is_found_and_left_out_however_deep_it_is() -> None:
    deep: Any = {"_meta": 1, "kept": [1, {"_meta": 2, "x": "y"}]}
    for _ in range(5_000):
        deep = [deep]
    device = Device(id="d", name="d", scope="prompt", created_at="2026-01-01T00:00:00Z")
    kept, is_less = permitted_blocks(
        [{"type": "text", "a": deep}], may_send_meta=device.may(META_SCOPE)
    )
    assert is_less
    inner = kept[0]["a"]
    for _ in range(5_000):
        (inner,) = inner
    assert inner == {"kept": [1, {"x": "y"}]}
