"""An agent that floods: `flood_agent.py COUNT`. A prompt writes COUNT updates at full speed.

Plain blocking writes of prepared bytes, so that the agent is always faster than its reader.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

RESULTS: dict[str, Any] = {
    "initialize": {"protocolVersion": 1, "agentCapabilities": {}},
    "session/new": {"sessionId": "flood"},
    "session/prompt": {"stopReason": "end_turn"},
}


def update(n: int) -> bytes:
    content = {"type": "text", "text": f"{n} " + "x" * 100}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    params = {"sessionId": "flood", "update": update}
    return message({"method": "session/update", "params": params})


def message(fields: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **fields}).encode() + b"\n"


def write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view[: 1 << 16]) :]


def main() -> None:
    flood = b"".join(map(update, range(int(sys.argv[1]))))
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("method") == "session/prompt":
            write(flood)
        if "id" in request:
            result = RESULTS.get(request.get("method"), {})
            write(message({"id": request["id"], "result": result}))


if __name__ == "__main__":
    main()
