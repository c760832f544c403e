"""The inbox: pending requests of all sessions, answers, and the audit of decisions.

Nothing is decided here: an answer is checked and decided in one step by the runner
(`runner/permissions/inbox`, which has the whole path of a request), and is carried out even if the
device disconnects (`to_completion`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from quarterdeck.errors import RequestRejected
from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Body,
    Endpoint,
    Query,
    invalid,
    json_endpoint,
    not_found,
    to_completion,
)
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.log_health import LogHealth
from quarterdeck.policy import Policy
from quarterdeck.protocol import HostElicitationSnapshot
from quarterdeck.runner import MOST_REASON, PermissionCard, RecordedDecision


class PermissionList(ApiResponse, frozen=True, kw_only=True):
    permissions: list[PermissionCard]


class AnswerPermission(Body, frozen=True, kw_only=True):
    """One of the options, or `"cancelled": true`."""

    digest: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    """Of the request as it was shown."""
    option_id: str | UnsetType = UNSET
    cancelled: bool = False
    key: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """Made by the client. Retries are idempotent: the same key from the same device returns the
    first decision."""
    reason: Annotated[str, Meta(max_length=MOST_REASON)] = ""
    """Why, in the person's words: kept with the decision, and sent to the agent as `_meta`."""


class ElicitationView(ApiResponse, frozen=True, kw_only=True):
    """A pending elicitation."""

    request_id: str
    session_id: str | UnsetType = UNSET
    agent_id: str | UnsetType = UNSET
    request: dict[str, Any]
    """As the agent sent it."""
    requested_at: str | UnsetType = UNSET


class ElicitationList(ApiResponse, frozen=True, kw_only=True):
    elicitations: list[ElicitationView]


class AnswerElicitation(Body, frozen=True, kw_only=True):
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | UnsetType = UNSET
    """What was filled in; it goes to the agent and is stored nowhere."""


class DecisionQuery(Query, frozen=True, kw_only=True):
    before: Annotated[int, Meta(ge=1, le=2**53)] | UnsetType = UNSET
    """Those before this id: the next page."""
    session: str | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class DecisionList(ApiResponse, frozen=True, kw_only=True):
    """The newest first."""

    decisions: list[RecordedDecision]


class _Requests:
    def __init__(self, hub: Hub) -> None:
        self._runner = hub.runner

    async def list(self, _request: ApiRequest) -> PermissionList:
        cards = [each.card for each in self._runner.pending_permissions()]
        titled = [await self._titled(card) for card in cards if card is not None]
        return PermissionList(permissions=titled)

    async def get(self, request: ApiRequest) -> PermissionCard:
        pending = self._runner.pending_permission(request.path["id"])
        if pending is None or pending.card is None:
            what = f"pending request {request.path['id']!r}"
            raise not_found(what, "it was decided or withdrawn; the list of decisions shows how")
        return await self._titled(pending.card)

    async def _titled(self, card: PermissionCard) -> PermissionCard:
        """Return a card with the title that its session is listed by."""
        try:
            session = await self._runner.show_session(card.session_id)
        except RequestRejected:
            return card  # deleted, and its request with it in a moment
        return replace(card, title=session.title)

    async def answer(self, request: ApiRequest) -> RecordedDecision:
        wanted = request.body_as(AnswerPermission)
        if wanted.cancelled == (wanted.option_id is not UNSET):
            raise invalid('send either optionId or "cancelled": true')
        option_id = None if wanted.option_id is UNSET else wanted.option_id
        return await self._runner.answer_permission(
            request.path["id"],
            option_id,
            digest=wanted.digest,
            key=wanted.key,
            reason=wanted.reason,
            by=request.by.actor,
        )

    async def elicitations(self, _request: ApiRequest) -> ElicitationList:
        pending = self._runner.pending_elicitations()
        return ElicitationList(elicitations=[_elicitation(each) for each in pending])

    async def answer_elicitation(self, request: ApiRequest) -> RecordedDecision:
        wanted = request.body_as(AnswerElicitation)
        response: dict[str, Any] = {"action": wanted.action}
        if wanted.content is not UNSET:
            response["content"] = wanted.content
        return await self._runner.answer_elicitation(
            request.path["id"], response, by=request.by.actor
        )

    async def decisions(self, request: ApiRequest) -> DecisionList:
        query = request.query_as(DecisionQuery)
        decisions = await self._runner.list_decisions(
            before=None if query.before is UNSET else query.before,
            session_id=None if query.session is UNSET else query.session,
            limit=query.limit,
        )
        return DecisionList(decisions=decisions)

    async def policy(self, _request: ApiRequest) -> Policy:
        return self._runner.policy()


def _elicitation(pending: HostElicitationSnapshot) -> ElicitationView:
    return ElicitationView(
        request_id=pending.request_id,
        session_id=pending.session_id,
        agent_id=pending.agent_id,
        request=dict(pending.request),
        requested_at=pending.requested_at,
    )


def request_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the inbox's part of the route table."""
    api = _Requests(hub)
    return [*_permissions(api, hub.log_health), *_elicitations(api, hub.log_health), *_audit(api)]


def _permissions(api: _Requests, log: LogHealth) -> list[Endpoint]:
    return [
        json_endpoint(
            "view",
            "GET /api/permissions",
            api.list,
            "List pending permission requests of all sessions",
            returns=PermissionList,
        ),
        json_endpoint(
            "view",
            "GET /api/permissions/{id}",
            api.get,
            "Show a pending permission request",
            returns=PermissionCard,
            errors=(404,),
        ),
        json_endpoint(
            "approve",
            "POST /api/permissions/{id}/answer",
            to_completion(log, api.answer),
            "Answer a permission request; the first answer counts",
            body=AnswerPermission,
            returns=RecordedDecision,
            errors=(400, 404, 409, 410),
        ),
    ]


def _elicitations(api: _Requests, log: LogHealth) -> list[Endpoint]:
    return [
        json_endpoint(
            "view",
            "GET /api/elicitations",
            api.elicitations,
            "List pending elicitations",
            returns=ElicitationList,
        ),
        json_endpoint(
            "approve",
            "POST /api/elicitations/{id}/answer",
            to_completion(log, api.answer_elicitation),
            "Answer an elicitation; the first answer counts",
            body=AnswerElicitation,
            returns=RecordedDecision,
            errors=(400, 404, 409, 410),
        ),
    ]


def _audit(api: _Requests) -> list[Endpoint]:
    return [
        json_endpoint(
            "view",
            "GET /api/decisions",
            api.decisions,
            "List decisions: who or what decided, and when",
            query=DecisionQuery,
            returns=DecisionList,
            errors=(400,),
        ),
        json_endpoint(
            "view",
            "GET /api/policy",
            api.policy,
            "Show the rules that decide requests",
            returns=Policy,
        ),
    ]
