from __future__ import annotations

from quarterdeck.errors import LogGap
from quarterdeck.storage.contract import Group
from tests.storage.support import meta, run_of, stored


def test_a_group_continues_what_is_stored() -> None:
    group = Group({"s": 4}.__getitem__)
    assert group.offer(run_of("s", 5, 6)) is None
    assert group.offer(run_of("s", 7, 8)) is None
    assert group.last_seqs == {"s": 8}


def test_a_refused_batch_leaves_the_group_as_it_was() -> None:
    group = Group(lambda _: 0)
    assert group.offer([stored("s", 1)]) is None
    assert isinstance(group.offer([stored("s", 2), stored("t", 1), stored("s", 4)]), LogGap)
    assert group.records == [stored("s", 1)]
    assert group.last_seqs == {"s": 1}
    assert group.offer([stored("s", 2)]) is None


def test_a_meta_touches_its_session_and_takes_no_number() -> None:
    group = Group(lambda _: 3)
    assert group.offer([meta("s")]) is None
    assert group.last_seqs == {"s": 3}
