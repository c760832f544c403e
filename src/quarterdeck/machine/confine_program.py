"""The part of the guard that confines a command, run in the command's own process before `exec`.

`guard_program` imports it when it is given options, so the same rules hold: standard library only,
and as little of it as possible. `confinement` decides which options a command gets and what they
guarantee; docs/adr/0031-confinement.md explains the design.

    option         meaning
    hide=PATH      a folder that is empty and read-only for the command, or a file without content
    keep=PATH      a file in a hidden folder that the command can read
    write=FOLDER   the command can write here, in a private /tmp, and nowhere else
    network=none   no network but its own loopback
    network=HOSTS  the same, with an HTTP proxy to these hosts (separated by commas)
    limit=NAME:N   a resource limit: processes, memory (bytes) or file-size (bytes)

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

import _socket  # `socket` without the enumerations
import ctypes
import errno
import os
import resource
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NEW_MOUNTS, _NEW_USER, _NEW_NETWORK = 0x20000, 0x10000000, 0x40000000
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC = 1, 2, 4, 8
_REMOUNT, _BIND, _RECURSIVE, _SLAVE = 32, 4096, 16384, 1 << 19
_UNBINDABLE = 1 << 17
_INERT = _NO_SUID | _NO_DEVICES | _NO_EXEC
_CREATE_RULESET, _RESTRICT_SELF, _MOUNT_SETATTR = 444, 446, 442  # the same on all architectures
_RULESET_VERSION = 1
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_SCOPES_SINCE = 6  # of Landlock's ABI
_AT_FDCWD, _AT_RECURSIVE, _ATTR_READ_ONLY = -100, 0x8000, 1
_ALL_IDS = "0 0 4294967295"
# Character devices that reach memory or disks: their names, and the folders that hold such devices.
_RAW_DEVICES = ("mem", "kmem", "port", "kmsg", "nvram")
_RAW_PREFIXES = ("sg", "nvme", "ng", "raw", "mtd", "ubi", "st", "nst")
_RAW_FOLDERS = ("bsg", "raw")
_OTHER_FOLDERS = ("pts", "shm", "mqueue", "hugepages", "fd")
_PRIVATE_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - not used from here
_SET_FLAGS, _IFF_UP = 0x8914, 1  # SIOCSIFFLAGS
_LOCAL = "127.0.0.1,localhost,::1"
_RUNTIME_KEPT = ("/run/current-system", "/run/wrappers", "/run/systemd/resolve")

_libc = ctypes.CDLL(None, use_errno=True)


def confine(options: list[str]) -> dict[str, str]:
    """Confine this process and what it will execute; return variables for its environment.

    Raises:
        OSError: if a step fails; the process must end then.
    """
    given: dict[str, list[str]] = {}
    for option in options:
        name, _, value = option.partition("=")
        given.setdefault(name, []).append(value)
    folder = os.getcwd()
    network = given.get("network", [""])[0]
    # Its proxy is started here, outside: it reaches the network, and is not limited.
    proxy = None if network in ("", "none") else _start_proxy(network)
    for limit in given.get("limit", []):
        _limit(limit)
    _enter_namespaces(with_network=bool(network))
    _mount(None, "/", None, _RECURSIVE | _SLAVE)
    variables: dict[str, str] = {}
    if "write" in given:
        variables["TMPDIR"] = _make_read_only(given["write"])
    # First: a copy of /proc that is not protected, wherever it is, permits new mounts of /proc.
    _protect_system()
    _hide(given.get("hide", []), given.get("keep", []))
    if network:
        variables |= _open_network(proxy)
    _lock()
    _scope(is_strict="write" in given)
    # The working directory was opened before the mounts: it may be beneath one.
    os.chdir(folder)
    if any(_is_beneath(folder, path) for path in given.get("hide", [])):
        raise OSError(2, "agents have no access to this folder", folder)
    return variables


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
    return not _libc.unshare(wanted)


def _lock() -> None:
    """Enter the second user namespace: the mounts made so far cannot be changed in it."""
    user, group = os.geteuid(), os.getegid()
    is_mapped_whole = _read("/proc/self/uid_map").split() == _ALL_IDS.split()
    if user == 0 and is_mapped_whole:
        _lock_as_root()
    else:
        _call("unshare", _NEW_USER | _NEW_MOUNTS)
        _map_own_ids(user, group)


def _lock_as_root() -> None:
    """Map every id. Only a process outside may do that: a child that stays there for it."""
    child, (asked, ask), (mapped, done) = os.getpid(), os.pipe(), os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            os.close(ask)
            if os.read(asked, 1):
                _write(f"/proc/{child}/uid_map", _ALL_IDS)
                _write(f"/proc/{child}/gid_map", _ALL_IDS)
                os.write(done, b"1")
        finally:
            os._exit(0)
    os.close(asked)
    os.close(done)
    try:
        _call("unshare", _NEW_USER | _NEW_MOUNTS)
        os.write(ask, b"1")
        if not os.read(mapped, 1):
            raise OSError(1, "cannot map the user ids of a user namespace")
    finally:
        os.close(ask)
        os.close(mapped)
        os.waitpid(helper, 0)


def _map_own_ids(user: int, group: int) -> None:
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")


# ---- hidden folders ----------------------------------------------------------------------------


def _hide(paths: list[str], kept: list[str]) -> None:
    folders = [path for path in paths if os.path.isdir(path)]  # noqa: PTH112 - see the top
    files = [path for path in paths if os.path.isfile(path)]  # noqa: PTH113 - see the top
    if not folders and not files:
        return
    opened = {path: os.open(path, os.O_PATH) for path in kept if os.path.isfile(path)}  # noqa: PTH113
    cover = folders[0] if folders else ""
    if cover:
        # Beneath the file system that hides the first folder: no path leads there.
        _mount("none", cover, "tmpfs", _INERT, "size=64k,mode=0700")
        _mount(None, cover, None, _UNBINDABLE)  # else each pin would copy the others
        _pin(paths, cover)
    for folder in folders:
        _mount("none", folder, "tmpfs", _INERT, "size=64k,mode=0755")
        for path, fd in opened.items():
            if os.path.dirname(path) == folder:  # noqa: PTH120 - see the top
                _create(path)
                _mount(f"/proc/self/fd/{fd}", path, None, _BIND)
                _mount(None, path, None, _REMOUNT | _BIND | _READ_ONLY | _INERT)
        _mount(None, folder, None, _REMOUNT | _BIND | _READ_ONLY | _INERT)
    for file in files:
        _mount("/dev/null", file, None, _BIND)
        _mount(None, file, None, _REMOUNT | _BIND | _READ_ONLY | _flags_of(file))
    for fd in opened.values():
        os.close(fd)


def _pin(paths: Iterable[str], cover: str) -> None:
    """Make each folder above `paths` that could be renamed the mount point of an unseen mount."""
    for number, folder in enumerate(sorted(set(_movable_folders(paths)))):
        parent, _, name = folder.rpartition("/")
        spot = f"{cover}/{number}"
        os.mkdir(spot)  # noqa: PTH102 - see the top
        _bind_folder(parent or "/", spot)
        _mount("none", f"{spot}/{name}", "tmpfs", _READ_ONLY | _INERT, "size=4k")


def _bind_folder(source: str, target: str) -> None:
    """Bind a folder without what is mounted in it, unless the kernel has locked that to it."""
    try:
        _mount(source, target, None, _BIND)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _mount(source, target, None, _BIND | _RECURSIVE)


def _movable_folders(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder:
            parent = folder.rpartition("/")[0]
            if os.access(parent or "/", os.W_OK):
                yield folder
            folder = parent


def _create(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o444))


def _flags_of(path: str) -> int:
    """Return the flags of a path's mount, which a remount inside a user namespace must keep."""
    flags = os.statvfs(path).f_flag
    return flags & _INERT


