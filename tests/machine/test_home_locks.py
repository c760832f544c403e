"""The locks of a data directory: one per role, each with its own sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarterdeck.errors import StartRefused
from quarterdeck.machine.home_locks import BOTH, Role, lock_owner, locked_home

OTHER: dict[Role, Role] = {"hub": "runner", "runner": "hub"}


@pytest.mark.parametrize("role", BOTH)
@pytest.mark.parametrize("announced", [False, True])
def test_a_role_is_taken_once_and_leaves_the_other_one_free(
    tmp_path: Path, role: Role, announced: bool
) -> None:
    with locked_home(tmp_path, role):
        if announced:
            (tmp_path / f"{role}.json").write_text("{}")
        expected = f"a {role} is already running.*quarterdeck down" if announced else "another comm"
        for wanted in ((role,), BOTH):
            with pytest.raises(StartRefused, match=expected), locked_home(tmp_path, *wanted):
                raise AssertionError
        assert lock_owner(tmp_path, OTHER[role]) is None  # also after both were refused
        with locked_home(tmp_path, OTHER[role]):
            assert None not in [lock_owner(tmp_path, each) for each in BOTH]
    assert [lock_owner(tmp_path, each) for each in BOTH] == [None, None]
