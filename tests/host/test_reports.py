"""What an agent sends and a host does not keep is reported, once, and then counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quarterdeck.errors import AcpError
from quarterdeck.host.reports import BURST, RepeatedReports, StderrReports
from quarterdeck.wire.transports.process import explaining_line
from tests.host.test_host import CAN, Seen, agent, running

Json = dict[str, Any]
UPDATE = {"sessionUpdate": "plan", "entries": []}


def update_of(session_id: str) -> Json:
    return {
        "jsonrpc": "2.0",
        "method": "session/update",
        "params": {"sessionId": session_id, "update": UPDATE},
    }


def diagnostics(seen: Seen, code: str) -> list[Json]:
    return [
        dict(each.payload)
        for each in seen.events
        if each.type == "diagnostic" and each.payload["code"] == code
    ]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"raw": update_of("ghost")}, "session/update-dropped"),
        ({"notify": "_vendor/news", "params": {"k": 1}}, "agent/notification-dropped"),
    ],
    ids=["unknown session", "vendor notification"],
)
async def test_what_is_dropped_is_reported_at_once_and_then_counted(
    step: Json, code: str, tmp_path: Path
) -> None:
    steps: list[Json] = [step, {"say": "first"}, {"repeat": 1234, "steps": [step]}]
    async with running() as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(*steps))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(session.session_id, "x")
        first = await host_seen.first("diagnostic", code=code)
        assert first.agent_id == spawned.agent_id
        assert first.extensions is not None
        assert "quarterdeck" in first.extensions
        await host.dispose_agent(spawned.agent_id)
        counts = [each["data"]["count"] for each in diagnostics(host_seen, code)]
        assert counts == [1, 10, 100, 1000, 1235]


@pytest.mark.anyio
async def test_an_update_for_a_session_that_has_ended_is_reported(tmp_path: Path) -> None:
    steps: list[Json] = [{"raw": update_of("sess-1")}]
    async with running() as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(*steps, capabilities=CAN))
        ended = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        other = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.close_session(ended.session_id)
        await host.prompt(other.session_id, "x")
        (report,) = diagnostics(host_seen, "session/update-dropped")
        assert report["sessionId"] == "sess-1"
        assert "which is closed" in report["message"]


@pytest.mark.anyio
@pytest.mark.parametrize("result", [None, [], "ok", 3])
async def test_an_answer_without_an_object_is_reported(result: Any, tmp_path: Path) -> None:
    methods = {"session/resume": [{"result": result}]}
    async with running() as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(
            agent({"result": result}, capabilities=CAN, methods=methods)
        )
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        assert await host.prompt(session.session_id, "x") == {"stopReason": "end_turn"}
        await host.resume_session(spawned.agent_id, session.session_id, cwd=str(tmp_path))
        reports = diagnostics(host_seen, "agent/answer-empty")
        assert [each["data"]["method"] for each in reports] == ["session/prompt", "session/resume"]


@pytest.mark.anyio
async def test_a_flood_of_stderr_is_joined_and_stays_readable(tmp_path: Path) -> None:
    steps: list[Json] = [{"stderr": "noise {n}", "times": 20_000}, {"stderr": "the end"}]
    async with running() as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(*steps))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        await host.prompt(session.session_id, "x")
        await host.dispose_agent(spawned.agent_id)
        reports = diagnostics(host_seen, "agent/stderr")
        lines = [each.get("data", {}).get("lines", 1) for each in reports]
        assert sum(lines) == 20_001
        assert len(reports) < 1000
        assert all(len(each["message"]) < 8000 for each in reports)
        assert reports[-1]["message"].endswith("the end")


def test_lines_at_a_calm_pace_are_published_one_by_one() -> None:
    published: list[tuple[str, int]] = []
    clock = [0.0]
    reports = StderrReports(lambda text, lines: published.append((text, lines)), lambda: clock[0])
    for number in range(500):
        clock[0] += 0.2
        reports.take(str(number))
    assert published == [(str(number), 1) for number in range(500)]
    clock[0] += 10
    for number in range(500):
        reports.take(str(number))
    assert len(published) == 500 + BURST
    reports.flush()
    assert published[-1][1] == 500 - BURST
    assert published[-1][0].splitlines()[0] == str(BURST)
    assert published[-1][0].splitlines()[-1] == "499"
    assert f"… {500 - BURST - 50} more lines …" in published[-1][0]


def test_kinds_without_end_are_counted_together() -> None:
    published: list[int] = []
    reports = RepeatedReports()
    for number in range(1000):
        reports.add(number, published.append)
    reports.flush()
    assert len(published) < 110


@pytest.mark.anyio
async def test_an_agent_that_cannot_start_is_named_and_its_own_error_is_quoted(
    tmp_path: Path,
) -> None:
    program = tmp_path / "agent.py"
    program.write_text(
        "import sys\n"
        "for line in ('Loading', 'Error: no API key; set ACME_KEY', '    at main (a.js:3:5)',"
        " '', 'Node.js v22.1.0'):\n"
        "    print(line, file=sys.stderr)\n"
        "raise SystemExit(3)\n"
    )
    async with running() as host:
        definition = {"id": "acme", "command": "python3", "args": [str(program)]}
        with pytest.raises(AcpError) as caught:
            await host.spawn_agent(definition)
    assert "acme exited with status 3" in caught.value.message
    assert caught.value.message.endswith("Error: no API key; set ACME_KEY")
    assert "python" not in caught.value.message


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], None),
        (["bye"], "bye"),
        (["ready", "bye"], "bye"),
        (
            [
                "Traceback (most recent call last):",
                '  File "a.py", line 1, in <module>',
                "    x()",
                "ValueError: bad key",
            ],
            "ValueError: bad key",
        ),
        (
            [
                "a.js:10",
                "    throw new Error('no key');",
                "    ^",
                "",
                "Error: no key",
                "    at Object.<anonymous> (a.js:10:9)",
                "    at node:internal/main:1:2",
                "",
                "Node.js v22.3.0",
            ],
            "Error: no key",
        ),
        (
            [
                "thread 'main' panicked at src/main.rs:2:5:",
                "no config file",
                "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
            ],
            "thread 'main' panicked at src/main.rs:2:5:",
        ),
        (
            [
                "npm error code E404",
                "npm error 404 Not Found - GET https://r/x",
                "npm error A complete log of this run can be found in: /home/.npm/_logs/x.log",
            ],
            "npm error 404 Not Found - GET https://r/x",
        ),
        (["", "   "], "   "),
    ],
)
def test_the_line_that_explains_is_the_error_and_not_its_trace(
    lines: list[str], expected: str | None
) -> None:
    assert explaining_line(lines) == expected
