"""`quarterdeck service`, with tools that record how they are called.

systemd and launchd themselves are not there: `systemctl` and `launchctl` on PATH report processes
that really run, and write down the rest.
"""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import pytest

from quarterdeck.cli.commands.service import parser
from quarterdeck.cli.running_processes import find_process
from quarterdeck.cli.service_control import manage_service
from quarterdeck.cli.services import manager_of, start_by_service, stop_by_service
from quarterdeck.errors import CommandFailed
from tests.cli.kit import Console

pytestmark = pytest.mark.slow

UNITS = ("quarterdeck-hub.service", "quarterdeck-hub.socket", "quarterdeck-runner.service")

SYSTEMCTL = """\
#!/bin/sh
echo "systemctl $*" >> "$CALLS"
test -e "$STATE/unreachable" && exit 1
test -e "$STATE/fails" && test "$2" = start && echo "Unit is masked." >&2 && exit 5
case "$*" in
*MainPID*quarterdeck-hub.service) cat "$STATE/hub" || echo 0 ;;
*MainPID*quarterdeck-runner.service) cat "$STATE/runner" || echo 0 ;;
*ActiveState*) echo active ;;
esac
exit 0
"""

LAUNCHCTL = """\
#!/bin/sh
echo "launchctl $*" >> "$CALLS"
case "$*" in
"print gui/"*/dev.quarterdeck.*)
    role=${2##*.}
    test -e "$STATE/$role" || exit 113
    printf '\\tstate = running\\n\\tpid = %s\\n' "$(cat "$STATE/$role")" ;;
"bootout "*) rm -f "$STATE/${2##*.}" ;;
"bootstrap "*) label=${3%.plist}; cp "$STATE/found-${label##*.}" "$STATE/${label##*.}" ;;
esac
exit 0
"""

LOGINCTL = """\
#!/bin/sh
echo "loginctl $*" >> "$CALLS"
test "$1" = show-user && echo no
exit 0
"""

JOURNALCTL = """\
#!/bin/sh
echo "journalctl $*" >> "$CALLS"
test -e "$STATE/no-journal" && exit 1
echo "the journal"
"""


class Computer:
    """A user of a computer with a service manager."""

    def __init__(self, folder: Path) -> None:
        self.console = Console(folder)
        self.state = folder / "state"
        self.tools = folder / "bin"
        self._calls = folder / "calls"
        for each in (self.state, self.tools):
            each.mkdir()
        for name, text in (
            ("systemctl", SYSTEMCTL),
            ("launchctl", LAUNCHCTL),
            ("loginctl", LOGINCTL),
            ("journalctl", JOURNALCTL),
        ):
            (self.tools / name).write_text(text, encoding="utf-8")
            (self.tools / name).chmod(0o700)
        self.console.environ |= {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "CALLS": str(self._calls),
            "STATE": str(self.state),
        }
        for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
            self.console.environ.pop(name, None)
        self.units = folder / ".config" / "systemd" / "user"

    @property
    def calls(self) -> list[str]:
        """How tools were called, apart from questions."""
        lines = self._calls.read_text(encoding="utf-8").splitlines() if self._calls.exists() else []
        return [line for line in lines if " show" not in line and " print" not in line]

    def manages_what_runs(self, prefix: str = "") -> None:
        """Report the hub and the runner that run as those of the service."""
        for role in ("hub", "runner"):
            found = find_process(self.console.home, role)
            assert found is not None
            (self.state / f"{prefix}{role}").write_text(str(found.pid), encoding="utf-8")


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    return Computer(tmp_path)


def test_install_writes_units_then_enables_and_starts_them(computer: Computer) -> None:
    with computer.console.hub() as hub:
        computer.manages_what_runs()
        done = computer.console.run("service", "install")
        assert done.returncode == 0, done.stderr
        assert hub.url in done.stdout
    assert sorted(each.name for each in computer.units.iterdir()) == sorted(UNITS)
    assert {each.stat().st_mode & 0o777 for each in computer.units.iterdir()} == {0o600}
    unit = (computer.units / "quarterdeck-hub.service").read_text(encoding="utf-8")
    assert f"--home {computer.console.home}" in unit
    assert f"--config {computer.console.config}" in unit
    assert f"PATH={computer.tools}:" in unit
    assert computer.calls == [
        "systemctl --user daemon-reload",
        f"systemctl --user enable {' '.join(UNITS)}",
        "systemctl --user stop quarterdeck-hub.socket quarterdeck-hub.service",
        f"systemctl --user reset-failed {' '.join(UNITS)}",
        "systemctl --user start quarterdeck-runner.service quarterdeck-hub.socket"
        " quarterdeck-hub.service",
    ]
    assert "loginctl enable-linger" in done.stdout


