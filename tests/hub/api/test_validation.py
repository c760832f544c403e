"""Validation errors name the field and what to send, never a path of the validator."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from quarterdeck.hub.api.endpoint import Body, EmptyBody
from quarterdeck.jsontext import describe_mismatch


class Inner(Body, frozen=True, kw_only=True):
    command: str


class Wanted(Body, frozen=True, kw_only=True):
    code: Annotated[str, Meta(min_length=1, max_length=5)]
    scope: Literal["view", "admin"] | None = None
    device_seconds: Annotated[float, Meta(gt=0, le=10)] = 1
    hash: Annotated[str, Meta(pattern="^[0-9a-f]{4}$")] = "0000"
    limit: Annotated[int, Meta(ge=1)] = 1
    inner: tuple[Inner, ...] = ()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            {},
            '"code" is missing; required: code; optional: scope, deviceSeconds, hash, limit, inner',
        ),
        ({"code": "x", "skope": 1}, 'unknown field "skope"; did you mean "scope"?'),
        (
            {"code": "x", "zzz": 1},
            'unknown field "zzz"; known fields: code, scope, deviceSeconds, hash, limit, inner',
        ),
        ({"code": 5}, '"code" must be a string, not a whole number'),
        ({"code": ""}, '"code" must be a string of length 1 or more'),
        ({"code": "123456"}, '"code" must be a string of length 5 or less'),
        ({"code": "x", "scope": "root"}, "\"scope\" cannot be 'root'; use one of view, admin"),
        ({"code": "x", "deviceSeconds": 0}, '"deviceSeconds" must be a number above 0'),
        ({"code": "x", "deviceSeconds": 11}, '"deviceSeconds" must be a number, 10 or less'),
        ({"code": "x", "hash": "x"}, '"hash" must be a string that matches ^[0-9a-f]{4}$'),
        ({"code": "x", "limit": 0}, '"limit" must be a whole number, 1 or more'),
        ({"code": "x", "inner": [{}]}, '"command" is missing in item 1 of "inner"'),
        ({"code": "x", "inner": [1]}, 'item 1 of "inner" must be an object, not a whole number'),
        ([], "it must be an object, not a list"),
    ],
)
def test_an_error_names_the_field_and_what_to_send(body: Any, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(body, Wanted)
    assert describe_mismatch(refused.value, Wanted) == words


def test_a_call_without_fields_takes_none() -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert({"a": 1}, EmptyBody)
    assert describe_mismatch(refused.value, EmptyBody) == 'unknown field "a"; this call takes none'
