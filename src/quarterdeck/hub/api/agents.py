"""Agents: those that run, and those that can be started by name."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, field

from quarterdeck.agents import KnownAgent
from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Body,
    EmptyBody,
    Endpoint,
    Query,
    json_endpoint,
    not_found,
    to_completion,
    unless_log_fails,
)
from quarterdeck.hub.api.installs import install_endpoints
from quarterdeck.hub.api.sign_ins import sign_in_endpoints
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.log_health import LogHealth
from quarterdeck.machine import ConfinementStatus
from quarterdeck.protocol import AgentCapabilitiesWire, AgentSnapshotWire

_Text = Annotated[str, Meta(min_length=1, max_length=4096)]


class AgentView(ApiResponse, frozen=True, kw_only=True):
    """An agent that was started."""

    agent_id: str
    name: str | UnsetType = UNSET
    """The known agent, or the id of the definition, it was started by."""
    status: str
    restart_count: int
    reason: str | UnsetType = UNSET
    exit: dict[str, Any] | UnsetType = UNSET
    capabilities: AgentCapabilitiesWire | UnsetType = UNSET
    auth_methods: tuple[dict[str, Any], ...] | UnsetType = UNSET
    notice: str | UnsetType = UNSET
    """What the client that started it should know."""
    confinement: ConfinementStatus | UnsetType = UNSET
    """What keeps it from the hub's folders and processes."""


class AgentList(ApiResponse, frozen=True, kw_only=True):
    agents: list[AgentView]


class KnownAgentList(ApiResponse, frozen=True, kw_only=True):
    agents: list[KnownAgent]


class KnownAgentQuery(Query, frozen=True, kw_only=True):
    machine: Annotated[str, Meta(max_length=200)] | None = None
    """The id or name of a machine; the hub's own if left out."""


class DefinitionBody(Body, frozen=True, kw_only=True):
    """How to start an agent: by a command, or at the URL where it runs."""

    id: _Text
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    """Never stored: an agent that has some cannot be started again by the hub alone."""
    cwd: str | None = None
    url: _Text | None = None
    """http and https for Streamable HTTP, ws and wss for a WebSocket."""
    headers: dict[str, str] = field(default_factory=dict)
    """Sent to the URL; never stored, as `env` is not."""


class SpawnAgent(Body, frozen=True, kw_only=True):
    definition: DefinitionBody


class SignIn(Body, frozen=True, kw_only=True):
    method_id: _Text


class _Agents:
    def __init__(self, hub: Hub) -> None:
        self._log_health = hub.log_health
        self._runner = hub.runner
        self._fleet = hub.fleet

    async def list(self, _request: ApiRequest) -> AgentList:
        return AgentList(agents=[await self._view(agent) for agent in self._runner.agents()])

    async def known(self, request: ApiRequest) -> KnownAgentList:
        machine = request.query_as(KnownAgentQuery).machine
        return KnownAgentList(agents=await self._fleet.on(machine).known_agents())

    async def get(self, request: ApiRequest) -> AgentView:
        return await self._view(self._agent(request))

    async def start_known(self, request: ApiRequest) -> AgentView:
        agent = await self._runner.start_agent(request.path["name"], by=request.by.actor)
        return await self._view(agent)

    async def spawn(self, request: ApiRequest) -> AgentView:
        self._log_health.check()
        wanted = request.body_as(SpawnAgent).definition
        definition: dict[str, Any] = {
            "id": wanted.id,
            "command": wanted.command,
            "args": list(wanted.args),
            "cwd": wanted.cwd or "",
            "url": wanted.url,
        }
        if wanted.env:
            definition["env"] = dict(wanted.env)
        if wanted.headers:
            definition["headers"] = dict(wanted.headers)
        agent = await self._runner.spawn_agent(definition, by=request.by.actor)
        return await self._view(agent, notice=_notice(wanted))

    async def dispose(self, request: ApiRequest) -> None:
        await self._runner.stop_agent(self._agent(request).agent_id, by=request.by.actor)

    async def authenticate(self, request: ApiRequest) -> AgentView:
        agent = self._agent(request)
        method_id = request.body_as(SignIn).method_id
        await self._runner.authenticate(agent.agent_id, method_id, by=request.by.actor)
        return await self._view(agent)

    async def log_out(self, request: ApiRequest) -> AgentView:
        agent = self._agent(request)
        await self._runner.logout(agent.agent_id, by=request.by.actor)
        return await self._view(agent)

    def _agent(self, request: ApiRequest) -> AgentSnapshotWire:
        agent = self._runner.agent(request.path["id"])
        if agent is None:
            raise not_found(
                f"agent {request.path['id']!r}", "list the agents to see which ones run"
            )
        return agent

    async def _view(self, agent: AgentSnapshotWire, *, notice: str | None = None) -> AgentView:
        name = self._runner.agent_name(agent.agent_id)
        confinement = await self._runner.agent_confinement(agent.agent_id)
        given: Any = agent
        return AgentView(
            agent_id=agent.agent_id,
            name=UNSET if name is None else name,
            status=agent.status,
            restart_count=agent.restart_count,
            reason=agent.reason,
            exit=given.exit,
            capabilities=agent.capabilities,
            auth_methods=given.auth_methods,
            notice=UNSET if notice is None else notice,
            confinement=UNSET if confinement is None else confinement,
        )


def _notice(definition: DefinitionBody) -> str | None:
    if not definition.env and not definition.headers:
        return None
    what = "its environment" if definition.env else "its headers"
    return (
        f"the values of {what} are not stored, so the hub cannot start this agent again by"
        " itself; to reopen its sessions after a restart, add it to hub.toml"
    )


def agent_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the agents' part of the route table."""
    api, log = _Agents(hub), hub.log_health
    return [
        json_endpoint(
            "view", "GET /api/agents", api.list, "List agents that were started", returns=AgentList
        ),
        json_endpoint(
            "admin",
            "POST /api/agents",
            to_completion(log, api.spawn),
            "Start an agent by command",
            body=SpawnAgent,
            returns=AgentView,
            status=201,
            errors=(400, 409, 424),
        ),
        json_endpoint(
            "view",
            "GET /api/agents/known",
            api.known,
            "List agents that can be started by name",
            query=KnownAgentQuery,
            returns=KnownAgentList,
        ),
        json_endpoint(
            "prompt",
            "POST /api/agents/known/{name}",
            unless_log_fails(log, api.start_known),
            "Start an agent by name, unless it is running",
            body=EmptyBody,
            returns=AgentView,
            errors=(404, 409, 424),
        ),
        *install_endpoints(hub),
        *sign_in_endpoints(hub),
        *_one_agent(api, log),
    ]


def _one_agent(api: _Agents, log: LogHealth) -> list[Endpoint]:
    return [
        json_endpoint(
            "view",
            "GET /api/agents/{id}",
            api.get,
            "Show an agent",
            returns=AgentView,
            errors=(404,),
        ),
        json_endpoint(
            "admin",
            "DELETE /api/agents/{id}",
            to_completion(log, api.dispose),
            "Stop an agent; its sessions are kept",
            status=204,
            errors=(404,),
        ),
        json_endpoint(
            "admin",
            "POST /api/agents/{id}/authenticate",
            api.authenticate,
            "Sign in by one of the methods that the agent offers",
            body=SignIn,
            returns=AgentView,
            errors=(400, 404, 424),
        ),
        json_endpoint(
            "admin",
            "POST /api/agents/{id}/logout",
            api.log_out,
            "Sign out",
            body=EmptyBody,
            returns=AgentView,
            errors=(404, 422, 424),
        ),
    ]
