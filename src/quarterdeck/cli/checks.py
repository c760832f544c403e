"""`quarterdeck doctor`: checks of an installation, with a remedy for each problem.

Each check reads, decides and yields results; none changes anything.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import msgspec

from quarterdeck._version import __version__
from quarterdeck.agents import Environment, check_agents
from quarterdeck.cli.arguments import DONE, FAILED
from quarterdeck.cli.config import HubConfig, config_path, hub_options, load_config
from quarterdeck.cli.hub_access import hub_certificate, running_hub
from quarterdeck.cli.running_processes import find_process
from quarterdeck.cli.terminal.screen import Screen
from quarterdeck.errors import QuarterdeckError, SettingsInvalid, StartRefused
from quarterdeck.http.certificates import CertificateUnusable, check_certificate
from quarterdeck.http.client import HttpExchange
from quarterdeck.hub.options import HubOptions, default_home
from quarterdeck.hub.reach import Reach, ReachFacts, describe, look_at_machine
from quarterdeck.machine import ConfinementStatus
from quarterdeck.machine.home_locks import lock_owner
from quarterdeck.machine.process_origin import found_origins
from quarterdeck.protocol import AgentDefinition
from quarterdeck.runner import AgentConfinement
from quarterdeck.storage.check import FILES, LOG, check_quickly
from quarterdeck.views.text import one_line, plain, wrapped

Status = Literal["ok", "warn", "fail"]

_ROOM_WANTED: Final = 1 << 30
_ROOM_NEEDED: Final = 50 << 20
_LOOK_SECONDS: Final = 10.0  # at a database; damage is mostly found at once
_SOON_SECONDS: Final = 14 * 86400.0  # in which a certificate should be renewed
_PACKAGES: Final = ("anyio", "msgspec", "starlette", "uvicorn", "websockets")
_FAST: Final = ("uvloop", "httptools")


@dataclass(frozen=True, kw_only=True)
class Check:
    name: str
    status: Status
    found: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What is checked."""

    home: Path
    environ: Mapping[str, str]
    config_file: Path | None
    config: HubConfig | None
    """None if it is invalid."""
    hub: Mapping[str, object] | None
    """URL and agents of the running hub; None if no hub answers."""
    reach: Reach | None = None
    """How phones reach the hub, or would; None if a hub does not report it."""


def check_python(_installation: Installation) -> Iterator[Check]:
    found = f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}"
    yield Check(name="python", status="ok", found=f"Quarterdeck {__version__}, {found}")
    missing = [name for name in _PACKAGES if _version(name) is None]
    if missing:
        remedy = "reinstall Quarterdeck: python3 -m pip install --force-reinstall quarterdeck"
        yield Check(
            name="packages", status="fail", found=f"missing: {', '.join(missing)}", remedy=remedy
        )
    else:
        listed = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
        slow = [name for name in _FAST if _version(name) is None]
        extra = f"; optional, for many clients: {', '.join(slow)}" if slow else ""
        yield Check(name="packages", status="ok", found=listed + extra)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_config(installation: Installation) -> Iterator[Check]:
    path, is_named = config_path(installation.environ, installation.config_file)
    try:
        config = load_config(installation.environ, installation.config_file)
    except SettingsInvalid as error:
        remedy = "fix that line, or remove it to use the default"
        yield Check(name="configuration", status="fail", found=str(error), remedy=remedy)
        return
    if path is None or (not path.exists() and not is_named):
        found = f"no {path or 'hub.toml'}; using the defaults"
    else:
        agents = len(config.agents)
        found = f"{path} is valid, with {agents} agent{'' if agents == 1 else 's'}"
    yield Check(name="configuration", status="ok", found=found)


