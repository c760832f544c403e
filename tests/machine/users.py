"""Users that tests of confinement run as: this one and, for root, an ordinary one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534
USERS = (0, NOBODY) if os.geteuid() == 0 else (os.geteuid(),)
PYTHON = "/usr/bin/python3"
"""Of the system: the one that runs the tests may be in root's home."""


def as_user(uid: int, command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` as a user."""
    if uid == os.geteuid():
        return list(command)
    user = ["--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
    return ["setpriv", *user, *command]


@contextmanager
def open_folder_for_all() -> Iterator[Path]:
    """Make a folder that every user can enter; those of pytest are for their owner only."""
    with tempfile.TemporaryDirectory(prefix="quarterdeck-test-") as made:
        Path(made).chmod(0o755)
        yield Path(made)
