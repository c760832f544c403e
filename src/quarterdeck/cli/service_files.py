"""The files of a service: systemd user units and launchd agents. Pure: nothing is read or written.

Two services, because agents must not notice the end of a hub: the runner has agents as children and
is ended with them; the hub can be killed, restarted and replaced at any time.

Every file has a marker: which data directory it serves. `service remove` removes files with a
marker and no others. Secrets are never written here: they go into the environment file.
"""

from __future__ import annotations

import json
import plistlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quarterdeck.errors import CommandFailed

MARKER: Final = "quarterdeck-service:"
_RUNNER_STOP_SECONDS: Final = 60
"""For agents to end; `quarterdeck down` waits for half of that."""
_HUB_STOP_SECONDS: Final = 30
_FILES: Final = 8192
"""Open files on macOS, where the limit is 256 otherwise."""


@dataclass(frozen=True, kw_only=True)
class ServiceSettings:
    """What a service runs, and with which environment."""

    program: tuple[str, ...]
    """The command line of `quarterdeck`; the first word is an absolute path."""
    home: Path
    config_file: Path | None
    addresses: tuple[str, ...]
    """Where the hub listens, such as "127.0.0.1:7272" and "[::1]:7272"."""
    is_address_fixed: bool = True
    """Whether this computer always has the address: a loopback or wildcard address."""
    environment: Mapping[str, str]
    environment_file: Path
    """Further variables, written by the user; it may be missing. systemd only."""

    def command(self, *words: str) -> tuple[str, ...]:
        config = () if self.config_file is None else ("--config", str(self.config_file))
        return (*self.program, *words, "--home", str(self.home), *config)


def check_settings(settings: ServiceSettings) -> None:
    """Check that everything can be written into the files.

    Raises:
        CommandFailed: for control characters, and for what is no text.
    """
    values = (*settings.command(), str(settings.environment_file), *settings.environment.values())
    for value in values:
        if not all(map(_is_text, value)):
            raise CommandFailed(
                f"{value!r} has a character that service files cannot hold; rename it, or choose"
                " another with --home, --config or PATH"
            )


def _is_text(character: str) -> bool:
    """Whether systemd and XML accept it: no control character, no half pair, no noncharacter."""
    number = ord(character)
    is_noncharacter = number & 0xFFFE == 0xFFFE or 0xFDD0 <= number <= 0xFDEF
    return not is_noncharacter and unicodedata.category(character) not in ("Cc", "Cs")


# ---- the marker ----------------------------------------------------------------------------------


def _marker(home: Path) -> str:
    facts = json.dumps({"home": str(home)})
    return f"{MARKER} {facts.replace('-', chr(92) + 'u002d')}"  # "--" would end a comment of XML


def marked_home(text: str) -> Path | None:
    """Return the data directory that a file serves; None if it is not a file of ours."""
    found = re.search(rf"^(?:# |<!-- ){MARKER} (\{{.*\}})(?: -->)?$", text, re.MULTILINE)
    if found is None:
        return None
    try:
        facts: Any = json.loads(found[1])
    except ValueError:
        return None
    home = facts.get("home")
    return Path(home) if isinstance(home, str) else None


# ---- systemd -------------------------------------------------------------------------------------

RUNNER_UNIT: Final = "quarterdeck-runner.service"
HUB_UNIT: Final = "quarterdeck-hub.service"
SOCKET_UNIT: Final = "quarterdeck-hub.socket"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@+=:,./-]+")


