"""The host through envelopes: every method, every kind of error, and inbound requests."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from quarterdeck.errors import AcpError
from quarterdeck.host import Host, HostEndpoint
from quarterdeck.host.log.stream import HOST_TAIL
from quarterdeck.protocol import (
    HOST_RPC_METHODS,
    EnvelopeEndpoint,
    InboundRequest,
    InboundResponse,
    RpcRequest,
    TransportSubscribeParams,
    to_json,
)
from quarterdeck.storage import SqliteStorage
from tests.host.test_host import ASK, Seen, agent, running

pytestmark = pytest.mark.anyio

CAN = {
    "loadSession": True,
    "sessionCapabilities": {"resume": {}, "close": {}, "list": {}, "delete": {}},
    "auth": {"logout": {}},
}
OPTION = {
    "id": "model",
    "name": "Model",
    "type": "select",
    "currentValue": "a",
    "options": [{"value": "a", "name": "A"}, {"value": "b", "name": "B"}],
}
NOWHERE: dict[str, Any] = {"mcpServers": [], "additionalDirectories": []}
CANCELLED = {"outcome": "cancelled"}
PERMISSION: dict[str, Any] = {
    "toolCall": {"toolCallId": "t", "title": "T"},
    "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}],
}
REQUIRED = {
    "agents/spawn": ("definition",),
    "agents/list": (),
    "agents/dispose": ("agentId",),
    "agents/authenticate": ("agentId", "methodId"),
    "agents/logout": ("agentId",),
    "sessions/create": ("agentId", "cwd", "mcpServers", "additionalDirectories"),
    "sessions/load": ("agentId", "sessionId", "cwd", "mcpServers", "additionalDirectories"),
    "sessions/resume": ("agentId", "sessionId", "cwd", "additionalDirectories"),
    "sessions/list": ("agentId",),
    "sessions/delete": ("agentId", "sessionId"),
    "sessions/prompt": ("sessionId", "prompt"),
    "sessions/cancel": ("sessionId",),
    "sessions/close": ("sessionId",),
    "sessions/setMode": ("sessionId", "modeId"),
    "sessions/setConfigOption": ("sessionId", "configId", "value"),
    "sessions/getAll": (),
    "sessions/restore": (),
}


class Caller:
    """Sends requests to an endpoint as a transport would: through JSON and back."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.endpoint = HostEndpoint(host)
        self.agent_id = ""
        self.session_id = ""

    async def raw(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        response = await self.endpoint.request(RpcRequest(id="7", method=method, params=params))
        answer: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(response))
        assert answer["id"] == "7"
        assert answer == to_json(response)
        return answer

    async def ok(self, method: str, **params: Any) -> Any:
        answer = await self.raw(method, params)
        assert answer["ok"] is True, answer
        assert "error" not in answer
        return answer["result"]

    async def error(self, method: str, **params: Any) -> dict[str, Any]:
        answer = await self.raw(method, params)
        assert answer["ok"] is False, answer
        assert "result" not in answer
        error: dict[str, Any] = answer["error"]
        return error


@asynccontextmanager
async def calling(
    cwd: Path, *steps: dict[str, Any], storage: Any = None, **more: Any
) -> AsyncIterator[Caller]:
    """Open a host with one agent and one session."""
    async with running(storage) as host:
        caller = Caller(host)
        definition = agent(*steps, capabilities=CAN, **more)
        caller.agent_id = (await caller.ok("agents/spawn", definition=definition))["agentId"]
        created = await caller.ok(
            "sessions/create", agentId=caller.agent_id, cwd=str(cwd), **NOWHERE
        )
        caller.session_id = created["sessionId"]
        yield caller


def test_every_method_has_its_line_in_these_tests() -> None:
    assert set(REQUIRED) == set(HOST_RPC_METHODS.values())


def test_it_is_an_endpoint() -> None:
    endpoint: EnvelopeEndpoint = HostEndpoint(Host())
    assert endpoint is not None


async def test_agents_are_spawned_listed_signed_in_and_out_and_disposed(tmp_path: Path) -> None:
    async with calling(tmp_path, methods={"logout": [[]]}) as caller:
        (listed,) = await caller.ok("agents/list")
        assert (listed["agentId"], listed["status"]) == (caller.agent_id, "ready")
        assert listed["capabilities"]["loadSession"] is True
        ids = {"agentId": caller.agent_id}
        assert await caller.ok("agents/authenticate", **ids, methodId="m") is None
        assert await caller.ok("agents/logout", **ids) is None
        assert await caller.ok("agents/dispose", **ids) is None
        assert await caller.ok("agents/dispose", **ids) is None
        assert await caller.ok("agents/list") == []


