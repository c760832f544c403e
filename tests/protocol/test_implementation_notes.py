"""Every sentence of the implementation-defined notes of @acpjs/protocol 0.4.0, in their order."""

from __future__ import annotations

import re
from typing import Any

import pytest

from quarterdeck.errors import AcpError
from quarterdeck.protocol import (
    ERROR_CODES,
    HOST_EVENT_TYPES,
    SESSION_EVENT_TYPES,
    AcpErrorCode,
    AgentCapabilitiesWire,
    AgentSnapshotWire,
    DiagnosticEvent,
    ErrorObject,
    InboundRequest,
    initial_state,
    is_error_code,
    normalize_session_update,
    reduce,
    to_json,
)
from tests.protocol.support import MODELLED_UPDATES, chunk, event, fold, words

MIB = 1024 * 1024


def test_event_type_names_use_kebab_case() -> None:
    names = SESSION_EVENT_TYPES | HOST_EVENT_TYPES
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", name) for name in names)


def test_the_canonical_name_unrecognized_update_is_preserved_verbatim() -> None:
    assert "unrecognized-update" in SESSION_EVENT_TYPES
    assert normalize_session_update({"sessionUpdate": "new"}).type == "unrecognized-update"


@pytest.mark.parametrize("name", MODELLED_UPDATES)
def test_top_level_meta_moves_into_the_extensions(name: str) -> None:
    normalized = normalize_session_update({"sessionUpdate": name, "_meta": {"trace": 1}})
    assert normalized.payload == {}
    assert normalized.extensions == {"_meta": {"trace": 1}}


def test_nested_structures_keep_their_native_meta() -> None:
    entry = {"content": "a", "priority": "high", "status": "pending", "_meta": {"n": 1}}
    block = {"type": "text", "text": "a", "_meta": {"n": 2}}
    plan = normalize_session_update({"sessionUpdate": "plan", "entries": [entry]})
    message = normalize_session_update({"sessionUpdate": "agent_message_chunk", "content": block})
    assert plan.payload == {"entries": [entry]}
    assert message.payload == {"content": block}


def test_absent_values_of_a_state_are_explicit_nulls() -> None:
    assert to_json(initial_state("s")) == {
        "sessionId": "s",
        "messages": [],
        "toolCalls": {},
        "plan": None,
        "availableCommands": [],
        "modes": None,
        "configOptions": [],
        "info": {"title": None, "updatedAt": None},
        "usage": None,
        "lastTurnUsage": None,
        "lastStopReason": None,
        "lastPromptError": None,
        "connection": {"status": "creating", "resumed": False},
        "pendingPermissionRequests": [],
        "terminals": {},
        "resolvedPermissionRequests": [],
    }


def test_absent_keys_of_events_are_omitted() -> None:
    assert to_json(event("diagnostic")) == {"type": "diagnostic", "seq": 1, "ts": 1, "payload": {}}


def test_states_from_equal_events_are_deeply_equal() -> None:
    events = [chunk("a", messageId="m"), event("tool-call", toolCallId="c", title="t")]
    assert fold(events) == fold(events)
    assert to_json(fold(events)) == to_json(fold(events))


def test_a_chunk_with_an_id_joins_the_message_of_its_kind_and_id_across_others() -> None:
    state = fold(
        [
            chunk("a", messageId="1"),
            chunk("t", kind="thought", messageId="1"),
            chunk("u", kind="user"),
            chunk("b", messageId="1"),
            chunk("v", kind="thought", messageId="1"),
        ]
    )
    assert words(state) == ["a|b", "t|v", "u"]


def test_a_chunk_without_an_id_joins_only_the_message_right_before_it() -> None:
    state = fold([chunk("a"), chunk("b"), chunk("t", kind="thought"), chunk("c")])
    assert words(state) == ["a|b", "t", "c"]


def test_a_chunk_without_an_id_does_not_join_a_message_that_has_one() -> None:
    assert words(fold([chunk("a", messageId="1"), chunk("b")])) == ["a", "b"]


def test_a_chunk_with_an_id_does_not_join_a_message_that_has_none() -> None:
    assert words(fold([chunk("a"), chunk("b", messageId="1")])) == ["a", "b"]


