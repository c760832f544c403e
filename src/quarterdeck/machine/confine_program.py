"""The part of the guard that confines a command, run in the command's own process before `exec`.

`guard_program` imports it when it is given options, so the same rules hold: standard library only,
and as little of it as possible. `confinement` decides which options a command gets and what they
guarantee; docs/adr/0031-confinement.md explains the design.

    option         meaning
    hide=PATH      a folder that is empty and read-only for the command, or a file without content
    keep=PATH      a file or folder in a hidden folder that the command can read
    open=FOLDER    a folder in a hidden folder that the command can change
    private=FOLDER a folder that is empty at first, and the command's own
    lock=PATH      a file or folder that is read-only for the command
    free=FOLDER    a folder inside a locked one that is not
    write=FOLDER   the command can write here, in a private /tmp, and nowhere else
    network=none   no network but its own loopback
    network=HOSTS  the same, with an HTTP proxy to these hosts (separated by commas)
    limit=NAME:N   a resource limit: processes, memory (bytes) or file-size (bytes)
    scope=abstract no access to abstract sockets outside, from ABI 6 of Landlock on
    landlock=PARTS no namespaces, Landlock alone; `landlock_program` explains its parts

Steps, for every user:

1. A mount namespace of its own; for an ordinary user inside a user namespace of its own, which is
   what permits the mounts. Mounts from outside still arrive; ours do not leave.
2. Hidden folders get an empty file system on top. The folders above them are *pinned*: each is made
   the mount point of a mount that no path leads to. The kernel does not rename or remove a mount
   point, so the command cannot put folders of its own in the place of those that we hide.
3. What would undo this as root: the settings of the kernel in /proc and /sys become read-only, raw
   disks and memory in /dev become empty. (`/proc/sys` asks only for user id 0, not for a right.)
4. A second user namespace. The kernel locks all mounts that a less privileged namespace inherits:
   they cannot be unmounted, moved, made writable or uncovered by a bind mount, by root neither.
   Processes of other user namespaces (the hub, other agents) cannot be traced or inspected.
5. Landlock, from ABI 6 on, keeps signals inside. It has no rules about files: with any, the command
   could not mount, and sandboxes of its own would fail.

A failure at any step raises `OSError`: the command is not started.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NEW_MOUNTS, _NEW_USER, _NEW_NETWORK = 0x20000, 0x10000000, 0x40000000
_CLONE_PARENT = 0x8000
READ_ONLY, NO_SUID, NO_DEVICES, _NO_EXEC = 1, 2, 4, 8
_REMOUNT, BIND, RECURSIVE, _SLAVE = 32, 4096, 16384, 1 << 19
_UNBINDABLE = 1 << 17
INERT = NO_SUID | NO_DEVICES | _NO_EXEC
_CLONE3, _CREATE_RULESET, _RESTRICT_SELF = 435, 444, 446  # the same on all architectures
_RULESET_VERSION = 1
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
SCOPES_SINCE = 6  # of Landlock's ABI
_ALL_IDS = "0 0 4294967295"
# Character devices that reach memory or disks: their names, and the folders that hold such devices.
_RAW_DEVICES = ("mem", "kmem", "port", "kmsg", "nvram")
_RAW_PREFIXES = ("sg", "nvme", "ng", "raw", "mtd", "ubi", "st", "nst")
_RAW_FOLDERS = ("bsg", "raw")
_OTHER_FOLDERS = ("pts", "shm", "mqueue", "hugepages", "fd")

libc = ctypes.CDLL(None, use_errno=True)


def confine(options: list[str]) -> dict[str, str]:
    """Confine this process and what it will execute; return variables for its environment.

    Raises:
        OSError: if a step fails; the process must end then.
    """
    given: dict[str, list[str]] = {}
    for option in options:
        name, _, value = option.partition("=")
        given.setdefault(name, []).append(value)
    folder = os.getcwd()  # noqa: PTH109 - see the top
    if "landlock" in given:
        _refuse_hidden(folder, given)
        __import__("landlock_program").restrict(given)
        return {}
    is_sandbox = "network" in given
    # Loaded for a sandbox only: an agent waits for every import.
    sandbox = __import__("workspace_program").Sandbox(given) if is_sandbox else None
    _enter_namespaces(with_network=is_sandbox)
    mount(None, "/", None, RECURSIVE | _SLAVE)
    if sandbox is not None:
        sandbox.restrict_files()
    # First: a copy of /proc that is not protected, wherever it is, permits new mounts of /proc.
    _protect_system()
    locked = [path for path in given.get("lock", []) if os.access(path, os.F_OK)]
    _hide(given.get("hide", []), (given.get("keep", []), given.get("open", [])), locked)
    for path in filter(is_folder, given.get("private", [])):
        mount("none", path, "tmpfs", NO_SUID | NO_DEVICES, "size=16m,mode=0700")
    _make_read_only(locked, given.get("free", []))
    variables: dict[str, str] = {} if sandbox is None else sandbox.open_network()
    _lock()
    keep_signals_inside(is_strict=is_sandbox or "abstract" in given.get("scope", []))
    # The working directory was opened before the mounts: it may be beneath one.
    os.chdir(folder)
    _refuse_hidden(folder, given)
    return variables


def _refuse_hidden(folder: str, given: dict[str, list[str]]) -> None:
    if any(_is_beneath(folder, path) for path in given.get("hide", [])):
        raise OSError(2, "agents have no access to this folder", folder)


def _is_beneath(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


# ---- namespaces --------------------------------------------------------------------------------


def _enter_namespaces(*, with_network: bool) -> None:
    wanted = _NEW_MOUNTS | (_NEW_NETWORK if with_network else 0)
    if os.geteuid() == 0 and _can_unshare(wanted):
        return
    user, group = os.geteuid(), os.getegid()
    _call("unshare", wanted | _NEW_USER)
    _map_own_ids(user, group)


def _can_unshare(wanted: int) -> bool:
    """Try it as it is: root in a container may lack the right, like an ordinary user."""
    return not libc.unshare(wanted)


def _lock() -> None:
    """Enter the second user namespace: the mounts made so far cannot be changed in it."""
    user, group = os.geteuid(), os.getegid()
    is_mapped_whole = read_file("/proc/self/uid_map").split() == _ALL_IDS.split()
    if user == 0 and is_mapped_whole:
        _lock_as_root()
    else:
        _call("unshare", _NEW_USER | _NEW_MOUNTS)
        _map_own_ids(user, group)


def _lock_as_root() -> None:
    """Enter a user namespace that maps every id.

    Only a process outside may write such a map. So the namespace is created with a process that
    does nothing; we write its map from here and enter it. Nothing waits for that process to run,
    which on a busy machine takes longer than all the rest. The guard reaps it.
    """
    held, release = os.pipe()
    child = _clone(_NEW_USER | _CLONE_PARENT)
    if child == 0:
        os.close(release)
        os.read(held, 1)
        os._exit(0)
    try:
        write_file(f"/proc/{child}/uid_map", _ALL_IDS)
        write_file(f"/proc/{child}/gid_map", _ALL_IDS)
        namespace = os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        _call("setns", namespace, _NEW_USER)
        os.close(namespace)
        _call("unshare", _NEW_MOUNTS)
    finally:
        os.close(held)
        os.close(release)


def _clone(flags: int) -> int:
    """Fork with flags of `clone`; as after `fork`, the result is 0 in the child."""
    arguments = (ctypes.c_uint64 * 8)(flags)
    # `PyDLL` keeps the interpreter's lock: the child could not take it again.
    child = int(ctypes.PyDLL(None, use_errno=True).syscall(_CLONE3, arguments, 64))
    if child < 0:
        raise failure("cannot create a user namespace")
    return child


def _map_own_ids(user: int, group: int) -> None:
    write_file("/proc/self/setgroups", "deny")
    write_file("/proc/self/uid_map", f"{user} {user} 1")
    write_file("/proc/self/gid_map", f"{group} {group} 1")


# ---- hidden folders ----------------------------------------------------------------------------


def _hide(paths: list[str], shown: tuple[list[str], list[str]], locked: list[str]) -> None:
    """Hide folders and files but what is `shown`: kept to be read, and open to be changed."""
    # What is inside a hidden folder is hidden with it.
    paths = [path for path in paths if not any(path.startswith(f"{other}/") for other in paths)]
    folders = [path for path in paths if is_folder(path)]
    files = [path for path in paths if path not in folders and os.access(path, os.F_OK)]
    if not folders and not files:
        return
    kept, changeable = (
        {path: os.open(path, os.O_PATH) for path in each if os.access(path, os.F_OK)}
        for each in shown
    )
    cover = folders[0] if folders else ""
    pinned = sorted(set(_movable_folders([*paths, *locked]))) if cover else []
    _pin_topmost(pinned)
    if cover:
        # Beneath the file system that hides the first folder: no path leads there.
        mount("none", cover, "tmpfs", INERT, "size=64k,mode=0700")
        _create(f"{cover}/empty")
    for file in files:
        mount(f"{cover}/empty" if cover else "/dev/null", file, None, BIND)
        mount(None, file, None, _REMOUNT | BIND | READ_ONLY | _flags_of(file))
    if cover:
        mount(None, cover, None, _UNBINDABLE)  # else each pin would copy the others
        _pin(pinned, cover)
    for folder in folders:
        mount("none", folder, "tmpfs", INERT, "size=64k,mode=0755")
        _show_in(folder, kept, changeable)
        mount(None, folder, None, _REMOUNT | BIND | READ_ONLY | INERT)
    for fd in (*kept.values(), *changeable.values()):
        os.close(fd)


def _show_in(folder: str, kept: dict[str, int], changeable: dict[str, int]) -> None:
    for path, fd in kept.items():
        if path.startswith(f"{folder}/"):
            flags = _show(path, fd)
            mount(None, path, None, _REMOUNT | BIND | READ_ONLY | flags)
    for path, fd in changeable.items():
        if path.startswith(f"{folder}/"):
            _show(path, fd)


def _show(path: str, fd: int) -> int:
    """Show a file or folder where it was hidden; return the flags of its mount.

    Programs of a folder can run, files alone are data.
    """
    is_file = not stat.S_ISDIR(os.fstat(fd).st_mode)
    if not os.access(path, os.F_OK):
        os.makedirs(path.rpartition("/")[0] if is_file else path, exist_ok=True)  # noqa: PTH103
        if is_file:
            _create(path)
    mount(f"/proc/self/fd/{fd}", path, None, BIND)
    return INERT if is_file else NO_SUID | NO_DEVICES | _flags_of(path)


def _make_read_only(locked: list[str], free: list[str]) -> None:
    """Make files and folders read-only but for the `free` folders inside them."""
    opened = {path: os.open(path, os.O_PATH) for path in free if is_folder(path)}
    for path in locked:
        _bind_folder(path, path)
        mount(None, path, None, _REMOUNT | BIND | READ_ONLY | _flags_of(path))
    for path, fd in opened.items():
        mount(f"/proc/self/fd/{fd}", path, None, BIND | RECURSIVE)
        os.close(fd)


def _pin_topmost(folders: Iterable[str]) -> None:
    """Make those that only root can rename mount points of themselves.

    A bind of `/` elsewhere would be another way to all files, and sandboxes that protect each way
    to a file (codex) fail at one that they cannot see.
    """
    for folder in folders:
        if folder.count("/") == 1:
            mount(folder, folder, None, BIND | RECURSIVE)


def _pin(folders: Iterable[str], cover: str) -> None:
    """Make each other folder the mount point of an unseen mount: it cannot be renamed then."""
    for number, folder in enumerate(folders):
        parent, _, name = folder.rpartition("/")
        if not parent:
            continue
        spot = f"{cover}/{number}"
        os.mkdir(spot)  # noqa: PTH102 - see the top
        _bind_folder(parent, spot)
        mount("none", f"{spot}/{name}", "tmpfs", READ_ONLY | INERT, "size=4k")


def _bind_folder(source: str, target: str) -> None:
    """Bind a folder without what is mounted in it, unless the kernel has locked that to it."""
    try:
        mount(source, target, None, BIND)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        mount(source, target, None, BIND | RECURSIVE)


def _movable_folders(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder:
            parent = folder.rpartition("/")[0]
            if os.access(parent or "/", os.W_OK):
                yield folder
            folder = parent


def is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116 - see the top
    except OSError:
        return False


def _create(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o444))


def _flags_of(path: str) -> int:
    """Return the flags of a path's mount, which a remount inside a user namespace must keep."""
    flags = os.statvfs(path).f_flag
    return flags & INERT


