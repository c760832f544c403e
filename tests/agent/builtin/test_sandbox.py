"""The sandbox: a folder of its own, and walls around commands or none are run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quarterdeck.errors import ToolFailed
from quarterdeck.machine import sandbox
from tests.agent.builtin.driver import REJECT, SessionDriver, at_work, setup_for, texts_of

pytestmark = pytest.mark.anyio


async def in_sandbox(driver: SessionDriver) -> None:
    driver.answer_permissions(REJECT)
    await driver.set_mode("sandbox")


async def test_files_of_the_sandbox_are_not_the_users_and_end_with_the_session(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    async with at_work(tmp_path) as driver:
        await in_sandbox(driver)
        done = await driver.use("sandbox_write", '{"path": "a.txt", "content": "one"}')
        folder = Path(done["content"][0]["path"]).parent
        assert not folder.is_relative_to(tmp_path)
        assert texts_of(await driver.use("sandbox_read", '{"path": "a.txt"}')) == "one"
        path = json.dumps({"path": str(tmp_path / "mine.txt")})
        outside = await driver.use("sandbox_read", path)
        assert "outside" in texts_of(outside)
        await driver.hand.result("session/close", sessionId=driver.session_id)
        assert not folder.parent.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]  # noqa: ASYNC240


PROBES = {
    "bwrap": "bwrap --unshare-all --ro-bind / / --size 1000000 --tmpfs /tmp -- true",
    "unshare": "unshare --user --map-root-user --mount --pid --net --fork mount -t tmpfs none /mnt",
}
"""By which a test finds out for itself what a program of this machine is able to do."""


@pytest.fixture(params=PROBES)
def can_isolate(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[bool]:
    """Let only one of the programs be installed, if it is; return whether it can isolate."""
    found = shutil.which(request.param)
    probe = ["sh", "-c", PROBES[request.param]]
    is_able = subprocess.run(probe, capture_output=True, check=False).returncode == 0
    folder = tmp_path_factory.mktemp("programs")
    if found is not None:
        (folder / request.param).symlink_to(found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder))
        sandbox._find_isolation.cache_clear()  # noqa: SLF001 - it was found out for another PATH
        yield is_able
    sandbox._find_isolation.cache_clear()  # noqa: SLF001


SPYING = """
cat {mine} && echo LEAKED
touch /usr/here 2>/dev/null && echo WROTE
mkdir /here 2>/dev/null && echo WROTE
touch /dev/here 2>/dev/null && echo WROTE
mount -t tmpfs none /tmp 2>/dev/null && echo MOUNTED
test $(ls /sys/class/net 2>/dev/null | wc -l) -gt 0 && echo NETWORK
test $(tail -n +3 /proc/net/dev | grep -vc " lo:") -gt 0 && echo NETWORK
test -e /proc/{pid}/cmdline && echo PROCESS
cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep SECRET
grep CapEff /proc/self/status | grep -v 0000000000000000
head -c 100000000 /dev/zero > /tmp/large 2>/dev/null && echo MEMORY
echo made > made.txt
echo done
"""


async def test_a_command_of_the_sandbox_sees_nothing_of_the_user_or_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, can_isolate: bool
) -> None:
    monkeypatch.setenv("SECRET", "SECRET")
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    script = SPYING.format(mine=mine, pid=os.getpid())
    async with at_work(tmp_path, setup_for({"SECRET": "SECRET"})) as driver:
        await in_sandbox(driver)
        done = await driver.use("sandbox_shell", json.dumps({"command": script}))
        if can_isolate:
            assert done["status"] == "completed", texts_of(done)
            lines = texts_of(done).splitlines()
            assert lines[1:-1] == [f"cat: {mine}: No such file or directory", "done"]
            assert texts_of(await driver.use("sandbox_read", '{"path": "made.txt"}')) == "made"
        else:
            assert done["status"] == "failed"
            assert "cannot isolate commands" in texts_of(done)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]  # noqa: ASYNC240


def test_without_walls_no_command_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    sandbox._find_isolation.cache_clear()  # noqa: SLF001 - it was found out for another PATH
    try:
        with pytest.raises(ToolFailed, match="install bubblewrap"):
            sandbox.sandboxed_command(["true"], "/nowhere")
    finally:
        sandbox._find_isolation.cache_clear()  # noqa: SLF001
