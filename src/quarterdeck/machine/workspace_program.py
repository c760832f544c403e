"""The part of the guard that makes a workspace sandbox; `confine_program` loads it for one.

The same rules hold: standard library only, and as little of it as possible. Options:

    write=FOLDER   the command can write here, in private folders for temporary files, nowhere else
    network=none   no network but its own loopback
    network=HOSTS  the same, with an HTTP proxy to these hosts (separated by commas)
    limit=NAME:N   a resource limit: processes, memory (bytes) or file-size (bytes)

Everything is mounted read-only, recursively; the writable folders are bound on top. A socket can be
used on a read-only file system, and a service that listens there (a container engine, a service
manager) would write for the command. So the runtime folder is replaced by an empty one. Each socket
elsewhere that a process listens at is covered by an empty file, but not in the writable folders.

The command has a network of its own with a loopback device. A socket belongs to the network that it
was created in. So the command's process opens a listening socket there and hands it to the proxy,
which was started before, outside: the proxy accepts connections from inside and opens its own
outside. Programs find it by HTTP_PROXY and HTTPS_PROXY; a program that ignores them has no network.
"""

from __future__ import annotations

import _socket  # `socket` without the enumerations
import ctypes
import os
import resource
import stat
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal

    from quarterdeck.machine import confine_program as base
else:
    import _signal as signal  # without the enumerations

    base = __import__("confine_program")

_MOUNT_SETATTR = 442  # the same on all architectures
_AT_FDCWD, _AT_RECURSIVE, _ATTR_READ_ONLY = -100, 0x8000, 1
_PRIVATE_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - not used from here
_RUNTIME_KEPT = ("/run/current-system", "/run/wrappers")  # where some systems have their programs
_SET_FLAGS, _IFF_UP = 0x8914, 1  # SIOCSIFFLAGS
_ACCEPTS = "00010000"  # the flag of a listening socket in /proc/net/unix
_LOCAL = "127.0.0.1,localhost,::1"


class Sandbox:
    """The steps of a sandbox, in the order of its methods; creating it is the first."""

    def __init__(self, options: dict[str, list[str]]) -> None:
        """Start the proxy, which is not limited and stays outside; then set the limits."""
        self._writable = options.get("write", [])
        self._kept = [*self._writable, *options.get("hide", [])]
        self._sockets = _listening_sockets()  # of this network namespace
        hosts = options["network"][0]
        self._proxy = None if hosts == "none" else _start_proxy(hosts)
        for limit in options.get("limit", []):
            _limit(limit)

    def restrict_files(self) -> None:
        """Make everything read-only but the writable folders and private ones."""
        kept = [path for path in _RUNTIME_KEPT if base.is_folder(path)]
        paths = (*kept, *self._writable)
        opened = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in paths}
        was_read_only = {path: os.statvfs(path).f_flag & base.READ_ONLY for path in opened}
        _set_attributes("/", _AT_RECURSIVE, added=_ATTR_READ_ONLY)
        # A process writes to its own files in /proc, to enter namespaces for one.
        _set_attributes("/proc", 0, cleared=_ATTR_READ_ONLY)
        for folder in _PRIVATE_FOLDERS:
            if base.is_folder(folder) and not _is_link(folder):
                mode = "0755" if folder == "/run" else "1777"
                flags, size = base.NO_SUID | base.NO_DEVICES, "size=25%"
                base.mount("none", folder, "tmpfs", flags, f"{size},mode={mode}")
        for path, fd in opened.items():
            os.makedirs(path, exist_ok=True)  # noqa: PTH103 - it may be in a private folder
            base.mount(f"/proc/self/fd/{fd}", path, None, base.BIND | base.RECURSIVE)
            os.close(fd)
            if path in self._writable and not was_read_only[path]:
                _set_attributes(path, 0, cleared=_ATTR_READ_ONLY)
        for path in filter(_is_socket, self._sockets):
            if not any(path.startswith(f"{folder}/") for folder in self._kept):
                base.mount("/dev/null", path, None, base.BIND)

    def open_network(self) -> dict[str, str]:
        """Start the loopback device, hand the proxy its socket; return variables for both."""
        _start_loopback()
        variables = {"TMPDIR": "/tmp"}  # noqa: S108 - the private one
        if self._proxy is None:
            return variables
        listening = _socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", listening.fileno()))
        self._proxy.sendmsg([b"1"], [rights])
        self._proxy.close()
        listening.close()
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            variables[name] = variables[name.lower()] = url
        variables["NO_PROXY"] = variables["no_proxy"] = _LOCAL
        return variables