def test_install_again_changes_nothing(computer: Computer) -> None:
    with computer.console.hub():
        computer.manages_what_runs()
        computer.console.run("service", "install")
        before = len(computer.calls)
        again = computer.console.run("service", "install", "--linger")
        assert again.returncode == 0, again.stderr
        assert "up to date" in again.stdout
    assert not any(" stop " in call for call in computer.calls[before:])
    assert computer.calls[-1] == "loginctl enable-linger"


def test_a_dry_run_prints_every_file_and_command_and_changes_nothing(computer: Computer) -> None:
    done = computer.console.run("service", "install", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert all(f"==> {computer.units / name}" in done.stdout for name in UNITS)
    assert "systemctl --user daemon-reload" in done.stdout
    assert not computer.units.exists()
    assert computer.calls == []


def test_secrets_of_the_shell_are_not_copied(computer: Computer) -> None:
    done = computer.console.run("service", "install", "--dry-run", ANTHROPIC_API_KEY="sk-secret")
    assert "sk-secret" not in done.stdout
    assert f"EnvironmentFile=-{computer.console.folder}/.config/quarterdeck/service.env" in (
        done.stdout
    )


def test_without_a_manager_install_names_the_commands(computer: Computer) -> None:
    (computer.state / "unreachable").touch()
    done = computer.console.run("service", "install")
    assert done.returncode == 1
    assert len(list(computer.units.iterdir())) == len(UNITS)
    assert "systemd does not answer" in done.stderr
    assert "systemctl --user daemon-reload" in done.stderr
    assert computer.calls == []


def test_a_manager_that_fails_is_quoted(computer: Computer) -> None:
    (computer.state / "fails").touch()
    done = computer.console.run("service", "install")
    assert done.returncode == 1
    assert "Unit is masked." in done.stderr


def test_a_hub_that_was_started_by_hand_is_not_ended_unless_asked(computer: Computer) -> None:
    with computer.console.hub() as hub:
        refused = computer.console.run("service", "install")
        assert refused.returncode == 1
        assert "quarterdeck down" in refused.stderr
        assert "--now" in refused.stderr
        assert not computer.units.exists()
        assert hub.process.poll() is None
        (computer.state / "fails").touch()  # nothing starts here: install ends after that
        computer.console.run("service", "install", "--now")
        hub.process.wait(60)
    assert find_process(computer.console.home, "hub") is None
    assert find_process(computer.console.home, "runner") is None


@pytest.mark.parametrize("name", UNITS)
def test_a_file_of_somebody_else_is_not_overwritten(computer: Computer, name: str) -> None:
    computer.units.mkdir(parents=True)
    (computer.units / name).write_text("[Unit]\nDescription=mine\n", encoding="utf-8")
    done = computer.console.run("service", "install")
    assert done.returncode == 1
    assert str(computer.units / name) in done.stderr
    assert [each.name for each in computer.units.iterdir()] == [name]


def test_there_is_one_service(computer: Computer) -> None:
    (computer.state / "unreachable").touch()
    computer.console.run("service", "install")
    other = computer.console.run("service", "install", "--home", str(computer.console.work))
    assert other.returncode == 1
    assert f"a service for {computer.console.home} is installed" in other.stderr


def test_remove_removes_what_install_wrote_and_nothing_else(computer: Computer) -> None:
    (computer.state / "fails").touch()
    computer.console.run("service", "install")
    foreign = computer.units / "quarterdeck-hub.socket"
    foreign.write_text("[Socket]\nListenStream=1\n", encoding="utf-8")
    drop_in = computer.units / "quarterdeck-hub.service.d" / "override.conf"
    drop_in.parent.mkdir()
    drop_in.touch()
    (computer.units / "other.service").touch()
    planned = computer.console.run("service", "remove", "--dry-run").stdout.splitlines()
    assert (computer.units / "quarterdeck-hub.service").exists()
    assert f"rm {computer.units / UNITS[0]} {computer.units / UNITS[2]}" in planned
    done = computer.console.run("service", "remove")
    assert done.returncode == 0, done.stderr
    assert sorted(each.name for each in computer.units.iterdir()) == [
        "other.service",
        "quarterdeck-hub.service.d",
        "quarterdeck-hub.socket",
    ]
    assert str(foreign) in done.stderr
    assert str(drop_in.parent) in done.stderr
    assert str(computer.console.home) in done.stdout
    assert computer.calls[-4:] == [
        "systemctl --user stop quarterdeck-hub.socket quarterdeck-hub.service",
        "systemctl --user stop quarterdeck-runner.service",
        f"systemctl --user disable {' '.join(UNITS)}",
        "systemctl --user daemon-reload",
    ]
    assert computer.console.run("service", "remove").stdout == "no service is installed\n"


def test_status_knows_what_runs_outside_of_the_service(computer: Computer) -> None:
    assert computer.console.run("service", "status").returncode == 1
    (computer.state / "fails").touch()
    computer.console.run("service", "install")
    with computer.console.hub():
        outside = computer.console.run("service", "status")
        assert outside.stdout.count("outside of the service") == 2
        computer.manages_what_runs()
        facts = computer.console.json("service", "status")
        assert facts["hub"]["isManaged"]
        assert facts["runner"]["isManaged"]
        assert facts["outdated"] == []
    computer.console.config.write_text("[server]\nport = 7273\n", encoding="utf-8")
    moved = computer.console.run("service", "status", "--json")
    assert '"outdated":["quarterdeck-hub.socket"]' in moved.stdout
    computer.console.config.write_text("nonsense", encoding="utf-8")
    broken = computer.console.run("service", "status")
    assert "a service of systemd is installed" in broken.stdout
    assert "is not TOML" in broken.stdout


def test_start_and_stop_are_for_an_installed_service(computer: Computer) -> None:
    for action in ("start", "stop"):
        done = computer.console.run("service", action)
        assert done.returncode == 1
        assert "quarterdeck service install" in done.stderr
    (computer.state / "fails").touch()
    computer.console.run("service", "install")
    (computer.state / "fails").unlink()
    with computer.console.hub() as hub:
        computer.manages_what_runs()
        assert computer.console.run("service", "start").returncode == 0
        assert computer.calls[-1].startswith("systemctl --user start quarterdeck-runner.service ")
        # What the manager has left over, such as a runner that the hub had started, is ended.
        assert computer.console.run("service", "stop").returncode == 0
        hub.process.wait(60)
    assert find_process(computer.console.home, "runner") is None


def test_logs_are_those_of_the_journal_or_of_the_runner(computer: Computer) -> None:
    done = computer.console.run("service", "logs", "-f", "-n", "7")
    assert done.stdout == "the journal\n"
    assert computer.calls[-1] == (
        "journalctl --user-unit=quarterdeck-runner.service --user-unit=quarterdeck-hub.service"
        " --lines=7 --follow"
    )
    (computer.state / "no-journal").touch()
    missing = computer.console.run("service", "logs")
    assert missing.returncode == 1
    computer.console.home.mkdir()
    (computer.console.home / "runner.log").write_text("1\n2\n3\n", encoding="utf-8")
    assert computer.console.run("service", "logs", "-n", "2").stdout == "2\n3\n"


def test_ready_waits_for_the_runner_that_was_started(computer: Computer) -> None:
    with computer.console.runner() as runner:
        done = computer.console.run("service", "ready", MAINPID=str(runner.pid))
        assert done.returncode == 0, done.stderr
        assert computer.console.run("service", "ready").returncode == 0
        ended = computer.console.run("service", "ready", MAINPID="4194305")
        assert ended.returncode == 1
        assert "the runner has ended" in ended.stderr


@pytest.mark.parametrize(
    ("action", "option"),
    [("status", "--now"), ("logs", "--dry-run"), ("install", "-f"), ("remove", "--linger")],
)
def test_an_option_of_another_action_is_refused(
    computer: Computer, action: str, option: str
) -> None:
    done = computer.console.run("service", action, option)
    assert done.returncode == 2
    assert f"not of {action}" in done.stderr


def test_a_port_that_changes_is_refused(computer: Computer) -> None:
    computer.console.config.write_text("[server]\nport = 0\n", encoding="utf-8")
    done = computer.console.run("service", "install", "--dry-run")
    assert done.returncode == 1
    assert "fixed port" in done.stderr


def test_the_manager_of_a_directory_is_found_only_if_it_is_installed_and_answers(
    computer: Computer,
) -> None:
    home, environ = computer.console.home, computer.console.environ
    assert manager_of(home, environ) is None
    (computer.state / "fails").touch()
    computer.console.run("service", "install")
    assert manager_of(home, environ) is not None
    assert manager_of(computer.console.work, environ) is None
    (computer.state / "unreachable").touch()
    assert manager_of(home, environ) is None


def test_a_process_is_started_and_stopped_by_its_service_only(computer: Computer) -> None:
    home, environ = computer.console.home, computer.console.environ
    assert not start_by_service("runner", home, environ)
    assert not stop_by_service("hub", 7, home, environ)
    (computer.state / "fails").touch()
    computer.console.run("service", "install")
    assert not start_by_service("runner", home, environ)
    (computer.state / "fails").unlink()
    with computer.console.runner():
        assert start_by_service("runner", home, environ)
    assert computer.calls[-1] == "systemctl --user start quarterdeck-runner.service"
    (computer.state / "hub").write_text("7", encoding="utf-8")
    assert not stop_by_service("hub", 8, home, environ)
    assert stop_by_service("hub", 7, home, environ)
    assert (
        computer.calls[-1] == "systemctl --user stop quarterdeck-hub.socket quarterdeck-hub.service"
    )


def test_down_stops_a_service_by_its_manager(computer: Computer) -> None:
    (computer.state / "fails").touch()
    computer.console.run("service", "install")
    with computer.console.hub():
        computer.manages_what_runs()
        done = computer.console.run("down")
        assert done.returncode == 0, done.stderr
        assert "quarterdeck service start" in done.stderr
    assert computer.calls[-2:] == [
        "systemctl --user stop quarterdeck-hub.socket quarterdeck-hub.service",
        "systemctl --user stop quarterdeck-runner.service",
    ]


def test_a_hub_asks_the_service_for_its_runner(computer: Computer) -> None:
    (computer.state / "fails").touch()
    computer.console.run("service", "install")
    before = len(computer.calls)
    with computer.console.up():  # the service fails: then the hub starts one itself
        assert "systemctl --user start quarterdeck-runner.service" in computer.calls[before:]
    computer.console.end_runner()


# ---- launchd -------------------------------------------------------------------------------------


@pytest.fixture
def mac(computer: Computer, monkeypatch: pytest.MonkeyPatch) -> Computer:
    for name, value in computer.console.environ.items():
        monkeypatch.setenv(name, value)
    return computer


def _service(*arguments: str) -> int:
    chosen = parser().read(arguments)
    assert isinstance(chosen, Namespace)
    return manage_service(chosen, platform="darwin")


def test_launchd_loads_both_once_and_only_the_hub_again(mac: Computer) -> None:
    agents, domain = mac.console.folder / "Library" / "LaunchAgents", f"gui/{os.getuid()}"
    hub, runner = (f"dev.quarterdeck.{role}" for role in ("hub", "runner"))
    with mac.console.hub():
        mac.manages_what_runs("found-")
        mac.manages_what_runs()
        (mac.state / "hub").unlink()
        with pytest.raises(CommandFailed, match="outside of the service"):
            _service("install")
        mac.manages_what_runs()
        assert _service("install") == 0
        assert mac.calls == [
            f"launchctl bootout {domain}/{hub}",
            f"launchctl bootstrap {domain} {agents / hub}.plist",
        ]
        assert (mac.console.folder / "Library" / "Logs" / "Quarterdeck").is_dir()
        assert {each.name for each in agents.iterdir()} == {f"{hub}.plist", f"{runner}.plist"}
        assert _service("install") == 0
        assert _service("status") == 0
        assert _service("start") == 0
        assert len(mac.calls) == 2
        assert _service("remove") == 0
        assert mac.calls[2:] == [
            f"launchctl bootout {domain}/{hub}",
            f"launchctl bootout {domain}/{runner}",
        ]
    assert list(agents.iterdir()) == []


def test_launchd_starts_again_what_has_ended(mac: Computer) -> None:
    domain, loaded = f"gui/{os.getuid()}", "dev.quarterdeck.runner"
    with mac.console.hub():
        mac.manages_what_runs("found-")
        mac.manages_what_runs()
        assert _service("install") == 0
        (mac.state / "runner").write_text("none", encoding="utf-8")
        environ = mac.console.environ
        assert start_by_service("runner", mac.console.home, environ, platform="darwin")
        assert mac.calls[-1] == f"launchctl kickstart {domain}/{loaded}"
        (mac.state / "runner").unlink()
        assert start_by_service("runner", mac.console.home, environ, platform="darwin")
        assert mac.calls[-1].startswith(f"launchctl bootstrap {domain} ")


def test_logs_of_launchd_are_files(mac: Computer, capfd: pytest.CaptureFixture[str]) -> None:
    folder = mac.console.folder / "Library" / "Logs" / "Quarterdeck"
    folder.mkdir(parents=True)
    for role in ("hub", "runner"):
        (folder / f"{role}.log").write_text(f"of the {role}\n", encoding="utf-8")
    assert _service("logs") == 0
    printed = capfd.readouterr().out
    assert "of the hub" in printed
    assert "of the runner" in printed
