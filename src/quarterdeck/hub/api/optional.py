"""What agents need not offer: forks, titles, archives, single cancels, providers, sign-in status.

Titles and archives work with every agent; the rest answers 422 if the agent does not offer it.
Headers of a provider are credentials: they go to the agent and are kept and logged nowhere.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Body,
    EmptyBody,
    Endpoint,
    json_endpoint,
    not_found,
    to_completion,
    unless_log_fails,
)
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.log_health import LogHealth
from quarterdeck.runner import SessionOverview

_Text = Annotated[str, Meta(min_length=1, max_length=4096)]
_FAILURES = (400, 404, 409, 422, 424)


class SetTitle(Body, frozen=True, kw_only=True):
    title: _Text


class SetArchived(Body, frozen=True, kw_only=True):
    archived: bool


class CancelToolCall(Body, frozen=True, kw_only=True):
    tool_call_id: _Text


class CancelTerminal(Body, frozen=True, kw_only=True):
    terminal_id: _Text


class SessionStatusResponse(ApiResponse, frozen=True, kw_only=True):
    status: str
    """open, or saved; an agent may have others."""
    state: dict[str, Any] | UnsetType | None = UNSET
    """What the agent does now."""


class AuthStatus(ApiResponse, frozen=True, kw_only=True):
    state: str
    """authenticated, unauthenticated, not_required or unknown."""
    accounts: list[Any] | UnsetType = UNSET


class Providers(ApiResponse, frozen=True, kw_only=True):
    providers: list[Any]


class SetProvider(Body, frozen=True, kw_only=True):
    provider_id: _Text
    api_type: _Text
    base_url: _Text
    headers: dict[str, str] | UnsetType = UNSET
    """Sent to the agent; never stored."""


class DisableProvider(Body, frozen=True, kw_only=True):
    provider_id: _Text


class _Optional:
    def __init__(self, hub: Hub) -> None:
        self._runner = hub.runner

    # ---- sessions ------------------------------------------------------------------------------

    async def fork(self, request: ApiRequest) -> SessionOverview:
        return await self._runner.fork_session(request.path["id"], by=request.by.actor)

    async def set_title(self, request: ApiRequest) -> SessionOverview:
        title = request.body_as(SetTitle).title
        return await self._runner.set_title(request.path["id"], title, by=request.by.actor)

    async def set_archived(self, request: ApiRequest) -> SessionOverview:
        return await self._runner.set_archived(
            request.path["id"],
            is_archived=request.body_as(SetArchived).archived,
            by=request.by.actor,
        )

    async def status(self, request: ApiRequest) -> SessionStatusResponse:
        found = await self._runner.session_status(request.path["id"])
        return SessionStatusResponse(status=found["status"], state=found.get("state", UNSET))

    async def cancel_tool_call(self, request: ApiRequest) -> SessionOverview:
        wanted = request.body_as(CancelToolCall).tool_call_id
        session_id = request.path["id"]
        await self._runner.cancel_tool_call(session_id, wanted, by=request.by.actor)
        return self._runner.session(session_id)

    async def cancel_terminal(self, request: ApiRequest) -> SessionOverview:
        wanted = request.body_as(CancelTerminal).terminal_id
        session_id = request.path["id"]
        await self._runner.cancel_terminal(session_id, wanted, by=request.by.actor)
        return self._runner.session(session_id)

    # ---- agents --------------------------------------------------------------------------------

    async def auth_status(self, request: ApiRequest) -> AuthStatus:
        found = await self._runner.auth_status(self._agent_id(request))
        accounts = found.get("accounts")
        listed = accounts if isinstance(accounts, list) else UNSET
        return AuthStatus(state=str(found["state"]), accounts=listed)

    async def providers(self, request: ApiRequest) -> Providers:
        return Providers(providers=await self._runner.list_providers(self._agent_id(request)))

    async def set_provider(self, request: ApiRequest) -> Providers:
        agent_id, wanted = self._agent_id(request), request.body_as(SetProvider)
        provider: dict[str, Any] = {
            "providerId": wanted.provider_id,
            "apiType": wanted.api_type,
            "baseUrl": wanted.base_url,
        }
        if wanted.headers is not UNSET:
            provider["headers"] = wanted.headers
        await self._runner.set_provider(agent_id, provider, by=request.by.actor)
        return Providers(providers=await self._runner.list_providers(agent_id))

    async def disable_provider(self, request: ApiRequest) -> Providers:
        agent_id = self._agent_id(request)
        provider_id = request.body_as(DisableProvider).provider_id
        await self._runner.disable_provider(agent_id, provider_id, by=request.by.actor)
        return Providers(providers=await self._runner.list_providers(agent_id))

    def _agent_id(self, request: ApiRequest) -> str:
        agent_id = request.path["id"]
        if self._runner.agent(agent_id) is None:
            raise not_found(f"agent {agent_id!r}", "list the agents to see which ones run")
        return agent_id


def optional_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the part of the route table that depends on what agents offer."""
    api, log = _Optional(hub), hub.log_health
    return [*_sessions(api, log), *_cancels(api, log), *_agents(api)]