# ---- the system --------------------------------------------------------------------------------


def _protect_system() -> None:
    if os.geteuid() == 0:
        for path in _writable_settings():
            _mount(path, path, None, _BIND)
            _mount(None, path, None, _REMOUNT | _BIND | _READ_ONLY | _INERT)
        for point in _mount_points("/sys"):
            _mount(None, point, None, _REMOUNT | _BIND | _READ_ONLY | _INERT)
    for device in _raw_devices("/dev"):
        _mount("/dev/null", device, None, _BIND)


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
    for line in _read("/proc/self/mountinfo").splitlines():
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


# ---- writing only in some folders --------------------------------------------------------------


def _make_read_only(writable: list[str]) -> str:
    """Make everything read-only but `writable` and private folders; return one for temporary files.

    The runtime folder is private, too: sockets work on a read-only file system, and a service that
    listens there (a container engine, a service manager) would write for the command.
    """
    kept = [path for path in _RUNTIME_KEPT if os.path.isdir(path)]  # noqa: PTH112 - see the top
    opened = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (*kept, *writable)}
    was_read_only = {path: os.statvfs(path).f_flag & _READ_ONLY for path in opened}
    _set_read_only("/", _AT_RECURSIVE)
    _clear_read_only("/proc")  # a process writes to its own files there, to enter namespaces
    for folder in _PRIVATE_FOLDERS:
        if os.path.isdir(folder) and not os.path.islink(folder):  # noqa: PTH112, PTH114
            mode = "0755" if folder == "/run" else "1777"
            _mount("none", folder, "tmpfs", _NO_SUID | _NO_DEVICES, f"size=25%,mode={mode}")
    for path, fd in opened.items():
        os.makedirs(path, exist_ok=True)  # noqa: PTH103 - it may be in a private folder
        _mount(f"/proc/self/fd/{fd}", path, None, _BIND | _RECURSIVE)
        os.close(fd)
        if path in writable and not was_read_only[path]:
            _clear_read_only(path)
    return "/tmp"  # noqa: S108 - the private one


