r"""JSON as programs really write it: msgspec for speed, the standard library for what it rejects.

Two habits of real programs are outside strict JSON, and must not lose a message: JavaScript agents
cut text between the halves of a surrogate pair (`"\ud83d"`), and Python agents write `NaN`. The
first is kept unchanged, the second is read as null. Both take the slow path.

`describe_mismatch` says in a sentence why a value is not of the expected type. msgspec reports
``Expected `str`, got `int` - at `$.agent` ``. Users see the name of the field as they wrote it,
what it must be, and for a missing or unknown field the fields that exist.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import msgspec

from quarterdeck.errors import JsonInvalid

_decode = msgspec.json.Decoder().decode
UNWRITABLE = (TypeError, ValueError, NotImplementedError, JsonInvalid)
"""What encoding a foreign value as JSON may raise."""
NESTED_TOO_DEEPLY = "nested too deeply"
_BOM = b"\xef\xbb\xbf"


def decode_json(text: bytes | str) -> Any:
    """Decode one JSON value.

    Raises:
        JsonInvalid: if `text` is not JSON, not UTF-8, or nested too deeply to read.
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _decode_slowly(text)


def encode_json(value: Any) -> bytes:
    """Encode one JSON value on one line.

    Raises:
        TypeError: if `value` holds something that JSON cannot represent.
        JsonInvalid: if it is nested too deeply, or contains itself.
    """
    try:
        try:
            return msgspec.json.encode(value)
        except UnicodeEncodeError:  # a lone surrogate: only an escape can carry it
            return _encode_slowly(msgspec.to_builtins(value, enc_hook=_unwrapped))
    except RecursionError as error:
        raise JsonInvalid(NESTED_TOO_DEEPLY) from error


def _unwrapped(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):  # JSON already
        return decode_json(bytes(value))
    raise TypeError(f"objects of type {type(value).__name__} are not JSON")


def _encode_slowly(plain: Any) -> bytes:
    try:
        return json.dumps(plain, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:  # NaN or an infinity: null, as msgspec writes them
        return json.dumps(_without_nan(plain), separators=(",", ":")).encode()


def _without_nan(plain: Any) -> Any:
    match plain:
        case float() if not math.isfinite(plain):
            return None
        case list():
            return [_without_nan(each) for each in plain]
        case dict():
            return {key: _without_nan(each) for key, each in plain.items()}
        case _:
            return plain


def _decode_slowly(text: bytes | str) -> Any:
    try:
        if isinstance(text, bytes):
            text = text.removeprefix(_BOM).decode()
        return json.loads(text, parse_constant=_null)
    except RecursionError as error:
        raise JsonInvalid(NESTED_TOO_DEEPLY) from error
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are subclasses
        raise JsonInvalid(str(error)) from error


def _null(_name: str) -> None:
    """Read NaN and the infinities as null, as JavaScript's JSON.stringify writes them."""


# ---- values of the wrong type --------------------------------------------------------------------

_NAMES: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_LIMITS: Final = (
    (re.compile(r" matching regex '(.*)'"), r" that matches \1"),
    (re.compile(r" of length == (\d+)"), r" of length \1"),
    (re.compile(r" of length >= (\d+)"), r" of length \1 or more"),
    (re.compile(r" of length <= (\d+)"), r" of length \1 or less"),
    (re.compile(r" >= (\S+)"), r", \1 or more"),
    (re.compile(r" <= (\S+)"), r", \1 or less"),
    (re.compile(r" > (\S+)"), r" above \1"),
    (re.compile(r" < (\S+)"), r" below \1"),
)


def describe_mismatch(error: msgspec.DecodeError, wanted: type) -> str:
    """Say which field of `wanted` is wrong, and what to send instead."""
    reason, _, where = str(error).partition(" - at ")
    path = re.sub(r"^.*\$\.?|`", "", where)
    if found := re.fullmatch(r"Object missing required field `(.+)`", reason):
        return f'"{found[1]}" is missing' + (f" in {_named(path)}" if path else _fields(wanted))
    if found := re.fullmatch(r"Object contains unknown field `(.+)`", reason):
        more = f" in {_named(path)}" if path else _hint(found[1], wanted)
        return f'unknown field "{found[1]}"{more}'
    subject = _named(path) if path else "it"
    if found := re.fullmatch(r"Invalid (?:enum )?value (.+)", reason):
        choices = ", ".join(map(str, _choices(wanted, path)))
        return f"{subject} cannot be {found[1]}{f'; use one of {choices}' if choices else ''}"
    if not reason.startswith("Expected "):
        return reason[:1].lower() + reason[1:]
    return f"{subject} must be {_type_words(reason.removeprefix('Expected '))}"


def _named(path: str) -> str:
    """Return a field as the client knows it; msgspec writes the items of lists as `name[0]`."""
    item = re.fullmatch(r"(.+)\[(\d+|\.\.\.)\]", path)
    if item is None:
        return f'"{path}"'
    number = f"item {int(item[2]) + 1}" if item[2].isdecimal() else "an item"
    return f'{number} of "{item[1]}"'


def _type_words(text: str) -> str:
    words = re.sub(r"`([^`]*)`", lambda each: _types(each[1]), text)
    for pattern, replacement in _LIMITS:
        words = pattern.sub(replacement, words)
    return re.sub(r"(\d)\.0\b", r"\1", words).replace(", got ", ", not ")


def _types(names: str) -> str:
    return " or ".join(_NAMES.get(name, name) for name in names.split(" | "))


def _fields(wanted: type) -> str:
    """List the fields of a call after a missing one."""
    fields = msgspec.structs.fields(wanted)
    optional = ", ".join(each.encode_name for each in fields if not each.required)
    required = ", ".join(each.encode_name for each in fields if each.required)
    return f"; required: {required}" + (f"; optional: {optional}" if optional else "")


def _hint(name: str, wanted: type) -> str:
    known = [each.encode_name for each in msgspec.structs.fields(wanted)]
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f'; did you mean "{near[0]}"?'
    return f"; known fields: {', '.join(known)}" if known else "; this call takes none"


def _choices(wanted: type, path: str) -> tuple[Any, ...]:
    names = {each.encode_name: each.name for each in msgspec.structs.fields(wanted)}
    name = names.get(re.sub(r"\[.*", "", path))
    return () if name is None else tuple(_literals(get_type_hints(wanted)[name]))


def _literals(hint: Any) -> Iterator[Any]:
    if get_origin(hint) is Literal:
        yield from get_args(hint)
        return
    for each in get_args(hint):
        yield from _literals(each)
