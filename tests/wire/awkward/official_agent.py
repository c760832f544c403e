"""An agent built on the official Python SDK: one session, one tool call that needs permission."""

import asyncio  # noqa: TID251 - the official SDK stands on it
from typing import Any

from acp import (
    Client,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    run_agent,
    update_agent_message_text,
)
from acp.schema import PermissionOption, ToolCallUpdate


class OneToolAgent:
    """Streams three chunks, requests permission, reports the choice; `wait` waits for a cancel."""

    def __init__(self) -> None:
        self._cancelled = asyncio.Event()

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id=f"session in {cwd}")

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        if prompt[0].text == "wait":
            await self._say(session_id, "waiting")
            await self._cancelled.wait()
            return PromptResponse(stop_reason="cancelled")
        for word in prompt[0].text.split():
            await self._say(session_id, word)
        answer = await self._client.request_permission(
            session_id=session_id,
            tool_call=ToolCallUpdate(tool_call_id="t1", title="write a file"),
            options=[
                PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
                PermissionOption(option_id="no", name="Reject", kind="reject_once"),
            ],
        )
        await self._say(session_id, answer.outcome.model_dump_json(by_alias=True))
        return PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._cancelled.set()

    async def _say(self, session_id: str, text: str) -> None:
        await self._client.session_update(session_id, update_agent_message_text(text))


if __name__ == "__main__":
    agent: Any = OneToolAgent()  # the SDK asks for all methods of the protocol, and needs these
    asyncio.run(run_agent(agent))
