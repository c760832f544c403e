"""Attacks on rules by a reader of the source: each line and each input here was allowed once.

The rules are those that the documentation shows, and wide ones. Lines are grouped by the class of
the mistake that they use.
"""

from __future__ import annotations

import string
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis.strategies import from_regex

from quarterdeck.policy import Call, Policy, Rule, decide, read_command
from quarterdeck.policy.acting_options import ACTING

FEW: Final = ("git status*", "ls*", "npm test*")
WIDE: Final = (
    *("git *", "find *", "sort *", "npm *", "make*", "cat *", "grep *", "sed*", "awk*", "ls*"),
    *("python -m pytest*", "cargo *", "go *", "xargs*", "echo *", "tee *", "cd *", "sudo *"),
    *("bundle *", "gem *", "composer *", "python3*", "bash", "uniq *", "yarn *", "dc *"),
)


def decided(given: Any, *patterns: str, writes: tuple[str, ...] = (), **more: Any) -> str:
    policy = Policy(rule=(Rule(decision="allow", commands=patterns or FEW, writes=writes),))
    if isinstance(given, str):
        given = {"command": given}
    call = Call(more.pop("name", "Bash"), given, **{"kind": "execute", **more})
    return decide(policy, call, workspace="/p").decision


@pytest.mark.parametrize(
    "line",
    [
        # zsh calculates, and assigns, in the subscript of any parameter; `1/ls` then runs.
        *('ls "$?[PATH=1]"; ls', "ls $?[PATH=1]; ls", 'ls "a $?[path=1]"', "ls a$?[1]"),
        # nopt ignores the `no` of an option whose value is a text.
        *("npm test --no-script-shell=./x", "npm test --no-script-shell ./x"),
        *("npm test --no-no-script-shell=./x", "npm test -no-script-shell ./x"),
        *("npm test --NO-script-shell ./x", "npm test --no-node-options=-r=./x"),
        # The script of a test runs a program whose options load code or write files.
        *("npm test -- --config=x.js", "npm test -- --globalSetup ./x.js", "npm test -- -c x.js"),
        *("npm test -- --global-setup=./x", "npm test -- --outputFile=x", "npm test -- -r ./x"),
        *("npm test -- --coverageDirectory=x", "npm test -- --import ./x", "npm test x -- --fix"),
        # A redirection reads a file that no rule names.
        *("ls < /etc/shadow", "npm test < ../x", "ls < '/etc/shadow'", "ls 0< /etc/shadow"),
        # A shell without comments runs a program in the folder `#`.
        *("#/x\nls", "ls\n#a/../x", "ls\n#/x y"),
        # zsh and mksh calculate what is assigned to a number, and so change other variables.
        *("COLUMNS=IFS-- ls", "LINES=++x ls", "export COLUMNS=x--; ls", "env LINES=x-- ls"),
        *("COLUMNS=x ls", "export LINES=1,x--", "COLUMNS= ls", "LINES='++IFS' ls"),
        # In fish a backslash escapes the quote that ends a word for all others.
        *("ls 'a\\' '; touch PWN; ls \\'", "ls 'a\\'", "git status 'x\\' '&& touch PWN #'"),
        *("ls a'b\\'c '; touch PWN; ls \\'", "npm test -- -t 'x\\' '; touch PWN \\'"),
        "ls 'a\\\\\\' '; touch PWN; ls \\'",
        # Which program a script runs is not known: one that runs, loads or writes a value.
        *("npm test -- -e x", "npm test -- --eval=x", "npm test -- -p x", "npm test -- -pe x"),
        *("npm test -- --reporter=./x.js", "npm test -- --reporter ./x", "npm test -- -R ./x"),
        *("npm test -- --test-reporter=./x", "npm test -- --env-file=x", "npm test -- -f ./x"),
        *("npm test -- --cpu-prof-dir=x", "npm test -- --redirect-warnings=x", "npm test -- -o x"),
        *("npm test -- --inspect=0.0.0.0:9229", "npm test -- --browser.provider=./x"),
        *("npm test -- --outputFile.json=x", "npm test -- --ui ./x", "npm test -- --pool=./x"),
        *("npm test -- --coverage.customProviderModule=./x", "npm test -- --updateSnapshot"),
        *("npm test -- --openssl-config=x", "npm test -- --build-snapshot x", "npm test -- -u"),
        # A script that runs npm again passes on what is behind a second `--`.
        *("npm test -- -- -e x", "npm test -- -- --config=x", "npm test x -- -- --reporter ./x"),
        # A script of another folder.
        *("npm test /tmp/x.js", "npm test -- /tmp/x.js", "npm test -- file:///x", "npm test -- @x"),
        *("npm test -- --mode=./x", "npm test -- --mode=/x", "npm test -- --files=@x"),
    ],
)
def test_few_rules_do_not_allow_it(line: str) -> None:
    assert decided(line) == "ask"


