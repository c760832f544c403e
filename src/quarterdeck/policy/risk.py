"""How dangerous a call is, by what it would do.

    low       only looks
    medium    changes the project, installs, talks to the network, or is not known
    high      deletes, ends, changes rights or owners, becomes another user, rewrites history,
              writes where the system or the account is configured, runs what was piped into it
    critical  deletes everything, formats, writes to a device, runs what was just downloaded,
              force-pushes the main branch, starts itself without end

A line is as dangerous as the worst of its commands. Programs are looked for behind `sudo`, `env`,
`xargs`, `sh -c` and the like. What cannot be read is never low.

Every decision is a `Rule`, so that the same one gives the level and, in `reasons`, the words.

Why a call has its risk, in a line for whoever has to decide about it.

The rules are those of `risk`; here they only get their words. Pieces of a command are an agent's
words: they are short, show what is not seen, and are quoted if they could be taken for ours.

What follows from the name and the kind of a call alone: looked up once, not for every update.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from quarterdeck.policy.command_line import REMEMBERED, SimpleCommand, parse_command_line
from quarterdeck.policy.tools import (
    PATH_KEYS,
    canonical_name,
    categorize_call,
    commands_of,
    text_of,
)
from quarterdeck.policy.types import RiskLevel, ToolCategory
from quarterdeck.policy.wrappers import all_commands, is_shell, program_of, unwrapped


class Rule(NamedTuple):
    """Why something has its level."""

    rank: int
    """The place of the level in `LEVELS`."""
    words: str
    """`{}` is where that goes which it is about."""


Finding: TypeAlias = tuple[Rule, str, Sequence[str]]
"""A rule, the program that it is about, and those words that it was found in."""
LEVELS: Final[tuple[RiskLevel, ...]] = ("low", "medium", "high", "critical")
_LOW, _MEDIUM, _HIGH, _CRITICAL = range(len(LEVELS))

LOOKS: Final = Rule(_LOW, "reads only")
UNKNOWN: Final = Rule(_MEDIUM, "its effect is not known: {}")
UNTOLD: Final = Rule(_MEDIUM, "its command is not told")
UNREADABLE: Final = Rule(_MEDIUM, "not all of its command can be read")
DYNAMIC: Final = Rule(_MEDIUM, "what it runs is only known when it runs: {}")
ASSIGNS: Final = Rule(_MEDIUM, "sets variables: {}")
READS_SECRET: Final = Rule(_MEDIUM, "reads what may be secret: {}")
WRITES: Final = Rule(_MEDIUM, "writes to {}")
CHANGES: Final = Rule(_MEDIUM, "changes {}")
OPTION_ACTS: Final = Rule(_MEDIUM, "may write files or run programs: {}")
GIT_CHANGES: Final = Rule(_MEDIUM, "changes the repository: {}")
GIT_CONFIGURED: Final = Rule(_MEDIUM, "may write files or run programs with git's {}")
DANGEROUS: Final = Rule(_HIGH, "changes the system: {}")
DELETES: Final = Rule(_HIGH, "deletes {}")
DELETES_ALL_IN: Final = Rule(_HIGH, "rm -r deletes {} and everything in it")
DELETES_FOUND: Final = Rule(_HIGH, "deletes what find finds")
GUARDS: Final = Rule(_HIGH, "writes where the system or the account is configured: {}")
GIT_DISCARDS: Final = Rule(_HIGH, "discards work or rewrites history: {}")
RUNS_GIVEN: Final = Rule(_HIGH, "runs what another command gives it: {}")
RUNS_DOWNLOADED: Final = Rule(_CRITICAL, "runs what {} downloads")
DELETES_EVERYTHING: Final = Rule(_CRITICAL, "rm -r deletes everything: {}")
WRITES_DEVICE: Final = Rule(_CRITICAL, "writes to a device: {}")
ON_DEVICE: Final = Rule(_CRITICAL, "works on a device: {}")
FORMATS: Final = Rule(_CRITICAL, "formats a disk: {}")
FORCES_MAIN: Final = Rule(_CRITICAL, "force-pushes the main branch: {}")
STARTS_ITSELF: Final = Rule(_CRITICAL, "starts itself without end")


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A function that starts itself twice, and does not wait for that.
_FORK_BOMB: Final = re.compile(
    r"(?<!\w)([\w:.]{1,64})\s{0,9}\(\s{0,9}\)\s{0,9}\{[^}]{0,200}?(?<!\w)\1\s{0,9}(\|\s{0,9}\1\s{0,9})?&"
)

_CONNECTS: Final = re.compile(r"[|(`]")
"""Without one of these, no command of a line gives another something to run."""
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
"""Readers that write, or run something, with one of these options."""
# `-o` joins two tests of find, `-i` and `-s` ignore case or size elsewhere.
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
GIT_HIGH: Final = {
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
GIT_ACTING: Final = ("--output", "-O")
"""Options with which a reader of git's writes a file or opens a pager."""
MAIN: Final = frozenset({"main", "master", "trunk", "+main", "+master"})
EVERYTHING: Final = re.compile(r"(/|~|\$HOME|\$\{HOME\}|/root|/home|/Users|\.|\.\.|\*)/?\*?/?")
GUARDED: Final = re.compile(
    r"(/etc|/usr|/bin|/sbin|/lib|/boot|/dev|/sys|/proc|/System|/Library)(/|$)"
    r"|(^|/)\.(ssh|gnupg|aws|kube|docker)(/|$)|(^|/)\.git/(hooks|config)"
    r"|(^|/)\.(bashrc|bash_profile|zshrc|zshenv|profile|npmrc|netrc|pypirc)$|authorized_keys"
)
SECRET: Final = re.compile(
    r"(^|/)\.(ssh|gnupg|aws|kube)/|(^|/)\.(env|netrc|npmrc|pypirc)(\.[\w-]+)?$|(^|/)id_(rsa|ed25519)"
    r"|/etc/shadow",
    re.MULTILINE,
)
_MAYBE_SECRET: Final = re.compile(r"\.[a-z]|id_|shadow")
DEVICE: Final = re.compile(r"/dev/(sd|hd|nvme|vd|xvd|disk|mmcblk|mem)")
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
    commands = commands_of(given)
    if canonical == "Bash" or kind == "execute" or (canonical is None and commands):
        return max(map(risk_of_command, commands), key=LEVELS.index, default="medium")
    return LEVELS[_rule_of_tool(canonical, kind, given).rank]


