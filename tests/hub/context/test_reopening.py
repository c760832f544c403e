"""The context protocol over a whole hub: restarts, closed sessions, the queue, what is listed."""

from __future__ import annotations

import json
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.hub import Hub
from quarterdeck.hub.context import listing
from quarterdeck.hub.context.listing import last_message
from quarterdeck.policy import Policy
from quarterdeck.runner import Runner
from tests.hub.api.kit import ASK, options, running, scripted
from tests.hub.context.test_connection import Phone, events
from tests.hub.local_owner import owner_websocket

pytestmark = pytest.mark.anyio

OPTION = {
    "id": "model",
    "name": "Model",
    "category": "model",
    "type": "select",
    "currentValue": "m1",
    "options": [{"value": "m1", "name": "One"}],
}
MODES = {
    "currentModeId": "code",
    "availableModes": [{"id": "code", "name": "Code"}, {"id": "plan", "name": "Plan"}],
}
ONLY_RESUME: dict[str, Any] = {"sessionCapabilities": {"resume": {}, "close": {}}}
NEITHER: dict[str, Any] = {"sessionCapabilities": {"close": {}}}
Json = dict[str, Any]


@asynccontextmanager
async def phone(hub: Hub) -> AsyncIterator[Phone]:
    async with owner_websocket(hub.options.home, "/api/context") as socket:
        yield Phone(socket)


async def entries(client: Phone) -> dict[str, Json]:
    return {each["id"]: each for each in (await client.hear("sessions_list"))["sessions"]}


def talking(**more: Any) -> Any:
    return scripted({"say": "Done, all of it."}, load=[{"say": "from before"}], **more)


async def test_a_session_closed_before_a_restart_is_listed_read_and_reopened(
    tmp_path: Path,
) -> None:
    given = options(tmp_path / "home", mine=talking())
    async with running(given) as (_hub, http):
        session_id = await http.session("mine", tmp_path)
        await http.prompt(session_id, "k", "Fix it")
        await http.ended(session_id, "k")
        await http.post(f"/api/sessions/{session_id}/close")
    async with running(given) as (hub, _http), phone(hub) as client:
        entry = (await entries(client))[session_id]
        assert (entry["status"], entry["sessionName"]) == ("completed", "Fix it")
        assert entry["lastMessage"] == "Done, all of it."
        assert entry["lastActivity"] >= entry["createdAt"] > "2020"
        await client.say("subscribe", sessionIds=[session_id])
        history = events(await client.hear_all("history_complete"))
        assert [each["seq"] for each in history] == list(range(1, len(history) + 1))
        assert history[-1]["type"] == "session:completed"
        await client.command(session_id, "send_message", message="more")
        refused = await client.hear("error")
        assert (refused["code"], refused["command"]) == ("SESSION_CLOSED", "send_message")
        await client.command(session_id, "resume", prompt="go on")
        frames = await client.hear_all("session:resumed")
        assert events(frames)[-1]["replay"]
        while not any(_says(each, "go on") for each in events(frames)):
            frames += await client.hear_all("message:complete")
        numbers = [each["seq"] for each in history + events(frames)]
        assert numbers == list(range(1, len(numbers) + 1))  # no gap where the log became live


def _says(event: Json, text: str) -> bool:
    content = event.get("content") if event["type"] == "message:complete" else None
    return content is not None and content[0].get("text") == text


@pytest.mark.parametrize("is_agent_stopped", [False, True])
async def test_resume_reopens_a_terminated_session_and_starts_its_agent(
    tmp_path: Path, is_agent_stopped: bool
) -> None:
    given = options(tmp_path / "home", mine=talking())
    async with running(given) as (hub, http), phone(hub) as client:
        session_id = await http.session("mine", tmp_path)
        await client.command(session_id, "terminate")
        await client.hear("session:completed", sessionId=session_id)
        if is_agent_stopped:
            (agent,) = hub.runner.agents()
            await hub.runner.stop_agent(agent.agent_id)
        await client.command(session_id, "resume")
        await client.hear("session:status_changed", sessionId=session_id, to="idle")
        await client.command(session_id, "resume", prompt="again")  # of a session that is open
        await client.hear("message:complete", sessionId=session_id, role="assistant")


