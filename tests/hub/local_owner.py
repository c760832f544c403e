"""A hub as programs of its owner use it: by its Unix socket, without a token."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from typing_extensions import override
from websockets.asyncio.client import connect

from quarterdeck.http.unix_sockets import connected

PATIENCE = 90.0


class SocketConnection(http.client.HTTPConnection):
    """HTTP over the socket of a hub."""

    def __init__(self, home: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = home / "hub.sock"

    @override
    def connect(self) -> None:
        self.sock = connected(self._path)
        self.sock.settimeout(PATIENCE)


def owner_call(home: Path, method: str, path: str, body: Any = None) -> Any:
    """Make a request of the owner; raise if it is refused."""
    connection = SocketConnection(home)
    try:
        headers = {} if body is None else {"Content-Type": "application/json"}
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        said = answer.read()
    finally:
        connection.close()
    assert answer.status < 400, (method, path, answer.status, said)
    return json.loads(said) if said else None


def make_token(home: Path, scope: str = "admin") -> str:
    """Return a token that the owner makes for a program."""
    made = owner_call(home, "POST", "/api/devices", {"name": "a test", "scope": scope})
    token: str = made["token"]
    return token


def owner_websocket(home: Path, path: str) -> connect:
    """Open a WebSocket of the owner."""
    return connect(f"ws://localhost{path}", sock=connected(home / "hub.sock"), proxy=None)
