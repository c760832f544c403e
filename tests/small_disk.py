"""A disk that is really full: a small file system of its own, or a limit on the size of files."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DISK_BYTES = 8 << 20
FILE_BYTES = 256 << 10  # as large as a reserve
PIECE = 4096


class SmallDisk:
    """A folder whose file system can be filled and emptied."""

    def __init__(self, folder: Path, *, is_mounted: bool) -> None:
        self.folder = folder
        self.is_mounted = is_mounted
        self._filler = folder / "filler"
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self) -> None:
        """Use up all space; small writes may still find some in files that they have."""
        if not self.is_mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, self._limits[1]))
            return
        with self._filler.open("ab", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(PIECE))
            except OSError:
                return

    def free(self) -> None:
        """Make room again."""
        self._filler.unlink(missing_ok=True)
        if self.is_mounted:
            larger = ["mount", "-o", f"remount,size={16 * DISK_BYTES}", str(self.folder)]
            subprocess.run(larger, check=True, capture_output=True)
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """Yield a small disk at `folder`: mounted if this user may, else with a limit on files."""
    folder.mkdir(mode=0o700, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "none", str(folder)]
    is_root = os.geteuid() == 0
    is_mounted = is_root and subprocess.run(mount, check=False, capture_output=True).returncode == 0
    disk = SmallDisk(folder, is_mounted=is_mounted)
    try:
        yield disk
    finally:
        disk.free()
        if is_mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)
