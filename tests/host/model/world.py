"""A host with puppets for agents, and the reference beside it; every step is checked in full."""

from __future__ import annotations

import copy
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from anyio.lowlevel import current_token

from quarterdeck.client import Client, InProcessTransport
from quarterdeck.errors import AcpError, RpcError
from quarterdeck.host import Host, HostEndpoint, HostOptions
from quarterdeck.protocol import Event, SessionState, decode_event, initial_state, reduce
from quarterdeck.storage import MemoryStorage, SessionMeta, Storage, Stored
from tests.host.model.puppet import Json, Puppet
from tests.host.model.reference import ModelAgent, ModelRequest, ModelSession, Reference

PATIENCE = 60
REFUSAL = {"code": -32000, "message": "no"}
MODES = ("ask", "code")

Hold = Callable[[Sequence[Stored | SessionMeta]], Awaitable[None]]


class Unhurried:
    """A log in memory that takes its time, so that the host treats it as it does a file."""

    def __init__(self, kept: MemoryStorage, hold: Hold | None = None) -> None:
        self._kept = kept
        self._hold_batch = hold

    @property
    def is_durable(self) -> bool:
        return True

    @property
    def is_immediate(self) -> bool:
        return False

    def read_now(self, session_id: str, after: int, limit: int) -> list[bytes]:
        raise NotImplementedError

    async def open(self) -> None:
        await self._kept.open()

    async def append(self, batch: Sequence[Stored | SessionMeta]) -> None:
        await anyio.lowlevel.checkpoint()
        if self._hold_batch is not None:
            await self._hold_batch(batch)
        self._kept.append_now(tuple(batch))
        await anyio.lowlevel.checkpoint()

    async def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        await anyio.lowlevel.checkpoint()
        return self._kept.read_now(session_id, after, limit)

    async def sessions(self) -> list[SessionMeta]:
        return await self._kept.sessions()

    async def delete_events(self, session_id: str) -> None:
        await self._kept.delete_events(session_id)

    async def close(self) -> None:
        """Stay open: the test reads on."""


@dataclass(eq=False)
class Call:
    """A call of the host that waits for its agent."""

    method: str
    agent: ModelAgent
    puppet: Puppet
    request_id: int
    session: ModelSession | None = None
    generation: int = 0
    mode: str | None = None
    outcome: list[Any] | None = None
    """None for a call that the host makes by itself: no caller gets its outcome."""


@dataclass(eq=False)
class Follower:
    session_id: str
    from_seq: int
    events: list[Event] = field(default_factory=list)


