"""`LocalCallers`: who calls the hub from this machine, and whether it may.

    connection                      device                 check
    Unix socket, no credential      the owner              the process must not be an agent's
    Unix socket or TCP, credential  of the token or key    the same, if it has scope approve
    TCP of another machine          of the token or key    none: no agent of ours is there
    through a relay                 of the token or key    see below; never the owner
    this process itself             the owner              none

An agent runs as its owner, on the same machine, so it can reach everything that the owner's
programs reach. What it must not do is answer its own requests or manage the hub. So a device that
may `approve`, which every owner's may, cannot be used by a process of an agent, for anything: one
rule for every route, stream and WebSocket, which holds for those that are added later, too. With a
token of scope `view` or `prompt`, which cannot approve, an agent may call. Pairing is checked as
well: the new device could approve.

    found      verdict
    agent      403; recorded in the history of devices, and pushed
    gone       403: the process has ended, or handed its connection over
    unknown    allowed and recorded as unverified: /proc cannot be read, or macOS does not show it
    other      allowed

Behind a reverse proxy on this machine the caller is the proxy, and who called that is not known. If
the proxy names an address of this machine, a signed request of a browser is unverified, and a token
is refused: a program on this machine can use the socket.

Through a relay the caller is another machine, unless the relay says that it has an address of this
machine: then it is treated as behind a proxy. A token with scope approve is also refused if the
relay sees its caller at the address at which it sees the hub: an agent that dials the relay looks
like that, and a program on this machine has better ways. Browsers of the same household sign their
requests. What the relay says can only take something away; if it lies, its client is a caller from
another machine.

The check is made once for a connection, at its first request that needs it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any, Final

from anyio import to_thread
from starlette.types import Scope as AsgiScope

from quarterdeck.errors import DatabaseFailed
from quarterdeck.http.peers import (
    OWN_PROCESS,
    AcceptedConnection,
    accepted_connection,
    forwarded_for,
)
from quarterdeck.hub.auth.admission import Rejected
from quarterdeck.hub.auth.device import OWNER, Device
from quarterdeck.hub.auth.devices import Devices
from quarterdeck.hub.auth.tokens import redacted
from quarterdeck.machine.process_origin import PeerOrigin, TcpOrigins, origin_of_socket
from quarterdeck.machine.socket_peers import TcpAddress, is_own_address, socket_peer
from quarterdeck.views.text import one_line

logger = logging.getLogger(__name__)

RECORD_SECONDS: Final = 60.0
"""Between two entries about agents that were refused; those in between are counted."""

_AGENT: Final = Rejected(
    403,
    "quarterdeck/forbidden",
    "this call came from an agent's process, and agents cannot answer requests or manage the hub;"
    " use the page, or a terminal that no agent started",
)
_GONE: Final = Rejected(
    403,
    "quarterdeck/forbidden",
    "the process that opened this connection has ended, or handed it over; connect again, and keep"
    " the connection open until the response arrives",
)
_OTHER_USER: Final = Rejected(
    403,
    "quarterdeck/forbidden",
    "this hub belongs to another user; use its page, or a token: quarterdeck devices token",
)
_BEHIND_PROXY: Final = Rejected(
    403,
    "quarterdeck/forbidden",
    "a token is not accepted from this machine through a proxy, since the caller cannot be"
    " verified; use the hub's socket or its own port",
)
_NEAR_RELAYED: Final = Rejected(
    403,
    "quarterdeck/forbidden",
    "a token is not accepted through the relay from the hub's own network, since the caller may be"
    " on the hub's own machine; use the hub's socket or its own address",
)
_UNCHECKED: Final = PeerOrigin("other")

Boottime = Callable[[], float]


class LocalCallers:
    """Checks the callers on this machine."""

    def __init__(self, devices: Devices, *, clock: Boottime = time.monotonic) -> None:
        self._devices = devices
        self._clock = clock
        self._origins = TcpOrigins()
        self._recorded_at = float("-inf")
        self._unrecorded = 0
        self._unverified: set[str] = set()
        self._at_runner = ""

    async def refresh(self) -> None:
        """Note what the processes of this machine have open: new callers are found sooner."""
        await to_thread.run_sync(self._origins.refresh)

    def owner(self, scope: AsgiScope) -> Device | Rejected | None:
        """Return the owner for a request without a credential; None if it must have one."""
        connection = accepted_connection(scope)
        if connection is OWN_PROCESS:
            return self._devices.get(OWNER)
        if connection is None or not connection.is_unix:
            return None
        try:
            peer = socket_peer(connection.socket)
        except OSError:
            return _GONE
        if peer is not None and peer.uid not in (os.geteuid(), 0):
            return _OTHER_USER
        return self._devices.get(OWNER)

    async def rejection(
        self, scope: AsgiScope, device: Device | None, *, is_signed: bool = False
    ) -> Rejected | None:
        """Return why a caller is refused; `device` is None for one that pairs."""
        if device is not None and not device.may("approve"):
            return None
        connection = accepted_connection(scope)
        if connection is OWN_PROCESS:
            return None
        relayed = None if connection is None else connection.relayed
        if relayed is not None:
            is_own = _is_own(relayed.address)
            if (is_own or relayed.is_near) and device is not None and not is_signed:
                return _NEAR_RELAYED
            found = PeerOrigin("unknown") if is_own else _UNCHECKED
            return await self._judge(found, scope, device or self._devices.get(OWNER))
        if connection is None:
            found = await self._find_by_scope(scope)
        else:
            found = await self._find(connection)
        if found.origin == "other" and _is_forwarded(scope, connection):
            if not is_signed and device is not None:
                return _BEHIND_PROXY
            found = PeerOrigin("unknown")
        return await self._judge(found, scope, device or self._devices.get(OWNER))

    async def refusal(self, scope: AsgiScope, device: Device) -> str | None:
        """Return why a connection may not be used in the name of a device; None if it may."""
        rejected = await self.rejection(scope, device)
        return None if rejected is None else rejected.message

    async def _judge(
        self, found: PeerOrigin, scope: AsgiScope, device: Device | None
    ) -> Rejected | None:
        match found.origin:
            case "other":
                return None
            case "gone":
                logger.warning("a call was refused: its process has ended", extra=_facts(scope))
                return _GONE
            case "unknown":
                await self._record_unverified(device)
                return None
            case "agent":
                await self._record_agent(found, scope, device)
                return _AGENT

    async def _find(self, connection: AcceptedConnection) -> PeerOrigin:
        if not connection.is_checked:
            if connection.is_unix:
                found = origin_of_socket(connection.socket, connection.accepted_at)
            else:
                found = await self._find_tcp(_ends(connection))
            connection.origin = found
            connection.is_checked = True
        return connection.origin or _UNCHECKED

    async def _find_by_scope(self, scope: AsgiScope) -> PeerOrigin:
        """Return what calls through a server that is not ours."""
        client, server = scope.get("client"), scope.get("server")
        if not client or not server or server[1] is None:
            return _UNCHECKED
        try:
            ends = TcpAddress.of(tuple(client)), TcpAddress.of(tuple(server))
            return await self._find_tcp(ends)
        except (OSError, ValueError):
            return _UNCHECKED  # names of a test, not addresses

    async def _find_tcp(self, ends: tuple[TcpAddress, TcpAddress] | None) -> PeerOrigin:
        if ends is None:
            return PeerOrigin("gone")
        # In a thread: with many processes it takes milliseconds.
        return await to_thread.run_sync(self._origins.find, *ends) or _UNCHECKED

    async def _record_agent(
        self, found: PeerOrigin, scope: AsgiScope, device: Device | None
    ) -> None:
        facts = {**_facts(scope), "pid": found.pid, "program": one_line(found.program)}
        logger.warning("a call by a process of an agent was refused", extra=facts)
        now = self._clock()
        if now - self._recorded_at < RECORD_SECONDS:
            self._unrecorded += 1
            return
        self._recorded_at = now
        more = f", and {self._unrecorded} more before" if self._unrecorded else ""
        self._unrecorded = 0
        detail = f"{facts['call']} by process {found.pid} ({facts['program']}){more}"
        await self._record("refused-agent", device, detail)

    async def record_at_runner(self, detail: str) -> None:
        """Record what the runner has refused to a process of an agent, once.

        A runner reports the last one to every hub that connects, also to one that was restarted.
        """
        owner = self._devices.get(OWNER)
        if detail == self._at_runner or owner is None:
            return
        self._at_runner = detail
        try:
            history = await self._devices.events()
        except DatabaseFailed:
            history = []
        known = (each.detail for each in history if each.what == "refused-agent")
        if detail not in known:
            await self._record("refused-agent", owner, detail)

    async def _record_unverified(self, device: Device | None) -> None:
        """Record once for each device: where nothing can be verified, this is every call."""
        if device is None or device.id in self._unverified:
            return
        self._unverified.add(device.id)
        logger.warning("a caller on this machine cannot be verified", extra={"device": device.id})
        await self._record("unverified", device, None)

    async def _record(self, what: Any, device: Device | None, detail: str | None) -> None:
        if device is None:
            return
        try:
            await self._devices.record(what, device, detail)
        except DatabaseFailed as error:  # it is refused all the same
            logger.warning("a refused call was not recorded", extra={"reason": str(error)})


def _is_forwarded(scope: AsgiScope, connection: AcceptedConnection | None) -> bool:
    """Whether a proxy passes on a request of this machine.

    The caller may have sent a list of addresses that the proxy has only added to: what the proxy
    itself saw is the last one.
    """
    peername = None if connection is None or connection.is_unix else connection.peername
    client = scope.get("client")
    if not peername or not client:
        return False
    is_named, seen = tuple(client) != tuple(peername[:2]), forwarded_for(scope)[-1:]
    if is_named and _is_own(client[0]):
        return True
    is_proxy = bool(seen) and (is_named or _is_own(peername[0]))
    return is_proxy and _is_own(seen[0])


def _is_own(host: str) -> bool:
    try:
        return is_own_address(TcpAddress.of((host, 0)))
    except (OSError, ValueError):
        return False  # a proxy may name anything


def _ends(connection: AcceptedConnection) -> tuple[TcpAddress, TcpAddress] | None:
    """Return the addresses of the client and of this end; None if it is closed already."""
    try:
        peer, here = connection.socket.getpeername(), connection.socket.getsockname()
        return TcpAddress.of(peer), TcpAddress.of(here)
    except (AttributeError, OSError, TypeError, ValueError):
        return None


def _facts(scope: AsgiScope) -> dict[str, Any]:
    method = "WEBSOCKET" if scope["type"] == "websocket" else scope["method"]
    return {"call": f"{method} {redacted(scope['path'])[:200]}"}