def _listening_sockets() -> list[str]:
    """Return the paths of sockets that processes listen at."""
    found: dict[str, None] = {}
    for line in base.read_file("/proc/net/unix").splitlines()[1:]:
        words = line.split(None, 7)
        if len(words) == 8 and words[3] == _ACCEPTS and words[7].startswith("/"):
            found[words[7]] = None
    return list(found)


def _is_socket(path: str) -> bool:
    """Whether a socket is still there, and is not covered yet."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)  # noqa: PTH116 - see the top
    except OSError:
        return False


def _is_link(path: str) -> bool:
    try:
        os.readlink(path)  # noqa: PTH115 - see the top
    except OSError:
        return False
    return True


def _set_attributes(path: str, flags: int, *, added: int = 0, cleared: int = 0) -> None:
    attributes = (ctypes.c_uint64 * 4)(added, cleared, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    base.system_call(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, attributes, size)


def _start_proxy(hosts: str) -> _socket.socket:
    """Start the proxy, which waits for its listening socket; return the socket to send it by."""
    ours, theirs = _socket.socketpair()
    child = os.fork()
    if child == 0:
        if os.fork():
            os._exit(0)  # so that the guard is its parent, not the command
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the guard blocks those that end it
        ours.close()
        folder = __file__.rpartition("/")[0]
        number = theirs.fileno()
        os.set_inheritable(number, True)  # noqa: FBT003 - it has no name
        program = [sys.executable, "-I", "-S", f"{folder}/proxy_program.py", str(number), hosts]
        os.execv(program[0], program)  # noqa: S606 - running it is the purpose
    os.waitpid(child, 0)
    theirs.close()
    return ours


def _start_loopback() -> None:
    request = _socket.socket()
    flags = struct.pack("16sh14x", b"lo", _IFF_UP)
    failed = base.libc.ioctl(request.fileno(), _SET_FLAGS, flags)
    request.close()
    if failed:
        raise base.failure("cannot start the loopback device")


def _limit(limit: str) -> None:
    name, _, number = limit.partition(":")
    value = int(number)
    if name == "file-size":
        resource.setrlimit(resource.RLIMIT_FSIZE, (value, value))
    elif name == "memory":
        # Not the address space: that counts what runtimes reserve and never use.
        resource.setrlimit(resource.RLIMIT_DATA, (value, value))
    elif os.geteuid() != 0:
        resource.setrlimit(resource.RLIMIT_NPROC, (value, value))
    else:  # the kernel exempts user id 0 from RLIMIT_NPROC
        _enter_group(value)


def _enter_group(processes: int) -> None:
    """Move this process to a new cgroup with a limit of processes; the guard removes it."""
    for group in _groups(os.getpid()):
        try:
            os.mkdir(group)  # noqa: PTH102 - see the top
            base.write_file(f"{group}/pids.max", str(processes))
            base.write_file(f"{group}/cgroup.procs", "0")
        except OSError:  # there is no such controller, or it is not ours to use
            remove_groups(os.getpid())
            continue
        return
    raise OSError(1, "the processes of root cannot be limited without the pids cgroup")


def remove_groups(pid: int) -> None:
    """Remove the cgroup of a process that has ended with all its descendants."""
    for group in _groups(pid):
        try:  # noqa: SIM105 - see the top
            os.rmdir(group)  # noqa: PTH106 - see the top
        except OSError:  # it was not created
            pass


def _groups(pid: int) -> list[str]:
    """Return where the cgroup of a process could be, for cgroups of version 1 and 2."""
    found = []
    for line in base.read_file("/proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or controllers == "pids":
            top = f"/sys/fs/cgroup/{controllers}" if controllers else "/sys/fs/cgroup"
            found.append(f"{top}{path.rstrip('/')}/quarterdeck-{pid}")
    return found
