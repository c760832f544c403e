"""Unix sockets that only their user can reach: a server's end, and the path for a client.

The file belongs to its user alone (mode 0600, in a private folder). A file that a killed server has
left is replaced, unless a process listens there.

The path of a Unix socket may have about a hundred bytes. A longer one is reached on Linux through a
descriptor of its folder, `/proc/self/fd/N/NAME`; elsewhere a server says that it is too long.

A client can check who listens (`check_listener`): the user, and that no agent started the process.
An agent that is not confined can remove the socket and listen in its place.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from quarterdeck.errors import StartRefused

LONGEST_PATH: Final = 107 if sys.platform == "linux" else 103
"""Bytes in the path of a Unix socket."""
BACKLOG: Final = 1_024
_PRIVATE: Final = 0o600
_ANSWER_SECONDS: Final = 2.0
_CREDENTIALS: Final = struct.Struct("3i")  # the process, its user and its group
_MARKED_LIMIT: Final = b"Max msgqueue size"  # which guards of agents lower; see `guard_program`


@contextmanager
def listening_unix(path: Path) -> Iterator[socket.socket]:
    """Listen at a path while the body runs.

    Raises:
        StartRefused: if another process listens there, or the path cannot be used.
    """
    _remove_stale(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            with reachable(path) as name:
                listener.bind(name)
            path.chmod(_PRIVATE)  # nothing can connect before `listen`
            listener.listen(BACKLOG)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            yield listener
        finally:
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
    if sys.platform != "linux":
        raise OSError(None, f"the path has more than {LONGEST_PATH} bytes")
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connected(path: Path) -> socket.socket:
    """Connect to the socket at a path.

    Raises:
        OSError: if no server accepts it.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_ANSWER_SECONDS)
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
    if sys.platform != "linux":
        return
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    if uid not in (os.geteuid(), 0):
        reason = f"a process of another user (id {uid}) listens there; do not use it"
        raise ConnectionAbortedError(errno.ECONNABORTED, reason)
    if pid and _marked_limit(pid) < _marked_limit(os.getpid()):
        reason = f"process {pid}, which an agent started, listens there; end it: kill {pid}"
        raise ConnectionAbortedError(errno.ECONNABORTED, reason)


def _marked_limit(pid: int) -> float:
    """Return a hard limit that agents' processes have lower than others."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/limits").read_bytes().splitlines():
            if line.startswith(_MARKED_LIMIT):
                return int(line.split()[-2])
    return float("inf")  # not known, or unlimited


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
        f"another process listens at {path}", f"stop it; `ss -xlp src {path}` shows which it is"
    )


def _unusable(path: Path, error: OSError) -> StartRefused:
    reason = f"cannot listen at {path} ({error.strerror or error})"
    return StartRefused(reason, "check the disk and that you can write there")
