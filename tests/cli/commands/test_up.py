"""`quarterdeck up`: what it says when it starts, why it does not, and how it ends."""

import json
import os
import re
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import certify
from tests.cli.kit import SECONDS, Console, agent_toml

pytestmark = pytest.mark.slow


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    made = Console(tmp_path)
    yield made
    made.end_runner()


def test_a_terminal_gets_the_url_and_the_pairing_link(console: Console) -> None:
    with console.terminal("up", "--port", "0") as terminal:
        terminal.wait_for("agents keep running until: quarterdeck down")
        assert "Quarterdeck is running at http://127.0.0.1:" in terminal.text
        assert "/#pair=" in terminal.text
        assert f"data   {console.home}" in terminal.text
        assert "Only this computer can connect" in terminal.text
        assert re.search(r"agents .*quarterdeck agents.*\n.*quarterdeck run \w+", terminal.text)
        terminal.interrupt()
        assert terminal.end() == 130
        assert "stopped; agents keep running" in terminal.text
    assert not (console.home / "hub.json").exists()


def test_a_second_ctrl_c_exits_at_once(console: Console) -> None:
    with console.terminal("up", "--port", "0") as terminal:
        terminal.wait_for("Press Ctrl-C to stop")
        terminal.interrupt()
        terminal.wait_for("press Ctrl-C again to exit at once")
        terminal.interrupt()
        assert terminal.end() == 130
        assert "Traceback" not in terminal.text


def test_a_service_logs_no_secret_and_exits_with_0(console: Console) -> None:
    with console.start("up", "--port", "0") as process:
        assert process.stdout is not None
        assert "Quarterdeck is running" in process.stdout.readline()
        process.terminate()
        rest, notes = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert "pair=" not in rest + notes


def test_programs_get_one_object(console: Console) -> None:
    with console.hub() as hub:
        assert set(hub.facts) == {"url", "pid", "home", "pairing"}
        assert hub.facts["pid"] == hub.process.pid
        assert hub.call("GET", "/api/device")["id"] == "owner"


def test_sighup_reloads_the_configuration_and_errors_change_nothing(
    console: Console,
) -> None:
    with console.hub() as hub:
        assert hub.process.stderr is not None

        def reread(config: str) -> str:
            assert hub.process.stderr is not None
            console.config.write_text(config, encoding="utf-8")
            hub.process.send_signal(signal.SIGHUP)
            return hub.process.stderr.readline()

        fresh = agent_toml("fresh", {"say": "I am new."})
        assert "reloaded: 1 agent, 0 rules\n" in reread(
            f"{fresh}[mcp.docs]\ncommand = 'docs-mcp'\n"
        )
        servers = hub.call("GET", "/api/mcp")["servers"]
        assert [(each["name"], each["command"]) for each in servers] == [("docs", "docs-mcp")]
        assert "I am new." in console.run("run", "fresh", "go").stdout
        assert "the configuration is unchanged" in reread("[agents.fresh]\ncommand = 3")
        assert "I am new." in console.run("run", "fresh", "go").stdout
        printed = reread("[server]\nport = 1\n[[policy.rule]]\ndecision = 'deny'\ncommands = true")
        assert "0 agents, 1 rule; [server] take effect at the next start" in printed
        assert "unknown agent 'fresh'" in console.run("run", "fresh", "go").stderr
        assert len(hub.call("GET", "/api/policy")["rule"]) == 1
        events = hub.call("GET", "/api/devices/log")["events"]
        changes = [each["detail"] for each in events if each["what"] == "config-changed"]
        assert changes == [
            "rules, agents and MCP servers in hub.toml",
            "agents and MCP servers in hub.toml",
        ]
        console.config.unlink()
        hub.process.send_signal(signal.SIGHUP)
        assert "does not exist" in hub.process.stderr.readline()
        os.mkfifo(console.config)
        hub.process.send_signal(signal.SIGHUP)
        assert "is not a regular file" in hub.process.stderr.readline()
        assert len(hub.call("GET", "/api/policy")["rule"]) == 1


def test_a_second_hub_reports_which_process_has_the_directory(console: Console) -> None:
    with console.hub() as hub:
        done = console.run("up", "--port", "0")
        assert done.returncode == 1
        assert f"(process {hub.process.pid})" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--host", "0.0.0.0"), "tokens need TLS; add --tls-cert and --tls-key"),
        (("--config", "/nowhere"), "/nowhere: does not exist; check --config"),
        (("--tls-cert", "/nowhere", "--tls-key", "/nowhere"), "/nowhere"),
        (("--behind-proxy",), "add --allow-host NAME"),
    ],
)
def test_a_wrong_configuration_is_one_line(
    console: Console, arguments: tuple[str, ...], message: str
) -> None:
    done = console.run("up", "--port", "0", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_one_line(console: Console) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = console.run("up", "--port", str(port))
    assert done.returncode == 1
    assert f"cannot listen at 127.0.0.1:{port}" in done.stderr
    assert "choose another port with --port" in done.stderr


@pytest.mark.parametrize("name", ["log.db", "runner.db", "hub.db"])
def test_a_damaged_database_is_one_line_and_left_as_it_is(console: Console, name: str) -> None:
    console.home.mkdir(mode=0o700)
    path = console.home / name
    path.write_bytes(b"no database at all")
    path.chmod(0o600)
    done = console.run("up", "--port", "0")
    assert done.returncode == 1
    assert name in done.stderr
    assert "Traceback" not in done.stderr
    assert path.read_bytes() == b"no database at all"


def test_a_directory_that_others_can_read_is_refused(console: Console) -> None:
    console.home.mkdir(mode=0o755)
    console.home.chmod(0o755)
    done = console.run("up", "--port", "0")
    assert (done.returncode, f"chmod 700 {console.home}" in done.stderr) == (1, True)


def test_log_lines_are_json_in_a_private_file_without_secrets(console: Console) -> None:
    log = console.folder / "hub.log"
    with console.hub("--log-file", str(log)) as hub:
        token = hub.call("POST", "/api/devices", {"name": "program"})["token"]
        hub.process.send_signal(signal.SIGTERM)
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert log.stat().st_mode & 0o777 == 0o600
    assert token not in log.read_text("utf-8")


def test_with_a_certificate_of_its_own_commands_need_none_and_doctor_trusts_that_one_alone(
    console: Console,
) -> None:
    certificate, key = console.folder / "hub.pem", console.folder / "hub.key"
    certify(certificate, key, "desk.example")
    given = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with console.hub(*given, "--allow-host", "desk.example") as hub:
        assert hub.url.startswith("https://127.0.0.1:")
        done = console.run("run", "demo", "hello")
        assert (done.returncode, "You said: hello" in done.stdout) == (0, True), done.stderr
        other = console.folder / "other.pem"
        shutil.copy(certificate, other)
        facts = json.loads((console.home / "hub.json").read_text(encoding="utf-8"))
        facts["certificate"] = None
        (console.home / "hub.json").write_text(json.dumps(facts), encoding="utf-8")
        refused = console.run("doctor")
        assert refused.returncode == 1
        assert "where it does not answer; commands reach it by its socket" in " ".join(
            refused.stdout.split()
        )
        assert console.run("sessions").returncode == 0
