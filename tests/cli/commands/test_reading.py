"""`sessions`, `show`, `tail`, `export`, `agents`, `devices`: in words and in JSON."""

import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.machine import guarded_command
from quarterdeck.protocol import decode_event, initial_state, reduce, to_json
from quarterdeck.protocol.timestamps import seconds_of
from tests.cli.kit import ASK, COMMAND, SECONDS, Console, RunningHub, agent_toml

pytestmark = pytest.mark.slow

DIFF = {"path": "{cwd}/a.py", "old": "x = 1\n", "new": "y = 1\n"}
STEPS: list[dict[str, Any]] = [
    {"think": "hm"},
    {"tool": "t", "title": "Edit a.py", "kind": "edit"},
    {"finish": "t", "diff": DIFF},
    {"say": "Mended."},
]


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Console:
    agents: dict[str, list[Any]] = {
        "edits": STEPS,
        "asks": [ASK],
        "waits": [{"say": "one"}, {"stall": True}],
        "ends": STEPS,
    }
    toml = "".join(agent_toml(name, *steps) for name, steps in agents.items())
    return Console(tmp_path_factory.mktemp("console"), toml)


@pytest.fixture(scope="module")
def hub(console: Console) -> Iterator[RunningHub]:
    with console.hub() as hub:
        assert console.run("run", "edits", "mend it").returncode == 0
        yield hub


def test_sessions_are_listed_with_what_they_need(console: Console, hub: RunningHub) -> None:
    with console.start("run", "--json", "asks", "go") as process:
        request = hub.pending()
        listed = console.json("sessions")["sessions"]
        states = {session["sessionId"]: session["state"] for session in listed}
        assert states["asks-1-session"] == "needs-you"
        assert states["edits-1-session"] == "idle"
        assert listed[0]["sessionId"] == "asks-1-session"
        only = console.json("sessions", "--state", "needs-you")["sessions"]
        assert [session["sessionId"] for session in only] == ["asks-1-session"]
        text = console.run("sessions").stdout
        assert "needs you" in text
        hub.answer(request, "reject_once")
        process.communicate(timeout=SECONDS)


def test_a_session_is_shown_in_every_form(console: Console, hub: RunningHub) -> None:
    text = console.run("show", "edits-1").stdout
    assert text.splitlines()[0] == "> mend it"
    assert "+y = 1" in text
    assert text.index("hm") < text.index("Edit a.py") < text.index("Mended.")
    events = console.run("show", "edits-1", "--as", "events", "--json").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in events] == list(range(1, len(events) + 1))
    state = initial_state("edits-1-session")
    for line in events:
        state = reduce(state, decode_event(line))
    assert json.loads(console.run("show", "edits-1", "--as", "state").stdout) == to_json(state)
    packets = console.run("show", "edits-1", "--as", "packets", "--json").stdout.splitlines()
    assert json.loads(packets[-1])["stopReason"] == "end_turn"
    projected = [
        json.loads(line)
        for line in console.run("show", "edits-1", "--as", "context", "--json").stdout.splitlines()
    ]
    assert {"session:started", "tool:start"} <= {event["type"] for event in projected}


@pytest.mark.parametrize(
    ("form", "word"),
    [("events", "prompt-finished"), ("context", "message:complete"), ("packets", "end_turn")],
)
def test_every_view_is_printed_as_lines(
    console: Console, hub: RunningHub, form: str, word: str
) -> None:
    lines = console.run("show", "edits-1", "--as", form).stdout.splitlines()
    assert any(word in line for line in lines)
    rest = console.run("show", "edits-1", "--as", form, "--from", "5").stdout.splitlines()
    assert rest == lines[len(lines) - len(rest) :]
    assert 0 < len(rest) < len(lines)


def test_a_session_is_shown_at_and_from_an_event(console: Console, hub: RunningHub) -> None:
    at = console.run("show", "edits-1", "--as", "events", "--json", "--at", "5").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in at] == [1, 2, 3, 4, 5]
    rest = console.run("show", "edits-1", "--json", "--from", "3", "--at", "5").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in rest] == [4, 5]
    beyond = console.run("show", "edits-1", "--at", "9999")
    assert (beyond.returncode, "events, not 9999" in beyond.stderr) == (1, True)


