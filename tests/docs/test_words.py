"""Documents, change notes and source name the actor and use ordinary verbs."""

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


SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder, pattern in (
        ("src/quarterdeck", "*.py"),
        ("web/src", "*.ts*"),
        ("tools", "*.py"),
        ("benchmarks", "*.py"),
        (".", "dev.py"),
    )
    for path in (ROOT / folder).glob(pattern if folder == "." else f"**/{pattern}")
)
FOR_MODELS = ("demo_model.py", "instructions.py")
"""Prompts and answers of models, which are not our words to users."""
PINNED = "resume the session to go on"  # a text in golden files of the views


def test_no_source_file_uses_a_word_that_the_glossary_replaces() -> None:
    found = {
        (name, number, word)
        for name in SOURCES
        if not name.endswith(FOR_MODELS)
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1)
        for word in AVOIDED.findall(line.replace(PINNED, ""))
    }
    assert found == set()
