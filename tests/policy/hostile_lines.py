"""Generates command lines that try to get `touch PWN` past rules such as `git status*`.

A line is built from what shells read differently from how it looks: quotes, expansions, operators,
keywords, characters that cannot be seen, redirections, here-documents. Half of the lines are
mutations of harmless ones, so that many of them are allowed and can be executed. The same seed
gives the same lines.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

PROGRAMS: Final = ("git status", "ls", "npm test", "ls -la", "git status -s", "npm test -- x")
PAYLOADS: Final = (
    *("touch PWN", "rm canary", "> PWN", "echo x > PWN", ": > PWN", "cp canary PWN", "ls/evil"),
    *("./ls/evil", "ls > PWN", "git status > PWN", "sh -c 'touch PWN'", "eval touch PWN", "id"),
    *("command touch PWN", "exec touch PWN", "env touch PWN", "lsof", "ls2", "printf x > PWN"),
)
HARMLESS: Final = (
    *("git status", "ls", "npm test", "ls -la src", "git status && ls", "npm test | ls", "ls; ls"),
    *("ls 'a b'", 'ls "a b"', "ls a\\ b", "npm test 2>&1", "ls > /dev/null", "(ls)", "{ ls; }"),
    *("ls\nls", "git status || ls", "! ls", "CI=true npm test", "timeout 5 npm test", "time ls"),
    *("nice -n 5 ls", "env CI=1 ls", "ls *", "ls x*", "ls [ab]", "ls ?", "ls $?", "ls $((1+1))"),
    *("ls <<'E'\nx\nE", "ls <<E\nx\nE", "ls <<-E\n\tx\n\tE\n", "ls <<< 'x'", "ls < canary", "ls #"),
    *("# c\nls", "ls a#b", "ls HEAD~1", "ls HEAD^", "ls stash@{0}", "ls {}", "ls -I{}", 'ls "x$"'),
    *('ls "a\\"b"', 'ls "a\\\\"', "ls \\;", "ls \\( \\)", "ls 2>/dev/null", "ls &>/dev/null"),
    *("npm test -- --grep 'a|b'", 'ls "é ü"', "ls 'ß'", "(ls; (git status))", "ls && { ls; ls; }"),
    *("ls &&\nls", "ls |\nls", "ls\n\n# x\nls", "ls ''", "ls '' \"\"", "ls 'x'\"y\"z", "ls -- -x"),
    *("ls 'ł'", 'ls "ń ć"', "ls 'ā ăĄ'", 'ls "€ 漢字"', "ls '\U0001f600'", 'ls "$? x"', "ls a$?b"),
    *("stdbuf -oL ls", "command ls", "ls a=b", "ls --a=b", "ls 'a\nb'", 'ls "a\nb"', "ls %1 @ + :"),
)
PIECES: Final = (
    *(
        "$(",
        "`",
        ")",
        "}",
        "{",
        "${",
        "$((",
        "))",
        "$[",
        "]",
        "[",
        "[[",
        "]]",
        "<(",
        ">(",
        "=(",
        "((",
    ),
    *(
        "'",
        '"',
        "\\",
        "\\\n",
        "$'",
        '$"',
        "\\'",
        '\\"',
        "''",
        '""',
        "$",
        "$$",
        "$?",
        "$!",
        "$@",
        "$*",
    ),
    *("|", "||", "&", "&&", ";", ";;", ";&", "|&", "&|", "&!", "\n", "\r", "\r\n", "\t", " ", "  "),
    *(">", ">>", "<", "<<", "<<<", "<<-", "<>", ">|", ">&", "<&", "&>", "2>&1", "2>", ">!", ">&2"),
    *(
        "#",
        "!",
        "~",
        "=",
        "*",
        "?",
        "^",
        "%",
        "@",
        "+",
        "-",
        "--",
        ":",
        ",",
        "..",
        "/",
        "a=1",
        "ls=1",
    ),
    *("if", "then", "fi", "do", "done", "for", "in", "case", "esac", "while", "function", "select"),
    *(
        "time",
        "coproc",
        "repeat",
        "noglob",
        "nocorrect",
        "foreach",
        "end",
        "always",
        "exec",
        "eval",
    ),
    *(
        "alias ls=touch",
        "ls() {",
        "function ls {",
        "ls () ",
        "trap",
        "let",
        "declare",
        "export",
        ".",
    ),
    *(
        "source",
        "builtin",
        "command",
        "env",
        "sudo",
        "xargs",
        "find",
        "nice",
        "timeout",
        "timeout 5",
    ),
    *(
        "PATH=.",
        "IFS=/",
        "ENV=x",
        "BASH_ENV=x",
        "PS4='$(touch PWN)'",
        "CI=true",
        "CI='$(touch PWN)'",
    ),
    *(
        "$IFS",
        "${IFS}",
        "${x:-",
        "${x:=",
        "${ ",
        "${|",
        "${(e)x}",
        "${!x}",
        "${x@P}",
        "$((a[",
        "{a,b}",
    ),
    *("\x00", "\x01", "\x07", "\x0b", "\x0c", "\x1b", "\x7f", "\x85", "\u00a0", "\u2028", "\u3000"),
    *(
        "\u200b",
        "\u202e",
        "\ufeff",
        "\u2003",
        "\uff1b",
        "\uff04",
        "é",
        "\x81",
        "\x88",
        "\x98",
        "\U0001d4c1",
    ),
    *(
        "<<E\n",
        "<<'E'\n",
        '<<"E"\n',
        "<<\\E\n",
        "E\n",
        "E",
        "\nE\n",
        "\n\tE",
        "<<E <<F\n",
        "<<-E\n",
    ),
    *(
        "@(a)",
        "!(a)",
        "?(a)",
        "*(a)",
        "a(e:'touch PWN':)",
        "*(N)",
        "=ls",
        "~+",
        "~root",
        "<1-5>",
        "**",
    ),
    *(
        "{fd}>PWN",
        "3>PWN",
        "10>PWN",
        "&>PWN",
        ">PWN",
        "2>PWN",
        ">>PWN",
        "> PWN",
        "|tee PWN",
        ">| PWN",
    ),
    *(
        "touch",
        "PWN",
        "ls",
        "git",
        "npm",
        "status",
        "test",
        "-x",
        "--output=PWN",
        "canary",
        "ls/evil",
    ),
    *(
        "'a[$(touch PWN)]'",
        "-eq",
        "-v",
        "x[$(touch PWN)]",
        "$(touch PWN)",
        "`touch PWN`",
        "`",
        "$(<x)",
    ),
)
_FRAMES: Final = (
    "{program} {payload}",
    "{program};{payload}",
    "{program}\n{payload}",
    "{program} #\n{payload}",
    "{program} $({payload})",
    "{program} `{payload}`",
    '{program} "$({payload})"',
    "{program} '$({payload})'",
    "{program} \\\n{payload}",
    "{program} \\\r\n{payload}",
    '{program} "\\\n$({payload})"',
    '{program} "$\\\n({payload})"',
    '{program} "`{payload}`"',
    "{program} ${{x:-$({payload})}}",
    "{program} ${{x:-<({payload})}}",
    "{program} ${{ {payload};}}",
    "{program} <({payload})",
    "{program} =({payload})",
    "{program} $$({payload})",
    "{program} $$'\\' ;{payload} #'",
    "{program} $'\\';{payload} #'",
    "{program} $'\\'' ;{payload}",
    '{program} $"$({payload})"',
    "ls=1 {payload}",
    "a='{program}' {payload}",
    "'{program}' {payload}",
    "{program} <<E\n$({payload})\nE",
    "{program} <<'E'\nE\n{payload}\n",
    "{program} <<E\nE \n{payload}\nE",
    "{program} <<-E\n\tE\n{payload}\n",
    "{program} <<'E' {payload}\nE",
    "{program} <<E;{payload}\nE\n",
    "{program} & {payload}",
    "{program} |& {payload}",
    "{program} &! {payload}",
    "{program}&{payload}",
    "{program} ( {payload} )",
    "( {payload} )",
    "{program} {{ {payload}; }}",
    "{{ {payload}; }}",
    "if {program}; then {payload}; fi",
    "for i in 1; do {payload}; done",
    "{program} () {{ {payload}; }}",
    "{program}() {{ {payload}; }}; {program}",
    "alias ls='{payload}'\nls",
    "! {payload}",
    "time {payload}",
    "timeout 5 {payload}",
    "nice {payload}",
    "env {payload}",
    "command {payload}",
    "CI=1 {payload}",
    "timeout 5 '{program}' {payload}",
    "env CI=1 {program} -- $({payload})",
    "{program} > PWN",
    "{program} 2> PWN",
    "{program} >PWN",
    "{program} &> PWN",
    "{program} > 'PWN'",
    "{program} >> PWN",
    "{program} | {payload}",
    "{program} || {payload}",
    "{program} && {payload}",
    "{program} ;; {payload}",
    "{program}\r{payload}",
    "{program}\x0b{payload}",
    "{program}\u2028{payload}",
    "{program}\x85{payload}",
    "{program} *(e:'{payload}':)",
    "{program} ${{x@P}} {payload}",
    "[ 'a[$({payload})]' -eq 1 ]",
    "{program} !$ {payload}",
    "{program} ^a^{payload}^",
    "{program} {{a,$({payload})}}",
    "{program} '\n{payload}\n'",
    '{program} "\n{payload}\n"',
    "{program} '''\n{payload}\n'''",
    "{program} \"'\" ; {payload} '\"'",
    "{program} \\' ; {payload} \\'",
    '{program} "\\" ; {payload} "',
    "{program} '\\' ; {payload} '",
    '{program} "a\\\\" ; {payload} "',
    "{program} $((1))$({payload})",
    "{program} $((`{payload}`))",
    "{program} $(({payload}))",
    "{program} a#b ; {payload}",
    "{program} {{}} ; {payload}",
    "{program} stash@{{0}} {payload}",
    "{program} @{{$({payload})}}",
    "bash <<'E'\n{payload}\nE",
    "bash <<< '{payload}'",
    "{program} | bash <<< '{payload}'",
)
_STATUSES: Final = (
    *("$?[PATH=1]", "$?:s/0/-x/", "$?:F:PATH=1:", "$?[x=1]", "$?:h", "$?{", "$?(", "$?~", "$?^"),
    *("$((1))[PATH=1]", "$((1)):h", "$?[(r)x]", "$?:A", "$?@{0}", "$?#", "$?%0", "$?=1", "$?,"),
)
_BYTES: Final = "".join(chr(code) for code in range(0x100, 0x180))  # every second byte of UTF-8
_INVISIBLE: Final = "\x00\x01\x07\x0b\x0c\r\x1b\x7f\x85\xa0\u2028\u200b\u3000\ufeff\x81\x84\x88"
_PLAIN: Final = "abls -=/.'\"\\$`(){}[]<>|&;#!~*?^%@+:,\n\tx1E_"


def hostile_lines(seed: int) -> Iterator[str]:
    """Yield lines without end."""
    random_source = random.Random(seed)
    makers = (_framed, _mutated, _mutated, _mutated, _mutated, _spliced, _assembled)
    while True:
        yield random_source.choice(makers)(random_source)


def _framed(source: random.Random) -> str:
    frame = source.choice(_FRAMES)
    line = frame.format(program=source.choice(PROGRAMS), payload=source.choice(PAYLOADS))
    return _edited(source, line) if source.random() < 0.4 else line


def _mutated(source: random.Random) -> str:
    line = source.choice(HARMLESS)
    if source.random() < 0.5:
        joint = source.choice((" && ", "; ", "\n", " | ", " || ", ";", "&&", "|", " ", ""))
        line = joint.join((line, source.choice(HARMLESS)))
    for _ in range(source.choice((0, 1, 1, 1, 2, 3))):
        line = _edited(source, line)
    return line


def _edited(source: random.Random, line: str) -> str:
    at = source.randint(0, len(line))
    kind = source.randrange(8)
    if kind == 0:
        return line[:at] + source.choice(PIECES) + line[at:]
    if kind == 1:
        return line[:at] + source.choice(_PLAIN) + line[at:]
    if kind == 2:
        return line[:at] + line[at + source.randint(1, 3) :]
    if kind == 3:
        return line[:at] + source.choice(PAYLOADS) + line[at:]
    if kind == 4:
        end = source.randint(at, len(line))
        return line[:end] + line[at:end] + line[end:]
    if kind == 5:
        return line[:at] + source.choice(_STATUSES) + line[at:]
    if kind == 6:
        return line[:at] + source.choice(_BYTES) + line[at:]
    return line[:at] + source.choice(_INVISIBLE) + line[at:]


def _spliced(source: random.Random) -> str:
    first, second = source.choice(HARMLESS), source.choice(HARMLESS)
    return first[: source.randint(0, len(first))] + second[source.randint(0, len(second)) :]


def _assembled(source: random.Random) -> str:
    chosen = (PIECES if source.random() < 0.7 else PAYLOADS for _ in range(source.randint(1, 6)))
    pieces = [source.choice(PROGRAMS), *map(source.choice, chosen)]
    return source.choice(("", " ")).join(pieces)
