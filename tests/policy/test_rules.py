"""What policies decide: those of the Agent Context Protocol, converted into rules."""

from __future__ import annotations

from typing import Any

import pytest

from quarterdeck.policy import Call, PermissionPolicy, PolicyRules, decide, policy_of

EXAMPLE = PermissionPolicy(
    auto_approve=PolicyRules(
        reads=True, writes=("src/**/*.ts",), commands=("npm test",), searches=True
    )
)
NOTHING = PermissionPolicy()
DENYING = PermissionPolicy(
    auto_approve=PolicyRules(commands=True), auto_deny=PolicyRules(commands=("rm *",))
)


def decided(policy: PermissionPolicy, name: str, given: Any, kind: str | None = None) -> str:
    return decided_call(policy, Call(name, given, kind=kind))


def decided_call(policy: PermissionPolicy, call: Call) -> str:
    return decide(policy_of(policy), call, workspace="/p").decision


def allowing(**rules: Any) -> PermissionPolicy:
    return PermissionPolicy(auto_approve=PolicyRules(**rules))


def run(policy: PermissionPolicy, line: str, **more: Any) -> str:
    return decided(policy, "Bash", {"command": line, **more})


@pytest.mark.parametrize(
    ("name", "given", "decision"),
    [
        ("Read", {"file_path": "/anywhere"}, "allow"),
        ("Grep", {"pattern": "x"}, "allow"),
        ("WebSearch", {"query": "x"}, "allow"),
        ("Write", {"file_path": "/p/src/a/b.ts"}, "allow"),
        ("Edit", {"file_path": "src/b.ts"}, "allow"),
        ("Write", {"file_path": "/p/src/b.js"}, "ask"),
        ("Write", {"file_path": "/p/src/../../x/b.ts"}, "ask"),
        ("Write", {"file_path": "/other/src/b.ts"}, "ask"),
        ("Write", {}, "ask"),
        ("Bash", {"command": "npm test"}, "allow"),
        ("Bash", {"command": "npm test; rm x"}, "ask"),
        ("Bash", {}, "ask"),
        ("mcp__x__y", {}, "ask"),
        ("Task", {"description": "x"}, "ask"),
    ],
)
def test_the_example_of_the_reference_decides(name: str, given: Any, decision: str) -> None:
    assert decided(EXAMPLE, name, given) == decision


def test_an_empty_policy_asks_for_everything() -> None:
    assert decided(NOTHING, "Read", {"file_path": "/p/a"}) == "ask"
    assert run(NOTHING, "ls") == "ask"


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("npm test", "allow"),
        ("npm test && git log -1", "allow"),
        ("npm test | git log", "allow"),
        ("npm test $(git log)", "ask"),  # the whole word is not `npm test`
        ("npm test; ls", "ask"),
        ("npm test & ls", "ask"),
        ("npm test\nls", "ask"),
        ("FOO=1 npm test", "ask"),
        ("sudo npm test", "ask"),
        ("sh -c 'npm test'", "ask"),
        ("npm test > out", "ask"),
        ("npm test 2>&1", "allow"),
        ("$X npm test", "ask"),
        ("npm test 'unfinished", "ask"),
        ("git log `ls`", "ask"),
        ("'npm test'", "ask"),  # a program with a blank in its name
        ("npm\\ test", "ask"),
        ("{ npm test; }", "allow"),
        ("npm test || (git log)", "allow"),
        ("npm test <(ls)", "ask"),
        ("npm test &>out", "ask"),
        ("git log <<< $(ls)", "ask"),
        ("git log <<'EOF'\nls\nEOF", "allow"),  # text, and no shell to run it
        ("alias npm=ls; npm test", "ask"),
        ("export PATH=.; npm test", "ask"),
    ],
)
def test_every_simple_command_of_a_line_must_match(line: str, decision: str) -> None:
    assert run(allowing(commands=("npm test", "git log*")), line) == decision


@pytest.mark.parametrize("given", ["<<'EOF'\n{}\nEOF\n", "<<< '{}'", "-s 2>&1 <<-x\n\t{}\n\tx\n"])
def test_text_that_a_shell_reads_counts_as_commands_of_the_line(given: str) -> None:
    policy = allowing(commands=("bash*", "npm test"))
    assert run(policy, "bash " + given.format("npm test")) == "allow"
    assert run(policy, "bash " + given.format("rm x")) == "ask"
    assert run(DENYING, "sudo bash " + given.format("rm x")) == "deny"


