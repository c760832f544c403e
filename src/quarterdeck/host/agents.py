"""An agent: its process, its connection, its restarts.

    spawning → initializing → ready → (exit) → restarting → spawning …
                                            → exited

Every way down is one way: the calls that wait fail, its permission requests are superseded, its
sessions become `disconnected`, then either a restart is scheduled or the agent is `exited`. A clean
exit of an agent that nobody asked to leave is a crash like any other.

What is told to an agent of us, and of an agent to others. Pure.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import anyio
import msgspec
from msgspec import UNSET

from quarterdeck._version import __version__
from quarterdeck.acp import PROTOCOL_VERSION
from quarterdeck.errors import AcpError, AgentNotFound, ConnectionClosed, ConnectionFailed, RpcError
from quarterdeck.host.capabilities import derive_client_capabilities
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.options import ResolvedHostOptions
from quarterdeck.host.secrets import Secrets, credentials, environment_of
from quarterdeck.host.sessions.session import Early, agent_exited, agent_misbehaved
from quarterdeck.machine import guarded_command, kill_tree, send_signal
from quarterdeck.protocol import (
    AgentCapabilitiesWire,
    AgentDefinition,
    AgentExitReason,
    AgentSnapshotWire,
    AgentStatus,
    DiagnosticLevel,
    to_json,
)
from quarterdeck.wire import (
    Connection,
    ConnectionOptions,
    ProcessTransport,
    Report,
    Vocabulary,
    open_connection,
    open_process,
)

CLIENT_INFO = {"name": "quarterdeck", "version": __version__}


def capabilities_wire(declared: Mapping[str, Any]) -> AgentCapabilitiesWire:
    shape = AgentCapabilitiesWire
    names = zip(shape.__struct_encode_fields__, shape.__struct_fields__, strict=True)
    return shape(**{ours: declared[theirs] for theirs, ours in names if theirs in declared})


def agent_info(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return who an agent says it is: `name`, `title` and `version`, none of them for sure."""
    given = answer.get("agentInfo")
    return given if isinstance(given, dict) else None


def can_log_out(declared: Mapping[str, Any]) -> bool:
    auth = declared.get("auth")
    return isinstance(auth, dict) and auth.get("logout") not in (None, False)


def exit_record(status: int | None) -> dict[str, Any]:
    if status is None:
        return {}
    if status >= 0:
        return {"code": status}
    try:
        return {"signal": signal.Signals(-status).name}
    except ValueError:
        return {"signal": str(-status)}


INITIALIZE_SECONDS = 120.0  # the slowest agent measured needs ten
DOWN_SECONDS = 2.0  # that a failed call waits for its agent to be told as gone


class _UpdateParams(msgspec.Struct, rename="camel", gc=False):
    """The params of `session/update`; the update itself stays the JSON it came as (INV-4)."""

    session_id: str
    update: dict[str, Any]


_VOCABULARY = Vocabulary({"session/update": _UpdateParams})


OnUpdate = Callable[["AgentProcess", str, dict[str, Any]], None]


class AgentOwner(Protocol):
    """What an agent needs of its host."""

    on_update: OnUpdate

    def on_request(self, agent: AgentProcess, method: str, params: Any) -> Any: ...
    def on_elicitation_complete(self, agent: AgentProcess, elicitation_id: Any) -> None: ...
    def on_down(self, agent: AgentProcess) -> None: ...
    def on_ready(self, agent: AgentProcess) -> None: ...


