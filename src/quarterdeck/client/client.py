"""`Client`: a typed client of a host, over any transport that carries envelopes.

async with Client(transport) as client:
    agent = await client.agents.spawn({"id": "mine", "command": "my-agent"})
    session = await client.sessions.create(agent.agent_id, cwd="/project")
    session.store.subscribe(lambda: show(session.store.state))
    await session.prompt("hello")

The client keeps live copies (`Mirror`) of the host's agents, sessions and pending requests. They
are filled by calls and kept up to date by the host's events. Subscribers are plain functions,
called after each change by the code that delivers the event; an exception in one is logged and
stops nothing else.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, assert_never

import anyio
from msgspec import UNSET

from quarterdeck.client.connection import ChangeSubscribers, ClientConnection, OnChange, Unsubscribe
from quarterdeck.client.mirror import Mirror, read_agent, read_agents, read_session
from quarterdeck.client.requests import Elicitations, PendingRequests, Permissions
from quarterdeck.client.sessions import SessionCollection
from quarterdeck.errors import AcpError
from quarterdeck.protocol import (
    ELICITATION_UPDATED,
    AcpRpcMethod,
    AgentDefinition,
    AgentRemovedEvent,
    AgentSnapshotWire,
    AgentUpdatedEvent,
    DiagnosticEvent,
    ErrorObject,
    Event,
    InboundRequest,
    InstallProgressEvent,
    PermissionUpdatedEvent,
    RequestKind,
    SessionEvent,
    SessionUpdatedEvent,
    Transport,
    TransportHandlers,
    TransportSubscribeParams,
    UnknownEvent,
    any_event,
    is_request_kind,
    to_json,
)

logger = logging.getLogger(__name__)

DIAGNOSTICS = 200  # the newest are kept
CLOSE_SECONDS = 5.0  # for the transport to close


class Agents:
    """A live copy of the host's agents. Calls raise `AcpError`."""

    def __init__(self, link: ClientConnection) -> None:
        self.mirror: Mirror[AgentSnapshotWire] = Mirror()
        self._link = link

    def get(self, agent_id: str) -> AgentSnapshotWire | None:
        return self.mirror.get(agent_id)

    def all(self) -> tuple[AgentSnapshotWire, ...]:
        """Return the agents that are known now, without a call."""
        return self.mirror.all()

    def subscribe(self, subscriber: OnChange) -> Unsubscribe:
        """Call `subscriber` after each change of `all()`."""
        return self.mirror.subscribe(subscriber)

    async def spawn(self, definition: AgentDefinition | Mapping[str, Any]) -> AgentSnapshotWire:
        """Start an agent and wait until it is ready."""
        given = to_json(definition) if isinstance(definition, AgentDefinition) else dict(definition)
        with self.mirror.fetching() as changed:
            answer = await self._link.call(AcpRpcMethod.SPAWN_AGENT, {"definition": given})
            snapshot = read_agent(answer)
            self.mirror.merge({snapshot.agent_id: snapshot}, changed)
        return snapshot

    async def list(self) -> tuple[AgentSnapshotWire, ...]:
        """Fetch all agents from the host."""
        with self.mirror.fetching() as changed:
            answer = await self._link.call(AcpRpcMethod.LIST_AGENTS, {})
            listed = read_agents(answer)
            self.mirror.replace({each.agent_id: each for each in listed}, changed)
        return listed

    async def dispose(self, agent_id: str) -> None:
        """End an agent; its sessions stay, disconnected."""
        await self._link.call(AcpRpcMethod.DISPOSE_AGENT, {"agentId": agent_id})

    async def authenticate(self, agent_id: str, method_id: str) -> None:
        params = {"agentId": agent_id, "methodId": method_id}
        await self._link.call(AcpRpcMethod.AUTHENTICATE, params)

    async def logout(self, agent_id: str) -> None:
        await self._link.call(AcpRpcMethod.LOGOUT, {"agentId": agent_id})


