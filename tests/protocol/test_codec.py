from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.errors import EventInvalid
from quarterdeck.protocol import (
    HOST_EVENT_TYPES,
    SESSION_EVENT_TYPES,
    AgentMessageChunkEvent,
    AgentUpdatedEvent,
    decode_event,
    encode_event,
    initial_state,
    make_host_event,
    make_session_event,
    reduce,
    to_json,
)
from quarterdeck.protocol.events import UnknownEvent
from tests.protocol.support import any_json, objects, texts

CHUNK = {"sessionId": "s", "seq": 1, "ts": 2, "type": "agent-message-chunk", "payload": {}}

# What any version may write: known types and new ones, with keys that we have never heard of.
envelopes = st.builds(
    lambda more, envelope: {**more, **envelope},
    st.dictionaries(texts | st.sampled_from(["extensions", "agentId", "unknown"]), any_json),
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(sorted(SESSION_EVENT_TYPES | HOST_EVENT_TYPES)) | texts,
            "sessionId": texts,
            "seq": st.integers(),
            "ts": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
            "payload": objects,
        }
    ),
)


@given(envelopes)
def test_decoding_and_encoding_any_event_gives_the_same_json(raw: dict[str, Any]) -> None:
    assert json.loads(encode_event(decode_event(json.dumps(raw)))) == raw


@given(envelopes)
def test_an_event_is_the_same_from_a_dict_as_from_its_text(raw: dict[str, Any]) -> None:
    assert (
        decode_event(raw) == decode_event(json.dumps(raw)) == decode_event(json.dumps(raw).encode())
    )


@given(envelopes)
def test_to_json_of_any_event_is_its_json(raw: dict[str, Any]) -> None:
    assert to_json(decode_event(raw)) == raw


def test_unknown_nested_fields_survive() -> None:
    payload = {"content": {"type": "text", "text": "a", "new": {"deep": [None, {"x": 1.0}]}}}
    raw = {**CHUNK, "payload": payload}
    assert json.loads(encode_event(decode_event(json.dumps(raw)))) == raw


@pytest.mark.parametrize(
    "more",
    [
        {"extensions": None},
        {"extensions": {}},
        {"extensions": [1]},
        {"agentId": "agent-1"},
        {"unknown": {"a": 1}},
        {"unknown": None},
        {"raw": 1, "traceparent": "00-1"},
    ],
)
def test_unusual_envelope_keys_survive(more: dict[str, Any]) -> None:
    raw = {**CHUNK, **more}
    assert json.loads(encode_event(decode_event(json.dumps(raw)))) == raw


def test_a_number_too_long_for_a_machine_word_survives() -> None:
    raw = {**CHUNK, "payload": {"big": 10**40}}
    assert json.loads(encode_event(decode_event(json.dumps(raw)))) == raw


def test_half_a_surrogate_pair_survives() -> None:
    raw = {**CHUNK, "payload": {"content": {"type": "text", "text": "a\ud83d"}}}
    assert json.loads(encode_event(decode_event(json.dumps(raw)))) == raw


def test_an_event_has_the_attributes_of_its_envelope() -> None:
    event = decode_event({**CHUNK, "extensions": {"_meta": {"a": 1}}})
    assert isinstance(event, AgentMessageChunkEvent)
    assert (event.type, event.session_id, event.agent_id) == ("agent-message-chunk", "s", None)
    assert (event.seq, event.ts) == (1, 2)
    assert event.payload == CHUNK["payload"]
    assert event.extensions == {"_meta": {"a": 1}}


def test_a_host_event_has_an_agent_and_no_session() -> None:
    event = decode_event(
        {"agentId": "agent-1", "seq": 1, "ts": 2.5, "type": "agent-updated", "payload": {}}
    )
    assert isinstance(event, AgentUpdatedEvent)
    assert (event.agent_id, event.session_id, event.ts) == ("agent-1", None, 2.5)
    assert event.extensions is None