@pytest.mark.parametrize(
    "line",
    [
        *('ls "$?"', "ls $?", "npm test -- --coverage", "npm test -- --reporter=dot -t name"),
        *("npm test --no-color", "ls < src/a", "# a/b\nls", "#x a/b\nls"),
        *("COLUMNS=80 ls", "export LINES=24", "ls 'a\\b'", "npm test -- -- --coverage"),
        *("npm test -- -t 'a b' --watch=false", "npm test -- --maxWorkers=2 src/a.test.ts"),
        *("npm test -- --run --bail 1", "npm test -- -j4 --grep name", "npm test src/a"),
    ],
)
def test_what_is_harmless_is_still_allowed(line: str) -> None:
    assert decided(line) == "allow"


@pytest.mark.parametrize("line", ["npm test {}", "npm test -- {}", "python -m pytest -q {}"])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        *(("tests/a", "allow"), ("/p/tests/a", "allow"), ("/p/a b", "allow")),
        *(("/tmp/a", "ask"), ("/pp/a", "ask"), ("/p/../a", "ask"), ("/p/x/../../a", "ask")),
        *(("/p/-e", "ask"), ("/p//etc/a", "ask"), ("/p/@a", "ask"), ("/p", "ask"), ("/", "ask")),
        *(("file:///p/a", "ask"), ("~/a", "ask")),
    ],
)
def test_a_script_runs_files_of_its_project_only(line: str, path: str, expected: str) -> None:
    quoted = f"'{path}'" if " " in path else path
    assert decided(line.format(quoted), *FEW, "python -m pytest*") == expected


@pytest.mark.parametrize("before", ["npm test --", "npm test -- --", "npm test x -- --run"])
@pytest.mark.parametrize("value", ["", "=x", " x"])
@given(name=from_regex(r"[a-zA-Z][a-zA-Z0-9.-]{0,20}", fullmatch=True))
def test_an_option_that_is_not_listed_is_not_passed_to_a_script(
    before: str, value: str, name: str
) -> None:
    listed = {each[1:].replace("-", "") for each in ACTING["npm --"].split() if each[0] == "+"}
    known = name.replace("-", "").lower() + (value.lower() if value == "=x" else "")
    is_listed = bool({known, known.partition("=")[0]} & listed)
    assert decided(f"{before} --{name}{value}") == ("allow" if is_listed else "ask")


@pytest.mark.parametrize("letter", string.ascii_letters)
def test_a_letter_that_is_not_listed_is_not_passed_to_a_script(letter: str) -> None:
    allowed = {decided(f"npm test -- -{letter}{value}") for value in ("", " x", "1")}
    assert allowed == ({"allow"} if letter in "tgibvwqsjxknhV" else {"ask"})
    assert decided(f"npm test -- -{letter}x") == "ask"  # a cluster, or a value that is a path


