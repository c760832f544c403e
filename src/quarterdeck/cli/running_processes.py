"""The hub and the runner of a data directory as processes: which run, and how they are ended.

Each writes what it is to `hub.json` or `runner.json` and holds the lock of its role. The file alone
proves nothing: after `kill -9` it stays. So the lock is checked, too.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio

from quarterdeck.errors import CommandFailed, JsonInvalid
from quarterdeck.jsontext import decode_json
from quarterdeck.machine.home_locks import Role, lock_owner

END_SECONDS: Final = 30.0
"""For a process to end after SIGTERM: its agents get a grace, its logs are written."""
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class RunningProcess:
    """A hub or a runner that runs."""

    home: Path
    role: Role
    pid: int
    facts: Mapping[str, Any]
    """What its file has."""

    @property
    def has_ended(self) -> bool:
        return lock_owner(self.home, self.role) != str(self.pid)


def find_process(home: Path, role: Role) -> RunningProcess | None:
    """Return the process of a role; None if there is none, or it is a command's own.

    Raises:
        CommandFailed: if its file cannot be read.
    """
    facts = _facts(home / f"{role}.json")
    pid = None if facts is None else facts.get("pid")
    if facts is None or not isinstance(pid, int) or lock_owner(home, role) != str(pid):
        return None  # a killed process leaves its file behind
    return RunningProcess(home=home, role=role, pid=pid, facts=facts)


def _facts(path: Path) -> dict[str, Any] | None:
    try:
        facts = decode_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandFailed(
            f"cannot read {path}: {error.strerror}; run quarterdeck doctor"
        ) from error
    except JsonInvalid:
        return None  # a process was killed while writing it
    return facts if isinstance(facts, dict) else None


async def end_process(process: RunningProcess, *, seconds: float = END_SECONDS) -> None:
    """End a process as a service manager does, and wait until it has ended.

    Raises:
        CommandFailed: if it does not end in time.
    """
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(process.pid, signal.SIGTERM)
    with anyio.move_on_after(seconds):
        while not process.has_ended:  # noqa: ASYNC110 - the kernel does not report a lock
            await anyio.sleep(_POLL_SECONDS)
        return
    raise CommandFailed(
        f"the {process.role} (process {process.pid}) has not ended after {seconds:g} s;"
        f" to end it at once: kill -9 {process.pid}"
    )
