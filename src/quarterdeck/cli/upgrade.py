"""`quarterdeck upgrade`: install another version the way this one was installed, then use it.

The hub and the runner are restarted by a new process: this one has the old code loaded, whose files
are gone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from argparse import Namespace
from pathlib import Path

from quarterdeck._version import __version__
from quarterdeck.cli.arguments import DONE
from quarterdeck.cli.hub_access import HubAddress
from quarterdeck.cli.installers import (
    PACKAGE,
    InstallCommand,
    find_traces,
    install_command,
    installed_version,
)
from quarterdeck.cli.process_control import use_installed_version
from quarterdeck.cli.runner_start import program
from quarterdeck.cli.running_processes import find_process
from quarterdeck.cli.terminal.keyboard import has_person
from quarterdeck.cli.terminal.screen import print_note
from quarterdeck.errors import CommandFailed
from quarterdeck.machine.home_locks import BOTH


def upgrade(chosen: Namespace) -> int:
    """Run the command."""
    home = HubAddress.of(chosen).home
    if chosen.no_install:
        return use_installed_version(chosen)
    if chosen.wheel is None:
        running = {role: find_process(home, role) for role in BOTH}
        if running["hub"] is not None:
            use_installed_version(chosen)
            versions = {each.facts.get("version") for each in running.values() if each is not None}
            if versions != {__version__}:
                return DONE  # it was installed already
    wheel = None if chosen.wheel is None else checked_wheel(chosen.wheel)
    try:
        command = install_command(find_traces(os.environ), wheel)
    except CommandFailed as error:
        if wheel is not None:
            raise
        print_note(f"version {__version__} is installed; {error}")
        return DONE
    _confirm(command, is_confirmed=chosen.yes)
    if _install(command):
        _restart(chosen, home)
    return DONE


def checked_wheel(path: Path) -> Path:
    """Return the whole path of a wheel of Quarterdeck.

    Raises:
        CommandFailed: if it is none.
    """
    try:
        with zipfile.ZipFile(path) as files:
            names = files.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a wheel"
        raise CommandFailed(f"cannot use {path}: {reason}; pass a wheel of Quarterdeck") from error
    if path.suffix != ".whl" or f"{PACKAGE}/cli/main.py" not in names:
        raise CommandFailed(f"{path} is not a wheel of Quarterdeck; pass quarterdeck-*.whl")
    return path.absolute()


def _confirm(command: InstallCommand, *, is_confirmed: bool) -> None:
    """Show the command, and ask for it.

    Raises:
        CommandFailed: if it was declined, or there is no terminal to ask in.
    """
    print_note(f"this runs: {command}")
    if is_confirmed:
        return
    if not has_person():
        raise CommandFailed("upgrading has to be confirmed; pass --yes")
    print("Continue? [Y/n] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("", "y", "yes"):
        raise CommandFailed("not upgraded; nothing was changed")


def _install(command: InstallCommand) -> bool:
    """Run the installer; return whether it has changed what is installed.

    Raises:
        CommandFailed: if it fails.
    """
    before = installed_version()
    for step in command.steps:
        done = subprocess.run(
            step, env={**os.environ, **command.variables}, stdout=sys.stderr, check=False
        )
        if done.returncode:
            raise CommandFailed(
                f"{step[0]} ended with status {done.returncode}; see its output above;"
                " the hub and the runner were not restarted"
            )
    after = installed_version()
    if after == before:
        print_note(f"version {after[0]} was installed already; nothing was restarted")
        return False
    print_note(f"installed version {after[0]} in place of {before[0]}")
    return True


def _restart(chosen: Namespace, home: Path) -> None:
    """Restart the hub, then the runner, with the new version.

    Raises:
        CommandFailed: if that fails.
    """
    running = [role for role in BOTH if find_process(home, role) is not None]
    if "hub" not in running:
        print_note(
            "the runner keeps its version until: quarterdeck up, then quarterdeck upgrade"
            if running
            else "nothing is running; to start: quarterdeck up"
        )
        return
    where = ["--home", str(home)]
    if chosen.config is not None:
        where += ["--config", str(chosen.config.absolute())]
    waiting = ["--now"] if chosen.now else []
    if chosen.wait is not None:
        waiting = ["--wait", str(chosen.wait)]
    for arguments in (("restart", *where), ("restart", "--runner", *waiting, *where)):
        status = subprocess.run(program(*arguments), check=False).returncode
        if status:
            raise CommandFailed(
                "the new version is installed, but not everything runs it; see above, then run:"
                " quarterdeck upgrade --no-install"
            )
