"""Where OpenCode listens: its processes of this user on this machine. Nothing is asked of them.

`opencode --port 0` and `opencode serve` listen on an address of this machine; `opencode` alone does
not. `opencode acp` is left out: a client talks to it already. So is what an agent of this machine
has started: it could call itself OpenCode to be sent the password of a real one.

On Linux the system says which socket is whose, so no other program, and no other user, is taken for
OpenCode. On macOS the port is the one on the command line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from quarterdeck.machine import macos_processes
from quarterdeck.machine.process_table import process_table

_PROGRAM: Final = (b"opencode", b"opencode.exe", b".opencode")
_LISTENING: Final = "0A"
_DEFAULT_PORT: Final = 4096  # that OpenCode takes for --port 0, if it is free
_FIRST_LOOKS: Final = 10
_LATER_LOOKS: Final = 30
"""A process may become another program: it is looked at so often, then each so many looks."""


@dataclass(frozen=True, order=True)
class ListeningProcess:
    """A process of OpenCode, and the port it listens on at 127.0.0.1."""

    pid: int
    port: int


class OpenCodeProcesses:
    """Looks for the processes of OpenCode, again and again; remembers which others there are."""

    def __init__(self) -> None:
        self._others: dict[int, int] = {}  # how often each was looked for, and was not OpenCode

    def listening(self) -> list[ListeningProcess]:
        """Return those that listen; blocking, and cheap."""
        if sys.platform == "darwin":
            try:
                return sorted(_on_macos())
            except OSError:  # this system does not say
                return []
        served = [pid for pid in self._candidates() if is_served(_words(pid))]
        for pid in served:
            self._others.pop(pid, None)
        found = [pid for pid in served if not _is_of_agent(pid)]
        if not found:
            return []
        sockets = _listening_sockets()
        return sorted(
            ListeningProcess(pid, sockets[each])
            for pid in found
            for each in _sockets(pid) & sockets.keys()
        )

    def _candidates(self) -> list[int]:
        """Return the processes of this user that may be OpenCode by now."""
        pids = _all_pids()
        self._others = {pid: self._others.get(pid, -1) + 1 for pid in pids}
        due = [
            pid
            for pid, looks in self._others.items()
            if looks < _FIRST_LOOKS or (looks + pid) % _LATER_LOOKS == 0
        ]
        return [pid for pid in due if _is_own(pid)]


def is_served(words: list[bytes]) -> bool:
    """Return whether a command line is one of OpenCode that may listen for others."""
    names = [word.rpartition(b"/")[2] for word in words[:2]]  # the second if Node.js runs it
    return any(name in _PROGRAM for name in names) and b"acp" not in words[1:3]


def _is_of_agent(pid: int) -> bool:
    table = process_table()
    return table is not None and table.is_marked(pid)


def _all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return []


def _is_own(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()  # noqa: PTH116 - every second
    except OSError:  # it has ended
        return False


def _words(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as file:  # noqa: PTH123
            return file.read(4096).split(b"\0")
    except OSError:
        return []


def _sockets(pid: int) -> set[str]:
    """Return the numbers of the sockets that a process has open."""
    folder, found = f"/proc/{pid}/fd", set()
    try:
        for name in os.listdir(folder):  # noqa: PTH208
            try:
                target = os.readlink(f"{folder}/{name}")  # noqa: PTH115
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target[len("socket:[") : -1])
    except OSError:
        return set()
    return found


def _listening_sockets() -> dict[str, int]:
    """Return the ports of sockets that listen, by their numbers."""
    found: dict[str, int] = {}
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{name}", encoding="ascii") as file:  # noqa: PTH123
                lines = file.read().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENING:
                found[fields[9]] = int(fields[1].rpartition(":")[2], 16)
    return found


def _on_macos() -> Iterator[ListeningProcess]:
    uid = os.getuid()
    for pid in macos_processes.all_pids():
        process = macos_processes.find(pid)
        if process is None or process.uid != uid:
            continue
        words = macos_processes.arguments(pid)[0]
        if is_served(words) and not _is_of_agent(pid):
            port = port_of(words)
            if port is not None:
                yield ListeningProcess(pid, port)


def port_of(words: list[bytes]) -> int | None:
    """Return the port on a command line; None if it does not listen."""
    port: bytes | None = b"0" if b"serve" in words[1:3] or b"web" in words[1:3] else None
    for number, word in enumerate(words):
        if word == b"--port":
            port = words[number + 1] if number + 1 < len(words) else b"0"
        elif word.startswith(b"--port="):
            port = word.partition(b"=")[2]
    if port is None or not port.isdigit():
        return None
    return int(port) or _DEFAULT_PORT
