"""Why a call has its risk, in a line for whoever has to decide about it.

The rules are those of `risk`; here they only get their words. Pieces of a command are an agent's
words: they are short, show what is not seen, and are quoted if they could be taken for ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from quarterdeck.dialects.context import risk
from quarterdeck.dialects.context.policy_types import RiskLevel
from quarterdeck.dialects.context.risk import Rule, git_parts, names

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
    findings = risk.findings_of_call(name, given, kind)
    rank = max(rule.rank for rule, _, _ in findings)
    told: dict[str, dict[str, None]] = {}
    for rule, program, words in findings:
        if rule.rank == rank:
            template, subjects = _told(rule, program, words)
            told.setdefault(template, {}).update(dict.fromkeys(subjects))
    return risk.LEVELS[rank], _joined([_sentence(each, list(told[each])) for each in told])


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
    if rule in (risk.UNKNOWN, risk.DANGEROUS):
        template = _words_of(program, words) or template
    elif rule in (risk.GIT_CHANGES, risk.GIT_DISCARDS):
        template = _words_of_git(rule, words)
    if "{}" not in template:
        return template, ()
    return template, _SUBJECTS.get(rule, _program)(program, words) or [_UNNAMED]


def _words_of(program: str, words: Sequence[str]) -> str | None:
    if "$" in program:
        return risk.DYNAMIC.words
    if program in _INSTALLERS and _INSTALLS.intersection(_targets(program, words)[:2]):
        return "installs packages: {}"
    return _WORDS.get(program)


def _words_of_git(rule: Rule, words: Sequence[str]) -> str:
    _, subcommand, _ = git_parts(words)
    if rule is risk.GIT_DISCARDS:
        is_remote = subcommand == "push"
        return "overwrites or deletes on a remote: {}" if is_remote else rule.words
    if subcommand in _GIT_WORDS:
        return _GIT_WORDS[subcommand]
    return rule.words if subcommand in _GIT_CHANGING else risk.UNKNOWN.words


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
    return [f"{program} {each}" for each in risk.acting_options(program, words)]


def _git(_program: str, words: Sequence[str]) -> Sequence[str]:
    _, subcommand, rest = git_parts(words)
    dangers = risk.GIT_HIGH.get(subcommand)
    found = [each for each in rest if dangers and dangers.fullmatch(each)]
    return [" ".join(["git", subcommand, *found[:1]]).strip()]


def _git_options(_program: str, words: Sequence[str]) -> Sequence[str]:
    options, _, rest = git_parts(words)
    return [*options, *(each for each in rest if each.startswith(risk.GIT_ACTING))]


def _each_of(words_of: Mapping[str, str]) -> dict[str, str]:
    return {name: words for words, programs in words_of.items() for name in programs.split()}


_SUBJECTS: Final[Mapping[Rule, _Subjects]] = {
    risk.DYNAMIC: lambda program, words: words[:1],
    risk.ASSIGNS: _variables,
    risk.READS_SECRET: _matching(risk.SECRET.search),
    risk.WRITES: _words,
    risk.CHANGES: _words,
    risk.OPTION_ACTS: _options,
    risk.GIT_CHANGES: _git,
    risk.GIT_CONFIGURED: _git_options,
    risk.DELETES: _targets,
    risk.DELETES_ALL_IN: _targets,
    risk.GUARDS: _matching(risk.GUARDED.search),
    risk.GIT_DISCARDS: _git,
    risk.RUNS_GIVEN: _words,
    risk.RUNS_DOWNLOADED: _words,
    risk.DELETES_EVERYTHING: _matching(risk.EVERYTHING.fullmatch),
    risk.WRITES_DEVICE: _matching(risk.DEVICE.match),
    risk.ON_DEVICE: _matching(risk.DEVICE.search),
    risk.FORCES_MAIN: _matching(risk.MAIN.__contains__),
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
