"""A transcript whose lines are not in the order in which they happened is read in that order."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.agents.adapters.claude import reader as claude_reader
from quarterdeck.agents.adapters.claude.reader import ClaudeReader
from quarterdeck.agents.adapters.line_order import MOST_HELD
from quarterdeck.views.context import Cursor, ForeignSession, ForeignUpdate

LONG_AGO = 1_700_000_000


def line(number: int, parent: int | None) -> bytes:
    moment = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
    message = {"role": "user", "content": f"text {number}"}
    known = {"uuid": f"u{number}", "parentUuid": None if parent is None else f"u{parent}"}
    return json.dumps({"type": "user", "timestamp": moment, "message": message, **known}).encode()


def append(path: Path, lines: Sequence[bytes]) -> None:
    with path.open("ab") as file:
        file.writelines(each + b"\n" for each in lines)


def open_reader(path: Path, after: Cursor | None = None) -> ClaudeReader:
    return ClaudeReader(ForeignSession(id="s", cwd="/w", path=str(path)), after, 0)


def read(reader: ClaudeReader) -> list[ForeignUpdate]:
    updates: list[ForeignUpdate] = []
    while piece := reader.read():
        updates += piece
    return updates


def numbers(updates: Sequence[ForeignUpdate]) -> list[int]:
    return [int(each.update.payload["content"]["text"].split()[1]) for each in updates]


def test_an_answer_that_is_in_the_file_before_its_prompt_comes_after_it(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    mode = json.dumps({"type": "mode", "mode": "normal"}).encode()
    append(path, [mode, line(3, 2), line(4, 3)])
    reader = open_reader(path)
    (kept,) = read(reader)
    assert kept.update.type == "session-info-update"
    assert reader.is_holding
    append(path, [line(1, None), line(2, 1), line(5, 4)])
    assert numbers(read(reader)) == [1, 2, 3, 4, 5]
    assert not reader.is_holding


def test_a_line_whose_parent_never_comes_is_read_when_the_file_is_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.jsonl"
    append(path, [line(3, 2), line(4, 3)])
    reader = open_reader(path)
    assert read(reader) == []
    monkeypatch.setattr(claude_reader, "HOLD_SECONDS", 0.0)
    assert numbers(read(reader)) == [3, 4]
    assert read(reader) == []
    append(path, [line(5, 4)])
    assert numbers(read(reader)) == [5]


def test_a_past_transcript_without_its_beginning_is_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    count = 5 * MOST_HELD
    append(path, [line(number, number - 1) for number in range(3, count)])
    os.utime(path, (LONG_AGO, LONG_AGO))
    assert numbers(read(open_reader(path))) == list(range(3, count))


@pytest.mark.parametrize("parents", [{1: 1}, {1: 2, 2: 1}, {1: 2, 2: 3, 3: 1}])
def test_lines_that_follow_each_other_in_a_circle_are_read(
    tmp_path: Path, parents: dict[int, int]
) -> None:
    path = tmp_path / "s.jsonl"
    append(path, [line(number, parent) for number, parent in parents.items()])
    os.utime(path, (LONG_AGO, LONG_AGO))
    assert sorted(numbers(read(open_reader(path)))) == sorted(parents)


@st.composite
def written(draw: st.DrawFn) -> tuple[list[tuple[int, int | None]], list[int]]:
    """Lines with their parents as they are in the file, and after how many it is read."""
    count = draw(st.integers(1, 30))
    parents = [None, *(draw(st.integers(max(0, n - 4), n - 1)) for n in range(1, count))]
    # Each line is written at most a dozen lines late.
    late = [number + draw(st.integers(0, 12)) for number in range(count)]
    order = sorted(range(count), key=lambda number: (late[number], number))
    stops = draw(st.lists(st.integers(0, count), max_size=5))
    return [(number, parents[number]) for number in order], sorted({*stops, count})


@given(written(), st.data())
def test_each_line_is_read_once_after_its_parent_whatever_is_written_and_restarted_when(
    file: tuple[list[tuple[int, int | None]], list[int]], data: Any
) -> None:
    lines, stops = file
    with TemporaryDirectory() as folder:
        path = Path(folder) / "s.jsonl"
        append(path, [])
        reader, seen, done = open_reader(path), list[ForeignUpdate](), 0
        for stop in stops:
            append(path, [line(*each) for each in lines[done:stop]])
            done = stop
            seen += read(reader)
            if data.draw(st.booleans()):  # the process is killed after it stored some of it
                seen = seen[: data.draw(st.integers(0, len(seen)))]
                reader = open_reader(path, seen[-1].cursor if seen else None)
        seen += read(reader)
    got = numbers(seen)
    assert sorted(got) == sorted(number for number, _ in lines)
    for number, parent in lines:
        assert parent is None or got.index(parent) < got.index(number)
