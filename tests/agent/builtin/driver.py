"""The built-in agent with a client by hand, in one process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from quarterdeck.agent import AgentServer, BuiltinAgent, SessionStore
from quarterdeck.agent.builtin import BuiltinSettings, Setup, load_setup
from tests.agent.support import Hand, conversing

Json = dict[str, Any]

ALLOW = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
ALWAYS = {"outcome": {"outcome": "selected", "optionId": "allow_always"}}
REJECT = {"outcome": {"outcome": "selected", "optionId": "reject_once"}}


def setup_for(environ: dict[str, str] | None = None, **settings: Any) -> Setup:
    """Return the settings of a test: the demo model without pauses unless another is named."""
    setup = load_setup({"PATH": "/usr/local/bin:/usr/bin:/bin", **(environ or {})})
    chosen = BuiltinSettings(**{"demo_pause_seconds": 0.0, **settings})
    return msgspec.structs.replace(setup, settings=chosen)


class SessionDriver:
    """One session of the agent, and what a client does in it."""

    def __init__(self, hand: Hand, session_id: str) -> None:
        self.hand = hand
        self.session_id = session_id

    async def say(self, text: str) -> Json:
        """Prompt, and return the answer: `result` or `error`."""
        return await self.hand.prompt(self.session_id, text)

    async def use(self, tool: str, arguments: str = "{}") -> Json:
        """Let the demo model use a tool; return its last update."""
        seen = len(self.hand.updates("tool_call_update"))
        await self.say(f"/tool {tool} {arguments}")
        return self.hand.updates("tool_call_update")[seen:][-1]

    async def set_mode(self, mode: str) -> None:
        await self.hand.result("session/set_mode", sessionId=self.session_id, modeId=mode)

    def answer_permissions(self, *answers: Json) -> list[Json]:
        """Answer the next permission requests, all others with the last answer; return them."""
        permissions: list[Json] = []

        def answer(params: Json) -> Json:
            permissions.append(params)
            return answers[min(len(permissions), len(answers)) - 1]

        self.hand.answers["session/request_permission"] = answer
        return permissions

    @property
    def text(self) -> str:
        return "".join(self.hand.texts())


@asynccontextmanager
async def at_work(
    folder: Path,
    setup: Setup | None = None,
    *,
    store: SessionStore | None = None,
    capabilities: Json | None = None,
    initial_message: str | None = None,
    **session: Any,
) -> AsyncIterator[SessionDriver]:
    """Open a session in `folder`; permissions are given unless the test says otherwise."""
    agent = BuiltinAgent(setup or setup_for())
    server = AgentServer(agent, store=store, initial_message=initial_message)
    async with (
        server.running(),
        conversing(server, capabilities=capabilities) as hand,
    ):
        session_id = await hand.open_session(cwd=str(folder), **session)
        driver = SessionDriver(hand, session_id)
        driver.answer_permissions(ALLOW)
        yield driver


def texts_of(update: Json) -> str:
    """Return the text in the content of a tool call's update."""
    return "".join(
        each["content"]["text"] for each in update.get("content", ()) if each["type"] == "content"
    )
