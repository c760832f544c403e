"""Immutable collections whose next version costs the same however long they are.

`reduce` must be pure (every older state stays valid) and flat (event 100,000 costs what event 10
costs). Copying a list or a dict per event is pure but not flat; these are both:

`Blocks` only grows. A version is a pair (shared list, length): it sees the first `length`
elements and nothing else, so the newest version may append to the shared list in place.

`Entries`, which `KeyedSequence` and `OrderedMap` share, are values by position and positions by
key. A value can change at any position, so values live in a trie of tuples, `WIDTH` children per
node: a change copies one node per level and shares all others. The newest value and the incomplete
leaf before it are kept outside the trie, because nearly every event touches them. Keys are never
removed and never move, so they are appended to one list and one set shared by all versions. The
set shows that a key is new, the usual case; the dict of positions is brought up to date only when
an older entry is looked up, and a version ignores positions at or beyond its own length.
(A dict alone answers both, but takes more memory: adding the 100,000th key then cost 1.4 times
what adding the 1,000th costs, and now 1.25.)

Branches. A version that is no longer the newest cannot append in place: another's element is
already there. It copies what it can see, once, and continues with its own list (cost: its length).

Threads. Nothing shared is ever overwritten, only appended to, so a version can be read while a
newer one is made. If two threads extend one version at the same time, each checks after its append:
the one that does not find its own element at its position has lost the race, and branches. Two that
bring the dict of positions up to date at the same time write the same values.

Memory. An old version keeps alive what newer ones appended to the list it shares with them.

Why our own. Adding a key and changing it, at 1,000 and at 100,000 keys, in µs per step: this 0.6
and 0.7; `immutables.Map` 0.5 and 1.0, without an order; `pyrsistent.pmap` 2.4 and 12, without an
order. Only `pyrsistent.pvector` is faster (0.2), but it has no keys and is fast only where its
optional C extension could be built.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from itertools import chain, islice
from typing import Any, Final, Generic, Self, SupportsIndex, TypeVar, overload

from msgspec import Struct, StructMeta
from typing_extensions import override

T = TypeVar("T")
V = TypeVar("V")

_BITS: Final = 5
WIDTH: Final = 1 << _BITS
"""Children per node. Measured: from 16 to 64 it makes no difference, 8 and 128 are slower."""
_MASK: Final = WIDTH - 1

_Node = tuple[Any, ...]


class _AbstractStructMeta(StructMeta, ABCMeta):
    """For structs, which are frozen and made in 0.1 µs, that are also `Sequence` or `Mapping`."""


class Blocks(Struct, Sequence[T], metaclass=_AbstractStructMeta, frozen=True, gc=False, eq=False):
    """A sequence that only grows; `Blocks(x)` has one element, `Blocks.of(…)` any number."""

    _first: T
    _items: list[T] | None = None
    """Shared by the versions; None until there is a second element, because most have only one."""
    _length: int = 1

    @classmethod
    def of(cls, items: Iterable[T]) -> Blocks[T]:
        """Return a sequence of these elements, of which there may be none."""
        own = list(items)
        return cls(own[0] if own else None, own, len(own))  # type: ignore[arg-type]  # never read

    def appended(self, item: T) -> Blocks[T]:
        """Return this sequence with `item` at its end."""
        items, length = self._items, self._length
        if items is not None and len(items) == length:
            items.append(item)
            if items[length] is item:
                return Blocks(self._first, items, length + 1)
        return Blocks(self._first, [*self, item], length + 1)

    @override
    def __len__(self) -> int:
        return self._length

    @override
    def __iter__(self) -> Iterator[T]:
        return islice(self._items or (self._first,), self._length)

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    @override
    def __getitem__(self, index: SupportsIndex | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        position = _position(index, self._length)
        return self._items[position] if self._items else self._first

    @override
    def __eq__(self, other: object) -> bool:
        return _equal(self, other)

    __hash__ = None  # type: ignore[assignment]  # it holds JSON objects, which have no hash

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"


class Entries(Struct, Generic[V], frozen=True, gc=False, eq=False):
    """Values in the order in which their keys came; found by key, then by position."""

    _keys: list[Any]
    _known: set[Any]
    _positions: dict[Any, int]
    _length: int = 0
    _root: _Node = ()
    _height: int = 1
    _tail: tuple[V, ...] = ()
    newest: V | None = None
    """The value added last, or None while there is none."""

    @classmethod
    def empty(cls) -> Self:
        return cls([], set(), {})

    def position(self, key: object) -> int:
        """Return where the value of `key` is, or -1."""
        if key not in self._known:
            return -1
        positions, keys = self._positions, self._keys
        # The first wins: behind it, the loser of a race may have left an equal key.
        for position in range(len(positions), len(keys)):
            positions.setdefault(keys[position], position)
        found = positions[key]
        return found if found < self._length else -1

    def at(self, position: int) -> V:
        """Return the value at `position`, which must exist."""
        from_newest = position - self._length + 1
        if from_newest == 0:
            return self.newest  # type: ignore[return-value]  # None only while nothing is in here
        tail = self._tail
        if from_newest + len(tail) >= 0:
            return tail[from_newest]
        node = self._root
        for shift in range(self._height * _BITS, 0, -_BITS):
            node = node[position >> shift & _MASK]
        value: V = node[position & _MASK]
        return value

    def appended(self, key: object, value: V) -> Self:
        """Return these entries with a new one; `key` must not be among them."""
        length, root, height, tail = self._length, self._root, self._height, self._tail
        keys, known, positions = self._claim(length, key)
        if length:
            # None only while length is 0. Unpacking instead of `+` takes 0.1 µs more.
            tail = tail + (self.newest,)  # type: ignore[operator]  # noqa: RUF005
        if len(tail) == WIDTH:
            root, height = _with_leaf(root, height, (length >> _BITS) - 1, tail)
            tail = ()
        return self.__class__(keys, known, positions, length + 1, root, height, tail, value)

    def replaced(self, position: int, value: V) -> Self:
        """Return these entries with another value at `position`, which must exist."""
        length, root, tail, newest = self._length, self._root, self._tail, self.newest
        from_newest = position - length + 1
        if from_newest == 0:
            newest = value
        elif from_newest + len(tail) >= 0:
            tail = _with_element(tail, from_newest, value)
        else:
            root = _with_value(root, self._height * _BITS, position, value)
        return self.__class__(
            self._keys, self._known, self._positions, length, root, self._height, tail, newest
        )

    def values_in_order(self) -> Iterator[V]:
        """Go through the values from the oldest to the newest."""
        leaves = [self._root]
        for _ in range(self._height):
            leaves = [child for node in leaves for child in node]
        newest: _Node = (self.newest,) if self._length else ()
        return chain(chain.from_iterable(leaves), self._tail, newest)

    def _claim(self, length: int, key: object) -> tuple[list[Any], set[Any], dict[Any, int]]:
        """Take position `length` for `key`, in place if no other version has done so."""
        keys = self._keys
        if len(keys) == length:
            keys.append(key)
            if keys[length] is key:
                self._known.add(key)
                return keys, self._known, self._positions
        keys = [*keys[:length], key]
        return keys, set(keys), {}

    def __len__(self) -> int:
        return self._length


class KeyedSequence(
    Entries[V], Sequence[V], metaclass=_AbstractStructMeta, frozen=True, gc=False, eq=False
):
    """A sequence whose elements can also be found by a key."""

    @override
    def __iter__(self) -> Iterator[V]:
        return self.values_in_order()

    @overload
    def __getitem__(self, index: SupportsIndex) -> V: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[V, ...]: ...
    @override
    def __getitem__(self, index: SupportsIndex | slice) -> V | tuple[V, ...]:
        if isinstance(index, slice):
            return tuple(map(self.at, range(*index.indices(self._length))))
        return self.at(_position(index, self._length))

    @override
    def __eq__(self, other: object) -> bool:
        return _equal(self, other)

    __hash__ = None  # type: ignore[assignment]  # it holds JSON objects, which have no hash

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)!r})"


class OrderedMap(
    Entries[V], Mapping[str, V], metaclass=_AbstractStructMeta, frozen=True, gc=False, eq=False
):
    """A mapping in the order in which its keys came."""

    @override
    def __getitem__(self, key: str) -> V:
        position = self.position(key)
        if position < 0:
            raise KeyError(key)
        return self.at(position)

    def with_entry(self, key: str, value: V) -> Self:
        """Return this mapping with `value` for `key`; a known key keeps its place."""
        position = self.position(key)
        return self.appended(key, value) if position < 0 else self.replaced(position, value)

    @override
    def __iter__(self) -> Iterator[str]:
        return islice(self._keys, self._length)

    @override
    def items(self) -> ItemsView[str, V]:
        # The inherited view would look every key up; this walks the values once.
        return dict(zip(self, self.values_in_order(), strict=True)).items()

    @override
    def values(self) -> ValuesView[V]:
        return dict(zip(self, self.values_in_order(), strict=True)).values()

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]  # it holds JSON objects, which have no hash

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self.items())!r})"


def _with_leaf(root: _Node, height: int, number: int, leaf: _Node) -> tuple[_Node, int]:
    """Put leaf `number` (0 is the first) behind the others; the trie grows at its root."""
    if number == 1 << height * _BITS:
        root, height = (root,), height + 1
    return _with_path(root, (height - 1) * _BITS, number, leaf), height


def _with_path(node: _Node, shift: int, number: int, leaf: _Node) -> _Node:
    if shift == 0:
        return (*node, leaf)
    at = number >> shift & _MASK
    child = node[at] if at < len(node) else ()
    return (*node[:at], _with_path(child, shift - _BITS, number, leaf))


def _with_value(node: _Node, shift: int, position: int, value: object) -> _Node:
    at = position >> shift & _MASK
    child = _with_value(node[at], shift - _BITS, position, value) if shift else value
    return _with_element(node, at, child)


def _with_element(node: _Node, at: int, element: object) -> _Node:
    elements = list(node)  # twice as fast as putting slices together
    elements[at] = element
    return tuple(elements)


def _position(index: SupportsIndex, length: int) -> int:
    position = index.__index__()
    if position < 0:
        position += length
    if not 0 <= position < length:
        raise IndexError(index)
    return position


def _equal(ours: Sequence[Any], other: object) -> bool:
    """Compare with any sequence a test or a caller would write down: ours, a list, a tuple."""
    return (
        isinstance(other, Blocks | KeyedSequence | list | tuple)
        and len(ours) == len(other)
        and list(ours) == list(other)
    )
