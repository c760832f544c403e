"""Turns are exported to a real receiver of OTLP, which can neither slow an agent nor stop it."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agents import AgentSettings
from quarterdeck.errors import StartRefused
from quarterdeck.runner import Actor, Runner, RunnerOptions, TelemetrySettings
from quarterdeck.runner.telemetry import service
from quarterdeck.runner.telemetry.service import open_telemetry
from quarterdeck.runner.telemetry.wiring import RunnerTelemetry
from tests.hub.api.kit import ASK, PATIENCE, options, scripted
from tests.runner.telemetry.collector import Collector, attributes, collecting

ME = Actor(id="me", name="me", kind="program")
SAY = {"say": "WORD-OF-ANSWER"}
SECRETS = (b"WORD-OF-ANSWER", b"WORD-OF-PROMPT", b"Edit the file", b"a.py")
METRICS = {
    *("gen_ai.invoke_agent.duration", "gen_ai.execute_tool.duration"),
    *("quarterdeck.permission.wait", "quarterdeck.sessions", "quarterdeck.agents"),
    *("quarterdeck.running_turns", "quarterdeck.telemetry.waiting"),
}
SHELL = Path(__file__).parents[1] / "shell_agent.py"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "GATHER_SECONDS", 0.0)
    monkeypatch.setattr(service, "_RETRY_SECONDS", (0.01, 0.05))
    monkeypatch.setattr(service, "_OBSERVE_SECONDS", 0.01)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    monkeypatch.setenv("OTEL_BLRP_SCHEDULE_DELAY", "50")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found
        # Threads that wait for an answer use `random`, which would disturb other tests.
        found.status = 200
        found.released.set()
        for each in threading.enumerate():
            if each.name.startswith(("telemetry", "Otel")) or "_end_threads" in each.name:
                each.join(PATIENCE)


def traced(folder: Path, url: str, *steps: Any, **more: Any) -> RunnerOptions:
    given = options(folder / "home", mine=scripted(*steps)).runner
    settings = TelemetrySettings(enabled=True, endpoint=url, **more)
    return replace(given, telemetry=settings)


@asynccontextmanager
async def running(given: RunnerOptions) -> AsyncIterator[Runner]:
    with anyio.fail_after(PATIENCE):
        async with Runner(given) as runner:
            yield runner


async def run_turn(
    runner: Runner, folder: Path, session_id: str = "", text: str = "WORD-OF-PROMPT", key: str = "k"
) -> str:
    """Run a turn, and allow what it asks for."""
    if not session_id:
        session_id = (await runner.create_session("mine", cwd=str(folder))).session_id
    await runner.add_prompt(session_id, key, [{"type": "text", "text": text}])
    while (await runner.get_prompt(session_id, key)).state in ("queued", "running"):
        for view in runner.pending_permissions():
            assert view.card is not None
            option, digest = view.card.options[0].option_id, view.card.digest
            request_id = view.request.request_id
            await runner.answer_permission(request_id, option, digest=digest, by=ME)
        await anyio.sleep(0.01)
    return session_id


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():  # noqa: ASYNC110 - a thread has it
        await anyio.sleep(0.01)


def turns(collector: Collector) -> list[Any]:
    return [span for span in collector.spans if span.name.startswith("invoke_agent")]


async def test_a_turn_is_a_trace_with_its_calls_and_decisions(
    tmp_path: Path, collector: Collector
) -> None:
    async with running(traced(tmp_path, collector.url, ASK, SAY)) as runner:
        session_id = await run_turn(runner, tmp_path)
        await until(lambda: turns(collector))
    (turn,) = turns(collector)
    (call,) = [span for span in collector.spans if span.name.startswith("execute_tool")]
    assert (turn.name, call.name) == ("invoke_agent mine", "execute_tool edit")
    assert (call.trace_id, call.parent_span_id) == (turn.trace_id, turn.span_id)
    facts = attributes(turn)
    assert facts["gen_ai.operation.name"] == "invoke_agent"
    assert facts["gen_ai.agent.name"] == "mine"
    assert facts["gen_ai.conversation.id"] == session_id
    assert facts["gen_ai.response.finish_reasons"] == ["end_turn"]
    assert facts["quarterdeck.tool_calls"] == 1
    assert attributes(call)["gen_ai.tool.call.id"] == "edit-1"
    decided = {event.name: attributes(event) for event in call.events}["permission.decided"]
    assert decided["quarterdeck.decided_by"] == "device"
    assert decided["quarterdeck.decision"].startswith("allow")
    assert turn.start_time_unix_nano <= call.start_time_unix_nano
    assert call.end_time_unix_nano <= turn.end_time_unix_nano


async def test_a_turn_that_is_being_sent_when_the_runner_ends_is_not_sent_again(
    tmp_path: Path, collector: Collector
) -> None:
    collector.released.clear()
    async with running(traced(tmp_path, collector.url, SAY)) as runner:
        await run_turn(runner, tmp_path)
        await until(lambda: collector.attempts)
        threading.Timer(0.2, collector.released.set).start()
    sent = [span.span_id for span in collector.spans]
    assert len(turns(collector)) == 1
    assert len(sent) == len(set(sent))


async def test_metrics_and_logs_are_sent_too_and_nothing_has_content(
    tmp_path: Path, collector: Collector
) -> None:
    async with running(traced(tmp_path, collector.url, ASK, SAY)) as runner:
        await run_turn(runner, tmp_path)
        await until(lambda: turns(collector))
        logging.getLogger("quarterdeck.runner").info("a line of the log")
    with anyio.fail_after(PATIENCE):  # all of it is sent at the end
        await until(lambda: collector.metric_names >= METRICS)
        await until(lambda: collector.log_texts)
    everything = b"".join(collector.bodies)
    assert [secret for secret in SECRETS if secret in everything] == []


async def test_content_is_sent_if_it_is_asked_for(tmp_path: Path, collector: Collector) -> None:
    async with running(traced(tmp_path, collector.url, ASK, SAY, content=True)) as runner:
        await run_turn(runner, tmp_path)
        await until(lambda: turns(collector))
    facts = attributes(turns(collector)[0])
    said = json.loads(facts["gen_ai.input.messages"])[0]["parts"][0]["content"]
    assert said == "WORD-OF-PROMPT"
    assert "WORD-OF-ANSWER" in facts["gen_ai.output.messages"]


async def test_an_agent_gets_the_trace_of_its_start_and_of_each_turn(
    tmp_path: Path, collector: Collector
) -> None:
    agent = AgentSettings(command=sys.executable, args=(str(SHELL),))
    given = options(tmp_path / "home", mine=agent).runner
    settings = TelemetrySettings(enabled=True, endpoint=collector.url, content=True)
    async with running(replace(given, telemetry=settings)) as runner:
        await run_turn(runner, tmp_path, text='echo "$TRACEPARENT" "$PROMPT_META"')
        await until(lambda: turns(collector) and len(collector.spans) > 1)
    (turn,) = turns(collector)
    shown = attributes(turn)["gen_ai.output.messages"]
    process, meta = re.findall(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", shown)
    assert meta == f"00-{turn.trace_id.hex()}-{turn.span_id.hex()}-01"
    (start,) = [span for span in collector.spans if span.name == "create_agent mine"]
    assert process == f"00-{start.trace_id.hex()}-{start.span_id.hex()}-01"


async def test_a_receiver_that_does_not_answer_holds_up_no_turn(
    tmp_path: Path, collector: Collector
) -> None:
    collector.released.clear()
    async with running(traced(tmp_path, collector.url, SAY)) as runner:
        session_id = await run_turn(runner, tmp_path)
        await until(lambda: collector.attempts)
        for number in range(3):
            await run_turn(runner, tmp_path, session_id, key=f"k{number}")
        assert turns(collector) == []
        collector.released.set()
        await until(lambda: len({span.span_id for span in turns(collector)}) == 4)
    # One that was sent again, since no answer came in time, has the same id.
    assert len({span.span_id for span in turns(collector)}) == 4


async def test_too_many_spans_are_dropped_and_counted(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_WAITING", 2)
    collector.released.clear()
    async with running(traced(tmp_path, collector.url, SAY)) as runner:
        session_id = await run_turn(runner, tmp_path)
        await until(lambda: collector.attempts)
        for number in range(5):
            await run_turn(runner, tmp_path, session_id, key=f"k{number}")
        telemetry = runner.telemetry.service
        assert telemetry is not None
        await until(lambda: telemetry.dropped["queue-full"])
        collector.released.set()
        await until(lambda: turns(collector))
        await until(lambda: "quarterdeck.telemetry.dropped" in collector.metric_names)


async def test_a_turn_that_was_not_accepted_is_exported_after_a_restart_and_only_once(
    tmp_path: Path, collector: Collector
) -> None:
    collector.status = 503
    given = traced(tmp_path, collector.url, SAY)
    async with running(given) as runner:
        session_id = await run_turn(runner, tmp_path)
        await until(lambda: collector.attempts)
    assert turns(collector) == []
    collector.status = 200
    async with running(given) as runner:
        await until(lambda: turns(collector))
    async with running(given) as runner:
        await run_turn(runner, tmp_path, session_id, key="second")
        await until(lambda: len(turns(collector)) > 1)
    spans = turns(collector)
    assert len(spans) == 2
    assert {attributes(span)["gen_ai.conversation.id"] for span in spans} == {session_id}


async def test_turns_from_before_telemetry_was_enabled_are_not_exported(
    tmp_path: Path, collector: Collector
) -> None:
    given = traced(tmp_path, collector.url, SAY)
    async with running(replace(given, telemetry=TelemetrySettings())) as runner:
        session_id = await run_turn(runner, tmp_path)
    assert collector.headers == []
    async with running(given) as runner:
        await run_turn(runner, tmp_path, session_id, key="second")
        await until(lambda: turns(collector))
    assert len(turns(collector)) == 1


async def test_headers_have_values_of_the_environment(tmp_path: Path, collector: Collector) -> None:
    given = traced(tmp_path, collector.url, SAY, headers={"x-key": "Bearer ${KEY}"})
    given = replace(given, environ={**given.environ, "KEY": "abc"})
    async with running(given) as runner:
        await run_turn(runner, tmp_path)
        await until(lambda: turns(collector))
    assert {each.get("x-key") for each in collector.headers} == {"Bearer abc"}


def test_without_telemetry_a_host_has_no_further_options(tmp_path: Path) -> None:
    def inherit(_definition: object) -> dict[str, str]:
        return {}

    off = options(tmp_path).runner
    on = replace(off, telemetry=TelemetrySettings(enabled=True))
    stopped = replace(on, environ={"OTEL_SDK_DISABLED": "true"})
    for given in (off, stopped):
        assert RunnerTelemetry(given).host_options(inherit) == {"inherit": inherit}
    assert set(RunnerTelemetry(on).host_options(inherit)) == {"inherit", "prompt_meta"}


def test_missing_packages_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "quarterdeck.runner.telemetry.otlp", None)
    with pytest.raises(StartRefused, match=r"pip install 'quarterdeck\[telemetry\]'"):
        open_telemetry(TelemetrySettings(enabled=True), {})
