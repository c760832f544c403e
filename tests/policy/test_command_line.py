"""Lines that a shell reads differently from how they look: no command may stay hidden in them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from quarterdeck.policy import Call, Policy, Rule, decide
from quarterdeck.policy.risk_findings import risk_of_command

LINES: Final = {
    "a dollar before a quote inside quotes": """echo "$'" $(touch ran) "'\"""",
    "an escaped quote in a here-document": 'cat <<EOF\n\\" # $(touch ran)\nEOF\n',
    "a dollar before a quote in a here-document": "cat <<EOF\n$'$(touch ran)'\nEOF\n",
    "an indented delimiter": "cat <<EOF\n\tEOF\n: '\nEOF\ntouch ran\n: '\n",
    "a continued line before a delimiter": "cat <<EOF\na\\\nEOF\n: '\nEOF\ntouch ran\n: ''\n",
    "a delimiter in two lines": "cat <<EOF\nEO\\\nF\ntouch ran\ncat <<EOF\nEOF\n",
    "a quoted brace in braces": "echo ${x:-'}' $(touch ran) ' #'}",
    "braces inside quotes": """echo "${x:-$'}" $(touch ran) "'}\"""",
    "quotes in backquotes in quotes": 'echo "`echo \\"a # $(touch ran)\\"`"',
    "old arithmetic": "echo $[ 1 + 2 # $(touch ran)\n]",
    "an arithmetic command": "(( echo # $(touch ran)\n))",
    "arithmetic": "echo $(( echo # $(touch ran)\n))",
    "a function": "echo() { touch ran; }; echo",
    "a function with its keyword": "function echo { touch ran; }; echo",
}
ALLOWED: Final = Policy(rule=(Rule(decision="allow", commands=("echo*", "cat*", ":*", "1*", "]")),))


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_hidden_command_that_a_shell_runs_is_not_allowed(line: str, tmp_path: Path) -> None:
    command = ["bash", "-c", line]
    subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, timeout=10)
    assert (tmp_path / "ran").exists()
    call = Call("Bash", {"command": line}, kind="execute")
    assert decide(ALLOWED, call, workspace="/project").decision == "ask"
    assert risk_of_command(line) != "low"


def test_a_function_that_calls_itself_is_not_harmless() -> None:
    line = "echo() { echo | echo & }; echo"
    call = Call("Bash", {"command": line}, kind="execute")
    assert decide(ALLOWED, call, workspace="/project").decision == "ask"
    assert risk_of_command(":(){ :|:& };:") != "low"


@pytest.mark.parametrize("decoy", ["file_path", "absolute_path", "target_file"])
def test_every_path_of_the_input_must_be_allowed(decoy: str) -> None:
    policy = Policy(rule=(Rule(decision="allow", writes=("src/**",)),))
    call = Call("Write", {decoy: "src/a", "path": "/etc/passwd"}, kind="edit")
    assert decide(policy, call, workspace="/project").decision == "ask"
