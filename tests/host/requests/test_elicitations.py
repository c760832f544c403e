"""Elicitations: declared only if answered, published once, answered once."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.client import Client, InProcessTransport
from quarterdeck.errors import AcpError
from quarterdeck.host import Host, HostEndpoint
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.options import resolve_host_options
from quarterdeck.host.requests.elicitations import ElicitationRequests, is_elicitation_id
from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    Event,
    InboundRequest,
    InboundResponse,
    decode_event,
    initial_state,
    reduce,
    to_json,
)
from quarterdeck.storage import MemoryStorage, SessionMeta, Storage, Stored
from quarterdeck.testing import scripted_agent
from tests.host.scenarios import Changes, Wire
from tests.host.test_host import Seen, agent, running, texts

pytestmark = pytest.mark.anyio

RECORDER = Path(__file__).parents[1] / "recording_agent.py"
FIELDS = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
}
FORM: dict[str, Any] = {"mode": "form", "message": "Who are you?", "requestedSchema": FIELDS}
PAGE: dict[str, Any] = {
    "mode": "url",
    "message": "Please sign in",
    "elicitationId": "sign-in",
    "url": "https://example.test/sign-in",
}
ACCEPT = {"action": "accept", "content": {"name": "Ann", "age": 7}}


def eliciting(params: dict[str, Any], *before: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return an agent that asks in its turn and repeats what it was answered."""
    return agent(*before, {"request": "elicitation/create", "params": params}, SAY_LAST, **more)


SAY_LAST = {"say": "{last}"}


class Turn:
    """A session in whose turn the agent has sent an elicitation."""

    def __init__(self, host: Host, session_id: str, seen: Seen, host_seen: Seen) -> None:
        self.host = host
        self.session_id = session_id
        self.seen = seen
        self.host_seen = host_seen

    @property
    def answered_with(self) -> str:
        return "".join(texts(self.seen.events))

    def snapshots(self) -> list[dict[str, Any]]:
        return [e.payload for e in self.host_seen.events if e.type == ELICITATION_UPDATED]

    def recorded(self) -> list[Event]:
        return [e for e in self.seen.events if e.type == "unrecognized-update"]

    async def resolved(self, status: str) -> None:
        await self.host_seen.first(ELICITATION_UPDATED, status=status)


@asynccontextmanager
async def turn(
    cwd: Path, definition: dict[str, Any], storage: Storage | None = None
) -> AsyncIterator[Turn]:
    async with running(storage, elicitation=("form", "url")) as host:
        host_seen, seen = Seen(), Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(definition)
        session = await host.create_session(spawned.agent_id, cwd=str(cwd))
        host.subscribe(session.session_id, 0, seen)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_prompt, host, session.session_id)
            await host_seen.first(ELICITATION_UPDATED, status="pending")
            yield Turn(host, session.session_id, seen, host_seen)


async def _prompt(host: Host, session_id: str) -> None:
    with suppress(AcpError):  # some of these agents end in the middle of the turn
        await host.prompt(session_id, "hello")


# ---- offering ------------------------------------------------------------------------------


@pytest.mark.parametrize("modes", [(), ("form",), ("url",), ("form", "url")])
async def test_the_modes_that_are_answered_are_declared_to_an_agent(
    modes: Any, tmp_path: Path
) -> None:
    changes = Changes()
    wire = Wire(tmp_path / "wire", changes)
    module, *arguments = scripted_agent({"name": "x", "turns": []})[3:]
    assert module == "quarterdeck.testing.agent"
    command = ["-P", str(RECORDER), str(wire.path), *arguments]
    async with wire.recording(), running(elicitation=modes) as host:
        await host.spawn_agent({"id": "x", "command": sys.executable, "args": command})
        await changes.until(lambda: bool(wire.messages))
        capabilities = wire.messages[0]["params"]["clientCapabilities"]
    assert capabilities.get("elicitation", {}) == {mode: {} for mode in modes}
    assert ("elicitation" in capabilities) is bool(modes)