def findings_of_call(name: str, given: Any = None, kind: str | None = None) -> Sequence[Finding]:
    """Return what there is to say about a call; the worst of it decides on its risk."""
    canonical = canonical_name(name)
    commands = commands_of(given)
    if canonical == "Bash" or kind == "execute" or (canonical is None and commands):
        return [each for line in commands for each in _findings(line)] or [(UNTOLD, "", ())]
    path = text_of(given, PATH_KEYS)
    return [(_rule_of_tool(canonical, kind, given), name, (path,) if path else ())]


def _rule_of_tool(canonical: str | None, kind: str | None, given: Any) -> Rule:
    if canonical == "Delete" or kind == "delete":
        return DELETES
    if canonical in _CHANGING_TOOLS or kind in ("edit", "move"):
        return GUARDS if GUARDED.search(text_of(given, PATH_KEYS) or "") else CHANGES
    if canonical == "Read" or kind == "read":
        return READS_SECRET if SECRET.search(text_of(given, PATH_KEYS) or "") else LOOKS
    if canonical in _HARMLESS_TOOLS or kind in ("search", "fetch", "think", "switch_mode"):
        return LOOKS
    return UNKNOWN


def risk_of_command(line: str) -> RiskLevel:
    """Return the risk of a command line: that of its worst command."""
    return _remembered(line) if len(line) <= REMEMBERED else _risk_of_line(line)


@lru_cache(maxsize=128)
def _remembered(line: str) -> RiskLevel:
    return _risk_of_line(line)


def _risk_of_line(line: str) -> RiskLevel:
    return LEVELS[max([rule.rank for rule, _, _ in _findings(line)])]


