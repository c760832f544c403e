"""Requests as objects: what is pending, then what becomes pending, each once, answered once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import AcpError, TurnFailed
from quarterdeck.host import Host, PendingPermission, PromptResult
from tests.host.test_host import ASK, Seen, agent, running, texts

pytestmark = pytest.mark.anyio


async def _session(host: Host, folder: Path, *steps: dict[str, Any], **more: Any) -> str:
    spawned = await host.spawn_agent(agent(*steps, **more))
    session = await host.create_session(spawned.agent_id, cwd=str(folder))
    return session.session_id


async def test_a_program_answers_each_request_in_a_loop(tmp_path: Path) -> None:
    steps = [{**ASK, "ask": f"edit-{number}"} for number in range(5)]
    answered: list[str] = []
    async with running() as host:
        session_id = await _session(host, tmp_path, *steps)

        async def answer() -> None:
            async for request in host.requests():
                answered.append(request.tool_call["toolCallId"])
                if len(answered) % 2:
                    await request.allow()
                else:
                    await request.reject("not today")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            result = await host.prompt(session_id, "go")
            tasks.cancel_scope.cancel()
        seen = Seen()
        host.subscribe(session_id, 0, seen)
        await seen.first("prompt-finished")
    assert result.stop_reason == "end_turn"
    assert answered == [f"edit-{number}" for number in range(5)]
    assert "".join(texts(seen.events)) == "donefinedonefinedone"
    resolved = [each for each in seen.events if each.type == "permission-request-resolved"]
    by = [(each.extensions or {})["quarterdeck"]["decidedBy"] for each in resolved]
    assert [each.get("reason") for each in by] == [None, "not today", None, "not today", None]
    assert resolved[1].payload["outcome"]["_meta"] == {"quarterdeck": {"reason": "not today"}}


async def _first(host: Host, session_id: str | None = None) -> PendingPermission:
    async for request in host.requests(session_id):
        return request
    raise AssertionError("the host ended")


async def test_a_late_loop_gets_what_is_pending_and_the_first_answer_wins(tmp_path: Path) -> None:
    async with running() as host:
        session_id = await _session(host, tmp_path, ASK)
        (spawned,) = host.get_agents()
        other_id = (await host.create_session(spawned.agent_id, cwd=str(tmp_path))).session_id
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.prompt, session_id, "go")
            first = await _first(host)
            tasks.start_soon(host.prompt, other_id, "go")
            other = await _first(host, other_id)
            again = await _first(host, session_id)
            assert (first.id, first.session_id) == (again.id, session_id)
            assert (other.session_id, other.status) == (other_id, "pending")
            await first.allow()
            with pytest.raises(AcpError, match="already answered"):
                await again.reject()
            assert again.status == "answered"
            assert (await _first(host)).id == other.id
            await other.reject()


async def test_a_loop_ends_with_its_host_and_what_was_decided_is_left_out(tmp_path: Path) -> None:
    yielded: list[str] = []
    async with anyio.create_task_group() as tasks, running() as host:
        session_id = await _session(host, tmp_path, ASK, {**ASK, "ask": "edit-2"})

        async def collect() -> None:
            yielded.extend([request.id async for request in host.requests()])

        def allow(event: Any) -> None:
            if event.type == "permission-updated" and event.payload["status"] == "pending":
                chosen = {"outcome": "selected", "optionId": "allow_once"}
                _ = host.respond_permission(event.payload["requestId"], chosen)

        host.subscribe(None, 0, allow)
        tasks.start_soon(collect)
        await host.prompt(session_id, "go")
    assert yielded == []


async def test_an_option_that_is_not_offered_is_refused_and_the_request_stays(
    tmp_path: Path,
) -> None:
    async with running() as host:
        options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]
        session_id = await _session(host, tmp_path, {**ASK, "options": options})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.prompt, session_id, "go")
            request = await _first(host)
            with pytest.raises(AcpError, match=r"offers no allow_always .* choose with select"):
                await request.allow(always=True)
            with pytest.raises(AcpError, match="does not offer 'nonsense'"):
                await request.select("nonsense")
            assert request.status == "pending"
            await request.select(request.options[0]["optionId"])


async def test_an_elicitation_is_answered_in_a_loop(tmp_path: Path) -> None:
    form = {
        "mode": "form",
        "message": "Who are you?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    messages: list[str] = []
    async with running(elicitation=("form",)) as host:
        session_id = await _session(
            host, tmp_path, {"request": "elicitation/create", "params": form}
        )

        async def answer() -> None:
            async for request in host.elicitations(session_id):
                messages.append(request.message)
                await request.accept({"name": "Ann"})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            await host.prompt(session_id, "go")
            tasks.cancel_scope.cancel()
    assert messages == ["Who are you?"]


async def test_a_failed_turn_is_a_result_that_can_be_raised(tmp_path: Path) -> None:
    async with running() as host:
        session_id = await _session(host, tmp_path, {"fail": "no credit", "code": -32050})
        result = await host.prompt(session_id, "go")
        assert result == {
            "stopReason": "end_turn",
            "error": {"code": -32050, "message": "no credit"},
        }
        assert result.error == {"code": -32050, "message": "no credit"}
        with pytest.raises(TurnFailed, match="the turn failed: no credit") as raised:
            result.raise_for_error()
        assert (raised.value.code, raised.value.rpc_code) == ("acpjs/agent-error", -32050)


def test_a_result_without_an_error_is_returned() -> None:
    result = PromptResult({"stopReason": "cancelled"})
    assert result.raise_for_error() is result
    assert (result.stop_reason, result.usage, result.error) == ("cancelled", None, None)


TYPED = """
from quarterdeck.host import Host
from quarterdeck.protocol import AgentMessageChunkEvent, ToolCallEvent

async def use(host: Host) -> None:
    async for event in host.events("s"):
        if isinstance(event, AgentMessageChunkEvent):
            reveal_type(event.payload["content"])
        if event.type == "tool-call":
            reveal_type(event.payload)
    async for request in host.requests():
        reveal_type(request.tool_call)
        request.alow()
    result = await host.prompt("s", "hello")
    reveal_type(result.stop_reason)
    result.error["mesage"]
"""


def test_a_type_checker_sees_events_requests_and_results(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(TYPED, encoding="utf-8")
    command = (sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--cache-dir", "/dev/null")
    done = subprocess.run((*command, program), capture_output=True, text=True, check=False)
    revealed = [line.split("note: ")[1] for line in done.stdout.splitlines() if "Revealed" in line]
    assert len(revealed) == 4, done.stdout
    assert "TypedDict" in revealed[1]
    assert "TypedDict" in revealed[2]
    assert "Any" not in revealed[3]
    assert '"PendingPermission" has no attribute "alow"' in done.stdout
    assert "mesage" in done.stdout
