"""Pending requests as objects that can be answered, for programs that embed a host.

    async for request in host.requests():
        if request.tool_call.get("kind") == "read":
            await request.allow()
        else:
            await request.reject("only reading is allowed")

An iteration yields what is pending when it begins, oldest first, then each request that becomes
pending, until the host is disposed. A request that is decided before the loop gets to it is left
out. Any number of iterations can run, and people can answer the same requests: the first answer
wins, and a later one raises `acpjs/already-answered` (INV-9).

A request is yielded after its event is stored, like everything else that leaves the host (INV-5).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast

from quarterdeck.host.checks import config_invalid
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.operations import Completion
from quarterdeck.host.requests.elicitations import Elicitation, ElicitationRequests
from quarterdeck.host.requests.permission_request import PermissionRequest
from quarterdeck.host.requests.permissions import PermissionRequests
from quarterdeck.host.requests.table import AgentRequest, RequestStatus
from quarterdeck.protocol import ELICITATION_UPDATED, PermissionOption, ToolCallUpdatePayload


class Respond(Protocol):
    """`Host.respond_permission` or `Host.respond_elicitation`."""

    def __call__(
        self, request_id: str, answer: Mapping[str, Any], /, *, by: Mapping[str, Any] | None = None
    ) -> Completion: ...


OptionKind: TypeAlias = Literal["allow_once", "allow_always", "reject_once", "reject_always"]
R = TypeVar("R", bound=AgentRequest)


class PendingPermission:
    """A permission request; each method answers it and returns when the answer is stored."""

    def __init__(self, request: PermissionRequest, respond: Respond) -> None:
        self._request = request
        self._respond = respond
        self.id: Final = request.id
        self.session_id: Final = request.session.id
        self.agent_id: Final = request.agent_id

    @property
    def tool_call(self) -> ToolCallUpdatePayload:
        """The tool call as the agent sent it with the request."""
        call = self._request.tool_call
        return cast("ToolCallUpdatePayload", call if isinstance(call, dict) else {})

    @property
    def options(self) -> tuple[PermissionOption, ...]:
        """The answers that the agent offers."""
        options = self._request.options
        given = options if isinstance(options, list) else []
        found: list[Any] = [each for each in given if isinstance(each, dict)]
        return tuple(found)

    @property
    def status(self) -> RequestStatus:
        return self._request.status

    async def allow(self, *, always: bool = False) -> None:
        """Allow the call; `always` also allows later ones, as the agent understands it.

        Raises:
            AcpError: `acpjs/config-invalid` if the agent offers no such option,
                `acpjs/already-answered` if the request is not pending any more.
        """
        kind: OptionKind = "allow_always" if always else "allow_once"
        await self.select(self._option(kind))

    async def reject(self, reason: str = "", *, always: bool = False) -> None:
        """Reject the call; the reason is in the log and in the `_meta` of the agent's answer.

        An agent that offers no option to reject once gets `cancelled`.

        Raises:
            AcpError: as `allow`.
        """
        if always:
            await self.select(self._option("reject_always"), reason)
            return
        chosen = self._first("reject_once")
        if chosen is None:
            await self._decide({"outcome": "cancelled"}, reason)
        else:
            await self.select(chosen, reason)

    async def select(self, option_id: str, reason: str = "") -> None:
        """Answer with one of `options`.

        Raises:
            AcpError: as `allow`.
        """
        if all(each.get("optionId") != option_id for each in self.options):
            raise config_invalid(f"the agent does not offer {option_id!r}; {self._offered()}")
        await self._decide({"outcome": "selected", "optionId": option_id}, reason)

    async def _decide(self, outcome: dict[str, Any], reason: str) -> None:
        by: dict[str, Any] = {"kind": "client"}
        if reason:
            by["reason"] = reason
            outcome["_meta"] = {"quarterdeck": {"reason": reason}}
        await self._respond(self.id, outcome, by=by)

    def _option(self, kind: OptionKind) -> str:
        chosen = self._first(kind)
        if chosen is None:
            raise config_invalid(f"the agent offers no {kind} for {self.id}; {self._offered()}")
        return chosen

    def _first(self, kind: OptionKind) -> str | None:
        ids: list[object] = [
            each.get("optionId") for each in self.options if each.get("kind") == kind
        ]
        return next((each for each in ids if isinstance(each, str)), None)

    def _offered(self) -> str:
        names = ", ".join(f"{each.get('optionId')} ({each.get('kind')})" for each in self.options)
        return f"it offers: {names or 'nothing'}; choose with select()"


class PendingElicitation:
    """An elicitation; each method answers it and returns when the answer is stored."""

    def __init__(self, request: Elicitation, respond: Respond) -> None:
        self._request = request
        self._respond = respond
        self.id: Final = request.id
        self.session_id: Final = None if request.session is None else request.session.id
        self.agent_id: Final = request.agent_id

    @property
    def request(self) -> Mapping[str, Any]:
        """The params of `elicitation/create` as the agent sent them."""
        return self._request.request

    @property
    def message(self) -> str:
        """The agent's words."""
        message = self._request.request.get("message")
        return message if isinstance(message, str) else ""

    @property
    def status(self) -> RequestStatus:
        return self._request.status

    async def accept(self, content: Mapping[str, Any] | None = None) -> None:
        """Send the form as filled in; for a link, say that the person agrees to open it.

        Raises:
            AcpError: `acpjs/config-invalid` if a required field is missing,
                `acpjs/already-answered` if the request is not pending any more.
        """
        filled = {} if content is None else {"content": dict(content)}
        await self._respond(self.id, {"action": "accept", **filled})

    async def decline(self) -> None:
        """Say no to the request."""
        await self._respond(self.id, {"action": "decline"})

    async def cancel(self) -> None:
        """Dismiss the request without an answer."""
        await self._respond(self.id, {"action": "cancel"})


async def permission_requests(
    emitter: Emitter, requests: PermissionRequests, respond: Respond, session_id: str | None
) -> AsyncIterator[PendingPermission]:
    """Yield the permission requests that are pending, then new ones; each once."""
    async for request in _pending(emitter, "permission-updated", requests):
        if session_id is None or request.session.id == session_id:
            yield PendingPermission(request, respond)


async def elicitation_requests(
    emitter: Emitter, requests: ElicitationRequests, respond: Respond, session_id: str | None
) -> AsyncIterator[PendingElicitation]:
    """Yield the elicitations that are pending, then new ones; each once."""
    async for request in _pending(emitter, ELICITATION_UPDATED, requests):
        if session_id is None or (request.session is not None and request.session.id == session_id):
            yield PendingElicitation(request, respond)


class _Requests(Protocol[R]):
    @property
    def pending(self) -> list[R]: ...

    def get(self, request_id: str) -> R | None: ...


async def _pending(emitter: Emitter, event_type: str, requests: _Requests[R]) -> AsyncIterator[R]:
    await emitter.journal.wait_stored()
    stream = emitter.host_stream
    start, waiting = stream.published, requests.pending
    yielded = {each.id for each in waiting}
    for request in waiting:
        if request.status == "pending":
            yield request
    async for event in stream.events(start):
        if event.type != event_type:
            continue
        request_id = str(event.payload.get("requestId"))
        if event.payload.get("status") != "pending":
            yielded.discard(request_id)  # ids are never used twice
            continue
        found = requests.get(request_id)
        if found is not None and request_id not in yielded:
            yielded.add(request_id)
            yield found
