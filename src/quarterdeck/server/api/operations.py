"""For whoever looks after a hub: is it well, what does it do, what can be asked of it."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType
from starlette.responses import Response

from quarterdeck._version import __version__
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.server.handling import Answer, Asked, way
from quarterdeck.server.hub import Hub
from quarterdeck.server.metrics import CONTENT_TYPE, metrics_text
from quarterdeck.server.routes import Endpoint


class Health(Answer, frozen=True, kw_only=True):
    """Without details: everybody may ask."""

    status: Literal["ok", "degraded"]
    """Degraded: the log cannot be written, so nothing new is taken."""


class HubFacts(Answer, frozen=True, kw_only=True):
    version: str
    started_at: str
    sessions: int
    agents: int
    pending_approvals: int
    queued_prompts: int
    home: str | UnsetType = UNSET
    """The data directory; told to admins."""


def operation_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the part of the route table for operators."""

    async def health(_asked: Asked) -> Health:
        return Health(status="ok" if hub.is_healthy else "degraded")

    async def metrics(_asked: Asked) -> Response:
        return Response(await metrics_text(hub), headers={"content-type": CONTENT_TYPE})

    async def facts(asked: Asked) -> HubFacts:
        return HubFacts(
            version=__version__,
            started_at=iso_seconds(hub.started_at),
            sessions=len(hub.library.all()),
            agents=len(hub.host.get_agents()),
            pending_approvals=hub.pending_approvals,
            queued_prompts=await hub.prompts.length(),
            home=str(hub.options.home) if asked.by.may("admin") else UNSET,
        )

    return [
        way(None, "GET /healthz", health, "Tell whether the hub is well", answer=Health),
        way("view", "GET /metrics", metrics, "Metrics in the text format of Prometheus"),
        way("view", "GET /api/hub", facts, "Facts about the hub", answer=HubFacts),
    ]