@pytest.mark.parametrize("capabilities", [ONLY_RESUME, NEITHER])
async def test_a_session_that_no_command_can_reopen_says_why(
    tmp_path: Path, capabilities: Json
) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "x"}, capabilities=capabilities))
    async with running(given) as (hub, http), phone(hub) as client:
        session_id = await http.session("mine", tmp_path)
        await client.command(session_id, "terminate")
        await client.hear("session:completed", sessionId=session_id)
        await client.command(session_id, "resume")
        error = await client.hear("error")
        assert error["code"] == "CAPABILITY_UNSUPPORTED"
        assert "cannot load closed sessions; start a new one" in error["message"]
        await http.call("DELETE", f"/api/sessions/{session_id}", status=204)
        await client.command(session_id, "resume")
        assert (await client.hear("error"))["code"] in ("SESSION_CLOSED", "NOT_FOUND")


async def test_messages_wait_in_the_prompt_queue_in_the_order_of_all_clients(
    tmp_path: Path,
) -> None:
    given = options(tmp_path / "home", mine=scripted(ASK))
    async with running(given) as (hub, http), phone(hub) as client:
        session_id = await http.session("mine", tmp_path)
        await http.prompt(session_id, "page", "first")
        await http.pending_permissions()
        await client.command(session_id, "send_message", message="second")
        queued = await client.hear("prompt_queued")
        assert queued["sessionId"] == session_id
        await http.prompt(session_id, "cli", "third")
        listed = (await http.get(f"/api/sessions/{session_id}/prompts"))["prompts"]
        waiting = [each for each in listed if each["state"] == "queued"]
        assert {each["key"] for each in waiting} == {queued["key"], "cli"}
        for _ in range(3):
            (request,) = await http.pending_permissions()
            await http.post(
                f"/api/permissions/{request['requestId']}/answer",
                {"optionId": "allow_once", "digest": request["digest"]},
            )
            await http.until("/api/permissions", partial(_has_gone, request["requestId"]))
        await http.ended(session_id, "cli")
        log = await http.events(session_id)
        chunks = [each["payload"] for each in log if each["type"] == "user-message-chunk"]
        prompts = [each["content"]["text"] for each in chunks]
        assert prompts == ["first", "second", "third"]


def _has_gone(request_id: str, answer: Json) -> bool:
    return request_id not in [each["requestId"] for each in answer["permissions"]]


async def test_a_queued_message_that_never_runs_is_an_error(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted(ASK))
    async with running(given) as (hub, http), phone(hub) as client:
        session_id = await http.session("mine", tmp_path)
        await http.prompt(session_id, "page", "first")
        await http.pending_permissions()
        await client.command(session_id, "send_message", message="second")
        await client.hear("prompt_queued")
        await client.command(session_id, "terminate")
        error = await client.hear("error")
        assert (error["code"], error["command"]) == ("SESSION_CLOSED", "send_message")


async def test_a_picture_needs_an_agent_that_accepts_it(tmp_path: Path) -> None:
    can = {"promptCapabilities": {"image": True}}
    agents: dict[str, Any] = {
        "sees": scripted({"say": "x"}, capabilities=can, sessions={"id": "sees-{n}"}),
        "blind": scripted({"say": "x"}, sessions={"id": "blind-{n}"}),
    }
    async with running(options(tmp_path / "home", **agents)) as (hub, http), phone(hub) as client:
        picture = {"type": "image", "url": "data:image/png;base64,aGk="}
        for name in agents:
            session_id = await http.session(name, tmp_path)
            await client.command(session_id, "send_message", message="look", attachments=[picture])
            if name == "blind":
                assert (await client.hear("error"))["code"] == "CAPABILITY_UNSUPPORTED"
                continue
            await client.hear("message:complete", sessionId=session_id, role="assistant")
            (entry,) = (await http.get(f"/api/sessions/{session_id}/prompts"))["prompts"]
            assert [each["type"] for each in entry["prompt"]] == ["text", "image"]


