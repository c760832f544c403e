"""Elicitations of agents (`elicitation/create`): forms to fill in, and links to visit.

The seed has no event for them, so each change is published on the host's stream and, if the
elicitation belongs to a session, recorded in that session's log as an update of our own
(docs/adr/0004). The content of an answer goes to the agent only: events and logs hold the action
(accept, decline, cancel), never what a person typed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import UNSET

from quarterdeck.acp import Unknown, decode, schema
from quarterdeck.errors import ProtocolError
from quarterdeck.host.checks import check_json, config_invalid
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.tool_call_repair import mark
from quarterdeck.host.requests.table import AgentRequest, Concerns, RequestTable
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    HostElicitationSnapshot,
    to_json,
)
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.wire import INVALID_PARAMS, rpc_error

_ADDED = "the agent asked a person"  # a reason that stored logs contain
_PREFIX = "elic-"
_MARK_BYTES = 4  # of the mark in ids without a session, which differs from host to host


def is_elicitation_id(request_id: str) -> bool:
    """Return whether an id is that of an elicitation, not of a permission request."""
    return request_id.startswith(_PREFIX)


class Elicitation(AgentRequest):
    """One elicitation; `request` is what the agent sent."""

    superseded_answer: ClassVar = {"action": "cancel"}

    def __init__(
        self, request_id: str, agent_id: str, session: HostSession | None, request: dict[str, Any]
    ) -> None:
        super().__init__(request_id, agent_id, session)
        self.request = request
        self.requested_at = iso_seconds(time.time())
        self.action: str | None = None
        self.is_completed = False

    def snapshot(self) -> HostElicitationSnapshot:
        return HostElicitationSnapshot(
            request_id=self.id,
            agent_id=UNSET if self.agent_id is None else self.agent_id,
            session_id=UNSET if self.session is None else self.session.id,
            status=self.status,
            request=self.request,
            requested_at=self.requested_at,
            action=UNSET if self.action is None else self.action,
            completed=True if self.is_completed else UNSET,
        )


class ElicitationRequests:
    """All elicitations of a host; ids are `elic-<n>` and never used twice.

    An elicitation without a session is not stored, so the next host cannot continue its numbers:
    its id is `elic-<n>-<mark>`, with a mark that differs from host to host. A late answer after a
    restart finds no request.
    """

    def __init__(self, emitter: Emitter, modes: Sequence[str]) -> None:
        self._emitter = emitter
        self._modes = modes
        self._table: RequestTable[Elicitation] = RequestTable("elicitation")
        self._mark = secrets.token_hex(_MARK_BYTES)

    def number_after(self, number: int) -> None:
        """Give no elicitation a number up to this one."""
        self._table.number_after(number)

    def all(self) -> list[Elicitation]:
        """Return the elicitations that were resolved recently, then those that are pending."""
        return self._table.all()

    def open(
        self, agent_id: str, session: HostSession | None, params: dict[str, Any]
    ) -> Elicitation:
        """Open an elicitation: it becomes pending.

        Raises:
            RpcError: if it is not valid, or of a mode that was not offered.
        """
        mode = _mode(params)
        if mode not in self._modes:
            raise rpc_error(INVALID_PARAMS, f"elicitation mode {mode!r} was not offered")
        request_id = f"{_PREFIX}{self._table.next_number()}"
        if session is None:
            request_id += f"-{self._mark}"
        request = Elicitation(request_id, agent_id, session, params)
        # Pending before it is published: a subscriber may answer at once.
        self._table.add(request)
        self._publish(request)
        return request

    @property
    def pending(self) -> list[Elicitation]:
        return self._table.pending

    def get(self, request_id: str) -> Elicitation | None:
        """Return an elicitation that is pending."""
        return self._table.get(request_id)

    def find(self, request_id: str) -> Elicitation | None:
        """Return an elicitation that is pending, or was resolved recently."""
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
                `acpjs/config-invalid` if the answer is not valid for it.
        """
        pending = self._table.get(request_id)
        _check_response(response, {} if pending is None else pending.request)
        check_json(response, "the answer")
        check_json(by, "who decided")
        request = self._table.claim(request_id)
        request.action = response["action"]
        self._publish(request, by)
        request.release(dict(response))

    def withdraw(self, concerns: Concerns) -> Sequence[Elicitation]:
        """Supersede elicitations that need no answer any more; the caller then calls `refuse`."""
        withdrawn = self._table.withdraw(concerns)
        for request in withdrawn:
            self._publish(request)
        return withdrawn

    def complete(self, agent_id: str, elicitation_id: Any) -> None:
        """Mark the elicitation of a link as completed at its page; ignore an unknown id."""
        for request in self._table.all():
            its_id = request.request.get("elicitationId")
            if request.agent_id == agent_id and its_id is not None and its_id == elicitation_id:
                if not request.is_completed:
                    request.is_completed = True
                    self._publish(request)
                return

    def _publish(self, request: Elicitation, by: Mapping[str, Any] | None = None) -> None:
        payload = to_json(request.snapshot())
        with self._emitter.journal.batch():
            if request.session is not None and request.session.is_live:
                record_elicitation(self._emitter, request.session, payload, by)
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
    # A null scope is no scope: some agents serialize every field of a class.
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
        raise config_invalid("an answer is {action: 'accept', content: …} or 'decline' or 'cancel'")
    content = response.get("content")
    if content is not None and not _is_content(content):
        raise config_invalid(
            "the content of an answer is an object of texts, numbers, flags and lists"
        )
    wanted = request.get("requestedSchema") or {}
    missing = [name for name in wanted.get("required") or () if name not in (content or {})]
    if missing:
        raise config_invalid(f"the answer needs {missing[0]}")


def _is_content(content: Any) -> bool:
    return isinstance(content, Mapping) and all(
        isinstance(value, str | bool | int | float)
        or (isinstance(value, list) and all(isinstance(each, str) for each in value))
        for value in content.values()
    )
