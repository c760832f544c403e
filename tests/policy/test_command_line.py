"""Lines that a shell reads in another way than they look: no command may hide in them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from quarterdeck.policy.risk import risk_of_command
from quarterdeck.policy.rules import decide, parse_call
from quarterdeck.policy.types import PermissionPolicy, PolicyRules

LINES: Final = {
    "a dollar before a quote inside quotes": """echo "$'" $(touch ran) "'\"""",
    "an escaped quote in a here-document": 'cat <<EOF\n\\" # $(touch ran)\nEOF\n',
    "a dollar before a quote in a here-document": "cat <<EOF\n$'$(touch ran)'\nEOF\n",
    "an indented delimiter": "cat <<EOF\n\tEOF\n: '\nEOF\ntouch ran\n: '\n",
    "a line that goes on before a delimiter": "cat <<EOF\na\\\nEOF\n: '\nEOF\ntouch ran\n: ''\n",
    "a delimiter in two lines": "cat <<EOF\nEO\\\nF\ntouch ran\ncat <<EOF\nEOF\n",
    "a quoted brace in braces": "echo ${x:-'}' $(touch ran) ' #'}",
    "braces inside quotes": """echo "${x:-$'}" $(touch ran) "'}\"""",
    "quotes in backquotes in quotes": 'echo "`echo \\"a # $(touch ran)\\"`"',
    "arithmetic of old": "echo $[ 1 + 2 # $(touch ran)\n]",
    "an arithmetic command": "(( echo # $(touch ran)\n))",
    "arithmetic": "echo $(( echo # $(touch ran)\n))",
    "a function": "echo() { touch ran; }; echo",
    "a function with its keyword": "function echo { touch ran; }; echo",
}
ALLOWED: Final = PolicyRules(commands=("echo*", "cat*", ":*", "1*", "]"))


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_command_that_a_shell_would_run_is_not_allowed_unseen(line: str, tmp_path: Path) -> None:
    command = ["bash", "-c", line]
    subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, timeout=10)
    assert (tmp_path / "ran").exists()
    policy = PermissionPolicy(auto_approve=ALLOWED, auto_deny=PolicyRules())
    assert decide(policy, parse_call("Bash", "execute", {"command": line}), "/project") == "ask"
    assert risk_of_command(line) != "low"


def test_a_function_that_calls_itself_is_not_harmless() -> None:
    line = "echo() { echo | echo & }; echo"
    policy = PermissionPolicy(auto_approve=ALLOWED, auto_deny=PolicyRules())
    assert decide(policy, parse_call("Bash", "execute", {"command": line}), "/project") == "ask"
    assert risk_of_command(":(){ :|:& };:") != "low"


@pytest.mark.parametrize("decoy", ["file_path", "absolute_path", "target_file"])
def test_every_path_that_is_named_counts(decoy: str) -> None:
    rules = PolicyRules(writes=("src/**",))
    policy = PermissionPolicy(auto_approve=rules, auto_deny=PolicyRules())
    call = parse_call("Write", "edit", {decoy: "src/a", "path": "/etc/passwd"})
    assert decide(policy, call, "/project") == "ask"
