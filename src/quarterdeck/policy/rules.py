"""The owner's rules as they are configured; `policy` applies them.

What a permission policy says about a call: a pure function of both.

    class      what                                           globs are matched against
    reads      reading and listing files                      every path
    writes     writing, editing, deleting, moving files       every path
    commands   command lines                                  every simple command of the line
    searches   searching files and the web, fetching          the pattern, the query or the address

Searching files is a read as well: either rule decides. A command that redirects its output into
files writes them, too. `deny` wins over `allow`; what nothing matches, or cannot be read, is asked.
To deny, commands are also looked for behind `sudo`, `env`, `sh -c` and the like; to allow, what is
written is what must match.

What the owner's rules say about a call, and which of them says it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from quarterdeck.policy.command_line import CommandLine, SimpleCommand, parse_command_line
from quarterdeck.policy.globs import matches_path, matches_text, relative_path
from quarterdeck.policy.tools import (
    PATH_KEYS,
    canonical_name,
    categorize_call,
    commands_of,
    text_of,
)
from quarterdeck.policy.types import PermissionPolicy, PolicyRules, Rule
from quarterdeck.policy.wrappers import all_commands, is_shell, unwrapped


class PolicyRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is decided without asking: true, false or globs for each class of calls."""

    decision: Literal["allow", "deny"]
    name: str | None = None
    """Told in the audit; else the rule's number."""
    agent: str | None = None
    """Only for this agent, by the name under which it is set up."""
    project: str | None = None
    """Only for sessions in this folder."""
    reads: bool | tuple[str, ...] = False
    writes: bool | tuple[str, ...] = False
    commands: bool | tuple[str, ...] = False
    searches: bool | tuple[str, ...] = False

    @property
    def rules(self) -> PolicyRules:
        return PolicyRules(
            reads=self.reads, writes=self.writes, commands=self.commands, searches=self.searches
        )


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All rules; "deny" wins over "allow", what nothing matches is asked."""

    rule: tuple[PolicyRule, ...] = ()
    expiry_seconds: float | None = None
    """After which a request that nobody answered is rejected; by default it waits."""


Decision: TypeAlias = Literal["allow", "deny", "ask"]
_SEARCHES: Final = frozenset({"Glob", "Grep"})
_WEB: Final = frozenset({"WebSearch", "WebFetch"})
_DIFF: Final = "diff"
_FEEDERS: Final = frozenset({"xargs", "parallel"})


@dataclass(frozen=True, kw_only=True)
class ParsedCall:
    """A call as policies see it; only what its class needs is filled."""

    paths: tuple[str, ...] = ()
    is_read: bool = False
    is_write: bool = False
    line: CommandLine | None = None
    searched: str | None = None
    is_search: bool = False
    folder: str | None = None
    """Where a command line is run, if the call says so."""


def parse_call(
    name: str, kind: str | None, given: Any, content: Sequence[Any] = (), locations: Any = ()
) -> ParsedCall:
    """Find out what a call would do; the most dangerous class that fits is taken."""
    canonical = canonical_name(name)
    category = categorize_call(name, kind)
    commands = commands_of(given)
    paths = _paths(given, content, locations)
    if category == "terminal" or kind == "execute" or commands:
        return ParsedCall(line=_parsed_lines(commands), folder=text_of(given, _FOLDERS))
    has_diff = any(isinstance(each, Mapping) and each.get("type") == _DIFF for each in content)
    if category in ("file_write", "file_edit") or has_diff or kind in ("edit", "delete", "move"):
        return ParsedCall(is_write=True, paths=paths)
    if category == "file_read" or kind == "read":
        is_search = canonical in _SEARCHES or kind == "search"
        return ParsedCall(is_read=True, is_search=is_search, paths=paths, searched=_searched(given))
    # A word in its name does not make a tool a search: `search_and_replace`.
    if canonical in _WEB or kind in ("search", "fetch"):
        return ParsedCall(is_search=True, searched=_searched(given))
    return ParsedCall()


def _parsed_lines(lines: Sequence[str]) -> CommandLine:
    """Read all that may be the command of a call; each is read for itself."""
    parsed = [parse_command_line(line) for line in lines]
    found = tuple(command for line in parsed for command in line.commands)
    return CommandLine(found, is_complete=all(line.is_complete for line in parsed))


def decide(policy: PermissionPolicy, call: ParsedCall, project: str) -> Decision:
    """Return what a policy says about a call in a project."""
    denial = _denies(policy.auto_deny, call, project)
    if denial is not None:
        return denial
    return "allow" if _allows(policy.auto_approve, call, project) else "ask"


# ---- to allow --------------------------------------------------------------------------------


def _allows(rules: PolicyRules, call: ParsedCall, project: str) -> bool:
    if call.line is not None:
        # What a command means depends on where it is run.
        is_elsewhere = call.folder is not None and not _is_inside(call.folder, project)
        if is_elsewhere and rules.commands is not True:
            return False
        return _allows_line(rules, call.line, project)
    if call.is_write:
        return _all_paths(rules.writes, call.paths, project)
    if call.is_read and _all_paths(rules.reads, call.paths, project):
        return True
    return call.is_search and _text_matches(rules.searches, call.searched)


def _allows_line(rules: PolicyRules, line: CommandLine, project: str) -> bool:
    if rules.commands is True:
        return True
    if rules.commands is False or not line.is_complete or not line.commands:
        return False
    moves = any(command.words[:1] in (("cd",), ("pushd",)) for command in line.commands)
    if moves and any(command.writes for command in line.commands):
        return False  # relative to what?
    return all(_allows_command(rules, command, project) for command in line.commands)


def _allows_command(rules: PolicyRules, command: SimpleCommand, project: str) -> bool:
    if command.is_dynamic or not _text_matches(rules.commands, command.text):
        return False
    if command.words and " " in command.words[0]:
        return False  # the name of a program that looks like a program and its arguments
    return not command.writes or _all_paths(rules.writes, command.writes, project)


def _all_paths(rule: Rule, paths: Sequence[str], project: str) -> bool:
    if isinstance(rule, bool):
        return rule
    relative = [relative_path(path, project) for path in paths]
    if any(map(_is_unknown, paths)):
        return False
    return bool(relative) and all(
        any(matches_path(path, glob, with_dots=False) for glob in rule) for path in relative
    )


def _text_matches(rule: Rule, text: str | None) -> bool:
    if isinstance(rule, bool):
        return rule
    return text is not None and any(matches_text(text, glob) for glob in rule)


# ---- to deny ---------------------------------------------------------------------------------


def _denies(rules: PolicyRules, call: ParsedCall, project: str) -> Decision | None:
    """Return "deny", "ask" if it cannot be ruled out, or None."""
    if call.line is not None:
        return _denies_line(rules, call.line, project)
    is_denied = (
        (call.is_write and _any_path(rules.writes, call.paths, project))
        or (call.is_read and _any_path(rules.reads, call.paths, project))
        or (call.is_search and _text_matches(rules.searches, call.searched))
    )
    if is_denied:
        return "deny"
    rule = rules.writes if call.is_write else rules.reads if call.is_read else False
    return "ask" if rule and not call.paths else None


def _denies_line(rules: PolicyRules, line: CommandLine, project: str) -> Decision | None:
    if rules.commands is True:
        return "deny"
    commands = all_commands(line.commands)
    for command in commands:
        if _any_path(rules.writes, command.writes, project):
            return "deny"
        if any(_text_matches(rules.commands, text) for text in _spellings(command)):
            return "deny"
    is_unclear = not line.is_complete or any(
        each.is_dynamic or _runs_unseen(each) for each in commands
    )
    writes_unknown = any(_is_unknown(path) for each in commands for path in each.writes)
    return "ask" if (rules.commands and is_unclear) or (rules.writes and writes_unknown) else None


def _spellings(command: SimpleCommand) -> list[str]:
    """Return all that a command can be said to run."""
    programs = list(unwrapped(command))
    inner = [" ".join((program, *arguments)) for program, arguments in programs]
    if any(program in _FEEDERS for program, _ in programs):
        inner += [f"{text} " for text in inner]  # more arguments come when it runs
    return [command.text, " ".join(command.words), *inner]


def _runs_unseen(command: SimpleCommand) -> bool:
    """Say whether a shell runs what is not in the line."""
    if command.words[:1] in (("source",), (".",)):
        return True
    return command.is_piped and any(is_shell(program) for program, _ in unwrapped(command))


def _is_unknown(path: str) -> bool:
    """Say whether the shell or the home folder is a part of a path."""
    return path.startswith("~") or "$" in path or "`" in path


def _any_path(rule: Rule, paths: Sequence[str], project: str) -> bool:
    if isinstance(rule, bool):
        return rule and bool(paths)
    return any(
        matches_path(relative_path(path, project), glob, with_dots=True)
        for path in paths
        for glob in rule
    )


# ---- what a call names -----------------------------------------------------------------------


def _paths(given: Any, content: Sequence[Any], locations: Any) -> tuple[str, ...]:
    found = [
        each["path"]
        for each in (*content, *(locations if isinstance(locations, Sequence) else ()))
        if isinstance(each, Mapping) and isinstance(each.get("path"), str)
    ]
    # All of them: which one the tool goes by is not known here.
    named = [text for key in (*PATH_KEYS, *_TARGETS) if (text := text_of(given, (key,)))]
    return tuple(dict.fromkeys([*named, *found]))


_FOLDERS: Final = ("cwd", "workdir", "working_directory", "workingDirectory", "dir_path")
_TARGETS: Final = ("destination", "new_path", "newPath", "to", "target")


def _is_inside(folder: str, project: str) -> bool:
    return not relative_path(f"{folder}/x", project).startswith("/")


def _searched(given: Any) -> str | None:
    return text_of(given, ("url", "query", "pattern", "q", "uri", "regex"))


_ALL = PolicyRules(reads=True, writes=True, commands=True, searches=True)


def decide_by_rules(
    policy: Policy, call: ParsedCall, *, agent: str | None, project: str
) -> tuple[Decision, str]:
    """Return the decision and the name of the rule that makes it ("" if none does)."""
    applying = [
        (rule, rule.name or f"rule {number}")
        for number, rule in enumerate(policy.rule, 1)
        if _applies(rule, agent, project)
    ]
    denying = [(rule, name) for rule, name in applying if rule.decision == "deny"]
    allowing = [(rule, name) for rule, name in applying if rule.decision == "allow"]
    decision = decide(
        PermissionPolicy(
            auto_approve=_together([rule for rule, _ in allowing]),
            auto_deny=_together([rule for rule, _ in denying]),
        ),
        call,
        project,
    )
    if decision == "deny":
        return decision, _first(denying, call, project, "deny")
    if decision == "allow":
        return decision, _first(allowing, call, project, "allow")
    return decision, ""


def _first(
    rules: Sequence[tuple[PolicyRule, str]], call: ParsedCall, project: str, wanted: Decision
) -> str:
    """Name the rule that decides alone, or all of them: a line may have commands of several."""
    for rule, name in rules:
        alone = (
            PermissionPolicy(auto_approve=_ALL, auto_deny=rule.rules)
            if wanted == "deny"
            else PermissionPolicy(auto_approve=rule.rules)
        )
        if decide(alone, call, project) == wanted:
            return name
    return ", ".join(name for _, name in rules)


def _applies(rule: PolicyRule, agent: str | None, project: str) -> bool:
    if rule.agent is not None and rule.agent != agent:
        return False
    if rule.project is None:
        return True
    folder = PurePosixPath(rule.project)
    return PurePosixPath(project).is_relative_to(folder) and ".." not in project.split("/")


def _together(rules: Sequence[PolicyRule]) -> PolicyRules:
    return PolicyRules(
        reads=_either([rule.reads for rule in rules]),
        writes=_either([rule.writes for rule in rules]),
        commands=_either([rule.commands for rule in rules]),
        searches=_either([rule.searches for rule in rules]),
    )


def _either(rules: Sequence[bool | tuple[str, ...]]) -> bool | tuple[str, ...]:
    if any(rule is True for rule in rules):
        return True
    globs = tuple(glob for rule in rules if not isinstance(rule, bool) for glob in rule)
    return globs or False