@pytest.mark.parametrize("modes", ["form", ["form", "telepathy"], 7, [["form"]]])
def test_other_modes_are_refused(modes: Any) -> None:
    with pytest.raises(AcpError) as caught:
        resolve_host_options({"elicitation": modes})
    assert caught.value.code == "acpjs/config-invalid"


@pytest.mark.parametrize(
    ("modes", "params", "code"),
    [
        ((), FORM, -32601),
        (("form",), PAGE, -32602),
        (("form", "url"), {**FORM, "mode": "telepathy"}, -32602),
        (("form", "url"), {**FORM, "sessionId": None}, -32602),
        (("form", "url"), {**FORM, "sessionId": "of another agent"}, -32602),
        (("form", "url"), {"mode": "url", "message": "no address"}, -32602),
    ],
    ids=["not offered", "other mode", "unknown mode", "no scope", "other session", "no page"],
)
async def test_an_elicitation_that_was_not_offered_or_is_invalid_is_refused(
    modes: Any, params: dict[str, Any], code: int, tmp_path: Path
) -> None:
    async with running(elicitation=modes) as host:
        spawned = await host.spawn_agent(eliciting(params))
        session = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        seen = Seen()
        host.subscribe(session.session_id, 0, seen)
        await host.prompt(session.session_id, "hello")
        assert str(code) in "".join(texts(seen.events))
        assert host.get_elicitations() == []


# ---- request and answer --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "response"),
    [
        (FORM, ACCEPT),
        (FORM, {"action": "decline"}),
        (FORM, {"action": "cancel"}),
        (PAGE, {"action": "accept"}),
    ],
    ids=["form accepted", "form declined", "form cancelled", "page accepted"],
)
async def test_an_elicitation_waits_for_its_one_answer(
    params: dict[str, Any], response: dict[str, Any], tmp_path: Path
) -> None:
    async with turn(tmp_path, eliciting(params)) as play:
        (pending,) = play.host.get_elicitations()
        shown = to_json(pending)
        assert datetime.fromisoformat(shown.pop("requestedAt")).tzinfo is not None
        assert shown == {
            "requestId": "elic-1",
            "agentId": "agent-1",
            "sessionId": play.session_id,
            "status": "pending",
            "request": {"sessionId": play.session_id, **params},
        }
        await play.host.respond_elicitation("elic-1", response)
        with pytest.raises(AcpError) as caught:
            await play.host.respond_elicitation("elic-1", response)
        assert caught.value.code == "acpjs/already-answered"
        await play.seen.first("prompt-finished")
        assert response["action"] in play.answered_with
        assert [each["status"] for each in play.snapshots()] == ["pending", "answered"]
        (answered,) = play.host.get_elicitations()
        assert (answered.status, answered.action) == ("answered", response["action"])


async def test_the_content_of_an_answer_is_sent_to_the_agent_only(
    tmp_path: Path,
) -> None:
    silent = agent({"request": "elicitation/create", "params": FORM})
    async with turn(tmp_path, silent) as play:
        answer = {"action": "accept", "content": {"name": "a very private name"}}
        await play.host.respond_elicitation("elic-1", answer)
        await play.seen.first("prompt-finished")
        shown = [*play.seen.events, *play.host_seen.events, *play.host.get_elicitations()]
        assert "private" not in "".join(str(to_json(each)) for each in shown)


async def test_the_log_of_the_session_has_the_elicitation_and_its_end_marked_as_added(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path, eliciting(FORM)) as play:
        await play.host.respond_elicitation("elic-1", ACCEPT)
        await play.seen.first("prompt-finished")
        opened, answered = play.recorded()
        assert opened.payload["request"]["message"] == "Who are you?"
        assert (opened.payload["status"], answered.payload["status"]) == ("pending", "answered")
        assert all("quarterdeck" in (event.extensions or {}) for event in (opened, answered))
        state = initial_state(play.session_id)
        assert reduce(state, opened) is state


