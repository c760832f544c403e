"""Find out whether a connection to this process was opened by a process of an agent.

An agent runs as the same user as its owner, so files and tokens alone cannot tell them apart. Its
processes can: everything that an agent or a terminal starts stays below its guard
(`guard_program`), which is a child of this process and a subreaper, so a process that forks twice
and begins a session of its own is still below it.

Two kinds of connection:

- A Unix socket: the kernel says which process connected (`SO_PEERCRED`). That process must be
  alive, and older than the connection, since a number can be used again.
- TCP from this machine: the kernel (`sock_diag`) says which socket is at the other end, and /proc
  says which processes hold it. The processes of agents are searched first. A socket that no
  process holds is suspicious, too: its holder has closed it, or has put it into a message that
  was not received yet.

What this cannot see: a process that something else starts for the agent (a container engine, a
service manager, a scheduler), and an agent that killed both of its guards.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from dataclasses import dataclass
from typing import Final, Literal

from quarterdeck.machine.guard_program import living_descendants

Origin = Literal["agent", "other", "unknown", "gone"]
"""Who opened a connection: an agent's process; another process; not to be found out; nobody any
more, because the process or its socket is gone."""

_PEER_CREDENTIALS: Final = struct.Struct("3i")
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_REQUEST: Final = 1
_NLMSG_HEADER: Final = struct.Struct("=IHHII")
_DIAG_REQUEST: Final = struct.Struct("=BBBxI")
_SOCKET_ID: Final = struct.Struct("!HH16s16s")
_ANY_COOKIE: Final = b"\xff" * 8
_DIAG_TAIL: Final = struct.Struct("=5I")  # expires, rqueue, wqueue, uid, inode
_DIAG_ID_BYTES: Final = 4 + 48
_ESTABLISHED: Final = (1, 8)  # TCP_ESTABLISHED, TCP_CLOSE_WAIT
_GUARD: Final = b"guard_program.py"


@dataclass(frozen=True, slots=True)
class SocketPeer:
    """The process at the other end of a Unix socket, when it connected."""

    pid: int
    uid: int
    gid: int


def socket_peer(connection: socket.socket) -> SocketPeer | None:
    """Return who connected to a Unix socket; None where the system does not say."""
    if sys.platform != "linux" or connection.family != socket.AF_UNIX:
        return None
    size = _PEER_CREDENTIALS.size
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return SocketPeer(*_PEER_CREDENTIALS.unpack(raw))


def origin_of_pid(pid: int, owner: int | None = None) -> Origin:
    """Return whether a process is below a guard of `owner`, by default this process."""
    if sys.platform != "linux":
        return "unknown"
    owner = os.getpid() if owner is None else owner
    child = pid
    parent = _parent(child)
    if parent is None:
        return "gone"
    while parent is not None and parent > 0:
        if parent == owner:
            return "agent" if _is_guard(child) else "other"
        child, parent = parent, _parent(parent)
    return "other" if parent is not None else "gone"


def _parent(pid: int) -> int | None:
    """Return the parent of a process; None if there is no such process."""
    line = _read(f"/proc/{pid}/stat")
    if not line:
        return None
    state, parent = line[line.rindex(b")") + 1 :].split(None, 2)[:2]
    return None if state in (b"Z", b"X") else int(parent)


def _is_guard(pid: int) -> bool:
    return any(part.endswith(_GUARD) for part in _read(f"/proc/{pid}/cmdline").split(b"\0")[:6])


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - an approval waits for this
            return file.read()
    except OSError:
        return b""


# ---- TCP -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TcpEnd:
    """The other end of a TCP connection within this machine."""

    inode: int
    uid: int


def origin_of_connection(
    peer: tuple[str, int], here: tuple[str, int], owner: int | None = None
) -> Origin:
    """Return who holds the other end of a TCP connection from this machine.

    `peer` and `here` are addresses as `getpeername` and `getsockname` of our end return them.
    """
    if sys.platform != "linux":
        return "unknown"
    end = _tcp_end(peer, here)
    if end is None or end.inode == 0:
        return "gone"
    owner = os.getpid() if owner is None else owner
    below = _below_guards(owner)
    link = f"socket:[{end.inode}]"
    if any(_holds(pid, link, end.uid) for pid in below):
        return "agent"
    return _holder_elsewhere(link, end.uid, below)


def _below_guards(owner: int) -> set[int]:
    children = [pid for pid in _children(owner) if _is_guard(pid)]
    return {pid for child in children for pid in (child, *living_descendants(child))}


def _children(pid: int) -> list[int]:
    """Return the children of a process, of all its threads."""
    found = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - as above
    except OSError:
        return []
    for thread in threads:
        found += [int(each) for each in _read(f"/proc/{pid}/task/{thread}/children").split()]
    return found


def _holds(pid: int, link: str, uid: int) -> bool:
    """Whether a process holds a socket; one that may not be looked into, if the user matches."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - as above
    except PermissionError:
        return _uid(pid) == uid
    except OSError:
        return False
    return any(_link(f"/proc/{pid}/fd/{name}") == link for name in names)


def _holder_elsewhere(link: str, uid: int, agents: set[int]) -> Origin:
    """Return "other" if a process holds the socket, "unknown" if one may, that is unreadable."""
    is_unreadable = False
    for name in os.listdir("/proc"):  # noqa: PTH208 - as above
        if not name.isdigit() or int(name) in agents:
            continue
        try:
            fds = os.listdir(f"/proc/{name}/fd")  # noqa: PTH208 - as above
        except PermissionError:
            is_unreadable = is_unreadable or _uid(int(name)) == uid
            continue
        except OSError:
            continue
        if any(_link(f"/proc/{name}/fd/{fd}") == link for fd in fds):
            return "other"
    return "unknown" if is_unreadable else "gone"


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - as above
    except OSError:
        return ""


def _uid(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116 - as above
    except OSError:
        return -1


def _tcp_end(peer: tuple[str, int], here: tuple[str, int]) -> TcpEnd | None:
    """Ask the kernel for the socket that is bound to `peer` and connected to `here`."""
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    source, target = (socket.inet_pton(family, each[0].split("%")[0]) for each in (peer, here))
    identity = _SOCKET_ID.pack(peer[1], here[1], source, target) + struct.pack("=I", 0)
    states = sum(1 << state for state in _ESTABLISHED)
    body = _DIAG_REQUEST.pack(family, socket.IPPROTO_TCP, 0, states) + identity + _ANY_COOKIE
    header = _NLMSG_HEADER.pack(
        _NLMSG_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_REQUEST, 1, 0
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(1.0)
        netlink.send(header + body)
        answer = netlink.recv(4096)
    kind = _NLMSG_HEADER.unpack_from(answer)[1]
    if kind != _SOCK_DIAG_BY_FAMILY:
        return None
    # struct inet_diag_msg: family, state, timer, retrans; the identity; then these five numbers
    *_, uid, inode = _DIAG_TAIL.unpack_from(answer, _NLMSG_HEADER.size + _DIAG_ID_BYTES)
    return TcpEnd(inode=inode, uid=uid)
