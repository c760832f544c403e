"""Confinement: agents and their terminals start without access to the hub's folders and processes.

    confinement = Confinement(hidden=HiddenFolders([home]), mode="on")
    command = guarded_command(["agent"], start=confinement.start())
    confinement.status()            # enforced or advisory, how, why, and what is not covered

On Linux there are three ways, tried in this order with a real command, once per process:

| way                | needs                                      | done by            |
| ------------------ | ------------------------------------------ | ------------------ |
| a mount namespace  | root, or user namespaces for any user      | `confine_program`  |
| bubblewrap         | `bwrap`, where that may do what we may not | `bwrap`            |
| Landlock alone     | ABI 3 of Landlock (Linux 6.2)              | `landlock_program` |

Landlock alone closes files at a price: nothing can be created next to the folders above them. So
with mode `on` it only keeps other processes out of reach, and with `require` it closes the files,
too; the status is *advisory* and lists what is missing. With mode `on`, a machine that has no way
at all starts agents unconfined and says so. With `require`, the agent is not started. The status is
also advisory if a service that the agent can reach would act for it outside: one that starts
containers, or processes of the same user. docs/adr/0031-confinement.md has the reasons.

On macOS there is Seatbelt (`sandbox-exec`), tried in the same way. A sandbox cannot start another
one, and some agents start their own for each command, so it is used with `require` only. It is
advisory, too: a confined program can have others started outside, by `open` for one. No Mac has run
this yet; the trial decides.

A `WorkspaceSandbox` adds to this: the command writes only beneath its workspace, reaches only the
hosts in a list, and has limits. It needs a mount namespace and Linux 5.12.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from quarterdeck.errors import ConfinementUnavailable
from quarterdeck.machine.hidden import NOTHING_HIDDEN, HiddenFolders
from quarterdeck.machine.outside_services import find_services, private_folders

ConfineMode = Literal["on", "off", "require"]
SandboxMode = Literal["off", "workspace"]

_GUARD: Final = str(Path(__file__).with_name("guard_program.py"))
_PROBE_SECONDS: Final = 10.0
_FILE: Final = "file"
_MIB: Final = 1 << 20

_X_SOCKETS: Final = "/tmp/.X11-unix"  # noqa: S108 - where an X server has them


class ConfinementStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """What keeps an agent from the hub's folders, sockets and processes on this machine."""

    status: Literal["enforced", "advisory"]
    how: str
    """The mechanism; empty if there is none."""
    reason: str
    """A sentence: what is kept, or why not and what to do."""
    limits: tuple[str, ...] = ()
    """What is not covered, a sentence each."""


class SandboxLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a workspace sandbox; 0 is none."""

    processes: int = 4096
    """With threads, of the whole sandbox."""
    memory_mb: int = 16 * 1024
    """Of each process: its private memory."""
    file_size_mb: int = 8 * 1024
    """Of each file that is written."""


@dataclass(frozen=True, kw_only=True)
class WorkspaceSandbox:
    """Where a command may write, which hosts it may reach, and how much it may use."""

    write: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    """Names, `*.name` for all below it, each with an optional port; none: no network."""
    limits: SandboxLimits = field(default_factory=SandboxLimits)

    def options(self) -> Iterator[str]:
        for folder in self.write:
            yield f"--write={Path(folder).resolve()}"
        yield f"--network={','.join(self.hosts) or 'none'}"
        values = {
            "processes": self.limits.processes,
            "memory": self.limits.memory_mb * _MIB,
            "file-size": self.limits.file_size_mb * _MIB,
        }
        yield from (f"--limit={name}:{value}" for name, value in values.items() if value > 0)


@dataclass(frozen=True)
class ConfinedStart:
    """How to start a command: options of the guard, and a program in front of the command."""

    options: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()


UNCONFINED: Final = ConfinedStart()


@dataclass(frozen=True, kw_only=True)
class Way:
    """What this machine can do; without a name, nothing."""

    name: Literal["namespace", "bubblewrap", "landlock", "seatbelt"] | None
    how: str = ""
    reason: str = ""
    limits: tuple[str, ...] = ()
    is_root: bool = False


class Confinement:
    """How the commands of agents are started on this machine.

    Args:
        hidden: what they must not see.
        kept: files and folders inside, which they may read; programs in such folders can run.
        mode: the default; each start may have its own.
        environ: where services that would act for an agent are looked for.
        way: what the machine can do; found by trying on first use.
    """

    def __init__(
        self,
        *,
        hidden: HiddenFolders = NOTHING_HIDDEN,
        kept: Sequence[str | Path] = (),
        mode: ConfineMode = "on",
        environ: Mapping[str, str] | None = None,
        way: Way | None = None,
    ) -> None:
        self.hidden = hidden
        self.mode = mode
        self._kept = tuple(str(Path(path).resolve()) for path in kept)
        self._environ = os.environ if environ is None else environ
        self._way = way

    @property
    def read_only(self) -> HiddenFolders:
        """What agents can read but not change; services that write for them must refuse it."""
        return HiddenFolders(_own_installation().locked)

    @property
    def way(self) -> Way:
        return find_way() if self._way is None else self._way

    def start(
        self,
        mode: ConfineMode | None = None,
        sandbox: WorkspaceSandbox | None = None,
        *,
        opened: Sequence[str | Path] = (),
    ) -> ConfinedStart:
        """Return how to start a command; it blocks for a moment when called first.

        It can change the `opened` folders, though they are hidden.

        Raises:
            ConfinementUnavailable: if the mode is `require`, or there is a sandbox, and this
                machine cannot do it.
        """
        mode = mode or self.mode
        if sandbox is not None and self.way.name != "namespace":
            raise ConfinementUnavailable(_no_sandbox(self.way))
        if mode == "off" and sandbox is None:
            return UNCONFINED
        if self.way.name is None or not (self.hidden or sandbox):
            if mode == "require":
                raise ConfinementUnavailable(self.way.reason or "no folder is hidden")
            return UNCONFINED
        folders = [str(Path(path).resolve()) for path in opened]
        if self.way.name in ("bubblewrap", "seatbelt"):
            return ConfinedStart(prefix=tuple(self._prefix(mode, folders)))
        if self.way.name == "landlock" and mode != "require":
            return ConfinedStart(options=("--landlock=scopes",))
        return ConfinedStart(options=tuple(self._options(sandbox, folders)))

    def _prefix(self, mode: ConfineMode, opened: Sequence[str]) -> Iterable[str]:
        """Return the program that confines a command, with its arguments."""
        if self.way.name == "seatbelt":
            return _seatbelt(self.hidden.paths, self._kept, opened) if mode == "require" else ()
        private = private_folders(self._environ)
        return _bubblewrap(self.hidden.paths, self._kept, private=private, opened=opened)

    def _options(self, sandbox: WorkspaceSandbox | None, opened: Sequence[str]) -> Iterator[str]:
        """Yield the options of a guard that confines a command."""
        yield from (f"--hide={path}" for path in self.hidden.paths)
        yield from (f"--keep={path}" for path in self._kept)
        yield from (f"--open={path}" for path in opened)
        yield from _own_program()
        if self.way.name == "landlock":
            yield "--landlock=files"
        else:
            yield from (f"--private={path}" for path in private_folders(self._environ))
        if self.hidden.contains(_X_SOCKETS):
            yield "--scope=abstract"  # an X server listens there, too
        if sandbox is not None:
            yield from sandbox.options()

    def status(
        self, mode: ConfineMode | None = None, sandbox: WorkspaceSandbox | None = None
    ) -> ConfinementStatus:
        """Return what a start with these settings guarantees."""
        mode = mode or self.mode
        if mode == "off" and sandbox is None:
            reason = (
                'confine = "off": the agent can change the hub\'s rules, records and programs, and'
                ' so answer its own requests; remove that line from hub.toml, or set it to "on"'
            )
            return ConfinementStatus(status="advisory", how="", reason=reason)
        way = self.way
        if way.name is None or (way.name in ("landlock", "seatbelt") and mode != "require"):
            return ConfinementStatus(status="advisory", how=way.how, reason=way.reason)
        later = _LATER_THERE if sandbox is not None else _LATER + _shared_environment()
        limits = (*way.limits, later)
        services = () if sandbox is not None else tuple(self._services())
        if services:
            paths = ", ".join(f'"{path}"' for path, _ in services)
            reason = (
                "confined, but a service would act for the agent outside:"
                f" {'; '.join(f'{path} can {deed}' for path, deed in services)};"
                f" to close this, add hide = [{paths}] to hub.toml"
            )
            return ConfinementStatus(status="advisory", how=way.how, reason=reason, limits=limits)
        if way.name in ("landlock", "seatbelt"):
            reason = _FILES_ONLY if way.name == "landlock" else _SEATBELT_ONLY
            return ConfinementStatus(status="advisory", how=way.how, reason=reason, limits=limits)
        if sandbox is None and way.is_root:
            return ConfinementStatus(status="advisory", how=way.how, reason=_ROOT, limits=limits)
        reason = "no access to the hub's data, configuration, sockets and processes"
        if sandbox is not None:
            network = ", ".join(sandbox.hosts) or "no host"
            reason += f"; writes only in {', '.join(sandbox.write) or 'a private /tmp'};"
            reason += f" reaches {network}"
        return ConfinementStatus(status="enforced", how=way.how, reason=reason, limits=limits)

    def _services(self) -> Iterator[tuple[str, str]]:
        """Yield the services that this user can reach and that are not hidden."""
        for path, deed in find_services(self._environ):
            if not self.hidden.contains(path):
                yield path, deed


@dataclass(frozen=True, kw_only=True)
class _Installation:
    """The files of our own that run unconfined and that this user could change."""

    locked: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    """Folders inside, where agents may install packages of theirs."""


@cache
def _own_installation() -> _Installation:
    """Return what agents must not change: the guard, its interpreter, and our own programs.

    They are in a user's own folder. For root, whose agents can change every program of the system,
    nothing is gained; see `_ROOT`. In an environment that is not ours alone, only our package is
    locked; of one that is being developed (an editable installation), only the guard.
    """
    if os.geteuid() == 0:
        return _Installation()
    library = Path(os.__file__).resolve().parent
    python = Path(sys.executable).resolve()
    shared = sorted(library.parent.glob("libpython*"))
    guard = Path(__file__).resolve().parent
    is_installed = any(part in _PACKAGES for part in guard.parts)
    paths = [guard.parent if is_installed else guard, python, *shared, library]
    if any(Path(sys.prefix, name).exists() for name in _OWN_ENVIRONMENT):
        paths.append(Path(sys.prefix).resolve())
    owned = [path for path in paths if os.access(path, os.W_OK) or os.access(path.parent, os.W_OK)]
    free = [library / name for name in _PACKAGES] if library in owned else []
    return _Installation(locked=tuple(map(str, owned)), free=tuple(map(str, free)))


_PACKAGES: Final = ("site-packages", "dist-packages")
_OWN_ENVIRONMENT: Final = ("uv-receipt.toml", "pipx_metadata.json")
"""What `uv tool install` and `pipx install` leave in an environment of one program."""


def _shared_environment() -> str:
    """Return more that an agent can change for later: an environment that is not ours alone."""
    own, prefix = _own_installation(), str(Path(sys.prefix).resolve())
    if os.geteuid() == 0 or prefix in own.locked or not os.access(prefix, os.W_OK):
        return ""
    return (
        f"; so does what it adds to {prefix}, where Quarterdeck is installed"
        " (uv tool install and pipx prevent this)"
    )


def _own_program() -> tuple[str, ...]:
    """Return the options that keep an agent from changing what starts unconfined."""
    own = _own_installation()
    return (*(f"--lock={path}" for path in own.locked), *(f"--free={path}" for path in own.free))


def _no_sandbox(way: Way) -> str:
    if way.name == "seatbelt":
        return "a sandbox needs Linux; remove the sandbox setting, or run this agent on Linux"
    if way.name != "bubblewrap":
        return way.reason
    return "bubblewrap alone cannot do this; allow user namespaces, or remove the sandbox setting"


# ---- what this machine can do ------------------------------------------------------------------


@cache
def find_way() -> Way:
    """Return what this machine can do, found by trying."""
    return choose_way(sys.platform)


def choose_way(platform: str) -> Way:
    """Try each way of a platform."""
    if platform == "darwin" and _SEATBELT.exists():
        return _try_seatbelt()
    if platform != "linux":
        reason = (
            "this system has no way to confine a program: agents can read the hub's folders;"
            " run the hub on Linux, or agents as another user"
        )
        return Way(name=None, reason=reason)
    failure = _probe(_guard())
    if failure is None:
        is_root = os.geteuid() == 0
        limits = _namespace_limits()
        return Way(name="namespace", how=_namespace_words(), limits=limits, is_root=is_root)
    program = shutil.which("bwrap")
    if program is not None and _probe([*_bubblewrap(["{folder}"], (), program)]) is None:
        return Way(name="bubblewrap", how="bubblewrap", limits=(_SWAPPED, _PRIVILEGES))
    reason = (
        f"this machine cannot confine agents ({failure}): they can read the hub's folders;"
        f" {_advice()}"
    )
    if landlock_abi() >= _FILES_SINCE and _probe(_guard("--landlock=files")) is None:
        reason += ', or set confine = "require" to close them by Landlock'
        how = f"Landlock alone (ABI {landlock_abi()})"
        return Way(name="landlock", how=how, reason=reason, limits=_landlock_limits())
    return Way(name=None, reason=reason)


def _try_seatbelt() -> Way:
    failure = _probe(_seatbelt(["{folder}"], ()))
    if failure is not None:
        reason = (
            f"Seatbelt cannot confine agents here ({failure}): they can read the hub's folders;"
            " run the hub on Linux, or agents as another user"
        )
        return Way(name=None, reason=reason)
    reason = (
        "agents can read the hub's folders; to close them by Seatbelt, which ends sandboxes of"
        ' the agents\' own, set confine = "require"; or run the hub on Linux'
    )
    return Way(name="seatbelt", how="Seatbelt", reason=reason, limits=_SEATBELT_LIMITS)


def _guard(*options: str) -> list[str]:
    """Return a guard that hides a folder from a command, for `_probe`."""
    return [sys.executable, "-I", "-S", _GUARD, "--hide={folder}", *options, "{pid}", "0"]


_PRIVILEGES: Final = "sudo and other programs that change the user do not work in a confined agent"
_SWAPPED: Final = (
    "an agent can rename the folders above the hidden ones and put others in their place"
)
_LATER: Final = (
    "an agent can change what you start later: shell profiles, programs in PATH, hooks and scripts"
    " of projects; that runs outside, as you"
)
_LATER_THERE: Final = (
    "what you start yourself from the workspace (hooks, scripts, builds) runs outside, as you"
)
_ROOT: Final = (
    "confined, but the agent runs as root: it can replace programs and services of the system that"
    " start outside later; run the hub as an ordinary user, or sandbox the agent"
)
_FILES_ONLY: Final = (
    "by Landlock alone: the hub's files and processes are closed, sockets are not, so a program of"
    " yours that listens at one (tmux, a container engine) would act for the agent; allow user"
    " namespaces, or install bubblewrap"
)
_SEATBELT: Final = Path("/usr/bin/sandbox-exec")
_SEATBELT_ONLY: Final = (
    "by Seatbelt: the hub's files and sockets are closed, but an agent can have a program started"
    " outside; run agents as another user, or the hub on Linux"
)
_SEATBELT_LIMITS: Final = (
    "an agent can have programs started outside: by open, osascript and launchctl, which then act"
    " as you",
    "an agent cannot send signals to processes outside",
    "sandboxes of an agent's own do not work: turn them off in its settings",
)
_FILES_SINCE: Final = 3
"""The ABI of Landlock that keeps files from being cut; without, closing them is worth little."""
_LANDLOCK_LIMITS: Final = (
    "an agent can connect to sockets outside; the hub's own refuses it",
    "an agent can see the names of hidden files",
    "an agent cannot create, rename or remove anything directly in the folders above the hidden"
    " ones (your home folder, ~/.config, ~/.local/share), or open what is created there later",
    "sandboxes of an agent's own that mount do not work",
)
_LANDLOCK_ROOT: Final = (
    "an agent run by root can change settings of the kernel and read disks, unless a container"
    " closes them"
)
_SIGNALS: Final = (
    "an agent can send signals to processes of the same user, the hub included; Linux 6.12 and"
    " newer prevent this"
)


def _namespace_words() -> str:
    abi = landlock_abi()
    scope = f" and Landlock (ABI {abi})" if abi >= 6 else ""
    return f"mount and user namespaces{scope}"


def _namespace_limits() -> tuple[str, ...]:
    limits = () if landlock_abi() >= 6 else (_SIGNALS,)
    if os.geteuid() == 0:
        rights = "an agent run by root cannot mount disks, load modules or use ports below 1024"
        return (*limits, rights)
    return (*limits, _PRIVILEGES)


def _landlock_limits() -> tuple[str, ...]:
    signals = () if landlock_abi() >= 6 else (_SIGNALS,)
    root = (_LANDLOCK_ROOT,) if os.geteuid() == 0 else (_PRIVILEGES,)
    return (*_LANDLOCK_LIMITS, *signals, *root)


def landlock_abi() -> int:
    """Return the version of Landlock's ABI; 0 without Landlock."""
    return _landlock_abi()


