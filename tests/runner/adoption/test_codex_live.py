"""Sessions that Codex's daemon runs: shown as they come, answered, prompted, never doubled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agents.adapters.codex import daemon as codex_daemon
from quarterdeck.errors import RequestRejected
from quarterdeck.policy import Policy, Rule
from quarterdeck.protocol import Event
from quarterdeck.runner import Runner
from quarterdeck.runner.adoption import follower as following, live
from quarterdeck.runner.adoption.service import ForeignState
from quarterdeck.runner.prompts.store import PromptError
from quarterdeck.testing.codex_daemon import CodexDaemonScript
from tests.runner.adoption.kit import log_of, prompts, running, until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(live, "READ_SECONDS", 0.01)
    monkeypatch.setattr(codex_daemon, "LOOK_SECONDS", 0.02)


def script(folder: Path) -> CodexDaemonScript:
    cwd = folder / "project"
    cwd.mkdir(exist_ok=True)
    codex = CodexDaemonScript(folder / ".codex", cwd=str(cwd))
    codex.program.prompt("earlier")
    codex.program.answer("said earlier")
    return codex


@asynccontextmanager
async def adopting(folder: Path, **more: Any) -> AsyncIterator[tuple[Runner, CodexDaemonScript]]:
    async with script(folder).running() as codex, running(folder, **more) as runner:
        await runner.adopt_program("codex")
        await codex.wait_subscribed()
        await until(runner, codex.session_id, "said earlier")
        yield runner, codex


async def pending(runner: Runner) -> Any:
    while True:
        if views := runner.pending_permissions():
            return views[0]
        await anyio.sleep(0.01)


async def eventually(
    runner: Runner, session_id: str, holds: Callable[[list[Event]], bool]
) -> list[Event]:
    while True:
        events = await log_of(runner, session_id)
        if holds(events):
            return events
        await anyio.sleep(0.01)


def answers(events: list[Event]) -> str:
    chunks = [each.payload for each in events if each.type == "agent-message-chunk"]
    return "".join(each["content"]["text"] for each in chunks)


def ends(events: list[Event]) -> list[str]:
    return [each.payload["stopReason"] for each in events if each.type == "prompt-finished"]


def state_of(runner: Runner, session_id: str) -> ForeignState:
    foreign = runner.session(session_id).foreign
    assert isinstance(foreign, ForeignState)
    return foreign


async def until_running(runner: Runner, session_id: str, *, is_running: bool) -> None:
    while True:
        if state_of(runner, session_id).is_running is is_running:
            return
        await anyio.sleep(0.01)


async def test_a_text_is_shown_as_it_comes_and_is_recorded_once(tmp_path: Path) -> None:
    async with adopting(tmp_path) as (runner, codex):
        await codex.begin_turn("go")
        await codex.think("let me see")
        await codex.add_text("one ")
        events = await until(runner, codex.session_id, "one ")
        assert prompts(events) == ["earlier", "go"]
        await codex.add_text("two ")
        await until(runner, codex.session_id, "two ")
        await codex.add_text("three")
        await codex.end_text()
        await codex.end_turn()
        events = await eventually(runner, codex.session_id, lambda log: len(ends(log)) == 2)
        assert answers(events) == "said earlier" + "one two three"
        kinds = [each.type for each in events if each.type.endswith("-chunk")]
        assert kinds.index("agent-thought-chunk") < len(kinds) - 1
        thoughts = [each for each in events if each.type == "agent-thought-chunk"]
        assert "".join(each.payload["content"]["text"] for each in thoughts) == "let me see"
        assert [each.seq for each in events] == list(range(1, len(events) + 1))


async def test_a_text_waits_for_what_comes_before_it_in_the_file(tmp_path: Path) -> None:
    async with adopting(tmp_path) as (runner, codex):
        codex.is_late = True
        await codex.begin_turn("go")
        await codex.add_text("too early")
        await anyio.sleep(0.1)
        assert "too early" not in answers(await log_of(runner, codex.session_id))
        codex.catch_up()
        events = await until(runner, codex.session_id, "too early")
        assert prompts(events) == ["earlier", "go"]
        shown = [each.type for each in events if each.type.endswith("message-chunk")]
        assert shown[-2:] == ["user-message-chunk", "agent-message-chunk"]


@pytest.mark.parametrize("pieces", [0, 1, 3])
async def test_a_runner_that_is_restarted_in_a_text_doubles_and_loses_nothing(
    tmp_path: Path, pieces: int
) -> None:
    texts = ["one ", "two ", "three"]
    async with script(tmp_path).running() as codex:
        async with running(tmp_path) as runner:
            await runner.adopt_program("codex")
            await codex.wait_subscribed()
            await until(runner, codex.session_id, "said earlier")
            await codex.begin_turn("go")
            for text in texts[:pieces]:
                await codex.add_text(text)
                await until(runner, codex.session_id, text)
        await codex.add_text(*texts[pieces:])
        async with running(tmp_path) as runner:
            await codex.end_text()
            await codex.end_turn()
            events = await eventually(runner, codex.session_id, lambda log: len(ends(log)) == 2)
            assert answers(events) == "said earlier" + "".join(texts)
            assert prompts(events) == ["earlier", "go"]


async def test_an_interrupted_text_stays_and_the_next_turn_is_whole(tmp_path: Path) -> None:
    async with adopting(tmp_path) as (runner, codex):
        await codex.begin_turn("go")
        await codex.add_text("half")
        await until(runner, codex.session_id, "half")
        await runner.cancel_turn(codex.session_id)
        await eventually(runner, codex.session_id, lambda log: ends(log)[1:] == ["cancelled"])
        await codex.begin_turn("again")
        await codex.add_text("whole")
        await codex.end_text()
        await codex.end_turn()
        events = await eventually(runner, codex.session_id, lambda log: len(ends(log)) == 3)
        assert answers(events) == "said earlier" + "half" + "whole"


async def test_a_request_is_answered_here_and_closed_there(tmp_path: Path) -> None:
    async with adopting(tmp_path) as (runner, codex):
        await codex.begin_turn("go")
        call_id = await codex.ask("touch a.txt")
        view = await pending(runner)
        assert view.request.tool_call["toolCallId"] == call_id
        assert view.request.tool_call["rawInput"]["command"] == "touch a.txt"
        assert state_of(runner, codex.session_id).is_running
        await runner.answer_permission(view.request.request_id, "accept")
        events = await eventually(
            runner,
            codex.session_id,
            lambda log: any(each.payload.get("status") == "completed" for each in log),
        )
        assert codex.decisions == ["accept"]
        kinds = [each.type for each in events]
        assert kinds.count("tool-call") == kinds.count("permission-request-resolved") == 1


async def test_a_rejection_with_a_reason_steers_the_turn(tmp_path: Path) -> None:
    async with adopting(tmp_path) as (runner, codex):
        await codex.begin_turn("go")
        await codex.ask_change("/project/a.txt", "text\n")
        view = await pending(runner)
        (diff,) = view.request.tool_call["content"]
        assert (diff["path"], diff["newText"]) == ("/project/a.txt", "text\n")
        request_id = view.request.request_id
        await runner.answer_permission(request_id, "reject", reason="in another folder")
        events = await until(runner, codex.session_id, "in another folder")
        assert codex.decisions == ["decline"]
        assert prompts(events)[-1] == "in another folder"


async def test_a_rule_decides_before_anyone_is_asked(tmp_path: Path) -> None:
    policy = Policy(rule=(Rule(decision="allow", commands=("touch *",)),))
    async with adopting(tmp_path, policy=policy) as (runner, codex):
        await codex.begin_turn("go")
        await codex.ask("touch a.txt")
        await codex.decided.wait()
        assert codex.decisions == ["accept"]
        assert not runner.pending_permissions()


@pytest.mark.parametrize("sign", ["answered", "interrupted", "disconnected"])
async def test_a_request_is_withdrawn_when_it_was_answered_in_the_terminal(
    tmp_path: Path, sign: str
) -> None:
    async with adopting(tmp_path) as (runner, codex):
        await codex.begin_turn("go")
        await codex.ask("touch a.txt")
        first = (await pending(runner)).request.request_id
        if sign == "answered":
            await codex.answer("accept")
        elif sign == "interrupted":
            await codex.answer("cancel")
        else:
            await codex.disconnect()
        events = await eventually(
            runner,
            codex.session_id,
            lambda log: any(each.type == "permission-request-resolved" for each in log),
        )
        resolved = [each for each in events if each.type == "permission-request-resolved"]
        assert [each.payload["status"] for each in resolved] == ["superseded"]
        if sign == "disconnected":  # and it is asked again when the connection is back
            second = (await pending(runner)).request.request_id
            assert second != first
            await runner.answer_permission(second, "accept")
            await codex.decided.wait()


async def test_a_prompt_runs_in_the_daemon_and_ends_with_its_turn(tmp_path: Path) -> None:
    async with adopting(tmp_path) as (runner, codex):
        block = {"type": "text", "text": "from the page"}
        await runner.add_prompt(codex.session_id, "k", [block])
        await until(runner, codex.session_id, "from the page")
        assert (await runner.get_prompt(codex.session_id, "k")).state == "running"
        steered = {"type": "text", "text": "and this"}
        await runner.add_prompt(codex.session_id, "s", [steered], mode="steer")
        assert (await runner.wait_prompt(codex.session_id, "s")).state == "done"
        assert (await runner.get_prompt(codex.session_id, "k")).state == "running"
        await codex.add_text("done")
        await codex.end_text()
        await codex.end_turn()
        ended = await runner.wait_prompt(codex.session_id, "k")
        assert ended.state == "done"
        events = await log_of(runner, codex.session_id)  # a turn that is done is in the log
        (begun,) = [each for each in events if each.payload.get("content") == block]
        assert ended.seq == begun.seq
        assert len(ends(events)) == 2
        assert prompts(events) == ["earlier", "from the page", "and this"]
        assert answers(events) == "said earlier" + "done"


async def test_a_turn_that_began_before_the_runner_is_cancelled_from_here(tmp_path: Path) -> None:
    async with script(tmp_path).running() as codex:
        await codex.begin_turn("typed")
        async with running(tmp_path) as runner:
            await runner.adopt_program("codex")
            await codex.wait_subscribed()
            await until(runner, codex.session_id, "typed")
            await runner.cancel_turn(codex.session_id)
            events = await eventually(runner, codex.session_id, lambda log: len(ends(log)) == 2)
            assert ends(events)[1:] == ["cancelled"]


async def test_prompts_wait_for_the_terminals_turn_or_interrupt_it(tmp_path: Path) -> None:
    async with adopting(tmp_path) as (runner, codex):
        await codex.begin_turn("typed")
        await until(runner, codex.session_id, "typed")
        block = {"type": "text", "text": "later"}
        await runner.add_prompt(codex.session_id, "q", [block])
        await anyio.sleep(0.05)
        assert (await runner.get_prompt(codex.session_id, "q")).state == "queued"
        await runner.add_prompt(codex.session_id, "i", [block | {"text": "now"}], mode="interrupt")
        await until(runner, codex.session_id, "now")
        await codex.end_turn()
        await until(runner, codex.session_id, "later")
        await codex.end_turn()
        events = await eventually(runner, codex.session_id, lambda log: len(ends(log)) == 4)
        assert prompts(events) == ["earlier", "typed", "now", "later"]
        assert ends(events)[1:] == ["cancelled", "end_turn", "end_turn"]


async def test_without_its_daemon_a_session_is_read_and_free(tmp_path: Path) -> None:
    codex = script(tmp_path)
    async with running(tmp_path) as runner:
        async with codex.running():
            await runner.adopt_program("codex")
            await codex.wait_subscribed()
            await until(runner, codex.session_id, "said earlier")
            await codex.begin_turn("go")
            await codex.add_text("half")
            await until(runner, codex.session_id, "half")
        await until_running(runner, codex.session_id, is_running=False)
        block = {"type": "text", "text": "x"}
        with pytest.raises(RequestRejected, match="steered"):
            await runner.add_prompt(codex.session_id, "s", [block], mode="steer")
        codex.program.prompt("written")
        await until(runner, codex.session_id, "written")
        async with codex.running():  # the daemon is started again
            await until_running(runner, codex.session_id, is_running=True)


async def test_a_prompt_whose_daemon_ends_has_failed(tmp_path: Path) -> None:
    codex = script(tmp_path)
    async with running(tmp_path) as runner:
        async with codex.running():
            await runner.adopt_program("codex")
            await until(runner, codex.session_id, "said earlier")
            await until_running(runner, codex.session_id, is_running=True)
            await runner.add_prompt(codex.session_id, "k", [{"type": "text", "text": "go"}])
            await until(runner, codex.session_id, "go")
        ended = await runner.wait_prompt(codex.session_id, "k")
        assert ended.state == "failed"
        assert isinstance(ended.error, PromptError)
        assert "daemon" in ended.error.message


async def test_a_runner_that_ends_leaves_the_turn_to_codex(tmp_path: Path) -> None:
    async with script(tmp_path).running() as codex:
        async with running(tmp_path) as runner:
            await runner.adopt_program("codex")
            await until(runner, codex.session_id, "said earlier")
            await until_running(runner, codex.session_id, is_running=True)
            await runner.add_prompt(codex.session_id, "k", [{"type": "text", "text": "go"}])
            await until(runner, codex.session_id, "go")
        assert "turn/interrupt" not in [each.get("method") for each in codex.received]
        async with running(tmp_path) as runner:
            left = await runner.get_prompt(codex.session_id, "k")
            assert left.state == "interrupted"
            assert isinstance(left.error, PromptError)
            assert "check how far it got" in left.error.message
            await codex.add_text("done")
            await codex.end_text()
            await codex.end_turn()
            events = await eventually(runner, codex.session_id, lambda log: len(ends(log)) == 2)
            assert prompts(events) == ["earlier", "go"]
            assert answers(events) == "said earlier" + "done"


async def test_a_thread_that_ends_while_it_is_looked_at_costs_no_other(tmp_path: Path) -> None:
    codex = script(tmp_path)
    codex.gone = ["01a1ed36-0000-7000-8000-000000000000"]
    async with codex.running(), running(tmp_path) as runner:
        await runner.adopt_program("codex")
        await codex.wait_subscribed()
        await until(runner, codex.session_id, "said earlier")
        await until_running(runner, codex.session_id, is_running=True)


async def test_a_session_that_is_new_is_followed_from_its_first_turn(tmp_path: Path) -> None:
    cwd = tmp_path / "project"
    cwd.mkdir()
    codex = CodexDaemonScript(tmp_path / ".codex", cwd=str(cwd))
    async with codex.running(), running(tmp_path) as runner:
        await runner.adopt_program("codex")
        while True:
            if any(each.get("method") == "thread/resume" for each in codex.received):
                break
            await anyio.sleep(0.01)
        await codex.begin_turn("go")
        await codex.wait_subscribed()  # once there is a file
        await codex.ask("touch a")
        await runner.answer_permission((await pending(runner)).request.request_id, "accept")
        await codex.decided.wait()
        assert prompts(await log_of(runner, codex.session_id)) == ["go"]
