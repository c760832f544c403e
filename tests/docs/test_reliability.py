"""The page on reliability names tests that exist, and every guarantee has one."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROMISES = 20


def rows() -> dict[str, str]:
    chapter = (ROOT / "docs/understand/reliability.md").read_text()
    return dict(re.findall(r"^\| (P\d+) [^|]+\|(.+)\|$", chapter, re.MULTILINE))


def written_tests() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        found.update(re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))
    return found


def test_every_promise_has_its_row_and_a_test_that_bears_its_name() -> None:
    assert list(rows()) == [f"P{number}" for number in range(1, PROMISES + 1)]
    for name, row in rows().items():
        tests = re.findall(r"`(test_\w+)`", row)
        assert tests, f"{name} names no test"
        assert set(tests) <= written_tests(), f"{name} names a test that is not there"
        assert all(test.startswith(f"test_{name.lower()}_") for test in tests)


def test_every_test_that_the_chapter_names_is_there() -> None:
    chapter = (ROOT / "docs/understand/reliability.md").read_text()
    assert set(re.findall(r"`(test_\w+)`", chapter)) <= written_tests()


def test_every_test_that_bears_the_name_of_a_promise_is_in_the_chapter() -> None:
    named = {test for test in written_tests() if re.match(r"test_p\d+_", test)}
    assert named == set(re.findall(r"`(test_p\d+_\w+)`", "".join(rows().values())))
