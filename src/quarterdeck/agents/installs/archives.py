"""Archives of programs, unpacked without trusting them.

Only files, folders and links that stay inside are unpacked; nothing is written outside the target,
however the archive names it, and its size is bounded.
"""

from __future__ import annotations

import gzip
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Final

from quarterdeck.errors import InstallFailed

_MOST_BYTES: Final = 4 << 30
_MOST_FILES: Final = 200_000
_CHUNK: Final = 1 << 20
_TARS: Final = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar")
_BROKEN: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, lzma.LZMAError),
    *(EOFError, NotImplementedError, RuntimeError, UnicodeError, ValueError),
)
"""What the standard library raises for archives that are damaged, encrypted or of another kind."""


def unpack(archive: Path, name: str, target: Path, program: str) -> None:
    """Unpack an archive into a folder; a file of another kind is the program itself.

    `name` is that of the archive at its source, which has its ending.

    Raises:
        InstallFailed: if it is damaged, hostile or too large.
    """
    try:
        if name.lower().endswith(".zip"):
            _unpack_zip(archive, target)
        elif name.lower().endswith(_TARS):
            _unpack_tar(archive, target)
        else:
            place = _inside(target, program)
            place.parent.mkdir(parents=True, exist_ok=True)
            with archive.open("rb") as source:
                _Budget().copy(source, place, 0o755)
    except FileExistsError as error:
        raise InstallFailed(f"{name} has two entries of the same name", _HOSTILE) from error
    except _BROKEN as error:
        words = str(error) or type(error).__name__
        raise InstallFailed(
            f"{name} cannot be unpacked: {words}", "report it to its authors"
        ) from error


def program_in(folder: Path, cmd: str) -> Path:
    """Return the program that a registry names, beneath a folder.

    Raises:
        InstallFailed: if it is not there, or elsewhere.
    """
    path = _inside(folder, cmd)
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        raise InstallFailed(f"the archive has no program {cmd}", "report it to its authors")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IRUSR)
    return path


class _Budget:
    """Bounds what an archive unpacks to."""

    def __init__(self) -> None:
        self._bytes = self._files = 0

    def count(self) -> None:
        self._files += 1
        if self._files > _MOST_FILES:
            raise InstallFailed("the archive has too many files", "report it to its authors")

    def copy(self, source: IO[bytes], place: Path, mode: int) -> None:
        self.count()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(place, flags, mode & 0o755 | 0o600), "wb") as target:
            while chunk := source.read(_CHUNK):
                self._bytes += len(chunk)
                if self._bytes > _MOST_BYTES:
                    raise InstallFailed("the archive is too large", "report it to its authors")
                target.write(chunk)


def _inside(folder: Path, name: str) -> Path:
    """Return the path of an entry beneath a folder.

    Raises:
        InstallFailed: if its name leads elsewhere.
    """
    pure = PurePosixPath(name.replace("\\", "/"))
    parts = [part for part in pure.parts if part != "."]
    if pure.is_absolute() or ".." in parts or not parts or "\0" in name:
        raise InstallFailed(f"the archive has an entry outside itself: {name[:200]!r}", _HOSTILE)
    path = folder.joinpath(*parts)
    for parent in [each for each in path.parents if each != folder and folder in each.parents]:
        if parent.is_symlink():
            raise InstallFailed(f"the archive writes through a link: {name[:200]!r}", _HOSTILE)
    return path


_HOSTILE: Final = "do not use it; report it to its authors"


def _unpack_tar(archive: Path, target: Path) -> None:
    budget = _Budget()
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name in ("", ".", "./"):
                continue
            path = _inside(target, member.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if member.isdir():
                budget.count()
                path.mkdir(exist_ok=True)
            elif member.isreg():
                source = tar.extractfile(member)
                assert source is not None
                budget.copy(source, path, member.mode)
            elif member.issym():
                budget.count()
                _link(target, path, member.linkname)
            elif member.islnk():
                budget.count()
                _hard_link(_inside(target, member.linkname), path)
            else:
                raise InstallFailed(f"the archive has a device: {member.name[:200]!r}", _HOSTILE)


def _unpack_zip(archive: Path, target: Path) -> None:
    budget = _Budget()
    with zipfile.ZipFile(archive) as zipped:
        for member in _members(zipped):
            path = _inside(target, member.filename)
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = member.external_attr >> 16
            if member.is_dir():
                budget.count()
                path.mkdir(exist_ok=True)
            elif stat.S_ISLNK(mode):
                budget.count()
                if member.file_size > 4096:
                    raise InstallFailed("the archive has a link that is too long", _HOSTILE)
                _link(target, path, zipped.read(member).decode())
            else:
                with zipped.open(member) as source:
                    budget.copy(source, path, mode or 0o644)


def _members(zipped: zipfile.ZipFile) -> Iterator[zipfile.ZipInfo]:
    yield from zipped.infolist()


def _hard_link(source: Path, path: Path) -> None:
    if source.is_symlink():  # at another depth it would lead elsewhere
        raise InstallFailed(f"the archive has a link to a link: {path.name[:200]!r}", _HOSTILE)
    os.link(source, path, follow_symlinks=False)


def _link(target: Path, path: Path, to: str) -> None:
    """Create a symbolic link that stays inside.

    `..` is allowed at the beginning only: after the name of another link it would lead elsewhere.
    """
    parts = [part for part in PurePosixPath(to).parts if part != "."]
    depth = len(path.parent.relative_to(target).parts)
    rises = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    if PurePosixPath(to).is_absolute() or rises > depth or ".." in parts[rises:]:
        raise InstallFailed(f"the archive has a link to elsewhere: {to[:200]!r}", _HOSTILE)
    path.symlink_to(to)
