"""A hub on a real port, and what tests ask of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2

from quarterdeck.agents import AgentSettings
from quarterdeck.http.unix_sockets import reachable
from quarterdeck.hub import Hub, HubOptions, serving
from quarterdeck.hub.api.endpoint import Endpoint
from quarterdeck.policy import Policy
from quarterdeck.testing import scripted_agent

PATIENCE = 90  # on a busy machine
ASK: dict[str, Any] = {
    "ask": "edit-1",
    "title": "Edit the file",
    "kind": "edit",
    "input": {"path": "{cwd}/a.py"},
    "allowed": [{"say": "done"}],
    "rejected": [{"say": "fine"}],
}
CAN = {"loadSession": True, "sessionCapabilities": {"resume": {}, "close": {}}}
Json = dict[str, Any]


def scripted(*steps: Json, **more: Any) -> AgentSettings:
    """Return the settings of an agent that plays these steps in every turn."""
    methods: Json = {"session/resume": [{"result": {}}], "session/close": [{"result": {}}]}
    turns = [{"steps": list(steps)}]
    scenario = {"name": "test", "capabilities": CAN, "turns": turns, "methods": methods, **more}
    command = scripted_agent(scenario, pace=0.0)
    return AgentSettings(command=command[0], args=tuple(command[1:]))


def options(home: Path, policy: Policy | None = None, **agents: AgentSettings) -> HubOptions:
    return HubOptions(home=home, port=0, agents=agents, policy=policy or Policy())


class Client:
    """A program with a token."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    async def call(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        """Make a request, and insist on the status of its answer."""
        answer = await self.http.request(method, path, json=body)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    async def get(self, path: str, *, status: int = 200) -> Any:
        return await self.call("GET", path, status=status)

    async def post(self, path: str, body: Any = None, *, status: int = 200) -> Any:
        return await self.call("POST", path, {} if body is None else body, status=status)

    async def until(self, path: str, is_true: Callable[[Any], Any]) -> Any:
        """Ask until the answer is as wanted; the test's patience is the limit."""
        while True:
            answer = await self.get(path)
            if is_true(answer):
                return answer
            await anyio.sleep(0.01)  # there is nothing to wait for: it is another program's

    # ---- what nearly every test does -----------------------------------------------------------

    async def session(self, agent: str, cwd: Path) -> str:
        made = await self.post("/api/sessions", {"agent": agent, "cwd": str(cwd)}, status=201)
        session_id: str = made["sessionId"]
        return session_id

    async def prompt(self, session_id: str, key: str, text: str = "go", **more: Any) -> Json:
        body = {"key": key, "prompt": text, **more}
        entry: Json = await self.post(f"/api/sessions/{session_id}/prompts", body, status=202)
        return entry

    async def ended(self, session_id: str, key: str) -> Json:
        entry: Json = await self.until(
            f"/api/sessions/{session_id}/prompts/{key}",
            lambda entry: entry["state"] not in ("queued", "running"),
        )
        return entry

    async def pending_permissions(self, count: int = 1) -> list[Json]:
        """Return the pending permission requests, once there are so many."""
        answer = await self.until(
            "/api/permissions", lambda answer: len(answer["permissions"]) >= count
        )
        found: list[Json] = answer["permissions"]
        return found

    async def events(self, session_id: str) -> list[Json]:
        answer = await self.get(f"/api/sessions/{session_id}/history?limit=5000")
        found: list[Json] = answer["events"]
        return found


async def paired(owner: Client, scope: str) -> str:
    """Return the token of a new device."""
    codes = await owner.post("/api/pairings", {"scope": scope}, status=201)
    token: str = (await owner.post("/api/pair", {"code": codes["code"]}))["token"]
    return token


@asynccontextmanager
async def client_of(home: Path, url: str, token: str | None = None) -> AsyncIterator[Client]:
    """Open a client with a token; without one the owner's, by the socket."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    with reachable(home / "hub.sock") as name:
        transport = None if token else httpx2.AsyncHTTPTransport(uds=name)
        async with httpx2.AsyncClient(
            base_url=url, headers=headers, timeout=PATIENCE, transport=transport
        ) as http:
            yield Client(http)


@asynccontextmanager
async def running(
    given: HubOptions, *, parts: Sequence[Callable[[Hub], list[Endpoint]]] = ()
) -> AsyncIterator[tuple[Hub, Client]]:
    """Run a hub on a port, and give the owner's client."""
    with anyio.fail_after(PATIENCE):
        async with (
            Hub(given, parts=parts) as hub,
            serving(hub) as address,
            client_of(given.home, address.url) as client,
        ):
            yield hub, client
