"""The HTTP edge of every server and client in this package.

`server`, `limits`, `asgi`, `origins` and `headers` protect a server from untrusted clients; `sse`,
`websocket` and `keepalive` carry streams; `client` and `public_addresses` make requests;
`remote_agent` connects to agents at a URL. Nothing here knows a web framework, an agent or a hub:
applications are plain ASGI callables, passed in by the caller.

Names are loaded on first use: `server` imports uvicorn, and a command that needs no server starts
without it. `client` imports httpx with its first request, for the same reason.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quarterdeck.http.asgi import (
        Application,
        BodyLimits,
        Message,
        Receive,
        Send,
        read_body,
    )
    from quarterdeck.http.certificate_pins import (
        certificate_pin,
        pin_fingerprint,
        pinned_context,
    )
    from quarterdeck.http.certificates import (
        check_certificate,
        trust,
    )
    from quarterdeck.http.client import (
        EmbeddedExchange,
        HttpExchange,
        HubApi,
        OutgoingRequest,
        RequestFailed,
        send_request,
    )
    from quarterdeck.http.headers import (
        id_of_segment,
        path_segment,
        secured,
    )
    from quarterdeck.http.keepalive import (
        KeepAlive,
    )
    from quarterdeck.http.limits import (
        Capacity,
        ConnectionLimits,
        capacity_for,
    )
    from quarterdeck.http.origins import (
        Listening,
        OriginCheck,
        Site,
        check_listening,
        origin_check,
        sites,
    )
    from quarterdeck.http.public_addresses import (
        AddressNotPublic,
        is_public,
        resolve_public,
    )
    from quarterdeck.http.remote_agent import (
        RemoteTransport,
        open_remote,
        shown_url,
        url_problem,
    )
    from quarterdeck.http.server import (
        ServerOptions,
        listening,
        running_server,
        server_config,
    )
    from quarterdeck.http.sse import (
        EventBuffer,
        EventStream,
        serve_events,
    )
    from quarterdeck.http.websocket import (
        AcpWebSocketTransport,
        WebSocketConnection,
        accept_websocket,
    )

_MODULES = {
    "AcpWebSocketTransport": "websocket",
    "AddressNotPublic": "public_addresses",
    "Application": "asgi",
    "BodyLimits": "asgi",
    "Capacity": "limits",
    "ConnectionLimits": "limits",
    "EmbeddedExchange": "client",
    "EventBuffer": "sse",
    "EventStream": "sse",
    "HttpExchange": "client",
    "HubApi": "client",
    "KeepAlive": "keepalive",
    "Listening": "origins",
    "Message": "asgi",
    "OriginCheck": "origins",
    "OutgoingRequest": "client",
    "Receive": "asgi",
    "RemoteTransport": "remote_agent",
    "RequestFailed": "client",
    "Send": "asgi",
    "ServerOptions": "server",
    "Site": "origins",
    "WebSocketConnection": "websocket",
    "accept_websocket": "websocket",
    "capacity_for": "limits",
    "certificate_pin": "certificate_pins",
    "check_certificate": "certificates",
    "check_listening": "origins",
    "id_of_segment": "headers",
    "is_public": "public_addresses",
    "listening": "server",
    "open_remote": "remote_agent",
    "origin_check": "origins",
    "path_segment": "headers",
    "pin_fingerprint": "certificate_pins",
    "pinned_context": "certificate_pins",
    "read_body": "asgi",
    "resolve_public": "public_addresses",
    "running_server": "server",
    "secured": "headers",
    "send_request": "client",
    "serve_events": "sse",
    "server_config": "server",
    "shown_url": "remote_agent",
    "sites": "origins",
    "trust": "certificates",
    "url_problem": "remote_agent",
}

__all__ = [
    "AcpWebSocketTransport",
    "AddressNotPublic",
    "Application",
    "BodyLimits",
    "Capacity",
    "ConnectionLimits",
    "EmbeddedExchange",
    "EventBuffer",
    "EventStream",
    "HttpExchange",
    "HubApi",
    "KeepAlive",
    "Listening",
    "Message",
    "OriginCheck",
    "OutgoingRequest",
    "Receive",
    "RemoteTransport",
    "RequestFailed",
    "Send",
    "ServerOptions",
    "Site",
    "WebSocketConnection",
    "accept_websocket",
    "capacity_for",
    "certificate_pin",
    "check_certificate",
    "check_listening",
    "id_of_segment",
    "is_public",
    "listening",
    "open_remote",
    "origin_check",
    "path_segment",
    "pin_fingerprint",
    "pinned_context",
    "read_body",
    "resolve_public",
    "running_server",
    "secured",
    "send_request",
    "serve_events",
    "server_config",
    "shown_url",
    "sites",
    "trust",
    "url_problem",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
