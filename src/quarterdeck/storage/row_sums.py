"""A checksum for every row of a small database, beside the tables that it is about.

`row_sums` has a row for each row of every other table, for the schema, and a count of all changes.
Triggers of the writing connection keep it up to date, so no store has to know of it. They are
temporary: another program that writes the file leaves sums that do not match, which is found.

What is found when a database is opened (`find_damage`): a row that differs from what was stored, a
row that is gone, a row that was not stored, and another schema. The count is also in the mark
beside the file (`mark`): a file with a lower one has lost its last changes, such as the revocation
of a device.

Rows are named by their rowid. VACUUM keeps it for every table that has an index, as all here have.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, Final
from zlib import crc32

NAME: Final = "row_sums"
CHANGES: Final = ("", 0)
_SCHEMA: Final = ("", 1)
_MOST: Final = 5
"""Damages that are named; a damaged page has many rows."""
_TAGS: Final = {int: b"i", float: b"f", str: b"s", bytes: b"b"}


def create_sums(connection: sqlite3.Connection) -> None:
    """Create the table; `seal` fills it."""
    connection.execute(
        f"CREATE TABLE {NAME} (tab TEXT NOT NULL, row INTEGER NOT NULL, sum INTEGER NOT NULL,"
        " PRIMARY KEY (tab, row)) WITHOUT ROWID"
    )


def has_sums(connection: sqlite3.Connection) -> bool:
    """Return whether the database has the table."""
    query = "SELECT count(*) FROM sqlite_master WHERE name = ?"
    return bool(connection.execute(query, (NAME,)).fetchone()[0])


def row_sum(*values: Any) -> int:
    """Return the checksum of the values of a row."""
    sum_ = 0
    for value in values:
        data = _bytes(value)
        sum_ = crc32(b"%b%d:%b" % (_TAGS.get(type(value), b"n"), len(data), data), sum_)
    return sum_


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape" if _is_escaped(value) else "surrogatepass")
    return repr(value).encode()


def _is_escaped(value: str) -> bool:
    return any("\udc80" <= letter <= "\udcff" for letter in value) if not value.isascii() else False


def seal(connection: sqlite3.Connection) -> None:
    """Compute all sums anew, in the caller's transaction: the rows are as they should be."""
    changes = count_changes(connection)
    connection.execute(f"DELETE FROM {NAME}")  # noqa: S608 - ours
    for table, columns in _tables(connection):
        rows = ((table, row, sum_) for row, sum_ in _sums(connection, table, columns))
        connection.executemany(f"INSERT INTO {NAME} VALUES (?, ?, ?)", rows)  # noqa: S608 - ours
    facts = [(*_SCHEMA, _schema_sum(connection)), (*CHANGES, changes + 1)]
    connection.executemany(f"INSERT INTO {NAME} VALUES (?, ?, ?)", facts)  # noqa: S608 - ours


def keep_sums(connection: sqlite3.Connection) -> None:
    """Keep the sums up to date with everything that this connection writes."""
    connection.create_function("row_sum", -1, row_sum, deterministic=True)
    connection.execute("PRAGMA recursive_triggers=ON")  # REPLACE deletes rows, too
    for table, columns in _tables(connection):
        new = ", ".join(f'NEW."{column}"' for column in columns)
        remove = f"DELETE FROM {NAME} WHERE tab = '{table}' AND row = OLD.rowid;"  # noqa: S608 - ours
        add = f"INSERT OR REPLACE INTO {NAME} VALUES ('{table}', NEW.rowid, row_sum({new}));"  # noqa: S608 - ours
        for event, body in (("INSERT", add), ("UPDATE", remove + add), ("DELETE", remove)):
            connection.execute(
                f"CREATE TEMP TRIGGER sum_{table}_{event} AFTER {event} ON main.{table}"
                f" BEGIN {body} END"
            )


def count_changes(connection: sqlite3.Connection) -> int:
    """Return how many changes the database has had."""
    query = f"SELECT sum FROM {NAME} WHERE tab = ? AND row = ?"  # noqa: S608 - ours
    found = connection.execute(query, CHANGES).fetchone()
    return found[0] if found is not None and isinstance(found[0], int) else 0


def add_change(connection: sqlite3.Connection) -> int:
    """Count a change, in its transaction; return the count."""
    connection.execute(
        f"UPDATE {NAME} SET sum = sum + 1 WHERE tab = ? AND row = ?",  # noqa: S608 - ours
        CHANGES,
    )
    return count_changes(connection)


def find_damage(connection: sqlite3.Connection) -> list[str]:
    """Return a clause for each row that is not what was stored, and for a changed schema."""
    query = f"SELECT tab, row, sum FROM {NAME}"  # noqa: S608 - ours
    known = {(tab, row): sum_ for tab, row, sum_ in connection.execute(query)}
    found: list[str] = []
    if known.pop(_SCHEMA, None) != _schema_sum(connection):
        found.append("its tables are not as they were made")
    if not isinstance(known.pop(CHANGES, None), int):
        found.append("the count of its changes is wrong")
    for table, columns in _tables(connection):
        for row, sum_ in _sums(connection, table, columns):
            stored = known.pop((table, row), None)
            if stored is None:
                found.append(f"row {row} of {table} was not stored by this program")
            elif stored != sum_:
                found.append(f"row {row} of {table} is not what was stored")
    found += [f"row {row} of {table} is missing" for table, row in known]
    more = len(found) - _MOST
    return found if more <= 0 else [*found[:_MOST], f"and {more} rows more"]


def bad_rows(connection: sqlite3.Connection) -> dict[str, list[int]]:
    """Return the rows that differ from what was stored, by table."""
    query = f"SELECT sum FROM {NAME} WHERE tab = ? AND row = ?"  # noqa: S608 - ours
    found: dict[str, list[int]] = {}
    for table, columns in _tables(connection):
        for row, sum_ in _sums(connection, table, columns):
            stored = connection.execute(query, (table, row)).fetchone()
            if stored is None or stored[0] != sum_:
                found.setdefault(table, []).append(row)
    return found


def _tables(connection: sqlite3.Connection) -> list[tuple[str, list[str]]]:
    names = connection.execute(
        "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        " ORDER BY name"
    ).fetchall()
    return [
        (name, [row[1] for row in connection.execute(f'PRAGMA main.table_info("{name}")')])
        for (name,) in names
        if name != NAME
    ]


def _sums(
    connection: sqlite3.Connection, table: str, columns: list[str]
) -> Iterator[tuple[int, int]]:
    listed = ", ".join(f'"{column}"' for column in columns)
    query = f'SELECT rowid, {listed} FROM main."{table}" NOT INDEXED'  # noqa: S608 - names of our tables
    for row in connection.execute(query):
        yield row[0], row_sum(*row[1:])


def _schema_sum(connection: sqlite3.Connection) -> int:
    query = "SELECT type, name, tbl_name, sql FROM main.sqlite_master ORDER BY type, name"
    return row_sum(*(value for row in connection.execute(query) for value in row))
