"""Every kind of update leaves a trace on every surface: a matrix of updates and surfaces.

Each update carries tokens that occur nowhere else. A surface is what a reader gets of the log: the
text of `run` and `show`, the Markdown document, the transcript over HTTP (which the page shows),
context events, packets, and the updates that editors receive in both versions of ACP.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import pytest

from quarterdeck.cli.terminal.screen import Screen
from quarterdeck.cli.terminal.session_printer import TextPrinter
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import (
    Event,
    SessionState,
    initial_state,
    make_session_event,
    normalize_session_update,
    reduce,
)
from quarterdeck.views.acp import session_updates
from quarterdeck.views.acp_v2 import AcpV2Updates
from quarterdeck.views.context import ContextProjector, encode_context_event
from quarterdeck.views.entries import NoteEntry
from quarterdeck.views.markdown import document
from quarterdeck.views.packets import PacketProjector
from quarterdeck.views.transcript import Transcript

DATA: Final = "QUFB" * 100
CALL: Final = {"toolCallId": "call", "title": "Title-tok", "kind": "execute", "status": "completed"}


class Case(NamedTuple):
    name: str
    updates: tuple[dict[str, Any], ...]
    tokens: tuple[str, ...]
    """What a reader must find."""
    absent: frozenset[str] = frozenset()
    """Surfaces that have no word for it, by their specification."""


def chunk(name: str, block: Any) -> dict[str, Any]:
    return {"sessionUpdate": name, "content": block}


def said(block: Any) -> tuple[dict[str, Any], ...]:
    return (chunk("agent_message_chunk", block),)


def note(name: str, **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": name, **fields}


def called(**fields: Any) -> tuple[dict[str, Any], ...]:
    return ({"sessionUpdate": "tool_call", **CALL, **fields},)


def content(block: Any) -> list[Any]:
    return [{"type": "content", "content": block}]


TEXT: Final = {"type": "text", "text": "tok-text"}
LINK: Final = {
    "type": "resource_link",
    "uri": "file:///tok-uri",
    "name": "n",
    "title": "tok-title",
    "size": 1200,
}
FILE: Final = {"type": "resource", "resource": {"uri": "file:///tok-uri", "text": "tok-body"}}
BLOB: Final = {"type": "resource", "resource": {"uri": "file:///tok-uri", "blob": DATA}}
IMAGE: Final = {"type": "image", "mimeType": "image/tok", "data": DATA}
AUDIO: Final = {"type": "audio", "mimeType": "audio/tok", "data": DATA}
PLAN: Final = [{"content": "tok-step", "status": "pending", "priority": "low"}]
OPTION: Final = {
    "id": "o",
    "name": "tok-option",
    "type": "select",
    "currentValue": "tok-value",
    "options": [{"value": "tok-value", "name": "tok-value"}],
}
PACKETS: Final = frozenset({"packets"})
"""Packets are a closed list: it has none for these."""
CASES: Final = (
    Case("text", said(TEXT), ("tok-text",)),
    Case("thought", (chunk("agent_thought_chunk", TEXT),), ("tok-text",)),
    Case("user", (chunk("user_message_chunk", TEXT),), ("tok-text",), PACKETS),
    Case("image", said(IMAGE), ("image/tok",)),
    Case("audio", said(AUDIO), ("audio/tok",)),
    Case("resource link", said(LINK), ("tok-title", "tok-uri")),
    Case("embedded text", said(FILE), ("tok-uri", "tok-body")),
    Case("embedded data", said(BLOB), ("tok-uri",)),
    Case("unknown block", said({"type": "tok-kind", "x": "tok-x"}), ("tok-kind", "tok-x")),
    Case("call", called(content=content(TEXT)), ("Title-tok", "tok-text")),
    Case("call with a link", called(content=content(LINK)), ("tok-uri",)),
    Case("call with a file", called(content=content(FILE)), ("tok-body",)),
    Case("tool name", called(name="tok-name"), ("tok-name",), PACKETS),
    Case("cancelled call", called(status="cancelled"), ("cancelled",)),
    Case("paused call", called(status="paused"), ("paused",), frozenset({"packets", "context"})),
    Case("plan", (note("plan", entries=PLAN),), ("tok-step",)),
    Case(
        "notice",
        (note("notice", severity="warning", title="tok-t", description="tok-d"),),
        ("tok-t", "tok-d"),
        PACKETS,
    ),
    Case(
        "compaction",
        (note("compaction_update", compactionId="k", status="completed", summary=[TEXT]),),
        ("tok-text",),
    ),
    Case(
        "failed compaction",
        (note("compaction_update", compactionId="k", status="failed", error="tok-error"),),
        ("tok-error",),
        PACKETS,
    ),
    Case(
        "compaction in pieces",
        (
            note("compaction_summary_chunk", compactionId="k", content=TEXT),
            note("compaction_update", compactionId="k", status="completed"),
        ),
        ("tok-text",),
    ),
    Case(
        "plan items",
        (note("plan_update", plan={"type": "items", "planId": "p", "entries": PLAN}),),
        ("tok-step",),
    ),
    Case(
        "plan text",
        (note("plan_update", plan={"type": "markdown", "planId": "p", "content": "tok-plan"}),),
        ("tok-plan",),
        PACKETS,
    ),
    Case(
        "plan file",
        (note("plan_update", plan={"type": "file", "planId": "p", "uri": "file:///tok-plan"}),),
        ("tok-plan",),
        PACKETS,
    ),
    Case(
        "sub-agent",
        (note("subagent_update", sessionId="tok-child", title="tok-t", description="tok-d"),),
        ("tok-child",),
    ),
    Case(
        "message between sessions",
        (note("session_message", messageId="m", senderSessionId="tok-other", content=[TEXT]),),
        ("tok-text", "tok-other"),
        PACKETS,
    ),
    Case(
        "unknown update",
        (note("tok_update", x={"y": "tok-deep"}),),
        ("tok_update", "tok-deep"),
        PACKETS,
    ),
    Case("vendor update", (note("_tok.example", x="tok-x"),), ("_tok.example", "tok-x"), PACKETS),
    Case(
        "mode",
        (note("current_mode_update", currentModeId="tok-mode"),),
        ("tok-mode",),
        # There a mode is the value of an option; a mode that no option offers has no place.
        frozenset({"editor of ACP 2"}),
    ),
    Case(
        "option", (note("config_option_update", configOptions=[OPTION]),), ("tok-value",), PACKETS
    ),
    Case(
        "commands",
        (note("available_commands_update", availableCommands=[{"name": "tok-cmd"}]),),
        ("tok-cmd",),
        PACKETS,
    ),
    Case("title", (note("session_info_update", title="tok-title"),), ("tok-title",), PACKETS),
    Case(
        "usage",
        (note("usage_update", used=1234, size=98765, cost={"amount": 4.25, "currency": "TOK"}),),
        ("4.25",),
    ),
)


def events_of(case: Case) -> list[Event]:
    facts = [normalize_session_update(update) for update in case.updates]
    events = [
        make_session_event(
            fact.type, "s", seq=seq, ts=seq, payload=fact.payload, extensions=fact.extensions
        )
        for seq, fact in enumerate(facts, 1)
    ]
    ended = {"stopReason": "end_turn"}
    seq = len(events) + 1
    return [*events, make_session_event("prompt-finished", "s", seq=seq, ts=seq, payload=ended)]


def terminal(events: Iterable[Event]) -> str:
    stream = io.StringIO()
    printer = TextPrinter(Screen(stream, {}), shows_all=True)
    state = initial_state("s")
    for event in events:
        state = reduce(state, event)
        printer.event(event, state)
    printer.end()
    return stream.getvalue().replace("\n", " ")


def final_state(events: Iterable[Event]) -> SessionState:
    state = initial_state("s")
    for event in events:
        state = reduce(state, event)
    return state


def transcript(events: Iterable[Event]) -> Transcript:
    transcript = Transcript("s")
    for event in events:
        transcript.apply(event)
    return transcript


def markdown(events: Iterable[Event]) -> str:
    given = list(events)
    entries = [*transcript(given).older(None)][::-1]
    notes = [entry for entry in entries if isinstance(entry, NoteEntry)]
    return document(final_state(given), notes=notes).replace("\\", "")


def http(events: Iterable[Event]) -> str:
    whole = transcript(events)
    entries = encode_json(list(whole.older(None))).decode()
    return entries + repr(whole.state)


def context(events: Iterable[Event]) -> str:
    projector = ContextProjector("s")
    return "".join(
        encode_context_event(each).decode() for event in events for each in projector.feed(event)
    )


def packets(events: Iterable[Event]) -> str:
    projector = PacketProjector("s")
    return "".join(encode_json(each).decode() for event in events for each in projector.feed(event))


def editor(events: Iterable[Event]) -> str:
    return "".join(
        encode_json(each).decode() for event in events for each in session_updates(event)
    )


def editor_of_acp2(events: Iterable[Event]) -> str:
    view = AcpV2Updates()
    return "".join(encode_json(each).decode() for event in events for each in view.updates(event))


SURFACES: Final[dict[str, Callable[[Iterable[Event]], str]]] = {
    "terminal": terminal,
    "markdown": markdown,
    "http": http,
    "context": context,
    "packets": packets,
    "editor": editor,
    "editor of ACP 2": editor_of_acp2,
}


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_update_leaves_a_trace(case: Case, surface: str) -> None:
    shown = SURFACES[surface](events_of(case))
    missing = [token for token in case.tokens if token.lower() not in shown.lower()]
    assert (missing == []) is (surface not in case.absent), f"{missing} in {shown}"
