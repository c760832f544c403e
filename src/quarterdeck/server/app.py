"""The hub as an application: the route table, and the guard in front of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.server.api import (
    agent_endpoints,
    approval_endpoints,
    file_endpoints,
    folder_endpoints,
    operation_endpoints,
    prompt_endpoints,
    push_endpoints,
    session_endpoints,
    transcript_endpoints,
)
from quarterdeck.server.gate_api import gate_endpoints
from quarterdeck.server.handling import Asked, json_app
from quarterdeck.server.hub import Hub
from quarterdeck.server.openapi import openapi
from quarterdeck.server.page_files import page_endpoints
from quarterdeck.server.refusals import error_response
from quarterdeck.server.routes import Asgi, Endpoint, make_router, send_refusal
from quarterdeck.server.streams import StreamSources, stream_endpoints

Part = Callable[[Hub], list[Endpoint]]

PARTS: tuple[Part, ...] = (
    operation_endpoints,
    agent_endpoints,
    session_endpoints,
    prompt_endpoints,
    approval_endpoints,
    transcript_endpoints,
    folder_endpoints,
    file_endpoints,
    push_endpoints,
    lambda hub: stream_endpoints(stream_sources(hub)),
    lambda hub: gate_endpoints(hub.gate),
)


def stream_sources(hub: Hub) -> StreamSources:
    """Return what the streams use of a hub."""
    return StreamSources(
        host=hub.host,
        approvals=hub.approvals,
        manager=hub.keeper,
        create_session=hub.create_session,
        owner=hub.keeps,
        library=hub.library,
        queue_news=hub.prompts.news,
        devices=hub.gate.devices,
        before_end=hub.before_end,
    )


def hub_endpoints(hub: Hub) -> list[Endpoint]:
    """Return every way into a hub."""
    endpoints = [endpoint for part in (*PARTS, *hub.parts) for endpoint in part(hub)]
    document = openapi([*endpoints, _document_endpoint({})])

    return [*endpoints, _document_endpoint(document)]


def _document_endpoint(document: dict[str, object]) -> Endpoint:
    async def tell(_asked: Asked) -> dict[str, object]:
        return document

    return Endpoint(
        method="GET",
        path="/openapi.json",
        scope="view",
        app=json_app(tell),
        summary="This document",
        tag="operations",
        answer=dict,
    )


def hub_app(hub: Hub, *, more: Sequence[Endpoint] = ()) -> Asgi:
    """Return the application of an open hub; `more` are endpoints of somebody else."""
    endpoints = [*hub_endpoints(hub), *page_endpoints(), *more]
    router = make_router(endpoints)
    router.default = _nowhere
    return hub.gate.guard(router)


async def _nowhere(scope: AsgiScope, receive: Receive, send: Send) -> None:
    message = f"there is nothing at {scope['path']!r}; /openapi.json tells what there is"
    response = error_response(404, "quarterdeck/not-found", message)
    await send_refusal(response, scope, receive, send)
