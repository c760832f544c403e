"""A session in words, as it comes."""

import io
from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from quarterdeck.cli.terminal.screen import Screen
from quarterdeck.cli.terminal.session_printer import TextPrinter
from quarterdeck.protocol import initial_state, make_session_event, reduce
from quarterdeck.views.text import cells


class PrintedSession:
    """A session printed to a string."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.view = TextPrinter(Screen(self.stream, {}), cwd="/shop")
        self._state = initial_state("s")
        self._seq = 0

    def add(self, kind: str, payload: Mapping[str, Any], added: str = "") -> None:
        self._seq += 1
        ours = {"quarterdeck": {"added": added}} if added else None
        event = make_session_event(
            kind, "s", seq=self._seq, ts=0, payload=dict(payload), extensions=ours
        )
        self._state = reduce(self._state, event)
        self.view.event(event, self._state)

    def say(self, text: str, kind: str = "agent-message-chunk") -> None:
        self.add(kind, {"content": {"type": "text", "text": text}, "messageId": kind})

    @property
    def text(self) -> str:
        return self.stream.getvalue()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> PrintedSession:
    monkeypatch.setenv("COLUMNS", "60")
    return PrintedSession()


def test_chunks_flow_together_and_paragraphs_stand_apart(session: PrintedSession) -> None:
    session.say("hello", "user-message-chunk")
    session.say("think", "agent-thought-chunk")
    session.say("Hel")
    session.say("lo.\nDone.")
    session.add("prompt-finished", {"stopReason": "end_turn"})
    assert session.text == "> hello\n\nthink\n\nHello.\nDone.\n"


def test_lines_break_between_words(session: PrintedSession) -> None:
    session.say("word " * 40)
    session.view.end()
    assert all(cells(line) <= 60 for line in session.text.splitlines())
    assert session.text.split() == ["word"] * 40


def test_a_tool_call_is_printed_at_its_start_and_end_with_its_diff_once(
    session: PrintedSession,
) -> None:
    diff = {"type": "diff", "path": "/shop/a.py", "oldText": "x\n", "newText": "y\n"}
    call = {"toolCallId": "c", "title": "Edit a.py", "kind": "edit"}
    session.add("tool-call", {**call, "status": "pending", "content": [diff]})
    session.add("tool-call-update", {"toolCallId": "c", "status": "in_progress"})
    session.add("tool-call-update", {"toolCallId": "c", "status": "in_progress"})
    session.add("tool-call-update", {"toolCallId": "c", "status": "completed", "content": [diff]})
    assert session.text.count("Edit a.py") == 3
    assert session.text.count("+y") == 1
    assert "--- a/a.py" in session.text


def test_the_update_that_repeats_a_request_is_not_printed(session: PrintedSession) -> None:
    diff = {"type": "diff", "path": "/shop/a.py", "oldText": "x\n", "newText": "y\n"}
    call = {"toolCallId": "c", "title": "Edit a.py", "kind": "edit", "status": "pending"}
    session.add("tool-call", call)
    session.add("tool-call-update", {"toolCallId": "c", "content": [diff]}, added="in the request")
    options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]
    request = {"requestId": "perm-1", "toolCall": {**call, "content": [diff]}, "options": options}
    session.add("permission-request-created", request)
    assert session.text.count("+y") == 1


def test_a_failure_and_a_limit_are_printed(session: PrintedSession) -> None:
    session.add("prompt-finished", {"stopReason": "max_tokens"})
    session.add("prompt-finished", {"stopReason": "refusal", "error": {"code": 1, "message": "no"}})
    assert "the turn ended: max_tokens" in session.text
    assert "the agent failed: no" in session.text


def test_no_agent_text_controls_the_terminal(session: PrintedSession) -> None:
    evil = "\x1b]52;c;aGk=\x07\x1b[2J\u202e"
    session.say(evil)
    session.add("tool-call", {"toolCallId": evil, "title": evil, "kind": evil, "status": evil})
    session.add("plan", {"entries": [{"content": evil, "status": evil, "priority": "low"}]})
    session.add("prompt-finished", {"stopReason": evil})
    session.view.note(evil)
    assert "\x1b" not in session.text
    assert "\u202e" not in session.text


def test_colours_are_for_terminals_only(session: PrintedSession) -> None:
    class Terminal(io.StringIO):
        @override
        def isatty(self) -> bool:
            return True

    assert Screen(Terminal(), {}).painted("x", "bad") == "\x1b[31mx\x1b[0m"
    assert Screen(Terminal(), {"NO_COLOR": "1"}).painted("x", "bad") == "x"
    assert Screen(Terminal(), {"TERM": "dumb"}).painted("x", "bad") == "x"
    assert Screen(io.StringIO(), {}).painted("x", "bad") == "x"


def test_a_request_is_printed_with_the_diff_that_was_announced_before_it(
    session: PrintedSession,
) -> None:
    diff = {"type": "diff", "path": "a.py", "oldText": None, "newText": "made\n"}
    call = {"toolCallId": "c", "title": "Edit", "kind": "edit"}
    session.add("tool-call", {**call, "status": "pending", "content": [diff]})
    asked = {"requestId": "perm-1", "toolCall": call, "options": []}
    session.add("permission-request-created", asked)
    assert "no details" not in session.text
    assert session.text.count("+made") == 2


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "content", "content": {"type": "text", "text": text}}]}


def _update(session: PrintedSession, text: str, status: str = "in_progress") -> None:
    session.add("tool-call-update", {"toolCallId": "c", "status": status, **_text(text)})


def test_arguments_that_grow_are_not_printed_again_and_again(session: PrintedSession) -> None:
    """As kimi sends them while its model writes; the command's output then replaces them."""
    session.add(
        "tool-call", {"toolCallId": "c", "title": "Write", "status": "pending", **_text("")}
    )
    arguments = '{"path": "/shop/a.py", "content": "x"}'
    for length in range(10, len(arguments)):
        _update(session, arguments[:length])
    _update(session, "Wrote 1 byte", "completed")
    assert session.text == (
        ". other: Write (pending)\n"
        "> in_progress: Write\n"
        '    | {"path": "\n'
        "x completed: Write\n"
        "    | Wrote 1 byte\n"
    )


