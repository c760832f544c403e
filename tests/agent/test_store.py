"""Sessions on disk: they outlive the process, replay faithfully, survive what befalls a disk."""

import json
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.agent import AgentSession, AgentTurn, Mode, SessionStore
from quarterdeck.agent.store import SessionRecord
from quarterdeck.errors import StorageFailed, StorageRefused
from tests.agent.support import Json, conversing
from tests.taping.tapes import environment

RECORD = SessionRecord(cwd="/", created_at="2026-01-01T00:00:00.000Z")
ROOT = Path(__file__).parents[2]


class StatefulAgent:
    """An agent with everything that is kept."""

    modes = (Mode("full", "Full"), Mode("safe", "Safe"))

    async def prompt(self, turn: AgentTurn) -> AsyncIterator[Any]:
        if turn.text == "recall":
            yield f"{turn.session.memory!r} {turn.session.mode} {turn.session.config['loud']}"
            return
        turn.session.title = turn.text
        turn.session.remember(b"\0" + turn.text.encode())
        yield " white "
        yield {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T", "kind": "read"}
        yield {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"}
        turn.think("hm\n")
        yield {"sessionUpdate": "plan", "entries": [], "_meta": {"odd": None}}

    def config_options(self, _session: AgentSession) -> list[Json]:
        return [{"id": "loud", "name": "Loud", "type": "boolean", "currentValue": False}]

    def commands(self, _session: AgentSession) -> list[Json]:
        return [{"name": "go", "description": "Go"}]


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path / "sessions")


async def test_a_loaded_session_is_replayed_faithfully_before_the_answer(
    store: SessionStore,
) -> None:
    async with conversing(StatefulAgent(), store=store) as client:
        session_id = await client.open_session()
        await client.prompt(session_id, " first \n")
        await client.result("session/set_mode", sessionId=session_id, modeId="safe")
        named = {"sessionId": session_id, "configId": "loud", "value": True}
        await client.result("session/set_config_option", **named)
        sent = [each for each in client.updates() if "availableCommands" not in each]
    async with conversing(StatefulAgent(), store=store) as client:
        named = {"sessionId": session_id, "cwd": "/", "mcpServers": []}
        load = await client.ask("session/load", **named)
        answer = await client.answered(load)
        before = client.messages[: client.messages.index(answer)]
        replayed = [each["params"]["update"] for each in before if "method" in each]
        await client.prompt(session_id, "recall")
    content_sent = {"type": "text", "text": " first \n"}
    assert replayed == [{"sessionUpdate": "user_message_chunk", "content": content_sent}, *sent]
    assert answer["result"]["modes"]["currentModeId"] == "safe"
    assert [each["currentValue"] for each in answer["result"]["configOptions"]] == ["safe", True]
    assert (
        client.messages[client.messages.index(answer) + 1]["params"]["update"]["sessionUpdate"]
        == "available_commands_update"
    )
    assert client.texts()[-1] == "b'\\x00 first \\n' safe True"


async def test_what_the_user_said_is_valid_acp_when_it_is_replayed(store: SessionStore) -> None:
    class Seeing(StatefulAgent):
        prompt_capabilities = {"image": True, "audio": True, "embeddedContext": True}  # noqa: RUF012

    blocks: list[Json] = [
        {"type": "text", "text": "look"},
        {"type": "resource_link", "uri": "file:///a/b.py"},
        {"type": "image", "data": "aGk="},
        {"type": "audio", "data": "aGk=", "mimeType": "audio/mp3"},
        {"type": "resource", "resource": {"uri": "file:///c", "blob": "aGk="}},
        {"type": "text", "text": "hm", "_meta": {"a": 1}, "_more": 2},
        {"type": "text", "text": "hm", "_meta": 1, "annotations": "loud"},
        {
            "type": "resource",
            "annotations": None,
            "resource": {"uri": "file:///d", "text": None, "blob": "aGk="},
        },
    ]
    async with conversing(Seeing(), store=store) as client:
        session_id = await client.open_session()
        await client.result("session/prompt", sessionId=session_id, prompt=blocks)
        await client.result("session/load", sessionId=session_id, cwd="/", mcpServers=[])
    content_sent = [each["content"] for each in client.updates("user_message_chunk")]
    assert content_sent[0] == blocks[0]
    assert content_sent[1] == {**blocks[1], "name": "b.py"}
    assert content_sent[2] == {**blocks[2], "mimeType": "image/png"}
    assert content_sent[3:6] == blocks[3:6]
    assert content_sent[6] == {"type": "text", "text": "hm"}
    assert content_sent[7]["resource"] == {"uri": "file:///d", "blob": "aGk="}


async def test_a_resumed_session_is_not_replayed_and_continues(store: SessionStore) -> None:
    async with conversing(StatefulAgent(), store=store) as client:
        session_id = await client.open_session()
        await client.prompt(session_id, "first")
    async with conversing(StatefulAgent(), store=store) as client:
        await client.result("session/resume", sessionId=session_id, cwd="/")
        await client.prompt(session_id, "recall")
    assert client.texts() == ["b'\\x00first' full False"]


async def test_a_session_that_is_open_here_can_be_loaded_again(store: SessionStore) -> None:
    async with conversing(StatefulAgent(), store=store) as client:
        session_id = await client.open_session()
        await client.prompt(session_id, "first")
        seen = len(client.updates())
        await client.result("session/load", sessionId=session_id, cwd="/", mcpServers=[])
        assert len(client.updates()) > seen
        assert (await client.prompt(session_id, "recall"))["result"]["stopReason"] == "end_turn"


async def test_a_loaded_session_works_where_the_client_says(
    store: SessionStore, tmp_path: Path
) -> None:
    async with conversing(StatefulAgent(), store=store) as client:
        session_id = await client.open_session()
        await client.result("session/close", sessionId=session_id)
        named = {"cwd": str(tmp_path), "mcpServers": [], "additionalDirectories": ["/"]}
        await client.result("session/load", sessionId=session_id, **named)
        (info,) = (await client.result("session/list"))["sessions"]
    assert (info["cwd"], info["additionalDirectories"]) == (str(tmp_path), ["/"])


async def test_sessions_are_listed_newest_first_by_pages_and_by_directory(
    store: SessionStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.agent.methods.PAGE", 5)
    async with conversing(StatefulAgent(), store=store) as client:
        ids = [await client.open_session() for _ in range(12)]
        other = await client.open_session(cwd=str(tmp_path))
        await client.prompt(ids[7], "lately")
        pages: list[list[str]] = []
        cursor: Json = {}
        while True:
            page = await client.result("session/list", **cursor)
            pages.append([each["sessionId"] for each in page["sessions"]])
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        found = await client.result("session/list", cwd=str(tmp_path))
        first = (await client.result("session/list"))["sessions"][0]
    assert [len(page) for page in pages] == [5, 5, 3]
    assert sorted(chain(*pages)) == sorted([*ids, other])
    assert [each["sessionId"] for each in found["sessions"]] == [other]
    assert (first["sessionId"], first["title"]) == (ids[7], "lately")
    assert first["updatedAt"].endswith("Z")


async def test_a_deleted_session_is_gone_and_deleting_it_again_is_fine(
    store: SessionStore,
) -> None:
    async with conversing(StatefulAgent(), store=store) as client:
        is_open, closed = await client.open_session(), await client.open_session()
        await client.result("session/close", sessionId=closed)
        for session_id in (is_open, closed, closed, "session-never"):
            assert await client.result("session/delete", sessionId=session_id) == {}
        assert (await client.result("session/list"))["sessions"] == []
        error = await client.error("session/load", sessionId=closed, cwd="/", mcpServers=[])
    assert error["data"] == f"session not found: {closed}"
    assert list(store.folder.iterdir()) == []


async def test_files_are_private_and_hold_no_environment_of_mcp_servers(
    store: SessionStore,
) -> None:
    env = [{"name": "KEY", "value": "hunter2"}]
    servers = [{"name": "db", "command": "x", "args": [], "env": env}]
    async with conversing(StatefulAgent(), store=store) as client:
        await client.prompt(await client.open_session(mcpServers=servers), "first")
    files = [path for path in store.folder.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"memory", "session.json", "updates.jsonl"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    folders = [store.folder, *(path for path in store.folder.iterdir() if path.is_dir())]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folders} == {0o700}
    assert not any(b"hunter2" in path.read_bytes() for path in files)


async def test_a_session_open_in_another_process_is_refused(store: SessionStore) -> None:
    held = store.create("session-a", RECORD)
    async with conversing(StatefulAgent(), store=store) as client:
        named = {"sessionId": "session-a", "cwd": "/", "mcpServers": []}
        error = await client.error("session/load", **named)
        refused = await client.error("session/delete", sessionId="session-a")
        held.close()
        await client.result("session/load", **named)
    assert "another program has this session open; close it there first" in error["message"]
    assert error["message"] == refused["message"]


def test_a_line_that_was_cut_off_by_a_crash_is_left_out(store: SessionStore) -> None:
    session = store.create("session-a", RECORD)
    session.append(b'{"sessionUpdate":"one"}')
    session.close()
    log = store.folder / "session-a" / "updates.jsonl"
    with log.open("ab") as file:
        file.write(b'{"sessionUpdate":"tw')
    again = store.open("session-a")
    assert again is not None
    again.append(b'{"sessionUpdate":"three"}')
    assert list(chain(*again.updates())) == [
        b'{"sessionUpdate":"one"}',
        b'{"sessionUpdate":"three"}',
    ]
    again.close()


async def test_a_damaged_line_is_left_out_and_the_rest_is_replayed(store: SessionStore) -> None:
    session = store.create("session-a", RECORD)
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}}
    for line in (json.dumps(chunk).encode(), b"\xff\xfe", b"42", json.dumps(chunk).encode()):
        session.append(line)
    session.close()
    async with conversing(StatefulAgent(), store=store) as client:
        await client.result("session/load", sessionId="session-a", cwd="/", mcpServers=[])
    assert client.texts() == ["x", "x"]


