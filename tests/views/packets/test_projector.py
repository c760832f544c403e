"""Logs to packets: what an agent may send, and what it should not have sent."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from quarterdeck.protocol import Event, decode_event, make_host_event
from quarterdeck.views.packets import (
    PACKET_TYPES,
    ContentItem,
    PacketProjector,
    SessionUpdates,
    packet_type,
    parse_packet,
)
from quarterdeck.views.packets.builders import agent_thought_chunk
from quarterdeck.views.packets.parsed_packets import ContextUsage
from quarterdeck.views.packets.tool_calls import REMEMBERED, TERMINAL_BYTES, TERMINALS
from quarterdeck.views.packets.tools import as_count
from quarterdeck.views.packets.types import DiffItem
from tests.views.packets.logs import LOGS, STYLES
from tests.views.packets.support import (
    SESSION,
    TIME,
    Json,
    event,
    finished,
    project,
    status,
    text,
    types,
    update,
)


def call(call_id: str = "c", **fields: Any) -> Event:
    return update({"sessionUpdate": "tool_call", "toolCallId": call_id, "title": "bash", **fields})


def progress(call_id: str = "c", **fields: Any) -> Event:
    return update({"sessionUpdate": "tool_call_update", "toolCallId": call_id, **fields})


def message_chunk(words: str, **fields: Any) -> Event:
    return update({"sessionUpdate": "agent_message_chunk", "content": text(words), **fields})


def statuses(packets: list[Json]) -> list[str]:
    return [packet["status"] for packet in packets if "status" in packet]


def test_a_thought_is_a_chunk_of_its_own_type() -> None:
    for content in (text("hm"), "hm"):
        sent = {"sessionUpdate": "agent_thought_chunk", "content": content}
        assert project([update(sent)]) == [agent_thought_chunk("hm")]
    assert agent_thought_chunk("hm") == {
        "_meta": None,
        "content": {"_meta": None, "annotations": None, "text": "hm", "type": "text"},
        "sessionUpdate": "agent_thought_chunk",
        "type": "agent_thought_chunk",
    }


def test_the_id_of_a_message_and_the_meta_of_an_agent_go_along() -> None:
    (packet,) = project([message_chunk("x", messageId="m1", _meta={"a": 1})])
    assert packet["_meta"] == {"messageId": "m1", "a": 1}


def test_an_image_passes_with_its_optional_keys() -> None:
    image = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
    (packet,) = project([update({"sessionUpdate": "agent_message_chunk", "content": image})])
    assert packet["content"] == {**image, "_meta": None, "annotations": None, "uri": None}


def test_what_people_say_is_not_on_the_stream() -> None:
    assert project([event("user-message-chunk", {"content": text("fix it")})]) == []


def test_every_progress_is_a_snapshot_of_all_that_is_known() -> None:
    packets = project(
        [
            call(kind="execute", status="pending", rawInput={"command": "ls"}),
            progress(status="in_progress"),
            progress(content=[{"type": "content", "content": text("a")}]),
            progress(status="completed", rawOutput="a"),
        ]
    )
    assert types(packets) == ["tool_call", *["tool_call_progress"] * 3]
    assert statuses(packets) == ["pending", "in_progress", "in_progress", "completed"]
    assert [packet["rawInput"] for packet in packets] == [{"command": "ls"}] * 4
    assert [bool(packet["content"]) for packet in packets] == [False, False, True, True]
    assert packets[-1]["rawOutput"] == "a"


def test_an_empty_input_does_not_erase_what_is_known() -> None:
    known = {"command": "ls"}
    packets = project([call(rawInput=known), progress(rawInput={}), progress(rawInput=None)])
    assert [packet["rawInput"] for packet in packets] == [known] * 3


def test_an_empty_list_replaces_content_and_locations() -> None:
    content = [{"type": "content", "content": text("a")}]
    packets = project(
        [
            call(content=content, locations=[{"path": "a"}]),
            progress(content=[], locations=[]),
        ]
    )
    assert (packets[0]["locations"], packets[1]["locations"]) == (
        [{"_meta": None, "path": "a", "line": None}],
        [],
    )
    assert packets[1]["content"] == []


def test_a_call_announced_twice_continues() -> None:
    packets = project([call(rawInput={"a": 1}), call(title="again", status="in_progress")])
    assert types(packets) == ["tool_call", "tool_call_progress"]
    assert (packets[1]["title"], packets[1]["rawInput"]) == ("again", {"a": 1})


def test_an_update_without_a_call_begins_one() -> None:
    packets = project([progress(status="completed", kind="execute")])
    assert types(packets) == ["tool_call", "tool_call_progress"]
    assert packets[0]["title"] == "c"
    assert statuses(packets) == ["pending", "completed"]


def test_an_update_that_the_host_repeats_gives_no_second_packet() -> None:
    ours = {"quarterdeck": {"added": "the agent had sent this before"}}
    repeated = event("tool-call-update", {"toolCallId": "c", "kind": "execute"}, extensions=ours)
    changed = event("tool-call-update", {"toolCallId": "c", "kind": "read"}, extensions=ours)
    packets = project([call(kind="execute"), repeated, changed])
    assert types(packets) == ["tool_call", "tool_call_progress"]


def test_an_input_that_is_nested_too_deeply_to_compare_is_forwarded() -> None:
    def deep() -> Any:
        nested: Any = "x"
        for _ in range(5000):
            nested = [nested]
        return nested

    ours = {"quarterdeck": {"added": "the agent had sent this before"}}
    repeated = {"toolCallId": "c", "rawInput": deep()}
    packets = project(
        [
            event("tool-call", {"toolCallId": "c", "title": "t", "rawInput": deep()}),
            event("tool-call-update", repeated, extensions=ours),
        ]
    )
    assert types(packets) == ["tool_call", "tool_call_progress"]


def test_a_status_does_not_go_back_from_an_end() -> None:
    packets = project([call(status="completed"), progress(status="in_progress", title="late")])
    assert statuses(packets) == ["pending", "completed", "completed"]
    assert packets[-1]["title"] == "late"


def test_an_old_id_in_a_new_turn_is_a_new_call() -> None:
    packets = project([call(status="completed", rawOutput="1"), finished(), call()])
    assert types(packets) == ["tool_call", "tool_call_progress", "prompt_response", "tool_call"]


def test_an_open_call_announced_again_is_the_same_call_and_an_ended_one_is_a_new_call() -> None:
    assert types(project([call(status="in_progress"), call()]))[-1] == "tool_call_progress"
    packets = project([call(status="completed", rawOutput="1", rawInput={"a": 1}), call()])
    assert types(packets) == ["tool_call", "tool_call_progress", "tool_call"]
    assert packets[-1]["rawInput"] == {}


@pytest.mark.parametrize("reason", ["end_turn", "cancelled", "refusal"])
def test_calls_left_open_fail_before_the_turn_ends(reason: str) -> None:
    packets = project([call("a"), call("b", status="in_progress"), finished(reason)])
    assert types(packets)[-3:] == ["tool_call_progress", "tool_call_progress", "prompt_response"]
    assert [(p["toolCallId"], p["status"]) for p in packets[-3:-1]] == [
        ("a", "failed"),
        ("b", "failed"),
    ]


def test_a_call_that_ends_after_its_turn_gets_its_own_end() -> None:
    packets = project([call(), finished(), progress(title="x"), progress(status="completed")])
    assert statuses(packets) == ["pending", "failed", "failed", "completed"]
    assert project([call(), finished(), progress(status="in_progress"), finished()])[-2][
        "status"
    ] == ("failed")


def test_text_after_the_turn_is_forwarded() -> None:
    assert types(project([finished(), message_chunk("late")])) == [
        "prompt_response",
        "agent_message_chunk",
    ]


def test_kinds_that_packets_do_not_have_are_other() -> None:
    for kind in ("fetch", "think", "switch_mode", "delete", "move", "unheard-of"):
        assert project([call(kind=kind)])[0]["kind"] == "other"
        assert project([call(kind=kind)], style="tagged")[0]["kind"] == kind


def test_a_permission_request_is_announced_after_its_call() -> None:
    request = event(
        "permission-request-created",
        {
            "requestId": "r1",
            "toolCall": {"toolCallId": "c", "title": "Run ls", "kind": "execute", "rawInput": {}},
            "options": [],
        },
    )
    announced = {
        "type": "approval_requested",
        "timestamp": TIME,
        "approval_id": "r1",
        "session_id": SESSION,
    }
    start, approval = project([request])
    assert (packet_type(start), start["title"], start["kind"]) == (
        "tool_call_start",
        "Run ls",
        "execute",
    )
    assert approval == announced
    _, approval, state = project(
        [call(rawInput={"command": "ls"}), request, progress(status="completed")]
    )
    assert approval == announced
    assert (state["title"], state["rawInput"]) == ("Run ls", {"command": "ls"})


def test_an_edit_with_a_permission_gives_the_expected_packets() -> None:
    diff = {"type": "diff", "path": "a.py", "oldText": "1", "newText": "2"}
    request = {"requestId": "r", "toolCall": {"toolCallId": "c"}, "options": []}
    packets = project(
        [
            status("prompting"),
            event("user-message-chunk", {"content": text("fix it")}),
            message_chunk("I'll "),
            message_chunk("edit."),
            call(title="Edit `a.py`", kind="edit", status="pending", content=[diff]),
            event("permission-request-created", request),
            event("permission-request-resolved", {"requestId": "r", "status": "answered"}),
            progress(status="completed"),
            message_chunk("Done."),
            finished(),
            status("active"),
        ]
    )
    assert [packet_type(packet) for packet in packets] == [
        "agent_message_chunk",
        "agent_message_chunk",
        "tool_call_start",
        "approval_requested",
        "tool_call_progress",
        "agent_message_chunk",
        "prompt_response",
    ]
    assert packets[4]["content"] == [{**diff, "_meta": None}]


def test_the_use_of_the_context_loses_size_and_currency() -> None:
    used = {"sessionUpdate": "usage_update", "used": 53000, "size": 200000}
    cost = {"amount": 0.045, "currency": "USD"}
    assert project([update(used), update({**used, "cost": cost})]) == [
        {"type": "context_usage", "timestamp": TIME, "used_tokens": 53000, "cost": None},
        {"type": "context_usage", "timestamp": TIME, "used_tokens": 53000, "cost": 0.045},
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("12", 12), (" 12 ", 12), ("1.5e3", 1500), (12.9, 12), ("12.9", 12), ("-3", -3)],
)
def test_a_number_that_is_written_as_text_counts(written: Any, meant: int) -> None:
    sent = {"sessionUpdate": "usage_update", "used": written, "size": 100}
    (packet,) = project([update(sent)])
    assert packet["used_tokens"] == meant
    for key in ("used_tokens", "usedTokens"):
        packet = {"type": "context_usage", key: written}
        assert parse_packet(packet) == ContextUsage(used_tokens=meant)
        (back,) = SessionUpdates(context_size=100).feed(packet)
        assert back["used"] == meant


@given(st.text() | st.floats() | st.booleans() | st.none() | st.lists(st.integers()))
def test_what_is_no_number_of_tokens_is_none_shown_as_zero(written: Any) -> None:
    used = as_count(written)
    assert parse_packet({"type": "context_usage", "used_tokens": written}) == ContextUsage(
        used_tokens=used or 0
    )
    if not isinstance(written, str | float):
        assert used is None


@pytest.mark.parametrize("key", ["currentModeId", "modeId"])
def test_a_mode_passes(key: str) -> None:
    assert project([update({"sessionUpdate": "current_mode_update", key: "code"})]) == [
        {
            "_meta": None,
            "currentModeId": "code",
            "sessionUpdate": "current_mode_update",
            "type": "current_mode_update",
        }
    ]


@pytest.mark.parametrize("ending", ["disconnected", "closed", "deleted"])
def test_a_turn_whose_agent_left_ends_with_an_error(ending: str) -> None:
    packets = project([status("prompting"), call(), status(ending)])
    assert types(packets) == ["tool_call", "tool_call_progress", "error"]
    assert packets[-1]["code"] == f"session_{ending}"
    assert project([status("prompting"), finished(), status("active"), status(ending)]) == [
        {"_meta": {}, "stopReason": "end_turn", "type": "prompt_response"}
    ]


def test_an_error_without_a_message_gets_one() -> None:
    (packet,) = project([finished(error={"message": None})])
    assert packet == {"type": "error", "message": "the agent failed and did not say why"}


def output(delta: str, terminal: str = "t") -> Event:
    return event("terminal-output", {"terminalId": terminal, "delta": delta})


TERMINAL = [{"type": "terminal", "terminalId": "t"}]


def test_a_terminal_is_the_text_it_wrote_when_its_call_ends() -> None:
    packets = project(
        [
            call(kind="execute", status="in_progress", content=TERMINAL),
            output("one\n"),
            output("two\n"),
            progress(status="completed"),
            output("too late"),
            progress(title="List"),
        ]
    )
    contents = [packet["content"] for packet in packets]
    shown = [
        {
            "_meta": None,
            "type": "content",
            "content": {"_meta": None, "annotations": None, "text": "one\ntwo\n", "type": "text"},
        }
    ]
    assert contents == [None, None, shown, shown]


def test_a_terminal_keeps_its_position_among_other_content() -> None:
    before, after = ({"type": "content", "content": text(word)} for word in ("one", "three"))
    silent = {"type": "terminal", "terminalId": "silent"}
    nameless = {"type": "terminal"}
    packets = project(
        [
            call(status="in_progress", content=[before, *TERMINAL, silent, nameless, after]),
            output("two"),
            progress(status="completed"),
        ]
    )
    words = [
        [item["content"]["text"] for item in packet["content"]]
        for packet in packets
        if packet["content"]
    ]
    assert words == [["one", "three"], ["one", "two", "three"]]


def test_of_many_terminals_the_newest_are_kept() -> None:
    packets = project(
        [
            call(status="in_progress", content=TERMINAL),
            output("forgotten"),
            *(output("x", f"t{number}") for number in range(TERMINALS)),
            progress(status="completed"),
        ]
    )
    assert packets[-1]["content"] == []


def test_of_a_long_output_the_end_is_kept() -> None:
    packets = project(
        [call(content=TERMINAL), *[output("x" * 9999 + "\n")] * 20, output("end"), finished()]
    )
    shown = packets[-2]["content"][0]["content"]["text"]
    assert len(shown) == TERMINAL_BYTES
    assert shown.endswith("x\nend")


ARTIFACT = {"id": "1", "type": "file", "name": "n", "path": "outputs/n"}


@pytest.mark.parametrize("kind", ["agent_message_chunk", "agent_thought_chunk"])
@pytest.mark.parametrize("more", [{}, {"x": 1}])
def test_the_words_around_an_artifact_are_kept_and_come_back(kind: str, more: Json) -> None:
    sent = {
        "sessionUpdate": kind,
        "content": text("Here it is."),
        "_meta": {"artifact": ARTIFACT, **more},
    }
    packets = project([update(sent)])
    assert types(packets) == [kind, "artifact_created"]
    assert packets[0]["content"]["text"] == "Here it is."
    assert packets[0]["_meta"] == (more or None)
    assert packets[1]["artifact"] == ARTIFACT
    back = SessionUpdates()
    assert project([update(each) for packet in packets for each in back.feed(packet)]) == packets


def test_a_link_to_an_artifact_or_no_words_are_the_artifact_alone() -> None:
    link = {"type": "resource_link", "uri": "outputs/n", "name": "n"}
    for content in (link, text(""), None, 5):
        sent = {"sessionUpdate": "agent_message_chunk", "content": content}
        packets = project([update({**sent, "_meta": {"artifact": ARTIFACT}})])
        assert types(packets) == ["artifact_created"]
    other = {**link, "uri": "outputs/other"}
    sent = {"sessionUpdate": "agent_message_chunk", "content": other}
    packets = project([update({**sent, "_meta": {"artifact": ARTIFACT}})])
    assert types(packets) == ["agent_message_chunk", "artifact_created"]


PROMPT = {"sessionUpdate": "user_message_chunk", "content": text("look"), "messageId": "p1"}
PICTURE = {"type": "image", "mimeType": "image/png", "data": "aGk="}


def test_prompts_are_in_the_stream_of_a_page_that_asks_for_them_and_of_no_other() -> None:
    log = [
        status("active"),
        status("prompting"),
        update(PROMPT),
        update({**PROMPT, "content": PICTURE}),
        event("message-update", {"kind": "user", "messageId": "p1", "content": [text("see")]}),
        message_chunk("I see."),
        finished(),
    ]
    without = project(log)
    assert types(without) == ["agent_message_chunk", "prompt_response"]
    projector = PacketProjector(SESSION, prompts=True)
    packets = [packet for each in log for packet in projector.feed(each)]
    shown = [packet for packet in packets if packet_type(packet) == "user_message"]
    assert [packet for packet in packets if packet not in shown] == without
    assert [packet["content"]["text"] for packet in shown] == ["look", "", "see"]
    assert shown[0]["_meta"]["messageId"] == shown[1]["_meta"]["messageId"] == "p1"
    assert shown[1]["attachments"][0]["data"] == "aGk="
    for packet in shown:
        assert msgspec.convert(packet, PACKET_TYPES["user_message"]) == packet


@given(LOGS, STYLES)
def test_prompts_change_nothing_else_in_a_stream(log: list[Event], style: Any) -> None:
    plain = PacketProjector(SESSION, style=style)
    whole = PacketProjector(SESSION, style=style, prompts=True)
    for each in log:
        is_history = plain._history is not None  # noqa: SLF001 - its rows have prompts anyway
        without, packets = plain.feed(each), whole.feed(each)
        if not is_history:
            assert all(packet_type(packet) != "user_message" for packet in without)
            packets = [packet for packet in packets if packet_type(packet) != "user_message"]
        assert packets == without


def test_an_artifact_of_a_tool_follows_its_progress() -> None:
    artifact = {"id": "1", "type": "file", "name": "n", "path": "p"}
    packets = project([call(), progress(status="completed", _meta={"artifact": artifact})])
    assert types(packets) == ["tool_call", "tool_call_progress", "artifact_created"]
    assert packets[-1]["artifact"] == artifact
    assert types(project([call(_meta={"artifact": {"id": 1}})])) == ["tool_call"]


def test_a_call_without_an_id_is_left_to_the_log() -> None:
    assert project([update({"sessionUpdate": "tool_call", "title": "bash"})]) == []


def test_drafts_of_acp_have_packets_where_there_is_a_word_for_them() -> None:
    entry = {"content": "a", "priority": "high", "status": "pending"}
    whole = {"_meta": None, **entry}

    def draft(name: str, **fields: Any) -> Event:
        return update({"sessionUpdate": name, **fields})

    plan, removed, compacted, child = project(
        [
            draft("plan_update", plan={"type": "items", "planId": "p", "entries": [entry]}),
            draft("plan_update", plan={"type": "markdown", "planId": "p", "content": "x"}),
            draft("plan_removed", planId="p"),
            draft("compaction_update", compactionId="k", status="in_progress"),
            draft("compaction_summary_chunk", compactionId="k", content=text("so ")),
            draft("compaction_summary_chunk", compactionId="k", content=text("far")),
            draft("compaction_update", compactionId="k", status="completed"),
            draft("compaction_update", compactionId="l", status="failed"),
            draft("subagent_spawned", sessionId="child"),
            draft("notice", title="x"),
            draft("hologram"),
        ]
    )
    assert (plan["entries"], removed["entries"]) == ([whole], [])
    assert compacted == {"type": "compaction", "timestamp": TIME, "summary": "so far"}
    assert (child["subagent_session_id"], child["parent_session_id"]) == ("child", SESSION)


def test_of_many_compactions_under_way_the_oldest_is_forgotten() -> None:
    def chunk(number: int) -> Event:
        chunk = {"compactionId": f"k{number}", "content": text(f"{number}")}
        return update({"sessionUpdate": "compaction_summary_chunk", **chunk})

    def done(number: int) -> Event:
        ended = {"compactionId": f"k{number}", "status": "completed"}
        return update({"sessionUpdate": "compaction_update", **ended})

    packets = project([*map(chunk, range(17)), done(16), done(0)])
    assert [packet["summary"] for packet in packets] == ["16", None]


def test_packets_of_a_subagent_name_its_session() -> None:
    whose = {"sessionId": "child", "parentSessionId": SESSION}
    sent = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "read"}
    packets = project(
        [
            call(),
            update(sent, session_id="child"),
            update(
                {"sessionUpdate": "agent_message_chunk", "content": text("x")}, session_id="child"
            ),
            event("prompt-finished", {"stopReason": "end_turn"}, session_id="child"),
            progress(status="in_progress"),
        ]
    )
    assert [packet["_meta"] for packet in packets] == [None, whose, whose, whose, None]
    assert statuses(packets) == ["pending", "pending", "failed", "in_progress"]


def test_a_loaded_session_is_sent_as_history() -> None:
    def chunk(name: str, words: str) -> Event:
        return update({"sessionUpdate": name, "content": text(words)})

    packets = project(
        [
            message_chunk("before"),
            status("resuming"),
            event("session-reset", {"reason": "load"}),
            chunk("user_message_chunk", "fix "),
            chunk("user_message_chunk", "it"),
            chunk("agent_thought_chunk", "hm"),
            chunk("agent_message_chunk", "I "),
            chunk("agent_message_chunk", "will"),
            call("done", status="completed"),
            call("left"),
            update({"sessionUpdate": "usage_update", "used": 1, "size": 2}),
            status("active"),
            message_chunk("after"),
        ]
    )
    assert types(packets) == [
        "agent_message_chunk",
        "user_message",
        "agent_thought",
        "agent_message",
        "tool_call_progress",
        "tool_call_progress",
        "context_usage",
        "agent_message_chunk",
    ]
    assert packets[1]["content"] == text("fix it")
    assert packets[3]["content"] == text("I will")
    assert statuses(packets) == ["completed", "failed"]


def test_events_without_a_packet_give_none() -> None:
    host_event = make_host_event(
        "diagnostic", seq=1, ts=0, payload={"level": "info", "code": "x", "message": "m"}
    )
    unknown = decode_event({"type": "hologram", "seq": 1, "ts": 0, "sessionId": SESSION})
    commands = update({"sessionUpdate": "available_commands_update", "availableCommands": []})
    options = update({"sessionUpdate": "config_option_update", "configOptions": []})
    info = update({"sessionUpdate": "session_info_update", "title": "t"})
    setup = event("session-config-init", {})
    assert project([host_event, unknown, commands, options, info, setup]) == []


def test_the_style_tagged_has_what_newer_readers_look_for() -> None:
    events = [
        message_chunk("x"),
        call(status="in_progress", title="Bash", _meta={"claudeCode": {"toolName": "Bash"}}),
        call("d", title="Reading a file", kind="read"),
        finished("cancelled"),
    ]
    packets = project(events, style="tagged")
    assert [packet["type"] for packet in packets] == [
        "agent_message_chunk",
        "tool_call_start",
        "tool_call_progress",
        "tool_call_start",
        "tool_call_progress",
        "tool_call_progress",
        "prompt_response",
    ]
    assert {packet["timestamp"] for packet in packets} == {TIME}
    assert [packet["_meta"]["toolName"] for packet in packets[1:6]] == [
        "bash",
        "bash",
        "read",
        "bash",
        "read",
    ]
    assert [packet["status"] for packet in packets[4:6]] == ["cancelled", "cancelled"]


@pytest.mark.parametrize(
    ("ts", "time"),
    [
        (0, "1970-01-01T00:00:00.000000+00:00"),
        (1769109210917, "2026-01-22T19:13:30.917000+00:00"),
        (10**30, "9999-12-31T23:59:59.000000+00:00"),
        (-(10**30), "0001-01-01T00:00:00.000000+00:00"),
    ],
)
def test_a_time_is_that_of_the_event(ts: float, time: str) -> None:
    (packet,) = project([event("plan", {"entries": []}, ts=ts)])
    assert packet["timestamp"] == time


def test_a_projector_takes_a_session_or_its_id() -> None:
    @dataclass
    class Snapshot:
        session_id: str = SESSION

    assert PacketProjector(Snapshot()).feed(message_chunk("x")) == PacketProjector(SESSION).feed(
        message_chunk("x")
    )


def test_a_long_session_does_not_fill_the_memory() -> None:
    projector = PacketProjector(SESSION)
    for number in range(3 * REMEMBERED):
        projector.feed(call(f"c{number}", status="completed", rawOutput="x"))
    forgotten = projector.feed(progress("c0", title="again"))
    remembered = projector.feed(progress(f"c{3 * REMEMBERED - 1}", title="again"))
    assert types(forgotten) == ["tool_call", "tool_call_progress"]
    assert types(remembered) == ["tool_call_progress"]
    assert remembered[0]["rawOutput"] == "x"


@pytest.mark.slow
@given(LOGS, st.integers(0, 12), STYLES)
def test_any_log_gives_packets_of_their_types_that_never_change_and_in_two_pieces_the_same(
    log: list[Event], cut: int, style: Any
) -> None:
    before = copy.deepcopy(log)
    projector = PacketProjector(SESSION, style=style)
    packets, copies = [], []
    for each in log:
        made = projector.feed(each)
        packets += made
        copies += copy.deepcopy(made)
    for packet in packets:
        shape = PACKET_TYPES[packet_type(packet)]
        msgspec.convert(packet, shape, strict=True)
        assert set(packet) <= set(shape.__annotations__)
        content = packet.get("content")
        for item in content if isinstance(content, list) else ():
            msgspec.convert(item, DiffItem if item["type"] == "diff" else ContentItem, strict=True)
    assert str(packets) == str(copies)
    assert str(log) == str(before)
    again = [decode_event(copy.deepcopy(_object(each))) for each in log]
    first = PacketProjector(SESSION, style=style)
    pieces = [packet for each in again[:cut] for packet in first.feed(each)]
    second = copy.deepcopy(first)
    pieces += [packet for each in again[cut:] for packet in second.feed(each)]
    assert str(pieces) == str(packets)


def _object(each: Event) -> Json:
    fields: Json = {
        "type": each.type,
        "sessionId": each.session_id,
        "seq": each.seq,
        "ts": each.ts,
        "payload": each.payload,
    }
    return fields if each.extensions is None else {**fields, "extensions": each.extensions}
