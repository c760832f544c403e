"""Agents that people use, run as people run them; the model behind them is ours.

`python3 dev.py test -m real_agents` runs these, `-k goose` those of one agent; docs/use/agents.md
has the results.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import SECONDS, Console, RunningHub
from tests.real_agents.agents import AGENTS, VARIABLE, RealAgent, agents_folder
from tests.real_agents.model_server import ENDED, FIRST_HALF, WRITTEN, model_server

pytestmark = [pytest.mark.real_agents, pytest.mark.timeout(300)]

CHOICES = "d details > "
CANCELLED = 130


@pytest.fixture(params=AGENTS, ids=lambda agent: agent.label)
def agent(request: pytest.FixtureRequest) -> RealAgent:
    chosen: RealAgent = request.param
    if not chosen.command(agents_folder()).exists():
        how = chosen.installation(agents_folder())
        pytest.fail(
            f"{chosen.name} is not installed in {agents_folder()} (${VARIABLE} names another"
            f" folder); install it: {how}\nor leave it out: -k 'not {chosen.name}'",
            pytrace=False,
        )
    return chosen


def _ordered(agent: RealAgent, desk: Console) -> str:
    """Return the prompt for what the agent asks permission for."""
    return agent.deed.format(work=desk.work)


@pytest.fixture
def desk(agent: RealAgent, tmp_path: Path) -> Iterator[Console]:
    with model_server() as url:
        settled = Console(tmp_path, agent.configuration(agents_folder(), url))
        agent.settle(tmp_path, url)
        yield settled
        assert _left_behind(tmp_path) == []


def test_it_is_known_by_its_name(agent: RealAgent, tmp_path: Path) -> None:
    desk = Console(tmp_path)
    folder = agent.command(agents_folder()).parent
    path = os.pathsep.join([str(folder), desk.environ["PATH"]])
    with model_server() as url:
        agent.settle(tmp_path, url)
        given = {**agent.environ(url), "PATH": path}
        done = desk.run("run", agent.name, "[say alpha]", **given)
    assert (done.returncode, "The word is alpha." in done.stdout) == (0, True), done.stderr


def test_a_session_alone(agent: RealAgent, desk: Console) -> None:
    first = desk.run("run", agent.name, "[say alpha]")
    assert first.returncode == 0, first.stderr
    assert "The word is alpha." in first.stdout
    session = _session(desk)
    assert session["agent"] == agent.name

    place = ("--session", session["sessionId"]) if agent.reopens else (agent.name,)
    where = (*agent.choices, *place)
    with desk.terminal("run", *where, _ordered(agent, desk), columns=300) as terminal:
        terminal.wait_for(CHOICES)
        asked = terminal.text.partition("The agent asks")[2]
        assert str(desk.work / "made") in asked
        assert "The word is alpha." not in terminal.text
        assert not (desk.work / "made").exists()
        terminal.type("y")
        assert terminal.end() == 0, terminal.text
        assert ENDED in terminal.text
    assert (desk.work / "made").exists()

    with desk.terminal("run", *where, "[wait]") as terminal:
        terminal.wait_for(FIRST_HALF.strip())
        terminal.interrupt()
        assert terminal.end() == CANCELLED, terminal.text

    last = desk.run("run", *where, "[recall]")
    assert last.returncode == 0, last.stderr
    if agent.reopens:
        assert "The words were: alpha." in last.stdout
        _check_shown(desk, session["sessionId"])


def test_a_session_in_a_hub_that_is_restarted(agent: RealAgent, desk: Console) -> None:
    with desk.hub() as hub:
        first = desk.run("run", "--json", agent.name, "[say alpha]")
        assert first.returncode == 0, first.stderr
        *events, result = map(json.loads, first.stdout.splitlines())
        assert (result["stopReason"], result["state"]) == ("end_turn", "done")
        assert _said(events) == "The word is alpha."
        session_id = result["sessionId"]

        deed = _ordered(agent, desk)
        again = ("run", "--json", *agent.choices, "--session", session_id, deed)
        with desk.start(*again) as process:
            hub.answer(hub.pending(), "allow_once")
            out, complaints = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, complaints
        assert ENDED in _said([json.loads(line) for line in out.splitlines()])
        assert (desk.work / "made").exists()

        stopped = _interrupted(desk, session_id)
        assert (stopped["stopReason"], stopped["exitStatus"]) == ("cancelled", CANCELLED)
        second = desk.run("run", "--session", session_id, "[say beta]")
        assert (second.returncode, "The word is beta." in second.stdout) == (0, True), second.stderr
        _check_shown(desk, session_id)
    assert hub.process.returncode == 0, hub.complaints

    with desk.hub() as hub:
        _check_shown(desk, session_id)
        if not agent.reopens:
            return
        last = desk.run("run", "--session", session_id, "[recall]")
        assert last.returncode == 0, last.stderr
        assert "The words were: alpha, beta." in last.stdout
        assert [each["sessionId"] for each in desk.json("sessions")["sessions"]] == [session_id]
        _check_shown(desk, session_id)
    assert hub.process.returncode == 0, hub.complaints


def test_what_nobody_can_answer_is_rejected_and_not_done(agent: RealAgent, desk: Console) -> None:
    done = desk.run("run", *agent.choices, agent.name, _ordered(agent, desk))
    assert done.returncode in agent.after_rejection, done.stderr
    assert "rejected: no terminal and no other device" in done.stdout + done.stderr
    assert not (desk.work / "made").exists()


def test_ctrl_c_ends_a_turn_that_waits_for_an_answer(agent: RealAgent, desk: Console) -> None:
    ordered = _ordered(agent, desk)
    with desk.terminal("run", *agent.choices, agent.name, ordered) as terminal:
        terminal.wait_for(CHOICES)
        terminal.interrupt()
        assert terminal.end() == CANCELLED, terminal.text
    assert not (desk.work / "made").exists()


@pytest.mark.parametrize(
    "agent",
    [each for each in AGENTS if each.runs_commands],
    ids=lambda agent: agent.label,
    indirect=True,
)
def test_ctrl_c_ends_a_command_that_is_running(agent: RealAgent, desk: Console) -> None:
    with desk.terminal(
        "run", *agent.choices, agent.name, "[run touch begun; sleep 987]"
    ) as terminal:
        if agent.deed.startswith("[run"):
            terminal.wait_for(CHOICES)
            terminal.type("y")
        _wait_until((desk.work / "begun").exists)
        terminal.interrupt()
        assert terminal.end() == CANCELLED, terminal.text


def test_a_file_is_created_and_an_agent_that_was_killed_goes_on(
    agent: RealAgent, desk: Console
) -> None:
    with desk.hub() as hub:
        made = hub.call("POST", "/api/sessions", {"agent": agent.name, "cwd": str(desk.work)})
        session_id = made["sessionId"]
        _turn(hub, session_id, f"[write {desk.work}/made.txt]")
        assert (desk.work / "made.txt").read_text() == WRITTEN

        _send(hub, session_id, "waiting", "[wait]")
        _wait_until(lambda: FIRST_HALF.strip() in _told(hub, session_id))
        for number in _processes(desk.folder):
            os.kill(number, signal.SIGKILL)
        _wait_until(lambda: _state(hub, session_id, "waiting") == "failed")
        if agent.reopens:
            _turn(hub, session_id, "[say beta]")
            assert "The word is beta." in _told(hub, session_id)


def _turn(hub: RunningHub, session_id: str, prompt: str) -> None:
    """Send a prompt, and allow everything until it has ended."""
    prompt_key = f"key-{time.monotonic_ns()}"
    _send(hub, session_id, prompt_key, prompt)
    deadline = time.monotonic() + SECONDS
    while (state := _state(hub, session_id, prompt_key)) in ("queued", "running"):
        assert time.monotonic() < deadline
        for each in hub.call("GET", "/api/permissions")["permissions"]:
            hub.answer(each, "allow_once")
        time.sleep(0.05)
    assert state == "done"


def _send(hub: RunningHub, session_id: str, key: str, prompt: str) -> None:
    hub.call("POST", f"/api/sessions/{session_id}/prompts", {"key": key, "prompt": prompt})


def _state(hub: RunningHub, session_id: str, key: str) -> str:
    state: str = hub.call("GET", f"/api/sessions/{session_id}/prompts/{key}")["state"]
    return state


def _told(hub: RunningHub, session_id: str) -> str:
    return _said(hub.call("GET", f"/api/sessions/{session_id}/history?limit=1000")["events"])


# ---- looking -------------------------------------------------------------------------------------


def _session(desk: Console) -> dict[str, Any]:
    (session,) = desk.json("sessions")["sessions"]
    found: dict[str, Any] = session
    return found


def _said(events: list[dict[str, Any]]) -> str:
    """Return what the agent said, from the lines of `run --json`."""
    chunks = [event["payload"] for event in events if event["type"] == "agent-message-chunk"]
    return "".join(each["content"]["text"] for each in chunks)


def _interrupted(desk: Console, session_id: str) -> dict[str, Any]:
    """Let the agent wait for its model, press Ctrl-C, and return the result."""
    with desk.start("run", "--json", "--session", session_id, "[wait]") as process:
        assert process.stdout is not None
        lines: list[dict[str, Any]] = []
        while FIRST_HALF.strip() not in _said(lines):
            line = process.stdout.readline()
            assert line, lines
            lines.append(json.loads(line))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=SECONDS)
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def _check_shown(desk: Console, session_id: str) -> None:
    """The log has it all, without a gap, and each way to look at it works."""
    events = _lines(desk.run("show", session_id, "--as", "events", "--json"))
    assert [each["seq"] for each in events] == list(range(1, len(events) + 1))
    assert "The word is alpha." in _said(events)
    assert "permission-request-resolved" in [each["type"] for each in events]
    context = _lines(desk.run("show", session_id, "--as", "context", "--json"))
    kinds = {each["type"] for each in context}
    assert any(kind.startswith("tool") for kind in kinds), kinds
    packets = _lines(desk.run("show", session_id, "--as", "packets", "--json"))
    assert packets
    plain = desk.run("show", session_id)
    assert (plain.returncode, "The word is alpha." in plain.stdout) == (0, True), plain.stderr


def _lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# ---- processes -----------------------------------------------------------------------------------


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _left_behind(home: Path) -> list[str]:
    """Return the processes that still have a user's home; what is ending gets a moment."""
    mark = f"HOME={home}\0".encode()
    deadline = time.monotonic() + 5
    while left := [line for line in map(_of(mark), _numbers()) if line]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []


def _processes(home: Path) -> list[int]:
    """Return the numbers of the agent's processes."""
    line = _of(f"HOME={home}\0".encode())
    found = {int(each): line(each) for each in _numbers()}
    return [number for number, text in found.items() if text and "quarterdeck" not in text]


def _numbers() -> list[str]:
    return [each.name for each in Path("/proc").iterdir() if each.name.isdigit()]


def _of(mark: bytes) -> Callable[[str], str]:
    def line(number: str) -> str:
        folder = Path("/proc", number)
        try:
            if mark not in folder.joinpath("environ").read_bytes():
                return ""
            return folder.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            return ""

    return line
