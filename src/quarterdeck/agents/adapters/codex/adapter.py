"""Codex as an adapter: its rollout files are read, and its daemon is asked what runs.

    <folder>/sessions/YYYY/MM/DD/rollout-<time>-<session>.jsonl
    <folder>/archived_sessions/rollout-<time>-<session>.jsonl

The folder is ~/.codex, or CODEX_HOME. The files are the record; the daemon (`daemon`) says which
sessions are open, shows texts before they are in the file, asks for permission, and takes prompts.
Without it, sessions are read all the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from quarterdeck.agents.adapters.codex.daemon import CodexDaemon
from quarterdeck.agents.adapters.codex.live_items import LiveItems
from quarterdeck.agents.adapters.codex.reader import CodexReader
from quarterdeck.agents.adapters.file_adapter import Abilities, LiveFileAdapter
from quarterdeck.agents.adapters.program_files import entries, folder_in_head
from quarterdeck.views.context import AgentDataPaths, Cursor, ForeignSession

NAME: Final = "codex"
_PREFIX, _SUFFIX = "rollout-", ".jsonl"
_ID: Final = 36  # characters of a session's id, at the end of the name


class CodexAdapter(LiveFileAdapter):
    """The sessions of Codex on this machine."""

    name = NAME
    abilities = Abilities(
        title="Codex",
        method="file-watch",
        streams_messages=True,
        can_cancel=True,
        has_context_window=True,
        is_multimodal=False,
    )

    def __init__(self, environ: Mapping[str, str]) -> None:
        given = environ.get("CODEX_HOME")
        home = Path(environ.get("HOME") or Path.home())
        folder = Path(given) if given else home / ".codex"
        self.daemon = CodexDaemon(folder, LiveItems())
        super().__init__(environ, folder, self.daemon)
        self._folders: dict[str, str] = {}  # of sessions, by the paths of their files

    @override
    def get_data_paths(self) -> AgentDataPaths:
        folder = self.folder
        return AgentDataPaths(sessions=str(folder / "sessions"), config=str(folder / "config.toml"))

    @override
    def find_sessions(self) -> Sequence[ForeignSession]:
        names = ("sessions", "archived_sessions")
        files = [each for name in names for each in _files(str(self.folder / name), depth=3)]
        return [found for each in files if (found := self._session(each)) is not None]

    def _session(self, entry: os.DirEntry[str]) -> ForeignSession | None:
        try:
            status = entry.stat()
        except OSError:  # deleted meanwhile
            return None
        cwd = self._folders.get(entry.path) or folder_in_head(entry.path)
        if cwd:
            self._folders[entry.path] = cwd
        return ForeignSession(
            id=entry.name[: -len(_SUFFIX)][-_ID:],
            cwd=cwd,
            path=entry.path,
            size=status.st_size,
            changed_at=status.st_mtime_ns // 1_000_000,
        )

    @override
    def find_running(self) -> Sequence[ForeignSession]:
        return self.daemon.running()

    @override
    def open_reader(self, session: ForeignSession, after: Cursor | None, at: int) -> CodexReader:
        return CodexReader(session, after, at, self.daemon.items)


def _files(folder: str, depth: int) -> Iterator[os.DirEntry[str]]:
    """Iterate over the rollout files in a folder and at most so many levels below it."""
    for entry in entries(folder):
        if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX):
            if entry.is_file():
                yield entry
        elif depth and entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path, depth - 1)
