"""Web push: notify devices about pending requests, ended turns, new devices, and mismatches.

    news of the runner → message → each subscribed device → its push service

A message is sent one second after its event, if it still applies: a request that was answered in
that time, on a device at hand, needs none. Requests that a rule decides are never pending, so
nothing is sent for them. Delivery is retried while the push service is unreachable or overloaded;
a subscription that has ended is removed. Messages about one thing carry one tag, so a newer one
replaces an older one, in the push service (`Topic`) and on the screen.

A message may be read on a locked screen. It names the agent, the folder and the kind of action, and
links to the page; it has no command, no path and no text of an agent.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final, assert_never
from urllib.parse import quote

import anyio

from quarterdeck.errors import DatabaseFailed, QuarterdeckError
from quarterdeck.http.p256 import to_base64url
from quarterdeck.hub.api.endpoint import ApiResponse
from quarterdeck.hub.auth.device import Device
from quarterdeck.hub.auth.device_store import DeviceEventKind
from quarterdeck.hub.auth.devices import Devices
from quarterdeck.hub.push.delivery import (
    MAX_MESSAGE_BYTES,
    AddressRefused,
    Delivery,
    KeyInvalid,
    PushKey,
    Recipient,
    deliver,
    encrypted,
    origin_of,
)
from quarterdeck.hub.push.store import PushKind, PushKinds, PushStore, Subscription
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol import is_session_status
from quarterdeck.runner import (
    PermissionCard,
    RequestUpdated,
    RunnerApi,
    SessionOverview,
)
from quarterdeck.wire import IndependentTasks

logger = logging.getLogger(__name__)

DELAY_SECONDS: Final = 1.0
RETRY_SECONDS: Final = (2.0, 10.0, 60.0)
MAX_RETRY_SECONDS: Final = 300.0
"""However long a push service asks us to wait."""
_TTL_SECONDS: Final = {"permissions": 12 * 3600, "elicitations": 12 * 3600}
_DEFAULT_TTL_SECONDS: Final = 3600
_URGENT: Final = frozenset({"permissions", "elicitations", "mismatch", "test"})
_MAX_DELIVERIES: Final = 8  # at the same time
_LAST_EVENTS: Final = 8  # the end of a turn is among them

_ACTIONS: Final = {
    "read": "read something",
    "edit": "change a file",
    "delete": "delete something",
    "move": "move something",
    "search": "search",
    "execute": "run a command",
    "fetch": "use the network",
    "switch_mode": "change its mode",
}


# ---- messages: pure ----------------------------------------------------------------------------


class PushMessage(ApiResponse, frozen=True, kw_only=True):
    """The message that the page's service worker shows."""

    kind: PushKind
    title: str
    body: str
    url: str
    """The page's URL for it."""
    tag: str
    """A newer message with the same tag replaces an older one."""
    id: str = ""


def permission_message(card: PermissionCard) -> PushMessage:
    action = _ACTIONS.get(card.call.kind or "", "do something")
    who = _named(card.agent, is_child=isinstance(card.parent_session_id, str))
    return PushMessage(
        kind="permissions",
        title="Your approval is needed",
        body=f"{who} in {_folder(card.cwd)} wants to {action}.",
        url=f"/#/inbox/{quote(card.request_id, safe='')}",
        tag=f"permission:{card.request_id}",
    )


def elicitation_message(request_id: str, session: SessionOverview | None) -> PushMessage:
    return PushMessage(
        kind="elicitations",
        title="Your answer is needed",
        body=f"{_agent_in_folder(session)} needs your input.",
        url=f"/#/inbox/{quote(request_id, safe='')}",
        tag=f"elicitation:{request_id}",
    )


def turn_message(session: SessionOverview, ended: dict[str, Any] | None) -> PushMessage | None:
    """Return the message for a turn; `ended` is the payload of its `prompt-finished`."""
    reason = None if ended is None else ended.get("stopReason")
    if reason == "cancelled":
        return None  # by a user, who knows
    url, tag = f"/#/s/{_segment(session.session_id)}", f"turn:{session.session_id}"
    if ended is None or ended.get("error") is not None or reason == "refusal":
        body = f"{_agent_in_folder(session)} could not finish."
        return PushMessage(kind="failed", title="Turn failed", body=body, url=url, tag=tag)
    body = f"{_agent_in_folder(session)} has finished."
    return PushMessage(kind="finished", title="Done", body=body, url=url, tag=tag)


