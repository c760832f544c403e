"""Shapes of JSON, written down as data, and a strict check against them.

A shape is a type, a set of allowed values, `[shape]` for a list, a dict for an object (keys with a
`?` may be missing, no others are allowed), a tuple for one of several, or `ANY`.
"""

from __future__ import annotations

from typing import Any

ANY = object()
NUMBER = "a number"
Shape = Any


class Misfit(AssertionError):
    """Something is not as it was documented."""


def check(value: Any, shape: Shape, where: str) -> None:
    """Refuse a value that does not have a shape, and say where."""
    if shape is ANY:
        return
    if isinstance(shape, tuple):
        _check_one_of(value, shape, where)
    elif isinstance(shape, dict):
        _check_object(value, shape, where)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise Misfit(f"{where}: {value!r} is no list")
        for at, each in enumerate(value):
            check(each, shape[0], f"{where}[{at}]")
    elif not _fits(value, shape):
        raise Misfit(f"{where}: {value!r} is not {shape}")


def _fits(value: Any, shape: Shape) -> bool:
    if isinstance(shape, set | frozenset):
        return isinstance(value, str) and value in shape
    if shape is None:
        return value is None
    if shape == NUMBER:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if shape is int:
        return type(value) is int
    return isinstance(value, shape)


def _check_one_of(value: Any, shapes: tuple[Shape, ...], where: str) -> None:
    misfits = []
    for each in shapes:
        try:
            return check(value, each, where)
        except Misfit as misfit:
            misfits.append(str(misfit))
    raise Misfit(f"{where}: none of {len(shapes)} fits: {'; '.join(misfits)}")


def _check_object(value: Any, shape: dict[str, Shape], where: str) -> None:
    if not isinstance(value, dict):
        raise Misfit(f"{where}: {value!r} is no object")
    known = {name.removesuffix("?") for name in shape}
    if unknown := value.keys() - known:
        raise Misfit(f"{where}: unknown: {sorted(unknown)}")
    for name, each in shape.items():
        key = name.removesuffix("?")
        if key in value:
            check(value[key], each, f"{where}.{key}")
        elif key == name:
            raise Misfit(f"{where}: {key} is missing")
