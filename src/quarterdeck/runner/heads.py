"""Heads of logs: how a hub and its runner find out whether they have the same events.

A hub has copies of events that a runner stored and published. A head is the number and the digest
of one event; because numbers have no gaps and events never change, it stands for all before it.
When they connect, the hub sends its heads (`compare_heads`), and acts on each verdict:

    verdict    the runner has                              the hub
    same       that event, and maybe more after it         reads on from there
    behind     fewer events: `last_seq` and its digest     compares that event with its own copy:
                                                           equal: sends what is missing
                                                           (`take_back`); else `stop_diverged`
    diverged   another event with that number, or one      `stop_diverged`
               that it cannot read
    unknown    no such session                             keeps its copy, which gets no more events

`take_back` must come before anything else is numbered in that session. The events keep their
numbers and bytes; a diagnostic `log/taken-back` says how many came back.

**After a power cut** that may have cost the last commits, nothing is numbered until a hub has
compared its heads or `RunnerOptions.hub_seconds` have passed without a sign of one (the table is in
`quarterdeck.host.log.hold`). The log has a new epoch in any case. A hub proceeds so:

1. `unconfirmed_epoch` returns the epoch before the power cut. Copies of that epoch are compared;
   copies of any other epoch than that and `log_epoch` are worth nothing.
2. `compare_heads`, then `take_back` or `stop_diverged`. Logs cannot be read before `confirm_heads`.
3. `confirm_heads` records what no copy has as lost, and returns the epoch. Copies that compared as
   the same, or were sent back, are of that epoch now.

A hub that comes later finds `unconfirmed_epoch` to be None and the epoch of its copies over: it
starts over, as every reader of another epoch does.

A session that was stopped is closed for good: its log can be read, no number is ever given in it
again, and commands to it are refused with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import anyio
from msgspec import Struct

from quarterdeck.errors import DatabaseFailed, StorageFailed
from quarterdeck.host import Host
from quarterdeck.runner.actor import PROGRAM, Actor, log_command
from quarterdeck.runner.options import RunnerOptions
from quarterdeck.runner.permissions.inbox import PermissionInbox
from quarterdeck.runner.prompts.queue import PromptQueue
from quarterdeck.runner.sessions.catalogue import SessionCatalogue
from quarterdeck.runner.sessions.manager import SessionManager
from quarterdeck.storage import LogEpoch, SqliteStorage
from quarterdeck.wire import IndependentTasks

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
"""Until a database that failed is tried again."""

HeadComparison: TypeAlias = Literal["same", "behind", "diverged", "unknown"]


class LogHead(Struct, frozen=True, kw_only=True, rename="camel"):
    """One event of a session's log, usually the newest that a copy of the log has."""

    session_id: str
    last_seq: int
    """0 for a log without events."""
    digest: str
    """BLAKE2b of the stored bytes of event `last_seq`, 128 bits in hexadecimal; "" for none."""


class HeadVerdict(Struct, frozen=True, kw_only=True, rename="camel"):
    """How a runner's log compares with the head of a copy."""

    session_id: str
    verdict: HeadComparison
    last_seq: int = 0
    """The number of the runner's newest event."""
    digest: str = ""
    """Of the runner's event with the number of the head, or of its newest if it is behind."""


class HeadCommandsApi(Protocol):
    """The part of `RunnerApi` that compares logs."""

    async def log_heads(self, session_ids: Sequence[str]) -> list[LogHead]:
        """Return the newest events of sessions, live and closed; unknown ones are left out."""

    async def compare_heads(self, heads: Sequence[LogHead]) -> list[HeadVerdict]:
        """Compare the heads of a copy with the log; one verdict for each, in their order."""

    async def take_back(
        self, session_id: str, events: Sequence[bytes], *, by: Actor = PROGRAM
    ) -> None:
        """Append events that this log has lost and a copy still has, as they were stored.

        Raises:
            RequestRejected: `stale` if they do not continue the log, or the session is in use or
                stopped; `not-found` if there is no such session. Nothing was changed.
            StorageFailed: if they cannot be stored.
        """

    async def stop_diverged(self, session_id: str, reason: str, *, by: Actor = PROGRAM) -> None:
        """Close a session for good, because another history has the same numbers.

        `reason` is a clause for people, such as "the hub has other events after number 41".

        Raises:
            RequestRejected: `not-found` if there is no such session.
            StorageFailed: if that cannot be stored; until the next start it has stopped.
        """

    async def confirm_heads(self) -> LogEpoch:
        """Report that a hub has compared its heads and sent back what was missing.

        Returns the epoch of the log. Does nothing more unless the runner waits for it.
        """

    def unconfirmed_epoch(self) -> LogEpoch | None:
        """Return the epoch before a power cut while heads are awaited; None if they are not.

        Copies of that epoch can be compared; those of another are worth nothing.
        """


