"""`quarterdeck policy check`: decision, rule, reading and reason, for one command or many calls."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.cli.main import main
from quarterdeck.cli.policy_check import PolicyChecker
from quarterdeck.policy import Policy, Rule
from tests.policy.hostile_lines import PIECES

RULES = """
[[policy.rule]]
decision = "allow"
name = "look"
commands = ["git status*", "git diff*", "ls*"]
reads = ["src/**"]

[[policy.rule]]
decision = "deny"
name = "no push"
commands = ["git push*"]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "hub.toml"
    file.write_text(RULES, encoding="utf-8")
    return file


def checked(
    config: Path, capfd: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    status = main(["policy", "check", "--config", str(config), *arguments])
    out, err = capfd.readouterr()
    return status, out, err


@pytest.mark.parametrize(
    ("command", "decision", "rule", "reason"),
    [
        ("git status -s", "allow", "look", "Allowed by look."),
        ("sudo git push", "deny", "no push", "Denied by no push."),
        ("make", "ask", None, "No rule matches."),
        (
            "git diff --output=x",
            "ask",
            None,
            "No rule matches. A pattern has to spell out: --output.",
        ),
    ],
)
def test_a_command_gets_its_decision_its_rule_and_its_reason(
    config: Path, capfd: pytest.CaptureFixture[str], command: str, decision: str, rule: str | None,
    reason: str,
) -> None:  # fmt: skip
    status, out, _ = checked(config, capfd, "--json", command)
    answer = json.loads(out)
    assert status == 0
    assert (answer["decision"], answer["rule"], answer["reason"]) == (decision, rule, reason)


def test_a_command_that_is_not_understood_says_what_it_contains(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = checked(config, capfd, "--json", "ls $(touch x)")
    answer = json.loads(out)
    assert answer["decision"] == "ask"
    assert "what only a shell can read: '$(touch x)'" in answer["reason"]
    assert answer["reading"]["isUnderstood"] is False
    assert answer["reading"]["commands"] == [["touch", "x"], ["ls", "$(…)"]]


def test_people_see_the_decision_first(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = checked(config, capfd, "ls -l > out.txt")
    assert status == 0
    assert out.splitlines() == [
        "ask",
        "reason   No rule matches. No rule allows these files: out.txt.",
        "command  ls -l",
        "writes   out.txt",
        "risk     medium: Writes to out.txt",
    ]


def test_each_line_of_standard_input_gets_its_answer_in_order(
    config: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[bytes] = [
        b'{"command": "git status"}',
        b"not json",
        b'{"command": "git push"}',
        b"[1]",
        b'{"toolCallId": "1", "kind": "execute", "rawInput": {"command": "ls"}}',
        b'{"params": {"toolCall": {"toolCallId": "1", "rawInput": {"command": "rm x"}}}}',
        b'{"name": "Read", "input": {"file_path": "src/a.py"}}',
        b"{}",
        b"",
        b'{"command": "\\ud800"}',
        b'{"command": ' + b"[" * 100_000,
        b"\xff\xfe",
        b'{"command": "ls"}',
    ]
    stream = io.TextIOWrapper(io.BytesIO(b"\n".join(lines)))
    monkeypatch.setattr("sys.stdin", stream)
    status, out, _ = checked(config, capfd, "--stdin")
    answers: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    expected = ["allow", None, "deny", None, "allow", "ask", "allow"]
    expected += [None, None, "ask", None, None, "allow"]
    assert [answer.get("decision") for answer in answers] == expected
    for answer in answers:
        assert "decision" in answer or answer["error"].endswith(("rawInput", "a shorter one"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["policy"], "policy needs an action"),
        (["policy", "check"], "pass either a command or --stdin"),
        (["policy", "check", "--stdin", "ls"], "pass either a command or --stdin"),
        (["policy", "check", "--config", "/missing.toml", "ls"], "does not exist"),
    ],
)
def test_misuse_is_one_sentence(
    capfd: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    assert main(arguments) != 0
    _, err = capfd.readouterr()
    assert sentence in err
    assert err.count("\n") == 1


def test_a_rule_may_be_limited_to_an_agent_and_a_project(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hub.toml"
    file.write_text(
        '[[policy.rule]]\ndecision = "allow"\nagent = "claude"\nproject = "/work"\n'
        'commands = ["ls"]\n'
    )
    given = ("--json", "ls", "--workspace", "/work/a")
    assert json.loads(checked(file, capfd, *given)[1])["decision"] == "ask"
    assert json.loads(checked(file, capfd, *given, "--agent", "claude")[1])["decision"] == "allow"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8) | st.sampled_from(PIECES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("command", "rawInput", "toolCallId", "kind", "content", "title", "name"),
                    *("input", "params", "toolCall", "locations", "cwd", "path", "_meta"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON | st.binary(max_size=30))
def test_any_line_gets_an_answer(line: Any) -> None:
    checker = PolicyChecker(
        Policy(rule=(Rule(decision="allow", commands=("ls*",)),)), workspace="/p"
    )
    text = line if isinstance(line, bytes) else json.dumps(line).encode()
    answer = checker.answer(text)
    assert answer.get("decision") in ("allow", "ask", "deny") or answer["error"]


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ('{"command": "ls", "command": "git status"}', "ask"),
        ('{"command": "touch x", "command": "ls"}', "ask"),
        ('{"command": "git push", "command": "ls"}', "deny"),
        ('{"command": "ls", "cwd": "/evil", "cwd": "."}', "ask"),
        ('{"toolCallId": "1", "rawInput": {"command": "touch x", "command": "ls"}}', "ask"),
        ('{"toolCallId": "1", "rawInput": {"command": "ls"}, "rawInput": {}}', "ask"),
        ('{"name": "Bash", "input": {"command": "git push", "command": "ls"}}', "deny"),
    ],
)
def test_a_line_that_repeats_a_key_is_never_allowed(line: str, decision: str) -> None:
    rules = (
        Rule(decision="allow", commands=("ls*", "git status*")),
        Rule(decision="deny", commands=("git push*",)),
    )
    checker = PolicyChecker(Policy(rule=rules), workspace="/p")
    assert checker.answer(line.encode())["decision"] == decision
    assert "the same key twice" in checker.answer(line.encode())["reason"] or decision == "deny"