class Diagnostics:
    """The newest diagnostics of the host."""

    def __init__(self) -> None:
        self._ring: deque[DiagnosticEvent] = deque(maxlen=DIAGNOSTICS)
        self._subscribers = ChangeSubscribers()

    def all(self) -> tuple[DiagnosticEvent, ...]:
        return tuple(self._ring)

    def subscribe(self, subscriber: OnChange) -> Unsubscribe:
        return self._subscribers.add(subscriber)

    def add(self, event: DiagnosticEvent) -> None:
        self._ring.append(event)
        self._subscribers.notify()

    def clear(self) -> None:
        if self._ring:
            self._ring.clear()
            self._subscribers.notify()


class Client:
    """One connection to a host; an async context manager, for one use."""

    def __init__(self, transport: Transport) -> None:
        self.connection = ClientConnection(transport)
        """Has `status`, `error`, and `subscribe` for changes of them."""
        self.agents = Agents(self.connection)
        self.sessions = SessionCollection(self.connection)
        self.permissions = Permissions(self.connection)
        self.elicitations = Elicitations(self.connection)
        self.diagnostics = Diagnostics()
        self.connection.subscribe(self._on_status)

    async def __aenter__(self) -> Self:
        """Connect, and fetch all agents, sessions and pending requests.

        Raises:
            AcpError: if that fails; the transport is then closed.
        """
        handlers = TransportHandlers(
            on_inbound_request=self._on_inbound_request,
            on_lifecycle=self.connection.on_lifecycle,
            on_subscription_error=self._on_subscription_error,
            on_subscription_reset=self.connection.on_subscription_reset,
        )
        try:
            # The host's events are replayed here: subscribers are notified once, at the end.
            with (
                self.agents.mirror.batched(),
                self.sessions.mirror.batched(),
                self.permissions.mirror.batched(),
                self.elicitations.mirror.batched(),
            ):
                await self.connection.open(handlers)
                self.connection.subscribe_events(None, 0, self._on_host_event)
                await self.agents.list()
                await self.sessions.refresh()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.sessions.end()
        await self._close()
        self.permissions.clear()
        self.elicitations.clear()
        self.diagnostics.clear()

    async def _close(self) -> None:
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            try:
                await self.connection.close()
            except AcpError as error:  # nothing is left to be done with it
                logger.warning("transport did not close", extra={"reason": error.message})

    # ---- called by the transport ---------------------------------------------------------

    def _on_host_event(self, event: Event) -> None:
        try:
            self._mirror(event)
        except AcpError as error:
            logger.warning("snapshot cannot be read", extra={"reason": error.message})

    def _mirror(self, event: Event) -> None:
        known = any_event(event)
        match known:
            case AgentUpdatedEvent():
                agent = read_agent(known.payload)
                self.agents.mirror.put(agent.agent_id, agent)
            case AgentRemovedEvent():
                self.agents.mirror.remove(known.payload["agentId"])
            case SessionUpdatedEvent():
                self.sessions.apply_snapshot(read_session(known.payload))
            case PermissionUpdatedEvent():
                self.permissions.apply_snapshot(dict(known.payload))
            case DiagnosticEvent():
                self.diagnostics.add(known)
            case UnknownEvent():  # other types are from a newer host
                if known.type == ELICITATION_UPDATED and isinstance(known.payload, dict):
                    self.elicitations.apply_snapshot(known.payload)
            case InstallProgressEvent() | SessionEvent():
                pass  # not mirrored
            case _:
                assert_never(known)

    def _on_inbound_request(self, request: InboundRequest) -> None:
        if not is_request_kind(request.kind) or not isinstance(request.payload, dict):
            logger.warning("unknown inbound request", extra={"kind": request.kind})
            return
        pending = self._pending_requests(request.kind)
        pending.apply_snapshot({**request.payload, "requestId": request.id})

    def _pending_requests(self, kind: RequestKind) -> PendingRequests[Any]:
        match kind:
            case "permission":
                return self.permissions
            case "elicitation":
                return self.elicitations
            case _:
                assert_never(kind)

    def _on_subscription_error(self, params: TransportSubscribeParams, error: ErrorObject) -> None:
        logger.warning("subscription failed", extra={"code": error.code})
        if params.session_id is UNSET:
            self.connection.fail(
                error
            )  # without host events every mirror would soon be out of date
        else:
            self.sessions.drop_stream(params.session_id)

    def _on_status(self) -> None:
        if self.connection.status == "closed":
            self.permissions.clear()  # they cannot be answered over this connection any more
            self.elicitations.clear()
