"""The hubs that a machine has joined, in its data directory, and the state of its links to them.

    joined.json   the hubs, each with the machine's key for it; written by `quarterdeck join`
    links.json    how each link is; written by the runner that dials

The runner looks at the first file again and again, so that joining and leaving need no restart.
Both are private, and agents see neither: the data directory is hidden from them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from quarterdeck.errors import StartRefused
from quarterdeck.jsontext import encode_json
from quarterdeck.machine.private_files import PRIVATE_FILE, check_private, replace_private

JOINED: Final = "joined.json"
LINKS: Final = "links.json"
_LOCK: Final = "joined.lock"

LinkState: TypeAlias = Literal["connecting", "connected", "refused", "removed"]
"""Of a link to a hub.

connecting   the hub cannot be reached, or the link has just broken; dials again
connected
refused      the hub has a reason that may end, such as its version; dials again
removed      the hub does not know the machine any more; dials no more
"""


class Membership(Struct, frozen=True, kw_only=True, rename="camel"):
    """A hub that this machine has joined."""

    url: str
    """The hub's origin, as it is dialled."""
    hub_key: str
    """Its public key, by which it is recognised."""
    machine_id: str
    """What this machine is at the hub."""
    name: str
    private_key: str
    """This machine's, for this hub alone."""
    joined_at: str
    pin: str | None = None
    """Of the hub's certificate, if it has one of its own; None: the system's authorities decide."""


class HubLink(Struct, frozen=True, kw_only=True, rename="camel"):
    """The link to a hub, as the runner that dials sees it."""

    url: str
    machine_id: str
    name: str
    state: LinkState
    since: str
    reason: str = ""
    """Why it is not connected."""
    hub_version: str = ""


class _Joined(Struct, frozen=True, kw_only=True, rename="camel"):
    hubs: tuple[Membership, ...] = ()


class _Links(Struct, frozen=True, kw_only=True, rename="camel"):
    pid: int
    links: tuple[HubLink, ...] = ()


def read_memberships(home: Path) -> tuple[Membership, ...]:
    """Return the hubs that a machine has joined.

    Raises:
        StartRefused: if the file cannot be used, or other users could read it.
    """
    path = home / JOINED
    try:
        with path.open("rb") as stream:
            check_private(path, os.fstat(stream.fileno()))
            return msgspec.json.decode(stream.read(), type=_Joined).hubs
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise StartRefused(f"cannot read {path} ({error.strerror})", "check the disk") from error
    except msgspec.DecodeError as error:
        remedy = f"move it away, then join again: mv {path} {path}.old"
        raise StartRefused(f"{path} is damaged", remedy) from error


@contextmanager
def changing_memberships(home: Path) -> Iterator[list[Membership]]:
    """Change the hubs that a machine has joined: what the body leaves in the list is written.

    Raises:
        StartRefused: if the file cannot be used.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(home / _LOCK, flags, PRIVATE_FILE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = read_memberships(home)
        hubs = list(before)
        yield hubs
        if tuple(hubs) != before:
            replace_private(home / JOINED, encode_json(_Joined(hubs=tuple(hubs))))
    finally:
        os.close(lock)


def read_links(home: Path) -> tuple[int, tuple[HubLink, ...]]:
    """Return the process that wrote the links last, and the links; 0 and none if there are none."""
    try:
        found = msgspec.json.decode((home / LINKS).read_bytes(), type=_Links)
    except (OSError, msgspec.DecodeError):
        return 0, ()
    return found.pid, found.links


def write_links(home: Path, links: tuple[HubLink, ...]) -> None:
    """Write the state of the links of this process."""
    replace_private(home / LINKS, encode_json(_Links(pid=os.getpid(), links=links)))