def systemd_units(settings: ServiceSettings) -> dict[str, str]:
    """Return the units by name.

    Raises:
        CommandFailed: if systemd could not read or run something.
    """
    check_settings(settings)
    if re.search(r"[\"'\\]", settings.program[0]):
        raise CommandFailed(
            f"systemd cannot start {settings.program[0]}: its path has a quote or a backslash;"
            " install Quarterdeck somewhere else"
        )
    marker, environment = _marker(settings.home), _systemd_environment(settings)
    start, ready, up = (
        _systemd_command(settings.command(*words))
        for words in (("runner",), ("service", "ready"), ("up",))
    )
    freebind = "" if settings.is_address_fixed else _FREEBIND
    listen = "\n".join(f"ListenStream={address}" for address in settings.addresses)
    return {
        RUNNER_UNIT: _RUNNER.format(
            marker=marker,
            environment=environment,
            start=start,
            ready=ready,
            stop=_RUNNER_STOP_SECONDS,
        ),
        SOCKET_UNIT: _SOCKET.format(marker=marker, listen=listen, freebind=freebind),
        HUB_UNIT: _HUB.format(
            marker=marker, environment=environment, start=up, stop=_HUB_STOP_SECONDS
        ),
    }


def _systemd_environment(settings: ServiceSettings) -> str:
    lines = [
        f"Environment={quoted(f'{name}={value}')}" for name, value in settings.environment.items()
    ]
    # A path here is not quoted: the rest of the line is a pattern (glob(7)).
    path = re.sub(r"([\\*?\[])", r"\\\1", str(settings.environment_file)).replace("%", "%%")
    return "\n".join((*lines, f"EnvironmentFile=-{path}"))


def _systemd_command(words: Iterable[str]) -> str:
    line = " ".join(map(quoted, words))
    # ":" switches off variables, which are replaced in the arguments but not in the path. It is
    # left out where there is no "$", because systemd before version 244 does not know it.
    return f":{line}" if "$" in line else line


def quoted(word: str) -> str:
    """Quote one word of a unit (systemd.syntax(7)); `%` introduces a specifier."""
    if _PLAIN.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


_CHANGES: Final = """\
# {marker}
# Written by `quarterdeck service install`, which overwrites it. To change something, do not edit
# this file but add to it: systemctl --user edit {unit}
"""

_ENVIRONMENT: Final = """\
# PATH is the one of the shell in which you ran `quarterdeck service install`: agents and their
# tools are found with it. To change it, run the command again in a shell with the new PATH. Other
# variables of your shell (API keys, proxies) are not copied: this file is no place for secrets.
# Write them as NAME=value into the environment file, then: quarterdeck restart --runner
{environment}
"""

_RUNNER: Final = (
    _CHANGES.replace("{unit}", RUNNER_UNIT)
    + """\
[Unit]
Description=Quarterdeck runner (agents, their logs and prompts)
# Nothing here depends on the hub: agents keep running while it restarts.
# A runner that cannot start is given up after ten tries.
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
Type=exec
ExecStart={start}
# The unit is active when the runner answers, so that the hub starts after that.
ExecStartPost={ready}
ExecReload=kill -HUP $MAINPID
WorkingDirectory=~
"""
    + _ENVIRONMENT
    + """\
# After a crash or kill -9, not after `quarterdeck down`.
Restart=on-failure
RestartSec=1
# Wrong arguments do not get better.
RestartPreventExitStatus=2
# The runner gets SIGTERM and ends its agents one by one; what is left after it is killed.
KillMode=mixed
TimeoutStartSec=120
TimeoutStopSec={stop}
# If memory runs out and the kernel kills an agent, the other agents keep running.
OOMPolicy=continue
# No sandbox here, because agents inherit it: NoNewPrivileges= breaks sudo and ping,
# ProtectSystem= and ProtectHome= the files they work on, PrivateTmp= what they share with your
# terminal in /tmp, MemoryDenyWriteExecute= Node.js, RestrictNamespaces= containers and browsers,
# and UMask= changes the mode of the files they write. Quarterdeck confines each agent itself
# (confine in hub.toml).

[Install]
WantedBy=default.target
"""
)

_SOCKET: Final = (
    _CHANGES.replace("{unit}", SOCKET_UNIT)
    + """\
[Unit]
Description=Quarterdeck hub (its address)

[Socket]
# The addresses of [server] in hub.toml; after changing them: quarterdeck service install
# systemd keeps the sockets open while the hub restarts, also after kill -9: connections wait.
{listen}
{freebind}
[Install]
WantedBy=sockets.target
"""
)