async def test_sessions_are_prompted_set_and_closed(tmp_path: Path) -> None:
    async with calling(tmp_path, {"say": "hi"}, sessions={"configOptions": [OPTION]}) as caller:
        ids = {"sessionId": caller.session_id}
        prompt = [{"type": "text", "text": "hello"}]
        assert await caller.ok("sessions/prompt", **ids, prompt=prompt) == {
            "stopReason": "end_turn"
        }
        value = {"value": "b"}
        (option,) = await caller.ok(
            "sessions/setConfigOption", **ids, configId="model", value=value
        )
        assert option["currentValue"] == "b"
        (snapshot,) = await caller.ok("sessions/getAll")
        assert (snapshot["status"], snapshot["cwd"]) == ("active", str(tmp_path))
        assert await caller.ok("sessions/cancel", **ids) is None
        assert await caller.ok("sessions/close", **ids) is None
        (snapshot,) = await caller.ok("sessions/getAll")
        assert snapshot["status"] == "closed"
        error = await caller.error("sessions/prompt", **ids, prompt=prompt)
        assert error["code"] == "acpjs/session-closed"


async def test_modes_are_set(tmp_path: Path) -> None:
    async with calling(tmp_path, sessions={"modes": ["ask", "code"]}) as caller:
        seen = Seen()
        caller.endpoint.subscribe(
            TransportSubscribeParams(session_id=caller.session_id, from_seq=0), seen
        )
        ids = {"sessionId": caller.session_id}
        assert await caller.ok("sessions/setMode", **ids, modeId="code") is None
        await seen.first("current-mode-update", currentModeId="code")


async def test_sessions_are_loaded_resumed_listed_and_deleted(tmp_path: Path) -> None:
    listing = {"sessions": [{"sessionId": "old", "cwd": "/"}], "nextCursor": "2"}
    methods = {"session/list": [[{"result": listing}]], "session/resume": [[]]}
    async with calling(tmp_path, load=[{"say": "history"}], methods=methods) as caller:
        ids = {"agentId": caller.agent_id, "sessionId": caller.session_id}
        folders = {"cwd": str(tmp_path), **NOWHERE}
        assert await caller.ok("sessions/load", **ids, **folders) is None
        del folders["mcpServers"]
        assert await caller.ok("sessions/resume", **ids, **folders) is None
        listed = await caller.ok("sessions/list", agentId=caller.agent_id, cursor=None, cwd="/")
        assert listed == listing
        assert await caller.ok("sessions/delete", **ids) is None
        assert await caller.ok("sessions/getAll") == []


async def test_sessions_of_an_earlier_host_are_restored(tmp_path: Path) -> None:
    async with calling(tmp_path, storage=SqliteStorage(tmp_path / "log.db")) as caller:
        session_id = caller.session_id
    async with running(SqliteStorage(tmp_path / "log.db")) as host:
        (restored,) = await Caller(host).ok("sessions/restore")
    assert (restored["sessionId"], restored["status"]) == (session_id, "disconnected")


@pytest.mark.parametrize("method", REQUIRED)
async def test_a_missing_parameter_is_named_before_anything_happens(method: str) -> None:
    async with running() as host:
        for name in REQUIRED[method]:
            params = {each: "x" for each in REQUIRED[method] if each != name}
            error = await Caller(host).error(method, **params)
            assert error["code"] == "acpjs/config-invalid"
            assert name in error["message"]
            assert error["retryable"] is False


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("agents/fly", {}),
        ("agents/spawn", {"definition": None}),
        ("agents/spawn", {"definition": {"id": "x"}}),
        ("agents/dispose", {"agentId": ["unhashable"]}),
        ("sessions/cancel", {"sessionId": None}),
        ("sessions/list", {"agentId": "agent-1", "cursor": 7}),
        ("sessions/create", {"agentId": "agent-1", "cwd": None, **NOWHERE}),
        ("agents/list", None),
    ],
)
async def test_what_cannot_be_meant_is_config_invalid(method: str, params: Any) -> None:
    async with running() as host:
        answer = await Caller(host).raw(method, params)
    assert answer["error"]["code"] == "acpjs/config-invalid"


async def test_errors_of_the_host_keep_their_code(tmp_path: Path) -> None:
    async with running() as host:
        caller = Caller(host)
        where = {"agentId": "agent-9", "cwd": str(tmp_path), **NOWHERE}
        assert (await caller.error("sessions/create", **where))["code"] == "acpjs/agent-exited"
        error = await caller.error("sessions/cancel", sessionId="unknown")
        assert error["code"] == "acpjs/session-closed"