def _findings(line: str) -> list[Finding]:
    """Judge a line, command by command; there is always something to say."""
    parsed = parse_command_line(line)
    found: list[Finding] = []
    commands = all_commands(parsed.commands)
    for command in commands:
        if command.words:
            program, arguments = program_of(command), command.words[1:]
            found.append((_rule_of_program(program, arguments), program, arguments))
        if command.writes:
            found.append((_rule_of_writes(command.writes), "", command.writes))
        if command.is_dynamic:
            found.append((DYNAMIC, "", command.words))
        if command.assignments:
            found.append((ASSIGNS, "", command.assignments))
    if _CONNECTS.search(line):
        found += _findings_of_the_whole(commands)
    if not parsed.is_complete or not parsed.commands:
        found.append((UNREADABLE, "", ()))
    if "{" in line and len(line) <= REMEMBERED and _FORK_BOMB.search(line):
        found.append((STARTS_ITSELF, "", ()))
    return found or [(LOOKS, "", ())]


def _findings_of_the_whole(commands: Sequence[SimpleCommand]) -> list[Finding]:
    """Find shells that run what another command of the line gives them."""
    fed = [command for command in commands if command.is_piped or _runs_text(command)]
    run = [program for command in fed for program, _ in unwrapped(command)]
    shells = list(dict.fromkeys(program for program in run if _interprets(program)))
    if not shells:
        return []
    programs = [program_of(command) for command in commands]
    downloaders = [program for program in programs if program in _DOWNLOADERS]
    return [(RUNS_DOWNLOADED, "", downloaders) if downloaders else (RUNS_GIVEN, "", shells)]


def _runs_text(command: SimpleCommand) -> bool:
    return any("$(" in word or "`" in word for word in command.words)


def _interprets(program: str) -> bool:
    return is_shell(program) or program in ("eval", ".") or bool(_INTERPRETERS.fullmatch(program))


def _rule_of_writes(paths: Sequence[str]) -> Rule:
    if any(DEVICE.match(path) for path in paths):
        return WRITES_DEVICE
    if any(GUARDED.search(path) for path in paths):
        return GUARDS
    return WRITES


def _rule_of_program(program: str, arguments: Sequence[str]) -> Rule:
    if program == "git":
        return _rule_of_git(arguments)
    if program in _DANGEROUS or program.startswith("mkfs"):
        return _rule_of_dangerous(program, arguments)
    if program in _READERS:
        rule = _rule_of_reader(program, arguments)
        return READS_SECRET if rule is LOOKS and _names_secret(arguments) else rule
    return UNKNOWN


def _names_secret(arguments: Sequence[str]) -> bool:
    named = "\n".join(arguments)
    return _MAYBE_SECRET.search(named) is not None and SECRET.search(named) is not None


def _rule_of_reader(program: str, arguments: Sequence[str]) -> Rule:
    if program not in _WRITERS:
        return LOOKS
    if program == "find" and "-delete" in arguments:
        return DELETES_FOUND
    return OPTION_ACTS if acting_options(program, arguments) else LOOKS


def acting_options(program: str, arguments: Sequence[str]) -> list[str]:
    """Return those options of a reader with which it writes, or runs something."""
    options = [each for each in arguments if _WRITING_OPTIONS.fullmatch(each)]
    harmless = _HARMLESS_OPTIONS.get(program)
    return [each for each in options if each not in harmless] if harmless else options


def _rule_of_dangerous(program: str, arguments: Sequence[str]) -> Rule:
    if program.startswith("mkfs"):
        return FORMATS
    if any(DEVICE.search(each) for each in arguments):
        return ON_DEVICE
    if program == "rm" and any(map(_RECURSIVE.fullmatch, arguments)):
        targets = [each for each in arguments if not each.startswith("-")]
        return DELETES_EVERYTHING if any(map(EVERYTHING.fullmatch, targets)) else DELETES_ALL_IN
    return DELETES if program in _DELETERS else DANGEROUS


