"""What Codex's daemon sends: approvals in ACP's words, and texts that are ahead of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings, strategies as st

from quarterdeck.agents.adapters.codex import CodexAdapter, approvals
from quarterdeck.agents.adapters.codex.app_server import finished_of, input_of, thread_of
from quarterdeck.agents.adapters.codex.daemon import is_own_socket
from quarterdeck.agents.adapters.codex.live_items import LiveItems
from quarterdeck.agents.adapters.codex.reader import CodexReader
from quarterdeck.agents.adapters.outcomes import reason_of
from quarterdeck.testing.codex_daemon import CodexDaemonScript
from quarterdeck.testing.foreign import CodexProgram
from quarterdeck.views.context import (
    Cursor,
    ForeignSession,
    ForeignUpdate,
    LiveAdapter,
    LiveRequest,
)

RECORDED = Path(__file__).parents[2] / "vectors" / "foreign" / "codex-daemon.jsonl"
COMMAND = {
    "itemId": "call_1",
    "command": "/bin/bash -lc 'touch made'",
    "cwd": "/project",
    "reason": "May it run?",
}
AMENDED = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "made"]}}


class Listener:
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.reports: list[str] = []
        self.requests: list[LiveRequest] = []
        self.keys: list[str] = []

    def changed(self, session_id: str) -> None:
        self.reports.append(session_id)

    def requested(self, request: LiveRequest) -> None:
        self.requests.append(request)

    def settled(self, key: str) -> None:
        self.keys.append(key)


def recorded() -> list[Any]:
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


def chosen(option: str, reason: str = "") -> dict[str, Any]:
    outcome: dict[str, Any] = {"outcome": "selected", "optionId": option}
    return {**outcome, "_meta": {"quarterdeck": {"reason": reason}}} if reason else outcome


# ---- approvals -------------------------------------------------------------------------------


def test_a_request_shows_the_command_that_would_run() -> None:
    params = approvals.request_params(approvals.COMMAND, COMMAND, {})
    call = params["toolCall"]
    assert (call["toolCallId"], call["title"], call["kind"]) == ("call_1", "touch made", "execute")
    assert call["rawInput"] == {"command": "touch made", "cwd": "/project"}
    assert [each["kind"] for each in params["options"]] == [
        *("allow_once", "allow_always", "reject_once"),
    ]


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("/bin/bash -lc 'touch a'", "touch a"),
        ("sh -c 'a; b'", "a; b"),
        ("/bin/bash -lc 'touch a' more", "/bin/bash -lc 'touch a' more"),
        ("python -c 'x'", "python -c 'x'"),
        ("/bin/bash -x 'touch a'", "/bin/bash -x 'touch a'"),
        ("unbalanced '", "unbalanced '"),
        ("touch a", "touch a"),
    ],
)
def test_only_what_is_exactly_a_shells_script_is_unwrapped(command: str, script: str) -> None:
    assert approvals.script_of(command) == script


@pytest.mark.parametrize(
    ("offered", "option", "decided"),
    [
        (None, "accept", "accept"),
        (None, "always", "acceptForSession"),
        (None, "reject", "decline"),
        (["accept", AMENDED, "cancel"], "always", AMENDED),
        (["accept", AMENDED, "cancel"], "reject", "cancel"),
        (["accept", "decline", "cancel"], "reject", "decline"),
        (["accept", "cancel"], "always", "accept"),
    ],
)
def test_a_decision_is_one_that_codex_offers(offered: Any, option: str, decided: Any) -> None:
    params = COMMAND if offered is None else {**COMMAND, "availableDecisions": offered}
    assert approvals.decision(params, chosen(option)) == decided


def test_an_outcome_that_is_no_choice_ends_the_turn() -> None:
    assert approvals.decision(COMMAND, {"outcome": "cancelled"}) == "cancel"
    assert reason_of(chosen("reject", "no")) == "no"
    assert reason_of({"_meta": None}) == ""


def test_changes_are_shown_as_diffs() -> None:
    update = "--- a\n+++ b\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n\\ No newline at end of file\n"
    changes = [
        {"path": "/a", "kind": {"type": "add"}, "diff": "text\n"},
        {"path": "/b", "kind": {"type": "delete"}, "diff": "gone\n"},
        {"path": "/c", "kind": {"type": "update"}, "diff": update},
    ]
    params = approvals.request_params(approvals.CHANGES, {"itemId": "c"}, {"changes": changes})
    call = params["toolCall"]
    assert call["locations"] == [{"path": "/a"}, {"path": "/b"}, {"path": "/c"}]
    assert [(each["oldText"], each["newText"]) for each in call["content"]] == [
        (None, "text\n"),
        ("gone\n", ""),
        ("same\nold\n", "same\nnew\n"),
    ]
    unknown = approvals.request_params(approvals.CHANGES, {"itemId": "c"}, {})
    assert unknown["toolCall"]["title"] == "Edit files"


# ---- the protocol ----------------------------------------------------------------------------


def test_a_recorded_connection_is_followed() -> None:
    adapter, listener = CodexAdapter({"CODEX_HOME": "/none"}), Listener()
    assert isinstance(adapter, LiveAdapter)
    daemon = adapter.daemon
    daemon._listener = listener  # noqa: SLF001 - without a socket
    facts = next(
        each["msg"]["result"]["thread"]
        for each in recorded()
        if "thread" in (each["msg"].get("result") or {})
    )
    thread = {**facts, "status": {"type": "idle"}}
    daemon._receive(json.dumps({"method": "thread/started", "params": {"thread": thread}}))  # noqa: SLF001
    seen = []
    for each in recorded():
        if each["dir"] == "s2c":
            daemon._receive(json.dumps(each["msg"]))  # noqa: SLF001
            seen += [each.status for each in adapter.find_running()]
    assert list(dict.fromkeys(seen)) == ["idle", "busy", "waiting"]
    assert seen[-1] == "idle"
    (request,) = listener.requests
    assert request.params["toolCall"]["content"][0]["newText"] == "line one\nline two\n"
    assert listener.keys == [request.key]  # answered by another client
    assert set(listener.reports) == {facts["id"]}


@pytest.mark.anyio
async def test_the_scripted_daemon_sends_what_a_real_one_does(tmp_path: Path) -> None:
    codex, adapter = CodexDaemonScript(tmp_path), CodexAdapter({"CODEX_HOME": str(tmp_path)})
    codex.program.prompt("earlier")
    async with codex.running(), anyio.create_task_group() as tasks:
        tasks.start_soon(adapter.serve_live, Listener())
        await codex.wait_subscribed()
        await codex.begin_turn("go")
        await codex.think("hm")
        await codex.add_text("a")
        await codex.end_text()
        await codex.ask_change("/a", "text")
        await codex.answer("accept")
        await codex.end_turn()
        tasks.cancel_scope.cancel()
    real: dict[str, set[str]] = {}
    for each in recorded():
        message = each["msg"]
        if each["dir"] == "s2c" and "method" in message:
            known = real.setdefault(message["method"], set())
            known |= {*message, *message["params"], *(message["params"].get("item") or {})}
    for message in codex.sent:
        if "method" in message:
            members = {*message, *message["params"], *(message["params"].get("item") or {})}
            if message["params"].get("item", {}).get("type") == "commandExecution":
                continue  # not in this recording
            assert members <= real[message["method"]], message


def test_threads_that_no_person_has_are_left_out() -> None:
    for facts in (None, {}, {"id": "a", "cwd": "/", "ephemeral": True}, {"id": 5, "cwd": "/"}):
        assert thread_of(facts) is None
    thread = thread_of({"id": "a", "cwd": "/", "status": {"type": "systemError"}})
    assert thread is not None
    assert thread.status == "unknown"


def test_prompts_and_ends_of_turns_are_translated() -> None:
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "image", "mimeType": "image/png", "data": "AA"},
        {"type": "resource_link", "name": "n", "uri": "file:///n"},
        {"type": "resource", "resource": {"text": "t"}},
        {"type": "audio"},
    ]
    assert [each["type"] for each in input_of(blocks)] == ["text", "image", "text", "text", "text"]
    assert finished_of({"status": "completed"}) == {"stopReason": "end_turn"}
    assert finished_of({"status": "interrupted"}) == {"stopReason": "cancelled"}
    failed = finished_of({"status": "failed", "error": {"message": "no"}})
    assert failed["error"]["message"] == "no"


def test_only_a_socket_is_connected_to(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    assert not is_own_socket(path)
    path.write_text("")
    assert not is_own_socket(path)


# ---- texts ahead of the file -----------------------------------------------------------------


def read(folder: Path, items: LiveItems, after: Cursor | None) -> list[ForeignUpdate]:
    program = CodexProgram(folder)
    found = ForeignSession(id=program.session_id, cwd="/project", path=str(program.path))
    reader = CodexReader(found, after, 1, items)
    updates: list[ForeignUpdate] = []
    while piece := reader.read():
        updates += piece
    return updates


@settings(max_examples=40)
@given(
    pieces=st.lists(st.text("ab ü✓", min_size=1, max_size=5), min_size=1, max_size=6),
    steps=st.lists(st.sampled_from(["read", "lose"]), max_size=6),
)
def test_however_it_is_read_a_text_is_shown_once_and_whole(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], steps: list[str]
) -> None:
    """`lose`: what was read was not stored, so it is read again from the cursor before."""
    folder = tmp_path_factory.mktemp("codex")
    program, items = CodexProgram(folder), LiveItems()
    program.prompt("go")
    shown: list[str] = []
    cursor: Cursor | None = None

    def look(*, is_lost: bool) -> None:
        nonlocal cursor
        updates = read(folder, items, cursor)
        if updates and not is_lost:
            chunks = [each for each in updates if each.update.type == "agent-message-chunk"]
            shown.extend(str(each.update.payload["content"]["text"]) for each in chunks)
            cursor = updates[-1].cursor

    items.started(program.session_id, {"type": "agentMessage", "id": "msg_1"})
    for number, piece in enumerate(pieces):
        items.added(program.session_id, "msg_1", piece, 5)
        if number < len(steps):
            look(is_lost=steps[number] == "lose")
    items.completed(program.session_id, {"id": "msg_1"})
    content = [{"type": "output_text", "text": "".join(pieces)}]
    message = {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
    program.write("response_item", message)
    look(is_lost=False)
    look(is_lost=False)
    assert "".join(shown) == "".join(pieces)
    assert "live" not in (cursor or {})


def test_a_text_without_a_beginning_is_left_to_the_file(tmp_path: Path) -> None:
    program, items = CodexProgram(tmp_path), LiveItems()
    program.prompt("go")
    items.added(program.session_id, "msg_1", "the middle", 5)
    assert "the middle" not in str(read(tmp_path, items, None))
