"""Clients of ACP 2 of an agent that we serve; the same code serves clients of ACP 1.

Everything that is sent here is checked against the schema of version 2 (`tests/taping`). The names
of tests have the ids of the conformance kit, as in `tests/hub/editors/test_conformance_acp.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agent import AgentError, AgentTurn, Mode, SessionStore
from quarterdeck.host import Host, HostOptions
from quarterdeck.storage import MemoryStorage
from tests.agent.support import INFO, Hand, Json, conversing
from tests.agent.test_with_host import EXAMPLE, ROOT, definition
from tests.protocol.acp2_client import Client as Screen
from tests.taping.tapes import environment

pytestmark = pytest.mark.anyio

LINK: Json = {"type": "resource_link", "uri": "file:///a.py", "name": "a.py"}
FORM: Json = {"type": "object", "properties": {"n": {"type": "string"}}}
EVERYTHING: tuple[Any, ...] = (
    "Hel",
    "lo",
    {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}},
    {
        "sessionUpdate": "tool_call",
        "toolCallId": "c1",
        "title": "Edit",
        "kind": "edit",
        "status": "in_progress",
        "rawInput": {"path": "/a"},
        "content": [{"type": "diff", "path": "/a", "oldText": "x\n", "newText": "y\n"}],
    },
    {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": None, "title": "Edit a"},
    {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "c1",
        "status": "completed",
        "locations": [{"path": "/a"}],
    },
    {
        "sessionUpdate": "plan",
        "entries": [{"content": "do", "priority": "high", "status": "pending"}],
    },
    {"sessionUpdate": "usage_update", "used": 3, "size": 100},
    {"sessionUpdate": "notice", "severity": "info", "title": "hey"},
    {
        "sessionUpdate": "agent_message_chunk",
        "messageId": "own",
        "content": {"type": "text", "text": "done"},
    },
)


class Everything:
    """Sends every kind of update, and has modes, options, commands and logins."""

    modes = (Mode("ask", "Ask"), Mode("act", "Act", "without asking"))
    auth_methods: Any = ({"id": "key", "name": "Key"},)
    prompt_capabilities = {"image": True}  # noqa: RUF012

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def prompt(self, turn: AgentTurn) -> AsyncIterator[Any]:
        if "fail" in turn.text:
            raise AgentError("no luck")
        for each in EVERYTHING:
            yield each

    def config_options(self, _session: Any) -> list[Json]:
        return [
            {"id": "loud", "name": "Loud", "type": "boolean", "currentValue": False},
        ]

    def commands(self, _session: Any) -> list[Json]:
        return [{"name": "plan", "description": "plan it", "input": {"hint": "the task"}}]

    async def authenticate(self, method_id: str) -> None:
        self.seen.append(method_id)

    async def logout(self) -> None:
        self.seen.append("out")


def screen(hand: Hand) -> Json:
    """Return what a client shows after everything that came."""
    shown = Screen()
    for each in hand.updates():
        shown.take(each)
    found: Json = shown.shown()
    return found


async def waits(turn: AgentTurn) -> str:
    turn.say(f"waiting for {turn.text}")
    await anyio.sleep_forever()
    return "end_turn"


async def asks(turn: AgentTurn) -> None:
    call = {"toolCallId": "c", "title": "Run make", "kind": "execute", "rawInput": {"c": "make"}}
    turn.send({"sessionUpdate": "tool_call", **call})
    turn.say(str(await turn.ask_permission(call)))


async def elicits(turn: AgentTurn) -> None:
    turn.say(str((await turn.client.elicit("Which?", FORM))["action"]))


# ---- initialize ----------------------------------------------------------------------------------


async def test_v2_init_001_201_203_204_auth_201_206_ext_202_a_client_of_acp_2_is_answered_with_2(
    tmp_path: Path,
) -> None:
    for asked in (2, 3, 65535):
        async with conversing(
            Everything(), store=SessionStore(tmp_path), initializes=False
        ) as hand:
            told = await hand.result(
                "initialize", protocolVersion=asked, info=INFO, capabilities={}
            )
            assert told["protocolVersion"] == 2
            assert {"name", "version"} <= told["info"].keys()
            assert told["capabilities"] == {
                "session": {
                    "prompt": {"image": {}},
                    "mcp": {"stdio": {}},
                    "additionalDirectories": {},
                    "delete": {},
                }
            }
            assert told["authMethods"] == [{"methodId": "key", "name": "Key", "type": "agent"}]
            assert (await hand.error("session/load", sessionId="s"))["code"] == -32601
            assert (await hand.error("session/set_mode", sessionId="s"))["code"] == -32601
            assert (await hand.error("authenticate", methodId="key"))["code"] == -32601


@pytest.mark.parametrize("asked", [0, 1, 2, 7, 65535])
async def test_init_002_v2_init_202_a_client_of_acp_1_is_answered_with_1(asked: int) -> None:
    async with conversing(waits, initializes=False) as hand:
        told = await hand.result("initialize", protocolVersion=asked, clientInfo=INFO)
        assert told["protocolVersion"] == 1
        assert told["agentInfo"]["name"] == "waits"
        assert "info" not in told


async def test_a_connection_keeps_its_version() -> None:
    async with conversing(waits, version=2) as hand:
        again = await hand.result("initialize", protocolVersion=2, info=INFO)
        assert again["protocolVersion"] == 2
        error = await hand.error("initialize", protocolVersion=1)
        assert error["data"] == "this connection speaks version 2; open another one"
        await hand.open_session()
        assert (await hand.error("initialize", protocolVersion=2, info=INFO))["code"] == -32600
    async with conversing(waits) as older:
        assert (await older.result("initialize", protocolVersion=1))["protocolVersion"] == 1
        assert (await older.error("initialize", protocolVersion=2, info=INFO))["code"] == -32600


async def test_v2_auth_203_204_login_and_logout_reach_the_agent() -> None:
    agent = Everything()
    async with conversing(agent, version=2) as hand:
        assert await hand.result("auth/login", methodId="key") == {}
        assert await hand.open_session()
        assert await hand.result("auth/logout") == {}
    assert agent.seen == ["key", "out"]
    async with conversing(waits, version=2) as none:
        assert (await none.error("auth/login", methodId="key"))["code"] == -32601


async def test_v2_auth_202_205_207_a_login_by_terminal_is_for_clients_that_offer_it() -> None:
    class ByTerminal(Everything):
        auth_methods: Any = (
            {"id": "t", "name": "T", "type": "terminal", "args": ["login"], "env": {"A": "1"}},
        )

    cases: list[tuple[Json, int]] = [({}, 0), ({"auth": {"terminal": {}}}, 1)]
    for offered, count in cases:
        async with conversing(ByTerminal(), initializes=False) as hand:
            told = await hand.result(
                "initialize", protocolVersion=2, info=INFO, capabilities=offered
            )
            assert len(told["authMethods"]) == count
            for method in told["authMethods"]:
                assert method["args"] == ["login"]
                assert method["env"] == [{"name": "A", "value": "1"}]


# ---- turns ---------------------------------------------------------------------------------------


async def test_v2_prompt_201_203_205_state_201_202_203_patch_201_203_204_205_a_turn() -> None:
    async with conversing(Everything(), version=2) as hand:
        session_id = await hand.open_session()
        assert (await hand.turn(session_id, "one"))["stopReason"] == "end_turn"
        await hand.turn(session_id, "two")
        names = [each["sessionUpdate"] for each in hand.updates()]
        first = names[: names.index("user_message", 1)]
        assert first == [
            "user_message",
            "state_update",
            "agent_message_chunk",
            "agent_message_chunk",
            "agent_thought_chunk",
            "tool_call_update",
            "tool_call_update",
            "tool_call_update",
            "plan_update",
            "usage_update",
            "notice",
            "agent_message_chunk",
            "state_update",
        ]
        states = [each["state"] for each in hand.updates("state_update")]
        assert states == ["running", "idle", "running", "idle"]
        answers = [
            each["result"] for each in hand.messages if "messageId" in each.get("result", ())
        ]
        told = [each["messageId"] for each in hand.updates("user_message")]
        assert [each["messageId"] for each in answers if "messageId" in each] == told
        assert len(set(told)) == 2
        spoken = [each["messageId"] for each in hand.updates("agent_message_chunk")]
        assert spoken[0] == spoken[1]
        assert spoken[2] == "own"
        assert len(set(spoken)) == 3, "messages of two turns are two messages"
        shown = screen(hand)
        (call,) = shown["calls"].values() if isinstance(shown["calls"], dict) else shown["calls"]
        assert (call["title"], call["status"]) == ("Edit a", "completed")
        assert call["content"][0]["patch"]["text"].endswith("-x\n+y\n")


async def test_v2_an_agent_that_fails_is_idle_with_an_error() -> None:
    async with conversing(Everything(), version=2) as hand:
        session_id = await hand.open_session()
        end = await hand.turn(session_id, "fail")
        assert end["stopReason"] == "error"
        assert end["error"] == {"code": -32603, "message": "no luck"}
        assert (await hand.turn(session_id, "go"))["stopReason"] == "end_turn"


async def test_v2_cancel_201_202_203_205_206_207_a_cancelled_turn_is_idle_with_cancelled() -> None:
    async with conversing(waits, version=2) as hand:
        session_id = await hand.open_session()
        for more in ({}, {"_meta": {"a": 1}}):
            count = len(hand.ends())
            await hand.prompt(session_id)
            await hand.notify("session/cancel", sessionId=session_id, **more)
            assert await hand.ended(count) == {
                "sessionUpdate": "state_update",
                "state": "idle",
                "stopReason": "cancelled",
            }
            length = len(hand.messages)
            await hand.result("session/list")
            assert len(hand.messages) == length + 1, "nothing more of the turn"


async def test_v2_info_concurrent_201_cancel_a_prompt_waits_for_the_turn_before_it() -> None:
    entered = anyio.Event()

    async def slow(turn: AgentTurn) -> str:
        turn.say(turn.text)
        entered.set()
        await turn.session.data.wait()
        return "end_turn"

    class Slow:
        prompt = staticmethod(slow)

        async def open_session(self, session: Any) -> None:
            session.data = events[0]

    events = [anyio.Event()]
    async with conversing(Slow(), version=2) as hand:
        session_id = await hand.open_session()
        await hand.prompt(session_id, "one")
        second, third = [await hand.ask_prompt(session_id, text) for text in ("two", "three")]
        await entered.wait()
        await hand.result("session/list")
        assert hand.texts() == ["one"]
        assert len(hand.updates("user_message")) == 1, "the others are not inserted"
        await hand.send({"method": "$/cancel_request", "params": {"requestId": second}})
        assert (await hand.answered(second))["error"]["code"] == -32800
        events[0].set()
        assert "messageId" in (await hand.answered(third))["result"]
        await hand.ended(1)
        assert hand.texts() == ["one", "three"]
        assert [each["state"] for each in hand.updates("state_update")] == ["running", "idle"] * 2


async def test_v2_cancel_208_close_201_202_prompts_that_wait_are_withdrawn() -> None:
    for way in ("session/cancel", "session/close"):
        async with conversing(waits, version=2) as hand:
            session_id = await hand.open_session()
            await hand.prompt(session_id, "one")
            waiting = await hand.ask_prompt(session_id, "two")
            if way == "session/cancel":
                await hand.notify(way, sessionId=session_id)
                await hand.ended()
            else:
                assert await hand.result(way, sessionId=session_id) == {}
                assert hand.ends()[0]["stopReason"] == "cancelled", "before the answer"
            error = (await hand.answered(waiting))["error"]
            assert error == {"code": -32800, "message": "the prompt was cancelled before it ran"}
            assert len(hand.updates("user_message")) == 1


async def test_v2_prompt_003_promptcap_001_002_003_meta_001_only_what_is_offered_is_taken() -> None:
    async with conversing(Everything(), version=2) as hand:
        session_id = await hand.open_session()
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        blocks = [{"type": "text", "text": "go"}, LINK, image]
        answer = await hand.result(
            "session/prompt", sessionId=session_id, prompt=blocks, _meta={"a": 1}
        )
        assert answer["messageId"]
        (message,) = hand.updates("user_message")
        assert message["content"] == blocks
        await hand.ended()
        audio = {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}
        error = await hand.error("session/prompt", sessionId=session_id, prompt=[audio])
        assert error["code"] == -32602


# ---- requests ------------------------------------------------------------------------------------


async def test_v2_perm_201_patch_209_enum_203_a_permission_has_a_title_and_a_subject() -> None:
    chosen = ["allow_once", "_strange"]

    async with conversing(asks, version=2) as hand:

        def answer(params: Json) -> Json:
            assert params["title"] == "Run make"
            assert params["subject"]["toolCall"]["toolCallId"] == "c"
            assert "toolCall" not in params
            assert hand.updates("state_update")[-1]["state"] == "requires_action"
            return {"outcome": {"outcome": "selected", "optionId": chosen.pop(0)}}

        hand.answers["session/request_permission"] = answer
        session_id = await hand.open_session()
        for told in ("allow_once", "reject_once"):
            assert (await hand.turn(session_id))["stopReason"] == "end_turn"
            assert hand.texts()[-1] == told
        states = [each["state"] for each in hand.updates("state_update")]
        assert states == ["running", "requires_action", "running", "idle"] * 2


async def test_v2_clientcap_201_202_a_form_is_for_clients_that_offer_it() -> None:
    async with conversing(elicits, version=2, capabilities={"elicitation": {"form": {}}}) as hand:
        session_id = await hand.open_session()
        hand.answers["elicitation/create"] = lambda _: {"action": "decline"}
        await hand.turn(session_id)
        assert hand.texts() == ["decline"]
        states = [each["state"] for each in hand.updates("state_update")]
        assert states == ["running", "requires_action", "running", "idle"]
    offered = {"fs": {"readTextFile": True}, "terminal": True}
    async with conversing(elicits, version=2, capabilities=offered) as without:
        end = await without.turn(await without.open_session())
        assert end["error"]["message"] == "hand does not offer forms"
        assert [each for each in without.messages if "method" in each and "id" in each] == []


async def test_v2_clientcap_202_files_and_terminals_of_the_client_are_never_used() -> None:
    async def looks(turn: AgentTurn) -> None:
        client = turn.client
        turn.say(f"{client.can_read_files} {client.can_write_files} {client.has_terminals}")

    offered = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True}
    async with conversing(looks, version=2, capabilities=offered) as hand:
        await hand.turn(await hand.open_session())
        assert hand.texts() == ["False False False"]


# ---- sessions ------------------------------------------------------------------------------------


async def test_v2_session_001_002_203_config_201_202_204_206_a_new_session_has_its_settings(
    tmp_path: Path,
) -> None:
    async with conversing(Everything(), version=2, store=SessionStore(tmp_path)) as hand:
        made = await hand.result("session/new", cwd="/")
        other = await hand.result("session/new", cwd="/", mcpServers=[])
        assert made["sessionId"] != other["sessionId"]
        mode, loud = made["configOptions"]
        assert (mode["configId"], mode["currentValue"]) == ("mode", "ask")
        assert loud == {
            "configId": "loud",
            "name": "Loud",
            "type": "boolean",
            "currentValue": False,
        }
        assert made["availableCommands"][0]["type"] == "command"
        assert made["availableCommands"][0]["input"]["type"] == "text"
        assert "modes" not in made
        session_id = made["sessionId"]
        set_mode = {"sessionId": session_id, "configId": "mode", "type": "id", "value": "act"}
        answer = await hand.result("session/set_config_option", **set_mode)
        assert [each["currentValue"] for each in answer["configOptions"]] == ["act", False]
        switch = {"sessionId": session_id, "configId": "loud", "type": "boolean", "value": True}
        answer = await hand.result("session/set_config_option", **switch)
        assert [each["currentValue"] for each in answer["configOptions"]] == ["act", True]
        told = hand.updates("config_option_update")
        assert [len(each["configOptions"]) for each in told] == [2, 2]
        assert hand.updates("current_mode_update") == []
        for wrong in ({"value": "act"}, {"type": "id", "value": 3}, {"type": "_x", "value": "a"}):
            error = await hand.error(
                "session/set_config_option", sessionId=session_id, configId="mode", **wrong
            )
            assert error["code"] == -32602


@pytest.mark.parametrize("writer", [1, 2])
async def test_v2_resume_201_202_203_204_205_config_203_a_replay_ends_before_the_answer(
    writer: int, tmp_path: Path
) -> None:
    store = SessionStore(tmp_path)
    async with conversing(Everything(), version=writer, store=store) as first:
        session_id = await first.open_session()
        for text in ("one", "two"):
            await (first.turn if writer == 2 else first.prompt)(session_id, text)
        if writer == 2:
            await first.came(lambda _: len(first.ends()) == 2)
        live = first.messages
    replays = []
    for _ in range(2):
        async with conversing(Everything(), version=2, store=store) as hand:
            start = {"type": "start"}
            answer = await hand.result(
                "session/resume", sessionId=session_id, cwd="/", replayFrom=start
            )
            assert [each["configId"] for each in answer["configOptions"]] == ["mode", "loud"]
            assert hand.messages[-1]["result"] == answer, "nothing follows"
            assert hand.updates()[-1] == {"sessionUpdate": "state_update", "state": "idle"}
            assert hand.updates("notice") == []
            replays.append(hand.updates())
            users = hand.updates("user_message")
            assert [each["content"] for each in users] == [
                [{"type": "text", "text": text}] for text in ("one", "two")
            ]
            ids = [each.get("messageId") for each in hand.updates() if "messageId" in each]
            assert len(set(ids)) == 7, "one is continued in the second turn"
            (call,) = {each["toolCallId"] for each in hand.updates("tool_call_update")}
            assert call == "c1"
            if writer == 2:
                told = [
                    each["result"]["messageId"]
                    for each in live
                    if "messageId" in each.get("result", ())
                ]
                assert [each["messageId"] for each in users] == told
                before, now = screen(first), screen(hand)
                assert now["messages"] == before["messages"]
                assert now["calls"] == before["calls"]
                assert now["plans"] == before["plans"]
    assert replays[0] == replays[1], "ids are the same in every replay"
    async with conversing(Everything(), version=2, store=store) as hand:
        await hand.result("session/resume", sessionId=session_id, cwd="/")
        assert hand.updates() == [{"sessionUpdate": "state_update", "state": "idle"}]
        error = await hand.error(
            "session/resume", sessionId=session_id, cwd="/", replayFrom={"type": "_far"}
        )
        assert error["code"] == -32602


async def test_a_session_of_a_client_of_acp_2_is_loaded_by_one_of_acp_1(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    texts = []
    for version in (1, 2):
        async with conversing(Everything(), version=version, store=store) as first:
            session_id = await first.open_session()
            await (first.turn if version == 2 else first.prompt)(session_id, "one")
        async with conversing(Everything(), store=store) as hand:
            await hand.result("session/load", sessionId=session_id, cwd="/", mcpServers=[])
            texts.append(
                [
                    {key: value for key, value in each.items() if key != "messageId"}
                    for each in hand.updates()
                ]
            )
    assert texts[0] == texts[1]


async def test_v2_list_201_202_203_204_delete_201_202_203_sessions_are_listed_and_deleted(
    tmp_path: Path,
) -> None:
    async with conversing(waits, version=2, store=SessionStore(tmp_path)) as hand:
        session_id = await hand.open_session()
        (listed,) = (await hand.result("session/list"))["sessions"]
        assert (listed["sessionId"], listed["cwd"]) == (session_id, "/")
        assert (await hand.result("session/list", cwd="/nowhere"))["sessions"] == []
        assert (await hand.error("session/list", cwd="relative"))["code"] == -32602
        for _ in range(2):
            assert await hand.result("session/delete", sessionId=session_id) == {}
        assert (await hand.result("session/list"))["sessions"] == []


async def test_an_agent_without_a_store_lists_and_resumes_what_is_open() -> None:
    async with conversing(Everything(), version=2) as hand:
        session_id = await hand.open_session()
        assert (await hand.result("session/list"))["sessions"] == [
            {"sessionId": session_id, "cwd": "/"}
        ]
        answer = await hand.result("session/resume", sessionId=session_id, cwd="/")
        assert answer["configOptions"]
        assert hand.updates() == [{"sessionUpdate": "state_update", "state": "idle"}]
        assert (await hand.error("session/delete", sessionId=session_id))["code"] == -32601


async def test_v2_info_unknownsession_001_an_unknown_session_is_not_found(tmp_path: Path) -> None:
    async with conversing(Everything(), version=2, store=SessionStore(tmp_path)) as hand:
        for method, params in (
            ("session/prompt", {"prompt": [LINK]}),
            ("session/resume", {"cwd": "/"}),
            ("session/set_config_option", {"configId": "mode", "type": "id", "value": "ask"}),
        ):
            error = await hand.error(method, sessionId="session-none", **params)
            assert (error["code"], error["data"]) == (-32002, {"sessionId": "session-none"})
            assert "\n" not in error["message"]
        assert await hand.result("session/close", sessionId="session-none") == {}


async def test_v2_adddirs_201_202_mcp_201_folders_and_servers_reach_the_agent(
    tmp_path: Path,
) -> None:
    seen: list[Any] = []

    class Looks:
        prompt = staticmethod(waits)

        async def open_session(self, session: Any) -> None:
            seen.append((session.roots, session.mcp_servers))

    server = {"type": "stdio", "name": "s", "command": "/bin/true"}
    params = {"cwd": "/", "additionalDirectories": [str(tmp_path)], "mcpServers": [server]}
    async with conversing(Looks(), version=2, store=SessionStore(tmp_path / "s")) as hand:
        made = await hand.result("session/new", **params)
        await hand.result("session/close", sessionId=made["sessionId"])
        await hand.result("session/resume", sessionId=made["sessionId"], **params)
    assert [roots for roots, _ in seen] == [(Path("/"), tmp_path)] * 2
    assert [len(servers) for _, servers in seen] == [1, 1]


# ---- transports ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_script_that_pipes_a_prompt_in_acp_2_gets_the_end_of_its_turn(tmp_path: Path) -> None:
    program = tmp_path / "slow.py"
    program.write_text(
        "import anyio\nfrom quarterdeck.agent import serve_stdio\n"
        "class Agent:\n"
        "    async def open_session(self, session):\n        pass\n"
        "    async def prompt(self, turn):\n"
        "        await anyio.sleep(0.3)\n        yield 'late'\n"
        "serve_stdio(Agent())\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(ROOT / "src"),
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(number: int, method: str, **params: Any) -> None:
        assert process.stdin is not None
        call = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        process.stdin.write(json.dumps(call).encode() + b"\n")
        process.stdin.flush()

    ask(1, "initialize", protocolVersion=2, info=INFO)
    process.stdout.readline()
    ask(2, "session/new", cwd="/")
    session_id = json.loads(process.stdout.readline())["result"]["sessionId"]
    ask(3, "session/prompt", sessionId=session_id, prompt=[{"type": "text", "text": "go"}])
    process.stdin.close()
    lines = [json.loads(line) for line in process.stdout]
    process.stdout.close()
    assert process.wait(30) == 0
    updates = [each["params"]["update"] for each in lines if "method" in each]
    assert updates[-1] == {
        "sessionUpdate": "state_update",
        "state": "idle",
        "stopReason": "end_turn",
    }
    assert updates[-2]["content"]["text"] == "late"


@pytest.mark.slow
async def test_our_own_host_speaks_acp_2_with_our_own_agent(tmp_path: Path) -> None:
    assert EXAMPLE.exists()
    with anyio.fail_after(90):
        async with Host(HostOptions(storage=MemoryStorage())) as host:
            agent = await host.spawn_agent({**definition(tmp_path / "s"), "protocol": 2})
            session = await host.create_session(agent.agent_id, cwd=str(tmp_path))
            session_id = session.session_id
            result = await host.prompt(session_id, "echo hello ")
            assert result["stopReason"] == "end_turn"
            await host.set_config_option(session_id, "mode", "safe")
            await host.close_session(session_id)
            await host.load_session(agent.agent_id, session_id, cwd=str(tmp_path))
            found = host.get_session(session_id)
            assert found is not None
            assert found.status == "active"
