"""`LiveProgram`: a foreign program that is connected while it runs (`LiveAdapter`).

Its sessions are read as soon as it reports something new, several times a second at most. Its
permission requests are pending here as those of any agent, while its own dialog is shown:

    what happens                                  the request is      the program gets
    a device or a rule decides                    answered            the decision
    it is answered in the program, its turn       withdrawn           -
    ends, or the connection is lost
    the runner ends, or follows it no more        withdrawn           -; it asks the next runner

A request is about a call that is in the log: its session is read first.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup

from quarterdeck.errors import QuarterdeckError
from quarterdeck.host import Host
from quarterdeck.runner.adoption.follower import ProgramFollower
from quarterdeck.views.context import LiveAdapter, LiveRequest

logger = logging.getLogger(__name__)

READ_SECONDS: Final = 0.1
"""Between two reads of what a program reports."""
SESSION_SECONDS: Final = 10.0
"""That a session has to be found and followed, after a request of it came."""
CALL_SECONDS: Final = 1.0
"""How long the announcement of a call is waited for."""
_PAUSE: Final = 0.05


class LiveProgram:
    """One program that is connected, until it is cancelled; the listener of its adapter."""

    def __init__(self, host: Host, adapter: LiveAdapter, follower: ProgramFollower) -> None:
        self._host = host
        self._adapter = adapter
        self._follower = follower
        self._tasks: TaskGroup | None = None
        self._unread: set[str] = set()
        self._has_unread = anyio.Event()
        self._requests: dict[str, str | None] = {}  # ids of requests here, by their keys

    async def run(self) -> None:
        """Stay connected until cancelled; then nothing of it is pending any more."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._read)
                await self._adapter.serve_live(self)
        finally:
            self._tasks = None
            for key in tuple(self._requests):
                self.settled(key)

    # ---- what the adapter reports ------------------------------------------------------------

    def changed(self, session_id: str) -> None:
        self._unread.add(session_id)
        self._has_unread.set()

    def requested(self, request: LiveRequest) -> None:
        self._requests[request.key] = None
        if self._tasks is not None:
            self._tasks.start_soon(partial(self._serve, request))

    def settled(self, key: str) -> None:
        request_id = self._requests.pop(key, None)
        if request_id is not None:
            self._host.foreign.withdraw(request_id)

    # ---- reading -----------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            await self._has_unread.wait()
            self._has_unread = anyio.Event()
            session_ids, self._unread = self._unread, set()
            for session_id in session_ids:
                if not await self._follower.read_more(session_id):
                    self._follower.look_now()  # it may have been created just now
            await anyio.sleep(READ_SECONDS)

    # ---- requests ----------------------------------------------------------------------------

    async def _serve(self, request: LiveRequest) -> None:
        try:
            await self._decide(request)
        except QuarterdeckError as error:  # it is answered in the program
            facts = {"session": request.session_id, "reason": str(error)}
            logger.info("a request of another program is not served", extra=facts)
        finally:
            self.settled(request.key)

    async def _decide(self, request: LiveRequest) -> None:
        if not await self._announced(request) or request.key not in self._requests:
            return
        pending = self._host.foreign.request_permission(request.session_id, request.params)
        self._requests[request.key] = pending.id
        answer = await pending.answer()
        outcome = answer.get("outcome") if pending.status == "answered" else None
        if not isinstance(outcome, Mapping):
            return
        if pending.needs_log:
            await self._host.wait_stored()
        self._requests.pop(request.key, None)
        await self._adapter.answer(request.key, outcome)

    async def _announced(self, request: LiveRequest) -> bool:
        """Wait until the call of a request is in the log; False if it is not a request for here."""
        session_id, began = request.session_id, time.monotonic()
        is_known = False
        while request.key in self._requests:
            if self._host.foreign.is_ours(session_id):
                return False  # the same request comes through ACP
            if not is_known and self._host.foreign.last_number(session_id):
                is_known, began = True, time.monotonic()
            await self._follower.read_more(session_id)
            if any(c.id == request.call_id for c in self._host.foreign.open_calls(session_id)):
                return True
            if time.monotonic() >= began + (CALL_SECONDS if is_known else SESSION_SECONDS):
                return is_known
            await anyio.sleep(_PAUSE)
        return False
