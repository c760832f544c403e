"""The start of `quarterdeck up`: lock the directory, start a runner, and only then import the hub.

Importing the hub takes as long as a runner takes to start, so both happen at the same time. A
runner that was started here ends again if the hub does not get ready; later it stays.
"""

from __future__ import annotations

import os
import signal
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from quarterdeck.cli.arguments import data_directory
from quarterdeck.cli.runner_start import StartingRunner
from quarterdeck.cli.services import start_by_service
from quarterdeck.machine.home_locks import lock_owner, take_lock

if TYPE_CHECKING:
    from quarterdeck.hub.listeners import Inherited

RESTARTED: Final = "QUARTERDECK_RESTARTED"
"""A variable for the process that replaces a hub; nothing else inherits it."""


class HubStart:
    """What a starting hub has before it is imported."""

    def __init__(self, chosen: Namespace) -> None:
        """Take the lock, and start a runner if there is none.

        Raises:
            StartRefused: if another hub has the directory, or other users can read it.
        """
        self.home = data_directory(os.environ) if chosen.home is None else chosen.home.absolute()
        self.inherited = _inherited()
        self.restarted_host = os.environ.pop(RESTARTED, None)
        """Where the hub listened that this process has replaced; None if it is a first start."""
        lock = self.inherited.lock if self.inherited else None
        self.lock = take_lock(self.home, "hub") if lock is None else lock
        self.runner: StartingRunner | None = None
        """None if one runs already."""
        if lock_owner(self.home, "runner") is None and not start_by_service("runner", self.home):
            self.runner = StartingRunner(self.home, chosen.config, os.environ)


def _inherited() -> Inherited | None:
    if "LISTEN_PID" not in os.environ:
        return None  # the usual case, which needs no import
    from quarterdeck.hub.listeners import inherited  # noqa: PLC0415

    return inherited(os.environ)


def start_hub(chosen: Namespace) -> int:
    """Run the command."""
    if chosen.check:
        return _imported("check_start")(chosen)
    _enrol(chosen)
    start = HubStart(chosen)
    try:
        with _held_interrupts():
            serve = _imported("serve_hub")
        return serve(chosen, start)
    finally:
        if start.runner is not None:
            start.runner.end_unless_kept()


def _enrol(chosen: Namespace) -> None:
    """Remember the relay that was named, if one was."""
    names = ("relay", "acme_directory", "acme_ca", "relay_cert", "relay_key")
    if any(getattr(chosen, name) for name in (*names, "no_relay", "agree_terms")):
        from quarterdeck.cli.relay_enrolment import enrol  # noqa: PLC0415  # seldom needed

        home = data_directory(os.environ) if chosen.home is None else chosen.home.absolute()
        enrol(chosen, home)


def _imported(name: str) -> Callable[..., int]:
    from quarterdeck.cli import hub_service  # noqa: PLC0415  # slow: not before a runner starts

    function: Callable[..., int] = getattr(hub_service, name)
    return function


@contextmanager
def _held_interrupts() -> Iterator[None]:
    """Raise Ctrl-C after the block: inside an import it is a traceback, or has been a crash."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # it is ignored, or a program has its own way
        return
    pressed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt
