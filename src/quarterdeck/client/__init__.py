"""A typed client and a live store per session, over any transport that carries envelopes."""

from quarterdeck.client.agents import Agents
from quarterdeck.client.client import Client, Diagnostics
from quarterdeck.client.elicitations import Elicitations
from quarterdeck.client.inprocess import InProcessTransport
from quarterdeck.client.link import Link
from quarterdeck.client.permissions import Permissions
from quarterdeck.client.session import Session
from quarterdeck.client.sessions import Sessions
from quarterdeck.client.store import SessionStore
from quarterdeck.client.websocket import WebSocketTransport

__all__ = [
    "Agents",
    "Client",
    "Diagnostics",
    "Elicitations",
    "InProcessTransport",
    "Link",
    "Permissions",
    "Session",
    "SessionStore",
    "Sessions",
    "WebSocketTransport",
]
