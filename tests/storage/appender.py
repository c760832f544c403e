"""Appends to a log until it is killed; prints `session seq` after each acknowledgement."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio

from tests.storage.support import ANY_STORAGE, last_seqs, meta, opened, run_of


async def main(kind: str, folder: Path) -> None:
    async with opened(ANY_STORAGE[kind](folder)) as storage:
        known = await last_seqs(storage)

        async def write(session_id: str, size: int) -> None:
            seq = known.get(session_id, 0)
            while True:
                await storage.append([meta(session_id), *run_of(session_id, seq + 1, seq + size)])
                seq += size
                os.write(1, f"{session_id} {seq}\n".encode())

        async with anyio.create_task_group() as tasks:
            for number, size in enumerate((1, 3, 40)):
                tasks.start_soon(write, f"s{number}", size)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], Path(sys.argv[2]))
