"""Sub-agents, elicitations and settings, for editors of both versions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import RpcError
from tests.hub.api.kit import Json
from tests.hub.editors.kit import ALLOW, editor_at, hub_with
from tests.hub.editors.kit_v2 import after, editor_v2_at, hub_with_v2, shown, text_of

pytestmark = pytest.mark.anyio

RECORDINGS = Path(__file__).parents[2] / "host/acp2/recordings"
CHILD: Json = {
    "sessionUpdate": "subagent_update",
    "sessionId": "child",
    "title": "Searcher",
    "state": {"state": "running"},
}
SUBJECT: Json = {"type": "command", "command": "make", "cwd": "/"}


def said(words: str, **more: Any) -> Json:
    content = {"type": "text", "text": words}
    chunk = {"sessionUpdate": "agent_message_chunk", "messageId": f"m-{words}"}
    return {"update": {**chunk, "content": content}, **more}


STEPS: tuple[Json, ...] = (
    said("before"),
    {"update": CHILD},
    said("one", sessionId="child"),
    {"ask": {"sessionId": "child", "title": "Run it?", "subject": SUBJECT}},
    said("two", sessionId="child"),
    {"update": {**CHILD, "state": {"state": "idle", "stopReason": "end_turn"}}},
    said("after"),
)


def _texts(received: list[tuple[str, Json, Json]], session_id: str) -> list[str]:
    texts = [text_of(update) for named, update, _ in received if named == session_id]
    return [each for each in texts if each]


async def test_a_sub_agent_is_a_session_with_its_own_updates_and_requests(tmp_path: Path) -> None:
    async with hub_with_v2(tmp_path / "home", *STEPS) as (hub, _):
        async with editor_v2_at(hub) as editor:
            session_id = await editor.new(tmp_path)
            editor.answer = ALLOW
            await editor.turn(session_id)
            await editor.until(lambda: _texts(editor.received, "child") == ["one", "two"])
            ((_, request),) = editor.requests
            assert request["sessionId"] == "child"
            assert request["title"] == "Run it?"
            assert _texts(editor.received, session_id) == ["before", "after"]
            names = [named for named, _, _ in editor.received]
            first = next(
                index
                for index, (_, update, _) in enumerate(editor.received)
                if update["sessionUpdate"] == "subagent_update"
            )
            assert names.index("child") > first, "a child is announced first"
            listed = (await editor.call("session/list"))["sessions"]
            assert [each["sessionId"] for each in listed] == [session_id]
        async with editor_v2_at(hub) as again:
            await again.resume(session_id, tmp_path, {"type": "start"})
            assert _texts(again.received, "child") == ["one", "two"]
            assert _texts(again.received, session_id) == ["before", "after"]
        async with editor_v2_at(hub) as bare:
            await bare.resume(session_id, tmp_path)
            assert _texts(bare.received, "child") == []


async def test_a_replay_by_number_continues_sub_agents_where_the_client_says(
    tmp_path: Path,
) -> None:
    async with hub_with_v2(tmp_path / "home", *STEPS) as (hub, _):
        async with editor_v2_at(hub) as editor:
            session_id = await editor.new(tmp_path)
            editor.answer = ALLOW
            await editor.turn(session_id)
            await editor.until(lambda: _texts(editor.received, "child") == ["one", "two"])
        child = [number for named, _, number in editor.received if named == "child"]
        own = [number for named, _, number in editor.received if named == session_id]
        async with editor_v2_at(hub) as again:
            for cut in range(len(child)):
                again.received.clear()
                cursor = {**after(own[-1]), "children": {"child": after(child[cut])}}
                await again.resume(session_id, tmp_path, cursor)
                rest = [number for named, _, number in again.received if named == "child"]
                assert {each["seq"] for each in rest} == {each["seq"] for each in child[cut + 1 :]}
            wrong = {**after(own[-1]), "children": {"child": {"seq": "x"}}}
            with pytest.raises(RpcError):
                await again.resume(session_id, tmp_path, wrong)


@pytest.mark.parametrize("subagents", [None, {}])
async def test_an_editor_with_acp_1_gets_the_requests_of_sub_agents(
    subagents: Json | None, tmp_path: Path
) -> None:
    capabilities: dict[str, Any] = {} if subagents is None else {"subagents": subagents}
    async with (
        hub_with_v2(tmp_path / "home", *STEPS) as (hub, _),
        editor_at(hub, **capabilities) as editor,
    ):
        session_id = await editor.new(tmp_path)
        editor.answer = ALLOW
        assert (await editor.prompt(session_id))["stopReason"] == "end_turn"
        ((_, request),) = editor.requests
        if subagents is None:
            assert request["sessionId"] == session_id
            assert request["toolCall"]["title"] == "Searcher: Run it?"
            assert editor.said() == ["before", "after"]
            calls = [each for each in editor.updates if each.get("title") == "Searcher"]
            assert [each["status"] for each in calls] == ["in_progress", "completed"]
        else:
            assert request["sessionId"] == "child"
            await editor.until(lambda: len(editor.said()) == 4)
            assert set(editor.said()) == {"before", "one", "two", "after"}


async def test_a_request_of_a_sub_agent_that_another_device_answers_is_withdrawn(
    tmp_path: Path,
) -> None:
    async with (
        hub_with_v2(tmp_path / "home", *STEPS) as (hub, owner),
        editor_at(hub) as editor,
        anyio.create_task_group() as tasks,
    ):
        session_id = await editor.new(tmp_path)
        tasks.start_soon(editor.prompt, session_id)
        await editor.until(lambda: editor.requests)
        (request,) = await owner.pending_permissions()
        await owner.post(
            f"/api/permissions/{request['requestId']}/answer",
            {"digest": request["digest"], "optionId": "reject_once"},
        )
        await editor.until(lambda: editor.withdrawn)


FORM: Json = {
    "mode": "form",
    "message": "Who are you?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}


async def test_v2_clientcap_201_an_elicitation_goes_to_editors_that_offer_it(
    tmp_path: Path,
) -> None:
    steps = {"call": "elicitation/create", "params": FORM}
    async with (
        hub_with_v2(tmp_path / "home", steps, said("thanks")) as (hub, _),
        editor_v2_at(hub, elicitation={"form": {}}) as editor,
        editor_v2_at(hub) as plain,
    ):
        session_id = await editor.new(tmp_path)
        await plain.resume(session_id, tmp_path)
        editor.answer = {"action": "accept", "content": {"name": "Ada"}}
        await editor.turn(session_id)
        assert editor.said() == ["thanks"]
        assert plain.requests == []
        ((method, params),) = editor.requests
        assert method == "elicitation/create"
        assert params["message"] == "Who are you?"
        assert params["sessionId"] == session_id


# ---- what an editor with ACP 1 did not offer -----------------------------------------------------


async def test_config_003_a_switch_is_a_choice_unless_the_client_offers_booleans(
    tmp_path: Path,
) -> None:
    async with hub_with_v2(tmp_path / "home") as (hub, _):
        async with editor_at(hub) as plain:
            made = await plain.call("session/new", cwd=str(tmp_path), mcpServers=[])
            assert [each["type"] for each in made["configOptions"]] == ["select", "select"]
            assert made["configOptions"][1]["currentValue"] == "off"
            changed = await plain.call(
                "session/set_config_option",
                sessionId=made["sessionId"],
                configId="fast",
                value="on",
            )
            assert changed["configOptions"][1]["currentValue"] == "on"
            await plain.until(lambda: plain.updates)
            options = [each["configOptions"] for each in plain.updates if "configOptions" in each]
            assert {each["type"] for found in options for each in found} <= {"select"}
        async with editor_at(hub, session={"configOptions": {"boolean": {}}}) as editor:
            loaded = await editor.load(made["sessionId"], tmp_path)
            assert loaded["configOptions"][1]["type"] == "boolean"
            assert loaded["configOptions"][1]["currentValue"] is True


async def test_auth_001_002_v2_auth_201_202_203_204_206_no_terminal_method_unless_offered(
    tmp_path: Path,
) -> None:
    async with hub_with_v2(tmp_path / "home") as (hub, _):
        async with editor_at(hub) as plain:
            again = await plain.call("initialize", protocolVersion=1)
            assert [each["id"] for each in again["authMethods"]] == ["key"]
            terminal = {"auth": {"terminal": True}}
            again = await plain.call("initialize", protocolVersion=1, clientCapabilities=terminal)
            assert [each["id"] for each in again["authMethods"]] == ["key", "tty"]
        async with editor_v2_at(hub) as editor:
            methods = editor.introduced["authMethods"]
            assert [(each["methodId"], each["type"]) for each in methods] == [("key", "agent")]
        async with editor_v2_at(hub, auth={"terminal": {}}) as editor:
            methods = editor.introduced["authMethods"]
            assert [each["type"] for each in methods] == ["agent", "terminal"]
            assert await editor.call("auth/login", methodId="key") == {}
            assert await editor.new(tmp_path)
            assert await editor.call("auth/logout") == {}


async def test_an_editor_with_acp_1_loads_from_a_number(tmp_path: Path) -> None:
    steps = [{"say": f"{n} "} for n in range(20)]
    async with hub_with(tmp_path / "home", *steps) as (hub, _), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        await editor.prompt(session_id)
        whole = list(editor.updates)
        numbers = [each["_meta"]["quarterdeck"]["seq"] for each in whole]
        assert numbers == sorted(set(numbers))
        for method in ("session/load", "session/resume"):
            for cut, seq in enumerate(numbers):
                editor.updates.clear()
                cursor = {"type": "_quarterdeck_seq", "seq": seq}
                await editor.call(
                    method,
                    sessionId=session_id,
                    cwd=str(tmp_path),
                    mcpServers=[],
                    _meta={"quarterdeck": {"replayFrom": cursor}},
                )
                assert editor.updates == whole[cut:]


async def test_numbers_of_a_log_that_was_restored_are_refused(tmp_path: Path) -> None:
    async with (
        hub_with(tmp_path / "home", {"say": "hi"}) as (hub, _),
        editor_v2_at(hub) as editor,
    ):
        made = await editor.call("session/new", cwd=str(tmp_path))
        epoch = made["_meta"]["quarterdeck"]["epoch"]
        cursor = {"type": "_quarterdeck_seq", "seq": 1}
        await editor.resume(made["sessionId"], tmp_path, {**cursor, "epoch": epoch})
        with pytest.raises(RpcError) as caught:
            await editor.resume(made["sessionId"], tmp_path, {**cursor, "epoch": "another"})
        assert caught.value.code == -32602


# ---- recordings ----------------------------------------------------------------------------------


def _recorded(name: str) -> list[Json]:
    """Return the updates of the first session of a recording, but its user's messages."""
    lines = gzip.decompress((RECORDINGS / f"{name}.ndjson.gz").read_bytes()).splitlines()
    found = [json.loads(line) for line in lines]
    params = [
        each["msg"]["params"]
        for each in found
        if each["dir"] == "a2c" and each["msg"].get("method") == "session/update"
    ]
    first = params[0]["sessionId"]
    return [
        each["update"]
        for each in params
        if each["sessionId"] == first
        and not each["update"]["sessionUpdate"].startswith(("user_message", "subagent_update"))
    ]


