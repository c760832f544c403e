"""Find out whether a connection to this process was opened by a process of an agent.

An agent runs as the same user as its owner, so files and tokens alone cannot tell them apart. Its
processes can: everything that an agent or a terminal starts stays below its guard
(`guard_program`), which is a subreaper, so a process that forks twice and begins a session of its
own is still below it. The guards of every hub count, not only of this one, but not a guard that is
above this process itself: a hub that an agent starts serves that agent.

- A Unix socket: the kernel names the process that connected, and we walk up from it. It must be
  alive and must be the one that connected, since numbers of processes are used again.
- TCP from this machine: the kernel names the socket at the other end, and /proc says which
  processes hold it. Those of agents are searched first, then all others, the likely ones before
  the rest, until one holds it, and from that one we walk up. A socket that no process holds is
  suspicious: its holder has closed it, or has put it into a message that was not received yet.

- A process whose guards were killed is not below them any more, but has their mark: a hard limit
  below ours that is inherited and that only root can raise again.

macOS has no subreapers, so a process of an agent can lose its guard. The mark there is a variable
in its environment, which it can remove: then the origin is unknown. Which processes hold a TCP
socket is asked of each one (`find_on_macos`).

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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from quarterdeck.machine import macos_processes
from quarterdeck.machine.guard_program import living_descendants
from quarterdeck.machine.process_table import NOT_SHOWN, ProcessTable, process_table, read_proc
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

_SYSTEM: Final[str] = sys.platform  # a variable, so that a type checker reads all
_GUARD: Final = b"/guard_program.py"  # as `guarded_command` writes it: python -I -S PATH …
_MOST_ANCESTORS: Final = 1_000


@dataclass(frozen=True, slots=True)
class PeerOrigin:
    """What opened a connection, and its process where that is known."""

    origin: Origin
    pid: int = 0

    @property
    def program(self) -> str:
        """The name of the program, for people."""
        table = process_table()
        return "" if table is None else table.program(self.pid)


Certainty = Literal["all", "most", "none"]


def found_origins() -> Certainty:
    """Return whether this machine says what opened a connection.

    "most": a process of an agent that lost its parent and its environment is not recognised.
    """
    if process_table() is None:
        return "none"
    if _SYSTEM == "darwin":
        return "most"
    try:
        is_own_address(TcpAddress("127.0.0.1", 1))
    except OSError:
        return "none"
    return "all"


def origin_of_pid(pid: int) -> Origin:
    """Return whether a process is below a guard that this process is not below."""
    if process_table() is None:
        return "unknown"
    if pid == 0:
        return "other"  # outside of our PID namespace, where no agent of ours can be
    found = _walk(pid)
    return _walk(pid) if found == "gone" else found


def _walk(pid: int) -> Origin:
    lineage = {os.getpid(), *_ancestors(os.getpid())}
    if _table().is_marked(pid):
        return "agent"
    for process in (pid, *_ancestors(pid)):
        if process < 0:
            return "unknown" if process == NOT_SHOWN else "gone"
        if process in lineage:
            return "other"
        if _is_guard(process):
            return "agent"
    return "other"


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
    return _table().parent(pid)


def _is_guard(pid: int) -> bool:
    words = _table().words(pid)
    is_isolated = len(words) > 3 and list(words[1:3]) == [b"-I", b"-S"]
    return is_isolated and words[3].endswith(_GUARD)


def _table() -> ProcessTable:
    table = process_table()
    assert table is not None, "callers check that there is one"
    return table


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
        if peer is None or peer.pid == 0 or process_table() is None:
            return PeerOrigin("unknown" if peer is None else origin_of_pid(0))
        origin = origin_of_pid(peer.pid)
        # After the walk: until now the number can have been given to another process.
        is_other = handle.has_ended or (
            not handle.is_pinned and _table().started_at(peer.pid) > accepted_at
        )
    return PeerOrigin("gone" if is_other else origin, peer.pid)


def boot_seconds() -> float:
    """Return the time by the clock that says when a process has started."""
    table = process_table()
    return 0.0 if table is None else table.clock()


# ---- TCP -----------------------------------------------------------------------------------------


class TcpOrigins:
    """Finds what holds the other ends of TCP connections.

    To look through the open files of all processes takes 3 µs for each file. So it remembers which
    processes held a connection, since a browser opens many, and how many files each process had
    open at the last `refresh`: one that has opened a connection since then has more. Both only
    decide who is searched first, after the processes of agents.
    """

    def __init__(self) -> None:
        self._holders: dict[int, None] = {}
        self._open_files: dict[int, int] = {}
        self._guards: set[int] = set()

    def refresh(self) -> None:
        """Note which processes are guards, and how many files each has open."""
        if _SYSTEM != "linux":
            return
        pids = _others(set())
        self._guards = {pid for pid in pids if _is_guard(pid)}
        self._open_files = {pid: _files_of(pid)[1] for pid in pids}

    def find(self, peer: TcpAddress, here: TcpAddress) -> PeerOrigin | None:
        """Return what holds the other end of a connection; None if it is not of this machine."""
        if _SYSTEM != "linux":
            return find_on_macos(peer, here) if is_own_end(peer, here) else None
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
        below = self._agents()
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

    def _agents(self) -> set[int]:
        """Return the processes of agents: of this process, of its runner, and of other hubs."""
        known = self._open_files
        new = (pid for pid in _others(set()) if pid not in known)
        guards = {pid for pid in (*self._guards, *new) if _is_guard(pid)}
        above = {os.getpid(), *_ancestors(os.getpid())}
        return below_guards(os.getpid()) | _below(guards - above)

    def _candidates(self, agents: set[int], uid: int) -> Iterator[int]:
        """Yield every process once, the likely holders first: each open file costs microseconds.

        Of another user is the process of a program that was given the socket, or that hides what
        it has open.
        """
        remembered = [pid for pid in reversed(self._holders) if pid not in agents]
        yield from remembered
        known = self._open_files
        ranked: list[tuple[bool, bool, int, int]] = []
        for pid in _others(agents.union(remembered)):
            owner, count = _files_of(pid)
            ranked.append((owner != uid, known.get(pid) == count, count, -pid))
        for *_, number in sorted(ranked):
            yield -number

    def _remember(self, pid: int) -> None:
        self._holders.pop(pid, None)
        self._holders[pid] = None
        if len(self._holders) > _MOST_HOLDERS:
            del self._holders[next(iter(self._holders))]


_MOST_HOLDERS: Final = 8


def is_own_end(peer: TcpAddress, here: TcpAddress) -> bool:
    """Return whether a connection comes from this machine."""
    return peer.host == here.host or is_own_address(peer)


def find_on_macos(peer: TcpAddress, here: TcpAddress) -> PeerOrigin:
    """Return what holds a TCP socket: an agent's process before all others.

    Every process of this user is looked into, which takes some 10 ms; those of others hide it.
    """
    if process_table() is None:
        return PeerOrigin("unknown")
    wanted = (_unscoped(peer.packed), peer.port, _unscoped(here.packed), here.port)
    found = None
    for pid in sorted(macos_processes.all_pids(), reverse=True):  # a new one has most likely called
        for near, near_port, far, far_port in macos_processes.tcp_connections(pid) or ():
            if (_unscoped(near), near_port, _unscoped(far), far_port) == wanted:
                origin = origin_of_pid(pid)
                if origin == "agent":
                    return PeerOrigin(origin, pid)
                if found is None or found.origin == "other":
                    found = PeerOrigin(origin, pid)
    return found or PeerOrigin("unknown")


def _unscoped(packed: bytes) -> bytes:
    """Return an address without the interface that macOS puts into link-local ones."""
    is_local = len(packed) == 16 and packed[0] == 0xFE and packed[1] & 0xC0 == 0x80
    return packed[:2] + b"\0\0" + packed[4:] if is_local else packed


def below_guards(owner: int) -> set[int]:
    """Return the guards of a process, and everything below them."""
    return _below(pid for pid in _children(owner) if _is_guard(pid))


def _below(pids: Iterable[int]) -> set[int]:
    """Return processes and everything below them."""
    found: set[int] = set()
    todo = list(pids)
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
        found += map(int, read_proc(f"{pid}/task/{thread}/children").split())
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


def _files_of(pid: int) -> tuple[int, int]:
    """Return the user of a process (another one if it hides) and how many files it has open.

    The number is 0 before Linux 6.2.
    """
    try:
        found = os.stat(f"/proc/{pid}/fd")  # noqa: PTH116 - as above
    except OSError:
        return -1, 0
    return found.st_uid, found.st_size


def _has_user(pid: int, uid: int) -> bool:
    """Whether a process runs as a user; the owner of /proc/PID is another one if it hides."""
    for line in read_proc(f"{pid}/status").splitlines():
        if line.startswith(b"Uid:"):
            return str(uid).encode() in line.split()[1:]
    return False
