"""Folders that no session can use: the hub's data and configuration.

They are recognised by device and inode, not by name: a symbolic link, `..`, another spelling on a
file system that ignores case, `/proc/self/root` and a bind mount lead to the same answer as the
path itself. What is inside such a folder is recognised in the same way, for hard links to its files
and for bind mounts of a part of it; a folder with more than `_MOST_ENTRIES` is checked up to there.

With anything hidden, `/proc` is, too: a service of the hub that reads files for agents would show
them the hub's own environment and memory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

Identity = tuple[int, int]
"""The device and inode of a file or folder."""

HIDDEN_VARIABLE: Final = "QUARTERDECK_HIDDEN_FOLDERS"
"""Holds their paths in the environment of agents, separated as in PATH."""
_MOST_ENTRIES: Final = 10_000


class HiddenFolders:
    """Hidden folders, and hidden files outside them; empty, it hides nothing."""

    def __init__(
        self, paths: Iterable[str | Path] = (), *, public: Iterable[str | Path] = ()
    ) -> None:
        """Hide `paths`; what is in the `public` folders beneath them is not secret by itself.

        Those are hidden like all else, but a hard link or a bind mount of theirs elsewhere is not:
        installed agents have more files than could be compared.
        """
        self._public = frozenset(str(Path(path).resolve()) for path in public)
        self.paths = tuple(dict.fromkeys(str(Path(path).resolve()) for path in paths))
        self._proc = _device("/proc") if self.paths else None

    def __bool__(self) -> bool:
        return bool(self.paths)

    def folders(self) -> frozenset[Identity]:
        """Return the identities of those that exist now."""
        found = set()
        for path in self.paths:
            with suppress(OSError):  # it does not exist yet
                found.add(identity(os.stat(path)))  # noqa: PTH116 - of a path of any bytes
        return frozenset(found)

    def everything(self) -> frozenset[Identity]:
        """Return the identities of those that exist now, and of all that is inside them."""
        return self.folders().union(*(_entries(path, self._public) for path in self.paths))

    def is_hidden_device(self, device: int) -> bool:
        return device == self._proc

    def contains(self, path: str | Path) -> bool:
        """Return whether a path is, or leads into, a hidden folder; the path need not exist."""
        if not self.paths:
            return False
        hidden = self.everything()
        real = Path(path).resolve()
        for each in (real, *real.parents):
            with suppress(OSError):  # missing, or not readable
                if identity(each.stat()) in hidden:
                    return True
        return any(real.is_relative_to(each) for each in self.paths)


NOTHING_HIDDEN: Final = HiddenFolders()


def identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _device(path: str) -> int | None:
    try:
        return os.stat(path).st_dev  # noqa: PTH116 - as above
    except OSError:
        return None


def _entries(folder: str, public: frozenset[str]) -> Iterator[Identity]:
    """Yield the identities of what is in a folder and below it, links not followed."""
    pending, left = [folder], _MOST_ENTRIES
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                yield identity(status)
                if stat.S_ISDIR(status.st_mode) and entry.path not in public:
                    pending.append(entry.path)
                left -= 1
                if left == 0:
                    return
