"""How phones can reach the hub, over HTTP: what `up --phone` and `doctor` print, for the page."""

from __future__ import annotations

from quarterdeck.hub.api.endpoint import ApiRequest, Endpoint, json_endpoint
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.reach import Reach


def reach_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the part of the route table about phones."""

    async def show(_request: ApiRequest) -> Reach:
        return await hub.reach_report()

    return [
        json_endpoint(
            "admin", "GET /api/reach", show, "Show how phones can reach the hub", returns=Reach
        )
    ]
