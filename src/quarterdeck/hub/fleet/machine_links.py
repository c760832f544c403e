"""`/api/link`: where runners of other machines connect, over a WebSocket that they have dialled.

A machine proves who it is before anything else (`runner/link/handshake`); then its link is handed
to the fleet, which is the hub's end of it. Before the proof a connection can cost little: it has
seconds, a few short messages, and one of `MOST_WAITING` places. If all are taken, the oldest of the
network that has most of them is closed: one network cannot keep others out.

A machine has one link. Another one replaces it: the first one may be a connection that broke
without a word.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.errors import LinkBroken, RequestRejected
from quarterdeck.http.fair_listener import network_of
from quarterdeck.http.p256 import from_base64url, is_signed
from quarterdeck.http.websocket import GOING_AWAY, MISUSE, NORMAL, accept_websocket, close_websocket
from quarterdeck.hub.api.endpoint import Endpoint, error_response, send_error
from quarterdeck.hub.auth.devices import sighting_of
from quarterdeck.hub.auth.guard import SITE_KEY, Authentication
from quarterdeck.hub.fleet.machines import Machine, Machines
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner.link import (
    HANDSHAKE_SECONDS,
    LINK_PATH,
    HubChallenge,
    LinkEnd,
    LinkRefused,
    LinkSocket,
    MachineHello,
    MachineProof,
    MessageTransport,
    RefusalCode,
    Welcome,
    hub_text,
    is_hello,
    machine_text,
    protocol_refusal,
    random_text,
    read_handshake,
    write_handshake,
)

logger = logging.getLogger(__name__)

MOST_WAITING: Final = 64
"""Connections that have not proved which machine they are of."""
END_SECONDS: Final = 2.0
"""For a link that is replaced to end."""
SEEN_SECONDS: Final = 60.0
"""Between two times that the last sight of a connected machine is stored."""

MakeEnd = Callable[[LinkSocket], LinkEnd]
Accepting = Callable[[str], MakeEnd]
"""Returns, for the id of a machine, what takes the hub's end of its link."""


