"""The streams and WebSockets of the route table."""

from __future__ import annotations

from typing import Annotated

import msgspec

from quarterdeck.http.keepalive import TICK_SECONDS
from quarterdeck.hub.api.endpoint import Endpoint
from quarterdeck.hub.context.connection import context_app
from quarterdeck.hub.streams.envelope import envelope_app
from quarterdeck.hub.streams.service import (
    Handler,
    Streams,
    host_events,
    many_events,
    packets,
    session_events,
)
from quarterdeck.hub.streams.sources import StreamSources


class SessionFrom(msgspec.Struct, frozen=True, kw_only=True):
    """Where to begin."""

    from_seq: Annotated[
        str,
        msgspec.Meta(
            pattern="^([0-9A-Za-z]+-)?[0-9]+$",
            description="After which event to begin: EPOCH-SEQ, as an id gave it, or SEQ; "
            "Last-Event-ID wins over it.",
        ),
    ] = "0"


class HostFrom(msgspec.Struct, frozen=True, kw_only=True):
    """Where to begin."""

    from_seq: Annotated[
        str,
        msgspec.Meta(
            description="EPOCH-SEQ, as an id gave it, or SEQ; without it a `reset` has the "
            "current state. Last-Event-ID wins over it."
        ),
    ] = ""


class ManyFrom(msgspec.Struct, frozen=True, kw_only=True):
    """What to follow, and where to begin."""

    session: Annotated[
        list[str], msgspec.Meta(description="ID:EPOCH-SEQ or ID:SEQ; once for each session.")
    ] = []
    host: Annotated[
        str,
        msgspec.Meta(description="Present to follow the host too: EPOCH-SEQ, SEQ, or empty."),
    ] = ""


def stream_endpoints(
    sources: StreamSources, *, tick_seconds: float = TICK_SECONDS
) -> list[Endpoint]:
    """Return all streams and WebSockets of a hub."""
    streams = Streams(sources, tick_seconds)
    return [*_event_streams(streams), *_sockets(streams)]


def _sockets(streams: Streams) -> list[Endpoint]:
    context = context_app(streams)
    return [
        Endpoint(
            method="GET",
            path="/api/envelope",
            scope="view",
            app=envelope_app(streams),
            summary="Everything a client of the host's envelopes does, over a WebSocket",
            kind="websocket",
            tag="streams",
        ),
        *(
            Endpoint(
                method="GET",
                path=path,
                # A client without a token in its head authenticates by a frame.
                scope=None,
                app=context,
                summary="Sessions and commands in the Agent Context Protocol, over a WebSocket",
                kind="websocket",
                tag="streams",
            )
            for path in ("/api/context", "/ws")
        ),
    ]


def _event_streams(streams: Streams) -> list[Endpoint]:
    refused = (400, 404, 429, 503)
    session = "/api/sessions/{session_id}"

    def stream(path: str, handler: Handler, query: type, summary: str) -> Endpoint:
        return Endpoint(
            method="GET",
            path=path,
            scope="view",
            app=streams.events(handler),
            summary=summary,
            kind="sse",
            tag="streams",
            query=query,
            errors=refused if query is not HostFrom else (400, 429),
        )

    follow_session = "Follow a session: every event after a number, then live"
    follow_host = "Follow the host: agents, sessions and pending requests"
    follow_many = "Follow several sessions and the host on one connection"
    return [
        stream(f"{session}/events", session_events, SessionFrom, follow_session),
        stream(f"{session}/packets", packets, SessionFrom, "Follow a session as packets"),
        stream("/api/events", host_events, HostFrom, follow_host),
        stream("/api/stream", many_events, ManyFrom, follow_many),
    ]
