"""Agents with ACP 2 that do what a recording does not show: written as recordings, and played."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.errors import AcpError
from quarterdeck.host import AgentDefinition, Host, HostOptions
from quarterdeck.protocol import Event, initial_state, reduce
from tests.host.acp2.replay import Played, play
from tests.host.faults.kit import Seen

pytestmark = pytest.mark.anyio

INFO = {"name": "scripted", "version": "1"}
CAPABILITIES: dict[str, Any] = {"session": {"prompt": {"image": {}}, "delete": {}, "fork": {}}}
Line = dict[str, Any]


def client(request_id: int | None, method: str, **params: Any) -> Line:
    message: Line = {"jsonrpc": "2.0", "method": method, "params": params}
    if request_id is not None:
        message["id"] = request_id
    return {"dir": "c2a", "msg": message}


def answer(request_id: int, result: Any) -> Line:
    return {"dir": "a2c", "msg": {"jsonrpc": "2.0", "id": request_id, "result": result}}


def failure(request_id: int, code: int, message: str = "no") -> Line:
    error = {"code": code, "message": message}
    return {"dir": "a2c", "msg": {"jsonrpc": "2.0", "id": request_id, "error": error}}


def update(name: str, session_id: str = "s", /, **fields: Any) -> Line:
    params = {"sessionId": session_id, "update": {"sessionUpdate": name, **fields}}
    return {"dir": "a2c", "msg": {"jsonrpc": "2.0", "method": "session/update", "params": params}}


def asks(request_id: int, session_id: str = "s", **params: Any) -> list[Line]:
    options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]
    message = {
        "jsonrpc": "2.0",
        "id": request_id,
        "method": "session/request_permission",
        "params": {"sessionId": session_id, "options": options, **params},
    }
    outcome = {"outcome": {"outcome": "selected", "optionId": "y"}}
    response = {"jsonrpc": "2.0", "id": request_id, "result": outcome}
    return [{"dir": "a2c", "msg": message}, {"dir": "c2a", "msg": response}]


def state(name: str, **fields: Any) -> Line:
    return update("state_update", state=name, **fields)


def text(words: str) -> Line:
    return {"type": "text", "text": words}


def said(words: str, message_id: str = "m", session_id: str = "s") -> Line:
    return update("agent_message_chunk", session_id, messageId=message_id, content=text(words))


OPENED = [
    client(0, "initialize", protocolVersion=2),
    answer(0, {"protocolVersion": 2, "info": INFO, "capabilities": CAPABILITIES}),
    client(1, "session/new", cwd="/p"),
    answer(1, {"sessionId": "s", "configOptions": [], "availableCommands": []}),
]
PROMPT = client(2, "session/prompt", sessionId="s", prompt=[text("go")])
FAILED = {"stopReason": "end_turn", "error": {"code": -32603, "message": "no"}}
IDLE = state("idle", stopReason="end_turn")


async def played(folder: Path, *lines: Line | list[Line], protocol: Any = "auto") -> Played:
    flat: list[Line] = []
    for line in lines:
        flat += line if isinstance(line, list) else [line]
    path = folder / "scripted-v2-lines.ndjson"
    path.write_text("".join(json.dumps(line) + "\n" for line in flat))
    return await play(path, folder, protocol=protocol)


def types(events: Iterable[Event], *kinds: str) -> list[Any]:
    return [each.payload for each in events if each.type in kinds]


async def test_a_turn_ends_with_idle_and_not_with_the_answer(tmp_path: Path) -> None:
    outcome = await played(
        tmp_path,
        OPENED,
        PROMPT,
        state("running"),
        update("user_message", messageId="u", content=[text("go")]),
        answer(2, {"messageId": "u"}),
        said("one"),
        IDLE,
    )
    log = outcome.logs["s"]
    order = [each.type for each in log if each.type in ("agent-message-chunk", "prompt-finished")]
    assert order == ["agent-message-chunk", "prompt-finished"]
    assert len(types(log, "user-message-chunk")) == 1


async def test_an_idle_before_the_message_is_inserted_ends_other_work(tmp_path: Path) -> None:
    outcome = await played(
        tmp_path,
        OPENED,
        PROMPT,
        state("running"),
        said("older work", "m1"),
        IDLE,
        state("running"),
        update("user_message", messageId="u", content=[text("go")]),
        answer(2, {"messageId": "u"}),
        said("the answer", "m2"),
        state("idle", stopReason="max_tokens"),
    )
    log = outcome.logs["s"]
    assert [each["stopReason"] for each in types(log, "prompt-finished")] == ["max_tokens"]


async def test_an_answer_that_follows_its_own_idle_ends_the_turn(tmp_path: Path) -> None:
    outcome = await played(
        tmp_path,
        OPENED,
        PROMPT,
        update("user_message", messageId="u", content=[text("go")]),
        state("running"),
        said("quick"),
        IDLE,
        answer(2, {"messageId": "u"}),
    )
    assert types(outcome.logs["s"], "prompt-finished") == [{"stopReason": "end_turn"}]


async def test_a_user_message_that_is_not_the_prompt_is_recorded(tmp_path: Path) -> None:
    outcome = await played(
        tmp_path,
        OPENED,
        PROMPT,
        update("user_message", messageId="other", content=[text("from elsewhere")]),
        answer(2, {"messageId": "u"}),
        update("user_message", messageId="u", content=[text("go")]),
        state("running"),
        IDLE,
    )
    chunks = types(outcome.logs["s"], "user-message-chunk")
    assert [each["content"]["text"] for each in chunks] == ["go", "from elsewhere"]


@pytest.mark.parametrize(
    ("lines", "finished"),
    [
        (
            [failure(2, -32603)],
            {"stopReason": "end_turn", "error": {"code": -32603, "message": "no"}},
        ),
        ([failure(2, -32800)], {"stopReason": "cancelled"}),
        (
            [
                answer(2, {"messageId": "u"}),
                state("running"),
                state("idle", stopReason="error", error={"code": -1, "message": "broke"}),
            ],
            {"stopReason": "end_turn", "error": {"code": -1, "message": "broke"}},
        ),
        (
            [state("running"), failure(2, -32603), state("idle")],
            FAILED,
        ),
        (
            [answer(2, {"messageId": "u"}), state("running"), state("idle")],
            {"stopReason": "end_turn"},
        ),
    ],
    ids=["error", "cancelled before insertion", "idle error", "error while working", "no reason"],
)
async def test_how_a_turn_can_end(lines: list[Line], finished: Line, tmp_path: Path) -> None:
    outcome = await played(tmp_path, OPENED, PROMPT, lines)
    assert types(outcome.logs["s"], "prompt-finished") == [finished]


async def test_a_repeated_idle_ends_nothing(tmp_path: Path) -> None:
    usage = {"totalTokens": 1, "inputTokens": 1, "outputTokens": 0}
    end = state("idle", stopReason="end_turn", usage=usage)
    outcome = await played(
        tmp_path, OPENED, PROMPT, answer(2, {"messageId": "u"}), state("running"), end, end, end
    )
    assert len(types(outcome.logs["s"], "prompt-finished")) == 1


async def test_work_without_a_prompt_is_a_turn_of_the_agents_own(tmp_path: Path) -> None:
    outcome = await played(tmp_path, OPENED, state("running"), said("by myself"), IDLE)
    log = outcome.logs["s"]
    statuses = [each["status"] for each in types(log, "session-status-change")]
    assert statuses[:3] == ["active", "prompting", "active"]
    (end,) = [each for each in log if each.type == "prompt-finished"]
    assert (end.extensions or {})["quarterdeck"]["added"] == "the agent worked by itself"


async def test_calls_left_open_end_with_the_turn_but_not_those_in_the_background(
    tmp_path: Path,
) -> None:
    outcome = await played(
        tmp_path,
        OPENED,
        PROMPT,
        answer(2, {"messageId": "u"}),
        state("running"),
        update("tool_call_update", toolCallId="left", title="x", status="in_progress"),
        update("tool_call_update", toolCallId="kept", title="y", status="in_progress"),
        state(
            "idle",
            stopReason="cancelled",
            background=[{"type": "tool_call", "toolCallId": "kept"}],
        ),
    )
    log = outcome.logs["s"]
    closed = [each for each in types(log, "tool-call-update") if each["status"] == "cancelled"]
    assert [each["toolCallId"] for each in closed] == ["left"]


CALL = {"toolCallId": "c", "kind": "edit", "title": "Edit files", "status": "in_progress"}
DIFF = {
    "type": "diff",
    "changes": [{"operation": "modify", "path": "/p/f"}],
    "patch": {
        "format": "git_patch",
        "text": "diff --git /p/f /p/f\n--- /p/f\n+++ /p/f\n@@ -1 +1 @@\n-a\n+b\n",
    },
}


async def test_a_permission_request_has_the_call_as_it_is_known(tmp_path: Path) -> None:
    patch = {"toolCallId": "c", "status": "pending", "title": None, "kind": "edit"}
    outcome = await played(
        tmp_path,
        OPENED,
        PROMPT,
        answer(2, {"messageId": "u"}),
        state("running"),
        update("tool_call_update", **CALL, content=[DIFF]),
        asks(9, title="Make edits?", subject={"type": "tool_call", "toolCall": patch}),
        IDLE,
    )
    log = outcome.logs["s"]
    (created,) = types(log, "permission-request-created")
    call = created["toolCall"]
    assert call["content"] == [DIFF]
    assert call["title"] == "Make edits?"
    assert call["_meta"]["acp2"]["title"] == "Make edits?"
    assert "status" not in call
    statuses = [each.get("status") for each in types(log, "tool-call", "tool-call-update")]
    assert "pending" not in statuses


async def test_a_request_to_run_a_command_has_the_command_as_its_input(tmp_path: Path) -> None:
    subject = {"type": "command", "command": "make", "cwd": "/p"}
    outcome = await played(
        tmp_path,
        OPENED,
        PROMPT,
        answer(2, {"messageId": "u"}),
        state("running"),
        asks(9, title="Run this?", description="It builds.", subject=subject),
        IDLE,
    )
    (created,) = types(outcome.logs["s"], "permission-request-created")
    call = created["toolCall"]
    assert (call["kind"], call["rawInput"]) == ("execute", {"command": "make", "cwd": "/p"})
    assert call["_meta"]["acp2"]["description"] == "It builds."


@pytest.mark.parametrize("subject", [None, {"type": "_later", "x": 1}])
async def test_a_request_with_an_unknown_subject_is_asked_with_its_title(
    subject: Any, tmp_path: Path
) -> None:
    outcome = await played(
        tmp_path,
        OPENED,
        PROMPT,
        answer(2, {"messageId": "u"}),
        state("running"),
        asks(9, title="Trust this folder?", subject=subject),
        IDLE,
    )
    (created,) = types(outcome.logs["s"], "permission-request-created")
    assert created["toolCall"]["title"] == "Trust this folder?"
    assert created["toolCall"]["rawInput"]["request"] == "Trust this folder?"


def child(session_id: str = "k", parent: str = "s", **fields: Any) -> Line:
    params = {"sessionUpdate": "subagent_update", "sessionId": session_id, **fields}
    message = {"sessionId": parent, "update": params}
    return {"dir": "a2c", "msg": {"jsonrpc": "2.0", "method": "session/update", "params": message}}


async def test_a_sub_agent_asks_under_its_own_name_while_its_parent_is_idle(tmp_path: Path) -> None:
    outcome = await played(
        tmp_path,
        OPENED,
        PROMPT,
        answer(2, {"messageId": "u"}),
        state("running"),
        child(title="Writer", state={"state": "running"}, cwd="/p/sub"),
        IDLE,
        update("tool_call_update", "k", toolCallId="c", title="write", status="in_progress"),
        asks(
            9, "k", title="Write?", subject={"type": "tool_call", "toolCall": {"toolCallId": "c"}}
        ),
        said("done", "m", "k"),
        child(state={"state": "idle", "stopReason": "end_turn"}),
    )
    (created,) = types(outcome.logs["k"], "permission-request-created")
    assert created["toolCall"]["toolCallId"] == "c"
    (resolved,) = types(outcome.logs["k"], "permission-request-resolved")
    assert resolved["status"] == "answered"
    pending = [
        each.payload
        for each in outcome.host_events
        if each.type == "permission-updated" and each.payload["status"] == "pending"
    ]
    assert [(each["sessionId"], each["parentSessionId"]) for each in pending] == [("k", "s")]
    snapshots = [
        each.payload
        for each in outcome.host_events
        if each.type == "session-updated" and each.payload["sessionId"] == "k"
    ]
    assert snapshots[-1]["title"] == "Writer"
    assert snapshots[-1]["cwd"] == "/p/sub"


async def test_sub_agents_beyond_the_limits_are_refused_with_a_diagnostic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.host.acp2.children.CHILDREN", 3)
    monkeypatch.setattr("quarterdeck.host.acp2.children.DEPTH", 2)
    outcome = await played(
        tmp_path,
        OPENED,
        child("k1"),
        child("k2", "k1"),
        child("k3", "k2"),
        child("k4"),
        child("k5"),
        said("dropped", "m", "k5"),
    )
    assert set(outcome.logs) == {"s", "k1", "k2", "k4"}
    assert outcome.diagnostics().count("session/sub-agent-refused") == 2


async def test_what_is_dropped_leaves_counted_diagnostics(tmp_path: Path) -> None:
    vendor = {"jsonrpc": "2.0", "method": "_vendor/news", "params": {}}
    dropped = [said("lost", "m", "ghost"), {"dir": "a2c", "msg": vendor}]
    outcome = await played(
        tmp_path,
        OPENED,
        PROMPT,
        answer(2, None),
        update("user_message", messageId="u", content=[text("go")]),
        *(dropped * 25),
        IDLE,
    )
    reports = [each.payload for each in outcome.host_events if each.type == "diagnostic"]
    found = {
        code: [each["data"]["count"] for each in reports if each["code"] == code]
        for code in (
            "session/update-dropped",
            "agent/notification-dropped",
            "agent/answer-empty",
        )
    }
    assert found == {
        "session/update-dropped": [1, 10, 25],
        "agent/notification-dropped": [1, 10, 25],
        "agent/answer-empty": [1],
    }


async def test_output_of_an_agents_terminal_is_decoded_across_its_pieces(tmp_path: Path) -> None:
    def piece(data: bytes) -> Line:
        return update("terminal_output_chunk", terminalId="t", data=base64.b64encode(data).decode())

    outcome = await played(tmp_path, OPENED, piece(b"\xc3"), piece(b"\xa4"))
    deltas = [each["delta"] for each in types(outcome.logs["s"], "terminal-output")]
    assert "".join(deltas) == "ä"


async def test_a_session_that_is_loaded_again_has_its_calls_once(tmp_path: Path) -> None:
    call = update("tool_call_update", toolCallId="c", title="ls", status="completed")
    message = update("agent_message", messageId="m", content=[text("hello")])
    again = client(3, "session/resume", sessionId="s", cwd="/p", replayFrom={"type": "start"})
    outcome = await played(
        tmp_path,
        OPENED,
        PROMPT,
        answer(2, {"messageId": "u"}),
        state("running"),
        call,
        message,
        IDLE,
        again,
        update("agent_message", messageId="m", content=[]),
        said("hello"),
        call,
        state("idle"),
        answer(3, {}),
    )
    state_after = initial_state("s")
    for event in outcome.logs["s"]:
        state_after = reduce(state_after, event)
    assert [each.title for each in state_after.tool_calls.values()] == ["ls"]
    assert [list(each.content) for each in state_after.messages] == [[text("hello")]]


async def test_a_session_that_is_resumed_keeps_what_holds_now_and_drops_its_history(
    tmp_path: Path,
) -> None:
    again = client(3, "session/resume", sessionId="s", cwd="/p")
    outcome = await played(
        tmp_path,
        OPENED,
        again,
        update("session_info_update", title="Renamed"),
        said("history"),
        state("idle"),
        answer(3, {"availableCommands": [{"type": "command", "name": "n", "description": "d"}]}),
    )
    log = outcome.logs["s"]
    assert types(log, "session-info-update") == [{"title": "Renamed"}]
    assert types(log, "agent-message-chunk") == []
    commands = types(log, "available-commands-update")[-1]["availableCommands"]
    assert [each["name"] for each in commands] == ["n"]


async def test_an_agent_that_echoes_the_version_in_the_shape_of_acp_1_speaks_acp_1(
    tmp_path: Path,
) -> None:
    first = [
        client(0, "initialize", protocolVersion=2),
        answer(0, {"protocolVersion": 2, "agentCapabilities": {}, "agentInfo": INFO}),
        client(1, "session/new", cwd="/p"),
        answer(1, {"sessionId": "s"}),
        update("agent_message_chunk", content=text("without an id")),
    ]
    outcome = await played(tmp_path, first)
    assert types(outcome.logs["s"], "agent-message-chunk") == [{"content": text("without an id")}]


async def test_an_agent_without_acp_2_is_refused_if_its_definition_asks_for_it(
    tmp_path: Path,
) -> None:
    first = [client(0, "initialize"), answer(0, {"protocolVersion": 1, "agentCapabilities": {}})]
    with pytest.raises(AcpError, match="asks for protocol version 2, and it speaks 1"):
        await played(tmp_path, first, protocol=2)


@pytest.mark.parametrize("value", ["2", 3, True, "newest"])
async def test_a_definition_names_a_version_that_exists(value: Any) -> None:
    async with Host(HostOptions()) as host:
        with pytest.raises(AcpError, match='protocol must be "auto", 1 or 2'):
            await host.spawn_agent({"id": "a", "command": "x", "protocol": value})


def test_a_definition_without_a_version_is_as_before() -> None:
    assert AgentDefinition(id="a", command="b").protocol is None


REFUSES = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id")}
    if message["method"] != "initialize":
        answer["result"] = {"sessionId": "s"}
    elif message["params"]["protocolVersion"] == 1:
        answer["result"] = {"protocolVersion": 1, "agentCapabilities": {}}
    else:
        data = {"requested": 2, "supported": [1]}
        answer["error"] = {"code": -32022, "message": "unsupported", "data": data}
    print(json.dumps(answer), flush=True)
"""


