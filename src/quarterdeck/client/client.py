"""The client: everything a surface needs, over any transport.

async with Client(transport) as client:
    agent = await client.agents.spawn({"id": "mine", "command": "my-agent"})
    session = await client.sessions.create(agent.agent_id, cwd="/project")
    session.store.subscribe(lambda: show(session.store.state))
    await session.prompt("hello")

It knows envelopes and nothing of the host behind them. Its listeners are plain
functions, called by whoever delivers the event; what they raise is logged and stops nothing.

The agents of a host, as a client sees and commands them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, assert_never

import anyio
from msgspec import UNSET

from quarterdeck.client.link import Link, Listener, Listeners, Unsubscribe
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


class Agents:
    """A live copy of the host's agents. Calls raise `AcpError`."""

    def __init__(self, link: Link) -> None:
        self.mirror: Mirror[AgentSnapshotWire] = Mirror()
        self._link = link

    def get(self, agent_id: str) -> AgentSnapshotWire | None:
        return self.mirror.get(agent_id)

    def all(self) -> tuple[AgentSnapshotWire, ...]:
        """Return what is known now, without asking."""
        return self.mirror.all()

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call `listener` after each change of `all()`."""
        return self.mirror.subscribe(listener)

    async def spawn(self, definition: AgentDefinition | Mapping[str, Any]) -> AgentSnapshotWire:
        """Start an agent and wait until it is ready."""
        given = to_json(definition) if isinstance(definition, AgentDefinition) else dict(definition)
        with self.mirror.question() as told:
            answer = await self._link.call(AcpRpcMethod.SPAWN_AGENT, {"definition": given})
            snapshot = read_agent(answer)
            self.mirror.add_answer({snapshot.agent_id: snapshot}, told)
        return snapshot

    async def list(self) -> tuple[AgentSnapshotWire, ...]:
        """Ask the host for all agents."""
        with self.mirror.question() as told:
            answer = await self._link.call(AcpRpcMethod.LIST_AGENTS, {})
            listed = read_agents(answer)
            self.mirror.replace_answer({each.agent_id: each for each in listed}, told)
        return listed

    async def dispose(self, agent_id: str) -> None:
        """End an agent; its sessions stay, disconnected."""
        await self._link.call(AcpRpcMethod.DISPOSE_AGENT, {"agentId": agent_id})

    async def authenticate(self, agent_id: str, method_id: str) -> None:
        params = {"agentId": agent_id, "methodId": method_id}
        await self._link.call(AcpRpcMethod.AUTHENTICATE, params)

    async def logout(self, agent_id: str) -> None:
        await self._link.call(AcpRpcMethod.LOGOUT, {"agentId": agent_id})


DIAGNOSTICS = 200  # kept, the newest
CLOSE_SECONDS = 5.0  # for the transport to close

logger = logging.getLogger(__name__)


class Diagnostics:
    """What the host reported lately."""

    def __init__(self) -> None:
        self._ring: deque[DiagnosticEvent] = deque(maxlen=DIAGNOSTICS)
        self._listeners = Listeners()

    def all(self) -> tuple[DiagnosticEvent, ...]:
        return tuple(self._ring)

    def subscribe(self, listener: Listener) -> Unsubscribe:
        return self._listeners.add(listener)

    def add(self, event: DiagnosticEvent) -> None:
        self._ring.append(event)
        self._listeners.notify()

    def clear(self) -> None:
        if self._ring:
            self._ring.clear()
            self._listeners.notify()


class Client:
    """One connection to a host; an async context manager, for one use."""

    def __init__(self, transport: Transport) -> None:
        self.connection = Link(transport)
        """Its `status`, its `error`, and `subscribe` for changes of them."""
        self.agents = Agents(self.connection)
        self.sessions = SessionCollection(self.connection)
        self.permissions = Permissions(self.connection)
        self.elicitations = Elicitations(self.connection)
        self.diagnostics = Diagnostics()
        self.connection.subscribe(self._on_status)

    async def __aenter__(self) -> Self:
        """Connect, and know all agents, sessions and pending questions.

        Raises:
            AcpError: if that fails; the transport is closed then.
        """
        handlers = TransportHandlers(
            on_inbound_request=self._on_inbound_request,
            on_lifecycle=self.connection.on_lifecycle,
            on_subscription_error=self._on_subscription_error,
        )
        try:
            # History is replayed here: whoever listens already hears of its end only.
            with (
                self.agents.mirror.held(),
                self.sessions.mirror.held(),
                self.permissions.mirror.held(),
                self.elicitations.mirror.held(),
            ):
                await self.connection.open(handlers)
                self.connection.follow(None, 0, self._on_host_event)
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

    # ---- what the transport calls --------------------------------------------------------

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
                self.sessions.tell(read_session(known.payload))
            case PermissionUpdatedEvent():
                self.permissions.tell(dict(known.payload))
            case DiagnosticEvent():
                self.diagnostics.add(known)
            case UnknownEvent():  # other types are from a newer host
                if known.type == ELICITATION_UPDATED and isinstance(known.payload, dict):
                    self.elicitations.tell(known.payload)
            case InstallProgressEvent() | SessionEvent():
                pass  # not mirrored
            case _:
                assert_never(known)

    def _on_inbound_request(self, request: InboundRequest) -> None:
        if not is_request_kind(request.kind) or not isinstance(request.payload, dict):
            logger.warning("unknown inbound request", extra={"kind": request.kind})
            return
        pending = self._pending_requests(request.kind)
        pending.tell({**request.payload, "requestId": request.id})

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
            self.connection.fail(error)  # deaf to the host, all we show would be wrong soon
        else:
            self.sessions.lose_stream(params.session_id)

    def _on_status(self) -> None:
        if self.connection.status == "closed":
            self.permissions.clear()  # nobody can answer them through us any more
            self.elicitations.clear()
