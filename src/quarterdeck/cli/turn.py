"""One turn of an agent, from the prompt to its end, through a hub.

The prompt goes through the hub's queue under a key of ours, so it is run once, also if a connection
breaks. What came of it is the queue's word; what is shown on the way is the session's log.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from quarterdeck.cli.answering import Desk, How
from quarterdeck.cli.arguments import DONE, FAILED, INTERRUPTED
from quarterdeck.cli.hub_link import HubLink, Place, open_hub
from quarterdeck.cli.hub_sessions import find_session, path_of
from quarterdeck.cli.live import Connection
from quarterdeck.cli.story import SessionView, WatchedView
from quarterdeck.cli.text import one_line
from quarterdeck.client import Client
from quarterdeck.errors import CommandFailed, HubDeclined
from quarterdeck.http.client import HubApi
from quarterdeck.protocol import Event, initial_state, reduce
from quarterdeck.wire import background_tasks

REFUSED, LIMITED = 3, 4

_STATUSES: Final = {
    "end_turn": DONE,
    "refusal": REFUSED,
    "max_tokens": LIMITED,
    "max_turn_requests": LIMITED,
    "cancelled": INTERRUPTED,
}
_RESULT: Final = ("sessionId", "state", "stopReason", "error", "key", "seq")
_ENDED: Final = ("done", "failed", "cancelled", "interrupted")
_SOON_SECONDS, _LOOK_SECONDS = 0.02, 2.0  # between looks at a prompt of which no event tells
_REST_SECONDS: Final = 3.0  # for the last events to arrive


@dataclass(frozen=True, kw_only=True)
class Errand:
    """What `run` was asked to do."""

    agent: str | None
    command: tuple[str, ...]
    session: str | None
    prompt: str
    cwd: str
    mode: str | None
    how: How
    is_json: bool


async def run_errand(place: Place, errand: Errand, view: SessionView) -> int:
    """Do it and return the exit status; a hub of our own is gone when this returns."""
    ending = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*ending) as signals:
        async with open_hub(place) as hub, background_tasks() as tasks:
            turn = Turn(place, hub, errand, view)
            tasks.start_soon(turn.heed, signals)
            return await turn.run(tasks)


_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Turn:
    """A prompt, run and shown."""

    def __init__(self, place: Place, hub: HubLink, errand: Errand, view: SessionView) -> None:
        self._scope = anyio.CancelScope()
        self._errand = errand
        self._view = WatchedView(view, on_failure=self._scope.cancel)
        self._connection = Connection(place, hub, self._view.note)
        self._desk = Desk(self._connection, self._view, errand.how)
        self._session_id = ""
        self._key = uuid.uuid4().hex
        self._state = initial_state("")
        self._news = anyio.Event()
        self._last_end = 0  # the number of the last event that ended a turn
        self._is_retelling = False
        self._is_leaving = False
        self._is_interrupted = False
        self._tasks: TaskGroup | None = None

    @property
    def was_interrupted(self) -> bool:
        return self._is_interrupted or self._is_leaving

    async def run(self, tasks: TaskGroup) -> int:
        """Run it in `tasks`, which end with it, and return the exit status."""
        self._tasks = tasks
        entry: Mapping[str, Any] | None = None
        with self._scope:
            await self._begin()
            tasks.start_soon(self._connection.watch, self._prepare)
            tasks.start_soon(self._desk.run)
            entry = await self._prompt()
            await self._rest(entry)
        self._view.end()
        status = self._left() if entry is None else self._ended(entry)
        if self._view.failure is not None:
            raise self._view.failure  # `command` knows what becomes of it
        return status

    # ---- the session ---------------------------------------------------------------------------

    async def _begin(self) -> None:
        api = self._connection.hub.api
        session = await self._session(api)
        self._session_id = session["sessionId"]
        self._state = initial_state(self._session_id)
        if self._errand.session is not None:
            self._connection.begin_after(self._session_id, session["lastSeq"])
        if self._errand.mode is not None:
            await api.call("PUT", f"{self._place}/mode", {"modeId": self._errand.mode})

    async def _session(self, api: HubApi) -> dict[str, Any]:
        errand = self._errand
        if errand.session is not None:
            return await find_session(api, errand.session)
        body: dict[str, Any] = {"cwd": errand.cwd}
        if errand.command:
            program, *rest = errand.command
            definition = {"id": f"run-{uuid.uuid4().hex[:8]}", "command": program, "args": rest}
            agent = await api.post("/api/agents", {"definition": definition})
            body["agentId"] = agent["agentId"]
        else:
            body["agent"] = errand.agent
        try:
            session: dict[str, Any] = await api.post("/api/sessions", body)
        except HubDeclined as error:
            if error.status == 404:
                raise _no_agent(str(errand.agent)) from error
            raise
        return session

    @property
    def _place(self) -> str:
        return path_of(self._session_id)

    # ---- the prompt ----------------------------------------------------------------------------

    async def _prompt(self) -> Mapping[str, Any]:
        body = {"key": self._key, "prompt": self._errand.prompt}
        entry: Mapping[str, Any] = await self._ask("POST", f"{self._place}/prompts", body)
        delay = _SOON_SECONDS
        while entry["state"] not in _ENDED:
            with anyio.move_on_after(delay):
                await self._news.wait()
            # An event may be ahead of the queue's own word: soon after one, look often.
            delay = _SOON_SECONDS if self._news.is_set() else min(delay * 2, _LOOK_SECONDS)
            self._news = anyio.Event()
            entry = await self._ask("GET", f"{self._place}/prompts/{self._key}")
        return entry

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        async def ask(hub: HubLink) -> Any:
            return await hub.api.call(method, path, body)

        return await self._connection.patiently(ask)

    async def _rest(self, entry: Mapping[str, Any]) -> None:
        """Wait until the end of the turn was shown: it may be on its way still."""
        began = entry.get("seq")
        with anyio.move_on_after(_REST_SECONDS):
            while began is not None and self._last_end < began:
                await self._news.wait()
                self._news = anyio.Event()

    # ---- what is told --------------------------------------------------------------------------

    def _prepare(self, client: Client) -> None:
        self._connection.follow(client, self._session_id, self._take)
        client.elicitations.subscribe(lambda: self._look_at_forms(client))
        self._look_at_forms(client)

    def _take(self, event: Event) -> None:
        self._state = reduce(self._state, event)
        if self._errand.is_json or not self._is_retold(event):
            self._view.event(event, self._state)
        self._desk.on_event(event)
        if event.type in ("prompt-finished", "session-status-change"):
            if event.type == "prompt-finished":
                self._last_end = event.seq
            self._news.set()

    def _is_retold(self, event: Event) -> bool:
        """Whether it is old: an agent that loads a session tells all of it, up to its status."""
        if event.type == "session-reset":
            self._is_retelling = True
        elif event.type == "session-status-change":
            self._is_retelling = False
        return self._is_retelling

    def _look_at_forms(self, client: Client) -> None:
        if client.connection.status == "closed":
            return  # what waits is not known until the next connection
        forms = client.elicitations.pending
        mine = [each for each in forms if each.session_id == self._session_id]
        self._desk.on_forms({each.request_id: dict(each.request) for each in mine})

    # ---- the end -------------------------------------------------------------------------------

    async def heed(self, signals: AsyncIterator[signal.Signals]) -> None:
        """Cancel the turn at the first Ctrl-C; leave at the second, and at any other signal."""
        async for number in signals:
            if self._is_interrupted or number != signal.SIGINT or not self._session_id:
                self._is_leaving = True
                self._scope.cancel()
                return
            self._is_interrupted = True
            self._view.note("cancelling the turn; Ctrl-C again leaves at once")
            assert self._tasks is not None
            self._tasks.start_soon(self._cancel)

    async def _cancel(self) -> None:
        api = self._connection.hub.api
        try:
            entry = await api.get(f"{self._place}/prompts/{self._key}")
            if entry["state"] == "queued":
                await api.call("DELETE", f"{self._place}/prompts/{self._key}")
            else:
                await api.post(f"{self._place}/cancel")
        except (HubDeclined, CommandFailed) as error:
            self._view.note(f"it could not be cancelled: {error}")

    def _left(self) -> int:
        if self._session_id and not self._connection.hub.is_embedded:
            self._view.note(
                f"left; the session goes on: quarterdeck tail {one_line(self._session_id)}"
            )
        else:
            self._view.note("interrupted")
        return INTERRUPTED

    def _ended(self, entry: Mapping[str, Any]) -> int:
        status = _STATUSES.get(entry.get("stopReason", ""), FAILED)
        if entry["state"] == "cancelled":
            status = INTERRUPTED
        elif entry["state"] != "done":
            status = FAILED
        facts = {name: entry[name] for name in _RESULT if name in entry}
        self._view.result({"type": "result", **facts, "exitStatus": status})
        return status


def _no_agent(name: str) -> CommandFailed:
    return CommandFailed(
        f"there is no agent {one_line(name)!r}; quarterdeck agents lists those there are,"
        " and any other command is given behind --"
    )
