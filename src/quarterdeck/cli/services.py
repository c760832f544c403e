"""The service manager of this computer: systemd's user manager, or launchd.

`manager_of(home)` returns the one that a service of a data directory is installed with; then its
hub and its runner are started and stopped by it, never by a signal: it would start them again.
Tools are `systemctl --user` and `launchctl`, found with PATH. Imports little: `up` starts fast.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from typing_extensions import override

from quarterdeck.cli import service_files
from quarterdeck.cli.service_files import HUB_UNIT, RUNNER_UNIT, SOCKET_UNIT
from quarterdeck.errors import CommandFailed
from quarterdeck.machine.home_locks import BOTH, Role, lock_owner

if TYPE_CHECKING:
    from quarterdeck.cli.service_files import ServiceSettings

logger = logging.getLogger(__name__)

TOOL_SECONDS: Final = 180.0
"""For a service manager to start or stop both: it waits for agents to end."""

START_SECONDS: Final = 20.0
"""For a process that was started to take its lock."""
_POLL_SECONDS: Final = 0.1


class ServiceManager(Protocol):
    """What starts and stops the hub and the runner of one data directory."""

    name: str
    folder: Path
    """Where its files are."""
    names: tuple[str, ...]
    """Of the files."""
    log_folder: Path | None
    """Where it writes what services print; None if it has a journal."""

    @property
    def is_reachable(self) -> bool:
        """Whether it answers: not in a container, nor after `su`."""

    def files(self, settings: ServiceSettings) -> dict[str, str]: ...

    def pid(self, role: Role) -> int | None:
        """Return the process that it runs; None if there is none."""

    def state(self, role: Role) -> str:
        """Return its own word for the state."""

    def start(self, *roles: Role) -> None:
        """Start what does not run, and wait for it.

        Raises:
            CommandFailed: if that fails.
        """

    def stop(self, *roles: Role) -> None:
        """Stop, and do not start again until `start` or the next login.

        Raises:
            CommandFailed: if that fails.
        """

    def install_commands(self, changed: Iterable[str]) -> list[list[str]]:
        """Return what makes files that were written take effect, in this order."""

    def remove_commands(self) -> list[list[str]]:
        """Return what must be done before the files are removed."""

    def forget_commands(self) -> list[list[str]]:
        """Return what must be done afterwards."""

    def log_command(self, *, lines: int, is_followed: bool) -> list[str]: ...

    def run(self, command: Sequence[str]) -> None:
        """Run a command of this manager.

        Raises:
            CommandFailed: with what it printed.
        """


def service_manager(
    environ: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> ServiceManager:
    """Return the one that this computer has."""
    return Launchd(environ) if platform == "darwin" else Systemd(environ)


def manager_of(
    home: Path, environ: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> ServiceManager | None:
    """Return the manager that a service of a data directory is installed with, if it answers."""
    manager = service_manager(environ, platform)
    served = installed_home(manager)
    if served is None or served.resolve() != home.resolve() or not manager.is_reachable:
        return None
    return manager


def start_by_service(
    role: Role, home: Path, environ: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> bool:
    """Start a process by its service; False if there is none, or it does not start."""
    manager = manager_of(home, environ, platform)
    if manager is None:
        return False
    try:
        manager.start(role)
        _wait_for_lock(role, home)
    except CommandFailed as error:
        logger.warning("the service does not start", extra={"role": role, "reason": str(error)})
        return False
    return True


def _wait_for_lock(role: Role, home: Path) -> None:
    """Wait until a process has the lock of its role: launchd returns before that."""
    deadline = time.monotonic() + START_SECONDS
    while lock_owner(home, role) is None:
        if time.monotonic() > deadline:
            raise CommandFailed(f"no {role} has started after {START_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)


def stop_by_service(
    role: Role,
    pid: int,
    home: Path,
    environ: Mapping[str, str] = os.environ,
    platform: str = sys.platform,
) -> bool:
    """Stop a process by its service; False if no service runs it.

    Raises:
        CommandFailed: if the service does not stop.
    """
    manager = manager_of(home, environ, platform)
    if manager is None or manager.pid(role) != pid:
        return False
    manager.stop(role)
    return True


def installed_home(manager: ServiceManager) -> Path | None:
    """Return the data directory that a service is installed for; None if none is."""
    for name in manager.names:
        home = service_files.marked_home(read_file(manager.folder / name) or "")
        if home is not None:
            return home
    return None


def read_file(path: Path) -> str | None:
    """Return the text of a service file; None if there is none.

    Raises:
        CommandFailed: if it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandFailed(
            f"cannot read {path}: {error.strerror}; make it readable, or remove it"
        ) from error


