"""How dangerous a call is, by what it would do.

    low       only looks
    medium    changes the project, installs, talks to the network, or is not known
    high      deletes, ends, changes rights or owners, becomes another user, rewrites history,
              writes where the system or the account is configured, runs what was piped into it
    critical  deletes everything, formats, writes to a device, runs what was just downloaded,
              force-pushes the main branch, starts itself without end

A line is as dangerous as the worst of its commands. Programs are looked for behind `sudo`, `env`,
`xargs`, `sh -c` and the like. What cannot be read is never low.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

from quarterdeck.dialects.context.plain import SimpleCommand
from quarterdeck.dialects.context.shapes import RiskLevel
from quarterdeck.dialects.context.shell import REMEMBERED, parse_command_line
from quarterdeck.dialects.context.tools import PATH_KEYS, canonical_name, command_of, text_of
from quarterdeck.dialects.context.wrappers import is_shell, programs_of

_Programs: TypeAlias = Sequence[tuple[str, Sequence[str]]]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A function that starts itself twice, and does not wait for that.
_FORK_BOMB: Final = re.compile(
    r"(?<!\w)([\w:.]{1,64})\s{0,9}\(\s{0,9}\)\s{0,9}\{[^}]{0,200}?(?<!\w)\1\s{0,9}(\|\s{0,9}\1\s{0,9})?&"
)
LEVELS: Final[tuple[RiskLevel, ...]] = ("low", "medium", "high", "critical")
_RANKS: Final[Mapping[RiskLevel, int]] = {level: rank for rank, level in enumerate(LEVELS)}

_READERS: Final = _names(
    """[ [[ : ack ag basename cat cd cmp column comm cut diff dirname df du echo export false fd
    file find fmt fold for grep egrep fgrep head id jq less ls md5sum more nl od popd
    printenv printf pushd pwd read readlink realpath return rg sed seq set sha256sum sleep sort stat
    strings tail test tr tree true type uname uniq unset wait wc whereis which whoami yq date
    builtin command env nice time timeout xargs"""
)
_WRITING_OPTIONS: Final = re.compile(
    r"-i.*|--in-place.*|-o.*|--output.*|-delete|-fprint.*|-fls|-exec.*|-ok.*|--exec.*|-[xX]|--pre.*"
    r"|--set.*|-s"
)
_WRITERS: Final = frozenset({"sed", "yq", "sort", "find", "fd", "rg", "date", "tree"})
"""Readers that write, or run something, with one of these options."""
_DANGEROUS: Final = _names(
    """chgrp chmod chown crontab dd diskutil doas fdisk halt iptables kill killall launchctl mkfs
    mount parted passwd pkill poweroff reboot rm rmdir service shred shutdown srm su sudo systemctl
    truncate umount unlink useradd userdel usermod visudo wipefs"""
)
_DOWNLOADERS: Final = frozenset({"aria2c", "curl", "fetch", "http", "https", "nc", "wget"})
_INTERPRETERS: Final = re.compile(r"(python|perl|ruby|node|php)[\d.]*")
_GIT_READERS: Final = _names(
    """blame cat-file describe diff grep help log ls-files ls-remote ls-tree merge-base name-rev
    rev-list rev-parse shortlog show show-ref status version whatchanged"""
)
_GIT_LISTS: Final = frozenset({"branch", "tag", "remote", "worktree", "config", "stash", "reflog"})
_GIT_HIGH: Final = {
    name: re.compile(pattern)
    for name, pattern in (
        ("push", r"-f|--force.*|--delete|-d|--mirror|--prune|\+.*|:.+"),
        ("reset", r"--hard"),
        ("clean", r"-.*f.*|--force"),
        ("branch", r"-D|-d|--delete|-M|-f|--force"),
        ("tag", r"-d|--delete|-f|--force"),
        ("stash", r"drop|clear"),
        ("checkout", r"--|\.|-f|--force"),
        ("restore", r".+"),
        ("filter-branch", r".*"),
        ("filter-repo", r".*"),
        ("update-ref", r"-d"),
        ("reflog", r"expire|delete"),
        ("rm", r".*"),
        ("worktree", r"remove"),
        ("remote", r"remove|rm"),
    )
}
_MAIN: Final = frozenset({"main", "master", "trunk", "+main", "+master"})
_EVERYTHING: Final = re.compile(r"(/|~|\$HOME|\$\{HOME\}|/root|/home|/Users|\.|\.\.|\*)/?\*?/?")
_GUARDED: Final = re.compile(
    r"(/etc|/usr|/bin|/sbin|/lib|/boot|/dev|/sys|/proc|/System|/Library)(/|$)"
    r"|(^|/)\.(ssh|gnupg|aws|kube|docker)(/|$)|(^|/)\.git/(hooks|config)"
    r"|(^|/)\.(bashrc|bash_profile|zshrc|zshenv|profile|npmrc|netrc|pypirc)$|authorized_keys"
)
_SECRET: Final = re.compile(
    r"(^|/)\.(ssh|gnupg|aws|kube)/|(^|/)\.(env|netrc|npmrc|pypirc)(\.[\w-]+)?$|(^|/)id_(rsa|ed25519)"
    r"|/etc/shadow",
    re.MULTILINE,
)
_DEVICE: Final = re.compile(r"/dev/(sd|hd|nvme|vd|xvd|disk|mmcblk|mem)")
_HARMLESS_TOOLS: Final = frozenset(
    {"Glob", "Grep", "List", "Task", "TodoWrite", "TodoRead", "WebSearch", "WebFetch", "Think"}
    | {"ExitPlanMode", "AskUserQuestion"}
)
_CHANGING_TOOLS: Final = frozenset({"Write", "Edit", "Patch", "NotebookEdit", "Move", "Delete"})


def assess_risk(name: str, given: Any = None) -> RiskLevel:
    """Return the risk of a call by name and input, as the original does: critical counts as high.

    `risk_of_call` is for decisions.
    """
    level = risk_of_call(name, given)
    return "high" if level == "critical" else level


def risk_of_call(name: str, given: Any = None, kind: str | None = None) -> RiskLevel:
    """Return the risk of a call by all that is known of it."""
    canonical = canonical_name(name)
    command = command_of(given)
    if canonical == "Bash" or kind == "execute" or (canonical is None and command is not None):
        return "medium" if command is None else risk_of_command(command)
    if canonical == "Delete" or kind == "delete":
        return "high"
    path = text_of(given, PATH_KEYS) or ""
    if canonical in _CHANGING_TOOLS or kind in ("edit", "move"):
        return "high" if _GUARDED.search(path) else "medium"
    if canonical == "Read" or kind == "read":
        return "medium" if _SECRET.search(path) else "low"
    if canonical in _HARMLESS_TOOLS or kind in ("search", "fetch", "think", "switch_mode"):
        return "low"
    return "medium"


def risk_of_command(line: str) -> RiskLevel:
    """Return the risk of a command line: that of its worst command."""
    return _remembered(line) if len(line) <= REMEMBERED else _risk_of_line(line)


@lru_cache(maxsize=128)
def _remembered(line: str) -> RiskLevel:
    return _risk_of_line(line)


def _risk_of_line(line: str) -> RiskLevel:
    parsed = parse_command_line(line)
    runs = [(command, programs_of(command)) for command in parsed.commands]
    levels = [_risk_of_simple(command, programs) for command, programs in runs]
    levels += _risks_of_the_whole(runs)
    if not parsed.is_complete or not parsed.commands:
        levels.append("medium")
    if len(line) <= REMEMBERED and _FORK_BOMB.search(line):
        levels.append("critical")
    return worst(levels)


def worst(levels: Iterable[RiskLevel]) -> RiskLevel:
    return max(levels, key=_RANKS.__getitem__, default="low")


def _risks_of_the_whole(runs: Sequence[tuple[SimpleCommand, _Programs]]) -> list[RiskLevel]:
    """Find shells that run what another command of the line gives them."""
    fed = [run for command, run in runs if command.is_piped or _runs_text(command)]
    if not any(_interprets(program) for run in fed for program, _ in run):
        return []
    programs = {program for _, run in runs for program, _ in run}
    return ["high" if _DOWNLOADERS.isdisjoint(programs) else "critical"]


def _runs_text(command: SimpleCommand) -> bool:
    return any("$(" in word or "`" in word for word in command.words)


def _interprets(program: str) -> bool:
    return is_shell(program) or program in ("eval", ".") or bool(_INTERPRETERS.fullmatch(program))


def _risk_of_simple(command: SimpleCommand, programs: _Programs) -> RiskLevel:
    levels = [_risk_of_program(program, arguments) for program, arguments in programs]
    if command.writes:
        levels.append(_risk_of_writes(command.writes))
    if command.is_dynamic or command.assignments:
        levels.append("medium")
    return levels[0] if len(levels) == 1 else worst(levels)


def _risk_of_writes(paths: Sequence[str]) -> RiskLevel:
    if any(_DEVICE.match(path) for path in paths):
        return "critical"
    if any(_GUARDED.search(path) for path in paths):
        return "high"
    return "medium"


def _risk_of_program(program: str, arguments: Sequence[str]) -> RiskLevel:
    if program == "git":
        return _risk_of_git(arguments)
    if program in _DANGEROUS or program.startswith("mkfs"):
        return _risk_of_dangerous(program, arguments)
    if program in _READERS:
        level = _risk_of_reader(program, arguments)
        has_secret = level == "low" and _SECRET.search("\n".join(arguments)) is not None
        return "medium" if has_secret else level
    return "medium"


def _risk_of_reader(program: str, arguments: Sequence[str]) -> RiskLevel:
    if program not in _WRITERS:
        return "low"
    options = [each for each in arguments if _WRITING_OPTIONS.fullmatch(each)]
    if program == "find" and "-delete" in options:
        return "high"
    # `-o` joins two tests of find, `-i` and `-s` ignore case or size elsewhere.
    harmless = {"find": {"-o", "-iname", "-ipath", "-size"}, "rg": {"-i", "-o", "-s"}, "fd": {"-i"}}
    return "medium" if set(options) - harmless.get(program, set()) else "low"


def _risk_of_dangerous(program: str, arguments: Sequence[str]) -> RiskLevel:
    if program.startswith("mkfs") or any(_DEVICE.search(each) for each in arguments):
        return "critical"
    if program == "rm":
        is_recursive = any(re.fullmatch(r"-\w*[rR]\w*|--recursive", each) for each in arguments)
        targets = [each for each in arguments if not each.startswith("-")]
        if is_recursive and any(_EVERYTHING.fullmatch(target) for target in targets):
            return "critical"
    return "high"


def _risk_of_git(arguments: Sequence[str]) -> RiskLevel:
    options, subcommand, rest = git_parts(arguments)
    level: RiskLevel = "medium"
    dangers = _GIT_HIGH.get(subcommand)
    if dangers is not None and any(map(dangers.fullmatch, rest)):
        level = "high"
        if subcommand == "push" and _is_forced(rest) and _MAIN.intersection(rest):
            level = "critical"
    elif subcommand in _GIT_READERS or (subcommand in _GIT_LISTS and _only_lists(rest)):
        is_plain = not options and not any(each.startswith(("--output", "-O")) for each in rest)
        level = "low" if is_plain else "medium"
    return level


def git_parts(arguments: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Split the words behind `git` into what it is configured with, the subcommand and the rest.

    `-C directory` is not among the first: it changes where, not what.
    """
    options: list[str] = []
    words = list(arguments)
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option == "-C" and words:
            words.pop(0)
        elif option in ("-c", "--exec-path", "--git-dir", "--work-tree") and words:
            options.append(f"{option} {words.pop(0)}")
        elif option not in ("--no-pager", "-P", "--version", "--help"):
            options.append(option)
    return options, words[0] if words else "", words[1:]


def _only_lists(rest: Sequence[str]) -> bool:
    listing = {"list", "show", "-l", "--list", "-a", "-r", "-v", "-vv", "--all", "--show-current"}
    listing |= {"--get", "get-url"}
    return not rest or rest[0] in listing


def _is_forced(rest: Sequence[str]) -> bool:
    return any(each in ("-f", "--force") or each.startswith("+") for each in rest)
