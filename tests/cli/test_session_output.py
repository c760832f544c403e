from pathlib import Path

import pytest

from quarterdeck.cli.session_output import whole_file
from quarterdeck.errors import CommandFailed


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with whole_file(path, replaces=False) as stream:
        stream.write(b"all of it")
        assert not path.exists()
    assert path.read_bytes() == b"all of it"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")

    def fail() -> None:
        with whole_file(path, replaces=True) as stream:
            stream.write(b"half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_existing_file_is_kept_unless_it_may_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(CommandFailed, match="--force"), whole_file(path, replaces=False) as stream:
        stream.write(b"new")
    assert path.read_bytes() == b"old"
    with whole_file(path, replaces=True) as stream:
        stream.write(b"new")
    assert path.read_bytes() == b"new"


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "x"

    def write() -> None:
        with whole_file(path, replaces=False) as stream:
            path.write_bytes(b"faster")
            stream.write(b"new")

    with pytest.raises(CommandFailed, match="already exists"):
        write()
    assert path.read_bytes() == b"faster"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(CommandFailed, match=f"^cannot write to {tmp_path}/gone: No such file"),
        whole_file(tmp_path / "gone" / "x", replaces=False),
    ):
        pass
