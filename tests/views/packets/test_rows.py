"""What is streamed and what is kept: the vectors of a writer, and the rules one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given

from quarterdeck.protocol import Event
from quarterdeck.views.packets import (
    KEEPALIVE,
    PACKET_TYPES,
    PacketRows,
    SessionUpdates,
    packet_type,
    parse_packet,
    tool_kind,
)
from quarterdeck.views.packets.acp_updates import PromptResult, prompt_end
from quarterdeck.views.packets.projector import ClearRows, InsertRow, Row, UpsertPlan
from tests.views.packets.logs import LOGS
from tests.views.packets.support import (
    SESSION,
    TIME,
    Json,
    event,
    finished,
    project,
    status,
    text,
    update,
    vectors,
)

WRITER = vectors("12")
# Packets of the page itself: no agent sends anything for them.
NOT_IN_A_LOG = ("connect_app_request",)


def ids(vector: Json) -> str:
    return str(vector["id"])


def as_event(sent: Json) -> Event | None:
    """Return the event of a log for a packet of a vector."""
    name = sent.get("own")
    match name:
        case None:
            return update(dict(sent))
        case "prompt_response":
            return finished(sent["stopReason"])
        case "sandbox_error":
            return finished(error={"code": sent["code"], "message": sent["message"]})
        case "error":
            return finished(error={"message": sent["message"]})
        case "context_usage":
            cost = {"cost": {"amount": sent["cost"], "currency": "USD"}} if "cost" in sent else {}
            return event("usage-update", {"used": sent["used_tokens"], "size": 100, **cost})
        case "approval_requested":
            request = {"requestId": sent["approval_id"], "toolCall": {}, "options": []}
            return event("permission-request-created", request)
        case "subagent_started":
            child = sent["subagent_session_id"]
            return update({"sessionUpdate": "subagent_spawned", "sessionId": child})
        case _:
            assert name in ("keepalive", *NOT_IN_A_LOG)
            return None


def as_documented(packet: Json) -> Json:
    """Return a vector's packet as the document has it: its empty values, and no more keys."""
    packet = {**packet}
    if packet.get("timestamp") == "<ts>":
        packet["timestamp"] = TIME
    kind = packet_type(packet)
    if kind in ("tool_call_start", "tool_call_progress"):
        packet["rawInput"] = packet["rawInput"] or {}
        packet["kind"] = packet["kind"] or _kind_on_the_wire(packet["title"])
    if kind == "tool_call_start":
        packet["locations"] = packet["locations"] or []
        del packet["type"]
    if kind == "prompt_response":
        packet["_meta"] = {}
    if kind == "error":
        packet.pop("data", None)
        if "code" in packet:
            packet["code"] = str(packet["code"])
    if kind == "approval_requested":
        packet["session_id"] = SESSION
    if kind == "subagent_started":
        packet["parent_session_id"] = SESSION
    if kind in UNTIMED:
        packet.pop("timestamp", None)
    return packet


UNTIMED = frozenset(
    {"agent_message_chunk", "agent_thought_chunk", "tool_call_start", "prompt_response", "error"}
)


def _kind_on_the_wire(title: str) -> str:
    return tool_kind(title).replace("task", "other")


def is_in(frames: list[Json], packet: Json) -> bool:
    """Return what a vector has too: we start calls without an announcement, and end open ones."""
    kind = packet_type(packet)
    if kind == "tool_call_start":
        facts: Json = {"toolCallId": packet["toolCallId"], "sessionUpdate": "tool_call"}
    elif kind == "tool_call_progress":
        facts = {"toolCallId": packet["toolCallId"], "status": packet["status"]}
    else:
        facts = {"type": kind}
    return any(facts.items() <= frame.items() for frame in frames)


def frames_of(vector: Json) -> list[Json]:
    return [frame["data"] for frame in vector["frames"] if "data" in frame]


def events(vector: Json) -> list[Event]:
    return [each for each in map(as_event, vector["events"]) if each is not None]


@pytest.mark.parametrize("vector", WRITER, ids=ids)
def test_the_stream_is_that_of_the_vector(vector: Json) -> None:
    frames = frames_of(vector)
    packets = [packet for packet in project(events(vector)) if is_in(frames, packet)]
    expected = [as_documented(each) for each in frames if packet_type(each) not in NOT_IN_A_LOG]
    assert packets == expected


@pytest.mark.parametrize("vector", WRITER, ids=ids)
def test_the_rows_are_those_of_the_vector(vector: Json) -> None:
    packet_rows = PacketRows(SESSION)
    rows = [row for each in events(vector) for row in packet_rows.feed(each)] + packet_rows.finish()
    expected = [(each["turn"], as_documented(each["metadata"])) for each in vector["stored"]]
    kept = [each["metadata"] for each in vector["stored"]]
    assert [(turn, packet) for turn, packet in stored(rows) if is_in(kept, packet)] == expected


def stored(rows: list[Row]) -> list[tuple[int, Json]]:
    """Do with rows what a table would."""
    table: list[tuple[int, Json]] = []
    plans: dict[int, int] = {}
    for row in rows:
        match row:
            case ClearRows():
                table.clear()
                plans.clear()
            case UpsertPlan(turn=turn, packet=packet) if turn in plans:
                table[plans[turn]] = (turn, packet)
            case UpsertPlan(turn=turn, packet=packet):
                plans[turn] = len(table)
                table.append((turn, packet))
            case InsertRow(turn=turn, packet=packet):
                table.append((turn, packet))
    return table


def test_a_keepalive_is_a_comment() -> None:
    comments = [
        frame["comment"] for vector in WRITER for frame in vector["frames"] if "comment" in frame
    ]
    assert set(comments) == {KEEPALIVE.decode()}


