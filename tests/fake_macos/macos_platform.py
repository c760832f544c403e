"""Turns this interpreter into one like that of macOS, before anything of the package is imported.

Names that only Linux has are removed from the standard library, /proc cannot be opened, listed or
looked at, the C library has libproc in place of what only Linux has, and Unix sockets have macOS's
options and its limit for paths. File systems stay those of Linux.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import fcntl
import io
import os
import select
import signal
import socket
import sys
import time
from types import ModuleType
from typing import Any

MISSING = {
    os: (
        *("pidfd_open", "memfd_create", "eventfd", "eventfd_read", "eventfd_write", "fdatasync"),
        *("pipe2", "posix_fallocate", "posix_fadvise", "sched_getaffinity", "sched_setaffinity"),
        *("setns", "unshare", "splice", "getrandom", "copy_file_range", "getresuid", "setresuid"),
        *("getresgid", "setresgid", "waitid", "getxattr", "setxattr", "listxattr", "removexattr"),
        *("O_PATH", "O_TMPFILE", "O_DIRECT", "O_NOATIME", "O_LARGEFILE", "O_RSYNC"),
        *("MFD_CLOEXEC", "RWF_DSYNC", "CLONE_NEWNS", "P_PIDFD", "preadv2", "timerfd_create"),
    ),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGRTMAX", "SIGPWR"),
    socket: (
        *("SO_PEERCRED", "SO_PASSCRED", "SO_BINDTODEVICE", "SO_MARK", "SO_DOMAIN", "SO_PROTOCOL"),
        *("AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_ALG", "SOCK_CLOEXEC", "SOCK_NONBLOCK"),
        *("MSG_CMSG_CLOEXEC", "MSG_NOSIGNAL", "MSG_MORE", "TCP_USER_TIMEOUT", "TCP_QUICKACK"),
        *("TCP_DEFER_ACCEPT", "TCP_CORK", "TCP_KEEPIDLE", "IP_RECVTOS", "IPV6_RECVERR"),
    ),
    select: ("epoll", "EPOLLIN", "EPOLLOUT", "EPOLLHUP", "EPOLLERR", "EPOLLRDHUP", "POLLRDHUP"),
    fcntl: ("F_SETPIPE_SZ", "F_GETPIPE_SZ", "F_ADD_SEALS", "F_OFD_SETLK", "F_NOTIFY"),
    time: ("CLOCK_BOOTTIME", "CLOCK_TAI", "pthread_getcpuclockid"),
}
"""What macOS does not have; some of it no Python has on every Linux."""

_real_pidfd_open = getattr(os, "pidfd_open", None)
LONGEST_PATH = 103


def install(executable: str) -> None:
    """Do it; `executable` is what starts Python programs on such a machine."""
    if not sys.flags.no_site:
        _provide_modules()
    for module, names in MISSING.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "darwin"
    sys.executable = executable
    if not sys.flags.no_site:
        import selectors  # noqa: PLC0415 - a guard needs none

        vars(selectors)["DefaultSelector"] = selectors.PollSelector  # our kqueue is not a whole one
    import libproc  # type: ignore[import-not-found] # noqa: PLC0415 - next to this file

    _hide_proc()
    _replace_sockets(libproc)
    _replace_library(libproc.library())
    fcntl.F_FULLFSYNC = 51  # type: ignore[attr-defined] # as above
    plain_fcntl = fcntl.fcntl

    def any_fcntl(fd: Any, command: int, argument: Any = 0) -> Any:
        if command == 51:
            full_syncs.append(fd)
            return os.fsync(fd)
        return plain_fcntl(fd, command, argument)

    fcntl.fcntl = any_fcntl
    _add_kqueue()


full_syncs: list[Any] = []


def _provide_modules() -> None:
    """Provide what the standard library imports on macOS."""
    proxies = sys.modules["_scproxy"] = ModuleType("_scproxy")
    vars(proxies).update(_get_proxy_settings=dict, _get_proxies=dict)
    architecture = vars(sys.implementation).get("_multiarch", "")
    name = f"_sysconfigdata_{sys.abiflags}_{sys.platform}_{architecture}"
    os.environ["_PYTHON_SYSCONFIGDATA_NAME"] = name


def _is_proc(path: Any) -> bool:
    text = os.fsdecode(path) if isinstance(path, str | bytes) else ""
    if isinstance(path, os.PathLike):
        text = os.fsdecode(path)
    return text == "/proc" or text.startswith(("/proc/", "/sys/"))


def _missing(path: Any) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def _hide_proc() -> None:
    """Hide /proc from all but the fake library, which has these functions as they are now."""
    for name in ("stat", "lstat", "open", "listdir", "scandir", "readlink", "access"):
        _hide_from(name)
    plain_open = builtins.open

    def open_file(path: Any, *arguments: Any, **options: Any) -> Any:
        if _is_proc(path):
            raise _missing(path)
        return plain_open(path, *arguments, **options)

    files: tuple[Any, ...] = (builtins, io)
    for module in files:
        module.open = open_file


def _hide_from(name: str) -> None:
    plain = getattr(os, name)

    def hiding(path: Any = ".", *arguments: Any, **options: Any) -> Any:
        if _is_proc(path):
            if name == "access":
                return False
            raise _missing(path)
        return plain(path, *arguments, **options)

    for known in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
        if plain in known:
            known.add(hiding)
    setattr(os, name, hiding)


def _replace_sockets(libproc: Any) -> None:
    plain = socket.socket.getsockopt

    def getsockopt(self: Any, level: int, option: int, *size: int) -> Any:
        if level == 0 and self.family == socket.AF_UNIX:
            return libproc.local_option(self, option, *(size or (4,)))
        if level == socket.SOL_SOCKET and option in (17, 77):
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        return plain(self, level, option, *size)

    socket.socket.getsockopt = getsockopt  # type: ignore[method-assign]
    for name in ("bind", "connect"):
        _limit_paths(name)


def _limit_paths(name: str) -> None:
    plain = getattr(socket.socket, name)

    def limited(self: Any, address: Any) -> Any:
        if self.family == socket.AF_UNIX:
            path = os.fsencode(address)
            if len(path) > LONGEST_PATH or path.startswith(b"\0"):
                raise OSError("AF_UNIX path too long")
            if _is_proc(path):
                raise _missing(address)
        return plain(self, address)

    setattr(socket.socket, name, limited)


def _replace_library(library: Any) -> None:
    plain = ctypes.CDLL

    def load(name: Any = None, *arguments: Any, **options: Any) -> Any:
        return library if name is None else plain(name, *arguments, **options)

    ctypes.CDLL = load  # type: ignore[misc,assignment] # a function is all that is used


def _add_kqueue() -> None:
    """Add as much of kqueue as reports the end of one process; a fork closes it, as on macOS."""
    known: Any = select
    known.KQ_FILTER_PROC, known.KQ_EV_ADD, known.KQ_NOTE_EXIT = -5, 1, 1 << 31
    known.kevent, known.kqueue = _Event, _Queue


class _Event:
    def __init__(self, ident: int, kind: int, flags: int, facts: int) -> None:
        self.ident = ident
        assert (kind, flags, facts) == (-5, 1, 1 << 31)


class _Queue:
    def __init__(self) -> None:
        self._fd = -1
        os.register_at_fork(after_in_child=self.close)

    def control(self, events: list[_Event], most: int) -> list[_Event]:
        assert most == 0
        (event,) = events
        assert _real_pidfd_open is not None
        self._fd = _real_pidfd_open(event.ident)
        return []

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
