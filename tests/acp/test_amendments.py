from typing import Any

from hypothesis import given, strategies as st

from quarterdeck.acp.codec import amend
from tests.acp.instances import canonical

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", min_size=1, max_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(received=JSON, before=JSON)
def test_no_change_changes_nothing(received: Any, before: Any) -> None:
    assert canonical(amend(received, before, before)) == canonical(received)


@given(before=JSON, after=JSON)
def test_a_message_without_unknown_parts_becomes_the_new_value(before: Any, after: Any) -> None:
    assert canonical(amend(before, before, after)) == canonical(after)


def test_an_unknown_field_stays_when_its_neighbour_changes() -> None:
    assert amend({"a": 1, "x": 9}, {"a": 1}, {"a": 2}) == {"a": 2, "x": 9}


def test_a_field_that_was_taken_away_goes() -> None:
    assert amend({"a": 1, "x": 9}, {"a": 1}, {}) == {"x": 9}


def test_a_field_that_was_added_comes() -> None:
    assert amend({"x": 9}, {}, {"a": 1}) == {"x": 9, "a": 1}


def test_an_unreadable_value_stays_until_it_is_replaced() -> None:
    assert amend({"a": "bent"}, {}, {}) == {"a": "bent"}
    assert amend({"a": "bent"}, {}, {"a": 1}) == {"a": 1}


def test_a_default_that_was_not_sent_is_not_added() -> None:
    assert amend({}, {"a": []}, {"a": []}) == {}


def test_unknown_fields_move_with_their_item() -> None:
    received = [{"id": 1, "x": "one"}, {"id": 2, "x": "two"}]
    before = [{"id": 1}, {"id": 2}]
    assert amend(received, before, [{"id": 2}, {"id": 1}]) == received[::-1]
    assert amend(received, before, [{"id": 2}]) == received[1:]


def test_a_changed_item_keeps_its_unknown_fields() -> None:
    received = [{"id": 1, "x": "one"}, {"id": 2}]
    assert amend(received, [{"id": 1}, {"id": 2}], [{"id": 3}, {"id": 2}]) == [
        {"id": 3, "x": "one"},
        {"id": 2},
    ]


def test_a_list_with_items_left_out_is_kept_or_replaced_as_a_whole() -> None:
    assert amend([1, "bent"], [1], [1]) == [1, "bent"]
    assert amend([1, "bent"], [1], [2]) == [2]


def test_true_is_not_one() -> None:
    assert amend({"a": 1}, {"a": 1}, {"a": True})["a"] is True
