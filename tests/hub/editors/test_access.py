"""Sessions that editors come back to, share with phones, and may not do everything with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import RpcError
from quarterdeck.hub.editors.access import PAGE, listed
from quarterdeck.policy import Policy, Rule
from quarterdeck.protocol import Event
from quarterdeck.runner.sessions.catalogue import SessionOverview
from tests.hub.api.kit import ASK, Json
from tests.hub.editors.kit import FakeEditor, editor_at, hub_with
from tests.hub.runners import runner_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ANSWER: Json = {"action": "accept", "content": {"name": "Ada"}}
QUESTION: Json = {
    "request": "elicitation/create",
    "params": {
        "sessionId": "{session}",
        "mode": "form",
        "message": "Who are you?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
}
OPTIONS: list[Json] = [
    {
        "id": "how",
        "name": "Mode",
        "category": "mode",
        "type": "select",
        "currentValue": "ask",
        "options": [{"value": "ask", "name": "Ask"}, {"value": "all", "name": "All"}],
    }
]


async def test_a_terminal_of_the_hub_is_shown_to_the_editor_as_text(tmp_path: Path) -> None:
    command = {"command": sys.executable, "args": ["-c", "print('built'); raise SystemExit(3)"]}
    named = {"sessionId": "{session}", "terminalId": "{last.terminalId}"}
    steps = (
        {"request": "terminal/create", "params": {"sessionId": "{session}", **command}},
        {"tool": "call-1", "title": "build", "terminal": "{last.terminalId}"},
        {"request": "terminal/wait_for_exit", "params": named},
        {"finish": "call-1"},
    )
    async with hub_with(tmp_path / "home", *steps) as (hub, _):
        async with editor_at(hub) as editor:
            session_id = await editor.new(tmp_path)
            await editor.prompt(session_id)
            await editor.until(lambda: "built" in _shown(editor))
        async with editor_at(hub) as again:
            await again.load(session_id, tmp_path)
            assert _shown(again) == _shown(editor) == "```\nbuilt\n```\nexit status 3"
        assert not any("terminalId" in str(each) for each in (*editor.updates, *again.updates))


def _shown(editor: FakeEditor) -> str:
    """Return the last content of the tool call."""
    contents = [each["content"] for each in editor.updates if isinstance(each.get("content"), list)]
    text: str = contents[-1][0]["content"]["text"] if contents else ""
    return text


async def test_an_elicitation_is_answered_in_an_editor_that_can_show_forms(tmp_path: Path) -> None:
    steps = (QUESTION, {"say": "{last.action}"})
    async with hub_with(tmp_path / "home", *steps) as (hub, owner):
        async with editor_at(hub, elicitation={"form": {}}) as editor, editor_at(hub) as plain:
            session_id = await editor.new(tmp_path)
            await plain.load(session_id, tmp_path)
            editor.answer = ANSWER
            await editor.prompt(session_id)
            assert editor.said() == ["accept"]
            await plain.until(lambda: plain.said() == ["accept"])
            assert plain.requests == []
            ((method, params),) = editor.requests
            assert method == "elicitation/create"
            assert params["message"] == "Who are you?"
        (decision,) = (await owner.get("/api/decisions"))["decisions"]
        assert decision["by"]["deviceName"] == "owner via editor"


async def test_an_editor_that_may_not_approve_gets_no_requests(tmp_path: Path) -> None:
    async with (
        hub_with(tmp_path / "home", ASK) as (hub, owner),
        editor_at(hub, scope="prompt") as editor,
    ):
        session_id = await editor.new(tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(editor.prompt, session_id)
            (request,) = await owner.pending_permissions()
            await owner.post(
                f"/api/permissions/{request['requestId']}/answer",
                {"digest": request["digest"], "optionId": "allow_once"},
            )
        assert editor.requests == []
        for method, more in (
            ("session/set_mode", {"modeId": "all"}),
            ("session/delete", {}),
            ("session/new", {"cwd": "/", "mcpServers": [{"name": "x", "command": "true"}]}),
        ):
            with pytest.raises(RpcError, match="this device has the scope prompt"):
                await editor.call(method, **{"sessionId": session_id, **more})


async def test_the_meta_of_a_prompt_is_for_editors_that_may_choose_modes(tmp_path: Path) -> None:
    block = {"type": "text", "text": "go", "_meta": {"permissionMode": "bypassPermissions"}}
    async with hub_with(tmp_path / "home", {"say": "hi"}) as (hub, owner):
        told: list[Event] = []
        runner_of(hub).host.subscribe(None, 0, told.append)
        for scope, kept in (("prompt", {"type": "text", "text": "go"}), ("approve", block)):
            async with editor_at(hub, scope=scope) as editor:  # type: ignore[arg-type]
                session_id = await editor.new(tmp_path)
                await editor.call("session/prompt", sessionId=session_id, prompt=[block])
            (entry,) = (await owner.get(f"/api/sessions/{session_id}/prompts"))["prompts"]
            assert entry["prompt"] == [kept]
        codes = [each.payload["code"] for each in told if each.type == "diagnostic"]
        assert codes.count("prompt/meta-left-out") == 1


async def test_a_command_that_changes_what_is_asked_is_for_editors_that_may_choose_modes(
    tmp_path: Path,
) -> None:
    block = {"type": "text", "text": "/allow-all"}
    async with hub_with(tmp_path / "home", {"say": "hi"}) as (hub, owner):
        async with editor_at(hub, scope="prompt") as editor:
            session_id = await editor.new(tmp_path)
            with pytest.raises(RpcError, match="needs the scope approve"):
                await editor.call("session/prompt", sessionId=session_id, prompt=[block])
            assert (await owner.get(f"/api/sessions/{session_id}/prompts"))["prompts"] == []
        async with editor_at(hub, scope="approve") as editor:
            session_id = await editor.new(tmp_path)
            await editor.call("session/prompt", sessionId=session_id, prompt=[block])


async def test_what_a_rule_decides_is_not_put_before_the_editor(tmp_path: Path) -> None:
    async with hub_with(tmp_path / "home", ASK) as (hub, _), editor_at(hub) as editor:
        writing = Rule(decision="allow", name="writing", writes=True)
        hub.runner.set_policy(Policy(rule=(writing,)))
        session_id = await editor.new(tmp_path)
        await editor.prompt(session_id)
        assert editor.said() == ["done"]
        assert editor.requests == []


async def test_a_prompt_that_waits_behind_one_of_the_phone_is_cancelled_alone(
    tmp_path: Path,
) -> None:
    answers: list[Json] = []
    async with hub_with(tmp_path / "home", ASK) as (hub, owner), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        await owner.prompt(session_id, "phone")
        await editor.until(lambda: editor.requests)

        async def prompt() -> None:
            answers.append(await editor.prompt(session_id))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            path = f"/api/sessions/{session_id}/prompts"
            await owner.until(path, lambda listed: len(listed["prompts"]) == 2)
            await editor.connection.notify("session/cancel", {"sessionId": session_id})
        assert answers == [{"stopReason": "cancelled"}]
        assert (await owner.get(f"/api/sessions/{session_id}/prompts/phone"))["state"] == "running"
        await editor.connection.notify("session/cancel", {"sessionId": session_id})
        assert (await owner.ended(session_id, "phone"))["stopReason"] == "cancelled"


async def test_a_cancel_right_behind_a_prompt_finds_it(tmp_path: Path) -> None:
    answers: list[Json] = []
    async with hub_with(tmp_path / "home", {"stall": True}) as (hub, _), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)

        async def prompt() -> None:
            answers.append(await editor.prompt(session_id))

        for _n in range(3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(prompt)
                await anyio.lowlevel.checkpoint()
                await editor.connection.notify("session/cancel", {"sessionId": session_id})
    assert answers == [{"stopReason": "cancelled"}] * 3


async def test_a_prompt_whose_request_is_cancelled_is_cancelled_and_the_session_continues(
    tmp_path: Path,
) -> None:
    turns = [{"when": "wait", "steps": [{"stall": True}]}, {"steps": [{"say": "hello"}]}]
    async with (
        hub_with(tmp_path / "home", turns=turns) as (hub, owner),
        editor_at(hub) as editor,
    ):
        session_id = await editor.new(tmp_path)
        path = f"/api/sessions/{session_id}"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(editor.prompt, session_id, "wait")
            await owner.until(path, lambda told: told["session"]["status"] == "prompting")
            tasks.cancel_scope.cancel()  # which sends $/cancel_request
        await owner.until(path, lambda told: told["session"]["status"] == "active")
        assert await editor.prompt(session_id) == {"stopReason": "end_turn"}
        assert editor.said() == ["hello"]


async def test_a_prompt_whose_agent_dies_is_answered_and_the_next_continues_without_repetition(
    tmp_path: Path,
) -> None:
    load = [{"user": "old"}, {"say": "old answer"}, {"result": {}}]
    more = {
        "capabilities": {"loadSession": True},
        "methods": {"session/load": load},
        "turns": [
            {"when": "die", "steps": [{"crash": 1}]},
            {"steps": [{"say": "alive"}]},
        ],
    }
    async with hub_with(tmp_path / "home", **more) as (hub, owner), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        with pytest.raises(RpcError, match="exited"):
            await editor.prompt(session_id, "die")
        assert await editor.prompt(session_id, "on") == {"stopReason": "end_turn"}
        assert editor.said() == ["alive"]
        types = [event["type"] for event in await owner.events(session_id)]
        assert "session-reset" in types, "the agent told its history again"
        async with editor_at(hub) as again:
            await again.load(session_id, tmp_path)
            assert again.said() == ["old answer", "alive"]
            assert again.said("user_message_chunk") == ["old", "on"]


async def test_a_session_that_only_the_agent_knows_is_loaded_from_it(tmp_path: Path) -> None:
    more = {"methods": {"session/load": [{"user": "hi"}, {"say": "ho"}, {"result": {}}]}}
    async with hub_with(tmp_path / "home", **more) as (hub, owner), editor_at(hub) as editor:
        await editor.load("from-elsewhere", tmp_path)
        assert (editor.said("user_message_chunk"), editor.said()) == (["hi"], ["ho"])
        assert (await owner.get("/api/sessions/from-elsewhere"))["session"]["agent"] == "mine"
        with pytest.raises(RpcError, match="open it with its own agent"):
            async with editor_at(hub, "demo") as other:
                await other.load("from-elsewhere", tmp_path)


async def test_modes_that_became_an_option_can_still_be_chosen_as_modes(tmp_path: Path) -> None:
    chosen = [{**OPTIONS[0], "currentValue": "all"}]
    more = {
        "sessions": {"configOptions": OPTIONS},
        "methods": {"session/set_config_option": [{"result": {"configOptions": chosen}}]},
    }
    async with hub_with(tmp_path / "home", **more) as (hub, _), editor_at(hub) as editor:
        made = await editor.call("session/new", cwd=str(tmp_path), mcpServers=[])
        assert made["modes"]["currentModeId"] == "ask"
        assert [each["id"] for each in made["modes"]["availableModes"]] == ["ask", "all"]
        await editor.call("session/set_mode", sessionId=made["sessionId"], modeId="all")
        await editor.until(lambda: editor.updates)
        kinds = {each["sessionUpdate"]: each for each in editor.updates}
        assert kinds["config_option_update"]["configOptions"] == chosen
        resumed = await editor.call(
            "session/resume", sessionId=made["sessionId"], cwd=str(tmp_path)
        )
        assert resumed["modes"]["currentModeId"] == "all"


@pytest.mark.parametrize("is_option_too", [True, False])
async def test_modes_001_002_a_mode_can_be_changed_again_and_is_one_of_the_available(
    is_option_too: bool, tmp_path: Path
) -> None:
    more: Json = {"sessions": {"modes": ["ask", "all"]}, "turns": [{"steps": [{"mode": "all"}]}]}
    if is_option_too:
        more["sessions"]["configOptions"] = OPTIONS
    async with hub_with(tmp_path / "home", **more) as (hub, owner), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        await editor.prompt(session_id)
        for wanted in ("ask", "all", "ask"):
            await editor.call("session/set_mode", sessionId=session_id, modeId=wanted)
            loaded = await editor.load(session_id, tmp_path)
            assert [each["id"] for each in loaded["modes"]["availableModes"]] == ["ask", "all"]
            assert loaded["modes"]["currentModeId"] == wanted
        path = f"/api/sessions/{session_id}"
        await owner.call("PUT", f"{path}/mode", {"modeId": "all"})
        options = {"configId": "how" if is_option_too else "mode", "value": "ask"}
        answered = await owner.call("PUT", f"{path}/options", options)
        assert answered["configOptions"][0]["currentValue"] == "ask"
        loaded = await editor.load(session_id, tmp_path)
        assert loaded["modes"]["currentModeId"] == "ask"


async def test_a_closed_session_is_loaded_again_and_a_deleted_one_is_gone(tmp_path: Path) -> None:
    more: Json = {"methods": {"session/load": [{"result": {}}], "session/close": [{"result": {}}]}}
    async with hub_with(tmp_path / "home", **more) as (hub, _), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        await editor.call("session/close", sessionId=session_id)
        with pytest.raises(RpcError, match="is not open here"):
            await editor.prompt(session_id)
        await editor.load(session_id, tmp_path)
        await editor.call("session/delete", sessionId=session_id)
        assert (await editor.call("session/list"))["sessions"] == []


def _view(number: int, **more: Any) -> SessionOverview:
    known: Json = {"status": "active", "agent": "mine", "cwd": "/a", **more}
    return SessionOverview(
        session_id=f"s{number}", additional_directories=(), last_seq=1, title="t", **known
    )


def test_sessions_are_listed_page_by_page_the_newest_first() -> None:
    views = [_view(n) for n in range(PAGE + 2)]
    views += [_view(900, agent="other"), _view(901, cwd="/b")]
    first = listed(views, agent="mine", cwd="/a", cursor=None)
    second = listed(views, agent="mine", cwd="/a", cursor=first["nextCursor"])
    seen = [each["sessionId"] for page in (first, second) for each in page["sessions"]]
    assert seen == [f"s{n}" for n in reversed(range(PAGE + 2))]
    assert "nextCursor" not in second
    with pytest.raises(RpcError):
        listed(views, agent="mine", cwd=None, cursor="s900")


async def test_an_editor_deletes_a_session_with_its_log(tmp_path: Path) -> None:
    async with hub_with(tmp_path / "home", ASK) as (hub, client), editor_at(hub) as editor:
        editor.answer = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
        session_id = await editor.new(tmp_path)
        await editor.prompt(session_id, "words")
        (entry,) = (await client.get(f"/api/sessions/{session_id}/prompts"))["prompts"]
        await editor.call("session/delete", sessionId=session_id)
        await client.get(f"/api/sessions/{session_id}/prompts/{entry['key']}", status=404)
        (decision,) = (await client.get(f"/api/decisions?session={session_id}"))["decisions"]
        assert (decision["request"], decision["state"]) == (None, "answered")


async def test_the_turn_of_an_editor_is_cancelled_when_its_session_is_deleted_elsewhere(
    tmp_path: Path,
) -> None:
    async with hub_with(tmp_path / "home", ASK) as (hub, client), editor_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        answers: list[Json] = []

        async def prompt() -> None:
            answers.append(await editor.prompt(session_id))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(prompt)
            await client.pending_permissions()
            await client.call("DELETE", f"/api/sessions/{session_id}", status=204)
        assert answers == [{"stopReason": "cancelled"}]
