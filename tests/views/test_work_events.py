"""What only agents with ACP 2 report, in every view of the log."""

from __future__ import annotations

import io
from typing import Any

import pytest

from quarterdeck.cli.terminal.screen import Screen
from quarterdeck.cli.terminal.session_printer import TextPrinter
from quarterdeck.protocol import (
    TerminalOutputEvent,
    TerminalUpdateEvent,
    ToolCallContentChunkEvent,
    initial_state,
    make_session_event,
    reduce,
)
from quarterdeck.views.acp import AcpTerminals, session_updates
from quarterdeck.views.context import (
    ContextProjector,
    MessageCompleteEvent,
    TextContent,
    ToolCallErrorEvent,
)
from quarterdeck.views.entries import MessageEntry, ToolEntry
from quarterdeck.views.packets import PacketProjector
from quarterdeck.views.transcript import Transcript


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def content(words: str) -> dict[str, Any]:
    return {"type": "content", "content": text(words)}


def events(*pairs: tuple[str, dict[str, Any]]) -> list[Any]:
    return [
        make_session_event(kind, "s", seq=seq, ts=seq, payload=payload)
        for seq, (kind, payload) in enumerate(pairs, 1)
    ]


TERMINAL = {"type": "terminal", "terminalId": "t"}
REPLACED = events(
    ("agent-message-chunk", {"messageId": "m", "content": text("Draft.")}),
    ("tool-call", {"toolCallId": "c", "title": "make", "content": [content("one")]}),
    ("agent-message-chunk", {"messageId": "m", "content": text("More.")}),
    ("message-update", {"kind": "agent", "messageId": "m", "content": [text("Final.")]}),
    ("tool-call-content-chunk", {"toolCallId": "c", "content": content("two")}),
    ("terminal-update", {"terminalId": "t", "output": {"text": "tick 1\n"}, "exit": {}}),
    (
        "tool-call-content-chunk",
        {"toolCallId": "c", "content": {"type": "terminal", "terminalId": "t"}},
    ),
    ("tool-call-update", {"toolCallId": "c", "status": "cancelled"}),
    ("plan-update", {"planId": "p", "type": "markdown", "content": "# Ship it"}),
    ("plan-removed", {"planId": "p"}),
    ("foreground", {"state": "idle"}),
    ("prompt-finished", {"stopReason": "cancelled"}),
)


def transcript() -> Transcript:
    view = Transcript("s")
    for event in REPLACED:
        view.apply(event)
    return view


def test_a_transcript_has_a_replaced_message_once_where_it_began() -> None:
    entries = [each for each in transcript().older(None) if isinstance(each, MessageEntry)]
    assert [(each.seq, each.content) for each in entries] == [(1, [text("Final.")])]


def test_a_cancelled_call_has_an_end_in_a_transcript() -> None:
    (entry,) = [each for each in transcript().older(None) if isinstance(each, ToolEntry)]
    assert (entry.ended_at, entry.call["status"]) == (8, "cancelled")
    assert entry.call["content"][:2] == [content("one"), content("two")]
    assert entry.terminals["t"]["output"] == "tick 1\n"
    assert not transcript().has_running_calls


def test_a_terminal_prints_replaced_messages_plans_and_content() -> None:
    stream, state = io.StringIO(), initial_state("s")
    printer = TextPrinter(Screen(stream, {}))
    for event in REPLACED:
        state = reduce(state, event)
        printer.event(event, state)
    printed = stream.getvalue()
    for words in (
        "the message now reads:",
        "Final.",
        "two",
        "# Ship it",
        "cancelled: make",
        "tick 1",
    ):
        assert words in printed


def test_packets_have_replaced_messages_and_appended_content() -> None:
    projector = PacketProjector("s")
    packets = [packet for event in REPLACED for packet in projector.feed(event)]
    replaced = [each for each in packets if (each.get("_meta") or {}).get("messageId") == "m~4"]
    assert [each["content"]["text"] for each in replaced] == ["Final."]
    (last,) = [each for each in packets if each.get("status") == "cancelled"]
    shown = [each["content"]["text"] for each in last["content"]]
    assert shown == ["one", "two", "tick 1\n"]


def test_context_events_end_a_cancelled_call_and_complete_a_replaced_message() -> None:
    projector = ContextProjector("s")
    found = [each for event in REPLACED for each in projector.feed(event)]
    complete = [each for each in found if isinstance(each, MessageCompleteEvent)]
    assert complete[-1].content == (TextContent(text="Final."),)
    (error,) = [each for each in found if isinstance(each, ToolCallErrorEvent)]
    assert error.error.code == "CANCELLED"


@pytest.mark.parametrize(("status", "shown"), [("cancelled", "failed"), ("paused", "in_progress")])
def test_an_editor_with_acp_1_gets_statuses_of_acp_1(status: str, shown: str) -> None:
    (event,) = events(("tool-call-update", {"toolCallId": "c", "status": status}))
    (update,) = session_updates(event)
    assert (update["status"], update["_meta"]["quarterdeck"]) == (shown, {"status": status})


def test_an_editor_with_acp_1_gets_a_replaced_message_as_a_new_one() -> None:
    (update,) = session_updates(REPLACED[3])
    assert update["messageId"] == "m~4"
    assert update["_meta"] == {"quarterdeck": {"replaces": "m"}}


def test_an_editor_with_acp_1_gets_all_content_by_the_end_and_little_of_it_twice() -> None:
    terminals, sent = AcpTerminals(), 0
    (call,) = events(("tool-call", {"toolCallId": "c", "title": "make"}))
    (first,) = session_updates(call)
    terminals.shown(first)
    content_of: list[Any] = []
    for number in range(1_000):
        (chunk,) = events(
            ("tool-call-content-chunk", {"toolCallId": "c", "content": content(str(number))})
        )
        assert isinstance(chunk, ToolCallContentChunkEvent)
        for update in terminals.take(chunk):
            content_of = update["content"]
            sent += len(content_of)
    end = terminals.shown({"toolCallId": "c", "status": "completed"})
    content_of = end.get("content", content_of)
    assert content_of == [content(str(number)) for number in range(1_000)]
    assert sent < 10_000


def test_an_editor_with_acp_1_sees_what_an_agents_terminal_wrote() -> None:
    terminals = AcpTerminals()
    terminals.shown({"toolCallId": "c", "content": [{"type": "terminal", "terminalId": "t"}]})
    made = events(
        ("terminal-output", {"terminalId": "t", "delta": "tick 2"}),
        ("terminal-update", {"terminalId": "t", "output": {"text": "tick 1\ntick 2"}}),
        ("terminal-update", {"terminalId": "t", "exit": {"exitCode": 3}}),
    )
    updates = []
    for event in made:
        assert isinstance(event, TerminalOutputEvent | TerminalUpdateEvent)
        updates += list(terminals.take(event))
    shown = updates[-1]["content"][0]["content"]["text"]
    assert "tick 1\ntick 2" in shown
    assert "exit status 3" in shown
