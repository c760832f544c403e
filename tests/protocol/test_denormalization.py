"""There and back: what an agent sent comes out of its event again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.protocol import (
    SESSION_EVENT_TYPES,
    denormalize_session_update,
    normalize_session_update,
)
from tests.protocol.support import MODELLED_UPDATES, VECTORS, any_json, event, objects, vectors


def _recorded() -> Iterator[Any]:
    for file in sorted((VECTORS / "traces").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            message = json.loads(line)["msg"]
            if isinstance(message, dict) and message.get("method") == "session/update":
                yield message["params"]["update"]


UPDATES = [each["update"] for each in vectors("normalize").values()] + list(_recorded())


def _is_whole(update: Any) -> bool:
    """Whether no null in it stands for an absent key: only those are left out."""
    if not isinstance(update, dict):
        return False
    kept = {"title", "updatedAt"} if update.get("sessionUpdate") == "session_info_update" else set()
    return all(value is not None or key in kept for key, value in update.items())


def test_every_update_of_vectors_and_recordings_comes_back_as_it_was() -> None:
    whole = [update for update in UPDATES if _is_whole(update)]
    assert len(whole) > 100
    for update in whole:
        assert denormalize_session_update(normalize_session_update(update)) == update


@given(st.sampled_from(sorted(MODELLED_UPDATES)), objects)
def test_a_normalized_update_is_restored_with_the_same_meaning(
    name: str, more: dict[str, Any]
) -> None:
    normalized = normalize_session_update({**more, "sessionUpdate": name})
    back = denormalize_session_update(normalized)
    assert back is not None
    assert normalize_session_update(back) == normalized


@given(st.dictionaries(st.text(), any_json.filter(lambda value: value is not None)))
def test_an_unknown_update_is_restored_verbatim(update: dict[str, Any]) -> None:
    name = update.get("sessionUpdate")
    if not isinstance(name, str) or name not in MODELLED_UPDATES:
        assert denormalize_session_update(normalize_session_update(update)) == update


@pytest.mark.parametrize(
    "name", sorted(SESSION_EVENT_TYPES - set(MODELLED_UPDATES.values()) - {"unrecognized-update"})
)
def test_what_is_no_update_has_none(name: str) -> None:
    assert denormalize_session_update(event(name)) is None
