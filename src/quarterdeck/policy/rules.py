"""The owner's rules, and how each kind of rule matches a call.

A rule has patterns for each kind of call: true, false or globs. This table is `KINDS`; a new kind
of rule is a field of `Rule` and a row there.

| kind     | applies to                                  | globs are matched against         |
| -------- | ------------------------------------------- | --------------------------------- |
| reads    | reading, listing and searching files        | every path                        |
| writes   | writing, editing, deleting and moving files | every path                        |
| commands | command lines                               | every simple command of the line  |
| searches | searching files and the web, fetching       | the pattern, the query or the URL |

Searching files is both a read and a search: either kind allows it. Outside the workspace `reads`
has to match its paths. Fetching is allowed by globs only: an address can carry data out. A command
that redirects its output writes files, so `writes` must allow it too.

Allowing and denying are not opposites. Globs allow only what was fully understood; true allows
every call of its kind. To deny, commands are found wherever they might run, and a call that may
match but was not read completely needs a person. `quarterdeck.policy.command_rules` has both for
commands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from quarterdeck.policy.call import Reading, is_unknown_path
from quarterdeck.policy.command_line import CommandLine
from quarterdeck.policy.command_rules import Denial as Denial, allows_line, denies_line, is_inside
from quarterdeck.policy.globs import folded_path, matches_path, matches_text, relative_path
from quarterdeck.policy.wrappers import commands_of_line

_ODD: Final = re.compile(r"[*?\[\]{};&|<>\"'\\!#%]|^[A-Za-z][\w+.-]*:", re.ASCII)
"""What a shell reads as something other than a part of a path; or the beginning of an address."""

Patterns: TypeAlias = bool | tuple[str, ...]
"""True matches everything, False nothing, globs match what one of them matches."""


class PolicyRules(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Patterns for each kind of call."""

    reads: Patterns = False
    writes: Patterns = False
    commands: Patterns = False
    searches: Patterns = False