_FREEBIND: Final = """\
# The network may come up after you log in.
FreeBind=yes
"""

_HUB: Final = (
    _CHANGES.replace("{unit}", HUB_UNIT)
    + """\
[Unit]
Description=Quarterdeck hub (page, API, devices)
Requires=quarterdeck-hub.socket
# Wants, not Requires: a hub without its runner still shows sessions, and says what is missing.
Wants=quarterdeck-runner.service
After=quarterdeck-hub.socket quarterdeck-runner.service
# A hub that cannot start is given up after a minute or two; then its address is closed, too.
StartLimitIntervalSec=300
StartLimitBurst=100

[Service]
Type=exec
ExecStart={start}
# Reads hub.toml again. `quarterdeck restart` replaces the hub by the installed version; its process
# id stays the same, and agents do not notice it.
ExecReload=kill -HUP $MAINPID
WorkingDirectory=~
"""
    + _ENVIRONMENT
    + """\
# Also after a clean exit: connections wait for it. `quarterdeck service stop` stops it.
Restart=always
RestartSec=200ms
RestartPreventExitStatus=2
# Only the hub itself: if it had to start a runner, that runner and its agents stay.
KillMode=process
TimeoutStopSec={stop}
OOMPolicy=continue
# No sandbox: a runner that the hub starts inherits it, with its agents (see the runner's unit). It
# would protect little: a program that controls the hub can start agents, outside of the sandbox.

[Install]
WantedBy=default.target
"""
)


# ---- launchd -------------------------------------------------------------------------------------

RUNNER_LABEL: Final = "dev.quarterdeck.runner"
HUB_LABEL: Final = "dev.quarterdeck.hub"

_LAUNCHD_COMMENT: Final = """\
<!-- Written by `quarterdeck service install`, which overwrites it. PATH is the one of the shell in
which you ran it; to change it, run it again in a shell with the new PATH. Do not put secrets here:
hub.toml can hold the variables of an agent. -->
"""


def launchd_agents(settings: ServiceSettings, log_folder: Path) -> dict[str, str]:
    """Return the property lists by file name.

    launchd hands sockets over by a function of macOS only, so the hub opens its own: connections
    are refused while it does not run.
    """
    check_settings(settings)
    runner = _launchd_job(settings, log_folder, RUNNER_LABEL, "runner") | {
        # After a crash, not after `quarterdeck down`.
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": _RUNNER_STOP_SECONDS,
    }
    hub = _launchd_job(settings, log_folder, HUB_LABEL, "up") | {
        "KeepAlive": True,
        "ExitTimeOut": _HUB_STOP_SECONDS,
        # If the hub had to start a runner, that runner stays.
        "AbandonProcessGroup": True,
    }
    jobs = {RUNNER_LABEL: runner, HUB_LABEL: hub}
    return {f"{label}.plist": _plist(settings, job) for label, job in jobs.items()}


def _launchd_job(
    settings: ServiceSettings, log_folder: Path, label: str, command: str
) -> dict[str, Any]:
    name = label.rpartition(".")[2]
    return {
        "Label": label,
        "ProgramArguments": list(settings.command(command)),
        "EnvironmentVariables": dict(settings.environment),
        "RunAtLoad": True,
        "ThrottleInterval": 1,  # seconds between two starts; 10 otherwise
        "ProcessType": "Interactive",  # else macOS slows down agents and what they build
        "SoftResourceLimits": {"NumberOfFiles": _FILES},
        "StandardOutPath": str(log_folder / f"{name}.log"),
        "StandardErrorPath": str(log_folder / f"{name}.log"),
    }


def _plist(settings: ServiceSettings, job: Mapping[str, Any]) -> str:
    text = plistlib.dumps(job, sort_keys=False).decode()
    head, root, rest = text.partition("<plist ")
    return f"{head}<!-- {_marker(settings.home)} -->\n{_LAUNCHD_COMMENT}{root}{rest}"
