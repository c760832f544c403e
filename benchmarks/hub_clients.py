"""Many clients of one stream in one process: they read as fast as they can and look for the end.

    python benchmarks/hub_clients.py sse|ws PORT TOKEN SESSION CLIENTS

Says `ready` when all have caught up; then one JSON line when all have seen the end of the turn:
when that was, by the clock that all processes share, and how late paced events came.
"""

from __future__ import annotations

import base64
import json
import os
import re
import resource
import selectors
import socket
import sys
import time

END = b'"prompt-finished"'
TIMES = re.compile(rb"T(\d+\.\d{6})T")
OVERLAP = 64
READ = 1 << 18


def request(kind: str, port: str, token: str, session: str) -> bytes:
    auth = f"Authorization: Bearer {token}\r\n" if token else ""
    host = f"Host: 127.0.0.1:{port}\r\n{auth}"
    if kind == "sse":
        return f"GET /api/sessions/{session}/events HTTP/1.1\r\n{host}\r\n".encode()
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: {key}\r\n"
    return (
        f"GET /api/envelope HTTP/1.1\r\n{host}{upgrade}Sec-WebSocket-Version: 13\r\n\r\n".encode()
    )


def frame(text: str) -> bytes:
    data = text.encode()
    assert len(data) < 126 or len(data) < 65536
    size = bytes([128 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    return b"\x81" + size + b"\0\0\0\0" + data  # a mask of zeros: nothing to do


class Client:
    def __init__(self, kind: str, port: str, token: str, session: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", int(port)))
        self.socket.sendall(request(kind, port, token, session))
        self._wait_for(b"caught-up" if kind == "sse" else b'"hello"')
        if kind == "ws":
            asked = {"subscription": "1", "sessionId": session, "fromSeq": 0}
            self.socket.sendall(frame(json.dumps({"subscribe": asked})))
        self.socket.settimeout(0)
        self.rest = b""

    def _wait_for(self, mark: bytes) -> None:
        heard = b""
        while mark not in heard:
            data = self.socket.recv(READ)
            if not data:
                sys.exit(f"hub_clients.py: the server has closed the connection: {heard[:400]!r}")
            heard += data


def main() -> None:
    kind, port, token, session, count = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, most), most))
    selector = selectors.DefaultSelector()
    for _ in range(int(count)):
        client = Client(kind, port, token, session)
        selector.register(client.socket, selectors.EVENT_READ, client)
    print("ready", flush=True)
    left, received, late = int(count), 0, []
    while left:
        for key, _ in selector.select():
            client = key.data
            data = client.socket.recv(READ)
            now = time.perf_counter()
            if not data:
                sys.exit("hub_clients.py: the server has closed a connection")
            received += len(data)
            seen = client.rest + data
            client.rest = data[-OVERLAP:] if len(data) >= OVERLAP else seen[-OVERLAP:]
            if len(data) < 4096:
                late += [now - float(said) for said in TIMES.findall(data)]
            if END in seen:
                selector.unregister(client.socket)
                left -= 1
    late.sort()
    facts = {"ended": time.perf_counter(), "bytes": received}
    if late:
        facts |= {
            "heard": len(late),
            "p50_ms": late[len(late) // 2] * 1000,
            "p99_ms": late[len(late) * 99 // 100] * 1000,
        }
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
