"""What an agent asks, put before an editor: the first answer counts, wherever it comes from.

A question is asked of every editor that follows its session, and waits in the hub's inbox at the
same time. When somebody else has answered, the editor is told by `$/cancel_request` to put it away;
an answer that it had on its way is not heard.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import anyio

from quarterdeck.bridge.editor import Editor
from quarterdeck.errors import AcpError, ConnectionFailed, RequestRejected, RpcError
from quarterdeck.jsontext import decode_json

PERMISSION: Final = "session/request_permission"
QUESTION: Final = "elicitation/create"

Shown = Callable[[dict[str, Any]], dict[str, Any]]


class Asking:
    """The questions of one session that one editor has before it."""

    def __init__(
        self, editor: Editor, session_id: str, shown: Shown, *, is_its_turn: Callable[[], bool]
    ) -> None:
        """`shown` makes of a tool call what the editor can show.

        `is_its_turn` tells whether the turn that runs is of a prompt of this editor.
        """
        self._editor = editor
        self._is_its_turn = is_its_turn
        self._shown = shown
        self._session_id = session_id
        self._asked: dict[str, anyio.CancelScope] = {}

    def ask_pending(self) -> None:
        """Ask what waits already."""
        for permission in self._editor.hub.host.pending_permissions():
            if permission.in_session.id == self._session_id:
                self.on_permission(permission.id)
        for question in self._editor.hub.host.pending_elicitations():
            if question.session_id == self._session_id:
                self.on_question(question.request_id)

    def leave(self) -> None:
        for scope in self._asked.values():
            scope.cancel()

    def on_permission(self, request_id: str) -> None:
        """Show a permission request that is pending; withdraw it when it is resolved."""
        permission = self._editor.hub.host.pending_permission(request_id)
        if permission is None:
            self._withdraw(request_id)
        elif self._may_ask(request_id):
            params = {
                "sessionId": self._session_id,
                "toolCall": self._shown(dict(permission.tool_call or {})),
                "options": permission.snapshot().options,
            }
            self._ask(request_id, partial(self._permission, request_id, params))

    def on_question(self, request_id: str) -> None:
        """Show an elicitation that is pending; withdraw it when it is resolved."""
        question = self._editor.hub.host.get_elicitation(request_id)
        if question is None or question.status != "pending":
            self._withdraw(request_id)
        elif self._may_ask(request_id) and self._can_show(question.request):
            self._ask(request_id, partial(self._question, request_id, question.request))

    def _may_ask(self, request_id: str) -> bool:
        return request_id not in self._asked and self._editor.device.may("approve")

    def _can_show(self, request: Any) -> bool:
        facts = self._editor.facts
        mode = request.get("mode")
        return facts.can_elicit if mode == "form" else mode == "url" and facts.can_elicit_by_url

    def _ask(self, request_id: str, ask: Any) -> None:
        scope = self._asked[request_id] = anyio.CancelScope()

        async def asking() -> None:
            try:
                with scope:
                    await ask()
            finally:
                self._asked.pop(request_id, None)

        self._editor.start_soon("asking an editor", asking)

    def _withdraw(self, request_id: str) -> None:
        scope = self._asked.get(request_id)
        if scope is not None:
            scope.cancel()

    async def _permission(self, request_id: str, params: dict[str, Any]) -> None:
        approvals = self._editor.hub.approvals
        shown = approvals.get(request_id)
        answer = await self._call(PERMISSION, params)
        outcome = answer.get("outcome") if isinstance(answer, dict) else None
        if not isinstance(outcome, dict):
            return  # no answer, so it still waits, here and elsewhere
        chosen = outcome.get("optionId") if outcome.get("outcome") == "selected" else None
        if chosen is None and not (outcome.get("outcome") == "cancelled" and self._is_its_turn()):
            return  # who cancels a prompt that waits says this of everything, and means only that
        by = approvals.decider(self._editor.as_device)
        digest = None if shown is None else shown.digest
        with anyio.CancelScope(shield=True):
            try:
                await approvals.answer(request_id, chosen, by=by, digest=digest)
            except RequestRejected:
                return  # somebody was faster, or there is no such option

    async def _question(self, request_id: str, request: Any) -> None:
        answer = await self._call(QUESTION, {**request, "sessionId": self._session_id})
        if not isinstance(answer, dict):
            return
        approvals = self._editor.hub.approvals
        by = approvals.decider(self._editor.as_device)
        with anyio.CancelScope(shield=True):
            try:
                await approvals.answer_question(request_id, answer, by=by)
            except (RequestRejected, AcpError):
                return  # somebody was faster, or that is no answer

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        """Return the answer; None if the editor has none, as one that is about to go."""
        try:
            return await self._editor.connection.call(method, params, read=decode_json)
        except (RpcError, ConnectionFailed):
            return None
