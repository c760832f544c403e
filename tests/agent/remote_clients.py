"""The official TypeScript SDK's client over Streamable HTTP and WebSockets: runs an order."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from tests.agent.builtin.official_clients import NODE, ROOT

Json = dict[str, Any]

SDK = ROOT / ".peers/node_modules/@agentclientprotocol/sdk/dist"
SCRIPT = Path(__file__).with_name("remote_client.mjs")
SECONDS = 60


@dataclass(frozen=True)
class Seen:
    answers: list[Any]
    updates: list[Json]
    permissions: list[Json]
    errors: list[Json]
    requests: list[tuple[str, int, str]]
    """Method, status and session of each request on HTTP."""

    def text(self, kind: str = "agent_message_chunk") -> str:
        found = (each for each in self.updates if each["sessionUpdate"] == kind)
        return "".join(each["content"]["text"] for each in found)


async def remote_client(url: str, token: str | None, **order: Any) -> Seen:
    """Connect to `url`, a ws: or http: address, and run an order."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    kind = "ws" if url.startswith("ws") else "http"
    known = {"sdk": str(SDK), "kind": kind, "url": url, "headers": headers, "prompts": []}
    text = json.dumps({**known, **order}).encode()
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process(
            [str(NODE), str(SCRIPT)], input=text, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 0, done.stderr.decode()
    return Seen(**json.loads(done.stdout))
