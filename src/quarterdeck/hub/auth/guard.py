"""`HttpGuard`, the outermost ASGI application, and `Authentication`, which owns the devices.

A request passes these steps in this order; each rejects it with the status on the right:

    1  the head: size, form, Host, Origin, body type (`admission`)   400 403 415 421 431
    2  the token, or the proof of a browser (`request_signatures`);
       without a valid one only public routes are served             401
    3  the number of requests that its device has open               429
    4  the body: size and time; the digest that was signed           401 408 413
    5  the scope of the device, checked by the router                403

The head is checked first because that needs no I/O: a request from a foreign page costs neither a
query nor memory. The token is checked before the body, so a client without one cannot make the hub
buffer 16 MiB. The body is read here and not in handlers, so its limits hold for every route.

*Anonymous* requests have no valid token; those that fail at step 1 count as such. All clients
together may have a fixed number of them open (503), each for a limited time (408): without that, a
slow client that needs no token could hold the hub's connections. WebSockets that request the token
in a message are limited by their own endpoint.

Handlers find the device and the `Site` in their ASGI scope and never see a token. Every response
carries the security headers, also an error. A `DeviceConnection` is open for as long as a request
or a WebSocket lasts, and is cancelled when its device is revoked, expires, gets a smaller scope or
another token. It is registered in the step that finds the device: a change during the checks that
follow takes effect, too.

A rejected client may still be sending its body. Closing the connection then resets it, and the
client never reads the response. So a short body is read and discarded before the response; for a
long one the response is sent first and ends when the client has sent everything.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
from starlette.types import Message, Receive, Scope as AsgiScope, Send

from quarterdeck.http.asgi import (
    BodyCutOff,
    BodyLimits,
    BodyRejected,
    DrainLimits,
    drain,
    read_body,
    replayed,
)
from quarterdeck.http.headers import secured
from quarterdeck.http.origins import (
    Listening,
    Site,
    check_listening,
    public_origin,
    sites_of,
)
from quarterdeck.http.p256 import to_base64url
from quarterdeck.http.peers import is_unix_socket, relayed_peer
from quarterdeck.hub.api.endpoint import Asgi, error_response, send_error
from quarterdeck.hub.auth.accepted_sites import AcceptedSites
from quarterdeck.hub.auth.admission import (
    SUBPROTOCOL,
    Accepted,
    Head,
    Rejected,
    admit,
    is_page_file,
    named_credentials,
    without_credentials,
    without_secrets,
)
from quarterdeck.hub.auth.device import SCOPE_KEY, UNUSED_SECONDS, Device
from quarterdeck.hub.auth.device_keys import HubKey
from quarterdeck.hub.auth.devices import DeviceConnection, Devices, sighting_of
from quarterdeck.hub.auth.local_peers import LocalCallers
from quarterdeck.hub.auth.pairing import Pairings
from quarterdeck.hub.auth.request_signatures import (
    Nonces,
    Proof,
    SignedTarget,
    is_proof_of,
    read_proof,
)
from quarterdeck.hub.auth.tokens import redacted
from quarterdeck.hub.store import HubStore
from quarterdeck.protocol.timestamps import Now

logger = logging.getLogger(__name__)

CONNECTION_KEY: Final = "quarterdeck.connection"
"""Where a handler finds its own `DeviceConnection`."""
SITE_KEY: Final = "quarterdeck.site"
"""Where a handler finds the `Site` that the request was sent to."""
REVOKED: Final = 4401
"""Close code of a WebSocket whose device was revoked or has expired."""

_CLOSE_SECONDS: Final = 0.5  # a client that reads nothing is disconnected without a reason
_NO_TOKEN: Final = Rejected(
    401, "quarterdeck/unauthorized", "a token is required; send Authorization: Bearer TOKEN"
)
_WRONG_TOKEN: Final = Rejected(
    401,
    "quarterdeck/unauthorized",
    "unknown token, or its device was revoked; pair again: quarterdeck devices pair",
)
STALE_PROOF: Final = Rejected(
    401,
    "quarterdeck/stale-signature",
    "the signature is too old, was used before, or was made before the hub restarted; sign again"
    " with a nonce from GET /api/nonce",
)
WRONG_PROOF: Final = Rejected(
    401,
    "quarterdeck/wrong-signature",
    "the signature does not match this request; if a proxy changes URLs or bodies, configure it to"
    " leave them unchanged",
)
UNKNOWN_KEY: Final = Rejected(
    401,
    "quarterdeck/unauthorized",
    "this browser was revoked, has expired or was never paired with this hub; pair it again:"
    " quarterdeck devices pair",
)
_FAILED: Final = Rejected(500, "quarterdeck/unavailable", "internal error; see the hub's log")
_REVOKED: Final = Rejected(
    401, "quarterdeck/unauthorized", "this device was revoked or has expired; pair it again"
)
_RETRY_SECONDS: Final = 5
_BUSY: Final = Rejected(
    503,
    "quarterdeck/too-many",
    "too many requests without a token; try again in a few seconds, or send a token",
    _RETRY_SECONDS,
)
TOO_SLOW: Final = Rejected(
    408, "quarterdeck/invalid", "the request body took too long; send it again"
)

_BEFORE_RESPONSE: Final = DrainLimits(size=1 << 20, seconds=2.0)
"""Up to here the connection can be kept for the next request."""
_AFTER_RESPONSE: Final = DrainLimits(size=256 << 20, seconds=60.0)
"""Many clients send everything before they read anything."""
_AFTER_ANONYMOUS_RESPONSE: Final = DrainLimits(size=64 << 20, seconds=5.0)
# Sent at once: there is no time, or no reason, to read the rest of a body.
_WITHOUT_DRAIN: Final = (TOO_SLOW, _REVOKED, _FAILED, _BUSY)
_UNCHANGED: Final = frozenset({"http.response.body", "websocket.send"})  # no headers to add
_ANONYMOUS_BODY: Final = BodyLimits(size=8 << 10, seconds=10.0)
_DEVICE_BODY: Final = BodyLimits(size=16 << 20, seconds=300.0)


@dataclass(frozen=True, kw_only=True)
class GuardLimits:
    """Limits per request and per device; *anonymous* is a request without a valid token."""

    anonymous: BodyLimits = _ANONYMOUS_BODY
    devices: BodyLimits = _DEVICE_BODY
    connections: int = 2_048
    """Open requests and WebSockets per device."""
    anonymous_requests: int = 256
    """Concurrent anonymous requests, of all clients together."""
    anonymous_seconds: float = 60.0
    """For one of them, from its head to the last byte of the response."""


@dataclass(frozen=True, kw_only=True)
class AuthenticationOptions:
    """Where the hub listens, and its limits."""

    listening: Listening = field(default_factory=Listening)
    limits: GuardLimits = field(default_factory=GuardLimits)
    unused_seconds: float = UNUSED_SECONDS
    """A device that was not seen for so long expires; 0: never."""
    keeps_codes: bool = False
    """Whether pairing codes of the hub before are still valid; see `pairing`."""


class HttpGuard:
    """An ASGI application that authenticates requests for another one."""

    def __init__(
        self, app: Asgi, auth: Authentication, own_sites: Mapping[str, Site] | None = None
    ) -> None:
        """Without `own_sites`, those of the address that the hub listens at are accepted."""
        self._app = app
        self._devices = auth.devices
        self._nonces = auth.nonces
        self._callers = auth.callers
        self._limits = auth.options.limits
        self._sites = auth.sites
        self._own_sites = own_sites
        self._anonymous_count = 0

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)  # "lifespan": from the server, not from outside
            return
        relayed = relayed_peer(scope)
        if relayed is not None:  # the connection's own address is that of the relay
            named = (relayed.address, relayed.port) if relayed.address else None
            scope = {**scope, "client": named}
        response = _Response(scope, receive, send)
        try:
            await self._serve(scope, response)
        except Exception:  # the edge of the program
            if response.is_disconnected:
                return  # the client has left, which is why it failed
            logger.exception("request failed", extra={"path": redacted(scope["path"])})
            await response.fail()
        await response.wait_for_close()

    async def _serve(self, scope: AsgiScope, response: _Response) -> None:
        head = Head(
            kind=scope["type"],
            method=scope.get("method", "GET"),
            path=scope["path"],
            raw_path=scope.get("raw_path") or scope["path"].encode(),
            headers=[(name.lower(), value) for name, value in scope["headers"]],
            version=scope.get("http_version", "1.1"),
        )
        is_socket = is_unix_socket(scope)
        found = self._sites.at_socket if is_socket else self._sites.at_ports
        verdict = admit(found if self._own_sites is None else self._own_sites, head)
        if isinstance(verdict, Rejected):
            await self._serve_anonymous(scope, head, verdict, response)
            return
        device = await self._device(verdict, head, scope)
        if isinstance(device, Rejected):
            anonymous = verdict if verdict.is_public else device
            await self._serve_anonymous(scope, head, anonymous, response)
            return
        if self._devices.live_count(device.id) >= self._limits.connections:
            await response.reject(self._too_many)
            return
        inner = _inner_scope(scope, head, verdict.site, device)
        is_signed, refused = verdict.proof is not None, None
        # Nothing is awaited since the device was found: from here on, its end ends this, too.
        with self._devices.connection(device) as connection:
            inner[CONNECTION_KEY] = connection
            with connection.scope:
                refused = await self._callers.rejection(scope, device, is_signed=is_signed)
                if refused is None:
                    response.is_known = True
                    await self._forward(inner, response, verdict, self._limits.devices)
        if connection.scope.cancelled_caught:
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                await response.end_revoked()
        elif refused is not None:
            await response.reject(refused)

    async def _serve_anonymous(
        self, scope: AsgiScope, head: Head, verdict: Accepted | Rejected, response: _Response
    ) -> None:
        """Serve a public route, or reject; public WebSockets have a timeout of their own."""
        if head.kind == "websocket":
            await self._serve_public(scope, head, verdict, response)
            return
        if self._anonymous_count >= self._limits.anonymous_requests:
            await response.reject(_BUSY)
            return
        self._anonymous_count += 1
        try:
            with anyio.move_on_after(self._limits.anonymous_seconds) as timeout:
                await self._serve_public(scope, head, verdict, response)
        finally:
            self._anonymous_count -= 1
        if timeout.cancelled_caught:
            with anyio.move_on_after(_CLOSE_SECONDS):
                await response.end_timed_out()

    async def _serve_public(
        self, scope: AsgiScope, head: Head, verdict: Accepted | Rejected, response: _Response
    ) -> None:
        if isinstance(verdict, Accepted) and verdict.is_pairing:
            verdict = await self._callers.rejection(scope, None) or verdict
        if isinstance(verdict, Rejected):
            await response.reject(verdict)
        else:
            inner = _inner_scope(scope, head, verdict.site, None)
            await self._forward(inner, response, verdict, self._limits.anonymous)

    @property
    def _too_many(self) -> Rejected:
        message = f"this device has {self._limits.connections} open requests; close some"
        return Rejected(429, "quarterdeck/too-many", message, _RETRY_SECONDS)

    async def _device(self, accepted: Accepted, head: Head, scope: AsgiScope) -> Device | Rejected:
        """Return the device that sends a request; `Rejected` if it does not prove to be one."""
        if accepted.proof is not None:
            proof = read_proof(accepted.proof)
            wanted = _signed_target(head, accepted.site, scope)
            return WRONG_PROOF if proof is None else await self._signing(proof, wanted, scope)
        if accepted.token is None:
            return self._callers.owner(scope) or _NO_TOKEN
        device = await self._devices.authenticate(accepted.token, sighting_of(scope))
        return device or _WRONG_TOKEN

    async def _signing(
        self, proof: Proof, wanted: SignedTarget, scope: AsgiScope
    ) -> Device | Rejected:
        """Return the device that signed a request."""
        key = self._devices.key(proof.device_id)
        if key is None:
            return UNKNOWN_KEY
        if not self._nonces.is_fresh(proof):
            return STALE_PROOF
        if not is_proof_of(key, proof, wanted):
            return WRONG_PROOF
        if not self._nonces.use(proof):
            return STALE_PROOF
        return await self._devices.seen(proof.device_id, sighting_of(scope)) or UNKNOWN_KEY

    async def _forward(
        self, scope: AsgiScope, response: _Response, accepted: Accepted, limits: BodyLimits
    ) -> None:
        if not accepted.has_body:
            if not _is_signed_body(accepted, b"", scope):
                await response.reject(WRONG_PROOF)
                return
            await self._app(scope, response.receive, response.send)
            return
        try:
            body = await read_body(response.receive, limits, accepted.length)
        except BodyCutOff:
            return  # the client has left
        except BodyRejected as error:
            await response.reject(_rejected_body(error))
            return
        if not _is_signed_body(accepted, body, scope):
            await response.reject(WRONG_PROOF)
            return
        await self._app(scope, replayed(body, response.receive), response.send)


class _Response:
    """What was sent to a client so far, and how to end it from outside the handler."""

    def __init__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._has_read_all = False
        self._disconnects = 0
        self._has_started = False
        self._has_ended = False
        self._has_length = False
        self._is_rejected = False
        self.is_known = False
        self.is_disconnected = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            self._has_read_all = True
        if message["type"] == "websocket.disconnect":
            self._disconnects += 1
        return message

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind not in _UNCHANGED:
            message = self._with_our_headers(message)
        try:
            await self._send(message)
        except OSError:
            self.is_disconnected = True
            raise
        if kind == "websocket.send":
            return
        self._has_started = True
        if kind.endswith("response.body"):
            self._has_ended = not message.get("more_body", False)
            self._is_rejected = True
        elif kind == "websocket.close":
            self._has_ended = True

    async def reject(self, rejected: Rejected) -> None:
        """Send an error in place of the handler's response."""
        retry = rejected.retry_seconds
        is_retryable = retry is not None
        response = error_response(
            rejected.status, rejected.code, rejected.message, retryable=is_retryable
        )
        if is_retryable:
            response.headers["retry-after"] = str(retry)
        if rejected.status == 401:
            response.headers["www-authenticate"] = "Bearer"
        send = self.send
        if self._is_sending(rejected) and not await drain(self.receive, _BEFORE_RESPONSE):
            send = self._send_and_linger
        if self._scope["type"] == "http" and not self._has_read_all:
            response.headers["connection"] = "close"
        await send_error(response, self._scope, self._receive, send)

    async def _send_and_linger(self, message: Message) -> None:
        """Send a whole response, but end it only when the client has sent its whole request."""
        if message["type"] != "http.response.body":
            await self.send(message)
            return
        await self.send({**message, "more_body": True})
        await drain(self.receive, _AFTER_RESPONSE if self.is_known else _AFTER_ANONYMOUS_RESPONSE)
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def fail(self) -> None:
        """End the response of a handler that raised."""
        # If this fails too, the connection is unusable, and the server closes it.
        with suppress(Exception):
            await self._end(_FAILED, code=1011, reason="internal error; connect again")

    async def end_revoked(self) -> None:
        """End it because its device was revoked or has expired."""
        with suppress(OSError):  # the client has left
            await self._end(_REVOKED, code=REVOKED, reason=_REVOKED.message)

    async def end_timed_out(self) -> None:
        """End it because it took too long."""
        with suppress(OSError):  # the client has left
            await self._end(TOO_SLOW, code=1011, reason=TOO_SLOW.message)

    async def wait_for_close(self) -> None:
        """Wait until the connection of a rejected WebSocket is closed.

        uvicorn sends `websocket.disconnect` twice, and logs an error if the application has
        returned before the second.
        """
        if self._scope["type"] == "websocket" and self._is_rejected:
            with anyio.move_on_after(_CLOSE_SECONDS):
                while self._disconnects < 2:
                    await self.receive()

    async def _end(self, rejected: Rejected, *, code: int, reason: str) -> None:
        if self._has_ended or self.is_disconnected:
            return
        if not self._has_started:
            await self.reject(rejected)
        elif self._scope["type"] == "websocket":
            await self.send({"type": "websocket.close", "code": code, "reason": reason})
        elif not self._has_length:  # a stream can still be ended properly
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    def _is_sending(self, rejected: Rejected) -> bool:
        """Whether a rejected client may be sending a body that should be read first."""
        if self._has_read_all or rejected in _WITHOUT_DRAIN or self._scope["type"] != "http":
            return False
        return not any(name.lower() == b"expect" for name, _ in self._scope["headers"])

    def _with_our_headers(self, message: Message) -> Message:
        """Return the start of a response with the headers that every response has."""
        if message["type"].endswith("response.start"):
            headers = message.get("headers", ())
            self._has_length = any(name.lower() == b"content-length" for name, _ in headers)
            is_page = message["status"] < 400 and is_page_file(self._scope["path"])
            return {**message, "headers": secured(headers, is_page=is_page)}
        return self._with_subprotocol(message) if message["type"] == "websocket.accept" else message

    def _with_subprotocol(self, message: Message) -> Message:
        """Select our subprotocol if it was offered: a browser requires one of those it sent."""
        if message.get("subprotocol") is None and SUBPROTOCOL in self._scope.get(
            "subprotocols", ()
        ):
            return {**message, "subprotocol": SUBPROTOCOL}
        return message


