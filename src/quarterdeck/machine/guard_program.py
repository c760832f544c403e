"""The guard: a program that runs a command and ends everything that the command started.

    python -I -S guard_program.py [--OPTION=VALUE ...] OWNER_PID GRACE_SECONDS COMMAND [WORD ...]

`processes.guarded_command` builds that line. Standard library only, and as little of it as possible
(no `contextlib`, no `pathlib`), because every agent and every terminal waits for the guard to
start.

Two processes, one forked from the other, supervise the command:

    owner ── outer ── inner ── command ── its descendants
                               (session of its own, the same stdin, stdout and stderr)

| event | noticed by | consequence |
| --- | --- | --- |
| the owner dies, by any means | outer (pidfd) | outer exits |
| outer dies and the owner is gone | inner (pidfd) | all below: SIGTERM, grace, SIGKILL |
| outer dies and the owner lives (it killed us) | inner | all below: SIGKILL at once |
| inner is killed | outer | all below, now its own: SIGKILL at once |
| the command ends | inner | what it left: SIGTERM, grace, SIGKILL; same exit status or signal |
| SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 | outer, then inner | forwarded, once |

Both are child subreapers: a process that loses its parent, also one with a session of its own, gets
the nearest of them as its parent, never init. So "all below" is found by reading /proc until
nothing is left. Out of reach are processes of another user (sudo), what a daemon starts for the
command (docker), and a command that kills or stops both guards at the same moment: that takes a
cgroup. Such a process can still be recognised (`_mark`).

Options confine the command; `confine_program`, which is loaded only then, explains them. The guards
themselves stay outside.

macOS has neither subreapers nor pidfds. There a kqueue reports the end of the owner, and the inner
guard looks every second for what is below it, and sets a variable in the environment of the
command. So "all below" is what it has seen, what is below that, the command's process group, and
what has the variable (`macos_processes.family`). Not found is a process that lost its parent within
a second, has a group of its own, and hides its environment, as programs that came with macOS do.
Other systems: the owner is polled, and only the command's process group is killed.
"""

from __future__ import annotations

import os
import select
import sys
import time

TYPE_CHECKING = False  # `typing` is expensive to import
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable, Iterator
    from typing import Any, NoReturn
else:
    try:
        import _signal as signal  # `signal` without the enumerations: a quarter of our start-up
    except ImportError:
        import signal

_FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
_SYSTEM: str = sys.platform  # a variable, so that a type checker reads what is for macOS, too
_CANNOT_RUN, _NOT_FOUND = 126, 127  # the exit statuses shells use
_KILL_SECONDS = 5.0  # for killed processes to end; one that takes longer hangs in a driver
_POLL_MILLISECONDS = 200  # between checks of an owner that has no pidfd
_LOOK_MILLISECONDS = 1_000  # between two looks at what is below a guard, without subreapers
_TICK_SECONDS = 0.005  # between checks of processes that are ending
_FAMILY_TICK_SECONDS = 0.05  # the same by a look at all processes
_MARK_VARIABLE = "QUARTERDECK_GUARD_MARK"  # as in `macos_processes`
_PREFIX = b"QUARTERDECK_GUARDED_"  # of the names of the command's variables; see `guarded_env`
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_RLIMIT_MSGQUEUE = 12
MARK_BYTES = 818_977  # the default limit is 819,200


