#!/usr/bin/env python3
"""The agent that every contender talks to: blocking, no event loop, as cheap as Python allows.

    session/prompt            writes the file named on the command line, then answers `end_turn`
    any other request         is answered at once

The notifications in the file were serialised beforehand, so the agent is never the bottleneck.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

NOTIFICATIONS = Path(sys.argv[1]).read_bytes() if len(sys.argv) > 1 else b""
REQUEST_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)')
RESULTS = {
    b'"session/prompt"': b'{"stopReason":"end_turn"}',
    b'"initialize"': b'{"protocolVersion":1,"agentCapabilities":{}}',
    b'"session/new"': b'{"sessionId":"s"}',
}


def answer(line: bytes) -> bytes:
    found = REQUEST_ID.search(line)
    if found is None:
        return b""
    result = next((result for name, result in RESULTS.items() if name in line), b"{}")
    before = NOTIFICATIONS if b'"session/prompt"' in line else b""
    return b'%b{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (before, found[1], result)


def write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view[: 1 << 18]) :]


def main() -> None:
    rest = b""
    while data := os.read(0, 1 << 18):
        *lines, rest = (rest + data).split(b"\n")
        write(b"".join(map(answer, lines)))


if __name__ == "__main__":
    main()
