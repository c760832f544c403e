"""`quarterdeck doctor`: problems are found, with a remedy."""

import json
import os
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from quarterdeck.cli.arguments import data_directory
from quarterdeck.cli.checks import Check, examine
from quarterdeck.cli.main import main
from quarterdeck.hub import default_home
from quarterdeck.machine import confinement
from quarterdeck.machine.confinement import Way
from quarterdeck.storage import SqliteStorage
from tests.cli.kit import Console
from tests.storage.support import meta, opened, stored


def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}


def checks(tmp_path: Path, config: str = "[server]\nport = 0\n") -> dict[str, Check]:
    file = tmp_path / "hub.toml"
    file.write_text(config, encoding="utf-8")
    return {check.name: check for check in examine(environ(tmp_path), tmp_path / "data", file)}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return folder


@pytest.mark.parametrize(
    "given",
    [
        {"HOME": "/me"},
        {"HOME": "/me", "XDG_DATA_HOME": "/d"},
        {"HOME": "/me", "XDG_DATA_HOME": "relative"},
        {"QUARTERDECK_HOME": "x"},
        {},
    ],
)
def test_commands_use_the_data_directory_of_the_hub(given: dict[str, str]) -> None:
    assert data_directory(given) == default_home(given)


def test_all_checks_pass_on_a_new_computer(tmp_path: Path) -> None:
    found = checks(tmp_path)
    assert not [check for check in found.values() if check.status == "fail"]
    assert "does not exist yet" in found["data directory"].found
    assert "not running" in found["hub"].found


def test_agents_are_listed_with_versions_and_what_is_missing(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "gemini-cli"
    program = package / "dist" / "index.js"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\ntouch ran\n")
    program.chmod(0o755)
    (package / "package.json").write_text('{"name": "gemini-cli", "version": "1.2.3"}')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gemini").symlink_to(program)
    file = tmp_path / "hub.toml"
    file.write_text("[agents.mine]\ncommand = 'surely-not-there'\n", encoding="utf-8")
    variables = {**environ(tmp_path), "PATH": str(tmp_path / "bin")}
    missing, found = (
        check for check in examine(variables, tmp_path / "data", file) if check.name == "agents"
    )
    assert missing.status == "warn"
    assert "surely-not-there was not found" in missing.found
    assert "agents.mine.command" in missing.remedy
    assert found.found.startswith("gemini 1.2.3; can be installed: auggie, claude, ")
    assert found.remedy == 'try one: quarterdeck run gemini "hello"'
    assert not (tmp_path / "ran").exists()


def test_a_directory_that_others_can_read_fails_with_a_remedy(tmp_path: Path, home: Path) -> None:
    home.chmod(0o750)
    check = checks(tmp_path)["data directory"]
    assert (check.status, check.remedy) == ("fail", f"make it private: chmod 700 {home}")


def test_a_token_of_an_earlier_version_is_reported(tmp_path: Path, home: Path) -> None:
    (home / "token").write_text("x", encoding="ascii")
    check = checks(tmp_path)["token"]
    assert (check.status, check.remedy) == ("warn", "restart the hub, which removes it")


def test_a_damaged_log_fails_and_is_left_as_it_is(tmp_path: Path, home: Path) -> None:
    (home / "log.db").write_bytes(b"no database")
    check = checks(tmp_path)["log.db"]
    assert (check.status, "quarterdeck repair" in check.remedy) == ("fail", True)
    assert (home / "log.db").read_bytes() == b"no database"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE sessions SET meta = '{}'", "the record of session s: its checksum is wrong"),
        ("DELETE FROM events WHERE last_seq = 3", "event 3 of session s"),
        ("DELETE FROM sessions", "events 1 to 3 of a session"),
    ],
)
def test_the_quick_part_of_a_check_finds_what_is_missing(
    change: str, named: str, tmp_path: Path, home: Path
) -> None:
    async def fill() -> None:
        async with opened(SqliteStorage(home / "log.db")) as storage:
            for seq in (1, 2, 3):
                await storage.append([meta("s"), stored("s", seq)])

    anyio.run(fill)
    assert checks(tmp_path)["log.db"].status == "ok"
    with closing(sqlite3.connect(home / "log.db")) as connection, connection:
        connection.execute(change)
    check = checks(tmp_path)["log.db"]
    assert check.status == "fail"
    assert named in check.found
    assert "quarterdeck repair" in check.remedy


