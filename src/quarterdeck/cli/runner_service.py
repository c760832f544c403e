"""`quarterdeck runner`: the process that runs agents, until SIGTERM or until a hub ends it.

It serves the link at `runner.sock`, writes what it is to `runner.json`, and logs to `runner.log`.
It dials the hubs that this machine has joined. SIGHUP reloads the configuration. Nothing of it
depends on a terminal or on a hub.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import anyio

from quarterdeck._version import __version__
from quarterdeck.cli.arguments import DONE, INTERRUPTED
from quarterdeck.cli.config import hub_options, load_config
from quarterdeck.cli.config_reload import reload_config
from quarterdeck.cli.hub_access import HubAddress
from quarterdeck.cli.log_output import runner_logging
from quarterdeck.cli.runner_start import READY, RUNNER_SOCKET
from quarterdeck.errors import StartRefused
from quarterdeck.jsontext import encode_json
from quarterdeck.machine.home_locks import take_lock
from quarterdeck.machine.private_files import replace_private
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner import Runner, RunnerOptions
from quarterdeck.runner.link import LinkServer, dial_hubs, serving_link
from quarterdeck.wire import background_tasks

logger = logging.getLogger(__name__)

FILE: Final = "runner.json"
LOG: Final = "runner.log"
LOCK: Final = "runner.lock"
_KEEP_SECONDS: Final = 1.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Reload = Callable[[Runner], Awaitable[str]]


def serve_runner(chosen: Namespace) -> int:
    """Run the command."""
    address = HubAddress.of(chosen)
    config = load_config(address.environ, address.config_file)
    options = hub_options(
        config, home=address.home, environ=address.environ, config_file=address.config_file
    ).runner
    if chosen.check:
        print(__version__)
        return DONE

    async def reload(runner: Runner) -> str:
        return await reload_config(address, config, lambda new: runner.reconfigure(new.runner))

    backend = {"use_uvloop": find_spec("uvloop") is not None}
    serve = partial(_serve, options, reload, chosen.ready_fd)
    return anyio.run(serve, backend_options=backend)


async def _serve(options: RunnerOptions, reload: Reload, ready_fd: int | None) -> int:
    with anyio.open_signal_receiver(*_SIGNALS) as signals:
        async with Runner(options) as runner:
            with runner_logging(options.home / LOG, is_detached=ready_fd is not None):
                async with serving_link(runner, options.home / RUNNER_SOCKET) as server:
                    with _announced(options) as announcement:
                        logger.info("the runner is ready", extra={"version": __version__})
                        _report_ready(ready_fd)
                        gc.freeze()  # what is loaded by now stays: no need to scan it again
                        async with background_tasks() as tasks:
                            tasks.start_soon(_keep_files, options.home, announcement)
                            tasks.start_soon(dial_hubs, server, options.home, options.environ)
                            number = await _until_ended(runner, server, signals, reload)
                logger.info("the runner ends")
    return INTERRUPTED if number == signal.SIGINT else DONE


async def _until_ended(
    runner: Runner, server: LinkServer, signals: AsyncIterator[signal.Signals], reload: Reload
) -> int | None:
    """Return the signal that ends the runner; None if a hub ends it."""
    ended: list[int] = []

    async def on_signals() -> None:
        async for number in signals:
            if number != signal.SIGHUP:
                ended.append(number)
                tasks.cancel_scope.cancel()
                return
            logger.info(await reload(runner))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(on_signals)
        await server.shut_down.wait()
        tasks.cancel_scope.cancel()
    return ended[0] if ended else None


def _report_ready(ready_fd: int | None) -> None:
    """Tell the process that started this one, and let go of its output."""
    if ready_fd is None:
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stderr.fileno())
    os.close(nothing)
    os.write(ready_fd, READY)
    os.close(ready_fd)


@contextmanager
def _announced(options: RunnerOptions) -> Iterator[bytes]:
    """Write what runs here, for commands of this user."""
    path = options.home / FILE
    facts = {
        "pid": os.getpid(),
        "version": __version__,
        "socket": str((options.home / RUNNER_SOCKET).absolute()),
        "startedAt": iso_seconds(time.time()),
        "path": options.environ.get("PATH", ""),
    }
    announcement = encode_json(facts)
    replace_private(path, announcement)
    try:
        yield announcement
    finally:
        Path(path).unlink(missing_ok=True)


async def _keep_files(home: Path, announcement: bytes) -> None:
    """Restore what others find the runner by, if it was removed; never returns.

    A lock is taken again, in addition: without the file, another runner could open the log.
    """
    while True:
        await anyio.sleep(_KEEP_SECONDS)
        try:
            if not await anyio.Path(home, FILE).exists():
                replace_private(home / FILE, announcement)
            if not await anyio.Path(home, LOCK).exists():
                take_lock(home, "runner")  # released with this process
        except (OSError, StartRefused) as error:
            logger.warning("a file of the runner was not restored", extra={"reason": str(error)})
