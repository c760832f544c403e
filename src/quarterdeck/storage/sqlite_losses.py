"""What a log in SQLite has lost: compared with its mark, and recorded with its epoch."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence

from quarterdeck.storage.integrity import Damage
from quarterdeck.storage.mark import MarkReading, Slot
from quarterdeck.storage.sqlite_rows import Head, missing
from quarterdeck.storage.sqlite_schema import Transaction, column_of, session_of


def lost_events(heads: Mapping[str, Head], reading: MarkReading) -> list[Damage]:
    """Return what the mark of a log has and the log does not."""
    slots = dict(reading.slots)
    lost: list[Damage] = []
    for session_id, head in heads.items():
        slot = slots.pop(head.id, None)
        # With another name its record is damaged, which was found already.
        if slot is not None and head.last_seq < slot.last_seq and head.name == slot.name:
            lost.append(missing(session_id, head.last_seq + 1, slot.last_seq))
    lost += [missing(None, 1, slot.last_seq) for slot in slots.values() if slot.last_seq > 0]
    return lost


def longer_slots(heads: Mapping[str, Head], reading: MarkReading) -> dict[int, Slot]:
    """Return the slots of a mark whose sessions were longer than they are."""
    stored = {head.id: head.last_seq for head in heads.values()}
    return {id_: slot for id_, slot in reading.slots.items() if slot.last_seq > stored.get(id_, 0)}


def store_epoch(
    writer: sqlite3.Connection, epoch: str, number: int, lost: Sequence[Damage]
) -> None:
    """Store the epoch of a log, and what was lost before it."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with Transaction(writer):
        writer.execute(
            "INSERT INTO log VALUES (1, ?, ?, 1, 0)"
            " ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, number = excluded.number",
            (epoch, number),
        )
        writer.executemany(
            "INSERT INTO losses (session_id, first_seq, last_seq, found_at) VALUES (?, ?, ?, ?)",
            [
                (
                    None if each.session_id is None else column_of(each.session_id),
                    each.first_seq,
                    each.last_seq,
                    now,
                )
                for each in lost
            ],
        )


def recorded_losses(writer: sqlite3.Connection) -> list[Damage]:
    """Return what the log has recorded as lost."""
    rows = writer.execute(
        "SELECT session_id, first_seq, last_seq, found_at FROM losses ORDER BY id"
    ).fetchall()
    return [
        missing(None if column is None else session_of(column), first, last, f", found {at}")
        for column, first, last, at in rows
    ]