class PermissionPolicy(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """The permission policy of the Agent Context Protocol.

    `auto_deny` is an extension; it wins over `auto_approve`. A call that neither matches needs a
    decision by a person.
    """

    auto_approve: PolicyRules = PolicyRules()
    auto_deny: PolicyRules = PolicyRules()


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An owner's standing instruction: what is allowed or denied without a person."""

    decision: Literal["allow", "deny"]
    name: str | None = None
    """Shown in the audit. By default `rule 1`, `rule 2` …"""
    agent: str | None = None
    """Applies only to the agent that is configured under this name."""
    project: str | None = None
    """Applies only to sessions in this folder."""
    reads: Patterns = False
    writes: Patterns = False
    commands: Patterns = False
    searches: Patterns = False


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All rules. A rule that denies wins; a call that no rule matches needs a person."""

    rule: tuple[Rule, ...] = ()
    expiry_seconds: float | None = None
    """How long a permission request stays pending before it is rejected; by default for ever."""


def policy_of(policy: PermissionPolicy) -> Policy:
    """Convert a policy of the Agent Context Protocol into rules."""
    allowed, denied = policy.auto_approve, policy.auto_deny
    return Policy(
        rule=(
            Rule(
                decision="allow",
                name="autoApprove",
                reads=allowed.reads,
                writes=allowed.writes,
                commands=allowed.commands,
                searches=allowed.searches,
            ),
            Rule(
                decision="deny",
                name="autoDeny",
                reads=denied.reads,
                writes=denied.writes,
                commands=denied.commands,
                searches=denied.searches,
            ),
        )
    )


# ---- reads, writes ---------------------------------------------------------------------------


def _allows_reads(rule: Rule, reading: Reading, workspace: str) -> bool:
    return _match_all_paths(rule.reads, reading.paths, workspace)


def _allows_writes(rule: Rule, reading: Reading, workspace: str) -> bool:
    return _match_all_paths(rule.writes, reading.paths, workspace)


def _denies_reads(rule: Rule, reading: Reading, workspace: str) -> Denial | None:
    return _denies_paths(rule.reads, reading.paths, workspace)


def _denies_writes(rule: Rule, reading: Reading, workspace: str) -> Denial | None:
    return _denies_paths(rule.writes, reading.paths, workspace)


def _denies_paths(patterns: Patterns, paths: Sequence[str], workspace: str) -> Denial | None:
    if _match_any_path(patterns, paths, workspace):
        return "deny"
    return "ask" if patterns and not paths else None


def _match_all_paths(patterns: Patterns, paths: Sequence[str], workspace: str) -> bool:
    if isinstance(patterns, bool):
        return patterns
    if any(map(is_unknown_path, paths)):
        return False
    relative = [relative_path(path, workspace) for path in paths]
    return bool(relative) and all(
        any(matches_path(path, glob, with_dots=False) for glob in patterns) for path in relative
    )


def _match_any_path(patterns: Patterns, paths: Sequence[str], workspace: str) -> bool:
    if isinstance(patterns, bool):
        return patterns and bool(paths)
    base = folded_path(workspace)
    for path in paths:
        given, folded = relative_path(path, workspace), relative_path(folded_path(path), base)
        for glob in patterns:
            if matches_path(given, glob, with_dots=True):
                return True
            other = folded_path(glob)
            if (other, folded) != (glob, given) and matches_path(folded, other, with_dots=True):
                return True
    return False


# ---- searches --------------------------------------------------------------------------------


def _allows_searches(rule: Rule, reading: Reading, workspace: str) -> bool:
    if reading.is_fetch:
        # An address can carry data out, so only a glob allows it, never "all searches".
        globs = rule.searches if isinstance(rule.searches, tuple) else ()
        texts = (*reading.addresses, *reading.queries)
        return bool(reading.addresses) and all(_match_text(globs, text) for text in texts)
    is_all_inside = all(_stays_inside(path, workspace) for path in reading.paths)
    if not is_all_inside and not _match_all_paths(rule.reads, reading.paths, workspace):
        return False
    return bool(reading.queries) and all(
        _match_text(rule.searches, query) for query in reading.queries
    )


def _stays_inside(path: str, workspace: str) -> bool:
    return not is_unknown_path(path) and is_inside(path, workspace)


def _is_plain_folder(folder: str, workspace: str) -> bool:
    """Return whether a folder is in the workspace, also for a tool that puts it into a line."""
    if folder.startswith("-") or not _stays_inside(folder, workspace):
        return False
    return _ODD.search(relative_path(f"{folder}/x", workspace)) is None


def _denies_searches(rule: Rule, reading: Reading, _workspace: str) -> Denial | None:
    texts = (*reading.addresses, *reading.queries)
    if rule.searches is True or any(_match_text(rule.searches, text) for text in texts):
        return "deny"
    return "ask" if rule.searches and not texts else None


def _match_text(patterns: Patterns, text: str | None) -> bool:
    if isinstance(patterns, bool):
        return patterns
    return text is not None and any(matches_text(text, glob) for glob in patterns)


# ---- commands --------------------------------------------------------------------------------


def _allows_commands(rule: Rule, reading: Reading, workspace: str) -> bool:
    if isinstance(rule.commands, bool):
        return rule.commands
    line = reading.command_line
    if line is None:
        return False
    # What a command does depends on the folder it runs in.
    if not all(_is_plain_folder(folder, workspace) for folder in reading.folders):
        return False
    if reading.variables:
        return False

    def may_write(paths: Sequence[str]) -> bool:
        return _match_all_paths(rule.writes, paths, workspace)

    def may_read(paths: Sequence[str]) -> bool:
        are_inside = all(_stays_inside(path, workspace) for path in paths)
        return are_inside or _match_all_paths(rule.reads, paths, workspace)

    return allows_line(rule.commands, line, workspace, may_write, may_read)


def _denies_commands(rule: Rule, reading: Reading, workspace: str) -> Denial | None:
    line = reading.command_line
    if line is None:
        return None
    if rule.commands is True:
        return "deny"

    def writes(paths: Sequence[str]) -> bool:
        return _match_any_path(rule.writes, paths, workspace)

    denial = denies_line(rule.commands or (), line, writes)
    if denial is None and rule.writes and _writes_unknown(line):
        return "ask"
    return denial


def _writes_unknown(line: CommandLine) -> bool:
    commands = commands_of_line(line)
    return any(is_unknown_path(path) for each in commands for path in each.writes)


# ---- the table -------------------------------------------------------------------------------


class RuleKind(NamedTuple):
    """How the patterns of one kind match; each function gets the rule and the workspace."""

    applies: Callable[[Reading], bool]
    """Whether calls that are read like this are of this kind."""
    allows: Callable[[Rule, Reading, str], bool]
    denies: Callable[[Rule, Reading, str], Denial | None]
    """Returns "ask" if the patterns may match what is not known of the call."""


KINDS: Final[Mapping[str, RuleKind]] = {
    "reads": RuleKind(lambda reading: reading.is_read, _allows_reads, _denies_reads),
    "writes": RuleKind(lambda reading: reading.is_write, _allows_writes, _denies_writes),
    "commands": RuleKind(
        lambda reading: reading.command_line is not None, _allows_commands, _denies_commands
    ),
    "searches": RuleKind(
        lambda reading: reading.is_search or reading.is_fetch, _allows_searches, _denies_searches
    ),
}
"""By the name of the field in `Rule`."""
