"""`check`, `repair`, `backup`, `restore` and `compact`, on a real data folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarterdeck.cli.maintenance import size_text
from tests.cli.kit import Console

pytestmark = pytest.mark.slow


@pytest.fixture
def machine(tmp_path: Path) -> Console:
    made = Console(tmp_path)
    assert made.run("run", "demo", "hello").returncode == 0
    return made


def spoil(machine: Console) -> None:
    """Change one letter of a stored event, as a bad disk would."""
    path = machine.home / "log.db"
    data = bytearray(path.read_bytes())
    data[data.index(b'"seq":20,') + 7] ^= 1
    path.write_bytes(data)


def test_check_prints_a_table_and_works_with_and_without_a_hub(machine: Console) -> None:
    done = machine.run("check")
    assert (done.returncode, "is intact" in done.stdout) == (0, True)
    assert done.stdout.split()[:2] == ["log.db", "ok"]
    with machine.hub():
        facts = machine.json("check")
        assert not facts["isDamaged"]
        assert [each["status"] for each in facts["files"]] == ["ok"] * 3
        assert facts["files"][0]["sessions"] == 1


def test_damage_is_named_repaired_and_then_gone(machine: Console) -> None:
    spoil(machine)
    done = machine.run("check")
    assert done.returncode == 1
    assert "their checksum is wrong" in done.stdout
    assert "quarterdeck repair" in done.stdout
    refused = machine.run("backup", str(machine.work / "b.tar"))
    assert refused.returncode == 1
    assert "the data is damaged, so no backup was written" in refused.stderr
    with machine.hub():
        busy = machine.run("repair")
        assert busy.returncode == 1
        assert "stop it first: quarterdeck down" in busy.stderr
    repaired = machine.json("repair")
    assert "the session now ends at event" in repaired["done"][0]
    assert (Path(repaired["backup"]) / "log.db").is_file()
    assert machine.run("check").returncode == 0
    assert "nothing was changed" in machine.run("repair").stdout


def test_a_backup_of_a_running_hub_is_restored_when_it_has_stopped(machine: Console) -> None:
    with machine.hub() as hub:
        written = machine.json("backup", str(machine.work))
        assert written["sessions"] == 1
        (session,) = hub.call("GET", "/api/sessions")["sessions"]
        hub.call("DELETE", f"/api/sessions/{session['sessionId']}")
        busy = machine.run("restore", written["path"])
        assert (busy.returncode, "stop it first: quarterdeck down" in busy.stderr) == (1, True)
    restored = machine.json("restore", written["path"])
    assert Path(restored["aside"]).is_dir()
    (again,) = machine.json("sessions")["sessions"]
    assert again["sessionId"] == session["sessionId"]
    with machine.hub() as hub:
        assert hub.call("GET", "/healthz") == {"status": "ok"}


def test_a_running_hub_compacts_its_log(machine: Console) -> None:
    with machine.hub() as hub:
        (session,) = hub.call("GET", "/api/sessions")["sessions"]
        hub.call("DELETE", f"/api/sessions/{session['sessionId']}")
        files = machine.json("compact")["files"]
        assert [each["file"] for each in files] == ["log.db", "runner.db", "hub.db"]
        assert files[0]["after"] <= files[0]["before"]
        assert hub.call("GET", "/healthz") == {"status": "ok"}
        assert machine.run("run", "demo", "again").returncode == 0
    assert "log.db" in machine.run("compact").stdout
    assert machine.run("check").returncode == 0


@pytest.mark.parametrize("command", ["check", "repair", "backup x.tar", "restore x.tar", "compact"])
def test_a_folder_that_is_not_there_gets_a_sentence(command: str, tmp_path: Path) -> None:
    machine = Console(tmp_path)
    done = machine.run(*command.split())
    assert done.returncode == (0 if command == "check" else 1)
    assert "Traceback" not in done.stderr


def test_sizes_are_written_as_people_write_them() -> None:
    assert [size_text(each) for each in (0, 1023, 1536, 5 << 20)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 MiB"
    ]  # fmt: skip
