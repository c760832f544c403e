"""Find out whether a connection to this process was opened by a process of an agent.

An agent runs as the same user as its owner, so files and tokens alone cannot tell them apart. Its
processes can: everything that an agent or a terminal starts stays below its guard
(`guard_program`), which is a subreaper, so a process that forks twice and begins a session of its
own is still below it. The guards of every hub count, not only of this one, but not a guard that is
above this process itself: a hub that an agent starts serves that agent.

- A Unix socket: the kernel names the process that connected, and we walk up from it. It must be
  alive and must be the one that connected, since numbers of processes are used again.
- TCP from this machine: the kernel names the socket at the other end, and /proc says which
  processes hold it. Those of agents are searched first, then all others, until one holds it, and
  from that one we walk up. A socket that no process holds is suspicious: its holder has closed it,
  or has put it into a message that was not received yet.

- A process whose guards were killed is not below them any more, but has their mark: a hard limit
  below ours that is inherited and that only root can raise again.

What this cannot see: a process that something else starts for the agent (a container engine, a
service manager, a scheduler, a terminal multiplexer of the owner), and a TCP socket that the agent
gave to a program outside, which holds it, before it was looked up. ADR 0032 says what follows from
that.

A process may end while we walk, and its children then have another parent: the walk is repeated
once.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from quarterdeck.machine.guard_program import MARK_BYTES, living_descendants
from quarterdeck.machine.socket_peers import (
    PeerHandle,
    TcpAddress,
    TcpEnd,
    is_own_address,
    socket_peer,
    tcp_end,
)

Origin = Literal["agent", "other", "unknown", "gone"]
"""What opened a connection: an agent's process; another process; not to be found out; a process
or a socket that is gone."""

_GUARD: Final = b"/guard_program.py"  # as `guarded_command` writes it: python -I -S PATH …
_MARKED_LIMIT: Final = b"Max msgqueue size"
_MOST_ANCESTORS: Final = 1_000


@dataclass(frozen=True, slots=True)
class PeerOrigin:
    """What opened a connection, and its process where that is known."""

    origin: Origin
    pid: int = 0

    @property
    def program(self) -> str:
        """The name of the program, for people."""
        return _read(f"/proc/{self.pid}/comm").decode(errors="replace").strip()


def can_find_origin() -> bool:
    """Return whether this machine says what opened a connection."""
    try:
        is_own_address(TcpAddress("127.0.0.1", 1))
    except (AttributeError, OSError):
        return False
    return sys.platform == "linux" and bool(_read("/proc/self/stat"))


def origin_of_pid(pid: int) -> Origin:
    """Return whether a process is below a guard that this process is not below."""
    if sys.platform != "linux":
        return "unknown"
    if pid == 0:
        return "other"  # outside of our PID namespace, where no agent of ours can be
    found = _walk(pid)
    return _walk(pid) if found == "gone" else found


def _walk(pid: int) -> Origin:
    lineage = {os.getpid(), *_ancestors(os.getpid())}
    if _is_marked(pid):
        return "agent"
    for process in (pid, *_ancestors(pid)):
        if process < 0:
            return "unknown" if process == _HIDDEN else "gone"
        if process in lineage:
            return "other"
        if _is_guard(process):
            return "agent"
    return "other"


_HIDDEN: Final = -1
_ENDED: Final = -2


def _ancestors(pid: int) -> Iterator[int]:
    """Yield the ancestors of a process, nearest first; last why there are no more, if it failed."""
    for _ in range(_MOST_ANCESTORS):
        parent = _parent(pid)
        if parent == 0:
            return
        yield parent
        if parent < 0:
            return
        pid = parent


def _parent(pid: int) -> int:
    """Return the parent of a process, 0 for the first one, `_HIDDEN` or `_ENDED`."""
    line = _read(f"/proc/{pid}/stat")
    if not line:
        return _HIDDEN if _is_hidden(pid) else _ENDED
    # The name of the program is in parentheses and may contain anything.
    state, parent = line[line.rindex(b")") + 1 :].split(None, 2)[:2]
    return _ENDED if state in (b"Z", b"X") else int(parent)


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process, of another user, that /proc does not show (hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _is_guard(pid: int) -> bool:
    words = _read(f"/proc/{pid}/cmdline").split(b"\0", 4)
    return words[1:3] == [b"-I", b"-S"] and words[3].endswith(_GUARD)


def _is_marked(pid: int) -> bool:
    """Whether a process has a limit that guards set for all below them: lower than ours.

    A process may lower it further. Ours may be one of another guard, if an agent started us.
    """
    limit = _marked_limit(pid)
    return limit <= MARK_BYTES and limit < _marked_limit(os.getpid())


def _marked_limit(pid: int) -> float:
    for line in _read(f"/proc/{pid}/limits").splitlines():
        if line.startswith(_MARKED_LIMIT):
            hard = line.split()[-2]
            return float("inf") if hard == b"unlimited" else int(hard)
    return float("inf")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - an approval waits for this
            return file.read()
    except OSError:
        return b""


# ---- Unix sockets --------------------------------------------------------------------------------


def origin_of_socket(connection: socket.socket, accepted_at: float) -> PeerOrigin:
    """Return what connected to a Unix socket.

    `accepted_at` is `boot_seconds()` when it was accepted.
    """
    try:
        peer = socket_peer(connection)
        handle = PeerHandle(connection)
    except OSError:
        return PeerOrigin("gone")  # it is closed already
    with handle:
        if peer is None or peer.pid == 0:
            return PeerOrigin("unknown" if peer is None else origin_of_pid(0))
        origin = origin_of_pid(peer.pid)
        # After the walk: until now the number can have been given to another process.
        is_other = handle.has_ended or (
            not handle.is_pinned and _started_at(peer.pid) > accepted_at
        )
    return PeerOrigin("gone" if is_other else origin, peer.pid)


def boot_seconds() -> float:
    """Return the time since the machine started, by the clock of /proc."""
    if sys.platform != "linux":
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _started_at(pid: int) -> float:
    line = _read(f"/proc/{pid}/stat")
    if not line:
        return float("inf")
    return int(line[line.rindex(b")") + 1 :].split()[19]) / os.sysconf("SC_CLK_TCK")


# ---- TCP -----------------------------------------------------------------------------------------


class TcpOrigins:
    """Finds what holds the other ends of TCP connections.

    It remembers which processes held one: a browser opens many connections.
    """

    def __init__(self) -> None:
        self._holders: dict[int, None] = {}

    def find(self, peer: TcpAddress, here: TcpAddress) -> PeerOrigin | None:
        """Return what holds the other end of a connection; None if it is not of this machine."""
        if sys.platform != "linux":
            return PeerOrigin("unknown") if _is_loopback(peer, here) else None
        try:
            end = tcp_end(peer, here)
            if end is None:
                is_own = peer.host == here.host or is_own_address(peer)
                return PeerOrigin("gone") if is_own else None
        except OSError:
            return PeerOrigin("unknown")
        return PeerOrigin("gone") if end.inode == 0 else self._holder(end)

    def _holder(self, end: TcpEnd) -> PeerOrigin:
        link = f"socket:[{end.inode}]"
        below = below_guards(os.getpid())
        unreadable: list[int] = []
        for pid in below:
            holds = _holds(pid, link)
            if holds:
                return PeerOrigin("agent", pid)
            if holds is None and _has_user(pid, end.uid):
                unreadable.append(pid)
        for pid in self._candidates(below, end.uid):
            holds = _holds(pid, link)
            if holds:
                self._remember(pid)
                return PeerOrigin(origin_of_pid(pid), pid)
            if holds is None and _has_user(pid, end.uid):
                unreadable.append(pid)
        for pid in unreadable:  # a process of an agent that hides what it has open
            if pid in below or origin_of_pid(pid) == "agent":
                return PeerOrigin("agent", pid)
        return PeerOrigin("unknown" if unreadable else "gone")

    def _candidates(self, agents: set[int], uid: int) -> Iterator[int]:
        """Yield every process once, the likely holders first: each open file costs microseconds."""
        remembered = [pid for pid in reversed(self._holders) if pid not in agents]
        yield from remembered
        unlikely: list[int] = []
        for pid in _others(agents.union(remembered)):
            if _owner(pid) == uid:
                yield pid
            else:  # of a program that was given the socket, or that hides what it has open
                unlikely.append(pid)
        yield from unlikely

    def _remember(self, pid: int) -> None:
        self._holders.pop(pid, None)
        self._holders[pid] = None
        if len(self._holders) > _MOST_HOLDERS:
            del self._holders[next(iter(self._holders))]


_MOST_HOLDERS: Final = 8


def _is_loopback(peer: TcpAddress, here: TcpAddress) -> bool:
    return peer.host in (here.host, "::1") or peer.host.startswith("127.")


def below_guards(owner: int) -> set[int]:
    """Return the guards of a process, and everything below them."""
    guards = [pid for pid in _children(owner) if _is_guard(pid)]
    found: set[int] = set()
    todo = guards
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += _children(pid)
    return found


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process; without the kernel's list, all below it."""
    if not _HAS_CHILDREN:
        return living_descendants(pid)
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - as above
    except OSError:
        return []  # it has ended meanwhile
    for thread in threads:
        found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


_HAS_CHILDREN: Final = Path(f"/proc/self/task/{os.getpid()}/children").exists()


def _others(agents: set[int]) -> list[int]:
    """Return the processes that are not in `agents`, the newest first: most likely it connected."""
    names = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - as above
    return sorted((pid for pid in names if pid not in agents), reverse=True)


def _holds(pid: int, link: str) -> bool | None:
    """Whether a process holds a socket; None if that cannot be read."""
    try:
        folder = os.open(f"/proc/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return None
    except OSError:
        return False
    try:
        for name in os.listdir(folder):  # noqa: PTH208 - as above
            try:
                if os.readlink(name, dir_fd=folder) == link:
                    return True
            except OSError:
                continue  # closed meanwhile
        return False
    except OSError:
        return False  # it has ended meanwhile
    finally:
        os.close(folder)


def _owner(pid: int) -> int:
    """Return the user of a process; another one if it hides what it has open."""
    try:
        return os.stat(f"/proc/{pid}").st_uid  # noqa: PTH116 - as above
    except OSError:
        return -1


def _has_user(pid: int, uid: int) -> bool:
    """Whether a process runs as a user; the owner of /proc/PID is another one if it hides."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"Uid:"):
            return str(uid).encode() in line.split()[1:]
    return False
