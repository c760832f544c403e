"""Output that agents send beside the content of a call, in all views; updates as recorded."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from quarterdeck.cli.terminal.screen import Screen
from quarterdeck.cli.terminal.session_printer import TextPrinter
from quarterdeck.protocol import (
    Event,
    decode_event,
    initial_state,
    normalize_session_update,
    reduce,
    to_json,
)
from quarterdeck.protocol.shown_events import merged_extensions, raw_output_text, reduce_shown
from quarterdeck.views.context import ContextProjector, encode_context_event
from quarterdeck.views.packets import PacketProjector

Json = dict[str, Any]


def update(status: str | None = None, **more: Any) -> Json:
    given = {"sessionUpdate": "tool_call_update", "toolCallId": "c1", **more}
    return given if status is None else {**given, "status": status}


def announced(**more: Any) -> Json:
    call = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "ls", "kind": "execute"}
    return {**call, "status": "in_progress", **more}


TERMINAL = [{"type": "terminal", "terminalId": "t1"}]
INFO = {"terminal_info": {"cwd": "/p", "terminal_id": "t1"}}
EXIT = {"terminal_exit": {"terminal_id": "t1", "exit_code": 3, "signal": None}}


QUESTION = [{"type": "content", "content": {"type": "text", "text": "Do you want to run it?"}}]


def piece(name: str, data: str) -> Json:
    return {name: {"terminal_id": "t1", "data": data}}


RECORDED: dict[str, list[Json]] = {
    "codex": [
        announced(content=TERMINAL, _meta=INFO),
        update(_meta=piece("terminal_output_delta", "mark-a\n")),
        update(
            "completed",
            name="exec_command",
            _meta={**piece("terminal_output_delta", "mark-b\n"), **EXIT},
        ),
    ],
    "codex, without a terminal in the content": [
        announced(kind="read"),
        update(
            "failed",
            rawOutput={"exit_code": 1},
            _meta=piece("terminal_output_delta", "mark-a\nmark-b\n"),
        ),
    ],
    "pi": [
        announced(content=TERMINAL, _meta=INFO),
        update("in_progress", _meta=piece("terminal_output", "mark-a\n")),
        update("in_progress", _meta=piece("terminal_output", "mark-b\n")),
        update("completed", _meta=EXIT),
    ],
    "claude": [
        announced(
            content=TERMINAL, name="Bash", _meta={"claudeCode": {"toolName": "Bash"}, **INFO}
        ),
        update(_meta=piece("terminal_output", "mark-a\nmark-b")),
        update("failed", _meta={"claudeCode": {"toolName": "Bash"}, **EXIT}),
    ],
    "cline": [
        announced(),
        update("completed", rawOutput=[{"query": "ls", "result": "mark-a\nmark-b\n"}]),
    ],
    "cline, patch": [
        announced(kind="edit"),
        update("completed", rawOutput={"query": "p", "result": "mark-a\nmark-b", "success": True}),
    ],
    "copilot": [
        announced(kind="read"),
        update("failed", rawOutput={"message": "mark-a mark-b", "code": "failure"}),
    ],
    "pi, write": [
        announced(
            kind="edit",
            status="completed",
            rawOutput={"content": [{"type": "text", "text": "mark-a mark-b"}], "isError": False},
        )
    ],
    "codex-zed, with the question as content": [
        announced(status="pending", content=QUESTION),
        announced(),
        update(content=QUESTION),
        update(
            "failed",
            rawOutput={
                "stdout": "mark-a\nmark-b\n",
                "stderr": "",
                "aggregated_output": "mark-a\nmark-b\n",
            },
        ),
    ],
    "only an error output": [
        announced(),
        update("failed", rawOutput={"stdout": "", "stderr": "mark-a mark-b", "exit_code": 1}),
    ],
    "a text": [announced(), update("completed", rawOutput="mark-a mark-b")],
    "raw output before the end": [
        announced(),
        update(rawOutput={"stdout": "mark-a\n", "stderr": "mark-b"}),
        update("completed"),
    ],
}


def events(updates: Sequence[Json]) -> Iterator[Event]:
    bounds: list[Json] = [
        {"type": "session-status-change", "payload": {"status": "active"}},
        {"type": "session-status-change", "payload": {"status": "prompting"}},
    ]
    for each in updates:
        normal = normalize_session_update(each)
        one: Json = {"type": normal.type, "payload": normal.payload}
        bounds.append(
            one if normal.extensions is None else {**one, "extensions": normal.extensions}
        )
    bounds.append({"type": "prompt-finished", "payload": {"stopReason": "end_turn"}})
    for seq, each in enumerate(bounds, 1):
        yield decode_event({"sessionId": "s", "seq": seq, "ts": seq, **each})


@pytest.mark.parametrize("agent", RECORDED)
@pytest.mark.parametrize("view", ["state", "terminal", "context", "packets"])
def test_output_is_shown_whichever_way_it_is_sent(agent: str, view: str) -> None:
    text = VIEWS[view](list(events(RECORDED[agent])))
    for mark in ("mark-a", "mark-b"):
        assert text.count(mark) >= 1, text


@pytest.mark.parametrize(
    "updates",
    [
        [announced(), update("completed", content=QUESTION, rawOutput="mark-a")],
        [
            announced(content=[{"type": "content", "content": {"type": "text", "text": "mark-a"}}]),
            update("completed", rawOutput={"stdout": " mark-a\n"}),
        ],
        [announced(kind="read", content=QUESTION), update("completed", rawOutput="mark-a")],
        [announced(content=TERMINAL), update("completed", rawOutput="mark-a")],
    ],
    ids=["content with the end", "the same text", "not a command", "a terminal"],
)
def test_raw_output_is_not_added_to_content_that_has_it(updates: list[Json]) -> None:
    shown = initial_state("s")
    for event in events(updates):
        shown = reduce_shown(shown, event)
    (call,) = shown.tool_calls.values()
    assert len(call.content) == 1


def _state(log: list[Event]) -> str:
    state = initial_state("s")
    for event in log:
        state = reduce_shown(state, event)
    (call,) = to_json(state)["toolCalls"].values()
    shown = [str(part.get("content")) for part in call["content"]]
    named = [part["terminalId"] for part in call["content"] if part["type"] == "terminal"]
    return "\n".join([*shown, *(to_json(state)["terminals"][each]["output"] for each in named)])


def _terminal(log: list[Event]) -> str:
    file = io.StringIO()
    printer, state = TextPrinter(Screen(file), cwd="/p"), initial_state("s")
    for event in log:
        state = reduce_shown(state, event)
        printer.event(event, state)
    printer.end()
    return file.getvalue()


def _context(log: list[Event]) -> str:
    projector = ContextProjector({"sessionId": "s", "cwd": "/p"})
    found = [each for event in log for each in projector.feed(event)]
    return "\n".join(encode_context_event(each).decode() for each in found)


def _packets(log: list[Event]) -> str:
    projector = PacketProjector("s")
    return "\n".join(str(packet) for event in log for packet in projector.feed(event))


VIEWS = {"state": _state, "terminal": _terminal, "context": _context, "packets": _packets}


def test_name_and_meta_of_a_call_outlive_updates_with_extensions() -> None:
    log = events(
        [
            announced(name="Bash", _meta={"vendor": {"id": 7}, **INFO}),
            update(_meta={"other": 1, **piece("terminal_output", "x")}),
            update("completed", _meta={"vendor": {"id": 8}}),
        ]
    )
    state = initial_state("s")
    for event in log:
        state = reduce_shown(state, event)
    (call,) = to_json(state)["toolCalls"].values()
    assert call["extensions"]["name"] == "Bash"
    assert call["extensions"]["_meta"] == {"vendor": {"id": 8}, "other": 1, **INFO}


def test_a_call_that_sends_its_content_is_shown_as_it_is() -> None:
    shown = [{"type": "content", "content": {"type": "text", "text": "shown"}}]
    log = list(events([announced(), update("completed", content=shown, rawOutput="raw")]))
    one = other = initial_state("s")
    for event in log:
        one, other = reduce(one, event), reduce_shown(other, event)
    assert to_json(one) == to_json(other)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from(["content", "rawOutput", "status", "_meta", "name", "terminal_output"]), JSON
)
METAS = st.dictionaries(
    st.sampled_from(["terminal_output", "terminal_output_delta", "terminal_exit", "x"]),
    JSON | st.dictionaries(st.sampled_from(["terminal_id", "data", "exit_code"]), JSON),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(FIELDS, METAS), max_size=3))
def test_any_update_is_accepted_and_all_but_what_is_added_is_as_documented(
    given_updates: list[tuple[Json, Json]],
) -> None:
    updates = [{**update(), "_meta": meta, **fields} for fields, meta in given_updates]
    documented = shown = initial_state("s")
    log = list(events([announced(), *updates]))
    for event in log:
        documented, shown = reduce(documented, event), reduce_shown(shown, event)
    one, other = to_json(documented), to_json(shown)
    for plain in (one, other):
        for call in plain["toolCalls"].values():
            call.pop("content")
            call.pop("extensions", None)
        plain.pop("terminals")
    assert one == other
    for view in (_terminal, _context, _packets):
        view(log)


@given(JSON)
def test_any_raw_output_has_a_text(raw: Any) -> None:
    assert bool(raw_output_text(raw)) == (raw not in (None, "", [], {}))


def test_our_own_marks_are_not_inherited() -> None:
    before = {"name": "x", "quarterdeck": {"added": "y"}}
    assert merged_extensions(before, {"_meta": {}}) == {"name": "x", "_meta": {}}