CALL: dict[str, Any] = {
    "toolCallId": "c",
    "title": "t",
    "kind": "edit",
    "status": "pending",
    "content": [{"type": "diff"}, {"type": "terminal"}],
    "locations": [{"path": "/a"}, {"path": "/b"}],
}


@pytest.mark.parametrize("key", ["title", "kind", "status", "content", "locations"])
@pytest.mark.parametrize("is_null", [True, False])
def test_null_and_absent_keys_of_a_tool_call_update_change_nothing(key: str, is_null: bool) -> None:
    changes: dict[str, Any] = {key: None} if is_null else {}
    before = fold([event("tool-call", **CALL)])
    after = reduce(before, event("tool-call-update", toolCallId="c", **changes))
    assert after == before


def test_content_and_locations_of_a_tool_call_are_replaced_wholesale() -> None:
    update = event("tool-call-update", toolCallId="c", content=[{"type": "content"}], locations=[])
    call = fold([event("tool-call", **CALL), update]).tool_calls["c"]
    assert (call.content, call.locations) == (({"type": "content"},), ())


def test_an_update_to_an_unknown_tool_call_leaves_the_state_unchanged() -> None:
    state = fold([event("tool-call", **CALL)])
    assert reduce(state, event("tool-call-update", toolCallId="other", title="x")) is state


def test_extensions_of_a_tool_call_pass_through_verbatim() -> None:
    extensions = {"_meta": {"subagent_session_info": {"id": "s2"}}, "vendor": [1]}
    state = fold([event("tool-call", extensions=extensions, **CALL)])
    assert to_json(state)["toolCalls"]["c"]["extensions"] == extensions


@pytest.mark.parametrize("key", ["title", "updatedAt"])
@pytest.mark.parametrize(
    ("payload", "expected"), [({}, "old"), ({"value": None}, None), ({"value": "new"}, "new")]
)
def test_an_absent_session_info_key_changes_nothing_null_clears_and_a_string_replaces(
    key: str, payload: dict[str, Any], expected: str | None
) -> None:
    changes = {key: payload["value"]} if payload else {}
    before = fold([event("session-info-update", title="old", updatedAt="old")])
    info = to_json(reduce(before, event("session-info-update", **changes)).info)
    assert info == {"title": "old", "updatedAt": "old", key: expected}


def test_prompt_finished_does_not_change_the_connection_status() -> None:
    before = fold([event("session-status-change", status="prompting")])
    assert reduce(before, event("prompt-finished", stopReason="end_turn")).connection == (
        before.connection
    )


def test_prompt_finished_without_usage_clears_the_usage_of_the_last_turn() -> None:
    usage = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    state = fold([event("prompt-finished", stopReason="end_turn", usage=usage)])
    assert state.last_turn_usage == usage
    assert reduce(state, event("prompt-finished", stopReason="end_turn")).last_turn_usage is None


@pytest.mark.parametrize("status", ["creating", "active", "prompting", "resuming"])
def test_resumed_is_sticky(status: str) -> None:
    resumed = event("session-status-change", status="active", resumed=True)
    state = fold([resumed, event("session-status-change", status=status)])
    assert state.connection.resumed is True


@pytest.mark.parametrize("status", ["disconnected", "closed", "deleted"])
def test_disconnected_closed_and_deleted_reset_resumed(status: str) -> None:
    resumed = event("session-status-change", status="active", resumed=True)
    state = fold([resumed, event("session-status-change", status=status)])
    assert state.connection.resumed is False


def test_agent_capabilities_are_an_explicit_projection_of_stable_fields() -> None:
    assert set(AgentCapabilitiesWire.__struct_encode_fields__) == {
        "loadSession",
        "mcpCapabilities",
        "nes",
        "positionEncoding",
        "promptCapabilities",
        "sessionCapabilities",
    }


def test_auth_methods_are_on_the_snapshot_verbatim() -> None:
    method: Any = {"id": "login", "name": "Log in", "description": None, "_meta": {"x": 1}}
    snapshot = AgentSnapshotWire(
        agent_id="agent-1", status="ready", restart_count=0, auth_methods=(method,)
    )
    assert to_json(snapshot) == {
        "agentId": "agent-1",
        "status": "ready",
        "restartCount": 0,
        "authMethods": [method],
    }


