"""The same agent as `official_agent.py`, built on our connection over standard input and output."""

from __future__ import annotations

from typing import Any

import anyio

from quarterdeck.wire import Connection, method_not_found, open_connection, stdio_transport


class OneToolAgent:
    """Streams the prompt word by word, requests permission, reports the choice."""

    connection: Connection

    def __init__(self) -> None:
        self._cancelled = anyio.Event()

    async def on_request(self, method: str, params: Any) -> Any:
        match method:
            case "initialize":
                return {"protocolVersion": params["protocolVersion"], "agentCapabilities": {}}
            case "session/new":
                return {"sessionId": f"session in {params['cwd']}"}
            case "session/prompt":
                return {"stopReason": await self._prompt(**params)}
            case _:
                raise method_not_found(method)

    def on_notification(self, method: str, _params: Any) -> None:
        if method == "session/cancel":
            self._cancelled.set()

    async def _prompt(self, *, sessionId: str, prompt: list[Any]) -> str:  # noqa: N803
        text: str = prompt[0]["text"]
        if text == "wait":
            await self._say(sessionId, "waiting")
            await self._cancelled.wait()
            return "cancelled"
        for word in text.split():
            await self._say(sessionId, word)
        request = {
            "sessionId": sessionId,
            "toolCall": {"toolCallId": "t1", "title": "write a file"},
            "options": [
                {"optionId": "yes", "name": "Allow", "kind": "allow_once"},
                {"optionId": "no", "name": "Reject", "kind": "reject_once"},
            ],
        }
        answer: Any = await self.connection.call("session/request_permission", request)
        await self._say(sessionId, answer["outcome"]["optionId"])
        return "end_turn"

    async def _say(self, session_id: str, text: str) -> None:
        content = {"type": "text", "text": text}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        await self.connection.notify("session/update", {"sessionId": session_id, "update": update})


async def main() -> None:
    agent = OneToolAgent()
    async with open_connection(
        stdio_transport(), on_notification=agent.on_notification, on_request=agent.on_request
    ) as agent.connection:
        await agent.connection.wait_closed()


if __name__ == "__main__":
    anyio.run(main)
