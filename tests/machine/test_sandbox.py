"""What a sandboxed command could change in the kernel, or use up: nothing, for root neither."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quarterdeck.machine import SandboxFolder, sandbox, sandboxed_command
from tests.machine.users import USERS, as_user

WAYS = [name for name in ("bwrap", "unshare") if shutil.which(name) is not None]

# Opens every file below some folders for writing, without writing, and prints those that opened.
# Files of the process itself are its own; devices that swallow or make up data are harmless.
OPEN_FOR_WRITING = r"""
for top in /proc /sys /dev /cgroup; do
    find "$top" -xdev \( -type f -o -type c -o -type b \) 2>/dev/null
done | grep -vE '^/proc/([0-9]+|self|thread-self)/' \
     | grep -vE '^/dev/(null|zero|full|random|urandom|tty|ptmx|pts/ptmx|console|fd|core)' \
     | while read -r path; do
    (exec 3>>"$path") 2>/dev/null && echo "WRITABLE $path"
done
for path in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sysrq-trigger \
            /proc/self/oom_score_adj /sys/kernel/uevent_helper /dev/mem /dev/kmem /dev/port \
            /sys/fs/cgroup/release_agent /sys/fs/cgroup/memory/release_agent; do
    (exec 3>>"$path") 2>/dev/null && echo "WRITABLE $path"
done
mount -t proc none /tmp 2>/dev/null && echo MOUNTED
unshare --user --mount --pid --fork mount -t proc none /tmp 2>/dev/null && echo MOUNTED
echo DONE
"""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Let one program isolate."""
    with pytest.MonkeyPatch.context() as patch:
        order = [pair for pair in sandbox.WAYS if pair[0] == request.param]
        patch.setattr(sandbox, "WAYS", order)
        sandbox._find_isolation.cache_clear()  # noqa: SLF001 - it was found out for another way
        yield request.param
    sandbox._find_isolation.cache_clear()  # noqa: SLF001


def run(script: str, *, uid: int = 0, seconds: float = 60) -> str:
    folder = SandboxFolder()
    try:
        path = folder.path
        if uid:
            for each in (Path(path), Path(path).parent):
                os.chown(each, uid, uid)
        command = sandboxed_command(["/bin/sh", "-c", script], path)
        done = subprocess.run(
            as_user(uid, command), capture_output=True, text=True, timeout=seconds, check=False
        )
        return done.stdout + done.stderr
    finally:
        folder.remove()


@pytest.mark.parametrize("uid", USERS)
def test_no_file_of_the_kernel_can_be_opened_for_writing(way: str, uid: int) -> None:
    output = run(OPEN_FOR_WRITING, uid=uid)
    assert "WRITABLE" not in output
    assert "MOUNTED" not in output
    assert output.endswith("DONE\n")


@pytest.mark.parametrize("uid", USERS)
def test_a_command_cannot_fork_without_end(uid: int) -> None:
    script = "i=0; while [ $i -lt 3000 ]; do sleep 9 & i=$((i+1)); done 2>/dev/null; echo ALL"
    assert "ALL" not in run(f"({script}) 2>/dev/null; kill -9 -1", uid=uid)


@pytest.mark.parametrize("uid", USERS)
def test_a_command_cannot_fill_the_disk_with_one_file(way: str, uid: int) -> None:
    output = run("dd if=/dev/zero of=large bs=1M seek=4000 count=1 && echo LARGE", uid=uid)
    assert "LARGE" not in output