async def test_half_a_surrogate_pair_is_no_damage(store: SessionStore) -> None:
    async with conversing(StatefulAgent(), store=store) as client:
        session_id = await client.open_session()
        await client.prompt(session_id, "cut \ud83d")
        await client.result("session/close", sessionId=session_id)
        await client.result("session/load", sessionId=session_id, cwd="/", mcpServers=[])
    assert [each["content"]["text"] for each in client.updates("user_message_chunk")] == [
        "cut \ud83d"
    ]


async def test_a_call_that_was_running_when_the_process_was_killed_is_replayed_as_failed(
    store: SessionStore,
) -> None:
    session = store.create("session-a", RECORD)
    for name, *states in (("a", "in_progress"), ("b", "completed"), ("c", "failed"), ("d",)):
        call = {"sessionUpdate": "tool_call", "toolCallId": name, "title": "T"}
        session.append(json.dumps(call).encode())
        for state in states:
            update = {"sessionUpdate": "tool_call_update", "toolCallId": name, "status": state}
            session.append(json.dumps(update).encode())
    session.close()
    for _ in range(2):
        async with conversing(StatefulAgent(), store=store) as client:
            await client.result("session/load", sessionId="session-a", cwd="/", mcpServers=[])
        ends = {each["toolCallId"]: each["status"] for each in client.updates("tool_call_update")}
        assert ends == {"a": "failed", "b": "completed", "c": "failed", "d": "failed"}


