"""Ids as segments of a path."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, strategies as st

from quarterdeck.http.headers import id_of_segment, path_segment

ANY = st.text(st.characters(exclude_categories=()))


@given(ANY)
@example("")
@example("..")
@example("a/b")
@example("~fg")
@example("\ud800")
def test_every_id_has_an_address_that_is_plain_and_stands_for_it(given_id: str) -> None:
    segment = path_segment(given_id)
    assert re.fullmatch(r"[A-Za-z0-9._:@~-]+", segment)
    assert segment not in (".", "..")
    assert id_of_segment(segment) == given_id


@given(ANY, ANY)
def test_two_ids_have_two_addresses(one: str, other: str) -> None:
    assert (path_segment(one) == path_segment(other)) == (one == other)


@pytest.mark.parametrize("usual", ["sess-1", "019a-7b", "ses_ABC.def", "agent:1@host"])
def test_an_ordinary_id_stays_as_it_is(usual: str) -> None:
    assert path_segment(usual) == usual


@pytest.mark.parametrize("wrong", ["~a", "~a=", "~../x", "~gA", "~ä"])
def test_what_only_looks_like_an_address_stands_for_no_id(wrong: str) -> None:
    assert id_of_segment(wrong) is None