def _rule_of_git(arguments: Sequence[str]) -> Rule:
    options, subcommand, rest = git_parts(arguments)
    dangers = GIT_HIGH.get(subcommand)
    if dangers is not None and any(map(dangers.fullmatch, rest)):
        is_main = subcommand == "push" and _is_forced(rest) and MAIN.intersection(rest)
        return FORCES_MAIN if is_main else GIT_DISCARDS
    if subcommand in _GIT_READERS or (subcommand in _GIT_LISTS and _only_lists(rest)):
        is_plain = not options and not any(each.startswith(GIT_ACTING) for each in rest)
        return LOOKS if is_plain else GIT_CONFIGURED
    return GIT_CHANGES


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


LONGEST: Final = 120  # characters of a reason
_SUBJECT_HEAD: Final = 24  # of a piece of a command that is too long for a reason
_SUBJECT_TAIL: Final = 13
_SENTENCE: Final = 110  # what leaves room for _AND_MORE
_MOST_SUBJECTS: Final = 3
_AND_MORE: Final = "; and more"
_UNNAMED: Final = "what it is given"
_UNMISTAKABLE: Final = re.compile(r"[\w./@%+=~*$-]([\w./:@%+=~*$ -]*[\w./@%+=~*$-])?", re.ASCII)

_Subjects: TypeAlias = Callable[[str, Sequence[str]], Sequence[str]]


def explain_risk(name: str, given: Any = None, kind: str | None = None) -> tuple[RiskLevel, str]:
    """Return the risk of a call, as `risk_of_call` does, and what it was decided by."""
    findings = findings_of_call(name, given, kind)
    rank = max(rule.rank for rule, _, _ in findings)
    told: dict[str, dict[str, None]] = {}
    for rule, program, words in findings:
        if rule.rank == rank:
            template, subjects = _told(rule, program, words)
            told.setdefault(template, {}).update(dict.fromkeys(subjects))
    return LEVELS[rank], _joined([_sentence(each, list(told[each])) for each in told])


def _joined(sentences: Sequence[str]) -> str:
    reason = sentences[0]
    for place, sentence in enumerate(sentences[1:], 2):
        longer = f"{reason}; {sentence}"
        most = LONGEST if place == len(sentences) else LONGEST - len(_AND_MORE)
        if len(longer) > most:
            return reason + _AND_MORE
        reason = longer
    return reason


def _sentence(template: str, subjects: Sequence[str]) -> str:
    """Name as many subjects as there is room for; one always fits."""
    shown = [_shown(each) for each in subjects[:_MOST_SUBJECTS]]
    sentence = template
    for count in range(len(shown), 0, -1):
        more = len(subjects) - count
        listed = ", ".join(shown[:count]) + (f" and {more} more" if more else "")
        sentence = template.format(listed)
        if len(sentence) <= _SENTENCE:
            break
    return sentence


def _shown(subject: str) -> str:
    """Return a piece of a command so that it is short, on one line, and seen for what it is."""
    most = _SUBJECT_HEAD + _SUBJECT_TAIL + 1
    text = subject if len(subject) <= 2 * most else f"{subject[:most]}{subject[-most:]}"
    text = "".join(each if each.isprintable() else f"\\u{{{ord(each):x}}}" for each in text)
    if len(text) > most:
        text = f"{text[:_SUBJECT_HEAD]}…{text[-_SUBJECT_TAIL:]}"
    if _UNMISTAKABLE.fullmatch(text.replace("…", "")):
        return text
    return '"{}"'.format(text.replace('"', "'"))


