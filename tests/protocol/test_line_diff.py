"""One edit has one tally: in Python, in the page, in the terminal and in every view."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from quarterdeck.cli.terminal.permission_prompt import permission_prompt
from quarterdeck.protocol import line_diff
from quarterdeck.protocol.line_diff import LineTally, hunks_of, lines_of, matched_lines, tally_of
from quarterdeck.views.clipped_entries import clipped
from quarterdeck.views.context.changes import changed
from quarterdeck.views.entries import ToolEntry
from tools.web import WEB, node

TEXTS: Final = st.lists(st.sampled_from(["a", "b", "c", "\t", "", "d\r", "\u2028e", "\x0bf"])).map(
    "\n".join
)
# Compares all edits that it reads, in one process.
COMPARE: Final = """
import { lineDiff } from '%s'
let text = ''
for await (const piece of process.stdin) text += piece
const found = JSON.parse(text).map(([oldText, newText]) => {
  const { added, deleted, lines } = lineDiff({ path: 'a', oldText, newText })
  const marks = { add: '+', del: '-', same: ' ', gap: '@' }
  return [added, deleted, lines.map((line) => marks[line.kind] + line.text)]
})
process.stdout.write(JSON.stringify(found))
"""


def _lcs(before: list[str], after: list[str]) -> int:
    row = [0] * (len(after) + 1)
    for old in before:
        last = row
        row = [0]
        for position, new in enumerate(after):
            longer = last[position] + 1 if old == new else max(last[position + 1], row[-1])
            row.append(longer)
    return row[-1]


@given(old=TEXTS, new=TEXTS)
def test_a_tally_counts_the_lines_outside_a_longest_common_subsequence(old: str, new: str) -> None:
    before, after = lines_of(old), lines_of(new)
    longest = _lcs(before, after)
    assert tally_of(old, new) == LineTally(len(after) - longest, len(before) - longest)


@given(old=TEXTS, new=TEXTS)
def test_hunks_contain_what_the_tally_counts_and_lead_from_one_text_to_the_other(
    old: str, new: str
) -> None:
    lines = [line for hunk in hunks_of(old, new, 10_000) for line in hunk.lines]
    tally = tally_of(old, new)
    assert sum(line[0] == "+" for line in lines) == tally.added
    assert sum(line[0] == "-" for line in lines) == tally.deleted
    if lines:
        kept = [line for line in lines if line[0] != "\\"]
        assert [line[1:] for line in kept if line[0] != "+"] == _plain_lines(old)
        assert [line[1:] for line in kept if line[0] != "-"] == _plain_lines(new)


def _plain_lines(text: str) -> list[str]:
    return [line.removesuffix("\n") for line in lines_of(text)]


def _content(old: str, new: str) -> dict[str, Any]:
    return {"type": "diff", "path": "/work/a.py", "oldText": old, "newText": new}


@given(old=TEXTS, new=TEXTS)
@settings(max_examples=50)
def test_the_terminal_the_export_and_the_context_events_show_the_same_tally(
    old: str, new: str
) -> None:
    tally = tally_of(old, new)
    change = changed("/work/a.py", old, new)
    assert (change.added, change.removed) == (tally.added, tally.deleted)
    call = {"toolCallId": "c", "kind": "edit", "content": [_content(old, new)]}
    shown = [line.text for line in permission_prompt(call, (), 10_000).lines]
    assert f"  change: /work/a.py +{tally.added} -{tally.deleted}" in shown


def _edits(count: int) -> list[tuple[str, str]]:
    chosen = random.Random(7)
    edits = []
    for _ in range(count):
        words = [f"line {chosen.randrange(12)}" for _ in range(chosen.randrange(40))]
        other = [word for word in words if chosen.random() < 0.8]
        for _ in range(chosen.randrange(6)):
            other.insert(chosen.randrange(len(other) + 1), f"line {chosen.randrange(15)}")
        ends = chosen.choice(["\n", ""]), chosen.choice(["\n", ""])
        edits.append(("\n".join(words) + ends[0], "\n".join(other) + ends[1]))
    return edits


def _huge() -> list[tuple[str, str]]:
    """Return edits beyond the bound of an exact comparison, and the one that was shown wrongly."""
    chosen = random.Random(11)

    def text(lines: int, words: int) -> str:
        return "".join(f"{chosen.randrange(words)}\n" for _ in range(lines))

    few, many = text(9_000, 40), text(9_500, 40)
    anchored = "".join(f"unique {n}\n{text(30, 5)}" for n in range(400))
    changed_lines = anchored.replace("3\n", "x\n").replace("unique 7\n", "")
    halves = "".join(f"line {n}\n" for n in range(2000))
    return [
        (few, many),
        (anchored, changed_lines),
        (anchored, many),
        (text(70_000, 500_000), text(70_000, 500_000)),
        (halves, halves.replace("1\n", "1 more\n")),
    ]


def test_the_page_finds_the_same_lines_also_of_huge_edits(tmp_path: Path) -> None:
    edits = _edits(400) + _huge()
    script = WEB / "tests" / f"compare-{tmp_path.name}.ts"
    script.write_text(COMPARE % (WEB / "src/ui/line_diff.ts"), encoding="utf-8")
    try:
        done = subprocess.run(
            [node(), str(script)],
            input=json.dumps(edits),
            text=True,
            capture_output=True,
            check=True,
        )
    finally:
        script.unlink()
    for (old, new), (added, deleted, lines) in zip(edits, json.loads(done.stdout), strict=True):
        assert LineTally(added, deleted) == tally_of(old, new)
        ours = [line for hunk in hunks_of(old, new) for line in hunk.lines if line[0] != "\\"]
        assert [line for line in lines if line[0] != "@"] == ours


def test_the_bound_is_of_work_and_its_edge_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = [str(n % 7) for n in range(60)], [str(n % 5) for n in range(60)]
    exact = len(matched_lines(before, after))
    assert exact == _lcs(before, after)
    monkeypatch.setattr(line_diff, "MOST_PAIRS", 10)
    assert len(matched_lines(before, after)) < exact


def test_a_clipped_entry_has_the_tally_of_the_whole_diffs() -> None:
    old = "".join(f"line {n}\n" for n in range(6000))
    new = old.replace("1\n", "1 more\n")
    small = _content("x\n", "y\n")
    entry = ToolEntry(
        seq=1,
        at=0,
        ended_at=None,
        call={"toolCallId": "c", "content": [small, _content(old, new), *[small] * 600]},
        terminals={},
    )
    cut = clipped(entry)
    assert isinstance(cut, ToolEntry)
    whole = tally_of(old, new)
    assert cut.is_clipped
    assert cut.tally == LineTally(whole.added + 601, whole.deleted + 601)
    assert cut.cut_diffs == {"1": whole}
    assert isinstance(cut.cut_characters, int)
    assert cut.cut_characters > len(old) + len(new) - 2 * 33_000
    assert msgspec.json.decode(msgspec.json.encode(cut))["tally"]["added"] == whole.added + 601
