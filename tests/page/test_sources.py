"""Patterns that the page's sources must not contain."""

from __future__ import annotations

from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "web" / "src"


@pytest.mark.parametrize(
    "forbidden",
    ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"],
)
def test_no_text_ever_becomes_html_or_code(forbidden: str) -> None:
    files = [*SOURCES.rglob("*.ts"), *SOURCES.rglob("*.tsx")]
    assert files
    assert [file.name for file in files if forbidden in file.read_text(encoding="utf-8")] == []
