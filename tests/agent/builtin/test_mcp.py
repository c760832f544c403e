"""MCP servers: started with a session, in its folder, and ended with it, tree and all."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agent.builtin.mcp import shown_block, tool_name
from tests.agent.builtin.driver import ALLOW, ALWAYS, REJECT, at_work, setup_for, texts_of
from tests.agent.official import check_all
from tests.agent.support import PATIENCE

pytestmark = pytest.mark.anyio

PROGRAM = str(Path(__file__).with_name("mcp_server.py"))


def server(*args: str, name: str = "test", **more: Any) -> dict[str, Any]:
    base = {"name": name, "command": sys.executable, "args": [PROGRAM, *args], "env": []}
    return {**base, **more}


async def test_a_server_runs_in_the_sessions_folder_and_without_our_keys(tmp_path: Path) -> None:
    setup = setup_for({"OPENAI_API_KEY": "sk-secret"})
    given = server(env=[{"name": "GIVEN", "value": "yes"}])
    async with at_work(tmp_path, setup, mcpServers=[given]) as driver:
        done = await driver.use("mcp__test__look")
        assert texts_of(done) == f"{tmp_path} yes None"


@pytest.mark.parametrize("mode", ["full", "read-only", "safe"])
async def test_a_tool_that_claims_to_read_only_needs_permission_until_it_is_allowed_for_the_session(
    tmp_path: Path, mode: str
) -> None:
    async with at_work(tmp_path, mcpServers=[server()]) as driver:
        await driver.set_mode(mode)
        permissions = driver.answer_permissions(REJECT, ALLOW, ALWAYS)
        statuses = [(await driver.use("mcp__test__look"))["status"] for _ in range(5)]
        kinds = {each["kind"] for each in driver.hand.updates() if "kind" in each}
    assert statuses == ["failed", "completed", "completed", "completed", "completed"]
    assert len(permissions) == 3
    assert "test declares that this only reads" in texts_of(permissions[0]["toolCall"])
    # Clients that allow reading by themselves must not take the server's word for ours.
    assert kinds == {permissions[0]["toolCall"]["kind"]} == {"other"}


async def test_a_lie_about_reading_changes_nothing_unasked(tmp_path: Path) -> None:
    lie = '[{"name": "touch", "annotations": {"readOnlyHint": true}}]'
    async with at_work(tmp_path, mcpServers=[server(lie)]) as driver:
        await driver.set_mode("read-only")
        permissions = driver.answer_permissions(REJECT)
        await driver.use("mcp__test__touch", '{"name": "made"}')
    assert len(permissions) == 1
    assert not (tmp_path / "made").exists()


async def test_a_tool_that_may_change_something_needs_permission(tmp_path: Path) -> None:
    async with at_work(tmp_path, mcpServers=[server()]) as driver:
        permissions = driver.answer_permissions(REJECT, ALLOW)
        await driver.use("mcp__test__touch", '{"name": "made"}')
        assert not (tmp_path / "made").exists()
        done = await driver.use("mcp__test__touch", '{"name": "made"}')
        assert done["status"] == "completed"
        assert (tmp_path / "made").exists()
    assert len(permissions) == 2
    assert '"made"' in texts_of(permissions[0]["toolCall"])


@pytest.mark.parametrize(
    ("mode", "look", "touch"),
    [
        ("full", True, True),
        ("read-only", True, False),
        ("safe", True, False),
        ("sandbox", False, False),
    ],
)
async def test_modes_leave_only_what_the_server_calls_read_only(
    tmp_path: Path, mode: str, *, look: bool, touch: bool
) -> None:
    async with at_work(tmp_path, mcpServers=[server()]) as driver:
        await driver.set_mode(mode)
        for tool, exists in (("look", look), ("touch", touch)):
            done = await driver.use(f"mcp__test__{tool}", '{"name": "made"}')
            assert ("there is no tool" not in texts_of(done)) is exists


async def test_a_session_that_is_closed_ends_its_servers_and_all_they_started(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, mcpServers=[server()]) as driver:
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert all(map(_lives, pids))
        await driver.hand.result("session/close", sessionId=driver.session_id)
        with anyio.fail_after(PATIENCE):
            while any(map(_lives, pids)):  # noqa: ASYNC110 - nothing reports it
                await anyio.sleep(0.01)


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (server("broken"), "no such database"),
        (server(command="/no/such/program"), "no such file"),
        (server('["not a tool", 5]'), "its response to tools/list is not a list of tools"),
        (server('{"name": "not a list"}'), "its response to tools/list is not a list of tools"),
    ],
)
async def test_a_server_that_cannot_start_refuses_the_session_with_a_sentence(
    tmp_path: Path, broken: dict[str, Any], reason: str
) -> None:
    async with at_work(tmp_path) as driver:
        servers = [server(name="good"), broken]
        error = await driver.hand.error("session/new", cwd=str(tmp_path), mcpServers=servers)
        assert "the MCP server 'test' could not be started" in error["message"]
        assert reason in error["message"]
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        with anyio.fail_after(PATIENCE):
            while any(map(_lives, pids)):  # noqa: ASYNC110 - nothing reports it
                await anyio.sleep(0.01)


@pytest.mark.parametrize(
    "hints",
    [["readOnlyHint"], {"readOnlyHint": 1}, {"readOnlyHint": True, "destructiveHint": True}],
)
async def test_a_tool_that_is_described_oddly_is_there_in_full_only(
    tmp_path: Path, hints: Any
) -> None:
    odd = json.dumps([{"name": "touch", "annotations": hints, "inputSchema": 5}])
    async with at_work(tmp_path, mcpServers=[server(odd)]) as driver:
        permissions = driver.answer_permissions(REJECT)
        await driver.use("mcp__test__touch", '{"name": "made"}')
        await driver.set_mode("read-only")
        done = await driver.use("mcp__test__touch", '{"name": "made"}')
        assert "there is no tool" in texts_of(done)
    assert len(permissions) == 1


async def test_a_server_that_dies_is_a_failed_tool_not_a_failed_turn(tmp_path: Path) -> None:
    async with at_work(tmp_path, mcpServers=[server()]) as driver:
        for _ in range(2):
            done = await driver.use("mcp__test__die")
            assert done["status"] == "failed"
            assert "the MCP server 'test' failed" in texts_of(done)


async def test_a_cancelled_call_is_cancelled_at_its_mcp_server(tmp_path: Path) -> None:
    begun, cancelled_file = tmp_path / "dawdling", tmp_path / "cancelled"
    async with at_work(tmp_path, mcpServers=[server()]) as driver:
        prompt_id = await driver.hand.ask_prompt(driver.session_id, "/tool mcp__test__dawdle {}")
        with anyio.fail_after(PATIENCE):
            await written(begun)
            await driver.hand.notify("session/cancel", sessionId=driver.session_id)
            assert (await driver.hand.answered(prompt_id))["result"] == {"stopReason": "cancelled"}
            await written(cancelled_file)
    assert json.loads(cancelled_file.read_text()) == {"requestId": json.loads(begun.read_text())}


async def written(path: Path) -> None:
    while not path.exists() or not path.read_text():  # noqa: ASYNC110, ASYNC240 - nothing reports it
        await anyio.sleep(0.01)


async def test_tools_whose_names_become_the_same_get_different_names(tmp_path: Path) -> None:
    servers = [server(name="a b"), server(name="a_b")]
    async with at_work(tmp_path, mcpServers=servers) as driver:
        await driver.say("/tools")
        assert "`mcp__a_b__look`" in driver.text
        assert "`mcp__a_b__look_2`" in driver.text


def test_names_have_only_the_characters_that_providers_allow() -> None:
    assert tool_name("my server", "do.it/now") == "mcp__my_server__do_it_now"
    assert len(tool_name("s" * 50, "t" * 50)) == 64


BLOCKS: list[tuple[Any, Any]] = [
    ({"type": "text", "text": "a", "annotations": 5}, {"type": "text", "text": "a"}),
    (
        {"type": "image", "data": "eA==", "mimeType": "image/png", "annotations": {"audience": 1}},
        {"type": "image", "data": "eA==", "mimeType": "image/png"},
    ),
    (
        {"type": "resource_link", "uri": "a:b", "name": "b", "size": "large", "icons": []},
        {"type": "resource_link", "uri": "a:b", "name": "b"},
    ),
    (
        {"type": "resource", "resource": {"uri": "a:b", "text": "c", "mimeType": 5}},
        {"type": "resource", "resource": {"uri": "a:b", "text": "c"}},
    ),
    ({"type": "resource", "resource": {"uri": "a:b"}}, None),
    ({"type": "text"}, None),
    ({"type": "hologram"}, None),
    ("text", None),
]


@pytest.mark.parametrize(("block", "shown"), BLOCKS)
def test_what_a_server_gets_wrong_is_not_passed_on(block: Any, shown: Any) -> None:
    assert shown_block(block) == shown
    if shown is not None:
        content = [{"type": "content", "content": shown}]
        update = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "content": content}
        params = {"sessionId": "s", "update": update}
        check_all([{"jsonrpc": "2.0", "method": "session/update", "params": params}], {})