class _Tools:
    """Runs tools with an environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def run(self, command: Sequence[str]) -> None:
        done = self._call(command)
        if done is None or done.returncode != 0:
            found = None if done is None else (done.stderr or done.stdout).strip().splitlines()
            reason = "it was not found, or takes too long" if found is None else " ".join(found)
            raise CommandFailed(
                f"{' '.join(command)} failed: {reason or 'it printed nothing'};"
                " see quarterdeck service logs, or run it yourself"
            )

    def _output(self, *command: str) -> str | None:
        """Return what a tool prints; None if it fails."""
        done = self._call(command)
        return None if done is None or done.returncode != 0 else done.stdout

    def _call(self, command: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
        try:
            return subprocess.run(
                command,
                env=dict(self._environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                encoding="utf-8",
                errors="replace",
                timeout=TOOL_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None


class Systemd(_Tools):
    """systemd's manager of this user."""

    name: str = "systemd"
    names: tuple[str, ...] = (HUB_UNIT, SOCKET_UNIT, RUNNER_UNIT)
    _units: Final[Mapping[Role, tuple[str, ...]]] = {
        # A socket that stays would start the hub again at the next connection.
        "hub": (SOCKET_UNIT, HUB_UNIT),
        "runner": (RUNNER_UNIT,),
    }
    _service: Final[Mapping[Role, str]] = {"hub": HUB_UNIT, "runner": RUNNER_UNIT}

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        self.folder = config_folder(environ) / "systemd" / "user"
        self.log_folder: Path | None = None

    @property
    def is_reachable(self) -> bool:
        return self._output(*_SYSTEMCTL, "show-environment") is not None

    def files(self, settings: ServiceSettings) -> dict[str, str]:
        return service_files.systemd_units(settings)

    def pid(self, role: Role) -> int | None:
        text = (self._property(role, "MainPID") or "").strip()
        return int(text) if text.isdecimal() and text != "0" else None

    def state(self, role: Role) -> str:
        return (self._property(role, "ActiveState") or "unknown").strip()

    @override
    def run(self, command: Sequence[str]) -> None:
        if "start" in command:  # also if it has failed too often: the cause may be gone
            self._call([*_SYSTEMCTL, "reset-failed", *self.names])  # fails for what never ran
        super().run(command)

    def _property(self, role: Role, name: str) -> str | None:
        return self._output(*_SYSTEMCTL, "show", "--property", name, "--value", self._service[role])

    def start(self, *roles: Role) -> None:
        self.run([*_SYSTEMCTL, "start", *self._named(roles[::-1])])

    def stop(self, *roles: Role) -> None:
        self.run([*_SYSTEMCTL, "stop", *self._named(roles)])

    def _named(self, roles: Iterable[Role]) -> list[str]:
        return [unit for role in roles for unit in self._units[role]]

    def install_commands(self, changed: Iterable[str]) -> list[list[str]]:
        commands = [["daemon-reload"], ["enable", *self.names]]
        if {HUB_UNIT, SOCKET_UNIT} & set(changed):  # they have another address or environment
            commands.append(["stop", *self._units["hub"]])
        # A runner that runs is not touched: agents would end with it.
        commands.append(["start", RUNNER_UNIT, *self._units["hub"]])
        return [[*_SYSTEMCTL, *words] for words in commands]

    def remove_commands(self) -> list[list[str]]:
        stop = [["stop", *self._units["hub"]], ["stop", RUNNER_UNIT]]
        return [[*_SYSTEMCTL, *words] for words in (*stop, ["disable", *self.names])]

    def forget_commands(self) -> list[list[str]]:
        return [[*_SYSTEMCTL, "daemon-reload"]]

    def log_command(self, *, lines: int, is_followed: bool) -> list[str]:
        # Not --user: without files for each user, their units log to the system's journal.
        units = [f"--user-unit={unit}" for unit in (RUNNER_UNIT, HUB_UNIT)]
        follow = ["--follow"] if is_followed else ["--no-pager"]
        return ["journalctl", *units, f"--lines={lines}", *follow]

    @property
    def has_journal(self) -> bool:
        """Whether there is a journal that this user can read."""
        output = self._output("journalctl", f"--user-unit={HUB_UNIT}", "--lines=1", "--quiet")
        return bool(output)

    @property
    def lingers(self) -> bool | None:
        """Whether the user's services run without a login; None if that is not known."""
        user = str(os.getuid())
        text = self._output("loginctl", "show-user", user, "--property=Linger", "--value")
        if text is None:  # the user has no login, as in a container
            return None
        return text.strip() == "yes"