def _signed_target(head: Head, site: Site, scope: AsgiScope) -> SignedTarget:
    """Return what a proof of this request must be for."""
    query: bytes = scope.get("query_string", b"")
    target = head.raw_path + (b"?" + query if query else b"")
    method = "WEBSOCKET" if head.kind == "websocket" else head.method
    return SignedTarget(method, site.origin, target.decode("latin-1"))


def _is_signed_body(accepted: Accepted, body: bytes, scope: AsgiScope) -> bool:
    """Return whether the device signed this body; a request with a token, or without a device, may
    have any.
    """
    if accepted.proof is None or scope[SCOPE_KEY] is None:
        return True
    proof = read_proof(accepted.proof)
    return proof is not None and proof.digest == to_base64url(hashlib.sha256(body).digest())


def _rejected_body(error: BodyRejected) -> Rejected:
    if error.status == TOO_SLOW.status:
        return TOO_SLOW
    return Rejected(error.status, "quarterdeck/too-large", f"{error.reason}; send less at once")


def _inner_scope(scope: AsgiScope, head: Head, site: Site, device: Device | None) -> dict[str, Any]:
    inner = dict(scope)
    inner["headers"] = without_secrets(head.headers)
    if head.kind == "websocket":
        offered = scope.get("subprotocols", ())
        inner["subprotocols"] = without_credentials(offered)
    inner[SCOPE_KEY] = device
    inner[SITE_KEY] = site
    return inner


