"""What has no view of its own becomes a note: by the same rules here and on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.protocol import Event, decode_event
from quarterdeck.views.clipped_entries import LONGEST_TEXT, clipped
from quarterdeck.views.entries import NoteEntry, TurnEntry
from quarterdeck.views.notes import note_key, note_text
from quarterdeck.views.transcript import Transcript

CASES = json.loads(Path(__file__).with_name("notes.json").read_text(encoding="utf-8"))


def update_event(seq: int, update: Any, **extensions: Any) -> Event:
    return decode_event(
        {
            "type": "unrecognized-update",
            "sessionId": "s",
            "seq": seq,
            "ts": 1000 + seq,
            "payload": update,
            **({"extensions": extensions} if extensions else {}),
        }
    )


def turn_end(seq: int) -> Event:
    payload = {"stopReason": "end_turn"}
    return decode_event(
        {"type": "prompt-finished", "sessionId": "s", "seq": seq, "ts": 1, "payload": payload}
    )


def transcript_of(*events: Event) -> Transcript:
    transcript = Transcript("s")
    for event in events:
        transcript.apply(event)
    return transcript


def notes_of(*events: Event) -> list[NoteEntry]:
    entries = [*transcript_of(*events).older(None)][::-1]
    return [entry for entry in entries if isinstance(entry, NoteEntry)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_updates_become_notes(case: dict[str, Any]) -> None:
    events = (update_event(seq, each) for seq, each in enumerate(case["updates"], 1))
    shown = [
        {"severity": each.severity, "title": each.title, "text": each.text, "count": each.count}
        for each in notes_of(*events)
    ]
    assert shown == case["notes"]


@pytest.mark.parametrize("value", [None, 7, "text", [1], {"a": [None]}, True])
def test_any_json_is_a_note(value: Any) -> None:
    names = ["notice", "compaction_update", "plan_update", "subagent_update", "session_message"]
    for name in [*names, "session_message_chunk", "quarterdeck/elicitation-updated", value]:
        fields = ("title", "status", "summary", "plan", "state", "content", "request", "sessionId")
        update = {"sessionUpdate": name, **dict.fromkeys(fields, value)}
        (note,) = notes_of(update_event(1, update))
        assert note.title
        note_text(update)
        note_key(update)


def test_an_event_of_a_newer_version_is_a_note() -> None:
    event = decode_event(
        {"type": "weather", "sessionId": "s", "seq": 1, "ts": 1, "payload": {"sun": True}}
    )
    (note,) = notes_of(event)
    assert note.title == "weather"
    assert note.update == {"sessionUpdate": "weather", "sun": True}


def test_a_note_ends_with_its_turn() -> None:
    started = {"sessionUpdate": "subagent_update", "sessionId": "c", "title": "Scout"}
    ended = {**started, "state": {"state": "idle"}}
    first, second = notes_of(update_event(1, started), turn_end(2), update_event(3, ended))
    assert (first.title, second.title) == ("Sub-agent Scout", "Sub-agent Scout: done")


def test_a_note_does_not_hide_the_end_of_a_turn() -> None:
    transcript = transcript_of(turn_end(1))
    assert transcript.is_at_turn_end
    assert isinstance(next(transcript.older(None)), TurnEntry)


def test_an_agent_that_does_not_respond_is_marked() -> None:
    notice = {"sessionUpdate": "notice", "severity": "warning", "title": "x"}
    (marked,) = notes_of(update_event(1, notice, quarterdeck={"unresponsive": {}}))
    (other,) = notes_of(update_event(1, notice))
    assert (marked.is_unresponsive, other.is_unresponsive) == (True, False)


def test_a_long_note_is_clipped() -> None:
    (note,) = notes_of(
        update_event(1, {"sessionUpdate": "notice", "description": "x" * (LONGEST_TEXT + 1)})
    )
    short = clipped(note)
    assert isinstance(short, NoteEntry)
    assert short.is_clipped
    assert len(short.text) == LONGEST_TEXT
