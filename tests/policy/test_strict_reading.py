"""The strict reading: what it accepts, and what it must refuse because shells disagree about it."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given, strategies as st

from quarterdeck.policy import Call, Policy, Rule, decide, read_command
from quarterdeck.policy.strict_reading import (
    Unclear,
    _Steps,
    _StrictReader,
    obstacle_of,
    read_strictly,
)
from tests.policy.hostile_lines import HARMLESS, PIECES

FEW: Final = Policy(
    rule=(Rule(decision="allow", commands=("git status*", "ls*", "npm test*"), writes=("out/*",)),)
)
ACCEPTED: Final = {
    "ls": ["ls"],
    "git status && ls -l": ["git status", "ls -l"],
    "a | b || c; d": ["a", "b", "c", "d"],
    "a\nb\n\n# note\nc\n": ["a", "b", "c"],
    "{ a; } && (b; (c))": ["a", "b", "c"],
    "echo 'a b' \"c d\" e\\ f": ["echo a b c d e f"],
    'echo "a\\"b" "\\n" "x$" "$?"': ['echo a"b \\n x$ $?'],
    "! a 2>&1 > x >> y < z 2> v": ["a"],
    "cat <<'E' && ls\n$x `y`\nE\npwd": ["cat", "ls", "pwd"],
    "cat <<-E\n\tplain\n\tE": ["cat"],
    "cat <<< 'a b'": ["cat"],
    "bash <<'E'\nls; pwd\nE": ["bash", "ls", "pwd"],
    "A=1 B='x y' make": ["A=1 B=x y make"],
    "echo $((1+1)) HEAD~1 HEAD^ stash@{0} {} a#b": ["echo $((1+1)) HEAD~1 HEAD^ stash@{0} {} a#b"],
    "time -p ls": ["time -p ls"],
    "[ -f x ] && :": ["[ -f x ]", ":"],
}
REFUSED: Final = (
    *("ls &>x", "ls &> x", "ls &>> x y", "ls &>/dev/null touch x"),
    *("", " ", "ls $x", "ls $(x)", "ls `x`", 'ls "$x"', 'ls "$(x)"', 'ls "`x`"', "ls ${x}"),
    *("ls $'x'", 'ls $"x"', "ls ~", "ls ~x", "ls =x", "ls {a,b}", "ls {1..3}"),
    *("ls a~ b:~c d=~e", "ls &", "ls & ls", "ls |& ls", "ls ;; ls", "ls && && ls", "ls &&"),
    *("| ls", "ls |", "; ls", "ls \\\n-l", 'ls "a\\\nb"', "ls\\", "ls\\l", "l\\s", "'ls'"),
    *('"ls"', "l's'", "ls\tx", "ls\r", "ls # x", "# $(x)", "#!x;y", "ls ! x", 'ls "a!b"'),
    *("ls a!b", "if ls; then ls; fi", "for a", "function ls", "ls() { x; }", "ls () { x; }"),
    *("coproc ls", "! time ls", "eval ls", "repeat 2 ls", "noglob ls", "- ls", "exec ls"),
    *("builtin ls", "let x", "declare x", "[[ x ]]", "ls > $x", "ls > *", "ls > ~x", "ls >"),
    *("> x", "> x ls", "ls >&x", "ls >| x", "ls <> x", "ls > /dev/tcp/a/1"),
    *("ls < /dev/udp/a/1", "ls > /dev/sda", "ls 3> x", "ls {a}> x", "ls>x", "ls a<1-5>b"),
    *("ls <(x)", "ls >(x)", "ls =(x)", "ls *(x)", "ls @(x)", "ls a(b)", "ls (x)"),
    *("cat <<E\n$x\nE", "cat <<E\n\\\nE", "cat <<E\nx", "cat <<E <<F\nE\nF", "cat <<E\nx\nE "),
    *("cat <<\\E\nE", "cat << 'a b'\na b", "cat <<$x\nE", "bash <<'E'\n$x\nE", "(ls", "ls)"),
    *("{ ls }", "{ ls; } x", "(ls) x", "()", "{ }", "( )", "((1))", "A=$x ls", "A=1", "A=~ ls"),
    *("A==x ls", "a+=1 b", "A=(x) ls", "a[1]=2 ls", "ls\x00", "ls\xa0x", "ls 'a\u202eb'"),
    *("ls 'a\x1b'", "ls \u2028", "ls é", "[ 'a[$(x)]' -eq 1 ]", "test -v 'a[`x`]'"),
    *("printf %d 'a[$(x)]'", "exit 'a[$(x)]'", "ls %(", "l$s", "ls ]]; then", "always { x }"),
    *("ls }", "{ls}", "ls $((x))", "ls $((1+`x`))", "ls $[1]", "ls $((1)", "\u2028ls"),
    *("\ufeffls", "ls ^a^b", "^a^b", "%1", "@x", "+x", ". x $y", "ls '", 'ls "', "ls `"),
)


@pytest.mark.parametrize(("line", "commands"), ACCEPTED.items())
def test_a_line_of_the_subset_is_read(line: str, commands: list[str]) -> None:
    read = read_strictly(line)
    assert read is not None
    assert [command.text for command in read] == commands
    assert read_command(line).commands == read
    assert obstacle_of(line) is None


@pytest.mark.parametrize("line", REFUSED)
def test_any_other_line_is_refused_and_the_obstacle_is_named(line: str) -> None:
    assert read_strictly(line) is None
    obstacle = obstacle_of(line)
    assert obstacle
    assert obstacle.isprintable()


@pytest.mark.parametrize("line", REFUSED)
def test_no_rule_with_patterns_allows_what_is_refused(line: str) -> None:
    anything = Policy(rule=(Rule(decision="allow", commands=("*",), writes=("**", "/**")),))
    call = Call("Bash", {"command": line}, kind="execute")
    assert decide(anything, call, workspace="/p").decision == "ask"


def test_redirections_and_pipes_are_part_of_the_reading() -> None:
    (command,) = read_strictly("make 2>&1 > out.txt 2>> 'err log' < in 1> all >/dev/null") or ()
    assert command.writes == ("out.txt", "err log", "all")
    fed, group = (read_strictly("a | b") or ())[1], (read_strictly("a | { b; }") or ())[1]
    assert fed.is_piped
    assert group.is_piped
    (given_text,) = read_strictly("python3 <<'E'\nx\nE") or ()
    assert given_text.is_given
    assert (read_strictly("sort *.txt") or ())[0].has_open_word
    assert not (read_strictly("sort src/*.txt") or ())[0].has_open_word


TEXT: Final = st.text("ab $(){}'\"`\\|&;<>#=\n*[]?~!^%:,./-_19ELS\t\r\x00é\u00a0", max_size=40)
PLAIN_PIECES: Final = st.sampled_from(
    [
        *("ls", "-la", "&&", "||", "|", ";", "2>&1", "'a b'", '"c d"', "> out", "2>/dev/null"),
        *("a/b.py", "x:y", "--x=y", "''", "if", "time", ">> b", "2", "a;", "''x", "A=1", "test"),
        "'a[$x]'",
    ]
)


@given(TEXT | st.lists(st.sampled_from([*PIECES, *HARMLESS]), max_size=8).map("".join))
def test_no_text_raises_and_both_readings_agree_on_what_is_understood(line: str) -> None:
    read = read_command(line)
    if read.understood is not None:
        assert read.is_complete
        assert read.commands == read.understood
    assert (obstacle_of(line) is None) == (read_strictly(line) is not None)


@given(st.lists(PLAIN_PIECES, max_size=7).map(" ".join))
def test_the_quick_reader_reads_as_the_thorough_one(line: str) -> None:
    thorough = None
    with suppress(Unclear):
        thorough = _StrictReader(line, _Steps(), 0).read()
    assert read_strictly(line) == thorough


@given(st.lists(st.sampled_from([*PIECES, "git status", "ls", "npm test"]), max_size=6))
def test_an_allowed_line_has_no_character_that_only_a_shell_reads(pieces: list[str]) -> None:
    line = " ".join(pieces)
    call = Call("Bash", {"command": line}, kind="execute")
    if decide(FEW, call, workspace="/p").decision == "allow":
        bare = re.sub(r"'[^']*'|\"[^\"]*\"|<<.*", "", line, flags=re.DOTALL)
        assert not re.search(r"\$[^?(]|`|\$\([^(]", bare)
