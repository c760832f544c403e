"""The clients of the official SDKs: each follows an order and reports what it saw.

An order names the agent's `command`, its `folder`, the session to `load` if there is one, and the
`steps`: a `mode` to set, or a `prompt` with the kind of `answer` to permission requests and
the text that it is to be cancelled after (`cancelAfter`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import acp
import acp.schema
import anyio
from acp.connection import StreamDirection, StreamEvent

from tests.agent.official import check_all

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[3]
NODE = Path(sys.executable).with_name("node")
SDK = ROOT / ".peers/node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js"
SCRIPT = Path(__file__).with_name("typescript_client.mjs")
SECONDS = 60


@dataclass(frozen=True)
class Report:
    output: list[Json]
    """Every message of the agent, as it was sent."""
    called: dict[Any, str]
    """The methods of the client's requests by their ids."""
    answers: list[Json]
    updates: list[Json]
    permissions: list[Json]
    status: int | None

    def check(self) -> None:
        """Hold what the agent sent against ACP's schema, and its end against what is expected."""
        check_all(self.output, self.called)
        assert self.status == 0

    def text(self, kind: str = "agent_message_chunk") -> str:
        found = (each for each in self.updates if each["sessionUpdate"] == kind)
        return "".join(each["content"]["text"] for each in found)

    def tool_calls(self) -> list[Json]:
        """Return the calls with the last update of each."""
        calls: dict[str, Json] = {}
        for each in self.updates:
            if each["sessionUpdate"] in ("tool_call", "tool_call_update"):
                calls.setdefault(each["toolCallId"], {}).update(each)
        return list(calls.values())


async def typescript(order: Json) -> Report:
    """Run the order with the TypeScript SDK's client."""
    command = [str(NODE), str(SCRIPT)]
    order_text = json.dumps({**order, "sdk": str(SDK)}).encode()
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process(
            command, input=order_text, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 0, done.stderr.decode()
    seen = json.loads(done.stdout)
    seen["output"] = [json.loads(line) for line in seen["output"].splitlines()]
    seen["called"] = {int(request_id): method for request_id, method in seen["called"].items()}
    return Report(**seen)


class PythonClient:
    """What the Python SDK calls when the agent says or asks something."""

    def __init__(self) -> None:
        self.updates: list[Json] = []
        self.permissions: list[Json] = []
        self.answer: str | None = None
        self.awaited: str | None = None
        self.seen = anyio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(_plain(update))
        text_seen = getattr(getattr(update, "content", None), "text", "")
        if self.awaited and self.awaited in text_seen:
            self.seen.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> acp.RequestPermissionResponse:
        self.permissions.append(_plain(tool_call))
        chosen = next(each.option_id for each in options if each.kind == self.answer)
        outcome = acp.schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return acp.RequestPermissionResponse(outcome=outcome)


async def python(order: Json) -> Report:
    """Run the order with the Python SDK's client."""
    client = PythonClient()
    output: list[Json] = []
    called: dict[Any, str] = {}

    def observe(event: StreamEvent) -> None:
        if event.direction is StreamDirection.INCOMING:
            output.append(event.message)
        elif "id" in event.message and "method" in event.message:
            called[event.message["id"]] = event.message["method"]

    with anyio.fail_after(SECONDS):
        async with acp.spawn_agent_process(
            cast("acp.Client", client),  # it has what these tests need
            *order["command"],
            env=dict(os.environ),
            transport_kwargs={"stderr": None, "shutdown_timeout": 60},
            observers=[observe],
        ) as (agent, process):
            answers = [_plain(each) for each in await _converse(agent, client, order)]
    return Report(output, called, answers, client.updates, client.permissions, process.returncode)


async def _converse(agent: Any, client: PythonClient, order: Json) -> list[Any]:
    answers = [await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)]
    session_id = order.get("load")
    if session_id:
        loaded = await agent.load_session(
            cwd=order["folder"], session_id=session_id, mcp_servers=[]
        )
        answers.append(loaded)
    else:
        answers.append(await agent.new_session(cwd=order["folder"], mcp_servers=[]))
        session_id = answers[-1].session_id
    for step in order["steps"]:
        if "mode" in step:
            answers.append(
                await agent.set_session_mode(mode_id=step["mode"], session_id=session_id)
            )
        else:
            answers.append(await _prompt(agent, client, session_id, step))
    return answers


async def _prompt(agent: Any, client: PythonClient, session_id: str, step: Json) -> Any:
    async def cancel() -> None:
        await client.seen.wait()
        await agent.cancel(session_id)

    client.answer, client.awaited = step.get("answer"), step.get("cancelAfter")
    async with anyio.create_task_group() as tasks:
        if client.awaited:
            tasks.start_soon(cancel)
        return await agent.prompt(session_id=session_id, prompt=[acp.text_block(step["prompt"])])


def _plain(model: Any) -> Json:
    """Return a model of the SDK as the JSON it stands for; what is missing is an empty answer."""
    if model is None:
        return {}
    plain: Json = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return plain
