from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import astuple
from typing_extensions import override

from quarterdeck.protocol.persistent import (
    WIDTH,
    Blocks,
    KeyedSequence,
    OrderedMap,
)

# (which version to go on from, which key to set): enough keys to leave the tail and to branch.
steps = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 3 * WIDTH)), max_size=150)


@given(steps)
@settings(max_examples=60)
def test_every_version_of_a_mapping_is_what_a_copied_dict_would_be(
    steps: list[tuple[int, int]],
) -> None:
    versions: list[tuple[OrderedMap[int], dict[str, int]]] = [(OrderedMap.empty(), {})]
    for number, (choice, key) in enumerate(steps):
        # Mostly the newest version, as `reduce` does it; sometimes any older one.
        ours, model = versions[-1 if choice % 4 else choice % len(versions)]
        name = f"k{key}"
        versions.append((ours.with_entry(name, number), {**model, name: number}))
    for ours, model in versions:
        assert list(ours.items()) == list(model.items())
        assert (list(ours), list(ours.values())) == (list(model), list(model.values()))
        assert all(ours[key] == value for key, value in model.items())
        assert len(ours) == len(model)
        assert "k-other" not in ours


@given(st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), max_size=120))
@settings(max_examples=60)
def test_every_version_of_a_sequence_is_what_a_copied_list_would_be(
    steps: list[tuple[int, bool]],
) -> None:
    versions: list[tuple[KeyedSequence[int], list[int]]] = [(KeyedSequence.empty(), [])]
    for number, (choice, is_append) in enumerate(steps):
        ours, model = versions[-1 if choice % 4 else choice % len(versions)]
        if is_append or not model:
            versions.append((ours.appended(number, number), [*model, number]))
        else:
            at = choice % len(model)
            versions.append((ours.replaced(at, number), [*model[:at], number, *model[at + 1 :]]))
    for ours, model in versions:
        assert list(ours) == model
        assert ours == model
        assert [ours[at] for at in range(len(model))] == model


@given(st.lists(st.integers(0, 10**6), max_size=60))
def test_every_version_of_blocks_is_what_a_copied_list_would_be(choices: list[int]) -> None:
    versions: list[tuple[Blocks[int], list[int]]] = [(Blocks(-1), [-1])]
    for number, choice in enumerate(choices):
        ours, model = versions[-1 if choice % 4 else choice % len(versions)]
        versions.append((ours.appended(number), [*model, number]))
    for ours, model in versions:
        assert list(ours) == model
        assert ours == model
        assert (ours[0], ours[-1], ours[1:]) == (model[0], model[-1], tuple(model[1:]))


def entries(count: int) -> OrderedMap[int]:
    ours: OrderedMap[int] = OrderedMap.empty()
    for number in range(count):
        ours = ours.appended(f"k{number}", number)
    return ours


@pytest.mark.parametrize("count", [0, 1, WIDTH, WIDTH + 1, WIDTH**2 + 1, WIDTH**3 + WIDTH + 2])
def test_entries_keep_their_positions_while_the_trie_grows(count: int) -> None:
    ours = entries(count)
    assert list(ours.values()) == list(range(count))
    for position in range(0, count, 37):
        assert ours.at(position) == position
        assert ours.replaced(position, -1).at(position) == -1


def test_a_key_of_a_newer_version_is_not_in_an_older_one() -> None:
    old = entries(3)
    new = old.with_entry("new", 3)
    assert "new" in new
    assert "new" not in old
    with pytest.raises(KeyError):
        old["new"]