class _Refused(Exception):
    """Why a machine is refused."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.code = code


_REMOVED: Final = (
    "this machine was removed from the hub, or never joined it; to join again, create a code on the"
    " hub's computer: quarterdeck machines add"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Live:
    """The link of a machine."""

    link: LinkSocket
    connected_at: str
    ended: anyio.Event


class MachineLinks:
    """The links of all machines; `app` serves one."""

    def __init__(self, machines: Machines, auth: Authentication) -> None:
        self.accepting: Accepting | None = None
        """The fleet; None: no link is accepted."""
        self._machines = machines
        self._auth = auth
        self._waiting: dict[anyio.CancelScope, str] = {}
        self._links: dict[str, _Live] = {}
        self._has_ended = False
        machines.subscribe_removed(self._on_removed)

    def _on_removed(self, machine_id: str) -> None:
        self.cut(machine_id, "the machine was removed")

    def connected_at(self, machine_id: str) -> str | None:
        """Return since when a machine is connected; None if it is not."""
        live = self._links.get(machine_id)
        return None if live is None else live.connected_at

    def cut(self, machine_id: str, reason: str) -> anyio.Event | None:
        """End the link of a machine; return what is set then, or None if it has no link."""
        live = self._links.pop(machine_id, None)
        if live is None:
            return None
        live.link.abort(reason)
        return live.ended

    def end(self) -> None:
        """End all links: the hub ends."""
        self._has_ended = True
        for machine_id in tuple(self._links):
            self._links.pop(machine_id).link.close("the hub has ended")

    # ---- one connection --------------------------------------------------------------------

    async def app(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket."""
        rejected = await self._auth.callers.rejection(scope, None)
        if rejected is not None:
            response = error_response(rejected.status, rejected.code, rejected.message)
            await send_error(response, scope, receive, send)
            return
        if not await accept_websocket(receive, send):
            return
        with anyio.CancelScope() as waiting:
            machine = await self._admitted(scope, receive, send, waiting)
        if waiting.cancelled_caught:
            await close_websocket(send, MISUSE, "too many connections wait, or it took too long")
        elif machine is not None:
            await self._run(machine, receive, send)

    async def _admitted(
        self, scope: AsgiScope, receive: Receive, send: Send, waiting: anyio.CancelScope
    ) -> Machine | None:
        """Return the machine that has proved who it is; None if none has."""
        sighting = sighting_of(scope)
        self._make_room()
        self._waiting[waiting] = network_of(sighting.address or "")
        waiting.deadline = anyio.current_time() + HANDSHAKE_SECONDS
        machine_id = ""
        try:
            hello = await _hello(receive)
            machine_id = hello.machine
            return await self._proved(hello, scope[SITE_KEY].origin, receive, send)
        except _Refused as error:
            if error.code == "removed":
                await self._machines.refused(machine_id, sighting)
            await _say(send, LinkRefused(code=error.code, message=str(error)))
            await close_websocket(send, MISUSE, "refused")
        except LinkBroken as error:
            await close_websocket(send, MISUSE, str(error))
        except OSError:
            pass  # the client has left
        finally:
            del self._waiting[waiting]
            waiting.deadline = float("inf")
        return None

    def _make_room(self) -> None:
        """Close the oldest connection of the network that has most, if all places are taken."""
        waiting = [each for each in self._waiting if not each.cancel_called]
        if len(waiting) < MOST_WAITING:
            return
        busiest = Counter(self._waiting[each] for each in waiting).most_common(1)[0][0]
        next(each for each in waiting if self._waiting[each] == busiest).cancel()

    async def _proved(
        self, hello: MachineHello, origin: str, receive: Receive, send: Send
    ) -> Machine:
        """Exchange signatures; return the machine.

        Raises:
            _Refused: if it is not a machine of this hub, or its version does not fit.
            LinkBroken: if it does not speak this protocol.
            OSError: if it has left.
        """
        key = self._auth.hub_key
        nonce = random_text()
        signature = key.sign(hub_text(origin, hello, nonce))
        await _say(send, HubChallenge(nonce=nonce, signature=signature))
        proof = read_handshake(await _text(receive))
        if not isinstance(proof, MachineProof):
            raise LinkBroken("a machine must prove who it is")
        # Not looked up before: how a hub answers does not reveal which machines it has.
        public, machine = self._machines.key(hello.machine), self._machines.get(hello.machine)
        text = machine_text(origin, key.public, hello, nonce)
        if public is None or machine is None or not _has_signed(public, proof, text):
            raise _Refused("removed", _REMOVED)
        problem = protocol_refusal(hello.oldest, hello.newest, hello.version)
        if problem:
            raise _Refused("unsupported", problem)
        if self._has_ended or self.accepting is None:
            raise _Refused("busy", "the hub is starting or stopping; dial again")
        await self._machines.seen(machine.id, hello.version)
        await _say(send, Welcome(name=machine.name))
        return machine

    # ---- a link ----------------------------------------------------------------------------

    async def _run(self, machine: Machine, receive: Receive, send: Send) -> None:
        """Run the link of a machine until it ends."""
        replaced = self.cut(machine.id, "another link has replaced it")
        if replaced is not None:
            with anyio.move_on_after(END_SECONDS):
                await replaced.wait()
        accepting = self.accepting
        if self._machines.get(machine.id) is None or self._has_ended or accepting is None:
            await close_websocket(send, GOING_AWAY, "")
            return
        try:
            make_end = accepting(machine.id)
        except RequestRejected:
            await close_websocket(send, GOING_AWAY, "")  # it has just joined, or was removed
            return
        live = _Live(
            link=LinkSocket(make_end),
            connected_at=iso_seconds(time.time()),
            ended=anyio.Event(),
        )
        self._links[machine.id] = live
        facts = {"machine": machine.id, "machine_name": machine.name}
        logger.info("machine connected", extra=facts)
        try:
            await self._pump(machine.id, live.link, receive, send)
        finally:
            if self._links.get(machine.id) is live:
                del self._links[machine.id]
            live.ended.set()
            logger.info("machine disconnected", extra=facts)
            with anyio.CancelScope(shield=True):
                await self._machines.seen(machine.id)

    async def _pump(self, machine_id: str, link: LinkSocket, receive: Receive, send: Send) -> None:
        async def send_message(data: bytes) -> None:
            await send({"type": "websocket.send", "bytes": data})

        async def close() -> None:
            code = GOING_AWAY if self._has_ended else NORMAL
            await close_websocket(send, code, "")

        with anyio.CancelScope() as scope:
            transport = MessageTransport(link, send=send_message, close=close, abort=scope.cancel)
            link.connection_made(transport)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_send_all, transport, scope)
                    tasks.start_soon(self._note_seen, machine_id)
                    while (message := await receive())["type"] == "websocket.receive":
                        await transport.receive(message.get("bytes") or b"")
                    tasks.cancel_scope.cancel()
            finally:
                link.connection_lost(None)
        if scope.cancelled_caught:
            await close_websocket(send, NORMAL, "")

    async def _note_seen(self, machine_id: str) -> None:
        while True:
            await anyio.sleep(SEEN_SECONDS)
            await self._machines.seen(machine_id)


async def _send_all(transport: MessageTransport, scope: anyio.CancelScope) -> None:
    try:
        await transport.send_all()
    except OSError:
        scope.cancel()  # the machine has left


async def _hello(receive: Receive) -> MachineHello:
    hello = read_handshake(await _text(receive))
    if not isinstance(hello, MachineHello) or not is_hello(hello):
        raise LinkBroken("a machine must say hello first")
    return hello


async def _text(receive: Receive) -> str:
    message = await receive()
    if message["type"] != "websocket.receive":
        raise ConnectionResetError("the machine has left")
    text: str | None = message.get("text")
    if text is None:
        raise LinkBroken("a machine must prove who it is")
    return text


async def _say(send: Send, message: HubChallenge | Welcome | LinkRefused) -> None:
    await send({"type": "websocket.send", "text": write_handshake(message)})


def _has_signed(public: ec.EllipticCurvePublicKey, proof: MachineProof, text: bytes) -> bool:
    try:
        return is_signed(public, from_base64url(proof.signature), text)
    except ValueError:
        return False


def link_endpoint(links: MachineLinks) -> Endpoint:
    """Return the entry of the route table."""
    return Endpoint(
        method="GET",
        path=LINK_PATH,
        scope=None,
        app=links.app,
        summary="The link of a machine's runner",
        kind="websocket",
        tag="machines",
    )
