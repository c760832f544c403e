"""Lines are read whole, once, and in bounded memory, however a file is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from quarterdeck.agents.adapters import line_file
from quarterdeck.agents.adapters.line_file import LineFile, LongLine
from quarterdeck.errors import SourceRewritten


def read_all(file: LineFile) -> list[bytes | LongLine]:
    lines: list[bytes | LongLine] = []
    while piece := file.read():
        lines += [line for line, _ in piece]
    return lines


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line), max_size=12),
    cuts=st.lists(st.integers(0, 500), max_size=8),
    limits=st.sampled_from([(3, 16), (8, 24), (64, 64)]),
)
def test_any_cut_of_the_writing_gives_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    cuts: list[int],
    limits: tuple[int, int],
) -> None:
    path = tmp_path_factory.mktemp("lines") / "file"
    data = b"".join(line + b"\n" for line in lines)
    chunk, longest = limits
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_file, "CHUNK", chunk)
        patch.setattr(line_file, "LONGEST", longest)
        path.touch()
        file, seen = LineFile(str(path), 0), []
        for cut in [*sorted(each for each in cuts if each < len(data)), len(data)]:
            path.write_bytes(data[:cut])
            seen += read_all(file)
    assert len(seen) == len(lines)
    for line, read in zip(lines, seen, strict=True):
        if isinstance(read, LongLine):
            assert read.size == len(line) > longest - chunk
        else:
            assert read == line


def test_a_file_that_was_cut_or_replaced_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\ntwo\n")
    file = LineFile(str(path), 0)
    assert read_all(file) == [b"one", b"two"]
    path.write_bytes(b"one\n")
    with pytest.raises(SourceRewritten):
        file.read()
    path.write_bytes(b"quite other content\n")
    with pytest.raises(SourceRewritten):
        file.read()


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is not a file"):
        LineFile(str(tmp_path / "pipe"), 0).read()
    with pytest.raises(FileNotFoundError):
        LineFile(str(tmp_path / "none"), 0).read()


def test_a_gigabyte_without_a_newline_is_skipped_without_being_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as writer:
        writer.write(b"first\n")
        writer.truncate(1 << 30)  # a hole: it takes no space
        writer.seek(1 << 30)
        writer.write(b"\nlast\n")
    file = LineFile(str(path), 0)
    seen = read_all(file)
    assert seen == [b"first", LongLine((1 << 30) - 6), b"last"]
