"""Editors that speak ACP 2, agents that do, and what an editor shows of a session."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override

from quarterdeck.agents import AgentSettings
from quarterdeck.hub import Hub
from quarterdeck.hub.auth.device import Scope
from quarterdeck.hub.editors import acp_endpoints
from quarterdeck.hub.editors.endpoints import EditorServer
from quarterdeck.wire import memory_pair, open_connection
from tests.hub.api.kit import Client, Json, options, running
from tests.hub.editors.kit import FakeEditor, owner_device
from tests.protocol.acp2_client import Client as Screen

INFO: Json = {"name": "editor", "version": "2"}
AGENT = Path(__file__).with_name("agent_v2.py")


class EditorV2(FakeEditor):
    """A client of ACP 2 that records every update with its session and numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[str, Json, Json]] = []
        """Session, update, and `_meta.quarterdeck` of the notification."""
        self.introduced: Json = {}

    @override
    def on_notification(self, method: str, params: Json) -> None:
        super().on_notification(method, params)
        if method == "session/update":
            number = params["_meta"]["quarterdeck"]
            self.received.append((params["sessionId"], params["update"], number))

    @override
    async def new(self, cwd: Path) -> str:
        made = await self.call("session/new", cwd=str(cwd))
        session_id: str = made["sessionId"]
        return session_id

    async def resume(self, session_id: str, cwd: Path, replay_from: Any = None) -> Json:
        more = {} if replay_from is None else {"replayFrom": replay_from}
        answer: Json = await self.call("session/resume", sessionId=session_id, cwd=str(cwd), **more)
        return answer

    async def turn(self, session_id: str, text: str = "go") -> Json:
        """Send a prompt, and wait until the agent is idle."""
        count = len(self.ends(session_id))
        answer = await self.prompt(session_id, text)
        await self.until(lambda: len(self.ends(session_id)) > count)
        return answer

    def states(self) -> list[str]:
        return [each["state"] for each in self.of("state_update")]

    def ends(self, session_id: str | None = None) -> list[Json]:
        """Return the ends of turns: of a session, or of all and their sub-agents."""
        return [
            each
            for named, each, _ in self.received
            if session_id in (None, named)
            and each["sessionUpdate"] == "state_update"
            and "stopReason" in each
        ]

    def of(self, name: str) -> list[Json]:
        return [each for each in self.updates if each["sessionUpdate"] == name]

    def screen(self, session_id: str) -> Json:
        """Return what a client shows after everything that came of a session."""
        return shown([each for named, each, _ in self.received if named == session_id])


def shown(updates: list[Json]) -> Json:
    screen = Screen()
    for each in updates:
        screen.take(without_numbers(each))
    found: Json = screen.shown()
    return found


def text_of(update: Json) -> str:
    """Return what an update adds to the agent's answer, whole or in pieces."""
    name, content = update["sessionUpdate"], update.get("content")
    if name == "agent_message_chunk":
        return str(update["content"]["text"])
    return "".join(each["text"] for each in content or ()) if name == "agent_message" else ""


def without_numbers(update: Json) -> Json:
    """Return an update without what Quarterdeck added."""
    meta = update.get("_meta")
    if not isinstance(meta, dict):
        return update
    rest = {key: value for key, value in meta.items() if key != "quarterdeck"}
    bare = {key: value for key, value in update.items() if key != "_meta"}
    return {**bare, "_meta": rest} if rest else bare


def after(number: Json) -> Json:
    """Return the cursor of a client whose last update had this number."""
    cursor = {"type": "_quarterdeck_seq", "seq": number["seq"] + 1}
    if "part" in number:
        cursor |= {"seq": number["seq"], "part": number["part"] + 1}
    return cursor


@asynccontextmanager
async def connected_v2(
    hub: Hub, agent: str = "mine", scope: Scope = "admin"
) -> AsyncIterator[EditorV2]:
    """Connect an editor that has not said anything."""
    ours, theirs = memory_pair()
    editor = EditorV2()
    editor.transport = ours
    async with (
        EditorServer(hub, agent, owner_device(scope)).serve_client(theirs),
        open_connection(
            ours, on_notification=editor.on_notification, on_request=editor.on_request
        ) as editor.connection,
    ):
        yield editor


@asynccontextmanager
async def editor_v2_at(
    hub: Hub, agent: str = "mine", *, scope: Scope = "admin", **capabilities: Any
) -> AsyncIterator[EditorV2]:
    """Connect an editor of ACP 2 that has said `initialize`."""
    async with connected_v2(hub, agent, scope) as editor:
        editor.introduced = await editor.call(
            "initialize", protocolVersion=2, info=INFO, capabilities=capabilities
        )
        yield editor


@asynccontextmanager
async def hub_with_v2(home: Path, *steps: Json) -> AsyncIterator[tuple[Hub, Client]]:
    """Run a hub whose agent `mine` speaks ACP 2 and plays these steps in every turn."""
    file = home.with_suffix(".steps.json")
    file.write_text(json.dumps(steps))
    agent = AgentSettings(
        command=sys.executable, args=("-I", "-S", str(AGENT), str(file)), protocol=2
    )
    async with running(options(home, mine=agent), parts=(acp_endpoints,)) as found:
        yield found
