"""What makes command lines and tools risky, and the reason in one line for the person who decides.

`quarterdeck.policy.risk` rates a whole call by what is found here.

| level    | meaning                                                                              |
| -------- | ------------------------------------------------------------------------------------ |
| low      | only reads                                                                           |
| medium   | changes the project, installs, uses the network, or is not recognised                |
| high     | deletes, kills, changes permissions or ownership, runs as another user, rewrites     |
|          | history, configures the system or the account, runs its input                        |
| critical | deletes everything, formats, writes to a device, runs a download, force-pushes the   |
|          | main branch, starts copies of itself without limit                                   |

A command line is as risky as its worst command. Programs are found behind `sudo`, `env`, `xargs`,
`sh -c` and the like. A line that cannot be read completely is never low.

Each finding is a `RiskRule`, which has both the level and the reason, so the two always agree.
Parts of a command in a reason are the agent's text: they are shortened, invisible characters are
escaped, and text that could be mistaken for a part of the reason is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from quarterdeck.policy.command_line import CACHED_LENGTH, LONGEST, CommandLine, read_command
from quarterdeck.policy.destructive import deletes_in_database, destructive_words
from quarterdeck.policy.simple_command import SimpleCommand, names, program_of
from quarterdeck.policy.tools import (
    PATH_KEYS,
    canonical_name,
    commands_of,
    text_of,
)
from quarterdeck.policy.wrappers import commands_of_line, is_shell

RiskLevel: TypeAlias = Literal["low", "medium", "high", "critical"]


class Risk(NamedTuple):
    """The risk of a call."""

    level: RiskLevel
    reason: str
    """One line of at most 120 characters, without invisible characters."""


class RiskRule(NamedTuple):
    """One reason for a level."""

    rank: int
    """The index of the level in `_LEVELS`."""
    words: str
    """The reason; `{}` is replaced by the subjects: programs, files, options."""


Finding: TypeAlias = tuple[RiskRule, str, Sequence[str]]
"""A rule, the program that matched it, and the words in which it was found."""
_LEVELS: Final[tuple[RiskLevel, ...]] = ("low", "medium", "high", "critical")
_LOW, _MEDIUM, _HIGH, _CRITICAL = range(len(_LEVELS))
MEDIUM, HIGH = _MEDIUM, _HIGH

_READ_ONLY: Final = RiskRule(_LOW, "read-only")
_UNKNOWN: Final = RiskRule(_MEDIUM, "unrecognised command: {}")
_UNKNOWN_TOOL: Final = RiskRule(_MEDIUM, "unrecognised tool: {}")
_NO_COMMAND: Final = RiskRule(_MEDIUM, "no command in the input")
_UNREADABLE: Final = RiskRule(_MEDIUM, "the command could not be read completely")
_DYNAMIC: Final = RiskRule(_MEDIUM, "the program is only known at run time: {}")
ASSIGNS: Final = RiskRule(_MEDIUM, "sets variables: {}")
NOT_UNDERSTOOD: Final = RiskRule(_MEDIUM, "part of the input is not understood: {}")
_READS_SECRET: Final = RiskRule(_MEDIUM, "may read secrets: {}")
_WRITES: Final = RiskRule(_MEDIUM, "writes to {}")
_CHANGES: Final = RiskRule(_MEDIUM, "changes {}")
_OPTION_ACTS: Final = RiskRule(_MEDIUM, "may write files or run programs: {}")
_GIT_CHANGES: Final = RiskRule(_MEDIUM, "changes the repository: {}")
_GIT_OPTION_ACTS: Final = RiskRule(_MEDIUM, "git may write files or run programs: {}")
_CHANGES_SYSTEM: Final = RiskRule(_HIGH, "changes the system: {}")
DESTROYS: Final = RiskRule(_HIGH, "destroys, deletes, deploys or publishes: {}")
_DELETES: Final = RiskRule(_HIGH, "deletes {}")
_DELETES_RECURSIVELY: Final = RiskRule(_HIGH, "recursively deletes {}")
_DELETES_FOUND: Final = RiskRule(_HIGH, "deletes the files that find matches")
_WRITES_CONFIGURATION: Final = RiskRule(_HIGH, "writes to system or account configuration: {}")
_GIT_DISCARDS: Final = RiskRule(_HIGH, "discards work or rewrites history: {}")
_RUNS_OUTPUT: Final = RiskRule(_HIGH, "runs the output of another command: {}")
_RUNS_DOWNLOADED: Final = RiskRule(_CRITICAL, "runs what {} downloads")
_DELETES_EVERYTHING: Final = RiskRule(_CRITICAL, "deletes everything: {}")
_WRITES_DEVICE: Final = RiskRule(_CRITICAL, "writes to a device: {}")
_USES_DEVICE: Final = RiskRule(_CRITICAL, "accesses a device: {}")
_FORMATS: Final = RiskRule(_CRITICAL, "formats a disk: {}")
_FORCE_PUSHES_MAIN: Final = RiskRule(_CRITICAL, "force-pushes the main branch: {}")
_FORK_BOMB: Final = RiskRule(_CRITICAL, "starts copies of itself without limit")


# A function that starts itself twice and does not wait.
_FUNCTION: Final = re.compile(r"(?<!\w)([\w:.]{1,64})\s{0,9}\(\s{0,9}\)\s{0,9}\{")
_STARTED: Final = re.compile(r"([\w:.]{1,64})\s{0,9}(?:\|\s{0,9}\1\s{0,9})?&")
_MOST_FUNCTIONS: Final = 16
_LONGEST_BODY: Final = 200

_CONNECTORS: Final = re.compile(r"[|(`]")
"""A line without one of these passes no text from one command to another."""
_READERS: Final = names(
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
"""Readers that write or run something with one of these options."""
# `-o` joins two tests of find; elsewhere `-i` and `-s` mean case or size.
_HARMLESS_OPTIONS: Final = {
    "find": frozenset({"-o", "-iname", "-ipath", "-size"}),
    "rg": frozenset({"-i", "-o", "-s"}),
    "fd": frozenset({"-i"}),
}
_DANGEROUS: Final = names(
    """chgrp chmod chown crontab dd diskutil doas fdisk halt iptables kill killall launchctl mkfs
    mount parted passwd pkill poweroff reboot rm rmdir service shred shutdown srm su sudo systemctl
    truncate umount unlink useradd userdel usermod visudo wipefs"""
)
_DELETERS: Final = frozenset({"rm", "rmdir", "shred", "srm", "unlink"})
_RECURSIVE: Final = re.compile(r"-\w*[rR]\w*|--recursive")
_DOWNLOADERS: Final = frozenset({"aria2c", "curl", "fetch", "http", "https", "nc", "wget"})
_INTERPRETERS: Final = re.compile(r"(python|perl|ruby|node|php)[\d.]*")
_GIT_READERS: Final = names(
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
_GIT_ACTING: Final = ("--output", "-O")
"""Options with which a reading subcommand of git writes a file or starts a pager."""
_MAIN_BRANCHES: Final = frozenset({"main", "master", "trunk", "+main", "+master"})
_EVERYTHING: Final = re.compile(r"(/|~|\$HOME|\$\{HOME\}|/root|/home|/Users|\.|\.\.|\*)/?\*?/?")
_CONFIGURATION: Final = re.compile(
    r"(/etc|/usr|/bin|/sbin|/lib|/boot|/dev|/sys|/proc|/System|/Library)(/|$)"
    r"|(^|/)\.(ssh|gnupg|aws|kube|docker)(/|$)|(^|/)\.git/(hooks|config)"
    r"|(^|/)\.(bashrc|bash_profile|zshrc|zshenv|profile|npmrc|netrc|pypirc)$|authorized_keys"
)
_SECRET: Final = re.compile(
    r"(^|/)\.(ssh|gnupg|aws|kube)/|(^|/)\.(env|netrc|npmrc|pypirc)(\.[\w-]+)?$|(^|/)id_(rsa|ed25519)"
    r"|/etc/shadow",
    re.MULTILINE,
)
_MAYBE_SECRET: Final = re.compile(r"\.[a-z]|id_|shadow")
_DEVICE: Final = re.compile(r"/dev/(sd|hd|nvme|vd|xvd|disk|mmcblk|mem)")
_HARMLESS_TOOLS: Final = frozenset(
    {"Glob", "Grep", "List", "Task", "TodoWrite", "TodoRead", "WebSearch", "WebFetch", "Think"}
    | {"ExitPlanMode", "AskUserQuestion"}
)
_CHANGING_TOOLS: Final = frozenset({"Write", "Edit", "Patch", "NotebookEdit", "Move", "Delete"})


def risk_of_call(name: str, given: Any = None, kind: str | None = None) -> RiskLevel:
    """Return the level alone, which takes less time than `assess_risk`."""
    canonical = canonical_name(name)
    commands = commands_of(given)
    if canonical == "Bash" or kind == "execute" or (canonical is None and commands):
        return max(map(risk_of_command, commands), key=_LEVELS.index, default="medium")
    return _LEVELS[_rule_of_tool(canonical, kind, given).rank]


def _findings_of_call(name: str, given: Any = None, kind: str | None = None) -> Sequence[Finding]:
    """Return all findings about a call; the worst one decides."""
    canonical = canonical_name(name)
    commands = commands_of(given)
    if canonical == "Bash" or kind == "execute" or (canonical is None and commands):
        found = [each for line in commands for each in findings_of_line(line)]
        return found or [(_NO_COMMAND, "", ())]
    path = text_of(given, PATH_KEYS)
    return [(_rule_of_tool(canonical, kind, given), name, (path,) if path else ())]


def findings_of_tool(
    name: str, kind: str | None, paths: Sequence[str], *, is_write: bool = False
) -> list[Finding]:
    """Return the findings about a tool and each path that a call of it names."""
    canonical = canonical_name(name)
    if is_write and canonical not in _CHANGING_TOOLS and kind not in ("edit", "move", "delete"):
        kind, canonical = "edit", None
    rules = [(_rule_of_tool(canonical, kind, {"path": path}), path) for path in paths]
    if not rules:
        return [(_rule_of_tool(canonical, kind, None), name, ())]
    return [(rule, name, (path,)) for rule, path in rules]


def _rule_of_tool(canonical: str | None, kind: str | None, given: Any) -> RiskRule:
    if canonical == "Delete" or kind == "delete":
        return _DELETES
    if canonical in _CHANGING_TOOLS or kind in ("edit", "move"):
        return (
            _WRITES_CONFIGURATION
            if _CONFIGURATION.search(text_of(given, PATH_KEYS) or "")
            else _CHANGES
        )
    if canonical == "Read" or kind == "read":
        return _READS_SECRET if _SECRET.search(text_of(given, PATH_KEYS) or "") else _READ_ONLY
    if canonical in _HARMLESS_TOOLS or kind in ("search", "fetch", "think", "switch_mode"):
        return _READ_ONLY
    return _UNKNOWN_TOOL


def risk_of_command(line: str) -> RiskLevel:
    """Return the level of a command line: that of its worst command."""
    return _cached(line) if len(line) <= CACHED_LENGTH else _risk_of_line(line)


@lru_cache(maxsize=128)
def _cached(line: str) -> RiskLevel:
    return _risk_of_line(line)


def _risk_of_line(line: str) -> RiskLevel:
    return _LEVELS[max([rule.rank for rule, _, _ in findings_of_line(line)])]


def findings_of_line(line: str) -> list[Finding]:
    """Return the findings about each command of a line; never empty."""
    return findings_of_commands(read_command(line), line)


def findings_of_commands(parsed: CommandLine, line: str) -> list[Finding]:
    """Return the findings about commands that are read already, and about their text."""
    line = line[:LONGEST]
    found: list[Finding] = []
    commands = commands_of_line(parsed)
    for command in commands:
        if command.words:
            program, arguments = program_of(command), command.words[1:]
            found.append((_rule_of_program(program, arguments), program, arguments))
        if command.writes:
            found.append((_rule_of_writes(command.writes), "", command.writes))
        if command.is_dynamic:
            found.append((_DYNAMIC, "", command.words))
        if command.assignments:
            found.append((ASSIGNS, "", command.assignments))
    if _CONNECTORS.search(line):
        found += _findings_between(commands)
    if not parsed.is_complete or not parsed.commands:
        found.append((_UNREADABLE, "", ()))
    if deletes_in_database(line, [program_of(command) for command in commands]):
        found.append((DESTROYS, "", ("a statement that deletes",)))
    if "{" in line and len(line) <= CACHED_LENGTH and _has_fork_bomb(line):
        found.append((_FORK_BOMB, "", ()))
    return found or [(_READ_ONLY, "", ())]


def _has_fork_bomb(line: str) -> bool:
    for function in islice(_FUNCTION.finditer(line), _MOST_FUNCTIONS):
        name, start = function[1], function.end()
        body = line[start : start + _LONGEST_BODY].partition("}")[0]
        for started in _STARTED.finditer(body):
            before = started[1].removesuffix(name)
            if before != started[1] and not re.search(r"\w$", before):
                return True
    return False


def _findings_between(commands: Sequence[SimpleCommand]) -> list[Finding]:
    """Find shells and interpreters that run the output of another command of the line."""
    fed = [command for command in commands if command.is_piped or _runs_text(command)]
    shells = list(
        dict.fromkeys(program for each in fed if _interprets(program := program_of(each)))
    )
    if not shells:
        return []
    programs = [program_of(command) for command in commands]
    downloaders = [program for program in programs if program in _DOWNLOADERS]
    return [(_RUNS_DOWNLOADED, "", downloaders) if downloaders else (_RUNS_OUTPUT, "", shells)]


def _runs_text(command: SimpleCommand) -> bool:
    return any("$(" in word or "`" in word for word in command.words)


def _interprets(program: str) -> bool:
    return is_shell(program) or program in ("eval", ".") or bool(_INTERPRETERS.fullmatch(program))


def _rule_of_writes(paths: Sequence[str]) -> RiskRule:
    if any(_DEVICE.match(path) for path in paths):
        return _WRITES_DEVICE
    if any(_CONFIGURATION.search(path) for path in paths):
        return _WRITES_CONFIGURATION
    return _WRITES


def _rule_of_program(program: str, arguments: Sequence[str]) -> RiskRule:
    if program == "git":
        return _rule_of_git(arguments)
    if program in _DANGEROUS or program.startswith("mkfs"):
        return _rule_of_dangerous(program, arguments)
    if program in _READERS:
        rule = _rule_of_reader(program, arguments)
        return _READS_SECRET if rule is _READ_ONLY and _names_secret(arguments) else rule
    return _UNKNOWN if destructive_words(program, arguments) is None else DESTROYS


def _names_secret(arguments: Sequence[str]) -> bool:
    named = "\n".join(arguments)
    return _MAYBE_SECRET.search(named) is not None and _SECRET.search(named) is not None


def _rule_of_reader(program: str, arguments: Sequence[str]) -> RiskRule:
    if program not in _WRITERS:
        return _READ_ONLY
    if program == "find" and "-delete" in arguments:
        return _DELETES_FOUND
    return _OPTION_ACTS if _acting_options(program, arguments) else _READ_ONLY


def _acting_options(program: str, arguments: Sequence[str]) -> list[str]:
    """Return the options with which a reading program writes or runs something."""
    options = [each for each in arguments if _WRITING_OPTIONS.fullmatch(each)]
    harmless = _HARMLESS_OPTIONS.get(program)
    return [each for each in options if each not in harmless] if harmless else options


def _rule_of_dangerous(program: str, arguments: Sequence[str]) -> RiskRule:
    if program.startswith("mkfs"):
        return _FORMATS
    if any(_DEVICE.search(each) for each in arguments):
        return _USES_DEVICE
    if program == "rm" and any(map(_RECURSIVE.fullmatch, arguments)):
        targets = [each for each in arguments if not each.startswith("-")]
        return (
            _DELETES_EVERYTHING
            if any(map(_EVERYTHING.fullmatch, targets))
            else _DELETES_RECURSIVELY
        )
    return _DELETES if program in _DELETERS else _CHANGES_SYSTEM


def _rule_of_git(arguments: Sequence[str]) -> RiskRule:
    options, subcommand, rest = git_parts(arguments)
    dangers = _GIT_HIGH.get(subcommand)
    if dangers is not None and any(map(dangers.fullmatch, rest)):
        is_main = subcommand == "push" and _is_forced(rest) and _MAIN_BRANCHES.intersection(rest)
        return _FORCE_PUSHES_MAIN if is_main else _GIT_DISCARDS
    if subcommand in _GIT_READERS or (subcommand in _GIT_LISTS and _only_lists(rest)):
        is_plain = not options and not any(each.startswith(_GIT_ACTING) for each in rest)
        return _READ_ONLY if is_plain else _GIT_OPTION_ACTS
    return _GIT_CHANGES


def git_parts(arguments: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Split the arguments of `git` into options that configure it, the subcommand and the rest.

    `-C directory` is left out: it changes the folder, not what git does.
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


_MAX_LENGTH: Final = 120  # characters of a reason
_SUBJECT_HEAD: Final = 24  # characters that are kept of a long part of a command
_SUBJECT_TAIL: Final = 13
_SENTENCE: Final = 110  # leaves room for _AND_MORE
_MAX_SUBJECTS: Final = 3
_AND_MORE: Final = "; and more"
_UNNAMED: Final = "unspecified files"
_UNMISTAKABLE: Final = re.compile(r"[\w./@%+=~*$-]([\w./:@%+=~*$ -]*[\w./@%+=~*$-])?", re.ASCII)

_Subjects: TypeAlias = Callable[[str, Sequence[str]], Sequence[str]]


def explain_risk(name: str, given: Any = None, kind: str | None = None) -> Risk:
    """Return the level that `risk_of_call` returns, and the reasons for it."""
    return explain_findings(_findings_of_call(name, given, kind))


def explain_findings(findings: Sequence[Finding]) -> Risk:
    """Return the level of the worst findings, and their reasons."""
    rank = max(rule.rank for rule, _, _ in findings)
    reasons: dict[str, dict[str, None]] = {}
    for rule, program, words in findings:
        if rule.rank == rank:
            template, subjects = _template_of(rule, program, words)
            reasons.setdefault(template, {}).update(dict.fromkeys(subjects))
    return Risk(_LEVELS[rank], _joined([_sentence(each, list(reasons[each])) for each in reasons]))


def _joined(sentences: Sequence[str]) -> str:
    reason = sentences[0][:1].upper() + sentences[0][1:]
    for count, sentence in enumerate(sentences[1:], 2):
        longer = f"{reason}; {sentence}"
        limit = _MAX_LENGTH if count == len(sentences) else _MAX_LENGTH - len(_AND_MORE)
        if len(longer) > limit:
            return reason + _AND_MORE
        reason = longer
    return reason


def _sentence(template: str, subjects: Sequence[str]) -> str:
    """Insert as many subjects as fit; one always does."""
    shown = [_shown(each) for each in subjects[:_MAX_SUBJECTS]]
    sentence = template
    for count in range(len(shown), 0, -1):
        more = len(subjects) - count
        listed = ", ".join(shown[:count]) + (f" and {more} more" if more else "")
        sentence = template.format(listed)
        if len(sentence) <= _SENTENCE:
            break
    return sentence


def _shown(subject: str) -> str:
    """Return a part of a command: short, on one line, quoted if it could be mistaken."""
    most = _SUBJECT_HEAD + _SUBJECT_TAIL + 1
    text = subject if len(subject) <= 2 * most else f"{subject[:most]}{subject[-most:]}"
    text = "".join(each if each.isprintable() else f"\\u{{{ord(each):x}}}" for each in text)
    if len(text) > most:
        text = f"{text[:_SUBJECT_HEAD]}…{text[-_SUBJECT_TAIL:]}"
    if _UNMISTAKABLE.fullmatch(text.replace("…", "")):
        return text
    return '"{}"'.format(text.replace('"', "'"))


def _template_of(rule: RiskRule, program: str, words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the text of a rule, more exact if the program is known, and its subjects."""
    template = rule.words
    if rule in (_UNKNOWN, _UNKNOWN_TOOL, _CHANGES_SYSTEM):
        template = _words_of(program, words) or template
    elif rule in (_GIT_CHANGES, _GIT_DISCARDS):
        template = _words_of_git(rule, words)
    if "{}" not in template:
        return template, ()
    return template, _SUBJECTS.get(rule, _program)(program, words) or [_UNNAMED]


