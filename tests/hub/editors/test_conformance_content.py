"""Requirements of ACP's conformance kit on what is said in sessions, for a hub and for an agent.

The names of the tests have the ids, as in `test_conformance_acp.py`.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from quarterdeck.acp import v2
from quarterdeck.agent import AgentTurn, SessionStore
from quarterdeck.errors import RpcError
from quarterdeck.hub import Hub
from tests.agent.support import Hand, conversing
from tests.cli.kit import COMMAND, Console, agent_toml
from tests.hub.api.kit import ASK, Json
from tests.hub.editors.kit import ALLOW, FakeEditor, editor_at, hub_with
from tests.hub.editors.kit_v2 import editor_v2_at, hub_with_v2
from tests.hub.editors.test_conformance_acp import SERVED, peer_of
from tests.taping.tapes import environment

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
VERSIONS = pytest.mark.parametrize("version", [1, 2])
AGENTS = pytest.mark.parametrize("agent", [1, 2])
CONTENT: dict[str, Json] = {
    "image": {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    "audio": {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    "embeddedContext": {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}},
}
PLAN: Json = {"entries": [{"content": "do", "priority": "high", "status": "pending"}]}
STEPS_1: tuple[Json, ...] = (
    {"say": "hi"},
    {"think": "hm"},
    {"tool": "c1", "title": "Edit", "kind": "edit", "diff": {"path": "/a", "old": "x", "new": "y"}},
    {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c2", "status": "completed"}},
    {"finish": "c1"},
    {"update": {"sessionUpdate": "plan", **PLAN}},
    ASK,
)
CALL_2: Json = {"sessionUpdate": "tool_call_update", "toolCallId": "c1"}
TERMINAL: Json = {"sessionUpdate": "terminal_update", "terminalId": "t"}
STEPS_2: tuple[Json, ...] = (
    {"update": {**CALL_2, "title": "ls", "name": "Bash", "kind": "execute"}},
    {"update": {**TERMINAL, "command": "ls", "cwd": "/w"}},
    {"update": {"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": "ww=="}},
    {"update": {"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": "pA=="}},
    {"update": {**CALL_2, "content": [{"type": "terminal", "terminalId": "t"}]}},
    {
        "update": {
            "sessionUpdate": "tool_call_content_chunk",
            "toolCallId": "c1",
            "content": {"type": "content", "content": {"type": "text", "text": "a"}},
        }
    },
    {
        "update": {
            "sessionUpdate": "plan_update",
            "plan": {"type": "items", "planId": "p", **PLAN},
        }
    },
    {"update": {**CALL_2, "status": "completed", "_meta": None}},
    {"ask": {"title": "Run it?", "subject": {"type": "command", "command": "ls", "cwd": "/w"}}},
)


@asynccontextmanager
async def hub_of(agent: int, home: Path, **more: Any) -> AsyncIterator[Hub]:
    if agent == 2:
        async with hub_with_v2(home, *STEPS_2) as (hub, _):
            yield hub
    else:
        async with hub_with(home, *STEPS_1, **more) as (hub, _):
            yield hub


@asynccontextmanager
async def editor_of(version: int, hub: Hub, **capabilities: Any) -> AsyncIterator[FakeEditor]:
    opened: Any = editor_at if version == 1 else editor_v2_at
    async with opened(hub, **capabilities) as editor:
        yield editor


async def _turn(editor: FakeEditor, session_id: str) -> None:
    """Send a prompt, allow what is requested, and wait until the turn has ended."""
    editor.answer = ALLOW
    answer = await editor.prompt(session_id)
    if "stopReason" not in answer:
        await editor.until(lambda: _ends(editor.updates))


def _ends(updates: list[Json]) -> list[Json]:
    return [each for each in updates if each.get("state") == "idle" and "stopReason" in each]


def _is_known(value: Any, known: tuple[str, ...]) -> bool:
    return value is None or value in known or str(value).startswith("_")


# ---- updates -------------------------------------------------------------------------------------


@AGENTS
async def test_v2_patch_204_205_206_207_208_enum_201_202_meta_201_updates_are_well_formed(
    agent: int, tmp_path: Path
) -> None:
    async with hub_of(agent, tmp_path / "home") as hub:
        async with editor_v2_at(hub) as editor:
            session_id = await editor.new(tmp_path)
            await _turn(editor, session_id)
        async with editor_v2_at(hub) as again:
            await again.resume(session_id, tmp_path, {"type": "start"})
    for updates in (editor.updates, again.updates):
        names = {each["sessionUpdate"] for each in updates}
        assert {"tool_call_update", "plan_update", "state_update"} <= names
        _check_updates(updates)


def _check_updates(updates: list[Json]) -> None:
    titles: dict[str, Any] = {}
    names: dict[str, Any] = {}
    folders: dict[str, str] = {}
    for each in updates:
        kind = each["sessionUpdate"]
        assert kind in _VARIANTS or kind.startswith("_"), kind
        assert each.get("_meta") is None or isinstance(each["_meta"], dict)
        if kind.startswith("tool_call"):
            call_id = each["toolCallId"]
            assert isinstance(call_id, str)
            assert kind != "tool_call_content_chunk" or each["content"]
            if call_id not in titles:
                assert isinstance(each.get("title"), str), "the first update has a title"
            titles[call_id] = each.get("title")
            named = each.get("name") or names.get(call_id)
            assert names.setdefault(call_id, named) in (named, None)
            assert _is_known(each.get("kind"), v2.schema.TOOL_KIND_VALUES)
            assert _is_known(each.get("status"), v2.schema.TOOL_CALL_STATUS_VALUES)
        if kind == "plan_update":
            assert each["plan"]["planId"]
            for entry in each["plan"]["entries"]:
                assert _is_known(entry["priority"], v2.schema.PLAN_ENTRY_PRIORITY_VALUES)
                assert _is_known(entry["status"], v2.schema.PLAN_ENTRY_STATUS_VALUES)
        if kind == "terminal_update" and each.get("cwd") is not None:
            assert each["cwd"].startswith("/")
            assert folders.setdefault(each["terminalId"], each["cwd"]) == each["cwd"]
        for data in (each.get("data"), (each.get("output") or {}).get("data")):
            assert data is None or base64.b64decode(data, validate=True) is not None
        if kind == "state_update":
            assert each["state"] in ("running", "idle", "requires_action", "unknown")


_VARIANTS = {
    "user_message",
    "user_message_chunk",
    "agent_message",
    "agent_message_chunk",
    "agent_thought",
    "agent_thought_chunk",
    "state_update",
    "tool_call_update",
    "tool_call_content_chunk",
    "terminal_update",
    "terminal_output_chunk",
    "plan_update",
    "plan_removed",
    "available_commands_update",
    "config_option_update",
    "session_info_update",
    "usage_update",
    "notice",
    "compaction_update",
    "compaction_summary_chunk",
    "subagent_update",
}


@VERSIONS
@AGENTS
async def test_schema_001_002_v2_schema_001_002_messages_have_no_other_keys(
    version: int, agent: int, tmp_path: Path
) -> None:
    """That every message is valid is checked by the tapes of all tests."""
    served = f"hub-{version}"
    async with peer_of(served, tmp_path / str(agent)) as peer:
        told = await peer.initialize()
        made = await peer.ask(1, "session/new", cwd=str(tmp_path), mcpServers=[])
        wrong = await peer.ask(2, "session/prompt", sessionId="none", prompt=[])
        for message in (told, made, wrong):
            assert message.keys() in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"})
            assert message.get("error", {}).keys() <= {"code", "message", "data"}


# ---- prompts -------------------------------------------------------------------------------------


@VERSIONS
@pytest.mark.parametrize("name", list(CONTENT))
async def test_promptcap_001_002_003_v2_promptcap_001_002_003_what_is_offered_is_accepted(
    version: int, name: str, tmp_path: Path
) -> None:
    more = {"capabilities": {"promptCapabilities": dict.fromkeys(CONTENT, True)}}
    async with (
        hub_with(tmp_path / "home", {"say": "hi"}, **more) as (hub, _),
        editor_of(version, hub) as editor,
    ):
        info = {"name": "e", "version": "1"}
        told = await editor.call("initialize", protocolVersion=version, info=info)
        offered = (
            told["agentCapabilities"]["promptCapabilities"]
            if version == 1
            else told["capabilities"]["session"]["prompt"]
        )
        assert name in offered
        session_id = await editor.new(tmp_path)
        blocks = [{"type": "text", "text": "see"}, CONTENT[name]]
        assert await editor.call("session/prompt", sessionId=session_id, prompt=blocks)


@pytest.mark.parametrize("name", list(CONTENT))
async def test_promptcap_001_002_003_an_agent_takes_what_it_offers_and_nothing_else(
    name: str,
) -> None:
    class Takes:
        prompt_capabilities = {name: True}  # noqa: RUF012

        async def prompt(self, turn: AgentTurn) -> None:
            turn.say(turn.prompt[0]["type"])

    async with conversing(Takes()) as hand:
        session_id = await hand.open_session()
        for kind, block in CONTENT.items():
            answer = await hand.call("session/prompt", sessionId=session_id, prompt=[block])
            assert ("result" in answer) == (kind == name)


@AGENTS
async def test_v2_cancel_202_204_207_info_cancel_201_202_nothing_follows_a_cancelled_turn(
    agent: int, tmp_path: Path
) -> None:
    async with hub_of(agent, tmp_path / "home") as hub, editor_v2_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        await editor.prompt(session_id)
        await editor.until(lambda: editor.requests)
        await editor.connection.notify("session/cancel", {"sessionId": session_id})
        with anyio.fail_after(10):
            await editor.until(lambda: _ends(editor.updates))
        (end,) = _ends(editor.updates)
        assert end["stopReason"] == "cancelled"
        place = editor.updates.index(end)
        await editor.call("session/list")
        # A cancel of an idle session, and one of no session, are ignored.
        for named in (session_id, "none"):
            await editor.connection.notify("session/cancel", {"sessionId": named})
        await editor.call("session/list")
        later = [each["sessionUpdate"] for each in editor.updates[place + 1 :]]
        assert set(later) <= {"session_info_update", "usage_update"}


async def test_v2_info_concurrent_201_a_second_prompt_waits_for_its_turn(tmp_path: Path) -> None:
    steps = ({"say": "a"}, {"wait_cancel": True})
    async with hub_with(tmp_path / "home", *steps) as (hub, _), editor_v2_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        await editor.prompt(session_id, "first")
        ends: list[int] = []

        async def second() -> None:
            assert (await editor.prompt(session_id, "second"))["messageId"]
            ends.append(len(_ends(editor.updates)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second)
            await editor.until(lambda: editor.of("agent_message_chunk"))
            assert _ends(editor.updates) == []
            await hub.runner.cancel_turn(session_id)
        assert ends == [1], "the first turn has ended"
        await hub.runner.cancel_turn(session_id)
        await editor.until(lambda: len(_ends(editor.updates)) == 2)


# ---- requests ------------------------------------------------------------------------------------


async def test_clientcap_002_003_neither_terminals_nor_forms_unless_they_are_offered(
    tmp_path: Path,
) -> None:
    form = {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object"}}
    steps = (
        {"request": "terminal/create", "params": {"sessionId": "{session}", "command": "true"}},
        {"request": "elicitation/create", "params": {"sessionId": "{session}", **form}},
    )
    async with (
        hub_with(tmp_path / "home", *steps) as (hub, _),
        editor_at(hub) as plain,
        editor_at(hub, elicitation={"form": {}}) as editor,
    ):
        editor.answer = {"action": "decline"}
        session_id = await plain.new(tmp_path)
        await editor.load(session_id, tmp_path)
        await plain.prompt(session_id)
        assert plain.requests == []
        assert [method for method, _ in editor.requests] == ["elicitation/create"]


async def test_v2_enum_203_a_permission_that_is_answered_strangely_is_not_given(
    tmp_path: Path,
) -> None:
    async with hub_of(1, tmp_path / "home") as hub, editor_v2_at(hub) as editor:
        session_id = await editor.new(tmp_path)
        editor.answer = {"outcome": {"outcome": "_strange", "why": 1}}
        await editor.prompt(session_id)
        await editor.until(lambda: editor.requests)
        assert await editor.call("session/list")
        assert _ends(editor.updates) == [], "others can still answer"


# ---- sessions ------------------------------------------------------------------------------------


@VERSIONS
async def test_delete_001_adddirs_001_v2_delete_201_adddirs_201_202_sessions_have_folders(
    version: int, tmp_path: Path
) -> None:
    capabilities: Json = {"sessionCapabilities": {"additionalDirectories": {}, "resume": {}}}
    more = {"capabilities": capabilities, "methods": {"session/resume": [{"result": {}}]}}
    extra = tmp_path / "extra"
    extra.mkdir()
    async with (
        hub_with(tmp_path / "home", {"say": "hi"}, **more) as (hub, _),
        editor_of(version, hub) as editor,
    ):
        where = {"cwd": str(tmp_path), "additionalDirectories": [str(extra)], "mcpServers": []}
        made = await editor.call("session/new", **where)
        (listed,) = (await editor.call("session/list"))["sessions"]
        assert listed["additionalDirectories"] == [str(extra)]
        answer = await editor.call("session/resume", sessionId=made["sessionId"], **where)
        assert isinstance(answer, dict)
        for wrong in (["relative"], [7], "text"):
            with pytest.raises(RpcError):
                await editor.call("session/new", **{**where, "additionalDirectories": wrong})
        assert await editor.call("session/delete", sessionId=made["sessionId"]) == {}
        assert (await editor.call("session/list"))["sessions"] == []


async def test_v2_mcp_201_202_servers_on_stdio_and_http_are_accepted(tmp_path: Path) -> None:
    more = {"capabilities": {"mcpCapabilities": {"http": True}}}
    servers = [
        {"type": "stdio", "name": "a", "command": "/bin/true"},
        {"type": "http", "name": "b", "url": "http://127.0.0.1:9/mcp"},
    ]
    async with (
        hub_with(tmp_path / "home", {"say": "hi"}, **more) as (hub, _),
        editor_v2_at(hub) as editor,
    ):
        assert "http" in editor.introduced["capabilities"]["session"]["mcp"]
        assert await editor.call("session/new", cwd=str(tmp_path), mcpServers=servers)


async def test_config_001_002_values_fit_their_types_and_answers_have_all_options(
    tmp_path: Path,
) -> None:
    options: list[Json] = [
        {
            "id": "model",
            "name": "Model",
            "type": "select",
            "currentValue": "a",
            "options": [{"value": "a", "name": "A"}, {"value": "b", "name": "B"}],
        },
        {"id": "fast", "name": "Fast", "type": "boolean", "currentValue": False},
    ]
    changed = [{**options[0], "currentValue": "b"}, options[1]]
    more = {
        "sessions": {"configOptions": options},
        "methods": {"session/set_config_option": [{"result": {"configOptions": changed}}]},
    }
    async with (
        hub_with(tmp_path / "home", {"say": "hi"}, **more) as (hub, _),
        editor_at(hub, session={"configOptions": {"boolean": {}}}) as editor,
    ):
        made = await editor.call("session/new", cwd=str(tmp_path), mcpServers=[])
        for option in made["configOptions"]:
            values = [each["value"] for each in option.get("options", ())]
            current = option["currentValue"]
            assert isinstance(current, bool) if option["type"] == "boolean" else current in values
        answer = await editor.call(
            "session/set_config_option", sessionId=made["sessionId"], configId="model", value="b"
        )
        assert [each["currentValue"] for each in answer["configOptions"]] == ["b", False]


async def test_config_001_002_an_agent_answers_with_all_options(tmp_path: Path) -> None:
    class Chooses:
        modes = ({"id": "a", "name": "A"}, {"id": "b", "name": "B"})

        async def prompt(self, turn: AgentTurn) -> None:
            turn.say("hi")

        def config_options(self, _session: Any) -> list[Json]:
            return [{"id": "fast", "name": "Fast", "type": "boolean", "currentValue": False}]

    async with conversing(Chooses(), store=SessionStore(tmp_path)) as hand:
        session_id = await hand.open_session()
        answer = await hand.result(
            "session/set_config_option", sessionId=session_id, configId="fast", value=True
        )
        values = [(each["id"], each["currentValue"]) for each in answer["configOptions"]]
        assert values == [("mode", "a"), ("fast", True)]
        await _lists_and_deletes(hand, session_id)


async def _lists_and_deletes(hand: Hand, session_id: str) -> None:
    assert len((await hand.result("session/list"))["sessions"]) == 1
    assert await hand.result("session/delete", sessionId=session_id) == {}
    assert (await hand.result("session/list"))["sessions"] == []


# ---- signing in ----------------------------------------------------------------------------------


async def test_auth_003_004_v2_auth_205_after_signing_in_a_session_opens(tmp_path: Path) -> None:
    more = {
        "initialize": {
            "authMethods": [{"id": "key", "name": "Key"}],
            "agentCapabilities": {"auth": {"logout": {}}},
        },
        "methods": {"authenticate": [{"result": {}}], "logout": [{"result": {}}]},
    }
    for version, login, logout in ((1, "authenticate", "logout"), (2, "auth/login", "auth/logout")):
        home = tmp_path / f"home{version}"
        async with (
            hub_with(home, {"say": "hi"}, **more) as (hub, _),
            editor_of(version, hub) as editor,
        ):
            assert await editor.call(login, methodId="key") == {}
            assert await editor.new(tmp_path)
            assert await editor.call(logout) == {}


@AGENTS
async def test_v2_auth_207_arguments_of_a_login_by_terminal_are_well_formed(
    agent: int, tmp_path: Path
) -> None:
    """ACP 1 has a table of variables, ACP 2 a list: each client gets those of its version."""
    login = {"type": "terminal", "name": "Terminal", "args": ["login"]}
    more = {"initialize": {"authMethods": [{"id": "tty", **login, "env": {"A": "1", "B": "2"}}]}}
    home = tmp_path / "home"
    opened = hub_with_v2(home) if agent == 2 else hub_with(home, {"say": "hi"}, **more)
    async with opened as (hub, _):
        async with editor_at(hub) as editor:
            offers = {"auth": {"terminal": True}}
            told = await editor.call("initialize", protocolVersion=1, clientCapabilities=offers)
            assert told["authMethods"][-1] == {"id": "tty", **login, "env": {"A": "1", "B": "2"}}
        async with editor_v2_at(hub, auth={"terminal": {}}) as editor:
            pairs = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
            method = editor.introduced["authMethods"][-1]
            assert method == {"methodId": "tty", **login, "env": pairs}
            assert msgspec.convert(method, v2.schema.TerminalAuthMethod).args == ("login",)


@SERVED
async def test_v2_ext_202_203_extensions_are_announced_in_meta(served: str, tmp_path: Path) -> None:
    async with peer_of(served, tmp_path) as peer:
        told = (await peer.initialize())["result"]
        given = told.get("capabilities") or told["agentCapabilities"]
        meta = given.get("_meta", {})
        if served.startswith("hub"):
            assert meta["quarterdeck"]["replayFrom"] == ["_quarterdeck_seq"]
        known = {
            *("session", "auth", "providers", "_meta", "loadSession", "promptCapabilities"),
            *("mcpCapabilities", "sessionCapabilities"),
        }
        assert given.keys() <= known, "everything else is in _meta"


# ---- processes -----------------------------------------------------------------------------------


@pytest.mark.slow
@VERSIONS
@pytest.mark.parametrize("program", ["acp", "proxy"])
def test_shutdown_001_stderr_001_v2_shutdown_001_stderr_001_a_process_ends_with_its_input(
    version: int, program: str, tmp_path: Path
) -> None:
    params = {"protocolVersion": version, "info": {"name": "k", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    call = json.dumps(message) + "\n"
    if program == "acp":
        command = [*map(str, COMMAND), "acp", "--model", "demo", "--no-sessions"]
        done = _run(command, call, environment(ROOT / "src"))
    else:
        desk = Console(tmp_path, agent_toml("mine", {"say": "hi"}))
        with desk.hub():
            done = _run([*map(str, COMMAND), "proxy", "mine"], call, desk.environ)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1, "what is printed for people is on stderr"
    assert f'"protocolVersion":{version}' in done.stdout


def _run(command: list[str], text: str, env: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=60, check=False, env=env
    )
