"""An editor with ACP 2 at the hub, with agents of both versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import RpcError
from quarterdeck.hub import Hub
from tests.hub.api.kit import ASK, Client, Json
from tests.hub.editors.kit import ALLOW, editor_at, hub_with
from tests.hub.editors.kit_v2 import after, connected_v2, editor_v2_at, hub_with_v2, shown
from tests.taping.tapes import Tapes

pytestmark = pytest.mark.anyio

START: Json = {"type": "start"}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def said(message_id: str, words: str) -> Json:
    chunk = {"sessionUpdate": "agent_message_chunk", "messageId": message_id}
    return {"update": {**chunk, "content": text(words)}}


CHILD: Json = {"sessionUpdate": "subagent_update", "sessionId": "child", "title": "Searcher"}
SECOND: tuple[Json, ...] = (
    said("m1", "one "),
    said("m1", "two"),
    {"update": {"sessionUpdate": "agent_message", "messageId": "m1", "content": [text("three")]}},
    {"update": {"sessionUpdate": "notice", "severity": "info", "title": "Now"}},
    {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": "ls"}},
    {
        "update": {
            "sessionUpdate": "tool_call_content_chunk",
            "toolCallId": "c",
            "content": {"type": "terminal", "terminalId": "t"},
        }
    },
    {"update": {"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": "ww=="}},
    {"update": {"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": "pP8="}},
    {"update": {"sessionUpdate": "terminal_update", "terminalId": "t", "exitStatus": {}}},
    {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}},
    {"update": CHILD},
    {**said("k1", "from the child"), "sessionId": "child"},
)


@asynccontextmanager
async def _hub(home: Path, version: int, *steps: Json) -> AsyncIterator[tuple[Hub, Client]]:
    """Run a hub whose agent speaks a version and asks for permission in each turn."""
    if version == 2:
        subject = {"type": "tool_call", "toolCall": {"toolCallId": "edit-1", "kind": "edit"}}
        ask = {"ask": {"title": "Edit the file", "subject": subject}}
        async with hub_with_v2(home, *steps, ask, said("m9", "done")) as found:
            yield found
    else:
        async with hub_with(home, *steps, ASK) as found:
            yield found


VERSIONS = pytest.mark.parametrize("version", [1, 2])


# ---- initialize ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "answered"),
    [
        ({"protocolVersion": 1}, 1),
        ({"protocolVersion": 1, "info": {"name": "e", "version": "1"}}, 1),
        ({"protocolVersion": 2, "info": {"name": "e", "version": "1"}}, 2),
        ({"protocolVersion": 99}, 2),
        ({"protocolVersion": 65535, "clientInfo": {"name": "e", "version": "1"}}, 2),
        ({"protocolVersion": 65535, "info": "a text"}, 2),
    ],
)
async def test_v2_init_001_201_003_202_203_204_the_newest_version_not_above_the_requested(
    params: Json, answered: int, tmp_path: Path
) -> None:
    async with hub_with(tmp_path / "home") as (hub, _), connected_v2(hub) as editor:
        told = await editor.call("initialize", **params)
        assert told["protocolVersion"] == answered
        if answered == 2:
            assert told["info"]["name"] == "mine"
            assert "agentCapabilities" not in told
            assert _booleans(told["capabilities"]) == []
        else:
            assert told["agentInfo"]["version"]


def _booleans(value: Any) -> list[bool]:
    if isinstance(value, bool):
        return [value]
    items = value.values() if isinstance(value, dict) else ()
    return [found for each in items for found in _booleans(each)]


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"protocolVersion": 0}, -32022),
        ({"protocolVersion": 2}, -32602),
        ({"protocolVersion": 2, "clientInfo": {"name": "e", "version": "1"}}, -32602),
        ({"protocolVersion": 2, "info": {"name": "e"}}, -32602),
        ({"protocolVersion": "2"}, -32602),
        ({}, -32602),
    ],
)
async def test_a_wrong_initialize_is_refused_and_can_be_repeated(
    params: Json, code: int, tmp_path: Path
) -> None:
    async with hub_with(tmp_path / "home") as (hub, _), connected_v2(hub) as editor:
        with pytest.raises(RpcError) as caught:
            await editor.call("initialize", **params)
        assert caught.value.code == code
        if code == -32022:
            assert caught.value.data == {"requested": 0, "supported": [1, 2]}
        again = {"protocolVersion": 2, "info": {"name": "e", "version": "1"}}
        assert (await editor.call("initialize", **again))["protocolVersion"] == 2
        with pytest.raises(RpcError, match="Invalid Request"):
            await editor.call("initialize", protocolVersion=1)


# ---- turns ---------------------------------------------------------------------------------------


@VERSIONS
async def test_v2_prompt_201_203_205_state_201_202_203_patch_201_203_a_turn(
    version: int, tmp_path: Path, taping: Tapes
) -> None:
    async with _hub(tmp_path / "home", version) as (hub, _), editor_v2_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        editor.answer = ALLOW
        first = await editor.turn(session_id, "one")
        second = await editor.turn(session_id, "two")
        assert first["messageId"] != second["messageId"]
        users = {each["messageId"]: each["content"] for each in editor.of("user_message_chunk")}
        assert users == {
            first["messageId"]: text("one"),
            second["messageId"]: text("two"),
        }
        turn = ["running", "requires_action", "running", "idle"]
        assert [each for each in editor.states() if each != "unknown"] == turn * 2 or version == 2
        assert [each["stopReason"] for each in editor.ends()] == ["end_turn"] * 2
        assert {named for named, _, _ in editor.received} == {session_id}
        pieces = [each for each in editor.updates if "message" in each["sessionUpdate"]]
        assert all(isinstance(each["messageId"], str) for each in pieces)
    taping.check()


@VERSIONS
async def test_v2_perm_201_patch_209_a_permission_has_a_title_and_a_subject(
    version: int, tmp_path: Path
) -> None:
    async with _hub(tmp_path / "home", version) as (hub, owner), editor_v2_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        editor.answer = ALLOW
        await editor.turn(session_id)
        ((method, request),) = editor.requests
        assert method == "session/request_permission"
        assert request["title"] == "Edit the file"
        assert request["subject"]["type"] == "tool_call"
        assert request["subject"]["toolCall"]["toolCallId"] == "edit-1"
        assert "toolCall" not in request
        assert editor.said()[-1] == "done"
        (decision,) = (await owner.get("/api/decisions"))["decisions"]
        assert decision["by"]["deviceName"] == "owner via editor"


async def test_a_command_that_is_asked_for_stays_a_command(tmp_path: Path) -> None:
    subject = {"type": "command", "command": "make", "cwd": "/"}
    steps = {"ask": {"title": "Run it?", "description": "Because.", "subject": subject}}
    async with hub_with_v2(tmp_path / "home", steps) as (hub, _), editor_v2_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        editor.answer = ALLOW
        await editor.turn(session_id)
        ((_, request),) = editor.requests
        assert request["subject"] == subject
        assert (request["title"], request["description"]) == ("Run it?", "Because.")


@VERSIONS
async def test_v2_cancel_201_203_205_206_a_cancelled_turn_is_idle_with_cancelled(
    version: int, tmp_path: Path
) -> None:
    async with _hub(tmp_path / "home", version) as (hub, _), editor_v2_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        await editor.prompt(session_id)
        await editor.until(lambda: editor.requests)
        await editor.connection.notify("session/cancel", {"sessionId": session_id, "_meta": {}})
        await editor.until(editor.ends)
        assert [each["stopReason"] for each in editor.ends()] == ["cancelled"]
        await editor.until(lambda: editor.withdrawn)


async def test_a_cancel_takes_back_the_prompts_that_have_not_run(tmp_path: Path) -> None:
    codes: list[int] = []

    async def prompt(words: str) -> None:
        try:
            await editor.prompt(session_id, words)
        except RpcError as error:
            codes.append(error.code)

    async with hub_with(tmp_path / "home", ASK) as (hub, owner), editor_v2_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        async with anyio.create_task_group() as tasks:
            await editor.prompt(session_id, "first")
            tasks.start_soon(prompt, "second")
            tasks.start_soon(prompt, "third")
            await owner.until(
                f"/api/sessions/{session_id}/prompts",
                lambda found: [each["state"] for each in found["prompts"]].count("queued") == 2,
            )
            await editor.connection.notify("session/cancel", {"sessionId": session_id})
        assert codes == [-32800, -32800]
        await editor.until(editor.ends)
        assert [each["stopReason"] for each in editor.ends()] == ["cancelled"]


@VERSIONS
async def test_v2_close_201_202_cancel_208_a_running_turn_is_cancelled_before_the_answer(
    version: int, tmp_path: Path
) -> None:
    async with _hub(tmp_path / "home", version) as (hub, _), editor_v2_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        await editor.prompt(session_id)
        await editor.until(lambda: editor.requests)
        assert await editor.call("session/close", sessionId=session_id) == {}
        assert [each["stopReason"] for each in editor.ends()] == ["cancelled"]
        assert await editor.call("session/close", sessionId="unknown") == {}


async def test_a_prompt_that_fails_is_idle_with_an_error(tmp_path: Path) -> None:
    steps = {"fail": "no model"}
    async with hub_with(tmp_path / "home", steps) as (hub, _), editor_v2_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        await editor.prompt(session_id)
        await editor.until(editor.ends)
        (end,) = editor.ends()
        assert end["stopReason"] == "error"
        assert end["error"]["message"] == "no model"


# ---- sessions ------------------------------------------------------------------------------------


@VERSIONS
async def test_v2_session_001_002_203_list_201_202_203_204_delete_201_202_203(
    version: int, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    async with _hub(tmp_path / "home", version) as (hub, _), editor_v2_at(hub) as editor:
        first, second = await editor.new(tmp_path), await editor.new(tmp_path / "other")
        assert first != second

        async def listed(**params: Any) -> list[str]:
            found = (await editor.call("session/list", **params))["sessions"]
            assert all(each["cwd"].startswith("/") for each in found)
            return [each["sessionId"] for each in found]

        assert set(await listed()) == {first, second}
        assert await listed(cwd=str(tmp_path)) == [first]
        assert await listed(cwd="/nowhere") == []
        with pytest.raises(RpcError):
            await listed(cwd="here")
        for _ in range(2):
            assert await editor.call("session/delete", sessionId=first) == {}
        assert await editor.call("session/delete", sessionId="unknown") == {}
        assert await listed() == [second]


async def test_delete_002_an_unknown_session_or_one_that_is_gone_is_deleted(
    tmp_path: Path,
) -> None:
    async with hub_with(tmp_path / "home") as (hub, _), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        for named in (session_id, session_id, "unknown"):
            assert await editor.call("session/delete", sessionId=named) == {}


async def test_v2_config_201_202_203_204_206_options_and_commands(tmp_path: Path) -> None:
    async with hub_with_v2(tmp_path / "home") as (hub, _), editor_v2_at(hub) as editor:
        made = await editor.call("session/new", cwd=str(tmp_path))
        ids = [each["configId"] for each in made["configOptions"]]
        assert ids == ["model", "fast"]
        assert [each["type"] for each in made["availableCommands"]] == ["command"]
        named = {"sessionId": made["sessionId"], "configId": "model"}
        changed = await editor.call("session/set_config_option", **named, type="id", value="large")
        assert [each["currentValue"] for each in changed["configOptions"]] == ["large", False]
        named["configId"] = "fast"
        changed = await editor.call(
            "session/set_config_option", **named, type="boolean", value=True
        )
        assert [each["currentValue"] for each in changed["configOptions"]] == ["large", True]
        for wrong in ({"type": "boolean", "value": "yes"}, {"value": "large"}, {"type": "_x"}):
            with pytest.raises(RpcError):
                await editor.call("session/set_config_option", **named, **wrong)
        resumed = await editor.resume(made["sessionId"], tmp_path)
        assert [each["currentValue"] for each in resumed["configOptions"]] == ["large", True]


async def test_modes_of_an_agent_with_acp_1_are_an_option(tmp_path: Path) -> None:
    async with (
        hub_with(tmp_path / "home", sessions={"modes": ["ask", "code"]}) as (hub, _),
        editor_v2_at(hub) as editor,
    ):
        made = await editor.call("session/new", cwd=str(tmp_path))
        (option,) = made["configOptions"]
        assert (option["configId"], option["category"]) == ("mode", "mode")
        assert option["currentValue"] == "ask"
        changed = await editor.call(
            "session/set_config_option",
            sessionId=made["sessionId"],
            configId="mode",
            type="id",
            value="code",
        )
        assert changed["configOptions"][0]["currentValue"] == "code"


async def test_a_fork_continues_with_its_own_log(tmp_path: Path) -> None:
    async with (
        hub_with_v2(tmp_path / "home", said("m1", "hello")) as (hub, _),
        editor_v2_at(hub) as editor,
    ):
        assert editor.introduced["capabilities"]["session"]["fork"] == {}
        source = await editor.new(tmp_path)
        await editor.turn(source)
        seen = len(editor.updates)
        fork = await editor.call("session/fork", sessionId=source, cwd=str(tmp_path))
        assert fork["sessionId"] != source
        assert fork["configOptions"]
        await editor.turn(fork["sessionId"])
        late = [named for named, _, _ in editor.received[seen:]]
        assert set(late) == {fork["sessionId"]}, "and no history of its source"
        with pytest.raises(RpcError):
            await editor.call("session/fork", sessionId=source, cwd="/")
    async with hub_with(tmp_path / "first") as (hub, _), editor_v2_at(hub) as editor:
        assert "fork" not in editor.introduced["capabilities"]["session"]
        session_id = await editor.new(tmp_path)
        with pytest.raises(RpcError) as caught:
            await editor.call("session/fork", sessionId=session_id, cwd=str(tmp_path))
        assert caught.value.code == -32601


# ---- resume --------------------------------------------------------------------------------------


@VERSIONS
async def test_v2_resume_201_202_203_204_205_a_replay_ends_before_the_answer(
    version: int, tmp_path: Path, taping: Tapes
) -> None:
    steps = SECOND if version == 2 else ({"say": "before"},)
    async with _hub(tmp_path / "home", version, *steps) as (hub, _):
        async with editor_v2_at(hub) as editor:
            session_id = await editor.new(tmp_path)
            editor.answer = ALLOW
            prompt = await editor.turn(session_id)
            whole = editor.screen(session_id)
        async with editor_v2_at(hub) as again:
            await again.resume(session_id, tmp_path, START)
            assert again.states()[-1] == "idle"
            ids = [each["messageId"] for each in again.of("user_message_chunk")]
            assert ids == [prompt["messageId"]]
            assert again.of("notice") == []
            begun = set()
            for update in again.updates:
                name = update["sessionUpdate"]
                if name in ("user_message_chunk", "agent_message_chunk"):
                    assert (name.removesuffix("_chunk"), update["messageId"]) in begun
                elif name in ("user_message", "agent_message"):
                    begun.add((name, update["messageId"]))
            _same(again.screen(session_id), whole)
            await again.resume(session_id, tmp_path, START)
            _same(again.screen(session_id), whole)
        async with editor_v2_at(hub) as bare:
            await bare.resume(session_id, tmp_path)
            kinds = {each["sessionUpdate"] for each in bare.updates}
            assert kinds <= {"state_update", "session_info_update", "usage_update"}
            assert bare.states() == ["idle"]
            for wrong in ({"type": "_far"}, {"type": "_quarterdeck_seq"}, "start", {"seq": 1}):
                with pytest.raises(RpcError) as caught:
                    await bare.resume(session_id, tmp_path, wrong)
                assert caught.value.code == -32602
            far = {"type": "_quarterdeck_seq", "seq": 100_000}
            with pytest.raises(RpcError):
                await bare.resume(session_id, tmp_path, far)
    taping.check()


def _same(found: Json, wanted: Json) -> None:
    for part in ("messages", "calls", "terminals", "plans"):
        assert found[part] == wanted[part], part


@VERSIONS
async def test_a_client_that_is_cut_at_any_update_continues_by_number_without_loss(
    version: int, tmp_path: Path
) -> None:
    many = tuple(said(f"n{n // 3}", f"word {n} ") for n in range(60))
    steps = (*SECOND, *many) if version == 2 else [{"say": f"word {n} "} for n in range(80)]
    async with _hub(tmp_path / "home", version, *steps) as (hub, _):
        async with editor_v2_at(hub) as editor:
            session_id = await editor.new(tmp_path)
            editor.answer = ALLOW
            await editor.turn(session_id)
            await editor.turn(session_id)
        whole = [(each, number) for named, each, number in editor.received if named == session_id]
        assert len(whole) > 100
        numbers = [number["seq"] for _, number in whole]
        assert numbers == sorted(numbers)
        notices = {number["seq"] for each, number in whole if each["sessionUpdate"] == "notice"}
        wanted = shown([each for each, _ in whole])
        async with editor_v2_at(hub) as again:
            await again.resume(session_id, tmp_path, START)
            replayed = [(each, seen) for named, each, seen in again.received if named == session_id]
            assert len(replayed) < len(whole), "messages are whole"
            _same(shown([each for each, _ in replayed]), wanted)
            # A client may be cut while it follows, and while it gets a replay.
            for before in (whole, replayed[:-1]):
                for cut in range(len(before)):
                    again.received.clear()
                    await again.resume(session_id, tmp_path, after(before[cut][1]))
                    rest = [
                        (each, seen) for named, each, seen in again.received if named == session_id
                    ]
                    assert rest.pop()[0]["sessionUpdate"] == "state_update", "how it is now"
                    expected = {number["seq"] for _, number in before[cut + 1 :]} - notices
                    sent = {number["seq"] for _, number in rest}
                    everything = {number["seq"] for _, number in whole}
                    assert sent <= everything, cut
                    assert max(sent, default=0) == max(expected, default=0), cut
                    both = [each for each, _ in (*before[: cut + 1], *rest)]
                    _same(shown(both), wanted)