def _words_of(program: str, words: Sequence[str]) -> str | None:
    if "$" in program:
        return _DYNAMIC.words
    if program in _INSTALLERS and _INSTALLS.intersection(_targets(program, words)[:2]):
        return "installs packages: {}"
    return _WORDS.get(program)


def _words_of_git(rule: RiskRule, words: Sequence[str]) -> str:
    _, subcommand, _ = git_parts(words)
    if rule is _GIT_DISCARDS:
        is_remote = subcommand == "push"
        return "overwrites or deletes remote branches or tags: {}" if is_remote else rule.words
    if subcommand in _GIT_WORDS:
        return _GIT_WORDS[subcommand]
    return rule.words if subcommand in _GIT_CHANGING else _UNKNOWN.words


def _program(program: str, _words: Sequence[str]) -> Sequence[str]:
    return [program or "a program without a name"]


def _words(_program: str, words: Sequence[str]) -> Sequence[str]:
    return words


def _targets(_program: str, words: Sequence[str]) -> Sequence[str]:
    return [each for each in words if not each.startswith("-")]


def _matching(found: Callable[[str], object]) -> _Subjects:
    return lambda _program, words: [each for each in words if found(each)]


def _variables(_program: str, words: Sequence[str]) -> Sequence[str]:
    return [each.partition("=")[0].rstrip("+") for each in words]


