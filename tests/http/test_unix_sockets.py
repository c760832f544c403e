"""Unix sockets: private, replaced when their server was killed, at paths of any length."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from quarterdeck.errors import StartRefused
from quarterdeck.http.unix_sockets import LONGEST_PATH, connected, listening_unix, reachable


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_socket_is_reached_at_a_path_of_any_length(tmp_path: Path, depth: int) -> None:
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