def check_home(installation: Installation) -> Iterator[Check]:
    home, name = installation.home, "data directory"
    try:
        facts = home.stat()
    except FileNotFoundError:
        yield Check(name=name, status="ok", found=f"{home} does not exist yet; the hub creates it")
        return
    except OSError as error:
        remedy = "choose another directory with QUARTERDECK_HOME"
        yield Check(name=name, status="fail", found=f"{home}: {error.strerror}", remedy=remedy)
        return
    if not stat.S_ISDIR(facts.st_mode):
        remedy = "move it, or choose another directory with QUARTERDECK_HOME"
        yield Check(name=name, status="fail", found=f"{home} is not a directory", remedy=remedy)
    elif facts.st_uid != os.geteuid():
        remedy = "choose another directory with QUARTERDECK_HOME"
        yield Check(
            name=name, status="fail", found=f"{home} belongs to user {facts.st_uid}", remedy=remedy
        )
    elif stat.S_IMODE(facts.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(facts.st_mode):o}"
        remedy = f"make it private: chmod 700 {home}"
        found = f"other users can read {home} (mode {mode})"
        yield Check(name=name, status="fail", found=found, remedy=remedy)
    else:
        yield Check(name=name, status="ok", found=f"{home}, private")


def check_callers(_installation: Installation) -> Iterator[Check]:
    """Check whether the hub can tell the owner's programs from those of an agent."""
    certainty = found_origins()
    if certainty == "all":
        found = "calls by processes of agents are recognised and refused"
        yield Check(name="callers", status="ok", found=found)
        return
    if certainty == "most":
        found = (
            "calls by processes of agents are recognised and refused, except by one that was"
            " started to hide it, so approvals are advisory"
        )
        remedy = "run agents as another user, or the hub on Linux"
    else:
        found = "agents' processes look like your own here, so approvals are advisory"
        remedy = "run the hub on Linux with a readable /proc, or run agents as another user"
    yield Check(name="callers", status="warn", found=found, remedy=remedy)


def check_old_token(installation: Installation) -> Iterator[Check]:
    path = installation.home / "token"
    if path.exists():
        found = f"{path} is a token of an earlier version, and works until the hub is restarted"
        remedy = "restart the hub, which removes it"
        yield Check(name="token", status="warn", found=found, remedy=remedy)


def check_disk(installation: Installation) -> Iterator[Check]:
    folder = next(each for each in (installation.home, *installation.home.parents) if each.exists())
    free = shutil.disk_usage(folder).free
    found = f"{free / (1 << 30):.1f} GiB free"
    remedy = "free some space: without it the hub cannot store events"
    status: Status = "ok" if free > _ROOM_WANTED else "warn" if free > _ROOM_NEEDED else "fail"
    yield Check(name="disk", status=status, found=found, remedy="" if status == "ok" else remedy)


def check_databases(installation: Installation) -> Iterator[Check]:
    """The quick part of `quarterdeck check`: everything but reading all events."""
    for name in FILES:
        path = installation.home / name
        if path.exists():
            yield _check_database(name, path)


def _check_database(name: str, path: Path) -> Check:
    report = check_quickly(path, _LOOK_SECONDS)
    if report.status == "damaged":
        more = len(report.problems) - 1
        found = f"{path} is damaged: {plain(report.problems[0])}"
        found += f" (and {more} more)" if more > 0 else ""
        remedy = (
            "recover the intact data: quarterdeck down, then quarterdeck repair; or restore a"
            " backup: quarterdeck restore"
        )
        return Check(name=name, status="fail", found=found, remedy=remedy)
    found = f"{path} has no damage at first sight, {report.size / (1 << 20):.1f} MiB"
    if name == LOG:
        found += "; to check every event: quarterdeck check"
    return Check(name=name, status="ok", found=found)


