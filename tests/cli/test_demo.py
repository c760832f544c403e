"""`quarterdeck demo --plain` as a user runs it: a real command that starts a real agent."""

import codecs
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.cli.demo import first_allowing, option_for
from quarterdeck.protocol import decode_event, initial_state, reduce, to_json
from quarterdeck.testing import scenario_names
from tests.cli import forking

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-m", "quarterdeck", "demo", "--plain")
OPTIONS = [
    {"optionId": "no", "kind": "reject_once"},
    {"optionId": "yes", "kind": "allow_once"},
    {"optionId": "always", "kind": "allow_always"},
]


def demo(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONIOENCODING": "utf-8", **variables}
    return forking.run(("demo", "--plain", *arguments), environ, Path.cwd())


class Terminal:
    """The demo in a terminal of 80 columns, with a user at the keyboard."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        keyboard, screen = pty.openpty()
        environment = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", **variables}
        self._keyboard = keyboard
        self._text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.process = forking.Forked(
            ("demo", "--plain", *arguments),
            environment,
            Path.cwd(),
            (screen, screen, screen),
            is_leader=True,
        )

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    def wait_for(self, words: str) -> None:
        while words not in self._text:
            assert self._read(), f"{words!r} did not come: {self._text}"

    def interrupt(self, number: int = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def hang_up(self) -> None:
        """Close the window: the program gets a hang-up signal."""
        os.close(self._keyboard)
        self.interrupt(signal.SIGHUP)

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit status and all that was shown."""
        while self._read():
            pass
        os.close(self._keyboard)
        return self.process.wait(60), self._text.replace("\r\n", "\n")

    def _read(self) -> bool:
        try:
            received = os.read(self._keyboard, 65536)
        except OSError:  # on Linux: the other end is closed
            return False
        self._text += self._decoder.decode(received)  # a read may end inside a character
        return bool(received)


@pytest.fixture(scope="module")
def recorded() -> tuple[list[Any], dict[str, Any]]:
    """The events and the state that the demo prints for programs."""
    done = demo("--fast", "--json")
    assert done.returncode == 0, done.stderr
    *events, state = done.stdout.splitlines()
    return [decode_event(line) for line in events], json.loads(state)


# For programs


def test_events_are_numbered_from_1_without_a_gap(recorded: tuple[list[Any], Any]) -> None:
    events, _state = recorded
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {event.session_id for event in events} == {"sess-1"}


def test_folding_the_printed_events_gives_the_printed_state(
    recorded: tuple[list[Any], dict[str, Any]],
) -> None:
    events, printed = recorded
    state = initial_state("sess-1")
    for event in events:
        state = reduce(state, event)
    assert to_json(state) == printed


def test_a_session_has_the_events_that_a_host_would_record(
    recorded: tuple[list[Any], Any],
) -> None:
    types = [event.type for event in recorded[0]]
    assert types[:4] == [
        "session-config-init",
        "session-status-change",
        "session-status-change",
        "user-message-chunk",
    ]
    assert types.index("permission-request-created") < types.index("permission-request-resolved")
    assert types[-2:] == ["prompt-finished", "session-status-change"]
    expected = {"plan", "tool-call", "tool-call-update", "usage-update", "agent-thought-chunk"}
    assert expected <= set(types)


def test_only_the_prompt_and_the_update_of_a_request_are_marked_as_added(
    recorded: tuple[list[Any], Any],
) -> None:
    added = {
        event.type: event.extensions["quarterdeck"]["added"]
        for event in recorded[0]
        if "added" in (event.extensions or {}).get("quarterdeck", {})
    }
    assert added == {
        "user-message-chunk": "the prompt",
        "tool-call-update": "the agent sent this in its permission request",
    }


def test_a_flood_is_recorded_whole() -> None:
    done = demo("--scenario", "flood", "--json")
    *events, state = done.stdout.splitlines()
    chunks = sum('"agent-message-chunk"' in event for event in events)
    message = json.loads(state)["messages"][1]
    assert (done.returncode, chunks, len(message["content"])) == (0, 10_000, 10_000)


# For people


def test_a_person_sees_every_event_the_diff_and_the_state() -> None:
    done = demo("--fast")
    assert done.returncode == 0
    for words in (
        r"^   1 .* session-config-init +modes \[ask\], code$",
        r"^ +The total is right for every item",
        r"early\. \[5-6\]$",
        r"tool-call-update +✗ failed: pytest",
        r"^ +-    for index in range\(len\(items\) - 1\):$",
        r"^ +\+    for item in items:$",
        r"permission-request-resolved perm-1: answered allow_once$",
        r"^ +✓ See it pass$",
        r"^── sess-1 after \d+ events ─+$",
        r"^permissions +perm-1 answered: allow_once$",
        r"^usage +18,432 of 200,000 tokens, 0\.07 USD$",
        r"^stopped +end_turn",
    ):
        assert re.search(words, done.stdout, re.MULTILINE), words
    assert "\x1b" not in done.stdout


def test_nothing_is_wider_than_80_columns() -> None:
    done = demo("--fast", COLUMNS="80")
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_without_a_terminal_the_first_allowing_option_is_chosen_and_reported() -> None:
    done = demo("--fast")
    assert done.stderr == "quarterdeck: answered perm-1 automatically: allow_once\n"


def test_an_output_that_knows_ascii_only_gets_ascii() -> None:
    done = demo("--fast", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "-- sess-1 after" in done.stdout


def test_control_characters_of_an_agent_do_not_reach_the_terminal(tmp_path: Path) -> None:
    scenario = tmp_path / "evil.toml"
    steps = r'[{say = "a\u001b[2Jb"}, {tool = "t", title = "c\u001b]0;x\u0007d"}]'
    scenario.write_text(f"[[turns]]\nsteps = {steps}\n", encoding="utf-8")
    done = demo("--scenario", str(scenario))
    assert "agent    ab" in done.stdout
    assert "\x1b" not in done.stdout


def test_the_prompt_repeats_until_the_answer_is_valid() -> None:
    terminal = Terminal("--fast", NO_COLOR="1")
    terminal.wait_for("3 Reject")
    terminal.wait_for("[a] >")
    terminal.type("what?\n")
    terminal.wait_for("what?\r\n")
    terminal.wait_for("[a] > what?\r\n              1 Allow")
    terminal.type("r\n")
    status, text = terminal.end()
    assert status == 0
    assert "perm-1: answered reject_once" in text
    assert "\x1b" not in text


def test_a_terminal_gets_colours_and_yes_shows_no_prompt() -> None:
    status, text = Terminal("--fast", "--yes", NO_COLOR="").end()
    assert status == 0
    assert "\x1b[32m              +    for item in items:\x1b[0m" in text
    assert "perm-1: answered allow_once" in re.sub(r"\x1b\[[\d;]*m", "", text)


# What goes wrong


def test_a_crash_is_one_clear_line_and_status_1() -> None:
    done = demo("--fast", "--scenario", "crash")
    assert done.returncode == 1
    assert re.search(
        r"^quarterdeck: session/prompt was not answered: demo exited with status 7",
        done.stderr,
        re.MULTILINE,
    )
    assert "fatal: out of memory" in done.stderr
    assert "status       disconnected" in done.stdout
    assert "Traceback" not in done.stderr


def test_garbage_is_ignored_and_reported() -> None:
    done = demo("--fast", "--scenario", "garbage")
    assert done.returncode == 0
    assert "ignored output of the agent, text that is no message: 'Loading" in done.stderr
    assert "unrecognized-update" in done.stdout


def test_a_turn_that_fails_is_reported_with_status_1(tmp_path: Path) -> None:
    scenario = tmp_path / "fails.toml"
    scenario.write_text('[[turns]]\nsteps = [{fail = "boom", code = -5}]\n', encoding="utf-8")
    done = demo("--scenario", str(scenario))
    assert done.returncode == 1
    assert "prompt-finished       error -5: boom" in done.stdout


def test_an_agent_that_does_not_start_is_one_line_and_status_1(tmp_path: Path) -> None:
    scenario = tmp_path / "dead.toml"
    scenario.write_text("[methods]\ninitialize = [{crash = 3}]\n", encoding="utf-8")
    done = demo("--scenario", str(scenario))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "quarterdeck: could not start a session: initialize was not answered: demo"
    )
    assert "exited with status 3" in done.stderr


def test_a_bad_scenario_file_is_refused_with_location_and_advice(tmp_path: Path) -> None:
    scenario = tmp_path / "bad.toml"
    scenario.write_text("[[turns]]\nsteps = [{sing = 'x'}]\n", encoding="utf-8")
    done = demo("--scenario", str(scenario))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"quarterdeck: cannot play {scenario}: turn 1, step 1: no verb")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--fsat",), "quarterdeck: unknown argument '--fsat'; did you mean --fast?\n"),
        (
            ("--scenario",),
            "quarterdeck: --scenario needs a value; see quarterdeck demo --help\n",
        ),
    ],
)
def test_misuse_is_one_line_and_status_2(arguments: tuple[str, ...], message: str) -> None:
    done = demo(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_the_list_names_every_shipped_scenario() -> None:
    done = demo("--list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == scenario_names()


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_a_reader_who_leaves_ends_it_without_a_word(arguments: tuple[str, ...]) -> None:
    with subprocess.Popen(
        [*COMMAND, "--yes", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


def test_updates_that_come_before_the_session_has_an_id_are_recorded(tmp_path: Path) -> None:
    scenario = tmp_path / "early.toml"
    scenario.write_text('before_new = [{title = "Early"}]\n', encoding="utf-8")
    done = demo("--scenario", str(scenario), "--json")
    types = [json.loads(line)["type"] for line in done.stdout.splitlines()[:-1]]
    assert types[:3] == ["session-config-init", "session-status-change", "session-info-update"]


def test_a_request_sent_together_with_the_prompt_response_is_withdrawn(
    tmp_path: Path,
) -> None:
    scenario = tmp_path / "late.toml"
    scenario.write_text('[[turns]]\nsteps = [{late = [{ask = "x"}]}]\n', encoding="utf-8")
    done = demo("--scenario", str(scenario))
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "permissions  perm-1 " in done.stdout


@pytest.mark.parametrize("options", ["[]", "7", '[1, {name = "no id"}]'])
def test_a_request_without_options_is_cancelled(options: str, tmp_path: Path) -> None:
    scenario = tmp_path / "odd.toml"
    params = f'{{toolCall = {{toolCallId = "t"}}, options = {options}}}'
    ask = f'{{request = "session/request_permission", params = {params}}}'
    scenario.write_text(f'[[turns]]\nsteps = [{ask}, {{say = "so"}}]\n', encoding="utf-8")
    done = demo("--scenario", str(scenario))
    assert (done.returncode, done.stderr) == (0, "")
    assert "perm-1 answered: cancelled" in done.stdout


def test_a_folder_that_is_gone_is_one_line_and_status_1(tmp_path: Path) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$0" -P -m quarterdeck demo'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr
        == "quarterdeck: the current directory does not exist any more; change to another\n"
    )


def test_a_request_of_an_agent_that_exits_is_withdrawn(tmp_path: Path) -> None:
    scenario = tmp_path / "dies.toml"
    params = '{toolCall = {toolCallId = "t"}, options = []}'.replace(
        "[]", '[{optionId = "ok", name = "OK", kind = "allow_once"}]'
    )
    ask = f'{{request = "session/request_permission", nowait = true, params = {params}}}'
    scenario.write_text(
        f"[[turns]]\nsteps = [{ask}, {{pause = 0.5}}, {{crash = 4}}]\n", encoding="utf-8"
    )
    terminal = Terminal("--scenario", str(scenario), NO_COLOR="1")
    status, text = terminal.end()
    assert status == 1
    assert "perm-1: superseded" in text
    assert "permissions  perm-1 superseded" in text
    assert "exited with status 4" in text


# Ctrl-C


def agents_of(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
    return [int(pid) for pid in children.split()]


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)  # no event reports it
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="finds children in /proc")
@pytest.mark.parametrize(
    ("arguments", "shown", "outcome"),
    [
        (("--scenario", "stall"), "stop waiting.)", "stopped      cancelled"),
        (("--fast",), "[a] >", "permissions  perm-1 superseded"),
    ],
)
def test_an_interrupt_cancels_the_turn_and_leaves_no_child(
    arguments: tuple[str, ...], shown: str, outcome: str
) -> None:
    terminal = Terminal(*arguments, NO_COLOR="1")
    terminal.wait_for(shown)
    (agent,) = agents_of(terminal.process.pid)
    terminal.interrupt()
    status, text = terminal.end()
    assert status == 130
    assert outcome in text
    assert "prompt-finished       cancelled" in text
    assert is_gone(agent)


@pytest.mark.skipif(sys.platform != "linux", reason="finds children in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_stubborn_agent_does_not_survive_any_signal_that_ends_us(
    number: int, tmp_path: Path
) -> None:
    scenario = tmp_path / "stubborn.toml"
    ignored = '["eof", "HUP", "QUIT"]'
    steps = '[{say = "begun"}, {stall = true}]'
    scenario.write_text(f"ignore = {ignored}\n[[turns]]\nsteps = {steps}\n", encoding="utf-8")
    terminal = Terminal("--scenario", str(scenario), NO_COLOR="1")
    terminal.wait_for("begun")
    (agent,) = agents_of(terminal.process.pid)
    terminal.interrupt(number)
    status, text = terminal.end()
    assert status == 130
    assert "Traceback" not in text
    assert is_gone(agent)


@pytest.mark.skipif(sys.platform != "linux", reason="finds children in /proc")
def test_a_terminal_that_is_closed_leaves_no_agent(tmp_path: Path) -> None:
    scenario = tmp_path / "stubborn.toml"
    steps = '[{say = "begun"}, {stall = true}]'
    scenario.write_text(f'ignore = ["eof", "HUP"]\n[[turns]]\nsteps = {steps}\n', encoding="utf-8")
    terminal = Terminal("--scenario", str(scenario), NO_COLOR="1")
    terminal.wait_for("begun")
    (agent,) = agents_of(terminal.process.pid)
    terminal.hang_up()
    assert terminal.process.wait(60) != 0
    assert is_gone(agent)


@pytest.mark.skipif(sys.platform != "linux", reason="finds children in /proc")
def test_an_agent_that_ignores_the_cancel_does_not_survive_either(tmp_path: Path) -> None:
    scenario = tmp_path / "deaf.toml"
    steps = '[{say = "begun"}, {stall = true, deaf = true}]'
    scenario.write_text(f'ignore = ["eof", "TERM"]\n[[turns]]\nsteps = {steps}\n', encoding="utf-8")
    terminal = Terminal("--scenario", str(scenario), NO_COLOR="1")
    terminal.wait_for("begun")
    (agent,) = agents_of(terminal.process.pid)
    for _ in range(3):
        terminal.interrupt()
        terminal.wait_for("begun")
    status, text = terminal.end()
    assert status == 130
    assert "Traceback" not in text
    assert is_gone(agent)


# Answers


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("", "yes"),
        (" A ", "yes"),
        ("r", "no"),
        ("3", "always"),
        ("4", None),
        ("0", None),
        ("x", None),
    ],
)
def test_an_answer_is_a_letter_a_number_or_nothing(typed: str, expected: str | None) -> None:
    option = option_for(typed, OPTIONS)
    assert (option and option["optionId"]) == expected


def test_without_an_allowing_option_the_first_is_taken() -> None:
    only: list[Mapping[str, Any]] = [{"optionId": "no", "kind": "reject_once"}]
    assert first_allowing(only) == only[0]
    assert first_allowing([]) is None