def test_output_that_grows_is_printed_line_by_line(session: PrintedSession) -> None:
    session.add("tool-call", {"toolCallId": "c", "title": "seq", "status": "in_progress"})
    written = [str(number) for number in range(1, 41)]
    for count in range(1, 41):
        _update(session, "\n".join(written[:count]))
    _update(session, "\n".join(written), "completed")
    lines = session.text.splitlines()
    assert [line for line in lines if "seq" in line] == ["> other: seq", "x completed: seq"]
    shown = [line.removeprefix("    | ") for line in lines if line.startswith("    | ")]
    assert shown == [*written[:12], "and 1 more line", "and 28 more lines"]


def test_a_line_that_was_cut_is_printed_again_when_it_is_complete(session: PrintedSession) -> None:
    session.add("tool-call", {"toolCallId": "c", "title": "make", "status": "in_progress"})
    for text in ("comp", "compiling", "compiling a.c", "compiling a.c\ndone"):
        _update(session, text)
    session.add("tool-call-update", {"toolCallId": "c", "status": "completed"})
    body = session.text.splitlines()[1:]
    assert body == ["    | comp", "    | compiling a.c", "    | done", "x completed: make"]


def test_output_after_something_else_says_whose_it_is(session: PrintedSession) -> None:
    session.add("tool-call", {"toolCallId": "c", "title": "make", "status": "in_progress"})
    _update(session, "one")
    session.say("Meanwhile.")
    _update(session, "one\ntwo")
    assert session.text.splitlines() == [
        *("> other: make", "    | one", "Meanwhile.", "", "> in_progress: make", "    | two")
    ]


def test_content_that_is_replaced_is_printed_whole(session: PrintedSession) -> None:
    session.add("tool-call", {"toolCallId": "c", "title": "make", "status": "in_progress"})
    _update(session, "one\ntwo")
    _update(session, "three\ntwo")
    lines = [line for line in session.text.splitlines() if "|" in line]
    assert lines == ["    | one", "    | two", "    | three", "    | two"]


def test_a_long_request_offers_no_key_where_there_is_none(session: PrintedSession) -> None:
    call = {"toolCallId": "c", "title": "run", "rawInput": {"command": "x\n" * 40}}
    session.add("permission-request-created", {"requestId": "p", "toolCall": call, "options": []})
    assert "lines not shown; `show --as events --json` has them" in session.text
    assert "press d" not in session.text


def test_a_call_without_a_kind_is_of_another_kind(session: PrintedSession) -> None:
    session.add("tool-call", {"toolCallId": "c", "title": "Execute", "kind": None})
    assert session.text == ". other: Execute\n"
