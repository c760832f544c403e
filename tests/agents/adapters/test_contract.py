"""Every adapter for a foreign program reads its sessions as the contract says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from quarterdeck.agents.adapters.claude import ClaudeAdapter
from quarterdeck.agents.adapters.codex import CodexAdapter
from quarterdeck.agents.adapters.installed import installed_adapters
from quarterdeck.agents.adapters.opencode import OpenCodeAdapter
from quarterdeck.agents.adapters.watching import watch
from quarterdeck.errors import AcpError
from quarterdeck.testing.foreign import (
    ClaudeProgram,
    CodexProgram,
    ForeignProgram,
    check_adapter,
)
from quarterdeck.testing.opencode_program import OpenCodeProgram
from quarterdeck.views.context import (
    CancelCommand,
    ForeignAdapter,
    SessionDiscoveryEvent,
    StartSessionOptions,
)

Pair = tuple[ForeignAdapter, ForeignProgram]


def claude(folder: Path) -> Pair:
    return ClaudeAdapter({"CLAUDE_CONFIG_DIR": str(folder)}), ClaudeProgram(folder)


def codex(folder: Path) -> Pair:
    return CodexAdapter({"CODEX_HOME": str(folder)}), CodexProgram(folder)


def opencode(folder: Path) -> Pair:
    database = folder / "opencode" / "opencode.db"
    return OpenCodeAdapter({"XDG_DATA_HOME": str(folder)}), OpenCodeProgram(database)


PAIRS: dict[str, Callable[[Path], Pair]] = {
    "claude": claude,
    "codex": codex,
    "opencode": opencode,
}


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Pair:
    return PAIRS[request.param](tmp_path)


def test_the_contract(pair: Pair) -> None:
    check_adapter(*pair)


def test_all_adapters_are_found_by_their_entry_points(tmp_path: Path) -> None:
    assert set(installed_adapters({"HOME": str(tmp_path)})) == set(PAIRS)


@pytest.mark.anyio
async def test_a_session_is_attached_to_with_its_history(pair: Pair) -> None:
    adapter, program = pair
    program.prompt("hello")
    program.answer("good day")
    attached = await adapter.attach_to_session(program.session_id)
    seen: list[str] = []
    attached.on_event(lambda event: seen.append(type(event).__name__))
    history = await attached.get_history()
    assert [type(each).__name__ for each in history] == seen
    assert "MessageCompleteEvent" in seen
    assert await attached.get_history() == history
    with pytest.raises(AcpError):
        await attached.execute(CancelCommand())
    await attached.detach()


@pytest.mark.anyio
async def test_what_an_adapter_does_not_offer_is_refused(pair: Pair) -> None:
    adapter, _program = pair
    with pytest.raises(AcpError):
        await adapter.attach_to_session("unknown")
    with pytest.raises(AcpError):
        await adapter.start_session(StartSessionOptions(project_path="/", prompt="go"))
    assert await adapter.discover_sessions() == []
    assert await adapter.get_version() is None


def test_new_and_changed_sessions_are_reported_until_it_is_ended(pair: Pair) -> None:
    adapter, program = pair
    events: list[SessionDiscoveryEvent] = []
    reported = threading.Event()

    def report(event: SessionDiscoveryEvent) -> None:
        events.append(event)
        reported.set()

    end = watch(adapter, report, seconds=0.01)
    program.prompt("hello")
    assert reported.wait(5)
    reported.clear()
    program.answer("good day")
    assert reported.wait(5)
    end()
    assert events[0].type == "session_created"
    assert {each.type for each in events[1:]} == {"session_updated"}