def check_hub(installation: Installation) -> Iterator[Check]:
    """Check whether a hub is running and answers; if not, whether one could start."""
    owner = lock_owner(installation.home, "hub")
    if installation.hub is not None:
        found = f"running at {installation.hub['url']}"
        if installation.hub["answers"]:
            yield Check(name="hub", status="ok", found=found)
            return
        found += ", where it does not answer; commands reach it by its socket"
        remedy = "check a firewall between you and that port, and the output of the hub"
        yield Check(name="hub", status="fail", found=found, remedy=remedy)
    elif owner is not None:
        found = f"process {owner} owns the data directory but does not answer"
        remedy = f"check its output, or stop it: kill {owner}"
        yield Check(name="hub", status="fail", found=found, remedy=remedy)
    else:
        yield Check(name="hub", status="ok", found="not running; quarterdeck up starts it")
        yield from _check_port(installation)


def check_runner(installation: Installation) -> Iterator[Check]:
    """Check the process that runs agents."""
    owner = lock_owner(installation.home, "runner")
    if owner is None:
        remedy = ""
        status: Status = "ok"
        found = "not running; quarterdeck up starts it"
        if installation.hub is not None:
            status, found = "fail", "not running, though a hub is"
            remedy = f"see {installation.home / 'runner.log'}, or restart: quarterdeck down"
        yield Check(name="runner", status=status, found=found, remedy=remedy)
        return
    process = find_process(installation.home, "runner")
    if process is None:
        found = f"process {owner} runs agents itself, without a runner"
        yield Check(name="runner", status="ok", found=found)
        return
    version = str(process.facts.get("version"))
    found = f"process {owner}, version {version}"
    if version == __version__:
        yield Check(name="runner", status="ok", found=found)
    else:
        remedy = "replace it when running turns have ended: quarterdeck upgrade"
        yield Check(name="runner", status="warn", found=found, remedy=remedy)


def check_joined(installation: Installation) -> Iterator[Check]:
    """Check the links to hubs on other machines."""
    if not (installation.home / "joined.json").exists():
        return
    from quarterdeck.cli.joining import joined_hubs  # noqa: PLC0415  # slow, and seldom used

    try:
        hubs = joined_hubs(installation.home)
    except StartRefused as error:
        yield Check(name="joined hubs", status="fail", found=error.reason, remedy=error.remedy)
        return
    for each in hubs:
        found, is_connected = f"{each['url']}: {each['state']}", each["state"] == "connected"
        remedy = "" if is_connected else one_line(each["reason"])
        status: Status = "ok" if is_connected else "warn"
        yield Check(name="joined hubs", status=status, found=found, remedy=remedy)


def _check_port(installation: Installation) -> Iterator[Check]:
    if installation.config is None or installation.config.server.port == 0:
        return
    host, port = installation.config.server.host, installation.config.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            remedy = (
                "stop the program that uses it, or choose another port: quarterdeck up --port 0"
            )
            found = f"cannot listen on {host}:{port}: {error.strerror}"
            yield Check(name="port", status="fail", found=found, remedy=remedy)
        else:
            yield Check(name="port", status="ok", found=f"{host}:{port} is free")


def check_tls(installation: Installation) -> Iterator[Check]:
    server = None if installation.config is None else installation.config.server
    if server is None or server.tls_cert is None or server.tls_key is None:
        return
    path = server.tls_cert
    try:
        left = check_certificate(Path(path), Path(server.tls_key))
    except CertificateUnusable as error:
        remedy = "check that both are readable PEM files and belong together"
        found = f"{path} with {server.tls_key}: {error}"
        yield Check(name="certificate", status="fail", found=found, remedy=remedy)
        return
    days = f"{abs(left) / 86400:.0f} days"
    if left < 0:
        found, status = f"{path} expired {days} ago", "fail"
    else:
        found, status = f"{path} is valid for {days}", "ok" if left > _SOON_SECONDS else "warn"
    remedy = "" if status == "ok" else "renew it and restart the hub"
    yield Check(name="certificate", status=status, found=found, remedy=remedy)  # type: ignore[arg-type]


