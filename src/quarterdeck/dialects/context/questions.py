"""What agents ask people beside permission, as the host has written it into the log.

A question is told once; how it was resolved is told as a `custom` event, because this protocol has
none for that, and every view that shows the question has to take it away.
"""

from __future__ import annotations

from typing import Any

from quarterdeck.dialects.context.events import NotificationEvent, UserQuestionEvent
from quarterdeck.dialects.context.forms import PendingQuestion, questions_of
from quarterdeck.dialects.context.stage import Stage
from quarterdeck.dialects.context.tools import text_of

EVENT_NAME = "elicitation"


class Questions:
    """The questions that wait for an answer."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.waiting: dict[str, PendingQuestion] = {}

    @property
    def pending(self) -> tuple[PendingQuestion, ...]:
        return tuple(self.waiting.values())

    def update(self, payload: dict[str, Any]) -> str:
        """Follow where a question stands; return that in words."""
        request_id, status = str(payload.get("requestId")), payload.get("status")
        given = payload.get("request")
        request = given if isinstance(given, dict) else {}
        if payload.get("completed") is True:
            self._completed(request)
        if status == "pending" and request_id not in self.waiting:
            self._ask(request_id, request)
            return "the agent asks a question"
        if status != "pending" and self.waiting.pop(request_id, None) is not None:
            facts = {"requestId": request_id, "status": status, "action": payload.get("action")}
            known = {key: value for key, value in facts.items() if isinstance(value, str)}
            self._stage.custom(EVENT_NAME, known)
        return "the question was answered" if status == "answered" else "the question was withdrawn"

    def _ask(self, request_id: str, request: dict[str, Any]) -> None:
        questions = questions_of(request_id, request)
        self.waiting[request_id] = PendingQuestion(request_id, questions)
        url = text_of(request, ("url",)) if request.get("mode") == "url" else None
        if url is not None:
            self._notify("info", "The agent sends you to a page", request, url)
        elif len(questions) > 1:
            data = {"requestId": request_id, "status": "pending", "request": request}
            self._stage.custom(EVENT_NAME, data)
        for question in questions:
            self._stage.emit(
                UserQuestionEvent,
                question_id=question.id,
                question=question.text,
                options=question.options,
                default_value=question.default,
            )

    def _completed(self, request: dict[str, Any]) -> None:
        self._notify("success", "Done on the page", request, None)

    def _notify(self, level: str, title: str, request: dict[str, Any], url: str | None) -> None:
        message = text_of(request, ("message",)) or ""
        self._stage.emit(
            NotificationEvent, level=level, title=title, message=message, action_url=url
        )

    def end_all(self, reason: str) -> None:
        """Take back what nobody can answer any more."""
        for request_id in self.waiting:
            facts = {"requestId": request_id, "status": "superseded", "reason": reason}
            self._stage.custom(EVENT_NAME, facts)
        self.waiting.clear()