def test_a_page_that_was_overwritten_is_found(tmp_path: Path, home: Path) -> None:
    connection = sqlite3.connect(home / "hub.db")
    connection.execute("CREATE TABLE things (name TEXT)")
    connection.executemany("INSERT INTO things VALUES (?)", [("x" * 500,)] * 100)
    connection.commit()
    connection.close()
    with (home / "hub.db").open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096)
    assert checks(tmp_path)["hub.db"].status == "fail"


def test_an_invalid_configuration_fails_with_its_line(tmp_path: Path) -> None:
    check = checks(tmp_path, "[server]\nprot = 1")["configuration"]
    assert check.status == "fail"
    assert "line 2: unknown key server.prot; did you mean port?" in check.found


def test_a_port_that_is_taken_fails(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        check = checks(tmp_path, f"[server]\nport = {port}")["port"]
    assert (check.status, "quarterdeck up --port 0" in check.remedy) == ("fail", True)


def test_an_invalid_certificate_fails(tmp_path: Path) -> None:
    config = "[server]\nport = 0\ntls_cert = '/nowhere'\ntls_key = '/nowhere'"
    assert checks(tmp_path, config)["certificate"].status == "fail"


def test_a_clock_behind_the_log_is_a_warning(tmp_path: Path, home: Path) -> None:
    sqlite3.connect(home / "log.db").close()
    later = time.time() + 3600
    os.utime(home / "log.db", (later, later))
    assert checks(tmp_path)["clock"].status == "warn"


def test_programs_get_all_checks_and_the_status_is_1_if_one_fails(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.chmod(0o755)
    assert main(["doctor", "--home", str(home), "--json"]) == 1
    listed = json.loads(capsys.readouterr().out)["checks"]
    assert {"name", "status", "found", "remedy"} == set(listed[0])
    assert main(["doctor", "--home", str(home)]) == 1
    assert f"-> make it private: chmod 700 {home}\n" in capsys.readouterr().out


@pytest.mark.slow
def test_a_running_hub_is_found_and_a_dead_one_is_not(tmp_path: Path) -> None:
    console = Console(tmp_path)
    with console.hub() as hub:
        running = {check["name"]: check for check in console.json("doctor")["checks"]}
        assert running["hub"]["found"] == f"running at {hub.url}"
        assert running["log.db"]["status"] == "ok"
        hub.process.kill()
        hub.process.wait(60)
    dead = {check["name"]: check for check in console.json("doctor")["checks"]}
    assert "not running" in dead["hub"]["found"]


def test_keys_that_agents_do_not_get_are_named_without_their_values(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text('[environment]\npass_env = ["SHARED_*"]\n', encoding="utf-8")
    keys = {"MY_API_KEY": "of mine", "SHARED_TOKEN": "of all"}
    checks = examine({**environ(tmp_path), **keys}, tmp_path / "data", config)
    (check,) = (each for each in checks if each.name == "environment")
    assert check.found == "withheld from agents they do not belong to: MY_API_KEY"
    assert "pass_env" in check.remedy


def test_confinement_is_reported_in_general_and_for_agents_that_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = Way(name="namespace", how="namespaces", limits=("a limit",))
    monkeypatch.setattr(confinement, "find_way", lambda: way)
    file = tmp_path / "hub.toml"
    file.write_text("[agents.free]\ncommand = 'x'\nconfine = 'off'\n", encoding="utf-8")
    found = [
        check
        for check in examine(environ(tmp_path), tmp_path / "data", file)
        if check.name == "confinement"
    ]
    assert len(found) == 2
    assert "all agents: " in found[0].found
    assert "by namespaces" in found[0].found
    assert "a limit" in found[0].found
    assert found[1].status == "warn"
    assert found[1].found.startswith('free: advisory: confine = "off"')
    assert "hub.toml" in found[1].remedy


def test_a_machine_that_cannot_confine_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = Way(name=None, reason="it cannot be done; do this")
    monkeypatch.setattr(confinement, "find_way", lambda: way)
    found = checks(tmp_path)["confinement"]
    assert found.status == "warn"
    assert found.found == "all agents: advisory: it cannot be done"
    assert found.remedy == "do this"