# ---- the system --------------------------------------------------------------------------------


def _protect_system() -> None:
    if os.geteuid() == 0:
        for path in _writable_settings():
            mount(path, path, None, BIND)
            mount(None, path, None, _REMOUNT | BIND | READ_ONLY | INERT)
        for point in _mount_points("/sys"):
            mount(None, point, None, _REMOUNT | BIND | READ_ONLY | INERT)
    for device in _raw_devices("/dev"):
        mount("/dev/null", device, None, BIND)


def _writable_settings() -> Iterator[str]:
    """Yield the entries of /proc, besides processes, that user id 0 may write to."""
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() or entry.is_symlink():
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode) or mode & 0o222:
                yield entry.path


def _mount_points(top: str) -> Iterator[str]:
    for line in read_file("/proc/self/mountinfo").splitlines():
        point = line.split()[4]
        if point == top or point.startswith(f"{top}/"):
            yield point.replace("\\040", " ")


def _raw_devices(folder: str, *, only_raw: bool = False) -> Iterator[str]:
    """Yield device files of disks and memory that this user could open."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                continue
            if entry.is_dir():
                if entry.name not in _OTHER_FOLDERS and os.access(entry.path, os.R_OK):
                    only = only_raw or entry.name in _RAW_FOLDERS
                    yield from _raw_devices(entry.path, only_raw=only)
            elif (only_raw or _is_raw(entry)) and _can_open(entry.path):
                yield entry.path


def _is_raw(entry: os.DirEntry[str]) -> bool:
    mode = entry.stat(follow_symlinks=False).st_mode
    if stat.S_ISCHR(mode):
        letters = entry.name.rstrip("0123456789")
        is_numbered = letters != entry.name
        return entry.name in _RAW_DEVICES or (
            is_numbered and letters.rstrip("n0123456789") in _RAW_PREFIXES
        )
    return stat.S_ISBLK(mode)


def _can_open(path: str) -> bool:
    return os.access(path, os.R_OK) or os.access(path, os.W_OK)


# ---- signals -----------------------------------------------------------------------------------


def keep_signals_inside(*, is_strict: bool) -> None:
    """Keep signals, and in a strict sandbox abstract sockets, inside; from ABI 6 of Landlock on."""
    abi = landlock_version()
    if abi < SCOPES_SINCE:
        return
    ruleset = create_ruleset([0, 0, scopes(abi, is_strict=is_strict)])
    try:
        enforce(ruleset)
    finally:
        os.close(ruleset)


def landlock_version() -> int:
    return int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _RULESET_VERSION))


def scopes(abi: int, *, is_strict: bool) -> int:
    if abi < SCOPES_SINCE:
        return 0
    return _SCOPE_SIGNALS | (_SCOPE_ABSTRACT_SOCKETS if is_strict else 0)


def create_ruleset(fields: list[int]) -> int:
    """Create a set of rules; the fields are the rights to files, to networks, and the scopes."""
    attributes = (ctypes.c_uint64 * len(fields))(*fields)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    return system_call(_CREATE_RULESET, attributes, size, 0)


def enforce(ruleset: int) -> None:
    system_call(_RESTRICT_SELF, ruleset, 0)


# ---- system calls ------------------------------------------------------------------------------


def mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    encoded = [None if each is None else os.fsencode(each) for each in (source, target, kind)]
    extra = None if data is None else data.encode()
    if libc.mount(*encoded, ctypes.c_ulong(flags), extra):
        raise failure(f"cannot mount {target}")


def _call(name: str, *arguments: int) -> None:
    if getattr(libc, name)(*arguments):
        raise failure(f"cannot {name}")


def system_call(number: int, *arguments: object) -> int:
    result = libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise failure(f"system call {number} failed")
    return int(result)


def failure(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


def read_file(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 - see the top
        return file.read()


def write_file(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
