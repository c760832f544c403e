"""A session as clients see it: what is offered, opened and set, and in which order."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from typing_extensions import override

from quarterdeck.agent import (
    AgentServer,
    AgentSession,
    AgentTurn,
    Info,
    McpServer,
    Mode,
    SessionStore,
    Stop,
)
from quarterdeck.errors import AgentError, RpcError
from tests.agent.support import ALL_CAPABILITIES, Json, conversing

MODES = (Mode("full", "Full Access", "All tools available"), Mode("safe", "Safe Mode"))


async def echo(turn: AgentTurn) -> AsyncIterator[str]:
    yield "You said: "
    yield turn.text


class Moody:
    """An agent with modes, options and commands that notes what happens to it."""

    info = Info("moody", "2.0", "The Moody Agent")
    modes = MODES

    def __init__(self) -> None:
        self.events: list[Any] = []

    async def prompt(self, turn: AgentTurn) -> AsyncIterator[str]:
        yield f"{turn.session.mode} {turn.session.config['model']}"

    async def open_session(self, session: AgentSession) -> None:
        self.events.append(("open", session.id))

    async def close_session(self, session: AgentSession) -> None:
        self.events.append(("close", session.id))

    async def set_mode(self, _session: AgentSession, mode_id: str) -> None:
        self.events.append(("mode", mode_id))

    def config_options(self, _session: AgentSession) -> list[Json]:
        models = [{"value": each, "name": each.upper()} for each in ("small", "large")]
        return [
            {
                "id": "model",
                "name": "Model",
                "category": "model",
                "type": "select",
                "currentValue": "small",
                "options": [{"group": "g", "name": "All", "options": models}],
            }
        ]

    async def set_config_option(self, _session: AgentSession, config_id: str, value: Any) -> None:
        self.events.append((config_id, value))

    def commands(self, _session: AgentSession) -> list[Json]:
        return [{"name": "plan", "description": "Make a plan", "input": {"hint": "of what"}}]


async def test_a_function_is_an_agent_and_offers_only_what_it_has() -> None:
    async with conversing(echo, initializes=False) as client:
        answer = await client.result("initialize", protocolVersion=1)
        session_id = await client.open_session()
        assert (await client.prompt(session_id, " two  blanks\n"))["result"] == {
            "stopReason": "end_turn"
        }
    assert answer["protocolVersion"] == 1
    assert answer["agentInfo"]["name"] == "echo"
    assert answer["authMethods"] == []
    assert answer["agentCapabilities"] == {
        "loadSession": False,
        "promptCapabilities": {"image": False, "audio": False, "embeddedContext": False},
        "mcpCapabilities": {"http": False, "sse": False},
        "sessionCapabilities": {"close": {}, "additionalDirectories": {}},
    }
    assert client.texts() == ["You said: ", " two  blanks\n"]


async def test_an_agent_with_a_store_offers_to_list_load_resume_and_delete(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    async with conversing(Moody(), store=store, initializes=False) as client:
        answer = await client.result("initialize", protocolVersion=7)
    assert answer["protocolVersion"] == 1
    assert answer["agentInfo"] == {"name": "moody", "version": "2.0", "title": "The Moody Agent"}
    assert answer["agentCapabilities"]["loadSession"] is True
    offered = answer["agentCapabilities"]["sessionCapabilities"]
    assert sorted(offered) == ["additionalDirectories", "close", "delete", "list", "resume"]


async def test_the_users_prompt_is_not_echoed() -> None:
    async with conversing(echo) as client:
        await client.prompt(await client.open_session())
    assert client.updates("user_message_chunk") == []


async def test_a_new_session_sends_its_modes_and_options_and_then_its_commands() -> None:
    async with conversing(Moody()) as client:
        created = await client.result("session/new", cwd="/", mcpServers=[])
        await client.came(lambda each: each.get("method") == "session/update")
    assert created["modes"] == {
        "currentModeId": "full",
        "availableModes": [
            {"id": "full", "name": "Full Access", "description": "All tools available"},
            {"id": "safe", "name": "Safe Mode"},
        ],
    }
    assert [each["id"] for each in created["configOptions"]] == ["mode", "model"]
    *_, answer, last = client.messages
    assert answer["result"] == created
    assert last["params"]["sessionId"] == created["sessionId"]
    assert last["params"]["update"]["availableCommands"][0]["name"] == "plan"


async def test_a_mode_is_sent_before_its_answer_and_kept_in_step_with_the_option() -> None:
    agent = Moody()
    async with conversing(agent) as client:
        session_id = await client.open_session()
        assert (await client.result("session/set_mode", sessionId=session_id, modeId="safe")) == {}
        first, second, answer = client.messages[-3:]
        await client.prompt(session_id)
    assert first["params"]["update"] == {
        "sessionUpdate": "current_mode_update",
        "currentModeId": "safe",
    }
    assert second["params"]["update"]["configOptions"][0]["currentValue"] == "safe"
    assert answer["result"] == {}
    assert client.texts() == ["safe small"]
    assert ("mode", "safe") in agent.events


async def test_the_mode_can_be_set_as_an_option_and_both_are_told() -> None:
    agent = Moody()
    async with conversing(agent) as client:
        session_id = await client.open_session()
        named = {"sessionId": session_id, "configId": "mode", "value": "safe"}
        answer = await client.result("session/set_config_option", **named)
        await client.prompt(session_id)
    assert answer["configOptions"][0]["currentValue"] == "safe"
    assert client.updates("current_mode_update")[0]["currentModeId"] == "safe"
    assert len(client.updates("config_option_update")) == 1
    assert client.texts() == ["safe small"]
    assert ("mode", "safe") in agent.events


async def test_an_option_in_a_group_can_be_set() -> None:
    agent = Moody()
    async with conversing(agent) as client:
        session_id = await client.open_session()
        named = {"sessionId": session_id, "configId": "model", "value": "large"}
        answer = await client.result("session/set_config_option", **named)
        await client.prompt(session_id)
    assert answer["configOptions"][1]["currentValue"] == "large"
    assert client.texts() == ["full large"]
    assert ("model", "large") in agent.events


async def test_a_prompt_behind_a_change_of_mode_sees_the_new_mode() -> None:
    class Slow(Moody):
        @override
        async def set_mode(self, session: AgentSession, mode_id: str) -> None:
            await may_go_on.wait()
            await super().set_mode(session, mode_id)

    may_go_on = anyio.Event()
    async with conversing(Slow()) as client:
        session_id = await client.open_session()
        await client.ask("session/set_mode", sessionId=session_id, modeId="safe")
        prompt = await client.ask_prompt(session_id)
        await client.prompt(session_id)  # refused: by now the first one has been read
        assert client.texts() == []
        may_go_on.set()
        await client.answered(prompt)
    assert client.texts() == ["safe small"]


async def test_a_mode_that_the_agent_refuses_is_not_set() -> None:
    class Stubborn(Moody):
        @override
        async def set_mode(self, _session: AgentSession, mode_id: str) -> None:
            raise AgentError(f"{mode_id} needs a sandbox; start one")

    async with conversing(Stubborn()) as client:
        session_id = await client.open_session()
        error = await client.error("session/set_mode", sessionId=session_id, modeId="safe")
        await client.prompt(session_id)
    assert error == {"code": -32603, "message": "safe needs a sandbox; start one"}
    assert client.updates("current_mode_update") == []
    assert client.texts() == ["full small"]


async def test_an_agent_can_change_mode_and_title_by_itself() -> None:
    class Planner(Moody):
        @override
        async def prompt(self, turn: AgentTurn) -> AsyncIterator[str]:
            turn.session.title = "A plan"
            turn.session.change_mode("safe")
            with pytest.raises(AgentError, match="there is no mode 'wild'"):
                turn.session.change_mode("wild")
            yield str(turn.session.mode)

    async with conversing(Planner()) as client:
        await client.prompt(await client.open_session())
    assert client.updates("session_info_update")[0]["title"] == "A plan"
    assert client.updates("current_mode_update")[0]["currentModeId"] == "safe"
    assert client.texts() == ["safe"]


async def test_a_session_knows_its_folder_and_its_mcp_servers(tmp_path: Path) -> None:
    opened: list[AgentSession] = []

    class Curious:
        async def prompt(self, _turn: AgentTurn) -> None:
            pass

        async def open_session(self, session: AgentSession) -> None:
            opened.append(session)

    entry = {"name": "db", "command": "/bin/db", "args": ["-v"]}
    env = [{"name": "KEY", "value": "secret"}]
    more = tmp_path / "more"
    more.mkdir()
    async with conversing(Curious()) as client:
        await client.open_session(
            cwd=str(tmp_path),
            mcpServers=[{**entry, "env": env}, {**entry, "type": "stdio", "name": "x", "env": []}],
            additionalDirectories=[str(more)],
        )
    (session,) = opened
    assert session.cwd == tmp_path
    assert session.roots == (tmp_path, more)
    assert session.mcp_servers[0] == McpServer("db", "/bin/db", ("-v",), {"KEY": "secret"})
    assert "secret" not in repr(session.mcp_servers)
    assert session.mode is None


async def test_a_session_that_the_agent_refuses_is_not_there(tmp_path: Path) -> None:
    class Picky:
        async def prompt(self, _turn: AgentTurn) -> None:
            pass

        async def open_session(self, session: AgentSession) -> None:
            if session.mcp_servers:
                raise AgentError("mcp server files does not start; is it installed?")
            raise RpcError(-32000, "Authentication required")

    store = SessionStore(tmp_path)
    entry = {"name": "files", "command": "x", "args": [], "env": []}
    async with conversing(Picky(), store=store) as client:
        refused = await client.error("session/new", cwd="/", mcpServers=[entry])
        unknown = await client.error("session/new", cwd="/", mcpServers=[])
    assert refused["message"] == "mcp server files does not start; is it installed?"
    assert unknown == {"code": -32000, "message": "Authentication required"}
    assert store.list() == []


async def test_sessions_are_closed_on_request_and_when_the_client_leaves() -> None:
    agent = Moody()
    async with conversing(agent) as client:
        first, second = await client.open_session(), await client.open_session()
        assert await client.result("session/close", sessionId=first) == {}
        error = await client.error("session/prompt", sessionId=first, prompt=[])
        assert error["data"] == f"session not found: {first}"
        assert agent.events[-1] == ("close", first)
    assert agent.events[-1] == ("close", second)


async def test_a_session_belongs_to_the_client_that_opened_it(tmp_path: Path) -> None:
    server = AgentServer(Moody(), store=SessionStore(tmp_path))
    async with conversing(server) as one, conversing(server) as other:
        session_id = await one.open_session()
        sentence = f"{session_id} is open at another client; close it there"
        named = {"sessionId": session_id, "cwd": "/", "mcpServers": [], "modeId": "safe"}
        blocks = [{"type": "text", "text": "x"}]
        for method in ("load", "resume", "prompt", "close", "delete", "set_mode"):
            error = await other.error(f"session/{method}", **named, prompt=blocks)
            assert error == {"code": -32600, "message": "Invalid Request", "data": sentence}
        await other.notify("session/cancel", sessionId=session_id)
        assert (await one.prompt(session_id))["result"]["stopReason"] == "end_turn"


async def test_authentication_is_the_agents_business() -> None:
    class Locked:
        auth_methods = ({"id": "key", "name": "A key"},)
        known: list[str] = []  # noqa: RUF012

        async def prompt(self, _turn: AgentTurn) -> None:
            pass

        async def authenticate(self, method_id: str) -> None:
            self.known.append(method_id)

        async def logout(self) -> None:
            self.known.append("out")

    async with conversing(Locked(), initializes=False) as client:
        answer = await client.result("initialize", protocolVersion=1)
        assert answer["authMethods"] == [{"id": "key", "name": "A key"}]
        assert answer["agentCapabilities"]["auth"] == {"logout": {}}
        assert await client.result("authenticate", methodId="key") == {}
        assert await client.result("logout") == {}
    assert Locked.known == ["key", "out"]


async def test_the_client_can_be_called_in_every_way_it_offers() -> None:
    seen: list[Any] = []

    async def busy(turn: AgentTurn) -> AsyncIterator[str]:
        client = turn.client
        seen.extend([client.can_read_files, client.can_write_files, client.has_terminals])
        yield await client.read_text_file("/a", line=2, limit=3)
        await client.write_text_file("/b", "text")
        env = {"A": "1"}
        async with await client.create_terminal("make", ["-j"], cwd="/", env=env) as terminal:
            await terminal.wait_for_exit()
            yield (await terminal.output()).output
            await terminal.kill()
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        seen.append(await client.elicit("Who?", schema))
        seen.append(await client.elicit_by_url("Log in", "https://example.com/login", "e1"))
        await client.complete_elicitation("e1")

    async with conversing(busy, capabilities=ALL_CAPABILITIES) as client:
        client.answers = {
            "fs/read_text_file": lambda params: {"content": f"{params['path']} "},
            "fs/write_text_file": lambda _params: None,
            "terminal/create": lambda _params: {"terminalId": "t1"},
            "terminal/wait_for_exit": lambda _params: {"exitCode": 0},
            "terminal/output": lambda _params: {"output": "made", "truncated": False},
            "terminal/kill": lambda _params: {},
            "terminal/release": lambda _params: {},
            "elicitation/create": lambda _p: {"action": "accept", "content": {"name": "Ada"}},
        }
        answer = await client.prompt(await client.open_session())
    assert answer["result"] == {"stopReason": "end_turn"}
    assert client.texts() == ["/a ", "made"]
    assert seen == [True, True, True, *[{"action": "accept", "content": {"name": "Ada"}}] * 2]
    called = [each["method"] for each in client.messages if "id" in each and "method" in each]
    assert called[-3:] == ["terminal/release", "elicitation/create", "elicitation/create"]
    last = [each for each in client.messages if each.get("method") == "elicitation/complete"]
    assert [each["params"] for each in last] == [{"elicitationId": "e1"}]


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("reading files", lambda client: client.read_text_file("/a")),
        ("writing files", lambda client: client.write_text_file("/a", "")),
        ("terminals", lambda client: client.create_terminal("ls")),
        ("forms", lambda client: client.elicit("?", {})),
        ("opening addresses", lambda client: client.elicit_by_url("?", "https://a.example", "e")),
        ("opening addresses", lambda client: client.complete_elicitation("e")),
    ],
)
async def test_a_client_gets_no_request_for_what_it_did_not_offer(what: str, call: Any) -> None:
    async def hopeful(turn: AgentTurn) -> None:
        await call(turn.client)

    async with conversing(hopeful) as client:
        answer = await client.prompt(await client.open_session())
    assert answer["error"]["message"] == f"this client does not offer {what}"


@pytest.mark.parametrize("reason", ["max_tokens", "max_turn_requests", "refusal", "end_turn"])
async def test_a_turn_ends_for_the_reason_the_agent_gives(reason: str) -> None:
    async def yields(_turn: AgentTurn) -> AsyncIterator[Any]:
        yield Stop(reason)

    async def returns(_turn: AgentTurn) -> str:
        return reason

    for agent in (yields, returns):
        async with conversing(agent) as client:
            answer = await client.prompt(await client.open_session())
        assert answer["result"] == {"stopReason": reason}


async def test_a_mapping_is_sent_as_it_is() -> None:
    update = {
        "sessionUpdate": "tool_call",
        "toolCallId": "t1",
        "title": "Read",
        "status": "in_progress",
        "_meta": {"mine": [1]},
    }

    async def tool(_turn: AgentTurn) -> AsyncIterator[Json]:
        yield update

    async with conversing(tool) as client:
        await client.prompt(await client.open_session())
    assert client.updates() == [update]


async def test_the_text_of_a_prompt_has_embedded_texts_and_names_links() -> None:
    class Reader:
        prompt_capabilities = {"image": True, "embeddedContext": True}  # noqa: RUF012

        async def prompt(self, turn: AgentTurn) -> AsyncIterator[str]:
            yield turn.text
            yield str(len(turn.prompt))

    blocks = [
        {"type": "text", "text": " Look:\n"},
        {"type": "resource", "resource": {"uri": "file:///a.py", "text": "x = 1"}},
        {"type": "resource_link", "uri": "file:///b.py", "name": "b.py"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    ]
    async with conversing(Reader()) as client:
        session_id = await client.open_session()
        await client.result("session/prompt", sessionId=session_id, prompt=blocks)
    assert client.texts() == [" Look:\n\nfile:///a.py:\nx = 1\n[b.py](file:///b.py)", "4"]


async def test_every_session_begins_with_the_initial_message(tmp_path: Path) -> None:
    async def agent(turn: AgentTurn) -> AsyncIterator[str]:
        yield str(turn.session.initial_message)

    server = AgentServer(agent, store=SessionStore(tmp_path), initial_message="Be brief.")
    async with conversing(server) as client:
        session_id = await client.open_session()
        await client.prompt(session_id)
        await client.result("session/resume", sessionId=session_id, cwd="/")
        await client.prompt(session_id)
    assert client.texts() == ["Be brief.", "Be brief."]


async def test_ids_of_sessions_sort_by_age_and_are_safe_as_names() -> None:
    async with conversing(echo) as client:
        ids = [await client.open_session() for _ in range(20)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 20
    assert all(each.startswith("session-") for each in ids)
