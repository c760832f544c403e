"""`ReaderSession`: a foreign session that can be read, as a session of the context protocol.

It is for programs that use an adapter by itself. In a runner, sessions of adapters are in the log,
and clients of the context protocol get them from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import anyio

from quarterdeck.errors import AcpError
from quarterdeck.protocol import ERROR_CODES, Event, decode_event
from quarterdeck.views.context import (
    ACPCapabilities,
    ACPCommand,
    ContextEvent,
    ContextProjector,
    ForeignSession,
    SessionReader,
)


class ReaderSession:
    """One session; `on_event` gets what `poll` reads."""

    def __init__(
        self, found: ForeignSession, reader: SessionReader, capabilities: ACPCapabilities
    ) -> None:
        self._found = found
        self._reader = reader
        self.capabilities = capabilities
        self._projector = ContextProjector({"sessionId": found.id, "cwd": found.cwd})
        self._seq = 0
        self._history: list[ContextEvent] = []
        self._callbacks: dict[object, Callable[[ContextEvent], None]] = {}

    @property
    def session_id(self) -> str:
        return self._found.id

    def on_event(self, callback: Callable[[ContextEvent], None]) -> Callable[[], None]:
        key = object()
        self._callbacks[key] = callback
        return lambda: self._callbacks.pop(key, None) and None

    async def poll(self) -> None:
        """Read what is new, and call the callbacks with it."""
        while events := await anyio.to_thread.run_sync(lambda: list(self._read())):
            for event in events:
                for context_event in self._projector.feed(event):
                    self._history.append(context_event)
                    for callback in tuple(self._callbacks.values()):
                        callback(context_event)

    def _read(self) -> Iterator[Event]:
        for each in self._reader.read():
            self._seq += 1
            yield decode_event(
                {
                    "type": each.update.type,
                    "sessionId": self.session_id,
                    "seq": self._seq,
                    "ts": each.at,
                    "payload": each.update.payload,
                }
            )

    async def get_history(self) -> list[ContextEvent]:
        await self.poll()
        return list(self._history)

    async def execute(self, command: ACPCommand) -> None:
        """Refuse any command: a session is read here, not controlled.

        Raises:
            AcpError: `acpjs/capability-unsupported`.
        """
        message = f"a session that is only read cannot carry out {command.command!r}"
        raise AcpError(ERROR_CODES["capability_unsupported"], message)

    async def detach(self) -> None:
        self._callbacks.clear()
        self._reader.close()
