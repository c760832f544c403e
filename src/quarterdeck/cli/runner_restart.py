"""Restarts a runner that has no hub on its machine: one that has joined a hub elsewhere.

A hub restarts its own runner (`hub_processes`). Here the command does it: it checks that the
installed version starts, waits for running turns to end, ends the runner and starts the next one.
If the command ends while it waits, turns start again.
"""

from __future__ import annotations

from typing import Final

import anyio
from anyio import to_thread

from quarterdeck.cli.hub_access import HubAddress
from quarterdeck.cli.runner_start import RUNNER_SOCKET, StartingRunner, program
from quarterdeck.cli.running_processes import END_SECONDS, RunningProcess, find_process
from quarterdeck.cli.services import start_by_service
from quarterdeck.cli.terminal.screen import print_note
from quarterdeck.errors import CommandFailed
from quarterdeck.runner.link import connected_runner

_CHECK_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05


async def restart_alone(address: HubAddress, wait_seconds: float | None) -> None:
    """Replace the runner by one of the installed version, and wait for it.

    Turns that run longer than `wait_seconds` are cancelled; None waits however long they take.

    Raises:
        CommandFailed: if no runner runs, or it cannot be replaced.
        StartRefused: if the new one does not start.
    """
    process = find_process(address.home, "runner")
    if process is None:
        raise CommandFailed(f"nothing runs in {address.home}; to start: quarterdeck up")
    version = await _check(address)
    async with connected_runner(address.home / RUNNER_SOCKET) as runner:
        turns = runner.health().running_turns
        if turns and wait_seconds != 0:
            print_note(f"waiting for {turns} running turn{'s' * (turns != 1)}; Ctrl-C cancels this")
        with anyio.move_on_after(wait_seconds):
            if wait_seconds != 0:
                await runner.drain()
        await runner.shut_down()
    await _ended(process)
    if not await to_thread.run_sync(start_by_service, "runner", address.home):
        starting = StartingRunner(address.home, address.config_file, address.environ)
        await to_thread.run_sync(starting.wait)
        starting.keep()
    print_note(f"the runner was restarted: version {version}")


async def _check(address: HubAddress) -> str:
    """Return the version that is installed, if it starts.

    Raises:
        CommandFailed: if not.
    """
    config = address.config_file
    named = () if config is None else ("--config", str(config.absolute()))
    command = program("runner", "--home", str(address.home), *named, "--check")
    with anyio.move_on_after(_CHECK_SECONDS):
        done = await anyio.run_process(command, check=False)
        if done.returncode == 0:
            return done.stdout.decode().strip()
    raise CommandFailed(
        "the installed version does not start, so the runner keeps running; see the reason:"
        " quarterdeck runner --check"
    )


async def _ended(process: RunningProcess) -> None:
    with anyio.move_on_after(END_SECONDS):
        while not process.has_ended:  # noqa: ASYNC110 - the kernel does not report a lock
            await anyio.sleep(_POLL_SECONDS)
        return
    raise CommandFailed(f"the runner has not ended; to end it at once: kill -9 {process.pid}")
