from __future__ import annotations

import os
import plistlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from quarterdeck.cli.service_control import listening_addresses
from quarterdeck.cli.service_files import (
    ServiceSettings,
    launchd_agents,
    marked_home,
    systemd_units,
)
from quarterdeck.errors import CommandFailed
from quarterdeck.hub.listeners import open_listeners
from tests.cli.systemd_syntax import command, plain, read_unit, words

KEYS = {
    "Unit": {
        *("Description", "StartLimitIntervalSec", "StartLimitBurst"),
        *("Requires", "Wants", "After"),
    },
    "Service": {
        *("Type", "ExecStart", "ExecStartPost", "ExecReload", "WorkingDirectory", "Environment"),
        *("EnvironmentFile", "Restart", "RestartSec", "RestartPreventExitStatus", "KillMode"),
        *("TimeoutStartSec", "TimeoutStopSec", "OOMPolicy"),
    },
    "Socket": {"ListenStream", "FreeBind"},
    "Install": {"WantedBy"},
}
"""Keys of systemd.unit(5), .service(5), .exec(5), .kill(5) and .socket(5)."""

NASTY = "a b%h%%$HOME${x}\"q'\\n\\\u00e9\u202e[*?]{;#"

texts = st.text(
    st.characters(exclude_categories=("Cc", "Cs", "Cn"), exclude_characters="/\ufffe\uffff"),
    min_size=1,
    max_size=20,
)


def settings(name: str = "user", **changes: Any) -> ServiceSettings:
    folder = Path("/home") / name
    before = ServiceSettings(
        program=(sys.executable, "-P", "-m", "quarterdeck"),
        home=folder / "data",
        config_file=folder / "hub.toml",
        addresses=("127.0.0.1:7272", "[::1]:7272"),
        environment={"PATH": f"/bin:{folder}/bin"},
        environment_file=folder / "service.env",
    )
    return replace(before, **changes)


@given(texts)
@example(".")
@example("..")
@example(NASTY)
def test_systemd_reads_back_what_was_written(name: str) -> None:
    folder = re.sub(r"[\"'\\]", "", name)
    chosen = settings(name, program=(f"/opt/{folder}/python", "-P", "-m", "quarterdeck"))
    units = systemd_units(chosen)
    runner = read_unit(units["quarterdeck-runner.service"])["Service"]
    hub = read_unit(units["quarterdeck-hub.service"])["Service"]
    assert command(*runner["ExecStart"]) == list(chosen.command("runner"))
    assert command(*runner["ExecStartPost"]) == list(chosen.command("service", "ready"))
    assert command(*hub["ExecStart"]) == list(chosen.command("up"))
    for service in (runner, hub):
        assert words(*service["Environment"]) == [f"PATH={chosen.environment['PATH']}"]
        pattern = plain(*service["EnvironmentFile"]).removeprefix("-")
        assert re.sub(r"\\(.)", r"\1", pattern) == str(chosen.environment_file)
        assert not re.search(r"(?<!\\)[*?\[]", re.sub(r"\\\\", "", pattern)), "a pattern"
    assert {marked_home(text) for text in units.values()} == {chosen.home}


@given(texts)
@example(".")
@example("..")
@example(NASTY)
def test_launchd_reads_back_what_was_written(name: str) -> None:
    chosen = settings(name)
    logs = Path("/logs", name)
    files = launchd_agents(chosen, logs)
    runner, hub = (
        plistlib.loads(files[f"dev.quarterdeck.{role}.plist"].encode())
        for role in ("runner", "hub")
    )
    assert runner["ProgramArguments"] == list(chosen.command("runner"))
    assert hub["ProgramArguments"] == list(chosen.command("up"))
    assert runner["EnvironmentVariables"] == chosen.environment
    assert hub["StandardErrorPath"] == str(logs / "hub.log")
    assert {marked_home(text) for text in files.values()} == {chosen.home}


def test_launchd_starts_both_at_login_and_a_runner_again_only_after_a_crash() -> None:
    files = launchd_agents(settings(), Path("/logs"))
    jobs = {name: plistlib.loads(text.encode()) for name, text in files.items()}
    assert {name: job["Label"] + ".plist" for name, job in jobs.items()} == {
        name: name for name in jobs
    }
    assert all(job["RunAtLoad"] for job in jobs.values())
    assert jobs["dev.quarterdeck.runner.plist"]["KeepAlive"] == {"SuccessfulExit": False}
    assert jobs["dev.quarterdeck.hub.plist"]["KeepAlive"] is True


