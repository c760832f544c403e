"""A full disk: a message, nothing half-written, and the session continues later."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quarterdeck.agent import SessionStore
from tests.agent.builtin.driver import SessionDriver, at_work

pytestmark = pytest.mark.anyio


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file of this process become larger; its tapes are an exception."""
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN, "Python sees to that"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def is_whole(lines: bytes) -> bool:
    return lines.endswith(b"\n") and all(json.loads(line) for line in lines.splitlines())


async def test_a_turn_that_cannot_be_kept_is_an_error_and_what_was_kept_stays(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, store=SessionStore(tmp_path / "sessions")) as driver:
        await driver.say("/say one")
        folder = tmp_path / "sessions" / driver.session_id
        before = files(folder)
        with full_disk(len(before["updates.jsonl"]) + 100):
            error = (await driver.say("/say " + "two " * 1000))["error"]
        assert error["code"] == -32603
        assert "free some space" in error["message"]
        after = files(folder)
        assert after.keys() == before.keys()
        assert after["updates.jsonl"].startswith(before["updates.jsonl"])
        assert is_whole(after["updates.jsonl"])
        assert (await driver.say("/say three"))["result"] == {"stopReason": "end_turn"}
        assert is_whole(files(folder)["updates.jsonl"])


async def test_what_the_client_saw_of_a_turn_is_what_a_load_shows(tmp_path: Path) -> None:
    async with at_work(tmp_path, store=SessionStore(tmp_path / "sessions")) as driver:
        await driver.say("/say one")
        log = tmp_path / "sessions" / driver.session_id / "updates.jsonl"
        with full_disk(log.stat().st_size + 1000):
            await driver.say("/say " + "two " * 1000)
        shown = driver.hand.texts()
        await replay(driver)
        assert driver.hand.texts()[len(shown) :] == shown


async def test_a_call_that_runs_when_the_disk_is_full_has_an_end_for_the_client(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path, store=SessionStore(tmp_path / "sessions")) as driver:
        del driver.hand.answers["session/request_permission"]
        script = '/tool shell {"command": "touch begun; echo x; sleep 1000"}'
        prompt = await driver.hand.ask_prompt(driver.session_id, script)
        permission = await driver.hand.requested("session/request_permission")
        log = tmp_path / "sessions" / driver.session_id / "updates.jsonl"
        with full_disk(log.stat().st_size + 160):  # for its beginning, not for what it says
            await driver.hand.select(permission, "allow_once")
            assert "free some space" in (await driver.hand.answered(prompt))["error"]["message"]
        ended = driver.hand.updates("tool_call_update")[-1]
        assert ended["status"] == "failed"
        assert is_whole(log.read_bytes())
        await replay(driver)
        assert driver.hand.updates("tool_call_update")[-1]["status"] == "failed"


async def test_modes_and_sessions_that_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    store = tmp_path / "sessions"
    async with at_work(tmp_path, store=SessionStore(store)) as driver:
        kept = files(store / driver.session_id)
        with full_disk(0):
            named = {"sessionId": driver.session_id, "modeId": "safe"}
            refused = [
                await driver.hand.error("session/set_mode", **named),
                await driver.hand.error("session/new", cwd=str(tmp_path), mcpServers=[]),
            ]
            assert all("free some space" in each["message"] for each in refused)
            await driver.hand.result("session/list")
            await replay(driver)
        assert files(store / driver.session_id) == kept
        assert [each.name for each in store.iterdir()] == [driver.session_id]
        options = await driver.hand.result("session/set_mode", **named)
        assert options == {}


async def replay(driver: SessionDriver) -> None:
    """Close the session and load it again."""
    listed = (await driver.hand.result("session/list"))["sessions"]
    await driver.hand.result("session/close", sessionId=driver.session_id)
    cwd = next(each["cwd"] for each in listed if each["sessionId"] == driver.session_id)
    named = {"sessionId": driver.session_id, "cwd": cwd, "mcpServers": []}
    await driver.hand.result("session/load", **named)
