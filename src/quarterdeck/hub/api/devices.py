"""Devices over HTTP: pairing, listing, changing and revoking them."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from http.cookies import SimpleCookie
from typing import Annotated, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.errors import DatabaseFailed, RequestRejected
from quarterdeck.http.origins import Site
from quarterdeck.hub.api.endpoint import (
    Asgi,
    Body,
    Endpoint,
    device_of,
    error_response,
    http_status,
    invalid,
    read_query,
)
from quarterdeck.hub.auth.device import OWNER, SCOPE_KEY, Device, Scope
from quarterdeck.hub.auth.device_keys import verified_key
from quarterdeck.hub.auth.device_store import DeviceEvent
from quarterdeck.hub.auth.devices import clean_name, sighting_of
from quarterdeck.hub.auth.guard import SITE_KEY, Authentication, connection_of
from quarterdeck.hub.auth.pairing import (
    LIFETIME_SECONDS,
    LONGEST_SECONDS,
    TooManyAttempts,
    pairing_link,
)
from quarterdeck.hub.auth.pairing_store import Pairing
from quarterdeck.hub.reach.ways import Reach
from quarterdeck.jsontext import describe_mismatch, encode_json

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Handler: TypeAlias = Callable[[AsgiScope, bytes], Awaitable[Response]]
_Name: TypeAlias = Annotated[str, Meta(max_length=200)]


class PairKey(Body, frozen=True, kw_only=True):
    """The key that a browser registers; see `hub.auth.device_keys`."""

    public_key: Annotated[str, Meta(min_length=87, max_length=87)]
    """The uncompressed point of a P-256 key, as base64url."""
    nonce: Annotated[str, Meta(min_length=22, max_length=22)]
    """From GET /api/nonce."""
    signature: Annotated[str, Meta(min_length=86, max_length=86)]
    """With that key, over `quarterdeck-pairing-1`, the origin of the page, the code, the public key
    and the nonce, joined by line feeds."""


class PairRequest(Body, frozen=True, kw_only=True):
    """What a new device sends."""

    code: Annotated[str, Meta(min_length=1, max_length=100)]
    name: _Name = ""
    """What its owner will see in the list of devices."""
    key: PairKey | None = None
    """A browser must send one; a program may, and gets no token then."""


class NonceQuery(Body, frozen=True, kw_only=True):
    """What the hub is to sign."""

    challenge: Annotated[str, Meta(min_length=22, max_length=86, pattern="^[A-Za-z0-9_-]*$")]
    """Random, as base64url."""


class NonceAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a device needs to sign its requests."""

    nonce: str
    time: int
    """Milliseconds of the hub's own clock, which begins anew at each start."""
    signature: str
    """With the key of the hub, over `quarterdeck-hub-1`, the origin of the page, the challenge, the
    nonce and the time, joined by line feeds."""


