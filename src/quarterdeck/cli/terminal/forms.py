"""Forms of agents, filled in line by line in a terminal and validated against their schema.

The agent's text follows "The agent asks", with invisible characters spelled out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from quarterdeck.cli.terminal.keyboard import drop_typed, read_line
from quarterdeck.cli.terminal.screen import Screen
from quarterdeck.errors import AcpError
from quarterdeck.views.context.requests import (
    FormField,
    PendingForm,
    every_question_of,
    response_to,
)
from quarterdeck.views.text import visible, wrapped

DECLINED: dict[str, Any] = {"action": "decline"}


async def fill(screen: Screen, request_id: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for every field of a form and return the response; Ctrl-D declines.

    Raises:
        OSError: if the terminal is gone.
    """
    for line in opening(request):
        for part in wrapped(line, screen.width):
            screen.line(part, "request")
    fields = every_question_of(request_id, request)
    answers: dict[str, str] = {}
    for field in fields:
        answer = await _ask(screen, field)
        if answer is None:
            return DECLINED
        answers[field.id] = answer
        if (response := _response(field, answer)) == DECLINED:
            return response
    return response_to(PendingForm(request_id, fields), answers) or DECLINED


def opening(request: Mapping[str, Any]) -> Iterator[str]:
    """Return what is shown before the first field."""
    yield f"The agent asks: {visible(request.get('message', ''))}"
    if isinstance(request.get("url"), str):
        yield f"  open this link: {visible(request['url'])}"


def chosen(field: FormField, typed: str) -> str:
    """Return the answer that was typed: a number selects an option, nothing the default."""
    words = typed.strip()
    if not words:
        return field.default or ""
    options = field.options or ()
    parts = words.split(",") if field.schema.get("type") == "array" else [words]
    return ",".join(_option(options, part.strip()) for part in parts)


def _option(options: tuple[str, ...], part: str) -> str:
    is_number = part.isascii() and part.isdecimal() and part not in options
    return options[int(part) - 1] if is_number and 1 <= int(part) <= len(options) else part


async def _ask(screen: Screen, field: FormField) -> str | None:
    """Ask until the answer is valid; None if the user declines."""
    if field.label:
        for part in wrapped(f"  {visible(field.label)}", screen.width):
            screen.line(part)
    for number, option in enumerate(field.options or (), 1):
        screen.line(f"  {number} {visible(option)}")
    while True:
        drop_typed()
        screen.write(f"{hint(field)} > ", "request")
        screen.flush()
        typed = await read_line()
        if typed is None:
            screen.line()
            return None
        answer = chosen(field, typed)
        try:
            _response(field, answer)
        except AcpError as error:
            screen.line(f"  {visible(error.message)}", "warn")
        else:
            return answer


def hint(field: FormField) -> str:
    """Return what can be typed, and what an empty line means."""
    if field.default is not None:
        empty = f"Enter for {visible(field.default)}"
    elif field.is_required:
        empty = "Enter declines"
    else:
        empty = "Enter skips it"
    is_several = field.schema.get("type") == "array"
    what = "numbers or words, separated by commas" if is_several else "a number or a word"
    return f"{what}, {empty}" if field.options else empty


def _response(field: FormField, answer: str) -> dict[str, Any] | None:
    return response_to(PendingForm(field.id, (field,)), {field.id: answer})
