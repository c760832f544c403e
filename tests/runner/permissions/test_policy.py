"""The rules of the owner: which rule decides, and that no title of an agent decides."""

from __future__ import annotations

from typing import Any

import pytest

from quarterdeck.policy import Call, Policy, Rule, assess_risk, decide, read_call
from quarterdeck.protocol.tool_calls import announced, requested
from quarterdeck.runner.permissions.card import MOST_SHOWN, visible

GIT = Rule(decision="allow", name="git", commands=("git status", "git diff*"))
LIST = Rule(decision="allow", name="list", commands=("ls", "ls *"))
NO_PUSH = Rule(decision="deny", name="no push", commands=("git push*",))


def inspected(*sent: dict[str, Any]) -> Call:
    """Inspect the call of a permission request, the last of the messages."""
    facts = None
    for payload in sent[:-1]:
        facts = announced(facts, payload, 0)
    return read_call(requested(facts, sent[-1], 0), sent[-1])


def decided(*rules: Rule, command: str, title: str = "", workspace: str = "/p") -> object:
    call = inspected(
        {"toolCallId": "1", "kind": "execute", "title": title, "rawInput": {"command": command}}
    )
    decision = decide(Policy(rule=rules), call, workspace=workspace, agent="mine")
    return decision.decision, decision.rule or ""


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


def test_the_title_of_a_call_decides_nothing() -> None:
    assert decided(GIT, LIST, command="rm -rf .", title="git status") == ("ask", "")


def test_a_command_that_is_only_a_title_can_be_denied_but_not_allowed() -> None:
    def of_title(title: str) -> tuple[object, str]:
        call = inspected({"toolCallId": "1", "kind": "execute", "title": title})
        policy = Policy(rule=(GIT, LIST, NO_PUSH))
        return decide(policy, call, workspace="/p").decision, assess_risk(call).level

    assert of_title("git status") == ("ask", "high")
    assert of_title("git push") == ("deny", "high")
    assert of_title("rm -rf /") == ("ask", "critical")


def test_the_id_of_a_call_is_no_command() -> None:
    call = inspected({"toolCallId": "ls", "kind": "execute", "title": "ls"})
    assert call.command is None
    assert decide(Policy(rule=(LIST,)), call, workspace="/p").decision == "ask"


def test_a_rule_applies_only_to_its_agent_and_its_project() -> None:
    def one(agent: str | None = None, project: str | None = None) -> Rule:
        return Rule(decision="allow", commands=True, agent=agent, project=project)

    assert decided(one(agent="other"), command="ls") == ("ask", "")
    assert decided(one(agent="mine"), command="ls") == ("allow", "rule 1")
    assert decided(one(project="/p"), command="ls", workspace="/p/sub") == ("allow", "rule 1")
    assert decided(one(project="/p"), command="ls", workspace="/pp") == ("ask", "")
    assert decided(one(project="/p"), command="ls", workspace="/p/../etc") == ("ask", "")


def test_a_call_whose_input_shows_nothing_says_so() -> None:
    call = inspected({"toolCallId": "1", "title": "Harmless", "rawInput": {"x": 1}})
    assert call.title == "Harmless"
    risk = assess_risk(call)
    assert "Cannot be inspected" in risk.reason
    assert risk.level != "low"


def test_a_permission_request_is_read_with_the_earlier_messages_about_its_call() -> None:
    call = inspected(
        {"toolCallId": "1", "kind": "execute", "rawInput": {"command": "rm -rf /"}},
        {"toolCallId": "1", "title": "Tidy up", "rawInput": {}},
    )
    assert call.command == "rm -rf /"
    assert assess_risk(call).level == "critical"


def test_texts_of_agents_are_shown_with_both_ends_and_escaped() -> None:
    padded = "safe" + " " * 10_000 + "; rm -rf ~"
    shown = visible(padded)
    assert shown.endswith("; rm -rf ~")
    assert len(shown) <= MOST_SHOWN + 1
    assert visible("a\x1b[2J\u202eb\u200bc\nd") == "a\\u{1b}[2J\\u{202e}b\\u{200b}c\\u{a}d"
    assert visible("Größe 漢字 ok") == "Größe 漢字 ok"