@pytest.mark.parametrize(
    ("given", "decision"),
    [
        ({"command": ["bash", "-lc", "npm test"]}, "allow"),
        ({"command": ["/bin/sh", "-c", "npm test; rm x"]}, "ask"),
        ({"command": ["./evil.sh", "-c", "npm test"]}, "ask"),
        ({"command": ["ssh", "-c", "npm test"]}, "ask"),
        ({"command": ["npm", "test"]}, "allow"),
        ({"command": ["npm test"]}, "ask"),
        ({"command": "npm", "args": ["test"]}, "allow"),
        ({"command": "npm test", "args": ["&&", "rm"]}, "ask"),
        ({"command": "npm test", "cmd": "npm test"}, "allow"),
        ({"command": "npm test", "cmd": "rm x"}, "ask"),
        ({"command": "npm test <<'E'", "script": "rm x\nE"}, "ask"),
    ],
)
def test_every_form_of_a_command_is_read(given: Any, decision: str) -> None:
    assert decided(allowing(commands=("npm test",)), "shell", given) == decision


def test_a_command_that_writes_files_needs_both_rules() -> None:
    policy = allowing(commands=("npm test",), writes=("out/**",))
    assert run(policy, "npm test > out/log") == "allow"
    assert run(policy, "npm test > /p/other") == "ask"
    assert run(policy, "npm test > ~/out/log") == "ask"


@pytest.mark.parametrize(
    "target", ["$'out/\\x2e\\x2e/\\x2e\\x2e/x'", "out/`echo ../../x`", "out/$(echo ../../x)"]
)
def test_a_file_name_that_is_only_known_at_run_time_is_asked(target: str) -> None:
    policy = allowing(commands=("echo *",), writes=("out/**",))
    assert run(policy, "echo x > out/log") == "allow"
    assert run(policy, f"echo x > {target}") == "ask"


def test_a_denied_write_is_denied_in_a_nested_line() -> None:
    policy = PermissionPolicy(
        auto_approve=PolicyRules(commands=True), auto_deny=PolicyRules(writes=("**/.env",))
    )
    for line in ("sh -c 'echo x > .env'", "sudo bash -c 'echo x >> .env'", "eval 'echo x > .env'"):
        assert run(policy, line) == "deny"
    assert run(policy, "echo x > $F") == "ask"
    assert run(policy, "sh -c 'echo x > y'") == "allow"


def test_a_here_document_ends_where_the_shell_ends_it() -> None:
    line = "git log <<$'\\x45'\nE\nrm x\n\\x45\n"
    assert run(allowing(commands=("git log*",)), line) == "ask"


def test_a_relative_file_after_a_change_of_folder_is_asked() -> None:
    policy = allowing(commands=("cd *", "npm test"), writes=("out/**",))
    assert run(policy, "cd a && npm test") == "allow"
    assert run(policy, "cd /x && npm test > out/log") == "ask"


def test_a_command_outside_the_project_is_asked() -> None:
    policy = allowing(commands=("npm test",))
    assert run(policy, "npm test", cwd="/p/sub") == "allow"
    assert run(policy, "npm test", cwd="/evil") == "ask"


def test_a_rule_for_all_commands_allows_any_command() -> None:
    assert run(allowing(commands=True), "rm -rf / 'x") == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "sudo --user me rm x",
        "time rm x",
        "su me -c 'rm x'",
        "function f { rm x; }",
        "rm x",
        "ls; rm x",
        "sudo rm x",
        "env A=1 rm x",
        "sh -c 'rm x'",
        "/bin/rm x",
        "echo $(rm x)",
        "`rm x`",
        "cat <(rm x)",
        "(rm x)",
        "X=1 rm x >y",
        "rm>y x",
        "if true; then rm x; fi",
        "find . | xargs -0 rm",
        "find . -exec echo {} ';' -exec rm {} ';'",
        "env '-Srm x'",
        "env --split-string 'rm x'",
        "sudo -nu root rm x",
        "timeout --kill-after 5 5 rm x",
        "flock lock rm x",
        "script -c 'rm x'",
        "bash -ec 'sh -c \"rm x\"'",
        "cat <<EOF | sh\nrm x\nEOF",
        "time { rm x; }",
        "flock lock -c 'sudo rm x'",
        "tcsh -c 'rm x'",
    ],
)
def test_a_denied_command_is_denied_behind_any_wrapper(line: str) -> None:
    assert run(DENYING, line) == "deny"


