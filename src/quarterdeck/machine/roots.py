"""Locate files beneath the roots of a session, and nowhere else.

Checking a path and then opening it does not protect: a process that may write in the roots can
replace a folder by a link in between. So a path is never opened as a whole. It is walked from `/`,
one component at a time, each opened in the folder before it without following links; links are read
and walked like the path itself. What counts is where the walk ends: a file is inside if one of the
folders on the way to it *is* a root (same device and inode). So links that stay inside work, also
absolute ones and those from one root to another, and links that lead out do not.

`locate_by_openat2` leaves the walk to the Linux kernel (`RESOLVE_BENEATH`) when the path starts
with a root and meets only relative links; everything else, every failure included, is walked. Both
give the same results.

A root inside another one adds nothing and is dropped, and no link inside a root decides where
another root is: an agent may put anything there. The host passes what `resolve_roots` returned when
the session was created. Hidden folders (`hidden`) are outside, also those inside a root. Not
prevented: hard links to other files, and folders that are moved out of the roots during a write;
both need rights outside the roots that the agent must have already.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from quarterdeck.errors import RpcError
from quarterdeck.machine.hidden import NOTHING_HIDDEN, HiddenFolders, Identity, identity
from quarterdeck.wire import INVALID_PARAMS, rpc_error

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_LINKS = 40  # as many as Linux follows before ELOOP
_DEPTH = 100  # folders open at once; an agent must not exhaust our descriptors
_OPENAT2 = 437  # the same number on every architecture that has it since Linux 5.6, bar alpha
_RESOLVE_NO_MAGICLINKS, _RESOLVE_BENEATH = 0x02, 0x08


@dataclass(frozen=True)
class LocatedFile:
    """A name in an open folder inside the roots; neither a link nor a folder when it was found."""

    folder: int
    name: str
    status: os.stat_result | None
    """None if the file does not exist."""


Locate = Callable[[str, Sequence[str]], AbstractContextManager[LocatedFile]]
"""Find `path` beneath `roots`; raises `RpcError` if it is outside, `OSError` for the rest."""


def outside_roots() -> RpcError:
    return rpc_error(INVALID_PARAMS, "path outside session roots")


def resolve_roots(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the real paths of those that exist; call it before an agent can change them."""
    found = []
    for path in paths:
        with suppress(OSError):  # a root that is missing is ignored
            found.append(str(Path(path).resolve(strict=True)))
    return tuple(dict.fromkeys(found))


@contextmanager
def locate_by_walk(
    path: str, roots: Sequence[str], hidden: HiddenFolders = NOTHING_HIDDEN
) -> Iterator[LocatedFile]:
    with ExitStack() as cleanup:
        yield _walk_to(path, _open_roots(roots, cleanup), _Limits(hidden), cleanup)


@contextmanager
def locate_by_openat2(
    path: str, roots: Sequence[str], hidden: HiddenFolders = NOTHING_HIDDEN
) -> Iterator[LocatedFile]:
    with ExitStack() as cleanup:
        opened, limits = _open_roots(roots, cleanup), _Limits(hidden)
        found = _reach(path, opened, limits, cleanup)
        yield found or _walk_to(path, opened, limits, cleanup)


@contextmanager
def open_folder(
    path: str, roots: Sequence[str], hidden: HiddenFolders = NOTHING_HIDDEN
) -> Iterator[int]:
    """Open a folder inside the roots to read it; raises as `Locate` does."""
    with ExitStack() as cleanup:
        roots_opened = _open_roots(roots, cleanup)
        trail = _Trail((root.identity for root in roots_opened), _Limits(hidden))
        cleanup.callback(trail.close)
        try:
            found = _follow_to_end(path, trail)
        except OSError as error:
            if trail.is_inside:
                raise
            raise outside_roots() from error
        if not trail.is_inside:
            raise outside_roots()
        if found is not None:
            missing = found[1] is None
            number = errno.ENOENT if missing else errno.ENOTDIR
            raise OSError(number, os.strerror(number))
        yield trail.fd


def is_beneath(located: LocatedFile, folders: frozenset[Identity]) -> bool:
    """Return whether a located file is one of these, or in one of these folders."""
    if not folders:
        return False
    if located.status is not None and identity(located.status) in folders:
        return True
    with ExitStack() as cleanup:
        return any(identity(status) in folders for status in _and_above(located.folder, cleanup))


def _and_above(folder: int, cleanup: ExitStack) -> Iterator[os.stat_result]:
    """Yield the status of an open folder, and of each one above it."""
    status, below = os.fstat(folder), None
    while below is None or identity(below) != identity(status):
        yield status
        folder = os.open("..", _FOLDER, dir_fd=folder)
        cleanup.callback(os.close, folder)
        below, status = status, os.fstat(folder)


class _Limits:
    """What is hidden at this moment."""

    def __init__(self, hidden: HiddenFolders) -> None:
        self._hidden = hidden
        self._identities = hidden.everything() if hidden else frozenset()

    def forbid(self, status: os.stat_result) -> bool:
        """Return whether this file or folder is hidden."""
        is_device_hidden = self._hidden.is_hidden_device(status.st_dev)
        return is_device_hidden or identity(status) in self._identities

    def forbid_folder(self, fd: int) -> bool:
        """Return whether an open folder, or one above it, is hidden."""
        if not self._hidden:
            return False
        with ExitStack() as cleanup:
            return any(self.forbid(status) for status in _and_above(fd, cleanup))


