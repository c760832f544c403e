"""Test an adapter for a foreign program: a contract, and a scripted program.

    from quarterdeck.testing.foreign import check_adapter

    def test_the_contract(tmp_path):
        check_adapter(MyAdapter({"HOME": str(tmp_path)}), MyProgram(tmp_path))

`ForeignProgram` writes what the program itself would write, step by step. `ClaudeProgram` and
`CodexProgram` do it for Claude Code and Codex. This is not imported with the package: the scripted
agent needs to start quickly.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec

from quarterdeck.protocol import Normalized
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.views.context import Cursor, ForeignAdapter, ForeignSession, ForeignUpdate

Json = dict[str, Any]
BEGAN: Final = 1_700_000_000_000
"""When a scripted session begins; each step happens a second after the one before."""
METHODS: Final = ("sdk", "http", "pty", "file-watch", "mcp")


class ForeignProgram(Protocol):
    """A program that keeps one session as the real one does."""

    session_id: str
    cwd: str

    def prompt(self, text: str) -> None:
        """Record a prompt of the user; the first one creates the session."""

    def answer(self, text: str) -> None:
        """Record the end of a turn with this text."""

    def call(self, command: str, output: str) -> None:
        """Record a shell command and its output."""

    def write_half(self) -> None:
        """Be in the middle of recording an answer."""

    def write_rest(self) -> None:
        """Complete it."""

    def damage(self) -> None:
        """Record something that cannot be read."""


class ClaudeProgram:
    """Writes the transcript of one session, and its file of running sessions."""

    def __init__(self, folder: Path, *, cwd: str = "/project", number: int = 1) -> None:
        """`folder` is the one that CLAUDE_CONFIG_DIR names."""
        self.session_id = str(UUID(int=number))
        self.cwd = cwd
        self._folder = folder
        self.path = folder / "projects" / cwd.replace("/", "-") / f"{self.session_id}.jsonl"
        self._lines = 0
        self._rest = b""

    def write(self, line: Json) -> None:
        self._append(self._encoded(line))

    def _encoded(self, line: Json) -> bytes:
        self._lines += 1
        moment = iso_seconds(BEGAN / 1000 + self._lines)
        known = {"sessionId": self.session_id, "cwd": self.cwd, "timestamp": moment}
        return msgspec.json.encode({**line, **known, "uuid": f"line-{self._lines}"}) + b"\n"

    def _append(self, data: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(data)

    def prompt(self, text: str) -> None:
        self.write({"type": "mode", "mode": "normal"})
        self.write({"type": "user", "message": {"role": "user", "content": text}})

    def _assistant(self, block: Json, *, reason: str) -> Json:
        message = {"id": f"msg-{self._lines}", "role": "assistant", "stop_reason": reason}
        return {"type": "assistant", "message": {**message, "content": [block]}}

    def answer(self, text: str) -> None:
        self.write(self._assistant({"type": "text", "text": text}, reason="end_turn"))

    def start_call(self, name: str, given: Json) -> str:
        """Record a call that has not ended; return its id."""
        call_id = f"toolu_{self._lines}"
        block = {"type": "tool_use", "id": call_id, "name": name, "input": given}
        self.write(self._assistant(block, reason="tool_use"))
        return call_id

    def end_call(self, call_id: str, output: str, *, is_error: bool = False) -> None:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": output}
        message = {"role": "user", "content": [{**block, "is_error": is_error}]}
        self.write({"type": "user", "message": message, "toolUseResult": {"stdout": output}})

    def call(self, command: str, output: str) -> None:
        self.end_call(self.start_call("Bash", {"command": command}), output)

    def write_half(self) -> None:
        block = {"type": "text", "text": "half of it, then the rest"}
        data = self._encoded(self._assistant(block, reason="end_turn"))
        middle = len(data) // 2
        self._append(data[:middle])
        self._rest = data[middle:]

    def write_rest(self) -> None:
        self._append(self._rest)

    def damage(self) -> None:
        self._append(b'{"type": "assistant", "message": \xff\x00 and no end\n')

    def sub_agent(self, name: str, call_id: str) -> Path:
        """Record a sub-agent that has said hello; return its transcript."""
        folder = self.path.with_suffix("") / "subagents"
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"agentType": "general-purpose", "description": "Look", "toolUseId": call_id}
        (folder / f"agent-{name}.meta.json").write_bytes(msgspec.json.encode(facts))
        block = {"type": "text", "text": "hello from below"}
        line = {**self._assistant(block, reason="end_turn"), "isSidechain": True, "agentId": name}
        path = folder / f"agent-{name}.jsonl"
        path.write_bytes(self._encoded(line))
        return path

    def run(self, status: str = "idle", *, pid: int | None = None, waiting_for: str = "") -> Path:
        """Be open, in a process (this one if none is given), with a status."""
        number = os.getpid() if pid is None else pid
        facts: Json = {"pid": number, "sessionId": self.session_id, "cwd": self.cwd}
        facts |= {"status": status, "kind": "interactive"}
        if waiting_for:
            facts["waitingFor"] = waiting_for
        path = self._folder / "sessions" / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(facts))
        new.replace(path)
        return path


class CodexProgram:
    """Writes the rollout file of one session."""

    def __init__(self, folder: Path, *, cwd: str = "/project", number: int = 1) -> None:
        """`folder` is the one that CODEX_HOME names."""
        self.session_id = str(UUID(int=number))
        self.cwd = cwd
        name = f"rollout-2026-01-01T00-00-00-{self.session_id}.jsonl"
        self.path = folder / "sessions" / "2026" / "01" / "01" / name
        self._lines = 0
        self._rest = b""

    def write(self, kind: str, payload: Json) -> None:
        self._append(self._encoded(kind, payload))

    def _encoded(self, kind: str, payload: Json) -> bytes:
        self._lines += 1
        moment = iso_seconds(BEGAN / 1000 + self._lines)
        return msgspec.json.encode({"timestamp": moment, "type": kind, "payload": payload}) + b"\n"

    def _append(self, data: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(data)

    def _message(self, role: str, text: str) -> bytes:
        content = [{"type": "input_text" if role == "user" else "output_text", "text": text}]
        message = {"type": "message", "id": f"msg-{self._lines}", "role": role}
        return self._encoded("response_item", {**message, "content": content})

    def prompt(self, text: str) -> None:
        if not self._lines:
            facts = {"id": self.session_id, "cwd": self.cwd}
            self._append(self._encoded("session_meta", facts))
        self._append(self._message("user", "<environment_context>here</environment_context>"))
        self._append(self._message("user", text))

    def answer(self, text: str) -> None:
        self._append(self._message("assistant", text))
        self._append(self._encoded("event_msg", {"type": "task_complete"}))

    def call(self, command: str, output: str) -> None:
        call = {"type": "function_call", "name": "exec_command", "call_id": f"call-{self._lines}"}
        arguments = msgspec.json.encode({"cmd": command}).decode()
        self._append(self._encoded("response_item", {**call, "arguments": arguments}))
        ended = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
        self._append(self._encoded("response_item", ended))

    def write_half(self) -> None:
        data = self._message("assistant", "half of it, then the rest")
        middle = len(data) // 2
        self._append(data[:middle])
        self._rest = data[middle:]

    def write_rest(self) -> None:
        self._append(self._rest)

    def damage(self) -> None:
        self._append(b'{"timestamp": \xff\x00 and no end\n')


# ---- the contract ------------------------------------------------------------------------------


def read_all(
    adapter: ForeignAdapter, session: ForeignSession, after: Cursor | None = None, at: int = 0
) -> list[ForeignUpdate]:
    """Return all updates of a session after a cursor."""
    reader = adapter.open_reader(session, after, at)
    updates: list[ForeignUpdate] = []
    while piece := reader.read():
        updates += piece
    reader.close()
    return updates


def check_adapter(adapter: ForeignAdapter, program: ForeignProgram) -> None:
    """Check an adapter against a program that has not started its session.

    Raises:
        AssertionError: with what does not hold.
    """
    method = adapter.get_capabilities().agent.integration_method
    assert method in METHODS, f"the integration method is one of {METHODS}"
    assert adapter.get_capabilities().agent.name == adapter.name
    assert not [each for each in adapter.find_sessions() if each.id == program.session_id]
    program.prompt("first prompt")
    program.call("echo out", "out")
    program.answer("first answer")
    session = _found(adapter, program)
    assert session.cwd == program.cwd, "a session has the folder that it works in"
    updates = read_all(adapter, session)
    _check_turn(updates)
    _check_times(updates)
    _check_cursors(adapter, session, updates)
    _check_half(adapter, program, updates)
    _check_damage(adapter, program)


def _found(adapter: ForeignAdapter, program: ForeignProgram) -> ForeignSession:
    found = [each for each in adapter.find_sessions() if each.id == program.session_id]
    assert len(found) == 1, "a session is found once"
    return found[0]


def _texts(updates: Sequence[ForeignUpdate], kind: str) -> list[str]:
    return [str(each.update.payload["content"]["text"]) for each in _of(updates, kind)]


def _of(updates: Sequence[ForeignUpdate], kind: str) -> list[ForeignUpdate]:
    return [each for each in updates if each.update.type == kind]


def _check_turn(updates: Sequence[ForeignUpdate]) -> None:
    assert _texts(updates, "user-message-chunk") == ["first prompt"]
    assert _texts(updates, "agent-message-chunk")[-1:] == ["first answer"]
    calls, ends = _of(updates, "tool-call"), _of(updates, "tool-call-update")
    assert len(calls) == 1, "a call is announced once"
    call_id = calls[0].update.payload["toolCallId"]
    last = ends[-1].update.payload
    assert (last["toolCallId"], last["status"]) == (call_id, "completed")
    kinds = [each.update.type for each in updates]
    order = ("user-message-chunk", "tool-call", "tool-call-update", "agent-message-chunk")
    assert [kinds.index(each) for each in order] == sorted(kinds.index(each) for each in order)
    assert len(_of(updates, "prompt-finished")) == 1, "a turn ends once"


def _check_times(updates: Sequence[ForeignUpdate]) -> None:
    assert all(each.at > 0 for each in updates), "each update has the time when it happened"


def _check_cursors(
    adapter: ForeignAdapter, session: ForeignSession, updates: Sequence[ForeignUpdate]
) -> None:
    """From each cursor on, exactly what comes after it is read."""
    items = [list(group) for _, group in groupby(updates, key=lambda each: each.cursor)]
    for number, item in enumerate(items):
        rest = read_all(adapter, session, item[0].cursor, item[-1].at)
        expected = [each for later in items[number + 1 :] for each in later]
        assert _plain(rest) == _plain(expected), f"after the cursor {item[0].cursor}"


def _plain(updates: Sequence[ForeignUpdate]) -> list[tuple[Normalized, int, Any]]:
    return [(each.update, each.at, dict(each.cursor)) for each in updates]


def _check_half(
    adapter: ForeignAdapter, program: ForeignProgram, before: Sequence[ForeignUpdate]
) -> None:
    program.prompt("second prompt")
    program.write_half()
    session, last = _found(adapter, program), before[-1]
    reader = adapter.open_reader(session, last.cursor, last.at)
    seen = list(reader.read())
    assert "half" not in "".join(_texts(seen, "agent-message-chunk"))
    assert not reader.read(), "what is half-written is left for later"
    program.write_rest()
    seen += reader.read()
    texts = _texts(seen, "agent-message-chunk")
    assert texts == ["half of it, then the rest"], "a reader continues when there is more"


def _check_damage(adapter: ForeignAdapter, program: ForeignProgram) -> None:
    program.damage()
    program.prompt("third prompt")
    updates = read_all(adapter, _found(adapter, program))
    prompts = _texts(updates, "user-message-chunk")
    assert prompts == ["first prompt", "second prompt", "third prompt"], "damage costs one item"
