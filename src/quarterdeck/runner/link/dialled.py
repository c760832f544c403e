"""`DialledConnection`: the hub's end of a link that the runner opens, from another machine.

There is nothing to try: the hub waits. What was known of the runner when the hub ended is the state
until it comes, and each link that it opens takes the place of the one before.

    status        meaning                                       next
    away          the mirror has what was known last            connected
    connected     the mirror follows the runner                 away, when the link ends

A machine may be away for days, so a call waits for it only for a moment after it was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
from typing_extensions import override

from quarterdeck.errors import RequestRejected
from quarterdeck.policy import Policy
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner.api import RunnerHealth
from quarterdeck.runner.link.connection import (
    HELLO_SECONDS,
    WAIT_SECONDS,
    ConnectionEnd,
    RunnerConnection,
)
from quarterdeck.runner.link.messages import (
    FromRunner,
    HubHello,
    Refused,
    RunnerHello,
    RunnerIdentity,
    StateChange,
)
from quarterdeck.runner.link.mirror import RunnerMirror
from quarterdeck.runner.link.remote_log import RemoteLog
from quarterdeck.runner.link.transport import LinkSocket
from quarterdeck.storage import LogEpoch

NOTHING_KNOWN = StateChange(
    is_whole=True,
    health=RunnerHealth(log_path="", is_healthy=True, storage_failures=0, is_connected=False),
    policy=Policy(),
    log_epoch=LogEpoch(id=""),
    host_epoch="",
)
"""The state of a machine that was never connected."""


class DialledConnection(RunnerConnection):
    """A link to the runner of a machine, which opens it."""

    def __init__(self, name: str) -> None:
        super().__init__(None)
        self.name = name
        """The machine, for people."""
        self.identity = RunnerIdentity(pid=0, boot_id="", started_at=0.0)
        self.is_ready = False
        """Whether logs may be followed: they were compared with the copies that are here."""
        self.on_ready: Callable[[], None] | None = None
        """Called when it is connected and ready."""
        self._lost_at = -WAIT_SECONDS
        self.begin_with(NOTHING_KNOWN)

    def begin_with(self, known: StateChange) -> None:
        """Show a state until the machine comes: that of its runner as it was last."""
        self.mirror = RunnerMirror(known)

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    @property
    def problem(self) -> str:
        """Why the runner that is there cannot be used; empty if it can, or is away."""
        return self._problem

    def accept(self, socket: LinkSocket) -> ConnectionEnd:
        """Return the end of a link that the machine has opened."""
        end = ConnectionEnd(self, socket)
        socket.send(HubHello())
        self._tasks.start_soon(self._await_hello, socket)
        return end

    async def _await_hello(self, socket: LinkSocket) -> None:
        await anyio.sleep(HELLO_SECONDS)
        if socket is not self.socket and socket.is_open:
            socket.close("it did not say hello")

    def cut(self, reason: str) -> None:
        """End the link of the machine, if there is one."""
        if self.socket is not None:
            self.socket.close(reason)

    @override
    async def _connect_first(self) -> None:
        """There is nothing to connect to."""

    @override
    async def _keep_connected(self) -> None:
        while True:
            if self.socket is not None:
                await self._watch(self.socket)
            else:
                await self._changed.wait()

    @override
    def _begin(self, socket: LinkSocket, hello: RunnerHello) -> None:
        self.is_ready = self.identity.boot_id == hello.identity.boot_id
        super()._begin(socket, hello)
        if self.is_ready:
            self._report_ready()

    @override
    async def _begin_anew(self, epoch: LogEpoch | None, logs: Sequence[RemoteLog]) -> None:
        await super()._begin_anew(epoch, logs)
        if self.is_connected:
            self.is_ready = True
            self._report_ready()

    def _report_ready(self) -> None:
        if self.on_ready is not None:
            self.on_ready()

    @override
    def _silence(self) -> str:
        return f"{self.name} does not answer"

    @override
    def on_lost(self, socket: LinkSocket, reason: str) -> None:
        if socket is self.socket:
            self._lost_at, self.is_ready = anyio.current_time(), False
        super().on_lost(socket, reason)

    @override
    def on_message(self, socket: LinkSocket, message: FromRunner, body: bytes) -> None:
        if isinstance(message, Refused):
            self._problem = message.message
            socket.close(message.message)
        else:
            super().on_message(socket, message, body)

    @property
    @override
    def _patience(self) -> float:
        return WAIT_SECONDS + self._lost_at - anyio.current_time()

    @override
    def _unreachable(self) -> RequestRejected:
        reason = self._problem or f"it has been away since {iso_seconds(self.changed_at)}"
        message = f"the machine {self.name} cannot be reached: {reason}"
        return RequestRejected("unavailable", message, retryable=True)