def device_message(device: Device) -> PushMessage:
    return PushMessage(
        kind="device",
        title="New device paired",
        body=f"{device.name} (scope: {device.scope}). If this was not you, revoke it.",
        url="/#/devices",
        tag=f"device:{device.id}",
    )


def agent_message() -> PushMessage:
    return PushMessage(
        kind="device",
        title="Agent rejected",
        body="An agent tried to act as you on the hub and was rejected. See the device history.",
        url="/#/devices",
        tag="refused-agent",
    )


def config_message() -> PushMessage:
    return PushMessage(
        kind="device",
        title="Configuration changed",
        body="Rules or agents in hub.toml were changed. If this was not you, check the file.",
        url="/#/devices",
        tag="config-changed",
    )


def machine_message(name: str) -> PushMessage:
    return PushMessage(
        kind="device",
        title="New machine joined",
        body=f"{name} can now run sessions for this hub. If this was not you, remove it.",
        url="/#/devices",
        tag="machine-joined",
    )


def mismatch_message(session: SessionOverview) -> PushMessage:
    return PushMessage(
        kind="mismatch",
        title="Not what was approved",
        body=f"{_agent_in_folder(session)} did something other than what was approved.",
        url=f"/#/s/{_segment(session.session_id)}",
        tag=f"mismatch:{session.session_id}",
    )


def test_message(test_id: str) -> PushMessage:
    return PushMessage(
        kind="test",
        title="Notifications work",
        body="This is a test from your hub.",
        url="/#/settings",
        tag="test",
        id=test_id,
    )


def _agent_in_folder(session: SessionOverview | None) -> str:
    if session is None:
        return "An agent"
    who = _named(session.agent, is_child=isinstance(session.parent_session_id, str))
    return f"{who} in {_folder(session.cwd)}"


def _named(agent: Any, *, is_child: bool) -> str:
    """Return who asks. A sub-agent is named by its agent: its title is text of an agent."""
    name = agent if isinstance(agent, str) else None
    if is_child:
        return f"A sub-agent of {name or 'an agent'}"
    return name or "An agent"


def _segment(session_id: str) -> str:
    # An agent's session id may contain half a surrogate pair.
    return quote(session_id, safe="", errors="replace")


def _folder(cwd: str) -> str:
    return (PurePosixPath(cwd).name or cwd)[:60]


# ---- the service -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PushOptions:
    """How messages are sent."""

    key: PushKey
    subject: str
    """The contact of this hub for push services: an https or mailto address."""
    trusted: frozenset[str] = frozenset()
    """Origins of push services that may be at private addresses."""
    delay_seconds: float = DELAY_SECONDS
    retry_seconds: tuple[float, ...] = RETRY_SECONDS


@dataclass
class _Receipts:
    """Test messages by device: the id of the last one, and when it arrived."""

    sent: dict[str, str] = field(default_factory=dict)
    received: dict[str, float] = field(default_factory=dict)


