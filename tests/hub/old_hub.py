"""A hub.db as it was before runner.db existed; run as a program, it is opened and killed midway.

The program opens the files of a data directory as a hub does, in a child process that kills itself
at its n-th SQL statement, for n = 1, 2, 3 … until one child gets to the end. After each child it
writes which tables each file has, and, after one more opening that is not killed, how many rows.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from quarterdeck.hub.store import HUB_TABLES, MOVED
from quarterdeck.runner.schema import RUNNER_TABLES
from quarterdeck.storage import database, row_sums

RUNNER, HUB = ("agents", "prompts", "decisions"), ("devices", "device_log", "pairings")
PUSH = "push_subscriptions"

SCHEMA = """
PRAGMA application_id = 0x51646862;
CREATE TABLE parts (name TEXT PRIMARY KEY, version INTEGER NOT NULL);
INSERT INTO parts VALUES ('agents', 1), ('prompts', 1), ('decisions', 1), ('devices', 2),
    ('device_log', 1), ('pairings', 1), ('push', 1);
CREATE TABLE agents (name TEXT PRIMARY KEY, definition TEXT NOT NULL, stored_at TEXT NOT NULL);
CREATE TABLE prompts (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
    key TEXT NOT NULL, digest BLOB NOT NULL, blocks TEXT NOT NULL, is_urgent INTEGER NOT NULL,
    state TEXT NOT NULL, after_seq INTEGER, seq INTEGER, stop_reason TEXT, error TEXT, by TEXT,
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL, UNIQUE (session_id, key));
CREATE INDEX prompts_open ON prompts (session_id, state) WHERE state IN ('queued', 'running');
CREATE TABLE decisions (id INTEGER PRIMARY KEY AUTOINCREMENT, request_id TEXT NOT NULL UNIQUE,
    session_id TEXT, agent TEXT, digest TEXT NOT NULL, asked TEXT NOT NULL, state TEXT NOT NULL,
    outcome TEXT, kind TEXT, by TEXT, key TEXT, is_delivered INTEGER NOT NULL DEFAULT 0,
    asked_at TEXT NOT NULL, decided_at TEXT);
CREATE INDEX decisions_open ON decisions (state) WHERE state = 'pending';
CREATE INDEX decisions_of_session ON decisions (session_id, id);
CREATE TABLE devices (id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL,
    token_hash BLOB NOT NULL UNIQUE, created_at TEXT NOT NULL, last_seen_at TEXT, expires_at TEXT,
    revoked_at TEXT);
ALTER TABLE devices ADD COLUMN last_address TEXT;
ALTER TABLE devices ADD COLUMN user_agent TEXT;
ALTER TABLE devices ADD COLUMN next_token_hash BLOB;
CREATE TABLE device_log (id INTEGER PRIMARY KEY AUTOINCREMENT, device_id TEXT NOT NULL,
    what TEXT NOT NULL, name TEXT NOT NULL, address TEXT, user_agent TEXT, at TEXT NOT NULL);
CREATE TABLE pairings (id TEXT PRIMARY KEY, short_hash BLOB NOT NULL UNIQUE,
    long_hash BLOB NOT NULL UNIQUE, name TEXT NOT NULL, scope TEXT NOT NULL, device_seconds REAL,
    created_at TEXT NOT NULL, expires REAL NOT NULL, used_at TEXT, device_id TEXT);
CREATE TABLE push_subscriptions (device_id TEXT PRIMARY KEY, endpoint TEXT NOT NULL,
    p256dh TEXT NOT NULL, auth TEXT NOT NULL, kinds TEXT NOT NULL, problem TEXT,
    created_at TEXT NOT NULL);
"""
AT = "2026-01-01T00:00:00Z"
ROWS = f"""
INSERT INTO agents VALUES ('mine', '{{"id":"mine","command":"x","args":[],"cwd":null,"envNames":[]}}', '{AT}');
INSERT INTO prompts (id, session_id, key, digest, blocks, is_urgent, state, created_at, updated_at)
    VALUES (3, 's', 'waits', x'00', '[{{"type":"text","text":"hello"}}]', 0, 'queued', '{AT}', '{AT}'),
           (4, x'73eda080', 'odd', x'01', '[]', 1, 'done', '{AT}', '{AT}'),
           (9, 's', 'removed', x'02', '[]', 0, 'done', '{AT}', '{AT}');
DELETE FROM prompts WHERE id = 9;
INSERT INTO decisions (request_id, session_id, digest, asked, state, outcome, by, is_delivered,
    asked_at, decided_at) VALUES ('perm-1', 's', 'd', '{{"title":"x"}}', 'answered',
    '{{"outcome":"selected","optionId":"a"}}', '{{"kind":"device","deviceId":"dev_1"}}', 1, '{AT}', '{AT}');
INSERT INTO devices (id, name, scope, token_hash, created_at)
    VALUES ('dev_1', 'phone', 'approve', x'aa', '{AT}');
INSERT INTO device_log (device_id, what, name, at) VALUES ('dev_1', 'paired', 'phone', '{AT}');
INSERT INTO pairings VALUES ('pair_1', x'01', x'02', 'new', 'view', NULL, '{AT}', 9e9, NULL, NULL);
INSERT INTO push_subscriptions VALUES ('dev_1', 'https://push', 'p', 'a', '{{"approvals":false,"failed":false}}', NULL, '{AT}');
"""  # noqa: E501


def make_old_hub(folder: Path) -> None:
    """Write the hub.db of a version without runner.db."""
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "hub.db"
    path.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(SCHEMA + ROWS)
        connection.commit()


def rows(path: Path) -> dict[str, list[Any]]:
    """Return all rows of the tables of a file, and the numbers it has given."""
    if not path.exists():
        return {}
    with closing(sqlite3.connect(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            name: connection.execute(f"SELECT * FROM {name}").fetchall()
            for (name,) in names.fetchall()
            if name != row_sums.NAME
        }


def open_once(folder: Path) -> None:
    """Open both files as a hub does, and close them."""
    runner, hub = folder / "runner.db", folder / "hub.db"
    database._close(database._open(runner, RUNNER_TABLES, hub))  # noqa: SLF001
    database._close(database._open(hub, HUB_TABLES, None, MOVED))  # noqa: SLF001


class _Mortal(sqlite3.Connection):
    """Kills its process at a statement."""

    left = 0

    def execute(self, *args: Any) -> sqlite3.Cursor:  # type: ignore[explicit-override]
        _Mortal.left -= 1
        if _Mortal.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(*args)


def _die_at(statement: int, folder: Path) -> bool:
    """Open the files in a child that is killed before a statement; return whether it was."""
    child = os.fork()
    if child == 0:
        _Mortal.left = statement
        connect = sqlite3.connect
        sqlite3.connect = lambda *args, **more: connect(*args, **more, factory=_Mortal)  # type: ignore[assignment]
        open_once(folder)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def main(folder: Path) -> None:
    statement, is_killed = 0, True
    make_old_hub(folder / "old")
    while is_killed:
        home = folder / str(statement)
        shutil.copytree(folder / "old", home)
        is_killed = _die_at(statement, home)
        found = {"runner": [*rows(home / "runner.db")], "hub": [*rows(home / "hub.db")]}
        open_once(home)
        after = {**rows(home / "hub.db"), **rows(home / "runner.db")}
        counts = {name: len(after[name]) for name in (*RUNNER, *HUB, PUSH)}
        report = {"killed": is_killed, "found": found, "counts": counts}
        sys.stdout.write(json.dumps(report) + "\n")
        shutil.rmtree(home)
        statement += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