def _told(rule: Rule, program: str, words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the words of a rule, more exact ones where the program is known, and its subjects."""
    template = rule.words
    if rule in (UNKNOWN, DANGEROUS):
        template = _words_of(program, words) or template
    elif rule in (GIT_CHANGES, GIT_DISCARDS):
        template = _words_of_git(rule, words)
    if "{}" not in template:
        return template, ()
    return template, _SUBJECTS.get(rule, _program)(program, words) or [_UNNAMED]


def _words_of(program: str, words: Sequence[str]) -> str | None:
    if "$" in program:
        return DYNAMIC.words
    if program in _INSTALLERS and _INSTALLS.intersection(_targets(program, words)[:2]):
        return "installs packages: {}"
    return _WORDS.get(program)


def _words_of_git(rule: Rule, words: Sequence[str]) -> str:
    _, subcommand, _ = git_parts(words)
    if rule is GIT_DISCARDS:
        is_remote = subcommand == "push"
        return "overwrites or deletes on a remote: {}" if is_remote else rule.words
    if subcommand in _GIT_WORDS:
        return _GIT_WORDS[subcommand]
    return rule.words if subcommand in _GIT_CHANGING else UNKNOWN.words


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
    return [f"{program} {each}" for each in acting_options(program, words)]


def _git(_program: str, words: Sequence[str]) -> Sequence[str]:
    _, subcommand, rest = git_parts(words)
    dangers = GIT_HIGH.get(subcommand)
    found = [each for each in rest if dangers and dangers.fullmatch(each)]
    return [" ".join(["git", subcommand, *found[:1]]).strip()]


def _git_options(_program: str, words: Sequence[str]) -> Sequence[str]:
    options, _, rest = git_parts(words)
    return [*options, *(each for each in rest if each.startswith(GIT_ACTING))]


def _each_of(words_of: Mapping[str, str]) -> dict[str, str]:
    return {name: words for words, programs in words_of.items() for name in programs.split()}


_SUBJECTS: Final[Mapping[Rule, _Subjects]] = {
    DYNAMIC: lambda program, words: words[:1],
    ASSIGNS: _variables,
    READS_SECRET: _matching(SECRET.search),
    WRITES: _words,
    CHANGES: _words,
    OPTION_ACTS: _options,
    GIT_CHANGES: _git,
    GIT_CONFIGURED: _git_options,
    DELETES: _targets,
    DELETES_ALL_IN: _targets,
    GUARDS: _matching(GUARDED.search),
    GIT_DISCARDS: _git,
    RUNS_GIVEN: _words,
    RUNS_DOWNLOADED: _words,
    DELETES_EVERYTHING: _matching(EVERYTHING.fullmatch),
    WRITES_DEVICE: _matching(DEVICE.match),
    ON_DEVICE: _matching(DEVICE.search),
    FORCES_MAIN: _matching(MAIN.__contains__),
}
"""What the words of a rule are about; the program for all others."""
_WORDS: Final = _each_of(
    {
        "talks to the network: {}": "aria2c curl fetch ftp http https nc rsync scp sftp ssh wget",
        "changes files: {}": "cp install ln mkdir mv patch tee touch",
        "changes rights or owners: {}": "chgrp chmod chown",
        "runs as another user: {}": "doas su sudo",
        "ends programs: {}": "kill killall pkill",
        "stops the machine: {}": "halt poweroff reboot shutdown",
        "changes what the machine runs: {}": "crontab launchctl service systemctl",
        "changes disks: {}": "diskutil fdisk mount parted umount wipefs",
        "changes accounts: {}": "passwd useradd userdel usermod visudo",
        "changes the firewall: {}": "iptables",
        "copies raw bytes: {}": "dd",
        "cuts files: {}": "truncate",
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


_TELLING: Final = frozenset({"Task", "AskUserQuestion", "TodoWrite", "ExitPlanMode"})
_CHANGING: Final = frozenset({"Write", "Edit", "NotebookEdit", "Patch", "Delete"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a tool is."""

    canonical: str | None
    category: ToolCategory
    risk: RiskLevel
    """Without an input; one may raise it."""
    is_command: bool
    is_search: bool
    is_web: bool
    changes_files: bool
    tells_more: bool
    """Whether its calls are told as something else, too: a sub-agent, a question, todos, a plan."""


@lru_cache(maxsize=1024)
def traits_of(name: str, kind: str | None) -> Traits:
    canonical = canonical_name(name)
    return Traits(
        canonical=canonical,
        category=categorize_call(name, kind),
        risk=risk_of_call(name, None, kind),
        is_command=canonical == "Bash" or kind == "execute",
        is_search=canonical == "Grep" or kind == "search",
        is_web=canonical in ("WebSearch", "WebFetch") or kind == "fetch",
        changes_files=canonical in _CHANGING or kind in ("edit", "delete"),
        tells_more=canonical in _TELLING or kind == "switch_mode",
    )
