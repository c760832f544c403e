"""OpenCode as an adapter: its store is read, and its server is used where it listens.

    <folder>/opencode.db    its sessions (`store.py`)

The folder is ~/.local/share/opencode, or in XDG_DATA_HOME; OPENCODE_DB names another file. What is
recorded comes from the store alone, so nothing is recorded twice or lost, whether a server listens
or not. The server says which sessions are open, asks for permission, and takes answers and prompts
(`live.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from quarterdeck.agents.adapters.file_adapter import Abilities, LiveFileAdapter
from quarterdeck.agents.adapters.opencode.live import OpenCodeServers
from quarterdeck.agents.adapters.opencode.reader import StoreReader
from quarterdeck.agents.adapters.opencode.store import Store, StoredSession
from quarterdeck.views.context import AgentDataPaths, Cursor, ForeignSession

logger = logging.getLogger(__name__)

NAME: Final = "opencode"
_SETTLED_NANOSECONDS: Final = 100_000_000
ADVICE: Final = (
    "start OpenCode as `opencode --port 0`: then you can answer its permission requests here, and"
    " send it prompts"
)


class OpenCodeAdapter(LiveFileAdapter):
    """The sessions of OpenCode on this machine."""

    name = NAME
    advice = ADVICE

    abilities = Abilities(
        title="OpenCode",
        method="http",
        can_cancel=True,
        has_sub_agents=True,
        has_todos=True,
        has_git=False,
    )

    def __init__(self, environ: Mapping[str, str]) -> None:
        home = Path(environ.get("HOME") or Path.home())
        data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
        self._servers = OpenCodeServers(environ)
        super().__init__(environ, data / "opencode", self._servers)
        self.store = Store(str(self.folder / (environ.get("OPENCODE_DB") or "opencode.db")))
        self._found: tuple[ForeignSession, ...] = ()
        self._version: object = None
        self._problem = ""

    @override
    def get_data_paths(self) -> AgentDataPaths:
        home = Path(self._environ.get("HOME") or Path.home())
        config = Path(self._environ.get("XDG_CONFIG_HOME") or home / ".config")
        return AgentDataPaths(sessions=self.store.path, config=str(config / "opencode"))

    # ---- the store ----------------------------------------------------------------------------

    @override
    def find_sessions(self) -> Sequence[ForeignSession]:
        """Return the sessions; those of before if the store cannot be read now."""
        try:
            version = self.store.version()
            if version != self._version:
                path = Path(self.store.path)
                found = self.store.sessions() if path.exists() else ()
                self._found = tuple(map(self._described, found))
                self._problem = ""
                # A write just now may be followed by one that leaves size and time as they are.
                newest = max(changed for _, changed in version)
                is_settled = time.time_ns() - newest > _SETTLED_NANOSECONDS
                self._version = version if is_settled else None
        except OSError as error:
            if self._problem != str(error):
                self._problem = str(error)
                logger.warning(
                    "the sessions of OpenCode are not read", extra={"reason": str(error)}
                )
        return self._found

    def _described(self, stored: StoredSession) -> ForeignSession:
        return ForeignSession(
            id=stored.id,
            cwd=stored.cwd if stored.cwd.startswith("/") else "",
            path=self.store.path,
            size=stored.size,
            changed_at=stored.changed_at,
            title=stored.title or None,
            parent_id=stored.parent_id,
        )

    @override
    def open_reader(self, session: ForeignSession, after: Cursor | None, at: int) -> StoreReader:
        return StoreReader(self.store, session, after, at)

    # ---- the server ---------------------------------------------------------------------------

    @override
    def find_running(self) -> Sequence[ForeignSession]:
        """Return what is open in servers; one that has another store has other sessions."""
        running = self._servers.running()
        known = {each.id for each in self.find_sessions()} if running else ()
        return [each for each in running if each.id in known]
