"""Ids of several machines in one hub: nothing collides, nothing can pass for another."""

from __future__ import annotations

from hypothesis import given, strategies as st

from quarterdeck.hub.fleet.identifiers import LOCAL, MachineIds, machine_of
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol import ELICITATION_UPDATED, HostPermissionSnapshot, SessionSnapshotWire
from quarterdeck.runner import SessionOverview

machine_ids = st.from_regex(r"m[a-z0-9]{8}", fullmatch=True)
machines = st.one_of(st.just(LOCAL), machine_ids)
plain_ids = st.text(max_size=12)
ids = st.one_of(
    plain_ids,
    st.builds(lambda machine, rest: f"{machine}~{rest}", machines, plain_ids),
    st.builds(lambda a, b, rest: f"{a}~{b}~{rest}", machines, machines, plain_ids),
)


@given(machines, ids)
def test_an_id_comes_back_to_its_machine(machine_id: str, inner: str) -> None:
    outer = MachineIds(machine_id).outer(inner)
    assert machine_of(outer) == (machine_id, inner)
    assert MachineIds(machine_id).inner(outer) == inner


@given(machines, ids, machines, ids)
def test_two_ids_of_the_hub_are_equal_only_if_they_mean_the_same(
    one: str, first: str, other: str, second: str
) -> None:
    is_same = MachineIds(one).outer(first) == MachineIds(other).outer(second)
    assert is_same == ((one, first) == (other, second))


@given(ids)
def test_ordinary_ids_of_the_hubs_own_machine_stay_as_they_are(inner: str) -> None:
    outer = MachineIds(LOCAL).outer(inner)
    assert (outer == inner) == (machine_of(inner) == (LOCAL, inner))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["sessionId", "requestId", "agentId", "text", "toolCall", "rawInput"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
types = st.sampled_from(
    ["tool-call", "agent-message-chunk", "unrecognized-update", "session-info-update"]
)


@given(machine_ids, ids, types, st.dictionaries(st.text(max_size=9), json_values, max_size=4))
def test_what_an_agent_says_is_never_changed(
    machine_id: str, session_id: str, kind: str, payload: dict[str, object]
) -> None:
    event = {"type": kind, "seq": 7, "ts": 1.5, "payload": payload, "sessionId": session_id}
    if payload.get("sessionUpdate") == ELICITATION_UPDATED:
        return
    shown = MachineIds(machine_id).session_event(session_id, encode_json(event))
    assert decode_json(shown) == {**event, "sessionId": f"{machine_id}~{session_id}"}


def test_requests_in_a_log_have_the_ids_that_the_inbox_has() -> None:
    ids = MachineIds("m12345678")
    call = {"toolCallId": "c", "rawInput": {"sessionId": "sess-1", "requestId": "perm-1"}}
    payload = {"requestId": "perm-1", "toolCall": call, "options": []}
    event = {
        "type": "permission-request-created",
        "seq": 3,
        "ts": 1,
        "payload": payload,
        "sessionId": "sess-1",
    }
    shown = decode_json(ids.session_event("sess-1", encode_json(event)))
    assert shown["payload"] == {**payload, "requestId": "m12345678~perm-1"}
    request = HostPermissionSnapshot(
        request_id="perm-1",
        session_id="sess-1",
        agent_id="a",
        status="pending",
        tool_call=call,  # type: ignore[arg-type]
        options=(),
    )
    translated = ids.translated(request)
    assert translated.request_id == shown["payload"]["requestId"]
    assert translated.session_id == shown["sessionId"]
    assert translated.tool_call == call


def test_lists_and_what_sessions_refer_to_are_translated() -> None:
    ids = MachineIds("m12345678")
    session = SessionOverview(
        session_id="b",
        status="active",
        agent_id="claude",
        cwd="/x",
        additional_directories=(),
        last_seq=3,
        parent_session_id="a",
        forked_from={"sessionId": "c", "seq": 2},
    )
    (shown,) = ids.translated([session])
    assert shown.session_id == "m12345678~b"
    assert shown.agent_id == "m12345678~claude"
    assert shown.parent_session_id == "m12345678~a"
    assert shown.forked_from == {"sessionId": "m12345678~c", "seq": 2}
    snapshot = SessionSnapshotWire(
        session_id="b", status="active", cwd="/x", additional_directories=()
    )
    here = MachineIds(LOCAL)
    assert here.translated([snapshot, snapshot])[0] is snapshot
