"""Questions of agents that wait for a person: each is answered or superseded, exactly once (INV-9).

A question is pending until `take` or `withdraw` takes it out of the table; both are plain functions
on the event loop's thread, so there is no moment in which two answers find it there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Literal, TypeVar

import anyio

from quarterdeck.errors import AcpError
from quarterdeck.host.sessions import Session
from quarterdeck.protocol import ERROR_CODES

RESOLVED = 100  # resolved questions of each kind that a late comer is still told of

Resolution = Literal["answered", "superseded"]


class Question:
    """One question; without a session it is about the agent as a whole."""

    superseded_answer: ClassVar[dict[str, Any]]
    """What the agent gets if nobody answers."""

    def __init__(self, question_id: str, agent_id: str | None, session: Session | None) -> None:
        self.id = question_id
        self.agent_id = agent_id
        self.session = session
        self.status: Literal["pending", "answered", "superseded"] = "pending"
        self.is_of_turn = session is not None and session.status == "prompting"
        """Whether it was asked in a turn, not between two."""
        self._settled = anyio.Event()
        self._answer: Any = None

    def settle(self, answer: Any) -> None:
        self._answer = answer
        self._settled.set()

    def refuse(self) -> None:
        """Let the agent know that nobody will answer."""
        self.settle(self.superseded_answer)

    async def answer(self) -> Any:
        """Wait for what goes to the agent."""
        await self._settled.wait()
        return self._answer


Concerns = Callable[[Question], bool]
Q = TypeVar("Q", bound=Question)


class Table(Generic[Q]):
    """The questions of one kind: those that wait, and the last of those that did."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._pending: dict[str, Q] = {}
        self._resolved: deque[Q] = deque(maxlen=RESOLVED)
        self._last = 0

    def number_after(self, number: int) -> None:
        """Give no number up to this one: an earlier host may have."""
        self._last = max(self._last, number)

    def next_number(self) -> int:
        self._last += 1
        return self._last

    def add(self, question: Q) -> None:
        self._pending[question.id] = question

    def take(self, question_id: str) -> Q:
        """Take a question out to answer it.

        Raises:
            AcpError: `acpjs/already-answered` if it is not pending (any more).
        """
        question = self._pending.pop(question_id, None)
        if question is None:
            message = f"{self._what} {question_id} already answered"
            raise AcpError(ERROR_CODES["already_answered"], message)
        return self._resolve(question, "answered")

    def withdraw(self, concerns: Concerns) -> list[Q]:
        """Take out the questions that nobody needs to answer any more."""
        withdrawn = [each for each in self._pending.values() if concerns(each)]
        for question in withdrawn:
            del self._pending[question.id]
            self._resolve(question, "superseded")
        return withdrawn

    def get(self, question_id: str) -> Q | None:
        """Return a question that is pending."""
        return self._pending.get(question_id)

    def all(self) -> list[Q]:
        """Return those that were resolved lately, then those that wait; each the oldest first."""
        return [*self._resolved, *self._pending.values()]

    def _resolve(self, question: Q, status: Resolution) -> Q:
        question.status = status
        self._resolved.append(question)
        return question
