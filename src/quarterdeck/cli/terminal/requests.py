"""Answers to requests of an agent: by a key, by an option of the command, or on another device."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from quarterdeck.cli.sessions import SessionFollower
from quarterdeck.cli.terminal.keyboard import read_key, single_keys
from quarterdeck.cli.terminal.permission_prompt import (
    PermissionPrompt,
    details,
    permission_prompt,
)
from quarterdeck.cli.terminal.screen import Screen
from quarterdeck.cli.terminal.session_printer import SessionPrinter
from quarterdeck.errors import CommandFailed, HubDeclined
from quarterdeck.http.headers import path_segment
from quarterdeck.protocol import Event
from quarterdeck.views.text import one_line, visible

AnswerMode = Literal["ask", "allow", "reject", "wait"]
_ALLOWING: Final = ("y", "a")
_REJECTING: Final = ("n", "r")


class _PendingRequest(NamedTuple):
    request_id: str
    answer: Callable[[], Awaitable[None]]


class TerminalResponder:
    """Answers the requests of one session, one after the other.

    By its mode it asks the user, allows, rejects, or waits for another device.
    """

    def __init__(
        self, follower: SessionFollower, printer: SessionPrinter, mode: AnswerMode
    ) -> None:
        self._follower = follower
        self._printer = printer
        self._mode = mode
        self._screen = Screen(sys.stderr)
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._answered: set[str] = set()
        self._forms: set[str] = set()
        self._of_children: set[str] = set()
        self._incoming, self._requests = anyio.create_memory_object_stream[_PendingRequest](1000)

    def on_event(self, event: Event) -> None:
        """Take up permission requests of the session's stream, and drop resolved ones."""
        request_id = str(event.payload.get("requestId"))
        if event.type == "permission-request-created":
            self._add(request_id, partial(self._answer_permission, request_id))
        elif event.type == "permission-request-resolved":
            self._drop(request_id)

    def on_forms(self, pending: Mapping[str, Mapping[str, Any]]) -> None:
        """Take up the pending forms, by their ids, and drop those that are pending no more."""
        for request_id in self._forms - pending.keys():
            self._drop(request_id)
        for request_id in pending.keys() - self._forms:
            request = pending[request_id]
            self._add(request_id, partial(self._answer_form, request_id, request))
        self._forms = set(pending)

    def on_child_permissions(self, pending: Mapping[str, str]) -> None:
        """Take up the permission requests of sub-agents, each with the name of its session."""
        for request_id in self._of_children - pending.keys():
            self._drop(request_id)
        for request_id in pending.keys() - self._of_children:
            answer = partial(self._answer_permission, request_id, pending[request_id])
            self._add(request_id, answer)
        self._of_children = set(pending)

    def _add(self, request_id: str, answer: Callable[[], Awaitable[None]]) -> None:
        self._scopes[request_id] = anyio.CancelScope()
        self._incoming.send_nowait(_PendingRequest(request_id, answer))

    def _drop(self, request_id: str) -> None:
        scope = self._scopes.pop(request_id, None)
        if scope is not None and request_id not in self._answered:
            scope.cancel()

    async def run(self) -> None:
        """Answer requests until cancelled."""
        requests: MemoryObjectReceiveStream[_PendingRequest] = self._requests
        async for request in requests:
            scope = self._scopes.get(request.request_id)
            if scope is not None:
                with scope:
                    await self._try(request)
                if scope.cancelled_caught:
                    self._printer.note("answered on another device, or withdrawn")

    async def _try(self, request: _PendingRequest) -> None:
        try:
            await request.answer()
        except CommandFailed as error:
            self._printer.note(str(error))
        except OSError:  # the terminal is gone: other devices can still answer
            self._mode = "wait"

    # ---- forms ---------------------------------------------------------------------------------

    async def _answer_form(self, request_id: str, request: Mapping[str, Any]) -> None:
        hub = self._follower.hub
        path = f"/api/elicitations/{path_segment(request_id)}/answer"
        words = form_summary(request)
        url = None if hub.url is None else hub.url + path
        self._printer.form({"requestId": request_id, "request": request, "answerUrl": url})
        if self._mode == "ask":
            # Forms take a lot of code, and few agents use them.
            from quarterdeck.cli.terminal.forms import fill  # noqa: PLC0415

            self._printer.end()
            body = await fill(self._screen, request_id, request)
        elif self._mode == "reject" or hub.is_embedded:
            self._printer.note(
                f"declined a form of the agent: {words}; to answer forms, use a terminal or start"
                " quarterdeck up"
            )
            body = {"action": "decline"}
        else:
            self._printer.note(f"the agent asks: {words}; answer on another device")
            return
        self._answered.add(request_id)
        try:
            await hub.api.post(path, body)
        except HubDeclined as error:
            self._printer.note(error.message)

    # ---- permissions ---------------------------------------------------------------------------

    async def _answer_permission(self, request_id: str, child: str | None = None) -> None:
        path = f"/api/permissions/{path_segment(request_id)}"
        try:
            request = await self._follower.hub.api.get(path)
        except HubDeclined:
            return  # already decided, by a rule or on another device
        prompt = permission_prompt(
            request["toolCall"],
            request["options"],
            self._screen.width,
            because=request.get("askedBecause"),
            read=request.get("call"),
        )
        if child is not None:
            self._printer.note(f"request of sub-agent {one_line(child)}")
        key = await self._choose(request, prompt)
        if key is None:
            return
        body: dict[str, Any] = {"digest": request["digest"], "key": uuid.uuid4().hex}
        body |= {"optionId": prompt.keys[key]} if key in prompt.keys else {"cancelled": True}
        self._answered.add(request_id)
        try:
            await self._follower.hub.api.post(f"{path}/answer", body)
        except HubDeclined as error:
            self._printer.note(error.message)

    async def _choose(self, request: Mapping[str, Any], prompt: PermissionPrompt) -> str | None:
        """Return the chosen key, "" to cancel, None to wait for another device."""
        mode = self._mode
        if mode == "ask":
            key = await self._ask_person(request, prompt)
            if key is not None:
                return key
            mode = self._mode = "wait"  # the terminal is gone
        self._show(prompt)
        if mode == "wait" and not self._follower.hub.is_embedded:
            self._printer.note(
                "waiting for an answer from another device; --no-wait rejects instead"
            )
            return None
        if mode == "wait":
            self._printer.note(
                "rejected: no terminal and no other device to ask; --yes allows instead"
            )
        keys = _ALLOWING if mode == "allow" else _REJECTING
        chosen = next((key for key in keys if key in prompt.keys), "")
        self._printer.note(f"answered: {prompt.labels[chosen] if chosen else 'cancelled'}")
        return chosen

    async def _ask_person(self, request: Mapping[str, Any], prompt: PermissionPrompt) -> str | None:
        has_seen_all = not prompt.is_long
        self._show(prompt)
        with single_keys():
            while True:
                self._screen.write(f"{prompt.choices()} > ", "request")
                self._screen.flush()
                key = await read_key()
                if key is None:
                    return None
                key = key.lower()
                if key in prompt.labels and (has_seen_all or key not in prompt.allowing):
                    self._screen.line(prompt.labels[key])
                    return key
                self._screen.line()
                if key == "d" or key in prompt.labels:
                    self._show_all(request, prompt)
                    has_seen_all = True

    def _show(self, prompt: PermissionPrompt) -> None:
        self._printer.end()
        for line in prompt.opening():
            self._screen.line(line.text, line.style)
        if prompt.unnamed:
            self._screen.line("  more options on another device", "dim")

    def _show_all(self, request: Mapping[str, Any], prompt: PermissionPrompt) -> None:
        for line in prompt.lines:
            self._screen.line(line.text, line.style)
        for line in details(request["toolCall"], request["options"], self._screen.width):
            self._screen.line(line.text, "dim")


def form_summary(request: Mapping[str, Any]) -> str:
    """Return what a form asks for, in one line."""
    message = visible(request.get("message", "")).replace("\n", " ")
    url = request.get("url")
    return f"{message} {visible(url)}" if isinstance(url, str) else message
