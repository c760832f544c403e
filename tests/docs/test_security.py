"""The page on security names tests that exist and limits that are those of the code."""

import re
from pathlib import Path
from typing import get_args

from quarterdeck.http.limits import MAX_SILENT
from quarterdeck.http.origins import DEFAULT_PORT
from quarterdeck.http.server import HEAD_BYTES, HEAD_SECONDS
from quarterdeck.hub.auth.device import UNUSED_SECONDS, Scope
from quarterdeck.hub.auth.guard import REVOKED, GuardLimits

ROOT = Path(__file__).resolve().parents[2]
CHAPTER = (ROOT / "docs/use/security.md").read_text(encoding="utf-8")


def _rows(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^\| T(\d{1,2}) \|(.+)\|$", text, re.MULTILINE)


def test_every_attack_names_the_tests_that_try_it() -> None:
    written: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        written.update(re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE))
    attacks, tested = CHAPTER.split("### Tests of the attacks")
    numbers = [int(number) for number, _ in _rows(attacks)]
    assert numbers == list(range(1, 38))
    assert [int(number) for number, _ in _rows(tested)] == numbers
    for number, row in _rows(tested):
        tests = set(re.findall(r"`(test_\w+)`", row))
        assert tests, f"{number} names no test"
        assert tests <= written, f"{number} names a test that is not there"


def test_the_numbers_in_the_chapter_are_those_of_the_code() -> None:
    limits = GuardLimits()
    flowing = " ".join(CHAPTER.split())
    for said in (
        f"Request heads must arrive within {HEAD_SECONDS:.0f} seconds and {HEAD_BYTES >> 10} KiB",
        f"bodies within {limits.devices.size >> 20} MiB"
        f" ({limits.anonymous.size >> 10} KiB without a token)",
        f"A device has at most {limits.connections:,} connections",
        f"clients without a token together at most {limits.anonymous_requests} requests",
        f"At most {MAX_SILENT} connections may have no request yet",
        f"not used for {UNUSED_SECONDS / 86_400:.0f} days",
        f"tailscale serve --bg {DEFAULT_PORT}",
    ):
        assert said in flowing
    assert f"with the code {REVOKED}" in flowing
    for scope in get_args(Scope):
        assert f"| `{scope}` |" in CHAPTER
