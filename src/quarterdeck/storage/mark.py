"""The high-water mark of a log: a small file beside it, `<log>.mark`.

A log cannot know by itself that its end is missing. SQLite ignores everything after the first
damaged frame of a WAL, and a copied-back file is as sound as it was. The mark says how far each
session was stored, in another file:

    header   512 bytes   checksum, then JSON: epoch, boot, file, number, clean, at, before
    slots     28 bytes   of session 1, 2, …: last seq, chain, when, and two checksums

The slots of a commit are written after it, without a sync. After `kill -9` the kernel has them.
After a power cut a slot may be older than the log, which is allowed, or newer: then the log has
lost events. A slot whose checksum is wrong says nothing.

All slots are also in memory. Those of one commit that are close to each other are written with what
is between them, by one `pwrite`: sixteen sessions that were created one after another cost as much
as one. A memory map would save that microsecond, too; but a store into a map whose file was
truncated, or whose disk fails, ends the process.

What the mark proves, and so when a log gets a new epoch (`MarkReading.doubt`):

    no mark, or another epoch            the log was copied here alone, or replaced
    the log is another file              it was replaced (its inode)
    the mark is not the original         it was copied, and probably the log with it. It records
                                         when it was written, and the system when it was changed;
                                         a copy has changed later than it was written
    not closed, and another boot         a power cut or a crash of the system: the last commits may
                                         be lost, and the mark may be as old
    a session is shorter than its slot   events that were stored are missing

`kill -9` alone is none of these: what was committed is with the kernel.

`chain` is for logs that have no room for checksums in their own format: the running checksum of a
session's events.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from quarterdeck.machine.disk_sync import sync_file
from quarterdeck.machine.macos_processes import boot_session
from quarterdeck.storage.integrity import LogEpoch
from quarterdeck.storage.lock import PRIVATE

logger = logging.getLogger(__name__)

COPY_NS: Final = 250_000_000
"""A mark that changed this much later than it says was copied. Writing it takes microseconds."""
_HEADER_BYTES: Final = 512
_SLOT: Final = struct.Struct("<QIIQI")  # last seq, name, chain, time in ns, checksum
_BODY: Final = struct.Struct("<QIIQ")
_SLOT_BYTES: Final = _SLOT.size
_pack_body: Final = _BODY.pack
_pack_checksum: Final = struct.Struct("<I").pack
MOST_SLOTS: Final = 1 << 22
"""Sessions with other numbers have no slot: a damaged one would be the size of the file."""
_NEAR_BYTES: Final = 4_096
"""Slots of a commit that are as close are written at once: copying a page costs as a call does."""


_POWER_CUT: Final = "the system was restarted without closing it"


class Slot(NamedTuple):
    """How far one session was stored."""

    last_seq: int
    name: int
    """The `name_checksum` of its id."""
    chain: int = 0


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    epoch: str
    number: int
    boot: str
    file: str
    clean: bool
    at: int
    before: LogEpoch | None = None
    """The epoch before a power cut, until it is known what was lost; see `sqlite`."""


_decode: Final = msgspec.json.Decoder(_Header).decode


@dataclass(frozen=True, kw_only=True)
class MarkReading:
    """What the mark said when the log was opened."""

    epoch: str = ""
    number: int = 0
    """How many epochs the log has had; 0 if there was no mark."""
    doubt: str = ""
    """Why the log may have gone back, as a clause; empty if it has not."""
    is_power_cut: bool = False
    """The log was not closed before the system started, and nothing else is in doubt."""
    before: LogEpoch | None = None
    """The epoch before an earlier power cut whose losses are not known yet."""
    slots: Mapping[int, Slot] = field(default_factory=dict)
    """By the number of the session in its log."""


class LogMark:
    """The mark of an open log. Only the process that has locked the log writes it."""

    def __init__(self, log: Path) -> None:
        self.path = log.with_name(f"{log.name}.mark")
        self._log = log
        self._file = -1
        self._header: _Header | None = None
        self._has_failed = False
        self._slots = bytearray()
        """What the file has after its header."""

    def read(self) -> MarkReading:
        """Read the mark of an earlier process, and find out whether it fits the log."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return MarkReading(doubt="it has no high-water mark")
        with os.fdopen(file, "rb") as opened:
            changed_at = os.fstat(file).st_ctime_ns
            content = opened.read(_HEADER_BYTES + _SLOT_BYTES * MOST_SLOTS)
        header = _read_header(content[:_HEADER_BYTES])
        if header is None:
            return MarkReading(doubt="its high-water mark cannot be read")
        slots, newest = _read_slots(content[_HEADER_BYTES:])
        is_power_cut = not header.clean and header.boot != boot_id()
        if _identity(self._log) not in header.file.split():
            doubt = "it is not the file that was used last"
        elif changed_at - max(newest, header.at) > COPY_NS:
            doubt = "it was copied"
        elif is_power_cut:
            doubt = _POWER_CUT
        else:
            doubt = ""
        return MarkReading(
            epoch=header.epoch,
            number=header.number,
            doubt=doubt,
            is_power_cut=doubt == _POWER_CUT,
            before=header.before,
            slots=slots,
        )

    def begin(
        self,
        epoch: str,
        number: int,
        slots: Iterable[tuple[int, Slot]],
        before: LogEpoch | None = None,
    ) -> None:
        """Write the mark of this process: all of it, or nothing."""
        new = self.path.with_name(f"{self.path.name}.new")
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            file = os.open(new, flags, PRIVATE)
            try:
                self._slots = bytearray(_SLOT_BYTES)
                self._pack(slots, time.time_ns())
                _write(file, self._slots, _HEADER_BYTES)
                self._file = file
                self._write_header(epoch, number, is_clean=False, before=before)
                new.replace(self.path)
            except BaseException:
                os.close(file)
                self._file = -1
                raise
        except OSError as error:
            self._failed(error)
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)  # one that is out of date would prove nothing

    def note(self, stored: Sequence[tuple[int, Slot]]) -> None:
        """Write how far sessions are stored, after a commit; never fails."""
        if self._file < 0:
            return
        starts = self._pack(stored, time.time_ns())
        try:
            for start, end in _spans(starts):
                _write(self._file, self._slots[start:end], _HEADER_BYTES + start)
        except OSError as error:  # an older mark is allowed
            self._failed(error)

    def _pack(self, stored: Iterable[tuple[int, Slot]], now: int) -> list[int]:
        """Put slots among those in memory; return where they start."""
        slots, starts = self._slots, []
        for id_, (last_seq, name, chain) in stored:
            start = _SLOT_BYTES * id_
            end = start + _SLOT_BYTES
            if end > len(slots) or start < 0:
                if not 0 <= id_ < MOST_SLOTS:
                    continue
                slots.extend(bytes(end - len(slots)))
            body = _pack_body(last_seq, name, chain, now)
            slots[start:end] = body + _pack_checksum(crc32(body))
            starts.append(start)
        return starts

    def confirm(self) -> None:
        """Record that the losses of a power cut are known."""
        self._rewrite(None, keeps_before=False)

    def expect(self, copy: Path) -> None:
        """Accept `copy` as the log too: it is about to replace it."""
        self._rewrite(f"{_identity(self._log)} {_identity(copy)}")

    def settle(self) -> None:
        """Accept only the file that is the log now."""
        self._rewrite(_identity(self._log))

    def _rewrite(self, file: str | None, *, keeps_before: bool = True) -> None:
        header = self._header
        if self._file < 0 or header is None:
            return
        before = header.before if keeps_before else None
        try:
            self._write_header(
                header.epoch, header.number, is_clean=False, file=file, before=before
            )
        except OSError as error:
            self._failed(error)

    def close(self, *, is_clean: bool) -> None:
        """Release the file; `is_clean` if everything that was stored is on the disk."""
        file, self._file = self._file, -1
        if file < 0 or self._header is None:
            return
        try:
            if is_clean:
                self._file = file
                header = self._header
                self._write_header(header.epoch, header.number, is_clean=True, before=header.before)
                self._file = -1
                sync_file(file)
        except OSError as error:
            self._failed(error)
        finally:
            self._file = -1
            os.close(file)

    def _write_header(
        self,
        epoch: str,
        number: int,
        *,
        is_clean: bool,
        file: str | None = None,
        before: LogEpoch | None = None,
    ) -> None:
        header = _Header(
            epoch=epoch,
            number=number,
            boot=boot_id(),
            file=_identity(self._log) if file is None else file,
            clean=is_clean,
            at=time.time_ns(),
            before=before,
        )
        text = msgspec.json.encode(header).ljust(_HEADER_BYTES - 10)
        os.pwrite(self._file, b"%08x %b\n" % (crc32(text), text), 0)
        self._header = header

    def _failed(self, error: OSError) -> None:
        if not self._has_failed:
            self._has_failed = True
            extra = {"reason": str(error)}
            logger.warning("the high-water mark of the log cannot be written", extra=extra)