class _ParentProcess:
    """The parent process, and whether it is alive."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._queue: Any = None
        try:
            self.fd = os.pidfd_open(pid)
            self._is_pinned = True
        except (AttributeError, OSError):  # not Linux, an old kernel, a strict sandbox, or gone
            self.fd = self._open_queue()
            self._is_pinned = False
        self._was_parent = os.getppid() == pid

    @property
    def timeout(self) -> int:
        """Milliseconds after which it must be checked again; -1 if `fd` reports its end."""
        if self._is_pinned:
            return -1
        return _POLL_MILLISECONDS if self.fd < 0 else _LOOK_MILLISECONDS

    def is_alive(self) -> bool:
        """Return whether it is alive; with a pidfd also after it stopped being our parent."""
        if not self._was_parent:
            return False
        if not self._is_pinned:
            return os.getppid() == self._pid
        return not select.select([self.fd], [], [], 0)[0]

    def is_alive_for_child(self) -> bool:
        """Return whether it is alive, in a process that was forked since; False if not known."""
        if self._is_pinned or _SYSTEM != "darwin":
            return self.is_alive()
        try:
            return _macos().find(self._pid) is not None
        except OSError:
            return False

    def _open_queue(self) -> int:
        """Return a descriptor that is readable when the process has ended; -1 without kqueue.

        It only ends a wait early: `getppid` decides. A forked process does not inherit it.
        """
        known: Any = select
        try:
            self._queue = known.kqueue()
            ended = (self._pid, known.KQ_FILTER_PROC, known.KQ_EV_ADD, known.KQ_NOTE_EXIT)
            self._queue.control([known.kevent(*ended)], 0)
        except (AttributeError, OSError):
            self._queue = None
            return -1
        fd: int = self._queue.fileno()
        return fd


class _Signals:
    """Signals as bytes in a pipe, so that one `poll` waits for them and for the parent."""

    def __init__(self) -> None:
        self.fds = self.fd, write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(write_fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        for number in (*_FORWARDED, signal.SIGCHLD):
            signal.signal(number, lambda _number, _frame: None)

    def arrived(self) -> bytes:
        try:
            return os.read(self.fd, 512)
        except BlockingIOError:
            return b""


def living_descendants(ancestor: int) -> list[int]:
    """Return every process below `ancestor` that is not a zombie; nothing without /proc."""
    children: dict[int, list[int]] = {}
    zombies = set()
    for pid, parent, state in _processes():
        children.setdefault(parent, []).append(pid)
        if state in "ZX":
            zombies.add(pid)
    found, todo = [], [ancestor]
    while todo:
        below = children.pop(todo.pop(), [])
        found += below
        todo += below
    return [pid for pid in found if pid not in zombies]


def _processes() -> Iterator[tuple[int, int, str]]:
    """Yield (pid, parent's pid, state) of every process."""
    if _SYSTEM == "darwin":
        yield from _macos().processes()
        return
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - see the top
    except OSError:
        return
    for name in names:
        if name.isdigit():
            try:
                fd = os.open(f"/proc/{name}/stat", os.O_RDONLY)
                line = os.read(fd, 1024)
                os.close(fd)
            except OSError:  # it has ended meanwhile
                continue
            # The name of the program is in parentheses and may contain anything.
            state, parent = line[line.rindex(b")") + 1 :].split(None, 2)[:2]
            yield int(name), int(parent), state.decode()


def send_signal(pid: int, number: int) -> None:
    try:  # noqa: SIM105 - see the top
        os.kill(pid, number)
    except OSError:  # gone already, or not ours to signal
        pass


def _reap(child: int) -> int | None:
    """Reap all children that have ended; return the status of `child` if it is one of them."""
    found = None
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return found
            if pid == child:
                found = status
    except ChildProcessError:
        return found


def _has_children() -> bool:
    """Return whether anything is left; for a subreaper, no child means no descendant."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _supervise(
    parent: _ParentProcess, child: int, signals: _Signals, family: _Family | None = None
) -> int | None:
    """Forward signals to `child` until it ends; return its status, or None if `parent` died."""
    poll = select.poll()
    poll.register(signals.fd, select.POLLIN)
    if parent.fd >= 0:
        poll.register(parent.fd, select.POLLIN)
    while True:
        for number in signals.arrived():
            if number in _FORWARDED:
                send_signal(child, number)  # not reaped yet: the number is still its own
        status = _reap(child)
        if status is not None or not parent.is_alive():
            return status
        if not poll.poll(parent.timeout) and family is not None:
            family.look()


class _Family:
    """What a guard has started, on macOS; see the top."""

    def __init__(self, group: int, mark: str) -> None:
        self._groups = {group} if group > 1 else set()
        self._mark = mark.encode()
        self._known: set[int] = set()

    def look(self) -> None:
        """Note what is below us, before it loses its parent."""
        known = {pid for pid in self._known if _macos().find(pid) is not None}
        self._known = known | _macos().descendants({os.getpid(), *known})

    def end(self, grace_seconds: float) -> None:
        """Send SIGTERM to all, then SIGKILL until nothing is left."""
        if grace_seconds > 0:
            for pid in self._living():
                send_signal(pid, signal.SIGTERM)
                send_signal(pid, signal.SIGCONT)
            self._wait(grace_seconds, None)
        for group in self._groups:
            send_signal(-group, signal.SIGKILL)
        self._wait(_KILL_SECONDS, signal.SIGKILL)

    def _wait(self, seconds: float, number: int | None) -> None:
        """Wait for all to end, and send this signal again and again."""
        deadline = time.monotonic() + seconds
        while living := self._living():
            if time.monotonic() > deadline:
                return
            for pid in living if number is not None else ():
                send_signal(pid, number or 0)
            time.sleep(_FAMILY_TICK_SECONDS)

    def _living(self) -> set[int]:
        _has_children()  # reaps those that have ended
        try:
            self._known = _macos().family(self._known, self._groups, self._mark)
        except OSError:  # no libproc: there is the group
            self._known = set()
        return self._known


def _end_descendants(group: int, grace_seconds: float) -> None:
    """Send SIGTERM to everything below us, then SIGKILL until nothing is left."""
    me = os.getpid()
    if grace_seconds > 0 and _has_children():
        for pid in living_descendants(me):
            send_signal(pid, signal.SIGTERM)
            send_signal(pid, signal.SIGCONT)  # a stopped process would not handle it
        deadline = time.monotonic() + grace_seconds
        while _has_children() and time.monotonic() < deadline:
            time.sleep(_TICK_SECONDS)
    if sys.platform != "linux":
        send_signal(-group, signal.SIGKILL)
    deadline = time.monotonic() + _KILL_SECONDS
    while _has_children() and time.monotonic() < deadline:
        for pid in living_descendants(me):
            send_signal(pid, signal.SIGKILL)
        time.sleep(_TICK_SECONDS)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - elsewhere there is no prctl, and ctypes is expensive

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _mark() -> None:
    """Lower a hard limit below that of the owner; everything below inherits it.

    It limits the message queues of POSIX by a few bytes, and is the one sign of an agent's process
    that is left when both guards were killed: only root can raise it again, and a process that
    lowers it further stays below the owner's.
    """
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - as in `_prctl`

        libc = ctypes.CDLL(None)
        limits = (ctypes.c_ulong * 2)()
        if libc.getrlimit(_RLIMIT_MSGQUEUE, limits) == 0 and limits[1] > 0:
            limits[1] = min(limits[1] - 1, MARK_BYTES)
            limits[0] = min(limits[0], limits[1])
            libc.setrlimit(_RLIMIT_MSGQUEUE, limits)


def _close_inherited(*keep: int) -> None:
    """Close inherited descriptors: a pipe must end when the command closes it."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    folder = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    for name in os.listdir(folder):  # noqa: PTH208 - see the top
        if int(name) > 2 and int(name) not in keep:
            try:  # noqa: SIM105 - see the top
                os.close(int(name))
            except OSError:  # the one that `listdir` used
                pass
    os.chdir("/")  # a guard must not keep a file system busy


def _end_like(status: int) -> NoReturn:
    """Exit as the child did, so that the owner sees its status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        _prctl(_PR_SET_DUMPABLE, 0)  # the child has dumped its core already, if at all
        try:  # noqa: SIM105 - see the top
            signal.signal(number, signal.SIG_DFL)
        except OSError:  # SIGKILL has nothing else
            pass
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))


def _restore_locale() -> None:
    """Undo the one change Python makes to its environment: LC_CTYPE in the C locale (PEP 538)."""
    if sys.platform == "linux" and "LC_CTYPE" in os.environ:
        del os.environ["LC_CTYPE"]
        with open("/proc/self/environ", "rb") as original:  # noqa: PTH123 - see the top
            for variable in original.read().split(b"\0"):
                if variable.startswith(b"LC_CTYPE="):
                    os.environ["LC_CTYPE"] = os.fsdecode(variable[9:])


def _load(name: str) -> Any:
    """Import a module next to this file, which most commands do not need."""
    if __package__:
        return getattr(__import__(__package__, fromlist=[name]), name)
    sys.path.append(__file__.rpartition("/")[0])
    return __import__(name)


def _macos() -> Any:
    """Return `macos_processes`; its first use takes a moment, for ctypes."""
    return sys.modules.get("macos_processes") or _load("macos_processes")


def _confine(options: list[str]) -> dict[str, str]:
    """Confine this process, return variables to set; if it fails, the process ends and says why."""
    try:
        variables: dict[str, str] = _load("confine_program").confine(options)
    except (ImportError, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        os.write(2, f"cannot confine the command: {reason}; see `quarterdeck doctor`\n".encode())
        os._exit(_CANNOT_RUN)
    return variables


def _restore_environment() -> None:
    """Set the command's own variables, which we were given under other names.

    Under their own, some would change the guard, which is not confined: LD_PRELOAD is code. A
    program that starts a guard with its own environment gives none under other names.
    """
    given = dict(os.environb)
    if not any(name.startswith(_PREFIX) for name in given):
        _restore_locale()
        return
    os.environb.clear()
    for name, value in given.items():
        if name.startswith(_PREFIX):
            os.environb[name[len(_PREFIX) :]] = value


class _Start:
    """What is to be started, and how."""

    def __init__(self, arguments: list[str]) -> None:
        count = 0
        while arguments[count].startswith("--"):
            count += 1
        self.options = [argument[2:] for argument in arguments[:count]]
        self.owner = int(arguments[count])
        self.grace_seconds = float(arguments[count + 1])
        self.command = arguments[count + 2 :]
        self.mask: Iterable[int] = ()
        """The signals that the command has blocked."""
        self.mark = ""
        """The value of the variable by which macOS shows what the command has started."""
        self.report: tuple[int, ...] = ()
        """A pipe for the number of the command, which the outer guard needs without subreapers."""
        if _SYSTEM == "darwin":
            self.mark = f"{os.getpid()}-{time.time_ns()}"
            self.report = os.pipe()


def _become(start: _Start) -> NoReturn:
    """Replace this process by the command, with the signal settings we inherited."""
    os.setsid()
    variables = _confine(start.options) if start.options else {}
    if start.mark:
        variables[_MARK_VARIABLE] = start.mark
    _restore_environment()  # not before: the proxy of a sandbox is not confined either
    os.environ.update(variables)
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, start.mask)
    name = start.command[0]
    try:
        os.execvp(name, start.command)  # noqa: S606 - running it is the purpose
    except OSError as error:
        os.write(2, f"cannot start {name!r}: {error.strerror}\n".encode(errors="replace"))
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN)


def _guard_inside(start: _Start, outer: int, owner: _ParentProcess) -> NoReturn:
    os.setsid()  # a signal to the group of the outer guard is for it alone
    parent = _ParentProcess(outer)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    child = os.fork()
    if child == 0:
        _become(start)
    if start.report:
        os.write(start.report[1], str(child).encode())
    signals = _Signals()
    _close_inherited(*signals.fds, parent.fd, owner.fd)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    family = _Family(child, start.mark) if start.mark else None
    status = _supervise(parent, child, signals, family)
    owner_killed_us = status is None and owner.is_alive_for_child()
    grace_seconds = 0 if owner_killed_us else start.grace_seconds
    if family is None:
        _end_descendants(child, grace_seconds)
    else:
        family.end(grace_seconds)
    if any(option.startswith("limit=processes") for option in start.options):
        _load("workspace_program").remove_groups(child)
    _end_like(status or 0)


def main(arguments: list[str]) -> NoReturn:
    start = _Start(arguments)
    outer, owner = os.getpid(), _ParentProcess(start.owner)
    if not owner.is_alive():
        os._exit(0)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _mark()
    # No signal may be lost, or end us, between a fork and the installation of the handlers.
    start.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    inner = os.fork()
    if inner == 0:
        _guard_inside(start, outer, owner)
    signals = _Signals()
    _close_inherited(*signals.fds, owner.fd, *start.report)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    status = _supervise(owner, inner, signals)
    if status is None:
        send_signal(inner, signal.SIGCONT)  # it may have been stopped; the rest is its task
        os._exit(0)
    if not start.report:
        _end_descendants(inner, 0)
    elif os.WIFSIGNALED(status):  # it may have been killed, and has not ended the rest
        os.close(start.report[1])
        _Family(int(os.read(start.report[0], 20) or 0), start.mark).end(0)
    _end_like(status)


if __name__ == "__main__":
    main(sys.argv[1:])
