"""A decision names its rule, what was read, and why."""

from __future__ import annotations

from typing import Any

import pytest

from quarterdeck.policy import Call, Policy, Rule, decide
from quarterdeck.policy.rules import KINDS

POLICY = Policy(
    rule=(
        Rule(decision="allow", name="tests", commands=("npm test",), reads=("src/**",)),
        Rule(decision="deny", name="no push", commands=("git push*",)),
        Rule(decision="allow", commands=("ls",)),
    )
)


@pytest.mark.parametrize(
    ("command", "decision", "rule", "reason"),
    [
        ("npm test", "allow", "tests", "Allowed by tests."),
        ("npm test; ls", "allow", "tests, rule 3", "Allowed by tests, rule 3."),
        ("ls && git push", "deny", "no push", "Denied by no push."),
        ("make", "ask", None, "No rule matches."),
        (
            "$X y",
            "ask",
            None,
            "A rule that denies may match, but the call could not be read completely. The command"
            " line is not fully understood: it contains what only a shell can read: '$X y'.",
        ),
    ],
)
def test_a_decision_has_its_rule_and_its_reason(
    command: str, decision: str, rule: str | None, reason: str
) -> None:
    decided = decide(POLICY, Call("Bash", {"command": command}), workspace="/p")
    assert (decided.decision, decided.rule, decided.reason) == (decision, rule, reason)


def test_a_decision_has_the_reading_of_a_command_line() -> None:
    call = Call("Bash", {"command": "npm test > out && echo $(ls)", "cwd": "/p/sub"})
    reading = decide(POLICY, call, workspace="/p").reading
    assert reading.commands == ("npm test", "ls", "echo $(…)")
    assert reading.folder == "/p/sub"
    assert reading.is_complete
    assert not Call("Bash", {"command": "npm test '"}).reading.is_complete
    assert not Call("Bash", {"command": "$X"}).reading.is_complete
    assert not Call("Bash", {}).reading.is_complete


def test_a_decision_has_the_paths_and_the_query_of_a_call() -> None:
    read = Call("Read", {"file_path": "/p/src/a"})
    decided = decide(POLICY, read, workspace="/p")
    assert (decided.decision, decided.reading.paths) == ("allow", ("/p/src/a",))
    assert decided.reading.is_complete
    assert not Call("Write", {"file_path": "~/a"}).reading.is_complete
    assert Call("WebSearch", {"query": "x"}).reading.query == "x"


def test_a_call_whose_input_shows_nothing_is_asked_for_that_reason() -> None:
    decided = decide(POLICY, Call("mcp__db__drop", {"table": "a"}), workspace="/p")
    assert decided.decision == "ask"
    assert decided.reason == "The input does not show what the call does."
    assert not decided.reading.is_readable
    assert not decided.reading.is_complete


def test_every_kind_of_rule_is_a_field_of_a_rule() -> None:
    scope = {"decision", "name", "agent", "project"}
    assert set(Rule.__struct_fields__) - scope == set(KINDS)


@pytest.mark.parametrize(
    ("given", "obstacle"),
    [
        ({"command": "ls $(x)"}, "it contains what only a shell can read: '$(x)'"),
        ({"command": "for i in 1; do ls; done"}, "it contains a keyword of a shell: for"),
        ({"command": "ls 'a\u202e'"}, "it contains a character that cannot be seen"),
        ({"command": "git diff --output=x"}, "A pattern has to spell out: --output."),
        ({"command": "git conf* x"}, "a glob that may become an option or a subcommand"),
        ({"command": "ls > out"}, "No rule allows these files: out."),
        ({"command": "ls < /etc/x"}, "No rule allows these files: /etc/x."),
        ({"command": "ls && foo 'a\tb'"}, "Not allowed in it: foo a\ufffdb."),
        ({"command": "ls", "cwd": "/etc"}, "It runs outside the workspace: /etc."),
        ({"command": "ls", "stdin": "x"}, "Not understood in the input: stdin."),
        ({"command": "ls", "text": "x"}, "Not understood in the input: text."),
        ({"command": ["ls", "a b"]}, "command (words with blanks or signs)"),
        ({"command": "ls", "env": {"A": "b"}}, "no list of harmless ones has: A."),
    ],
)
def test_the_reason_names_what_keeps_a_rule_from_allowing(given: Any, obstacle: str) -> None:
    policy = Policy(rule=(Rule(decision="allow", commands=("git *", "ls*")),))
    decided = decide(policy, Call("Bash", given, kind="execute"), workspace="/p")
    assert decided.decision == "ask"
    assert obstacle in decided.reason
    assert decided.reason.isprintable()
