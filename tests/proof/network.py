"""Computers as network namespaces: each reaches the ones it has a cable to, and nothing else.

    phone ── relay ── hub ── b
              │ │ │     │
      other hub a c     authority (ACME; it also reaches the relay, to check names)

No computer forwards packets, so the phone reaches the relay alone, the hub has no way to the phone,
and `a` and `c` have none to the hub but through the relay.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

PREFIX: Final = "qdproof-"
DOMAIN: Final = "relay.test"
AUTHORITY: Final = "authority.test"
CABLES: Final = (
    ("relay", "phone"),
    ("relay", "hub"),
    ("relay", "other"),
    ("relay", "a"),
    ("relay", "c"),
    ("hub", "b"),
    ("authority", "hub"),
    ("authority", "relay"),
)
"""The first of each has the address 10.77.N.1, the second 10.77.N.2."""
PLACES: Final = sorted({place for cable in CABLES for place in cable})
SECONDS: Final = 90.0
_NEW_NETWORK: Final = 0x40000000
_libc: Final = ctypes.CDLL(None, use_errno=True)
_started: Final[list[subprocess.Popen[str]]] = []
Result = TypeVar("Result")


def address(of: str, seen_from: str) -> str:
    """Return the address of a computer for another one."""
    for number, cable in enumerate(CABLES, start=1):
        if set(cable) == {of, seen_from}:
            return f"10.77.{number}.{cable.index(of) + 1}"
    raise AssertionError(f"{seen_from} has no cable to {of}")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=30)


@contextmanager
def cabled() -> Iterator[None]:
    """Make all computers and cables; remove them in the end, with their processes."""
    _remove()
    try:
        for place in PLACES:
            _ip("netns", "add", PREFIX + place)
            _ip("-n", PREFIX + place, "link", "set", "lo", "up")
            folder = Path("/etc/netns", PREFIX + place)
            folder.mkdir(parents=True)
            (folder / "resolv.conf").write_text("")  # no name but those below
            (folder / "hosts").write_text("127.0.0.1 localhost\n")
        for number, (first, second) in enumerate(CABLES, start=1):
            ends = (f"to-{second}", f"to-{first}")
            peer = ("peer", "name", ends[1], "netns", PREFIX + second)
            _ip("-n", PREFIX + first, "link", "add", ends[0], "type", "veth", *peer)
            for place, end, last in ((first, ends[0], 1), (second, ends[1], 2)):
                _ip("-n", PREFIX + place, "addr", "add", f"10.77.{number}.{last}/30", "dev", end)
                _ip("-n", PREFIX + place, "link", "set", end, "up")
        yield
    finally:
        _remove()


def _remove() -> None:
    for place in PLACES:
        if Path("/var/run/netns", PREFIX + place).exists():
            for pid in pids_in(place):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            _ip("netns", "del", PREFIX + place)
        shutil.rmtree(Path("/etc/netns", PREFIX + place), ignore_errors=True)
    while _started:
        process = _started.pop()
        process.kill()
        process.wait(SECONDS)
        if process.stdout is not None:
            process.stdout.close()


def pids_in(place: str) -> list[int]:
    """Return the processes of a computer."""
    command = ["ip", "netns", "pids", PREFIX + place]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    return [int(line) for line in found.stdout.split()]


def name_host(place: str, name: str, at: str) -> None:
    """Let a computer know a name."""
    with Path("/etc/netns", PREFIX + place, "hosts").open("a") as hosts:
        hosts.write(f"{at} {name}\n")


def set_cable(place: str, to: str, *, is_up: bool) -> None:
    """Plug a cable in, or out."""
    _ip("-n", PREFIX + place, "link", "set", f"to-{to}", "up" if is_up else "down")


def start_in(place: str, *command: str, env: Mapping[str, str], **more: Any) -> Any:
    """Start a program on a computer."""
    process = subprocess.Popen(
        ["ip", "netns", "exec", PREFIX + place, *command],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        **more,
    )
    _started.append(process)
    return process


def inside(place: str, make: Callable[[], Result]) -> Result:
    """Call a function on a computer; sockets that it makes belong there for good."""
    results: list[Result] = []
    errors: list[Exception] = []

    def enter() -> None:
        namespace = os.open(Path("/var/run/netns", PREFIX + place), os.O_RDONLY)
        try:
            if _libc.setns(namespace, _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "setns")  # noqa: TRY301 - to the caller
            results.append(make())
        except Exception as error:  # noqa: BLE001 - raised again below
            errors.append(error)
        finally:
            os.close(namespace)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def connected(place: str, to: str, port: int = 443, seconds: float = SECONDS) -> socket.socket:
    """Return a TCP connection between two computers."""
    target = (address(to, place), port)
    return inside(place, lambda: socket.create_connection(target, timeout=seconds))


def until(is_true: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Wait for something; return it."""
    end = time.monotonic() + seconds
    while not (found := is_true()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
    return found
