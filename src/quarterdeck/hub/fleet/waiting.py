"""`WaitingCommands`: commands for a machine that is away, kept until it comes back.

    waiting → carried out (the row is removed)
    waiting → failed     the machine has refused it
    waiting → expired    the machine did not come back in time

A command is stored before its sender gets an answer. When the machine is back, commands are sent in
the order in which they were given. One that was carried out, but whose result did not arrive, is
sent again: prompts and answers have keys, and the others state what is to be. So each is carried
out once.

Which commands wait: prompts, answers to permission requests, closing and deleting. Others are about
what happens now, such as cancelling a turn: they fail at once, and say since when the machine is
away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
from msgspec import UNSET

from quarterdeck.errors import DatabaseFailed, QuarterdeckError, RequestRejected
from quarterdeck.hub.fleet.store import FleetStore, WaitingCommand
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner import Actor, PromptEntry, PromptError, RunnerApi

logger = logging.getLogger(__name__)

EXPIRY_SECONDS: Final = 86_400.0
"""That a command waits."""
SHOWN_SECONDS: Final = 86_400.0
"""That a prompt which has expired stays in its queue, unless it is dismissed."""
MOST_WAITING: Final = 200
"""Commands of one machine."""
SWEEP_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 1.0


class WaitingCommands:
    """The commands that wait for one machine."""

    def __init__(
        self,
        machine_id: str,
        store: FleetStore,
        machine: RunnerApi,
        on_change: Callable[[WaitingCommand], None],
    ) -> None:
        self._machine_id = machine_id
        self._store = store
        self._machine = machine
        self._on_change = on_change
        self._commands: dict[int, WaitingCommand] = {}
        self._changed = anyio.Event()
        self._delivering = anyio.Lock()

    async def load(self) -> None:
        self._commands = {each.id: each for each in await self._store.commands(self._machine_id)}

    # ---- reading ---------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Commands that will be carried out."""
        return sum(each.state == "waiting" for each in self._commands.values())

    def find(self, method: str, session_id: str, key: str) -> WaitingCommand | None:
        wanted = (method, session_id, key)
        for each in self._commands.values():
            if (each.method, each.session_id, each.key) == wanted:
                return each
        return None

    def of(self, method: str, session_id: str | None = None) -> list[WaitingCommand]:
        """Return what waits of one kind, of one session or of all."""
        return [
            each
            for each in self._commands.values()
            if each.method == method
            if session_id is None or each.session_id == session_id
        ]

    def has_any(self, session_id: str) -> bool:
        """Return whether anything waits for a session."""
        return any(
            each.state == "waiting" and each.session_id == session_id
            for each in self._commands.values()
        )

    async def settled(self, command: WaitingCommand) -> WaitingCommand | None:
        """Wait until a command does not wait any more; None if it was carried out."""
        while True:
            changed, known = self._changed, self._commands.get(command.id)
            if known is None or known.state != "waiting":
                return known
            await changed.wait()

    # ---- changing --------------------------------------------------------------------------

    async def add(
        self, method: str, session_id: str, key: str, params: Mapping[str, Any], by: Actor
    ) -> WaitingCommand:
        """Keep a command; the same key again returns the one that is there.

        Raises:
            RequestRejected: if too many wait, or the key was used for another command.
        """
        known = self.find(method, session_id, key)
        if known is not None and known.state != "waiting" and method != "add_prompt":
            await self.remove(known)  # it was not carried out, and is wanted again
            known = None
        if known is None and self.count >= MOST_WAITING:
            message = (
                f"{MOST_WAITING} actions are waiting for this machine; cancel some, or try later"
            )
            raise RequestRejected("too-many", message, retryable=True)
        now = time.time()
        command = await self._store.add(
            WaitingCommand(
                id=0,
                machine_id=self._machine_id,
                method=method,
                session_id=session_id,
                key=key,
                params=dict(params),
                by=by,
                created_at=now,
                expires_at=now + EXPIRY_SECONDS,
            )
        )
        if command.params != dict(params):
            message = f"the key {key!r} was used for another command; send a new key"
            raise RequestRejected("conflict", message)
        self._put(command)
        return command

    async def edit(
        self, command: WaitingCommand, params: Mapping[str, Any]
    ) -> WaitingCommand | None:
        """Change a command that waits; return None if it was carried out meanwhile."""
        async with self._delivering:
            if command.id not in self._commands:
                return None
            await self._store.edit(command.id, params)
            changed = _replace(command, params=dict(params))
            self._put(changed)
            return changed

    async def withdraw(self, command: WaitingCommand) -> bool:
        """Cancel a command; return False if it was carried out meanwhile."""
        async with self._delivering:
            if command.id not in self._commands:
                return False
            await self.remove(command)
            return True

    async def remove(self, command: WaitingCommand) -> None:
        """Forget a command: it was carried out, or cancelled."""
        await self._store.remove(command.id)
        self._commands.pop(command.id, None)
        self._notify(command)

    async def _settle(self, command: WaitingCommand, state: Any, problem: str) -> None:
        await self._store.settle(command.id, state, problem)
        self._put(_replace(command, state=state, problem=problem))

    def _put(self, command: WaitingCommand) -> None:
        self._commands[command.id] = command
        self._notify(command)

    def _notify(self, command: WaitingCommand) -> None:
        self._changed.set()
        self._changed = anyio.Event()
        self._on_change(command)

    # ---- carrying out ----------------------------------------------------------------------

    async def deliver(self) -> None:
        """Send what waits to the machine, which is connected; stops when it is lost."""
        async with self._delivering:
            for command in sorted(self._commands.values(), key=lambda each: each.id):
                if command.id in self._commands and command.state == "waiting":
                    try:
                        await self._carry_out(command)
                    except (RequestRejected, DatabaseFailed) as error:
                        if _is_away(error) or isinstance(error, DatabaseFailed):
                            logger.debug("a command still waits", extra={"reason": str(error)})
                            return
                        await self._settle(command, "failed", error.message)
                    except QuarterdeckError as error:
                        await self._settle(command, "failed", str(error))

    async def _carry_out(self, command: WaitingCommand) -> None:
        if command.expires_at <= time.time():
            await self._expire(command)
            return
        # Parameters are as the link has them: plain data of the types of the method.
        await getattr(self._machine, command.method)(**command.params, by=command.by)
        await self.remove(command)

    async def sweep(self) -> None:
        """Expire what has waited too long, and forget what was settled long ago; never returns."""
        while True:
            now = time.time()
            for command in tuple(self._commands.values()):
                if command.expires_at <= now:
                    try:
                        await self._sweep(command)
                    except DatabaseFailed as error:
                        logger.warning("a command was not settled", extra={"reason": str(error)})
            await anyio.sleep(SWEEP_SECONDS)

    async def _sweep(self, command: WaitingCommand) -> None:
        is_shown = command.method == "add_prompt"
        if command.state == "waiting":
            await self._expire(command)
        elif not is_shown or command.expires_at + SHOWN_SECONDS <= time.time():
            await self.remove(command)

    async def _expire(self, command: WaitingCommand) -> None:
        hours = round((command.expires_at - command.created_at) / 3600)
        problem = f"its machine did not come back within {hours} hours; send it again"
        await self._settle(command, "expired", problem)


def _replace(command: WaitingCommand, **changes: Any) -> WaitingCommand:
    facts = {name: getattr(command, name) for name in command.__struct_fields__}
    return WaitingCommand(**(facts | changes))


def _is_away(error: Exception) -> bool:
    return isinstance(error, RequestRejected) and error.code.endswith("/unavailable")


def prompt_entry(command: WaitingCommand) -> PromptEntry:
    """Return a prompt that waits for its machine, as its queue would have it."""
    is_waiting = command.state == "waiting"
    return PromptEntry(
        key=command.key,
        session_id=command.session_id,
        state="queued" if is_waiting else "failed",
        mode=command.params["mode"],
        prompt=list(command.params["blocks"]),
        error=UNSET
        if is_waiting
        else PromptError(code=f"quarterdeck/{command.state}", message=command.problem),
        by=command.by,
        created_at=iso_seconds(command.created_at),
        updated_at=iso_seconds(command.created_at),
        waits_until=iso_seconds(command.expires_at) if is_waiting else UNSET,
    )
