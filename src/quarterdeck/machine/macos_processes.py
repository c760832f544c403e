"""What macOS says about processes: what /proc is on Linux. libproc and sysctl, called by ctypes.

| fact | call | of which processes |
| --- | --- | --- |
| children | `proc_listpids(PROC_PPID_ONLY)` | all |
| parent, group, user, whether it has ended | `proc_pidinfo(PROC_PIDT_SHORTBSDINFO)` | all |
| whether its first parent was launchd | `proc_pidinfo(PROC_PIDUNIQIDENTIFIERINFO)` | all |
| time of the start | `proc_pidinfo(PROC_PIDTBSDINFO)` | of this user |
| arguments and environment at `exec` | `sysctl(KERN_PROCARGS2)` | of this user; see below |
| open files | `proc_pidinfo(PROC_PIDLISTFDS)` | of this user |
| TCP connections among them | `proc_pidfdinfo(PROC_PIDFDSOCKETINFO)` | of this user |

The kernel does not show the environment of programs that came with macOS (`/bin/sh`, for example),
also to their own user. The layouts are those of `sys/proc_info.h`; an answer of another size counts
as none. `guard_program` loads this module without the package, so it imports little.

Not called on a Mac by its tests: they give it a library that answers in these layouts from /proc.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Iterator

MARK_VARIABLE = b"QUARTERDECK_GUARD_MARK"
"""Set by a guard for its command: a process that lost its parent is found by it. See `family`."""

_PROC_ALL_PIDS, _PROC_PPID_ONLY = 1, 6
_LIST_FDS, _BSD_INFO, _TASK_INFO, _SHORT_BSD_INFO, _UNIQUE_INFO = 1, 3, 4, 13, 17
_FD_SOCKET_INFO = 3
_FD_IS_SOCKET = 2
_CTL_KERN, _KERN_PROCARGS2 = 1, 49
_ARG_MAX = 1 << 20
_ZOMBIE = 5
_LAUNCHD = 1
_ROOM = 64  # processes that may start between two calls
_UNREADABLE = (errno.EPERM, errno.EACCES)

SHORT_BSD_INFO = struct.Struct("=4I16s8I")
"""pid, parent, group, status, name, flags, effective user, five other ids, reserved."""
BSD_INFO = struct.Struct("=12I16s32s5Ii2Q")
"""The last two are the time of the start: seconds and microseconds."""
TASK_INFO = struct.Struct("=6Q12i")
"""The second is the resident memory."""
UNIQUE_INFO = struct.Struct("=16s2Q2i2Q")
"""The second and third are numbers that are never used again: its own, and its first parent's."""
FD_INFO = struct.Struct("=iI")
"""Number and kind of a descriptor."""
SOCKET_FD_INFO_BYTES = 792
SOCKET_KIND_AT = 256
"""`soi_kind` in `struct socket_fdinfo`; 2 is TCP, whose `struct in_sockinfo` follows."""
SOCKET_IS_TCP = 2
IN_SOCKET_AT = 264
IN_SOCKET = struct.Struct("=2s2x2s2xQII2B2xI16s16s")
"""Ports of the other end and of this one, in network order; …; `insi_vflag` at 5; the addresses."""
_IS_IPV4 = 1


class MacProcess:
    """A process that has not ended."""

    __slots__ = ("group", "name", "parent", "pid", "uid")

    def __init__(self, pid: int, parent: int, group: int, uid: int, name: bytes) -> None:
        self.pid = pid
        self.parent = parent
        self.group = group
        self.uid = uid
        self.name = name


