"""The hub and the runner as processes: what survives the end of each, and how they are replaced."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from quarterdeck._version import __version__
from quarterdeck.machine import living_descendants
from tests.cli.kit import ASK, COMMAND, SECONDS, Console, RunningHub, agent_toml
from tests.hub.local_owner import SocketConnection, owner_call
from tests.small_disk import FILE_BYTES

pytestmark = pytest.mark.slow


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    made = Console(tmp_path, agent_toml("asks", ASK, load=[]))
    yield made
    made.end_runner()


def facts_of(console: Console, role: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((console.home / f"{role}.json").read_text())
    return found


def begin_turn(console: Console, hub: RunningHub) -> str:
    """Send a prompt whose turn waits for a permission; return its session."""
    session = hub.call("POST", "/api/sessions", {"agent": "asks", "cwd": str(console.work)})
    session_id = str(session["sessionId"])
    send(hub, session_id, "first")
    hub.pending()
    return session_id


def send(hub: RunningHub, session_id: str, key: str) -> None:
    prompt = [{"type": "text", "text": key}]
    hub.call("POST", f"/api/sessions/{session_id}/prompts", {"key": key, "prompt": prompt})


def wait_done(hub: RunningHub, session_id: str, key: str) -> None:
    path = f"/api/sessions/{session_id}/prompts/{key}"
    while (state := hub.call("GET", path)["state"]) in ("queued", "running"):
        time.sleep(0.02)
    assert state == "done"


def numbers(console: Console, session_id: str) -> list[int]:
    lines = console.run("show", session_id, "--json").stdout.splitlines()
    return [json.loads(line)["seq"] for line in lines]


@contextmanager
def started_runner(console: Console, patch: str) -> Iterator[int]:
    """Run a runner whose code is patched, as one of another version; yield its process id."""
    environ = {**console.environ, "PATH": f"/nowhere:{console.environ['PATH']}"}
    with started_patched(environ, patch, "runner", "--ready-fd", "1") as (process, line):
        assert line == b"ready\n"
        yield process.pid


@contextmanager
def started_patched(
    environ: Mapping[str, str], patch: str, *arguments: str
) -> Iterator[tuple[subprocess.Popen[bytes], bytes]]:
    """Run a command whose code is patched until the block ends; yield its first line, too."""
    program = f"{patch}; import sys; from quarterdeck.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-P", "-c", program, *arguments]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def test_agents_outlive_a_hub_that_is_killed_in_their_turn(console: Console) -> None:
    with console.up() as hub:
        session_id = begin_turn(console, hub)
        runner = facts_of(console, "runner")
        agents = living_descendants(runner["pid"])
        hub.process.kill()
        hub.process.wait(SECONDS)
    assert (console.home / "hub.json").exists()  # as it was left
    assert console.run("status").returncode == 1
    with console.up() as hub:
        assert facts_of(console, "runner") == runner
        hub.answer(hub.pending(), "allow_once")
        wait_done(hub, session_id, "first")
        assert living_descendants(runner["pid"]) == agents
        shown = console.run("show", session_id).stdout
        assert shown.count("It was allowed.") == 1
        found = numbers(console, session_id)
        assert found == list(range(1, len(found) + 1))
        # Ctrl-C ends the hub alone.
        hub.process.send_signal(signal.SIGINT)
        assert "agents keep running" in hub.process.communicate()[1]
    assert living_descendants(runner["pid"]) == agents
    ended = console.json("down")["ended"]
    assert ended == [{"role": "runner", "pid": runner["pid"]}]
    assert "nothing runs" in console.run("down").stdout


def test_a_hub_replaces_itself_in_a_turn_on_the_same_port(console: Console) -> None:
    with console.up() as hub:
        session_id = begin_turn(console, hub)
        hub.call("POST", "/api/pairings", {"scope": "view"})
        pairings = hub.call("GET", "/api/pairings")["pairings"]
        before, runner = facts_of(console, "hub"), facts_of(console, "runner")
        port = int(hub.url.rpartition(":")[2])
        request = f"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port)) as stream:
            path = f"/api/sessions/{session_id}/events?from_seq=0"
            head = f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            token = hub.call("POST", "/api/devices", {"name": "program"})["token"]
            stream.sendall(f"{head}authorization: Bearer {token}\r\n\r\n".encode())
            assert b"200 OK" in stream.recv(65536)
            done = console.run("restart")
            assert (done.returncode, done.stdout) == (0, ""), done.stderr
            assert "the hub was restarted" in done.stderr
            while stream.recv(65536):  # it was ended, not left open
                pass
        after = facts_of(console, "hub")
        assert (after["pid"], after["url"]) == (before["pid"], before["url"])
        assert after["instance"] != before["instance"]
        assert facts_of(console, "runner") == runner
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(request.encode())
            assert b'"status":"ok"' in connection.makefile("rb").read()
        assert hub.call("GET", "/api/pairings")["pairings"] == pairings
        hub.answer(hub.pending(), "allow_once")
        wait_done(hub, session_id, "first")
        # A version that does not start changes nothing.
        console.config.write_text("[nonsense]")
        refused = console.run("restart")
        assert refused.returncode == 1
        assert "the installed version does not start" in refused.stderr
        assert "nonsense" in refused.stderr
        assert facts_of(console, "hub") == after


def test_a_hub_that_replaces_itself_listens_where_its_configuration_says(console: Console) -> None:
    ports = [free_port(), free_port()]
    console.config.write_text(f"[server]\nport = {ports[0]}")
    with console.runner(), console.start("up", "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["url"].endswith(f":{ports[0]}")
        console.config.write_text(f"[server]\nport = {ports[1]}")
        assert console.run("restart").returncode == 0
        assert facts_of(console, "hub")["url"].endswith(f":{ports[1]}")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", ports[0])).close()
        socket.create_connection(("127.0.0.1", ports[1])).close()
        process.terminate()
        assert "Traceback" not in process.communicate()[1]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def test_a_turn_is_followed_through_kills_and_restarts_of_the_hub_without_a_gap(
    tmp_path: Path,
) -> None:
    words = " ".join(f"w{number}" for number in range(1_500))
    talk = {"say": words, "pieces": 1_500, "pause": 0.003}
    turns = [{"when": "first", "steps": [talk, ASK]}, {"steps": [ASK]}]
    console = Console(tmp_path, agent_toml("talks", turns=turns, pace=1))
    rounds = 8
    with console.runner() as runner:
        seen: list[int] = []
        session_id, agents = "", set[int]()
        for number in range(rounds):
            with console.hub() as hub:
                if number == 0:
                    made = {"agent": "talks", "cwd": str(console.work)}
                    session_id = str(hub.call("POST", "/api/sessions", made)["sessionId"])
                    send(hub, session_id, "first")
                    send(hub, session_id, "second")
                    agents = set(living_descendants(runner.pid))
                follow(console, session_id, seen, until=len(seen) + 40)
                if number % 2:
                    hub.call("POST", "/api/restart", {})
                    follow(console, session_id, seen, until=len(seen) + 40)
                hub.process.kill()
                hub.process.wait(SECONDS)
        with console.hub() as hub:
            assert set(living_descendants(runner.pid)) == agents
            for key in ("first", "second"):
                hub.answer(hub.pending(), "allow_once")
                wait_done(hub, session_id, key)
            last = hub.call("GET", f"/api/sessions/{session_id}")["seq"]
            follow(console, session_id, seen, until=last)
        assert seen == list(range(1, last + 1))
        assert set(living_descendants(runner.pid)) == agents


def follow(console: Console, session_id: str, seen: list[int], *, until: int) -> None:
    """Read the events of a session as a client does that resumes by number."""
    while len(seen) < until:
        connection = SocketConnection(console.home)
        try:
            path = f"/api/sessions/{session_id}/events"
            number = str(seen[-1]) if seen else "0"
            connection.request("GET", path, headers={"last-event-id": number})
            with connection.getresponse() as stream:
                for line in stream:
                    if line.startswith(b"data: {") and b'"payload":' in line:
                        seen.append(json.loads(line[6:])["seq"])
                    if len(seen) >= until:
                        return
        except (OSError, HTTPException):
            time.sleep(0.01)  # it is being replaced
        finally:
            connection.close()


def test_connections_wait_while_a_hub_replaces_itself(console: Console) -> None:
    with console.hub() as hub:
        for _ in range(2):
            assert hub.call("POST", "/api/restart", {}) == {"version": __version__}
            for _ in range(20):  # one of them falls into the gap
                assert hub.call("GET", "/healthz") == {"status": "ok"}
                time.sleep(0.02)


def test_a_runner_restarts_when_its_turns_have_ended_and_queued_prompts_go_on(
    console: Console,
) -> None:
    with console.up() as hub:
        session_id = begin_turn(console, hub)
        send(hub, session_id, "second")
        before = facts_of(console, "runner")
        work = console.json("status")["work"]
        assert (work["runningTurns"], work["pendingRequests"], work["queuedPrompts"]) == (1, 1, 1)
        with console.terminal("restart", "--runner") as terminal:
            terminal.wait_for("waiting for 1 running turn to end")
            assert "the runner restarts when running turns" in console.run("status").stdout
            terminal.interrupt()
            assert terminal.end() == 130
            assert "the restart was cancelled" in terminal.text
        assert not hub.call("GET", "/api/runner")["isDraining"]
        with console.start("restart", "--runner") as restart:
            assert restart.stderr is not None
            assert "waiting for 1 running turn" in restart.stderr.readline()
            hub.answer(hub.pending(), "allow_once")
            assert "the runner was restarted" in restart.communicate()[1]
            assert restart.returncode == 0
        assert facts_of(console, "runner")["pid"] != before["pid"]
        hub.answer(hub.pending(), "allow_once")
        wait_done(hub, session_id, "second")
        # A turn that does not end is cancelled if that is wanted.
        send(hub, session_id, "third")
        hub.pending()
        assert console.run("restart", "--runner", "--now").returncode == 0
        ended = hub.call("GET", f"/api/sessions/{session_id}/prompts/third")
        assert ended["state"] == "interrupted"


def test_down_ends_a_running_turn_and_the_next_hub_runs_what_was_queued(console: Console) -> None:
    with console.hub() as hub:
        session_id = begin_turn(console, hub)
        send(hub, session_id, "second")
        assert hub.runner is not None
        agents = living_descendants(hub.runner.pid)
        assert [each["role"] for each in console.json("down")["ended"]] == ["hub", "runner"]
        assert (hub.process.wait(), hub.runner.wait()) == (0, 0)
        for pid in agents:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
    for name in ("hub", "runner"):  # as if they had been killed, and their numbers used again
        (console.home / f"{name}.json").write_text(f'{{"pid": {os.getpid()}, "url": ""}}')
    assert "nothing runs" in console.run("down").stdout
    with console.hub() as hub:
        hub.answer(hub.pending(), "allow_once")
        wait_done(hub, session_id, "second")
        first = hub.call("GET", f"/api/sessions/{session_id}/prompts/first")
        assert first["state"] in ("done", "interrupted")
        assert first.get("stopReason", "cancelled") == "cancelled"


def test_a_killed_runner_is_started_again_by_its_hub(console: Console) -> None:
    with console.up() as hub:
        session_id = begin_turn(console, hub)
        killed = facts_of(console, "runner")["pid"]
        os.kill(killed, signal.SIGKILL)
        while (now := hub.call("GET", "/api/runner"))["pid"] == killed or not now["isConnected"]:
            time.sleep(0.05)
        send(hub, session_id, "second")
        hub.answer(hub.pending(), "allow_once")
        wait_done(hub, session_id, "second")
        first = hub.call("GET", f"/api/sessions/{session_id}/prompts/first")
        assert first["state"] == "interrupted"


def test_a_hub_that_ends_together_with_its_runner_starts_no_other(console: Console) -> None:
    with console.up() as hub:
        runner = facts_of(console, "runner")["pid"]
        hub.process.terminate()
        os.kill(runner, signal.SIGTERM)
        assert "starting one" not in hub.process.communicate()[1]
        assert hub.process.wait() == 0


def test_a_stopped_runner_leaves_the_hub_responsive(console: Console) -> None:
    impatient = "import quarterdeck.runner.link.connection as m; m.PING_SECONDS = 0.2"
    up = ("up", "--port", "0", "--json")
    with console.runner() as runner, started_patched(console.environ, impatient, *up) as (_, line):
        assert line
        home = console.home
        made = {"agent": "asks", "cwd": str(console.work)}
        session_id = str(owner_call(home, "POST", "/api/sessions", made)["sessionId"])
        body = {"key": "first", "prompt": [{"type": "text", "text": "go"}]}
        runner.send_signal(signal.SIGSTOP)
        while owner_call(home, "GET", "/api/runner")["isConnected"]:
            time.sleep(0.02)
        assert owner_call(home, "GET", "/healthz") == {"status": "degraded"}
        (listed,) = owner_call(home, "GET", "/api/sessions")["sessions"]
        assert listed["sessionId"] == session_id
        with pytest.raises(AssertionError, match=f"503.*kill -9 {runner.pid}"):
            owner_call(home, "POST", f"/api/sessions/{session_id}/prompts", body)
        assert f"kill -9 {runner.pid}" in console.run("show", session_id).stderr
        runner.send_signal(signal.SIGCONT)
        while not owner_call(home, "GET", "/api/runner")["isConnected"]:
            time.sleep(0.02)
        owner_call(home, "POST", f"/api/sessions/{session_id}/prompts", body)
        while not owner_call(home, "GET", "/api/permissions")["permissions"]:
            time.sleep(0.02)
        prompts = owner_call(home, "GET", f"/api/sessions/{session_id}/prompts")["prompts"]
        assert [each["key"] for each in prompts] == ["first"]


def test_a_runner_whose_files_are_removed_is_found_again(console: Console) -> None:
    with console.up() as hub:
        session_id = begin_turn(console, hub)
        before = facts_of(console, "runner")
        names = [f"runner.{each}" for each in ("json", "sock", "lock")]
        for name in names:
            (console.home / name).unlink()
        while not all((console.home / name).exists() for name in names):
            time.sleep(0.02)
        assert console.run("restart").returncode == 0
        assert facts_of(console, "runner") == before
        hub.answer(hub.pending(), "allow_once")
        wait_done(hub, session_id, "first")
        down = console.json("down")["ended"]
        assert [each["role"] for each in down] == ["hub", "runner"]


def test_nothing_is_restarted_on_a_full_disk(console: Console) -> None:
    with console.up() as hub:
        session_id = begin_turn(console, hub)
        before = facts_of(console, "hub"), facts_of(console, "runner")
        pid = before[0]["pid"]
        unlimited = resource.prlimit(pid, resource.RLIMIT_FSIZE, (FILE_BYTES, -1))
        for command in (("restart",), ("restart", "--runner", "--now")):
            refused = console.run(*command)
            assert refused.returncode == 1
            assert "free up disk space" in refused.stderr
        assert (facts_of(console, "hub"), facts_of(console, "runner")) == before
        assert not list(console.home.glob("*probe*"))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)
        assert console.run("restart").returncode == 0
        hub.answer(hub.pending(), "allow_once")
        wait_done(hub, session_id, "first")


def test_of_two_hubs_that_start_at_once_one_wins(console: Console) -> None:
    with (
        console.start("up", "--port", "0", "--json") as one,
        console.start("up", "--port", "0", "--json") as other,
    ):
        assert one.stdout is not None
        assert other.stdout is not None
        printed = [one.stdout.readline(), other.stdout.readline()]
        loser = (one, other)[printed.index("")]
        complaint = loser.communicate()[1]
        assert loser.returncode == 1
        assert "another command is using" in complaint or "a hub is already running" in complaint
        facts = json.loads("".join(printed))
        assert owner_call(console.home, "GET", "/api/runner")["isConnected"]
        down = console.json("down")["ended"]
        assert [each["role"] for each in down] == ["hub", "runner"]
        assert down[0]["pid"] == facts["pid"]


def test_commands_use_a_runner_that_has_no_hub(console: Console) -> None:
    with console.runner() as runner:
        with console.start("run", "--yes", "--json", "asks", "go") as first:
            second = console.run("run", "--yes", "asks", "go")  # beside it
            assert "It was allowed." in second.stdout, second.stderr
            first.communicate()
            assert first.returncode == 0
        assert len(console.json("sessions")["sessions"]) == 2
        assert {each["file"] for each in console.json("compact")["files"]} >= {"log.db"}
        for command in (("repair",), ("restore", "nothing.tar")):
            refused = console.run(*command)
            assert refused.returncode == 1
        assert f"a runner (process {runner.pid})" in console.run("repair").stderr
        work = json.loads(console.run("status", "--json").stdout)["work"]
        assert (work["sessions"], work["runningTurns"], work["log"]) == (2, 0, "ok")
        status = console.run("status")
        assert (status.returncode, "to connect to them: quarterdeck up" in status.stdout) == (
            1,
            True,
        )


def test_upgrade_replaces_what_has_another_version_and_says_so(console: Console) -> None:
    older = "import quarterdeck._version as v; v.__version__ = '0.0.9'"
    with started_runner(console, older) as pid, console.up() as hub:
        done = console.run("upgrade")
        assert done.returncode == 0, done.stderr
        assert f"the hub has version {__version__} already" in done.stderr
        assert f"the runner was restarted: version {__version__}" in done.stderr
        assert facts_of(console, "runner")["pid"] != pid
        again = console.run("upgrade")
        assert f"the runner has version {__version__} already" in again.stderr
        assert "runs from the clone" in again.stderr.splitlines()[-1]
        hub.process.terminate()
        complaints = hub.process.communicate()[1]
        assert "the runner has version 0.0.9" in complaints
        assert "quarterdeck upgrade" in complaints
        assert "the runner was started with another PATH" in complaints


def test_a_runner_without_a_common_protocol_is_refused_with_the_command(console: Console) -> None:
    other = "import quarterdeck.runner.link.server as m; m.LINK_PROTOCOL = m.OLDEST_PROTOCOL = 99"
    with started_runner(console, other):
        done = console.run("up", "--port", "0")
        assert done.returncode == 1
        assert "quarterdeck down" in done.stderr
        assert "Traceback" not in done.stderr


SOCKET_UNIT = """
import os, sys
given = int(sys.argv[1])
os.dup2(given, 3, inheritable=True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "http"}
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_connections_at_a_socket_unit_wait_for_a_hub_and_for_the_next_one(console: Console) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unit, console.runner():
        port = unit.getsockname()[1]
        request = f"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n"
        program = [sys.executable, "-c", SOCKET_UNIT, str(unit.fileno()), *COMMAND]
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port)) as early:
                early.sendall(request.encode())
                hub = subprocess.Popen(
                    [*program, "up", "--port", "1"],
                    env=console.environ,
                    pass_fds=[unit.fileno()],
                    stdout=subprocess.DEVNULL,
                )
                with hub:
                    early.settimeout(SECONDS)
                    assert b'"status":"ok"' in early.makefile("rb").read()
                    hub.kill()