def _write(file: int, data: bytearray, position: int) -> None:
    if os.pwrite(file, data, position) != len(data):  # a disk that is nearly full takes a part
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _spans(starts: list[int]) -> list[tuple[int, int]]:
    """Return where slots that are close to each other begin and end."""
    if len(starts) == 1:  # the usual case
        return [(starts[0], starts[0] + _SLOT_BYTES)]
    if not starts:
        return []
    starts.sort()
    spans: list[tuple[int, int]] = []
    first = last = starts[0]
    for start in starts:
        if start - last > _NEAR_BYTES:
            spans.append((first, last + _SLOT_BYTES))
            first = start
        last = start
    return [*spans, (first, last + _SLOT_BYTES)]


def _read_header(content: bytes) -> _Header | None:
    with contextlib.suppress(ValueError, msgspec.DecodeError):  # a DecodeError may be any of both
        checksum, _, text = content.partition(b" ")
        if len(content) == _HEADER_BYTES and crc32(text[:-1]) == int(checksum, 16):
            return _decode(text)
    return None


def _read_slots(content: bytes) -> tuple[dict[int, Slot], int]:
    """Return the slots that are intact, and when the newest was written."""
    slots: dict[int, Slot] = {}
    newest = 0
    whole = len(content) - len(content) % _SLOT_BYTES
    for id_, fields in enumerate(_SLOT.iter_unpack(content[:whole])):
        last_seq, name, chain, at, checksum = fields
        start = id_ * _SLOT_BYTES
        if at and crc32(content[start : start + _BODY.size]) == checksum:
            slots[id_] = Slot(last_seq, name, chain)
            newest = max(newest, at)
    return slots, newest


def _identity(path: Path) -> str:
    # Not the device: its number may change when a container or a disk is attached again.
    try:
        return str(path.stat().st_ino)
    except OSError:
        return ""


def boot_id() -> str:
    """Return what changes when the system starts; empty if the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return _mac_boot() or _boot_time()


def _mac_boot() -> str:
    with contextlib.suppress(OSError):  # another system
        return boot_session()
    return ""


def _boot_time() -> str:
    # Without a boot id: the time of the start, to the minute, since both clocks move.
    clock: Any = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
    return "" if clock is None else str(round((time.time() - time.clock_gettime(clock)) / 60))
