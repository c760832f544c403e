"""OpenCode that listens: its requests are answered here, and it takes prompts."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import anyio
import pytest

from quarterdeck.agents.adapters.opencode import live
from quarterdeck.errors import RequestRejected
from quarterdeck.policy import Policy, Rule
from quarterdeck.protocol import Event
from quarterdeck.runner import Runner
from quarterdeck.testing import opencode_program
from tests.runner.adoption.kit import holds, prompts, running, until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.05)


class ServedOpenCode:
    """The scripted OpenCode in a process of its own, under its real name."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder / "project"
        self.cwd.mkdir(exist_ok=True)
        database = folder / ".local" / "share" / "opencode" / "opencode.db"
        script = str(Path(opencode_program.__file__))
        # All that run on this machine are found: a session of another test has another id.
        number = uuid4().int % 10**20
        self.session_id = opencode_program.OpenCodeProgram(database, number=number).session_id
        words = ["opencode", "-I", script, "--port", "0", str(database), str(self.cwd)]
        words.append(str(number))
        self.process = subprocess.Popen(
            words, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def _call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://127.0.0.1:{self.port}{path}", data=data)
        with urlopen(request, timeout=5) as response:
            return json.loads(response.read())

    async def ask(self, command: str) -> str:
        return str(await anyio.to_thread.run_sync(self._call, "/test/ask", {"command": command}))

    async def reply(self, request_id: str, reply: str) -> None:
        body = {"id": request_id, "reply": reply}
        await anyio.to_thread.run_sync(self._call, "/test/reply", body)

    async def post(self, path: str, body: Any = None) -> None:
        await anyio.to_thread.run_sync(self._call, path, body or {})

    async def until_asked(self, path: str, times: int = 1) -> None:
        while True:
            asked = await anyio.to_thread.run_sync(self._call, "/test/asked")
            if asked.count(path) >= times:
                return
            await anyio.sleep(0.02)

    async def received(self) -> list[Any]:
        return list(await anyio.to_thread.run_sync(self._call, "/test/received"))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def served(folder: Path) -> Iterator[ServedOpenCode]:
    program = ServedOpenCode(folder)
    try:
        yield program
    finally:
        program.kill()


async def pending(runner: Runner) -> Any:
    return (await holds(runner.pending_permissions))[0]


async def until_none_pending(runner: Runner) -> None:
    await holds(lambda: not runner.pending_permissions())


def resolved(events: list[Event]) -> list[Any]:
    kind = "permission-request-resolved"
    return [each.payload["status"] for each in events if each.type == kind]


async def until_live(runner: Runner, session_id: str) -> None:
    followed = runner.adoption.followers["opencode"]
    await holds(lambda: session_id in followed.running and runner.find_session(session_id))


@pytest.mark.parametrize("option", ["once", "always", "reject"])
async def test_a_request_is_answered_here(tmp_path: Path, option: str) -> None:
    with served(tmp_path) as program:
        async with running(tmp_path) as runner:
            await runner.adopt_program("opencode")
            await program.ask("touch made")
            asked = (await pending(runner)).request
            assert asked.tool_call["rawInput"] == {"command": "touch made"}
            assert [each["optionId"] for each in asked.options] == ["once", "always", "reject"]
            reason = "not now" if option == "reject" else ""
            await runner.answer_permission(asked.request_id, option, reason=reason)
            events = await until(runner, program.session_id, f"it was answered: {option}")
            (call,) = [each.payload for each in events if each.type == "tool-call"]
            assert call["toolCallId"] == asked.tool_call["toolCallId"]
            assert resolved(events) == ["answered"]
        expected = {"reply": option, "message": reason} if reason else {"reply": option}
        assert [each["body"] for each in await program.received()] == [expected]


async def test_a_request_answered_in_the_terminal_is_withdrawn(tmp_path: Path) -> None:
    with served(tmp_path) as program:
        async with running(tmp_path) as runner:
            await runner.adopt_program("opencode")
            request_id = await program.ask("touch made")
            asked = (await pending(runner)).request
            await program.reply(request_id, "once")
            await until_none_pending(runner)
            events = await until(runner, program.session_id, "it was answered: once")
            assert resolved(events) == ["superseded"]
            with pytest.raises(RequestRejected, match="withdrawn"):
                await runner.answer_permission(asked.request_id, "once")
        assert await program.received() == []


async def test_a_request_from_before_the_runner_is_asked_once_here(tmp_path: Path) -> None:
    with served(tmp_path) as program:
        await program.ask("touch made")
        async with running(tmp_path) as runner:
            await runner.adopt_program("opencode")
            await pending(runner)
            (found,) = await runner.foreign_sessions("opencode")
            assert found.session.status == "waiting"
            assert found.session.waiting_for == "permission: bash"
        async with running(tmp_path) as runner:
            asked = (await pending(runner)).request
            await runner.answer_permission(asked.request_id, "once")
            events = await until(runner, program.session_id, "it was answered: once")
            assert resolved(events) == ["superseded", "answered"]


@pytest.mark.parametrize("path", ["/session/status", "/permission"])
async def test_a_list_that_is_older_than_an_event_changes_nothing(
    tmp_path: Path, path: str
) -> None:
    with served(tmp_path) as program:
        request_id = await program.ask("touch made")
        await program.post("/test/hold", {"path": path})
        async with running(tmp_path) as runner:
            await runner.adopt_program("opencode", past=True)
            await program.until_asked(path)
            await program.reply(request_id, "once")
            await until(runner, program.session_id, "it was answered: once")
            await program.post("/test/release")
            # Once without a folder, once with that of the session, after all else.
            await program.until_asked("/permission", times=2)
            await runner.add_prompt(program.session_id, "k", [{"type": "text", "text": "next"}])
            assert (await runner.wait_prompt(program.session_id, "k")).state == "done"
            assert runner.pending_permissions() == []
            (found,) = await runner.foreign_sessions("opencode")
            assert found.session.status == "idle"


async def test_a_prompt_whose_session_is_deleted_there_has_failed(tmp_path: Path) -> None:
    with served(tmp_path) as program:
        async with running(tmp_path) as runner:
            await runner.adopt_program("opencode", past=True)
            await until_live(runner, program.session_id)
            await program.ask("touch made")
            await pending(runner)
            text = [{"type": "text", "text": "wait for me"}]
            await runner.add_prompt(program.session_id, "k", text, mode="interrupt")
            await until(runner, program.session_id, "wait for me")
            await program.post("/test/delete")
            assert (await runner.wait_prompt(program.session_id, "k")).state == "failed"
            await until_none_pending(runner)


async def test_a_past_session_is_recorded_once_over_restarts(tmp_path: Path) -> None:
    database = tmp_path / ".local" / "share" / "opencode" / "opencode.db"
    program = opencode_program.OpenCodeProgram(database, cwd=str(tmp_path))
    for number in range(3):
        program.prompt(f"prompt {number}")
        program.call("ls", "a file")
        program.answer(f"answer {number}")
        async with running(tmp_path) as runner:
            await runner.adopt_program("opencode", past=True)
            events = await until(runner, program.session_id, f"answer {number}", "prompt-finished")
            assert prompts(events) == [f"prompt {each}" for each in range(number + 1)]
            assert [each.seq for each in events] == list(range(1, len(events) + 1))
            calls = [each.payload["toolCallId"] for each in events if each.type == "tool-call"]
            assert len(set(calls)) == len(calls) == number + 1


@pytest.mark.parametrize("is_asking", [False, True])
async def test_a_killed_opencode_leaves_nothing_pending_and_a_free_session(
    tmp_path: Path, *, is_asking: bool
) -> None:
    with served(tmp_path) as program:
        async with running(tmp_path) as runner:
            await runner.adopt_program("opencode", past=True)
            await until_live(runner, program.session_id)
            if is_asking:
                await program.ask("touch made")
                await pending(runner)
            with pytest.raises(RequestRejected, match="open in OpenCode"):
                runner.adoption.check_free(program.session_id)
            program.kill()
            await until_none_pending(runner)
            await holds(
                lambda: (
                    not (
                        runner.adoption.live(program.session_id)
                        or program.session_id in runner.adoption.followers["opencode"].running
                    )
                )
            )
            runner.adoption.check_free(program.session_id)


async def test_a_prompt_is_sent_to_the_program_that_has_the_session_open(tmp_path: Path) -> None:
    with served(tmp_path) as program:
        async with running(tmp_path) as runner:
            await runner.adopt_program("opencode", past=True)
            await until_live(runner, program.session_id)
            for text in ("first", "second"):
                await runner.add_prompt(program.session_id, text, [{"type": "text", "text": text}])
            entries = [
                await runner.wait_prompt(program.session_id, text) for text in ("first", "second")
            ]
            assert [each.state for each in entries] == ["done", "done"]
            events = await until(runner, program.session_id, "you said: second")
            assert prompts(events) == ["first", "second"]
        assert [each["path"].rpartition("/")[2] for each in await program.received()] == [
            "prompt_async",
            "prompt_async",
        ]


async def test_a_turn_is_aborted_from_here(tmp_path: Path) -> None:
    with served(tmp_path) as program:
        async with running(tmp_path) as runner:
            await runner.adopt_program("opencode", past=True)
            await until_live(runner, program.session_id)
            await runner.add_prompt(
                program.session_id, "k", [{"type": "text", "text": "wait for me"}]
            )
            await until(runner, program.session_id, "wait for me")
            await runner.cancel_turn(program.session_id)
            assert (await runner.wait_prompt(program.session_id, "k")).state == "cancelled"
            events = await until(runner, program.session_id, "wait for me", "prompt-finished")
            (ended,) = [each.payload for each in events if each.type == "prompt-finished"]
            assert ended == {"stopReason": "cancelled"}
        assert [each["path"].rpartition("/")[2] for each in await program.received()] == [
            "prompt_async",
            "abort",
        ]


async def test_the_end_of_one_opencode_does_not_disturb_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "quarterdeck")
    with served(tmp_path) as first, served(tmp_path) as second:
        async with running(tmp_path) as runner:
            await runner.adopt_program("opencode", past=True)
            await until_live(runner, first.session_id)
            await until_live(runner, second.session_id)
            await second.ask("touch made")
            asked = (await pending(runner)).request
            first.kill()
            await holds(lambda: runner.adoption.live(first.session_id) is None)
            assert runner.adoption.live(second.session_id) is not None
            await runner.answer_permission(asked.request_id, "once")
            await until(runner, second.session_id, "it was answered: once")


async def test_a_prompt_whose_program_ends_has_failed(tmp_path: Path) -> None:
    with served(tmp_path) as program:
        async with running(tmp_path) as runner:
            await runner.adopt_program("opencode", past=True)
            await until_live(runner, program.session_id)
            await runner.add_prompt(
                program.session_id, "k", [{"type": "text", "text": "wait for me"}]
            )
            await until(runner, program.session_id, "wait for me")
            program.kill()
            assert (await runner.wait_prompt(program.session_id, "k")).state == "failed"


async def test_rules_decide_a_request_before_anyone_is_asked(tmp_path: Path) -> None:
    policy = Policy(rule=(Rule(decision="deny", commands=("touch *",)),))
    with served(tmp_path) as program:
        async with running(tmp_path, policy=policy) as runner:
            await runner.adopt_program("opencode")
            await program.ask("touch made")
            await until(runner, program.session_id, "it was answered: reject")
            assert runner.pending_permissions() == []
