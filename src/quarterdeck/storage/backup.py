"""Backups of a data folder: one file, written while a hub runs, and put back when none does.

A backup is a tar file with the databases, the keys of the hub and of push messages, and a
manifest with their digests. It has no configuration: that is a file of its owner's, elsewhere.

**Writing.** Each database is copied by SQLite's online backup, which is a snapshot and does not
hold up the hub. The order is hub.db, runner.db, log.db: a log may be ahead of the other two, as it
is after `kill -9`, but not behind them. The copies are checked like any data folder; then the tar
file is written under a temporary name, read again, synced and renamed. Under its final name there
is a whole backup or nothing.

**Restoring.** The backup is unpacked and checked beside the data folder. Then both are exchanged in
one step, where the system can do that (`_exchange`), and the old folder is kept. A restored log has
no mark: it begins a new epoch when it is opened, and all readers start over.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import shutil
import sqlite3
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck._version import __version__
from quarterdeck.errors import CommandFailed
from quarterdeck.machine.disk_sync import sync_file
from quarterdeck.machine.home_locks import BOTH, locked_home
from quarterdeck.storage.check import FILES, HUB, LOG, RUNNER, FileReport, check_folder
from quarterdeck.storage.lock import PRIVATE
from quarterdeck.storage.sqlite_schema import connect_reader

SECRETS: Final = (
    "identity.key",
    "push.key",
    "relay.key",
    "relay.json",
    "authority.key",
    "authority.pem",
)
_ORDER: Final = (HUB, RUNNER, LOG)
_MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1
_MOST_MANIFEST: Final = 1 << 20
_CHUNK: Final = 1 << 20
_OWN: Final = (
    "hub.lock",
    "hub.json",
    "hub.sock",
    "runner.lock",
    "runner.json",
    "runner.sock",
    "runner.log",
    "hub.reserve",
    "runner.reserve",
    "token",
    *FILES,
    *SECRETS,
)
"""Files of a data folder that a restored folder does not take over from the old one."""
_RENAME_EXCHANGE: Final = 2
_RENAME_SWAP: Final = 2  # of macOS
_AT_FDCWD: Final = -100


class BackupFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a backup."""

    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a backup has."""

    format: int
    version: str
    created_at: str
    sessions: int
    events: int
    files: tuple[BackupFile, ...]


def write_backup(home: Path, target: Path) -> tuple[Path, Manifest]:
    """Write a backup of a data folder; return its path and what it has.

    `target` is a file that does not exist, or a folder for a file named after the time.

    Raises:
        CommandFailed: if that cannot be done, or the data is damaged; nothing is left behind.
    """
    if not any((home / name).exists() for name in FILES):
        raise CommandFailed(f"there is nothing to back up in {home}; pass its folder with --home")
    if target.is_dir():
        target = target / time.strftime("quarterdeck-%Y%m%d-%H%M%S.tar")
    if target.exists():
        raise CommandFailed(f"{target} exists; choose another name, or a folder")
    if not target.parent.is_dir():
        raise CommandFailed(f"there is no folder {target.parent}; create it first")
    try:
        with _scratch(target.with_name(f".{target.name}.copy")) as folder:
            reports = _copy_files(home, folder)
            manifest = _described(folder, reports)
            _write_tar(folder, manifest, target)
    except (OSError, sqlite3.Error, tarfile.TarError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CommandFailed(
            f"the backup could not be written ({reason}); check the disk of {target.parent}"
        ) from error
    return target, manifest


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Make an empty private folder, and remove it in the end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy_files(home: Path, folder: Path) -> list[FileReport]:
    for name in _ORDER:
        if (home / name).exists():
            _copy_database(home / name, folder / name)
    for name in SECRETS:
        if (home / name).is_file():
            (folder / name).write_bytes((home / name).read_bytes())
    reports = check_folder(folder)
    problems = [f"{each.file}: {problem}" for each in reports for problem in each.problems]
    if any(each.status == "damaged" for each in reports):
        raise CommandFailed(
            f"the data is damaged, so no backup was written: {problems[0]}; run: quarterdeck check"
        )
    return reports


def _copy_database(source: Path, target: Path) -> None:
    with (
        closing(connect_reader(source)) as reader,
        closing(sqlite3.connect(target, isolation_level=None)) as copy,
    ):
        reader.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE")
    target.chmod(PRIVATE)


def _described(folder: Path, reports: list[FileReport]) -> Manifest:
    names = [name for name in (*_ORDER, *SECRETS) if (folder / name).exists()]
    return Manifest(
        format=_FORMAT,
        version=__version__,
        created_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        sessions=sum(each.sessions for each in reports),
        events=sum(each.events for each in reports),
        files=tuple(
            BackupFile(
                name=name, size=(folder / name).stat().st_size, sha256=_digest(folder / name)
            )
            for name in names
        ),
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_tar(folder: Path, manifest: Manifest, target: Path) -> None:
    partial = folder / "backup.partial"
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    with os.fdopen(descriptor, "w+b") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
            head = tarfile.TarInfo(_MANIFEST)
            head.size, head.mode = len(text), PRIVATE
            tar.addfile(head, io.BytesIO(text))
            for each in manifest.files:
                tar.add(folder / each.name, each.name, filter=_plain)
        file.flush()
        sync_file(file.fileno())
    with _scratch(folder / "again") as again:
        unpack(partial, again)  # what is on the disk is what was meant
    try:
        os.link(partial, target)  # unlike a rename, it does not replace a file that is there by now
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        partial.rename(target)
    _sync_folder(target.parent)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = PRIVATE
    return info


def read_manifest(tar: tarfile.TarFile, source: Path) -> Manifest:
    """Read what a backup has.

    Raises:
        CommandFailed: if it is no backup, or of a newer version.
    """
    try:
        member = tar.next()
        file = None if member is None or member.name != _MANIFEST else tar.extractfile(member)
        content = b"" if file is None else file.read(_MOST_MANIFEST)
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, tarfile.TarError, OSError) as error:
        raise CommandFailed(
            f"{source} is no backup; choose a file of quarterdeck backup"
        ) from error
    if manifest.format > _FORMAT:
        raise CommandFailed(
            f"{source} was written by Quarterdeck {manifest.version}; upgrade to restore it"
        )
    return manifest


def unpack(source: Path, folder: Path) -> Manifest:
    """Unpack a backup into an empty folder, and compare everything with its manifest.

    Raises:
        CommandFailed: if it is no backup, or damaged.
    """
    try:
        with tarfile.open(source, "r:") as tar:
            manifest = read_manifest(tar, source)
            for each in manifest.files:
                if each.name not in (*FILES, *SECRETS):
                    raise CommandFailed(f"{source} has a file {each.name!r}; it is no backup")
                _unpack_file(tar, each, folder)
    except (tarfile.TarError, OSError, EOFError, KeyError) as error:
        message = f"{source} is damaged or no backup ({error}); use another one"
        raise CommandFailed(message) from error
    for each in manifest.files:
        if _digest(folder / each.name) != each.sha256:
            raise CommandFailed(f"{source} is damaged ({each.name} differs); use another one")
    return manifest


def _unpack_file(tar: tarfile.TarFile, wanted: BackupFile, folder: Path) -> None:
    content = tar.extractfile(wanted.name)
    if content is None:
        raise tarfile.TarError(f"{wanted.name} is not a file")
    descriptor = os.open(
        folder / wanted.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE
    )
    with os.fdopen(descriptor, "wb") as file:
        left = wanted.size
        while left and (chunk := content.read(min(_CHUNK, left))):
            file.write(chunk)
            left -= len(chunk)
        file.flush()
        sync_file(file.fileno())


def restore_backup(source: Path, home: Path) -> tuple[Path | None, Manifest]:
    """Put a backup in the place of a data folder; return where the old folder is now.

    Raises:
        CommandFailed: if the backup cannot be used; nothing was changed.
        StartRefused: if a hub uses the folder.
    """
    if not source.is_file():
        raise CommandFailed(f"there is no file {source}; pass a file that quarterdeck backup wrote")
    staged = home.with_name(f"{home.name}.restoring")
    home.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(staged):
        manifest = unpack(source, staged)
        damaged = [each for each in check_folder(staged) if each.status == "damaged"]
        if damaged:
            raise CommandFailed(f"{source} is damaged: {damaged[0].problems[0]}; use another one")
        _sync_folder(staged)
        if not home.exists():
            staged.rename(home)
            return None, manifest
        with locked_home(home, *BOTH):
            aside = _aside(home)
            _exchange(staged, home, aside)
            _take_over(aside, home)
        _sync_folder(home.parent)
        return aside, manifest


def _aside(home: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        aside = home.with_name(f"{home.name}.before-{stamp}" + (f"-{number}" if number else ""))
        if not aside.exists():
            return aside
    raise CommandFailed(f"there are too many old folders next to {home}; remove some")


def _exchange(staged: Path, home: Path, aside: Path) -> None:
    """Put `staged` in the place of `home`, and `home` aside: in one step if the system can."""
    if _swapped(os.fsencode(staged), os.fsencode(home)):
        staged.rename(aside)
        return
    home.rename(aside)  # between the two, a hub would find no folder and begin an empty one
    staged.rename(home)


def _swapped(one: bytes, other: bytes) -> bool:
    """Exchange two folders; False if this system or this file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    swap = getattr(libc, "renameat2", None)
    if swap is not None:
        return bool(swap(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_EXCHANGE) == 0)
    swap = getattr(libc, "renamex_np", None)  # macOS
    return swap is not None and bool(swap(one, other, _RENAME_SWAP) == 0)


def _take_over(aside: Path, home: Path) -> None:
    """Move what is not part of a backup to the restored folder: worktrees, for example."""
    for path in aside.iterdir():
        is_own = any(path.name == own or path.name.startswith(f"{own}.") for own in _OWN)
        is_own = is_own or any(path.name.startswith(f"{own}-") for own in FILES)
        if not is_own and not path.name.startswith("repair-") and not (home / path.name).exists():
            path.rename(home / path.name)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