@pytest.mark.parametrize(
    "line",
    [
        # zsh changes the value of a parameter by modifiers, so that it becomes an option.
        *("sort $?:s/0/-ox/ a", 'sort "$?:s/0/-ox/" a', "sort a$?:h"),
        # A glob becomes a subcommand, a variable, a script or a further word.
        *("git conf* alias.x", "git con?ig x", "git gr* -Otouch x", "npm ex* touch", "make SHEL*"),
        *("sed s,a*,b, x", "awk 1*", "sed -e s,a*,b, x", "xargs -I ./* ls", "sudo -u x* ls"),
        *("sudo sort *", "find . -exec sort * \\;"),
        # Subcommands are abbreviated, and have other names.
        *("npm exe touch x", "npm publis", "npm conf set a b", "npm c set a b", "npm it"),
        *("npm add-user", "npm innit x", "npm installTest", "npm -- exec touch x"),
        *(
            "bundle ope x",
            "gem pus x",
            "composer conf x",
            "composer exe x",
            "cargo t --target-dir=x",
        ),
        # The value of an option is not the script.
        *("sed -l 5p 'w x' a", "sed --line-length 5p 'w x' a", "sed -nl 5 'w x' a"),
        *("awk --field-separator , 'BEGIN{system(1)}'", "awk --assign a=b 'BEGIN{system(1)}'"),
        *("sed -e p --line-length 5 a", "sed --lin p 'w x'"),
        # Programs differ in whether a delimiter within brackets is one.
        *("sed 's/[/]/p;s|/w x|x|' a", "sed '/[/]p;s|/w x|x|' a", "sed 's/[^/]/p;s|/w x|x|' a"),
        # Assignments with blanks, with other signs, and behind `--`.
        *("make SHELL::=./x", "make 'SHELL = ./x'", "make SHELL:::=./x", "make -- SHELL=./x"),
        *("make a -- SHELL=./x", "make 'SHELL ?= ./x'", "make --temp-stdin=x", "make -t"),
        # Options that write a file or load code, in the spellings of their program.
        *("python -m pytest @x", "python -m pytest --cov-report=html:x", "python -m pytest --tx x"),
        *("python -m pytest --cov-report xml:x", "python -m pytest --report-log=x"),
        *("go test -test.cpuprofile=x", "go test . -args -test.trace=x", "go test -c"),
        *("go build -debug-trace=x", "cargo test -- --logfile=x", "cargo rustdoc -- -o x"),
        *("cargo clippy -- -o x", "git submodule--helper foreach x", "git fetch 'ext::sh -c x'"),
        *(
            "git ls-remote ext::x",
            "git push ext::x",
            "git help --web x",
            "awk -W dump-variables=x 1",
        ),
        *("yarn test --config=x", "yarn test --globalSetup=./x", "dc -e 1"),
        # A name that begins like the one in the pattern.
        *("python -m pytestx", "python -m pytest.x"),
        # A pipe or a text feeds an interpreter, whatever is spelled.
        *("echo x | bash", "echo x | python3", "python3 <<E\nx\nE", "timeout 5 python3 <<E\nx\nE"),
    ],
)
def test_wide_rules_do_not_allow_it(line: str) -> None:
    assert read_command(line).understood is not None or "$?" in line
    assert decided(line, *WIDE) == "ask"


@pytest.mark.parametrize(
    "line",
    [
        *(
            "git diff src/*.py",
            "git add x*",
            "sed -n '1,5p' src/*",
            "sed 's/[a-z]/b/' x",
            "make all",
        ),
        *("sed -E 's|a/b|c|g' x", "sed -n '/[a]/p' x", "npm install", "npm t", "npm run e"),
        *("npm i left", "make -j4 test", "make CI=1 test", "cargo test -- --nocapture", "cargo t"),
        *("go test ./...", "python -m pytest --cov-report=term-missing", "bundle install"),
        *("python -m pytest --cov=a tests/*", "awk -F , '{print $1}' x", "echo x | python3 a.py"),
        *(
            "cargo clippy -- -D warnings",
            "awk --posix '{print}' x",
            "sed -nE p x",
            "find src* -name x",
        ),
    ],
)
def test_what_wide_rules_are_for_is_still_allowed(line: str) -> None:
    assert decided(line, *WIDE) == "allow"


@pytest.mark.parametrize(
    ("line", "pattern", "decision"),
    [
        ("npx jest-evil", "npx jest*", "ask"),
        ("npx jest@npm:evil", "npx jest*", "ask"),
        ("npx jest --ci", "npx jest*", "allow"),
        ("uv run pytest-evil", "uv run pytest*", "ask"),
        ("uv run pytest -q", "uv run pytest*", "allow"),
        ("bundle exec rspecx", "bundle exec rspec*", "ask"),
        ("npm run test:unit", "npm run test*", "allow"),
        ("cat src/a /etc/passwd", "cat src/*", "ask"),
        ("cat src/a .env", "cat src/*", "ask"),
        ("cat src/a --x=/etc/passwd", "cat src/*", "ask"),
        ("cat src/a src/b/c", "cat src/*", "allow"),
        ("python scripts/a.py x --y", "python scripts/*", "allow"),
    ],
)
def test_a_name_or_a_folder_in_a_pattern_is_that_one(
    line: str, pattern: str, decision: str
) -> None:
    assert decided(line, pattern) == decision