def test_a_mode_update_before_any_modes_synthesizes_them() -> None:
    state = to_json(fold([event("current-mode-update", currentModeId="plan")]))
    assert state["modes"] == {"currentModeId": "plan", "availableModes": []}


def test_the_agent_of_a_diagnostic_is_on_the_envelope_and_may_be_absent() -> None:
    payload: Any = {"level": "info", "code": "agent/spawn", "message": "m"}
    owned = DiagnosticEvent(agent_id="agent-1", seq=1, ts=1, payload=payload)
    unowned = DiagnosticEvent(seq=1, ts=1, payload=payload)
    assert to_json(owned)["agentId"] == "agent-1"
    assert "agentId" not in to_json(owned)["payload"]
    assert "agentId" not in to_json(unowned)


def test_the_session_of_a_diagnostic_is_in_its_payload() -> None:
    diagnostic = event("diagnostic", level="info", code="c", message="m", sessionId="s1")
    assert diagnostic.session_id is None
    assert to_json(diagnostic)["payload"]["sessionId"] == "s1"


@pytest.mark.parametrize("kind", ["permission", "something-new"])
def test_the_kind_of_an_inbound_request_is_an_open_string(kind: str) -> None:
    request = InboundRequest(id="1", kind=kind, payload=None)
    assert to_json(request) == {"id": "1", "kind": kind, "payload": None}


@pytest.mark.parametrize("kind", ["unrecognized-update", *sorted(HOST_EVENT_TYPES)])
def test_events_that_are_not_reduced_return_the_same_state_object(kind: str) -> None:
    state = fold([chunk("a")])
    assert reduce(state, event(kind)) is state


def test_two_error_codes_belong_to_the_contract() -> None:
    assert ERROR_CODES["agent_error"] == "acpjs/agent-error"
    assert ERROR_CODES["transport_closed"] == "acpjs/transport-closed"
    assert is_error_code("acpjs/agent-error")
    assert is_error_code("acpjs/transport-closed")


def test_an_agents_own_error_travels_in_the_data_of_an_agent_error() -> None:
    original = {"code": -32000, "message": "no", "data": None}
    error = ErrorObject(code=AcpErrorCode.AGENT_ERROR, message="no", data=original)
    assert to_json(error) == {
        "code": "acpjs/agent-error",
        "message": "no",
        "data": original,
        "retryable": False,
    }


def test_a_call_refused_after_the_transport_closed_may_be_retried() -> None:
    refused = AcpError(AcpErrorCode.TRANSPORT_CLOSED, "closed")
    assert not AcpError(AcpErrorCode.AGENT_ERROR, "no").retryable
    error = ErrorObject(code=refused.code, message=refused.message, retryable=refused.retryable)
    assert to_json(error) == {
        "code": "acpjs/transport-closed",
        "message": "closed",
        "retryable": True,
    }


def test_a_terminal_keeps_one_mebibyte_of_output() -> None:
    full = fold([event("terminal-output", terminalId="t", delta="a" * MIB)]).terminals["t"]
    assert (len(full.output), full.truncated) == (MIB, False)


def test_a_terminal_drops_its_oldest_output_and_marks_it() -> None:
    more = [event("terminal-output", terminalId="t", delta=text) for text in ("ab", "c" * MIB, "d")]
    terminal = fold(more).terminals["t"]
    assert terminal.output == "c" * (MIB - 1) + "d"
    assert terminal.truncated is True


def test_a_terminal_is_cut_between_characters() -> None:
    more = [event("terminal-output", terminalId="t", delta=text) for text in ("€", "a" * (MIB - 1))]
    assert fold(more).terminals["t"].output == "a" * (MIB - 1)


def test_the_hundred_newest_resolved_permissions_are_kept() -> None:
    resolved = [
        event("permission-request-resolved", requestId=f"p{number}", status="superseded")
        for number in range(150)
    ]
    kept = fold(resolved).resolved_permission_requests
    assert [one.request_id for one in kept] == [f"p{number}" for number in range(50, 150)]
