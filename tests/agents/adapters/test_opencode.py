"""OpenCode's store is read without a trace, and its events become updates."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.agents.adapters.opencode import OpenCodeAdapter, servers, store as stores
from quarterdeck.agents.adapters.opencode.requests import (
    prompt_parts,
    reply_of,
    request_params,
)
from quarterdeck.agents.adapters.opencode.session_events import SessionEvents
from quarterdeck.errors import SourceRewritten
from quarterdeck.protocol import Normalized
from quarterdeck.testing import opencode_program
from quarterdeck.testing.foreign import read_all
from quarterdeck.testing.opencode_program import OpenCodeProgram
from quarterdeck.views.context import ForeignUpdate

RECORDED = Path(__file__).parents[2] / "vectors" / "foreign" / "opencode-events.jsonl"


def adapter_of(folder: Path) -> OpenCodeAdapter:
    return OpenCodeAdapter({"XDG_DATA_HOME": str(folder), "HOME": str(folder)})


def program_of(folder: Path, **more: Any) -> OpenCodeProgram:
    return OpenCodeProgram(folder / "opencode" / "opencode.db", **more)


def updates_of(folder: Path, session_id: str) -> list[ForeignUpdate]:
    adapter = adapter_of(folder)
    (found,) = [each for each in adapter.find_sessions() if each.id == session_id]
    return read_all(adapter, found)


def texts(updates: list[ForeignUpdate], kind: str) -> list[str]:
    return [each.update.payload["content"]["text"] for each in updates if each.update.type == kind]


def state_of(folder: Path) -> dict[str, str]:
    """Return the files below a folder, and what is in them."""
    files = (each for each in folder.rglob("*") if each.is_file())
    return {str(each): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


@contextmanager
def in_use(program: OpenCodeProgram) -> Iterator[None]:
    """Have the store open in another process, as OpenCode has, with a WAL that is not empty."""
    code = (
        "import sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1])\n"
        "c.execute('UPDATE session SET title = title')\n"
        "c.commit()\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    words = [sys.executable, "-c", code, str(program.database)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


# ---- the store -----------------------------------------------------------------------------------


def written(folder: Path, **more: Any) -> OpenCodeProgram:
    program = program_of(folder, **more)
    program.prompt("hello")
    program.call("ls", "a file")
    program.answer("good day")
    return program


def test_reading_leaves_no_trace_in_a_store_that_nobody_has_open(tmp_path: Path) -> None:
    program = written(tmp_path)
    before = state_of(tmp_path)
    assert texts(updates_of(tmp_path, program.session_id), "agent-message-chunk") == ["good day"]
    assert state_of(tmp_path) == before


def test_reading_leaves_no_trace_while_opencode_writes(tmp_path: Path) -> None:
    program = written(tmp_path)
    with in_use(program):
        program.prompt("another")
        assert Path(f"{program.database}-wal").stat().st_size
        before = state_of(tmp_path)
        assert (
            texts(updates_of(tmp_path, program.session_id), "user-message-chunk")[-1] == "another"
        )
        assert state_of(tmp_path) == before


def test_a_store_that_a_killed_opencode_left_is_read_without_a_trace(tmp_path: Path) -> None:
    program = written(tmp_path)
    with in_use(program):
        program.prompt("the last one")
    assert Path(f"{program.database}-wal").stat().st_size
    before = state_of(tmp_path)
    assert texts(updates_of(tmp_path, program.session_id), "user-message-chunk") == [
        "hello",
        "the last one",
    ]
    assert state_of(tmp_path) == before


def test_a_store_that_opencode_closes_is_read_once_it_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = written(tmp_path)
    with in_use(program), closing(sqlite3.connect(program.database)) as connection:
        program.prompt("the last one")
        connection.execute("PRAGMA wal_checkpoint")
    # A process that closes it removes the index first, then the WAL; here, between two attempts.
    Path(f"{program.database}-shm").unlink()
    wal = Path(f"{program.database}-wal")
    assert wal.stat().st_size
    pause = time.sleep

    def close_and_pause(seconds: float) -> None:
        wal.unlink(missing_ok=True)
        pause(seconds)

    monkeypatch.setattr(time, "sleep", close_and_pause)
    assert texts(updates_of(tmp_path, program.session_id), "user-message-chunk") == [
        "hello",
        "the last one",
    ]


def test_a_read_only_folder_is_read(tmp_path: Path) -> None:
    program = written(tmp_path)
    program.database.parent.chmod(0o500)
    try:
        assert len(updates_of(tmp_path, program.session_id)) > 5
    finally:
        program.database.parent.chmod(0o700)


@pytest.mark.parametrize("damage", ["head", "middle", "cut", "empty", "text", "folder", "pipe"])
def test_a_damaged_store_costs_no_more_than_its_sessions(tmp_path: Path, damage: str) -> None:
    program = written(tmp_path)
    adapter = adapter_of(tmp_path)
    (found,) = adapter.find_sessions()
    data = program.database.read_bytes()
    program.database.unlink()
    match damage:
        case "head":
            program.database.write_bytes(b"\xff" * 4096 + data[4096:])
        case "middle":
            program.database.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
        case "cut":
            program.database.write_bytes(data[: len(data) // 2])
        case "empty":
            program.database.write_bytes(b"")
        case "text":
            program.database.write_bytes(b"this is no database\n" * 1000)
        case "folder":
            program.database.mkdir()
        case _:
            os.mkfifo(program.database)
    adapter.find_sessions()
    adapter_of(tmp_path).find_sessions()
    try:
        read_all(adapter, found)
    except OSError:
        return  # it is tried again later
    assert damage in ("middle", "cut"), "what can still be read is read"


def test_a_session_that_is_deleted_there_is_not_reset_here(tmp_path: Path) -> None:
    program = written(tmp_path)
    adapter = adapter_of(tmp_path)
    (found,) = adapter.find_sessions()
    last = read_all(adapter, found)[-1]
    with closing(sqlite3.connect(program.database)) as connection, connection:
        connection.execute("DELETE FROM event")
    with pytest.raises(OSError, match="any more"):
        adapter.open_reader(found, last.cursor, last.at).read()


def test_a_session_with_fewer_events_than_were_read_is_read_again(tmp_path: Path) -> None:
    program = written(tmp_path)
    adapter = adapter_of(tmp_path)
    (found,) = adapter.find_sessions()
    last = read_all(adapter, found)[-1]
    with closing(sqlite3.connect(program.database)) as connection, connection:
        connection.execute("DELETE FROM event WHERE seq > 2")
    with pytest.raises(SourceRewritten):
        adapter.open_reader(found, last.cursor, last.at).read()


def test_an_event_that_is_too_large_is_reported_and_the_next_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "LONGEST", 100_000)
    program = written(tmp_path)
    program.answer("x" * 200_000)
    program.prompt("and now?")
    updates = updates_of(tmp_path, program.session_id)
    reported = [
        each.update.payload for each in updates if each.update.type == "unrecognized-update"
    ]
    assert [each["reason"] for each in reported] == ["too long"]
    assert texts(updates, "user-message-chunk") == ["hello", "and now?"]


def test_a_store_that_has_not_changed_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = written(tmp_path)
    os.utime(program.database, (1_700_000_000, 1_700_000_000))
    adapter = adapter_of(tmp_path)
    found = adapter.find_sessions()
    monkeypatch.setattr(adapter.store, "sessions", lambda: pytest.fail("it was read"))
    assert adapter.find_sessions() is found


def test_sub_agents_are_below_their_session(tmp_path: Path) -> None:
    parent = written(tmp_path)
    child = written(tmp_path, number=2, parent_id=parent.session_id)
    found = {each.id: each for each in adapter_of(tmp_path).find_sessions()}
    assert found[child.session_id].parent_id == parent.session_id
    assert found[parent.session_id].parent_id is None


# ---- sessions of versions without events ---------------------------------------------------------


def test_messages_of_an_older_version_are_read_and_continued_with_events(tmp_path: Path) -> None:
    program = written(tmp_path, has_events=False)
    old = updates_of(tmp_path, program.session_id)
    assert texts(old, "user-message-chunk") == ["hello"]
    assert texts(old, "agent-message-chunk") == ["good day"]
    assert Counter(each.update.type for each in old)["tool-call-update"] == 1
    program.has_events = True
    program.prompt("again")
    program.answer("welcome back")
    adapter = adapter_of(tmp_path)
    (found,) = adapter.find_sessions()
    new = read_all(adapter, found, old[-1].cursor, old[-1].at)
    assert texts(new, "user-message-chunk") == ["again"]
    assert texts(new, "agent-message-chunk") == ["welcome back"]
    whole = read_all(adapter, found)
    assert [(each.update, each.cursor) for each in whole] == [
        (each.update, each.cursor) for each in (*old, *new)
    ]


def test_a_message_that_an_older_version_writes_is_left_until_it_is_complete(
    tmp_path: Path,
) -> None:
    program = written(tmp_path, has_events=False)
    program.write_half()
    adapter = adapter_of(tmp_path)
    (found,) = adapter.find_sessions()
    assert texts(read_all(adapter, found), "agent-message-chunk") == ["good day"]
    program.write_rest()
    assert texts(read_all(adapter, found), "agent-message-chunk") == [
        "good day",
        "half of it, then the rest",
    ]


# ---- events --------------------------------------------------------------------------------------


def recorded() -> list[tuple[str, Any]]:
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    return [(each["type"].rpartition(".")[0], each["data"]) for each in lines]


def test_a_recorded_session_has_its_turns_and_calls() -> None:
    parser = SessionEvents(cwd="/home/me/project", at=0)
    updates = [each for kind, data in recorded() for each in parser.updates(kind, data)]
    said = [
        (each.type, each.payload["content"]["text"])
        for each in updates
        if each.type.endswith("-chunk")
    ]
    assert said == [
        ("user-message-chunk", "[run touch made]"),
        ("agent-message-chunk", "I will run it."),
        ("agent-message-chunk", "The command has ended."),
        ("user-message-chunk", "[say hello]"),
        ("agent-thought-chunk", "I think of a word."),
        ("agent-message-chunk", "The word is hello."),
        ("user-message-chunk", "[wait]"),
        ("agent-message-chunk", "This much is said at once, "),
        ("user-message-chunk", "[run touch here]"),
        ("agent-message-chunk", "I will run it."),
        ("agent-message-chunk", "The command has ended."),
    ]
    ends = [each.payload["stopReason"] for each in updates if each.type == "prompt-finished"]
    assert ends == ["end_turn", "end_turn", "cancelled", "end_turn"]
    calls = [each.payload for each in updates if each.type == "tool-call"]
    assert [each["title"] for each in calls] == ["touch made", "touch here"]
    assert [each["kind"] for each in calls] == ["execute", "execute"]
    results = [each.payload["status"] for each in updates if each.type == "tool-call-update"]
    assert results == ["completed", "completed"]
    assert [each.payload for each in updates if each.payload.get("title") == "A title"]


def test_no_event_is_lost() -> None:
    parser = SessionEvents(cwd="/home/me/project", at=0)
    for kind, data in recorded():
        updates = parser.updates(kind, data)
        assert updates[0].extensions is not None
        kept = updates[0].extensions["opencode"]
        assert kept["type"] == kind
        for name in ("info", "part"):
            if name in data:
                assert kept[name]["id"] == data[name]["id"]


def part(**facts: Any) -> list[Normalized]:
    parser = SessionEvents(cwd="/project", at=1)
    parser.updates("message.updated", {"info": {"id": "m", "role": facts.pop("role", "assistant")}})
    whole = {"id": "p", "messageID": "m", **facts}
    return parser.updates("message.part.updated", {"part": whole, "time": 2})


def test_an_edit_is_shown_as_a_diff_and_a_failure_as_failed() -> None:
    given = {"filePath": "/project/a", "oldString": "x", "newString": "y"}
    state = {"status": "error", "input": given, "error": "no such file"}
    call, end = part(type="tool", tool="edit", callID="c", state=state)
    assert (call.payload["title"], call.payload["kind"]) == ("edit a", "edit")
    diff = {"type": "diff", "path": "/project/a", "oldText": "x", "newText": "y"}
    assert call.payload["content"] == [diff]
    assert end.payload["status"] == "failed"
    assert end.payload["content"][0] == diff


def test_todos_are_a_plan() -> None:
    todos = [{"content": "look", "status": "in_progress", "priority": "high"}, {"content": "odd"}]
    state = {"status": "completed", "input": {"todos": todos}, "output": "[]"}
    plan = part(type="tool", tool="todowrite", callID="c", state=state)[-1]
    assert plan.type == "plan"
    assert plan.payload["entries"] == [
        {"content": "look", "priority": "high", "status": "in_progress"}
    ]


def test_files_of_the_user_are_shown_and_what_opencode_adds_is_not() -> None:
    url = "data:image/png;base64,AAAA"
    (image,) = part(role="user", type="file", mime="image/png", url=url)
    assert image.payload["content"] == {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    (link,) = part(role="user", type="file", mime="text/plain", url="file:///a/b", filename="b")
    assert link.payload["content"]["uri"] == "file:///a/b"
    (added,) = part(role="user", type="text", text="read this", synthetic=True)
    assert added.type == "session-info-update"


def test_a_turn_that_failed_says_why() -> None:
    parser = SessionEvents(cwd="/", at=1)
    failure = {"name": "ProviderAuthError", "data": {"message": "no key"}}
    info = {"id": "m", "role": "assistant", "time": {"completed": 5}, "error": failure}
    (end,) = parser.updates("message.updated", {"info": info})
    assert end.payload["error"]["message"] == "no key"
    (again,) = parser.updates("message.updated", {"info": info})
    assert again.type == "session-info-update"


@pytest.mark.parametrize(
    "shape", [5, None, [], {}, {"part": 3}, {"info": []}, {"part": {"type": "tool", "state": 1}}]
)
def test_events_of_any_shape_are_kept(shape: Any) -> None:
    for kind in ("message.part.updated", "message.updated", "session.updated", "new.kind"):
        assert SessionEvents(cwd="/", at=1).updates(kind, shape)


# ---- requests, prompts, processes ----------------------------------------------------------------


def test_a_request_shows_what_would_be_executed() -> None:
    facts = {"id": "per_1", "permission": "external_directory", "patterns": ["/etc/*"]}
    call = {"tool": "bash", "callID": "c", "state": {"input": {"command": "cat /etc/passwd"}}}
    params = request_params(facts, call, "/project")
    assert params["toolCall"]["rawInput"] == {"command": "cat /etc/passwd"}
    assert params["toolCall"]["title"] == "external_directory: /etc/*; cat /etc/passwd"
    assert [each["kind"] for each in params["options"]] == ["allow_once", "reject_once"]
    alone = request_params({**facts, "metadata": {"a": 1}}, {}, "/project")
    assert alone["toolCall"]["toolCallId"] == "requested-per_1"


def test_only_a_chosen_option_is_sent() -> None:
    assert reply_of({"outcome": "cancelled"}) is None
    assert reply_of({"outcome": "selected", "optionId": "other"}) is None
    assert reply_of({"outcome": "selected", "optionId": "once"}) == {"reply": "once"}


def test_blocks_become_parts() -> None:
    blocks = [
        {"type": "text", "text": "look"},
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        {"type": "resource_link", "uri": "file:///a/b", "name": "b"},
        {"type": "resource", "resource": {"uri": "x", "text": "inside"}},
    ]
    parts = prompt_parts(blocks)
    assert [each["type"] for each in parts] == ["text", "file", "file", "text"]
    assert parts[1]["url"] == "data:image/png;base64,AAAA"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_only_an_opencode_that_listens_for_others_is_found(tmp_path: Path) -> None:
    script = str(Path(opencode_program.__file__))
    rest = [script, "--port", "0", str(tmp_path / "a.db"), "/project", "1"]
    expected: dict[str, bool] = {"opencode": True, "other": False}
    for name, is_found in expected.items():
        with subprocess.Popen(
            [name, "-I", *rest],
            executable=sys.executable,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            found = servers.ListeningProcess(process.pid, port)
            assert (found in servers.OpenCodeProcesses().listening()) == is_found
            process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_that_becomes_opencode_later_is_found(tmp_path: Path) -> None:
    rest = [opencode_program.__file__, "--port", "0", str(tmp_path / "a.db"), "/project", "1"]
    line = f'read -r _; exec -a opencode "{sys.executable}" -I "$@"'
    with subprocess.Popen(
        ["bash", "-c", line, "bash", *rest], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        processes = servers.OpenCodeProcesses()
        for _ in range(20):
            assert process.pid not in {each.pid for each in processes.listening()}
        process.stdin.write(b"begin\n")
        process.stdin.flush()
        port = int(process.stdout.readline())
        looks = [processes.listening() for _ in range(60)]
        assert servers.ListeningProcess(process.pid, port) in looks[-1]
        process.kill()


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("opencode", None),
        ("opencode --port 0", 4096),
        ("opencode --port=5000", 5000),
        ("/usr/bin/opencode serve", 4096),
        ("node /usr/bin/opencode --port 7", 7),
        ("opencode acp --port 7", None),
        ("vim opencode.json --port 7", None),
    ],
)
def test_ports_of_command_lines(line: str, port: int | None) -> None:
    words = line.encode().split()
    assert (servers.port_of(words) if servers.is_served(words) else None) == port
