"""The names that @acpjs/protocol 0.4.0 and our own contract promise, in Python's spelling."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import get_args

import pytest

import quarterdeck.protocol as protocol
from quarterdeck.protocol import events

NAMES_OF_ACPJS = """
AcpEvent AcpSessionEvent AcpHostEvent
UserMessageChunkEvent AgentMessageChunkEvent AgentThoughtChunkEvent ToolCallEvent
ToolCallUpdateEvent PlanEvent AvailableCommandsUpdateEvent CurrentModeUpdateEvent
SessionConfigInitEvent ConfigOptionsUpdateEvent SessionInfoUpdateEvent UsageUpdateEvent
PromptFinishedEvent SessionStatusChangeEvent SessionResetEvent PermissionRequestCreatedEvent
PermissionRequestResolvedEvent TerminalOutputEvent UnrecognizedUpdateEvent AgentUpdatedEvent
AgentRemovedEvent SessionUpdatedEvent PermissionUpdatedEvent InstallProgressEvent DiagnosticEvent
SessionConfigInitPayload PromptFinishedPayload SessionStatusChangePayload SessionResetPayload
PermissionRequestCreatedPayload PermissionRequestResolvedPayload HostPermissionSnapshot
TerminalOutputPayload InstallProgressPayload DiagnosticPayload UnrecognizedUpdatePayload
SessionStatus AgentStatus AgentExitReason InstallStage DiagnosticLevel AcpEventExtensions
AcpHostProjectionEvent AcpHostTelemetryEvent
SessionState SessionMessage MessageKind ToolCallState TerminalOutputState SessionUsageState
SessionConnectionState PendingPermissionRequest ResolvedPermissionRequest PromptErrorState
RpcRequest RpcResponse InboundRequest InboundResponse ErrorObject AcpErrorCode
Transport TransportHandlers TransportLifecycleEvent TransportSubscribeParams
TransportConnectionStatus TransportUnsubscribe EnvelopeEndpoint
AcpRpcMethod AgentDefinition SessionConfigValue CreateOrLoadSessionParams ResumeSessionParams
CreateSessionResult AgentCapabilitiesWire AgentSnapshotWire SessionSnapshotWire
AgentCapabilities AuthMethod ContentBlock ListSessionsResponse McpServer RequestPermissionOutcome
SessionConfigOption
"""
OUR_OWN_NAMES = """
Event decode_event encode_event SessionState initial_state reduce to_json normalize_session_update
truncate_utf8_tail ERROR_CODES is_error_code HOST_RPC_METHODS RpcRequest RpcResponse InboundRequest
InboundResponse ErrorObject Transport EnvelopeEndpoint SESSION_EVENT_TYPES HOST_EVENT_TYPES
"""


@pytest.mark.parametrize("name", sorted({*NAMES_OF_ACPJS.split(), *OUR_OWN_NAMES.split()}))
def test_a_promised_name_exists(name: str) -> None:
    assert name in protocol.__all__
    assert hasattr(protocol, name)


def test_everything_exported_exists() -> None:
    assert [name for name in protocol.__all__ if not hasattr(protocol, name)] == []


def test_there_are_twenty_six_session_events_and_six_host_events() -> None:
    assert (len(protocol.SESSION_EVENT_TYPES), len(protocol.HOST_EVENT_TYPES)) == (26, 6)


def test_the_class_of_an_event_is_named_after_its_type() -> None:
    for event_class in get_args(protocol.AcpEvent):
        words = re.findall("[A-Z][a-z]+", event_class.__name__)
        assert "-".join(words).lower() == f"{event_class.type}-event"
        assert event_class.__struct_config__.tag == event_class.type


def test_no_event_class_is_missing_from_the_closed_union() -> None:
    families = (events.SessionEvent, events.HostEvent)
    leaves = {leaf for family in families for leaf in family.__subclasses__()}
    assert leaves == set(get_args(protocol.AcpEvent))
    assert {*families, events.UnknownEvent} == set(events.Event.__subclasses__())


def test_the_eight_error_codes_are_spelled_as_acpjs_spells_them() -> None:
    assert dict(protocol.ERROR_CODES) == {
        "config_invalid": "acpjs/config-invalid",
        "prompt_in_flight": "acpjs/prompt-in-flight",
        "already_answered": "acpjs/already-answered",
        "session_closed": "acpjs/session-closed",
        "agent_exited": "acpjs/agent-exited",
        "capability_unsupported": "acpjs/capability-unsupported",
        "agent_error": "acpjs/agent-error",
        "transport_closed": "acpjs/transport-closed",
    }


def test_the_fifteen_methods_of_acpjs_and_two_more_are_spelled_as_on_the_wire() -> None:
    assert dict(protocol.HOST_RPC_METHODS) == {
        "spawn_agent": "agents/spawn",
        "list_agents": "agents/list",
        "dispose_agent": "agents/dispose",
        "create_session": "sessions/create",
        "load_session": "sessions/load",
        "list_sessions": "sessions/list",
        "resume_session": "sessions/resume",
        "delete_session": "sessions/delete",
        "prompt": "sessions/prompt",
        "cancel": "sessions/cancel",
        "close_session": "sessions/close",
        "set_mode": "sessions/setMode",
        "set_config_option": "sessions/setConfigOption",
        "get_all_sessions": "sessions/getAll",
        "restore_sessions": "sessions/restore",
        "authenticate": "agents/authenticate",
        "logout": "agents/logout",
    }


@pytest.mark.parametrize("constants", [protocol.ERROR_CODES, protocol.HOST_RPC_METHODS])
def test_constants_cannot_be_changed(constants: MappingProxyType[str, str]) -> None:
    with pytest.raises(TypeError):
        constants["config_invalid"] = "x"  # type: ignore[index]  # what the test is about


@pytest.mark.parametrize("value", ["acpjs/invalid-params", "config-invalid", "", None, 7, []])
def test_other_values_are_no_error_codes(value: object) -> None:
    assert not protocol.is_error_code(value)


def test_a_code_and_a_name_are_both_in_the_tables() -> None:
    assert "acpjs/config-invalid" in protocol.ERROR_CODES
    assert "config_invalid" in protocol.ERROR_CODES
    assert "acpjs/invalid-params" not in protocol.ERROR_CODES
    assert "sessions/create" in protocol.HOST_RPC_METHODS


def test_projections_and_telemetry_divide_the_host_events() -> None:
    projections = {each.__name__ for each in get_args(protocol.AcpHostProjectionEvent)}
    telemetry = {each.__name__ for each in get_args(protocol.AcpHostTelemetryEvent)}
    assert projections == {
        "AgentUpdatedEvent",
        "AgentRemovedEvent",
        "SessionUpdatedEvent",
        "PermissionUpdatedEvent",
    }
    assert telemetry == {"InstallProgressEvent", "DiagnosticEvent"}


def methods(contract: type) -> set[str]:
    return {name for name in vars(contract) if not name.startswith("_")}


def test_a_transport_connects_requests_subscribes_responds_and_closes() -> None:
    expected = {"connect", "request", "subscribe", "respond_inbound", "close"}
    assert methods(protocol.Transport) == expected


def test_an_endpoint_has_no_connection_and_so_no_life_cycle() -> None:
    expected = {"request", "subscribe", "on_inbound_request", "respond_inbound"}
    assert methods(protocol.EnvelopeEndpoint) == expected


def test_only_the_callback_for_subscription_errors_may_be_missing() -> None:
    handlers = protocol.TransportHandlers(
        on_inbound_request=lambda _request: None, on_lifecycle=lambda _event: None
    )
    assert handlers.on_subscription_error is None
    with pytest.raises(TypeError):
        protocol.TransportHandlers(on_lifecycle=lambda _event: None)  # type: ignore[call-arg]
