"""Follow one session, or all that are open, until Ctrl-C."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Final

import anyio

from quarterdeck.cli.arguments import DONE
from quarterdeck.cli.hub_access import HubAddress, HubHandle, require_hub
from quarterdeck.cli.sessions import SessionFollower, find_session
from quarterdeck.cli.terminal.screen import Screen
from quarterdeck.cli.terminal.session_printer import (
    GuardedPrinter,
    JsonPrinter,
    SessionPrinter,
    TextPrinter,
)
from quarterdeck.client import Client
from quarterdeck.protocol import Event, SessionState, initial_state
from quarterdeck.protocol.shown_events import reduce_shown
from quarterdeck.views.text import one_line
from quarterdeck.wire import background_tasks

_RUNNING: Final = ("creating", "prompting", "resuming")
_OPEN: Final = (*_RUNNING, "active")
_POLL_SECONDS: Final = 0.2  # between checks whether all turns are over


def tail_sessions(chosen: Namespace) -> int:
    """Run the command."""
    return anyio.run(_tail, chosen)


async def _tail(chosen: Namespace) -> int:
    address = HubAddress.of(chosen)
    hub = await require_hub(address)
    printer = JsonPrinter(sys.stdout) if chosen.json else TextPrinter(Screen(sys.stdout))
    one = None if chosen.session is None else await find_session(hub.api, chosen.session)
    sessions = [one] if one is not None else await _list_sessions(hub)
    tail = _Tail(address, hub, printer, one)
    for session in sessions:
        start = session["lastSeq"] if chosen.from_seq is None else chosen.from_seq
        tail.begin_after(session["sessionId"], start)
    async with background_tasks() as tasks:
        tasks.start_soon(tail.follow)
        if chosen.exit:
            tasks.start_soon(tail.end_with_last_turn)
        await tail.over.wait()
    tail.printer.end()
    if tail.printer.failure is not None:
        raise tail.printer.failure
    return DONE


async def _list_sessions(hub: HubHandle) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await hub.api.get("/api/sessions"))["sessions"]
    return listed


class _Tail:
    """Prints the events of one session, or of all that are open."""

    def __init__(
        self,
        address: HubAddress,
        hub: HubHandle,
        printer: SessionPrinter,
        one: Mapping[str, Any] | None,
    ) -> None:
        self.over = anyio.Event()
        self.printer = GuardedPrinter(printer, on_failure=self.over.set)
        self._follower = SessionFollower(address, hub, self.printer.note)
        self._one = None if one is None else str(one["sessionId"])
        self._states: dict[str, SessionState] = {}
        self._followed: set[str] = set()
        self._last_printed = self._one or ""

    def begin_after(self, session_id: str, seq: int) -> None:
        self._follower.begin_after(session_id, seq)

    async def follow(self) -> None:
        await self._follower.keep_connected(self._on_connected)

    async def end_with_last_turn(self) -> None:
        """End when no session is running any more and all of its events were printed."""
        while True:
            listed = await self._follower.retry(_list_sessions)
            wanted = [each for each in listed if self._one in (None, each["sessionId"])]
            if all(self._is_over(session) for session in wanted):
                self.over.set()
                return
            await anyio.sleep(_POLL_SECONDS)

    def _is_over(self, session: Mapping[str, Any]) -> bool:
        is_printed = self._follower.last_seq(session["sessionId"]) >= session["lastSeq"]
        return session["status"] not in _RUNNING and is_printed

    def _on_connected(self, client: Client) -> None:
        self._followed = set()
        client.sessions.subscribe(lambda: self._on_sessions(client))
        self._on_sessions(client)

    def _on_sessions(self, client: Client) -> None:
        """Follow the wanted session, or each one that is open."""
        statuses = {each.id: each.snapshot.status for each in client.sessions.all()}
        wanted = [self._one] if self._one else [key for key in statuses if statuses[key] in _OPEN]
        for session_id in wanted:
            if session_id not in self._followed and session_id in statuses:
                self._followed.add(session_id)
                self._follower.follow(client, session_id, self._on_event)
        if self._one is not None and self._one not in statuses:
            self.printer.note("the session is closed; quarterdeck show prints its log")
            self.over.set()

    def _on_event(self, event: Event) -> None:
        session_id = str(event.session_id)
        state = reduce_shown(self._states.get(session_id) or initial_state(session_id), event)
        self._states[session_id] = state
        if session_id != self._last_printed:
            self._last_printed = session_id
            self.printer.heading(f"session {one_line(session_id)}")
        self.printer.event(event, state)
