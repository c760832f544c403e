"""A `Runner` works by itself: no hub, no socket; and a hub can use one that is there already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from quarterdeck.errors import RequestRejected, StartRefused
from quarterdeck.hub import Hub
from quarterdeck.protocol import Event
from quarterdeck.runner import (
    Actor,
    News,
    QueueChanged,
    RequestUpdated,
    Runner,
    SessionDeleted,
    SessionUpdated,
)
from tests.hub.api.kit import ASK, PATIENCE, options, scripted

SAY = {"say": "hello"}
ME = Actor(id="me", name="me", kind="program")


async def test_a_program_runs_a_turn_and_answers_a_request_without_a_hub(tmp_path: Path) -> None:
    news: list[News] = []
    pending = anyio.Event()

    def on_news(each: News) -> None:
        news.append(each)
        if isinstance(each, RequestUpdated) and each.status == "pending":
            pending.set()

    given = options(tmp_path / "home", mine=scripted(ASK)).runner
    with anyio.fail_after(PATIENCE):
        async with Runner(given) as runner:
            runner.subscribe_news(on_news)
            session = await runner.create_session("mine", cwd=str(tmp_path))
            await runner.add_prompt(session.session_id, "k", [{"type": "text", "text": "go"}])
            await pending.wait()
            (view,) = runner.pending_permissions()
            assert view.card is not None
            option = view.card.options[0].option_id
            request_id, digest = view.request.request_id, view.card.digest
            decided = await runner.answer_permission(request_id, option, digest=digest, by=ME)
            assert getattr(decided.by, "device_id", None) == "me"
            assert (await runner.wait_prompt(session.session_id, "k")).state == "done"
            events: list[Event] = []
            async for event in runner.events(session.session_id):
                events.append(event)
                if event.type == "prompt-finished":
                    break
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            await runner.delete_session(session.session_id, by=ME)
            with pytest.raises(RequestRejected):
                runner.session(session.session_id)
    assert {SessionUpdated, RequestUpdated, QueueChanged, SessionDeleted} <= set(map(type, news))
    assert not (tmp_path / "home" / "token").exists()  # no device, no hub
    assert not (tmp_path / "home" / "hub.db").exists()


async def test_a_subscriber_of_news_that_fails_disturbs_no_other(tmp_path: Path) -> None:
    news: list[News] = []

    def fail(_news: News) -> None:
        raise ValueError("a subscriber")

    with anyio.fail_after(PATIENCE):
        async with Runner(options(tmp_path / "home", mine=scripted(SAY)).runner) as runner:
            runner.subscribe_news(fail)
            unsubscribe = runner.subscribe_news(news.append)
            await runner.create_session("mine", cwd=str(tmp_path))
            assert news
            unsubscribe()
            unsubscribe()
            count = len(news)
            await runner.create_session("mine", cwd=str(tmp_path))
            assert len(news) == count


async def test_a_hub_ends_and_the_agents_of_its_runner_go_on(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted(SAY))
    with anyio.fail_after(PATIENCE):
        async with Runner(given.runner) as runner:
            async with Hub(given, runner) as hub:
                assert hub.fleet.local is runner
                session = await hub.runner.create_session("mine", cwd=str(tmp_path))
            (agent,) = runner.agents()
            assert agent.status == "ready"
            async with Hub(given, runner) as hub:
                await hub.runner.add_prompt(session.session_id, "k", [SAY | {"type": "text"}])
                assert (await hub.runner.wait_prompt(session.session_id, "k")).state == "done"
            assert [each.agent_id for each in runner.agents()] == [agent.agent_id]


async def test_one_runner_at_a_time_has_a_data_folder(tmp_path: Path) -> None:
    given = options(tmp_path / "home").runner
    async with Runner(given):
        with pytest.raises(StartRefused):
            async with Runner(given):
                pass


async def test_a_session_is_created_with_a_name_or_an_id_and_not_with_both(tmp_path: Path) -> None:
    async with Runner(options(tmp_path / "home").runner) as runner:
        with pytest.raises(RequestRejected):
            await runner.create_session(cwd=str(tmp_path))
        with pytest.raises(RequestRejected):
            await runner.create_session("mine", agent_id="agent-1", cwd=str(tmp_path))


def test_the_options_of_a_runner_load_neither_a_host_nor_a_server() -> None:
    program = (
        "import sys; from quarterdeck.runner import Retention, RunnerOptions;"
        "print([each for each in ('quarterdeck.host', 'quarterdeck.hub', 'uvicorn', 'starlette')"
        " if each in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
