"""Names that shells complete: of agents and of sessions, without asking a hub or starting one.

Ids of sessions are chosen by agents, and shells expand what they complete: only those are offered
that are nothing but a word.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
_MOST: Final = 200  # the newest: nobody reads more
_SECONDS: Final = 0.5  # somebody waits with a finger on the key


def session_words(home: Path) -> list[str]:
    """Return the ids of the newest sessions in a data directory; none if it cannot be read."""
    query = "SELECT session_id FROM sessions ORDER BY id DESC LIMIT ?"
    address = f"file:{quote(str(home / 'log.db'))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_SECONDS)) as connection:
            return words(str(row[0]) for row in connection.execute(query, (_MOST,)))
    except sqlite3.Error:
        return []


def agent_words(environ: Mapping[str, str]) -> list[str]:
    """Return the names of agents that can be started here."""
    # A part of the hub, which the other words do not need.
    from quarterdeck.cli.hub_config import HubConfig, load_config  # noqa: PLC0415
    from quarterdeck.errors import SettingsInvalid  # noqa: PLC0415
    from quarterdeck.server.known_agents import KnownAgents  # noqa: PLC0415

    try:
        config = load_config(environ)
    except SettingsInvalid:
        config = HubConfig()
    known = KnownAgents(config.agents, environ).all()
    return words(each.name for each in known if each.installed)


def words(names: Iterable[str]) -> list[str]:
    """Leave out what is more than a word to a shell."""
    return [name for name in names if _WORD.fullmatch(name)]
