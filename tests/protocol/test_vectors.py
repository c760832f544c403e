"""The golden vectors, made by running acpjs: protocol 0.4.0 and core 0.5.0."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quarterdeck.protocol import (
    ERROR_CODES,
    HOST_EVENT_TYPES,
    HOST_RPC_METHODS,
    SESSION_EVENT_TYPES,
    decode_event,
    encode_event,
    initial_state,
    normalize_session_update,
    reduce,
    to_json,
    truncate_utf8_tail,
)
from tests.protocol.support import VECTORS, vectors

REDUCE = vectors("reduce")
OWN = vectors("events")  # acpjs does not have these; `web/tests/reduce.test.ts` reads them too
NORMALIZE = vectors("normalize")
OUR_TYPES = {
    "approval-mismatch",
    "foreground",
    "message-update",
    "plan-removed",
    "plan-update",
    "terminal-update",
    "tool-call-content-chunk",
}
TRUNCATE = json.loads((VECTORS / "config" / "truncate-utf8-tail.json").read_text())["cases"]
CONSTANTS = json.loads((VECTORS / "config" / "constants.json").read_text())["protocol-0.7.0"]


def test_every_vector_was_copied() -> None:
    assert (len(REDUCE), len(NORMALIZE), len(TRUNCATE)) == (117, 36, 18)


@pytest.mark.parametrize("vector", REDUCE.values(), ids=REDUCE)
def test_folding_the_events_gives_the_state_of_acpjs(vector: dict[str, Any]) -> None:
    _check_fold(vector)


@pytest.mark.parametrize("vector", OWN.values(), ids=OWN)
def test_folding_our_own_events_gives_the_state_of_the_vector(vector: dict[str, Any]) -> None:
    _check_fold(vector)


def _check_fold(vector: dict[str, Any]) -> None:
    state = initial_state(vector["sessionId"])
    unchanged = []
    for index, raw in enumerate(vector["events"]):
        following = reduce(state, decode_event(raw))
        if following is state:
            unchanged.append(index)
        state = following
    assert to_json(state) == vector["expect"]["state"]
    assert unchanged == vector["expect"]["sameRefEventIndexes"]


@pytest.mark.parametrize("vector", [*REDUCE.values(), *OWN.values()], ids=[*REDUCE, *OWN])
def test_events_of_acpjs_are_decoded_and_encoded_without_loss(
    vector: dict[str, Any],
) -> None:
    for raw in vector["events"]:
        event = decode_event(json.dumps(raw).encode())
        assert to_json(event) == raw
        assert json.loads(encode_event(event)) == raw


@pytest.mark.parametrize("vector", NORMALIZE.values(), ids=NORMALIZE)
def test_updates_are_normalized_as_by_acpjs(vector: dict[str, Any]) -> None:
    assert to_json(normalize_session_update(vector["update"])) == vector["expect"]


def test_payload_keys_keep_the_order_of_the_update() -> None:
    vector = NORMALIZE["key-order"]
    payload = normalize_session_update(vector["update"]).payload
    assert list(payload) == list(vector["expect"]["payload"])


@pytest.mark.parametrize("case", TRUNCATE)
def test_text_is_cut_as_by_acpjs(case: dict[str, Any]) -> None:
    assert truncate_utf8_tail(case["input"], case["limit"]) == (case["output"], case["truncated"])


def test_constants_are_those_of_acpjs() -> None:
    assert sorted(ERROR_CODES.values()) == sorted(CONSTANTS["errorCodes"].values())
    assert sorted(HOST_RPC_METHODS.values()) == sorted(CONSTANTS["hostMethods"].values())


def test_every_event_type_occurs_in_a_vector() -> None:
    seen = {raw["type"] for vector in REDUCE.values() for raw in vector["events"]}
    ours = {raw["type"] for vector in OWN.values() for raw in vector["events"]}
    assert seen | OUR_TYPES == SESSION_EVENT_TYPES | HOST_EVENT_TYPES
    assert ours - seen >= OUR_TYPES
