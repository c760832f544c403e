"""JSON as peers really write it."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json

LONE = "\ud83d"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":[1,null,"\xc3\xa9"]}', {"a": [1, None, "é"]}),
        (b'"\\ud83d"', LONE),
        (b'["\\ud83d","\\ud83d\\ude00"]', [LONE, "😀"]),
        (b"[NaN,Infinity,-Infinity]", [None, None, None]),
        (b"\xef\xbb\xbf{}", {}),
        ('{"a":1}', {"a": 1}),
    ],
)
def test_what_peers_write_is_read(text: bytes | str, value: Any) -> None:
    assert decode_json(text) == value


@pytest.mark.parametrize("text", [b"", b"{", b"nope", b"{} {}", b'"\xff"', b"[" * 200_000])
def test_what_is_no_json_is_refused_with_a_reason(text: bytes) -> None:
    with pytest.raises(JsonInvalid, match="not JSON: "):
        decode_json(text)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("beside", ["plain", LONE])
def test_what_is_written_is_json_also_beside_half_a_surrogate_pair(
    number: float, beside: str
) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    text = encode_json({"n": [number], "t": beside})
    assert json.loads(text, parse_constant=refuse) == {"n": [None], "t": beside}


def test_a_cycle_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(JsonInvalid, match="nested too deeply"):
        encode_json(cycle)


ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Low halves are left out: behind a high one they would be read back as one character.
    | st.text(st.characters(codec="utf-8") | st.just(LONE)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(ANY_JSON)
def test_whatever_is_written_is_read_back(value: Any) -> None:
    assert decode_json(encode_json(value)) == value


def test_json_that_is_written_already_can_be_next_to_half_a_surrogate_pair() -> None:
    written = msgspec.Raw(b'{"a":1}')
    assert encode_json({"raw": written, "text": "\ud83d"}) == b'{"raw":{"a":1},"text":"\\ud83d"}'