async def test_an_agent_that_refuses_version_2_is_started_again_with_version_1() -> None:
    async with Host(HostOptions(kill_timeout_ms=2000)) as host:
        spawns: list[Any] = []

        def follow(event: Event) -> None:
            if event.type == "diagnostic" and event.payload["code"] == "agent/spawn":
                spawns.append(event)

        host.subscribe(None, 0, follow)
        definition = {"id": "a", "command": sys.executable, "args": ["-c", REFUSES]}
        agent = await host.spawn_agent({**definition, "protocol": "auto"})
        assert agent.status == "ready"
        session = await host.create_session(agent.agent_id, cwd="/")
        assert session.session_id == "s"
        assert len(spawns) == 2


WORKS = """
import json, sys
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def update(session, **fields):
    send(method="session/update", params={"sessionId": session, "update": fields})
for line in sys.stdin:
    message = json.loads(line)
    method, key = message["method"], message.get("id")
    if method == "initialize":
        can = {"session": {}}
        send(id=key, result={"protocolVersion": 2, "info": {"name": "a"}, "capabilities": can})
    elif method == "session/new":
        send(id=key, result={"sessionId": "s"})
        update("s", sessionUpdate="subagent_update", sessionId="k", title="Kid")
        update("k", sessionUpdate="agent_message_chunk", messageId="m",
               content={"type": "text", "text": "hello"})
    elif key is not None:
        print(method, message["params"], file=sys.stderr, flush=True)
        send(id=key, result={})
"""


