"""`Dialer`: connects a runner to the hubs that its machine has joined, and keeps it connected.

    async with serving_link(runner, path) as server:
        await Dialer(server, home, environ).run()

Each hub is dialled by a task of its own, over a WebSocket with TLS (`handshake`); then it is a hub
like one at the Unix socket (`HubConnection`). A link that breaks is dialled again within a second;
a hub that is away is tried for ever, every ten seconds at last, at random times: the machines of a
hub that was restarted do not come all at once. A hub that has removed the machine says so once, and
is not dialled again.

Both sides send pings, so a link whose other side has gone without a word (a computer that slept, a
network that changed) ends after seconds.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from typing_extensions import override
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidProxy,
    InvalidStatus,
    ProxyError,
    WebSocketException,
)

from quarterdeck.errors import JsonInvalid, LinkBroken, StartRefused
from quarterdeck.http.origins import is_loopback
from quarterdeck.http.p256 import (
    from_base64url,
    is_signed,
    private_key,
    public_key,
    sign,
    to_base64url,
)
from quarterdeck.jsontext import decode_json
from quarterdeck.protocol.timestamps import Now, iso_seconds
from quarterdeck.runner.link.handshake import (
    HANDSHAKE_SECONDS,
    LINK_PATH,
    HubChallenge,
    LinkRefused,
    MachineHello,
    MachineProof,
    Welcome,
    hub_text,
    machine_text,
    origin_of,
    random_text,
    read_handshake,
    write_handshake,
)
from quarterdeck.runner.link.hub_address import network_problem, proxy_for, tls_context
from quarterdeck.runner.link.memberships import (
    JOINED,
    HubLink,
    LinkState,
    Membership,
    read_links,
    read_memberships,
    write_links,
)
from quarterdeck.runner.link.server import HubConnection, LinkServer
from quarterdeck.runner.link.transport import LINK_MESSAGE_BYTES, ServedSocket
from quarterdeck.runner.link.websocket import run_link
from quarterdeck.views.text import one_line

logger = logging.getLogger(__name__)

WATCH_SECONDS: Final = 0.5
"""Between two looks at joined.json."""
RETRY_SECONDS: Final = (0.3, 0.6, 1.0, 2.0, 4.0, 7.0)
"""Between two attempts, half of it to one and a half times; the last one repeats."""
REFUSED_SECONDS: Final = 30.0
"""Between two attempts at a hub that refuses this version."""
OPEN_SECONDS: Final = 15.0
PING_SECONDS: Final = 5.0
PONG_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 2.0


class HubRefused(Exception):
    """A hub, which has proved to be the one, does not accept this machine."""

    def __init__(self, refused: LinkRefused) -> None:
        super().__init__(refused.message)
        self.code = refused.code


class _WithoutRedirects(connect):
    """A redirect would lead to another server."""

    @override
    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class Dialer:
    """All links of a runner that it has dialled."""

    def __init__(
        self,
        server: LinkServer,
        home: Path,
        environ: Mapping[str, str],
        *,
        now: Now,
    ) -> None:
        self._server = server
        self._home = home
        self._environ = environ
        self._now = now
        self._links: dict[str, HubLink] = {}
        self._dialled: dict[str, tuple[Membership, anyio.CancelScope]] = {}

    async def run(self) -> None:
        """Dial whatever joined.json names, until cancelled."""
        _, before = await to_thread.run_sync(read_links, self._home)
        removed = {each.machine_id: each for each in before if each.state == "removed"}
        seen: object = None
        async with anyio.create_task_group() as tasks:
            while True:
                found = _stamp(self._home / JOINED)
                if found != seen:
                    seen = found
                    self._follow(tasks, removed)
                await anyio.sleep(WATCH_SECONDS)

    def _follow(self, tasks: TaskGroup, removed: Mapping[str, HubLink]) -> None:
        """Dial what is new in the file, and end what has gone from it."""
        try:
            wanted = {each.machine_id: each for each in read_memberships(self._home)}
        except StartRefused as error:
            logger.error("the joined hubs are not known", extra={"reason": str(error)})  # noqa: TRY400
            return
        for machine_id, (membership, scope) in tuple(self._dialled.items()):
            if wanted.get(machine_id) != membership:
                scope.cancel()
                del self._dialled[machine_id]
                self._links.pop(machine_id, None)
        for machine_id, membership in wanted.items():
            if machine_id not in self._dialled:
                scope = anyio.CancelScope()
                self._dialled[machine_id] = (membership, scope)
                if machine_id in removed:
                    self._links[machine_id] = removed[machine_id]
                else:
                    self._set(membership, "connecting")
                    tasks.start_soon(self._keep_linked, membership, scope)
        self._write()

    async def _keep_linked(self, membership: Membership, scope: anyio.CancelScope) -> None:
        attempt = 0
        with scope:
            while True:
                pause = RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]
                attempt += 1
                try:
                    if await self._dial(membership):
                        attempt = 0
                        pause = RETRY_SECONDS[0]
                except HubRefused as error:
                    if error.code == "removed":
                        self._set(membership, "removed", str(error))
                        return
                    self._set(membership, "refused", str(error))
                    pause = REFUSED_SECONDS if error.code == "unsupported" else pause
                except (OSError, LinkBroken, WebSocketException) as error:
                    self._set(membership, "connecting", dial_problem(error, membership.url))
                await anyio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - no secret

    async def _dial(self, membership: Membership) -> bool:
        """Connect, and run the link until it ends; return whether it began.

        Raises:
            HubRefused: if the hub does not accept this machine.
            OSError, LinkBroken, WebSocketException: if there is no link.
        """
        async with await open_websocket(membership, self._environ) as websocket:
            with anyio.fail_after(HANDSHAKE_SECONDS):
                welcome = await introduce(websocket, membership)
            self._set(membership, "connected", name=welcome.name, version=welcome.version)
            link = ServedSocket(partial(HubConnection, self._server, is_local=False))
            try:
                await run_link(websocket, link)
            finally:
                self._set(membership, "connecting", "the link has ended")
        return True

    def _set(
        self,
        membership: Membership,
        state: LinkState,
        reason: str = "",
        *,
        name: str = "",
        version: str = "",
    ) -> None:
        """Note the state of a link, log what is new of it, and write it down."""
        if self._dialled.get(membership.machine_id, (None,))[0] is not membership:
            return  # it was left
        before = self._links.get(membership.machine_id)
        now = iso_seconds(self._now())
        found = HubLink(
            url=membership.url,
            machine_id=membership.machine_id,
            name=name or (before.name if before else membership.name),
            state=state,
            since=before.since if before is not None and before.state == state else now,
            reason=reason,
            hub_version=version or (before.hub_version if before else ""),
        )
        if found == before:
            return
        self._links[membership.machine_id] = found
        facts = {"hub": membership.url, "machine": membership.machine_id, "reason": reason}
        match state:
            case "connected":
                logger.info("linked to a hub", extra=facts)
            case "removed":
                logger.warning("a hub has removed this machine; it is dialled no more", extra=facts)
            case "refused":
                logger.warning("a hub refuses this machine", extra=facts)
            case "connecting":
                logger.info("not linked to a hub" if reason else "dialling a hub", extra=facts)
        self._write()

    def _write(self) -> None:
        try:
            write_links(self._home, tuple(self._links.values()))
        except OSError as error:
            logger.warning("the state of links was not written", extra={"reason": str(error)})


async def open_websocket(membership: Membership, environ: Mapping[str, str]) -> ClientConnection:
    """Connect to the WebSocket of a hub.

    Raises:
        OSError: if it cannot be reached, or its certificate is not accepted.
        WebSocketException: if it answers in another way.
    """
    parts = urlsplit(membership.url)
    is_secure = parts.scheme == "https"
    if not is_secure and not is_loopback(parts.hostname or ""):
        raise LinkBroken(f"{membership.url} is not encrypted; use an address with https://")
    return await _WithoutRedirects(
        f"{'wss' if is_secure else 'ws'}://{parts.netloc}{LINK_PATH}",
        ssl=tls_context(membership.pin) if is_secure else None,
        max_size=LINK_MESSAGE_BYTES,
        compression=None,
        open_timeout=OPEN_SECONDS,
        ping_interval=PING_SECONDS,
        ping_timeout=PONG_SECONDS,
        close_timeout=_CLOSE_SECONDS,
        proxy=proxy_for(membership.url, environ),
        user_agent_header=None,
    )


async def introduce(websocket: ClientConnection, membership: Membership) -> Welcome:
    """Prove who both sides are, as the machine.

    Raises:
        HubRefused: if the hub does not accept it.
        LinkBroken: if the other side is not the hub.
        ConnectionClosed: if it closes.
    """
    origin = origin_of(membership.url)
    hello = MachineHello(machine=membership.machine_id, challenge=random_text())
    await websocket.send(write_handshake(hello))
    challenge = read_handshake(await websocket.recv())
    if isinstance(challenge, LinkRefused) and challenge.code != "removed":
        raise HubRefused(challenge)
    if not isinstance(challenge, HubChallenge) or not _is_from(membership, challenge, hello):
        raise LinkBroken(
            "something other than the hub that this machine has joined responds at this address:"
            " it does not have the hub's key"
        )
    text = machine_text(origin, membership.hub_key, hello, challenge.nonce)
    signature = to_base64url(sign(private_key(membership.private_key), text))
    await websocket.send(write_handshake(MachineProof(signature=signature)))
    answer = read_handshake(await websocket.recv())
    if isinstance(answer, LinkRefused):
        raise HubRefused(answer)
    if not isinstance(answer, Welcome):
        raise LinkBroken("the hub does not speak the protocol of the link")
    return answer


def _is_from(membership: Membership, challenge: HubChallenge, hello: MachineHello) -> bool:
    text = hub_text(origin_of(membership.url), hello, challenge.nonce)
    try:
        key = public_key(from_base64url(membership.hub_key))
        return is_signed(key, from_base64url(challenge.signature), text)
    except ValueError:
        return False


def dial_problem(error: BaseException, url: str) -> str:
    """Return in one sentence why there is no link to a hub."""
    match error:
        case OSError():
            return network_problem(error)
        case InvalidStatus():
            return _status_problem(error, url)
        case InvalidProxy() | ProxyError():
            return f"the proxy cannot be used ({error})"
        case ConnectionClosed():
            return "it closed the connection"
        case WebSocketException():
            return f"{url} is not the address of a hub"
        case _:
            return str(error)


def _status_problem(error: InvalidStatus, url: str) -> str:
    status = error.response.status_code
    try:
        message = decode_json(bytes(error.response.body or b""))["error"]["message"]
    except (JsonInvalid, KeyError, TypeError):
        return f"{url} is not the address of a hub, or the hub is too old (status {status})"
    return one_line(str(message))


def _stamp(path: Path) -> object:
    """Return what differs when a file has changed."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a file of our own folder; takes a microsecond
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
