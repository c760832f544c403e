"""Documents and change notes name the actor and use ordinary verbs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "changes").glob("*.md"),
        *(ROOT / "benchmarks").glob("*.md"),
    )
)
CODE = re.compile(r"^```.*?^```|`[^`]*`", re.DOTALL | re.MULTILINE)
AVOIDED = re.compile(
    r"\b(whoever|somebody|nobody|everybody|anybody"
    r"|(?:is|are|was|were|be) (?:told|said)"
    r"|(?:let|lets|comes|come|goes|go) (?:in|on)"
    r"|mend(?:s|ed)?)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_document_uses_a_word_that_the_glossary_replaces(document: str) -> None:
    prose = CODE.sub("", (ROOT / document).read_text(encoding="utf-8"))
    assert AVOIDED.findall(prose) == []