class PushService:
    """Sends push messages to the devices of a hub."""

    def __init__(
        self,
        store: PushStore,
        devices: Devices,
        runner: RunnerApi,
        options: PushOptions,
    ) -> None:
        self.options = options
        self._store = store
        self._devices = devices
        self._runner = runner
        self._tasks: IndependentTasks | None = None
        self._limiter = anyio.CapacityLimiter(_MAX_DELIVERIES)
        self._statuses: dict[str, str] = {}
        self._receipts = _Receipts()

    def start(self, tasks: IndependentTasks) -> None:
        """Start with the present state of the runner: running turns and pending requests."""
        self._tasks = tasks
        self._statuses = {each.session_id: each.status for each in self._runner.session_snapshots()}
        for permission in self._runner.pending_permissions():
            self._send_soon(partial(self._send_permission, permission.request.request_id))
        for elicitation in self._runner.pending_elicitations():
            session_id = elicitation.session_id
            known = session_id if isinstance(session_id, str) else None
            self._send_soon(partial(self._send_elicitation, elicitation.request_id, known))
        self._devices.subscribe(self._on_device)

    # ---- events --------------------------------------------------------------------------------

    def on_request(self, update: RequestUpdated) -> None:
        """Send a message for a request that is pending."""
        if update.status != "pending":
            return
        match update.kind:
            case "permission":
                self._send_soon(lambda: self._send_permission(update.request_id))
            case "elicitation":
                request_id, session_id = update.request_id, update.session_id
                self._send_soon(lambda: self._send_elicitation(request_id, session_id))
            case _:
                assert_never(update.kind)

    def on_mismatch(self, session_id: str) -> None:
        """Send a message when an agent did something other than what was approved."""

        async def send() -> None:
            await self._send_to_all(mismatch_message(self._runner.session(session_id)))

        self._send_soon(send)

    def _on_device(self, what: DeviceEventKind, device: Device) -> None:
        """Notify devices of what concerns their safety; this cannot be turned off."""
        match what:
            case "paired":
                message = device_message(device)
                self._send_soon(lambda: self._send_to_all(message, except_for=device.id))
            case "refused-agent":
                self._send_soon(lambda: self._send_to_all(agent_message()))
            case "config-changed":
                self._send_soon(lambda: self._send_to_all(config_message()))
            case "new-address" | "unverified":
                pass  # shown in the history
            case "changed" | "token-renewed" | "revoked" | "expired":
                pass  # a person or a time did that
            case "machine-joined" | "machine-renamed" | "machine-removed" | "machine-refused":
                pass  # about no device: see `on_machine`
            case _:
                assert_never(what)

    def on_machine(self, name: str) -> None:
        """Notify devices that a machine has joined; this cannot be turned off."""
        self._send_soon(lambda: self._send_to_all(machine_message(name)))

    def on_session(self, session_id: str, status: str) -> None:
        """Send a message when a turn has ended."""
        before = self._statuses.get(session_id)
        self._statuses[session_id] = status
        if not is_session_status(status):
            return
        match status:
            case "active" | "disconnected":
                if before == "prompting":
                    self._send_soon(lambda: self._send_turn(session_id))
            case "closed" | "deleted":
                del self._statuses[session_id]
            case "creating" | "prompting" | "resuming":
                pass  # a turn begins or continues
            case _:
                assert_never(status)

    def _send_soon(self, send: Callable[[], Any]) -> None:
        async def later() -> None:
            await anyio.sleep(self.options.delay_seconds)
            try:
                await send()
            except QuarterdeckError as error:  # the log or the database; sessions are not affected
                logger.warning("a notification was not sent", extra={"reason": str(error)})
            except Exception:  # it handles input of agents, and must not stop the hub
                logger.exception("a notification was not sent")

        assert self._tasks is not None
        self._tasks.start_soon(later)

    async def _send_permission(self, request_id: str) -> None:
        pending = self._runner.pending_permission(request_id)
        if pending is not None and pending.card is not None:
            await self._send_to_all(permission_message(pending.card))

    async def _send_elicitation(self, request_id: str, session_id: str | None) -> None:
        session = None if session_id is None else self._runner.session(session_id)
        await self._send_to_all(elicitation_message(request_id, session))

    async def _send_turn(self, session_id: str) -> None:
        if self._statuses.get(session_id) == "prompting":
            return  # the next turn is running already
        session = self._runner.session(session_id)
        after = max(session.last_seq - _LAST_EVENTS, 0)
        page = [
            decode_json(each) for each in await self._runner.read_events(session_id, after, 100)
        ]
        ends = [each["payload"] for each in page if each.get("type") == "prompt-finished"]
        message = turn_message(session, ends[-1] if ends else None)
        if message is not None:
            await self._send_to_all(message)

    async def _send_to_all(self, message: PushMessage, *, except_for: str | None = None) -> None:
        assert self._tasks is not None
        known = {device.id for device in self._devices.all}
        for each in await self._store.all():
            if each.device_id not in known:
                await self._remove(each)
            elif each.device_id != except_for and each.kinds.wants(message.kind):
                self._tasks.start_soon(self._send_until_done, each, message)

    # ---- sending -------------------------------------------------------------------------------

    async def _send_until_done(self, to: Subscription, message: PushMessage) -> None:
        for pause in (*self.options.retry_seconds, None):
            delivery = await self._send(to, message)
            if not delivery.is_retryable or pause is None:
                return
            await anyio.sleep(min(max(pause, delivery.retry_after or 0), MAX_RETRY_SECONDS))

    async def _send(self, to: Subscription, message: PushMessage) -> Delivery:
        async with self._limiter:
            delivery = await self._deliver(to, message)
        if delivery.is_gone:
            await self._remove(to)
            return delivery
        problem = None
        if not delivery.is_done:
            problem = f"{delivery.status or 'not reached'}: {delivery.reason}"
        try:
            await self._store.set_problem(to.device_id, problem)
        except DatabaseFailed as error:
            logger.warning("a delivery problem was not stored", extra={"reason": str(error)})
        return delivery

    async def _deliver(self, to: Subscription, message: PushMessage) -> Delivery:
        prepared = await anyio.to_thread.run_sync(self._prepare, to, message)
        if isinstance(prepared, Delivery):
            return prepared
        headers, body = prepared
        return await deliver(to.endpoint, headers, body, self.options.trusted)

    def _prepare(
        self, to: Subscription, message: PushMessage
    ) -> tuple[dict[str, str], bytes] | Delivery:
        """Return the headers and the encrypted body of a message, or why it cannot be sent."""
        try:
            origin = origin_of(to.endpoint, self.options.trusted)
            content = encode_json(message)
            if len(content) > MAX_MESSAGE_BYTES:
                return Delivery(413, "the message is too long for a push service")
            body = encrypted(content, Recipient.read(to.p256dh, to.auth))
        except (AddressRefused, KeyInvalid) as error:
            return Delivery(400, str(error))
        topic = to_base64url(hashlib.sha256(message.tag.encode("utf-8", "replace")).digest())[:32]
        headers = {
            "authorization": self.options.key.authorization(
                origin, self.options.subject, time.time()
            ),
            "content-encoding": "aes128gcm",
            "content-type": "application/octet-stream",
            "ttl": str(_TTL_SECONDS.get(message.kind, _DEFAULT_TTL_SECONDS)),
            "topic": topic,
            "urgency": "high" if message.kind in _URGENT else "normal",
        }
        return headers, body

    async def _remove(self, gone: Subscription) -> None:
        await self._store.remove(gone.device_id, gone.endpoint)

    # ---- subscriptions ---------------------------------------------------------------------------

    async def subscription(self, device_id: str) -> Subscription | None:
        return await self._store.get(device_id)

    async def subscribe(self, subscription: Subscription) -> None:
        """Store a subscription, in place of the device's earlier one.

        Raises:
            AddressRefused: if it is not the address of a push service.
            KeyInvalid: if its keys are not valid.
        """
        origin_of(subscription.endpoint, self.options.trusted)
        Recipient.read(subscription.p256dh, subscription.auth)
        await self._store.put(subscription)

    async def set_kinds(self, device_id: str, kinds: PushKinds) -> bool:
        return await self._store.set_kinds(device_id, kinds)

    async def unsubscribe(self, device_id: str) -> None:
        await self._store.remove(device_id)

    async def test(self, to: Subscription) -> tuple[str, Delivery]:
        """Send a test message now; return its id and the result of the delivery."""
        test_id = secrets.token_hex(8)
        self._receipts.sent[to.device_id] = test_id
        return test_id, await self._send(to, test_message(test_id))

    def confirm_test(self, device_id: str, test_id: str) -> bool:
        """Record that a test message arrived; return whether it was the last one sent."""
        if self._receipts.sent.get(device_id) != test_id:
            return False
        self._receipts.received[device_id] = time.time()
        return True

    def received_at(self, device_id: str) -> float | None:
        return self._receipts.received.get(device_id)