async def test_an_error_with_a_code_goes_out_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as host:
        caller = Caller(host)

        def fail() -> None:
            raise AcpError("acpjs/agent-exited", "m", data={"pid": 1}, retryable=True)

        monkeypatch.setattr(host, "get_agents", fail)
        error = await caller.error("agents/list")
    expected = {"message": "m", "data": {"pid": 1}, "retryable": True}
    assert error == {"code": "acpjs/agent-exited", **expected}


async def test_an_error_of_the_agent_is_carried_in_data(tmp_path: Path) -> None:
    refusal = {"fail": "no such method", "code": -32000, "data": {"why": "because"}}
    async with calling(tmp_path, methods={"authenticate": [[refusal]]}) as caller:
        error = await caller.error("agents/authenticate", agentId=caller.agent_id, methodId="m")
    assert error == {
        "code": "acpjs/agent-error",
        "message": "no such method",
        "data": {"code": -32000, "message": "no such method", "data": {"why": "because"}},
        "retryable": False,
    }


async def test_a_mistake_of_ours_is_an_answer_and_a_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as host:
        caller = Caller(host)
        monkeypatch.setattr(host, "get_agents", lambda: 1 / 0)
        with caplog.at_level(logging.ERROR):
            error = await caller.error("agents/list")
    assert (error["code"], error["message"]) == ("acpjs/agent-error", "division by zero")
    assert "ZeroDivisionError" in caplog.text


async def test_streams_are_followed_from_any_number_and_unknown_ones_refused(
    tmp_path: Path,
) -> None:
    async with calling(tmp_path, {"say": "hi"}) as caller:
        seen, host_seen = Seen(), Seen()
        params = TransportSubscribeParams(session_id=caller.session_id, from_seq=1)
        unsubscribe = caller.endpoint.subscribe(params, seen)
        caller.endpoint.subscribe(TransportSubscribeParams(from_seq=0), host_seen)
        await host_seen.first("session-updated", status="active")
        assert [event.seq for event in seen.events] == [2]
        unsubscribe()
        await caller.ok("sessions/prompt", sessionId=caller.session_id, prompt=[])
        assert [event.seq for event in seen.events] == [2]
        params = TransportSubscribeParams(session_id="unknown", from_seq=0)
        with pytest.raises(AcpError) as caught:
            caller.endpoint.subscribe(params, seen)
        assert caught.value.code == "acpjs/session-closed"


class InboundRequests:
    """Collects inbound requests."""

    def __init__(self) -> None:
        self.requests: list[InboundRequest] = []
        self._changed = anyio.Event()

    def __call__(self, request: InboundRequest) -> None:
        self.requests.append(request)
        self._changed.set()

    async def first(self) -> InboundRequest:
        await self._changed.wait()
        return self.requests[0]


@asynccontextmanager
async def requested(tmp_path: Path) -> AsyncIterator[tuple[Caller, InboundRequest]]:
    """Have an agent request a permission and leave it pending."""
    async with calling(tmp_path, ASK) as caller, anyio.create_task_group() as tasks:
        inbound = InboundRequests()
        unsubscribe = caller.endpoint.on_inbound_request(inbound)
        tasks.start_soon(caller.raw, "sessions/prompt", _hello(caller))
        request = await inbound.first()
        unsubscribe()
        yield caller, request
        await caller.raw("sessions/cancel", {"sessionId": caller.session_id})
        assert inbound.requests == [request]


def _hello(caller: Caller) -> dict[str, Any]:
    return {"sessionId": caller.session_id, "prompt": [{"type": "text", "text": "x"}]}


async def test_a_request_is_sent_and_its_answer_returned_once(tmp_path: Path) -> None:
    async with requested(tmp_path) as (caller, request):
        assert (request.id, request.kind) == (request.payload["requestId"], "permission")
        assert (request.payload["status"], request.payload["sessionId"]) == (
            "pending",
            caller.session_id,
        )
        seen = Seen()
        caller.host.subscribe(caller.session_id, 0, seen)
        outcome = {"outcome": "selected", "optionId": "allow_once"}
        response = InboundResponse(id=request.id, result=outcome)
        await caller.endpoint.respond_inbound(response)
        with pytest.raises(AcpError) as caught:
            await caller.endpoint.respond_inbound(response)
        assert caught.value.code == "acpjs/already-answered"
        await seen.first("prompt-finished")


