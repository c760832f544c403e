"""A permission request of Claude Code is answered here, or withdrawn when it was answered there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process, SocketStream

from quarterdeck.agents.adapters.claude import permission_hook
from quarterdeck.errors import RequestRejected
from quarterdeck.policy import Policy, Rule
from quarterdeck.runner import Runner
from quarterdeck.runner.adoption import follower as following, hook_requests
from quarterdeck.runner.adoption.hook_file import ProgramHook
from quarterdeck.testing.foreign import ClaudeProgram
from tests.runner.adoption.kit import log_of, program, running

pytestmark = pytest.mark.anyio

GIVEN = {"command": "touch a.txt"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(hook_requests, "CHECK_SECONDS", 0.02)


@asynccontextmanager
async def asked(
    folder: Path, claude: ClaudeProgram, socket: str = "home/adopt.sock"
) -> AsyncIterator[Process]:
    """Run the hook as Claude Code does, while its dialog is on the screen."""
    claude.run("waiting", waiting_for="permission prompt")
    hook = {
        "hook_event_name": "PermissionRequest",
        "session_id": claude.session_id,
        "transcript_path": str(claude.path),
        "cwd": claude.cwd,
        "tool_name": "Bash",
        "tool_input": GIVEN,
    }
    command = [sys.executable, "-I", permission_hook.__file__, str(folder / socket)]
    async with await anyio.open_process(command, stderr=subprocess.STDOUT) as process:
        assert process.stdin is not None
        await process.stdin.send(json.dumps(hook).encode())
        await process.stdin.aclose()
        yield process


async def printed(process: Process) -> Any:
    assert process.stdout is not None
    text = b""
    async for data in process.stdout:
        text += data
    assert await process.wait() == 0
    return json.loads(text)["hookSpecificOutput"]["decision"] if text else None


@asynccontextmanager
async def adopting(folder: Path, **more: Any) -> AsyncIterator[tuple[Runner, ClaudeProgram, str]]:
    claude = program(folder)
    claude.prompt("make a file")
    call_id = claude.start_call("Bash", GIVEN)
    async with running(folder, **more) as runner:
        await runner.adopt_program("claude")
        yield runner, claude, call_id


async def pending(runner: Runner) -> Any:
    while True:
        if views := runner.pending_permissions():
            return views[0]
        await anyio.sleep(0.01)


async def test_a_request_is_answered_with_a_reason_and_is_in_the_log(tmp_path: Path) -> None:
    async with (
        adopting(tmp_path) as (runner, claude, call_id),
        asked(tmp_path, claude) as hook,
    ):
        view = await pending(runner)
        assert view.request.tool_call["toolCallId"] == call_id
        request_id = view.request.request_id
        await runner.answer_permission(request_id, "reject", reason="not in this folder")
        assert await printed(hook) == {"behavior": "deny", "message": "not in this folder"}
        kinds = [each.type for each in await log_of(runner, claude.session_id)]
        assert kinds.count("permission-request-created") == 1
        assert kinds.count("permission-request-resolved") == 1
        assert kinds.count("tool-call") == 1
        (decision,) = await runner.list_decisions(before=None, session_id=None, limit=5)
        assert decision.session_id == claude.session_id


async def test_a_rule_decides_before_anyone_is_asked(tmp_path: Path) -> None:
    policy = Policy(rule=(Rule(decision="allow", commands=("touch *",)),))
    async with (
        adopting(tmp_path, policy=policy) as (runner, claude, _),
        asked(tmp_path, claude) as hook,
    ):
        assert await printed(hook) == {"behavior": "allow"}
        assert not runner.pending_permissions()


@pytest.mark.parametrize("sign", ["status", "result", "exit"])
async def test_a_request_is_withdrawn_when_the_person_answered_in_the_terminal(
    tmp_path: Path, sign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        adopting(tmp_path) as (runner, claude, call_id),
        asked(tmp_path, claude) as hook,
    ):
        await pending(runner)
        if sign == "status":
            claude.run("busy")
        elif sign == "result":
            claude.end_call(call_id, "done")
        else:
            monkeypatch.setattr(hook_requests, "GRACE_SECONDS", 0.0)
            claude.run("idle").unlink()
        assert await printed(hook) is None
        assert not runner.pending_permissions()
        (resolved,) = [
            each.payload
            for each in await log_of(runner, claude.session_id)
            if each.type == "permission-request-resolved"
        ]
        assert resolved["status"] == "superseded"


async def test_a_request_is_withdrawn_when_its_hook_was_ended(tmp_path: Path) -> None:
    async with (
        adopting(tmp_path) as (runner, claude, _),
        asked(tmp_path, claude) as hook,
    ):
        await pending(runner)
        hook.kill()
        await hook.wait()
        while True:
            if not runner.pending_permissions():
                break
            await anyio.sleep(0.01)


async def test_the_next_runner_is_asked_again(tmp_path: Path) -> None:
    async with adopting(tmp_path) as (runner, claude, _):
        hook = asked(tmp_path, claude)
        process = await hook.__aenter__()
        await pending(runner)
    async with running(tmp_path) as runner:
        request_id = (await pending(runner)).request.request_id
        await runner.answer_permission(request_id, "allow")
        assert await printed(process) == {"behavior": "allow"}
        await hook.__aexit__(None, None, None)


async def test_without_a_runner_the_hook_ends_at_once_and_prints_nothing(tmp_path: Path) -> None:
    with anyio.fail_after(5):
        async with asked(tmp_path, program(tmp_path)) as hook:
            assert await printed(hook) is None


async def connected(path: Path) -> SocketStream:
    """Connect to a socket that is about to listen."""
    with anyio.fail_after(30):
        while True:
            try:
                return await anyio.connect_unix(path)
            except (FileNotFoundError, ConnectionRefusedError):
                await anyio.sleep(0.01)


async def test_garbage_on_the_socket_is_ignored(tmp_path: Path) -> None:
    async with adopting(tmp_path) as (runner, claude, _):
        for data in (
            b"\xff\n",
            b"[]\n",
            b'{"program": "claude", "hook": {}}\n',
            b'{"program": "x"',
        ):
            async with await connected(tmp_path / "home" / "adopt.sock") as stream:
                await stream.send(data)
        async with asked(tmp_path, claude) as hook:
            request_id = (await pending(runner)).request.request_id
            await runner.answer_permission(request_id, "allow")
            assert await printed(hook) == {"behavior": "allow"}


async def test_the_hook_is_installed_and_removed_by_commands(tmp_path: Path) -> None:
    settings = tmp_path / "claude" / "settings.json"
    settings.parent.mkdir()
    before = {"model": "opus", "hooks": {"Stop": []}}
    real = tmp_path / "dotfiles.json"
    real.write_text(json.dumps(before))
    real.chmod(0o640)
    settings.symlink_to(real)
    async with running(tmp_path) as runner:
        shown = (await runner.adopt_program("claude", hook=True)).hook
        assert isinstance(shown, ProgramHook)
        assert shown.is_installed
        assert settings.is_symlink()
        assert real.stat().st_mode & 0o777 == 0o640
        command = json.loads(real.read_text())["hooks"]["PermissionRequest"][0]["hooks"][0]
        assert command["type"] == "command"
        assert command["command"].endswith(f"{tmp_path}/home/adopt.sock")
        removed = (await runner.release_program("claude")).hook
        assert isinstance(removed, ProgramHook)
        assert not removed.is_installed
        assert json.loads(real.read_text()) == before


@pytest.mark.parametrize("text", ["{}", "", '{"hooks": {}}'])
async def test_a_link_to_settings_never_leads_nowhere(tmp_path: Path, text: str) -> None:
    settings, real = tmp_path / "claude" / "settings.json", tmp_path / "dotfiles.json"
    settings.parent.mkdir()
    real.write_text(text)
    settings.symlink_to(real)
    async with running(tmp_path) as runner:
        for _ in range(2):
            await runner.adopt_program("claude", hook=True)
        for _ in range(2):
            await runner.release_program("claude")
        assert json.loads(settings.read_text()) == {}


async def test_settings_that_are_read_only_stay(tmp_path: Path) -> None:
    settings = tmp_path / "claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text("{}")
    settings.chmod(0o444)
    async with running(tmp_path) as runner:
        with pytest.raises(RequestRejected, match="is read-only; make it writable"):
            await runner.adopt_program("claude", hook=True)
    assert (settings.read_text(), list(settings.parent.iterdir())) == ("{}", [settings])


@pytest.mark.parametrize("text", ["// mine\n{}", "[]", "\ufeff{}", '{"hooks":'])
async def test_a_program_whose_settings_cannot_be_read_is_released(
    tmp_path: Path, text: str
) -> None:
    settings = tmp_path / "claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(text)
    async with running(tmp_path) as runner:
        with pytest.raises(RequestRejected, match="repair them"):
            await runner.adopt_program("claude", hook=True)
        await runner.adopt_program("claude")
        await runner.release_program("claude")
        assert runner.adoption.followers == {}
        await runner.adopt_program("claude")
        settings.write_text(f"{text} quarterdeck permission_hook.py")
        with pytest.raises(RequestRejected, match="repair them"):
            await runner.release_program("claude")  # a hook may be left in it
        assert runner.adoption.followers == {}
    assert settings.read_text() == f"{text} quarterdeck permission_hook.py"
