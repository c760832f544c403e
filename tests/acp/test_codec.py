import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import UNSET

from quarterdeck.acp import Unknown, decode, encode, receive, schema, to_dict
from quarterdeck.errors import JsonInvalid, SchemaMismatch

CHUNK = b'{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":%s}}'
HELLO = CHUNK % b'{"type":"text","text":"hello"}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def test_a_chunk_of_text_is_read() -> None:
    note = decode(schema.SessionNotification, HELLO)
    text = schema.TextContentBlock(text="hello")
    assert note.update == schema.AgentMessageChunk(content=text)
    assert encode(note) == HELLO


@pytest.mark.parametrize(
    "form", [bytes, bytes.decode, bytearray, memoryview, msgspec.Raw, json.loads]
)
def test_text_bytes_and_plain_data_are_read_alike(form: Any) -> None:
    assert decode(schema.SessionNotification, form(HELLO)) == decode(
        schema.SessionNotification, HELLO
    )


def test_absent_is_not_null() -> None:
    absent = decode(schema.SessionInfoUpdate, b"{}")
    null = decode(schema.SessionInfoUpdate, b'{"title":null}')
    assert absent.title is UNSET
    assert null.title is None
    assert to_dict(absent) == {"sessionUpdate": "session_info_update"}
    assert to_dict(null) == {"sessionUpdate": "session_info_update", "title": None}


def test_an_unknown_update_survives() -> None:
    update = {"sessionUpdate": "hologram", "depth": [1, {"x": None}]}
    note = decode(schema.SessionNotification, json.dumps({"sessionId": "s", "update": update}))
    assert note.update == Unknown("SessionUpdate", "hologram", update)
    assert to_dict(note) == {"sessionId": "s", "update": update}


def test_an_unknown_block_among_known_ones_survives_in_its_place() -> None:
    prompt = [
        {"type": "text", "text": "a"},
        {"type": "smell", "data": 1},
        {"type": "text", "text": "b"},
    ]
    request = decode(schema.PromptRequest, {"sessionId": "s", "prompt": prompt})
    assert [type(block) for block in request.prompt] == [
        schema.TextContentBlock,
        Unknown,
        schema.TextContentBlock,
    ]
    assert to_dict(request)["prompt"] == prompt


@given(tag=st.text(max_size=8).filter(lambda tag: tag not in ("select", "boolean")), extra=JSON)
def test_any_unknown_config_option_survives(tag: str, extra: Any) -> None:
    options = [{"type": tag, "id": "i", "name": "n", "extra": extra}]
    response = decode(schema.NewSessionResponse, {"sessionId": "s", "configOptions": options})
    assert to_dict(response)["configOptions"] == options


def test_an_unknown_enum_value_survives() -> None:
    update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "t",
        "status": "paused",
        "kind": "x",
    }
    note = decode(schema.SessionNotification, {"sessionId": "s", "update": update})
    assert to_dict(note)["update"] == update
    assert decode(schema.PromptResponse, b'{"stopReason":"bored"}').stop_reason == "bored"


STRANGE = (
    b'{ "sessionId": "s", "x": 1.0, "modes": {"currentModeId":"m","availableModes":[],"y":[]} }'
)


def test_unknown_fields_survive_in_what_was_received() -> None:
    received = receive(schema.NewSessionResponse, STRANGE)
    assert received.value.session_id == "s"
    assert received.encode() == STRANGE
    assert encode(received) == STRANGE
    assert received.to_dict() == json.loads(STRANGE)


def test_a_change_to_a_received_value_leaves_unknown_fields_alone() -> None:
    received = receive(schema.NewSessionResponse, STRANGE)
    modes = schema.SessionModeState(current_mode_id="other", available_modes=())
    changed = msgspec.structs.replace(received.value, modes=modes)
    assert received.amended(changed) == {
        "sessionId": "s",
        "x": 1.0,
        "modes": {"currentModeId": "other", "availableModes": [], "y": []},
    }


def test_plain_data_that_was_received_is_given_back() -> None:
    received = receive(schema.SetSessionModeResponse, {"ok": True})
    assert received.to_dict() == {"ok": True}
    assert received.encode() == b'{"ok":true}'
    assert receive(schema.SetSessionModeResponse, '{"ok": true}').encode() == b'{"ok": true}'


def test_models_of_old_agents_are_read() -> None:
    models = {
        "currentModelId": "small",
        "availableModels": [{"modelId": "small", "name": "Small", "description": None}],
    }
    response = decode(schema.NewSessionResponse, {"sessionId": "s", "models": models})
    assert isinstance(response.models, schema.SessionModelState)
    assert response.models.available_models[0].model_id == "small"
    assert to_dict(response)["models"] == models


