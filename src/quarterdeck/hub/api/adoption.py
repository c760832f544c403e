"""Sessions that were begun elsewhere: programs that are followed, and their sessions."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Body,
    EmptyBody,
    Endpoint,
    Query,
    json_endpoint,
    to_completion,
    unless_log_fails,
)
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.log_health import LogHealth
from quarterdeck.runner import ForeignProgram, FoundSession, SessionOverview


class ProgramList(ApiResponse, frozen=True, kw_only=True):
    programs: list[ForeignProgram]


class ProgramQuery(Query, frozen=True, kw_only=True):
    machine: Annotated[str, Meta(max_length=200)] | None = None
    """The id or name of a machine; the hub's own if left out."""


class AdoptProgram(Body, frozen=True, kw_only=True):
    past: bool = False
    """Also its sessions that ended long ago."""
    hook: bool = False
    """Add a hook to its settings, so that its permission requests can be answered here."""


class FoundSessionList(ApiResponse, frozen=True, kw_only=True):
    sessions: list[FoundSession]


class AgentSessionsQuery(Query, frozen=True, kw_only=True):
    cursor: str | None = None
    """`nextCursor` of the page before."""
    cwd: str | None = None


class AgentSessionPage(ApiResponse, frozen=True, kw_only=True):
    sessions: list[dict[str, Any]]
    """As the agent sends them."""
    next_cursor: str | UnsetType | None = UNSET


class _Adoption:
    def __init__(self, hub: Hub) -> None:
        self._runner = hub.runner
        self._fleet = hub.fleet

    async def list(self, request: ApiRequest) -> ProgramList:
        machine = request.query_as(ProgramQuery).machine
        return ProgramList(programs=await self._fleet.on(machine).foreign_programs())

    async def adopt(self, request: ApiRequest) -> ForeignProgram:
        wanted = request.body_as(AdoptProgram)
        return await self._runner.adopt_program(
            request.path["name"], past=wanted.past, hook=wanted.hook, by=request.by.actor
        )

    async def release(self, request: ApiRequest) -> ForeignProgram:
        return await self._runner.release_program(request.path["name"], by=request.by.actor)

    async def sessions(self, request: ApiRequest) -> FoundSessionList:
        found = await self._runner.foreign_sessions(request.path["name"])
        return FoundSessionList(sessions=found)

    async def adopt_session(self, request: ApiRequest) -> SessionOverview:
        name, session_id = request.path["name"], request.path["id"]
        return await self._runner.adopt_session(name, session_id, by=request.by.actor)

    async def agent_sessions(self, request: ApiRequest) -> AgentSessionPage:
        query = request.query_as(AgentSessionsQuery)
        page = await self._runner.agent_sessions(
            request.path["id"], cursor=query.cursor, cwd=query.cwd
        )
        listed, cursor = page.get("sessions"), page.get("nextCursor")
        return AgentSessionPage(
            sessions=[each for each in listed if isinstance(each, dict)] if listed else [],
            next_cursor=cursor if isinstance(cursor, str) else UNSET,
        )


def adoption_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the part of the route table about sessions that were begun elsewhere."""
    api, log = _Adoption(hub), hub.log_health
    return [
        json_endpoint(
            "view",
            "GET /api/adoption",
            api.list,
            "List programs of a machine whose sessions can be adopted",
            query=ProgramQuery,
            returns=ProgramList,
            errors=(400, 404, 503),
        ),
        json_endpoint(
            "admin",
            "POST /api/adoption/{name}",
            to_completion(log, api.adopt),
            "Follow the sessions of a program",
            body=AdoptProgram,
            returns=ForeignProgram,
            errors=(400, 404),
        ),
        json_endpoint(
            "admin",
            "DELETE /api/adoption/{name}",
            to_completion(log, api.release),
            "Stop following a program and remove its hook; recorded sessions are kept",
            returns=ForeignProgram,
            errors=(400, 404),
        ),
        *_sessions(api, log),
    ]


def _sessions(api: _Adoption, log: LogHealth) -> list[Endpoint]:
    return [
        json_endpoint(
            "admin",
            "GET /api/adoption/{name}/sessions",
            api.sessions,
            "List the sessions of a program on the runner's computer",
            returns=FoundSessionList,
            errors=(404,),
        ),
        json_endpoint(
            "admin",
            "POST /api/adoption/{name}/sessions/{id}",
            unless_log_fails(log, api.adopt_session),
            "Record one session of a program, and follow it",
            body=EmptyBody,
            returns=SessionOverview,
            errors=(404, 409),
        ),
        json_endpoint(
            "prompt",
            "GET /api/agents/{id}/sessions",
            api.agent_sessions,
            "List the sessions that an agent keeps itself; load opens one",
            query=AgentSessionsQuery,
            returns=AgentSessionPage,
            errors=(404, 422, 424),
        ),
    ]
