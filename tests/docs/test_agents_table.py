"""The table of abilities is made from results, and says why an agent cannot do something."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.real_agents.abilities.__main__ import CHAPTER, EVERYONE, RESULTS
from tests.real_agents.abilities.faults import FAULTS
from tests.real_agents.abilities.table import (
    BEGIN,
    END,
    RECORDINGS,
    Result,
    merged,
    recording,
    recording_name,
    table,
    unexplained,
    with_table,
)
from tests.real_agents.abilities.trial import ABILITIES

ROOT = Path(__file__).resolve().parents[2]
ABLE = Result(agent="able", version="1.2", date="2026-01-02")
LAZY = Result(agent="lazy", version="3", date="2026-01-04", failures={"write": "it did not ask"})
WHY = {"lazy": {"write": "writes without asking"}}


def test_every_agent_has_a_row_with_its_version_and_the_days_of_the_run() -> None:
    lines = table([ABLE, LAZY], ["plain", "write"], WHY).splitlines()
    assert "| able 1.2 | ✓ | ✓ |" in lines
    assert "| lazy 3 | ✓ | ✗ 1 |" in lines
    assert "Run on 2026-01-02 to 2026-01-04." in lines[2]


def test_a_failure_has_its_reason_and_its_recording() -> None:
    made = table([LAZY], ["plain", "write"], WHY)
    assert f"1. `lazy`, write: writes without asking ([recording](../../{RECORDINGS}/" in made
    assert unexplained([ABLE, LAZY], WHY) == []


def test_a_failure_without_a_reason_is_named() -> None:
    assert unexplained([ABLE, LAZY], {}) == [("lazy", "write")]
    assert "not explained yet" in table([LAZY], ["write"], {})


def test_an_ability_that_was_not_tried_is_left_open() -> None:
    result = msgspec.structs.replace(LAZY, failures={}, untried=("write",))
    assert "| lazy 3 | ✓ |  |" in table([result], ["plain", "write"], {})


def test_agents_that_were_not_run_again_keep_their_results() -> None:
    better = msgspec.structs.replace(LAZY, failures={})
    assert merged([LAZY, ABLE], [better]) == [ABLE, better]


def test_only_the_table_of_the_chapter_is_replaced() -> None:
    chapter = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert with_table(chapter, f"{BEGIN}\nnew\n{END}") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    with pytest.raises(ValueError, match="there are no lines"):
        with_table("nothing", "")


def test_a_recording_is_small_and_names_no_folder_of_the_machine() -> None:
    events = [
        {"type": "usage-update", "payload": {}},
        {"type": "tool-call", "payload": {"title": "x" * 1000, "paths": ["/tmp/abc/work"]}},
    ]
    lines = [json.loads(each) for each in recording(events, "no", {"/tmp/abc": "/h"}).splitlines()]
    assert lines[0] == {"happened": "no"}
    (call,) = lines[1:]
    assert call["payload"]["paths"] == ["/h/work"]
    assert len(call["payload"]["title"]) < 300


def known_results() -> list[Result]:
    return msgspec.json.decode(RESULTS.read_bytes(), type=list[Result])


def test_the_chapter_has_the_table_of_the_last_run() -> None:
    chapter = CHAPTER.read_text(encoding="utf-8")
    made = table(known_results(), list(ABILITIES), FAULTS)
    assert chapter == with_table(chapter, made), "run python3 dev.py agents-table"


def test_the_table_has_the_agents_that_can_be_run_and_every_failure_a_reason() -> None:
    results = known_results()
    assert {each.agent for each in results} == set(EVERYONE)
    assert unexplained(results, FAULTS) == []
    kept = {each.name for each in (ROOT / RECORDINGS).glob("*.jsonl")}
    assert kept == {recording_name(each.agent, name) for each in results for name in each.failures}


def test_no_reason_is_given_for_what_works() -> None:
    failures = {(each.agent, name) for each in known_results() for name in each.failures}
    assert {(agent, name) for agent, why in FAULTS.items() for name in why} == failures
