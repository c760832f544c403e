"""What rules allow is executed in five shells: nothing else happens.

The long form of these tests is `python3 dev.py fuzz policy --lines 100000`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.policy import fuzz
from tests.policy.hostile_lines import HARMLESS
from tests.policy.shell_box import SHELLS, BoxClient, found_shells, opened

pytestmark = pytest.mark.slow
LINES: Final = 3_000
SEED: Final = 13
MISSING: Final = "install the shells that are missing: python3 -m tools.shells"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoxClient]:
    with opened(tmp_path_factory.mktemp("shells") / "box") as client:
        yield client


def test_the_five_shells_are_installed() -> None:
    assert found_shells() == list(SHELLS), MISSING


def test_a_foreign_effect_is_noticed(box: BoxClient) -> None:
    for line in ("touch PWN", "ls; rm canary", "> PWN", "ls/evil", "ls > PWN", "sh -c 'touch PWN'"):
        effects = box.run(line, found_shells())
        assert {each.shell for each in effects} == set(found_shells())
        for each in effects:
            assert fuzz.foreign_effects(line, [each]), (line, each)


def test_a_harmless_line_runs_what_was_read_from_it(box: BoxClient) -> None:
    allowed = [line for line in HARMLESS if fuzz.is_allowed(line, box.work)]
    assert len(allowed) >= 0.9 * len(HARMLESS)
    for line in allowed:
        effects = box.run(line, found_shells())
        assert fuzz.foreign_effects(line, effects) == []
        assert any(each.ran for each in effects), line


def test_no_hostile_line_that_is_allowed_has_a_foreign_effect(box: BoxClient) -> None:
    tally = fuzz.run(box, seed=SEED, lines=LINES, shells=found_shells())
    assert tally.foreign == []
    assert tally.allowed >= LINES / 12
