"""Machines over HTTP: codes that let one join, joining, listing, renaming and removing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Meta
from starlette.responses import Response
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck._version import __version__
from quarterdeck.errors import RequestRejected
from quarterdeck.http.origins import is_loopback
from quarterdeck.http.p256 import from_base64url, is_signed, public_key
from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Body,
    Endpoint,
    error_response,
    invalid,
    json_app,
    json_endpoint,
    not_found,
)
from quarterdeck.hub.auth.devices import sighting_of
from quarterdeck.hub.auth.guard import SITE_KEY
from quarterdeck.hub.auth.pairing import LIFETIME_SECONDS, LONGEST_SECONDS, TooManyAttempts
from quarterdeck.hub.fleet.fleet import MachineState
from quarterdeck.hub.fleet.identifiers import MachineIds
from quarterdeck.hub.fleet.machine_links import link_endpoint
from quarterdeck.hub.fleet.machines import Machine, NewMachine
from quarterdeck.hub.hub import Hub
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner.link import join_text, protocol_refusal

_Name: TypeAlias = Annotated[str, Meta(max_length=200)]
_WRONG_CODE: Final = (
    "the code is wrong, already used or expired; get a new one on the hub's computer:"
    " quarterdeck machines add"
)
_NOT_SHOWN: Final = "the hub's copy of its logs cannot be opened; see the hub's log"


class WaitingAnswer(ApiResponse, frozen=True, kw_only=True):
    """An answer to a permission request that is sent when its machine is connected again."""

    request_id: str
    option_id: str | None
    """Null: cancelled."""
    by: str
    """The name of the device that has answered."""
    until: str
    """When it expires."""


class MachineFacts(ApiResponse, frozen=True, kw_only=True):
    """A machine whose sessions this hub shows."""

    id: str
    name: str
    state: Literal["connected", "away"]
    since: str | None
    """Since when it is in that state; null: it was never connected."""
    joined_at: str
    version: str
    """Of Quarterdeck there, when it was last connected."""
    skew: str = ""
    """A sentence if that is another version than the hub's."""
    sessions: int = 0
    waiting: int = 0
    """Commands that are sent when it is connected again."""
    answers: tuple[WaitingAnswer, ...] = ()
    """Those of them that answer permission requests."""
    problem: str = ""
    """Why it cannot be used although it is connected; a sentence."""


class MachineList(ApiResponse, frozen=True, kw_only=True):
    machines: list[MachineFacts]


class CodeRequest(Body, frozen=True, kw_only=True):
    """The machine that may join."""

    name: _Name = ""
    """Its name if it sends none."""
    seconds: Annotated[float, Meta(ge=10, le=LONGEST_SECONDS)] = LIFETIME_SECONDS
    """How long the code works."""


class CodeAnswer(ApiResponse, frozen=True, kw_only=True):
    """A code for one machine, shown once."""

    code: str
    """To be typed; with the pin of the hub's certificate, if that is the hub's own."""
    expires_at: str
    command: str
    """To be run on the other machine."""
    is_reachable: bool
    """False if the hub can be reached from this computer alone."""


class JoinRequest(Body, frozen=True, kw_only=True):
    """What a machine sends to join."""

    code: Annotated[str, Meta(min_length=1, max_length=100)]
    name: _Name = ""
    is_name_chosen: bool = False
    """Whether to refuse a name that another machine has; else a number is added to it."""
    public_key: Annotated[str, Meta(min_length=87, max_length=87)]
    """The uncompressed point of a P-256 key, as base64url."""
    signature: Annotated[str, Meta(min_length=86, max_length=86)]
    """With that key, over `quarterdeck-join-1`, the origin of the hub, the code and the public key,
    joined by line feeds."""
    version: Annotated[str, Meta(max_length=100)]
    oldest: int
    """The oldest and the newest protocol of the link that the machine speaks."""
    newest: int


class JoinAnswer(ApiResponse, frozen=True, kw_only=True):
    machine: Machine
    hub_key: str
    """The hub's public key; as `publicKey`."""
    version: str


class MachineChange(Body, frozen=True, kw_only=True):
    name: _Name


