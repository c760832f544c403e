"""The line diff of two texts: which lines an edit adds and deletes, and how many.

Everything that shows an edit uses this: the transcript's tallies, the terminal, the Markdown export
and the context events. The page has the same algorithm (`web/src/ui/line_matches.ts`), so that one
edit has one tally everywhere; `tests/views/diff_cases.json` is checked by both.

A tally is exact: it counts the lines outside a longest common subsequence (LCS), as `diff` does.
The LCS is found with one bit per pair of lines (Hyyrö 2004): with Python's integers that takes
milliseconds for 8,000 changed lines. Work is bounded by counting pairs, never by time, so that a
slow machine gets the same result. Texts beyond the bound are split at lines that occur once in
both; a part between two of them that is still too large counts as replaced.

Lines end at line feeds only. A last line without one differs from the same line with one, as in
git, so that a diff can be applied. Agents often send parts of files, which end without one:
`NO_NEWLINE` is left out for people if it is true of both texts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

MOST_PAIRS: Final = 1 << 26
"""Pairs of lines that are compared for one edit: 8,192 changed lines on each side."""
MOST_LINES: Final = 1 << 16
"""Lines of the longer side of an exact comparison."""
CONTEXT: Final = 3
NO_NEWLINE: Final = "\\ No newline at end of file"


class LineTally(Struct, frozen=True):
    """How many lines an edit adds and deletes."""

    added: int
    deleted: int


class Hunk(NamedTuple):
    """A run of changes with the lines around it; positions count from 0."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: list[str]
    """Each with its mark (" ", "-", "+"), without its line feed; `NO_NEWLINE` may follow one."""

    @property
    def header(self) -> str:
        old = _range(self.old_start, self.old_lines)
        return f"@@ -{old} +{_range(self.new_start, self.new_lines)} @@"


def lines_of(text: str) -> list[str]:
    """Split a text at its line feeds; each line keeps its own."""
    *lines, rest = text.split("\n")
    return [line + "\n" for line in lines] + ([rest] if rest else [])


def tally_of(old: str | None, new: str) -> LineTally:
    """Count the lines that an edit adds and deletes; `old` is None for a new file."""
    before, after = lines_of(old or ""), lines_of(new)
    matched = len(matched_lines(before, after))
    return LineTally(len(after) - matched, len(before) - matched)


def hunks_of(old: str | None, new: str, context: int = CONTEXT) -> list[Hunk]:
    """Return the changes of an edit with the lines around them."""
    before, after = lines_of(old or ""), lines_of(new)
    changes = _changes(matched_lines(before, after), len(before), len(after))
    return [_hunk(group, before, after, context) for group in _grouped(changes, context)]


def unified_lines(
    path: str, old: str | None, new: str, context: int = CONTEXT, *, origin: str | None = None
) -> Iterator[str]:
    """Yield a unified diff for people, line by line; nothing if the texts are equal."""
    hunks = hunks_of(old, new, context)
    is_noted = (old or "").endswith("\n") or new.endswith("\n")
    if hunks:
        yield f"--- {'/dev/null' if old is None else origin or path}"
        yield f"+++ {path}"
    for hunk in hunks:
        yield hunk.header
        yield from (line for line in hunk.lines if is_noted or line != NO_NEWLINE)


# ---- changes and hunks ---------------------------------------------------------------------------


