"""The transcript of a session, folded and over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quarterdeck.hub.api.transcript import MOST_BYTES
from quarterdeck.protocol import decode_event, encode_event
from quarterdeck.views.clipped_entries import LONGEST_TEXT, clipped
from quarterdeck.views.entries import MessageEntry, ToolEntry
from quarterdeck.views.transcript import Transcript
from tests.hub.api.kit import options, running, scripted

TALK: tuple[dict[str, Any], ...] = (
    {"think": "let me see"},
    {"say": "one "},
    {"say": "two"},
    {"tool": "call-1", "title": "Look", "kind": "read"},
    {"finish": "call-1"},
    {"say": "three"},
)


def folded(*events: tuple[str, dict[str, Any]]) -> Transcript:
    """Fold events as they are stored, and see that they come to what they do one by one."""
    transcript, whole = Transcript("s"), Transcript("s")
    for seq, (kind, payload) in enumerate(events, 1):
        event = {"type": kind, "seq": seq, "ts": seq * 10, "sessionId": "s", "payload": payload}
        data = encode_event(decode_event(event))
        transcript.apply_stored(data)
        whole.apply(decode_event(data))
    assert (transcript.seq, oldest_first(transcript)) == (whole.seq, oldest_first(whole))
    return transcript


def said(text: str, message_id: str | None = None) -> tuple[str, dict[str, Any]]:
    chunk: dict[str, Any] = {"content": {"type": "text", "text": text}}
    return "agent-message-chunk", chunk if message_id is None else {
        **chunk,
        "messageId": message_id,
    }


def oldest_first(transcript: Transcript) -> list[Any]:
    return list(transcript.older(None))[::-1]


async def test_a_turn_is_shown_in_the_order_in_which_it_happened(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home", talker=scripted(*TALK))) as (_hub, client):
        session = await client.session("talker", tmp_path)
        await client.prompt(session, "p1")
        await client.ended(session, "p1")
        page = await client.get(f"/api/sessions/{session}/transcript")
        events = await client.events(session)
    told = [(each["type"], each.get("kind")) for each in page["entries"]]
    assert told == [
        ("message", "user"),
        ("message", "thought"),
        ("message", "agent"),
        ("tool", None),
        ("message", "agent"),
        ("turn", None),
    ]
    user, _, spoken, call, after, turn = page["entries"]
    assert user["promptKey"] == "p1"
    assert spoken["content"] == [{"type": "text", "text": "one two"}]
    assert after["content"] == [{"type": "text", "text": "three"}]
    assert call["call"]["status"] == "completed"
    assert call["endedAt"] >= call["at"]
    assert turn["stopReason"] == "end_turn"
    assert page["seq"] == events[-1]["seq"]
    assert page["hasOlder"] is False
    times = {event["seq"]: event["ts"] for event in events}
    assert [each["at"] for each in page["entries"]] == [
        times[each["seq"]] for each in page["entries"]
    ]


async def test_older_entries_are_read_page_by_page_and_none_twice(tmp_path: Path) -> None:
    many = {"repeat": 20, "steps": [{"say": "word"}, {"tool": "again", "title": "Look"}]}
    async with running(options(tmp_path / "home", talker=scripted(many))) as (_hub, client):
        session = await client.session("talker", tmp_path)
        await client.prompt(session, "p1")
        await client.ended(session, "p1")
        path = f"/api/sessions/{session}/transcript"
        whole = (await client.get(f"{path}?limit=500"))["entries"]
        pages = [await client.get(f"{path}?limit=7")]
        while pages[-1]["hasOlder"]:
            before = pages[-1]["entries"][0]["seq"]
            pages.append(await client.get(f"{path}?limit=7&before={before}"))
    assert "state" in pages[0]
    assert "state" not in pages[1]
    assert [entry for page in reversed(pages) for entry in page["entries"]] == whole
    # The call was begun anew each time: it is shown where it was begun last.
    assert [each["type"] for each in whole].count("tool") == 1


async def test_a_page_is_bounded_and_an_entry_can_be_read_whole(tmp_path: Path) -> None:
    large = "x" * (LONGEST_TEXT + 10)
    steps = [{"tool": f"call-{n}", "title": "Look"} for n in range(20)]
    print_it = {"finish": "call-19", "text": large}
    many = {"repeat": 20, "steps": [*steps, {"say": large}, print_it]}
    async with running(options(tmp_path / "home", talker=scripted(many))) as (_hub, client):
        session = await client.session("talker", tmp_path)
        await client.prompt(session, "p1")
        await client.ended(session, "p1")
        path = f"/api/sessions/{session}/transcript"
        page = await client.get(path)
        seq = next(each["seq"] for each in page["entries"] if each.get("isClipped"))
        whole = (await client.get(f"{path}/{seq}"))["entry"]
        await client.get(f"{path}/999999", status=404)
        await client.get(f"{path}/x", status=404)
    assert page["hasOlder"] is True
    assert len(json.dumps(page["entries"])) < 2 * MOST_BYTES
    assert whole["isClipped"] is False
    assert whole["call"]["content"][0]["content"]["text"] == large


def test_interleaved_messages_stay_together() -> None:
    transcript = folded(said("a", "1"), said("b", "2"), said("c", "1"), said("d", "2"))
    texts = [each.content[0]["text"] for each in oldest_first(transcript)]
    assert texts == ["ac", "bd"]


def test_chunks_of_all_kinds_go_to_the_message_they_belong_to() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "AA=="}
    noted = {"type": "text", "text": "noted", "annotations": {"priority": 1}}
    thought = "agent-thought-chunk", {"content": {"type": "text", "text": "hm"}}
    more = ("agent-message-chunk", {"content": image}), ("agent-message-chunk", {"content": noted})
    odd = "agent-message-chunk", {"content": {"type": "text", "text": "\ud800"}}
    entries = oldest_first(
        folded(said("a"), said("b"), thought, thought, said("c"), *more, said("d"), said("e"), odd)
    )
    assert [(each.kind, each.seq, each.content) for each in entries] == [
        ("agent", 1, [{"type": "text", "text": "ab"}]),
        ("thought", 3, [{"type": "text", "text": "hmhm"}]),
        (
            "agent",
            5,
            [{"type": "text", "text": "c"}, image, noted, {"type": "text", "text": "de\ud800"}],
        ),
    ]


def test_a_message_that_continues_after_a_call_is_shown_after_it() -> None:
    call = ("tool-call", {"toolCallId": "t", "title": "Look"})
    transcript = folded(said("a", "1"), call, said("b", "1"), said("c", "1"))
    before, between, after = oldest_first(transcript)
    assert isinstance(between, ToolEntry)
    assert (before.content[0]["text"], after.content[0]["text"]) == ("a", "bc")
    assert [each.seq for each in (before, between, after)] == [1, 2, 3]


def test_a_loaded_session_begins_anew() -> None:
    reset = ("session-reset", {"reason": "load"})
    transcript = folded(said("a"), reset, said("b"))
    (only,) = oldest_first(transcript)
    assert (only.seq, only.content[0]["text"]) == (3, "b")


def test_a_terminal_that_is_cut_keeps_its_end() -> None:
    output = "".join(f"line {number}\n" for number in range(20_000))
    transcript = folded(
        ("terminal-output", {"terminalId": "x", "delta": output}),
        (
            "tool-call",
            {
                "toolCallId": "t",
                "title": "Run",
                "content": [{"type": "terminal", "terminalId": "x"}],
            },
        ),
    )
    (entry,) = (clipped(each) for each in oldest_first(transcript))
    assert isinstance(entry, ToolEntry)
    assert entry.is_clipped
    assert output.endswith(entry.terminals["x"]["output"])


def test_half_an_image_is_not_sent() -> None:
    picture = {"type": "image", "mimeType": "image/png", "data": "A" * (1 << 20)}
    entry = MessageEntry(seq=1, at=0, kind="agent", message_id=None, content=[picture])
    short = clipped(entry)
    assert isinstance(short, MessageEntry)
    assert (short.is_clipped, short.content[0]["data"]) == (True, "")
