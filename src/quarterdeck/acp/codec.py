"""ACP objects from JSON and back.

msgspec decodes in C, about a microsecond for a `session/update`; what it rejects is read again by
`lenient`. Three things that a type cannot hold survive all the same:

    an unknown variant      `Unknown` instead of it, encoded back exactly
    an unknown enum value   enums are plain strings
    an unknown field        `Received`: the value with the message it was read from

msgspec drops unknown fields, and storing them in every object would cost every message. So `decode`
returns the value alone and costs nothing extra, while `receive` also keeps a reference to the
message, which the caller has anyway: `encode()` returns it unchanged, `to_dict()` everything in it,
and `amended(value)` everything in it with the changes made to the value. Use `receive` wherever a
message is stored, forwarded or sent back.

`amend` applies those changes to plain JSON data. What `received` has beyond `before` is what the
types could not hold; it stays wherever its surroundings still exist.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from quarterdeck.acp.lenient import dec_hook, lenient, name_of
from quarterdeck.acp.model import AcpObject, Unknown
from quarterdeck.errors import JsonInvalid, SchemaMismatch
from quarterdeck.jsontext import decode_json, encode_json

if TYPE_CHECKING:
    from typing_extensions import TypeForm


def amend(received: Any, before: Any, after: Any) -> Any:
    """Return `received` with the differences between `before` and `after` applied."""
    match received, before, after:
        case dict(), dict(), dict():
            return _amend_object(received, before, after)
        case list(), list(), list() if len(received) == len(before):
            return _amend_list(received, before, after)
        case _:
            return received if _same(before, after) else after


def _amend_object(
    received: dict[str, Any], before: dict[str, Any], after: dict[str, Any]
) -> dict[str, Any]:
    amended = {key: value for key, value in received.items() if key in after or key not in before}
    for key, value in after.items():
        if key in before and key in received:
            amended[key] = amend(received[key], before[key], value)
        elif key not in before or not _same(before[key], value):
            amended[key] = value
    return amended


def _amend_list(received: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    """Match items, which may have moved: unchanged ones by value, changed ones by position."""
    old = [encode_json(item) for item in before]
    new = [encode_json(item) for item in after]
    amended = []
    for index, item in enumerate(after):
        if index < len(old) and old[index] == new[index]:
            amended.append(received[index])
        elif new[index] in old:
            amended.append(received[old.index(new[index])])
        elif index < len(old) and old[index] not in new:
            amended.append(amend(received[index], before[index], item))
        else:
            amended.append(item)
    return amended


def _same(one: Any, other: Any) -> bool:
    # Not `==`: to Python, true is 1 and 1 is 1.0.
    return encode_json(one) == encode_json(other)


T = TypeVar("T")

_TEXT = (bytes, str, bytearray, memoryview, msgspec.Raw)


def decode(expected: TypeForm[T], data: Any) -> T:
    """Read `data`, a JSON text or plain JSON data, as `expected`: `decode(schema.Plan, b"{...}")`.

    Null is read as an object without fields if `expected` requires none: agents answer methods that
    return nothing with either.

    Raises:
        JsonInvalid: if `data` is a text that is not JSON, or nested too deeply.
        SchemaMismatch: if it is JSON but not `expected`, even when read leniently.
    """
    if isinstance(data, _TEXT):
        try:
            value: T = _decoder(expected)(data)  # type: ignore[arg-type]  # hashable at run time
            return value
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            data = decode_json(bytes(data) if not isinstance(data, str) else data)
    converted: T = _decode_slowly(expected, data)
    return converted


def encode(value: Any) -> bytes:
    """Write `value` on one line of JSON; fields that are UNSET are left out.

    Raises:
        JsonInvalid: if it is nested too deeply.
        TypeError: if it holds something that JSON cannot represent.
    """
    if isinstance(value, Received):
        return value.encode()
    try:
        return _encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair: only an escape can carry it
        return encode_json(msgspec.to_builtins(value, enc_hook=enc_hook))
    except RecursionError as error:
        raise JsonInvalid("nested too deeply") from error


def to_dict(value: Any) -> Any:
    """Return `value` as the plain data that `json.loads` would give."""
    return decode_json(encode(value))


def receive(expected: TypeForm[T], data: Any) -> Received[T]:
    """Read `data` as `decode` does and keep it, with the fields that `expected` does not know.

    Raises:
        JsonInvalid: as `decode`.
        SchemaMismatch: as `decode`.
    """
    return Received(decode(expected, data), data)


class Received(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A value and the message, JSON text or plain data, that it was read from."""

    value: T
    message: Any

    def encode(self) -> bytes:
        """Return the message, byte for byte if it was bytes."""
        match self.message:
            case str(text):
                return _utf8(text)
            case bytes() | bytearray() | memoryview() | msgspec.Raw():
                return bytes(self.message)
            case plain:
                return encode_json(plain)

    def to_dict(self) -> Any:
        """Return everything that was received as plain data."""
        return decode_json(self.encode())

    def amended(self, value: T) -> Any:
        """Return everything that was received, changed where `value` differs from `self.value`."""
        return amend(self.to_dict(), to_dict(self.value), to_dict(value))


def enc_hook(value: Any) -> Any:
    if isinstance(value, Unknown):
        return value.data
    raise TypeError(f"{type(value).__name__} is not part of an ACP object")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return encode_json(decode_json(text))


_encode = msgspec.json.Encoder(enc_hook=enc_hook).encode


@cache
def _decoder(expected: Any) -> Callable[[Any], Any]:
    # Building one costs up to a millisecond; a process needs few of the types.
    return msgspec.json.Decoder(expected, dec_hook=dec_hook).decode


def _decode_slowly(expected: Any, plain: Any) -> Any:
    is_object = isinstance(expected, type) and issubclass(expected, AcpObject)
    try:
        return lenient({} if plain is None and is_object else plain, expected)
    except msgspec.ValidationError as error:
        raise SchemaMismatch(name_of(expected), str(error)) from error
