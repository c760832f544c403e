"""How often people are asked about ordinary lines, with rules as an owner of a project has them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from quarterdeck.policy import Call, Policy, Rule, decide

LINES: Final = [
    line.replace("\\n", "\n") if "printf" not in line else line
    for line in Path(__file__).with_name("ordinary_lines.txt").read_text().splitlines()
    if line and not line.startswith("# What")
]
PATTERNS: Final = (
    *("git status*", "git diff*", "git log*", "git show*", "git blame*", "git branch*"),
    *("git add*", "git commit*", "git rev-parse*", "git ls-files*", "git stash*"),
    *("git checkout*", "git fetch*", "git pull*", "git merge-base*", "git config --get*"),
    *("git remote*", "git tag*", "ls*", "pwd", "cd *", "cat*", "head*", "tail*", "wc*", "sed*"),
    *("awk*", "grep*", "rg*", "find*", "tree*", "du*", "df*", "which*", "echo*", "true"),
    *("sleep*", "date*", "env", "whoami", "uname*", "stat*", "file*", "basename*", "printf*"),
    *("xargs*", "ps*", "lsof*", "diff*", "sort*", "uniq*", "[ *", "test*", "jq*", "mkdir*"),
    *("touch*", "cp*", "mv*", "kill*", "npm*", "npx*", "pnpm*", "yarn*", "bun*", "node*"),
    *("python*", "pip*", "pytest*", "uv*", "poetry*", "ruff*", "mypy*", "black*", "cargo*"),
    *("go*", "make*", "./gradlew*", "mvn*", "docker ps*", "docker logs*", "docker compose ps*"),
    *("docker compose logs*", "gh pr*", "gh issue*", "curl*"),
)
POLICY: Final = Policy(
    rule=(
        Rule(decision="allow", name="project", reads=True, commands=PATTERNS, writes=("**",)),
        Rule(decision="deny", name="never", commands=("sudo *", "rm -rf *", "git push*")),
    )
)
MOST_ASKED: Final = 0.10


def lines_left_to_a_person() -> list[str]:
    calls = {line: Call("Bash", {"command": line}, kind="execute") for line in LINES}
    return [
        line
        for line, call in calls.items()
        if decide(POLICY, call, workspace="/project").decision != "allow"
    ]


def test_few_ordinary_lines_are_asked_needlessly() -> None:
    assert len(LINES) >= 200
    assert len(set(LINES)) == len(LINES)
    assert len(lines_left_to_a_person()) <= MOST_ASKED * len(LINES), "\n".join(
        lines_left_to_a_person()
    )