async def test_the_event_on_the_host_stream_survives_the_wire(tmp_path: Path) -> None:
    async with turn(tmp_path, eliciting(FORM)) as play:
        event = await play.host_seen.first(ELICITATION_UPDATED)
        assert decode_event(to_json(event)) == event
        assert "quarterdeck" in (event.extensions or {})
        await play.host.respond_elicitation("elic-1", ACCEPT)


async def test_an_invalid_answer_leaves_the_elicitation_pending(tmp_path: Path) -> None:
    no_answers: list[Any] = [
        {},
        {"action": "maybe"},
        {"action": "accept"},
        {"action": "accept", "content": {"age": 7}},
        {"action": "accept", "content": {"name": {"first": "Ann"}}},
        {"action": "accept", "content": ["Ann"]},
        "accept",
    ]
    async with turn(tmp_path, eliciting(FORM)) as play:
        for response in no_answers:
            with pytest.raises(AcpError) as caught:
                await play.host.respond_elicitation("elic-1", response)
            assert caught.value.code == "acpjs/config-invalid"
        assert [each.status for each in play.host.get_elicitations()] == ["pending"]
        await play.host.respond_elicitation("elic-1", {"action": "decline"})


async def test_an_elicitation_for_a_request_of_the_client_needs_no_session(tmp_path: Path) -> None:
    scoped = {**FORM, "sessionId": None, "requestId": "{id}"}
    steps = [{"request": "elicitation/create", "params": scoped}, {"result": {}}]
    async with running(elicitation=("form",)) as host:
        spawned = await host.spawn_agent(agent(methods={"authenticate": steps}))
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(host.authenticate, spawned.agent_id, "browser")
            opened = await host_seen.first(ELICITATION_UPDATED, status="pending")
            assert "sessionId" not in opened.payload
            await host.respond_elicitation(opened.payload["requestId"], ACCEPT)


async def test_elicitations_without_a_session_of_two_hosts_never_have_the_same_id() -> None:
    params = {**FORM, "requestId": 1}
    hosts = [ElicitationRequests(Emitter(MemoryStorage()), ("form",)) for _ in range(2)]
    one, other = [host.open("agent-1", None, params) for host in hosts]
    assert one.id.startswith("elic-1-")
    assert one.id != other.id
    assert is_elicitation_id(one.id)


async def test_a_completed_link_is_reported_once(tmp_path: Path) -> None:
    done = {"notify": "elicitation/complete", "params": {"elicitationId": "sign-in"}}
    other = {"notify": "elicitation/complete", "params": {"elicitationId": "unknown"}}
    asks = {"request": "elicitation/create", "params": PAGE}
    async with turn(tmp_path, agent(asks, other, done, done, {"say": "thanks"})) as play:
        await play.host.respond_elicitation("elic-1", {"action": "accept"})
        await play.seen.first("prompt-finished")
        changes = [(each["status"], each.get("completed")) for each in play.snapshots()]
        assert changes == [("pending", None), ("answered", None), ("answered", True)]


# ---- superseded ----------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["cancel", "close", "delete", "dispose agent", "crash"])
async def test_an_elicitation_that_cannot_be_answered_any_more_is_superseded_once(
    ending: str, tmp_path: Path
) -> None:
    asks = {"request": "elicitation/create", "params": FORM, "nowait": ending == "crash"}
    definition = agent(asks, *([{"crash": 1}] if ending == "crash" else []))
    async with turn(tmp_path, definition) as play:
        match ending:
            case "cancel":
                await play.host.cancel(play.session_id)
            case "close":
                await play.host.close_session(play.session_id)
            case "delete":
                await play.host.delete_session("agent-1", play.session_id)
            case "dispose agent":
                await play.host.dispose_agent("agent-1")
            case _:
                pass
        await play.resolved("superseded")
        with pytest.raises(AcpError) as caught:
            await play.host.respond_elicitation("elic-1", ACCEPT)
        assert caught.value.code == "acpjs/already-answered"
        assert [each["status"] for each in play.snapshots()] == ["pending", "superseded"]
        assert play.recorded()[-1].payload["status"] == "superseded"


