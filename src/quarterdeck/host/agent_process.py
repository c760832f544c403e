"""An agent: its process, its connection, its restarts.

    status        meaning                               next
    spawning      the process is being started          initializing; restarting; exited
    initializing  connected; `initialize` is called     ready; restarting; exited
    ready         serves sessions                       restarting; exited
    restarting    waits for the backoff                 spawning; exited (disposed)
    exited        final; `reason` says why

An agent that closes its input but stays is ended: it can be sent nothing any more. `end` ends one
that does not respond. Both are crashes, and the restart rules apply.

Every end takes one path (`_run_once`, then `_restart_delay`): pending calls fail, the agent's
requests are superseded, its sessions become `disconnected`, and then a restart is scheduled or the
agent is `exited`.

    the end                                  restart "never"     restart "on-crash"
    the process ends by itself               crashed             restarting
      (also with exit status 0)
    start or `initialize` fails, first time  spawn-failed,       the same
                                             initialize-failed
    start or `initialize` fails, in a        cannot happen       restarting
      restart
    `restart_limit` restarts in a row fail   cannot happen       restart-exhausted
    `dispose`                                disposed            disposed

A successful `initialize` resets the count of restarts. The delay grows by `RestartBackoff`.

Updates are handled in the read loop: `take_update` queues their events, and at the end of each
read `_after_read` commits and publishes them, so that all events of a read share one commit.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import anyio
from msgspec import UNSET, Struct

from quarterdeck._version import __version__
from quarterdeck.acp import PROTOCOL_VERSION
from quarterdeck.errors import (
    AcpError,
    AgentNotFound,
    ConfinementUnavailable,
    ConnectionClosed,
    ConnectionFailed,
    RpcError,
)
from quarterdeck.host.acp2.connection import Acp2Connection, AgentConnection
from quarterdeck.host.acp2.handshake import (
    NEWEST,
    answer_as_acp1,
    disagreement,
    falls_back,
    initialize_params,
    is_acp2,
)
from quarterdeck.host.capabilities import (
    agent_info,
    capabilities_wire,
    derive_client_capabilities,
)
from quarterdeck.host.checks import agent_exited, agent_misbehaved
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.options import ResolvedHostOptions
from quarterdeck.host.reports import RepeatedReports, StderrReports
from quarterdeck.host.secrets import Secrets, credentials, environment_of
from quarterdeck.host.sessions.session import EarlyUpdates
from quarterdeck.machine import (
    UNCONFINED,
    ConfinedStart,
    guarded_command,
    guarded_env,
    kill_tree,
    send_signal,
)
from quarterdeck.protocol import (
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
    cancel_when,
    open_connection,
    open_process,
)

CLIENT_INFO = {"name": "quarterdeck", "version": __version__}
INITIALIZE_SECONDS = 120.0  # the slowest agent measured needs ten
EXIT_SECONDS = 5.0  # that a failed call waits until the agent's end is published
INPUT_SECONDS = 1.0  # between the moment an agent closes its input and its exit

OnUpdate = Callable[["AgentProcess", str, dict[str, Any]], None]
AUTH_STATUS_UPDATES = ("auth/status_update", "_auth/status_update")  # also as an extension
VERSION_1_NEXT = "it does not speak the newest version of the protocol"


class UpdateParams(Struct, rename="camel", gc=False):
    """The params of `session/update`; the update itself stays JSON as received (INV-4)."""

    session_id: str
    update: dict[str, Any]


UPDATE_VOCABULARY = Vocabulary({"session/update": UpdateParams})
"""Makes the connection decode the params of `session/update`; those of all others stay JSON."""


class AgentOwner(Protocol):
    """What an agent process calls in its host."""

    on_update: OnUpdate
    on_acp2_update: OnUpdate

    def on_request(self, agent: AgentProcess, method: str, params: Any) -> Awaitable[Any]: ...
    def on_elicitation_complete(self, agent: AgentProcess, elicitation_id: Any) -> None: ...
    def on_disconnected(self, agent: AgentProcess) -> None: ...
    def on_ready(self, agent: AgentProcess) -> None: ...
    def on_input_unread(self, agent: AgentProcess) -> bool: ...


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
        self.early_updates = EarlyUpdates()
        self.abandoned: dict[str, int] = {}
        """Sessions whose load or resume was abandoned before it was answered, and how often."""
        self._sessions_being_created = 0
        self.secrets = Secrets((definition.env or {}).values())
        self._options = options
        self._emitter = emitter
        self._journal = emitter.journal
        self._owner = owner
        self._dropped = RepeatedReports()
        self._stderr = StderrReports(self._publish_stderr)
        self._reason: AgentExitReason | None = None
        self._exit: dict[str, Any] | None = None
        self._initialized: dict[str, Any] | None = None  # the result of `initialize`
        self.info: dict[str, Any] | None = None
        self.auth_status: dict[str, Any] | None = None
        """Its last report of `auth/status_update`."""
        self._connection: Connection | None = None
        self.acp2: Acp2Connection | None = None
        """Its connection, if it speaks ACP 2."""
        self.take_update: OnUpdate = owner.on_update
        """Records an update: `host/sessions/updates`, or with ACP 2 `host/acp2/updates`."""
        self._version = 1 if definition.protocol in (None, 1) else NEWEST
        self._disposal = anyio.Event()
        self._ending = anyio.Event()  # its process is to end now, whatever happens next
        self._end_reason: str | None = None  # why, as far as the connection cannot know
        self._started = anyio.Event()
        self._ended = anyio.Event()  # it will not be started again
        self._disconnected = anyio.Event()  # its process has ended, and that is published
        self._first_failure: AcpError | None = None

    # ---- its state and calls -------------------------------------------------------------

    def snapshot(self) -> AgentSnapshotWire:
        answer = self._initialized
        return AgentSnapshotWire(
            agent_id=self.id,
            status=self.status,
            restart_count=self.restart_count,
            reason=UNSET if self._reason is None else self._reason,
            exit=UNSET if self._exit is None else self._exit,  # type: ignore[arg-type]  # JSON
            capabilities=UNSET if answer is None else capabilities_wire(self.capabilities),
            auth_methods=UNSET if answer is None else tuple(answer.get("authMethods") or ()),
            auth_status=UNSET if self.auth_status is None else self.auth_status,
        )

    @property
    def capabilities(self) -> Mapping[str, Any]:
        declared = (self._initialized or {}).get("agentCapabilities")
        return declared if isinstance(declared, dict) else {}

    def can(self, capability: str) -> bool:
        """Return whether `sessionCapabilities` declare something; false and null do not count."""
        declared = self.capabilities.get("sessionCapabilities")
        value = declared.get(capability) if isinstance(declared, dict) else None
        return value is not None and value is not False

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    def connection(self) -> AgentConnection:
        """Return its connection.

        Raises:
            AcpError: `acpjs/agent-exited` if it is not ready.
        """
        if self.status != "ready" or self._connection is None:
            raise agent_exited(f"agent {self.id} is not ready")
        return self._connection if self.acp2 is None else self.acp2

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """Call a method that concerns no session."""
        try:
            return await self.connection().call(method, params)
        except ConnectionFailed as error:
            raise await self.failure(error) from error

    async def failure(self, error: Exception) -> AcpError:
        """Return what to raise for a call without an answer, or with an unreadable one.

        If the agent has ended, its status and its sessions show that by the time this returns.
        """
        reason = self.secrets.hidden(str(error))
        if not isinstance(error, ConnectionClosed):
            return agent_misbehaved(f"agent {self.id} misbehaved: {reason}")
        if self._end_reason is not None:
            reason = self._end_reason  # nothing that the connection knows explains it
        with anyio.move_on_after(EXIT_SECONDS):
            await self._disconnected.wait()
        return agent_exited(f"agent {self.id} exited: {reason}")

    # ---- sessions that are being opened ----------------------------------------------------

    @contextmanager
    def creating_session(self) -> Iterator[None]:
        """Call `session/new` inside: updates that arrive before its answer are buffered."""
        self._sessions_being_created += 1
        try:
            yield
        finally:
            self._sessions_being_created -= 1
            if not self._sessions_being_created:
                self.early_updates.clear()

    @property
    def is_creating_session(self) -> bool:
        return self._sessions_being_created > 0

    def add_abandoned(self, session_id: str) -> None:
        """Record that a load or resume was abandoned before the agent answered."""
        self.abandoned[session_id] = self.abandoned.get(session_id, 0) + 1

    def remove_abandoned(self, session_id: str) -> None:
        """Record that the agent has answered an abandoned load or resume."""
        count = self.abandoned.pop(session_id, 0)
        if count > 1:
            self.abandoned[session_id] = count - 1

    # ---- start, restart, end -------------------------------------------------------------

    async def started(self) -> None:
        """Wait for the first start.

        Raises:
            AcpError: `acpjs/agent-exited` if it failed.
        """
        await self._started.wait()
        if self._first_failure is not None:
            raise self._first_failure

    async def run(self) -> None:
        """Run the agent, and restart it, until it is disposed or not restarted any more."""
        try:
            while True:
                cause = await self._run_once()
                delay = self._restart_delay(cause)
                self._disconnected.set()
                if delay is None:
                    return
                with anyio.move_on_after(delay):
                    await self._disposal.wait()
                if self._disposal.is_set():
                    self._exited("disposed")
                    return
        finally:
            self._disconnected.set()
            self._ended.set()

    async def end(self, by: str | None = None) -> None:
        """End its process now; what happens next is what happens after a crash.

        Raises:
            AcpError: `acpjs/agent-exited` if it is not running.
        """
        self.connection()
        disconnected = self._disconnected
        who = "on request" if by is None else f"by {by}"
        self._diagnose("warn", "agent/ended", f"agent {self.id} is ended {who}")
        self._end_reason = f"it was ended {who}"
        self._ending.set()
        await disconnected.wait()

    async def dispose(self) -> None:
        """End it and wait until it has ended."""
        self._disposal.set()
        await self._ended.wait()

    async def _run_once(self) -> AgentExitReason:
        cause = await self._run_process()
        return await self._run_process() or "initialize-failed" if cause is None else cause

    async def _run_process(self) -> AgentExitReason | None:
        self._set_status("spawning")
        env = environment_of(self.definition, self._options.inherit)
        self.secrets.add(credentials(env))
        command = (self.definition.command, *self.definition.args)
        cwd = self._working_folder()
        try:
            start = await self._confined_start()
            guarded = guarded_command(command, env=env, cwd=cwd, start=start)
            env = guarded_env(env, start)
            async with open_process(
                guarded,
                cwd=cwd,
                env=env,
                name=self.definition.id,
                on_stderr=self._stderr.take,
                stop_seconds=1,
            ) as process:
                return await self._serve(process)
        except (AgentNotFound, ConfinementUnavailable) as error:
            self._diagnose("error", "agent/spawn-failed", str(error))
            self._fail_start(str(error))
            return "spawn-failed"

    def _working_folder(self) -> str | None:
        """Return where its process starts: not in a hidden folder, as when a service runs there."""
        cwd = self.definition.cwd
        if not self._options.hidden or not self._options.hidden.contains(cwd or "."):
            return cwd
        message = f"{cwd} is a folder of the hub; agent {self.id} starts in / instead"
        self._diagnose("warn", "agent/cwd-hidden", message)
        return "/"

    async def _confined_start(self) -> ConfinedStart:
        confine = self._options.confine
        if confine is None:
            return UNCONFINED
        # On a thread: the first call finds out what this machine can do.
        return await anyio.to_thread.run_sync(confine, self.definition)

    async def _serve(self, process: ProcessTransport) -> AgentExitReason | None:
        """Serve one process to its end; return None if it is to be started with version 1."""
        self._exit = None
        self._disconnected, self._ending = anyio.Event(), anyio.Event()
        self._end_reason = None
        facts = {"pid": process.process.pid, "envKeys": sorted(self.definition.env or {})}
        self._diagnose("info", "agent/spawn", f"spawned {self.definition.command}", facts)
        self._set_status("initializing")
        options = ConnectionOptions(
            vocabulary=UPDATE_VOCABULARY,
            on_report=self._on_report,
            answers_garbage=False,
            after_read=self._after_read,
        )
        async with open_connection(
            process,
            on_notification=self._on_notification,
            on_request=self._on_request,
            options=options,
        ) as connection:
            self._connection = connection
            failure = await self._initialize(connection)
            if failure is VERSION_1_NEXT:
                process.close_input()
            elif failure is not None and not self._disposal.is_set():
                self._fail_initialize(failure)
                if process.exit_status is None:
                    send_signal(process.process.pid, signal.SIGTERM)
            else:
                if failure is None:
                    await self._wait_end(connection, process)
                process.close_input()
            await self._terminate(process)
        self._record_exit(process)
        self._disconnect()
        if failure is VERSION_1_NEXT and not self._disposal.is_set():
            return None
        self._fail_start(f"agent {self.id} ended before it was ready")
        return "crashed" if failure is None else "initialize-failed"

    def _fail_initialize(self, failure: str) -> None:
        """Publish the failure at once; the exit of the process may take a while."""
        self._diagnose("error", "agent/initialize-failed", failure)
        if not self._may_restart("initialize-failed"):
            self._exited("initialize-failed")
        self._fail_start(f"agent {self.id} failed to initialize: {failure}")

    async def _initialize(self, connection: Connection) -> str | None:
        """Call `initialize`; return what went wrong, if anything."""
        capabilities = derive_client_capabilities(
            self._options.fs, self._options.terminal, self._options.elicitation, self._options.shows
        )
        params = initialize_params(self._version, CLIENT_INFO, capabilities)
        answer: Any = None
        failure: str | None = None
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_when, self._disposal, scope)
                try:
                    answer = await connection.call(
                        "initialize", params, timeout_seconds=INITIALIZE_SECONDS
                    )
                except (RpcError, ConnectionFailed) as error:
                    failure = self.secrets.hidden(str(error))
                    if falls_back(error, self.definition.protocol, self._version):
                        self._version, failure = PROTOCOL_VERSION, VERSION_1_NEXT
                tasks.cancel_scope.cancel()
        if scope.cancelled_caught:
            return "it was disposed"
        if failure is None and not isinstance(answer, dict):
            failure = "its answer is not an object"
        elif failure is None:
            failure = disagreement(answer, self.definition.protocol, self._version)
        if failure is not None:
            return failure
        if self._version != PROTOCOL_VERSION and is_acp2(answer):
            answer = answer_as_acp1(answer)
            self.acp2 = Acp2Connection(connection, self._on_answered_update, self.report_dropped)
            self.take_update = self._owner.on_acp2_update
        self._initialized, self.info = answer, agent_info(answer)
        self._diagnose("info", "agent/initialized", "initialize handshake complete")
        self.restart_count = 0
        self._set_status("ready")
        self._started.set()
        self._owner.on_ready(self)
        return None

    async def _wait_end(self, connection: Connection, process: ProcessTransport) -> None:
        """Wait until the agent has ended, or has to be ended."""
        async with anyio.create_task_group() as tasks:
            scope = tasks.cancel_scope
            tasks.start_soon(cancel_when, self._disposal, scope)
            tasks.start_soon(cancel_when, self._ending, scope)
            tasks.start_soon(self._cancel_on_closed_input, process, scope)
            seconds, on_unread = self._options.response_timeout_ms / 1000, self._on_input_unread
            tasks.start_soon(process.watch_unread, seconds, on_unread)
            tasks.start_soon(self._stderr.run)
            await connection.wait_closed()
            scope.cancel()

    async def _cancel_on_closed_input(
        self, process: ProcessTransport, scope: anyio.CancelScope
    ) -> None:
        """An agent that closes its input and stays gets no prompt and no answer any more."""
        await process.wait_unread()
        with anyio.move_on_after(INPUT_SECONDS):
            await process.process.wait()
        if process.exit_status is None:
            message = f"agent {self.id} has closed its input and still runs; it is ended"
            self._diagnose("error", "agent/input-closed", message)
            self._end_reason = "it has closed its input and was ended"
            self._ending.set()
            scope.cancel()

    async def _terminate(self, process: ProcessTransport) -> None:
        """Wait for the process to end; after a timeout kill it with all that it started."""
        # One that is to end now may be stopped, or has closed its input: there is nothing to wait
        # for but the time that a sound agent needs to exit.
        timeout_ms = self._options.kill_timeout_ms
        if self._ending.is_set():
            timeout_ms = min(timeout_ms, INPUT_SECONDS * 1000)
        with anyio.move_on_after(timeout_ms / 1000):
            await process.process.wait()
            return
        message = f"agent {self.id} did not end within {timeout_ms:g} ms"
        self._diagnose("warn", "agent/kill", message)
        kill_tree(process.process.pid)
        with anyio.move_on_after(self._options.kill_timeout_ms / 1000):
            await process.process.wait()
            return
        message = f"agent {self.id} was killed but has not ended; it may still be running"
        self._diagnose("error", "agent/process-error", message)

    def _record_exit(self, process: ProcessTransport) -> None:
        self._stderr.flush()
        self._dropped.flush()
        self._exit = process.exit_record()
        self._diagnose("info", "agent/exit", "agent process exited", self._exit)

    def _disconnect(self) -> None:
        """Withdraw requests and disconnect sessions: the connection is closed."""
        self._connection = self.acp2 = self.auth_status = None
        self.take_update = self._owner.on_update
        self.early_updates.clear()
        self.abandoned.clear()
        self._owner.on_disconnected(self)

    def _may_restart(self, cause: AgentExitReason) -> bool:
        was_ready = cause == "crashed" or self.restart_count > 0  # it was, at some time
        return self._options.restart == "on-crash" and was_ready and not self._disposal.is_set()

    def _restart_delay(self, cause: AgentExitReason) -> float | None:
        """Return the seconds until the next start; None, with status `exited`, if there is none."""
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
        self._set_status("restarting")
        return delay_ms / 1000

    def _exited(self, reason: AgentExitReason) -> None:
        if self.status != "exited":
            self._reason = reason
            self._set_status("exited")

    def _fail_start(self, message: str) -> None:
        if not self._started.is_set():
            self._first_failure = agent_exited(message)
            self._started.set()

    # ---- events and messages -------------------------------------------------------------

    def _set_status(self, status: AgentStatus) -> None:
        self.status = status
        self._emitter.host_event("agent-updated", to_json(self.snapshot()), self.id)

    def _diagnose(self, level: DiagnosticLevel, code: str, message: str, data: Any = None) -> None:
        self._emitter.diagnostic(level, code, message, agent_id=self.id, data=data)

    def _publish_stderr(self, text: str, lines: int) -> None:
        data = None if lines == 1 else {"lines": lines}
        self._diagnose("info", "agent/stderr", self.secrets.hidden(text), data)

    def report_dropped(self, code: str, kind: str, message: str, **facts: Any) -> None:
        """Report something that the agent sent and that is not kept; repetitions are counted."""

        def publish(count: int) -> None:
            text = message if count == 1 else f"{message} ({count:,} times so far)"
            shown = self.secrets.hidden(text)
            self._emitter.dropped(self.id, code, shown, {**facts, "count": count})

        self._dropped.add((code, kind), publish)

    def _on_report(self, report: Report) -> None:
        text = self.secrets.hidden(report.text.decode("utf-8", "replace"))
        data = {"kind": report.kind.value, "text": text}
        self._diagnose("warn", "agent/misbehaved", self.secrets.hidden(report.reason), data)

    def _after_read(self) -> anyio.Event | None:
        """Commit and publish what one read delivered; return what to wait for before the next."""
        self._journal.commit_and_publish()
        return self._journal.back_pressure()

    def _on_notification(self, method: str, params: Any) -> None:
        if method == "session/update":
            decoded: UpdateParams = params  # by `UPDATE_VOCABULARY`
            self.take_update(self, decoded.session_id, decoded.update)
        elif method == "elicitation/complete" and isinstance(params, dict):
            self._owner.on_elicitation_complete(self, params.get("elicitationId"))
        elif method in AUTH_STATUS_UPDATES and isinstance(params, dict) and "state" in params:
            self.auth_status = params
            self._emitter.host_event("agent-updated", to_json(self.snapshot()), self.id)
        else:
            message = f"agent {self.id} sent {method}, which is not known here; it was dropped"
            self.report_dropped("agent/notification-dropped", method, message, method=method)

    def _on_answered_update(self, session_id: str, update: dict[str, Any]) -> None:
        self.take_update(self, session_id, update)

    def _on_input_unread(self) -> bool:
        return self._owner.on_input_unread(self)

    def _on_request(self, method: str, params: Any) -> Awaitable[Any]:
        return self._owner.on_request(self, method, params)