def forth_and_back(packets: list[Json]) -> Iterator[Event]:
    """Give the log of an agent that sends what these packets stand for."""
    reader = SessionUpdates(context_size=100)
    for packet in packets:
        end = prompt_end(packet)
        if end is None:
            yield from map(update, reader.feed(packet))
        elif isinstance(end, PromptResult):
            yield finished(end.stop_reason)
        else:
            yield finished(error={"message": end.message, **(end.data or {})})


ROUND_TRIP = frozenset(
    {"agent_message_chunk", "agent_thought_chunk", "tool_call_start", "tool_call_progress"}
    | {"agent_plan_update", "prompt_response", "error", "context_usage", "artifact_created"}
)


@pytest.mark.parametrize("vector", WRITER + vectors("13"), ids=ids)
def test_what_is_read_from_a_stream_and_written_again_is_the_same(vector: Json) -> None:
    packets = [each for each in frames_of(vector) if packet_type(each) in ROUND_TRIP]
    again = [each for each in project(forth_and_back(packets)) if is_in(packets, each)]
    assert in_order(again) == in_order([as_documented(each) for each in packets])


def in_order(packets: list[Json]) -> tuple[list[Json], dict[str, Json]]:
    """Return the messages in order, and the last state of each call."""
    calls = {
        each["toolCallId"]: each for each in packets if packet_type(each) == "tool_call_progress"
    }
    return [each for each in packets if "toolCallId" not in each], calls


@pytest.mark.parametrize("vector", vectors("13"), ids=ids)
def test_a_page_can_show_every_frame(vector: Json) -> None:
    for frame in vector["frames"]:
        packet = frame["data"]
        assert parse_packet(packet).type != "unknown"
        documented = as_documented(packet)
        if packet_type(documented) == "tool_call_start":
            documented |= {"status": "pending", "rawOutput": None}
        msgspec.convert(documented, PACKET_TYPES[packet_type(documented)], strict=True)


def rows_of(*log: Event) -> list[Json]:
    packet_rows = PacketRows(SESSION)
    rows = [row for each in log for row in packet_rows.feed(each)] + packet_rows.finish()
    return [packet for _, packet in stored(rows)]


def message_chunk(words: str, kind: str = "agent_message_chunk", **fields: Any) -> Event:
    return update({"sessionUpdate": kind, "content": text(words), **fields})


def prompt(words: str) -> Event:
    return message_chunk(words, "user_message_chunk", messageId=words)


def test_a_prompt_is_a_row_and_counts_the_turns() -> None:
    packet_rows = PacketRows(SESSION)
    log = [
        prompt("one"),
        message_chunk("1"),
        finished(),
        prompt("two"),
        message_chunk("2"),
        finished(),
    ]
    rows = [row for each in log for row in packet_rows.feed(each)]
    assert [(row.turn, row.packet["type"]) for row in rows if isinstance(row, InsertRow)] == [
        (0, "user_message"),
        (0, "agent_message"),
        (1, "user_message"),
        (1, "agent_message"),
    ]


def test_what_is_attached_to_a_prompt_is_kept() -> None:
    image = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
    picture = update({"sessionUpdate": "user_message_chunk", "content": image})
    (row,) = rows_of(message_chunk("look", "user_message_chunk"), picture)
    assert row["content"] == text("look")
    assert [each["data"] for each in row["attachments"]] == ["QUJD"]


def test_messages_with_different_ids_are_different_rows() -> None:
    rows = rows_of(
        message_chunk("a", messageId="1"),
        message_chunk("b", messageId="1"),
        message_chunk("c", messageId="2"),
    )
    assert [row["content"]["text"] for row in rows] == ["ab", "c"]
    assert all("_meta" not in row for row in rows)


def test_the_answer_of_a_subagent_is_a_row_of_its_own() -> None:
    task = {"prompt": "P", "subagent_type": "Explore"}
    answer = {"output": "Found 3.\n<task_metadata>\nsession_id: x\n</task_metadata>"}
    done = update(
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "k",
            "status": "completed",
            "rawInput": task,
            "rawOutput": answer,
        }
    )
    call, output = rows_of(done)
    assert call["type"] == "tool_call_progress"
    assert output == {
        "type": "agent_message",
        "content": text("Found 3."),
        "source": "task_output",
        "timestamp": TIME,
    }


def test_a_loaded_session_begins_its_rows_again() -> None:
    reset = event("session-reset", {"reason": "load"})
    rows = rows_of(
        prompt("old"), message_chunk("old"), finished(), reset, prompt("new"), status("active")
    )
    assert [row["content"]["text"] for row in rows] == ["new"]


@pytest.mark.slow
@given(LOGS)
def test_every_row_is_of_its_type_and_no_text_is_lost(log: list[Event]) -> None:
    packet_rows = PacketRows(SESSION)
    rows = [row for each in log for row in packet_rows.feed(each)] + packet_rows.finish()
    for row in rows:
        if not isinstance(row, ClearRows):
            msgspec.convert(row.packet, PACKET_TYPES[packet_type(row.packet)], strict=True)
    if any(each.type == "session-reset" for each in log):
        return
    for kind in ("agent_message", "agent_thought"):
        streamed = [each for each in project(log) if packet_type(each) == f"{kind}_chunk"]
        kept = [
            row.packet
            for row in rows
            if isinstance(row, InsertRow)
            and row.packet["type"] == kind
            and "source" not in row.packet
        ]
        assert "".join(each["content"]["text"] for each in kept) == "".join(
            each["content"]["text"] for each in streamed if each["content"]["type"] == "text"
        )
