"""Permission requests: when they are sent, what is remembered, and that only a yes is a yes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.builtin.driver import ALLOW, ALWAYS, REJECT, at_work, texts_of

pytestmark = pytest.mark.anyio

WRITE = '{"path": "%s", "content": "x"}'


async def test_the_options_are_those_of_the_protocol_and_one_for_the_session(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as driver:
        permissions = driver.answer_permissions(REJECT)
        await driver.use("write", WRITE % "a.txt")
    assert permissions[0]["options"] == [
        {"optionId": "allow_once", "name": "Allow", "kind": "allow_once"},
        {
            "optionId": "allow_always",
            "name": f"Allow changes to *.txt files in {tmp_path} for this session",
            "kind": "allow_always",
        },
        {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"},
    ]


async def test_a_permission_for_the_session_covers_files_of_that_kind_and_no_others(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as driver:
        permissions = driver.answer_permissions(ALWAYS, REJECT)
        assert (await driver.use("write", WRITE % "a.py"))["status"] == "completed"
        assert (await driver.use("write", WRITE % "deep/b.py"))["status"] == "completed"
        assert len(permissions) == 1
        for path in ("b.sh", ".git/hooks/pre-commit.py", "Makefile"):
            assert (await driver.use("write", WRITE % path))["status"] == "failed"
        assert len(permissions) == 4


async def test_a_permission_for_the_session_covers_the_same_command_only(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        permissions = driver.answer_permissions(ALWAYS, REJECT)
        for command, status in (("echo a", "completed"), ("echo a", "completed")):
            done = await driver.use("shell", json.dumps({"command": command}))
            assert done["status"] == status
        done = await driver.use("shell", '{"command": "echo a; touch b"}')
        assert done["status"] == "failed"
        assert len(permissions) == 2
    assert not (tmp_path / "b").exists()


async def test_a_permission_for_the_session_is_not_another_sessions(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        permissions = driver.answer_permissions(ALWAYS)
        await driver.use("write", WRITE % "a.txt")
        driver.session_id = await driver.hand.open_session(cwd=str(tmp_path))
        await driver.use("write", WRITE % "a.txt")
    assert len(permissions) == 2


@pytest.mark.parametrize(
    "answer",
    [
        {"outcome": {"outcome": "cancelled"}},
        {"outcome": {"outcome": "selected", "optionId": "allow"}},
        {"outcome": {"outcome": "selected", "optionId": "allow_everything"}},
        {"outcome": "selected"},
        {},
    ],
)
async def test_nothing_but_an_offered_yes_is_a_yes(tmp_path: Path, answer: Any) -> None:
    async with at_work(tmp_path) as driver:
        driver.answer_permissions(answer)
        done = await driver.use("write", WRITE % "a.txt")
        assert done["status"] == "failed"
    assert not (tmp_path / "a.txt").exists()


async def test_a_client_without_permission_requests_allows_nothing(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        del driver.hand.answers["session/request_permission"]
        prompt_id = await driver.hand.ask_prompt(
            driver.session_id, f"/tool write {WRITE % 'a.txt'}"
        )
        request = await driver.hand.requested("session/request_permission")
        error = {"code": -32601, "message": "Method not found"}
        await driver.hand.send({"id": request["id"], "error": error})
        assert (await driver.hand.answered(prompt_id))["result"] == {"stopReason": "end_turn"}
    assert not (tmp_path / "a.txt").exists()


async def test_a_turn_is_cancelled_while_the_user_is_asked(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        del driver.hand.answers["session/request_permission"]
        prompt_id = await driver.hand.ask_prompt(
            driver.session_id, f"/tool write {WRITE % 'a.txt'}"
        )
        await driver.hand.requested("session/request_permission")
        await driver.hand.notify("session/cancel", sessionId=driver.session_id)
        assert (await driver.hand.answered(prompt_id))["result"] == {"stopReason": "cancelled"}
        assert driver.hand.updates("tool_call_update")[-1]["status"] == "failed"
    assert not (tmp_path / "a.txt").exists()


async def test_a_permission_for_the_session_does_not_reach_hidden_files_by_a_link(
    tmp_path: Path,
) -> None:
    hook = tmp_path / ".hooks" / "commit.txt"
    hook.parent.mkdir()
    hook.write_text("harmless")
    (tmp_path / "notes.txt").symlink_to(".hooks/commit.txt")
    async with at_work(tmp_path) as driver:
        permissions = driver.answer_permissions(ALWAYS, REJECT)
        await driver.use("write", WRITE % "a.txt")
        await driver.use("write", WRITE % "notes.txt")
        assert len(permissions) == 2
        assert str(hook) in permissions[1]["options"][1]["name"]
    assert hook.read_text() == "harmless"


async def test_reading_needs_no_permission(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    async with at_work(tmp_path) as driver:
        permissions = driver.answer_permissions(REJECT)
        for tool, arguments in (
            ("read", '{"path": "a.txt"}'),
            ("list", "{}"),
            ("glob", '{"pattern": "*"}'),
            ("grep", '{"pattern": "x"}'),
            ("plan", '{"entries": []}'),
        ):
            assert (await driver.use(tool, arguments))["status"] == "completed"
    assert permissions == []


async def test_a_tool_that_does_not_exist_and_arguments_that_do_not_fit_are_explained(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as driver:
        assert "there is no tool fly" in texts_of(await driver.use("fly"))
        assert "do not fit" in texts_of(await driver.use("read", '{"file": "a"}'))


async def test_each_call_has_an_id_of_its_own_and_goes_through_its_states(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        driver.answer_permissions(ALLOW)
        await driver.say(f"/tool write {WRITE % 'a.txt'}\n/also list {{}}\n/tool list {{}}")
        calls = driver.hand.updates("tool_call")
        assert len({each["toolCallId"] for each in calls}) == 3
        assert {each["status"] for each in calls} == {"pending"}
        first = calls[0]["toolCallId"]
        states = [
            each["status"]
            for each in driver.hand.updates("tool_call_update")
            if each["toolCallId"] == first
        ]
        assert states == ["pending", "in_progress", "completed"]
