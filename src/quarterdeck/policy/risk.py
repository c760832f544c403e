"""The risk of a whole call: its commands, its files, and what could not be inspected; pure.

`quarterdeck.policy.risk_findings` rates command lines and tools. Here a call is rated by everything
that it says (`Call.reading`), so that a second command, a nested path or a variable counts. What
cannot be inspected has a high risk: the person who decides sees only what the agent says about it.
"""

from __future__ import annotations

from typing import Final

from quarterdeck.policy.call import Call, Reading
from quarterdeck.policy.destructive import destructive_name, destructive_text
from quarterdeck.policy.risk_findings import (
    ASSIGNS,
    DESTROYS,
    HIGH,
    MEDIUM,
    NOT_UNDERSTOOD,
    Finding,
    Risk,
    RiskRule,
    explain_findings,
    findings_of_commands,
    findings_of_line,
    findings_of_tool,
)
from quarterdeck.policy.tools import canonical_name

NOT_INSPECTABLE: Final = "Cannot be inspected: the input does not show what the tool does"
_NOT_SHOWN: Final = RiskRule(HIGH, NOT_INSPECTABLE)
_OF_TURN: Final = RiskRule(MEDIUM, "the request shows nothing; found in the open calls of its turn")
_MOST_PATHS: Final = 20
_WITHOUT_EFFECT: Final = frozenset(
    {"Task", "TodoWrite", "TodoRead", "Think", "ExitPlanMode", "AskUserQuestion"}
)
"""Tools that change nothing outside the agent."""


def assess_risk(call: Call) -> Risk:
    """Return how risky a call is, and why."""
    reading = call.reading
    found: list[Finding] = []
    lines = _lines(call)
    if len(lines) > 1 and reading.command_line is not None and reading.is_readable:
        # Read once for all lines, and for rules: so many lines take no longer than one.
        found += findings_of_commands(reading.command_line, "\n".join(lines))
    else:
        found += [each for line in lines for each in findings_of_line(line)]
    if reading.source == "turn":
        found += [each for inner in call.open_calls for each in _of_tool(inner)]
        found.append((_OF_TURN, "", ()))
    elif not found or reading.paths:
        found += _of_tool(call)
    if reading.variables:
        found.append((ASSIGNS, "", reading.variables[:_MOST_PATHS]))
    if destructive_name(call.name) or any(map(destructive_text, reading.queries[:_MOST_PATHS])):
        found.append((DESTROYS, call.name, (call.name,)))
    if reading.unknown and reading.is_readable:
        found.append((NOT_UNDERSTOOD, "", reading.unknown[:_MOST_PATHS]))
    if not reading.is_readable and not _has_no_effect(call, reading):
        return _not_inspectable(found)
    return explain_findings(found)


def _not_inspectable(found: list[Finding]) -> Risk:
    """Return at least a high risk: what was found is not known to be all."""
    risk = explain_findings([*found, (_NOT_SHOWN, "", ())])
    return Risk(risk.level, NOT_INSPECTABLE)


def _lines(call: Call) -> tuple[str, ...]:
    """Return the command lines that are short enough to be read; of a title, the title."""
    reading = call.reading
    if reading.source == "title":
        return (call.title,) if reading.commands else ()
    line = reading.command_line
    return call.commands if line is not None and (line.commands or line.is_complete) else ()


def _of_tool(call: Call) -> list[Finding]:
    if call.reading.command_line is not None and not call.reading.paths:
        return []
    paths = call.reading.paths[:_MOST_PATHS]
    return findings_of_tool(call.name, call.kind, paths, is_write=call.reading.is_write)


def _has_no_effect(call: Call, reading: Reading) -> bool:
    if reading.command_line is not None or reading.is_write:
        return False
    if not call.is_named_by_title and canonical_name(call.name) in _WITHOUT_EFFECT:
        return True
    return call.kind in ("think", "switch_mode") and not reading.unknown
