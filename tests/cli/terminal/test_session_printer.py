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


class Stage:
    """A session printed to a string."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.view = TextPrinter(Screen(self.stream, {}), cwd="/shop")
        self._state = initial_state("s")
        self._seq = 0

    def tell(self, kind: str, payload: Mapping[str, Any]) -> None:
        self._seq += 1
        event = make_session_event(kind, "s", seq=self._seq, ts=0, payload=dict(payload))
        self._state = reduce(self._state, event)
        self.view.event(event, self._state)

    def say(self, text: str, kind: str = "agent-message-chunk") -> None:
        self.tell(kind, {"content": {"type": "text", "text": text}, "messageId": kind})

    @property
    def text(self) -> str:
        return self.stream.getvalue()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setenv("COLUMNS", "60")
    return Stage()


def test_chunks_flow_together_and_paragraphs_stand_apart(stage: Stage) -> None:
    stage.say("hello", "user-message-chunk")
    stage.say("think", "agent-thought-chunk")
    stage.say("Hel")
    stage.say("lo.\nDone.")
    stage.tell("prompt-finished", {"stopReason": "end_turn"})
    assert stage.text == "> hello\n\nthink\n\nHello.\nDone.\n"


def test_lines_break_between_words(stage: Stage) -> None:
    stage.say("word " * 40)
    stage.view.end()
    assert all(cells(line) <= 60 for line in stage.text.splitlines())
    assert stage.text.split() == ["word"] * 40


def test_a_tool_call_is_printed_at_its_start_and_end_with_its_diff_once(stage: Stage) -> None:
    diff = {"type": "diff", "path": "/shop/a.py", "oldText": "x\n", "newText": "y\n"}
    call = {"toolCallId": "c", "title": "Edit a.py", "kind": "edit"}
    stage.tell("tool-call", {**call, "status": "pending", "content": [diff]})
    stage.tell("tool-call-update", {"toolCallId": "c", "status": "in_progress"})
    stage.tell("tool-call-update", {"toolCallId": "c", "status": "in_progress"})
    stage.tell("tool-call-update", {"toolCallId": "c", "status": "completed", "content": [diff]})
    assert stage.text.count("Edit a.py") == 3
    assert stage.text.count("+y") == 1
    assert "--- a/a.py" in stage.text


def test_a_failure_and_a_limit_are_printed(stage: Stage) -> None:
    stage.tell("prompt-finished", {"stopReason": "max_tokens"})
    stage.tell("prompt-finished", {"stopReason": "refusal", "error": {"code": 1, "message": "no"}})
    assert "the turn ended: max_tokens" in stage.text
    assert "the agent failed: no" in stage.text


def test_no_agent_text_controls_the_terminal(stage: Stage) -> None:
    evil = "\x1b]52;c;aGk=\x07\x1b[2J\u202e"
    stage.say(evil)
    stage.tell("tool-call", {"toolCallId": evil, "title": evil, "kind": evil, "status": evil})
    stage.tell("plan", {"entries": [{"content": evil, "status": evil, "priority": "low"}]})
    stage.tell("prompt-finished", {"stopReason": evil})
    stage.view.note(evil)
    assert "\x1b" not in stage.text
    assert "\u202e" not in stage.text


def test_colours_are_for_terminals_only(stage: Stage) -> None:
    class Terminal(io.StringIO):
        @override
        def isatty(self) -> bool:
            return True

    assert Screen(Terminal(), {}).painted("x", "bad") == "\x1b[31mx\x1b[0m"
    assert Screen(Terminal(), {"NO_COLOR": "1"}).painted("x", "bad") == "x"
    assert Screen(Terminal(), {"TERM": "dumb"}).painted("x", "bad") == "x"
    assert Screen(io.StringIO(), {}).painted("x", "bad") == "x"