async def test_an_elicitation_that_its_agent_withdraws_is_superseded(tmp_path: Path) -> None:
    asks = {"request": "elicitation/create", "params": FORM, "nowait": True}
    withdraws = {"notify": "$/cancel_request", "params": {"requestId": 101}}
    async with turn(tmp_path, agent(asks, withdraws)) as play:
        await play.resolved("superseded")


async def test_an_elicitation_left_open_by_a_crash_is_closed_in_the_log_when_it_is_read(
    tmp_path: Path,
) -> None:
    storage, copy = MemoryStorage(), MemoryStorage()
    async with turn(tmp_path, eliciting(FORM), storage) as play:
        log = await storage.read(play.session_id, 0, 1000)
        await play.host.respond_elicitation("elic-1", ACCEPT)
    # What a host that was killed while an elicitation was pending has left behind.
    left = [Stored(play.session_id, seq, event) for seq, event in enumerate(log, 1)]
    await copy.open()
    await copy.append([SessionMeta(session_id=play.session_id, cwd="/"), *left])
    async with running(copy) as host:
        await host.restore_sessions()
        seen = Seen()
        host.subscribe(play.session_id, len(log), seen)
        closed = await seen.first("unrecognized-update", status="superseded")
        assert closed.payload["requestId"] == "elic-1"
        assert "quarterdeck" in (closed.extensions or {})


# ---- through envelopes ---------------------------------------------------------------------


async def test_an_endpoint_passes_requests_of_both_kinds_on_and_their_answers_back(
    tmp_path: Path,
) -> None:
    async with turn(tmp_path, eliciting(FORM)) as play:
        endpoint = HostEndpoint(play.host)  # made after the elicitation was opened
        requests: list[InboundRequest] = []
        endpoint.on_inbound_request(requests.append)
        (request,) = requests
        assert (request.id, request.kind) == ("elic-1", "elicitation")
        assert request.payload == to_json(play.host.get_elicitations()[0])
        await endpoint.respond_inbound(InboundResponse(id=request.id, result=ACCEPT))
        with pytest.raises(AcpError) as caught:
            await endpoint.respond_inbound(InboundResponse(id=request.id, result=ACCEPT))
        assert caught.value.code == "acpjs/already-answered"
        late: list[InboundRequest] = []
        endpoint.on_inbound_request(late.append)
        assert late == []


async def test_a_late_client_sees_what_is_pending_and_answers_it(tmp_path: Path) -> None:
    async with turn(tmp_path, eliciting(FORM)) as play:
        async with Client(InProcessTransport(HostEndpoint(play.host))) as client:
            (pending,) = client.elicitations.pending
            assert pending.request["message"] == "Who are you?"
            assert client.permissions.pending == ()
            await client.elicitations.respond(pending.request_id, ACCEPT)
            assert client.elicitations.pending == ()
            with pytest.raises(AcpError) as caught:
                await client.elicitations.respond(pending.request_id, ACCEPT)
            assert caught.value.code == "acpjs/already-answered"
        await play.seen.first("prompt-finished")
        assert "Ann" in play.answered_with


async def test_a_client_forgets_an_elicitation_that_is_superseded(tmp_path: Path) -> None:
    async with (
        turn(tmp_path, eliciting(FORM)) as play,
        Client(InProcessTransport(HostEndpoint(play.host))) as client,
    ):
        assert [each.request_id for each in client.elicitations.pending] == ["elic-1"]
        await play.host.cancel(play.session_id)
        await play.resolved("superseded")
        assert client.elicitations.get("elic-1") is None