# ---- inputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        # Two keys of one role: which of them counts is not known.
        {"command": "ls", "args": "; touch PWN", "Args": "-la"},
        {"command": "ls", "_args": ["x"], "args": ["y"]},
        # A tool may join words without quotes, or run each of them.
        {"command": "ls", "args": ["; touch PWN"]},
        {"command": ["ls", "; touch PWN"]},
        {"command": ["ls", "touch PWN"]},
        {"script": ["ls", "touch PWN"]},
        {"argv": ["ls", "$(touch PWN)"]},
        {"commands": [["ls", "`touch PWN`"]]},
        ["ls", "a\ntouch PWN"],
        # A text beside a command may be its input, its language or its encoding.
        {"command": "ls", "text": "touch PWN"},
        {"command": "ls", "content": "touch PWN"},
        {"command": "ls", "lines": ["touch PWN"]},
        {"command": "ls", "after": "touch PWN"},
        {"command": "ls", "encoding": "base64"},
        {"command": "ls", "language": "python"},
        {"command": "ls", "kind": "python"},
        {"command": "ls", "query": "touch PWN"},
        {"command": "ls", "tool": "python"},
        {"command": "ls", "questions": [{"text": "touch PWN"}]},
        {"commands": [{"command": "ls", "content": "touch PWN"}]},
        # Notes have values of their kind.
        {"command": "ls", "timeout": "5; touch PWN"},
        {"command": "ls", "timeout": {"command": "touch PWN"}},
        {"command": "ls", "description": ["touch PWN"]},
        {"command": "ls", "login": "touch PWN"},
        {"command": "ls", "env": [{"name": "CI", "value": "1", "command": "touch PWN"}]},
        # A folder that a tool puts into a line, or strips, or decodes.
        *(
            {"command": "ls", "cwd": folder}
            for folder in ("src;touch PWN", "*", "-", "src\n", " /etc", "src ", "{a,/etc}", "a\0b")
        ),
        *(
            {"command": "ls", "cwd": folder}
            for folder in ("file:///etc", "FILE:/etc", "%2e%2e", "a|b", "C:\\x", "\u202ea", "a'b")
        ),
    ],
)
def test_an_input_that_may_mean_something_else_asks(given: Any) -> None:
    assert decided(given) == "ask"
    assert decided({"input": given} if isinstance(given, dict) else given) == "ask"


@pytest.mark.parametrize(
    "given",
    [
        {"command": "ls", "description": "x", "timeout": 5, "run_in_background": True},
        {"command": "ls", "timeout": "120s", "login": False, "thought": "touch PWN"},
        {"command": ["ls", "-la", "src"]},
        {"command": "ls", "args": ["-la", "src"]},
        {"command": "npm test", "cwd": "/p/a b"},
        {"command": "ls", "tool": "shell"},
    ],
)
def test_the_usual_inputs_are_still_allowed(given: Any) -> None:
    assert decided(given) == "allow"


@pytest.mark.parametrize("kind", ["execute", "other", None])
@pytest.mark.parametrize("name", ["mcp__ssh__run", "mcp__db__query", "Task", "spawn_agent"])
def test_a_command_of_a_tool_that_is_no_terminal_asks(name: str, kind: str | None) -> None:
    assert decided({"command": "ls"}, name=name, kind=kind) == "ask"


@pytest.mark.parametrize("path", [" /etc/passwd", "/etc/passwd ", "file:///etc/passwd", "a\tb"])
def test_a_path_that_a_tool_may_change_is_not_allowed_by_a_glob(path: str) -> None:
    policy = Policy(rule=(Rule(decision="allow", reads=("**",), writes=("**",)),))
    for name, more in (("Read", {}), ("Write", {"content": "x"})):
        call = Call(name, {"path": path, **more})
        assert decide(policy, call, workspace="/p").decision == "ask"


# ---- links ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "links"),
    [
        ({"command": "cd link && ls"}, {"link": "/etc"}),
        ({"command": "cd a && cd b && ls"}, {"a/b": "/etc"}),
        ({"command": "cd b && ls", "cwd": "a"}, {"a/b": "/etc"}),
        ({"command": "ls < link"}, {"link": "/etc/shadow"}),
        ({"command": "ls < link", "cwd": "a"}, {"a/link": "/etc/shadow"}),
        ({"command": "echo x | tee out/link"}, {"out/link": "/etc/x"}),
        ({"command": "uniq a out/link"}, {"out/link": "/etc/x"}),
        ({"command": "ls > out/link"}, {"out/link": "/etc/x"}),
    ],
)
def test_a_link_is_followed_wherever_a_line_names_a_file(
    given: dict[str, Any], links: dict[str, str]
) -> None:
    patterns = (*WIDE, "cd*")
    policy = Policy(rule=(Rule(decision="allow", commands=patterns, writes=("out/**",)),))
    call = Call("Bash", given, kind="execute")
    assert decide(policy, call, workspace="/p").decision == "allow"
    assert set(links) <= set(call.named_paths)
    assert decide(policy, call.with_links(links), workspace="/p").decision == "ask"


def test_an_argument_that_is_written_is_relative_to_the_folder_of_the_call() -> None:
    given = {"command": "echo x | tee out/a", "cwd": "src"}
    assert decided(given, *WIDE, writes=("out/**",)) == "ask"
    assert decided(given, *WIDE, writes=("src/out/**", "out/**")) == "allow"
