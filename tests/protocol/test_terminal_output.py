from __future__ import annotations

import sys
from typing import Any, Self

from hypothesis import example, given, strategies as st
from msgspec.structs import astuple
from typing_extensions import override

from quarterdeck.protocol import truncate_utf8_tail
from quarterdeck.protocol.terminal_output import TailBuffer

HIGH, LOW, BOM = "\ud83d", "\ude00", "\ufeff"
pieces = st.text(st.sampled_from(f"a\né€😀{HIGH}{LOW}{BOM}\ufffd"), max_size=6)


def shared(buffer: TailBuffer) -> bytearray:
    """The bytes that this version shares with others."""
    held, *_ = astuple(buffer)
    assert isinstance(held, bytearray)
    return held


@given(st.integers(0, 16), st.lists(pieces, max_size=12))
@example(6, ["aaa", HIGH, LOW])
@example(4, [HIGH, LOW + BOM])
@example(5, ["aa", HIGH, "a", LOW])
def test_a_buffer_is_at_every_step_what_cutting_the_whole_text_gives(
    limit: int, deltas: list[str]
) -> None:
    buffer, text = TailBuffer.empty(), ""
    for delta in deltas:
        buffer, buffer_cut = buffer.extended(delta, limit)
        text, text_cut = truncate_utf8_tail(text + delta, limit)
        assert (buffer.text, buffer_cut) == (text, text_cut)


@given(st.integers(0, 16), st.lists(st.tuples(st.integers(0, 20), pieces), max_size=12))
def test_every_version_of_a_buffer_can_be_extended_and_none_changes(
    limit: int, steps: list[tuple[int, str]]
) -> None:
    versions = [(TailBuffer.empty(), "")]
    for choice, delta in steps:
        buffer, text = versions[choice % len(versions)]
        versions.append(
            (buffer.extended(delta, limit)[0], truncate_utf8_tail(text + delta, limit)[0])
        )
    assert [buffer.text for buffer, _ in versions] == [text for _, text in versions]


@given(st.text(), st.integers(0, 40))
def test_a_cut_text_is_the_longest_end_of_whole_characters_that_fits(text: str, limit: int) -> None:
    kept, was_cut = truncate_utf8_tail(text, limit)
    assert text.endswith(kept)
    assert len(kept.encode()) <= limit
    assert was_cut == (kept != text or limit < 0)
    dropped = text.removesuffix(kept)
    assert not dropped or dropped[-1] == BOM or len((dropped[-1] + kept).encode()) > limit


def test_halves_of_a_character_join_when_they_meet() -> None:
    first, _ = TailBuffer.empty().extended("a" + HIGH, 100)
    second, _ = first.extended(LOW + "b", 100)
    assert first.text == "a" + HIGH
    assert second.text == "a😀b"


def test_a_lone_half_is_kept_until_the_text_is_cut() -> None:
    kept, _ = TailBuffer.empty().extended(HIGH + "abc", 6)
    cut, was_cut = kept.extended("d", 6)
    assert kept.text == HIGH + "abc"
    assert (cut.text, was_cut) == ("abcd", True)
    longer, _ = TailBuffer.empty().extended("a" + HIGH + "bc", 6)
    assert longer.extended("d", 6)[0].text == "\ufffdbcd"


def test_a_long_terminal_needs_no_more_memory_than_two_limits() -> None:
    limit, buffer, largest = 1000, TailBuffer.empty(), 0
    for number in range(2000):
        buffer, _ = buffer.extended(f"{number:>9}\n", limit)
        largest = max(largest, sys.getsizeof(shared(buffer)))
    assert largest < 2.5 * limit


def test_output_is_moved_once_per_limit_and_not_once_per_piece() -> None:
    limit, buffer, moves = 1000, TailBuffer.empty(), 0
    for _ in range(10_000):
        longer, _ = buffer.extended("0123456789", limit)
        moves += shared(longer) is not shared(buffer)
        buffer = longer
    # 100,000 bytes went through; each move copies less than one limit.
    assert moves <= 100_000 / limit


def test_extending_an_old_version_costs_the_newest_nothing() -> None:
    old, _ = TailBuffer.empty().extended("a", 100)
    new, _ = old.extended("b", 100)
    assert old.extended("c", 100)[0].text == "ac"
    assert shared(new.extended("d", 100)[0]) is shared(new)


class Overtaken(bytearray):
    """Bytes to which another thread appends between our look at their length and our append."""

    @override
    def __iadd__(self, more: Any) -> Self:
        self.extend(b"of another thread")
        self.extend(more)
        return self


def test_a_lost_race_for_the_next_bytes_ends_in_a_branch() -> None:
    longer, _ = TailBuffer(Overtaken(b"abc"), 0, 3).extended("mine", 100)
    assert longer.text == "abcmine"


def test_buffers_are_equal_if_their_text_is() -> None:
    at_once, _ = TailBuffer.empty().extended("abc", 2)
    in_steps, _ = TailBuffer.empty().extended("b", 2)
    in_steps, _ = in_steps.extended("c", 2)
    assert at_once == in_steps
    assert hash(at_once) == hash(in_steps)
    assert at_once != "bc"
    assert repr(at_once) == "TailBuffer('bc')"