class HeadCommands:
    """The part of `Runner` that implements `HeadCommandsApi`."""

    host: Host
    catalogue: SessionCatalogue
    inbox: PermissionInbox
    manager: SessionManager
    options: RunnerOptions
    prompts: PromptQueue
    _sign_of_hub: anyio.Event | None = None
    """Exists while a hub is awaited."""

    async def log_heads(self, session_ids: Sequence[str]) -> list[LogHead]:
        heads = self.host.heads
        known = [(name, heads.last_seq(name)) for name in session_ids]
        wanted = [(name, seq) for name, seq in known if seq is not None]
        digests = await heads.digests(wanted)
        return [
            LogHead(session_id=name, last_seq=seq, digest=digest)
            for (name, seq), digest in zip(wanted, digests, strict=True)
        ]

    async def compare_heads(self, heads: Sequence[LogHead]) -> list[HeadVerdict]:
        self._note_hub()
        newest = [self.host.heads.last_seq(head.session_id) for head in heads]
        compared = [
            (head.session_id, min(head.last_seq, seq or 0))
            for head, seq in zip(heads, newest, strict=True)
        ]
        digests = await self.host.heads.digests(compared)
        self._note_hub()
        return list(_verdicts(zip(heads, newest, digests, strict=True)))

    async def take_back(
        self, session_id: str, events: Sequence[bytes], *, by: Actor = PROGRAM
    ) -> None:
        log_command("take_back", by)
        self._note_hub()
        await self.host.heads.take_back(session_id, events)
        self.catalogue.refresh(session_id)
        count = "1 event" if len(events) == 1 else f"{len(events):,} events"
        message = f"{count} of session {session_id} came back from {by.name}"
        data = {"count": len(events), "lastSeq": self.host.heads.last_seq(session_id)}
        self.host.diagnose("info", "log/taken-back", message, session_id=session_id, data=data)

    async def stop_diverged(self, session_id: str, reason: str, *, by: Actor = PROGRAM) -> None:
        log_command("stop_diverged", by)
        try:
            await self.host.heads.stop(session_id, reason)
        finally:
            self.catalogue.refresh(session_id)

    async def confirm_heads(self) -> LogEpoch:
        await self.manager.once("heads are confirmed", self._confirm)
        return self.host.log_epoch

    def unconfirmed_epoch(self) -> LogEpoch | None:
        return self.host.heads.unconfirmed_epoch if self.host.heads.is_held else None

    async def _confirm(self) -> None:
        """Complete what depends on the whole log, then let sessions continue."""
        if not self.host.heads.is_held:
            return
        try:
            await self.host.heads.confirm()
            await self.inbox.catch_up()
        except StorageFailed as error:  # a full disk; the epoch protects the numbers
            logger.warning("losses could not be recorded", extra={"reason": str(error)})
        finally:
            self.host.heads.release()
            self._note_hub()

    def damage_sentences(self) -> tuple[str, ...]:
        """Return a sentence for each damage of the log and each session that has stopped."""
        found = (each.sentence for each in self.host.log_damages)
        return (*found, *self.host.heads.stopped_sessions().values())

    # ---- at the start --------------------------------------------------------------------------

    async def start_prompts(self, tasks: IndependentTasks) -> None:
        """Run queued prompts: at once, or when the log is as complete as it can be."""
        if self.host.heads.is_held:
            tasks.start_soon(self._await_heads)
            tasks.start_soon(self._start_prompts_later, tasks)
        else:
            await self.prompts.start(tasks)

    async def _await_heads(self) -> None:
        """Wait for a hub to confirm; without a sign of one for a while, continue without it."""
        self._sign_of_hub = anyio.Event()
        while self.host.heads.is_held:
            with anyio.move_on_after(self.options.hub_seconds) as patience:
                await self._sign_of_hub.wait()
            self._sign_of_hub = anyio.Event()
            if patience.cancelled_caught and self.host.heads.is_held:
                message = (
                    "no hub has sent back events that a power cut may have lost; continuing"
                    " without them"
                )
                self.host.diagnose("warn", "log/unconfirmed", message)
                await self.confirm_heads()

    async def _start_prompts_later(self, tasks: IndependentTasks) -> None:
        await self.host.heads.released()
        while True:
            try:
                return await self.prompts.start(tasks)
            except DatabaseFailed as error:
                logger.warning("the prompt queue failed", extra={"reason": str(error)})
                await anyio.sleep(RETRY_SECONDS)

    def _note_hub(self) -> None:
        if self._sign_of_hub is not None:
            self._sign_of_hub.set()


def log_storage(options: RunnerOptions, name: str) -> SqliteStorage:
    """Return the log of a runner."""
    return SqliteStorage(
        options.home / name,
        synchronous=options.synchronous,
        awaits_heads=options.hub_seconds > 0,
    )


def _verdicts(compared: Iterable[tuple[LogHead, int | None, str]]) -> Iterable[HeadVerdict]:
    for head, seq, digest in compared:
        verdict: HeadComparison
        if seq is None:
            yield HeadVerdict(session_id=head.session_id, verdict="unknown")
            continue
        if head.last_seq > seq:
            verdict = "behind"
        elif head.last_seq < 1 or (digest and digest == head.digest):
            verdict = "same"
        else:
            verdict = "diverged"
        yield HeadVerdict(session_id=head.session_id, verdict=verdict, last_seq=seq, digest=digest)