def _library() -> ctypes.CDLL:
    """Return the C library, which has libproc; OSError without one of the calls."""
    if not _loaded:
        library = ctypes.CDLL(None, use_errno=True)
        number, pointer, size = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
        try:
            library.proc_listpids.argtypes = (ctypes.c_uint32, ctypes.c_uint32, pointer, number)
            library.proc_pidinfo.argtypes = (number, number, ctypes.c_uint64, pointer, number)
            library.proc_pidfdinfo.argtypes = (number, number, number, pointer, number)
            library.sysctl.argtypes = (pointer, ctypes.c_uint, pointer, pointer, pointer, size)
            library.sysctlbyname.argtypes = (ctypes.c_char_p, pointer, pointer, pointer, size)
        except AttributeError as error:
            raise OSError(errno.ENOSYS, str(error)) from error
        _loaded.append(library)
    return _loaded[0]


_loaded: list[ctypes.CDLL] = []


def _list_pids(kind: int, value: int) -> list[int]:
    listed = _library().proc_listpids
    size = listed(kind, value, None, 0)
    while size > 0:
        buffer = ctypes.create_string_buffer(size + 4 * _ROOM)
        used = listed(kind, value, buffer, len(buffer))
        if used <= 0:
            break
        if used < len(buffer):
            return [
                pid for (pid,) in struct.iter_unpack("=i", buffer.raw[: used - used % 4]) if pid
            ]
        size = len(buffer) * 2
    return []


def all_pids() -> list[int]:
    return _list_pids(_PROC_ALL_PIDS, 0)


def children(pid: int) -> list[int]:
    return _list_pids(_PROC_PPID_ONLY, pid)


def _pid_info(pid: int, flavor: int, size: int) -> bytes:
    """Return an answer of this size; empty if there is none."""
    buffer = ctypes.create_string_buffer(size)
    used = _library().proc_pidinfo(pid, flavor, 0, buffer, size)
    return buffer.raw if used == size else b""


def find(pid: int) -> MacProcess | None:
    """Return a process; None if there is none, or it has ended."""
    answer = _pid_info(pid, _SHORT_BSD_INFO, SHORT_BSD_INFO.size)
    if not answer:
        return None
    fields = SHORT_BSD_INFO.unpack(answer)
    if fields[0] != pid or fields[3] == _ZOMBIE:
        return None
    return MacProcess(pid, fields[1], fields[2], fields[6], fields[4].partition(b"\0")[0])


def started_at(pid: int) -> float | None:
    """Return when a process of this user started, in seconds of the wall clock; else None."""
    answer = _pid_info(pid, _BSD_INFO, BSD_INFO.size)
    if not answer:
        return None
    *_, seconds, microseconds = BSD_INFO.unpack(answer)
    return float(seconds + microseconds / 1e6)


def has_lost_parent(pid: int) -> bool:
    """Return whether a child of launchd was started by another process, or that is not known."""
    first = _pid_info(_LAUNCHD, _UNIQUE_INFO, UNIQUE_INFO.size)
    found = _pid_info(pid, _UNIQUE_INFO, UNIQUE_INFO.size)
    if not first or not found:
        return True
    return bool(UNIQUE_INFO.unpack(found)[2] != UNIQUE_INFO.unpack(first)[1])


def resident_bytes(pid: int) -> int:
    answer = _pid_info(pid, _TASK_INFO, TASK_INFO.size)
    return TASK_INFO.unpack(answer)[1] if answer else 0


def processes() -> Iterator[tuple[int, int, str]]:
    """Yield (pid, parent's pid, state) of every process, as `guard_program` reads it of /proc."""
    for pid in all_pids():
        found = find(pid)
        if found is not None:
            yield pid, found.parent, "R"


def descendants(pids: Iterable[int]) -> set[int]:
    """Return what is below these processes."""
    found: set[int] = set()
    todo = list(pids)
    while todo:
        fresh = [pid for pid in children(todo.pop()) if pid not in found]
        found.update(fresh)
        todo += fresh
    return found


