"""libproc and sysctl of macOS as Python functions: the layouts of `sys/proc_info.h`, from /proc.

Standard library only, and no package: guards, which start with `python -I -S`, load it as well.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import time
from types import SimpleNamespace
from typing import Any

_real_open, _real_listdir, _real_readlink = os.open, os.listdir, os.readlink
_real_lstat = os.lstat
_real_getsockopt = socket.socket.getsockopt
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
RUN = "/tests/fake_macos/run.py"
LOST: set[int] = set()
"""Processes whose first parent was another one; /proc does not say it."""
_RESTRICTED = ("/bin/", "/usr/bin/")
"""Programs whose environment macOS does not show; Python is not one of them."""


def _read(path: str) -> bytes:
    try:
        fd = _real_open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        parts = []
        while part := os.read(fd, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat behind the name, the state first."""
    line = _read(f"/proc/{pid}/stat")
    return line[line.rindex(b")") + 1 :].split() if line else []


def _fail(number: int) -> int:
    ctypes.set_errno(number)
    return 0


def _answer(buffer: Any, size: int, content: bytes) -> int:
    if len(content) > size:
        return _fail(errno.ENOMEM)
    ctypes.memmove(buffer, content, len(content))
    return len(content)


def _pids() -> list[int]:
    return [int(name) for name in _real_listdir("/proc") if name.isdigit()]


def proc_listpids(kind: int, value: int, buffer: Any, size: int) -> int:
    pids = _pids()
    if buffer is None:
        return 4 * (len(pids) + 20)  # more than needed, as the kernel says it
    if kind == 6:
        pids = [pid for pid in pids if (found := _stat(pid)) and int(found[1]) == value]
    elif kind != 1:
        return _fail(errno.EINVAL)
    content = struct.pack(f"={len(pids)}i", *pids)[: size - size % 4]
    return _answer(buffer, size, content)


def _uid(pid: int) -> int:
    try:
        return _real_lstat(f"/proc/{pid}").st_uid
    except OSError:
        return -1


def proc_pidinfo(pid: int, flavor: int, _argument: int, buffer: Any, size: int) -> int:
    found = _stat(pid)
    if not found or found[0] in (b"Z", b"X"):
        return _fail(errno.ESRCH)
    uid = max(_uid(pid), 0)
    if flavor not in (13, 17) and os.geteuid() not in (0, uid):
        return _fail(errno.EPERM)
    if flavor == 1:
        if buffer is None:
            return 8 * (len(_fds(pid)) + 20)
        _tcp_table.clear()
        fds = b"".join(struct.pack("=iI", fd, kind) for fd, kind in _fds(pid))
        return _answer(buffer, size, fds[: size - size % 8])
    content = _facts(pid, flavor, uid, found)
    return _answer(buffer, size, content) if content else _fail(errno.EINVAL)


def _facts(pid: int, flavor: int, uid: int, found: list[bytes]) -> bytes:
    parent, group = int(found[1]), int(found[2])
    name = _read(f"/proc/{pid}/comm").strip()[:15]
    if flavor == 13:
        return struct.pack("=4I16s8I", pid, parent, group, 2, name, 0, *[uid] * 6, 0)
    if flavor == 17:
        first = 0 if pid in LOST else parent
        return struct.pack("=16s2Q2i2Q", b"", pid, first, *[0] * 4)
    if flavor == 3:
        age = time.clock_gettime(_CLOCK) - int(found[19]) / os.sysconf("SC_CLK_TCK")
        seconds, part = divmod(time.time() - age, 1)
        ids = (0, 2, 0, pid, parent, *[uid] * 6, 0)
        rest = (0, group, 0, 0, 0, 0, int(seconds), int(part * 1e6))
        return struct.pack("=12I16s32s5Ii2Q", *ids, name, name, *rest)
    if flavor == 4:
        pages = int(_read(f"/proc/{pid}/statm").split()[1])
        resident = pages * os.sysconf("SC_PAGE_SIZE")
        return struct.pack("=6Q12i", 0, resident, *[0] * 16)
    return b""


def _fds(pid: int) -> list[tuple[int, int]]:
    """Return number and kind of what a process has open."""
    try:
        names = _real_listdir(f"/proc/{pid}/fd")
    except OSError:
        return []
    links = {int(name): _link(pid, int(name)) for name in names}
    return [(fd, 2 if link.startswith("socket:") else 1) for fd, link in links.items() if link]


def _link(pid: int, fd: int) -> str:
    try:
        return _real_readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return ""


