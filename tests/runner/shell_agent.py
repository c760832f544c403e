"""An ACP agent that runs each prompt as a shell script and answers with its output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def prompt(params: dict[str, Any]) -> dict[str, Any]:
    script = params["prompt"][0]["text"]
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PROMPT_META": json.dumps(params.get("_meta"))},
    )
    content = {"type": "text", "text": f"[{done.stdout}{done.stderr}]"}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    params = {"sessionId": params["sessionId"], "update": update}
    send({"method": "session/update", "params": params})
    return {"stopReason": "end_turn"}


def main() -> None:
    count = 0
    for line in sys.stdin:
        message = json.loads(line)
        result: dict[str, Any] = {}
        match message.get("method"):
            case "initialize":
                result = {"protocolVersion": 1, "agentCapabilities": {}}
            case "session/new":
                count += 1
                result = {"sessionId": f"{os.getpid()}-{count}"}
            case "session/prompt":
                result = prompt(message["params"])
            case _:
                pass
        if "id" in message:
            send({"id": message["id"], "result": result})


if __name__ == "__main__":
    main()
