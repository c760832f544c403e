"""For operators: health, facts, and metrics in the text format of Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

from msgspec import UNSET, UnsetType
from starlette.responses import Response

from quarterdeck._version import __version__
from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    EmptyBody,
    Endpoint,
    json_endpoint,
)
from quarterdeck.hub.hub import Hub
from quarterdeck.machine.free_memory import resident_bytes
from quarterdeck.protocol import AgentStatus, SessionStatus
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.storage import CompactedFile

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# A deleted session is not listed.
_SESSIONS: Final = tuple(status for status in get_args(SessionStatus) if status != "deleted")
_AGENTS: Final[tuple[str, ...]] = get_args(AgentStatus)


async def metrics_text(hub: Hub) -> str:
    """Return all metrics of a hub."""
    runner, sessions = hub.runner, hub.runner.sessions()
    by_status: Counter[str] = Counter(session.status for session in sessions)
    agents: Counter[str] = Counter(agent.status for agent in runner.agents())
    permissions = len(runner.pending_permissions())
    elicitations = len(runner.pending_elicitations())
    queued, health = await runner.count_queued_prompts(), runner.health()
    families = [
        _gauge("info", "The version that runs", {f'version="{__version__}"': 1}),
        _counter("events_total", "Events in the logs", sum(each.last_seq for each in sessions)),
        _gauge("sessions", "Sessions by status", _labelled("status", _SESSIONS, by_status)),
        _gauge("agents", "Agents by status", _labelled("status", _AGENTS, agents)),
        _gauge("subscribers", "Requests and streams that are open", {"": hub.open_connections}),
        _gauge("pending_permissions", "Pending permission requests", {"": permissions}),
        _gauge("pending_elicitations", "Pending elicitations", {"": elicitations}),
        _gauge("queued_prompts", "Queued prompts", {"": queued}),
        _counter("storage_failures_total", "Times the log failed", health.storage_failures),
        _gauge("log_healthy", "Whether the log can be written", {"": int(health.is_healthy)}),
        _gauge(
            "database_healthy", "Whether the database works", {"": int(hub.store.problem is None)}
        ),
        _gauge("log_damages", "Damages found in the log", {"": len(health.damages)}),
        _gauge("uptime_seconds", "Since the start", {"": int(time.time() - hub.started_at)}),
        _gauge("process_resident_bytes", "Memory of the hub itself", {"": resident_bytes()}),
    ]
    return "".join(families)


def _labelled(name: str, values: Iterable[str], counted: Counter[str]) -> dict[str, int]:
    return {f'{name}="{value}"': counted.get(value, 0) for value in values}


def _gauge(name: str, about: str, samples: Mapping[str, int]) -> str:
    return _family(name, "gauge", about, samples)


def _counter(name: str, about: str, value: int) -> str:
    return _family(name, "counter", about, {"": value})


def _family(name: str, kind: str, about: str, samples: Mapping[str, int]) -> str:
    name = f"quarterdeck_{name}"
    lines = [f"# HELP {name} {about}.", f"# TYPE {name} {kind}"]
    lines += [
        f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"
        for labels, value in samples.items()
    ]
    return "\n".join(lines) + "\n"


class Health(ApiResponse, frozen=True, kw_only=True):
    """Without details: no token is needed."""

    status: Literal["ok", "degraded", "damaged"]
    """Degraded: the log cannot be written, or the runner or the database not be reached; what
    cannot be stored is not taken.
    Damaged: stored events are not what was stored; `GET /api/hub` names them."""


class HubFacts(ApiResponse, frozen=True, kw_only=True):
    version: str
    started_at: str
    sessions: int
    agents: int
    pending_permissions: int
    queued_prompts: int
    damages: tuple[str, ...]
    """A sentence for each damage that was found in the log."""
    database_problem: str | UnsetType = UNSET
    """Why the database of the hub cannot be used at the moment, if so."""
    home: str | UnsetType = UNSET
    """The data folder; only for admins."""


class Compacted(ApiResponse, frozen=True, kw_only=True):
    """The sizes of the files in bytes."""

    files: list[CompactedFile]


def _health(hub: Hub) -> Health:
    found = hub.runner.health()
    if not found.is_healthy or not found.is_connected or hub.store.problem is not None:
        return Health(status="degraded")
    return Health(status="damaged" if found.damages else "ok")


def operation_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the part of the route table for operators."""

    async def health(_request: ApiRequest) -> Health:
        return _health(hub)

    async def metrics(_request: ApiRequest) -> Response:
        return Response(await metrics_text(hub), headers={"content-type": CONTENT_TYPE})

    async def facts(request: ApiRequest) -> HubFacts:
        return HubFacts(
            version=__version__,
            started_at=iso_seconds(hub.started_at),
            sessions=len(hub.runner.sessions()),
            agents=len(hub.runner.agents()),
            pending_permissions=len(hub.runner.pending_permissions()),
            queued_prompts=await hub.runner.count_queued_prompts(),
            damages=hub.runner.health().damages,
            database_problem=hub.store.problem or UNSET,
            home=str(hub.options.home) if request.by.may("admin") else UNSET,
        )

    async def compact(_request: ApiRequest) -> Compacted:
        return Compacted(files=[*await hub.runner.compact(), *await hub.store.compact()])

    return [
        json_endpoint(
            None, "GET /healthz", health, "Show whether the hub is healthy", returns=Health
        ),
        json_endpoint("view", "GET /metrics", metrics, "Metrics in the text format of Prometheus"),
        json_endpoint("view", "GET /api/hub", facts, "Facts about the hub", returns=HubFacts),
        json_endpoint(
            "admin",
            "POST /api/compact",
            compact,
            "Give free space of the log and the databases back to the disk",
            body=EmptyBody,
            returns=Compacted,
            errors=(503,),
        ),
    ]