def proc_pidfdinfo(pid: int, fd: int, flavor: int, buffer: Any, size: int) -> int:
    link = _link(pid, fd)
    if not link:
        return _fail(errno.EBADF)
    if flavor != 3 or not link.startswith("socket:"):
        return _fail(errno.EINVAL)
    content = bytearray(792)
    ends = _tcp_ends(link.removeprefix("socket:[").removesuffix("]"))
    kind = 0 if ends is None else 2
    struct.pack_into("=i", content, 24 + 232, kind)
    if ends is not None:
        near, near_port, far, far_port = ends
        struct.pack_into("!H", content, 264, far_port)
        struct.pack_into("!H", content, 268, near_port)
        content[264 + 24] = 1 if len(near) == 4 else 2
        content[264 + 32 : 264 + 48] = far.rjust(16, b"\0")
        content[264 + 48 : 264 + 64] = near.rjust(16, b"\0")
    return _answer(buffer, size, bytes(content))


_tcp_table: dict[str, tuple[str, str]] = {}
"""The ends of each connection by its inode; read again once for each process that is listed."""


def _tcp_ends(inode: str) -> tuple[bytes, int, bytes, int] | None:
    if not _tcp_table:
        for name in ("tcp", "tcp6"):
            for line in _read(f"/proc/net/{name}").decode().splitlines()[1:]:
                words = line.split()
                _tcp_table[words[9]] = (words[1], words[2])
    ends = _tcp_table.get(inode)
    return None if ends is None else (*_address(ends[0]), *_address(ends[1]))


def _address(text: str) -> tuple[bytes, int]:
    """Read an address of /proc/net/tcp: words of 4 bytes in the order of the machine."""
    digits, _, port = text.partition(":")
    words = [digits[at : at + 8] for at in range(0, len(digits), 8)]
    packed = b"".join(struct.pack("=I", int(word, 16)) for word in words)
    mapped = packed.removeprefix(b"\0" * 10 + b"\xff\xff")
    return (mapped if len(mapped) == 4 else packed), int(port, 16)


def sysctl(name: Any, _count: int, buffer: Any, size: Any, _new: Any, _length: int) -> int:
    length = getattr(size, "_obj", size)
    if list(name)[:2] != [1, 49]:
        ctypes.set_errno(errno.ENOENT)
        return -1
    pid = list(name)[2]
    words = _read(f"/proc/{pid}/cmdline").split(b"\0")[:-1]
    if not words:
        ctypes.set_errno(errno.EINVAL)
        return -1
    at = next((i for i, word in enumerate(words[:5]) if word.endswith(RUN.encode())), None)
    if at is not None:
        words = words[at + 1 :]
    content = struct.pack("=i", len(words)) + words[0] + b"\0" * 8 + b"\0".join(words) + b"\0"
    content += b"" if _is_restricted(pid) else _read(f"/proc/{pid}/environ")
    content += b"\0ptr_munge=\0"
    length.value = _answer(buffer, length.value, content)
    return 0


def _is_restricted(pid: int) -> bool:
    try:
        program = _real_readlink(f"/proc/{pid}/exe")
    except OSError:
        return True
    return program.startswith(_RESTRICTED) and "python" not in program


def sysctlbyname(name: bytes, buffer: Any, size: Any, _new: Any, _length: int) -> int:
    length = getattr(size, "_obj", size)
    if name != b"kern.bootsessionuuid":
        ctypes.set_errno(errno.ENOENT)
        return -1
    boot = _read("/proc/sys/kernel/random/boot_id").strip() + b"\0"
    length.value = _answer(buffer, length.value, boot)
    return 0


def local_option(connection: socket.socket, option: int, size: int) -> int | bytes:
    """Return LOCAL_PEERCRED (1) or LOCAL_PEERPID (2) of a Unix socket.

    Raises:
        OSError: if it is not connected any more, or there is no such option.
    """
    import select  # noqa: PLC0415 - a guard needs none of this

    raw = _real_getsockopt(connection, socket.SOL_SOCKET, 17, 12)  # EBADF if it is closed
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    if any(state & (select.POLLHUP | select.POLLNVAL) for _, state in poll.poll(0)):
        raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
    pid, uid, gid = struct.unpack("3i", raw)
    if option == 2:
        return int(pid)
    if option == 1:
        return struct.pack("=IIh2x16I", 0, uid, 1, gid, *[0] * 15)[:size]
    raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))


def library() -> SimpleNamespace:
    """Return what `ctypes.CDLL(None)` is on macOS, as far as it is used."""
    calls = (proc_listpids, proc_pidinfo, proc_pidfdinfo, sysctl, sysctlbyname)
    return SimpleNamespace(**{call.__name__: call for call in calls})
