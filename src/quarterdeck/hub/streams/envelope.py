"""The host's envelopes over a WebSocket (seeds 001 and 003), with a scope for each method.

Frames are JSON texts, objects with one of these keys:

    client: request            {"id", "method", "params"}
            subscribe          {"subscription", "sessionId"?, "fromSeq", "epoch"?}; the client names
                               it; the epoch is the logEpoch that fromSeq is of
            unsubscribe        {"subscription"}
            inboundResponse    {"id", "result"}; with "ref" beside it, which its result repeats
    hub:    hello              {"epoch", "logEpoch", "device"}, first; the epochs are those of the
                               host's numbers and of the numbers of sessions
            response           {"id", "ok", "result" or "error"}
            subscription       the name; beside it "events", a list of one or many
            subscriptionError  {"subscription", "error"}
            subscriptionReset  {"subscription", "reason", "epoch", "head"}: fromSeq is of an earlier
                               epoch; forget the session's events, all come again from the first
            subscriptionAhead  {"subscription", "fromSeq", "head", "message"}, if there is no epoch
            inboundRequest     {"id", "kind", "payload"}
            inboundResult      {"ref", "ok", "error"?}
            error              about a frame that is none of these

A call is carried out even if its connection breaks: its outcome is in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.errors import (
    AcpError,
    JsonInvalid,
    QuarterdeckError,
    RequestRejected,
    StorageFailed,
)
from quarterdeck.http.websocket import TOO_SLOW, WebSocketConnection, accept_websocket
from quarterdeck.hub.api.endpoint import Asgi, device_of
from quarterdeck.hub.auth.device import Device, Scope
from quarterdeck.hub.fleet.identifiers import LOCAL, machine_of
from quarterdeck.hub.streams.cursors import LogCursor
from quarterdeck.hub.streams.service import StreamService
from quarterdeck.hub.streams.shared_log import NEAR_EVENTS, SharedLog
from quarterdeck.jsontext import decode_json, describe_mismatch, encode_json
from quarterdeck.protocol import (
    ERROR_CODES,
    AcpRpcMethod,
    ErrorObject,
    InboundRequest,
    InboundResponse,
    RpcRequest,
    RpcResponse,
    to_json,
)
from quarterdeck.runner import META_SCOPE, permitted_blocks, relative_folder

METHOD_SCOPES: Final[Mapping[str, Scope]] = {
    AcpRpcMethod.LIST_AGENTS: "view",
    AcpRpcMethod.GET_ALL_SESSIONS: "view",
    AcpRpcMethod.LIST_SESSIONS: "view",
    AcpRpcMethod.CREATE_SESSION: "prompt",
    AcpRpcMethod.LOAD_SESSION: "prompt",
    AcpRpcMethod.RESUME_SESSION: "prompt",
    AcpRpcMethod.RESTORE_SESSIONS: "prompt",
    AcpRpcMethod.PROMPT: "prompt",
    AcpRpcMethod.CANCEL: "prompt",
    AcpRpcMethod.CLOSE_SESSION: "prompt",
    AcpRpcMethod.SET_MODE: "approve",  # a mode can allow every call
    AcpRpcMethod.SET_CONFIG_OPTION: "approve",
    AcpRpcMethod.DELETE_SESSION: "admin",
    AcpRpcMethod.SPAWN_AGENT: "admin",
    AcpRpcMethod.DISPOSE_AGENT: "admin",
    AcpRpcMethod.AUTHENTICATE: "admin",
    AcpRpcMethod.LOGOUT: "admin",
}
"""A method that is not here needs "admin"."""


ANSWER_SCOPE: Final[Scope] = "approve"


def needed_scope(request: RpcRequest) -> Scope:
    """Return the scope that a call needs: MCP servers are commands."""
    if request.params.get("mcpServers"):
        return "admin"
    return METHOD_SCOPES.get(request.method, "admin")


OnFailed = Callable[[str, StorageFailed], None]

MOST_CALLS: Final = 256  # of one connection that are not answered yet
MOST_SUBSCRIPTIONS: Final = 1024


class SubscribeFrame(msgspec.Struct, frozen=True, rename="camel"):
    subscription: str
    from_seq: int
    session_id: str | UnsetType = UNSET
    epoch: str | UnsetType = UNSET


class UnsubscribeFrame(msgspec.Struct, frozen=True):
    subscription: str


class Frame(msgspec.Struct, frozen=True, rename="camel"):
    """A frame of a client: one of these."""

    request: RpcRequest | UnsetType = UNSET
    subscribe: SubscribeFrame | UnsetType = UNSET
    unsubscribe: UnsubscribeFrame | UnsetType = UNSET
    inbound_response: InboundResponse | UnsetType = UNSET
    ref: str = ""


def envelope_app(streams: StreamService) -> Asgi:
    """Return the WebSocket's application."""

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if not await accept_websocket(receive, send):
            return
        socket = WebSocketConnection(streams.keep_alive, receive, send)
        if streams.is_full:
            socket.close(TOO_SLOW, "there are as many streams as there may be; try later")
        connection = _Connection(streams, socket, device_of(scope))
        try:
            await connection.run()
        finally:
            connection.end()

    return app


