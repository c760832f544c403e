"""The conformance pages name tests and vectors that exist, and cover every type."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.views.context.contract import COMMAND_CLASSES
from quarterdeck.views.context.events import EVENT_CLASSES
from quarterdeck.views.packets import PACKET_TYPES, packet_type
from quarterdeck.views.packets.types import TOOL_INPUTS, TOOL_OUTPUTS

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = ("context", "packets")
PAGES = (*CHAPTERS, "acp")
ROW = re.compile(r"^\| (?!---|description)(.+?) \| (.+) \|$", re.MULTILINE)


def rows(chapter: str) -> list[tuple[str, list[str]]]:
    text = (ROOT / f"docs/understand/conformance-{chapter}.md").read_text(encoding="utf-8")
    return [(sentence, re.findall(r"`([^`]+)`", proof)) for sentence, proof in ROW.findall(text)]


def written_tests() -> set[str]:
    found = [
        re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        for path in (ROOT / "tests").rglob("test_*.py")
    ]
    return {name for names in found for name in names}


@pytest.mark.parametrize("chapter", PAGES)
def test_every_sentence_has_a_test_or_a_vector_that_exists(chapter: str) -> None:
    tests = written_tests()
    assert len(rows(chapter)) > 50
    for sentence, proofs in rows(chapter):
        assert proofs, f"nothing shows: {sentence}"
        for proof in proofs:
            exists = proof in tests if proof.startswith("test_") else (ROOT / proof).is_file()
            assert exists, f"{sentence}: there is no {proof}"


@pytest.mark.parametrize("chapter", PAGES)
def test_every_test_that_the_text_names_exists(chapter: str) -> None:
    text = (ROOT / f"docs/understand/conformance-{chapter}.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(test_\w+)`", text)) <= written_tests()


def test_a_requirement_of_the_acp_kit_is_shown_by_tests_that_have_its_id() -> None:
    text = (ROOT / "docs/understand/conformance-acp.md").read_text(encoding="utf-8")
    first, _, second = text.partition("## Version 2")
    for version, part in ((1, first), (2, second)):
        listed = ROW.findall(part)
        assert len(listed) > 50
        for sentence, proof in listed:
            category, number = re.findall(r"^([A-Z-]+)-(\d{3}): ", sentence)[0]
            for name in re.findall(r"`(test_\w+)`", proof):
                assert category.lower().replace("-", "_") in name, (version, sentence)
                assert f"_{number}" in name, (version, sentence)


def types_in(proof: str) -> set[str]:
    """Return all event and packet types in a golden file."""
    sessions: list[dict[str, Any]] = json.loads((ROOT / proof).read_text(encoding="utf-8"))
    return {event["type"] for session in sessions for event in session.get("context", ())} | {
        packet_type(packet) for session in sessions for packet in session.get("packets", ())
    }


def subjects(chapter: str) -> dict[str, list[str]]:
    """Return the proofs of the rows that begin with a name."""
    found: dict[str, list[str]] = {}
    for sentence, proofs in rows(chapter):
        if name := re.match(r"`([\w:]+)`", sentence):
            found.setdefault(name[1], []).extend(proofs)
    return found


@pytest.mark.parametrize(
    ("chapter", "names"),
    [("context", EVENT_CLASSES), ("packets", PACKET_TYPES)],
    ids=CHAPTERS,
)
def test_every_type_has_a_golden_projection_in_which_it_occurs(chapter: str, names: Any) -> None:
    for name in names:
        golden = [each for each in subjects(chapter)[name] if each.endswith(".json")]
        assert golden, f"no golden projection is named for {name}"
        assert all(name in types_in(each) for each in golden), name


def test_every_command_has_its_row() -> None:
    assert set(COMMAND_CLASSES) <= set(subjects("context"))


def test_every_tool_has_its_rows() -> None:
    text = "\n".join(sentence for sentence, _ in rows("packets"))
    assert all(re.search(rf"Input of .*\b{name}\b", text) for name in TOOL_INPUTS)
    assert all(re.search(rf"Output of .*\b{name}\b", text) for name in TOOL_OUTPUTS)


def test_every_requirement_of_acp_is_in_the_name_of_its_test() -> None:
    for sentence, proofs in rows("acp"):
        words = sentence.partition(":")[0].lower().split("-")
        for proof in proofs:
            assert "_".join(words[:-1]) in proof, sentence
            assert f"_{words[-1]}_" in f"{proof}_", sentence
