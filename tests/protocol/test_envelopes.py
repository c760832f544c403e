from __future__ import annotations

from typing import Any

import msgspec
import pytest

from quarterdeck.protocol import (
    ErrorObject,
    InboundRequest,
    InboundResponse,
    RpcRequest,
    RpcResponse,
    TransportLifecycleEvent,
    TransportSubscribeParams,
    to_json,
)

CLOSED = ErrorObject(code="acpjs/transport-closed", message="closed", retryable=True)
CLOSED_JSON = {"code": "acpjs/transport-closed", "message": "closed", "retryable": True}

ENVELOPES = [
    (
        RpcRequest(id="1", method="agents/list", params={}),
        {"id": "1", "method": "agents/list", "params": {}},
    ),
    (RpcResponse(id="1", ok=True, result=None), {"id": "1", "ok": True, "result": None}),
    (
        RpcResponse(id="1", ok=True, result=[{"a": 1}]),
        {"id": "1", "ok": True, "result": [{"a": 1}]},
    ),
    (
        RpcResponse(id="1", ok=False, error=CLOSED),
        {"id": "1", "ok": False, "error": CLOSED_JSON},
    ),
    (
        ErrorObject(code="acpjs/agent-error", message="no", data=None),
        {"code": "acpjs/agent-error", "message": "no", "data": None, "retryable": False},
    ),
    (
        InboundRequest(id="perm-1", kind="permission", payload={"a": None}),
        {"id": "perm-1", "kind": "permission", "payload": {"a": None}},
    ),
    (
        InboundResponse(id="perm-1", result={"outcome": "cancelled"}),
        {"id": "perm-1", "result": {"outcome": "cancelled"}},
    ),
    (TransportLifecycleEvent(status="connected"), {"status": "connected"}),
    (
        TransportLifecycleEvent(status="closed", error=CLOSED),
        {"status": "closed", "error": CLOSED_JSON},
    ),
    (TransportSubscribeParams(from_seq=0), {"fromSeq": 0}),
    (TransportSubscribeParams(session_id="s", from_seq=7), {"sessionId": "s", "fromSeq": 7}),
]


@pytest.mark.parametrize(("envelope", "expected"), ENVELOPES)
def test_an_envelope_is_written_with_its_absent_keys_left_out(
    envelope: msgspec.Struct, expected: dict[str, Any]
) -> None:
    assert to_json(envelope) == expected
    assert msgspec.json.decode(msgspec.json.encode(envelope)) == expected


@pytest.mark.parametrize(("envelope", "expected"), ENVELOPES)
def test_an_envelope_is_read_back_equal(envelope: msgspec.Struct, expected: dict[str, Any]) -> None:
    assert msgspec.convert(expected, type(envelope)) == envelope


@pytest.mark.parametrize(
    "response",
    [
        {"id": "1", "ok": True},
        {"id": "1", "ok": False},
        {"id": "1", "ok": False, "result": 1},
        {"id": "1", "ok": True, "result": 1, "error": CLOSED_JSON},
        {"id": "1", "ok": True, "error": CLOSED_JSON},
    ],
)
def test_a_response_that_contradicts_itself_is_refused(response: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match="a result if it is ok"):
        msgspec.convert(response, RpcResponse)