def test_versions_of_old_agents_are_strings() -> None:
    assert decode(schema.InitializeResponse, b'{"protocolVersion":"0.9"}').protocol_version == "0.9"


def test_env_var_log_in_of_old_agents_is_read() -> None:
    method = {"type": "env_var", "id": "key", "name": "Key", "vars": [{"name": "API_KEY"}]}
    response = decode(schema.InitializeResponse, {"protocolVersion": 1, "authMethods": [method]})
    assert isinstance(response.auth_methods, tuple)
    assert isinstance(response.auth_methods[0], schema.EnvVarAuthMethod)
    assert to_dict(response)["authMethods"] == [method]


def test_half_of_a_surrogate_pair_is_kept() -> None:
    note = decode(schema.SessionNotification, CHUNK % rb'{"type":"text","text":"\ud83d"}')
    assert isinstance(note.update, schema.AgentMessageChunk)
    assert note.update.content == schema.TextContentBlock(text="\ud83d")
    assert encode(note) == CHUNK % rb'{"type":"text","text":"\ud83d"}'


def test_half_of_a_surrogate_pair_is_kept_next_to_an_unknown_block() -> None:
    blocks = [{"type": "text", "text": "\ud83d"}, {"type": "smell", "of": "\ude00"}]
    request = decode(schema.PromptRequest, json.dumps({"sessionId": "s", "prompt": blocks}))
    assert to_dict(request)["prompt"] == blocks


def test_half_of_a_surrogate_pair_in_a_received_text_is_kept() -> None:
    received = receive(schema.ToolCallLocation, '{"path":"\ud83d"}')
    assert received.encode() == rb'{"path":"\ud83d"}'


def test_an_integer_written_as_a_float_is_an_integer() -> None:
    update = decode(schema.UsageUpdate, b'{"used":1.0,"size":2e3}')
    assert (update.used, update.size) == (1, 2000)
    assert encode(update) == b'{"sessionUpdate":"usage_update","used":1,"size":2000}'
    with pytest.raises(SchemaMismatch):
        decode(schema.UsageUpdate, b'{"used":1.5,"size":2}')


def test_a_number_stays_the_number_it_was() -> None:
    for text in (b"1", b"1.0", b"0.1"):
        cost = decode(schema.Cost, b'{"amount":%s,"currency":"USD"}' % text)
        assert encode(cost) == b'{"amount":%s,"currency":"USD"}' % text


def test_not_a_number_counts_as_null() -> None:
    assert decode(schema.Annotations, b'{"priority":NaN}').priority is None
    with pytest.raises(SchemaMismatch):
        decode(schema.Cost, b'{"amount":NaN,"currency":"USD"}')


def test_integers_beyond_64_bits_are_kept() -> None:
    note = decode(schema.CancelRequestNotification, b'{"requestId":%d}' % 2**70)
    assert note.request_id == 2**70


@pytest.mark.parametrize("text", [b"", b"{", b"\xff{}", "{]", b'{"a":1}}', b'"\xff"'])
def test_what_is_not_json_is_refused_as_such(text: bytes | str) -> None:
    with pytest.raises(JsonInvalid):
        decode(schema.SessionNotification, text)


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep = b'{"_meta":{"a":%s1%s}}' % (b"[" * 100_000, b"]" * 100_000)
    with pytest.raises(JsonInvalid):
        decode(schema.AuthenticateResponse, deep)


def test_what_is_nested_too_deeply_is_not_written() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(JsonInvalid):
        encode(schema.AuthenticateResponse(meta={"a": deep}))


@pytest.mark.parametrize("text", [b"[]", b"1", b'"s"', b"true", b"null", b"{}", b'{"sessionId":1}'])
def test_json_that_does_not_fit_is_refused_with_what_was_expected(text: bytes) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        decode(schema.PromptRequest, text)
    assert caught.value.expected == "PromptRequest"
    assert "PromptRequest" in str(caught.value)


def test_what_is_not_acp_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        encode(schema.PromptRequest(session_id="s", prompt=(object(),)))  # type: ignore[arg-type]


def test_a_union_that_cannot_be_read_is_called_by_its_name() -> None:
    with pytest.raises(SchemaMismatch, match="not a valid CreateElicitationRequest"):
        decode(schema.CreateElicitationRequest, b'{"mode":"form"}')
    with pytest.raises(SchemaMismatch, match="not a valid SetSessionConfigOptionRequest"):
        decode(schema.SetSessionConfigOptionRequest, b'{"type":"boolean"}')
