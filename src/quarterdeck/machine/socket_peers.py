"""Who is at the other end of a socket of this machine, as the kernel knows it.

A Unix socket names the process that connected (`SO_PEERCRED`), and since Linux 6.5 also gives a
handle of it (`SO_PEERPIDFD`) that stays true when the number of the process is used again. macOS
names the process that used the socket last (`LOCAL_PEERPID`), while it is open.

For TCP the kernel names the socket at the other end, by its inode, if it is in the same network
namespace (`sock_diag`). Which processes hold that socket is in /proc; see `process_origin`. Whether
an address is one of this machine is asked of the routing table, so it includes the address of the
network card and all of 127.0.0.0/8; without one, by giving it to a socket.

An address that is IPv4 inside of IPv6 (`::ffff:127.0.0.1`) is treated as IPv4: a client with an
IPv4 socket connects to a server that listens on `::` in that way.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import sys
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any, Final

_SYSTEM: Final[str] = sys.platform  # a variable, so that a type checker reads all
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID = 0, 1, 2
_XUCRED: Final = struct.Struct("=IIh2x16I")  # version, user, how many groups, the groups
_PEER_CREDENTIALS: Final = struct.Struct("3i")
_SO_PEERPIDFD: Final = 77
_NETLINK_ROUTE: Final = 0
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_RTM_NEWROUTE, _RTM_GETROUTE = 24, 26
_RTA_DST: Final = 1
_RTN_LOCAL: Final = 2
_NLM_REQUEST: Final = 1
_NLMSG_HEADER: Final = struct.Struct("=IHHII")
_DIAG_REQUEST: Final = struct.Struct("=BBBxI")
_SOCKET_ID: Final = struct.Struct("!HH16s16s")
_ANY_COOKIE: Final = b"\xff" * 8
_DIAG_TAIL: Final = struct.Struct("=5I")  # expires, rqueue, wqueue, uid, inode
_DIAG_ID_BYTES: Final = 4 + 48
_ALL_STATES: Final = 0xFFFF
_LISTEN: Final = 10
_ROUTE: Final = struct.Struct("=8BI")
_ROUTE_TYPE: Final = 7  # of the eight bytes
_ATTRIBUTE: Final = struct.Struct("=HH")
_ANSWER_BYTES: Final = 8_192
_SECONDS: Final = 1.0  # the kernel answers at once


@dataclass(frozen=True, slots=True)
class SocketPeer:
    """The process at the other end of a Unix socket, when it connected."""

    pid: int
    """0 for a process outside of our PID namespace."""
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class TcpEnd:
    """A TCP socket of this machine."""

    inode: int
    """0 if no process has it open any more."""
    uid: int


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """One end of a TCP connection."""

    host: str
    port: int
    interface: int = 0
    """The index of the interface of a link-local address."""

    @classmethod
    def of(cls, name: tuple[Any, ...]) -> TcpAddress:
        """Make it of what `getpeername` and `getsockname` return."""
        host, _, _ = str(name[0]).partition("%")
        if ":" in host:
            mapped = IPv6Address(host).ipv4_mapped
            if mapped is not None:
                return cls(str(mapped), name[1])
        return cls(host, name[1], name[3] if len(name) > 3 else 0)

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    @property
    def packed(self) -> bytes:
        return socket.inet_pton(self.family, self.host)


def socket_peer(connection: socket.socket) -> SocketPeer | None:
    """Return who connected to a Unix socket; None where the system does not say."""
    if connection.family != socket.AF_UNIX:
        return None
    if _SYSTEM == "darwin":
        return _mac_peer(connection)
    if _SYSTEM != "linux":
        return None
    size = _PEER_CREDENTIALS.size
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return SocketPeer(*_PEER_CREDENTIALS.unpack(raw))


def _mac_peer(connection: socket.socket) -> SocketPeer:
    """Ask macOS: the user is that of `connect`, the process the last one that used the socket."""
    raw = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size)
    _, uid, _, gid, *_ = _XUCRED.unpack(raw)
    pid = connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID)
    return SocketPeer(pid=pid, uid=uid, gid=gid)


class PeerHandle:
    """The process that connected to a Unix socket; a context manager.

    Without help of the kernel (before Linux 6.5) it is not known, and `is_pinned` is False.

    Raises:
        OSError: if the connection is closed.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._fd = -1
        self._is_gone = False
        if _SYSTEM != "linux":
            return
        try:
            self._fd = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError as error:
            if error.errno == errno.EBADF:
                raise
            # On kernels that know the option: the process has ended.
            self._is_gone = error.errno in (errno.ESRCH, errno.EINVAL)

    def __enter__(self) -> PeerHandle:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    @property
    def is_pinned(self) -> bool:
        return self._fd >= 0

    @property
    def has_ended(self) -> bool:
        """Whether the process is known to have ended."""
        if self._fd < 0:
            return self._is_gone
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(0))


def tcp_end(peer: TcpAddress, here: TcpAddress) -> TcpEnd | None:
    """Return the socket that is bound to `peer` and connected to `here`; None: there is none.

    Raises:
        OSError: if the kernel cannot be asked.
    """
    identity = _SOCKET_ID.pack(peer.port, here.port, peer.packed, here.packed) + struct.pack(
        "=I", peer.interface
    )
    body = _DIAG_REQUEST.pack(peer.family, socket.IPPROTO_TCP, 0, _ALL_STATES)
    kind, answer = _ask(_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, body + identity + _ANY_COOKIE)
    if kind != _SOCK_DIAG_BY_FAMILY:
        return None
    # struct inet_diag_msg: family, state, timer, retrans; the identity; then five numbers
    port, target = struct.unpack_from("!HH", answer, 4)
    if answer[1] == _LISTEN or (port, target) != (peer.port, here.port):
        return None  # a listener at the port of a connection that is closed
    *_, uid, inode = _DIAG_TAIL.unpack_from(answer, _DIAG_ID_BYTES)
    return TcpEnd(inode=inode, uid=uid)


def is_own_address(address: TcpAddress) -> bool:
    """Return whether an address is one of this machine.

    Raises:
        OSError: if the kernel cannot be asked.
    """
    packed = address.packed
    if _SYSTEM != "linux":
        return _can_bind(address)
    body = _ROUTE.pack(address.family, len(packed) * 8, *[0] * 6, 0)
    attribute = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), _RTA_DST) + packed
    kind, answer = _ask(_NETLINK_ROUTE, _RTM_GETROUTE, body + attribute)
    return kind == _RTM_NEWROUTE and answer[_ROUTE_TYPE] == _RTN_LOCAL


def _can_bind(address: TcpAddress) -> bool:
    """Return whether a socket can have this address; only those of this machine can be given."""
    with socket.socket(address.family, socket.SOCK_DGRAM) as probe:
        scope = (0, address.interface) if address.family == socket.AF_INET6 else ()
        try:
            probe.bind((address.host, 0, *scope))
        except OSError:
            return False
    return True


def _ask(protocol: int, kind: int, body: bytes) -> tuple[int, bytes]:
    """Send one message to the kernel; return the kind and the body of the answer."""
    header = _NLMSG_HEADER.pack(_NLMSG_HEADER.size + len(body), kind, _NLM_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as netlink:
        netlink.settimeout(_SECONDS)
        netlink.send(header + body)
        answer = netlink.recv(_ANSWER_BYTES)
    return _NLMSG_HEADER.unpack_from(answer)[1], answer[_NLMSG_HEADER.size :]
