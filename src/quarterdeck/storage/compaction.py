"""Compacts the files of a data folder that no hub uses."""

from __future__ import annotations

from pathlib import Path

from quarterdeck.machine.home_locks import BOTH, locked_home
from quarterdeck.storage.check import HUB, LOG, RUNNER
from quarterdeck.storage.contract import CompactedFile
from quarterdeck.storage.database import vacuum_file
from quarterdeck.storage.sqlite import SqliteStorage


async def compact_folder(home: Path) -> list[CompactedFile]:
    """Compact the log and the databases of a folder.

    Raises:
        StartRefused: if another process uses the folder.
        StorageFailed: if there is no room for a copy of the log.
    """
    files: list[CompactedFile] = []
    with locked_home(home, *BOTH):
        if (home / LOG).exists():
            storage = SqliteStorage(home / LOG)
            await storage.open()
            try:
                before, _ = await storage.compact()
            finally:
                await storage.close()
            after = (home / LOG).stat().st_size
            files.append(CompactedFile(file=LOG, before=before, after=after))
        files += [vacuum_file(home / name) for name in (RUNNER, HUB) if (home / name).exists()]
    return files
