"""How agents were started, by name, so that they can be started again and a change is noticed.

The values of an agent's environment are not stored (INV-7): an agent that was started by command
with variables cannot be started again automatically.
"""

from __future__ import annotations

import logging
import shlex
import sqlite3
from collections.abc import Mapping
from typing import Any, Final

from quarterdeck.agents import KnownAgents
from quarterdeck.agents.installs import is_folder_name
from quarterdeck.errors import DatabaseFailed, RequestRejected
from quarterdeck.host import Host, resolve_agent_definition
from quarterdeck.http.remote_agent import shown_url
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol import AgentDefinition
from quarterdeck.runner.actor import not_found
from quarterdeck.runner.schema import now
from quarterdeck.storage.database import Database

_NAMES: Final = ("envNames", "headerNames")
logger = logging.getLogger(__name__)

_FACTS: Final = ("command", "args", "cwd", "envNames", "url", "headerNames")


class DefinitionStore:
    """The definitions in runner.db. Every method raises `DatabaseFailed` if SQLite fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> dict[str, dict[str, Any]]:
        """Return all definitions by name."""

        def look(connection: sqlite3.Connection) -> dict[str, dict[str, Any]]:
            rows = connection.execute("SELECT name, definition FROM agents")
            return {name: decode_json(definition) for name, definition in rows}

        return await self._database.read(look)

    async def put(self, name: str, definition: Mapping[str, Any]) -> None:
        """Store a definition in place of the earlier one of that name."""
        row = (name, encode_json(definition).decode(), now())

        def change(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO agents (name, definition, stored_at) VALUES (?, ?, ?)"
                " ON CONFLICT (name) DO UPDATE SET definition = excluded.definition,"
                " stored_at = excluded.stored_at",
                row,
            )

        await self._database.write(change)


class Definitions:
    """What is known by its name, and what was started by command."""

    def __init__(self, host: Host, store: DefinitionStore, known: KnownAgents) -> None:
        self._host = host
        self._store = store
        self._known = known
        self._stored: dict[str, dict[str, Any]] = {}

    async def load(self) -> None:
        self._stored = await self._store.all()

    def __contains__(self, name: str) -> bool:
        """Whether there is, or was, an agent of that name."""
        return name in self._known or name in self._stored

    def get(self, name: str) -> AgentDefinition:
        """Return how an agent is started.

        Raises:
            RequestRejected: if there is no such name, or not all that it was started with is known.
        """
        definition = self._known.definition(name)
        if definition is not None:
            return definition
        stored = self._stored.get(name)
        if stored is None or stored.get("isKnown"):  # then it was taken out of the configuration
            raise not_found(f"agent named {name!r}", "check its name in the list of known agents")
        secret = _secret_names(stored)
        if secret:
            names = ", ".join(secret)
            message = (
                f"agent {name!r} was started with {names}, whose values are not stored; "
                "add it to hub.toml, or start it again with them"
            )
            raise RequestRejected("not-startable", message)
        return resolve_agent_definition(
            {key: value for key, value in stored.items() if key not in _NAMES and value is not None}
        )

    def can_start(self, name: str) -> bool:
        """Whether `get` has an answer."""
        stored = self._stored.get(name)
        is_whole = stored is not None and not _secret_names(stored) and not stored.get("isKnown")
        return name in self._known or is_whole

    async def keep(self, definition: AgentDefinition) -> None:
        """Store how an agent was started by command.

        Raises:
            DatabaseFailed: if that fails.
        """
        kept = _kept(definition)
        self._report_change(kept)
        await self._put(kept)

    async def note(self, definition: AgentDefinition) -> None:
        """Remember what ran under a known name, only to notice when that changes."""
        kept = {**_kept(definition), "isKnown": definition.id in self._known}
        if not kept["isKnown"] or self._stored.get(definition.id) == kept:
            return
        self._report_change(kept)
        try:
            await self._put(kept)
        except DatabaseFailed as error:  # it runs all the same
            logger.warning("an agent was not noted", extra={"reason": str(error)})

    async def _put(self, kept: dict[str, Any]) -> None:
        self._stored[kept["id"]] = kept
        await self._store.put(kept["id"], kept)

    def _report_change(self, kept: Mapping[str, Any]) -> None:
        """Report that a name now means another program: its sessions continue with that."""
        before = self._stored.get(kept["id"])
        if before is None or _facts(before) == _facts(kept):
            return
        if self._is_installed(before) and self._is_installed(kept):
            return  # an update, which its owner ordered
        self._host.diagnose(
            "warn",
            "agent/definition-changed",
            f"agent {kept['id']!r} now starts with {_line(kept)} instead of {_line(before)}; its"
            " sessions continue with the new command",
            data={"before": _facts(before), "now": _facts(kept)},
        )

    def _is_installed(self, kept: Mapping[str, Any]) -> bool:
        """Return whether a definition starts what was installed here under its name."""
        installs = self._known.installs
        if installs is None or not is_folder_name(kept["id"]):
            return False
        folder = installs.agent(kept["id"]).path
        return str(kept["command"]).startswith(f"{folder}/")


def _kept(definition: AgentDefinition) -> dict[str, Any]:
    """Return what is stored of a definition."""
    return {
        "id": definition.id,
        "command": definition.command,
        "args": list(definition.args),
        "cwd": definition.cwd,
        "envNames": sorted(definition.env or ()),
        "url": definition.url,
        "headerNames": sorted(definition.headers or ()),
    }


def _facts(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is compared; a definition of an older version has no url."""
    facts = {each: kept.get(each) or None for each in _FACTS}
    return {**facts, "url": shown_url(kept["url"])} if facts["url"] else facts


def _secret_names(stored: Mapping[str, Any]) -> list[str]:
    """Return the names of variables and headers whose values are not stored."""
    return [name for key in _NAMES for name in stored.get(key) or ()]


def _line(kept: Mapping[str, Any]) -> str:
    if kept.get("url"):
        return shown_url(kept["url"])
    return shlex.join((kept["command"], *kept["args"]))