class AgentProcess:
    """One agent under one id, through all its restarts."""

    def __init__(
        self,
        agent_id: str,
        definition: AgentDefinition,
        options: ResolvedHostOptions,
        emitter: Emitter,
        owner: AgentOwner,
    ) -> None:
        self.id = agent_id
        self.definition = definition
        self.status: AgentStatus = "spawning"
        self.restart_count = 0
        self.early = Early()
        self.expects_session = 0
        """How many `session/new` are under way."""
        self.abandoned: dict[str, int] = {}
        """Sessions whose load or resume was given up before it was answered, and how often."""
        self.secrets = Secrets((definition.env or {}).values())
        self._options = options
        self._emitter = emitter
        self._owner = owner
        self._reason: AgentExitReason | None = None
        self._exit: dict[str, Any] | None = None
        self._answer: dict[str, Any] | None = None  # of `initialize`
        self.info: dict[str, Any] | None = None
        self._connection: Connection | None = None
        self._disposal = anyio.Event()
        self._started = anyio.Event()
        self._gone = anyio.Event()
        self._down = anyio.Event()  # set when its process has ended and that was told
        self._first_failure: AcpError | None = None

    # ---- what others see -----------------------------------------------------------------

    def snapshot(self) -> AgentSnapshotWire:
        answer = self._answer
        return AgentSnapshotWire(
            agent_id=self.id,
            status=self.status,
            restart_count=self.restart_count,
            reason=UNSET if self._reason is None else self._reason,
            exit=UNSET if self._exit is None else self._exit,  # type: ignore[arg-type]  # JSON
            capabilities=UNSET if answer is None else capabilities_wire(self.capabilities),
            auth_methods=UNSET if answer is None else tuple(answer.get("authMethods") or ()),
        )

    @property
    def capabilities(self) -> Mapping[str, Any]:
        declared = (self._answer or {}).get("agentCapabilities")
        return declared if isinstance(declared, dict) else {}

    def can(self, capability: str) -> bool:
        """Tell whether `sessionCapabilities` declare something; false and null do not count."""
        declared = self.capabilities.get("sessionCapabilities")
        value = declared.get(capability) if isinstance(declared, dict) else None
        return value is not None and value is not False

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    def connection(self) -> Connection:
        """Return the way to talk to it.

        Raises:
            AcpError: `acpjs/agent-exited` if it is not ready.
        """
        if self.status != "ready" or self._connection is None:
            raise agent_exited(f"agent {self.id} is not ready")
        return self._connection

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """Ask it for something that concerns no session."""
        try:
            return await self.connection().call(method, params)
        except ConnectionFailed as error:
            raise await self.failure(error) from error

    async def failure(self, error: Exception) -> AcpError:
        """Return what to raise for a call that got no answer, or none that can be read.

        If that is because the agent has ended, then by now its status and its sessions say so.
        """
        reason = self.secrets.hidden(str(error))
        if not isinstance(error, ConnectionClosed):
            return agent_misbehaved(f"agent {self.id} misbehaved: {reason}")
        with anyio.move_on_after(DOWN_SECONDS):
            await self._down.wait()
        return agent_exited(f"agent {self.id} exited: {reason}")

    # ---- its life ------------------------------------------------------------------------

    async def started(self) -> None:
        """Wait for the first start.

        Raises:
            AcpError: `acpjs/agent-exited` if it failed.
        """
        await self._started.wait()
        if self._first_failure is not None:
            raise self._first_failure

    async def run(self) -> None:
        """Live until nothing restarts it any more."""
        try:
            while True:
                cause = await self._live_once()
                delay = self._after(cause)
                self._down.set()
                if delay is None:
                    return
                with anyio.move_on_after(delay):
                    await self._disposal.wait()
                if self._disposal.is_set():
                    self._exited("disposed")
                    return
        finally:
            self._down.set()
            self._gone.set()

    async def dispose(self) -> None:
        """End it and wait until it is gone."""
        self._disposal.set()
        await self._gone.wait()

    async def _live_once(self) -> AgentExitReason:
        self._move("spawning")
        env = environment_of(self.definition, self._options.inherit)
        self.secrets.add(credentials(env))
        command = (self.definition.command, *self.definition.args)
        cwd = self.definition.cwd
        try:
            guarded = guarded_command(command, env=env, cwd=cwd)
            async with open_process(
                guarded, cwd=cwd, env=env, on_stderr=self._on_stderr, stop_seconds=1
            ) as process:
                return await self._converse(process)
        except AgentNotFound as error:
            self._diagnose("error", "agent/spawn-failed", str(error))
            self._fail_start(f"agent {self.id} could not be started: {error}")
            return "spawn-failed"

    async def _converse(self, process: ProcessTransport) -> AgentExitReason:
        self._exit = None
        self._down = anyio.Event()
        facts = {"pid": process.process.pid, "envKeys": sorted(self.definition.env or {})}
        self._diagnose("info", "agent/spawn", f"spawned {self.definition.command}", facts)
        self._move("initializing")
        options = ConnectionOptions(
            vocabulary=_VOCABULARY,
            on_report=self._on_report,
            answers_garbage=False,
            hold=self._emitter.journal.pressure,
        )
        async with open_connection(
            process,
            on_notification=self._on_notification,
            on_request=self._on_request,
            options=options,
        ) as connection:
            self._connection = connection
            failure = await self._initialize(connection)
            if failure is not None and not self._disposal.is_set():
                self._fail_initialize(failure)
                if process.exit_status is None:
                    send_signal(process.process.pid, signal.SIGTERM)
            else:
                if failure is None:
                    await self._until_it_ends(connection)
                process.close_input()
            await self._end(process)
        self._note_exit(process)
        self._go_down()
        self._fail_start(f"agent {self.id} ended before it was ready")
        return "crashed" if failure is None else "initialize-failed"

    def _fail_initialize(self, failure: str) -> None:
        """Tell at once; the exit of the process, which may take a while, is told when it comes."""
        self._diagnose("error", "agent/initialize-failed", failure)
        if not self._may_restart("initialize-failed"):
            self._exited("initialize-failed")
        self._fail_start(f"agent {self.id} failed to initialize: {failure}")

    async def _initialize(self, connection: Connection) -> str | None:
        """Shake hands; return what went wrong, if anything."""
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "clientInfo": CLIENT_INFO,
            "clientCapabilities": derive_client_capabilities(
                self._options.fs, self._options.terminal, self._options.elicitation
            ),
        }
        answer: Any = None
        failure: str | None = None
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._cancel_on_disposal, scope)
                try:
                    answer = await connection.call(
                        "initialize", params, timeout_seconds=INITIALIZE_SECONDS
                    )
                except (RpcError, ConnectionFailed) as error:
                    failure = self.secrets.hidden(str(error))
                tasks.cancel_scope.cancel()
        if scope.cancelled_caught:
            return "it was disposed"
        if failure is None and not isinstance(answer, dict):
            failure = "its answer is not an object"
        elif failure is None and answer.get("protocolVersion") != PROTOCOL_VERSION:
            spoken = answer.get("protocolVersion")
            failure = f"it speaks protocol version {spoken!r} and we speak {PROTOCOL_VERSION}"
        if failure is not None:
            return failure
        self._answer, self.info = answer, agent_info(answer)
        self._diagnose("info", "agent/initialized", "initialize handshake complete")
        self.restart_count = 0
        self._move("ready")
        self._started.set()
        self._owner.on_ready(self)
        return None

    async def _cancel_on_disposal(self, scope: anyio.CancelScope) -> None:
        await self._disposal.wait()
        scope.cancel()

    async def _until_it_ends(self, connection: Connection) -> None:
        """Wait for its end, or for somebody to end it."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_on_disposal, tasks.cancel_scope)
            await connection.wait_closed()
            tasks.cancel_scope.cancel()

    async def _end(self, process: ProcessTransport) -> None:
        """Give it time to follow what it was told, then kill it with all it started."""
        with anyio.move_on_after(self._options.kill_timeout_ms / 1000):
            await process.process.wait()
            return
        message = f"agent {self.id} did not end within {self._options.kill_timeout_ms:g} ms"
        self._diagnose("warn", "agent/kill", message)
        kill_tree(process.process.pid)
        with anyio.move_on_after(self._options.kill_timeout_ms / 1000):
            await process.process.wait()
            return
        message = f"agent {self.id} was killed and has not ended; it may live on"
        self._diagnose("error", "agent/process-error", message)

    # ---- going down ----------------------------------------------------------------------

    def _note_exit(self, process: ProcessTransport) -> None:
        self._exit = exit_record(process.exit_status)
        self._diagnose("info", "agent/exit", "agent process exited", self._exit)

    def _go_down(self) -> None:
        self._connection = None
        self.early.clear()
        self.abandoned.clear()
        self._owner.on_down(self)

    def _may_restart(self, cause: AgentExitReason) -> bool:
        is_cycle = cause == "crashed" or self.restart_count > 0
        return self._options.restart == "on-crash" and is_cycle and not self._disposal.is_set()

    def _after(self, cause: AgentExitReason) -> float | None:
        """Decide what follows; return the seconds until the next start, or None for the end."""
        if self._disposal.is_set():
            self._exited("disposed")
            return None
        if not self._may_restart(cause):
            if cause == "crashed":
                self._diagnose("info", "agent/restart-suppressed", "the restart policy is never")
            self._exited(cause)
            return None
        if self.restart_count >= self._options.restart_limit:
            message = f"gave up after {self.restart_count} restarts"
            self._diagnose("warn", "agent/restart-exhausted", message)
            self._exited("restart-exhausted")
            return None
        delay_ms = self._options.restart_backoff.delay_ms(self.restart_count)
        self.restart_count += 1
        facts = {"attempt": self.restart_count, "delayMs": delay_ms}
        message = f"restart attempt {self.restart_count} in {delay_ms:g}ms"
        self._diagnose("info", "agent/restart-scheduled", message, facts)
        self._move("restarting")
        return delay_ms / 1000

    def _exited(self, reason: AgentExitReason) -> None:
        if self.status != "exited":
            self._reason = reason
            self._move("exited")

    def _fail_start(self, message: str) -> None:
        if not self._started.is_set():
            self._first_failure = agent_exited(message)
            self._started.set()

    # ---- telling -------------------------------------------------------------------------

    def _move(self, status: AgentStatus) -> None:
        self.status = status
        self._emitter.host_event("agent-updated", to_json(self.snapshot()), self.id)

    def _diagnose(self, level: DiagnosticLevel, code: str, message: str, data: Any = None) -> None:
        self._emitter.diagnostic(level, code, message, agent_id=self.id, data=data)

    def _on_stderr(self, line: str) -> None:
        self._diagnose("info", "agent/stderr", self.secrets.hidden(line))

    def _on_report(self, report: Report) -> None:
        text = self.secrets.hidden(report.text.decode("utf-8", "replace"))
        data = {"kind": report.kind.value, "text": text}
        self._diagnose("warn", "agent/misbehaved", self.secrets.hidden(report.reason), data)

    def _on_notification(self, method: str, params: Any) -> None:
        if method == "session/update":
            self._owner.on_update(self, params.session_id, params.update)
        elif method == "elicitation/complete" and isinstance(params, dict):
            self._owner.on_elicitation_complete(self, params.get("elicitationId"))

    def _on_request(self, method: str, params: Any) -> Any:
        return self._owner.on_request(self, method, params)