def arguments(pid: int) -> tuple[list[bytes], list[bytes]]:
    """Return the words and the environment a process was started with; empty if not shown."""
    name = (ctypes.c_int * 3)(_CTL_KERN, _KERN_PROCARGS2, pid)
    buffer = ctypes.create_string_buffer(_ARG_MAX)
    size = ctypes.c_size_t(_ARG_MAX)
    if _library().sysctl(name, 3, buffer, ctypes.byref(size), None, 0) != 0 or size.value < 4:
        return [], []
    answer = buffer.raw[: size.value]
    (count,) = struct.unpack_from("=i", answer)
    # The path of the program, filled up with NULs; then words, variables, and what dyld is given.
    _, _, rest = answer[4:].partition(b"\0")
    parts = rest.lstrip(b"\0").split(b"\0")
    words, others = parts[:count], parts[count:]
    end = others.index(b"") if b"" in others else len(others)
    return words, others[:end]


def mark_of(pid: int) -> bytes | None:
    """Return the mark of the guard that a process was started below; None if it has none."""
    start = MARK_VARIABLE + b"="
    for variable in arguments(pid)[1]:
        if variable.startswith(start):
            return variable[len(start) :]
    return None


def family(known: Iterable[int], groups: Iterable[int], mark: bytes) -> set[int]:
    """Return the living of what a guard started, without subreapers to keep it together.

    That is: what is known already, what is below it, what is in one of the process groups, and what
    has the guard's mark in its environment. A process that lost its parent, left its group and
    hides its environment is not found.
    """
    me, uid, wanted = os.getpid(), os.geteuid(), set(groups)
    seeds = set(known)
    for pid in all_pids():
        process = find(pid)
        if process is None or pid == me:
            continue
        is_marked = process.uid == uid and pid not in seeds and mark_of(pid) == mark
        if process.group in wanted or is_marked:
            seeds.add(pid)
    return {pid for pid in seeds | descendants(seeds | {me}) if pid != me and find(pid)}


def tcp_connections(pid: int) -> list[tuple[bytes, int, bytes, int]] | None:
    """Return the TCP sockets of a process: address and port here, address and port there.

    Addresses are packed, of 4 or 16 bytes. None if the process may not be looked into.
    """
    listed = _library().proc_pidinfo
    ctypes.set_errno(0)
    size = listed(pid, _LIST_FDS, 0, None, 0)
    if size <= 0:
        return None if ctypes.get_errno() in _UNREADABLE else []
    buffer = ctypes.create_string_buffer(size + FD_INFO.size * _ROOM)
    used = listed(pid, _LIST_FDS, 0, buffer, len(buffer))
    if used <= 0:
        return None if ctypes.get_errno() in _UNREADABLE else []
    whole = buffer.raw[: used - used % FD_INFO.size]
    sockets = [fd for fd, kind in FD_INFO.iter_unpack(whole) if kind == _FD_IS_SOCKET]
    found = (_tcp_connection(pid, fd) for fd in sockets)
    return [each for each in found if each is not None]


def _tcp_connection(pid: int, fd: int) -> tuple[bytes, int, bytes, int] | None:
    buffer = ctypes.create_string_buffer(SOCKET_FD_INFO_BYTES)
    used = _library().proc_pidfdinfo(pid, fd, _FD_SOCKET_INFO, buffer, SOCKET_FD_INFO_BYTES)
    answer = buffer.raw
    if used != SOCKET_FD_INFO_BYTES:
        return None
    if struct.unpack_from("=i", answer, SOCKET_KIND_AT)[0] != SOCKET_IS_TCP:
        return None
    fields = IN_SOCKET.unpack_from(answer, IN_SOCKET_AT)
    (there, here), version, (far, near) = fields[:2], fields[5], fields[-2:]
    if version & _IS_IPV4:
        far, near = far[12:], near[12:]
    return near, int.from_bytes(here, "big"), far, int.from_bytes(there, "big")


def boot_session() -> str:
    """Return what changes when the system starts; empty if the system does not say."""
    buffer = ctypes.create_string_buffer(64)
    size = ctypes.c_size_t(len(buffer))
    name = b"kern.bootsessionuuid"
    if _library().sysctlbyname(name, buffer, ctypes.byref(size), None, 0) != 0:
        return ""
    return buffer.raw[: size.value].partition(b"\0")[0].decode("ascii", "replace")
