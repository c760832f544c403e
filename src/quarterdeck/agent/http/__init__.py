"""Serves an agent on HTTP: ACP's Streamable HTTP and WebSockets, and the routes of seed 004."""

from quarterdeck.agent.http.app import HttpApp, HttpOptions, http_app, serve_http
from quarterdeck.agent.http.posted import BodyReader
from quarterdeck.agent.http.sockets import WebSockets
from quarterdeck.agent.http.streamable_app import Caller, StreamableHttp, StreamableOptions
from quarterdeck.http.sse import ReplayLimits

__all__ = [
    "BodyReader",
    "Caller",
    "HttpApp",
    "HttpOptions",
    "ReplayLimits",
    "StreamableHttp",
    "StreamableOptions",
    "WebSockets",
    "http_app",
    "serve_http",
]
