"""The table of agents' requests to people: each is answered or superseded once (INV-9).

| status     | reached by                              | the agent gets                          |
| ---------- | --------------------------------------- | --------------------------------------- |
| pending    | `add`                                   | nothing yet                             |
| answered   | `claim`, or `add_answered` alone        | the answer                              |
| superseded | `withdraw`                              | `superseded_answer`                     |

    (new) ── add ──► pending ── claim ──────► answered
      │                 └────── withdraw ──► superseded
      └─ add_answered ──────────────────────► answered

Words: to *withdraw* a request is what the host does when its turn, session or agent ends or the
agent cancels it; `superseded` is the status that it then has, in the words of the seeds' events.
Who or what decided is `DecidedBy` (`runner/permissions/decision_index`).

There are no other transitions, and none leads back. A request is pending until `claim` or
`withdraw` removes it from the table. Both are plain functions on the event loop's thread, so two
answers can never claim the same request: the second raises `acpjs/already-answered`.

`claim` and `withdraw` decide; `AgentRequest.release` and `release_superseded` then let the handler
answer the agent, which waits for that. They are separate steps because the events of a decision are
queued between them, and because a session that is being closed answers its agent last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

import anyio

from quarterdeck.errors import AcpError
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.protocol import ERROR_CODES

RESOLVED: Final = 100  # resolved requests of each kind that stay in the table

RequestStatus = Literal["pending", "answered", "superseded"]


class AgentRequest:
    """One request; without a session it concerns the agent as a whole."""

    superseded_answer: ClassVar[dict[str, Any]]
    """What the agent gets if the request is withdrawn."""

    def __init__(self, request_id: str, agent_id: str | None, session: HostSession | None) -> None:
        self.id = request_id
        self.agent_id = agent_id
        self.session = session
        self.status: RequestStatus = "pending"
        self.is_of_turn = session is not None and session.status == "prompting"
        """Whether it was made during a turn, not between two."""
        self.needs_log = False
        """Whether the answer goes to the agent only after it is stored."""
        self._released = anyio.Event()
        self._answer: Any = None

    def release(self, answer: Any) -> None:
        """Release the handler that waits for the answer to the agent."""
        self._answer = answer
        self._released.set()

    def release_superseded(self) -> None:
        """Answer the agent after the request was withdrawn."""
        self.release(self.superseded_answer)

    async def answer(self) -> Any:
        """Wait for the answer to the agent."""
        await self._released.wait()
        return self._answer


Concerns = Callable[[AgentRequest], bool]
R = TypeVar("R", bound=AgentRequest)


class RequestTable(Generic[R]):
    """The requests of one kind: all that are pending, and the last ones that were resolved."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._pending: dict[str, R] = {}
        self._resolved: OrderedDict[str, R] = OrderedDict()
        self._last = 0

    def number_after(self, number: int) -> None:
        """Give no number up to this one: an earlier host may have used it."""
        self._last = max(self._last, number)

    def next_number(self) -> int:
        self._last += 1
        return self._last

    def add(self, request: R) -> None:
        self._pending[request.id] = request

    def add_answered(self, request: R) -> None:
        """Add a request that the hook has decided: it is never pending."""
        self._resolve(request, "answered")

    def claim(self, request_id: str) -> R:
        """Remove a pending request, in order to answer it.

        Raises:
            AcpError: `acpjs/already-answered` if it is not pending (any more).
        """
        request = self._pending.pop(request_id, None)
        if request is None:
            message = f"{self._what} {request_id} already answered"
            raise AcpError(ERROR_CODES["already_answered"], message)
        return self._resolve(request, "answered")

    def withdraw(self, concerns: Concerns) -> list[R]:
        """Remove the pending requests that need no answer any more."""
        withdrawn = [each for each in self._pending.values() if concerns(each)]
        for request in withdrawn:
            del self._pending[request.id]
            self._resolve(request, "superseded")
        return withdrawn

    def get(self, request_id: str) -> R | None:
        """Return a request that is pending."""
        return self._pending.get(request_id)

    def find(self, request_id: str) -> R | None:
        """Return a request that is pending, or was resolved recently."""
        return self._pending.get(request_id) or self._resolved.get(request_id)

    @property
    def pending(self) -> list[R]:
        """The requests that are pending, the oldest first."""
        return list(self._pending.values())

    def all(self) -> list[R]:
        """Return those that were resolved recently, then the pending ones; oldest first in each."""
        return [*self._resolved.values(), *self._pending.values()]

    def _resolve(self, request: R, status: Literal["answered", "superseded"]) -> R:
        request.status = status
        self._resolved[request.id] = request
        if len(self._resolved) > RESOLVED:
            self._resolved.popitem(last=False)
        return request