def _set_read_only(path: str, flags: int) -> None:
    _set_attributes(path, flags, _ATTR_READ_ONLY, 0)


def _clear_read_only(path: str) -> None:
    _set_attributes(path, 0, 0, _ATTR_READ_ONLY)


def _set_attributes(path: str, flags: int, added: int, cleared: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(added, cleared, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _system_call(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, attributes, size)


# ---- the network -------------------------------------------------------------------------------


def _start_proxy(hosts: str) -> int:
    """Start the proxy, which waits for its listening socket; return the socket to send it by."""
    ours, theirs = _socket.socketpair()
    if os.fork() == 0:
        ours.close()
        program = os.path.join(os.path.dirname(__file__), "proxy_program.py")  # noqa: PTH118, PTH120
        os.set_inheritable(theirs.fileno(), True)
        os.execv(sys.executable, [sys.executable, "-I", "-S", program, str(theirs.fileno()), hosts])  # noqa: S606
    theirs.close()
    return ours.detach()


def _open_network(proxy: int | None) -> dict[str, str]:
    """Start the loopback device of the new network; hand the proxy a socket that listens there.

    A socket belongs to the network it was created in, so the proxy accepts connections from this
    network and opens its own in the machine's.
    """
    with _socket.socket() as request:
        flags = struct.pack("16sh14x", b"lo", _IFF_UP)
        if _libc.ioctl(request.fileno(), _SET_FLAGS, flags):
            raise _failure("cannot start the loopback device")
    if proxy is None:
        return {}
    listening = _socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(64)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    with _socket.socket(fileno=proxy) as channel:
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", listening.fileno()))
        channel.sendmsg([b"1"], [rights])
    listening.close()
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    local = {"NO_PROXY": _LOCAL, "no_proxy": _LOCAL}
    return {**{name: url for name in names}, **{name.lower(): url for name in names}, **local}


# ---- signals and limits ------------------------------------------------------------------------


def _scope(*, is_strict: bool) -> None:
    """Keep signals, and in a strict sandbox abstract sockets, inside; from ABI 6 of Landlock on."""
    if _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _RULESET_VERSION) < _SCOPES_SINCE:
        return
    scopes = _SCOPE_SIGNALS | (_SCOPE_ABSTRACT_SOCKETS if is_strict else 0)
    rules = (ctypes.c_uint64 * 3)(0, 0, scopes)
    ruleset = _system_call(_CREATE_RULESET, rules, ctypes.c_size_t(ctypes.sizeof(rules)), 0)
    try:
        _system_call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _limit(limit: str) -> None:
    name, _, number = limit.partition(":")
    value = int(number)
    if name == "file-size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (value, value))
        return
    is_grouped = _limit_group(name, value)
    if name == "memory":
        # Of each process: address space would count what runtimes reserve and never use.
        resource.setrlimit(resource.RLIMIT_DATA, (value, value))
    elif name == "processes" and os.geteuid() != 0:
        resource.setrlimit(resource.RLIMIT_NPROC, (value, value))
    elif not is_grouped:  # the kernel exempts user id 0 from RLIMIT_NPROC
        raise OSError(1, "the number of processes of root cannot be limited without a cgroup")


def _limit_group(name: str, value: int) -> bool:
    """Move this process to a new cgroup with a limit; return whether that is possible here."""
    controller = {"processes": "pids", "memory": "memory"}[name]
    for line in _read("/proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            parent = f"/sys/fs/cgroup/{controllers}{path}"
            file = "pids.max" if controller == "pids" else "memory.limit_in_bytes"
        elif number == "0" and os.path.exists("/sys/fs/cgroup/cgroup.controllers"):  # noqa: PTH110
            parent, file = f"/sys/fs/cgroup{path}", f"{controller}.max"
        else:
            continue
        group = f"{parent.rstrip('/')}/quarterdeck-{os.getpid()}"
        try:
            os.makedirs(group, exist_ok=True)  # noqa: PTH103 - see the top
            _write(f"{group}/{file}", str(value))
            _write(f"{group}/cgroup.procs", "0")
        except OSError:  # not ours to change
            continue
        return True
    return False


# ---- system calls ------------------------------------------------------------------------------


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    encoded = [None if each is None else os.fsencode(each) for each in (source, target, kind)]
    extra = None if data is None else data.encode()
    if _libc.mount(*encoded, ctypes.c_ulong(flags), extra):
        raise _failure(f"cannot mount {target}")


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments):
        raise _failure(f"cannot {name}")


def _system_call(number: int, *arguments: object) -> int:
    result = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise _failure(f"system call {number} failed")
    return int(result)


def _failure(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 - see the top
        return file.read()


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