def test_an_event_type_from_a_newer_version_is_kept_and_not_reduced() -> None:
    raw = {"type": "mood-change", "sessionId": "s", "seq": 3, "mood": "fine", "payload": [1]}
    event = decode_event(json.dumps(raw))
    assert isinstance(event, UnknownEvent)
    assert (event.type, event.session_id, event.seq) == ("mood-change", "s", 3)
    assert (event.payload, event.extensions, event.agent_id) == ([1], None, None)
    state = initial_state("s")
    assert reduce(state, event) is state


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "not JSON"),
        (b'{"type":', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"null", "a JSON null, not an object"),
        (b"[1]", "a JSON array, not an object"),
        (b'"plan"', "a JSON string, not an object"),
        (b"true", "a JSON boolean, not an object"),
        (b"7", "a JSON number, not an object"),
        (b"{}", "no type"),
        (b'{"type":7,"seq":1}', "no type"),
        (b'{"type":"new"}', "this new has no seq"),
        (b'{"type":"plan","seq":true}', "this plan has no seq"),
        (b'{"type":"plan","seq":1.5}', "this plan has no seq"),
        (b'{"type":"plan","seq":1}', "this plan has no ts"),
        (b'{"type":"plan","seq":1,"ts":"now"}', "this plan has no ts"),
        (b'{"type":"plan","seq":1,"ts":true}', "this plan has no ts"),
        (b'{"type":"plan","seq":1,"ts":1}', "this plan has no payload"),
        (b'{"type":"plan","seq":1,"ts":1,"payload":[]}', "this plan has no payload"),
        (b'{"type":"plan","seq":1,"ts":1,"payload":{}}', "this plan names no session"),
        (b'{"type":"plan","seq":1,"ts":1,"payload":{},"sessionId":1}', "names no session"),
    ],
)
def test_what_is_not_an_event_is_refused_with_the_reason(text: bytes, reason: str) -> None:
    with pytest.raises(EventInvalid, match=reason):
        decode_event(text)


def test_a_whole_number_written_with_a_point_is_a_seq() -> None:
    assert decode_event(json.dumps({**CHUNK, "seq": 1.0})).seq == 1


def test_events_can_be_built_from_the_name_of_their_type() -> None:
    session = make_session_event("plan", "s", seq=1, ts=2, payload={"entries": []})
    host = make_host_event("diagnostic", "agent-1", seq=1, ts=2, payload={"level": "info"})
    assert to_json(session) == {
        "type": "plan",
        "sessionId": "s",
        "seq": 1,
        "ts": 2,
        "payload": {"entries": []},
    }
    assert to_json(host)["agentId"] == "agent-1"


def test_an_event_built_with_empty_extensions_has_none() -> None:
    event = make_session_event("plan", "s", seq=1, ts=2, payload={}, extensions={})
    assert event.extensions is None
    assert b"extensions" not in encode_event(event)


def test_an_event_of_an_unknown_type_cannot_be_built() -> None:
    with pytest.raises(EventInvalid, match="a session has no event type 'diagnostic'"):
        make_session_event("diagnostic", "s", seq=1, ts=2, payload={})
    with pytest.raises(EventInvalid, match="a host has no event type 'plan'"):
        make_host_event("plan", seq=1, ts=2, payload={})


def test_an_event_is_one_line() -> None:
    event = decode_event({**CHUNK, "payload": {"a": "x\ny"}})
    assert b"\n" not in encode_event(event)


def test_an_event_cannot_be_changed() -> None:
    event = decode_event(CHUNK)
    with pytest.raises(AttributeError):
        event.seq = 2  # type: ignore[misc]  # what the test is about


def test_to_json_shares_nothing_with_the_event() -> None:
    event = decode_event({**CHUNK, "payload": {"list": [1]}})
    to_json(event)["payload"]["list"].append(2)
    assert event.payload == {"list": [1]}


@pytest.mark.parametrize("ts", ["1e400", "NaN", "-Infinity"])
def test_an_event_whose_time_is_no_number_is_refused_before_it_is_written(ts: str) -> None:
    with pytest.raises(EventInvalid, match="no ts"):
        decode_event(f'{{"sessionId":"s","seq":1,"ts":{ts},"type":"plan","payload":{{}}}}')


def test_an_event_with_unknown_keys_can_be_copied_and_pickled() -> None:
    event = decode_event(
        {"sessionId": "s", "seq": 1, "ts": 0, "type": "plan", "payload": {}, "new": [1]}
    )
    for copied in (copy.deepcopy(event), pickle.loads(pickle.dumps(event))):
        assert copied == event
        assert encode_event(copied) == encode_event(event)


def test_an_event_is_decoded_from_any_kind_of_bytes() -> None:
    text = b'{"sessionId":"s","seq":1,"ts":0,"type":"plan","payload":{}}'
    assert decode_event(bytearray(text)) == decode_event(memoryview(text)) == decode_event(text)