def check_phone(installation: Installation) -> Iterator[Check]:
    """Check how phones reach the hub; without one, how they would."""
    reach = installation.reach
    if reach is None:
        return
    place = f" at {reach.url}" if reach.url else ""
    status: Status = "warn" if reach.is_enabled and not reach.is_usable else "ok"
    yield Check(name="phone", status=status, found=reach.found + place, remedy=reach.next_step)
    for way in reach.ways:
        if way.found != reach.found:
            step = "" if way.next_step == reach.next_step else way.next_step
            yield Check(name="phone", status="ok", found=way.found, remedy=step)


def check_clock(installation: Installation) -> Iterator[Check]:
    newest = 0.0
    for name in ("log.db", "log.db-wal", "runner.db", "hub.db"):
        with suppress(OSError):  # not there yet
            newest = max(newest, (installation.home / name).stat().st_mtime)
    behind = newest - time.time()
    if behind > 60:
        found = f"the clock is {behind / 60:.0f} minutes behind the log"
        yield Check(
            name="clock", status="warn", found=found, remedy="set the clock, or turn on NTP"
        )
    else:
        yield Check(name="clock", status="ok", found=time.strftime("%Y-%m-%d %H:%M:%S %z"))


def check_node(installation: Installation) -> Iterator[Check]:
    path = installation.environ.get("PATH")
    node, npx = shutil.which("node", path=path), shutil.which("npx", path=path)
    if node is None or npx is None:
        missing = "node" if node is None else "npx"
        remedy = "to use agents from npm, install Node.js 20 or newer"
        yield Check(name="node", status="warn", found=f"{missing} is not on PATH", remedy=remedy)
        return
    try:
        printed = subprocess.run(
            [node, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        remedy = "to use agents from npm, reinstall Node.js"
        yield Check(name="node", status="warn", found=f"{node}: {error}", remedy=remedy)
        return
    yield Check(name="node", status="ok", found=f"node {printed}, {npx}")


def check_environment(installation: Installation) -> Iterator[Check]:
    config = installation.config or HubConfig()
    named = [*config.environment.pass_env, *(n for a in config.agents.values() for n in a.pass_env)]
    withheld = Environment(installation.environ, for_all=named).withheld(AgentDefinition("", "-"))
    found = "no variable that looks like a key is withheld from agents"
    if withheld:
        found = f"withheld from agents they do not belong to: {', '.join(withheld)}"
    remedy = "if an agent needs one, list it in pass_env of hub.toml" if withheld else ""
    yield Check(name="environment", status="ok", found=found, remedy=remedy)


def check_installed_agents(installation: Installation) -> Iterator[Check]:
    """Check the agents that the hub sees; without a hub, those that it would see."""
    listed = None if installation.hub is None else installation.hub.get("agents")
    options = hub_options(
        installation.config or HubConfig(),
        home=installation.home,
        environ=installation.environ,
        config_file=installation.config_file,
    )
    for each in check_agents(options.runner.known_agents(), installation.environ, listed):
        status: Status = "warn" if each.is_problem else "ok"
        yield Check(name="agents", status=status, found=each.found, remedy=each.remedy)


def check_confinement(installation: Installation) -> Iterator[Check]:
    """Check what keeps agents from the hub's folders: in general, and for agents that differ."""
    config = installation.config or HubConfig()
    options = hub_options(
        config,
        home=installation.home,
        environ=installation.environ,
        config_file=installation.config_file,
    )
    confinement = AgentConfinement(options.runner, options.runner.known_agents())
    general = confinement.status(None)
    yield _confinement_check("all agents", general)
    for name in config.agents:
        found = confinement.status(name)
        if found != general:
            yield _confinement_check(name, found)


def _confinement_check(subject: str, found: ConfinementStatus) -> Check:
    how = f" by {found.how}" if found.how else ""
    limits = "".join(f"; {limit}" for limit in found.limits)
    words, _, remedy = found.reason.rpartition("; ")
    if found.status == "enforced":
        words, remedy = found.reason, ""
    text = f"{subject}: {found.status}{how}: {words}{limits}"
    status: Status = "ok" if found.status == "enforced" else "warn"
    return Check(name="confinement", status=status, found=text, remedy=remedy)


CHECKS: Final[tuple[Callable[[Installation], Iterator[Check]], ...]] = (
    check_python,
    check_config,
    check_home,
    check_old_token,
    check_callers,
    check_disk,
    check_hub,
    check_runner,
    check_joined,
    check_databases,
    check_tls,
    check_phone,
    check_clock,
    check_node,
    check_environment,
    check_confinement,
    check_installed_agents,
)


_STYLES = {"ok": "good", "warn": "warn", "fail": "bad"}
_NAME = 15  # the width of the names


def run_checks(chosen: Namespace) -> int:
    """Run the command."""
    checks = examine(os.environ, chosen.home, chosen.config)
    if chosen.json:
        print(json.dumps({"checks": [asdict(each) for each in checks]}, indent=2))
    else:
        _print_checks(Screen(sys.stdout), checks)
    return FAILED if any(each.status == "fail" for each in checks) else DONE


def examine(environ: Mapping[str, str], home: Path | None, config: Path | None) -> list[Check]:
    """Run all checks."""
    folder = home.absolute() if home is not None else default_home(environ)
    loaded: HubConfig | None = None
    with suppress(SettingsInvalid):  # its own check reports the error
        loaded = load_config(environ, config)
    hub = anyio.run(_running, folder)
    options = hub_options(loaded or HubConfig(), home=folder, environ=environ)
    installation = Installation(
        home=folder,
        environ=environ,
        config_file=config,
        config=loaded,
        hub=hub,
        reach=anyio.run(_reach, options) if hub is None else hub.get("reach"),
    )
    return [check for run in CHECKS for check in run(installation)]


async def _running(home: Path) -> Mapping[str, Any] | None:
    try:
        found = await running_hub(home)
    except QuarterdeckError:
        return None
    if found is None:
        return None
    try:
        agents = (await found.api.get("/api/agents/known"))["agents"]
    except QuarterdeckError:
        agents = None  # perhaps of another version; the agents are looked for here
    reach: Reach | None = None
    with suppress(QuarterdeckError, msgspec.ValidationError):  # the same
        reach = msgspec.convert(await found.api.get("/api/reach"), Reach)
    answers = await _answers(home, found.url)
    return {"url": found.url, "agents": agents, "answers": answers, "reach": reach}


async def _reach(options: HubOptions) -> Reach:
    """Return how phones would reach a hub that does not run: nothing is tried."""
    machine = await look_at_machine(options.environ)
    facts = ReachFacts(
        listening=options.listening,
        addresses=machine.addresses,
        default_address=machine.default_address,
        tailscale=machine.tailscale,
        is_in_container=machine.is_in_container,
    )
    return describe(facts, {})


async def _answers(home: Path, url: str | None) -> bool:
    """Whether the hub answers at its port, too."""
    certificate = hub_certificate(home)
    try:
        await HttpExchange(str(url), None, certificate).send("GET", "/healthz", None)
    except QuarterdeckError:
        return False
    return True


def _print_checks(screen: Screen, checks: Sequence[Check]) -> None:
    """Print a line per check, the remedy below it, and a summary."""
    for check in checks:
        head = screen.painted(f"{check.status:5}", _STYLES[check.status])
        indent = " " * (5 + _NAME)
        first, *rest = wrapped(plain(check.found), screen.width - len(indent))
        screen.line(f"{head}{check.name:{_NAME}}{first}")
        for line in rest:
            screen.line(indent + line)
        if check.remedy:
            # On one line, however long: it may be a command to copy.
            screen.line(f"{indent}-> {plain(check.remedy)}", "strong")
    failed = sum(check.status == "fail" for check in checks)
    warned = sum(check.status == "warn" for check in checks)
    if failed:
        screen.line(f"{failed} of {len(checks)} checks failed", "bad")
    elif warned:
        screen.line(f"no check failed; {warned} warning{'s' * (warned != 1)}", "warn")
    else:
        screen.line("all checks passed", "good")
