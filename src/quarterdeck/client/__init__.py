"""A typed client with a live store per session, over any transport that carries envelopes."""

from quarterdeck.client.client import Agents, Client, Diagnostics
from quarterdeck.client.in_process import InProcessTransport
from quarterdeck.client.link import Link
from quarterdeck.client.requests import Elicitations, Permissions
from quarterdeck.client.sessions import LiveSession, SessionCollection, SessionHandle
from quarterdeck.client.websocket import WebSocketTransport

__all__ = [
    "Agents",
    "Client",
    "Diagnostics",
    "Elicitations",
    "InProcessTransport",
    "Link",
    "LiveSession",
    "Permissions",
    "SessionCollection",
    "SessionHandle",
    "WebSocketTransport",
]