def _sessions(api: _Optional, log: LogHealth) -> list[Endpoint]:
    return [
        json_endpoint(
            "prompt",
            "POST /api/sessions/{id}/fork",
            unless_log_fails(log, api.fork),
            "Create a session that continues this one; the two are independent",
            body=EmptyBody,
            returns=SessionOverview,
            status=201,
            errors=_FAILURES,
        ),
        json_endpoint(
            "prompt",
            "PUT /api/sessions/{id}/title",
            unless_log_fails(log, api.set_title),
            "Rename a session",
            body=SetTitle,
            returns=SessionOverview,
            errors=_FAILURES,
        ),
        json_endpoint(
            "prompt",
            "PUT /api/sessions/{id}/archived",
            api.set_archived,
            "Archive a session, so that lists leave it out, or undo that",
            body=SetArchived,
            returns=SessionOverview,
            errors=_FAILURES,
        ),
        json_endpoint(
            "view",
            "GET /api/sessions/{id}/status",
            api.status,
            "Show whether a session is open at its agent, and what that does now",
            returns=SessionStatusResponse,
            errors=(404, 409, 424),
        ),
    ]


def _cancels(api: _Optional, log: LogHealth) -> list[Endpoint]:
    return [
        json_endpoint(
            "prompt",
            "POST /api/sessions/{id}/cancel-tool-call",
            to_completion(log, api.cancel_tool_call),
            "Cancel one tool call, if the agent offers it; the turn continues",
            body=CancelToolCall,
            returns=SessionOverview,
            errors=_FAILURES,
        ),
        json_endpoint(
            "prompt",
            "POST /api/sessions/{id}/cancel-terminal",
            to_completion(log, api.cancel_terminal),
            "Cancel one terminal of the agent, if it offers it; the turn continues",
            body=CancelTerminal,
            returns=SessionOverview,
            errors=_FAILURES,
        ),
    ]


def _agents(api: _Optional) -> list[Endpoint]:
    return [
        json_endpoint(
            "admin",
            "GET /api/agents/{id}/auth-status",
            api.auth_status,
            "Show whether an agent is signed in, and with which accounts",
            returns=AuthStatus,
            errors=(404, 424),
        ),
        json_endpoint(
            "admin",
            "GET /api/agents/{id}/providers",
            api.providers,
            "List the model providers of an agent",
            returns=Providers,
            errors=(404, 422, 424),
        ),
        json_endpoint(
            "admin",
            "PUT /api/agents/{id}/providers",
            api.set_provider,
            "Configure a model provider of an agent",
            body=SetProvider,
            returns=Providers,
            errors=(400, 404, 422, 424),
        ),
        json_endpoint(
            "admin",
            "POST /api/agents/{id}/providers/disable",
            api.disable_provider,
            "Disable a model provider of an agent",
            body=DisableProvider,
            returns=Providers,
            errors=(400, 404, 422, 424),
        ),
    ]
