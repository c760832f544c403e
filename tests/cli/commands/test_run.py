"""`quarterdeck run`: a turn from the prompt to its exit status, with and without a hub."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.testing import scripted_agent
from tests.cli.kit import ASK, Console, agent_toml

pytestmark = pytest.mark.slow

CHOICES = "y allow once, a allow always, n reject, d details > "
FORM: dict[str, Any] = {
    "mode": "form",
    "sessionId": "{session}",
    "message": "Where \u202edo I begin?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "branch": {"type": "string", "title": "Branch", "maxLength": 8},
            "size": {"type": "string", "enum": ["small", "large"], "default": "small"},
            "tries": {"type": "integer", "minimum": 1, "maximum": 3},
            "note": {"type": "string"},
        },
        "required": ["branch", "size", "tries"],
    },
}
FILL: tuple[Any, ...] = (
    {"request": "elicitation/create", "params": FORM},
    {"say": "I got {last.action} {last.content}."},
)
EVIL = "\x1b]52;c;aGk=\x07\x1b]0;title\x07\x1b[2J\u202eevil"


@pytest.fixture
def console(tmp_path: Path) -> Console:
    liar = {**ASK, "options": [{"optionId": "x", "name": "Deny", "kind": "allow_always"}]}
    long = {**ASK, "input": {"command": "\n".join(f"echo {n}" for n in range(100)) + "\nrm -rf /"}}
    agents: dict[str, list[Any]] = {
        "asks": [ASK],
        "lies": [liar],
        "rambles": [long],
        "refuses": [{"stop": "refusal"}],
        "stops": [{"stop": "max_tokens"}],
        "fails": [{"fail": "out of ideas"}],
        "stalls": [{"say": "begun"}, {"stall": True}],
        "crashes": [{"crash": 3}],
        "wonders": [*FILL],
        "attacks": [{"say": EVIL}, {**ASK, "title": EVIL, "input": {"command": EVIL}}],
    }
    toml = "".join(agent_toml(name, *steps) for name, steps in agents.items())
    return Console(tmp_path, toml)


# ---- alone ---------------------------------------------------------------------------------------


def test_a_prompt_is_answered_without_a_hub_and_the_session_is_kept(console: Console) -> None:
    done = console.run("run", "demo", "hello")
    assert done.returncode == 0, done.stderr
    assert "You said: hello" in done.stdout
    assert "\x1b" not in done.stdout
    (session,) = console.json("sessions")["sessions"]
    assert (session["agent"], session["state"], session["cwd"]) == (
        "demo",
        "idle",
        str(console.work),
    )
    again = console.run("run", "--session", session["shortId"], "/recall")
    assert (again.returncode, "hello" in again.stdout) == (0, True)
    assert "> hello" not in again.stdout


def test_an_agent_at_a_url_is_run_with_a_header_of_the_environment(console: Console) -> None:
    token = "a-token-that-must-not-be-seen"
    console.environ["QUARTERDECK_ACP_TOKEN"] = token
    with console.start("acp", "serve", "--model", "demo", "--port", "0") as server:
        assert server.stderr is not None
        found = re.search(r"http://127.0.0.1:[0-9]+/acp", server.stderr.readline())
        assert found is not None
        header = ("--header", "Authorization: Bearer ${FAR_TOKEN}")
        done = console.run("run", found[0], "hello", *header, FAR_TOKEN=token)
        assert done.returncode == 0, done.stderr
        assert "You said: hello" in done.stdout
        missing = console.run("run", found[0], "hello", *header)
        assert (missing.returncode, "FAR_TOKEN" in missing.stderr) == (2, True)
        refused = console.run("run", found[0], "hello")
        assert (refused.returncode, "401" in refused.stderr) == (1, True)
        server.terminate()
    named = console.run("run", "demo", "hello", *header, FAR_TOKEN=token)
    assert (named.returncode, "for an agent at a URL" in named.stderr) == (2, True)
    for path in console.home.rglob("*"):
        assert not path.is_file() or token.encode() not in path.read_bytes(), path


def test_programs_get_every_event_and_the_result_as_the_last_line(console: Console) -> None:
    done = console.run("run", "--json", "demo", "hello")
    *events, result = map(json.loads, done.stdout.splitlines())
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert any(event["type"] == "prompt-finished" for event in events)
    assert (result["type"], result["state"], result["stopReason"], result["exitStatus"]) == (
        "result",
        "done",
        "end_turn",
        0,
    )


def test_a_loaded_session_is_not_printed_again(tmp_path: Path) -> None:
    old = [{"user": "hello"}, {"say": "An old answer."}]
    console = Console(tmp_path, agent_toml("loads", {"say": "It was {prompt}."}, load=old))
    assert "It was hello." in console.run("run", "loads", "hello").stdout
    (session,) = console.json("sessions")["sessions"]
    again = console.run("run", "--session", session["shortId"], "more")
    assert (again.returncode, again.stdout) == (0, "> more\n\nIt was more.\n"), again.stderr
    whole = console.run("run", "--json", "--session", session["shortId"], "even more").stdout
    kinds = [json.loads(line)["type"] for line in whole.splitlines()]
    assert {"session-reset", "prompt-finished"} <= set(kinds)


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("cannot", "the agent refused: Internal error: may not run as root"),
        ("breaks", "the agent failed: Internal error: no model"),
    ],
)
def test_the_error_message_of_an_agent_is_shown(tmp_path: Path, agent: str, words: str) -> None:
    refusal = {"fail": "Internal error", "data": {"details": "may not run as root"}}
    failure = {"fail": "Internal error", "data": {"details": "no model"}}
    toml = agent_toml("cannot", methods={"session/new": [refusal]}) + agent_toml("breaks", failure)
    done = Console(tmp_path, toml).run("run", agent, "hello")
    assert (done.returncode, words in done.stdout + done.stderr) == (1, True), done


@pytest.mark.parametrize(
    ("agent", "status", "words"),
    [
        ("refuses", 3, "the turn ended: refusal"),
        ("stops", 4, "the turn ended: max_tokens"),
        ("fails", 1, "the agent failed: out of ideas"),
        ("crashes", 1, "exited"),
    ],
)
def test_the_exit_status_depends_on_the_end_of_the_turn(
    console: Console, agent: str, status: int, words: str
) -> None:
    done = console.run("run", agent, "go")
    assert done.returncode == status, done.stderr
    assert words in done.stdout + done.stderr


def test_a_prompt_comes_from_standard_input(console: Console) -> None:
    assert "You said: piped" in console.run("run", "demo", "-", typed="piped").stdout
    assert "You said: piped" in console.run("run", "demo", typed="piped").stdout


def test_any_command_that_speaks_acp_is_an_agent(console: Console) -> None:
    scenario: dict[str, Any] = {"turns": [{"steps": [{"say": "It was {prompt}."}]}]}
    done = console.run("run", "me", "--", *scripted_agent(scenario))
    assert (done.returncode, "It was me." in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("unheard-of", "hi"), 1, "unknown agent 'unheard-of'; quarterdeck agents lists"),
        (
            ("demo", "a", "b"),
            2,
            "run takes an agent and a prompt, not 3 arguments; quote",
        ),
        (("hi", "--"), 2, "no program after --"),
        (("hi", "--", "no-such-program"), 1, "cannot start 'no-such-program'"),
        (("--session", "x", "hi"), 1, "unknown session 'x'; quarterdeck sessions lists"),
        (("--session", "x", "hi", "--", "a"), 2, "a session already has an agent"),
        (("--cwd", "/nowhere", "demo", "hi"), 1, "/nowhere: No such file or directory; choose"),
        (("--mdoe", "x", "demo", "hi"), 2, "unknown argument '--mdoe'; did you mean --mode?"),
        (("demo", " "), 1, "the prompt is blank"),
        (("demo", ""), 1, "the prompt is empty; pass it as an argument or on standard input"),
        (("demo",), 1, "the prompt is empty; pass it as an argument or on standard input"),
        (("dmeo", "hi"), 1, "unknown agent 'dmeo'; did you mean demo?"),
        (("--mode", "nope", "demo", "hi"), 1, "unknown mode 'nope'; choose one of full, "),
        (("--model", "nope", "demo", "hi"), 1, "unknown model 'nope'; choose one of demo"),
        (("--option", "a=b", "demo", "hi"), 1, "unknown option 'a'; choose one of "),
        (("--option", "a", "demo", "hi"), 2, "--option takes ID=VALUE, not 'a'"),
    ],
)
def test_an_error_is_one_line(
    console: Console, arguments: tuple[str, ...], status: int, message: str
) -> None:
    done = console.run("run", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


# ---- permission requests -------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "words"), [("y", "It was allowed."), ("n", "It was rejected.")])
def test_a_permission_request_is_answered_with_a_key(
    console: Console, key: str, words: str
) -> None:
    with console.terminal("run", "asks", "go") as terminal:
        terminal.wait_for(CHOICES)
        assert "command: touch made" in terminal.text
        assert "the agent says: list files" in terminal.text
        assert "asked because: No rule matches." in terminal.text
        terminal.type(key)
        assert terminal.end() == 0
        assert words in terminal.text


def test_input_typed_before_the_request_and_pasted_input_are_ignored(console: Console) -> None:
    with console.terminal("run", "asks", "go") as terminal:
        terminal.type("y\n")
        terminal.wait_for(CHOICES)
        terminal.type("yes")
        terminal.wait_for(CHOICES, times=2)
        terminal.type("n")
        assert terminal.end() == 0
        assert "It was rejected." in terminal.text


def test_a_key_is_named_by_what_it_does_whatever_the_agent_calls_it(console: Console) -> None:
    with console.terminal("run", "lies", "go") as terminal:
        terminal.wait_for("a allow always, n reject, d details > ")
        assert "Deny" not in terminal.text
        terminal.type("a")
        assert terminal.end() == 0


def test_a_long_call_cannot_be_allowed_before_it_was_shown(console: Console) -> None:
    with console.terminal("run", "rambles", "go") as terminal:
        terminal.wait_for(CHOICES)
        assert "lines not shown; press d to see them" in terminal.text
        assert "rm -rf /" in terminal.text
        assert "echo 50\n" not in terminal.text
        terminal.type("y")
        terminal.wait_for(CHOICES, times=2)
        assert "echo 50\n" in terminal.text
        terminal.type("y")
        assert terminal.end() == 0
        assert "It was allowed." in terminal.text


def test_only_text_of_an_agent_reaches_the_terminal(console: Console) -> None:
    with console.terminal("run", "attacks", "go", NO_COLOR="1") as terminal:
        terminal.wait_for(CHOICES)
        assert "<U+202E>evil" in terminal.text
        terminal.type("n")
        assert terminal.end() == 0
        assert "\x1b" not in terminal.raw


def test_a_terminal_gets_colours_and_no_other_sequence(console: Console) -> None:
    with console.terminal("run", "--yes", "attacks", "go") as terminal:
        assert terminal.end() == 0
        assert "\x1b" in terminal.raw
        assert not re.search(r"\x1b(?!\[[0-9;]*m)", terminal.raw)


@pytest.mark.parametrize(
    ("arguments", "words", "note"),
    [
        (("--yes",), "It was allowed.", "answered: allow once"),
        (("--no-wait",), "It was rejected.", "answered: reject"),
        ((), "It was rejected.", "rejected: no terminal and no other device to ask"),
    ],
)
def test_without_a_terminal_or_a_hub_a_request_is_decided_and_reported(
    console: Console, arguments: tuple[str, ...], words: str, note: str
) -> None:
    done = console.run("run", *arguments, "asks", "go")
    assert (done.returncode, words in done.stdout) == (0, True)
    assert note in done.stdout + done.stderr


def test_without_a_hub_a_rule_that_denies_is_not_overridden_by_yes(tmp_path: Path) -> None:
    rule = '[[policy.rule]]\ndecision = "deny"\nname = "never"\ncommands = true\n'
    console = Console(tmp_path, rule + agent_toml("asks", *[ASK] * 20))
    done = console.run("run", "--yes", "asks", "go")
    assert done.returncode == 0, done.stderr
    assert "It was allowed." not in done.stdout
    assert done.stdout.count("It was rejected.") == 20
    assert "answered: allow" not in done.stdout + done.stderr


LISTS = {**ASK, "input": {"command": "ls"}}


def test_without_a_hub_a_rule_that_allows_is_not_overridden_by_no_answer(tmp_path: Path) -> None:
    rule = '[[policy.rule]]\ndecision = "allow"\nname = "always"\ncommands = true\n'
    console = Console(tmp_path, rule + agent_toml("asks", *[LISTS] * 20))
    done = console.run("run", "--no-wait", "asks", "go")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("It was allowed.") == 20
    assert "It was rejected." not in done.stdout


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_with_a_hub_a_rule_is_not_overridden_by_an_option(tmp_path: Path, decision: str) -> None:
    rule = f'[[policy.rule]]\ndecision = "{decision}"\nname = "mine"\ncommands = true\n'
    console = Console(tmp_path, rule + agent_toml("asks", *[LISTS] * 20))
    option = "--yes" if decision == "deny" else "--no-wait"
    words = "It was rejected." if decision == "deny" else "It was allowed."
    with console.hub():
        done = console.run("run", option, "asks", "go")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(words) == 20


def test_a_form_is_filled_in_line_by_line_and_validated(console: Console) -> None:
    with console.terminal("run", "wonders", "go") as terminal:
        terminal.wait_for("Enter declines > ")
        assert "The agent asks: Where <U+202E>do I begin?" in terminal.text
        terminal.type("much-too-long\n")
        terminal.wait_for("the answer has 13 characters")
        terminal.wait_for("Enter declines > ", times=2)
        terminal.type("main\n")
        terminal.wait_for("a number or a word, Enter for small > ")
        assert "  2 large" in terminal.text
        terminal.type("2\n")
        terminal.wait_for("Enter declines > ", times=3)
        terminal.type("7\n")
        terminal.wait_for("'7' is out of range: from 1 to 3")
        terminal.wait_for("Enter declines > ", times=4)
        terminal.type("3\n")
        terminal.wait_for("Enter skips it > ")
        terminal.type("\n")
        assert terminal.end() == 0
        response = terminal.text.rpartition("I got accept")[2]
        assert all(word in response for word in ("main", "large", "3"))
        assert "note" not in response


def test_a_form_is_declined_with_ctrl_d(console: Console) -> None:
    with console.terminal("run", "wonders", "go") as terminal:
        terminal.wait_for("Enter declines > ")
        terminal.type("\x04")
        assert terminal.end() == 0
        assert "I got decline" in terminal.text


def test_without_a_terminal_a_form_is_declined_and_reported(console: Console) -> None:
    done = console.run("run", "--json", "wonders", "go")
    assert "declined a form of the agent" in done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    (request,) = [line for line in lines if line["type"] == "elicitation"]
    assert (request["request"]["message"], request["answerUrl"]) == (
        "Where \u202edo I begin?",
        None,
    )
    assert "I got decline" in done.stdout


def test_json_output_has_the_url_that_answers_a_form(console: Console) -> None:
    with console.hub() as hub, console.start("run", "--json", "wonders", "go") as process:
        assert process.stdout is not None
        while (request := json.loads(process.stdout.readline()))["type"] != "elicitation":
            pass
        content = {"branch": "main", "size": "large", "tries": 2}
        path = request["answerUrl"].removeprefix(hub.url)
        hub.call("POST", path, {"action": "accept", "content": content})
        assert "I got accept" in process.communicate(timeout=60)[0]


# ---- interrupted ---------------------------------------------------------------------------------


def test_ctrl_c_cancels_the_turn(console: Console) -> None:
    with console.terminal("run", "stalls", "go") as terminal:
        terminal.wait_for("begun")
        terminal.interrupt()
        assert terminal.end() == 130
        assert "cancelling the turn" in terminal.text
        assert "the turn ended: cancelled" in terminal.text
        assert "Traceback" not in terminal.text


def test_ctrl_c_at_a_permission_prompt_withdraws_the_request(console: Console) -> None:
    with console.terminal("run", "asks", "go") as terminal:
        terminal.wait_for(CHOICES)
        terminal.interrupt()
        assert terminal.end() == 130
        assert "-> withdrawn" in terminal.text or "-> cancelled" in terminal.text


def test_a_second_ctrl_c_exits_and_the_session_continues_in_a_running_hub(tmp_path: Path) -> None:
    deaf = {"stall": True, "deaf": True}
    console = Console(tmp_path, agent_toml("deaf", {"say": "begun"}, deaf))
    with console.hub() as hub:
        with console.terminal("run", "deaf", "go") as terminal:
            terminal.wait_for("begun")
            terminal.interrupt()
            terminal.wait_for("cancelling the turn")
            terminal.interrupt()
            assert terminal.end() == 130
            assert "exiting; the session continues: quarterdeck tail" in terminal.text
        (session,) = hub.call("GET", "/api/sessions")["sessions"]
        assert session["status"] == "prompting"


def test_a_reader_who_leaves_ends_it_without_a_word(console: Console) -> None:
    with console.start("run", "stalls", "go") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "> go\n"
        process.stdout.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (1, 130)
        assert "Traceback" not in process.stderr.read()


# ---- with a hub ----------------------------------------------------------------------------------


def test_a_running_hub_is_used_and_another_device_can_answer(console: Console) -> None:
    with console.hub() as hub, console.start("run", "asks", "go") as process:
        assert process.stderr is not None
        while "waiting for an answer from another device" not in (
            note := process.stderr.readline()
        ):
            assert note
        hub.answer(hub.pending(), "allow_once")
        shown, _ = process.communicate(timeout=60)
        assert (process.returncode, "It was allowed." in shown) == (0, True)
        (session,) = hub.call("GET", "/api/sessions")["sessions"]
        assert (session["agent"], session["status"]) == ("asks", "active")


def test_a_request_answered_on_another_device_is_withdrawn_from_the_terminal(
    console: Console,
) -> None:
    with console.hub() as hub, console.terminal("run", "asks", "go") as terminal:
        terminal.wait_for(CHOICES)
        hub.answer(hub.pending(), "reject_once")
        assert terminal.end() == 0
        assert "answered on another device, or withdrawn" in terminal.text
        assert "It was rejected." in terminal.text


def test_after_the_hub_was_killed_the_next_run_opens_its_own(console: Console) -> None:
    with console.hub() as hub:
        hub.process.kill()
        hub.process.wait(60)
        assert (console.home / "hub.json").exists()
    assert "You said: hello" in console.run("run", "demo", "hello").stdout


def test_a_run_survives_a_restart_of_the_hub_and_its_runner(console: Console) -> None:
    with console.hub() as hub, console.start("run", "--json", "stalls", "go") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while "begun" not in (line := process.stdout.readline()):
            assert line
        hub.kill()
        assert "lost the connection to the hub; reconnecting" in process.stderr.readline()
        with console.hub():
            result = json.loads(process.communicate(timeout=60)[0].splitlines()[-1])
    assert (process.returncode, result["state"]) == (1, "interrupted")


def test_a_run_that_a_restart_interrupted_prints_nothing_of_the_next_prompt(
    tmp_path: Path,
) -> None:
    turns = [
        {"when": "first", "steps": [{"say": "begun"}, {"stall": True}]},
        {"steps": [ASK, {"say": "Another answer."}]},
    ]
    console = Console(tmp_path, agent_toml("waits", turns=turns, load=[{"user": "first"}]))
    with console.hub() as hub, console.start("run", "--json", "--yes", "waits", "first") as process:
        assert process.stdout is not None
        while "begun" not in (line := process.stdout.readline()):
            assert line
        (session,) = hub.call("GET", "/api/sessions")["sessions"]
        prompts = f"/api/sessions/{session['sessionId']}/prompts"
        prompt = [{"type": "text", "text": "the next prompt"}]
        hub.call("POST", prompts, {"key": "next", "prompt": prompt})
        hub.kill()
        with console.hub() as restarted:
            shown, _ = process.communicate(timeout=60)
            assert restarted.pending()["toolCall"]["toolCallId"] == "call-1"
    assert process.returncode == 1
    assert "the next prompt" not in shown
    assert "call-1" not in shown
