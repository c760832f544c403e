"""Sessions as they go on: each event once and in order, over connections that are lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import anyio

from quarterdeck.cli.hub_link import HubLink, Place, running_hub
from quarterdeck.client import Client
from quarterdeck.errors import AcpError, CommandFailed, HubDeclined
from quarterdeck.protocol import Event

_FIRST_SECONDS, _LAST_SECONDS = 0.2, 5.0  # between attempts to come back
_PATIENCE: Final = 60.0  # of whoever waits for an answer, not for a hub

Note = Callable[[str], None]
_T = TypeVar("_T")


class Connection:
    """The hub a command talks to; another one after it was started again."""

    def __init__(self, place: Place, hub: HubLink, note: Note) -> None:
        self.place = place
        self.hub = hub
        self._note = note
        self._seqs: dict[str, int] = {}

    def last_seq(self, session_id: str) -> int:
        return self._seqs.get(session_id, 0)

    def begin_after(self, session_id: str, seq: int) -> None:
        """Leave out the events of a session up to this one."""
        self._seqs[session_id] = max(seq, self.last_seq(session_id))

    async def watch(self, prepare: Callable[[Client], None]) -> None:
        """Keep a client; `prepare` it whenever there is a new one. Runs until it is cancelled."""
        delay = _FIRST_SECONDS
        while True:
            if await self._once(prepare):
                delay = _FIRST_SECONDS
                self._note("the connection to the hub is lost; trying again")
            await anyio.sleep(delay)
            delay = min(delay * 2, _LAST_SECONDS)
            await self._look_again()

    def follow(self, client: Client, session_id: str, take: Callable[[Event], None]) -> None:
        """Hand every event of a session on that was not handed on before."""

        def on_event(event: Event) -> None:
            if event.seq > self.last_seq(session_id):
                self._seqs[session_id] = event.seq
                take(event)

        client.connection.follow(session_id, self.last_seq(session_id), on_event)

    async def _once(self, prepare: Callable[[Client], None]) -> bool:
        """Be connected until it ends; return whether it began."""
        is_connected = False
        try:
            async with Client(self.hub.transport()) as client:
                closed = anyio.Event()

                def on_status() -> None:
                    if client.connection.status == "closed":
                        closed.set()

                client.connection.subscribe(on_status)
                prepare(client)
                is_connected = client.connection.status != "closed"
                if is_connected:
                    await closed.wait()
        except AcpError:
            pass  # told by whoever calls, and tried again
        return is_connected

    async def _look_again(self) -> None:
        if self.hub.is_embedded:
            return
        try:
            found = await running_hub(self.place.home)
        except (CommandFailed, HubDeclined):
            return
        if found is not None:
            self.hub = found

    async def patiently(self, ask: Callable[[HubLink], Awaitable[_T]]) -> _T:
        """Ask the hub something that may be asked twice, also if it is away for a while.

        Raises:
            CommandFailed: if it stays away.
        """
        deadline = anyio.current_time() + _PATIENCE
        while True:
            try:
                return await ask(self.hub)
            except CommandFailed:
                if anyio.current_time() > deadline:
                    raise
                await anyio.sleep(_FIRST_SECONDS)
                await self._look_again()
