"""A typed client with a live store per session, over any transport that carries envelopes."""

from quarterdeck.client.client import Agents, Client, Diagnostics
from quarterdeck.client.connection import ClientConnection
from quarterdeck.client.in_process import InProcessTransport
from quarterdeck.client.requests import Elicitations, Permissions
from quarterdeck.client.sessions import LiveSession, SessionCollection, SessionHandle
from quarterdeck.client.websocket import WebSocketTransport

__all__ = [
    "Agents",
    "Client",
    "ClientConnection",
    "Diagnostics",
    "Elicitations",
    "InProcessTransport",
    "LiveSession",
    "Permissions",
    "SessionCollection",
    "SessionHandle",
    "WebSocketTransport",
]
