"""What a policy decides about a call, by which rule, and why; pure.

The rules that apply to the session are merged by what they decide, because the commands of one line
may match different rules. Rules that deny are checked first. A call that may match one of them but
cannot be read completely is never allowed. Otherwise a rule that allows decides, or a person.

A call may be of several kinds at once: a command with a URL beside it. Rules have to allow all of
them, and one that is denied is enough.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import PurePosixPath
from typing import Final, Literal, TypeAlias

from msgspec.structs import replace

from quarterdeck.policy.call import Call, Reading
from quarterdeck.policy.command_line import CommandLine
from quarterdeck.policy.command_rules import allows_line, words_to_spell
from quarterdeck.policy.globs import relative_path
from quarterdeck.policy.rules import KINDS, Denial, Patterns, Policy, Rule
from quarterdeck.policy.simple_command import SimpleCommand

DecisionKind: TypeAlias = Literal["allow", "deny", "ask"]
_NamedRule: TypeAlias = tuple[Rule, str]
_MOST_NAMED: Final = 3  # keys in a reason
_MOST_JUDGED: Final = 16  # commands of a line, to name the one that no rule allows
_MOST_WORDS: Final = 200  # of a line, to name its words that act
_NOT_UNDERSTOOD: Final = "The command line is not fully understood: it contains {}."


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The decision of a policy about one call."""

    decision: DecisionKind
    rule: str | None
    """The name of the rule that decided; several names if it took several; None for "ask"."""
    reading: Reading
    """What the decision is based on."""
    reason: str
    """Why, in one sentence."""


def decide(policy: Policy, call: Call, *, workspace: str, agent: str | None = None) -> Decision:
    """Decide a call of a session that works in the folder `workspace`.

    `agent` is the name under which the session's agent is configured: a rule may be limited to one.
    """
    reading = _in_workspace(call.reading, workspace)
    applying = [
        (rule, rule.name or f"rule {number}")
        for number, rule in enumerate(policy.rule, 1)
        if _applies(rule, agent, workspace)
    ]
    denying = [named for named in applying if named[0].decision == "deny"]
    allowing = [named for named in applying if named[0].decision == "allow"]
    denial = _denies(_merged(tuple(denying)), reading, workspace)
    if denial == "deny":
        alone = [name for rule, name in denying if _denies(rule, reading, workspace) == "deny"]
        return _decision("deny", alone, denying, reading)
    is_allowed = reading.is_whole and _allows(_merged(tuple(allowing)), reading, workspace)
    if denial is None and is_allowed:
        alone = [] if len(allowing) == 1 else _allowing_alone(allowing, reading, workspace)
        return _decision("allow", alone, allowing, reading)
    reason = _why_ask(denial, reading)
    if reading.command_line is not None:
        found = _obstacle(_merged(tuple(allowing)), reading, reading.command_line, workspace)
        reason = f"{reason} {found}" if found else reason
    return Decision(decision="ask", rule=None, reading=reading, reason=reason)


def _allowing_alone(rules: Sequence[_NamedRule], reading: Reading, workspace: str) -> list[str]:
    """Return the first rule that allows a call without the others, if there is one."""
    names = (name for rule, name in rules if _allows(rule, reading, workspace))
    return list(islice(names, 1))


def _decision(
    decision: Literal["allow", "deny"],
    alone: Sequence[str],
    rules: Sequence[_NamedRule],
    reading: Reading,
) -> Decision:
    """Name the first rule that decides alone; if none does, all, because they match together."""
    name = alone[0] if alone else ", ".join(name for _, name in rules)
    verb = "Allowed" if decision == "allow" else "Denied"
    return Decision(decision=decision, rule=name, reading=reading, reason=f"{verb} by {name}.")


def _denies(rule: Rule, reading: Reading, workspace: str) -> Denial | None:
    kinds = [kind for kind in KINDS.values() if kind.applies(reading)]
    found = {kind.denies(rule, reading, workspace) for kind in kinds}
    if "deny" in found:
        return "deny"
    return "ask" if "ask" in found else None


def _allows(rule: Rule, reading: Reading, workspace: str) -> bool:
    """Return whether a rule allows every kind of which the call is."""
    allowed = {
        name: kind.allows(rule, reading, workspace)
        for name, kind in KINDS.items()
        if kind.applies(reading)
    }
    if reading.is_search and reading.is_read and not reading.is_fetch:
        # Searching files is a read and a search: either allows it.
        allowed["reads"] = allowed["searches"] = allowed["reads"] or allowed["searches"]
    return bool(allowed) and all(allowed.values())