_SYSTEMCTL: Final = ("systemctl", "--user")
LINGER_COMMAND: Final = ("loginctl", "enable-linger")


class Launchd(_Tools):
    """launchd's manager of this user, on macOS."""

    name: str = "launchd"
    _labels: Final[Mapping[Role, str]] = {
        "hub": service_files.HUB_LABEL,
        "runner": service_files.RUNNER_LABEL,
    }
    names: tuple[str, ...] = tuple(f"{label}.plist" for label in _labels.values())

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ)
        library = home_folder(environ) / "Library"
        self.folder = library / "LaunchAgents"
        self._logs = library / "Logs" / "Quarterdeck"
        self.log_folder: Path | None = self._logs
        self._domain = f"gui/{os.getuid()}"

    @property
    def is_reachable(self) -> bool:
        return self._output("launchctl", "print", self._domain) is not None

    def files(self, settings: ServiceSettings) -> dict[str, str]:
        return service_files.launchd_agents(settings, self._logs)

    def pid(self, role: Role) -> int | None:
        found = re.search(r"^\s*pid = (\d+)$", self._printed(role) or "", re.MULTILINE)
        return None if found is None else int(found[1])

    def state(self, role: Role) -> str:
        printed = self._printed(role)
        found = re.search(r"^\s*state = (.+)$", printed or "", re.MULTILINE)
        return "not loaded" if printed is None else found[1] if found else "unknown"

    def _printed(self, role: Role) -> str | None:
        return self._output("launchctl", "print", f"{self._domain}/{self._labels[role]}")

    def start(self, *roles: Role) -> None:
        for role in roles[::-1]:
            if self._printed(role) is None:
                self.run(self._bootstrap(role))
            elif self.pid(role) is None:
                self.run(["launchctl", "kickstart", f"{self._domain}/{self._labels[role]}"])

    def stop(self, *roles: Role) -> None:
        for role in roles:
            if self._printed(role) is not None:
                self.run(self._bootout(role))

    @override
    def run(self, command: Sequence[str]) -> None:
        super().run(command)
        if "bootout" not in command:
            return
        # It returns before the process has ended; until then `bootstrap` fails.
        deadline = time.monotonic() + TOOL_SECONDS
        while self._output("launchctl", "print", command[-1]) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _bootstrap(self, role: Role) -> list[str]:
        path = self.folder / f"{self._labels[role]}.plist"
        return ["launchctl", "bootstrap", self._domain, str(path)]

    def _bootout(self, role: Role) -> list[str]:
        return ["launchctl", "bootout", f"{self._domain}/{self._labels[role]}"]

    def install_commands(self, changed: Iterable[str]) -> list[list[str]]:
        commands = []
        for role in BOTH[::-1]:
            is_loaded = self._printed(role) is not None
            is_replaced = role == "hub" and f"{self._labels[role]}.plist" in changed
            if is_loaded and is_replaced:
                commands.append(self._bootout(role))
            if not is_loaded or is_replaced:
                commands.append(self._bootstrap(role))
        return commands

    def remove_commands(self) -> list[list[str]]:
        return [self._bootout(role) for role in BOTH if self._printed(role) is not None]

    def forget_commands(self) -> list[list[str]]:
        return []

    def log_command(self, *, lines: int, is_followed: bool) -> list[str]:
        files = [str(self._logs / f"{role}.log") for role in BOTH]
        return ["tail", *(["-F"] if is_followed else []), "-n", str(lines), *files]


def home_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or os.curdir).absolute()


def config_folder(environ: Mapping[str, str]) -> Path:
    folder = environ.get("XDG_CONFIG_HOME", "")
    return Path(folder) if Path(folder).is_absolute() else home_folder(environ) / ".config"
