"""Forms in a terminal: what counts as the answer, and what was typed too early."""

from __future__ import annotations

import io
import os
import pty
from collections.abc import Iterator
from typing import Any

import pytest
from typing_extensions import override

from quarterdeck.cli.terminal.forms import fill
from quarterdeck.cli.terminal.screen import Screen

FORM: dict[str, Any] = {
    "mode": "form",
    "message": "Where do I begin?",
    "requestedSchema": {
        "type": "object",
        "properties": {"branch": {"type": "string"}},
        "required": ["branch"],
    },
}


class QuickPerson(io.StringIO):
    """A screen whose reader answers in the moment the prompt is shown."""

    def __init__(self, keyboard: int, answer: str) -> None:
        super().__init__()
        self._keyboard = keyboard
        self._answer = answer

    @override
    def flush(self) -> None:
        if self.getvalue().endswith(" > ") and self._answer:
            os.write(self._keyboard, self._answer.encode())
            self._answer = ""


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The keyboard of a terminal that is standard input."""
    keys, typed = pty.openpty()
    with os.fdopen(typed) as stream:
        monkeypatch.setattr("sys.stdin", stream)
        yield keys
    os.close(keys)


@pytest.mark.anyio
async def test_an_answer_as_quick_as_the_prompt_is_not_dropped(keyboard: int) -> None:
    answer = await fill(Screen(QuickPerson(keyboard, "main\n")), "elicit-1", FORM)
    assert answer == {"action": "accept", "content": {"branch": "main"}}


@pytest.mark.anyio
async def test_input_typed_before_the_form_is_ignored(keyboard: int) -> None:
    os.write(keyboard, b"y\n")
    answer = await fill(Screen(QuickPerson(keyboard, "main\n")), "elicit-1", FORM)
    assert answer == {"action": "accept", "content": {"branch": "main"}}
