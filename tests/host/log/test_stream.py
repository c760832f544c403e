"""Subscribers that fail, and events that cannot be written: reported once, disturbing no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from quarterdeck.host import Host, HostOptions
from quarterdeck.machine.terminals import DefaultTerminalHandler
from quarterdeck.protocol import Event
from quarterdeck.storage import MemoryStorage, SqliteStorage
from tests.host.test_host import Seen, agent, running

pytestmark = pytest.mark.anyio


def fail(_event: Event) -> None:
    raise ValueError("no")


def errors(seen: Seen) -> list[Any]:
    return [e.payload["data"] for e in seen.events if e.payload.get("code") == "subscriber/error"]


async def test_a_subscriber_of_the_host_that_always_fails_is_reported_once_for_each_event() -> None:
    async with running() as host:
        host.subscribe(None, 0, fail)
        seen = Seen()
        host.subscribe(None, 0, seen)
        host.diagnose("info", "test/one", "one")
        host.diagnose("info", "test/two", "two")
        # Not for the diagnostics that report it: that would never end.
        assert [e.payload["code"] for e in seen.events] == [
            "test/one",
            "subscriber/error",
            "test/two",
            "subscriber/error",
        ]
        assert errors(seen) == [{"type": "diagnostic", "seq": 1}, {"type": "diagnostic", "seq": 3}]


async def test_failures_in_a_replay_are_replayed_to_who_failed_and_it_is_live_after_them() -> None:
    async with running() as host:
        host.diagnose("info", "test/one", "one")
        host.diagnose("info", "test/two", "two")
        seen = Seen()

        def see_and_fail(event: Event) -> None:
            seen(event)
            raise ValueError("no")

        host.subscribe(None, 0, see_and_fail)
        assert [e.seq for e in seen.events] == [1, 2, 3, 4]
        assert errors(seen) == [{"type": "diagnostic", "seq": 1}, {"type": "diagnostic", "seq": 2}]
        host.diagnose("info", "test/three", "three")
        assert [e.seq for e in seen.events] == [1, 2, 3, 4, 5, 6]


async def test_a_diagnostic_that_cannot_be_written_is_replaced_by_one_that_reports_it() -> None:
    async with running() as host:
        seen = Seen()
        host.subscribe(None, 0, seen)
        host.diagnose("info", "test/odd", "odd", data={"thing": object()})
        (event,) = seen.events
        assert event.payload["code"] == "event/unserializable"
        assert event.payload["data"] == {"type": "diagnostic"}
        assert "test/odd" in event.payload["message"]


class Terminal(DefaultTerminalHandler):
    """A terminal handler whose output the test writes."""

    emit: Callable[[str, dict[str, Any]], None]

    @override
    def send_output_to(self, emit: Callable[[str, dict[str, Any]], None]) -> None:
        self.emit = emit


async def test_an_event_that_cannot_be_written_is_rejected_reported_and_takes_no_number(
    tmp_path: Path,
) -> None:
    terminal = Terminal()
    async with running(terminal=terminal) as host:
        host_seen, seen = Seen(), Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent({"say": "hi"}))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        host.subscribe(session.session_id, 0, seen)
        terminal.emit(session.session_id, {"terminalId": "t", "delta": object()})
        await host.prompt(session.session_id, "x")
        assert "terminal-output" not in seen.types()
        assert [e.seq for e in seen.events] == list(range(1, len(seen.events) + 1))
        rejected = await host_seen.first("diagnostic", code="event/unserializable")
        assert rejected.payload["data"] == {"type": "terminal-output"}
        assert rejected.payload["sessionId"] == session.session_id


def test_options_cannot_be_changed() -> None:
    host = Host(HostOptions(restart_limit=7))
    with pytest.raises(AttributeError):
        host.options.restart_limit = 8  # type: ignore[misc]
    with pytest.raises(AttributeError):
        HostOptions().restart_limit = 8  # type: ignore[misc]


@pytest.mark.parametrize("kind", [MemoryStorage, SqliteStorage])
async def test_a_callback_that_meets_the_result_of_a_cancelled_future_is_isolated_like_any_other(
    kind: type[MemoryStorage] | type[SqliteStorage], tmp_path: Path
) -> None:
    log = MemoryStorage() if kind is MemoryStorage else SqliteStorage(tmp_path / "log.db")
    async with running(log) as host:

        def ask_too_late(_event: Event) -> None:
            raise anyio.get_cancelled_exc_class()

        seen = Seen()
        host.subscribe(None, 0, ask_too_late)
        host.subscribe(None, 0, seen)
        host.diagnose("info", "test/one", "one")
        while not errors(seen):
            await anyio.lowlevel.checkpoint()
        assert errors(seen) == [{"type": "diagnostic", "seq": 1}]