class _Subscription:
    """The events of one log for one client."""

    def __init__(self, log: SharedLog, cursor: int, key: str, on_failed: OnFailed) -> None:
        self.log = log
        self._cursor = cursor
        self._key = key
        self._on_failed = on_failed
        self._head = f'{{"subscription":{encode_json(key).decode()},"events":'
        self.reset: str | None = None
        """A frame that is sent first."""
        self.leave: Callable[[], None] = lambda: None

    @property
    def is_last(self) -> bool:
        return self.log.session_id is None

    @property
    def goal(self) -> int:
        return self.log.head

    def is_near(self, goal: int) -> bool:
        return goal - self._cursor <= NEAR_EVENTS

    async def next(self, goal: int) -> str | None:
        if self.reset is not None:  # before the events that it is about
            reset, self.reset = self.reset, None
            return reset
        if self._cursor >= goal:
            return None
        try:
            run = self.log.recent(self._cursor) or await self.log.older(self._cursor)
        except StorageFailed as error:
            self._on_failed(self._key, error)
            return None
        if self.is_last:  # it must not run ahead of the sessions that its events are about
            run = run.up_to(goal)
        self._cursor = run.last
        return run.frame(self._head)


class _Connection:
    """One client."""

    def __init__(self, streams: StreamService, socket: WebSocketConnection, device: Device) -> None:
        self._streams = streams
        self._socket = socket
        self._device = device
        self._calls = 0
        self._subscriptions: dict[str, _Subscription] = {}

    async def run(self) -> None:
        device = {"id": self._device.id, "name": self._device.name, "scope": self._device.scope}
        logs = self._streams.logs
        hello = {
            "epoch": logs.epoch,
            "logEpoch": logs.log_epoch().id,
            "logEpochs": getattr(self._streams.runner.endpoint, "log_epochs", {}),
            "device": device,
        }
        self._push("hello", hello)
        stop = self._streams.runner.endpoint.on_inbound_request(self._on_inbound)
        try:
            await self._socket.run(self._on_frame)
        finally:
            stop()

    def end(self) -> None:
        """Release all logs."""
        for key in tuple(self._subscriptions):
            self._unsubscribe(key)

    # ---- what the client sends -------------------------------------------------------------

    async def _on_frame(self, text: str | bytes) -> None:
        try:
            frame = read_frame(text)
        except AcpError as error:
            self._push("error", _error(error.code, error.message))
            return
        if frame.request is not UNSET:
            self._call(frame.request)
        elif frame.subscribe is not UNSET:
            await self._subscribe(frame.subscribe)
        elif frame.unsubscribe is not UNSET:
            self._unsubscribe(frame.unsubscribe.subscription)
        elif frame.inbound_response is not UNSET:
            self._start(partial(self._answer, frame.inbound_response, frame.ref))
        else:
            message = "a frame has one of request, subscribe, unsubscribe, inboundResponse"
            self._push("error", _error(ERROR_CODES["config_invalid"], message))

    def _call(self, request: RpcRequest) -> None:
        needed = "admin" if self._moves_servers(request) else needed_scope(request)
        device = self._device_on(request.params.get("sessionId"), request.params.get("agentId"))
        if not device.may(needed):
            message = f"this device has the scope {device.scope}; {request.method} needs {needed}"
            self._respond(request, _error("quarterdeck/forbidden", message))
        elif self._calls >= MOST_CALLS:
            message = f"{MOST_CALLS} calls of this connection wait for an answer; wait for one"
            self._respond(request, _error("quarterdeck/too-many", message, retryable=True))
        elif (sentence := _relative_folder_error(request)) is not None:
            self._respond(request, _error(ERROR_CODES["config_invalid"], sentence))
        else:
            self._start(partial(self._perform, request))

    def _device_on(self, *hub_ids: Any) -> Device:
        """Return the device with its smallest scope on the machines that ids belong to."""
        device = self._device
        for hub_id in hub_ids:
            if isinstance(hub_id, str):
                device = device.on(machine_of(hub_id).machine_id)
        return device if device is not self._device else device.on(LOCAL)

    def _moves_servers(self, request: RpcRequest) -> bool:
        """Whether a session keeps its MCP servers in another folder than its own.

        Their commands may mean other programs there.
        """
        session_id = request.params.get("sessionId")
        if request.method != AcpRpcMethod.RESUME_SESSION or not isinstance(session_id, str):
            return False
        known = self._streams.runner.session_snapshot(session_id)
        if known is None or known.mcp_servers in (UNSET, ()):
            return False
        is_kept = request.params.get("mcpServers") is None
        return is_kept and request.params.get("cwd") != known.cwd

    def _start(self, work: Any) -> None:
        try:
            self._streams.sources.start_in_background(work)
        except AcpError as error:
            self._push("error", to_json(_error(error.code, error.message)))
        else:
            self._calls += 1

    async def _perform(self, request: RpcRequest) -> None:
        try:
            permitted = self._permitted(request)
            response = await self._streams.runner.endpoint.request(permitted)
        except RequestRejected as error:
            self._respond(request, _error(error.code, error.message))
            return
        finally:
            self._calls -= 1
        self._push("response", to_json(response))

    def _permitted(self, request: RpcRequest) -> RpcRequest:
        """Return a call without what this device may not send."""
        params = request.params
        if request.method != AcpRpcMethod.PROMPT:
            return request
        device = self._device_on(params.get("sessionId"))
        blocks, is_less = permitted_blocks(
            params.get("prompt"), may_send_meta=device.may(META_SCOPE)
        )
        if not is_less:
            return request
        session_id = params.get("sessionId")
        self._streams.runner.report_removed_meta(
            session_id if isinstance(session_id, str) else None,
            scope=device.scope,
            by=device.actor,
        )
        return replace(request, params={**params, "prompt": blocks})

    async def _answer(self, response: InboundResponse, ref: str) -> None:
        result: dict[str, Any] = {"ref": ref, "ok": True}
        try:
            self._check_may_answer(response.id)
            await self._streams.sources.answer(response.id, response.result, self._device)
        except AcpError as error:
            failed = _error(error.code, error.message, data=error.data)
            result = {"ref": ref, "ok": False, "error": to_json(failed)}
        except QuarterdeckError as error:
            failed = _error(ERROR_CODES["agent_error"], str(error))
            result = {"ref": ref, "ok": False, "error": to_json(failed)}
        finally:
            self._calls -= 1
        self._push("inboundResult", result)

    async def _subscribe(self, frame: SubscribeFrame) -> None:
        key = frame.subscription
        session_id = None if frame.session_id is UNSET else frame.session_id
        try:
            self._check_may_subscribe(key)
            log = await self._streams.logs.open(session_id)
        except (AcpError, StorageFailed) as error:
            code = error.code if isinstance(error, AcpError) else ERROR_CODES["agent_error"]
            self._fail(key, _error(code, str(error)))
            return
        reset = self._reset_of(frame, log)
        start = 0 if reset else max(frame.from_seq, 0)
        subscription = _Subscription(log, start, key, self._on_failed)
        self._subscriptions[key] = subscription
        if reset:
            subscription.reset = _frame("subscriptionReset", reset)
        subscription.leave = log.join(partial(self._socket.due, subscription))
        self._socket.due(subscription)
        if frame.from_seq > log.head and not reset:
            self._push("subscriptionAhead", _ahead(frame, log.head))

    def _reset_of(self, frame: SubscribeFrame, log: SharedLog) -> dict[str, Any] | None:
        """Return the frame for a client whose number means nothing here; None if it is valid."""
        if log.session_id is None:
            return None  # the host's numbers have an epoch of their own, in `hello`
        epoch = self._streams.logs.log_epoch(log.session_id)
        given = None if frame.epoch is UNSET else frame.epoch
        is_valid = LogCursor(given, max(frame.from_seq, 0)).is_valid(epoch)
        if is_valid and (given is None or frame.from_seq <= log.head):
            return None
        reason = "ahead" if is_valid else "epoch"
        facts = {"subscription": frame.subscription, "reason": reason}
        return {**facts, "epoch": epoch.id, "head": log.head}

    def _check_may_answer(self, request_id: str) -> None:
        device = self._device_on(request_id)
        if not device.may(ANSWER_SCOPE):
            message = f"this device has the scope {device.scope}; an answer needs {ANSWER_SCOPE}"
            raise AcpError("quarterdeck/forbidden", message)

    def _check_may_subscribe(self, key: str) -> None:
        if key in self._subscriptions:
            raise AcpError(ERROR_CODES["config_invalid"], f"there is a subscription {key!r}")
        if len(self._subscriptions) >= MOST_SUBSCRIPTIONS:
            message = f"there are {MOST_SUBSCRIPTIONS} subscriptions; end one"
            raise AcpError("quarterdeck/too-many", message)

    def _unsubscribe(self, key: str) -> None:
        subscription = self._subscriptions.pop(key, None)
        if subscription is not None:
            self._socket.drop(subscription)
            subscription.leave()
            self._streams.logs.release(subscription.log)

    # ---- what the client gets --------------------------------------------------------------

    def _on_failed(self, key: str, error: StorageFailed) -> None:
        """End a subscription whose log cannot be read."""
        self._unsubscribe(key)
        self._fail(key, _error(ERROR_CODES["agent_error"], str(error), retryable=True))

    def _fail(self, key: str, error: ErrorObject) -> None:
        self._push("subscriptionError", {"subscription": key, "error": to_json(error)})

    def _on_inbound(self, request: InboundRequest) -> None:
        self._push("inboundRequest", to_json(request))

    def _respond(self, request: RpcRequest, error: ErrorObject) -> None:
        self._push("response", to_json(RpcResponse(id=request.id, ok=False, error=error)))

    def _push(self, key: str, value: Any) -> None:
        self._socket.push(_frame(key, value))


