"""Answers to what an agent asks during `run`: by a key, by what was given, or by others."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from quarterdeck.cli.asking import KEYS, Question, details, question
from quarterdeck.cli.keyboard import read_key, single_keys
from quarterdeck.cli.live import Connection
from quarterdeck.cli.screen import Screen
from quarterdeck.cli.story import SessionView
from quarterdeck.cli.text import visible
from quarterdeck.errors import CommandFailed, HubDeclined
from quarterdeck.http.headers import path_segment
from quarterdeck.protocol import Event

How = Literal["ask", "allow", "reject", "wait"]
_ALLOWING: Final = ("y", "a")
_REJECTING: Final = ("n", "r")


class _Work(NamedTuple):
    """Something to be answered."""

    request_id: str
    do: Callable[[], Awaitable[None]]


class Desk:
    """Answers what the agent of one session asks, one thing after the other."""

    def __init__(self, connection: Connection, view: SessionView, how: How) -> None:
        self._connection = connection
        self._view = view
        self._how = how
        self._screen = Screen(sys.stderr)
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._answered: set[str] = set()
        self._forms: set[str] = set()
        self._asked, self._requests = anyio.create_memory_object_stream[_Work](1000)

    def on_event(self, event: Event) -> None:
        """Follow the session's stream."""
        request_id = str(event.payload.get("requestId"))
        if event.type == "permission-request-created":
            self._take(request_id, partial(self._answer, request_id))
        elif event.type == "permission-request-resolved":
            self._leave(request_id)

    def on_forms(self, pending: Mapping[str, Mapping[str, Any]]) -> None:
        """Take up the forms that wait, by their ids; those that do not any more are let go."""
        for request_id in self._forms - pending.keys():
            self._leave(request_id)
        for request_id in pending.keys() - self._forms:
            request = pending[request_id]
            self._take(request_id, partial(self._fill, request_id, request))
        self._forms = set(pending)

    def _take(self, request_id: str, work: Callable[[], Awaitable[None]]) -> None:
        self._scopes[request_id] = anyio.CancelScope()
        self._asked.send_nowait(_Work(request_id, work))

    def _leave(self, request_id: str) -> None:
        scope = self._scopes.pop(request_id, None)
        if scope is not None and request_id not in self._answered:
            scope.cancel()

    async def run(self) -> None:
        """Answer until cancelled."""
        requests: MemoryObjectReceiveStream[_Work] = self._requests
        async for work in requests:
            scope = self._scopes.get(work.request_id)
            if scope is not None:
                with scope:
                    await self._try(work)
                if scope.cancelled_caught:
                    self._view.note("that was answered elsewhere, or withdrawn")

    async def _try(self, work: _Work) -> None:
        try:
            await work.do()
        except CommandFailed as error:
            self._view.note(str(error))
        except OSError:  # the terminal is gone: others can still answer
            self._how = "wait"

    # ---- forms ---------------------------------------------------------------------------------

    async def _fill(self, request_id: str, request: Mapping[str, Any]) -> None:
        hub = self._connection.hub
        place = f"/api/elicitations/{path_segment(request_id)}/answer"
        words = question_words(request)
        url = None if hub.url is None else hub.url + place
        self._view.question({"requestId": request_id, "request": request, "answerUrl": url})
        if self._how == "ask":
            # The words of forms are a lot of code, and few agents ask for more than permission.
            from quarterdeck.cli.filling import fill  # noqa: PLC0415

            self._view.end()
            body = await fill(self._screen, request_id, request)
        elif self._how == "reject" or hub.is_embedded:
            self._view.note(
                f"the agent asks: {words}; nobody can be asked here, so it is declined;"
                " in a terminal, or with quarterdeck up running, it can be answered"
            )
            body = {"action": "decline"}
        else:
            self._view.note(f"the agent asks: {words}; answer it on another device")
            return
        self._answered.add(request_id)
        try:
            await hub.api.post(place, body)
        except HubDeclined as error:
            self._view.note(error.message)

    # ---- permission ----------------------------------------------------------------------------

    async def _answer(self, request_id: str) -> None:
        place = f"/api/permissions/{path_segment(request_id)}"
        try:
            request = await self._connection.hub.api.get(place)
        except HubDeclined:
            return  # decided already, by a rule or on another device
        asked = question(request["toolCall"], request["options"], self._screen.width)
        key = await self._choose(request, asked)
        if key is None:
            return
        body: dict[str, Any] = {"digest": request["digest"], "key": uuid.uuid4().hex}
        body |= {"optionId": asked.keys[key]} if key in asked.keys else {"cancelled": True}
        self._answered.add(request_id)
        try:
            await self._connection.hub.api.post(f"{place}/answer", body)
        except HubDeclined as error:
            self._view.note(error.message)

    async def _choose(self, request: Mapping[str, Any], asked: Question) -> str | None:
        """Return the key that was chosen, "" to cancel, None to leave it to others."""
        how = self._how
        if how == "ask":
            key = await self._ask_person(request, asked)
            if key is not None:
                return key
            how = "wait"
            self._how = how  # the terminal is gone
        self._show(asked)
        if how == "wait" and not self._connection.hub.is_embedded:
            self._view.note("waiting for an answer on another device; --no-wait would reject it")
            return None
        if how == "wait":
            self._view.note("nobody can be asked here, so it is rejected; --yes would allow it")
        keys = _ALLOWING if how == "allow" else _REJECTING
        chosen = next((key for key in keys if key in asked.keys), "")
        self._view.note(f"answered: {KEYS[chosen][1] if chosen else 'cancelled'}")
        return chosen

    async def _ask_person(self, request: Mapping[str, Any], asked: Question) -> str | None:
        has_seen_all = not asked.is_long
        self._show(asked)
        with single_keys():
            while True:
                self._screen.write(f"{asked.choices()} > ", "question")
                self._screen.flush()
                key = await read_key()
                if key is None:
                    return None
                key = key.lower()
                if key in asked.keys and (has_seen_all or key not in _ALLOWING):
                    self._screen.line(KEYS[key][1])
                    return key
                self._screen.line()
                if key == "d" or key in asked.keys:
                    self._show_all(request, asked)
                    has_seen_all = True

    def _show(self, asked: Question) -> None:
        self._view.end()
        for line in asked.opening():
            self._screen.line(line.text, line.style)
        if asked.unnamed:
            self._screen.line("  other choices can be made on another device", "dim")

    def _show_all(self, request: Mapping[str, Any], asked: Question) -> None:
        for line in asked.lines:
            self._screen.line(line.text, line.style)
        for line in details(request["toolCall"], request["options"], self._screen.width):
            self._screen.line(line.text, "dim")


def question_words(request: Mapping[str, Any]) -> str:
    """Say in a line what an agent wants to know."""
    message = visible(request.get("message", "")).replace("\n", " ")
    url = request.get("url")
    return f"{message} {visible(url)}" if isinstance(url, str) else message
