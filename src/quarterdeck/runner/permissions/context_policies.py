"""Permission policies of the Agent Context Protocol: one for each session that has one.

They are rules like the owner's and are decided together with them, by the same function and at the
same time: before a request can be seen. A rule that denies wins, the owner's or not. So a context
policy can narrow what the owner's rules allow, and it can allow what they leave to a person, but it
never allows what they deny. Its decisions are in the audit under the names below.

A policy is stored in runner.db, so it survives a restart. It ends with its session. A host without
a runner keeps such a policy in memory instead (`Host.set_session_policy`).
"""

from __future__ import annotations

import sqlite3
from typing import Final

import msgspec
from msgspec.structs import replace

from quarterdeck.policy import PermissionPolicy, Policy, Rule, policy_of
from quarterdeck.runner.schema import column_of, id_of_column, now
from quarterdeck.storage.database import Database

_NAMES: Final = {
    "autoApprove": "context policy: autoApprove",
    "autoDeny": "context policy: autoDeny",
}
_decode = msgspec.json.Decoder(PermissionPolicy).decode


class ContextPolicies:
    """The context policies of all sessions, in memory and in runner.db."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rules: dict[str, tuple[Rule, ...]] = {}

    async def load(self) -> None:
        """Read what is stored; a row that cannot be read denies everything in its session.

        Raises:
            DatabaseFailed: if SQLite does.
        """
        query = "SELECT session_id, policy FROM context_policies"
        rows = await self._database.read(lambda connection: connection.execute(query).fetchall())
        self._rules = {id_of_column(session_id): _read(text) for session_id, text in rows}

    async def set(self, session_id: str, policy: PermissionPolicy, by: str) -> None:
        """Store a policy; it decides from the moment it is stored.

        Raises:
            DatabaseFailed: if SQLite does.
        """
        text = msgspec.json.encode(policy).decode()
        await self._database.write(
            lambda connection: connection.execute(
                "INSERT INTO context_policies VALUES (?, ?, ?, ?) ON CONFLICT (session_id)"
                " DO UPDATE SET policy = excluded.policy, set_by = excluded.set_by,"
                " set_at = excluded.set_at",
                (column_of(session_id), text, by, now()),
            )
        )
        self._rules[session_id] = _rules_of(policy)

    def forget(self, session_id: str) -> None:
        """Drop the policy of a session that is deleted; the store removes its row."""
        self._rules.pop(session_id, None)

    def with_owner(self, owner: Policy, session_id: str) -> Policy:
        """Return the rules of a session: the owner's, then those of its context policy."""
        rules = self._rules.get(session_id)
        return owner if rules is None else replace(owner, rule=(*owner.rule, *rules))


def forget_policy(connection: sqlite3.Connection, session_id: str) -> None:
    """Remove the stored policy of a session, inside a transaction."""
    column = column_of(session_id)
    connection.execute("DELETE FROM context_policies WHERE session_id = ?", (column,))


def _read(text: str) -> tuple[Rule, ...]:
    try:
        return _rules_of(_decode(text))
    except msgspec.MsgspecError:
        name = "context policy: unreadable"
        return (
            Rule(decision="deny", name=name, reads=True, writes=True, commands=True, searches=True),
        )


def _rules_of(policy: PermissionPolicy) -> tuple[Rule, ...]:
    return tuple(replace(rule, name=_NAMES[rule.name or ""]) for rule in policy_of(policy).rule)
