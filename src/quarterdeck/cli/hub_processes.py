"""The processes of a hub that `up` runs: its own, which it can replace, and its runner's.

**The hub** replaces itself by `exec` of the installed version: same process id, same terminal, and
the same listening sockets, so connections wait in the kernel meanwhile. Before that, a child
process checks that the new version starts; if not, nothing happens.

**The runner** is started again whenever none runs: after it was killed, and after `restart_runner`,
which ends it when running turns have ended. Starting it is done in one place, `_supervise`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import anyio
from anyio import to_thread

from quarterdeck.cli.hub_access import HubAddress
from quarterdeck.cli.hub_start import RESTARTED
from quarterdeck.cli.runner_start import READY_SECONDS, StartingRunner, program
from quarterdeck.cli.running_processes import find_process
from quarterdeck.cli.services import start_by_service
from quarterdeck.errors import CommandFailed, QuarterdeckError, RequestRejected, StartRefused
from quarterdeck.hub.api.processes import HubRestart, RestartState, RunnerFacts, RunnerRestart
from quarterdeck.hub.listeners import Listeners, hand_over
from quarterdeck.machine.home_locks import lock_owner
from quarterdeck.machine.private_files import replace_private
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner import Actor, HealthChanged, News
from quarterdeck.runner.link import RemoteRunner

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 30.0
"""For the installed version to be imported and to read the configuration."""
START_BYTES: Final = 1 << 20
"""Of the disk, for a process to open its databases."""
_PROBE: Final = "restart.probe"
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_POLL_SECONDS: Final = 0.02


async def runner_ready(home: Path, starting: StartingRunner | None) -> None:
    """Wait for the runner of a directory: the one that was started here, or another one.

    Raises:
        StartRefused: if it does not start.
    """
    if starting is not None:
        try:
            await to_thread.run_sync(starting.wait)
        except StartRefused:
            if lock_owner(home, "runner") is None:
                raise
        else:
            return
    with anyio.move_on_after(READY_SECONDS):
        while lock_owner(home, "runner") is not None:
            if find_process(home, "runner") is not None:
                return
            await anyio.sleep(_POLL_SECONDS)
    owner = lock_owner(home, "runner")
    raise StartRefused(
        f"process {owner} has the log of {home} open but serves no hub"
        if owner
        else f"the runner of {home} has ended",
        "stop it, then try again" if owner else "try again; runner.log has the reason",
    )


def replace_process(listeners: Listeners, lock: int, host: str) -> NoReturn:
    """Replace this process by the installed version, with its sockets and its lock."""
    sys.stdout.flush()
    sys.stderr.flush()
    arguments = program(*sys.argv[1:])
    environ = {**os.environ, RESTARTED: host}
    hand_over(listeners, lock, environ)
    os.execve(arguments[0], arguments, environ)  # noqa: S606 - without a shell is the point


class HubProcesses:
    """Restarts a hub and its runner."""

    def __init__(self, address: HubAddress, runner: RemoteRunner) -> None:
        self.restart_wanted = anyio.Event()
        """Set when this process shall be replaced."""
        self._address = address
        self._runner = runner
        self._state: RestartState = "none"
        self._error = ""
        self._is_ending = False
        self._drain = anyio.CancelScope()
        self._settled = anyio.Event()
        """Set when a restart has ended, in one way or another."""

    @property
    def is_restarting(self) -> bool:
        return self.restart_wanted.is_set()

    # ---- the hub ---------------------------------------------------------------------------

    async def restart_hub(self) -> HubRestart:
        await to_thread.run_sync(_check_room, self._address.home)
        version = await _check(sys.argv[1:])
        self.restart_wanted.set()
        return HubRestart(version=version)

    # ---- the runner ------------------------------------------------------------------------

    def runner_facts(self) -> RunnerFacts:
        found, health = self._runner.identity, self._runner.health()
        return RunnerFacts(
            pid=found.pid,
            version=found.version,
            started_at=iso_seconds(found.started_at),
            is_connected=health.is_connected,
            is_draining=health.is_draining,
            running_turns=self._running_turns(),
            restart=self._runner_restart(),
        )

    def _runner_restart(self) -> RunnerRestart:
        turns = self._running_turns()
        return RunnerRestart(state=self._state, running_turns=turns, error=self._error)

    def _running_turns(self) -> int:
        """Count by session: their statuses arrive at once, the runner's own count later."""
        return sum(session.status == "prompting" for session in self._runner.sessions())

    async def restart_runner(self, wait_seconds: float | None, by: Actor) -> RunnerRestart:
        if self._state in ("draining", "restarting"):
            raise RequestRejected(
                "not-startable", "the runner is being restarted already; wait for it"
            )
        home, config = self._address.home, self._address.config_file
        named = [] if config is None else ["--config", str(config.absolute())]
        await to_thread.run_sync(_check_room, home)
        await _check(["runner", "--home", str(home), *named])
        self._state, self._error = "draining", ""
        self._drain, self._settled = anyio.CancelScope(), anyio.Event()
        self._start_in_background(partial(self._restart_runner, wait_seconds, by))
        return self._runner_restart()

    async def cancel_runner_restart(self) -> RunnerRestart:
        if self._state == "draining":
            self._drain.cancel()
            await self._settled.wait()
        return self._runner_restart()

    async def _restart_runner(self, wait_seconds: float | None, by: Actor) -> None:
        try:
            if await self._has_drained(wait_seconds, by):
                self._state = "restarting"
                await self._end_runner(by)
                self._state = "done"
            else:
                await self._runner.resume_turns(by=by)
                self._state = "cancelled"
        except QuarterdeckError as error:
            logger.warning("the runner was not restarted", extra={"reason": str(error)})
            self._state, self._error = "failed", str(error)
        finally:
            self._settled.set()

    async def _has_drained(self, wait_seconds: float | None, by: Actor) -> bool:
        """Wait for running turns to end; return False if that was cancelled."""
        with self._drain, anyio.move_on_after(wait_seconds):
            if wait_seconds != 0:
                await self._runner.drain(by=by)
        return not self._drain.cancel_called

    async def _end_runner(self, by: Actor) -> None:
        """End the runner and wait for the next one, which `_supervise` starts."""
        before = self._runner.identity.boot_id
        await self._runner.shut_down(by=by)
        with anyio.move_on_after(READY_SECONDS):
            while self._runner.identity.boot_id == before:  # noqa: ASYNC110 - of another process
                await anyio.sleep(_POLL_SECONDS)
            return
        raise CommandFailed("the new runner does not answer; see runner.log and quarterdeck doctor")

    def start(self, start_in_background: Callable[[Callable[[], Awaitable[None]]], None]) -> None:
        """Begin to look after the runner."""
        self._start_in_background = start_in_background
        start_in_background(self._supervise)

    def end(self) -> None:
        """Start no runner any more: the hub ends, and perhaps the runner with it."""
        self._is_ending = True

    async def _supervise(self) -> None:
        """Start a runner whenever there is none, until `end`."""
        pause, changed = _FIRST_PAUSE, anyio.Event()

        def on_news(news: News) -> None:
            if isinstance(news, HealthChanged):
                changed.set()

        unsubscribe = self._runner.subscribe_news(on_news)
        try:
            while not self._is_ending:
                if self._runner.health().is_connected:
                    await changed.wait()
                    pause, changed = _FIRST_PAUSE, anyio.Event()
                elif lock_owner(self._address.home, "runner") is not None:
                    await anyio.sleep(_POLL_SECONDS)  # one is ending, starting or being connected
                elif not await self._has_started():
                    await anyio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            unsubscribe()

    async def _has_started(self) -> bool:
        home, config = self._address.home, self._address.config_file
        logger.warning("no runner is running; starting one")
        # A runner that the hub starts itself belongs to the hub's service, not to its own.
        by_service = partial(start_by_service, "runner", home)
        if await to_thread.run_sync(by_service, abandon_on_cancel=True):
            return True
        starting = StartingRunner(home, config, os.environ)
        starting.keep()
        try:
            await to_thread.run_sync(starting.wait, abandon_on_cancel=True)
        except StartRefused as error:
            logger.warning("the runner does not start", extra={"reason": str(error)})
            return lock_owner(home, "runner") is not None
        return True


