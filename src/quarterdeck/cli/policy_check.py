"""What the rules of a configuration decide about calls, for `quarterdeck policy check`.

An answer has the decision, the rule, the reason, and the reading that they are based on. A call is
given as a command, as a tool call of ACP, as the permission request around one, or as a tool's name
with its input.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from quarterdeck.cli.arguments import DONE
from quarterdeck.cli.config import load_config
from quarterdeck.cli.terminal.screen import Screen
from quarterdeck.errors import JsonInvalid, Misused
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.policy import (
    Call,
    CommandLine,
    Decision,
    Policy,
    assess_risk,
    decide,
    read_call,
    words_to_spell,
)
from quarterdeck.policy.json_text import every_value_of, is_repeating
from quarterdeck.protocol.tool_calls import requested
from quarterdeck.views.text import plain

_REQUEST_KEYS: Final = ("params", "toolCall")
_CALL_KEYS: Final = frozenset({"toolCallId", "rawInput", "kind", "content", "locations", "title"})
_WANTED: Final = 'send {"command": "…"}, or a tool call with its rawInput'
_LONGEST: Final = 16 << 20  # bytes of one line


class _NotACall(Exception):
    """Raised for a line that describes no call."""


def run_policy(chosen: Namespace) -> int:
    if chosen.action is None:
        raise Misused("policy needs an action; try quarterdeck policy check 'git status'")
    if chosen.stdin == (chosen.command is not None):
        raise Misused("pass either a command or --stdin; see quarterdeck policy check --help")
    config = load_config(os.environ, chosen.config)
    checker = PolicyChecker(
        Policy(rule=config.policy.rule),
        workspace=str((chosen.workspace or Path.cwd()).absolute()),
        agent=chosen.agent,
    )
    if chosen.stdin:
        for line in _lines():
            sys.stdout.buffer.write(encode_json(checker.answer(line)) + b"\n")
            sys.stdout.buffer.flush()
        return DONE
    answer = checker.check({"command": chosen.command})
    if chosen.json:
        sys.stdout.buffer.write(encode_json(answer) + b"\n")
    else:
        _show(Screen(sys.stdout), answer)
    return DONE


def _lines() -> Iterator[bytes]:
    """Yield the lines of standard input; one that is too long is yielded in part."""
    stream = sys.stdin.buffer
    while line := stream.readline(_LONGEST + 1):
        yield line
        while len(line) > _LONGEST and not line.endswith(b"\n"):
            line = stream.readline(_LONGEST + 1)


class PolicyChecker:
    """Answers what one policy decides about calls in one workspace."""

    def __init__(self, policy: Policy, *, workspace: str, agent: str | None = None) -> None:
        self._policy = policy
        self._workspace = workspace
        self._agent = agent

    def answer(self, line: bytes) -> dict[str, Any]:
        """Answer a line of JSON; whatever is wrong with it is the answer."""
        try:
            return self.check(_decoded(line))
        except _NotACall as error:
            return {"error": str(error)}
        except JsonInvalid as error:
            return {"error": f"the line is {error}; {_WANTED}"}
        except Exception as error:  # noqa: BLE001 - one bad line must not end the others
            return {"error": f"the call cannot be read ({type(error).__name__}); {_WANTED}"}

    def check(self, given: Any) -> dict[str, Any]:
        """Return what the policy decides about a call, and why."""
        call = _call_of(given)
        decision = decide(self._policy, call, workspace=self._workspace, agent=self._agent)
        risk = assess_risk(call)
        return {
            "decision": decision.decision,
            "rule": decision.rule,
            "reason": decision.reason,
            "reading": _reading(decision, call),
            "risk": {"level": risk.level, "reason": risk.reason},
        }


def _decoded(line: bytes) -> Any:
    if len(line) > _LONGEST:
        raise _NotACall(f"the line is longer than {_LONGEST:,} bytes; send a shorter one")
    decode_json(line)  # raises for what the hub does not read
    text = line.decode("utf-8-sig", "replace")
    try:
        found = every_value_of(text)
    except (ValueError, RecursionError):
        return decode_json(line)
    return {"kind": "execute", "rawInput": found} if is_repeating(found) else found


def _call_of(given: Any) -> Call:
    if not isinstance(given, Mapping):
        raise _NotACall(f"the line is not a JSON object; {_WANTED}")
    for key in _REQUEST_KEYS:
        if isinstance(given.get(key), Mapping):
            given = given[key]
    if isinstance(given.get("name"), str) and "input" in given:
        kind = given.get("kind")
        return Call(given["name"], given["input"], kind=kind if isinstance(kind, str) else None)
    if "rawInput" in given or "toolCallId" in given:
        return read_call(requested(None, given, 0), given)
    if any(key in given for key in ("command", "cmd", "script", "commands")):
        return Call("Bash", dict(given), kind="execute")
    if _CALL_KEYS & set(given):
        return read_call(requested(None, given, 0), given)
    raise _NotACall(f"the object describes no call; {_WANTED}")


def _reading(decision: Decision, call: Call) -> dict[str, Any]:
    reading = decision.reading
    found: dict[str, Any] = {"isComplete": reading.is_complete, "paths": list(reading.paths)}
    if reading.query is not None:
        found["query"] = reading.query
    line = reading.command_line
    if line is not None:
        found |= _line_reading(line)
        found["folder"] = reading.folder
    return found


def _line_reading(line: CommandLine) -> dict[str, Any]:
    is_understood = line.understood is not None
    commands = line.commands if line.understood is None else line.understood
    return {
        "isUnderstood": is_understood,
        "obstacle": line.obstacle,
        "commands": [[*each.assignments, *each.words] for each in commands],
        "writes": [path for each in commands for path in each.writes],
        "mustSpell": words_to_spell(line),
    }


def _show(screen: Screen, answer: Mapping[str, Any]) -> None:
    reading, risk = answer["reading"], answer["risk"]
    style = {"allow": "good", "deny": "bad"}.get(answer["decision"], "warn")
    screen.write(answer["decision"], style)
    screen.line("" if answer["rule"] is None else f"  {plain(answer['rule'])}")
    screen.line(f"reason   {plain(answer['reason'])}")
    for words in reading.get("commands", ()):
        screen.line(f"command  {plain(' '.join(words))}")
    for path in reading.get("writes", ()):
        screen.line(f"writes   {plain(path)}")
    screen.line(f"risk     {risk['level']}: {plain(risk['reason'])}")
