"""What agents ask people beside permission (`elicitation/create`): forms, and pages to visit.

ACP has no event for it among those of a session, so a question is told on the host's stream and,
if it belongs to a session, kept in that session's log as an update of our own (docs/adr/0004).
What a person answered goes to the agent and nowhere else; events say how it was answered only.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import UNSET

from quarterdeck.acp import Unknown, decode, schema
from quarterdeck.errors import AcpError, ProtocolError
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.repair import mark
from quarterdeck.host.options import check_json
from quarterdeck.host.requests.table import AgentRequest, Concerns, RequestTable
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    ERROR_CODES,
    HostElicitationSnapshot,
    to_json,
)
from quarterdeck.wire import INVALID_PARAMS, rpc_error

_ADDED = "the agent asked a person"
_PREFIX = "elic-"
_MARK_BYTES = 4  # of the mark that tells questions without a session of two hosts apart


def is_elicitation_id(request_id: str) -> bool:
    """Tell the id of such a question from that of a permission request."""
    return request_id.startswith(_PREFIX)


class Elicitation(AgentRequest):
    """One question; `request` is what the agent sent."""

    superseded_answer: ClassVar = {"action": "cancel"}

    def __init__(
        self, request_id: str, agent_id: str, session: HostSession | None, request: dict[str, Any]
    ) -> None:
        super().__init__(request_id, agent_id, session)
        self.request = request
        self.action: str | None = None
        self.is_completed = False

    def snapshot(self) -> HostElicitationSnapshot:
        return HostElicitationSnapshot(
            request_id=self.id,
            agent_id=UNSET if self.agent_id is None else self.agent_id,
            session_id=UNSET if self.session is None else self.session.id,
            status=self.status,
            request=self.request,
            action=UNSET if self.action is None else self.action,
            completed=True if self.is_completed else UNSET,
        )


class ElicitationRequests:
    """All such questions of a host; ids are `elic-<n>` and never used twice.

    What belongs to no session is stored nowhere, so the next host could not number on after it: its
    ids are `elic-<n>-<mark>`, and each host has a mark of its own. An answer that comes after a
    restart finds nothing.
    """

    def __init__(self, emitter: Emitter, modes: Sequence[str]) -> None:
        self._emitter = emitter
        self._modes = modes
        self._table: RequestTable[Elicitation] = RequestTable("elicitation")
        self._mark = secrets.token_hex(_MARK_BYTES)

    def number_after(self, number: int) -> None:
        self._table.number_after(number)

    def all(self) -> list[Elicitation]:
        return self._table.all()

    def open(
        self, agent_id: str, session: HostSession | None, params: dict[str, Any]
    ) -> Elicitation:
        """Take a question in.

        Raises:
            RpcError: if it is none, or of a mode that we did not offer.
        """
        mode = _mode(params)
        if mode not in self._modes:
            raise rpc_error(INVALID_PARAMS, f"elicitation mode {mode!r} was not offered")
        question_id = f"{_PREFIX}{self._table.next_number()}"
        if session is None:
            question_id += f"-{self._mark}"
        question = Elicitation(question_id, agent_id, session, params)
        # Pending before it is told: whoever hears of it may answer at once.
        self._table.add(question)
        self._tell(question)
        return question

    @property
    def pending(self) -> list[Elicitation]:
        return self._table.pending

    def find(self, request_id: str) -> Elicitation | None:
        """Return an elicitation that is pending, or was resolved lately."""
        return self._table.find(request_id)

    def respond(
        self,
        request_id: str,
        response: Mapping[str, Any],
        by: Mapping[str, Any] | None = None,
    ) -> None:
        """Answer an elicitation; `by` names who decided.

        Raises:
            AcpError: `acpjs/already-answered` if it is not pending (any more), or
                `acpjs/config-invalid` if that is no answer to it.
        """
        pending = self._table.get(request_id)
        _check_response(response, {} if pending is None else pending.request)
        check_json(response, "the answer")
        check_json(by, "who decided")
        question = self._table.take(request_id)
        question.action = response["action"]
        self._tell(question, by)
        question.settle(dict(response))

    def withdraw(self, concerns: Concerns) -> Sequence[Elicitation]:
        """Supersede the questions that nobody needs to answer; their agents wait for `refuse`."""
        withdrawn = self._table.withdraw(concerns)
        for question in withdrawn:
            self._tell(question)
        return withdrawn

    def complete(self, agent_id: str, elicitation_id: Any) -> None:
        """What a person was sent to a page for is done there; an unknown id means nothing."""
        for question in self._table.all():
            asked = question.request.get("elicitationId")
            if question.agent_id == agent_id and asked is not None and asked == elicitation_id:
                if not question.is_completed:
                    question.is_completed = True
                    self._tell(question)
                return

    def _tell(self, question: Elicitation, by: Mapping[str, Any] | None = None) -> None:
        payload = to_json(question.snapshot())
        with self._emitter.journal.together():
            if question.session is not None and question.session.is_live:
                record_elicitation(self._emitter, question.session, payload, by)
            self._emitter.host_extension(ELICITATION_UPDATED, payload, _extensions(by))


def record_elicitation(
    emitter: Emitter,
    session: HostSession,
    payload: dict[str, Any],
    by: Mapping[str, Any] | None = None,
) -> None:
    """Record the status of an elicitation in the log of its session."""
    update = {"sessionUpdate": ELICITATION_UPDATED, **payload}
    emitter.session_event(session, "unrecognized-update", update, _extensions(by))


def _extensions(by: Mapping[str, Any] | None) -> dict[str, Any]:
    extensions = mark(_ADDED)
    if by is not None:
        extensions["quarterdeck"]["decidedBy"] = dict(by)
    return extensions


def _mode(params: dict[str, Any]) -> str:
    # A scope that is null is none: whoever writes all fields of a class writes that.
    given = {key: value for key, value in params.items() if value is not None}
    try:
        request = decode(schema.CreateElicitationRequest, given)
    except ProtocolError as error:
        raise rpc_error(INVALID_PARAMS, str(error)) from error
    if isinstance(request, Unknown):
        raise rpc_error(INVALID_PARAMS, f"unknown elicitation mode {params.get('mode')!r}")
    mode: str = params["mode"]
    return mode


def _check_response(response: Any, request: Mapping[str, Any]) -> None:
    action = response.get("action") if isinstance(response, Mapping) else None
    if action in ("decline", "cancel"):
        return
    if action != "accept":
        raise _invalid("an answer is {action: 'accept', content: …} or 'decline' or 'cancel'")
    content = response.get("content")
    if content is not None and not _is_content(content):
        raise _invalid("the content of an answer is an object of texts, numbers, flags and lists")
    wanted = request.get("requestedSchema") or {}
    missing = [name for name in wanted.get("required") or () if name not in (content or {})]
    if missing:
        raise _invalid(f"the answer needs {missing[0]}")


def _is_content(content: Any) -> bool:
    return isinstance(content, Mapping) and all(
        isinstance(value, str | bool | int | float)
        or (isinstance(value, list) and all(isinstance(each, str) for each in value))
        for value in content.values()
    )


def _invalid(message: str) -> AcpError:
    return AcpError(ERROR_CODES["config_invalid"], message)
