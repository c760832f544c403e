"""`quarterdeck service`: install, remove, start, stop, status, logs.

Each public function is an action: it takes the parsed arguments and returns the exit status. What
would be written and run is decided first (`_Installation`), so that `--dry-run` shows exactly that.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio

from quarterdeck.cli.arguments import DONE, FAILED, INTERRUPTED
from quarterdeck.cli.config import VARIABLE, hub_options, load_config
from quarterdeck.cli.hub_access import HubAddress
from quarterdeck.cli.runner_start import READY_SECONDS, program
from quarterdeck.cli.running_processes import RunningProcess, end_process, find_process
from quarterdeck.cli.service_files import ServiceSettings, marked_home
from quarterdeck.cli.services import (
    LINGER_COMMAND,
    ServiceManager,
    Systemd,
    config_folder,
    installed_home,
    read_file,
    service_manager,
)
from quarterdeck.cli.terminal.screen import Screen, print_json, print_note
from quarterdeck.errors import CommandFailed, Misused, QuarterdeckError
from quarterdeck.http.origins import LOOPBACK, LOOPBACK_IPV6, is_loopback, is_wildcard
from quarterdeck.machine.home_locks import BOTH, Role
from quarterdeck.machine.private_files import replace_private

COPIED: Final = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
)
"""Variables of the shell that a service gets, too: how programs, words and folders are found."""
ENVIRONMENT_FILE: Final = "service.env"
_POLL_SECONDS: Final = 0.1


def manage_service(chosen: Namespace, platform: str = sys.platform) -> int:
    """Run the command."""
    address = HubAddress.of(chosen)
    manager = service_manager(address.environ, platform)
    actions: dict[str, Callable[[], int]] = {
        "install": lambda: _install(chosen, address, manager),
        "remove": lambda: _remove(chosen, manager),
        "start": lambda: _start(address, manager),
        "stop": lambda: _stop(address, manager),
        "status": lambda: _show_status(chosen, address, manager),
        "logs": lambda: _show_logs(chosen, address, manager),
        "ready": lambda: _wait_for_runner(address),
    }
    _check_options(chosen)
    return actions[chosen.action]()


_OPTIONS: Final = {
    "dry_run": ("install", "remove"),
    "now": ("install",),
    "linger": ("install",),
    "follow": ("logs",),
    "lines": ("logs",),
    "json": ("status",),
}


def _check_options(chosen: Namespace) -> None:
    for name, actions in _OPTIONS.items():
        if getattr(chosen, name) not in (False, None) and chosen.action not in actions:
            option = f"--{name.replace('_', '-')}"
            raise Misused(
                f"{option} is an option of {' and '.join(actions)}, not of {chosen.action};"
                " see quarterdeck service --help"
            )


# ---- install -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Installation:
    """What will be written."""

    manager: ServiceManager
    files: Mapping[Path, str]

    @property
    def changed(self) -> list[str]:
        return [path.name for path, text in self.files.items() if read_file(path) != text]

    @property
    def commands(self) -> list[list[str]]:
        return self.manager.install_commands(self.changed)

    def write(self) -> None:
        """Raise `CommandFailed` if a file cannot be written."""
        if self.manager.log_folder is not None:
            self.manager.log_folder.mkdir(parents=True, exist_ok=True)
        for path, text in self.files.items():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_private(path, text.encode())
            except OSError as error:
                raise CommandFailed(
                    f"cannot write {path}: {error.strerror}; check the disk and that you can write"
                    " there"
                ) from error


def _install(chosen: Namespace, address: HubAddress, manager: ServiceManager) -> int:
    plan = _planned(address, manager)
    if chosen.dry_run:
        _print_plan(plan)
        return DONE
    is_reachable = manager.is_reachable
    if is_reachable:
        _take_over(address.home, manager, is_forced=chosen.now)
    changed, commands = plan.changed, plan.commands
    plan.write()
    screen = Screen(sys.stdout)
    for path in plan.files:
        screen.line(f"wrote {path}" if path.name in changed else f"{path} is up to date")
    if not is_reachable:
        _print_unreachable(manager, commands)
        return FAILED
    _run_all(manager, commands)
    _report_start(screen, address.home, manager, changed)
    return _explain_linger(screen, manager, is_wanted=chosen.linger)


def _planned(address: HubAddress, manager: ServiceManager) -> _Installation:
    """Decide what to write.

    Raises:
        CommandFailed: if there is a file that is not ours, or a service of another directory.
    """
    settings = service_settings(address)
    served = installed_home(manager)
    if served is not None and served.resolve() != settings.home.resolve():
        raise CommandFailed(
            f"a service for {served} is installed; there can be one: quarterdeck service remove"
        )
    files = {manager.folder / name: text for name, text in manager.files(settings).items()}
    for path in files:
        text = read_file(path)
        if text is not None and marked_home(text) is None:
            raise CommandFailed(f"{path} was not written by this command; move it, then try again")
    return _Installation(manager=manager, files=files)


def service_settings(address: HubAddress) -> ServiceSettings:
    """Read the configuration, and describe the service that runs it.

    Raises:
        CommandFailed: if the address is not one for a service.
    """
    config = load_config(address.environ, address.config_file)
    options = hub_options(config, home=address.home, environ=address.environ)
    if options.port == 0:
        raise CommandFailed("a service needs a fixed port; set port in [server] of hub.toml")
    named = address.config_file or address.environ.get(VARIABLE) or None
    return ServiceSettings(
        program=tuple(program()),
        home=address.home,
        config_file=None if named is None else Path(named).absolute(),
        addresses=listening_addresses(options.host, options.port),
        is_address_fixed=is_loopback(options.host) or is_wildcard(options.host),
        environment={name: address.environ[name] for name in COPIED if address.environ.get(name)},
        environment_file=config_folder(address.environ) / "quarterdeck" / ENVIRONMENT_FILE,
    )


def listening_addresses(host: str, port: int) -> tuple[str, ...]:
    """Return every address at which `up` would listen; systemd takes no names.

    Raises:
        CommandFailed: if the host is a name without an address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
    except OSError as error:
        raise CommandFailed(
            f"cannot find the address of {host}: {error.strerror}; set host in [server] of"
            " hub.toml to an address"
        ) from error
    first = str(found[0][4][0])
    loopbacks: tuple[str, ...] = (LOOPBACK, LOOPBACK_IPV6)
    if first in ("0.0.0.0", LOOPBACK):  # noqa: S104 - compared, not bound
        loopbacks = (LOOPBACK_IPV6,)
    elif not is_loopback(first):
        loopbacks = ()
    others = [each for each in loopbacks if each != first and _can_listen(each)]
    return tuple(
        f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in (first, *others)
    )


