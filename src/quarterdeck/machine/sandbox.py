"""Sandboxes: an empty folder of their own, and commands isolated in it by the kernel.

A sandboxed command has the folder as its working directory and sees the programs of this machine,
read-only. It sees none of the user's files, no network and no other process. bubblewrap isolates it
if it is installed, else `unshare` where user namespaces are allowed; for root it is the other way
round. Where neither works, `sandboxed_command` raises an error instead of running the command
without isolation.

/proc is read-only as a whole: files such as /proc/sys/kernel/core_pattern, by which a program could
be started outside, ask only for user id 0, not for a right that a sandbox could take away.

Limits: the number of processes, the private memory of each, and the size of a file. The kernel
exempts user id 0 from the first; its number is limited by the pid namespace, from Linux 6.14 on.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

from quarterdeck.errors import ToolFailed

_INSIDE = "/sandbox"
_FILES = "files"
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl", "/etc/passwd", "/etc/group")
_DEVICES = ("null", "zero", "random", "urandom")
_PROBE_SECONDS = 5.0
_TMP_BYTES = 64 * 1024 * 1024
_PROCESSES = 1024
_LIMITS = (f"--nproc={_PROCESSES}", f"--data={4 << 30}", f"--fsize={1 << 30}", "--core=0")
_PID_LIMIT_SINCE = (6, 14)  # before, the number would be that of the whole machine
_ENVIRONMENT = {"HOME": _INSIDE, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}

Build = Callable[[Sequence[str], str], list[str]]
"""Wraps a command so that it runs isolated in a sandbox folder."""

# Run by `unshare` as root of a user namespace. A file system in memory becomes the root, with the
# machine's programs mounted read-only; the old root is unmounted, so it cannot be reached.
# $1 is the sandbox folder, the rest the command.
_ISOLATE_SCRIPT = """
set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
sandbox=$1; shift
root=$(dirname "$sandbox")/root
mkdir -p "$root"
mount -t tmpfs -o size=64m,mode=755 none "$root"
for folder in {programs}; do
    if [ -L "$folder" ]; then ln -s "$(readlink "$folder")" "$root$folder"
    elif [ -d "$folder" ]; then
        mkdir -p "$root$folder"; mount --rbind "$folder" "$root$folder"
        mount -o remount,bind,ro,nosuid,nodev "$root$folder"
        while read -r _ _ _ _ point _; do
            case $point in "$root$folder"/*) mount -o remount,bind,ro,nosuid,nodev "$point" ;; esac
        done < /proc/self/mountinfo
    fi
done
for part in {settings}; do
    [ -e "$part" ] || continue
    mkdir -p "$root$(dirname "$part")"
    if [ -d "$part" ]; then mkdir -p "$root$part"; else : > "$root$part"; fi
    mount --bind "$part" "$root$part"; mount -o remount,bind,ro,nosuid,nodev "$root$part"
done
mkdir -p "$root{inside}" "$root/tmp" "$root/proc" "$root/dev" "$root/.old"
for device in {devices}; do : > "$root/dev/$device"; mount --bind /dev/$device "$root/dev/$device"; done
mount --bind "$sandbox" "$root{inside}"
mount -t tmpfs -o size={tmp_bytes} none "$root/tmp"
mount -t proc none "$root/proc"
{limit_pids}
mount -o remount,ro,bind,nosuid,nodev,noexec "$root/proc"
cd "$root"
pivot_root . .old
umount -l /.old
rmdir /.old
mount -o remount,ro,bind /
cd {inside}
exec prlimit {limits} setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""  # noqa: E501 - a script


class SandboxFolder:
    """A sandbox's folder; it exists from its first use until `remove`."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    @property
    def path(self) -> str:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="quarterdeck-sandbox-")).resolve()
            self._folder.joinpath(_FILES).mkdir()  # the new root is mounted beside it
        return str(self._folder / _FILES)

    def remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def sandboxed_command(command: Sequence[str], folder: str) -> list[str]:
    """Return the command that runs `command` in the sandbox.

    Raises:
        ToolFailed: if this machine cannot isolate it.
    """
    build = _find_isolation()
    if build is None and sys.platform != "linux":
        raise ToolFailed("commands are isolated on Linux only; work with the sandbox's file tools")
    if build is None:
        sentence = "this machine cannot isolate commands: bubblewrap is not installed and user"
        advice = "install bubblewrap, or work with the sandbox's file tools"
        raise ToolFailed(f"{sentence} namespaces are not allowed; {advice}")
    return build(command, folder)


def _by_bubblewrap(program: str, command: Sequence[str], folder: str) -> list[str]:
    options = [program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for part in (*_PROGRAMS, *_SETTINGS):
        options += ["--ro-bind-try", part, part]
    options += ["--proc", "/proc", "--dev", "/dev", "--size", str(_TMP_BYTES), "--tmpfs", "/tmp"]  # noqa: S108 - inside
    options += ["--bind", folder, _INSIDE]
    options += ["--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"]
    # Not `--clearenv`: bubblewrap's own process would still show the environment it was given.
    limited = ["prlimit", *_LIMITS, *command]
    return [*_clean(), *options, "--chdir", _INSIDE, "--", *limited]


def _by_unshare(program: str, command: Sequence[str], folder: str) -> list[str]:
    script = _ISOLATE_SCRIPT.format(
        programs=" ".join(_PROGRAMS),
        settings=" ".join(_SETTINGS),
        devices=" ".join(_DEVICES),
        inside=_INSIDE,
        tmp_bytes=_TMP_BYTES,
        limits=" ".join(_LIMITS),
        limit_pids=_limit_pids(os.uname().release),
    )
    options = ["--user", "--map-root-user", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork"]
    shell = ["/bin/sh", "-c", script, "sandbox", folder]
    return [*_clean(), program, *options, "--kill-child", *shell, *_clean(), *command]


def _limit_pids(release: str) -> str:
    """Return the line of the script that limits the processes of its pid namespace."""
    found = re.match(r"(\d+)\.(\d+)", release)
    if found is None or (int(found[1]), int(found[2])) < _PID_LIMIT_SINCE:
        return ""
    return f'echo {_PROCESSES} > "$root/proc/sys/kernel/pid_max"'


WAYS: list[tuple[str, Callable[[str, Sequence[str], str], list[str]]]] = [
    ("bwrap", _by_bubblewrap),
    ("unshare", _by_unshare),
]
"""The programs that can isolate a command, the preferred one first."""


def _clean() -> list[str]:
    """Return the prefix that starts a program with these variables alone."""
    return ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in _ENVIRONMENT.items())]


@cache
def _find_isolation() -> Build | None:
    """Return the way in which this machine can isolate a command, found by trying."""
    for name, build in reversed(WAYS) if os.geteuid() == 0 else WAYS:
        program = shutil.which(name)
        if program is not None and _works(way := partial(build, program)):
            return way
    return None


def _works(build: Build) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, _FILES)
        files.mkdir()
        try:
            done = subprocess.run(
                build(["/bin/sh", "-c", "true"], str(files)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_PROBE_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    return done.returncode == 0
