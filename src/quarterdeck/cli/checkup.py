"""What `doctor` looks at: each check reads, decides and returns a line; none changes anything."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from quarterdeck._version import __version__
from quarterdeck.cli.hub_config import HubConfig, config_path, load_config
from quarterdeck.errors import SettingsInvalid
from quarterdeck.http.certificates import CertificateUnusable, check_certificate
from quarterdeck.protocol import AgentDefinition
from quarterdeck.server.environment import Environment

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
class Patient:
    """What is looked at."""

    home: Path
    environ: Mapping[str, str]
    config_file: Path | None
    config: HubConfig | None
    """None if it cannot be read."""
    hub: Mapping[str, object] | None
    """What a running hub says of itself; None if none says anything."""


def check_python(_patient: Patient) -> Iterator[Check]:
    found = f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}"
    yield Check(name="python", status="ok", found=f"Quarterdeck {__version__}, {found}")
    missing = [name for name in _PACKAGES if _version(name) is None]
    if missing:
        remedy = "install Quarterdeck again: python3 -m pip install quarterdeck"
        yield Check(
            name="packages", status="fail", found=f"missing: {', '.join(missing)}", remedy=remedy
        )
    else:
        listed = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
        slow = [name for name in _FAST if _version(name) is None]
        extra = f"; without {', '.join(slow)}, which many clients would profit from" if slow else ""
        yield Check(name="packages", status="ok", found=listed + extra)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_config(patient: Patient) -> Iterator[Check]:
    path, is_named = config_path(patient.environ, patient.config_file)
    try:
        config = load_config(patient.environ, patient.config_file)
    except SettingsInvalid as error:
        remedy = "mend that line; docs/use/hub.example.toml shows every key"
        yield Check(name="configuration", status="fail", found=str(error), remedy=remedy)
        return
    if path is None or (not path.exists() and not is_named):
        found = f"no {path or 'hub.toml'}: every setting has its default"
    else:
        agents = len(config.agents)
        found = f"{path} is valid, with {agents} agent{'' if agents == 1 else 's'}"
    yield Check(name="configuration", status="ok", found=found)


def check_home(patient: Patient) -> Iterator[Check]:
    home, name = patient.home, "data directory"
    try:
        facts = home.stat()
    except FileNotFoundError:
        yield Check(name=name, status="ok", found=f"{home} is not there yet; the hub makes it")
        return
    except OSError as error:
        remedy = "choose another one with QUARTERDECK_HOME"
        yield Check(name=name, status="fail", found=f"{home}: {error.strerror}", remedy=remedy)
        return
    if not stat.S_ISDIR(facts.st_mode):
        remedy = "move it away, or choose another place with QUARTERDECK_HOME"
        yield Check(name=name, status="fail", found=f"{home} is no folder", remedy=remedy)
    elif facts.st_uid != os.geteuid():
        remedy = "choose another one with QUARTERDECK_HOME"
        yield Check(
            name=name, status="fail", found=f"{home} belongs to user {facts.st_uid}", remedy=remedy
        )
    elif stat.S_IMODE(facts.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(facts.st_mode):o}"
        remedy = f"close it with: chmod 700 {home}"
        found = f"other users may look into {home} (mode {mode})"
        yield Check(name=name, status="fail", found=found, remedy=remedy)
    else:
        yield Check(name=name, status="ok", found=f"{home}, yours alone")


def check_token(patient: Patient) -> Iterator[Check]:
    path = patient.home / "token"
    try:
        facts = path.lstat()
    except OSError:
        return  # made by the hub when it first starts
    if not stat.S_ISREG(facts.st_mode) or stat.S_IMODE(facts.st_mode) & 0o077:
        remedy = f"remove it and start the hub again, which makes a new one: rm {path}"
        found = f"{path} is not a file that only you can read"
        yield Check(name="token", status="fail", found=found, remedy=remedy)
    else:
        yield Check(name="token", status="ok", found=f"{path}, readable by you alone")


def check_disk(patient: Patient) -> Iterator[Check]:
    folder = next(each for each in (patient.home, *patient.home.parents) if each.exists())
    free = shutil.disk_usage(folder).free
    found = f"{free / (1 << 30):.1f} GiB free"
    remedy = "make room: without it nothing an agent does can be stored"
    status: Status = "ok" if free > _ROOM_WANTED else "warn" if free > _ROOM_NEEDED else "fail"
    yield Check(name="disk", status=status, found=found, remedy="" if status == "ok" else remedy)


def check_databases(patient: Patient) -> Iterator[Check]:
    for name in ("log.db", "runner.db", "hub.db"):
        path = patient.home / name
        if path.exists():
            yield _check_database(name, path)


def _check_database(name: str, path: Path) -> Check:
    salvage = "copy it and salvage the copy with `sqlite3 FILE .recover`, or restore a backup"
    deadline = time.monotonic() + _LOOK_SECONDS
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            connection.set_progress_handler(lambda: int(time.monotonic() > deadline), 100_000)
            complaints = connection.execute("PRAGMA quick_check(3)").fetchall()
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            found = f"{path}: no damage in what {_LOOK_SECONDS:g} s were enough for"
            return Check(name=name, status="ok", found=found)
        found, remedy = f"{path}: {error}", "check its permissions, and who else has it open"
        return Check(name=name, status="fail", found=found, remedy=remedy)
    except sqlite3.DatabaseError as error:
        return Check(name=name, status="fail", found=f"{path}: {error}", remedy=salvage)
    if complaints != [("ok",)]:
        found = f"{path} is damaged: {complaints[0][0]}"
        return Check(name=name, status="fail", found=found, remedy=salvage)
    size = path.stat().st_size / (1 << 20)
    return Check(name=name, status="ok", found=f"{path} is sound, {size:.1f} MiB")


def check_hub(patient: Patient) -> Iterator[Check]:
    """Is one running, does it answer, and if there is none, could one start."""
    owner = lock_owner(patient.home)
    if patient.hub is not None:
        yield Check(name="hub", status="ok", found=f"running at {patient.hub['url']}")
    elif owner is not None:
        found = f"process {owner} has the data directory, but does not answer"
        remedy = f"look at what it says, or end it: kill {owner}"
        yield Check(name="hub", status="fail", found=found, remedy=remedy)
    else:
        yield Check(name="hub", status="ok", found="not running; quarterdeck up starts it")
        yield from _check_port(patient)


def lock_owner(home: Path) -> str | None:
    """Return the process that has the data directory; None if nobody has it."""
    try:
        lock = os.open(home / "hub.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(lock, 20, 0).decode(errors="replace").strip() or "unknown"
    finally:
        os.close(lock)
    return None


def _check_port(patient: Patient) -> Iterator[Check]:
    if patient.config is None or patient.config.server.port == 0:
        return
    host, port = patient.config.server.host, patient.config.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            remedy = "stop what has it, or set another: quarterdeck up --port 0 takes any"
            found = f"{host}:{port} cannot be had: {error.strerror}"
            yield Check(name="port", status="fail", found=found, remedy=remedy)
        else:
            yield Check(name="port", status="ok", found=f"{host}:{port} is free")


def check_tls(patient: Patient) -> Iterator[Check]:
    server = None if patient.config is None else patient.config.server
    if server is None or server.tls_cert is None or server.tls_key is None:
        return
    path = server.tls_cert
    try:
        left = check_certificate(Path(path), Path(server.tls_key))
    except CertificateUnusable as error:
        remedy = "check that both are PEM files, readable, and belong together"
        found = f"{path} with {server.tls_key}: {error}"
        yield Check(name="certificate", status="fail", found=found, remedy=remedy)
        return
    days = f"{abs(left) / 86400:.0f} days"
    if left < 0:
        found, status = f"{path} expired {days} ago", "fail"
    else:
        found, status = f"{path} is valid for {days}", "ok" if left > _SOON_SECONDS else "warn"
    remedy = "" if status == "ok" else "renew it and start the hub again"
    yield Check(name="certificate", status=status, found=found, remedy=remedy)  # type: ignore[arg-type]


def check_clock(patient: Patient) -> Iterator[Check]:
    newest = 0.0
    for name in ("log.db", "log.db-wal", "runner.db", "hub.db"):
        with suppress(OSError):  # not there yet
            newest = max(newest, (patient.home / name).stat().st_mtime)
    behind = newest - time.time()
    if behind > 60:
        found = f"the clock is {behind / 60:.0f} minutes behind the log"
        yield Check(name="clock", status="warn", found=found, remedy="set it, or let NTP do so")
    else:
        yield Check(name="clock", status="ok", found=time.strftime("%Y-%m-%d %H:%M:%S %z"))


def check_node(patient: Patient) -> Iterator[Check]:
    path = patient.environ.get("PATH")
    node, npx = shutil.which("node", path=path), shutil.which("npx", path=path)
    if node is None or npx is None:
        missing = "node" if node is None else "npx"
        remedy = "install Node.js 20 or newer if you want agents that come from npm"
        yield Check(
            name="node", status="warn", found=f"{missing} was not found on PATH", remedy=remedy
        )
        return
    try:
        told = subprocess.run(
            [node, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        remedy = "install Node.js again if you want agents that come from npm"
        yield Check(name="node", status="warn", found=f"{node}: {error}", remedy=remedy)
        return
    yield Check(name="node", status="ok", found=f"node {told}, {npx}")


def check_environment(patient: Patient) -> Iterator[Check]:
    config = patient.config or HubConfig()
    named = [*config.environment.pass_env, *(n for a in config.agents.values() for n in a.pass_env)]
    withheld = Environment(patient.environ, everybody=named).withheld(AgentDefinition("", "-"))
    found = "nothing that looks like a key is kept from agents"
    if withheld:
        found = f"only agents they belong to get {', '.join(withheld)}"
    remedy = "name those that agents need in pass_env of hub.toml" if withheld else ""
    yield Check(name="environment", status="ok", found=found, remedy=remedy)


CHECKS: Final[tuple[Callable[[Patient], Iterator[Check]], ...]] = (
    check_python,
    check_config,
    check_home,
    check_token,
    check_disk,
    check_hub,
    check_databases,
    check_tls,
    check_clock,
    check_node,
    check_environment,
)