def test_an_abbreviated_id_must_be_unambiguous(console: Console, hub: RunningHub) -> None:
    assert console.run("show", "edits-1").returncode == 0
    console.run("run", "edits", "again")
    several = console.run("show", "edits")
    assert several.returncode == 1
    assert "'edits' matches edits-1-session, edits-2-session; type more of the id" in several.stderr
    none = console.run("show", "nothing")
    assert (none.returncode, none.stdout) == (1, "")
    assert "unknown session 'nothing'; quarterdeck sessions lists" in none.stderr


def test_an_export_has_every_byte_of_the_log(
    console: Console, hub: RunningHub, tmp_path: Path
) -> None:
    target = tmp_path / "session.jsonl"
    done = console.run("export", "edits-1", "-o", str(target))
    assert done.returncode == 0, done.stderr
    history = hub.call("GET", "/api/sessions/edits-1-session/history?limit=5000")
    exported = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    assert exported == history["events"]
    assert console.run("export", "edits-1", "-o", str(target)).returncode == 1
    assert console.run("export", "edits-1", "-o", str(target), "--force").returncode == 0


def test_an_export_is_also_a_document_and_a_state(console: Console, hub: RunningHub) -> None:
    document = console.run("export", "edits-1", "--format", "markdown").stdout
    assert "## Tool: Edit a\\.py" in document or "## Tool: Edit a.py" in document
    facts = json.loads(console.run("export", "edits-1", "--json").stdout)
    assert facts["session"]["sessionId"] == facts["state"]["sessionId"] == "edits-1-session"


def test_tail_prints_events_until_no_session_is_running(console: Console, hub: RunningHub) -> None:
    # From 0: whichever of the two is there first, all of the new session is shown.
    watching = ("tail", "--json", "--from", "0")
    with console.start(*watching) as tail, console.start("run", "waits", "go") as run:
        assert tail.stdout is not None
        seen: list[Any] = []
        while not seen or seen[-1]["type"] != "agent-message-chunk":
            event = json.loads(tail.stdout.readline())
            if event["sessionId"] == "waits-1-session":  # others wait for a prompt
                seen.append(event)
        run.send_signal(signal.SIGINT)
        assert run.wait(SECONDS) == 130
        tail.send_signal(signal.SIGINT)
        rest, notes = tail.communicate(timeout=SECONDS)
        assert (tail.returncode, "Traceback" in notes) == (130, False)
    seen += [json.loads(line) for line in rest.splitlines()]
    numbers = [event["seq"] for event in seen if event["sessionId"] == "waits-1-session"]
    assert numbers == list(range(1, 1 + len(numbers)))


def test_tail_starts_after_from_and_ends_with_the_turn(console: Console, hub: RunningHub) -> None:
    done = console.run("tail", "edits-1", "--from", "0", "--exit")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("> mend it\n")
    assert "Mended." in done.stdout