def _can_listen(address: str) -> bool:
    """Whether this computer has an address: many have no IPv6, where a unit would fail."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _print_plan(plan: _Installation) -> None:
    screen = Screen(sys.stdout)
    for path, text in plan.files.items():
        screen.line(f"==> {path}", "strong")
        screen.line(text)
    screen.line("==> then", "strong")
    for command in plan.commands:
        screen.line(shlex.join(command))


def _take_over(home: Path, manager: ServiceManager, *, is_forced: bool) -> None:
    """End what was started by hand: it has the port and the log.

    Raises:
        CommandFailed: unless that was asked for.
    """
    found = [each for each in (find_process(home, role) for role in BOTH) if each]
    foreign = [each for each in found if manager.pid(each.role) != each.pid]
    if foreign and not is_forced:
        names = " and ".join(f"a {each.role} (process {each.pid})" for each in foreign)
        raise CommandFailed(
            f"{names} of {home} {'are' if len(foreign) > 1 else 'is'} running outside of the"
            " service; stop that first: quarterdeck down, or cancel running turns, too:"
            " quarterdeck service install --now"
        )
    _end(foreign)


def _end(processes: list[RunningProcess]) -> None:
    for process in processes:
        anyio.run(end_process, process)
        print_note(f"the {process.role} (process {process.pid}) has ended")


def _print_unreachable(manager: ServiceManager, commands: list[list[str]]) -> None:
    print_note(f"{manager.name} does not answer here; log in as this user, then run:")
    for command in commands:
        print(f"  {shlex.join(command)}", file=sys.stderr)


def _report_start(screen: Screen, home: Path, manager: ServiceManager, changed: list[str]) -> None:
    hub = _started_hub(home)
    screen.line(f"Quarterdeck is running at {hub.facts.get('url')}", "strong")
    screen.line("  to pair a device: quarterdeck devices pair")
    runner = find_process(home, "runner")
    has_new_path = runner is not None and runner.facts.get("path") != os.environ.get("PATH", "")
    if any("runner" in name for name in changed) and has_new_path:
        print_note("agents use the new PATH after: quarterdeck restart --runner")


def _started_hub(home: Path) -> RunningProcess:
    """Wait for the hub.

    Raises:
        CommandFailed: if it does not get ready.
    """
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        hub = find_process(home, "hub")
        if hub is not None:
            return hub
        time.sleep(_POLL_SECONDS)
    raise CommandFailed(
        "the service was installed, but its hub does not start; see: quarterdeck service logs"
    )


def _explain_linger(screen: Screen, manager: ServiceManager, *, is_wanted: bool) -> int:
    """Explain how long the service runs: systemd ends a user's services at the last logout."""
    if not isinstance(manager, Systemd):
        screen.line("  It runs while you are logged in, and starts at login.", "dim")
        return DONE
    if is_wanted:
        manager.run(LINGER_COMMAND)
    if is_wanted or manager.lingers:
        screen.line("  It starts with the computer and keeps running when you log out.", "dim")
    else:
        screen.line("  It starts when you log in and stops when you log out. To keep it running:")
        screen.line(f"    {shlex.join(LINGER_COMMAND)}", "strong")
    return DONE


