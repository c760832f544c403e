"""Forms of agents, filled in line by line in a terminal; every line is held against the form.

What an agent wrote stands behind "the agent asks", and what cannot be seen is spelled out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from quarterdeck.cli.keyboard import drop_typed, read_line
from quarterdeck.cli.screen import Screen
from quarterdeck.cli.text import visible, wrapped
from quarterdeck.dialects.context import (
    PendingQuestion,
    Question,
    every_question_of,
    response_to,
)
from quarterdeck.errors import AcpError

DECLINED: dict[str, Any] = {"action": "decline"}


async def fill(screen: Screen, request_id: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Ask everything a form asks, and return the answer; Ctrl-D declines.

    Raises:
        OSError: if the terminal is gone.
    """
    for line in opening(request):
        for part in wrapped(line, screen.width):
            screen.line(part, "question")
    questions = every_question_of(request_id, request)
    answers: dict[str, str] = {}
    for question in questions:
        answer = await _ask(screen, question)
        if answer is None:
            return DECLINED
        answers[question.id] = answer
        if (response := _response(question, answer)) == DECLINED:
            return response
    return response_to(PendingQuestion(request_id, questions), answers) or DECLINED


def opening(request: Mapping[str, Any]) -> Iterator[str]:
    """Say what is asked before the first field."""
    yield f"The agent asks: {visible(request.get('message', ''))}"
    if isinstance(request.get("url"), str):
        yield f"  it wants you to visit {visible(request['url'])}"


def chosen(question: Question, typed: str) -> str:
    """Return what was meant: numbers stand for options, nothing for the default."""
    words = typed.strip()
    if not words:
        return question.default or ""
    options = question.options or ()
    parts = words.split(",") if question.schema.get("type") == "array" else [words]
    return ",".join(_option(options, part.strip()) for part in parts)


def _option(options: tuple[str, ...], part: str) -> str:
    is_number = part.isascii() and part.isdecimal() and part not in options
    return options[int(part) - 1] if is_number and 1 <= int(part) <= len(options) else part


async def _ask(screen: Screen, question: Question) -> str | None:
    """Ask until an answer fits; None if there will be none."""
    if question.label:
        for part in wrapped(f"  {visible(question.label)}", screen.width):
            screen.line(part)
    for number, option in enumerate(question.options or (), 1):
        screen.line(f"  {number} {visible(option)}")
    while True:
        drop_typed()
        screen.write(f"{hint(question)} > ", "question")
        screen.flush()
        typed = await read_line()
        if typed is None:
            screen.line()
            return None
        answer = chosen(question, typed)
        try:
            _response(question, answer)
        except AcpError as error:
            screen.line(f"  {visible(error.message)}", "warn")
        else:
            return answer


def hint(question: Question) -> str:
    """Say what may be typed, and what an empty line means."""
    if question.default is not None:
        empty = f"Enter for {visible(question.default)}"
    elif question.is_required:
        empty = "Enter declines"
    else:
        empty = "Enter leaves it out"
    is_several = question.schema.get("type") == "array"
    what = "numbers or words, with commas" if is_several else "a number or a word"
    return f"{what}, {empty}" if question.options else empty


def _response(question: Question, answer: str) -> dict[str, Any] | None:
    return response_to(PendingQuestion(question.id, (question,)), {question.id: answer})