def test_tail_resumes_after_the_hub_was_killed_and_restarted(
    tmp_path: Path,
) -> None:
    console = Console(tmp_path, agent_toml("edits", *STEPS))
    assert console.run("run", "edits", "mend it").returncode == 0
    with console.hub() as hub, console.start("tail", "edits-1", "--json", "--from", "0") as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        first = [json.loads(tail.stdout.readline())]
        while first[-1]["type"] != "prompt-finished":
            first.append(json.loads(tail.stdout.readline()))
        hub.process.kill()
        hub.process.wait(SECONDS)
        assert "lost the connection to the hub; reconnecting" in tail.stderr.readline()
        with console.hub() as second:
            second.call("POST", "/api/sessions/edits-1-session/close")
            rest = map(json.loads, tail.stdout.read().splitlines())
        numbers = [event["seq"] for event in (*first, *rest)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert "the session is closed; quarterdeck show prints" in tail.stderr.read()


def test_agents_are_listed_with_whether_they_run(console: Console, hub: RunningHub) -> None:
    listed = console.json("agents")
    by_name = {agent["name"]: agent for agent in listed["agents"]}
    assert by_name["demo"]["installed"] is True
    assert by_name["edits"]["source"] == "configured"
    assert {agent["name"] for agent in listed["running"]} >= {"edits"}
    lines = console.run("agents").stdout.splitlines()
    assert any(line.split()[:2] == ["edits", "ready"] for line in lines)


def test_a_device_is_paired_renamed_and_revoked(console: Console, hub: RunningHub) -> None:
    pairing = console.json("devices", "pair", "--scope", "view", "--name", "phone")
    paired = hub.call("POST", "/api/pair", {"code": pairing["code"]})
    device = paired["device"]
    assert (device["name"], device["scope"]) == ("phone", "view")
    assert "phone" in console.run("devices").stdout
    assert console.json("devices", "rename", device["id"], "my phone")["name"] == "my phone"
    assert "revoked my phone" in console.run("devices", "revoke", device["id"]).stderr
    left = [each["id"] for each in console.json("devices")["devices"]]
    assert device["id"] not in left
    misused = console.run("devices", "revoke")
    assert (misused.returncode, "devices revoke takes one ID" in misused.stderr) == (2, True)


def test_a_token_is_made_on_purpose_and_printed_once(console: Console, hub: RunningHub) -> None:
    made = console.run("devices", "token", "--name", "backup", "--scope", "view", "--expires", "2h")
    token = made.stdout.strip()
    assert re.fullmatch(r"qd_[A-Za-z0-9_-]{43}", token)
    assert "this is shown once; backup has scope view" in made.stderr
    request = urllib.request.Request(f"{hub.url}/api/device")
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        device = json.loads(answer.read())
    assert (device["name"], device["scope"]) == ("backup", "view")
    assert seconds_of(device["expiresAt"]) - seconds_of(device["createdAt"]) == 7_200
    assert token not in console.run("devices").stdout
    assert "revoked backup" in console.run("devices", "revoke", device["id"]).stderr
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=SECONDS)
    assert console.json("devices", "token")["device"]["scope"] == "prompt"
    wrong = console.run("devices", "token", "--expires", "soon")
    assert (wrong.returncode, "use a form like 30d, 12h or 45m" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    "arguments", [("devices", "token"), ("devices", "pair"), ("sessions",), ("proxy", "edits")]
)
def test_a_command_that_an_agent_starts_is_refused(
    console: Console, hub: RunningHub, arguments: tuple[str, ...]
) -> None:
    done = subprocess.run(
        guarded_command([*COMMAND, *arguments]),
        env={**os.environ, **console.environ},
        cwd=console.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode != 0
    assert "an agent's process, and agents cannot answer requests" in done.stderr
    assert "qd_" not in done.stdout
    assert "refused-agent" in console.run("devices", "log").stdout
    events = console.json("devices", "log")["events"]
    assert "refused-agent" in [each["what"] for each in events]


def test_a_pairing_is_a_link_and_a_code_and_no_qr_code_that_a_phone_cannot_open(
    console: Console, hub: RunningHub
) -> None:
    with console.terminal("devices", "pair") as terminal:
        assert terminal.end() == 0
        assert "\u2588" not in terminal.text
        assert "pairs one device with scope approve; valid for 10 min" in terminal.text
        assert "this link works only on this computer" in terminal.text
        assert "quarterdeck up --phone" in terminal.text


def test_nothing_is_wider_than_a_narrow_terminal(console: Console, hub: RunningHub) -> None:
    with console.terminal("sessions", columns=60) as terminal:
        assert terminal.end() == 0
        assert max(map(len, terminal.text.splitlines())) <= 60


@pytest.mark.parametrize("verb", ["tail", "devices"])
def test_a_command_that_needs_a_hub_names_the_command_that_starts_one(
    tmp_path: Path, verb: str
) -> None:
    done = Console(tmp_path).run(verb)
    assert done.returncode == 1
    assert "no hub is running" in done.stderr
    assert "start one in another terminal: quarterdeck up" in done.stderr


def test_the_agent_of_a_session_is_ended(console: Console, hub: RunningHub) -> None:
    assert console.run("run", "ends", "go").returncode == 0
    session = "ends-1-session"  # of an agent that no other test needs
    done = console.run("sessions", "--end-agent", session)
    assert (done.returncode, done.stdout) == (0, "")
    assert "queued prompts run with a new process" in done.stderr
    unknown = console.run("sessions", "--end-agent", "nope")
    assert (unknown.returncode, len(unknown.stderr.splitlines())) == (1, 1)
