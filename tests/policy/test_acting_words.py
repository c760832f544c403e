"""Options that act are allowed only by patterns that spell them: every row of the table."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Final

import pytest

from quarterdeck.policy import Call, Policy, Rule, decide
from quarterdeck.policy.acting_options import ACTING, SAME


def decided(line: str, *patterns: str, writes: tuple[str, ...] = ()) -> str:
    policy = Policy(rule=(Rule(decision="allow", commands=patterns, writes=writes),))
    return decide(policy, Call("Bash", {"command": line}), workspace="/p").decision


def _options(program: str) -> list[str]:
    tokens = ACTING.get(program, "").split()
    return [each for each in tokens if each.startswith("-") and each != "-"]


PROGRAMS: Final = [program for program in ACTING if _options(program)]


def _forms(program: str, option: str) -> Iterator[str]:
    """Yield spellings of an option that programs accept."""
    yield f"{program} {option} value"
    yield f"{program} {option}=value"
    flags = {token for token in ACTING[program].split() if token.startswith("%")}
    if option.startswith("--"):
        if "%exact" not in flags:
            yield f"{program} {option[:-1]} value" if len(option) > 5 else f"{program} {option}"
        if flags & {"%dashes", "%exact"}:
            yield f"{program} {option[1:]}=value"
    elif len(option) == 2 and not flags & {"%dashes", "%exact"}:
        yield f"{program} {option}value"


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_wildcard_does_not_allow_an_option_that_acts(program: str) -> None:
    for line in [line for option in _options(program) for line in _forms(program, option)]:
        assert decided(line, f"{program} *") == "ask", line
        assert decided(line, f"{program.split(' ')[0]} *") == "ask", line
        assert decided(line, "*") == "ask", line


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_pattern_that_is_the_whole_command_allows_it(program: str) -> None:
    for option in _options(program):
        line = f"{program} {option} value"
        assert decided(line, line) == "allow"


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("git diff --output=x", "git diff --output*"),
        ("git diff --output x", "git diff --output *"),
        ("git diff --outp=x HEAD", "git diff --outp=*"),
        ("find . -name x -delete", "find * -delete"),
        ("sort -o x y", "sort -o *"),
        ("sort -uo x y", "sort -uo *"),
        ("npm test --prefix web", "npm test --prefix *"),
        ("sed -i s/a/b/ x", "sed -i *"),
        ("python3 -c 'print(1)'", "python3 -c *"),
        ("docker compose exec web ls", "docker compose exec *"),
        ("make CC=clang all", "make CC=* *"),
        ("git -C sub status", "git -C * status*"),
        ("find . -exec ls {} +", "find * -exec ls*"),
        ("cat src/a..b/c", "cat src/*"),
    ],
)
def test_a_pattern_that_spells_an_option_allows_it(line: str, pattern: str) -> None:
    assert decided(line, pattern) == "allow"


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("git diff --output=x --ext-diff", "git diff --output*"),
        ("git diff --output=x", "git diff --out*"),
        ("sort -o x y", "sort -*"),
        ("find . -exec rm {} +", "find * -delete*"),
        ("find . -exec rm {} +", "find * -exec *"),  # the program that it runs is not spelled
        ("git difftool", "git diff*"),
        ("lsof", "ls*"),
        ("ls/../evil", "ls*"),
        ("npmx test", "npm*"),
        ("git 'status --x'", "git status *"),
        ("git statusx", "git status*"),
        ("xargs xargs rm", "xargs *"),
        ("sudo sudo rm x", "sudo *"),
        ("timeout 5 timeout 5 rm x", "timeout *"),
        ("env env env rm x", "env *"),
        ("git diff --output=out/x --output=/etc/x", "git diff --output=out/*"),
        ("find . -exec ls {} + -exec rm {} +", "find * -exec ls*"),
        ("cat src/../../etc/passwd", "cat src/*"),
        ("cat src/..", "cat src/*"),
        ("cat ../x", "cat *"),
        ("tool --file=conf/../../x", "tool --file=conf/*"),
    ],
)
def test_a_pattern_that_does_not_spell_it_asks(line: str, pattern: str) -> None:
    assert decided(line, pattern) == "ask"


HARMLESS: Final = (
    *("git log -p -1 --stat", "git log --oneline -- README.md", "git show -s --format=%s HEAD"),
    *("git commit -m config", "find . -name x -o -iname y -size +1", "sort -k2 -t: -n x"),
    *("sort --key=2 x", "rg -i -o foo", "grep -f words x", "sed -n 1,5p x", "sed s/a/b/g x y"),
    *("awk '{print $1}' x", "tar tf x.tar", "make -j4 test", "make V=1"),
    *("go test -v -count=1 ./...", "cargo test -- --nocapture", "python3 -m pytest -q"),
    *("python3 x.py -c y", "node x.js", "pytest -k 'a and b' -x --cov=src"),
    *("npm test -- -t 'a b'", "curl -sS http://x", "bash x.sh", "docker ps -a"),
    *("jest --coverage", "tsc --noEmit -p .", "ls -o", "xargs -n1 wc -l", "unknown -o x"),
)


@pytest.mark.parametrize("line", HARMLESS)
def test_other_options_are_allowed_by_a_wildcard(line: str) -> None:
    assert decided(line, f"{shlex.split(line)[0]} *", "wc *", "pytest *") == "allow"


@pytest.mark.parametrize(("alias", "program"), SAME.items())
def test_another_name_of_a_program_has_its_options(alias: str, program: str) -> None:
    for option in _options(program)[:3]:
        assert decided(f"{alias} {option} x", f"{alias} *") == "ask"


@pytest.mark.parametrize(
    "line",
    [
        *("sed 'w PWN' x", "sed 's/a/b/e' x", "sed -n -e 1p -e 'w x' y", "sed '1e touch' x"),
        *("awk 'BEGIN{system(1)}'", "awk '{print > \"x\"}' y"),
        *("awk -v a=1 '{print | \"sh\"}' x", "sort *", "sort -- * -o x", "git log -O*"),
        *("tar xf x", "tar xIf x y", "npm test -script-shell=x", "npm test '$(x)'"),
        *("npm test '`x`'", "make 'A=$(shell x)'", "make A:=x", "uv run python -c x"),
        *(
            "npx tsx -e x",
            "npx --cache x -c y",
            "python3 --x y -c z",
            "python3 -mpytest -p x",
            "python3 -W ignore -c x",
        ),
        *("bash -O extglob -c ls", "xargs sort", "xargs sh -c ls", "docker run -v /:/x y"),
        *("tee x", "env PATH=. ls", "env -S 'ls'", "sudo -u x ls", "time -o x ls"),
        *("time PATH=. ls", "watch -x ls", "nohup touch x", "ssh -o x y"),
    ],
)
def test_what_acts_without_an_option_of_its_own_is_asked(line: str) -> None:
    programs = ("sed", "awk", "sort", "git", "tar", "npm", "make", "uv", "npx", "python3", "bash")
    wrappers = ("xargs", "docker", "tee", "env", "sudo", "time", "watch", "nohup", "ssh")
    patterns = [f"{program} *" for program in (*programs, *wrappers)]
    assert decided(line, *patterns) == "ask"


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("CI=true npm test", "allow"),
        ("CI=1 NODE_ENV=test npm test", "allow"),
        ("timeout 60 npm test", "allow"),
        ("timeout -k 5 60s npm test", "allow"),
        ("time npm test", "allow"),
        ("nice -n 10 npm test", "allow"),
        ("nice timeout 5 env CI=1 npm test", "allow"),
        ("export CI=true && npm test", "allow"),
        ("command npm test", "allow"),
        ("PATH=. npm test", "ask"),
        ("LD_PRELOAD=x npm test", "ask"),
        ("NODE_OPTIONS=-r npm test", "ask"),
        ("CI=true PATH=. npm test", "ask"),
        ("CI=/tmp/x npm test", "ask"),
        ("CI='a[$(x)]' npm test", "ask"),
        ("npm=1 rm npm test", "ask"),
        ("env PATH=. npm test", "ask"),
        ("export PATH=. && npm test", "ask"),
        ("timeout 60 rm x", "ask"),
        ("timeout '60 npm test' rm", "ask"),
        ("timeout --signal=KILL 5 npm test", "allow"),
        ("command -p npm test", "ask"),
        ("nice -n 10 'npm test'", "ask"),
    ],
)
def test_harmless_assignments_and_wrappers_are_seen_through(line: str, decision: str) -> None:
    assert decided(line, "npm test*") == decision


def test_a_pattern_may_begin_with_an_assignment() -> None:
    assert decided("PYTHONPATH=src pytest -q", "PYTHONPATH=src pytest*") == "allow"
    assert decided("PYTHONPATH=evil pytest -q", "PYTHONPATH=src pytest*") == "ask"
    assert decided("PYTHONPATH=src PATH=. pytest", "PYTHONPATH=src pytest*") == "ask"
    assert decided("pytest -q", "PYTHONPATH=src pytest*") == "ask"
    assert decided("python3.11 x.py", "python* x.py") == "allow"


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("cd src && ls", "allow"),
        ("cd /p/src && ls", "allow"),
        ("cd /p && ls", "allow"),
        ("cd / && ls", "ask"),
        ("cd .. && ls", "ask"),
        ("cd src/../.. && ls", "ask"),
        ("cd - && ls", "ask"),
        ("cd && ls", "ask"),
        ("cd -P src && ls", "ask"),
        ("cd s* && ls", "ask"),
        ("time cd / && ls", "ask"),
        ("echo x | tee out/x", "allow"),
        ("echo x | tee /etc/x", "ask"),
        ("echo x | bash", "ask"),
        ("echo x | bash -s", "ask"),
        ("echo x | python3", "ask"),
        ("echo x | python3 -", "ask"),
        ("echo x | python3 x.py", "allow"),
        ("python3 <<'E'\nx\nE", "ask"),
        ("source x && ls", "ask"),
        (". x", "ask"),
        ("alias ls=rm", "ask"),
        ("source venv/bin/activate && ls", "allow"),
        ("sudo apt list", "allow"),
        ("sudo rm x", "ask"),
        ("ls | xargs wc -l", "allow"),
        ("ls | xargs rm", "ask"),
        ("printf -v PATH . && ls", "ask"),
        ("command printf -v PATH . && ls", "ask"),
        ("printf x && ls", "allow"),
        ("read PATH < x && ls", "ask"),
        ("getopts a PATH && ls", "ask"),
        ("uniq x", "allow"),
        ("uniq x PWN", "ask"),
        ("uniq x -PWN", "ask"),
        ("uniq -f 1 x", "allow"),
        ("uniq -- x PWN", "ask"),
        ("uniq x out/y", "allow"),
        ("echo x | tee out/../PWN", "ask"),
        ("echo x | tee -", "ask"),
        ("echo x | tee 1", "ask"),
        ("echo x | tee -- -x", "ask"),
        ("echo x | tee -a out/x", "allow"),
        ("echo x | tee /dev/null", "allow"),
        ("ls > out/../PWN", "ask"),
    ],
)
def test_what_changes_the_shell_or_runs_another_program_needs_more(
    line: str, decision: str
) -> None:
    names = "ls cd echo tee bash python3 source . alias sudo apt xargs wc printf read getopts uniq"
    patterns = [each for name in names.split() for each in (f"{name}*", f"{name} *")]
    patterns.append("source venv/bin/activate")
    assert decided(line, *patterns, writes=("out/**",)) == decision