async def test_the_list_has_model_mode_and_last_message(tmp_path: Path) -> None:
    settings = {"configOptions": [OPTION], "modes": MODES}
    agent = scripted({"say": "One\n two."}, sessions=settings)
    async with running(options(tmp_path / "home", mine=agent)) as (hub, http):
        session_id = await http.session("mine", tmp_path)
        await http.prompt(session_id, "k", "hello")
        await http.ended(session_id, "k")
        async with phone(hub) as client:
            entry = (await entries(client))[session_id]
            assert (entry["model"], entry["agentMode"]) == ("m1", "code")
            assert entry["lastMessage"] == "One two."
            await client.say("subscribe", sessionIds=[session_id])
            history = events(await client.hear_all("history_complete"))
        (started,) = [each for each in history if each["type"] == "session:started"]
        runtime = {"os": platform.system().lower(), "arch": platform.machine()}
        assert started["environment"]["runtime"].items() >= runtime.items()


async def test_a_fresh_hub_declares_the_agents_that_can_be_started(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "x"}))
    async with running(given) as (hub, http), phone(hub) as client:
        declared = (await client.hear("auth_success"))["capabilities"]
        names = [each["agent"]["name"] for each in declared]
        known = [
            each for each in (await http.get("/api/agents/known"))["agents"] if each["installed"]
        ]
        assert sorted(names) == sorted(each["name"] for each in known)
        assert {"mine", "demo"} <= set(names)


async def test_a_request_says_when_it_expires(tmp_path: Path) -> None:
    policy = Policy(expiry_seconds=600.0)
    given = options(tmp_path / "home", policy, mine=scripted(ASK))
    async with running(given) as (hub, http), phone(hub) as client:
        session_id = await http.session("mine", tmp_path)
        await client.command(session_id, "send_message", message="go")
        request = (await client.hear("approval:requested"))["event"]
        (card,) = await http.pending_permissions()
        assert request["expiresAt"] == card["expiresAt"]


async def test_only_the_newest_closed_sessions_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MOST_CLOSED", 2)
    given = options(tmp_path / "home", mine=talking())
    async with running(given) as (hub, http):
        names = [await http.session("mine", tmp_path) for _ in range(3)]
        for name in names:
            await http.post(f"/api/sessions/{name}/close")
    async with running(given) as (hub, http):
        async with phone(hub) as client:
            assert len(await entries(client)) == 2
            await client.say("subscribe", sessionIds=names)  # all can be read
            for _ in names:
                assert (await client.hear("history_complete"))["lastSeq"] > 0
        assert isinstance(hub.fleet.local, Runner)


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ([], None),
        ([("plan", None, "")], None),
        ([("agent-message-chunk", "a", "one "), ("agent-message-chunk", "a", "two")], "one two"),
        ([("agent-message-chunk", "a", "one"), ("agent-message-chunk", "b", "two")], "two"),
        ([("user-message-chunk", "a", "hi"), ("plan", None, "")], "hi"),
        ([("agent-message-chunk", None, "x" * 500)], "x" * 199 + "…"),
    ],
)
def test_the_last_message_is_one_line(log: list[Any], shown: str | None) -> None:
    page = [
        json.dumps(
            {
                "type": kind,
                "sessionId": "s",
                "seq": seq,
                "ts": 1,
                "payload": {"messageId": message_id, "content": {"type": "text", "text": text}},
            }
        ).encode()
        for seq, (kind, message_id, text) in enumerate(log, 1)
    ]
    assert last_message([b"damaged", *page, b"{}"]) == shown
