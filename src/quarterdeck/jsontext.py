r"""JSON as programs really write it: msgspec for speed, the standard library for what it rejects.

Two habits of real programs are outside strict JSON, and must not lose a message: JavaScript agents
cut text between the halves of a surrogate pair (`"\ud83d"`), and Python agents write `NaN`. The
first is kept unchanged, the second is read as null. Both take the slow path.
"""

from __future__ import annotations

import json
import math
from typing import Any

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
