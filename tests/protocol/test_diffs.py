"""Diffs of ACP 2 as diffs of ACP 1; `web/tests/diffs.test.ts` reads the same cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.policy import read_call
from quarterdeck.protocol import ToolCallFacts
from quarterdeck.protocol.acp2_diffs import patched_diff
from quarterdeck.protocol.diffs import file_changes, shown_content

CASES = json.loads((Path(__file__).parent / "patch_cases.json").read_text())
LINES = st.lists(st.sampled_from(["a", "b", "- c", "+ d", "--- e", "@@ -1 +1 @@", ""]), max_size=8)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_diff_is_shown_as_one_for_each_file(case: dict[str, Any]) -> None:
    assert list(shown_content([case["part"]])) == case["shown"]


def test_content_without_patches_is_the_same_object() -> None:
    content = [{"type": "diff", "path": "/p/a", "oldText": None, "newText": ""}]
    assert shown_content(content) is content


@given(TEXTS, TEXTS)
def test_the_changed_lines_survive_a_patch(old: str, new: str) -> None:
    part = {"type": "diff", "path": "/p/f", "oldText": old, "newText": new}
    (change,) = file_changes(patched_diff(part))
    if old == new:
        assert (change.old_text, change.new_text) == (None, None)
    else:
        assert change.old_text is not None
        assert change.new_text is not None
        assert change.old_text in old
        assert change.new_text in new


def test_rules_read_every_path_of_a_diff_with_a_patch() -> None:
    changes = [
        {"operation": "modify", "path": "/p/a"},
        {"operation": "move", "oldPath": "/etc/passwd", "path": "/p/b"},
        {"operation": "delete", "path": "/home/.ssh/id"},
    ]
    facts = ToolCallFacts(
        id="c", turn=1, kind="edit", content=({"type": "diff", "changes": changes},)
    )
    paths = set(read_call(facts, {}).reading.paths)
    assert {"/p/a", "/p/b", "/etc/passwd", "/home/.ssh/id"} <= paths
