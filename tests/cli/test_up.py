"""`quarterdeck up`: what it says when it starts, why it does not, and how it ends."""

import json
import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from tests.certificates import certify
from tests.cli.kit import SECONDS, Desk, agent_toml

pytestmark = pytest.mark.slow


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_person_is_told_where_it_is_and_how_to_come_in(desk: Desk) -> None:
    with desk.terminal("up", "--port", "0") as terminal:
        terminal.wait_for("Ctrl-C stops it; sessions are kept.")
        assert "Quarterdeck is running at http://127.0.0.1:" in terminal.text
        assert "/#pair=" in terminal.text
        assert f"data   {desk.home}" in terminal.text
        assert "Only this computer can reach it" in terminal.text
        terminal.interrupt()
        assert terminal.end() == 130
        assert "stopped; the sessions are kept" in terminal.text
    assert not (desk.home / "hub.json").exists()


def test_a_second_ctrl_c_does_not_wait(desk: Desk) -> None:
    with desk.terminal("up", "--port", "0") as terminal:
        terminal.wait_for("Ctrl-C stops it")
        terminal.interrupt()
        terminal.wait_for("Ctrl-C again leaves at once")
        terminal.interrupt()
        assert terminal.end() == 130
        assert "Traceback" not in terminal.text


def test_a_service_gets_no_secret_into_its_journal_and_ends_with_0(desk: Desk) -> None:
    with desk.start("up", "--port", "0") as process:
        assert process.stdout is not None
        assert "Quarterdeck is running" in process.stdout.readline()
        process.terminate()
        rest, notes = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert "pair=" not in rest + notes


def test_programs_get_one_object(desk: Desk) -> None:
    with desk.hub() as hub:
        assert set(hub.told) == {"url", "pid", "home", "pairing"}
        assert hub.told["pid"] == hub.process.pid
        assert hub.call("GET", "/api/device")["id"] == "owner"


def test_the_configuration_is_read_again_at_a_signal_and_errors_change_nothing(desk: Desk) -> None:
    with desk.hub() as hub:
        assert hub.process.stderr is not None

        def reread(config: str) -> str:
            assert hub.process.stderr is not None
            desk.config.write_text(config, encoding="utf-8")
            hub.process.send_signal(signal.SIGHUP)
            return hub.process.stderr.readline()

        assert "read again: 1 agent, 0 rules\n" in reread(agent_toml("fresh", {"say": "I am new."}))
        assert "I am new." in desk.run("run", "fresh", "go").stdout
        assert "nothing was changed" in reread("[agents.fresh]\ncommand = 3")
        assert "I am new." in desk.run("run", "fresh", "go").stdout
        told = reread("[server]\nport = 1\n[[policy.rule]]\ndecision = 'deny'\ncommands = true")
        assert "0 agents, 1 rule; [server] count from the next start on" in told
        assert "there is no agent 'fresh'" in desk.run("run", "fresh", "go").stderr
        assert len(hub.call("GET", "/api/policy")["rule"]) == 1
        desk.config.unlink()
        hub.process.send_signal(signal.SIGHUP)
        assert "no such file" in hub.process.stderr.readline()
        os.mkfifo(desk.config)
        hub.process.send_signal(signal.SIGHUP)
        assert "is no regular file" in hub.process.stderr.readline()
        assert len(hub.call("GET", "/api/policy")["rule"]) == 1


def test_a_second_hub_is_told_which_process_has_the_directory(desk: Desk) -> None:
    with desk.hub() as hub:
        done = desk.run("up", "--port", "0")
        assert done.returncode == 1
        assert f"(process {hub.process.pid})" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--host", "0.0.0.0"), "tokens need TLS; give --tls-cert and --tls-key"),
        (("--config", "/nowhere"), "/nowhere: there is no such file; check --config"),
        (("--tls-cert", "/nowhere", "--tls-key", "/nowhere"), "/nowhere"),
        (("--behind-proxy",), "add --allow-host NAME"),
    ],
)
def test_what_is_set_up_wrongly_is_one_line(
    desk: Desk, arguments: tuple[str, ...], message: str
) -> None:
    done = desk.run("up", "--port", "0", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_one_line(desk: Desk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = desk.run("up", "--port", str(port))
    assert done.returncode == 1
    assert f"cannot listen at 127.0.0.1:{port}" in done.stderr
    assert "choose another port with --port" in done.stderr


@pytest.mark.parametrize("name", ["log.db", "runner.db", "hub.db"])
def test_a_damaged_database_is_one_line_and_left_as_it_is(desk: Desk, name: str) -> None:
    desk.home.mkdir(mode=0o700)
    path = desk.home / name
    path.write_bytes(b"no database at all")
    path.chmod(0o600)
    done = desk.run("up", "--port", "0")
    assert done.returncode == 1
    assert name in done.stderr
    assert "Traceback" not in done.stderr
    assert path.read_bytes() == b"no database at all"


def test_a_directory_that_others_can_read_is_refused(desk: Desk) -> None:
    desk.home.mkdir(mode=0o755)
    desk.home.chmod(0o755)
    done = desk.run("up", "--port", "0")
    assert (done.returncode, f"chmod 700 {desk.home}" in done.stderr) == (1, True)


def test_log_lines_are_json_in_a_private_file_without_secrets(desk: Desk) -> None:
    log = desk.folder / "hub.log"
    with desk.hub("--log-file", str(log)) as hub:
        hub.call("GET", "/api/devices")
        hub.process.send_signal(signal.SIGTERM)
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert log.stat().st_mode & 0o777 == 0o600
    assert (desk.home / "token").read_text(encoding="ascii").strip() not in log.read_text("utf-8")


def test_with_a_certificate_of_its_own_the_command_line_trusts_that_one_alone(desk: Desk) -> None:
    certificate, key = desk.folder / "hub.pem", desk.folder / "hub.key"
    certify(certificate, key, "desk.example")
    given = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with desk.hub(*given, "--allow-host", "desk.example") as hub:
        assert hub.url.startswith("https://127.0.0.1:")
        done = desk.run("run", "demo", "hello")
        assert (done.returncode, "You said: hello" in done.stdout) == (0, True), done.stderr
        other = desk.folder / "other.pem"
        shutil.copy(certificate, other)
        facts = json.loads((desk.home / "hub.json").read_text(encoding="utf-8"))
        facts["certificate"] = None
        (desk.home / "hub.json").write_text(json.dumps(facts), encoding="utf-8")
        refused = desk.run("sessions")
        assert refused.returncode == 1
        assert "does not answer" in refused.stderr
