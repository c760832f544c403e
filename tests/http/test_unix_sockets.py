"""Unix sockets: private, replaced when their server was killed, at paths of any length."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from quarterdeck.client import Client, WebSocketTransport
from quarterdeck.errors import AcpError, CommandFailed, StartRefused
from quarterdeck.http.client import HubApi, SocketExchange
from quarterdeck.http.unix_sockets import (
    LONGEST_PATH,
    check_listener,
    connected,
    listening_unix,
    reachable,
)
from quarterdeck.machine import guarded_command
from tests.machine.users import PYTHON, USERS, as_user, open_folder_for_all


@pytest.mark.parametrize("has_paths", [True, False], ids=["Linux", "macOS"])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_socket_is_reached_at_a_path_of_any_length(
    tmp_path: Path, depth: int, has_paths: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_paths:
        monkeypatch.delattr(os, "O_PATH")
    folder = tmp_path.joinpath(*["d" * 100] * depth)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "hub.sock"
    assert (len(str(path)) > LONGEST_PATH) == (depth > 0)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - descriptors, not files
    with listening_unix(path) as listener:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with connected(path) as client:
            accepted, _ = listener.accept()
            with accepted:
                client.sendall(b"hello")
                assert accepted.recv(5) == b"hello"
    assert not path.exists()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above


def test_the_socket_of_a_killed_server_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "hub.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    assert path.exists()
    with listening_unix(path) as listener, connected(path):
        listener.accept()[0].close()


def test_a_socket_where_a_process_listens_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "hub.sock"
    with listening_unix(path) as listener:
        refused = pytest.raises(StartRefused, match=r"another process listens at .*stop it")
        with refused, listening_unix(path):
            raise AssertionError
        listener.accept()[0].close()  # the question whether it listens
        with connected(path):
            listener.accept()[0].close()


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "hub.sock"
    path.write_text("mine")
    with (
        pytest.raises(StartRefused, match=r"is not a socket; move it away: mv"),
        listening_unix(path),
    ):
        raise AssertionError
    assert path.read_text() == "mine"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StartRefused, match="is not a socket"), listening_unix(path):
        raise AssertionError


def test_a_folder_that_is_missing_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "hub.sock"
    with (
        pytest.raises(StartRefused, match=r"cannot listen at .*No such file"),
        listening_unix(path),
    ):
        raise AssertionError
    with pytest.raises(FileNotFoundError):
        connected(path)


def test_a_short_path_is_used_as_it_is(tmp_path: Path) -> None:
    with reachable(Path("/tmp/a.sock")) as name:
        assert name == "/tmp/a.sock"


IMPOSTOR = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print(flush=True)
received = b""
for _ in range(int(sys.argv[2])):
    received += listener.accept()[0].recv(9)
print(received, flush=True)
"""


@contextmanager
def impostor(
    path: Path, connections: int, *, prefix: Sequence[str] = (), is_agent: bool = True
) -> Iterator[subprocess.Popen[str]]:
    """Run a program that listens and, in the end, prints what it received."""
    command = [*prefix, PYTHON, "-I", "-c", IMPOSTOR, str(path), str(connections)]
    command = guarded_command(command) if is_agent else command
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who listens")
@pytest.mark.anyio
async def test_a_process_of_an_agent_in_the_place_of_the_hub_receives_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "hub.sock"
    with impostor(path, 3) as process:
        words = "which an agent started, listens there; end it: kill"
        with connected(path) as connection, pytest.raises(ConnectionAbortedError, match=words):
            check_listener(connection)
        with pytest.raises(CommandFailed, match=words):
            await HubApi(SocketExchange(path)).get("/api/device")
        with pytest.raises(AcpError, match=words):
            async with Client(WebSocketTransport(socket=path)):
                raise AssertionError
        assert process.stdout is not None
        assert process.stdout.readline() == "b''\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who listens")
def test_the_user_who_listens_is_checked() -> None:
    with open_folder_for_all() as folder:
        folder.chmod(0o777)
        for number, uid in enumerate(USERS):
            path = folder / f"{number}.sock"
            with (
                impostor(path, 1, prefix=as_user(uid, []), is_agent=False),
                connected(path) as connection,
            ):
                if uid == os.geteuid():
                    check_listener(connection)
                else:
                    with pytest.raises(ConnectionAbortedError, match="another user"):
                        check_listener(connection)