def machine_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the part of the route table for machines."""
    api = _MachineApi(hub)
    return [
        json_endpoint("view", "GET /api/machines", api.list, "List machines", returns=MachineList),
        json_endpoint(
            "admin",
            "POST /api/machines/codes",
            api.create_code,
            "Create a code with which one machine can join",
            body=CodeRequest,
            returns=CodeAnswer,
            status=201,
            errors=(400,),
        ),
        _join_endpoint(api),
        json_endpoint(
            "admin",
            "PATCH /api/machines/{id}",
            api.rename,
            "Rename a machine",
            body=MachineChange,
            returns=MachineFacts,
            errors=(400, 404, 409),
        ),
        json_endpoint(
            "admin",
            "DELETE /api/machines/{id}",
            api.remove,
            "Remove a machine and end its link",
            status=204,
            errors=(404, 503),
        ),
        link_endpoint(hub.machine_links),
    ]


def _join_endpoint(api: _MachineApi) -> Endpoint:
    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        async def handle(request: ApiRequest) -> Any:
            return await api.join(request.body_as(JoinRequest), scope)

        await json_app(handle, body=JoinRequest, status=201)(scope, receive, send)

    return Endpoint(
        method="POST",
        path="/api/machines/join",
        scope=None,
        app=app,
        summary="Join with a code, as a machine",
        tag="machines",
        body=JoinRequest,
        returns=JoinAnswer,
        status=201,
        errors=(400, 403, 409, 429, 501),
    )


class _MachineApi:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._machines = hub.machines

    async def list(self, _request: ApiRequest) -> MachineList:
        states = {each.machine_id: each for each in self._hub.fleet.states()}
        return MachineList(
            machines=[self._facts(each, states.get(each.id)) for each in self._machines.all]
        )

    def _facts(self, machine: Machine, state: MachineState | None) -> MachineFacts:
        connected_at = self._hub.machine_links.connected_at(machine.id)
        skew = ""
        if connected_at is not None and machine.version != __version__:
            skew = (
                f"it runs version {machine.version} and the hub runs {__version__}; these work"
                " together. To upgrade the older one, run there: quarterdeck upgrade"
            )
        return MachineFacts(
            id=machine.id,
            name=machine.name,
            state="away" if connected_at is None else "connected",
            since=connected_at or machine.last_seen_at,
            joined_at=machine.joined_at,
            version=machine.version,
            skew=skew,
            sessions=0 if state is None else state.sessions,
            waiting=0 if state is None else state.waiting,
            answers=self._answers(machine.id),
            problem=_NOT_SHOWN if state is None else state.problem,
        )

    def _answers(self, machine_id: str) -> tuple[WaitingAnswer, ...]:
        runner = self._hub.fleet.find(machine_id)
        waiting = [] if runner is None else runner.waiting.of("answer_permission")
        return tuple(
            WaitingAnswer(
                request_id=MachineIds(machine_id).outer(each.params["request_id"]),
                option_id=each.params["option_id"],
                by=each.by.name,
                until=iso_seconds(each.expires_at),
            )
            for each in waiting
            if each.state == "waiting"
        )

    async def create_code(self, request: ApiRequest) -> CodeAnswer:
        wanted = request.body_as(CodeRequest)
        made = self._machines.create_code(name=wanted.name, seconds=wanted.seconds)
        reach, own = await self._hub.reach_report(), self._hub.auth.public_origin
        origin = own if reach.url is None else reach.url.rstrip("/")
        listening = self._hub.auth.options.listening
        pin = reach.pin
        if pin is None and origin == own and not listening.is_behind_proxy:
            pin = own_pin(self._hub.options.certificate)
        code = made.code if pin is None else f"{made.code}.{pin}"
        return CodeAnswer(
            code=code,
            expires_at=made.expires_at,
            command=f"quarterdeck join {origin} {code}",
            is_reachable=not is_loopback(urlsplit(origin).hostname or ""),
        )

    async def join(self, wanted: JoinRequest, scope: AsgiScope) -> JoinAnswer | Response:
        key = _verified_key(wanted, scope[SITE_KEY].origin)
        problem = protocol_refusal(wanted.oldest, wanted.newest, wanted.version)
        if problem:
            raise RequestRejected("unsupported", problem)
        new = NewMachine(
            name=wanted.name,
            is_name_chosen=wanted.is_name_chosen,
            key=key,
            version=wanted.version,
        )
        joined = await self._machines.join(wanted.code, new, sighting_of(scope))
        if joined is None:
            raise RequestRejected("forbidden", _WRONG_CODE)
        if isinstance(joined, TooManyAttempts):
            seconds = math.ceil(joined.seconds)
            message = f"too many wrong codes; try again in {seconds} s"
            refused = error_response(429, "quarterdeck/too-many", message)
            refused.headers["retry-after"] = str(seconds)
            return refused
        key_of_hub = self._hub.auth.hub_key.public
        return JoinAnswer(machine=joined, hub_key=key_of_hub, version=__version__)

    async def rename(self, request: ApiRequest) -> MachineFacts:
        wanted = request.body_as(MachineChange)
        renamed = await self._machines.rename(request.path["id"], wanted.name)
        if renamed is None:
            raise _no_such_machine()
        listed = (await self.list(request)).machines
        return next(each for each in listed if each.id == renamed.id)

    async def remove(self, request: ApiRequest) -> None:
        if not await self._machines.remove(request.path["id"]):
            raise _no_such_machine()


def _no_such_machine() -> RequestRejected:
    return not_found("such machine", "run quarterdeck machines to list all machines")


def _verified_key(wanted: JoinRequest, origin: str) -> bytes:
    """Return the key to register.

    Raises:
        RequestRejected: if it is none, or the request was not signed with it for this hub.
    """
    text = join_text(origin, wanted.code, wanted.public_key)
    try:
        content = from_base64url(wanted.public_key)
        is_valid = is_signed(public_key(content), from_base64url(wanted.signature), text)
    except ValueError:
        content, is_valid = b"", False
    if not is_valid:
        raise invalid(
            "the signature does not match this request; if a proxy changes the Host header,"
            " configure it to leave the header unchanged"
        )
    return content


def own_pin(certificate: Path | None) -> str | None:
    """Return the pin of a hub's certificate that no authority of the system has signed.

    The last certificate of its file is then signed by itself: it is the hub's own, or its own
    authority. Public authorities leave theirs out.
    """
    if certificate is None:
        return None
    from cryptography import x509  # noqa: PLC0415 - slow to import, and rarely needed
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415

    from quarterdeck.http.certificate_pins import certificate_pin  # noqa: PLC0415

    try:
        last = x509.load_pem_x509_certificates(certificate.read_bytes())[-1]
    except (OSError, ValueError, IndexError):
        return None
    if last.issuer != last.subject:
        return None
    return certificate_pin(last.public_bytes(Encoding.DER))