@cache
def _landlock_abi() -> int:
    if sys.platform != "linux":
        return 0
    import ctypes  # noqa: PLC0415 - there is no such call elsewhere

    create_ruleset, version = 444, 1
    answer = ctypes.CDLL(None).syscall(
        ctypes.c_long(create_ruleset), None, ctypes.c_size_t(0), version
    )
    return max(int(answer), 0)


def _advice() -> str:
    with suppress(OSError):
        setting = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
        if setting.read_text().strip() == "1":
            return (
                "AppArmor restricts user namespaces here: allow them with"
                " sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0, or install bubblewrap"
                " with its AppArmor profile"
            )
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "in a container, start it with --security-opt seccomp=unconfined --cap-add SYS_ADMIN"
    return "allow user namespaces (sysctl user.max_user_namespaces), or install bubblewrap"


def _probe(prefix: Sequence[str]) -> str | None:
    """Hide a folder from a command; return what went wrong, if anything."""
    with tempfile.TemporaryDirectory(prefix="quarterdeck-probe-") as made:
        folder = str(Path(made).resolve())
        Path(folder, _FILE).write_text("visible")
        filled = [part.format(folder=folder, pid=os.getpid()) for part in prefix]
        check = ["/bin/sh", "-c", f'test -d "$0" && ! cat "$0/{_FILE}" 2>/dev/null', folder]
        try:
            done = subprocess.run(
                [*filled, *check],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_PROBE_SECONDS,
                cwd="/",
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(getattr(error, "strerror", None) or "it takes too long")
    if done.returncode == 0:
        return None
    words = done.stderr.decode(errors="replace").strip().splitlines()
    detail = words[-1] if words else "a hidden folder stays visible"
    return detail.removeprefix("cannot confine the command: ").removesuffix(
        "; see `quarterdeck doctor`"
    )


def _bubblewrap(
    hidden: Sequence[str],
    kept: Sequence[str],
    program: str | None = None,
    *,
    private: Sequence[str] = (),
    opened: Sequence[str | Path] = (),
) -> Iterator[str]:
    """Yield a command line of bubblewrap: everything as it is, without these folders."""
    yield from (
        program or shutil.which("bwrap") or "bwrap",
        "--dev-bind",
        "/",
        "/",
        "--unshare-pid",
        "--proc",
        "/proc",
    )
    yield "--die-with-parent"
    for path in private:
        yield from ("--perms", "0700", "--tmpfs", path)
    for path in hidden:
        if path == "{folder}" or Path(path).is_dir():
            yield from ("--tmpfs", path)
            for file in kept:
                if Path(path) in Path(file).parents:
                    yield from ("--ro-bind-try", file, file)
            for folder in opened:
                if Path(path) in Path(folder).parents:
                    yield from ("--bind-try", str(folder), str(folder))
            yield from ("--remount-ro", path)
        elif Path(path).exists():
            yield from ("--ro-bind", os.devnull, path)
    yield "--"


def _seatbelt(hidden: Sequence[str], kept: Sequence[str], opened: Sequence[str] = ()) -> list[str]:
    """Return a command line of sandbox-exec: everything as it is, without the hidden folders.

    Of rules that match, the last one decides. What is above a folder cannot be moved away: the
    rules are about paths.
    """
    lines = ["(version 1)", "(allow default)", "(deny signal)"]
    lines.append("(allow signal (target same-sandbox))")
    for path in hidden:
        quoted = _quoted(path)
        lines += (
            f"(deny file-read* file-write* (subpath {quoted}))",
            f"(allow file-read-metadata (literal {quoted}))",
            f"(deny network-outbound (remote unix-socket (subpath {quoted})))",
        )
        above = (str(each) for each in Path(path).parents if str(each) not in ("/", "."))
        lines += (f"(deny file-write-unlink (literal {_quoted(each)}))" for each in above)
    lines += (f"(allow file-read* (literal {_quoted(each)}))" for each in kept)
    lines += (f"(allow file-read* file-write* (subpath {_quoted(each)}))" for each in opened)
    return [str(_SEATBELT), "-p", "\n".join(lines)]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
