"""What the protocol's description says in words, lists and drawings, one after another."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest

from quarterdeck.agents.adapters import AcpAdapter
from quarterdeck.host import Host
from quarterdeck.policy import RiskLevel, ToolCategory
from quarterdeck.protocol.results import resolution_meta
from quarterdeck.views import context
from quarterdeck.views.context import (
    ApproveToolCallCommand,
    ContextEvent,
    IntegrationMethod,
    MessageRole,
    SendMessageCommand,
    SessionStatus,
    StartSessionOptions,
    TerminateCommand,
)
from tests.agents.adapters.test_acp import Seen, definition
from tests.views.context.example_log import everything
from tests.views.context.support import Log, edit_diff

LISTS = {
    "starting running thinking waiting_for_input waiting_for_approval paused idle completed"
    " error": SessionStatus,
    "user assistant system": MessageRole,
    "file_read file_write file_edit terminal search web git mcp agent other": ToolCategory,
    "low medium high critical": RiskLevel,
    "sdk http pty file-watch mcp": IntegrationMethod,
}


@pytest.mark.parametrize(("values", "kind"), LISTS.items(), ids=lambda each: str(each)[:20])
def test_a_list_of_values_is_the_described_one(values: str, kind: Any) -> None:
    assert list(get_args(kind)) == values.split()


def test_every_status_is_reached() -> None:
    emitted = [event for event in everything().emitted() if event.type == "session:status_changed"]
    reached = {status for event in emitted for status in (event.from_, event.to)}
    assert reached == set(get_args(SessionStatus))


def test_the_described_handler_finds_what_it_looks_for() -> None:
    found: set[Any] = set()
    for event in everything().emitted():
        match event.type:
            case "message:delta":
                found.add(event.delta)
            case "tool:executing":
                found.add((event.name, event.risk_level))
            case "approval:requested":
                found.add((event.description, event.preview is not None))
            case _:
                pass
    assert {"I edit.", ("Bash", "medium"), ("Edit", True)} <= found


def test_nothing_is_needed_beside_msgspec() -> None:
    folder = Path(context.__file__).parent
    needed = set()
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                needed.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Import):
                needed.update(alias.name.partition(".")[0] for alias in node.names)
    assert needed - sys.stdlib_module_names - {"quarterdeck"} == {"msgspec"}


# ---- the two drawings ----------------------------------------------------------------------

APPROVAL_FLOW = [
    "tool:start",
    "tool:args_delta",
    "tool:executing",
    "approval:requested",
    "approval:resolved",
]


@pytest.mark.parametrize(
    ("option", "by", "status", "ending"),
    [
        ("yes", "user", "completed", "tool:result"),
        ("no", "user", "failed", "tool:error"),
        ("no", "timeout", "failed", "tool:error"),
    ],
)
def test_the_approval_of_a_tool_follows_the_described_sequence(
    option: str, by: Any, status: str, ending: str
) -> None:
    log = Log().started().prompted()
    log.update("tool_call", toolCallId="t", title="Edit", kind="edit", status="pending")
    growing = [{"type": "content", "content": {"type": "text", "text": '{"path": "/p'}}]
    log.update("tool_call_update", toolCallId="t", content=growing)
    log.ask({"toolCallId": "t", "content": [edit_diff()]}).answer(option, _meta=resolution_meta(by))
    emitted = log.update("tool_call_update", toolCallId="t", status=status).emitted()
    steps = [event for event in emitted if event.type.startswith(("tool:", "approval:"))]
    assert [event.type for event in steps] == [*APPROVAL_FLOW, ending]
    executing: Any = steps[2]
    resolved: Any = steps[4]
    assert executing.requires_approval is True
    assert (resolved.approved, resolved.resolved_by) == (option == "yes", by)


LIFE = [
    "session:started",
    "session:status_changed",
    "message:start",
    "message:delta",
    "message:complete",
    "tool:start",
    "tool:executing",
    "approval:requested",
    "approval:resolved",
    "tool:result",
    "resource:token_usage",
    "session:completed",
]


@pytest.mark.anyio
async def test_a_session_lives_the_described_life(tmp_path: Path) -> None:
    ask = {"ask": "t1", "title": "bash", "kind": "execute", "input": {"command": "npm test"}}
    end = {"stop": "end_turn", "usage": {"inputTokens": 5, "outputTokens": 7, "totalTokens": 12}}
    agent = definition({"say": "I test."}, {**ask, "allowed": [{"finish": "t1"}]}, end)
    with anyio.fail_after(60):
        async with Host() as host, AcpAdapter(host, agent) as adapter:
            assert await adapter.is_installed()
            assert adapter.get_capabilities().features.approval.tool_calls
            assert await adapter.discover_sessions() == []
            options = StartSessionOptions(project_path=str(tmp_path), prompt="")
            session = await adapter.start_session(options)
            assert [each.id for each in await adapter.discover_sessions()] == [session.session_id]
            seen = Seen()
            for event in await session.get_history():
                seen(event)
            session.on_event(seen)
            await session.execute(SendMessageCommand(message="Test it."))
            request = await seen.type("approval:requested")
            ids = {"request_id": request.request_id, "tool_call_id": request.tool_call_id}
            await session.execute(ApproveToolCallCommand(**ids))
            await seen.type("resource:token_usage")
            await session.detach()
            (running,) = host.get_agents()
            assert running.status == "ready"
            again = await adapter.attach_to_session(session.session_id)
            again.on_event(seen)
            await again.execute(TerminateCommand())
    assert _in_order(LIFE, seen.events)


def _in_order(types: list[str], events: list[ContextEvent]) -> bool:
    """Say whether these types come one after the other, with others in between."""
    emitted = iter(event.type for event in events)
    return all(any(each == wanted for each in emitted) for wanted in types)
