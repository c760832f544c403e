"""The streams and WebSockets of a hub: their handlers and their part of the route table.

A handler reads cursors from the request, opens the logs (`StreamRequest.open`) and serves one
subscription for each. `/api/stream` (`_many_events`) is the one that the page uses.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from quarterdeck.errors import AcpError
from quarterdeck.http.keepalive import TICK_SECONDS
from quarterdeck.http.sse import EventStream, named_event
from quarterdeck.hub.api.endpoint import Endpoint
from quarterdeck.hub.context.connection import context_app
from quarterdeck.hub.streams.cursors import (
    host_cursor,
    many_cursors,
    packet_cursor,
    session_cursor,
    wants_prompts,
)
from quarterdeck.hub.streams.envelope import envelope_app
from quarterdeck.hub.streams.packets import PacketSubscription
from quarterdeck.hub.streams.service import StreamHandler, StreamRequest, StreamService
from quarterdeck.hub.streams.sources import StreamSources
from quarterdeck.hub.streams.subscription import (
    ForeignSubscription,
    HostLogSubscription,
    LogSubscription,
    MachineSubscription,
    MultiLogStream,
    QueueSubscription,
    RunnerSubscription,
    Sendable,
    send_subscriptions,
)


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


class PacketsFrom(SessionFrom, frozen=True, kw_only=True):
    """Where to begin, and whether prompts are part of the stream."""

    prompts: Annotated[
        Literal["none", "all"],
        msgspec.Meta(
            description="all: a user_message for each prompt, for a page that did not send it."
        ),
    ] = "none"


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


async def _session_events(request: StreamRequest) -> None:
    """Serve one session's log."""
    cursor = session_cursor(request.scope)
    subscription = LogSubscription(request.logs, await request.open(request.session_id), cursor)
    await request.serve(lambda stream: send_subscriptions(stream, [subscription]))


async def _host_events(request: StreamRequest) -> None:
    """Serve the host stream."""
    cursor = host_cursor(request.scope)
    subscription = HostLogSubscription(request.logs, await request.open(None), cursor)
    await request.serve(lambda stream: send_subscriptions(stream, [subscription]))


async def _many_events(request: StreamRequest) -> None:
    """Serve several logs; a session that is not there does not stop the others."""
    cursors = many_cursors(request.scope)
    combined = MultiLogStream(cursors, request.logs)
    missing: list[str] = []
    for index, (session_id, cursor) in enumerate(cursors.sessions):
        try:
            log = await request.open(session_id)
        except AcpError:
            missing.append(session_id)
        else:
            combined.add(
                index, LogSubscription(request.logs, log, cursor, combined.id_suffix(index))
            )
    if cursors.has_host:
        index = len(cursors.sessions)
        log, suffix = await request.open(None), combined.id_suffix(index)
        combined.add(index, HostLogSubscription(request.logs, log, cursors.host, suffix))

    async def send(stream: EventStream) -> None:
        for session_id in missing:
            await stream.send(named_event("ended", {"sessionId": session_id, "reason": "unknown"}))
        subscriptions: list[Sendable] = [*combined.subscriptions]
        if subscriptions:
            subscriptions.append(QueueSubscription(request.runner_notices, combined.subscriptions))
        if cursors.has_host:
            notices = request.runner_notices
            subscriptions.append(RunnerSubscription(notices, combined.subscriptions))
            subscriptions.append(MachineSubscription(notices, combined.subscriptions))
            subscriptions.append(ForeignSubscription(notices, combined.subscriptions))
        await send_subscriptions(stream, subscriptions)

    await request.serve(send)


async def _packets(request: StreamRequest) -> None:
    """Serve one session as packets."""
    cursor, prompts = packet_cursor(request.scope), wants_prompts(request.scope)
    log = await request.open(request.session_id)
    subscription = PacketSubscription(request.logs, log, cursor, prompts=prompts)
    await request.serve(subscription.send_to)


def stream_endpoints(
    sources: StreamSources, *, tick_seconds: float = TICK_SECONDS
) -> list[Endpoint]:
    """Return all streams and WebSockets of a hub."""
    streams = StreamService(sources, tick_seconds)
    return [*_event_streams(streams), *_sockets(streams)]


def _sockets(streams: StreamService) -> list[Endpoint]:
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


def _event_streams(streams: StreamService) -> list[Endpoint]:
    refused = (400, 404, 429, 503)
    session = "/api/sessions/{session_id}"

    def stream(path: str, handler: StreamHandler, query: type, summary: str) -> Endpoint:
        return Endpoint(
            method="GET",
            path=path,
            scope="view",
            app=streams.endpoint_app(handler),
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
        stream(f"{session}/events", _session_events, SessionFrom, follow_session),
        stream(f"{session}/packets", _packets, PacketsFrom, "Follow a session as packets"),
        stream("/api/events", _host_events, HostFrom, follow_host),
        stream("/api/stream", _many_events, ManyFrom, follow_many),
    ]