class World:
    """Everything that is there."""

    def __init__(self, *, is_durable: bool, restart: str) -> None:
        self.model = Reference()
        self.kept = MemoryStorage()
        self.calls: list[Call] = []
        self.puppets: dict[str, Puppet] = {}
        """The living puppet of each agent."""
        self.followers: list[Follower] = []
        self.host_events: list[Event] = []
        self.host: Host
        self.client: Client
        self._logs: dict[str, list[Event]] = {}
        self._states: dict[str, tuple[int, SessionState]] = {}
        self._is_durable = is_durable
        self._restart = restart
        self._leave = anyio.Event()
        self._left = anyio.Event()
        self._agents_started = 0
        self._names = 0
        self._tasks: TaskGroup

    # ---- the host ------------------------------------------------------------------------

    async def enter(self, tasks: TaskGroup) -> None:
        """Start a host on the log."""
        self._tasks = tasks
        self._leave, self._left = anyio.Event(), anyio.Event()
        self.followers, self.host_events, self.calls = [], [], []
        self._logs, self._states = {}, {}
        self._agents_started = 0
        await tasks.start(self._live)

    async def _live(self, *, task_status: Any) -> None:
        await self.kept.open()
        self.model.stored_before = sum(meta.last_seq for meta in await self.kept.sessions())
        storage: Storage = Unhurried(self.kept) if self._is_durable else self.kept
        options = HostOptions(
            storage=storage,
            restart=self._restart,  # type: ignore[arg-type]  # drawn from the two that exist
            restart_backoff={"initialMs": 0.001, "factor": 1, "maxMs": 0.001},
        )
        async with (
            Host(options) as self.host,
            Client(InProcessTransport(HostEndpoint(self.host))) as self.client,
        ):
            self.host.subscribe(None, 0, self.host_events.append)
            task_status.started()
            await self._leave.wait()
        self._left.set()

    async def leave(self, *, is_killed: bool) -> None:
        """End the host; killed, it leaves the log as it is now."""
        kept = copy.deepcopy(self.kept) if is_killed else self.kept
        calls = [each for each in self.calls if each.outcome is not None]
        self._leave.set()
        await self._left.wait()
        await self.quiet()
        for call in calls:
            assert call.outcome, f"{call.method} still waits for a host that is gone"
        self.kept = kept
        await self.kept.open()
        self.model.restarted()

    async def quiet(self) -> None:
        """Wait until no task has anything left to do."""
        with anyio.fail_after(PATIENCE):
            while True:
                await self._others_blocked()
                agents = self.host.get_agents()
                if all(each.status in ("ready", "exited") for each in agents):
                    return
                await anyio.sleep(0.0001)

    async def _others_blocked(self) -> None:
        """Do what `anyio.wait_all_tasks_blocked` does, which sleeps 0.1 s while a task runs."""
        loop: Any = current_token().native_token
        while True:
            await anyio.lowlevel.checkpoint()
            if not loop._ready:  # noqa: SLF001 - no other task has anything to do
                return

    # ---- calls ---------------------------------------------------------------------------

    async def try_to(self, make: Callable[[], Awaitable[Any]]) -> list[Any]:
        """Make a call and return how it ended; empty if it waits."""
        outcome: list[Any] = []

        async def run() -> None:
            try:
                outcome.append(("returned", await make()))
            except AcpError as error:
                outcome.append(("raised", error.code))
            except RpcError as error:
                outcome.append(("refused", error.code))

        self._tasks.start_soon(run)
        await self.quiet()
        return outcome

    def waiting(self, agent: ModelAgent, method: str, **facts: Any) -> Call:
        """Return the call that the agent has just received."""
        puppet = self.puppets[agent.id]
        known = {each.request_id for each in self.calls if each.puppet is puppet}
        (request_id,) = set(puppet.pending) - known
        assert puppet.pending[request_id]["method"] == method
        call = Call(method, agent, puppet, request_id, **facts)
        self.calls.append(call)
        return call

    async def spawn(self, definition: str) -> ModelAgent:
        self._names += 1
        self._agents_started += 1
        agent = ModelAgent(f"agent-{self._agents_started}", definition)
        command = {"command": sys.executable, "args": [agent.id]}
        outcome = await self.try_to(lambda: self.host.spawn_agent({"id": definition, **command}))
        assert outcome[0][0] == "returned"
        self.model.agents[agent.id] = agent
        return agent

    def started(self, puppet: Puppet) -> None:
        self.puppets[puppet.name] = puppet

    async def ended(self, agent: ModelAgent) -> None:
        """Follow the end of an agent: its calls fail, its sessions are disconnected."""
        await self.quiet()
        self.model.agent_ended(agent)
        for call in [each for each in self.calls if each.agent is agent]:
            self.calls.remove(call)
            if call.outcome is not None:
                assert call.outcome == [("raised", "acpjs/agent-exited")], call.method

    def recover(self, agent: ModelAgent) -> None:
        """Follow what a restarted agent resumes by itself, one after the other."""
        while agent.recovery:
            session = agent.recovery.pop(0)
            if session.status == "disconnected" and session.operation is None:
                self.model.begin("resume", agent, session.id)
                facts = {"session": session, "generation": session.generation}
                self.waiting(agent, "session/resume", **facts)
                return

    # ---- checks --------------------------------------------------------------------------

    def log(self, session_id: str) -> list[Event]:
        """Return what is stored of a session; what was read before is not read again."""
        events = self._logs.setdefault(session_id, [])
        stored = self.kept.read_now(session_id, len(events), sys.maxsize)
        events.extend(map(decode_event, stored))
        return events

    def state(self, session_id: str) -> SessionState:
        """Return the fold of a log."""
        count, state = self._states.get(session_id, (0, initial_state(session_id)))
        events = self.log(session_id)
        for event in events[count:]:
            state = reduce(state, event)
        self._states[session_id] = len(events), state
        return state

    async def check(self) -> None:
        """Compare everything that can be seen from outside with the reference."""
        await self.quiet()
        for session in self.client.sessions.all():
            if self.model.known[session.id].is_settled:
                _ = session.store  # followed from now on
        await self.quiet()
        self._check_host()
        self._check_host_stream()
        self._check_requests()
        self._check_client()

    def _check_host(self) -> None:
        snapshots = {each.session_id: each for each in self.host.get_sessions()}
        facts = {name: (each.status, each.agent_id or None) for name, each in snapshots.items()}
        assert facts == self.model.facts()
        for session in self.model.known.values():
            self._check_session(session)
        for session_id, status in self.model.ended_logs.items():
            self._check_end(session_id, status)
        for follower in self.followers:
            wanted = [
                each for each in self.log(follower.session_id) if each.seq > follower.from_seq
            ]
            assert follower.events == wanted, "INV-2"

    def _check_session(self, session: ModelSession) -> None:
        events = self.log(session.id)
        assert [each.seq for each in events] == list(range(1, len(events) + 1)), "INV-1"
        if not session.is_settled:
            return
        state = self.state(session.id)
        snapshot = self.host.get_session(session.id)
        assert snapshot is not None
        assert state.connection.status == snapshot.status
        assert (state.info.title or None) == (snapshot.title or None) == session.title
        assert texts(state) == session.texts
        modes: Any = state.modes or {}
        assert modes.get("currentModeId") == session.mode
        pending = [each.request_id for each in state.pending_permission_requests]
        assert pending == self.model.pending(session)
        check_answered_once(events, pending)

    def _check_end(self, session_id: str, status: str) -> None:
        """Nothing is added to a log that has ended."""
        events = self.log(session_id)
        assert events[-1].type == "session-status-change"
        assert events[-1].payload["status"] == status
        check_answered_once(events, [])

    def _check_host_stream(self) -> None:
        seqs = [each.seq for each in self.host_events]
        assert seqs == list(range(1, len(seqs) + 1)), "INV-1 of the host's own stream"
        host_seen = {
            each.payload["sessionId"]: each.payload["status"]
            for each in self.host_events
            if each.type == "session-updated"
        }
        for session in self.model.known.values():
            assert host_seen[session.id] == session.status
        codes = [each.payload["code"] for each in self.host_events if each.type == "diagnostic"]
        assert not {"event/unserializable", "subscriber/error", "storage/write-failed"} & set(codes)

    def _check_requests(self) -> None:
        projected: dict[str, list[str]] = {}
        for event in self.host_events:
            if event.type == "permission-updated":
                projected.setdefault(event.payload["requestId"], []).append(event.payload["status"])
        wanted = {each.id: ["pending", each.status] for each in self.model.requests}
        for statuses in wanted.values():
            if statuses[1] == "pending":
                statuses.pop()
        assert projected == wanted, "INV-9"
        for request in self.model.requests:
            self._check_answer(request)

    def _check_client(self) -> None:
        """A client that only listens knows as much as the host."""
        sessions = self.client.sessions.all()
        live = [each for each in self.model.known.values() if each.is_live]
        assert {each.id: each.snapshot.status for each in sessions} == {
            each.id: each.status for each in live
        }
        for session in sessions:
            if self.model.known[session.id].is_settled:
                assert session.store.state == self.state(session.id)
        waiting = [each.id for each in self.model.requests if each.status == "pending"]
        assert [each.request_id for each in self.client.permissions.pending] == waiting
        agents = {each.agent_id: each.status for each in self.client.agents.all()}
        assert agents == {each.agent_id: each.status for each in self.host.get_agents()}

    def _check_answer(self, request: ModelRequest) -> None:
        """The agent gets one answer to each request, unless it is gone."""
        answers = request.puppet.answers[request.wire_id]
        if request.status == "pending":
            assert answers == []
        elif request.puppet.exit_status is None:
            (answer,) = answers
            assert answer["result"]["outcome"] == request.outcome
        else:
            assert len(answers) <= 1


def texts(state: SessionState) -> list[str]:
    return [block["text"] for message in state.messages for block in message.content]


def check_answered_once(events: list[Event], pending: list[str]) -> None:
    """INV-9 in the log: each request is there once and resolved once, or still pending."""
    open_ones: list[str] = []
    for event in events:
        request_id = event.payload.get("requestId")
        if event.type == "permission-request-created":
            assert request_id not in open_ones
            open_ones.append(request_id)
        elif event.type == "permission-request-resolved":
            assert request_id in open_ones, "resolved twice, or never created"
            open_ones.remove(request_id)
    assert open_ones == pending, "created and never resolved"


def modes(current: str | None) -> Json:
    if current is None:
        return {}
    available = [{"id": each, "name": each} for each in MODES]
    return {"modes": {"currentModeId": current, "availableModes": available}}
