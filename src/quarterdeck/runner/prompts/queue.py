"""The prompt queue: prompts wait in order, durably, and each runs once.

A client makes a key for each prompt. Sending is idempotent: the same key again is the same prompt,
also after a crash. A prompt is "running" in the database before the agent receives it, so a prompt
that an earlier process left running may have reached the agent or not. The log shows how far it
came, and it is never run again automatically. Prompts that only waited run after a restart
(docs/adr/0014).

One worker runs for each session that has queued prompts. It makes the session ready (which may
start an agent), marks the prompt as running, and waits for the end of its turn.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio

from quarterdeck.errors import (
    AcpError,
    DatabaseFailed,
    EventInvalid,
    LogDamaged,
    QuarterdeckError,
    RequestRejected,
    RpcError,
)
from quarterdeck.host import Host
from quarterdeck.protocol import ERROR_CODES, Event, decode_event, has_ended
from quarterdeck.runner.actor import Actor, not_found
from quarterdeck.runner.prompts.state import PromptState, is_settled
from quarterdeck.runner.prompts.store import (
    PromptEntry,
    PromptError,
    PromptMode,
    PromptRow,
    PromptStore,
    QueueChanges,
    deleted_prompt,
)
from quarterdeck.runner.sessions.manager import HostCondition, SessionManager, closed_error
from quarterdeck.storage import Storage
from quarterdeck.views.context import LiveAdapter
from quarterdeck.wire import REQUEST_CANCELLED, IndependentTasks, background_tasks

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
"""Until a database that failed is tried again."""
BUSY_SECONDS: Final = 0.05
"""Until a session is tried again that is busy with something that no status shows."""
RECORDED_SECONDS: Final = 3.0
"""That a turn which another program has ended may take to be in the log."""
PARKING_SECONDS: Final = 2.0
"""That turns have to end when the hub does."""
_BUSY: Final = (ERROR_CODES["prompt_in_flight"], ERROR_CODES["config_invalid"])
_STOPPED: Final = PromptError(
    code="quarterdeck/interrupted",
    message="the hub was stopped during the turn; send the prompt again to continue",
)
PAGE: Final = 1000
_NOT_STEERED: Final = (
    "only a session that is open in its own program can be steered;"
    ' send the prompt with the mode "queue" or "interrupt"'
)

_HEARD: Final = PromptError(
    code="quarterdeck/interrupted",
    message="the hub stopped during the turn; check how far it got before you send it again",
)
_UNHEARD: Final = PromptError(
    code="quarterdeck/interrupted",
    message="the hub stopped before the agent got the prompt; send it again",
)


class _Noted:
    """What the log has of a prompt."""

    def __init__(self, *, is_elsewhere: bool) -> None:
        """`is_elsewhere`: another program runs the turn, and what it records is read."""
        self.is_elsewhere = is_elsewhere
        self.seqs: list[int] = []
        self.begun = anyio.Event()
        self.ended = anyio.Event()


class PromptQueue:
    """The prompts of all sessions; one worker for each session that has some."""

    def __init__(
        self,
        host: Host,
        store: PromptStore,
        manager: SessionManager,
        condition: HostCondition,
        changes: QueueChanges,
    ) -> None:
        self._host = host
        self._store = store
        self._manager = manager
        self._condition = condition
        self.changes = changes
        self._tasks: IndependentTasks | None = None
        self._awake: dict[str, bool] = {}  # whether a worker has to look again, by session
        self._running: dict[str, int] = {}  # the row that runs, by session
        self._is_ending = False
        self.is_draining = False
        """Whether no new turn starts."""
        self.live: Callable[[str], LiveAdapter | None] = lambda _session_id: None
        """Returns what takes prompts for a session that another program runs now."""
        self.advise: Callable[[str, PromptError], PromptError] = lambda _, failure: failure
        """Adds to the error of a turn what to do about it."""

    @property
    def running_turns(self) -> int:
        return len(self._running)

    async def start(self, tasks: IndependentTasks) -> None:
        """Settle what an earlier process left running and start on what is queued."""
        self._tasks = tasks
        await settle_left_prompts(self._host.options.storage, self._store)
        for session_id in await self._store.waiting_sessions():
            self._wake(session_id)

    async def park(self) -> None:
        """Cancel running turns and wait for their end, a while; the queue stays.

        Turns that another program runs continue there.
        """
        self._is_ending = True
        # All of it within that time: while the disk is full, no cancellation is ever stored.
        with anyio.move_on_after(PARKING_SECONDS):
            async with anyio.create_task_group() as tasks:
                for session_id in self._own_turns():
                    tasks.start_soon(self._cancel, session_id)
            await self._condition.wait_for(lambda: not self._own_turns())

    def _own_turns(self) -> list[str]:
        """Return the sessions whose turns an agent of this host runs."""
        return [each for each in self._running if self.live(each) is None]

    def set_draining(self, *, is_draining: bool) -> None:
        """Start no new turn, or start them again; running turns are not affected."""
        self.is_draining = is_draining
        self._condition.notify()

    async def wait_idle(self) -> None:
        """Wait until no turn runs, of the queue or of a client of the host."""
        await self._condition.wait_for(lambda: not self._running and not self._prompting_sessions())

    def _prompting_sessions(self) -> bool:
        return any(each.status == "prompting" for each in self._host.get_sessions())

    # ---- what clients do -----------------------------------------------------------------------

    async def add(
        self,
        session_id: str,
        key: str,
        blocks: Sequence[Any],
        *,
        mode: PromptMode = "queue",
        by: Actor | None = None,
    ) -> PromptEntry:
        """Put a prompt into the queue; one that is there already is returned as it is.

        Raises:
            RequestRejected: if the session is unknown or full, or the key was another prompt's.
            AcpError: `acpjs/session-closed`.
        """
        known = await self._store.find_repeated(session_id, key, blocks, mode)
        if known is not None:
            return known.entry
        session = self._manager.session(session_id)
        if has_ended(session.status):
            raise closed_error(self._host, session)
        if mode == "steer" and self.live(session_id) is None:
            raise RequestRejected("invalid", _NOT_STEERED)
        row, is_new = await self._store.add(session_id, key, blocks, mode, by)
        if self._host.get_session(session_id) is None:  # it was deleted while that was stored
            await self._store.remove_all(session_id)
            raise not_found(f"session {session_id!r}", "it was deleted just now")
        if is_new:
            self.changes.changed(session_id)
            self._wake(session_id)
            if mode == "interrupt":
                await self._cancel(session_id)
            elif mode == "steer" and self._tasks is not None:
                self._tasks.start_soon(self._begin, row)  # now, and not after the turn that runs
        return row.entry

    async def get(self, session_id: str, key: str) -> PromptEntry:
        return (await self._store.get(session_id, key)).entry

    async def entries(self, session_id: str, limit: int) -> list[PromptEntry]:
        return await self._store.entries(session_id, limit)

    async def edit(
        self, session_id: str, key: str, blocks: Sequence[Any], *, by: Actor | None = None
    ) -> PromptEntry:
        """Change a queued prompt: its author is then who changed it."""
        row = await self._store.edit(session_id, key, blocks, by)
        self.changes.changed(session_id)
        return row.entry

    async def cancel(self, session_id: str, key: str) -> PromptEntry:
        row = await self._store.cancel(session_id, key)
        self.changes.changed(session_id)
        return row.entry

    def is_busy(self, session_id: str) -> bool:
        """Return whether a prompt of this session runs, or is about to."""
        return session_id in self._awake or session_id in self._running

    async def wait_ended(self, session_id: str, key: str) -> PromptEntry:
        """Wait until a prompt is neither queued nor running; a deleted one is cancelled."""
        while True:
            changed = self.changes.next
            row = await self._store.find(session_id, key)
            if row is None:
                return deleted_prompt(session_id, key)
            if is_settled(row.entry.state):
                return row.entry
            await changed.wait()

    async def length(self) -> int:
        return await self._store.count_queued()

    # ---- workers -------------------------------------------------------------------------------

    def _wake(self, session_id: str) -> None:
        if self._tasks is None or self._is_ending:
            return
        is_new = session_id not in self._awake
        self._awake[session_id] = True
        if is_new:
            self._tasks.start_soon(self._work, session_id)

    async def _work(self, session_id: str) -> None:
        """Run what waits, one after the other, until nothing does."""
        while not self._is_ending:
            self._awake[session_id] = False
            try:
                row = await self._store.next_queued(session_id)
                if row is not None:
                    await self._run(row)
                elif not self._awake[session_id]:
                    break
            except QuarterdeckError as error:  # the database; or the session went meanwhile
                logger.warning("the prompt queue failed", extra={"reason": str(error)})
                await anyio.sleep(RETRY_SECONDS)
        del self._awake[session_id]

    async def _run(self, waiting: PromptRow) -> None:
        session_id = waiting.entry.session_id
        try:
            await self._ready(session_id)
        except QuarterdeckError as error:
            await self._refused(waiting, error)
            return
        await self._condition.wait_for(lambda: not self.is_draining or self._is_ending)
        if not self._is_ending:
            # One that interrupts may have come while this one waited.
            await self._begin(await self._store.next_queued(session_id) or waiting)

    async def _begin(self, waiting: PromptRow) -> None:
        """Run a prompt, unless it is not queued any more."""
        session_id = waiting.entry.session_id
        after = self._host.last_seq(session_id)
        row = await self._store.begin(waiting.id, after)
        if row is not None:
            self.changes.changed(session_id)
            if row.entry.mode == "steer":
                await self._turn(row, after)
                return
            self._running[session_id] = row.id
            try:
                await self._turn(row, after)
            finally:
                del self._running[session_id]
                self._condition.notify()

    async def _deliver(self, entry: PromptEntry) -> Mapping[str, Any]:
        """Send a prompt to its agent, or to the program that runs its session; wait for its end."""
        live = self.live(entry.session_id)
        if live is None:
            return await self._host.prompt(entry.session_id, entry.prompt, key=entry.key)
        if entry.mode == "steer":
            await live.steer(entry.session_id, entry.prompt)
            return {"stopReason": "end_turn"}
        return await live.prompt(entry.session_id, entry.prompt)

    async def _ready(self, session_id: str) -> None:
        """Wait until a session takes a prompt."""
        live = self.live(session_id)
        if live is not None:
            await live.wait_idle(session_id)
            return
        while (await self._manager.ensure_active(session_id)).status != "active":
            await self._condition.wait_for(lambda: not self._is_prompting(session_id))

    def _is_prompting(self, session_id: str) -> bool:
        session = self._host.get_session(session_id)
        return session is not None and session.status == "prompting" and not self._is_ending

    async def _refused(self, row: PromptRow, error: Exception) -> None:
        """Store that a prompt could not be run; a session that has ended runs no others."""
        session = self._host.get_session(row.entry.session_id)
        facts = self.advise(row.entry.session_id, _facts(error))
        if session is None or has_ended(session.status):
            await self._write(row, lambda: self._store.cancel_all(row.entry.session_id, facts))
        else:
            await self._write(row, lambda: self._store.end(row.id, "failed", error=facts))

    async def _turn(self, row: PromptRow, after: int) -> None:
        noted = _Noted(is_elsewhere=self.live(row.entry.session_id) is not None)
        seqs, stopped = noted.seqs, _HEARD if noted.is_elsewhere else _STOPPED
        try:
            async with background_tasks() as tasks:
                tasks.start_soon(self._note_seq, row, after, noted)
                finished = await self._deliver(row.entry)
                if noted.is_elsewhere and row.entry.mode != "steer":  # that is taken up later
                    with anyio.move_on_after(RECORDED_SECONDS):
                        await noted.ended.wait()
        except AcpError as error:
            await self._turn_refused(row, error, seqs)
        except QuarterdeckError as error:
            facts = self.advise(row.entry.session_id, _facts(error))
            await self._end(row, "failed", seqs, error=facts)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._end(row, "interrupted", seqs, error=stopped, is_last=True)
            raise
        else:
            state, stop_reason, failure = outcome_of(finished)
            if self._is_ending and state == "cancelled":
                state, failure = "interrupted", _STOPPED
            if state == "failed" and failure is not None:
                failure = self.advise(row.entry.session_id, failure)
            await self._end(row, state, seqs, stop_reason=stop_reason, error=failure)

    async def _turn_refused(self, row: PromptRow, error: AcpError, seqs: list[int]) -> None:
        if error.code in _BUSY and not seqs:  # refused before anything came of it
            await self._write(row, lambda: self._store.put_back(row.id))
            await anyio.sleep(BUSY_SECONDS)
            return
        await self._end(row, "failed", seqs, error=_facts(error))

    async def _note_seq(self, row: PromptRow, after: int, noted: _Noted) -> None:
        """Store where in the log a prompt begins, as soon as it is there; its end stores it too."""

        def look(event: Event) -> None:
            if noted.seqs:
                if event.type == "prompt-finished":
                    noted.ended.set()
            elif begins(event, row.entry.key) or _begins_elsewhere(event, row.entry):
                noted.seqs.append(event.seq)
                noted.begun.set()

        try:
            unsubscribe = self._host.subscribe(row.entry.session_id, after, look)
            try:
                await noted.begun.wait()
                await self._store.note_seq(row.id, noted.seqs[0])
                if noted.is_elsewhere:
                    await noted.ended.wait()
            finally:
                unsubscribe()
        except QuarterdeckError as error:  # the turn continues
            logger.warning("the prompt queue failed", extra={"reason": str(error)})

    async def _end(
        self,
        row: PromptRow,
        state: PromptState,
        seqs: Sequence[int],
        *,
        stop_reason: str | None = None,
        error: PromptError | None = None,
        is_last: bool = False,
    ) -> None:
        end = partial(
            self._store.end,
            row.id,
            state,
            seq=seqs[0] if seqs else None,
            stop_reason=stop_reason,
            error=error,
        )
        await self._write(row, end, is_last=is_last)

    async def _write(
        self, row: PromptRow, change: Callable[[], Awaitable[None]], *, is_last: bool = False
    ) -> None:
        """Write how a prompt ended; until that works nothing else of the session is run."""
        while True:
            try:
                await change()
                self.changes.changed(row.entry.session_id)
                return
            except DatabaseFailed as error:
                logger.warning("the prompt queue failed", extra={"reason": str(error)})
                if is_last or self._is_ending:
                    return  # the next hub finds out from the log
                await anyio.sleep(RETRY_SECONDS)

    async def _cancel(self, session_id: str) -> None:
        session, live = self._host.get_session(session_id), self.live(session_id)
        if live is None and (session is None or session.status != "prompting"):
            return
        try:
            await (self._host.cancel(session_id) if live is None else live.interrupt(session_id))
        except QuarterdeckError as error:  # its agent is gone, and the turn with it
            logger.info("a turn could not be cancelled", extra={"reason": str(error)})


def _facts(error: Exception) -> PromptError:
    match error:
        case AcpError() | RequestRejected():
            return PromptError(code=str(error.code), message=error.message)
        case RpcError():
            message = f"the agent refused: {error.explanation}"
            return PromptError(code=str(ERROR_CODES["agent_error"]), message=message)
        case _:
            return PromptError(code="quarterdeck/failed", message=str(error))


# ---- at the start: prompts that an earlier process left running ----------------------------------


async def settle_left_prompts(storage: Storage, store: PromptStore) -> None:
    """Store how each prompt that was running ended; none is run again."""
    for row, after in await store.left_running():
        await _settle(storage, store, row, after)


async def _settle(storage: Storage, store: PromptStore, row: PromptRow, after: int) -> None:
    seq: int | None = None
    ended: Mapping[str, Any] | None = None
    async for event in _readable(storage, row.entry.session_id, after):
        if seq is None and (begins(event, row.entry.key) or _begins_elsewhere(event, row.entry)):
            seq = event.seq
        elif seq is not None and event.type == "prompt-finished":
            ended = event.payload
            break
    state: PromptState = "interrupted"
    stop_reason: str | None = None
    error: PromptError | None = _UNHEARD if seq is None else _HEARD
    if ended is not None:
        state, stop_reason, error = outcome_of(ended)
    await store.end(row.id, state, seq=seq, stop_reason=stop_reason, error=error)


def begins(event: Event, key: str) -> bool:
    """Return whether an event is the beginning of the prompt with this key."""
    if event.type != "user-message-chunk" or event.extensions is None:
        return False
    ours = event.extensions.get("quarterdeck")
    return isinstance(ours, dict) and ours.get("promptKey") == key


def _begins_elsewhere(event: Event, entry: PromptEntry) -> bool:
    """Return whether an event is a prompt as another program has recorded it: without its key."""
    ours = (event.extensions or {}).get("quarterdeck")
    is_foreign = isinstance(ours, dict) and "source" in ours
    return (
        is_foreign
        and event.type == "user-message-chunk"
        and event.payload.get("content") in entry.prompt
    )


def outcome_of(
    finished: Mapping[str, Any],
) -> tuple[PromptState, str | None, PromptError | None]:
    """Return how a prompt ended, from the payload of its `prompt-finished`."""
    stop_reason = finished.get("stopReason")
    reason = stop_reason if isinstance(stop_reason, str) else None
    failure = finished.get("error")
    if isinstance(failure, Mapping) and failure.get("code") == REQUEST_CANCELLED:
        return "cancelled", "cancelled", None  # some agents report it as an error
    if isinstance(failure, Mapping):
        facts = PromptError(code="acpjs/agent-error", message=str(failure.get("message")))
        return "failed", reason, facts
    return "cancelled" if reason == "cancelled" else "done", reason, None


async def _readable(storage: Storage, session_id: str, after: int) -> AsyncIterator[Event]:
    """Iterate over the events of a log up to the first that is damaged."""
    with suppress(LogDamaged):  # the log reports it
        async for event in _stored(storage, session_id, after):
            yield event


async def _stored(storage: Storage, session_id: str, after: int) -> AsyncIterator[Event]:
    while page := await storage.read(session_id, after, PAGE):
        after += len(page)
        for data in page:
            try:
                event = decode_event(data)
            except EventInvalid:
                continue  # reported when the session is read
            after = max(after, event.seq)
            yield event