async def test_a_sub_agent_takes_no_commands_and_ends_with_its_parent() -> None:
    async with Host(HostOptions(kill_timeout_ms=2000)) as host:
        definition = {"id": "a", "command": sys.executable, "args": ["-c", WORKS], "protocol": 2}
        agent = await host.spawn_agent(definition)
        seen = Seen()
        host.subscribe(None, 0, seen)
        await host.create_session(agent.agent_id, cwd="/")
        await seen.first("session-updated", sessionId="k", title="Kid")
        for call in (host.prompt("k", "go"), host.fork_session("k"), host.cancel("k")):
            with pytest.raises(AcpError, match="sub-agent"):
                await call
        await host.close_session("s")
        child = host.get_session("k")
        assert child is not None
        assert child.status == "closed"
        closed = [each for each in seen.of("diagnostic") if "session/close" in each["message"]]
        assert all("'k'" not in each["message"] for each in closed)


ENDS = """
import json, os, signal, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": {"sessionId": "s"}}
    if message["method"] == "initialize":
        can = {"session": {}}
        answer["result"] = {"protocolVersion": 2, "info": {"name": "a"}, "capabilities": can}
    if message["method"] == "session/prompt":
        answer["result"] = {"messageId": "m"}
        print(json.dumps(answer), flush=True)
        print("fatal: out of luck", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    print(json.dumps(answer), flush=True)
"""


async def test_an_agent_that_ends_in_a_turn_is_explained() -> None:
    async with Host(HostOptions(kill_timeout_ms=2000)) as host:
        definition = {"id": "a", "command": sys.executable, "args": ["-c", ENDS], "protocol": 2}
        agent = await host.spawn_agent(definition)
        session = await host.create_session(agent.agent_id, cwd="/")
        with pytest.raises(AcpError, match="ended by SIGKILL; its last words: fatal: out of luck"):
            await host.prompt(session.session_id, "go")
