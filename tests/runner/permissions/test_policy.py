"""Rules of the owner: which decides, and that none decides by what an agent says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from quarterdeck.policy.call import InspectedCall, inspect_call
from quarterdeck.policy.rules import Policy, PolicyRule, decide_by_rules
from quarterdeck.protocol.tool_calls import announced, requested
from quarterdeck.runner.permissions.card import MOST_SHOWN, visible

GIT = PolicyRule(decision="allow", name="git", commands=("git status", "git diff*"))
LIST = PolicyRule(decision="allow", name="list", commands=("ls", "ls *"))
NO_PUSH = PolicyRule(decision="deny", name="no push", commands=("git push*",))


def inspected(*sent: dict[str, Any]) -> InspectedCall:
    """Inspect the call of a permission request, the last of the messages."""
    facts = None
    for payload in sent[:-1]:
        facts = announced(facts, payload, 0)
    return inspect_call(requested(facts, sent[-1], 0), sent[-1])


def decided(*rules: PolicyRule, command: str, title: str = "", project: str = "/p") -> object:
    call = inspected(
        {"toolCallId": "1", "kind": "execute", "title": title, "rawInput": {"command": command}}
    )
    return decide_by_rules(Policy(rule=rules), call.parsed, agent="mine", project=project)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git status", ("allow", "git")),
        ("ls -l", ("allow", "list")),
        ("git status && ls", ("allow", "git, list")),
        ("git status && rm -r x", ("ask", "")),
        ("git status; git push origin main", ("deny", "no push")),
        ("sudo git push", ("deny", "no push")),
        ("git status > /etc/passwd", ("ask", "")),
        ("$(cat evil)", ("ask", "")),
        ("make", ("ask", "")),
    ],
)
def test_the_rule_that_decides_is_named(command: str, expected: object) -> None:
    assert decided(GIT, LIST, NO_PUSH, command=command) == expected


def test_what_an_agent_calls_its_command_decides_nothing() -> None:
    assert decided(GIT, LIST, command="rm -rf .", title="git status") == ("ask", "")


def test_a_rule_counts_only_for_its_agent_and_its_project() -> None:
    def one(agent: str | None = None, project: str | None = None) -> PolicyRule:
        return PolicyRule(decision="allow", commands=True, agent=agent, project=project)

    assert decided(one(agent="other"), command="ls") == ("ask", "")
    assert decided(one(agent="mine"), command="ls") == ("allow", "rule 1")
    assert decided(one(project="/p"), command="ls", project="/p/sub") == ("allow", "rule 1")
    assert decided(one(project="/p"), command="ls", project="/pp") == ("ask", "")
    assert decided(one(project="/p"), command="ls", project="/p/../etc") == ("ask", "")


def test_a_call_that_nobody_can_read_says_so() -> None:
    call = inspected({"toolCallId": "1", "title": "Harmless", "rawInput": {"x": 1}})
    assert call.title == "Harmless"
    assert "cannot be inspected" in call.risk_reason
    assert call.risk != "low"


def test_what_was_said_of_a_call_before_counts_when_it_asks() -> None:
    call = inspected(
        {"toolCallId": "1", "kind": "execute", "rawInput": {"command": "rm -rf /"}},
        {"toolCallId": "1", "title": "Tidy up", "rawInput": {}},
    )
    assert call.command == "rm -rf /"
    assert call.risk == "critical"


def test_texts_of_agents_are_shown_with_their_ends_and_without_tricks() -> None:
    padded = "safe" + " " * 10_000 + "; rm -rf ~"
    shown = visible(padded)
    assert shown.endswith("; rm -rf ~")
    assert len(shown) <= MOST_SHOWN + 1
    assert visible("a\x1b[2J\u202eb\u200bc\nd") == "a\\u{1b}[2J\\u{202e}b\\u{200b}c\\u{a}d"
    assert visible("Größe 漢字 ok") == "Größe 漢字 ok"