def test_a_damaged_session_is_refused_and_left_out_of_the_list(store: SessionStore) -> None:
    store.create("session-a", RECORD).close()
    (store.folder / "session-a" / "session.json").write_text("{")
    (store.folder / "stray").mkdir()
    with pytest.raises(StorageRefused, match=r"session\.json is damaged"):
        store.open("session-a")
    assert store.list() == []


def test_there_is_no_store_before_the_first_session(store: SessionStore) -> None:
    assert store.list() == []
    assert store.open("session-a") is None
    assert store.delete("session-a") is False
    assert not store.folder.exists()


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"QUARTERDECK_SESSIONS": "/a/b"}, "/a/b"),
        ({"XDG_STATE_HOME": "/state"}, "/state/quarterdeck/sessions"),
        ({"XDG_STATE_HOME": "relative"}, "~/.local/state/quarterdeck/sessions"),
        ({}, "~/.local/state/quarterdeck/sessions"),
    ],
)
def test_the_default_folder_follows_the_environment(environ: dict[str, str], folder: str) -> None:
    assert SessionStore.default_folder(environ) == Path(folder).expanduser()


def test_long_histories_are_read_in_pieces(store: SessionStore) -> None:
    session = store.create("session-a", RECORD)
    lines = [b'{"n":%d,"x":"%b"}' % (number, b"x" * 1000) for number in range(2000)]
    for line in lines:
        session.append(line)
    batches = list(session.updates())
    session.close()
    assert list(chain(*batches)) == lines
    assert max(len(batch) for batch in batches) < 300