def _in_workspace(reading: Reading, workspace: str) -> Reading:
    """Count a folder outside the workspace as a path: what the call does depends on it."""
    if reading.command_line is not None or not reading.folders:
        return reading
    outside = [each for each in reading.folders if relative_path(f"{each}/x", workspace)[0] == "/"]
    return dataclasses.replace(reading, paths=(*reading.paths, *outside)) if outside else reading


def _why_ask(denial: Denial | None, reading: Reading) -> str:
    if reading.source == "turn":
        return "The request shows nothing; the open calls of its turn do not prove what it is for."
    if reading.source == "title":
        return "Only the agent's title describes the command."
    if not reading.is_readable:
        return "The input does not show what the call does."
    if reading.unknown:
        names = ", ".join(visible_name(each) for each in reading.unknown[:_MOST_NAMED])
        return f"Not understood in the input: {names}."
    if denial == "ask":
        return "A rule that denies may match, but the call could not be read completely."
    if not reading.is_complete:
        return "The call could not be read completely."
    if reading.variables:
        names = ", ".join(visible_name(each.partition("=")[0]) for each in reading.variables[:3])
        return f"The call sets variables that no list of harmless ones has: {names}."
    return "No rule matches."


def _obstacle(rule: Rule, reading: Reading, line: CommandLine, workspace: str) -> str | None:
    """Say what keeps a rule from allowing a command, beyond that none matches."""
    if line.understood is None:
        is_named = line.obstacle is not None and reading.is_readable
        return _NOT_UNDERSTOOD.format(_visible_text(line.obstacle or "")) if is_named else None
    outside = [each for each in reading.folders if relative_path(f"{each}/x", workspace)[0] == "/"]
    if outside:
        return f"It runs outside the workspace: {visible_name(outside[0])}."
    if sum(len(each.words) for each in line.understood) > _MOST_WORDS:
        return None  # naming it would take long
    spelled = words_to_spell(line)
    if spelled:
        return f"A pattern has to spell out: {', '.join(map(visible_name, spelled[:_MOST_NAMED]))}."
    refused = [each for each in line.understood[:_MOST_JUDGED] if not _allows_one(rule, each)]
    files = [path for each in line.understood for path in (*each.writes, *each.reads)]
    if files and not refused:
        return f"No rule allows these files: {', '.join(map(visible_name, files[:_MOST_NAMED]))}."
    if refused and len(line.understood) > 1:
        return f"Not allowed in it: {visible_name(refused[0].text)}."
    return None


def _allows_one(rule: Rule, command: SimpleCommand) -> bool:
    """Return whether a rule allows one command, wherever it runs and whatever it redirects."""
    alone = CommandLine((command,), is_complete=True, understood=(command,))
    patterns = rule.commands
    if isinstance(patterns, bool):
        return patterns
    return allows_line(patterns, alone, "/", lambda _paths: True, lambda _paths: True)


def _visible_text(text: str) -> str:
    return "".join(each if each.isprintable() else "\ufffd" for each in text[:120])


def visible_name(text: str) -> str:
    """Return a name of an agent on one line, short and without invisible characters."""
    shown = "".join(each if each.isprintable() else "\ufffd" for each in text[:60])
    return f"{shown}…" if len(text) > 60 else shown


def _applies(rule: Rule, agent: str | None, workspace: str) -> bool:
    if rule.agent is not None and rule.agent != agent:
        return False
    if rule.project is None:
        return True
    folder = PurePosixPath(rule.project)
    return PurePosixPath(workspace).is_relative_to(folder) and ".." not in workspace.split("/")


@lru_cache(maxsize=256)
def _merged(rules: tuple[_NamedRule, ...]) -> Rule:
    """Return one rule that matches what the rules match, each alone or together."""
    patterns = {kind: _either([getattr(rule, kind) for rule, _ in rules]) for kind in KINDS}
    return replace(Rule(decision="deny"), **patterns)  # `_denies` and `_allows` ignore the decision


def _either(patterns: Sequence[Patterns]) -> Patterns:
    if any(each is True for each in patterns):
        return True
    return tuple(glob for each in patterns if not isinstance(each, bool) for glob in each) or False
