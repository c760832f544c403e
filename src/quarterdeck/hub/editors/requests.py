"""The pending requests of a session, as one editor shows them.

A request is sent to every editor that follows its session, and is in the inbox at the same time:
the first answer counts. When another client has answered, the editor gets `$/cancel_request`; an
answer that it had on its way is ignored.

Requests of sub-agents bear the id of the child. An editor that knows of no children gets them under
the id of the session that it follows, with the title of the child in front.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import anyio
from msgspec import UNSET

from quarterdeck.errors import AcpError, ConnectionFailed, RequestRejected, RpcError
from quarterdeck.hub.editors.editor import Editor
from quarterdeck.jsontext import decode_json
from quarterdeck.protocol import HostPermissionSnapshot
from quarterdeck.runner import PermissionView, RunnerApi

PERMISSION: Final = "session/request_permission"
ELICITATION: Final = "elicitation/create"
ELICITATION_COMPLETE: Final = "elicitation/complete"

Words: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns what a request to an editor says of a tool call, in the version that it speaks."""


class EditorRequests:
    """The pending requests of one session that one editor shows."""

    def __init__(
        self, editor: Editor, session_id: str, words: Words, *, is_its_turn: Callable[[], bool]
    ) -> None:
        """`is_its_turn` returns whether the turn that runs is of a prompt of this editor."""
        self._editor = editor
        self._runner: RunnerApi = editor.hub.runner
        self._is_its_turn = is_its_turn
        self._words = words
        self._session_id = session_id
        self._sent: dict[str, anyio.CancelScope] = {}
        self._links: set[str] = set()
        """Elicitations with a link that this editor was sent."""

    def send_pending(self) -> None:
        """Send the requests that are pending already."""
        for pending in self._runner.pending_permissions():
            if self._concerns(pending.request.session_id):
                self.on_permission(pending.request.request_id)
        for elicitation in self._runner.pending_elicitations():
            if self._concerns(elicitation.session_id):
                self.on_elicitation(elicitation.request_id)

    def _concerns(self, session_id: Any) -> bool:
        """Return whether a request is of this session, or of a child that the editor cannot see."""
        if session_id == self._session_id:
            return True
        return not self._editor.sees_children and self._session_id in self._editor.above(session_id)

    def on_child_request(self, kind: str, request_id: str, child_id: str) -> None:
        """Show or withdraw a request of a sub-agent, if the editor cannot see sub-agents."""
        if self._concerns(child_id):
            handle = self.on_elicitation if kind == "elicitation" else self.on_permission
            handle(request_id)

    def leave(self) -> None:
        for scope in self._sent.values():
            scope.cancel()

    def on_permission(self, request_id: str) -> None:
        """Show a permission request that is pending; withdraw it when it is resolved."""
        pending = self._runner.pending_permission(request_id)
        if pending is None:
            self._withdraw(request_id)
        elif self._may_send(request_id):
            call = _tool_call(pending.request)
            child_id = pending.request.session_id
            if child_id != self._session_id:
                call["title"] = f"{self._child_title(child_id)}: {call.get('title') or 'request'}"
            params = {
                "sessionId": self._session_id,
                **self._words(call),
                "options": pending.request.options,
            }
            self._send(request_id, partial(self._permission, pending, params))

    def on_elicitation(self, request_id: str) -> None:
        """Show an elicitation that is pending; withdraw it when it is resolved."""
        elicitation = self._runner.elicitation(request_id)
        if elicitation is not None and elicitation.completed is True:
            self._complete(request_id, elicitation.request)
        if elicitation is None or elicitation.status != "pending":
            self._withdraw(request_id)
        elif self._may_send(request_id) and self._can_show(elicitation.request):
            request = dict(elicitation.request)
            child_id = elicitation.session_id
            if child_id is not UNSET and child_id != self._session_id:
                request["message"] = f"{self._child_title(child_id)}: {request.get('message', '')}"
            if request.get("mode") == "url":
                self._links.add(request_id)
            self._send(request_id, partial(self._elicitation, request_id, request))

    def _complete(self, request_id: str, request: Any) -> None:
        """Report once that the person has finished on the linked page."""
        link_id = request.get("elicitationId")
        if request_id in self._links and isinstance(link_id, str):
            self._links.discard(request_id)
            self._editor.connection.post(ELICITATION_COMPLETE, {"elicitationId": link_id})

    def _child_title(self, child_id: str) -> str:
        child = self._runner.session_snapshot(child_id)
        title = None if child is None or child.title is UNSET else child.title
        return title or "sub-agent"

    def _may_send(self, request_id: str) -> bool:
        return request_id not in self._sent and self._editor.device.may("approve")

    def _can_show(self, request: Any) -> bool:
        facts = self._editor.facts
        mode = request.get("mode")
        return facts.can_elicit if mode == "form" else mode == "url" and facts.can_elicit_by_url

    def _send(self, request_id: str, call: Any) -> None:
        scope = self._sent[request_id] = anyio.CancelScope()

        async def send() -> None:
            try:
                with scope:
                    await call()
            finally:
                self._sent.pop(request_id, None)

        self._editor.start_soon("sending a request to an editor", send)

    def _withdraw(self, request_id: str) -> None:
        scope = self._sent.get(request_id)
        if scope is not None:
            scope.cancel()

    async def _permission(self, pending: PermissionView, params: dict[str, Any]) -> None:
        answer = await self._call(PERMISSION, params)
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        if not isinstance(outcome, dict):
            return  # no answer, so it still waits, here and elsewhere
        chosen = outcome.get("optionId") if outcome.get("outcome") == "selected" else None
        if chosen is None and not (outcome.get("outcome") == "cancelled" and self._is_its_turn()):
            return  # an editor that cancels a queued prompt answers this to all requests
        with anyio.CancelScope(shield=True):
            try:
                await self._runner.answer_permission(
                    pending.request.request_id,
                    chosen,
                    digest=None if pending.card is None else pending.card.digest,
                    by=self._editor.as_device.actor,
                )
            except RequestRejected:
                return  # another client was faster, or there is no such option

    async def _elicitation(self, request_id: str, request: Any) -> None:
        answer = await self._call(ELICITATION, {**request, "sessionId": self._session_id})
        if not isinstance(answer, dict):
            return
        actor = self._editor.as_device.actor
        with anyio.CancelScope(shield=True):
            try:
                await self._runner.answer_elicitation(request_id, answer, by=actor)
            except (RequestRejected, AcpError):
                return  # another client was faster, or that is not a response

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        """Return the answer; None if the editor has none, as one that is about to go."""
        try:
            return await self._editor.connection.call(method, params, read=decode_json)
        except (RpcError, ConnectionFailed):
            return None


def _tool_call(request: HostPermissionSnapshot) -> dict[str, Any]:
    call: Any = request.tool_call  # verbatim of the agent
    return dict(call or {})