class _Trail:
    """The folders from `/` to where a path has led so far, each opened in the one before it."""

    def __init__(self, roots: Iterable[Identity], limits: _Limits | None = None) -> None:
        self._roots = frozenset(roots)
        self._limits = limits
        self._folders: list[tuple[int, Identity]] = []
        self._hidden_depth: int | None = None
        self.has_followed_link_inside = False
        self._push(os.open("/", _FOLDER))

    @property
    def fd(self) -> int:
        return self._folders[-1][0]

    @property
    def identity(self) -> Identity:
        return self._folders[-1][1]

    @property
    def is_inside(self) -> bool:
        if self._hidden_depth is not None:
            return False
        return any(each in self._roots for _, each in self._folders)

    def look(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def enter(self, name: str) -> None:
        if len(self._folders) > _DEPTH:
            raise OSError(errno.ENAMETOOLONG, "its folders are nested too deeply")
        self._push(os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.fd))

    def leave(self) -> None:
        """Return to the previous folder; `..` of the folder itself may be elsewhere by now."""
        if len(self._folders) > 1:
            os.close(self._folders.pop()[0])
            if self._hidden_depth is not None and len(self._folders) < self._hidden_depth:
                self._hidden_depth = None

    def follow(self, name: str) -> list[str]:
        """Return the components of a link's target, to be walked from the current folder."""
        target = os.readlink(name, dir_fd=self.fd)
        self.has_followed_link_inside |= self.is_inside
        while target.startswith("/") and len(self._folders) > 1:
            self.leave()
        return _components(target)

    def close(self) -> None:
        while self._folders:
            os.close(self._folders.pop()[0])

    def _push(self, fd: int) -> None:
        status = os.fstat(fd)
        self._folders.append((fd, identity(status)))
        is_hidden = self._limits is not None and self._limits.forbid(status)
        if is_hidden and self._hidden_depth is None:
            self._hidden_depth = len(self._folders)


@dataclass(frozen=True)
class _Root:
    components: list[str]
    fd: int
    identity: Identity


def _open_roots(paths: Sequence[str], cleanup: ExitStack) -> list[_Root]:
    """Open the roots that exist, outer ones first; those inside another one are left out."""
    opened: list[_Root] = []
    for path in sorted(paths, key=lambda path: len(_components(path))):
        trail = _Trail(root.identity for root in opened)
        cleanup.callback(trail.close)
        with suppress(OSError, ValueError):  # missing, or not readable: no root
            is_folder = path.startswith("/") and _follow_to_end(path, trail) is None
            if is_folder and not (trail.is_inside or trail.has_followed_link_inside):
                opened.append(_Root(_components(path), trail.fd, trail.identity))
    if not opened:
        raise rpc_error(INVALID_PARAMS, "none of the session's folders exists")
    return opened


def _walk_to(path: str, roots: Sequence[_Root], limits: _Limits, cleanup: ExitStack) -> LocatedFile:
    trail = _Trail((root.identity for root in roots), limits)
    cleanup.callback(trail.close)
    try:
        found = _follow_to_end(path, trail)
        if found is None and trail.is_inside:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        if trail.is_inside:
            raise
        raise outside_roots() from error  # and nothing about what is there
    if found is None or not trail.is_inside:
        raise outside_roots()
    if found[1] is not None and limits.forbid(found[1]):
        raise outside_roots()
    return LocatedFile(trail.fd, *found)


def _follow_to_end(path: str, trail: _Trail) -> tuple[str, os.stat_result | None] | None:
    """Walk `path` to its last name and what is there; None if the trail ends in a folder."""
    pending = _components(path)[::-1]
    links = 0
    while pending:
        name = pending.pop()
        if name == "..":
            trail.leave()
            continue
        try:
            status = trail.look(name)
        except FileNotFoundError:
            if pending:
                raise
            return name, None
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            pending += trail.follow(name)[::-1]
        elif pending or stat.S_ISDIR(status.st_mode):
            trail.enter(name)
        else:
            return name, status
    return None


def _reach(
    path: str, roots: Sequence[_Root], limits: _Limits, cleanup: ExitStack
) -> LocatedFile | None:
    """Let the kernel walk to the folder of `path`; return None if we have to."""
    components = _components(path)
    for root in roots:
        start = len(root.components)
        if components[:start] != root.components or not components[start:]:
            continue
        *folders, name = components[start:]
        if name == "..":
            continue
        with suppress(OSError, ValueError):  # the walk finds the error
            folder = _openat2("/".join(folders) or ".", _FOLDER, dir_fd=root.fd)
            cleanup.callback(os.close, folder)
            status = _status(name, folder)
            if limits.forbid_folder(folder) or (status is not None and limits.forbid(status)):
                continue
            if status is None or not (stat.S_ISLNK(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                return LocatedFile(folder, name, status)
    return None


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _components(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)


def _openat2(path: str, flags: int, *, dir_fd: int) -> int:
    """Open a path beneath `dir_fd`, even if folders on the way are replaced meanwhile."""
    if sys.platform != "linux" or os.uname().machine not in ("x86_64", "aarch64"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    how = _OpenHow(flags=flags, mode=0, resolve=_RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError("embedded null byte")
    size = ctypes.c_size_t(ctypes.sizeof(how))
    fd = _libc.syscall(ctypes.c_long(_OPENAT2), dir_fd, encoded, ctypes.byref(how), size)
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(fd)