def _check_room(home: Path) -> None:
    """Check that a process can write what it needs to start.

    Raises:
        RequestRejected: if not.
    """
    probe = home / _PROBE
    try:
        replace_private(probe, bytes(START_BYTES))
    except OSError as error:
        raise RequestRejected(
            "not-startable",
            f"the new process could not write in {home} ({error.strerror}); free up disk space,"
            " then try again; nothing was restarted",
        ) from error
    finally:
        for name in (_PROBE, f"{_PROBE}.new"):
            (home / name).unlink(missing_ok=True)


async def _check(arguments: list[str]) -> str:
    """Return the version that is installed, if it starts with these arguments.

    Raises:
        RequestRejected: if not.
    """
    try:
        with anyio.fail_after(CHECK_SECONDS):
            done = await anyio.run_process(program(*arguments, "--check"), check=False)
    except TimeoutError:
        reason = f"it takes longer than {CHECK_SECONDS:g} s"
    else:
        if done.returncode == 0:
            return done.stdout.decode().strip()
        reason = (done.stderr.decode(errors="replace").strip().splitlines() or ["it fails"])[-1]
    raise RequestRejected(
        "not-startable",
        f"the installed version does not start: {reason.removeprefix('quarterdeck: ')};"
        " nothing was restarted",
    )
