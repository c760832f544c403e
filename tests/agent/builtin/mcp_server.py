"""A server of the Model Context Protocol for tests: `mcp_server.py [broken|silent|TOOLS]`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

EMPTY = {"type": "object", "properties": {}}
TOOLS = [
    {
        "name": "look",
        "description": "Say where we are",
        "inputSchema": EMPTY,
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "touch",
        "description": "Make a file",
        "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    },
    {"name": "dawdle", "inputSchema": EMPTY},
    {"name": "die", "inputSchema": EMPTY, "annotations": {"readOnlyHint": True}},
]


def call(name: str, arguments: dict[str, Any]) -> Any:
    if name == "touch":
        Path(arguments["name"]).touch()
        return {"content": [{"type": "text", "text": "made"}], "isError": False}
    if name == "die":
        os._exit(3)
    where = f"{Path.cwd()} {os.environ.get('GIVEN')} {os.environ.get('OPENAI_API_KEY')}"
    return {"content": [{"type": "text", "text": where}], "isError": False}


def answer(method: str, params: dict[str, Any]) -> Any:
    if method == "initialize":
        version = params["protocolVersion"]
        server = {"name": "test", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list" and sys.argv[1:]:
        return {"tools": json.loads(sys.argv[1])}
    if method == "tools/list":
        cursor = int(params.get("cursor", 0))
        page: dict[str, Any] = {"tools": TOOLS[cursor : cursor + 1]}
        return page if cursor + 1 == len(TOOLS) else {**page, "nextCursor": str(cursor + 1)}
    return call(params["name"], params["arguments"])


def main() -> None:
    if sys.argv[1:] == ["broken"]:
        sys.exit("no such database")
    if sys.argv[1:] == ["silent"]:
        time.sleep(1000)
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path("pids").write_text(f"{os.getpid()} {child.pid}")
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            Path("cancelled").write_text(json.dumps(message["params"]))
        elif (message.get("params") or {}).get("name") == "dawdle":
            Path("dawdling").write_text(json.dumps(message["id"]))
        elif "id" in message and "method" in message:
            result = answer(message["method"], message.get("params") or {})
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