@pytest.mark.parametrize(
    "line",
    [
        "$X y",
        "echo 'unfinished",
        "{rm,x}",
        "curl x | sh",
        ". ./x",
        "source <(cat x)",
        'eval "$X"',
        "sh -c '\"$@\"' _ rm x",
        "bash -c 'curl x | sh'",
        "sudo $X y",
        "echo rm x | xargs -I{} sh -c '{}'",
        "curl x | (sh)",
        "curl x | { true; sh; }",
        "curl x | echo $(sh)",
        '/bin/"r"? x',
        "=rm x",
        "bash <<< $'\\x72m x'",
        "cat <<$'\\x45'\nE\nr'm' x\n\\x45\n",
        "sh -c 'f() { $1 x; }; f rm'",
    ],
)
def test_a_command_that_may_be_denied_is_asked_even_if_all_are_allowed(line: str) -> None:
    assert run(DENYING, line) == "ask"


def test_a_command_that_is_not_denied_is_allowed() -> None:
    for line in ("ls", "timeout 5 grep rm x", "echo rm x", "xargs -n1 ls", "env -i rmdir x"):
        assert run(DENYING, line) == "allow"


def test_deny_wins_over_allow() -> None:
    policy = PermissionPolicy(
        auto_approve=PolicyRules(reads=True, writes=True, searches=True),
        auto_deny=PolicyRules(reads=("**/.env",), writes=("**/*.lock",), searches=("http://*",)),
    )
    assert decided(policy, "Read", {"file_path": "/p/a/.env"}) == "deny"
    assert decided(policy, "Read", {"file_path": "/p/a/env"}) == "allow"
    assert decided(policy, "Edit", {"file_path": "/p/x.lock"}) == "deny"
    assert decided(policy, "WebFetch", {"url": "http://x"}) == "deny"
    assert decided(policy, "Write", {}) == "ask"
    assert run(policy, "echo x > a.lock") == "deny"


def test_globs_match_hidden_folders_only_if_they_name_them() -> None:
    policy = allowing(writes=("**",))
    assert decided(policy, "Write", {"file_path": "/p/a/b"}) == "allow"
    assert decided(policy, "Write", {"file_path": "/p/.git/hooks/x"}) == "ask"
    dotted = allowing(writes=(".github/**",))
    assert decided(dotted, "Write", {"file_path": "/p/.github/x.yml"}) == "allow"


@pytest.mark.parametrize(
    ("glob", "path", "decision"),
    [
        ("*.md", "/p/a.md", "allow"),
        ("*.md", "/p/d/a.md", "ask"),
        ("src/**", "/p/src/a/b", "allow"),
        ("src/**/*.{ts,tsx}", "/p/src/a.tsx", "allow"),
        ("a?.[ch]", "/p/ab.c", "allow"),
        ("a?.[!ch]", "/p/ab.c", "ask"),
        ("/tmp/**", "/tmp/x", "allow"),
        ("**", "/tmp/x", "ask"),
        ("a[", "/p/a[", "allow"),
    ],
)
def test_globs_on_paths(glob: str, path: str, decision: str) -> None:
    assert decided(allowing(writes=(glob,)), "Write", {"file_path": path}) == decision


def test_searching_files_is_a_read_and_a_search() -> None:
    assert decided(allowing(reads=True), "Grep", {"pattern": "x"}) == "allow"
    assert decided(allowing(searches=True), "Grep", {"pattern": "x"}) == "allow"
    assert decided(allowing(searches=True), "search_and_replace", {"query": "x"}) == "ask"
    assert decided(allowing(searches=True), "find_symbol", {"query": "x"}, "search") == "allow"
    assert decided(
        allowing(searches=("https://docs.*",)), "WebFetch", {"url": "https://docs.x/y"}
    ) == ("allow")


def test_all_paths_of_a_call_must_match() -> None:
    content = [{"type": "diff", "path": "/p/src/a.ts"}, {"type": "diff", "path": "/p/b.ts"}]
    call = Call("Patch", {}, kind="edit", content=content)
    assert decided_call(EXAMPLE, call) == "ask"
    assert decided_call(allowing(writes=("**/*.ts",)), call) == "allow"


def test_a_call_is_read_by_its_input_not_by_its_name() -> None:
    assert decided(EXAMPLE, "Read", {"command": "rm x"}) == "ask"
    diff = [{"type": "diff", "path": "/p/x"}]
    assert decided_call(EXAMPLE, Call("Read", {}, kind="read", content=diff)) == "ask"


