"""The sandbox: a folder of its own, and walls around commands or none are run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quarterdeck.agent.builtin import sandbox
from quarterdeck.errors import ToolFailed
from tests.agent.builtin.desk import REJECT, Desk, at_work, texts_of

pytestmark = pytest.mark.anyio


async def in_sandbox(desk: Desk) -> None:
    desk.answer_permissions(REJECT)
    await desk.set_mode("sandbox")


async def test_files_of_the_sandbox_are_not_the_users_and_end_with_the_session(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    async with at_work(tmp_path) as desk:
        await in_sandbox(desk)
        done = await desk.use("sandbox_write", '{"path": "a.txt", "content": "one"}')
        folder = Path(done["content"][0]["path"]).parent
        assert not folder.is_relative_to(tmp_path)
        assert texts_of(await desk.use("sandbox_read", '{"path": "a.txt"}')) == "one"
        path = json.dumps({"path": str(tmp_path / "mine.txt")})
        outside = await desk.use("sandbox_read", path)
        assert "outside" in texts_of(outside)
        await desk.hand.result("session/close", sessionId=desk.session_id)
        assert not folder.parent.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]  # noqa: ASYNC240


async def test_a_command_of_the_sandbox_sees_nothing_of_the_user_or_is_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    script = f"""
        cat {tmp_path}/mine.txt && echo LEAKED
        touch /usr/here 2>/dev/null && echo WROTE
        test $(ls /sys/class/net /proc/net/dev 2>/dev/null | wc -l) -gt 1 && echo NETWORK
        kill -0 {1_000_000} 2>/dev/null && echo PROCESS
        echo made > made.txt; env | grep -c SECRET; ls
    """
    async with at_work(tmp_path) as desk:
        await in_sandbox(desk)
        done = await desk.use("sandbox_shell", json.dumps({"command": script}))
        if sandbox.is_possible():
            output = texts_of(done)
            for sign in ("LEAKED", "WROTE", "NETWORK", "PROCESS"):
                assert sign not in output
            assert "made.txt" in output
            assert texts_of(await desk.use("sandbox_read", '{"path": "made.txt"}')) == "made"
        else:
            assert "cannot isolate commands" in texts_of(done)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]  # noqa: ASYNC240


def test_without_walls_no_command_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    sandbox._how.cache_clear()  # noqa: SLF001 - it was found out for another PATH
    try:
        with pytest.raises(ToolFailed, match="install bubblewrap"):
            sandbox.walled(["true"], "/nowhere")
    finally:
        sandbox._how.cache_clear()  # noqa: SLF001
