"""The sockets that a hub listens at: opened by it, or taken over from another process.

Sockets are handed over by systemd's protocol: `LISTEN_PID` is the process that they are for,
`LISTEN_FDS` their count, from descriptor 3 on. A socket unit keeps connections waiting while no hub
runs. A hub that replaces itself by `exec` (`hand_over`) uses the same protocol, and adds its lock:
no connection is refused in between, and no other process can take its place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from quarterdeck.errors import StartRefused
from quarterdeck.http.origins import LOOPBACK, LOOPBACK_IPV6, is_loopback
from quarterdeck.http.server import listening
from quarterdeck.http.unix_sockets import open_unix, remove_unix

SOCKET: Final = "hub.sock"
_RETRIES: Final = 8  # to find a port that is free at every address
_FIRST: Final = 3  # the first descriptor of systemd's protocol
_ABOVE: Final = 64  # where descriptors wait until theirs are free
_LOCK: Final = "quarterdeck-lock"
_NAMES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


@dataclass(kw_only=True)
class Listeners:
    """The open sockets of a hub."""

    tcp: list[socket.socket]
    local: socket.socket
    path: Path
    """Of `local`, for programs of this user on this computer."""
    is_handed_over: bool = False
    """Whether the next process takes them over: then nothing of them is removed."""

    @property
    def port(self) -> int:
        port: int = self.tcp[0].getsockname()[1]
        return port


@dataclass(kw_only=True)
class Inherited:
    """What another process has handed over."""

    tcp: list[socket.socket] = field(default_factory=list)
    local: socket.socket | None = None
    lock: int | None = None
    """`hub.lock`, if the process has replaced itself."""

    def close_tcp(self) -> None:
        """Close what listens at another address than the hub shall have."""
        for each in self.tcp:
            each.close()
        self.tcp.clear()


def inherited(environ: MutableMapping[str, str]) -> Inherited:
    """Take over what was handed to this process; forget it in `environ`, which others inherit."""
    pid, count, names = (environ.pop(name, "") for name in _NAMES)
    found = Inherited()
    if pid != str(os.getpid()) or not count.isdecimal():
        return found
    labels = names.split(":")
    for number in range(int(count)):
        descriptor = _FIRST + number
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        if number < len(labels) and labels[number] == _LOCK:
            found.lock = descriptor
        elif stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            each = socket.socket(fileno=descriptor)
            if each.family == socket.AF_UNIX:
                found.local = each
            else:
                found.tcp.append(each)
    return found


def hand_over(listeners: Listeners, lock: int, environ: MutableMapping[str, str]) -> None:
    """Prepare an `exec`: put sockets and lock where the next program looks for them.

    After this nothing but the `exec` may follow: other descriptors have been replaced.
    """
    given = [*(each.fileno() for each in (*listeners.tcp, listeners.local)), lock]
    # First out of the way: one may have the number that another one gets.
    aside = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for each in given]
    for number, each in enumerate(aside):
        os.dup2(each, _FIRST + number, inheritable=True)
    names = [*("" for _ in given[1:]), _LOCK]
    values = (str(os.getpid()), str(len(given)), ":".join(names))
    environ.update(zip(_NAMES, values, strict=True))


@contextmanager
def open_listeners(
    home: Path, host: str, port: int, given: Inherited | None = None
) -> Iterator[Listeners]:
    """Open the sockets of a hub, or use those that were given, while the body runs.

    Raises:
        StartRefused: if an address cannot be bound, or a given socket is open to others.
    """
    given = given or Inherited()
    with ExitStack() as stack:
        if given.tcp:
            tcp = [stack.enter_context(each) for each in given.tcp]
            _check_given(tcp, host)
        else:
            tcp = _bound_somewhere(stack, host, port, _RETRIES if port == 0 else 0)
        path, local = home / SOCKET, given.local
        is_ours = local is None or given.lock is not None  # else it is a socket unit's
        local = stack.enter_context(open_unix(path) if local is None else local)
        listeners = Listeners(tcp=tcp, local=local, path=path)
        try:
            yield listeners
        finally:
            if is_ours and not listeners.is_handed_over:
                remove_unix(path)


def _check_given(tcp: list[socket.socket], host: str) -> None:
    """Refuse sockets that other computers reach, if the hub was configured for this one only.

    Such a hub has no TLS and does not know the names of this computer. Other addresses are as
    safe as the configured one.
    """
    if not is_loopback(host):
        return
    for each in tcp:
        address = each.getsockname()[0]
        if not is_loopback(address):
            raise StartRefused(
                f"the socket unit listens at {address}, but the configured address is {host}",
                "to write the unit again: quarterdeck service install",
            )


def _bound_somewhere(stack: ExitStack, host: str, port: int, retries: int) -> list[socket.socket]:
    try:
        return _bound(stack, host, port)
    except StartRefused:
        stack.close()
        if retries == 0:
            raise
        return _bound_somewhere(stack, host, port, retries - 1)


def _bound(stack: ExitStack, host: str, port: int) -> list[socket.socket]:
    """Listen at an address, and at the other addresses of `localhost` if it is one of them.

    Browsers try those in an order of their own: a program of another user that listens at one of
    them would be the hub for a browser.
    """
    try:
        listeners = [stack.enter_context(listening(host, port))]
    except OSError as error:
        reason = f"cannot listen at {host}:{port} ({error.strerror})"
        raise StartRefused(reason, "choose another port with --port, or 0 for any") from error
    port = listeners[0].getsockname()[1]
    for other in _other_loopbacks(host):
        try:
            listeners.append(stack.enter_context(listening(other, port)))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                reason = f"another program listens at port {port} of {other}, also localhost"
                remedy = "stop it, or choose another port with --port"
                raise StartRefused(reason, remedy) from error
            # Otherwise this computer does not have that address, and no program listens there.
    return listeners


def _other_loopbacks(host: str) -> tuple[str, ...]:
    if host in (LOOPBACK, "localhost", "0.0.0.0", ""):  # noqa: S104 - compared, not bound
        return (LOOPBACK_IPV6,)
    if host == LOOPBACK_IPV6:
        return (LOOPBACK,)
    return (LOOPBACK, LOOPBACK_IPV6) if is_loopback(host) else ()