# ---- remove --------------------------------------------------------------------------------------


def _remove(chosen: Namespace, manager: ServiceManager) -> int:
    screen, home, ours = Screen(sys.stdout), installed_home(manager), _our_files(manager)
    if home is None:
        screen.line("no service is installed")
        return DONE
    before, after = manager.remove_commands(), manager.forget_commands()
    if chosen.dry_run:
        for command in (*before, ["rm", *map(str, ours)], *after):
            screen.line(shlex.join(command))
        return DONE
    is_reachable = manager.is_reachable
    if is_reachable:
        _run_all(manager, before)
        _end([each for each in (find_process(home, role) for role in BOTH) if each])
    for path in ours:
        path.unlink()
        screen.line(f"removed {path}")
    _name_what_stays(manager)
    if is_reachable:
        _run_all(manager, after)
    else:
        _print_unreachable(manager, [*before, *after])
    screen.line(f"sessions, devices and configuration stay: {home}")
    screen.line("  to start by hand: quarterdeck up", "dim")
    return DONE


def _run_all(manager: ServiceManager, commands: list[list[str]]) -> None:
    for command in commands:
        manager.run(command)


def _name_what_stays(manager: ServiceManager) -> None:
    for path in (manager.folder / name for name in manager.names):
        if path.exists():
            print_note(f"{path} was not written by this command and stays")
    for path in sorted(manager.folder.glob("quarterdeck-*.d")):
        print_note(f"{path}, your changes, stays; to remove it: rm -r {shlex.quote(str(path))}")


# ---- start, stop ---------------------------------------------------------------------------------


def _start(address: HubAddress, manager: ServiceManager) -> int:
    _require_installed(address.home, manager)
    _take_over(address.home, manager, is_forced=False)
    manager.start(*BOTH)
    hub = _started_hub(address.home)
    Screen(sys.stdout).line(f"Quarterdeck is running at {hub.facts.get('url')}", "strong")
    return DONE


def _stop(address: HubAddress, manager: ServiceManager) -> int:
    _require_installed(address.home, manager)
    manager.stop(*BOTH)
    # A runner that the hub has started is not the manager's.
    _end([each for each in (find_process(address.home, role) for role in BOTH) if each])
    screen = Screen(sys.stdout)
    screen.line("the hub and the runner have ended")
    screen.line("  they start again when you log in, or by: quarterdeck service start", "dim")
    return DONE


def _require_installed(home: Path, manager: ServiceManager) -> None:
    """Raise `CommandFailed` if this directory has no service, or its manager does not answer."""
    served = installed_home(manager)
    if served is None or served.resolve() != home.resolve():
        raise CommandFailed(
            f"no service is installed for {home}; install it: quarterdeck service install"
        )
    if not manager.is_reachable:
        raise CommandFailed(
            f"{manager.name} does not answer here; log in as this user (su is not enough)"
        )


