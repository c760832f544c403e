"""Where Claude Code keeps its sessions, and which of them are open now.

    <folder>/projects/<project>/<session>.jsonl                       the transcript of a session
    <folder>/projects/<project>/<session>/subagents/agent-<id>.jsonl  that of a sub-agent
    <folder>/projects/<project>/<session>/subagents/agent-<id>.meta.json  the call that started it
    <folder>/sessions/<pid>.json                                      a session that is open

The folder is ~/.claude, or CLAUDE_CONFIG_DIR. Nothing here is ever written to. The name of a
project does not say which folder it is, so that is read from the beginning of a transcript, once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from quarterdeck.agents.adapters.program_files import entries, folder_in_head, head
from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json
from quarterdeck.views.context import ForeignSession

_MOST_FACTS: Final = 1 << 20  # bytes of a small file; one that is larger is not what it should be
_SUFFIX: Final = ".jsonl"
_BEGAN: Final = 19  # field of /proc/PID/stat after the name: when the process began


def folder_of(environ: Mapping[str, str]) -> Path:
    """Return the folder of Claude Code's files."""
    given = environ.get("CLAUDE_CONFIG_DIR")
    return Path(given) if given else Path(environ.get("HOME") or Path.home()) / ".claude"


class ClaudeFiles:
    """Finds transcripts and running sessions; remembers the folder of each transcript."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._folders: dict[str, str] = {}  # of sessions, by the paths of their transcripts
        self._facts: dict[str, tuple[int, dict[str, Any]]] = {}  # of small files, by path

    # ---- transcripts -----------------------------------------------------------------------

    def find(self) -> list[ForeignSession]:
        """Return all sessions and sub-agents, in no order."""
        return [
            session
            for project in _folders_in(self.folder / "projects")
            for session in self._of_project(project)
        ]

    def _of_project(self, project: str) -> Iterator[ForeignSession]:
        for entry in entries(project):
            if entry.name.endswith(_SUFFIX):
                found = self._session(entry, entry.name[: -len(_SUFFIX)])
                if found is not None:
                    yield found
            elif entry.is_dir(follow_symlinks=False):
                yield from self._sub_agents(entry.name, f"{entry.path}/subagents")

    def _sub_agents(self, parent_id: str, folder: str) -> Iterator[ForeignSession]:
        for entry in entries(folder):
            if not entry.name.endswith(_SUFFIX):
                continue
            name = entry.name[: -len(_SUFFIX)]
            facts = self._small_file(f"{folder}/{name}.meta.json")
            call_id, title = facts.get("toolUseId"), facts.get("description")
            found = self._session(
                entry,
                name,
                parent_id=parent_id,
                parent_call_id=call_id if isinstance(call_id, str) else None,
                title=title if isinstance(title, str) else None,
            )
            if found is not None:
                yield found

    def _session(
        self, entry: os.DirEntry[str], session_id: str, **facts: Any
    ) -> ForeignSession | None:
        try:
            if not entry.is_file():
                return None
            status = entry.stat()
        except OSError:  # deleted meanwhile
            return None
        return ForeignSession(
            id=session_id,
            cwd=self._cwd(entry.path),
            path=entry.path,
            size=status.st_size,
            changed_at=status.st_mtime_ns // 1_000_000,
            **facts,
        )

    def _cwd(self, path: str) -> str:
        known = self._folders.get(path)
        if known is not None:
            return known
        cwd = folder_in_head(path)
        if not cwd:
            return ""  # not written yet; it is looked for again
        self._folders[path] = cwd
        return cwd

    # ---- running sessions ------------------------------------------------------------------

    def running(self) -> list[ForeignSession]:
        """Return the sessions that a process has open now."""
        found = []
        for entry in entries(str(self.folder / "sessions")):
            pid, _, suffix = entry.name.partition(".")
            if suffix != "json" or not pid.isdecimal() or not _is_alive(int(pid)):
                continue
            facts = self._small_file(entry.path)
            if _is_another(int(pid), facts.get("procStart")):
                continue
            session_id, cwd = facts.get("sessionId"), facts.get("cwd")
            if isinstance(session_id, str) and isinstance(cwd, str):
                found.append(_running(session_id, cwd, int(pid), facts))
        return found

    def _small_file(self, path: str) -> dict[str, Any]:
        """Return the object in a small file; an empty one if it cannot be read."""
        try:
            changed = os.stat(path).st_mtime_ns  # noqa: PTH116 - called for each file, each second
        except OSError:
            return {}
        known = self._facts.get(path)
        if known is not None and known[0] == changed:
            return known[1]
        try:
            facts = decode_json(head(path, _MOST_FACTS))
        except JsonInvalid:  # half-written
            return {} if known is None else known[1]
        read = facts if isinstance(facts, dict) else {}
        self._facts[path] = (changed, read)
        return read


def _running(session_id: str, cwd: str, pid: int, facts: Mapping[str, Any]) -> ForeignSession:
    status, waiting_for, title = facts.get("status"), facts.get("waitingFor"), facts.get("name")
    changed = facts.get("statusUpdatedAt")
    return ForeignSession(
        id=session_id,
        cwd=cwd,
        title=title if isinstance(title, str) else None,
        changed_at=changed if isinstance(changed, int) else 0,
        is_running=True,
        status=status if status in ("idle", "busy", "waiting") else "unknown",
        waiting_for=waiting_for if isinstance(waiting_for, str) else "",
        pid=pid,
    )


def _folders_in(folder: Path) -> list[str]:
    return [entry.path for entry in entries(str(folder)) if entry.is_dir()]


def _is_another(pid: int, began: Any) -> bool:
    """Return whether a process has ended, or has the number of one that has; on Linux."""
    status = head(f"/proc/{pid}/stat", _MOST_FACTS)
    fields = status.rpartition(b")")[2].split()
    if len(fields) <= _BEGAN:
        return False
    is_known = isinstance(began, str) and began.isdecimal()
    return fields[0] == b"Z" or (is_known and fields[_BEGAN] != began.encode())


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # it has ended, or is no number of a process
        return False
    except OSError:  # of another user
        return True
    return True
