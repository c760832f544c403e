"""The inbox: requests that wait, over all sessions; and the audit of decisions."""

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
    carried_out,
    invalid,
    not_found,
    way,
)
from quarterdeck.hub.hub import Hub
from quarterdeck.policy import Policy
from quarterdeck.protocol import HostElicitationSnapshot
from quarterdeck.runner.log_health import LogHealth
from quarterdeck.runner.permissions.card import PermissionCard
from quarterdeck.runner.permissions.decisions import MOST_REASON, RecordedDecision


class ApprovalList(ApiResponse, frozen=True, kw_only=True):
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
    """A question that waits."""

    request_id: str
    session_id: str | UnsetType = UNSET
    agent_id: str | UnsetType = UNSET
    request: dict[str, Any]
    """As the agent sent it."""


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


class _Approvals:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._approvals = hub.approvals

    async def list(self, _asked: ApiRequest) -> ApprovalList:
        pending = self._approvals.pending
        return ApprovalList(permissions=[await self._headed(each) for each in pending])

    async def get(self, asked: ApiRequest) -> PermissionCard:
        view = self._approvals.get(asked.path["id"])
        if view is None:
            what = f"request {asked.path['id']!r} that waits"
            raise not_found(what, "GET /api/decisions tells how others ended")
        return await self._headed(view)

    async def _headed(self, view: PermissionCard) -> PermissionCard:
        """Return a request with the title that its session is listed by."""
        try:
            session = await self._hub.library.shown(view.session_id)
        except RequestRejected:
            return view  # deleted, and its request with it in a moment
        return replace(view, title=session.title)

    async def answer(self, asked: ApiRequest) -> RecordedDecision:
        wanted: AnswerPermission = asked.body
        if wanted.cancelled == (wanted.option_id is not UNSET):
            raise invalid('say either optionId or "cancelled": true')
        option_id = None if wanted.option_id is UNSET else wanted.option_id
        return await self._approvals.answer(
            asked.path["id"],
            option_id,
            by=self._approvals.decider(asked.by.actor, wanted.reason),
            digest=wanted.digest,
            key=wanted.key,
        )

    async def elicitations(self, _asked: ApiRequest) -> ElicitationList:
        pending = self._hub.host.pending_elicitations()
        return ElicitationList(elicitations=[_elicitation(each) for each in pending])

    async def answer_elicitation(self, asked: ApiRequest) -> RecordedDecision:
        response: dict[str, Any] = {"action": asked.body.action}
        if asked.body.content is not UNSET:
            response["content"] = asked.body.content
        return await self._approvals.answer_question(
            asked.path["id"], response, by=self._approvals.decider(asked.by.actor)
        )

    async def decisions(self, asked: ApiRequest) -> DecisionList:
        query: DecisionQuery = asked.query
        decisions = await self._approvals.decisions(
            before=None if query.before is UNSET else query.before,
            session_id=None if query.session is UNSET else query.session,
            limit=query.limit,
        )
        return DecisionList(decisions=decisions)

    async def policy(self, _asked: ApiRequest) -> Policy:
        return self._approvals.policy


def _elicitation(question: HostElicitationSnapshot) -> ElicitationView:
    return ElicitationView(
        request_id=question.request_id,
        session_id=question.session_id,
        agent_id=question.agent_id,
        request=dict(question.request),
    )


def approval_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the inbox's part of the route table."""
    api = _Approvals(hub)
    return [*_permissions(api, hub.recording), *_questions(api, hub.recording), *_audit(api)]


def _permissions(api: _Approvals, log: LogHealth) -> list[Endpoint]:
    return [
        way(
            "view",
            "GET /api/permissions",
            api.list,
            "List permission requests that wait, over all sessions",
            answer=ApprovalList,
        ),
        way(
            "view",
            "GET /api/permissions/{id}",
            api.get,
            "Show a permission request that waits",
            answer=PermissionCard,
            errors=(404,),
        ),
        way(
            "approve",
            "POST /api/permissions/{id}/answer",
            carried_out(log, api.answer),
            "Answer a permission request; the first answer counts",
            body=AnswerPermission,
            answer=RecordedDecision,
            errors=(400, 404, 409, 410),
        ),
    ]


def _questions(api: _Approvals, log: LogHealth) -> list[Endpoint]:
    return [
        way(
            "view",
            "GET /api/elicitations",
            api.elicitations,
            "List questions of agents that wait",
            answer=ElicitationList,
        ),
        way(
            "approve",
            "POST /api/elicitations/{id}/answer",
            carried_out(log, api.answer_elicitation),
            "Answer a question; the first answer counts",
            body=AnswerElicitation,
            answer=RecordedDecision,
            errors=(400, 404, 409, 410),
        ),
    ]


def _audit(api: _Approvals) -> list[Endpoint]:
    return [
        way(
            "view",
            "GET /api/decisions",
            api.decisions,
            "Tell who or what decided what, and when",
            query=DecisionQuery,
            answer=DecisionList,
            errors=(400,),
        ),
        way(
            "view",
            "GET /api/policy",
            api.policy,
            "Show what is decided without asking",
            answer=Policy,
        ),
    ]
