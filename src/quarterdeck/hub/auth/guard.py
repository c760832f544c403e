"""The outermost application: nothing reaches the hub but through here.

What may come in is decided in `rules`; this does it. Handlers find the device in their scope and
never see a token. Every answer leaves with our security headers, also those to requests that were
refused or failed. Whatever a device has open ends when it is revoked or expires.

The gate of a hub: who may come in, and how others are let in.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
from starlette.types import Message, Receive, Scope as AsgiScope, Send

from quarterdeck.http.body import (
    BodyCutOff,
    BodyLimits,
    BodyRejected,
    DrainLimits,
    drain,
    read_body,
    replayed,
)
from quarterdeck.http.headers import secured
from quarterdeck.http.origins import Listening, Site, check_listening, public_origin, sites
from quarterdeck.hub.api.endpoint import Asgi, refusal, send_refusal
from quarterdeck.hub.auth.admission import (
    SUBPROTOCOL,
    TOKEN_SUBPROTOCOL,
    Accepted,
    Head,
    Rejected,
    admit,
    is_page_file,
    without_secrets,
)
from quarterdeck.hub.auth.device import SCOPE_KEY, UNUSED_SECONDS, Device
from quarterdeck.hub.auth.devices import DeviceConnection, Devices, sighting_of
from quarterdeck.hub.auth.pairing import Pairings
from quarterdeck.hub.auth.tokens import redacted
from quarterdeck.hub.store import HubStore
from quarterdeck.protocol.timestamps import Now

logger = logging.getLogger(__name__)

CONNECTION_KEY: Final = "quarterdeck.connection"
"""Where a handler finds its own `DeviceConnection`."""
SITE_KEY: Final = "quarterdeck.site"
"""Where a handler finds the `Site` it was asked at."""
REVOKED: Final = 4401
"""The code a WebSocket is closed with when its device may not come in any more."""

_CUT_SECONDS: Final = 0.5  # a client that reads nothing does not get to hear why
_NO_TOKEN: Final = Rejected(
    401, "quarterdeck/unauthorized", "this needs a token: send Authorization: Bearer TOKEN"
)
_WRONG_TOKEN: Final = Rejected(
    401, "quarterdeck/unauthorized", "this token is not known here, or not any more; pair again"
)
_FAILED: Final = Rejected(
    500, "quarterdeck/unavailable", "the hub failed to answer this; its log says why"
)
_REVOKED: Final = Rejected(
    401, "quarterdeck/unauthorized", "this device was revoked or has expired; pair it again"
)
_RETRY_SECONDS: Final = 5
_CROWDED: Final = Rejected(
    503,
    "quarterdeck/too-many",
    "too many ask at once without a token; try again in a few seconds, or send a token",
    _RETRY_SECONDS,
)
TOO_SLOW: Final = Rejected(408, "quarterdeck/invalid", "the body took too long; send it again")

_BEFORE_RESPONSE: Final = DrainLimits(size=1 << 20, seconds=2.0)
"""Then the connection can be used again."""
_AFTER_RESPONSE: Final = DrainLimits(size=256 << 20, seconds=60.0)
"""Many clients send everything before they read anything."""
_DRAINED_OF_STRANGERS: Final = DrainLimits(size=64 << 20, seconds=5.0)
# Waiting for the rest of a body is over.
_AT_ONCE: Final = (TOO_SLOW, _REVOKED, _FAILED, _CROWDED)
_OFTEN: Final = frozenset({"http.response.body", "websocket.send"})  # passed on as they are
_OF_STRANGERS: Final = BodyLimits(size=8 << 10, seconds=10.0)
_OF_DEVICES: Final = BodyLimits(size=16 << 20, seconds=300.0)


@dataclass(frozen=True, kw_only=True)
class GateLimits:
    """What one request or device may take."""

    strangers: BodyLimits = _OF_STRANGERS
    devices: BodyLimits = _OF_DEVICES
    connections: int = 2_048
    """Requests and WebSockets that one device may have open."""
    stranger_requests: int = 256
    """Requests without a token that are answered at once, all together."""
    stranger_seconds: float = 60.0
    """For one of them from its head to the last byte of its answer."""


@dataclass(frozen=True, kw_only=True)
class AuthenticationOptions:
    """How a hub can be reached, and how much of it can be used."""

    listening: Listening = field(default_factory=Listening)
    limits: GateLimits = field(default_factory=GateLimits)
    unused_seconds: float = UNUSED_SECONDS
    """After which a device that was not heard of has to be paired again; 0: never."""


class HttpGuard:
    """An ASGI application around another one."""

    def __init__(self, app: Asgi, devices: Devices, options: AuthenticationOptions) -> None:
        self._app = app
        self._devices = devices
        self._limits = options.limits
        self._sites = sites(options.listening)
        self._strangers = 0

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)  # "lifespan": from the server, not from outside
            return
        answer = _Answer(scope, receive, send)
        try:
            await self._serve(scope, answer)
        except Exception:  # the edge of the program
            if answer.is_lost:
                return  # nobody is there any more; that is what it failed of
            logger.exception("request failed", extra={"path": redacted(scope["path"])})
            await answer.fail()
        await answer.see_off()

    async def _serve(self, scope: AsgiScope, answer: _Answer) -> None:
        head = Head(
            kind=scope["type"],
            method=scope.get("method", "GET"),
            path=scope["path"],
            raw_path=scope.get("raw_path") or scope["path"].encode(),
            headers=[(name.lower(), value) for name, value in scope["headers"]],
            version=scope.get("http_version", "1.1"),
        )
        verdict = admit(self._sites, head)
        device = None if isinstance(verdict, Rejected) else await self._device(verdict, scope)
        if isinstance(verdict, Rejected) or device is None:
            await self._serve_stranger(scope, head, verdict, answer)
            return
        answer.is_known = True
        if self._devices.live_count(device.id) >= self._limits.connections:
            await answer.refuse(self._too_many)
            return
        inner = _inner_scope(scope, head, verdict.site, device)
        with self._devices.connection(device) as connection:
            inner[CONNECTION_KEY] = connection
            with connection.scope:
                await self._hand_over(inner, answer, verdict, self._limits.devices)
        if connection.scope.cancelled_caught:
            with anyio.move_on_after(_CUT_SECONDS, shield=True):
                await answer.cut()

    async def _serve_stranger(
        self, scope: AsgiScope, head: Head, verdict: Accepted | Rejected, answer: _Answer
    ) -> None:
        """Serve whoever has no token, within a time; a socket asks for one, and waits not long."""
        if head.kind == "websocket":
            await self._face(scope, head, verdict, answer)
            return
        if self._strangers >= self._limits.stranger_requests:
            await answer.refuse(_CROWDED)
            return
        self._strangers += 1
        try:
            with anyio.move_on_after(self._limits.stranger_seconds) as patience:
                await self._face(scope, head, verdict, answer)
        finally:
            self._strangers -= 1
        if patience.cancelled_caught:
            with anyio.move_on_after(_CUT_SECONDS):
                await answer.give_up()

    async def _face(
        self, scope: AsgiScope, head: Head, verdict: Accepted | Rejected, answer: _Answer
    ) -> None:
        if isinstance(verdict, Rejected):
            await answer.refuse(verdict)
        elif not verdict.is_public:
            await answer.refuse(_NO_TOKEN if verdict.token is None else _WRONG_TOKEN)
        else:
            inner = _inner_scope(scope, head, verdict.site, None)
            await self._hand_over(inner, answer, verdict, self._limits.strangers)

    @property
    def _too_many(self) -> Rejected:
        message = f"this device has {self._limits.connections} requests open; close some"
        return Rejected(429, "quarterdeck/too-many", message, _RETRY_SECONDS)

    async def _device(self, admitted: Accepted, scope: AsgiScope) -> Device | None:
        if admitted.token is None:
            return None
        return await self._devices.authenticate(admitted.token, sighting_of(scope))

    async def _hand_over(
        self, scope: AsgiScope, answer: _Answer, admitted: Accepted, limits: BodyLimits
    ) -> None:
        if not admitted.has_body:
            await self._app(scope, answer.receive, answer.send)
            return
        try:
            body = await read_body(answer.receive, limits, admitted.length)
        except BodyCutOff:
            return  # the client has left
        except BodyRejected as error:
            await answer.refuse(_refused_body(error))
            return
        await self._app(scope, replayed(body, answer.receive), answer.send)


class _Answer:
    """What was said to a client so far, and how to end it from outside."""

    def __init__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._has_heard_all = False
        self._farewells = 0
        self._has_started = False
        self._has_ended = False
        self._has_length = False
        self._is_refused = False
        self.is_known = False
        self.is_lost = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._has_heard_all = True
        if message["type"] == "websocket.disconnect":
            self._farewells += 1
        return message

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind not in _OFTEN:
            message = self._dressed(message)
        try:
            await self._send(message)
        except OSError:
            self.is_lost = True
            raise
        if kind == "websocket.send":
            return
        self._has_started = True
        if kind.endswith("response.body"):
            self._has_ended = not message.get("more_body", False)
            self._is_refused = True
        elif kind == "websocket.close":
            self._has_ended = True

    async def refuse(self, refused: Rejected) -> None:
        """Answer instead of a handler."""
        retry = refused.retry_seconds
        is_retryable = retry is not None
        response = refusal(refused.status, refused.code, refused.message, retryable=is_retryable)
        if is_retryable:
            response.headers["retry-after"] = str(retry)
        if refused.status == 401:
            response.headers["www-authenticate"] = "Bearer"
        send = self.send
        if self._is_sending(refused) and not await drain(self.receive, _BEFORE_RESPONSE):
            send = self._send_and_linger
        if self._scope["type"] == "http" and not self._has_heard_all:
            response.headers["connection"] = "close"
        await send_refusal(response, self._scope, self._receive, send)

    async def _send_and_linger(self, message: Message) -> None:
        """Send all of an answer, but end it when the client has sent all of its request."""
        if message["type"] != "http.response.body":
            await self.send(message)
            return
        await self.send({**message, "more_body": True})
        await drain(self.receive, _AFTER_RESPONSE if self.is_known else _DRAINED_OF_STRANGERS)
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def fail(self) -> None:
        """End what a handler left behind when it failed."""
        # A second failure means that the connection is of no use: the server closes it.
        with suppress(Exception):
            await self._end(_FAILED, code=1011, reason="the hub failed; connect again")

    async def cut(self) -> None:
        """End it because the device may not come in any more."""
        with suppress(OSError):  # it has gone by itself
            await self._end(_REVOKED, code=REVOKED, reason=_REVOKED.message)

    async def give_up(self) -> None:
        """End it because it takes too long."""
        with suppress(OSError):  # it has gone by itself
            await self._end(TOO_SLOW, code=1011, reason=TOO_SLOW.message)

    async def see_off(self) -> None:
        """Wait until the connection of a refused WebSocket is closed.

        uvicorn says goodbye twice, and complains in its log if we have left before the second.
        """
        if self._scope["type"] == "websocket" and self._is_refused:
            with anyio.move_on_after(_CUT_SECONDS):
                while self._farewells < 2:
                    await self.receive()

    async def _end(self, refused: Rejected, *, code: int, reason: str) -> None:
        if self._has_ended or self.is_lost:
            return
        if not self._has_started:
            await self.refuse(refused)
        elif self._scope["type"] == "websocket":
            await self.send({"type": "websocket.close", "code": code, "reason": reason})
        elif not self._has_length:  # of a stream, the end can still be said properly
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    def _is_sending(self, refused: Rejected) -> bool:
        """Whether a refused client may be sending a body that it is worth to wait for."""
        if self._has_heard_all or refused in _AT_ONCE or self._scope["type"] != "http":
            return False
        return not any(name.lower() == b"expect" for name, _ in self._scope["headers"])

    def _dressed(self, message: Message) -> Message:
        """Return the beginning of an answer with what every answer of ours has."""
        if message["type"].endswith("response.start"):
            headers = message.get("headers", ())
            self._has_length = any(name.lower() == b"content-length" for name, _ in headers)
            is_page = message["status"] < 400 and is_page_file(self._scope["path"])
            return {**message, "headers": secured(headers, is_page=is_page)}
        return self._with_subprotocol(message) if message["type"] == "websocket.accept" else message

    def _with_subprotocol(self, message: Message) -> Message:
        """Choose our subprotocol if it was offered; a browser insists on one of those."""
        if message.get("subprotocol") is None and SUBPROTOCOL in self._scope.get(
            "subprotocols", ()
        ):
            return {**message, "subprotocol": SUBPROTOCOL}
        return message


def _refused_body(error: BodyRejected) -> Rejected:
    if error.status == TOO_SLOW.status:
        return TOO_SLOW
    return Rejected(error.status, "quarterdeck/too-large", f"{error.reason}; send less at once")


def _inner_scope(scope: AsgiScope, head: Head, site: Site, device: Device | None) -> dict[str, Any]:
    inner = dict(scope)
    inner["headers"] = without_secrets(head.headers)
    if head.kind == "websocket":
        offered = scope.get("subprotocols", ())
        inner["subprotocols"] = [each for each in offered if TOKEN_SUBPROTOCOL not in each]
    inner[SCOPE_KEY] = device
    inner[SITE_KEY] = site
    return inner


def connection_of(scope: AsgiScope) -> DeviceConnection | None:
    """Return what ends the request that `scope` belongs to when its device is revoked."""
    connection: DeviceConnection | None = scope.get(CONNECTION_KEY)
    return connection


LOOK_SECONDS: Final = 600.0
"""Nothing, compared with the days that a device may be silent."""


class Authentication:
    """Devices and pairings, and the guard that stands in front of an application."""

    def __init__(
        self, store: HubStore, options: AuthenticationOptions, *, now: Now = time.time
    ) -> None:
        """Raises HubRefused if the hub may not listen where it is told to."""
        check_listening(options.listening)
        self.options = options
        self.devices = Devices(store.devices, now=now, unused_seconds=options.unused_seconds)
        self.pairings = Pairings(store.pairings, self.devices, now=now)

    async def load(self, token: str) -> None:
        """Begin with the devices of earlier hubs; `token` is the owner's."""
        await self.devices.load(token)
        await self.devices.look_after()

    async def keep_watch(self) -> None:
        """Look after devices now and again, until it is cancelled."""
        while True:
            await anyio.sleep(LOOK_SECONDS)
            await self.devices.look_after()

    def listens_at(self, port: int) -> None:
        """Tell which port it became, before `guard` is called, if the system has chosen one."""
        listening = replace(self.options.listening, port=port)
        self.options = replace(self.options, listening=listening)

    @property
    def public_origin(self) -> str:
        """The address of the hub for other devices, such as "https://desk.example"."""
        return public_origin(self.options.listening)

    def guard(self, app: Asgi) -> HttpGuard:
        """Return the application that lets only the right ones through to `app`."""
        return HttpGuard(app, self.devices, self.options)