class _Change(NamedTuple):
    """Lines `old_from` to `old_to` became lines `new_from` to `new_to`."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def _changes(matches: Sequence[tuple[int, int]], olds: int, news: int) -> Iterator[_Change]:
    old = new = 0
    for at_old, at_new in (*matches, (olds, news)):
        if at_old > old or at_new > new:
            yield _Change(old, at_old, new, at_new)
        old, new = at_old + 1, at_new + 1


def _grouped(changes: Iterator[_Change], context: int) -> Iterator[list[_Change]]:
    """Group changes whose context would touch."""
    group: list[_Change] = []
    for change in changes:
        if group and change.old_from - group[-1].old_to > 2 * context:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _hunk(
    group: Sequence[_Change], before: Sequence[str], after: Sequence[str], context: int
) -> Hunk:
    first, last = group[0], group[-1]
    lead = min(context, first.old_from)
    tail = min(context, len(before) - last.old_to)
    old_start, new_start = first.old_from - lead, first.new_from - lead
    lines: list[str] = []
    at = old_start
    for change in group:
        lines += _marked(" ", before[at : change.old_from])
        lines += _marked("-", before[change.old_from : change.old_to])
        lines += _marked("+", after[change.new_from : change.new_to])
        at = change.old_to
    lines += _marked(" ", before[at : last.old_to + tail])
    old_end, new_end = last.old_to + tail, last.new_to + tail
    return Hunk(old_start, old_end - old_start, new_start, new_end - new_start, lines)


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if line.endswith("\n"):
            yield mark + line[:-1]
        else:
            yield mark + line
            yield NO_NEWLINE


def _range(start: int, length: int) -> str:
    first = start + 1 if length else start  # an empty range is named by the line before it
    return f"{first}" if length == 1 else f"{first},{length}"


# ---- matching lines ------------------------------------------------------------------------------

_Pairs = list[tuple[int, int]]


def matched_lines(before: Sequence[str], after: Sequence[str]) -> _Pairs:
    """Return the pairs of equal lines that an edit leaves alone, in order."""
    start, end = _common_ends(before, after)
    middle = _Matcher().match(
        range(start, len(before) - end), range(start, len(after) - end), before, after
    )
    return [
        *((each, each) for each in range(start)),
        *middle,
        *((len(before) - each, len(after) - each) for each in range(end, 0, -1)),
    ]


def _common_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return start, end


class _Matcher:
    """Matches the lines of one edit within its bound."""

    def __init__(self) -> None:
        self._pairs_left = MOST_PAIRS

    def match(
        self, olds: Sequence[int], news: Sequence[int], before: Sequence[str], after: Sequence[str]
    ) -> _Pairs:
        olds, news = _shared(olds, news, before, after)
        exact = self._exact(olds, news, before, after)
        if exact is not None:
            return exact
        found: _Pairs = []
        position = 0, 0
        for old, new in (*_anchors(olds, news, before, after), (len(olds), len(news))):
            gap_olds, gap_news = olds[position[0] : old], news[position[1] : new]
            gap = _shared(gap_olds, gap_news, before, after)
            found += self._exact(*gap, before, after) or []
            if old < len(olds):
                found.append((olds[old], news[new]))
            position = old + 1, new + 1
        return found

    def _exact(
        self, olds: Sequence[int], news: Sequence[int], before: Sequence[str], after: Sequence[str]
    ) -> _Pairs | None:
        """Return a longest match; None if it would take too many comparisons."""
        pairs = len(olds) * len(news)
        if pairs > self._pairs_left or max(len(olds), len(news)) > MOST_LINES:
            return None
        self._pairs_left -= pairs
        left, right = [before[each] for each in olds], [after[each] for each in news]
        if len(olds) < len(news):
            return [(olds[old], news[new]) for new, old in _longest(right, left)]
        return [(olds[old], news[new]) for old, new in _longest(left, right)]


def _shared(
    olds: Sequence[int], news: Sequence[int], before: Sequence[str], after: Sequence[str]
) -> tuple[list[int], list[int]]:
    """Leave out lines that the other side does not have: they are in no match."""
    in_old, in_new = {before[each] for each in olds}, {after[each] for each in news}
    return [each for each in olds if before[each] in in_new], [
        each for each in news if after[each] in in_old
    ]


def _longest(long: Sequence[str], short: Sequence[str]) -> _Pairs:
    """Return a longest common subsequence; bits are the lines of `short`.

    After each line of `long`, bit j of the row is 0 if line j of `short` makes the common
    subsequence of what was read so far longer by one.
    """
    ones = (1 << len(short)) - 1
    positions: dict[str, int] = {}
    for position, line in enumerate(short):
        positions[line] = positions.get(line, 0) | (1 << position)
    rows: list[int] = []
    row = ones
    for line in long:
        both = row & positions[line]
        row = ((row + both) | (row - both)) & ones
        rows.append(row)
    found: _Pairs = []
    at, column = len(long), len(short)
    while at and column:
        if rows[at - 1] >> (column - 1) & 1:
            column -= 1
            continue
        at -= 1
        if not at or rows[at - 1] >> (column - 1) & 1:
            column -= 1
            found.append((at, column))
    return found[::-1]


def _anchors(
    olds: Sequence[int], news: Sequence[int], before: Sequence[str], after: Sequence[str]
) -> _Pairs:
    """Return positions of lines that occur once on each side, as many as keep their order."""
    counts_old = Counter(before[each] for each in olds)
    counts_new = Counter(after[each] for each in news)
    places = {
        after[each]: position for position, each in enumerate(news) if counts_new[after[each]] == 1
    }
    unique = [
        (position, places[before[each]])
        for position, each in enumerate(olds)
        if counts_old[before[each]] == 1 and before[each] in places
    ]
    return _longest_rising(unique)


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> _Pairs:
    """Return a longest run of pairs whose second numbers rise (patience sorting)."""
    ends: list[int] = []  # the smallest last number of a run of each length
    tops: list[int] = []  # its index
    previous: list[int] = []
    for index, (_, number) in enumerate(pairs):
        length = bisect_left(ends, number)
        previous.append(tops[length - 1] if length else -1)
        if length == len(ends):
            ends.append(number)
            tops.append(index)
        else:
            ends[length], tops[length] = number, index
    found: _Pairs = []
    index = tops[-1] if tops else -1
    while index >= 0:
        found.append(pairs[index])
        index = previous[index]
    return found[::-1]