KILLED = """
import os, signal, sys
from quarterdeck.agent import SessionStore
from quarterdeck.agent.store import SessionRecord
session = SessionStore(sys.argv[1]).create("session-a", SessionRecord(cwd="/", created_at=""))
for number in range(200):
    session.append(b'{"sessionUpdate":"x","n":%d}' % number)
    session.remember(b"%d" % number * 1000)
os.kill(os.getpid(), signal.SIGKILL)
"""

FULL = """
import resource, signal, sys
from quarterdeck.agent import SessionStore
from quarterdeck.agent.store import SessionRecord
from quarterdeck.errors import StorageFailed
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
session = SessionStore(sys.argv[1]).create("session-a", SessionRecord(cwd="/", created_at=""))
session.remember(b"old")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
stored, refused = 0, 0
for number in range(100):
    try:
        session.append(b'{"sessionUpdate":"x","n":%d}' % number)
        stored += 1
    except StorageFailed as error:
        refused += 1
try:
    session.remember(b"new" * 1000)
except StorageFailed:
    refused += 1
print(stored, refused)
"""


def run_program(text: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", text, str(folder)],
        env=environment(ROOT / "src"),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_nothing_is_lost_when_the_process_is_killed(store: SessionStore) -> None:
    assert run_program(KILLED, store.folder).returncode == -signal.SIGKILL
    session = store.open("session-a")
    assert session is not None
    assert [json.loads(line)["n"] for line in chain(*session.updates())] == list(range(200))
    assert session.memory == b"199" * 1000
    session.close()


def test_a_full_disk_refuses_and_damages_nothing(store: SessionStore) -> None:
    done = run_program(FULL, store.folder)
    assert done.returncode == 0, done.stderr
    stored, refused = map(int, done.stdout.split())
    assert stored + refused == 101
    assert refused > 1
    session = store.open("session-a")
    assert session is not None
    numbers = [json.loads(line)["n"] for line in chain(*session.updates())]
    assert len(numbers) == stored
    assert numbers == sorted(numbers)
    assert session.memory == b"old"
    session.close()


async def test_a_turn_that_cannot_be_recorded_is_an_error_with_the_reason(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[AgentSession] = []

    class Full(StatefulAgent):
        async def open_session(self, session: AgentSession) -> None:
            sessions.append(session)

    async with conversing(Full(), store=store) as client:
        session_id = await client.open_session()
        stored = sessions[0].stored
        assert stored is not None

        def refuse(_update: bytes) -> None:
            raise StorageFailed("/full", "No space left on device", "make room")

        with monkeypatch.context() as patched:
            patched.setattr(stored, "append", refuse)
            error = (await client.prompt(session_id))["error"]
        assert (await client.prompt(session_id))["result"]["stopReason"] == "end_turn"
    assert error == {
        "code": -32603,
        "message": "the log /full failed: No space left on device; make room",
    }


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed, match="QUARTERDECK_SESSIONS"):
        SessionStore(tmp_path / "file" / "sessions").create("session-a", RECORD)


def test_a_closed_session_holds_no_file_open(store: SessionStore) -> None:
    store.create("session-a", RECORD).close()
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(20):
        opened = store.open("session-a")
        assert opened is not None
        opened.sync()
        opened.close()
        opened.close()
    assert len(list(Path("/dev/fd").iterdir())) == before