def nodes(node: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield node
    for child in node:
        if isinstance(child, tuple):
            yield from nodes(child)


def copied(old: OrderedMap[int], new: OrderedMap[int]) -> int:
    """Count the elements of the containers of `new` that `old` does not have."""
    *old_index, _, old_root, _, old_tail, _ = astuple(old)
    *index, length, root, _, tail, _ = astuple(new)
    shared = {id(node) for node in (*nodes(old_root), old_tail)}
    own = [node for node in (*nodes(root), tail) if id(node) not in shared]
    is_shared = all(ours is theirs for ours, theirs in zip(index, old_index, strict=True))
    return (0 if is_shared else length) + sum(map(len, own))


def most_copied(count: int, step: Callable[[OrderedMap[int], int], OrderedMap[int]]) -> int:
    ours, most = entries(count), 0
    for number in range(2 * WIDTH):
        following = step(ours, number)
        most = max(most, copied(ours, following))
        ours = following
    return most


@pytest.mark.parametrize("count", [100, 1_000, 10_000, 40_000])
def test_adding_an_entry_copies_no_more_than_a_few_nodes_however_many_there_are(
    count: int,
) -> None:
    assert most_copied(count, lambda ours, n: ours.appended(f"new{n}", n)) <= 4 * WIDTH


@pytest.mark.parametrize("count", [100, 1_000, 10_000, 40_000])
def test_changing_any_entry_copies_no_more_than_a_few_nodes_however_many_there_are(
    count: int,
) -> None:
    def change(ours: OrderedMap[int], number: int) -> OrderedMap[int]:
        return ours.replaced(number * 7919 % count, number)

    assert most_copied(count, change) <= 4 * WIDTH


def test_changing_the_newest_entry_copies_nothing() -> None:
    ours = entries(10_000)
    assert copied(ours, ours.replaced(9_999, -1)) == 0


def test_appending_to_the_newest_blocks_copies_nothing() -> None:
    blocks = Blocks(0).appended(1)
    _, items, _ = astuple(blocks)
    _, items_of_longer, _ = astuple(blocks.appended(2))
    assert items_of_longer is items


def test_extending_an_old_version_costs_the_newest_nothing() -> None:
    old = entries(40)
    old_blocks = Blocks(0).appended(1)
    new_blocks = old_blocks.appended(2)
    new = old.appended("new", 1)
    old.appended("other", 2)
    old_blocks.appended(3)
    assert copied(new, new.appended("next", 3)) <= WIDTH
    assert astuple(new_blocks.appended(4))[1] is astuple(new_blocks)[1]


class Overtaken(list[Any]):
    """A list to which another thread appends between our look at its length and our append."""

    @override
    def append(self, item: Any) -> None:
        super().append("of another thread")
        super().append(item)


def test_a_lost_race_for_the_next_block_ends_in_a_branch() -> None:
    items = Overtaken([0, 1])
    assert Blocks(0, items, 2).appended("mine") == [0, 1, "mine"]
    assert items == [0, 1, "of another thread", "mine"]


def test_a_lost_race_for_the_next_key_ends_in_a_branch() -> None:
    ours = OrderedMap[int](Overtaken(), set(), {}).appended("mine", 1)
    assert dict(ours.items()) == {"mine": 1}
    assert ours["mine"] == 1
    assert "of another thread" not in ours


class OvertakenByTheSame(list[Any]):
    """A list to which another thread appends an equal key right behind ours."""

    @override
    def append(self, item: Any) -> None:
        super().append(item)
        super().append("".join(item))


def test_an_equal_key_that_the_loser_of_a_race_left_behind_does_not_move_ours() -> None:
    ours = OrderedMap[int](OvertakenByTheSame(), set(), {}).appended("mine", 1)
    assert ours["mine"] == 1
    assert dict(ours.with_entry("next", 2).items()) == {"mine": 1, "next": 2}


def test_extending_one_version_in_many_threads_keeps_every_result_apart() -> None:
    threads = 8
    barrier = Barrier(threads)

    def extend(number: int, old: OrderedMap[int], blocks: Blocks[int]) -> Iterator[object]:
        barrier.wait(timeout=5)
        yield dict(old.appended(f"mine{number}", number).appended("shared", number).items())
        yield list(blocks.appended(number).appended(-number))

    with ThreadPoolExecutor(threads) as pool:
        for _ in range(50):
            old, blocks = entries(40), Blocks(0).appended(1)
            base = dict(old.items())
            runs = pool.map(lambda n, o=old, b=blocks: list(extend(n, o, b)), range(threads))
            for number, (mapping, items) in enumerate(runs):
                assert mapping == {**base, f"mine{number}": number, "shared": number}
                assert items == [0, 1, number, -number]


def test_collections_look_like_what_they_are() -> None:
    sequence = KeyedSequence[str].empty().appended("a", "x")
    assert isinstance(Blocks(1), Sequence)
    assert isinstance(sequence, Sequence)
    assert isinstance(entries(1), Mapping)
    assert repr(Blocks(1).appended(2)) == "Blocks([1, 2])"
    assert repr(sequence) == "KeyedSequence(['x'])"
    assert repr(entries(2)) == "OrderedMap({'k0': 0, 'k1': 1})"


def test_collections_compare_by_what_is_in_them() -> None:
    assert Blocks(1).appended(2) == Blocks(1).appended(2) == [1, 2]
    assert Blocks(1).appended(2) == (1, 2)
    assert Blocks(1) != Blocks(2)
    assert Blocks(1) != 1
    assert entries(2) == entries(2) == {"k0": 0, "k1": 1}
    assert entries(2) != entries(3)
    assert entries(0) != []


@pytest.mark.parametrize("collection", [Blocks(1), KeyedSequence.empty(), entries(1)])
def test_collections_have_no_hash(collection: object) -> None:
    with pytest.raises(TypeError):
        hash(collection)


@pytest.mark.parametrize("collection", [Blocks(1), KeyedSequence.empty(), entries(1)])
def test_collections_cannot_be_changed(collection: Any) -> None:
    for name in collection.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(collection, name, 7)
    with pytest.raises(TypeError):
        collection[0] = 7


@pytest.mark.parametrize("position", [3, -4])
def test_a_position_outside_is_an_index_error(position: int) -> None:
    blocks = Blocks(0).appended(1).appended(2)
    sequence = KeyedSequence[int].empty().appended(0, 0).appended(1, 1).appended(2, 2)
    with pytest.raises(IndexError):
        blocks[position]
    with pytest.raises(IndexError):
        sequence[position]
    assert (blocks[-1], sequence[-1], sequence[0:2]) == (2, 2, (0, 1))
