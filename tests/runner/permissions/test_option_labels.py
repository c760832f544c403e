"""Two answers that differ have different words."""

from __future__ import annotations

from hypothesis import given, strategies as st

from quarterdeck.runner.permissions.card import option_views

KINDS = st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always", "other"])


def _option(option_id: str, name: str, kind: str = "allow_once") -> dict[str, str]:
    return {"optionId": option_id, "name": name, "kind": kind}


def test_one_option_of_a_kind_is_named_by_what_it_does() -> None:
    views = option_views([_option("a", "Deny"), _option("r", "Fine", "reject_once")])
    assert [view.label for view in views] == ["Allow once", "Reject"]


def test_options_of_one_kind_have_the_names_of_the_agent_as_well() -> None:
    views = option_views([_option("a", "Yes"), _option("b", "Yes, and \u202elower")])
    assert [view.label for view in views] == [
        "Allow once: Yes",
        "Allow once: Yes, and \\u{202e}lower",
    ]


def test_options_with_the_same_name_are_numbered() -> None:
    views = option_views([_option("a", "Yes"), _option("b", "Yes")])
    assert [view.label for view in views] == ["Allow once: Yes (1)", "Allow once: Yes (2)"]


@given(
    st.lists(st.tuples(st.sampled_from(["", "Yes", "No", "Yes (1)", "x" * 200]), KINDS), max_size=6)
)
def test_no_two_labels_are_equal(options: list[tuple[str, str]]) -> None:
    views = option_views([_option(str(n), *each) for n, each in enumerate(options)])
    labels = [view.label for view in views]
    assert len(set(labels)) == len(labels)