@pytest.mark.parametrize(
    "line",
    [
        "alias ls='rm x'",
        "let 'a[$(rm x)]=1'",
        "declare 'a[$(rm x)]=1'",
        "[ 'a[$(rm x)]' -eq 1 ]",
        "test -v 'a[$(rm x)]'",
        "[[ 'a[$(rm x)]' -eq 1 ]]",
        "printf %d 'a[$(rm x)]'",
        "PS4='$(rm x)' bash -x y",
        "prlimit --nproc=1 rm x",
        "prlimit -p 1 rm x",
        "nsenter -t 1 rm x",
        "nsenter --target 1 -m rm x",
        "setpriv --reuid 1 rm x",
        "repeat 3 rm x",
        "noglob rm x",
        "nocorrect rm x",
        "- rm x",
        "toybox rm x",
        "fakeroot rm x",
        "chrt 5 rm x",
        "emulate sh -c 'rm x'",
        "watch -n 1 'rm x'",
        "watch rm x",
        "ssh host rm x",
        "complete -C 'rm x' y",
        "mapfile -C 'rm x' -c 1 y",
        "git rebase --exec 'rm x' main",
        "git rebase -x 'rm x' main",
        "git bisect run rm x",
        "git submodule foreach 'rm x'",
        "git -c alias.y='!rm x' y",
        "if true { rm x }",
        "repeat 2 { rm x }",
        "rm${IFS}x",
        "rm$IFS-rf${IFS}x",
        "echo ${ rm x; }",
        "echo ${x:-'$(rm x)'}",
        "echo ${|rm x;}",
        'echo "$\\\n(rm x)"',
        "echo $$'\\' ; rm x #'",
        "echo $'\\' ; rm x #'",
        "# a \\\nrm x",
        "echo a \\\n; rm x",
        "find . -exec find . -exec rm x ';' ';'",
        "bash +x -c 'rm x'",
        "bash --command='rm x'",
        "hush -c 'rm x'",
    ],
)
def test_a_denied_command_is_denied_wherever_a_shell_may_run_it(line: str) -> None:
    assert run(DENYING, line) == "deny"


@pytest.mark.parametrize(
    "line",
    [
        "python3 -c 'import os; os.system(\"rm x\")'",
        "perl -e 'system q(rm x)'",
        "node -e 'require(\"child_process\")'",
        "awk 'BEGIN { system(\"rm x\") }'",
        "vim -c '!rm x'",
        "echo ${x:-<(rm x)}",
        "ls; " * 300 + "echo $(rm x",
        "${x:-" * 400 + "}" * 400,
        "find . " + "-exec ls {} + " * 400,
    ],
)
def test_what_may_run_a_denied_command_is_asked(line: str) -> None:
    assert run(DENYING, line) == "ask"


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("secrets/**", "Secrets/key"),
        ("secrets/**", "/P/secrets/key"),
        ("SECRETS/**", "secrets/key"),
        (".env", ".ENV"),
        ("caf\u00e9/**", "cafe\u0301/menu"),  # composed, and decomposed
        ("/tmp/shared/**", "/private/tmp/Shared/x"),
        ("/private/var/log/**", "/var/log/x"),
        ("[A-C]*", "b"),
    ],
)
def test_a_rule_denies_every_spelling_that_names_the_same_file_on_macos(
    glob: str, path: str
) -> None:
    policy = PermissionPolicy(
        auto_approve=PolicyRules(reads=True), auto_deny=PolicyRules(reads=(glob,))
    )
    assert decided(policy, "Read", {"file_path": path}) == "deny"


@pytest.mark.parametrize(("glob", "path"), [("docs/**", "Docs/a"), ("caf\u00e9", "cafe\u0301")])
def test_a_rule_allows_only_the_spelling_it_has(glob: str, path: str) -> None:
    assert decided(allowing(reads=(glob,)), "Read", {"file_path": path}) == "ask"


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        ("rm *", "RM -r x", "deny"),
        ("rm *", "/bin/Rm -r x", "deny"),
        ("Rscript *", "rscript a.R", "deny"),
        ("git branch -D *", "GIT branch -D x", "deny"),
        ("git branch -D *", "git branch -d x", "allow"),  # options have a case
    ],
)
def test_a_program_is_denied_in_every_case(pattern: str, line: str, expected: str) -> None:
    policy = PermissionPolicy(
        auto_approve=PolicyRules(commands=True), auto_deny=PolicyRules(commands=(pattern,))
    )
    assert run(policy, line) == expected
