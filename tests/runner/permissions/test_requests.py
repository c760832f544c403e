"""What real agents request, in their own shapes, is found; and only in calls that are open.

The messages are those of recorded agents, cut to what matters.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from quarterdeck.host.log.tool_call_repair import ToolCallRepair
from quarterdeck.policy import Call, Policy, Rule, assess_risk, decide, read_call
from quarterdeck.protocol import Normalized
from quarterdeck.runner.permissions.card import whole_call

LINE = "echo out; touch made.txt; exit 3"
FILE = "/p/notes.txt"
Json = dict[str, Any]


def said(text: str) -> list[Json]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


def requested(*messages: Json) -> Call:
    """Return the call of a permission request, the last of the messages of one or more turns."""
    repair = ToolCallRepair()
    for message in messages[:-1]:
        if message.get("turn"):
            repair.next_turn()
            continue
        kind = "tool-call-update" if message.get("is_update") else "tool-call"
        payload = {key: value for key, value in message.items() if key != "is_update"}
        repair.repaired(Normalized(kind, payload, None))
    request = messages[-1]
    earlier = repair.open_call(request["toolCallId"])
    found = repair.requested(request)
    others = repair.open_calls(but=found.facts.id) if not found.facts.raw_input else ()
    return read_call(found.facts, request, earlier=earlier, open_calls=others)


CLINE = requested(
    {"toolCallId": "c", "title": f"run_commands: {LINE}", "kind": "execute", "status": "pending",
     "rawInput": {"commands": [LINE]}},
)  # fmt: skip
CODEX = requested(
    {
        "toolCallId": "c",
        "title": LINE,
        "kind": "execute",
        "rawInput": {"command": LINE, "cwd": "/p"},
    }
)
COPILOT = requested(
    {"toolCallId": "c", "kind": "execute", "rawInput": {"command": LINE, "description": "Do it"}},
    {"toolCallId": "c", "title": "Do what the user asked", "kind": "execute",
     "rawInput": {"command": LINE, "commands": [LINE]}},
)  # fmt: skip
DCODE = requested({"toolCallId": "c", "title": f"Execute: `{LINE}`", "rawInput": {"command": LINE}})
DROID = requested(
    {"toolCallId": "c", "title": "low", "kind": "execute",
     "rawInput": {"summary": "Do it", "command": LINE, "riskLevelReason": "x", "riskLevel": "low"}},
)  # fmt: skip
GROK = requested(
    {"toolCallId": "c", "title": "Execute", "kind": "execute",
     "rawInput": {"variant": "Bash", "command": LINE, "description": "x", "is_background": False}},
)  # fmt: skip
GOOSE = requested(
    {"toolCallId": "c", "kind": "other", "title": "shell", "rawInput": {"command": LINE}}
)
KIMI = requested(
    {"toolCallId": "c", "title": "Bash", "kind": "execute", "content": said("")},
    {"toolCallId": "c", "is_update": True, "content": said('{"command": "echo out')},
    {"toolCallId": "c", "is_update": True, "content": said('{"command": "' + LINE + '"}')},
    {"toolCallId": "c", "title": "Bash", "content": said("Requesting approval to Running: echo…")},
)
OPENHANDS = requested(
    {"toolCallId": "call_1", "kind": "execute", "status": "in_progress", "title": "terminal",
     "rawInput": {"command": LINE, "is_input": False, "timeout": None, "reset": False,
                  "kind": "TerminalAction"}},
    {"toolCallId": "confirmation-1", "kind": "other", "title": "Confirm Agent Actions"},
)  # fmt: skip
VIBE = requested(
    {"toolCallId": "c", "title": f"bash: {LINE}", "kind": "execute", "rawInput": {"command": LINE}},
    {"toolCallId": "c"},
)
COMMANDS = {
    "cline": CLINE, "codex": CODEX, "copilot": COPILOT, "dcode": DCODE, "droid": DROID,
    "grok": GROK, "goose": GOOSE, "kimi-code": KIMI, "openhands": OPENHANDS, "vibe": VIBE,
}  # fmt: skip


@pytest.mark.parametrize("agent", COMMANDS)
def test_the_command_of_a_request_is_found_and_can_be_denied(agent: str) -> None:
    call = COMMANDS[agent]
    assert call.commands == (LINE,)
    assert call.reading.is_readable
    never = Policy(rule=(Rule(decision="deny", name="never", commands=("touch*",)),))
    assert decide(never, call, workspace="/p").rule == "never"
    if agent != "openhands":
        exact = Rule(decision="allow", commands=("echo*", "touch*", "exit*"))
        assert decide(Policy(rule=(exact,)), call, workspace="/p").decision == "allow"


WRITES = {
    "cline": requested(
        {"toolCallId": "c", "title": "apply_patch: {…", "kind": "other",
         "rawInput": {"input": f"*** Begin Patch\n*** Add File: {FILE}\n+x\n*** End Patch\n"}},
    ),
    "codex": requested(
        {"toolCallId": "c", "title": "Edit files", "kind": "edit", "locations": [{"path": FILE}]}
    ),
    "copilot": requested(
        {"toolCallId": "c", "title": "Create file", "kind": "edit", "locations": [{"path": FILE}],
         "rawInput": {"fileName": FILE, "diff": f"--- a/dev/null\n+++ b{FILE}\n@@ -1 +1 @@\n+x\n"}},
    ),
    "dcode": requested(
        {"toolCallId": "c", "title": f"Write `{FILE}`",
         "rawInput": {"file_path": FILE, "content": "x"}},
    ),
    "fast-agent": requested(
        {"toolCallId": "c", "title": "write_text_file", "kind": "edit",
         "rawInput": {"path": FILE, "content_length": 18}},
    ),
    "hermes": requested(
        {"toolCallId": "edit-approval-1", "title": f"Approve edit: {FILE}", "kind": "edit",
         "content": [{"type": "diff", "path": FILE, "newText": "x"}],
         "rawInput": {"tool": "write_file", "arguments": {"path": FILE, "content": "x"}}},
    ),
    "kilo": requested(
        {"toolCallId": "c", "title": FILE, "kind": "edit", "locations": [{"path": FILE}],
         "rawInput": {"filepath": FILE, "diff": f"Index: {FILE}\n--- {FILE}\n+++ {FILE}\n+x\n",
                      "filediff": {"file": FILE, "patch": f"--- {FILE}\n", "additions": 2,
                                   "deletions": 0}}},
    ),
    "goose": requested(
        {"toolCallId": "c", "title": "edit", "kind": "other",
         "rawInput": {"path": FILE, "before": "a", "after": "b"}},
    ),
    "openhands": requested(
        {"toolCallId": "call_1", "kind": "edit", "locations": [{"path": FILE}],
         "rawInput": {"command": "create", "path": FILE, "file_text": "x",
                      "kind": "FileEditorAction"}},
        {"toolCallId": "confirmation-1", "kind": "other", "title": "Confirm Agent Actions"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("agent", WRITES)
def test_the_path_of_a_write_is_found_and_can_be_denied(agent: str) -> None:
    call = WRITES[agent]
    assert call.reading.paths == (FILE,)
    assert call.reading.is_write
    never = Policy(rule=(Rule(decision="deny", name="never", writes=("*.txt",)),))
    assert decide(never, call, workspace="/p").rule == "never"
    assert assess_risk(call).level == "medium"


def test_one_confirmation_for_several_calls_is_for_all_of_them() -> None:
    call = requested(
        {"toolCallId": "1", "kind": "edit", "rawInput": {"path": "/p/a", "file_text": "x"}},
        {"toolCallId": "2", "kind": "execute", "rawInput": {"command": "terraform destroy"}},
        {"toolCallId": "confirmation-1", "kind": "other", "title": "Confirm Agent Actions"},
    )
    assert (call.commands, call.reading.paths) == (("terraform destroy",), ("/p/a",))
    assert call.reading.source == "turn"
    assert assess_risk(call).level == "high"
    for denied in ({"commands": ("terraform*",)}, {"writes": ("a",)}):
        rule = Rule(decision="deny", **denied)  # type: ignore[arg-type] # patterns of one kind
        assert decide(Policy(rule=(rule,)), call, workspace="/p").decision == "deny"


GIT = Rule(decision="allow", commands=True, reads=True, writes=True, searches=True)
HARMLESS: Json = {"toolCallId": "1", "kind": "execute", "rawInput": {"command": "git status"}}
ENDED: Json = {"toolCallId": "1", "is_update": True, "status": "completed"}
CONFIRM: Json = {"toolCallId": "2", "kind": "other", "title": "Confirm"}
AGAIN: Json = {"toolCallId": "1", "kind": "execute", "title": "git status"}


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([HARMLESS, ENDED, CONFIRM], id="another call that has ended"),
        pytest.param([HARMLESS, {"turn": True}, CONFIRM], id="another call of an earlier turn"),
        pytest.param([HARMLESS, ENDED, AGAIN], id="the same id, ended"),
        pytest.param([HARMLESS, {"turn": True}, AGAIN], id="the same id, in an earlier turn"),
        pytest.param([CONFIRM], id="nothing at all"),
        pytest.param([AGAIN], id="a title"),
    ],
)
def test_nothing_is_taken_from_a_call_that_has_ended_or_from_an_earlier_turn(
    messages: list[Json],
) -> None:
    call = requested(*messages)
    assert call.commands == ()
    assert not call.reading.is_readable
    assert decide(Policy(rule=(GIT,)), call, workspace="/p").decision == "ask"
    risk = assess_risk(call)
    assert risk.level == "high"
    assert "Cannot be inspected" in risk.reason


def test_an_open_call_under_another_id_does_not_get_a_request_allowed() -> None:
    call = requested(HARMLESS, CONFIRM)
    assert call.commands == ("git status",)
    decision = decide(Policy(rule=(GIT,)), call, workspace="/p")
    assert decision.decision == "ask"
    assert "do not prove" in decision.reason


@pytest.mark.parametrize("words", ["git status", "`git status`", "Run git status", "ls"])
def test_words_of_an_agent_allow_nothing(words: str) -> None:
    for request in (
        {"toolCallId": "1", "kind": "execute", "title": words},
        {"toolCallId": "1", "kind": "execute", "title": words, "rawInput": {"description": words}},
        {"toolCallId": "1", "kind": "execute", "title": words, "content": said(words)},
        {"toolCallId": "1", "kind": "execute", "title": "x", "rawInput": {"title": words}},
        {"toolCallId": "1", "title": "Bash", "content": said(f"Running: {words}")},
        {"toolCallId": "1", "kind": "search", "title": words},
        {"toolCallId": "1", "kind": "fetch", "title": words},
        {"toolCallId": "1", "title": "Read"},
    ):
        call = requested(request)
        assert decide(Policy(rule=(GIT,)), call, workspace="/p").decision == "ask", request
        assert assess_risk(call).level == "high", request


def test_a_second_input_in_the_content_counts() -> None:
    call = requested(
        {"toolCallId": "1", "kind": "execute", "rawInput": {"command": "git status"},
         "content": said('{"command": "touch PWN"}')},
    )  # fmt: skip
    git = Rule(decision="allow", commands=("git status",))
    assert call.commands == ("git status", "touch PWN")
    assert decide(Policy(rule=(git,)), call, workspace="/p").decision == "ask"


DIFF = {"type": "diff", "path": FILE, "oldText": None, "newText": "one\n"}


@pytest.mark.parametrize(
    ("announced", "sent", "shown"),
    [
        (
            {"kind": "edit", "content": [DIFF], "locations": [{"path": FILE}]},
            {"title": "Edit files"},
            {"kind": "edit", "content": [DIFF], "locations": [{"path": FILE}]},
        ),
        ({"rawInput": {"command": LINE}}, {}, {"rawInput": {"command": LINE}}),
        ({"rawInput": {"command": LINE}}, {"rawInput": {"command": "ls"}}, {}),
        ({"content": [DIFF]}, {"content": []}, {}),
        ({"content": [DIFF]}, {"content": None}, {"content": [DIFF]}),
        (None, {"title": "x"}, {}),
    ],
    ids=["codex", "vibe", "another input", "no content", "null", "not announced"],
)
def test_what_was_announced_is_shown_with_a_request_that_does_not_repeat_it(
    announced: Json | None, sent: Json, shown: Json
) -> None:
    repair = ToolCallRepair()
    if announced is not None:
        repair.repaired(Normalized("tool-call", {"toolCallId": "c", **announced}, None))
    request: Any = SimpleNamespace(
        tool_call={"toolCallId": "c", **sent}, earlier=repair.open_call("c")
    )
    assert whole_call(request) == {"toolCallId": "c", **sent, **shown}
