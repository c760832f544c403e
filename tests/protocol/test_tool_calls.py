"""The fold of tool calls: the vectors that the page is checked by, and what holds for all of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import asdict

from quarterdeck.protocol import ToolCallFacts, ToolCallState, to_json
from quarterdeck.protocol.tool_calls import (
    DOCUMENTED,
    FIELD_RULES,
    FINAL_STATUSES,
    KNOWN,
    announced,
    corrections,
    documented_announcement,
    documented_update,
    ended_by_us,
    is_open,
    is_regular,
    is_turn_boundary,
    requested,
    tool_call_key,
    updated,
)

Json = dict[str, Any]
VECTORS = sorted((Path(__file__).parents[1] / "vectors" / "tool-calls").iterdir())
CASES = [
    pytest.param(case, id=f"{path.stem}: {case['name']}")
    for path in VECTORS
    for case in json.loads(path.read_text(encoding="utf-8"))
]
FULL = {
    "toolCallId": "c",
    "title": "Run",
    "kind": "execute",
    "status": "pending",
    "content": [{"type": "content"}],
    "locations": [{"path": "/a"}],
    "rawInput": {"command": "git status"},
    "rawOutput": "clean",
}


class Columns:
    """One call by both columns, from messages as the vectors have them."""

    def __init__(self) -> None:
        self.documented: ToolCallState | None = None
        self.known: ToolCallFacts | None = None
        self._turn = 0

    def take(self, message: Json) -> None:
        ((kind, payload),) = message.items()
        match kind:
            case "announced":
                self.documented = documented_announcement(payload)
                self.known = announced(self.known, payload, self._turn)
            case "updated":
                self._update(payload)
            case "requested":
                self.known = requested(self.known, payload, self._turn)
            case "turn":
                self._turn += 1
            case _:
                self.documented = self.known = None

    def _update(self, payload: Json) -> None:
        if self.documented is not None:
            self.documented = documented_update(self.documented, payload)
        if self.known is None:
            self.known = announced(None, payload, self._turn)
        else:
            self.known = updated(self.known, payload)

    def documented_json(self) -> Json | None:
        if self.documented is None:
            return None
        found: Json = to_json(self.documented)
        del found["seq"]
        return found

    def known_json(self) -> Json:
        assert self.known is not None
        found = asdict(self.known)
        names: dict[str, str] = {"is_final": "isFinal", "first_title": "firstTitle"}
        names |= {"raw_input": "rawInput", "raw_output": "rawOutput"}
        lists = {"content": list(found["content"]), "locations": list(found["locations"])}
        return {names.get(str(name), str(name)): value for name, value in (found | lists).items()}


@pytest.mark.parametrize("case", CASES)
def test_messages_give_the_call_of_the_vector_by_both_columns(case: Json) -> None:
    columns = Columns()
    for message in case["messages"]:
        columns.take(message)
    written = json.dumps([columns.documented_json(), columns.known_json()], sort_keys=True)
    assert written == json.dumps([case["documented"], case["known"]], sort_keys=True)


def test_there_are_vectors_for_every_field() -> None:
    named = {
        field
        for case in CASES
        for message in case.values[0]["messages"]  # type: ignore[index]  # pytest types it as object
        for payload in message.values()
        if isinstance(payload, dict)
        for field in payload
    }
    assert {rule.field for rule in FIELD_RULES} <= named
    assert len(CASES) >= 70


# ---- what holds for any JSON -------------------------------------------------------------------

VALUES = st.sampled_from(
    (None, "", "x", "completed", "in_progress", 0, 5, False, [], [5], [{"a": 1}], {}, {"a": 1})
)
PAYLOADS = st.dictionaries(st.sampled_from([rule.field for rule in FIELD_RULES]), VALUES)
KINDS = st.sampled_from(("announced", "updated", "requested", "turn"))


def message(kind: str, payload: Json) -> Json:
    return {kind: True if kind == "turn" else {"toolCallId": "c", **payload}}


MESSAGES = st.lists(st.builds(message, KINDS, PAYLOADS), max_size=12)


@given(PAYLOADS, PAYLOADS)
def test_what_is_written_out_for_reduce_is_the_column_of_the_table(first: Json, more: Json) -> None:
    call = documented_announcement(first)
    for field, (attribute, rule) in DOCUMENTED.items():
        assert attribute == KNOWN[field][0]
        changed = getattr(documented_update(call, more), attribute)
        old = getattr(call, attribute)
        assert changed == (rule(old, more[field]) if field in more else old)
        blank = getattr(documented_announcement({}), attribute)
        assert old == (rule(blank, first[field]) if field in first else blank)


@given(PAYLOADS, PAYLOADS)
def test_what_is_written_out_for_what_is_known_is_the_column_of_the_table(
    first: Json, more: Json
) -> None:
    call = announced(None, {"toolCallId": "c", **first}, 0)
    after = updated(call, more)
    blank = announced(None, {"toolCallId": "c"}, 0)
    for field, (attribute, rule) in KNOWN.items():
        old = getattr(call, attribute)
        start = getattr(blank, attribute)
        assert old == (rule(start, first[field]) if field in first else start)
        changed = rule(old, more[field]) if field in more else old
        if field == "status" and call.is_final and changed not in FINAL_STATUSES:
            changed = old
        assert getattr(after, attribute) == changed


@given(PAYLOADS, PAYLOADS)
def test_both_columns_read_a_regular_update_alike(first: Json, more: Json) -> None:
    documented = documented_announcement(first)
    known = announced(None, {"toolCallId": "c", **first}, 0)
    if is_regular(first) and is_regular(more) and not known.is_final:
        assert corrections(documented_update(documented, more), updated(known, more)) == {}


@given(MESSAGES)
def test_after_its_corrections_a_documented_call_is_what_is_known(sent: list[Json]) -> None:
    columns = Columns()
    for each in sent:
        columns.take(each)
    documented, known = columns.documented, columns.known
    if documented is None or known is None:
        return
    corrected = documented_update(documented, corrections(documented, known))
    assert corrections(corrected, known) == {}
    assert updated(known, corrections(documented, known)) == known


@given(MESSAGES, PAYLOADS, st.sampled_from(("announced", "requested")))
def test_nothing_is_inherited_from_a_call_that_has_ended(
    before: list[Json], payload: Json, kind: str
) -> None:
    columns, fresh = Columns(), Columns()
    for each in [*before, {"updated": {"toolCallId": "c", "status": "completed"}}]:
        columns.take(each)
    columns.take(message(kind, payload))
    fresh.take(message(kind, payload))
    ours = {"turn", "generation"}
    assert {name: value for name, value in columns.known_json().items() if name not in ours} == {
        name: value for name, value in fresh.known_json().items() if name not in ours
    }


@given(MESSAGES, PAYLOADS)
def test_a_request_inherits_nothing_from_an_earlier_turn(before: list[Json], request: Json) -> None:
    columns = Columns()
    for each in [*before, {"turn": True}, message("requested", request)]:
        columns.take(each)
    found = columns.known_json()
    alone = requested(None, {"toolCallId": "c", **request}, 0)
    assert found["rawInput"] == alone.raw_input
    assert found["content"] == list(alone.content)


# ---- details -----------------------------------------------------------------------------------


def test_a_call_that_we_ended_may_still_continue_or_end() -> None:
    ended = ended_by_us(announced(None, FULL, 0))
    assert (ended.status, ended.is_final) == ("failed", False)
    assert updated(ended, {"title": "x", "status": ""}).is_final is False
    assert updated(ended, {"status": "in_progress"}).status == "in_progress"
    assert updated(ended, {"status": "failed"}).is_final is True


def test_a_call_is_open_in_its_own_turn_until_its_agent_ends_it() -> None:
    facts = announced(None, FULL, 3)
    assert is_open(facts, 3)
    assert not is_open(facts, 4)
    assert not is_open(updated(facts, {"status": "failed"}), 3)


def test_only_named_fields_are_corrected() -> None:
    documented, known = documented_announcement({}), announced(None, FULL, 0)
    assert corrections(documented, known, {"rawInput": {}}) == {"rawInput": FULL["rawInput"]}
    assert corrections(documented, known) == {
        name: value for name, value in FULL.items() if name != "toolCallId"
    }


def test_an_input_that_is_nested_too_deeply_to_compare_is_corrected() -> None:
    one: list[Any] = []
    other: list[Any] = []
    for _ in range(10_000):
        one, other = [one], [other]
    documented = documented_announcement({"rawInput": one})
    known = announced(None, {"toolCallId": "c", "rawInput": other}, 0)
    assert corrections(documented, known)["rawInput"] is other


def test_turns_begin_with_a_prompt_and_end_with_its_answer() -> None:
    assert is_turn_boundary("prompt-finished", {})
    assert is_turn_boundary("session-status-change", {"status": "prompting"})
    assert not is_turn_boundary("session-status-change", {"status": "active"})
    assert not is_turn_boundary("tool-call", {"status": "prompting"})


def test_an_id_that_is_no_text_is_its_json() -> None:
    assert tool_call_key({"toolCallId": ["c"]}) == '["c"]'
    assert tool_call_key({"toolCallId": "c"}) == "c"
    assert tool_call_key({}) == ""