def _wait_for_runner(address: HubAddress) -> int:
    """Wait until the runner answers; the unit of the runner does that after starting it."""
    main = os.environ.get("MAINPID", "")
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        found = find_process(address.home, "runner")
        if found is not None and main in ("", str(found.pid)):
            return DONE
        if main.isdecimal() and not _is_running(int(main)):
            raise CommandFailed("the runner has ended; see the lines before")
        time.sleep(_POLL_SECONDS)
    raise CommandFailed(f"no runner answers in {address.home} after {READY_SECONDS:g} s")


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---- status, logs --------------------------------------------------------------------------------


def _show_status(chosen: Namespace, address: HubAddress, manager: ServiceManager) -> int:
    facts = _status(address, manager)
    if chosen.json:
        print_json(facts)
    else:
        _print_status(Screen(sys.stdout), facts)
    return DONE if all(facts[role]["isManaged"] for role in BOTH) else FAILED


def _status(address: HubAddress, manager: ServiceManager) -> dict[str, Any]:
    served = installed_home(manager)
    is_reachable = manager.is_reachable
    facts: dict[str, Any] = {
        "manager": manager.name,
        "isReachable": is_reachable,
        "home": None if served is None else str(served),
        "files": [str(path) for path in _our_files(manager)],
        "outdated": [],
    }
    if served is not None and served.resolve() == address.home.resolve():
        try:
            facts["outdated"] = _planned(address, manager).changed
        except QuarterdeckError as error:  # such as a mistake in hub.toml
            facts["problem"] = str(error)
    for role in BOTH:
        facts[role] = _role_status(served or address.home, manager, role, is_reachable=is_reachable)
    return facts


def _our_files(manager: ServiceManager) -> list[Path]:
    paths = [manager.folder / name for name in manager.names]
    return [path for path in paths if marked_home(read_file(path) or "") is not None]


def _role_status(
    home: Path, manager: ServiceManager, role: Role, *, is_reachable: bool
) -> dict[str, Any]:
    found = find_process(home, role)
    pid = manager.pid(role) if is_reachable else None
    return {
        "state": manager.state(role) if is_reachable else "unknown",
        "pid": None if found is None else found.pid,
        "isManaged": found is not None and found.pid == pid,
    }


def _print_status(screen: Screen, facts: Mapping[str, Any]) -> None:
    if facts["home"] is None:
        screen.line("no service is installed; to install it: quarterdeck service install")
        return
    screen.line(f"a service of {facts['manager']} is installed for {facts['home']}")
    rows = []
    for role in BOTH:
        each = facts[role]
        running = "not running" if each["pid"] is None else f"process {each['pid']}"
        outside = each["pid"] is not None and not each["isManaged"] and facts["isReachable"]
        rows.append((role, each["state"], running, "outside of the service" if outside else ""))
    screen.table(rows)
    if not facts["isReachable"]:
        screen.line(f"{facts['manager']} does not answer here; log in as this user", "warn")
    if "problem" in facts:
        screen.line(facts["problem"], "bad")
    if facts["outdated"]:
        screen.line("the address, PATH or program has changed since; to use the new ones:", "warn")
        screen.line("  quarterdeck service install")


def _show_logs(chosen: Namespace, address: HubAddress, manager: ServiceManager) -> int:
    lines = 50 if chosen.lines is None else chosen.lines
    home = installed_home(manager) or address.home
    if isinstance(manager, Systemd) and not manager.has_journal:
        path = home / "runner.log"
        if not path.exists():
            raise CommandFailed(
                f"there is no journal that you can read, and no {path}; is the service installed?"
                " quarterdeck service status"
            )
        print_note(f"there is no journal that you can read; this is {path}")
        command = ["tail", *(["-F"] if chosen.follow else []), "-n", str(lines), str(path)]
    else:
        command = manager.log_command(lines=lines, is_followed=chosen.follow)
    try:
        return subprocess.run(command, env=dict(address.environ), check=False).returncode
    except FileNotFoundError as error:
        raise CommandFailed(f"{command[0]} was not found; install it") from error
    except KeyboardInterrupt:  # the way to end --follow
        return INTERRUPTED
