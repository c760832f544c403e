"""`quarterdeck tail`: sessions as they go on, until Ctrl-C."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import anyio

from quarterdeck.cli.arguments import DONE, read
from quarterdeck.cli.hub_link import HubLink, Place, require_hub
from quarterdeck.cli.hub_sessions import find_session
from quarterdeck.cli.live import Connection
from quarterdeck.cli.parsers import tail_parser
from quarterdeck.cli.screen import Screen
from quarterdeck.cli.story import JsonView, SessionView, StoryView, WatchedView
from quarterdeck.cli.text import one_line
from quarterdeck.client import Client
from quarterdeck.protocol import Event, SessionState, initial_state, reduce
from quarterdeck.wire import background_tasks

_WORKING = ("creating", "prompting", "resuming")
_LIVING = (*_WORKING, "active")
_LOOK_SECONDS = 0.2  # between looks at whether the work is over


def run(arguments: list[str]) -> int:
    chosen = read(tail_parser(), arguments)
    if chosen is None:
        return DONE
    return anyio.run(_tail, chosen)


async def _tail(chosen: Namespace) -> int:
    place = Place.of(chosen)
    hub = await require_hub(place)
    view = JsonView(sys.stdout) if chosen.json else StoryView(Screen(sys.stdout))
    one = None if chosen.session is None else await find_session(hub.api, chosen.session)
    sessions = [one] if one is not None else (await hub.api.get("/api/sessions"))["sessions"]
    tail = _Tail(place, hub, view, one)
    for session in sessions:
        start = session["lastSeq"] if chosen.from_seq is None else chosen.from_seq
        tail.begin_after(session["sessionId"], start)
    async with background_tasks() as tasks:
        tasks.start_soon(tail.watch)
        if chosen.exit:
            tasks.start_soon(tail.end_with_the_work)
        await tail.over.wait()
    tail.view.end()
    if tail.view.failure is not None:
        raise tail.view.failure
    return DONE


async def _list_sessions(hub: HubLink) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await hub.api.get("/api/sessions"))["sessions"]
    return listed


class _Tail:
    """Shows one session, or all."""

    def __init__(
        self,
        place: Place,
        hub: HubLink,
        view: SessionView,
        one: Mapping[str, Any] | None,
    ) -> None:
        self.over = anyio.Event()
        self.view = WatchedView(view, on_failure=self.over.set)
        self._connection = Connection(place, hub, self.view.note)
        self._one = None if one is None else str(one["sessionId"])
        self._states: dict[str, SessionState] = {}
        self._followed: set[str] = set()
        self._shown = self._one or ""

    def begin_after(self, session_id: str, seq: int) -> None:
        self._connection.begin_after(session_id, seq)

    async def watch(self) -> None:
        await self._connection.watch(self._prepare)

    async def end_with_the_work(self) -> None:
        """End when nothing works any more and all of it was shown."""
        while True:
            listed = await self._connection.patiently(_list_sessions)
            wanted = [each for each in listed if self._one in (None, each["sessionId"])]
            if all(self._is_over(session) for session in wanted):
                self.over.set()
                return
            await anyio.sleep(_LOOK_SECONDS)

    def _is_over(self, session: Mapping[str, Any]) -> bool:
        is_shown = self._connection.last_seq(session["sessionId"]) >= session["lastSeq"]
        return session["status"] not in _WORKING and is_shown

    def _prepare(self, client: Client) -> None:
        self._followed = set()
        client.sessions.subscribe(lambda: self._look(client))
        self._look(client)

    def _look(self, client: Client) -> None:
        """Follow what is there: one session, or those that are alive."""
        statuses = {each.id: each.snapshot.status for each in client.sessions.all()}
        wanted = [self._one] if self._one else [key for key in statuses if statuses[key] in _LIVING]
        for session_id in wanted:
            if session_id not in self._followed and session_id in statuses:
                self._followed.add(session_id)
                self._connection.follow(client, session_id, self._take)
        if self._one is not None and self._one not in statuses:
            self.view.note("the session is closed; quarterdeck show tells what was in it")
            self.over.set()

    def _take(self, event: Event) -> None:
        session_id = str(event.session_id)
        state = reduce(self._states.get(session_id) or initial_state(session_id), event)
        self._states[session_id] = state
        if session_id != self._shown:
            self._shown = session_id
            self.view.heading(f"session {one_line(session_id)}")
        self.view.event(event, state)
