"""The little language that tells the model `demo` what to do.

| line | what the model does |
| --- | --- |
| `/think TEXT` | thinks it, before what it says |
| `/say TEXT` | says it, with a line break behind it |
| `/tool NAME {JSON}` | calls a tool, then goes on with the next line |
| `/also NAME {JSON}` | calls another tool in the same answer |
| `/wait SECONDS` | is silent for so long before it answers |
| `/stop length` or `/stop refusal` | ends like that |
| `/fail REASON` | fails: `server`, `rate_limit`, `context`, ... |
| `/recall` | says what it remembers of earlier prompts |

An answer ends behind its tools; what follows belongs to the next. Other lines are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from quarterdeck.agent.builtin.model import FAILURES
from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json

VERBS = ("/think", "/say", "/tool", "/also", "/wait", "/stop", "/fail", "/recall")


@dataclass(frozen=True)
class Step:
    """One answer of the model."""

    thought: str = ""
    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    wait_seconds: float = 0.0
    failure: str | None = None
    stop: Literal["stop", "length", "refusal"] = "stop"


def read_script(text: str, recall: Callable[[], str]) -> list[Step]:
    """Return the answers a prompt asks for; none if it has no line of the language."""
    steps: list[Step] = []
    current: Step | None = None
    for line in text.splitlines():
        verb, _, rest = line.strip().partition(" ")
        if verb not in VERBS:
            continue
        if current is not None and current.calls and verb != "/also":
            steps.append(current)
            current = None
        current = _with(current or Step(), verb, rest, recall)
    if current is not None:
        steps.append(current)
    if steps and steps[-1].calls:
        steps.append(Step(text="Done.\n"))
    return steps


def _with(step: Step, verb: str, rest: str, recall: Callable[[], str]) -> Step:
    match verb:
        case "/think":
            return replace(step, thought=f"{step.thought}{rest}\n")
        case "/say":
            return replace(step, text=f"{step.text}{rest}\n")
        case "/recall":
            return replace(step, text=f"{step.text}{recall()}\n")
        case "/wait":
            return replace(step, wait_seconds=_number(rest))
        case "/stop" if rest in ("length", "refusal"):
            return replace(step, stop=cast("Literal['length', 'refusal']", rest))
        case "/fail" if rest in FAILURES:
            return replace(step, failure=rest)
        case "/tool" | "/also":
            return _with_call(step, rest)
        case _:
            return replace(step, text=f"{step.text}I do not understand: {verb} {rest}\n")


def _with_call(step: Step, rest: str) -> Step:
    name, _, written = rest.strip().partition(" ")
    try:
        arguments = decode_json(written or "{}")
    except JsonInvalid as error:
        return replace(step, text=f"{step.text}I cannot read the arguments of {name}: {error}\n")
    if not isinstance(arguments, dict):
        return replace(step, text=f"{step.text}The arguments of {name} must be an object.\n")
    return replace(step, calls=(*step.calls, (name, arguments)))


def _number(text: str) -> float:
    try:
        return max(float(text), 0.0)
    except ValueError:
        return 0.0