@pytest.mark.parametrize("name", ["a\nb", "a\x1bb", "a\x7fb", "a\udc80b", "a\uffffb", "a\ufdd0b"])
@pytest.mark.parametrize("write", [systemd_units, lambda each: launchd_agents(each, Path("/logs"))])
def test_what_a_file_cannot_hold_is_refused(name: str, write: Any) -> None:
    with pytest.raises(CommandFailed, match="cannot hold"):
        write(settings(name))
    with pytest.raises(CommandFailed, match="cannot hold"):
        write(settings(environment={"PATH": f"/bin:{name}"}))


@pytest.mark.parametrize("name", ['a"b', "a'b", "a\\b"])
def test_a_program_that_systemd_cannot_start_is_refused(name: str) -> None:
    with pytest.raises(CommandFailed, match="quote or a backslash"):
        systemd_units(settings(program=(f"/opt/{name}/python",)))


@pytest.mark.parametrize("is_address_fixed", [True, False])
def test_units_have_only_keys_that_systemd_knows(*, is_address_fixed: bool) -> None:
    for text in systemd_units(settings(NASTY, is_address_fixed=is_address_fixed)).values():
        for section, keys in read_unit(text).items():
            assert keys.keys() <= KEYS[section]


@pytest.mark.parametrize("is_address_fixed", [True, False])
def test_systemd_accepts_the_units(tmp_path: Path, *, is_address_fixed: bool) -> None:
    """`systemd-analyze verify` where it is installed; the reader of this test elsewhere."""
    folder = tmp_path / re.sub(r"[\"'\\]", "", NASTY)
    folder.mkdir()
    interpreter = folder / "python"
    interpreter.symlink_to(sys.executable)
    chosen = settings(NASTY, program=(str(interpreter), "-P"), is_address_fixed=is_address_fixed)
    dump = _verified(tmp_path, systemd_units(chosen))
    assert chosen.command("runner") in dump
    assert chosen.command("service", "ready") in dump
    assert chosen.command("up") in dump


def _verified(folder: Path, units: dict[str, str]) -> list[tuple[str, ...]]:
    """Return the command lines of units that a parser has accepted."""
    for name, text in units.items():
        (folder / name).write_text(text, encoding="utf-8")
    if shutil.which("systemd-analyze") is None:
        services = [read_unit(text).get("Service", {}) for text in units.values()]
        keys = ("ExecStart", "ExecStartPost")
        return [
            tuple(command(each))
            for found in services
            for key in keys
            for each in found.get(key, [])
        ]
    return _analyzed(folder, list(units))


def _analyzed(folder: Path, names: list[str]) -> list[tuple[str, ...]]:
    environ = {
        **os.environ,
        "XDG_RUNTIME_DIR": str(folder),
        "SYSTEMD_UNIT_PATH": f"{folder}:",
        "SYSTEMD_COLORS": "0",
        "LC_ALL": "C.UTF-8",
    }
    verify = ["systemd-analyze", "--user", "verify", *(str(folder / name) for name in names)]
    done = subprocess.run(verify, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    environ["SYSTEMD_LOG_LEVEL"] = "debug"
    dump = subprocess.run(verify, env=environ, capture_output=True, text=True, check=True)
    lines = re.findall(r"^\s*Command Line: (.+)$", dump.stdout + dump.stderr, re.MULTILINE)
    return [tuple(shlex.split(re.sub(r"\\([$`])", r"\1", line))) for line in lines]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "::1", "127.0.0.2", "0.0.0.0", "::"],
)
def test_a_socket_unit_listens_where_the_hub_would(tmp_path: Path, host: str) -> None:
    home = tmp_path / "h"
    home.mkdir()
    with open_listeners(home, host, 0) as listeners:
        bound = [each.getsockname()[:2] for each in listeners.tcp]
        port = listeners.port
    expected = {f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name, _ in bound}
    assert set(listening_addresses(host, port)) == expected


def test_a_host_name_becomes_an_address() -> None:
    with pytest.raises(CommandFailed, match=r"nothing\.invalid"):
        listening_addresses("nothing.invalid", 7272)
    assert listening_addresses("localhost", 7272)[0] == f"{socket.gethostbyname('localhost')}:7272"