def _frame(key: str, value: Any) -> str:
    return encode_json({key: value}).decode("utf-8", "replace")


def read_frame(text: str | bytes) -> Frame:
    """Read a frame of a client.

    Raises:
        AcpError: `acpjs/config-invalid` if it is none.
    """
    try:
        try:
            return _decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return msgspec.convert(decode_json(text), Frame)
    except JsonInvalid as error:
        raise _not_understood(str(error)) from error
    except msgspec.ValidationError as error:
        raise _not_understood(describe_mismatch(error, Frame)) from error
    except UnicodeError as error:
        raise _not_understood("a name in it has half of a surrogate pair") from error


def _not_understood(reason: str) -> AcpError:
    message = f"this frame cannot be understood: {reason}"
    return AcpError(ERROR_CODES["config_invalid"], message)


def _ahead(frame: SubscribeFrame, head: int) -> dict[str, Any]:
    """Return the frame for a client whose number is ahead of the log: it may be of another."""
    message = (
        f"the newest event is {head}, so nothing comes until there are more than "
        f"{frame.from_seq}; if you had those, forget them and subscribe from 0"
    )
    facts = {"subscription": frame.subscription, "fromSeq": frame.from_seq, "head": head}
    return {**facts, "message": message}


def _error(code: str, message: str, *, data: Any = None, retryable: bool = False) -> ErrorObject:
    given = UNSET if data is None else data
    return ErrorObject(code=code, message=message, data=given, retryable=retryable)


_decode: Final = msgspec.json.Decoder(Frame).decode


def _relative_folder_error(request: RpcRequest) -> str | None:
    """Return what is wrong if a folder of a call is relative; None if all are absolute."""
    further = request.params.get("additionalDirectories")
    folders = further if isinstance(further, list | tuple) else ()
    return relative_folder(request.params.get("cwd"), *folders)
