"""Runs one command on a data folder in a process that is killed at one of its steps.

A step is an operation on a file: opening it for writing, renaming, removing, linking, making a
folder, connecting to a database, or calling into C (the exchange of two folders).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio

from quarterdeck.storage.backup import restore_backup, write_backup
from quarterdeck.storage.compaction import compact_folder
from quarterdeck.storage.repair import repair_folder

STEPS = {
    "os.rename", "os.remove", "os.link", "os.mkdir", "os.truncate", "os.rmdir", "shutil.rmtree",
    "shutil.copyfile", "sqlite3.connect", "ctypes.dlsym", "os.chmod",
}  # fmt: skip


def run(command: str, home: Path, other: Path) -> None:
    if command == "backup":
        write_backup(home, other)
    elif command == "restore":
        restore_backup(other, home)
    elif command == "repair":
        repair_folder(home)
    else:
        anyio.run(compact_folder, home)


def main(command: str, home: Path, other: Path, step: int) -> None:
    left = step

    def on_audit(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        is_write = event == "open" and isinstance(arguments[2], int)
        is_write = is_write and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        if event in STEPS or is_write:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(on_audit)
    run(command, home, other)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
