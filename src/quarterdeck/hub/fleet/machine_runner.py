"""`MachineRunner`: the runner of another machine, connected or away; a `RunnerApi`.

    what is asked              connected                            away
    state (lists, requests)    the mirror of the link               the mirror as it was last
    logs                       the replica                          the replica
    prompts, answers           sent at once, unless earlier         kept, sent when it comes back
                               ones wait                            (`waiting`)
    closing, deleting          sent at once                         the same
    all others                 sent at once                         refused: away since when

The state is stored as it changes (`FleetStore`), so it is also there after the hub has restarted.
A result is returned when the replica has what the machine published before it: a client that reads
the log after a command finds what the command has done.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus
from msgspec import UNSET
from msgspec.structs import replace
from typing_extensions import override

from quarterdeck.errors import AcpError, DatabaseFailed, QuarterdeckError, RequestRejected
from quarterdeck.hub.fleet.replica import Replica
from quarterdeck.hub.fleet.store import FleetStore, WaitingCommand
from quarterdeck.hub.fleet.translated import OnHead, OnNews, TranslatedLog, TranslatedRunner
from quarterdeck.hub.fleet.waiting import WaitingCommands, prompt_entry
from quarterdeck.hub.log import HubLog
from quarterdeck.machine import ConfinementStatus
from quarterdeck.protocol import ERROR_CODES
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner import (
    PROGRAM,
    Actor,
    HealthChanged,
    LogSource,
    MachineUpdated,
    News,
    PromptEntry,
    PromptMode,
    QueueChanged,
    RecordedDecision,
    SessionDeleted,
    SessionOverview,
    SessionUpdated,
    not_found,
)
from quarterdeck.runner.link import (
    DialledConnection,
    RemoteRunner,
    SessionEntry,
    StateChange,
)
from quarterdeck.storage import CompactedFile, LogEpoch
from quarterdeck.wire import IndependentTasks, background_tasks

logger = logging.getLogger(__name__)

SAVE_SECONDS: Final = 1.0
LOST: Final = "its machine now has a different log; this is the hub's copy of the old one"
CATCH_UP_SECONDS: Final = 5.0
"""That a result waits for the replica."""


def is_lost(entry: SessionEntry) -> bool:
    """Return whether only a copy of a session is left."""
    return entry.overview.damage == LOST


class MachineRunner(TranslatedRunner):
    """The runner of one machine that has joined the hub."""

    def __init__(
        self,
        machine_id: str,
        name: str,
        log: HubLog,
        store: FleetStore,
        tasks: IndependentTasks,
    ) -> None:
        self.connection = DialledConnection(name)
        self._store = store
        self._log = log
        self._end = anyio.Event()
        self._ended = anyio.Event()
        self._saved: dict[str, SessionEntry] = {}
        self._is_dirty = False
        self._news: dict[object, OnNews] = {}
        self._heads: dict[object, OnHead] = {}
        self._queue_numbers: dict[str, int] = {}
        self._queue_changes: dict[str, int] = {}
        self._tasks: IndependentTasks | None = None
        self._lost: dict[str, SessionEntry] = {}
        """Sessions that the machine has lost with its log; the copies are here."""
        self._shown: dict[str, tuple[SessionOverview, SessionOverview]] = {}
        self.remote = RemoteRunner(self.connection, tasks)
        self.replica = Replica(log, machine_id, self.remote, self._on_copied)
        self.waiting = WaitingCommands(machine_id, store, self.remote, self._on_waiting)
        super().__init__(self.remote, machine_id)

    # ---- life ------------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Follow the machine whenever it is connected, until `end`.

        Raises:
            StorageRefused: if the copies of its logs cannot be opened.
        """
        connection = self.connection
        known = await self._store.state(self.machine_id)
        self._lost = {each.overview.session_id: each for each in known.sessions if is_lost(each)}
        left = tuple(each for each in known.sessions if not is_lost(each))
        connection.begin_with(replace(known, sessions=left))
        self._saved = {**self._lost, **connection.mirror.sessions}
        await self.waiting.load()
        connection.copies = self.replica
        connection.on_ready = self._on_ready
        try:
            async with connection.open(), background_tasks() as tasks:
                self._tasks = IndependentTasks(tasks)
                await self.replica.open(self._tasks)
                unsubscribe = (
                    self.remote.subscribe_news(self._on_news),
                    self.remote.subscribe_heads(self._on_remote_head),
                )
                tasks.start_soon(self._keep_saved)
                tasks.start_soon(self.waiting.sweep)
                task_status.started()
                await self._end.wait()
                for each in unsubscribe:
                    each()
                self._tasks = None
        finally:
            with anyio.CancelScope(shield=True):
                await self._save()
                await self.replica.close()
            self._ended.set()

    async def end(self, reason: str) -> None:
        """Cut the machine off and stop following it."""
        self.connection.cut(reason)
        self._end.set()
        await self._ended.wait()

    async def delete(self) -> None:
        """Delete everything that is known of the machine; it must have ended."""
        await self._store.forget(self.machine_id)
        await self._log.remove_space(self.machine_id)

    def _on_ready(self) -> None:
        """The machine is connected, and its logs were compared."""
        for session_id, seq in tuple(self.connection.mirror.heads.items()):
            self.replica.advance(session_id, seq)
        self._deliver_soon()

    def _is_connected(self) -> bool:
        return self.connection.is_connected

    def _deliver_soon(self) -> None:
        if self._tasks is not None and self.connection.is_connected:
            self._tasks.start_soon(self.waiting.deliver)

    # ---- the stored state ------------------------------------------------------------------

    async def _keep_saved(self) -> None:
        while True:
            await anyio.sleep(SAVE_SECONDS)
            await self._save()

    async def _save(self) -> None:
        if not self._is_dirty:
            return
        self._is_dirty = False
        sessions = {**self._lost, **self.connection.mirror.sessions}
        changed = {key: each for key, each in sessions.items() if self._saved.get(key) is not each}
        removed = [key for key in self._saved if key not in sessions]
        try:
            await self._store.save_state(self.machine_id, self._rest(), changed, removed)
        except DatabaseFailed as error:
            self._is_dirty = True
            logger.warning("the state of a machine was not stored", extra={"reason": str(error)})
        else:
            self._saved = sessions

    def _rest(self) -> StateChange:
        mirror = self.connection.mirror
        return StateChange(
            is_whole=True,
            agents=tuple(mirror.agents.values()),
            permissions=tuple(mirror.permissions.values()),
            elicitations=tuple(mirror.pending_elicitations()),
            health=replace(mirror.health, is_connected=False),
            policy=mirror.policy,
            log_epoch=mirror.log_epoch,
            host_epoch=mirror.host_epoch,
        )

    # ---- news ------------------------------------------------------------------------------

    @override
    def subscribe_news(self, on_news: OnNews) -> Any:
        key = object()
        self._news[key] = on_news
        return lambda: self._news.pop(key, None) and None

    @override
    def subscribe_heads(self, on_head: OnHead) -> Any:
        key = object()
        self._heads[key] = on_head
        return lambda: self._heads.pop(key, None) and None

    def _report(self, news: News) -> None:
        for on_news in tuple(self._news.values()):
            on_news(self.ids.translated(news))

    def _on_news(self, news: News) -> None:
        self._is_dirty = True
        if isinstance(news, HealthChanged):
            self.report_machine()
        elif isinstance(news, QueueChanged):
            self._queue_numbers[news.session_id] = news.number
            self._report_queue(news.session_id)
        elif isinstance(news, SessionDeleted) and self._keeps(news.session_id):
            self._report(SessionUpdated(session_id=news.session_id, status="closed"))
        else:
            if isinstance(news, SessionDeleted) and self._tasks is not None:
                self._tasks.start_soon(self.replica.forget, news.session_id)
            self._report(news)

    def _keeps(self, session_id: str) -> bool:
        """Keep a session that a machine does not know any more, because its log is another one."""
        connection, known = self.connection, self._saved.get(session_id)
        if connection.is_ready or connection.is_same_log or known is None:
            return False
        lost = replace(known.overview, status="closed", damage=LOST)
        self._lost[session_id] = SessionEntry(overview=lost, live=None)
        return True

    def report_machine(self) -> None:
        """Report that something about the machine has changed."""
        self._report(
            MachineUpdated(machine_id=self.machine_id, is_connected=self.connection.is_connected)
        )

    def _report_queue(self, session_id: str) -> None:
        number = self._queue_numbers.get(session_id, 0) + self._queue_changes.get(session_id, 0)
        self._report(QueueChanged(session_id=session_id, number=number))

    def _on_waiting(self, command: WaitingCommand) -> None:
        session_id = command.session_id
        self._queue_changes[session_id] = self._queue_changes.get(session_id, 0) + 1
        self._report_queue(session_id)
        self.report_machine()

    def _on_remote_head(self, session_id: str, seq: int) -> None:
        if self.connection.is_ready:
            self.replica.advance(session_id, seq)

    def _on_copied(self, session_id: str, seq: int) -> None:
        outer = self.ids.outer(session_id)
        for on_head in tuple(self._heads.values()):
            on_head(outer, seq)

    # ---- state -----------------------------------------------------------------------------

    def _overview(self, overview: SessionOverview) -> SessionOverview:
        """Return a session with the hub's ids, and as far as it was copied."""
        inner = overview.session_id
        head = self.replica.head(inner)
        known = self._shown.get(inner)
        if known is not None and known[0] is overview and known[1].last_seq == head:
            return known[1]
        shown = replace(self.ids.translated(overview), last_seq=head, machine=self.machine_id)
        self._shown[inner] = (overview, shown)
        return shown

    def _show(self, result: Any) -> Any:
        if isinstance(result, SessionOverview):
            return self._overview(result)
        if isinstance(result, list) and result and isinstance(result[0], SessionOverview):
            return [self._overview(each) for each in result if not self._is_deleted(each)]
        return self.ids.translated(result)

    def _find(self, session_id: str) -> SessionOverview | None:
        """Return a session by its id on the machine, which may have lost it."""
        found = self.remote.find_session(session_id)
        if found is None and session_id in self._lost:
            return self._lost[session_id].overview
        return found

    def _is_deleted(self, overview: SessionOverview) -> bool:
        """Whether it will be deleted when the machine comes back."""
        if not self.waiting.count:
            return False
        deletions = self.waiting.of("delete_session", overview.session_id)
        return any(each.state == "waiting" for each in deletions)

    @override
    def sessions(self) -> list[SessionOverview]:
        return self._with_lost(self._show(self.remote.sessions()))

    def _with_lost(self, shown: list[SessionOverview]) -> list[SessionOverview]:
        known = {each.session_id for each in shown} if self._lost else ()
        lost = [self._overview(each.overview) for each in self._lost.values()]
        return [each for each in lost if each.session_id not in known] + shown

    @override
    async def list_sessions(self) -> list[SessionOverview]:
        return self._with_lost(await super().list_sessions())

    @override
    async def show_session(self, session_id: str) -> SessionOverview:
        if self.ids.inner(session_id) in self._lost:
            return self.session(session_id)
        return await super().show_session(session_id)

    @override
    def session(self, session_id: str) -> SessionOverview:
        found = self.find_session(session_id)
        if found is None:
            raise not_found(f"session {session_id!r}", "check its id in the list of sessions")
        return found

    @override
    def find_session(self, session_id: str) -> SessionOverview | None:
        found = self._find(self.ids.inner(session_id))
        return None if found is None else self._overview(found)

    @override
    def last_seq(self, session_id: str) -> int:
        return self.replica.head(self.ids.inner(session_id))

    # ---- the log ---------------------------------------------------------------------------

    @override
    def log_epoch(self, session_id: str | None = None) -> LogEpoch:
        return self.replica.epoch

    @override
    async def open_log(self, session_id: str | None) -> LogSource:
        if session_id is None:
            return await self.remote.open_log(None)
        inner = self.ids.inner(session_id)
        if self._find(inner) is None:
            message = f"there is no session {session_id!r}"
            raise AcpError(ERROR_CODES["session_closed"], message)
        return TranslatedLog(self.replica.log(inner), inner, self.ids)

    @override
    async def read_events(self, session_id: str, after: int, limit: int) -> list[bytes]:
        inner = self.ids.inner(session_id)
        if after >= self.replica.head(inner) and self.connection.is_connected:
            # Reading the end of a log settles what a crash left open: only the machine can do that.
            try:
                await self.remote.read_events(inner, after, 1)
                await self._caught_up(inner)
            except QuarterdeckError as error:
                logger.debug("a log was not settled", extra={"reason": str(error)})
        events = await self.replica.read(inner, after, limit)
        return [self.ids.session_event(inner, each) for each in events]

    async def _caught_up(self, session_id: str) -> None:
        """Wait until everything that the machine has published of a session is here."""
        with anyio.move_on_after(CATCH_UP_SECONDS):
            await self.replica.reached(session_id, self.remote.last_seq(session_id))

    @override
    async def compact(self) -> list[CompactedFile]:
        return await self.replica.compact()

    @override
    async def agent_confinement(self, agent_id: str) -> ConfinementStatus | None:
        with anyio.move_on_after(CATCH_UP_SECONDS):
            try:
                if self.connection.is_connected:
                    return await super().agent_confinement(agent_id)
            except QuarterdeckError as error:
                logger.debug("a machine did not answer", extra={"reason": str(error)})
        return None  # a list of agents is shown without it

    # ---- commands --------------------------------------------------------------------------

    @override
    async def perform(self, method: str, params: dict[str, Any]) -> Any:
        result = await getattr(self.remote, method)(**params)
        session_id = params.get("session_id")
        if isinstance(result, SessionOverview):
            session_id = result.session_id
        if isinstance(session_id, str) and self.connection.is_connected:
            await self._caught_up(session_id)
        return self._show(result)

    async def _or_wait(
        self, method: str, session_id: str, key: str, params: dict[str, Any], by: Actor
    ) -> Any:
        """Carry out a command, or keep it; returns a `WaitingCommand` if it is kept.

        Raises:
            QuarterdeckError: what the machine has raised.
        """
        if self.connection.is_connected and not self.waiting.has_any(session_id):
            try:
                return await self.perform(method, {**params, "by": by})
            except RequestRejected as error:
                if self._is_connected() or not error.code.endswith("/unavailable"):
                    raise
        if self.remote.find_session(session_id) is None:
            raise not_found(f"session {session_id!r}", "check its id in the list of sessions")
        command = await self.waiting.add(method, session_id, key, params, by)
        self._deliver_soon()
        return command

    @override
    async def add_prompt(
        self,
        session_id: str,
        key: str,
        blocks: Sequence[Any],
        *,
        mode: PromptMode = "queue",
        by: Actor = PROGRAM,
    ) -> PromptEntry:
        inner = self.ids.inner(session_id)
        params = {"session_id": inner, "key": key, "blocks": list(blocks), "mode": mode}
        result = await self._or_wait("add_prompt", inner, key, params, by)
        return self._prompt(result) if isinstance(result, WaitingCommand) else result

    def _prompt(self, command: WaitingCommand) -> PromptEntry:
        return self.ids.translated(prompt_entry(command))

    def _waiting_prompt(self, session_id: str, key: str) -> WaitingCommand | None:
        return self.waiting.find("add_prompt", self.ids.inner(session_id), key)

    @override
    async def get_prompt(self, session_id: str, key: str) -> PromptEntry:
        command = self._waiting_prompt(session_id, key)
        if command is not None:
            return self._prompt(command)
        return await super().get_prompt(session_id, key)

    @override
    async def list_prompts(self, session_id: str, limit: int) -> list[PromptEntry]:
        waiting = self.waiting.of("add_prompt", self.ids.inner(session_id))
        listed: list[PromptEntry] = []
        if self.connection.is_connected:
            listed = await super().list_prompts(session_id, limit)
        known = {each.key for each in listed}
        listed += [self._prompt(each) for each in waiting if each.key not in known]
        return listed[-limit:]

    @override
    async def wait_prompt(self, session_id: str, key: str) -> PromptEntry:
        command = self._waiting_prompt(session_id, key)
        if command is not None:
            left = await self.waiting.settled(command)
            if left is not None:
                return self._prompt(left)
        return await super().wait_prompt(session_id, key)

    @override
    async def edit_prompt(
        self, session_id: str, key: str, blocks: Sequence[Any], *, by: Actor = PROGRAM
    ) -> PromptEntry:
        command = self._waiting_prompt(session_id, key)
        if command is not None:
            params = {**command.params, "blocks": list(blocks)}
            changed = await self.waiting.edit(command, params)
            if changed is not None:
                return self._prompt(changed)
        return await super().edit_prompt(session_id, key, blocks, by=by)

    @override
    async def cancel_prompt(self, session_id: str, key: str, *, by: Actor = PROGRAM) -> PromptEntry:
        command = self._waiting_prompt(session_id, key)
        if command is not None and await self.waiting.withdraw(command):
            return replace(self._prompt(command), state="cancelled", error=UNSET, waits_until=UNSET)
        return await super().cancel_prompt(session_id, key, by=by)

    @override
    async def count_queued_prompts(self) -> int:
        waiting = sum(each.state == "waiting" for each in self.waiting.of("add_prompt"))
        try:
            return waiting + await self.remote.count_queued_prompts()
        except QuarterdeckError as error:
            logger.debug("a machine did not answer", extra={"reason": str(error)})
            return waiting

    @override
    async def close_session(self, session_id: str, *, by: Actor = PROGRAM) -> None:
        inner = self.ids.inner(session_id)
        await self._or_wait("close_session", inner, "close", {"session_id": inner}, by)

    @override
    async def delete_session(self, session_id: str, *, by: Actor = PROGRAM) -> None:
        inner = self.ids.inner(session_id)
        if self._lost.pop(inner, None) is not None:
            self._is_dirty = True
            await self.replica.forget(inner)
            self._report(SessionDeleted(session_id=inner))
            return
        await self._or_wait("delete_session", inner, "delete", {"session_id": inner}, by)

    @override
    async def answer_permission(
        self,
        request_id: str,
        option_id: str | None,
        *,
        digest: str | None = None,
        key: str | None = None,
        reason: str = "",
        by: Actor = PROGRAM,
    ) -> RecordedDecision:
        if self.connection.is_connected:
            return await super().answer_permission(
                request_id, option_id, digest=digest, key=key, reason=reason, by=by
            )
        inner = self.ids.inner(request_id)
        pending = self.remote.pending_permission(inner)
        if pending is None or pending.card is None:
            raise not_found(f"request {request_id!r}", "open the inbox to see what is pending")
        card = pending.card
        if digest is not None and digest != card.digest:
            message = "the request has changed since it was shown; review it again"
            raise RequestRejected("stale", message, data={"digest": card.digest})
        if option_id is not None and option_id not in {each.option_id for each in card.options}:
            raise RequestRejected("invalid", f"the request has no option {option_id!r}")
        session_id, name = card.session_id, f"answer to {inner}"
        params = {
            "request_id": inner,
            "option_id": option_id,
            "digest": card.digest,
            "key": key or name,
            "reason": reason,
        }
        known = self.waiting.find("answer_permission", session_id, name)
        if known is not None and (known.by.id, known.params) != (by.id, params):
            waits_for = self.connection.name
            message = f"{known.by.name} has already answered; the answer is waiting for {waits_for}"
            raise RequestRejected("already-answered", message)
        command = await self.waiting.add("answer_permission", session_id, name, params, by)
        self._deliver_soon()
        return self._waiting_decision(pending.request.tool_call, command, card)

    def _waiting_decision(
        self, request: Any, command: WaitingCommand, card: Any
    ) -> RecordedDecision:
        until = iso_seconds(command.expires_at)
        decision = RecordedDecision(
            id=0,
            request_id=card.request_id,
            session_id=card.session_id,
            agent=card.agent if isinstance(card.agent, str) else None,
            digest=card.digest,
            request=request,
            state="pending",
            requested_at=card.requested_at,
            problem=f"{self.connection.name} is away; the answer waits for it until {until}",
        )
        return self.ids.translated(decision)
