"""Web push: tells devices that are not looking what waits for them, and what has ended.

    the host's stream → what is worth a word → each device that wants it → its push service

Requests that a rule decides are never pending, so nothing is sent for them. A request that is
answered within a moment, on a device at hand, needs no message either. A push service that cannot
be reached is tried again; a subscription that has ended is forgotten.

What a notification says: who wants what, and where in the page it is; no more. Pure.

It may be read on a locked screen: no command, no path but a folder's name, no words of an agent.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final, Literal, TypeAlias, assert_never
from urllib.parse import quote

import anyio
from msgspec import UNSET

from quarterdeck.errors import HubDatabaseFailed, QuarterdeckError
from quarterdeck.hub.api.endpoint import ApiResponse
from quarterdeck.hub.auth.device import Device
from quarterdeck.hub.auth.device_store import Happening
from quarterdeck.hub.auth.devices import Devices
from quarterdeck.hub.push.delivery import (
    LONGEST,
    AddressRefused,
    Delivery,
    KeyInvalid,
    PushKey,
    Recipient,
    deliver,
    encrypted,
    origin_of,
    to_base64url,
)
from quarterdeck.hub.push.store import PushKinds, PushStore, Subscription
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    AgentRemovedEvent,
    AgentUpdatedEvent,
    DiagnosticEvent,
    Event,
    InstallProgressEvent,
    PermissionUpdatedEvent,
    SessionEvent,
    SessionUpdatedEvent,
    UnknownEvent,
    any_event,
    is_session_status,
)
from quarterdeck.runner.permissions.card import PermissionCard
from quarterdeck.runner.permissions.inbox import PermissionInbox
from quarterdeck.runner.sessions.catalogue import SessionCatalogue, SessionOverview
from quarterdeck.runner.tasks import IndependentTasks

PushKind: TypeAlias = Literal["approvals", "questions", "finished", "failed"]

_WISHES: Final = {
    "read": "read something",
    "edit": "change a file",
    "delete": "delete something",
    "move": "move something",
    "search": "search",
    "execute": "run a command",
    "fetch": "use the network",
    "switch_mode": "change its mode",
}


class PushMessage(ApiResponse, frozen=True, kw_only=True):
    """What is sent to a service worker."""

    kind: PushKind | Literal["test", "device"]
    title: str
    body: str
    url: str
    """Where the page shows it."""
    tag: str
    """A later one with the same tag takes its place."""
    id: str = ""


def approval_note(view: PermissionCard) -> PushMessage:
    wish = _WISHES.get(view.call.kind or "", "do something")
    agent = view.agent if isinstance(view.agent, str) else "An agent"
    return PushMessage(
        kind="approvals",
        title="Your approval is needed",
        body=f"{agent} in {_folder(view.cwd)} wants to {wish}.",
        url=f"/#/inbox/{quote(view.request_id, safe='')}",
        tag=f"permission:{view.request_id}",
    )


def question_note(payload: dict[str, Any], session: SessionOverview | None) -> PushMessage:
    request_id = str(payload.get("requestId"))
    return PushMessage(
        kind="questions",
        title="A question for you",
        body=f"{_who(session)} asks you something.",
        url=f"/#/inbox/{quote(request_id, safe='')}",
        tag=f"question:{request_id}",
    )


def turn_note(session: SessionOverview, ended: dict[str, Any] | None) -> PushMessage | None:
    """Tell how a turn ended; `ended` is what its last event says, None if there was none."""
    reason = None if ended is None else ended.get("stopReason")
    if reason == "cancelled":
        return None  # somebody knows: they did it
    url, tag = f"/#/s/{_segment(session.session_id)}", f"turn:{session.session_id}"
    if ended is None or ended.get("error") is not None or reason == "refusal":
        body = f"{_who(session)} could not finish."
        return PushMessage(kind="failed", title="A turn has failed", body=body, url=url, tag=tag)
    body = f"{_who(session)} has finished."
    return PushMessage(kind="finished", title="Done", body=body, url=url, tag=tag)


def device_note(device: Device) -> PushMessage:
    return PushMessage(
        kind="device",
        title="A new device has come in",
        body=f"{device.name} may {device.scope}. If that was not you, revoke it.",
        url="/#/devices",
        tag=f"device:{device.id}",
    )


def test_note(test_id: str) -> PushMessage:
    return PushMessage(
        kind="test",
        title="Notifications work",
        body="This is a test from your hub.",
        url="/#/settings",
        tag="test",
        id=test_id,
    )


def _who(session: SessionOverview | None) -> str:
    if session is None:
        return "An agent"
    agent = "An agent" if session.agent is UNSET else session.agent
    return f"{agent} in {_folder(session.cwd)}"


def _segment(session_id: str) -> str:
    # An agent may have put half a surrogate pair into it.
    return quote(session_id, safe="", errors="replace")


def _folder(cwd: str) -> str:
    return (PurePosixPath(cwd).name or cwd)[:60]


logger = logging.getLogger(__name__)

MOMENT_SECONDS: Final = 1.0
RETRY_SECONDS: Final = (2.0, 10.0, 60.0)
LONGEST_WAIT: Final = 300.0
_KEPT_SECONDS: Final = {"approvals": 12 * 3600, "questions": 12 * 3600}
_OTHERS_KEPT: Final = 3600
_AT_ONCE: Final = 8  # deliveries, each on a thread
_LAST_EVENTS: Final = 8  # among which the end of a turn is


@dataclass(frozen=True, kw_only=True)
class PushOptions:
    """How messages are sent."""

    key: PushKey
    subject: str
    """Whom a push service may write to about us: an https or mailto address."""
    trusted: frozenset[str] = frozenset()
    """Origins of push services that need not be public."""
    moment_seconds: float = MOMENT_SECONDS
    retry_seconds: tuple[float, ...] = RETRY_SECONDS


@dataclass
class _Receipts:
    """Tests that arrived, by device."""

    sent: dict[str, str] = field(default_factory=dict)
    received: dict[str, float] = field(default_factory=dict)


class PushService:
    """Sends messages to the devices of a hub."""

    def __init__(
        self,
        store: PushStore,
        devices: Devices,
        approvals: PermissionInbox,
        library: SessionCatalogue,
        options: PushOptions,
    ) -> None:
        self.options = options
        self._store = store
        self._devices = devices
        self._approvals = approvals
        self._library = library
        self._tasks: IndependentTasks | None = None
        self._limiter = anyio.CapacityLimiter(_AT_ONCE)
        self._statuses: dict[str, str] = {}
        self._receipts = _Receipts()

    def start(self, tasks: IndependentTasks) -> None:
        self._tasks = tasks

    # ---- what is worth a word ------------------------------------------------------------------

    def on_event(self, event: Event) -> None:
        """Follow the host's stream."""
        payload: Any = event.payload
        known = any_event(event)
        match known:
            case PermissionUpdatedEvent():
                if payload.get("status") == "pending":
                    self._soon(lambda: self._approval(payload["requestId"]))
            case UnknownEvent():
                if known.type == ELICITATION_UPDATED and payload.get("status") == "pending":
                    self._soon(lambda: self._question(payload))
            case SessionUpdatedEvent():
                self._on_session(payload["sessionId"], payload["status"])
            case (
                AgentUpdatedEvent()
                | AgentRemovedEvent()
                | InstallProgressEvent()
                | DiagnosticEvent()
                | SessionEvent()
            ):
                pass  # no notification
            case _:
                assert_never(known)

    def on_device(self, what: Happening, device: Device) -> None:
        """Tell all others that a device was paired, whatever else they want to hear of."""
        if what == "paired":
            self._soon(lambda: self._tell(device_note(device), but=device.id))

    def _on_session(self, session_id: str, status: str) -> None:
        before = self._statuses.get(session_id)
        self._statuses[session_id] = status
        if not is_session_status(status):
            return
        match status:
            case "active" | "disconnected":
                if before == "prompting":
                    self._soon(lambda: self._turn(session_id))
            case "closed" | "deleted":
                del self._statuses[session_id]
            case "creating" | "prompting" | "resuming":
                pass  # a turn begins or continues
            case _:
                assert_never(status)

    def _soon(self, tell: Callable[[], Any]) -> None:
        async def later() -> None:
            await anyio.sleep(self.options.moment_seconds)
            try:
                await tell()
            except QuarterdeckError as error:  # the log or the database; the work itself goes on
                logger.warning("a notification was not sent", extra={"reason": str(error)})
            except Exception:  # made of what agents say; it must not end the hub
                logger.exception("a notification was not sent")

        assert self._tasks is not None
        self._tasks.start_soon(later)

    async def _approval(self, request_id: str) -> None:
        view = self._approvals.get(request_id)
        if view is not None:
            await self._tell(approval_note(view))

    async def _question(self, payload: dict[str, Any]) -> None:
        session_id = payload.get("sessionId")
        session = None if session_id is None else self._library.get(session_id)
        await self._tell(question_note(payload, session))

    async def _turn(self, session_id: str) -> None:
        if self._statuses.get(session_id) == "prompting":
            return  # the next turn runs already
        session = self._library.get(session_id)
        after = max(session.last_seq - _LAST_EVENTS, 0)
        page = [decode_json(each) for each in await self._library.page(session_id, after, 100)]
        ends = [each["payload"] for each in page if each.get("type") == "prompt-finished"]
        note = turn_note(session, ends[-1] if ends else None)
        if note is not None:
            await self._tell(note)

    async def _tell(self, note: PushMessage, *, but: str | None = None) -> None:
        assert self._tasks is not None
        known = {device.id for device in self._devices.all}
        for each in await self._store.all():
            if each.device_id not in known:
                await self._forget(each)
            elif each.device_id != but and getattr(each.kinds, note.kind, note.kind == "device"):
                self._tasks.start_soon(self._send_until_done, each, note)

    # ---- sending -------------------------------------------------------------------------------

    async def _send_until_done(self, to: Subscription, note: PushMessage) -> None:
        for pause in (*self.options.retry_seconds, None):
            delivery = await self._send(to, note)
            if not delivery.may_work_later or pause is None:
                return
            await anyio.sleep(min(max(pause, delivery.retry_after or 0), LONGEST_WAIT))

    async def _send(self, to: Subscription, note: PushMessage) -> Delivery:
        async with self._limiter:
            delivery = await self._deliver(to, note)
        if delivery.is_gone:
            await self._forget(to)
            return delivery
        problem = None
        if not delivery.is_done:
            problem = f"{delivery.status or 'not reached'}: {delivery.reason}"
        try:
            await self._store.set_problem(to.device_id, problem)
        except HubDatabaseFailed as error:
            logger.warning("a problem could not be noted", extra={"reason": str(error)})
        return delivery

    async def _deliver(self, to: Subscription, note: PushMessage) -> Delivery:
        prepared = await anyio.to_thread.run_sync(self._prepare, to, note)
        if isinstance(prepared, Delivery):
            return prepared
        headers, body = prepared
        return await deliver(to.endpoint, headers, body, self.options.trusted)

    def _prepare(
        self, to: Subscription, note: PushMessage
    ) -> tuple[dict[str, str], bytes] | Delivery:
        """Return the headers and the encrypted body of a message, or why there is none."""
        try:
            origin = origin_of(to.endpoint, self.options.trusted)
            message = encode_json(note)
            if len(message) > LONGEST:
                return Delivery(413, "the message is too long for a push service")
            body = encrypted(message, Recipient.read(to.p256dh, to.auth))
        except (AddressRefused, KeyInvalid) as error:
            return Delivery(400, str(error))
        topic = to_base64url(hashlib.sha256(note.tag.encode("utf-8", "replace")).digest())[:32]
        headers = {
            "authorization": self.options.key.authorization(
                origin, self.options.subject, time.time()
            ),
            "content-encoding": "aes128gcm",
            "content-type": "application/octet-stream",
            "ttl": str(_KEPT_SECONDS.get(note.kind, _OTHERS_KEPT)),
            "topic": topic,
            "urgency": "high" if note.kind in ("approvals", "questions", "test") else "normal",
        }
        return headers, body

    async def _forget(self, gone: Subscription) -> None:
        await self._store.remove(gone.device_id, gone.endpoint)

    # ---- for devices ---------------------------------------------------------------------------

    async def subscription(self, device_id: str) -> Subscription | None:
        return await self._store.get(device_id)

    async def subscribe(self, wanted: Subscription) -> None:
        """Send messages there from now on.

        Raises:
            AddressRefused: if nothing can be sent there.
            KeyInvalid: if nothing can be encrypted for it.
        """
        origin_of(wanted.endpoint, self.options.trusted)
        Recipient.read(wanted.p256dh, wanted.auth)
        await self._store.put(wanted)

    async def set_kinds(self, device_id: str, kinds: PushKinds) -> bool:
        return await self._store.set_kinds(device_id, kinds)

    async def unsubscribe(self, device_id: str) -> None:
        await self._store.remove(device_id)

    async def test(self, to: Subscription) -> tuple[str, Delivery]:
        """Send a test now; return its id and how it went."""
        test_id = secrets.token_hex(8)
        self._receipts.sent[to.device_id] = test_id
        return test_id, await self._send(to, test_note(test_id))

    def note_receipt(self, device_id: str, test_id: str) -> bool:
        """A device says that its test has arrived."""
        if self._receipts.sent.get(device_id) != test_id:
            return False
        self._receipts.received[device_id] = time.time()
        return True

    def received_at(self, device_id: str) -> float | None:
        return self._receipts.received.get(device_id)