@pytest.mark.parametrize(
    "name",
    sorted(
        each.name.removesuffix(".ndjson.gz")
        for each in RECORDINGS.glob("*-v2-*.gz")
        if not any(word in each.name for word in ("resume", "fork", "manage", "cancel_tool"))
    ),
)
async def test_a_recording_through_the_hub_shows_a_client_what_the_agent_sent(
    name: str, tmp_path: Path
) -> None:
    sent = _recorded(name)
    steps = [{"update": each} for each in sent]
    mark = {"update": {"sessionUpdate": "usage_update", "used": 1, "size": 987_654}}
    async with hub_with_v2(tmp_path / "home", *steps, mark) as (hub, _):
        async with editor_v2_at(hub) as editor:
            session_id = await editor.new(tmp_path)
            await editor.prompt(session_id)
            await editor.until(
                lambda: any(each.get("size") == 987_654 for each in editor.of("usage_update"))
            )
        wanted, live = shown(sent), editor.screen(session_id)
        async with editor_v2_at(hub) as again:
            await again.resume(session_id, tmp_path, {"type": "start"})
        for found in (live, again.screen(session_id)):
            for part in ("terminals", "plans"):
                assert found[part] == wanted[part], part
            messages = {key: each for key, each in found["messages"].items() if key[0] != "user"}
            assert messages == wanted["messages"]
            assert set(found["calls"]) == set(wanted["calls"])