class PairAnswer(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What it gets."""

    device: Device
    token: str | None = None
    """Shown once. A device that registered a key gets none."""
    hub_key: str | None = None
    """The public key of the hub, for a device that registered a key; as `publicKey`."""


class PairingRequest(Body, frozen=True, kw_only=True):
    """The device to pair."""

    scope: Scope = "approve"
    name: _Name = ""
    seconds: Annotated[float, Meta(ge=10, le=LONGEST_SECONDS)] = LIFETIME_SECONDS
    """How long the codes work."""
    device_seconds: Annotated[float, Meta(ge=60, le=10 * 365 * 86_400)] | None = None
    """How long the device stays paired; None: until it is revoked."""


class PairingAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """The codes, shown once."""

    pairing: Pairing
    code: str
    """To be typed: XXXX-XXXX."""
    link: str
    """To be opened in a browser; as a QR code only if `reach.isUsable`. It carries the pin of the
    hub's own certificate, if it has one."""
    reach: Reach
    """How a phone gets there; as `GET /api/reach`."""


class PairingList(Struct, frozen=True, kw_only=True, rename="camel"):
    pairings: list[Pairing]


class DeviceList(Struct, frozen=True, kw_only=True, rename="camel"):
    devices: list[Device]


class DeviceLog(Struct, frozen=True, kw_only=True, rename="camel"):
    events: list[DeviceEvent]
    """The newest first."""


class RenewAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """The old token works until the new one is used."""

    token: str
    """Shown once."""


class TokenRequest(Body, frozen=True, kw_only=True):
    """The program that gets a token."""

    name: _Name = ""
    """What its owner will see in the list of devices."""
    scope: Scope = "prompt"
    device_seconds: Annotated[float, Meta(ge=60, le=10 * 365 * 86_400)] | None = None
    """How long the token works; None: until it is revoked, or was not used for long."""


class TokenAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """A new device with its token, which is shown once."""

    device: Device
    token: str


class UnstoredRevocation(Struct, frozen=True, kw_only=True, rename="camel"):
    """The device is revoked, and this is not stored yet (202): the disk is full or read-only."""

    message: str
    """What to do."""


_MachineKey = Annotated[str, Meta(pattern=r"^(\*|here|m[a-z0-9]{8})$")]


class DeviceChange(Body, frozen=True, kw_only=True):
    """What to change of a device."""

    name: _Name | None = None
    scope: Scope | None = None
    machine_scopes: Annotated[dict[_MachineKey, Scope], Meta(max_length=1000)] | None = None
    """Smaller scopes on machines, by their ids; `here` is the hub's own, `*` all others."""


FindReach: TypeAlias = Callable[[], Awaitable[Reach]]


def device_endpoints(auth: Authentication, find_reach: FindReach) -> list[Endpoint]:
    """Return the devices' part of the route table; `find_reach` finds how phones get here."""
    pairing = _PairingApi(auth, find_reach)
    return [*_pairing_endpoints(pairing), *_device_endpoints(_DeviceApi(auth))]


def _pairing_endpoints(api: _PairingApi) -> list[Endpoint]:
    nonce = _endpoint(None, "GET /api/nonce", api.nonce, "Get what signing a request needs")
    pair = _endpoint(None, "POST /api/pair", api.pair, "Pair with a pairing code")
    create = _endpoint(
        "admin", "POST /api/pairings", api.create, "Create pairing codes for one device"
    )
    listed = _endpoint("admin", "GET /api/pairings", api.list, "List unused pairing codes")
    cancel = _endpoint("admin", "DELETE /api/pairings/{id}", api.cancel, "Cancel a pairing")
    return [
        replace(nonce, query=NonceQuery, returns=NonceAnswer, errors=(400,)),
        replace(pair, body=PairRequest, returns=PairAnswer, errors=(400, 403, 429)),
        replace(create, body=PairingRequest, returns=PairingAnswer, status=201, errors=(400,)),
        replace(listed, returns=PairingList),
        replace(cancel, status=204, errors=(404,)),
    ]


def _device_endpoints(api: _DeviceApi) -> list[Endpoint]:
    me = _endpoint("view", "GET /api/device", api.me, "Show which device this is")
    listed = _endpoint("view", "GET /api/devices", api.list, "List devices")
    create = _endpoint("admin", "POST /api/devices", api.create, "Make a token for a program")
    change = _endpoint(
        "admin", "PATCH /api/devices/{id}", api.change, "Rename a device or change what it may do"
    )
    log = _endpoint("admin", "GET /api/devices/log", api.log, "Show what happened to devices")
    renew = _endpoint(
        "view", "POST /api/device/token", api.renew, "Get a new token for this device"
    )
    revoke = _endpoint(
        "view",
        "DELETE /api/devices/{id}",
        api.revoke,
        "Revoke a device: your own, or with admin any",
    )
    log_out = _endpoint("view", "POST /api/logout", api.log_out, "Revoke this device")
    return [
        replace(me, returns=Device),
        replace(listed, returns=DeviceList),
        replace(create, body=TokenRequest, returns=TokenAnswer, status=201, errors=(400,)),
        replace(log, returns=DeviceLog),  # before {id}, which would match it, too
        replace(change, body=DeviceChange, returns=Device, errors=(400, 404)),
        replace(renew, returns=RenewAnswer, errors=(403,)),
        replace(revoke, status=204, errors=(404,)),
        replace(log_out, status=204),
    ]


def _endpoint(scope: Scope | None, way: str, handler: _Handler, summary: str) -> Endpoint:
    method, _, path = way.partition(" ")
    return Endpoint(
        method=method,
        path=path,
        scope=scope,
        app=_app(handler),
        summary=summary,
        tag="devices",
    )


class _PairingApi:
    def __init__(self, auth: Authentication, find_reach: FindReach) -> None:
        self._auth = auth
        self._find_reach = find_reach

    async def nonce(self, scope: AsgiScope, _body: bytes) -> Response:
        query: NonceQuery = read_query(scope, NonceQuery)
        given = self._auth.nonces.newest()
        origin = scope[SITE_KEY].origin
        signature = self._auth.hub_key.answer(query.challenge, origin, given)
        answer = NonceAnswer(nonce=given.nonce, time=given.milliseconds, signature=signature)
        return _json(answer)

    async def pair(self, scope: AsgiScope, body: bytes) -> Response:
        wanted = _read(body, PairRequest)
        key = self._verified_key(scope, wanted)
        seen = sighting_of(scope)
        paired = await self._auth.pairings.pair(
            wanted.code,
            name=wanted.name,
            address=seen.address or "",
            user_agent=seen.user_agent,
            key=key,
        )
        if paired is None:
            message = (
                "the code is wrong, already used or expired; get a new one:"
                " quarterdeck devices pair"
            )
            return error_response(403, "quarterdeck/forbidden", message)
        if isinstance(paired, TooManyAttempts):
            seconds = math.ceil(paired.seconds)
            message = f"too many wrong codes; try again in {seconds} s"
            refused = error_response(429, "quarterdeck/too-many", message)
            refused.headers["retry-after"] = str(seconds)
            return refused
        if key is None:
            return _json(PairAnswer(device=paired.device, token=paired.token))
        await self._replace_device(scope)
        response = _json(PairAnswer(device=paired.device, hub_key=self._auth.hub_key.public))
        _delete_old_cookie(response, scope[SITE_KEY])
        return response

    def _verified_key(self, scope: AsgiScope, wanted: PairRequest) -> bytes | None:
        """Return the key to register; None for a program that gets a token.

        Raises:
            RequestRejected: if it was not signed with that key, or a page sends none.
        """
        if wanted.key is None:
            if _is_browser(scope):
                message = "this page is older than the hub; reload it, then pair again"
                raise invalid(message)
            return None
        key = verified_key(
            wanted.key.public_key,
            wanted.key.signature,
            code=wanted.code,
            origin=scope[SITE_KEY].origin,
            nonce=wanted.key.nonce,
        )
        if key is None or not self._auth.nonces.is_valid(wanted.key.nonce):
            message = "the key was not registered: its signature or nonce is not valid; try again"
            raise invalid(message)
        return key

    async def _replace_device(self, scope: AsgiScope) -> None:
        """Revoke what a browser was until now: its old key is about to be overwritten."""
        before: Device | None = scope[SCOPE_KEY]
        if before is not None and before.id != OWNER:
            await self._auth.devices.revoke(before.id, except_for=connection_of(scope))

    async def create(self, _scope: AsgiScope, body: bytes) -> Response:
        wanted = _read(body or b"{}", PairingRequest)
        pairing, codes = await self._auth.pairings.create(
            scope=wanted.scope,
            name=wanted.name,
            seconds=wanted.seconds,
            device_seconds=wanted.device_seconds,
        )
        reach = await self._find_reach()
        link = pairing_link(reach.url or self._auth.public_origin, codes.long, reach.pin)
        answer = PairingAnswer(pairing=pairing, code=codes.short, link=link, reach=reach)
        return _json(answer, 201)

    async def list(self, _scope: AsgiScope, _body: bytes) -> Response:
        return _json(PairingList(pairings=await self._auth.pairings.usable()))

    async def cancel(self, scope: AsgiScope, _body: bytes) -> Response:
        if await self._auth.pairings.cancel(scope["path_params"]["id"]):
            return Response(status_code=204)
        return error_response(
            404,
            "quarterdeck/not-found",
            "this pairing does not exist or has ended; create a new pairing code",
        )


class _DeviceApi:
    def __init__(self, auth: Authentication) -> None:
        self._devices = auth.devices

    async def me(self, scope: AsgiScope, _body: bytes) -> Response:
        return _json(device_of(scope))

    async def list(self, scope: AsgiScope, _body: bytes) -> Response:
        asking = device_of(scope)
        await self._devices.sweep()
        return _json(DeviceList(devices=[each.shown_to(asking) for each in self._devices.all]))

    async def create(self, _scope: AsgiScope, body: bytes) -> Response:
        wanted = _read(body or b"{}", TokenRequest)
        device, token = await self._devices.create(
            wanted.name, wanted.scope, seconds=wanted.device_seconds
        )
        return _json(TokenAnswer(device=device, token=token), 201)

    async def log(self, _scope: AsgiScope, _body: bytes) -> Response:
        return _json(DeviceLog(events=await self._devices.events()))

    async def renew(self, scope: AsgiScope, _body: bytes) -> Response:
        asking = device_of(scope)
        if asking.id == OWNER:
            return _owner_stays()
        if self._devices.key(asking.id) is not None:
            message = "this device uses a key, not a token; to replace the key, pair it again"
            return error_response(403, "quarterdeck/forbidden", message)
        token = await self._devices.renew_token(asking.id)
        return _json(RenewAnswer(token=token))

    async def change(self, scope: AsgiScope, body: bytes) -> Response:
        device_id = scope["path_params"]["id"]
        wanted = _read(body, DeviceChange)
        name = None if wanted.name is None else clean_name(wanted.name)
        if name == "":
            return error_response(
                400, "quarterdeck/invalid", "the name has no visible characters; enter another name"
            )
        if device_id == OWNER and (wanted.scope is not None or wanted.machine_scopes is not None):
            return _owner_stays()
        changed = await self._devices.change(
            device_id, name=name, scope=wanted.scope, machine_scopes=wanted.machine_scopes
        )
        return _no_such_device() if changed is None else _json(changed)

    async def revoke(self, scope: AsgiScope, _body: bytes) -> Response:
        asking, device_id = device_of(scope), scope["path_params"]["id"]
        if device_id != asking.id and not asking.may("admin"):
            message = (
                f"this device has the scope {asking.scope}; revoking other devices needs admin"
            )
            return error_response(403, "quarterdeck/forbidden", message)
        if device_id == OWNER:
            return _owner_stays()
        if not await self._devices.revoke(device_id, except_for=connection_of(scope)):
            return _no_such_device()
        return self._revoked(device_id)

    async def log_out(self, scope: AsgiScope, _body: bytes) -> Response:
        asking = device_of(scope)
        if asking.id != OWNER:
            await self._devices.revoke(asking.id, except_for=connection_of(scope))
        response = self._revoked(asking.id)
        response.headers["clear-site-data"] = '"storage"'
        return response

    def _revoked(self, device_id: str) -> Response:
        problem = self._devices.unstored_revocation(device_id)
        if problem is None:
            return Response(status_code=204)
        return _json(UnstoredRevocation(message=problem), 202)


def _owner_stays() -> Response:
    message = (
        "this is the account that runs the hub, not a paired device, and cannot be changed or"
        " revoked; to create a token for a program: quarterdeck devices token"
    )
    return error_response(403, "quarterdeck/forbidden", message)


def _no_such_device() -> Response:
    return error_response(
        404,
        "quarterdeck/not-found",
        "this device does not exist or was revoked; run quarterdeck devices to list all devices",
    )


def _is_browser(scope: AsgiScope) -> bool:
    """Whether a page asks: the guard has seen to it that it is our own."""
    return any(name in (b"origin", b"sec-fetch-site") for name, _ in scope["headers"])


def _delete_old_cookie(response: Response, site: Site) -> None:
    """Make the browser delete the cookie of an earlier version, which was its token."""
    cookie: SimpleCookie = SimpleCookie()
    prefix = "__Host-" if site.is_secure else ""
    port = urlsplit(site.origin).port or (443 if site.is_secure else 80)
    name = f"{prefix}quarterdeck-{port}"
    cookie[name] = ""
    morsel = cookie[name]
    morsel["max-age"] = 0
    morsel["path"] = "/"
    morsel["httponly"] = True
    morsel["samesite"] = "Strict"
    if site.is_secure:
        morsel["secure"] = True
    response.headers.append("set-cookie", morsel.OutputString())


def _app(handler: _Handler) -> Asgi:
    """Return an ASGI application of a handler; the guard hands it the body in one piece."""

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        body = (await receive()).get("body", b"")
        try:
            response = await handler(scope, body)
        except RequestRejected as error:
            response = error_response(http_status(error), error.code, error.message)
        except DatabaseFailed:
            logger.exception("a change of devices could not be stored")
            message = "the change could not be stored; see the hub's log, and try again later"
            response = error_response(503, "quarterdeck/unavailable", message, retryable=True)
        await response(scope, receive, send)

    return app


def _read(body: bytes, type_: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        raise invalid(f"invalid body: {describe_mismatch(error, type_)}") from error
    except msgspec.DecodeError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise invalid(f"the body is not JSON: {reason}") from error


def _json(answer: Any, status: int = 200) -> Response:
    return Response(encode_json(answer), status, media_type="application/json")
