from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.errors import JsonInvalid
from quarterdeck.protocol import SESSION_EVENT_TYPES, normalize_session_update, to_json
from tests.protocol.support import MODELLED_UPDATES, any_json, objects


@pytest.mark.parametrize(("name", "expected"), MODELLED_UPDATES.items())
def test_eleven_variants_are_modelled(name: str, expected: str) -> None:
    assert normalize_session_update({"sessionUpdate": name}).type == expected
    assert expected in SESSION_EVENT_TYPES


@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "plan_update", "plan": None, "_meta": {"a": 1}},
        {"sessionUpdate": "plan_removed", "id": "p"},
        {"sessionUpdate": "from_the_future"},
        {"sessionUpdate": "Plan", "entries": []},
        {"sessionUpdate": None, "a": None},
        {"sessionUpdate": ["plan"]},
        {"content": 1},
        {},
    ],
)
def test_every_other_update_is_kept_whole(update: dict[str, Any]) -> None:
    normalized = to_json(normalize_session_update(update))
    assert normalized == {"type": "unrecognized-update", "payload": update}


@pytest.mark.parametrize("key", ["title", "kind", "status", "content", "locations", "toolCallId"])
def test_a_null_of_a_tool_call_is_left_out(key: str) -> None:
    update = {"sessionUpdate": "tool_call_update", key: None}
    assert normalize_session_update(update).payload == {}


@pytest.mark.parametrize("key", ["rawInput", "rawOutput"])
@pytest.mark.parametrize("name", ["tool_call", "tool_call_update"])
def test_a_null_raw_input_or_output_is_a_value(name: str, key: str) -> None:
    assert normalize_session_update({"sessionUpdate": name, key: None}).payload == {key: None}


@pytest.mark.parametrize("key", ["title", "updatedAt"])
def test_a_null_title_or_time_of_a_session_clears_it(key: str) -> None:
    update = {"sessionUpdate": "session_info_update", key: None}
    assert normalize_session_update(update).payload == {key: None}


def test_a_null_in_an_unknown_key_is_kept_and_a_null_meta_is_not() -> None:
    update: dict[str, Any] = {"sessionUpdate": "plan", "entries": [], "vendor": None, "_meta": None}
    assert normalize_session_update(update).extensions == {"vendor": None}


def test_no_extensions_are_none() -> None:
    assert normalize_session_update({"sessionUpdate": "plan", "entries": []}).extensions is None


@given(st.sampled_from(sorted(MODELLED_UPDATES)), objects)
def test_nothing_but_nulls_is_lost(name: str, fields: dict[str, Any]) -> None:
    update = {**fields, "sessionUpdate": name}
    normalized = normalize_session_update(update)
    kept = {**normalized.payload, **(normalized.extensions or {}), "sessionUpdate": name}
    lost = {key: value for key, value in update.items() if key not in kept}
    assert kept == {key: value for key, value in update.items() if key not in lost}
    assert all(value is None for value in lost.values())


@given(any_json)
def test_any_json_can_be_normalized_from_its_text(value: Any) -> None:
    normalized = normalize_session_update(json.dumps(value))
    if isinstance(value, dict):
        assert normalized == normalize_session_update(value)
    else:
        assert to_json(normalized) == {"type": "unrecognized-update", "payload": {"update": value}}


def test_an_update_can_be_given_as_bytes() -> None:
    assert normalize_session_update(b'{"sessionUpdate":"plan"}').type == "plan"
    with pytest.raises(JsonInvalid):
        normalize_session_update(b"{")


def test_the_update_is_not_changed() -> None:
    update = {"sessionUpdate": "plan", "entries": [], "_meta": {"a": 1}}
    normalize_session_update(update).payload["entries"] = None
    assert update == {"sessionUpdate": "plan", "entries": [], "_meta": {"a": 1}}
