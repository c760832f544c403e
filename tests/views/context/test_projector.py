"""The context events of each event of a log, and their order."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.protocol import SessionSnapshotWire, decode_event, make_host_event
from quarterdeck.protocol.results import resolution_meta
from quarterdeck.views.context import ContextProjector, EnvironmentAgent
from quarterdeck.views.context.contract import SessionFacts
from tests.views.context.support import SESSION, START, Log, edit_diff, every, only, statuses

MODEL = [
    {
        "id": "model",
        "name": "Model",
        "category": "model",
        "type": "select",
        "currentValue": "a",
        "options": [{"value": "a", "name": "Model A"}, {"value": "b", "name": "Model B"}],
    }
]


def text(words: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": words}}


def called(log: Log, name: str, given: Any, status: str = "completed", **more: Any) -> Log:
    log.update("tool_call", toolCallId="t", title=name, status="pending", rawInput=given)
    return log.update("tool_call_update", toolCallId="t", status=status, **more)


# ---- the two worked examples ------------------------------------------------------------


def test_an_edit_with_permission_gives_events_in_the_documented_order() -> None:
    log = Log().started().prompted("fix it").say("I'll ").say("edit.")
    log.update(
        "tool_call",
        toolCallId="t1",
        title="Edit `a.py`",
        kind="edit",
        status="pending",
        content=[edit_diff()],
        _meta={"claudeCode": {"toolName": "Edit"}},
    )
    log.ask({"toolCallId": "t1"}).answer("yes")
    log.update("tool_call_update", toolCallId="t1", status="completed")
    log.say("Done.").finished()
    assert log.types() == [
        "session:started",
        "environment:info",
        "session:status_changed",
        "session:status_changed",
        "message:start",
        "message:delta",
        "message:complete",
        "message:start",
        "message:delta",
        "message:delta",
        "message:complete",
        "tool:start",
        "tool:executing",
        "approval:requested",
        "session:status_changed",
        "approval:resolved",
        "session:status_changed",
        "tool:result",
        "file:change",
        "message:start",
        "message:delta",
        "message:complete",
        "session:status_changed",
    ]
    emitted = log.emitted()
    assert statuses(emitted) == [
        ("starting", "idle"),
        ("idle", "running"),
        ("running", "waiting_for_approval"),
        ("waiting_for_approval", "running"),
        ("running", "idle"),
    ]
    start, executing = only(emitted, "tool:start"), only(emitted, "tool:executing")
    assert (start.name, start.category, start.description) == ("Edit", "file_edit", "Edit `a.py`")
    assert (executing.risk_level, executing.requires_approval) == ("medium", True)
    preview = only(emitted, "approval:requested").preview
    result, change = only(emitted, "tool:result"), only(emitted, "file:change")
    diff = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+y\n"
    assert preview.diff == result.structured.diff == change.diff == diff
    assert result.output == "/p/a.py (+1 −1)"  # noqa: RUF001 - a minus sign
    assert (change.change_type, change.lines_added, change.lines_removed) == ("modified", 1, 1)
    user, first, last = every(emitted, "message:complete")
    assert [each.content[0].text for each in (user, first, last)] == [
        "fix it",
        "I'll edit.",
        "Done.",
    ]
    assert last.stop_reason == "end_turn"


def test_a_permission_without_a_call_starts_the_call() -> None:
    call = {"toolCallId": "t2", "title": "Run ls", "kind": "execute"}
    log = Log().started().prompted().ask(call).answer("yes")
    log.update("tool_call_update", toolCallId="t2", status="completed", content=[text("a b")])
    emitted = log.emitted()
    types = [event.type for event in emitted if event.type.startswith(("tool:", "approval:"))]
    assert types == [
        "tool:start",
        "tool:executing",
        "approval:requested",
        "approval:resolved",
        "tool:result",
    ]
    assert only(emitted, "approval:requested").preview.command == "Run ls"


# ---- sessions ------------------------------------------------------------


def test_a_session_starts_with_its_project_and_model() -> None:
    emitted = Log().started(configOptions=MODEL).emitted()
    started, info = only(emitted, "session:started"), only(emitted, "environment:info")
    assert (started.agent, started.model) == ("claude", "a")
    assert (started.project_path, started.project_name, started.working_directory) == (
        "/p",
        "p",
        "/p",
    )
    assert info.context.model.display_name == "Model A"
    assert started.timestamp == "2023-11-14T22:13:20.020Z"


@pytest.mark.parametrize(
    "session",
    [
        "s",
        SESSION,
        SessionFacts(session_id="s"),
        SessionSnapshotWire(session_id="s", status="active", cwd="/p", additional_directories=()),
    ],
)
def test_a_projector_takes_a_snapshot_or_just_an_id(session: Any) -> None:
    events = Log().started().events
    assert [emitted.type for event in events for emitted in ContextProjector(session).feed(event)]


def test_other_sessions_and_the_host_give_no_events() -> None:
    projector = ContextProjector("other")
    host = make_host_event("diagnostic", None, seq=1, ts=1, payload={"code": "x"})
    assert [projector.feed(event) for event in (*Log().started().events, host)] == [[], [], []]


def test_an_event_of_a_newer_version_is_custom() -> None:
    event = decode_event({"type": "new", "sessionId": "s", "seq": 1, "ts": 1, "payload": {}})
    (emitted,) = ContextProjector("s").feed(event)
    assert (emitted.type, emitted.namespace, emitted.event_name) == ("custom", "quarterdeck", "new")  # type: ignore[union-attr]


def test_an_agent_that_goes_while_nothing_runs_pauses_the_session() -> None:
    log = Log().started().status("disconnected").status("resuming")
    emitted = log.status("active", resumed=True).emitted()
    assert only(emitted, "session:paused").reason
    assert only(emitted, "session:resumed").previous_session_id == "s"
    assert statuses(emitted)[1:] == [
        ("idle", "paused"),
        ("paused", "starting"),
        ("starting", "idle"),
    ]


def test_an_agent_that_goes_in_a_turn_is_an_error() -> None:
    log = Log().started().prompted().say("I")
    log.update("tool_call", toolCallId="t", title="Read", status="in_progress")
    emitted = log.status("disconnected").emitted()
    assert only(emitted, "session:error").error.code == "AGENT_EXITED"
    assert only(emitted, "tool:error").error.code == "INCOMPLETE"
    assert statuses(emitted)[-1] == ("running", "error")


def test_a_session_that_cannot_be_resumed_is_an_error() -> None:
    log = Log().started().status("disconnected").status("resuming").status("disconnected")
    assert only(log.emitted(), "session:error").error.code == "RESUME_ERROR"


def test_a_closed_session_is_summed_up_once() -> None:
    log = Log().started().prompted().say("hi")
    called(log, "Edit", {}, content=[edit_diff()])
    log.update("usage_update", used=1, size=10, cost={"amount": 2.5, "currency": "EUR"})
    log.finished(usage={"inputTokens": 3, "outputTokens": 4})
    emitted = log.status("closed").status("deleted").emitted()
    summary = only(emitted, "session:completed").summary
    (changed,) = summary.files_changed
    assert (changed.path, changed.lines_added, changed.lines_removed) == ("/p/a.py", 1, 1)
    assert (summary.token_usage.input_tokens, summary.tokens_known) == (3, True)
    assert (summary.cost.total, summary.cost.currency) == (2.5, "EUR")
    assert (summary.tool_calls_count, summary.messages_count, summary.error_count) == (1, 2, 0)
    assert summary.duration == log.events[-2].ts - START - 20
    assert statuses(emitted)[-1] == ("idle", "completed")


# ---- messages and thoughts ------------------------------------------------------------


def words(log: Log) -> list[tuple[str, str]]:
    complete = every(log.emitted(), "message:complete")
    return [(each.message_id, each.content[0].text) for each in complete if each.role != "user"]


def test_without_ids_a_tool_call_ends_a_message() -> None:
    log = Log().started().prompted().say("a")
    called(log, "Read", {})
    assert words(log.say("b").finished()) == [("msg-1", "a"), ("msg-2", "b")]


def test_with_an_id_a_message_continues_after_a_tool_call() -> None:
    log = Log().started().prompted().say("a", "m")
    called(log, "Read", {})
    assert words(log.say("b", "m").say("c", "n").finished()) == [("m", "ab"), ("n", "c")]


def test_a_message_that_continues_after_its_end_gets_an_id_of_its_own() -> None:
    log = Log().started().prompted().say("a", "m").think("h").say("b", "m").finished()
    assert words(log) == [("m", "a"), ("m#2", "b")]


def test_usage_and_titles_end_neither_message_nor_thought() -> None:
    log = Log().started().prompted().think("a").update("usage_update", used=1, size=2)
    log.think("b").say("c").update("session_info_update", title="T").say("d").finished()
    assert words(log) == [("msg-1", "cd")]
    assert only(log.emitted(), "thinking:complete").content == "ab"


def test_text_after_the_end_of_a_turn_is_a_new_message_and_no_new_status() -> None:
    log = Log().started().prompted().say("a").finished().say("late").prompted()
    assert words(log) == [("msg-1", "a"), ("msg-2", "late")]
    assert statuses(log.emitted())[-2:] == [("running", "idle"), ("idle", "running")]


def test_images_are_in_the_complete_message_and_other_blocks_have_a_placeholder() -> None:
    log = Log().started().prompted().say("see ")
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    link = {"type": "resource_link", "uri": "file:///x", "name": "x"}
    for block in (image, link, {"type": "audio", "data": ""}):
        log.add("agent-message-chunk", {"content": block})
    emitted = log.finished().emitted()
    text_block, shown = every(emitted, "message:complete")[-1].content
    assert text_block.text == "see [x](file:///x)[audio]"
    assert (shown.url, shown.mime_type) == ("data:image/png;base64,aGk=", "image/png")
    assert [each.event_name for each in every(emitted, "custom")] == ["content", "content"]


def test_a_thought_is_a_status_of_its_own() -> None:
    emitted = Log().started().prompted().think("h").think("m").say("x").finished().emitted()
    assert statuses(emitted)[2:] == [
        ("running", "thinking"),
        ("thinking", "running"),
        ("running", "idle"),
    ]
    assert only(emitted, "thinking:complete").content == "hm"


# ---- tools ------------------------------------------------------------


def test_a_call_in_progress_that_requests_permission_is_executing_twice() -> None:
    log = Log().started().prompted()
    log.update("tool_call", toolCallId="t", title="edit", kind="edit", status="in_progress")
    log.ask({"toolCallId": "t"}).answer("no")
    emitted = log.emitted()
    assert [each.requires_approval for each in every(emitted, "tool:executing")] == [False, True]
    assert only(emitted, "approval:resolved").approved is False


def test_a_call_that_is_announced_twice_is_one_call() -> None:
    log = Log().started().prompted()
    for _ in range(2):
        log.update("tool_call", toolCallId="t", title="Read", rawInput={"path": "/a"})
    log.update("tool_call_update", toolCallId="t", status="completed")
    log.update("tool_call_update", toolCallId="t", status="failed")
    emitted = log.finished().emitted()
    assert only(emitted, "tool:start").name == "Read"
    assert only(emitted, "tool:result").name == "Read"
    assert not every(emitted, "tool:error")


def test_a_permission_request_with_an_empty_input_erases_nothing() -> None:
    log = Log().started().prompted()
    log.update("tool_call", toolCallId="t", title="bash", rawInput={"command": "ls"})
    log.ask({"toolCallId": "t", "rawInput": {}, "content": []})
    request = only(log.emitted(), "approval:requested")
    assert request.tool_input == {"command": "ls"}
    assert (request.preview.command, request.preview.working_dir) == ("ls", "/p")


@pytest.mark.parametrize(
    ("reason", "code"), [("cancelled", "CANCELLED"), ("end_turn", "INCOMPLETE")]
)
def test_a_turn_ends_the_calls_it_left_open(reason: str, code: str) -> None:
    log = Log().started().prompted().update("tool_call", toolCallId="t", title="Read")
    log.finished(reason).update("tool_call_update", toolCallId="t", status="completed")
    emitted = log.emitted()
    assert only(emitted, "tool:error").error.code == code
    assert not every(emitted, "tool:result")


def test_what_a_running_call_puts_out_is_not_taken_for_its_arguments() -> None:
    log = Log().started().prompted()
    log.update("tool_call", toolCallId="t", title="list", kind="other", status="in_progress")
    shown = [text('{"found": 3}')]
    log.update("tool_call_update", toolCallId="t", status="in_progress", content=shown)
    log.update("tool_call_update", toolCallId="t", status="completed")
    emitted = log.emitted()
    assert every(emitted, "tool:args_delta") == []
    assert only(emitted, "tool:result").output == '{"found": 3}'


def test_a_later_turn_may_use_an_id_again() -> None:
    log = Log().started().prompted()
    called(log, "Read", {})
    log.finished().prompted()
    called(log, "Read", {})
    assert len(every(log.finished().emitted(), "tool:result")) == 2


GIT_STATUS: dict[str, Any] = {"kind": "execute", "rawInput": {"command": "git status"}}


def test_a_call_that_is_announced_and_ended_twice_in_a_turn_is_emitted_once() -> None:
    log = Log().started().prompted()
    for _ in range(2):
        log.update("tool_call", toolCallId="t", title="Run", **GIT_STATUS)
        log.update("tool_call_update", toolCallId="t", status="failed", rawOutput="rejected")
    emitted = log.finished().emitted()
    assert len(every(emitted, "tool:start")) == len(every(emitted, "tool:error")) == 1


@pytest.mark.parametrize("is_announced", [False, True])
@pytest.mark.parametrize("is_ended", [False, True])
def test_a_request_inherits_nothing_from_an_earlier_call_with_its_id(
    is_announced: bool, is_ended: bool
) -> None:
    log = Log().started().prompted().update("tool_call", toolCallId="t", title="Run", **GIT_STATUS)
    if is_ended:
        log.update("tool_call_update", toolCallId="t", status="completed")
    else:
        log.finished().prompted()
    if is_announced:
        log.update("tool_call", toolCallId="t", title="rm -rf dist", kind="execute")
    emitted = log.ask({"toolCallId": "t", "title": "rm -rf dist", "kind": "execute"}).emitted()
    requested = only(emitted, "approval:requested")
    assert requested.preview.command == "rm -rf dist"
    assert requested.tool_input == {}
    assert len(every(emitted, "tool:start")) == 2


def test_a_request_has_the_input_of_its_call_even_if_the_id_was_used_before() -> None:
    log = Log().started().prompted().update("tool_call", toolCallId="t", title="Run", **GIT_STATUS)
    log.update("tool_call_update", toolCallId="t", status="completed")
    log.update("tool_call", toolCallId="t", title="Run", kind="execute")
    log.update("tool_call_update", toolCallId="t", rawInput={"command": "rm -rf dist"})
    emitted = log.ask({"toolCallId": "t", "title": "git status", "kind": "execute"}).emitted()
    assert only(emitted, "approval:requested").preview.command == "rm -rf dist"


def test_a_call_left_open_between_turns_ends_when_the_next_turn_uses_its_id() -> None:
    log = Log().started().update("tool_call", toolCallId="t", title="Run", **GIT_STATUS).prompted()
    log.update("tool_call", toolCallId="t", title="rm -rf dist", kind="execute")
    emitted = log.update("tool_call_update", toolCallId="t", status="completed").emitted()
    assert [event.type for event in emitted if event.type.startswith("tool:")] == [
        "tool:start",
        "tool:error",
        "tool:start",
        "tool:executing",
        "tool:result",
    ]
    assert only(emitted, "tool:executing").input == {}


def test_what_only_a_request_has_is_not_taken_for_input_that_is_being_written() -> None:
    content = [{"type": "content", "content": {"type": "text", "text": '{"text": "x"}'}}]
    log = Log().started().prompted().update("tool_call", toolCallId="t", title="echo")
    mark = {"quarterdeck": {"added": "the agent sent this in its permission request"}}
    log.add("tool-call-update", {"toolCallId": "t", "content": content}, mark)
    emitted = log.ask({"toolCallId": "t", "title": "echo", "content": content}).emitted()
    assert every(emitted, "tool:args_delta") == []


def test_a_result_has_its_duration() -> None:
    log = Log().started().prompted().update("tool_call", toolCallId="t", title="Read")
    log.update("tool_call_update", toolCallId="t", status="in_progress").say("x", "m")
    log.update("tool_call_update", toolCallId="t", status="completed")
    assert only(log.emitted(), "tool:result").duration == 20


def test_a_terminal_gives_a_call_its_output_and_exit_code() -> None:
    log = Log().started().prompted()
    shown = [{"type": "terminal", "terminalId": "term"}]
    log.update("tool_call", toolCallId="t", title="bash", kind="execute", content=shown)
    log.add("terminal-output", {"terminalId": "term", "delta": "a\n"})
    log.add("terminal-output", {"terminalId": "term", "delta": "b\n", "exit": {"exitCode": 3}})
    log.update("tool_call_update", toolCallId="t", status="completed")
    result = only(log.emitted(), "tool:result")
    assert result.output == "a\nb\n"
    assert (result.structured.exit_code, result.structured.stdout) == (3, "a\nb\n")


def test_a_search_gives_its_matches() -> None:
    log = called(Log().started().prompted(), "Grep", {"pattern": "x"}, rawOutput="a.py:3:x = 1\n")
    (match,) = only(log.emitted(), "tool:result").structured.results
    assert (match.file, match.line, match.content) == ("a.py", 3, "x = 1")


def test_a_fetched_page_is_web_content() -> None:
    page = {"title": "T", "content": "Words."}
    log = called(Log().started().prompted(), "WebFetch", {"url": "https://x"}, rawOutput=page)
    web = only(log.emitted(), "tool:result").structured
    assert (web.url, web.title, web.summary) == ("https://x", "T", "Words.")


def test_a_request_that_is_neither_diff_nor_command_is_described() -> None:
    call = {"toolCallId": "t", "title": "Look it up", "content": [text("in the library")]}
    request = only(Log().started().prompted().ask(call).emitted(), "approval:requested")
    assert request.preview.text == "Look it up\nin the library"


def test_a_long_output_is_cut_and_marked() -> None:
    log = called(Log().started().prompted(), "Read", {}, rawOutput="x" * 100_000)
    output = only(log.emitted(), "tool:result").output
    assert len(output) < 66_000
    assert "characters cut" in output


def test_names_come_from_what_agents_declare_and_else_from_what_is_known() -> None:
    log = Log().started().prompted()
    log.update("tool_call", toolCallId="a", title="Run it", kind="execute", name="exec_command")
    log.update("tool_call", toolCallId="b", title="grep", kind="search", status="pending")
    log.update("tool_call", toolCallId="c", title="Looks", rawInput={"subagent_type": "x"})
    log.update("tool_call", toolCallId="read_file__0123456789ab", title="main.py", kind="read")
    log.update("tool_call", toolCallId="d", title="Some thing", kind="execute")
    names = [each.name for each in every(log.emitted(), "tool:start")]
    assert names == ["exec_command", "grep", "Looks", "read_file", "Bash"]


# ---- files ------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "kind", "change"),
    [
        (None, "a\n", "edit", "created"),
        ("", "a\n", "edit", "created"),
        ("a\n", "b\n", "edit", "modified"),
        ("a\n", "", "edit", "modified"),
        ("a\n", "", "delete", "deleted"),
    ],
)
def test_a_diff_gives_the_type_of_change(old: str | None, new: str, kind: str, change: str) -> None:
    log = called(Log().started(), "change", {}, kind=kind, content=[edit_diff("/p/a.py", old, new)])
    assert only(log.emitted(), "file:change").change_type == change


OLD = "".join(f"line {n}\n" for n in range(40))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (OLD, OLD.replace("line 3\n", "").replace("line 30", "other")),
        ("a\nb", "a\nb\nc"),
        ("", "a\n\x0b\u2028b\n"),
        ("a\n", ""),
        ("x\n" * 5000, "y\n" * 5000),
    ],
)
def test_git_applies_the_diffs(old: str, new: str, tmp_path: Path) -> None:
    log = called(Log().started(), "change", {}, content=[edit_diff("/p/d/a.txt", old, new)])
    change = only(log.emitted(), "file:change")
    file = tmp_path / "d/a.txt"
    file.parent.mkdir()
    if old:
        file.write_bytes(old.encode())
    subprocess.run(["git", "apply", "-"], input=change.diff.encode(), cwd=tmp_path, check=True)
    assert file.read_bytes() == new.encode()
    assert change.lines_added - change.lines_removed == new.count("\n") - old.count("\n") + (
        bool(new) and not new.endswith("\n")
    ) - (bool(old) and not old.endswith("\n"))


def test_several_files_of_one_call_are_a_batch_and_one_file_is_none() -> None:
    two = [edit_diff("/p/a.py"), edit_diff("/p/b.py", None)]
    batch = only(called(Log().started(), "x", {}, content=two).emitted(), "file:batch")
    assert [each.change_type for each in batch.changes] == ["modified", "created"]
    same = [edit_diff("/p/a.py"), edit_diff("/p/x/../a.py")]
    assert only(called(Log().started(), "x", {}, content=same).emitted(), "file:change")


def test_a_snippet_does_not_replace_the_whole_file_that_was_shown() -> None:
    log = Log().started().prompted()
    whole = [edit_diff(old="a\nx\nb\n", new="a\ny\nb\n")]
    log.ask({"toolCallId": "t", "title": "edit", "content": whole}).answer("yes")
    snippet = [edit_diff(old="x", new="y")]
    log.update("tool_call_update", toolCallId="t", status="completed", content=snippet)
    assert "@@ -1,3 +1,3 @@" in only(log.emitted(), "file:change").diff


def test_a_failed_call_changes_no_file() -> None:
    log = called(Log().started(), "Edit", {}, "failed", content=[edit_diff()])
    assert not every(log.emitted(), "file:change")


def test_a_write_without_a_diff_gives_a_change_without_one() -> None:
    log = called(Log().started(), "Write", {"path": "/p/n.ts", "content": "x"})
    change = only(log.emitted(), "file:change")
    assert (change.path, change.diff, change.lines_added) == ("/p/n.ts", None, None)
    assert change.language == "typescript"


# ---- git and web ------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "output", "operations"),
    [
        (
            "git commit -m x",
            "[main (root-commit) 1a2b3c4] x\n 2 files changed",
            ["commit 1a2b3c4 x 2"],
        ),
        ("git commit -m x", "nothing to commit", []),
        ("git checkout -b new", "", ["branch_create new HEAD"]),
        ("git -C d switch -c new main", "", ["branch_create new main"]),
        ("git checkout main", "Switched to branch 'main'", ["branch_switch main"]),
        ("git checkout file", "", []),
        ("git push", "   a..b  main -> main", ["push origin main"]),
        ("git push up HEAD:x", "", ["push up x"]),
        ("git stash && git stash pop", "", ["stash push", "stash pop"]),
        (
            "gh pr create --title 'A b'",
            "https://h.com/o/r/pull/7",
            ["pr_create 7 A b https://h.com/o/r/pull/7"],
        ),
        ("echo git push", "main -> main", []),
    ],
)
def test_git_operations_are_emitted_if_the_output_proves_them(
    command: str, output: str, operations: list[str]
) -> None:
    log = called(Log().started(), "Bash", {"command": command}, rawOutput={"stdout": output})
    emitted = every(log.emitted(), "git:operation")
    assert [_spoken(each.operation) for each in emitted] == operations


def _spoken(operation: Any) -> str:
    config = type(operation).__struct_config__
    values = [str(getattr(operation, name)) for name in operation.__struct_fields__]
    return " ".join([config.tag, *values])


def test_a_command_that_failed_did_no_git_operation() -> None:
    failed = {"stdout": "", "exit_code": 1}
    log = called(Log().started(), "Bash", {"command": "git stash"}, rawOutput=failed)
    assert not every(log.emitted(), "git:operation")


@pytest.mark.parametrize(
    "output", ["http://a/" * 7000, "\n" * 60_000, " " * 60_000, "[a (\n" * 12_000, " a -> " * 9_000]
)
def test_no_output_makes_looking_for_git_operations_slow(output: str) -> None:
    command = {"command": "git commit; git push origin x; gh pr create"}
    log = called(Log().started(), "Bash", command, rawOutput={"stdout": output})
    assert len(every(log.emitted(), "git:operation")) <= 1


def test_web_operations_have_what_the_output_has() -> None:
    found = {"results": [{"title": "T", "url": "u", "snippet": "s"}]}
    log = called(Log().started(), "WebSearch", {"query": "q"}, rawOutput=found)
    search = only(log.emitted(), "web:operation").operation
    assert (search.query, search.results[0].title) == ("q", "T")
    page = {"title": "T", "statusCode": 200}
    log = called(Log().started(), "fetch", {"url": "u"}, rawOutput=page)
    fetch = only(log.emitted(), "web:operation").operation
    assert (fetch.url, fetch.title, fetch.status_code) == ("u", "T", 200)


# ---- approvals ------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "meta", "approved", "by", "reason"),
    [
        ("yes", None, True, "user", None),
        ("always", None, True, "user", None),
        ("no", resolution_meta("user", "Too risky"), False, "user", "Too risky"),
        ("yes", resolution_meta("policy", "reads"), True, "policy", "reads"),
        ("no", resolution_meta("timeout"), False, "timeout", None),
    ],
)
def test_a_decision_names_who_decided(
    option: str, meta: Any, approved: bool, by: str, reason: str | None
) -> None:
    more = {} if meta is None else {"_meta": meta}
    emitted = Log().started().prompted().ask({"toolCallId": "t"}).answer(option, **more).emitted()
    resolved = only(emitted, "approval:resolved")
    assert (resolved.approved, resolved.resolved_by, resolved.reason) == (approved, by, reason)
    assert resolved.tool_call_id == "t"


def test_a_request_that_is_withdrawn_is_not_approved() -> None:
    log = Log().started().prompted().ask({"toolCallId": "t"})
    log.add("permission-request-resolved", {"requestId": "perm-1", "status": "superseded"})
    resolved = only(log.emitted(), "approval:resolved")
    assert (resolved.approved, resolved.resolved_by, resolved.reason) == (
        False,
        "policy",
        "superseded",
    )


def test_the_session_waits_until_the_last_request_is_answered() -> None:
    log = Log().started().prompted().ask({"toolCallId": "a"}, "1").ask({"toolCallId": "b"}, "2")
    log.answer("yes", "1").say("x").answer("yes", "2")
    assert statuses(log.emitted())[2:] == [
        ("running", "waiting_for_approval"),
        ("waiting_for_approval", "running"),
    ]


def test_approvals_expire_only_if_an_expiry_is_set() -> None:
    log = Log().started().prompted().ask({"toolCallId": "t"})
    assert only(log.emitted(), "approval:requested").expires_at is None
    emitted = log.emitted(approval_expiry_ms=1000)
    assert only(emitted, "approval:requested").expires_at == "2023-11-14T22:13:21.050Z"


# ---- errors, resources, settings ------------------------------------------------------------


def test_a_prompt_that_fails_is_an_error_and_the_session_continues() -> None:
    error = {"code": -32603, "message": "boom", "data": {"x": 1}}
    emitted = Log().started().prompted().finished(error=error).emitted()
    failed = only(emitted, "session:error").error
    assert (failed.code, failed.message, failed.recoverable) == ("RPC_-32603", "boom", True)
    assert failed.details == {"x": 1}
    assert statuses(emitted)[-2:] == [("running", "error"), ("error", "idle")]


def test_a_missing_sign_in_is_a_notification() -> None:
    emitted = (
        Log().started().prompted().finished(error={"code": -32000, "message": "Auth"}).emitted()
    )
    assert only(emitted, "session:error").error.code == "AUTH_REQUIRED"
    assert only(emitted, "interaction:notification").level == "warning"


def test_the_ways_to_sign_in_are_named_if_the_error_has_them() -> None:
    methods = [{"id": "a", "name": "Browser"}, {"id": "key"}]
    error = {"code": -32000, "message": "no", "data": {"authMethods": methods}}
    emitted = Log().started().prompted().finished(error=error).emitted()
    assert only(emitted, "interaction:notification").message == "no; sign in with Browser or key"


def test_a_rate_limit_has_the_time_to_wait() -> None:
    error = {"code": 1, "message": "Too many requests", "data": {"retry_after": 12}}
    limit = only(Log().started().prompted().finished(error=error).emitted(), "resource:rate_limit")
    assert (limit.retry_after, limit.limit) == (12, "requests")


def test_tokens_add_up_over_turns_and_cost_is_emitted_as_it_grows() -> None:
    log = Log().started()
    for amount in (1.0, 1.0, 1.5):
        log.prompted().update(
            "usage_update", used=1, size=0, cost={"amount": amount, "currency": "X"}
        )
        log.finished(usage={"inputTokens": 1, "outputTokens": 2, "cachedReadTokens": 3})
    emitted = log.emitted()
    assert [each.cumulative.input_tokens for each in every(emitted, "resource:token_usage")] == [
        1,
        2,
        3,
    ]
    assert every(emitted, "resource:token_usage")[-1].cumulative.cache_read_tokens == 9
    costs = [(each.delta.total, each.cumulative.total) for each in every(emitted, "resource:cost")]
    assert costs == [(1.0, 1.0), (0.5, 1.5)]
    assert not every(emitted, "resource:context_window")


@pytest.mark.parametrize(
    "counted",
    [
        {"input_tokens": 12, "output_tokens": 3},
        {"inputTokens": 12, "outputTokens": 3, "cachedInputTokens": 2},
    ],
)
def test_tokens_that_are_only_in_the_meta_of_a_response_count(counted: dict[str, int]) -> None:
    log = Log().started().prompted()
    log.add(
        "prompt-finished",
        {"stopReason": "end_turn"},
        {"_meta": {"quota": {"token_count": counted}}},
    )
    usage = only(log.emitted(), "resource:token_usage")
    assert (usage.delta.input_tokens, usage.delta.output_tokens) == (12, 3)
    assert usage.delta.cache_read_tokens == counted.get("cachedInputTokens")


def test_usage_in_a_response_is_not_counted_twice() -> None:
    beside = {"_meta": {"quota": {"token_count": {"inputTokens": 9, "outputTokens": 9}}}}
    used = {"stopReason": "end_turn", "usage": {"inputTokens": 1, "outputTokens": 2}}
    emitted = Log().started().prompted().add("prompt-finished", used, beside).emitted()
    assert only(emitted, "resource:token_usage").cumulative.input_tokens == 1


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        ("s", ("gemini-cli", "0.61.0", "Gemini CLI")),
        (SESSION, ("claude", "0.61.0", "Gemini CLI")),
        (
            SessionFacts(
                session_id="s",
                agent=EnvironmentAgent(name="g", version="1", display_name="My own"),
            ),
            ("g", "0.61.0", "My own"),
        ),
    ],
)
def test_the_name_an_agent_reports_completes_its_definition(
    session: Any, expected: tuple[str, ...]
) -> None:
    info = {"name": "gemini-cli", "title": "Gemini CLI", "version": "0.61.0"}
    log = Log().add("session-config-init", {}, {"agentInfo": info}).status("active")
    projector = ContextProjector(session)
    emitted = [each for event in log.events for each in projector.feed(event)]
    agent = only(emitted, "environment:info").context.agent
    assert (agent.name, agent.version, agent.display_name) == expected
    assert only(emitted, "session:started").agent == expected[0]


def test_the_context_window_is_a_percentage() -> None:
    window = only(
        Log().update("usage_update", used=333, size=1000).emitted(), "resource:context_window"
    )
    assert (window.used, window.limit, window.percentage) == (333, 1000, 33.3)


def test_another_model_is_an_environment_event_and_other_settings_are_custom() -> None:
    log = Log().started(configOptions=MODEL)
    log.update("config_option_update", configOptions=[{**MODEL[0], "currentValue": "b"}])
    log.update("config_option_update", configOptions=[{"id": "x", "currentValue": "y"}])
    emitted = log.emitted()
    assert [each.context.model.id for each in every(emitted, "environment:info")] == ["a", "b"]
    assert only(emitted, "custom").event_name == "config_options"


def test_plan_mode_is_emitted_when_it_changes() -> None:
    modes = {
        "currentModeId": "c",
        "availableModes": [{"id": "c", "name": "Code"}, {"id": "p", "name": "Plan Mode"}],
    }
    log = Log().started(modes=modes)
    for mode in ("p", "p", "c", "explain"):
        log.update("current_mode_update", currentModeId=mode)
    emitted = log.emitted()
    assert [each.active for each in every(emitted, "progress:plan_mode")] == [True, False]
    assert [each.data["modeId"] for each in every(emitted, "custom")] == ["p", "explain"]


def test_a_plan_that_waits_for_consent_has_its_text() -> None:
    log = called(Log().started().prompted(), "ExitPlanMode", {"plan": "1. x"})
    plans = [(each.active, each.plan) for each in every(log.emitted(), "progress:plan_mode")]
    assert plans == [(True, "1. x"), (False, None)]


def test_the_same_todos_are_emitted_once_from_any_source() -> None:
    entries = [{"content": "a", "priority": "low", "status": "completed"}]
    log = Log().started().prompted().update("plan", entries=entries).update("plan", entries=entries)
    called(log, "TodoWrite", {"todos": entries})
    (item,) = only(log.emitted(), "progress:todo_update").todos
    assert (item.content, item.status) == ("a", "completed")


def test_questions_are_emitted_once_and_wait_for_an_answer() -> None:
    raw_input = {"questions": [{"question": "Which?", "options": [{"label": "red"}]}]}
    log = Log().started().prompted()
    for _ in range(2):
        log.update("tool_call", toolCallId="q", title="AskUserQuestion", rawInput=raw_input)
    log.update("tool_call_update", toolCallId="q", status="completed")
    emitted = log.emitted()
    question = only(emitted, "interaction:question")
    assert (question.question_id, question.question, question.options) == ("q", "Which?", ("red",))
    assert ("running", "waiting_for_input") in statuses(emitted)


def test_drafts_of_the_protocol_are_understood() -> None:
    log = Log().started()
    log.update("subagent_update", sessionId="c", description="look", state={"state": "running"})
    log.update("subagent_update", sessionId="c", state={"state": "idle"}, message="found")
    plan = {"planId": "1", "entries": [{"content": "a", "status": "pending"}]}
    log.update("plan_update", plan=plan).update("plan_removed", planId="1")
    chunk = {"type": "text", "text": "short"}
    log.update("compaction_summary_chunk", compactionId="c", content=chunk)
    log.update("compaction_update", compactionId="c", status="completed")
    emitted = log.emitted()
    assert only(emitted, "subagent:spawned").task == "look"
    assert only(emitted, "subagent:completed").result == "found"
    assert [len(each.todos) for each in every(emitted, "progress:todo_update")] == [1, 0]
    assert only(emitted, "interaction:notification").message == "short"


# ---- history ------------------------------------------------------------


def test_replayed_history_is_marked_and_whole() -> None:
    log = Log().started().prompted("first").say("a").finished().status("resuming")
    log.add("session-reset", {"reason": "load"}).say("first", kind="user-message").think("h").say(
        "a"
    )
    raw_input = {"questions": [{"question": "?"}]}
    called(log, "Edit", {}, content=[edit_diff()])
    log.update("tool_call", toolCallId="q", title="AskUserQuestion", rawInput=raw_input)
    log.update("tool_call", toolCallId="g", title="Bash", rawInput={"command": "git stash"})
    log.update("tool_call_update", toolCallId="g", status="completed")
    log.status("active", resumed=True).prompted("second").say("b").finished()
    emitted = log.emitted()
    types = [event.type for event in emitted if event.replay]
    assert types[0] == "session:resumed"
    assert "message:complete" in types
    assert "file:change" in types
    forbidden = {"message:delta", "thinking:delta", "session:status_changed", "git:operation"}
    assert not forbidden & set(types)
    assert not every(emitted, "interaction:question")
    assert [event.seq for event in emitted] == list(range(1, len(emitted) + 1))
    assert statuses(emitted)[-3:] == [
        ("starting", "idle"),
        ("idle", "running"),
        ("running", "idle"),
    ]
    again = [event.type for event in log.emitted(derive_on_replay=("git",)) if event.replay]
    assert "git:operation" in again
    assert "file:change" not in again
