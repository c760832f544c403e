"""An agent in memory that says nothing by itself: a test pulls every string.

`pulled` replaces the function that starts processes. A puppet answers `initialize` and
whatever ends a session; every other request waits in `pending` until the test answers it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio

from quarterdeck.wire import memory_pair
from quarterdeck.wire.transports.base import OnBytes

Json = dict[str, Any]

NO_PROCESS = 2**22 + 1  # above the largest id of a process: a signal to it has no receiver
AT_ONCE = ("session/close", "session/delete")
CAPABILITIES: Json = {
    "loadSession": True,
    "sessionCapabilities": {"resume": {}, "close": {}, "delete": {}},
}


class _Process:
    """What the host looks at of a process."""

    def __init__(self) -> None:
        self.pid = NO_PROCESS
        self.returncode: int | None = None
        self.ended = anyio.Event()

    async def wait(self) -> int:
        await self.ended.wait()
        assert self.returncode is not None
        return self.returncode


class Puppet:
    """One life of an agent, from its start to its end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process = _Process()
        self._closing = anyio.Event()
        self.pending: dict[int, Json] = {}
        """Requests of the host that wait, by their id."""
        self.cancelled: Counter[str] = Counter()
        """How often each session was cancelled."""
        self.answers: dict[int, list[Json]] = {}
        """What the host answered to each of our requests."""
        self._host_end, self._end = memory_pair(1 << 20)
        self._last_id = 0

    # ---- what a test does ----------------------------------------------------------------

    def answer(
        self, request_id: int, result: Json | None = None, error: Json | None = None
    ) -> None:
        del self.pending[request_id]
        answered = {"result": result} if error is None else {"error": error}
        self._send({"id": request_id, **answered})

    def update(self, session_id: str, update: Json) -> None:
        params = {"sessionId": session_id, "update": update}
        self._send({"method": "session/update", "params": params})

    def ask(self, method: str, params: Json) -> int:
        self._last_id += 1
        self.answers[self._last_id] = []
        self._send({"id": self._last_id, "method": method, "params": params})
        return self._last_id

    async def send_raw(self, data: bytes) -> None:
        await self._end.send(data)

    async def exit(self, status: int) -> None:
        if self.process.returncode is None:
            self.process.returncode = status
            await self._end.aclose()
            self.process.ended.set()

    # ---- what the host does --------------------------------------------------------------

    @property
    def exit_status(self) -> int | None:
        return self.process.returncode

    def exit_record(self) -> dict[str, Any]:
        return {} if self.exit_status is None else {"code": self.exit_status}

    async def pump(self, on_bytes: OnBytes) -> None:
        await self._host_end.pump(on_bytes)

    async def send(self, data: bytes) -> None:
        await self._host_end.send(data)

    def send_now(self, data: bytes) -> int:
        return self._host_end.send_now(data)

    async def wait_unread(self) -> None:
        await anyio.sleep_forever()

    async def watch_unread(self, _seconds: float, _on_unread: Callable[[], bool]) -> None:
        await anyio.sleep_forever()  # it reads everything

    def close_input(self) -> None:
        self._closing.set()

    async def aclose(self) -> None:
        await self._host_end.aclose()

    async def explain_refusal(self) -> str:
        return await self.explain_end()

    async def explain_end(self) -> str:
        return f"the puppet ended with {self.process.returncode}"

    # ---- inside --------------------------------------------------------------------------

    async def live(self) -> None:
        """Listen until the host has closed our input."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen)
            await self._closing.wait()
            tasks.cancel_scope.cancel()
        await self.exit(0)

    async def _listen(self) -> None:
        rest = b""
        while data := await self._end.receive():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, message: Json) -> None:
        method = message.get("method")
        if method is None:
            self.answers[message["id"]].append(message)
        elif method == "session/cancel":
            self.cancelled[message["params"]["sessionId"]] += 1
        elif method == "initialize":
            result = {"protocolVersion": 1, "agentCapabilities": CAPABILITIES}
            self._send({"id": message["id"], "result": result})
        elif method in AT_ONCE:
            self._send({"id": message["id"], "result": {}})
        elif "id" in message:
            self.pending[message["id"]] = message

    def _send(self, message: Json) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        assert self._end.send_now(data) == len(data)


def pulled(
    on_start: Callable[[Puppet], None],
) -> Callable[..., AbstractAsyncContextManager[Puppet]]:
    """Return what starts a puppet instead of a process, and gives each one to `on_start`.

    The last argument of an agent's command is its name.
    """

    @asynccontextmanager
    async def open_puppet(command: list[str], **_options: Any) -> AsyncIterator[Puppet]:
        puppet = Puppet(command[-1])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(puppet.live)
            on_start(puppet)
            try:
                yield puppet
            finally:
                with anyio.CancelScope(shield=True):
                    await puppet.exit(-9)
                tasks.cancel_scope.cancel()

    return open_puppet