def connection_of(scope: AsgiScope) -> DeviceConnection | None:
    """Return the connection of the request that `scope` belongs to; None if it is anonymous."""
    connection: DeviceConnection | None = scope.get(CONNECTION_KEY)
    return connection


SWEEP_SECONDS: Final = 600.0
"""Short, compared with the days after which an unused device expires."""


class Authentication:
    """Devices and pairings, and the guard in front of an application."""

    def __init__(
        self,
        store: HubStore,
        hub_key: HubKey,
        options: AuthenticationOptions,
        *,
        now: Now = time.time,
    ) -> None:
        """Check where the hub listens.

        Raises:
            StartRefused: if that address can be reached from the network without TLS.
        """
        check_listening(options.listening)
        self.options = options
        self.sites = AcceptedSites(options.listening)
        self.devices = Devices(
            store.devices,
            store.device_keys,
            now=now,
            unused_seconds=options.unused_seconds,
            reserve=store.reserve,
        )
        self.nonces = Nonces()
        self.hub_key = hub_key
        self.pairings = Pairings(store.pairings, self.devices, now=now)
        self.callers = LocalCallers(self.devices)

    async def load(self) -> None:
        """Load the stored devices."""
        await self.devices.load()
        await self.devices.sweep()
        if not self.options.keeps_codes:
            await self.pairings.end_all()
        await self.callers.refresh()

    async def sweep_devices(self) -> None:
        """Call `Devices.sweep` and `LocalCallers.refresh` periodically, until cancelled."""
        while True:
            await anyio.sleep(SWEEP_SECONDS)
            await self.devices.sweep()
            await self.callers.refresh()

    def set_port(self, port: int) -> None:
        """Set the port that the system chose; call it before `guard`."""
        listening = replace(self.options.listening, port=port)
        self.options = replace(self.options, listening=listening)
        self.sites = AcceptedSites(listening)

    @property
    def public_origin(self) -> str:
        """The configured address of the hub for other devices, such as "https://desk.example".

        `hub.reach` knows others, such as the one at a relay.
        """
        return public_origin(self.options.listening)

    def is_known(self, head: bytes) -> bool:
        """Return whether the head of a request names a device; not whether it proves to be it."""
        token, device_id = named_credentials(head)
        return self.devices.is_named(token=token, device_id=device_id)

    def guard(self, app: Asgi) -> HttpGuard:
        """Return `app` behind a guard."""
        return HttpGuard(app, self)

    def relayed_guard(self, app: Asgi, origin: str) -> HttpGuard:
        """Return `app` behind a guard for clients of a relay, which know the hub by one name."""
        return HttpGuard(app, self, sites_of(origin))
