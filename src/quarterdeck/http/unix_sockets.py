"""Unix sockets that only their user can reach: a server's end, and the path for a client.

The file belongs to its user alone (mode 0600, in a private folder). A file that a killed server has
left is replaced, unless a process listens there.

The path of a Unix socket may have about a hundred bytes. A longer one is reached on Linux through a
descriptor of its folder, `/proc/self/fd/N/NAME`; elsewhere through a link in a private folder in
/tmp, for as long as it takes to bind or connect.

A client can check who listens (`check_listener`): the user, and that no agent started the process.
An agent that is not confined can remove the socket and listen in its place. It can also end
the process that listens and leave the socket to a child: a listener that has ended is refused.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from quarterdeck.errors import StartRefused
from quarterdeck.machine.process_origin import boot_seconds, origin_of_socket
from quarterdeck.machine.socket_peers import socket_peer

LONGEST_PATH: Final = 107 if sys.platform == "linux" else 103
"""Bytes in the path of a Unix socket."""
BACKLOG: Final = 1_024
_LIST: Final = "ss -xlp src" if sys.platform == "linux" else "lsof"
"""Shows which process listens at the path that follows."""
_PRIVATE: Final = 0o600
_ANSWER_SECONDS: Final = 2.0


@contextmanager
def listening_unix(path: Path) -> Iterator[socket.socket]:
    """Listen at a path while the body runs.

    Raises:
        StartRefused: if another process listens there, or the path cannot be used.
    """
    with open_unix(path) as listener:
        try:
            yield listener
        finally:
            remove_unix(path)


def open_unix(path: Path) -> socket.socket:
    """Listen at a path; the caller closes the socket and removes the path.

    Raises:
        StartRefused: if another process listens there, or the path cannot be used.
    """
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with reachable(path) as name:
            listener.bind(name)
        path.chmod(_PRIVATE)  # nothing can connect before `listen`
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _unusable(path, error) from error
    return listener


def remove_unix(path: Path) -> None:
    """Remove the path of a socket."""
    with suppress(OSError):  # a user may have removed it
        path.unlink()


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Yield a name for a socket's path that is short enough, valid inside the block.

    Raises:
        OSError: if there is none, or the folder does not exist.
    """
    text = str(path)
    if len(os.fsencode(text)) <= LONGEST_PATH:
        yield text
        return
    if not hasattr(os, "O_PATH"):
        with tempfile.TemporaryDirectory(prefix="qd-", dir="/tmp") as near:
            link = Path(near, "s")
            link.symlink_to(path.parent.resolve(strict=True))
            yield f"{link}/{path.name}"
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connected(path: Path, *, seconds: float = _ANSWER_SECONDS) -> socket.socket:
    """Connect to the socket at a path; wait so long while others wait to be accepted.

    Raises:
        OSError: if no server accepts it.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        with reachable(path) as name:
            connection.connect(name)
    except BaseException:
        connection.close()
        raise
    return connection


def check_listener(connection: Any) -> None:
    """Check that the listener of a connected socket is a process of this user, and no agent's.

    `connection` is a socket, or what an event loop has in its place. Where the system does not say
    who listens, nothing is checked.

    Raises:
        ConnectionAbortedError: if it is another process; nothing was sent to it.
    """
    peer = socket_peer(connection)
    if peer is None:
        return
    if peer.uid not in (os.geteuid(), 0):
        reason = f"a process of another user (id {peer.uid}) listens there; do not use it"
        raise ConnectionAbortedError(errno.ECONNABORTED, reason)
    found = origin_of_socket(connection, boot_seconds())
    if found.origin == "agent":
        pid = peer.pid
        reason = f"process {pid}, which an agent started, listens there; end it: kill {pid}"
        raise ConnectionAbortedError(errno.ECONNABORTED, reason)
    if found.origin == "gone":
        reason = "the process that listened there has ended, and another one has its socket"
        raise ConnectionAbortedError(errno.ECONNABORTED, f"{reason}; `lsof -U` shows which")


def _remove_stale(path: Path) -> None:
    """Remove the socket of a server that has ended."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unusable(path, error) from error
    if not stat.S_ISSOCK(mode):
        raise StartRefused(f"{path} is not a socket", f"move it away: mv {path} {path}.old")
    try:
        connected(path).close()
    except (ConnectionRefusedError, FileNotFoundError):
        path.unlink(missing_ok=True)
        return
    except OSError as error:
        raise _unusable(path, error) from error
    raise StartRefused(
        f"another process listens at {path}", f"stop it; `{_LIST} {path}` shows which it is"
    )


def _unusable(path: Path, error: OSError) -> StartRefused:
    reason = f"cannot listen at {path} ({error.strerror or error})"
    return StartRefused(reason, "check the disk and that you can write there")
