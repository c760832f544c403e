"""Any input is judged in a bounded number of steps, and nothing raises.

Steps are calls of functions, of Python and of C, which Python counts: they do not depend on how
fast or busy the machine is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final

import pytest
from hypothesis import given, strategies as st

from quarterdeck.policy import Call, Policy, Rule, assess_risk, command_line, decide, read_command
from quarterdeck.policy.globs import matches_path, matches_text
from tests.policy.hostile_lines import PIECES

POLICY: Final = Policy(
    rule=(
        Rule(decision="allow", commands=("git *", "ls*", "find *", "a *"), writes=("out/**",)),
        Rule(decision="deny", commands=("rm *", "sudo *", "*evil*x*"), writes=("**/.env",)),
    )
)
REPEATED: Final = {
    "nested parameters": "${",
    "nested substitutions": "$(",
    "nested arithmetic": "$((",
    "groups": "(",
    "braces": "{ ",
    "backquotes": "`a`",
    "single quotes": "'",
    "double quotes": '"$',
    "commands": "a;",
    "pipes": "a|b ",
    "here-documents": "a<<b ",
    "here-strings": "bash<<<'a b' ",
    "escapes": "\\a",
    "continued lines": "a\\\n",
    "redirections": "a>b ",
    "sudo": "sudo ",
    "env -S": "env -S 'a b' ",
    "nested shells": "sh -c 'sh -c \"a\"' ; ",
    "eval": "eval a ",
    "xargs": "xargs ",
    "words": "a ",
    "quoted words": "'a' ",
    "substitutions": "$(a)",
    "git": "git foreach ",
    "aliases": "alias a=b ",
    "inline programs": "python -c ",
    "fields": "rm$IFS",
    "assignments": "a=b ",
    "ansi quotes": "$'a'",
    "expressions": "let a$(b) ",
    "tests": "[ '$(a)' ",
    "functions": "a(){ ",
    "carriers": "uv run ",
    "scripts": "sed -e s/a/b/ ",
    "options": "git diff --output=x ",
    "lines": "ls\n",
    "blanks": " ",
    "one word": "x",
    "one word with wildcards": "x*",
    "one word of quotes": "'x'",
    "one word of quotes and signs": "'a'\\ b\"c\"",
    "modifiers": "$?",
}
FIND: Final = "find . " + "-exec rm {} " * 6_000
MOST_STEPS: Final = 60_000


def steps_of(judged: Callable[[], Any]) -> int:
    count = 0

    def profile(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    command_line._cached.cache_clear()  # noqa: SLF001 - each line is read anew
    command_line._cached_long.cache_clear()  # noqa: SLF001
    sys.setprofile(profile)
    try:
        judged()
    finally:
        sys.setprofile(None)
    return count


def judge(line: str) -> None:
    call = Call("Bash", {"command": line}, kind="execute")
    decide(POLICY, call, workspace="/p")
    assess_risk(call)


@pytest.mark.parametrize("piece", REPEATED.values(), ids=REPEATED)
def test_steps_do_not_grow_with_the_length_of_a_line(piece: str) -> None:
    sizes = (20_000, 60_000)
    short, long = (steps_of(partial(judge, piece * (size // len(piece)))) for size in sizes)
    assert long <= MOST_STEPS
    assert long <= 2 * short + 1_000


@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_a_line_of_any_size_is_judged(size: int) -> None:
    for line in ("x" * size, "'" + "x" * size + "'", "a " * (size // 2), "$(" * (size // 2)):
        assert steps_of(partial(judge, line)) <= MOST_STEPS
        assert decide(POLICY, Call("Bash", {"command": line}), workspace="/p").decision == "ask"


def test_many_commands_behind_one_are_found_in_bounded_steps() -> None:
    assert steps_of(lambda: judge(FIND)) <= MOST_STEPS
    call = Call("Bash", {"command": FIND}, kind="execute")
    assert decide(POLICY, call, workspace="/p").decision == "deny"
    assert assess_risk(call).level == "high"


def test_nested_parameters_do_not_raise() -> None:
    for depth in (16, 17, 400, 5_000):
        line = "ls " + "${x:-" * depth + "}" * depth
        assert not read_command(line).is_complete or depth <= 16
        judge(line)


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=30).map("".join))
def test_nothing_raises(line: str) -> None:
    judge(line)
    judge(line * 20)


@pytest.mark.parametrize(
    ("text", "glob"),
    [
        ("a" * 50_000, "*a" * 40 + "b"),
        ("a" * 50_000, "a*" * 200),
        ("ab" * 25_000, "*[ab]?" * 30 + "c"),
        ("a" * 50_000, "?" * 500 + "*" * 500),
    ],
)
def test_globs_for_text_take_one_step_for_each_piece(text: str, glob: str) -> None:
    assert steps_of(lambda: matches_text(text, glob)) <= 50 * len(glob) + 1_000


@pytest.mark.parametrize(
    "glob", ["**/" * 30 + "b", "**/*/" * 20 + "b", "{a,b}/" * 5 + "**", "*/**" * 20]
)
def test_globs_for_paths_take_bounded_steps(glob: str) -> None:
    path = "/".join("a" * 200)
    assert steps_of(lambda: matches_path(path, glob, with_dots=True)) <= 200_000
    assert not matches_path("/".join("a" * 5_000), "**", with_dots=False)
    assert matches_path("/".join("a" * 5_000), "**", with_dots=True)


@pytest.mark.parametrize(
    "member", ['"a":1', '"command":"ls x"', '"a":{"b":1,"b":2}', '"a":[{},{},{}]', '"a":"\\""']
)
@pytest.mark.parametrize("count", [450, 1_900, 5_000])
def test_json_that_repeats_its_keys_is_judged_in_few_steps(member: str, count: int) -> None:
    text = "{" + ",".join([member] * count) + "}"
    for given_input in (text, {"arguments": text}, "[" + text + "]"):
        call = Call("Bash", given_input, kind="execute")
        assert steps_of(partial(decide, POLICY, call, workspace="/p")) <= MOST_STEPS
        assert decide(POLICY, call, workspace="/p").decision == "ask"