async def test_a_handler_that_registers_late_or_again_gets_what_is_pending_once(
    tmp_path: Path,
) -> None:
    async with requested(tmp_path) as (caller, request):
        late = InboundRequests()
        for _ in range(2):
            unsubscribe = caller.endpoint.on_inbound_request(late)
            unsubscribe()
            unsubscribe()
        assert late.requests == [request, request]
        await caller.endpoint.respond_inbound(InboundResponse(id=request.id, result=CANCELLED))
        too_late = InboundRequests()
        caller.endpoint.on_inbound_request(too_late)
        assert too_late.requests == []


@pytest.mark.slow
async def test_what_is_pending_is_found_even_when_the_host_stream_has_forgotten_it(
    tmp_path: Path,
) -> None:
    async with requested(tmp_path) as (caller, request):
        for number in range(HOST_TAIL):
            caller.host.diagnose("info", "test/noise", f"{number}")
        host_seen = Seen()
        caller.host.subscribe(None, 0, host_seen)
        assert "permission-updated" not in host_seen.types()
        late = InboundRequests()
        caller.endpoint.on_inbound_request(late)
        assert late.requests == [request]


async def test_an_endpoint_that_is_made_late_knows_what_the_host_stream_has_forgotten(
    tmp_path: Path,
) -> None:
    async with requested(tmp_path) as (caller, request):
        for number in range(HOST_TAIL):
            caller.host.diagnose("info", "test/noise", f"{number}")
        host_seen = Seen()
        caller.host.subscribe(None, 0, host_seen)
        assert "permission-updated" not in host_seen.types()
        inbound = InboundRequests()
        HostEndpoint(caller.host).on_inbound_request(inbound)
        assert inbound.requests == [request]


async def test_a_handler_that_fails_is_reported_and_disturbs_no_other(tmp_path: Path) -> None:
    async with requested(tmp_path) as (caller, request):

        def fail(_request: InboundRequest) -> None:
            raise ValueError("no")

        host_seen, other = Seen(), InboundRequests()
        caller.host.subscribe(None, 0, host_seen)
        caller.endpoint.on_inbound_request(fail)
        caller.endpoint.on_inbound_request(other)
        assert other.requests == [request]
        failed = await host_seen.first("diagnostic", code="subscriber/error")
        assert failed.payload["sessionId"] == caller.session_id
        assert failed.payload["data"] == {"requestId": request.id}


async def test_an_answer_that_is_no_outcome_leaves_the_request_pending(tmp_path: Path) -> None:
    async with requested(tmp_path) as (caller, request):
        for result in (None, "yes", {}, {"outcome": "selected"}):
            with pytest.raises(AcpError) as caught:
                await caller.endpoint.respond_inbound(InboundResponse(id=request.id, result=result))
            assert caught.value.code == "acpjs/config-invalid"
        await caller.endpoint.respond_inbound(InboundResponse(id=request.id, result=CANCELLED))


async def test_handlers_may_answer_register_and_leave_while_they_are_called(
    tmp_path: Path,
) -> None:
    async with calling(tmp_path, ASK) as caller:
        inner, leaver = InboundRequests(), InboundRequests()

        def meddle(request: InboundRequest) -> None:
            leave()
            caller.endpoint.on_inbound_request(inner)
            _ = caller.host.respond_permission(request.id, CANCELLED)

        caller.endpoint.on_inbound_request(meddle)
        leave = caller.endpoint.on_inbound_request(leaver)
        await caller.ok("sessions/prompt", **_hello(caller))
        assert len(inner.requests) == 1
        assert leaver.requests == []


async def test_a_request_answered_while_a_late_handler_is_served_is_not_given_to_it(
    tmp_path: Path,
) -> None:
    two = [{"request": "session/request_permission", "params": PERMISSION, "nowait": True}] * 2
    stay = {"wait_cancel": True}
    async with calling(tmp_path, *two, stay) as caller, anyio.create_task_group() as tasks:
        host_seen = Seen()
        caller.host.subscribe(None, 0, host_seen)
        tasks.start_soon(caller.raw, "sessions/prompt", _hello(caller))
        await host_seen.first("permission-updated", requestId="perm-2")
        given: list[str] = []

        def answer_both(request: InboundRequest) -> None:
            given.append(request.id)
            for request_id in ("perm-1", "perm-2"):
                _ = caller.host.respond_permission(request_id, CANCELLED)

        caller.endpoint.on_inbound_request(answer_both)
        assert given == ["perm-1"]
        await caller.ok("sessions/cancel", sessionId=caller.session_id)