def _options(program: str, words: Sequence[str]) -> Sequence[str]:
    return [f"{program} {each}" for each in _acting_options(program, words)]


def _git(_program: str, words: Sequence[str]) -> Sequence[str]:
    _, subcommand, rest = git_parts(words)
    dangers = _GIT_HIGH.get(subcommand)
    found = [each for each in rest if dangers and dangers.fullmatch(each)]
    return [" ".join(["git", subcommand, *found[:1]]).strip()]


def _git_options(_program: str, words: Sequence[str]) -> Sequence[str]:
    options, _, rest = git_parts(words)
    return [*options, *(each for each in rest if each.startswith(_GIT_ACTING))]


def _each_of(words_of: Mapping[str, str]) -> dict[str, str]:
    return {name: words for words, programs in words_of.items() for name in programs.split()}


_SUBJECTS: Final[Mapping[RiskRule, _Subjects]] = {
    _DYNAMIC: lambda program, words: words[:1],
    ASSIGNS: _variables,
    _READS_SECRET: _matching(_SECRET.search),
    _WRITES: _words,
    _CHANGES: _words,
    _OPTION_ACTS: _options,
    _GIT_CHANGES: _git,
    _GIT_OPTION_ACTS: _git_options,
    DESTROYS: lambda program, words: [destructive_words(program, words) or words[0]],
    NOT_UNDERSTOOD: lambda _program, words: words,
    _DELETES: _targets,
    _DELETES_RECURSIVELY: _targets,
    _WRITES_CONFIGURATION: _matching(_CONFIGURATION.search),
    _GIT_DISCARDS: _git,
    _RUNS_OUTPUT: _words,
    _RUNS_DOWNLOADED: _words,
    _DELETES_EVERYTHING: _matching(_EVERYTHING.fullmatch),
    _WRITES_DEVICE: _matching(_DEVICE.match),
    _USES_DEVICE: _matching(_DEVICE.search),
    _FORCE_PUSHES_MAIN: _matching(_MAIN_BRANCHES.__contains__),
}
"""What replaces `{}` in the text of a rule; for all others the program."""
_WORDS: Final = _each_of(
    {
        "uses the network: {}": "aria2c curl fetch ftp http https nc rsync scp sftp ssh wget",
        "changes files: {}": "cp install ln mkdir mv patch tee touch",
        "changes permissions or ownership: {}": "chgrp chmod chown",
        "runs as another user: {}": "doas su sudo",
        "kills processes: {}": "kill killall pkill",
        "shuts down or restarts the machine: {}": "halt poweroff reboot shutdown",
        "changes services or scheduled jobs: {}": "crontab launchctl service systemctl",
        "changes disks or mounts: {}": "diskutil fdisk mount parted umount wipefs",
        "changes user accounts: {}": "passwd useradd userdel usermod visudo",
        "changes the firewall: {}": "iptables",
        "copies raw bytes: {}": "dd",
        "truncates files: {}": "truncate",
    }
)
_INSTALLERS: Final = names(
    """apk apt apt-get brew bundle bun cargo composer conda dnf gem go npm pacman pip pip3 pipx pnpm
    poetry uv yarn yum"""
)
_INSTALLS: Final = names("add ci get i install sync update upgrade")
_GIT_WORDS: Final = _each_of(
    {"pushes to a remote": "push", "fetches from a remote: {}": "clone fetch pull"}
)
_GIT_CHANGING: Final = names(
    """add am apply bisect branch checkout cherry-pick clean commit config gc init merge mv notes
    rebase reflog remote reset restore revert rm stash switch tag update-ref worktree"""
)
