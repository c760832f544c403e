"""`quarterdeck acp` and `quarterdeck acp serve`: arguments, the agent they find, what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from quarterdeck.agent.builtin.settings import TOKEN_VARIABLE
from quarterdeck.cli import agent_server
from quarterdeck.cli.commands import acp
from quarterdeck.cli.main import main
from quarterdeck.errors import AgentError
from tests.cli import forking

ECHO = """
print("imported")

async def echo(turn):
    yield f"{turn.session.initial_message} {turn.text}"

class Better:
    async def prompt(self, turn):
        yield "better"
"""


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    file = tmp_path / "my_echo.py"
    file.write_text(ECHO)
    return file


def run(*arguments: str, text: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return forking.run(("acp", *arguments), {**os.environ, **environ}, Path.cwd(), text)


def lines(*messages: object) -> str:
    return "".join(json.dumps(message) + "\n" for message in messages)


def call(request_id: int, method: str, **params: object) -> object:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def test_an_agent_of_ones_own_is_served_on_stdio_and_its_sessions_kept(
    echo: Path, tmp_path: Path
) -> None:
    messages = lines(
        call(1, "initialize", protocolVersion=1), call(2, "session/new", cwd="/", mcpServers=[])
    )
    store = tmp_path / "kept"
    done = run("--agent", f"{echo}:echo", text=messages, QUARTERDECK_SESSIONS=str(store))
    first, second = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 0
    assert first["result"]["agentCapabilities"]["loadSession"] is True
    assert [path.name for path in store.iterdir()] == [second["result"]["sessionId"]]
    assert "imported" in done.stderr


@pytest.mark.slow
def test_warnings_go_to_stderr_without_the_text_of_the_client(tmp_path: Path) -> None:
    done = run("--no-sessions", text='[]\n{"secret" \n', XDG_CONFIG_HOME=str(tmp_path))
    first, second = done.stderr.splitlines()
    reason = "batches are not supported; send one message at a time"
    assert first == f"quarterdeck: unexpected input (kind: malformed, reason: {reason})"
    assert second.startswith("quarterdeck: unexpected input (kind: malformed, reason: ")
    assert "secret" not in done.stderr
    assert done.returncode == 0


def test_no_sessions_keeps_none(echo: Path, tmp_path: Path) -> None:
    hello = lines(call(1, "initialize", protocolVersion=1))
    home = tmp_path / "home"
    home.mkdir()
    done = run("--agent", f"{echo}:echo", "--no-sessions", text=hello, HOME=str(home))
    answer = json.loads(done.stdout)
    assert answer["result"]["agentCapabilities"]["loadSession"] is False
    assert list(home.iterdir()) == []


def test_the_help_names_the_variable_of_the_token() -> None:
    assert acp.TOKEN_VARIABLE == TOKEN_VARIABLE


@pytest.mark.parametrize("verb", ["acp", "acp serve"])
def test_help_goes_to_stdout(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*verb.split(), "--help"]) == 0
    answers, messages = capsys.readouterr()
    assert answers.startswith(f"usage: quarterdeck {verb} ")
    assert ("--port" in answers) is (verb == "acp serve")
    assert messages == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["srve"], "unknown argument 'srve'; did you mean serve?"),
        (
            ["--prot", "1"],
            "unknown argument '--prot'; see quarterdeck acp --help",
        ),
        (["serve", "--prot", "1"], "unknown argument '--prot'; did you mean --port?"),
        (
            ["serve", "--port", "x"],
            "--port: 'x' is not a number from 0 to 65535; see quarterdeck acp serve --help",
        ),
        (
            ["--initial-message"],
            "--initial-message needs a value; see quarterdeck acp --help",
        ),
    ],
)
def test_misuse_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["acp", *arguments]) == 2
    assert capsys.readouterr() == ("", f"quarterdeck: {message}\n")


def test_an_agent_is_found_by_file_and_by_module(
    echo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(echo.parent)
    assert agent_server.load_agent(f"{echo}:echo").__name__ == "echo"
    assert type(agent_server.load_agent("my_echo:Better")).__name__ == "Better"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("echo", "'echo' does not name an agent; pass --agent FILE.py:NAME or --agent MODULE:NAME"),
        ("no/such.py:echo", "no/such.py does not exist; "),
        ("no_such_module:echo", "there is no module no_such_module; "),
        ("quarterdeck.errors:echo", "quarterdeck.errors has no 'echo'; "),
    ],
)
def test_an_agent_that_does_not_exist_is_reported(
    where: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(AgentError) as caught:
        agent_server.load_agent(where)
    assert str(caught.value).startswith(message)


def test_an_object_that_is_no_agent_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert main(["acp", "--agent", "quarterdeck._version:__version__"]) == 1
    answers, messages = capsys.readouterr()
    assert answers == ""
    assert messages.splitlines()[-1] == (
        "quarterdeck: str is not an agent; pass a function of a turn or an object with prompt"
    )


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        (
            ["--no-token", "--host", "0.0.0.0"],
            {},
            "0.0.0.0 can be reached by others; a token is needed there",
        ),
        ([], {"QUARTERDECK_ACP_TOKEN": "short"}, "a token has at least 16 plain characters"),
        (["--token-file", "/no/such"], {}, "/no/such: No such file or directory; fix that"),
    ],
)
def test_an_unsafe_server_is_not_started(
    arguments: list[str],
    environ: dict[str, str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("QUARTERDECK_ACP_TOKEN", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert (
        main(["acp", "serve", "--model", "demo", "--no-sessions", "--port", "0", *arguments]) == 1
    )
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"quarterdeck: {message}")


@pytest.mark.slow
@pytest.mark.parametrize("given", ["made up", "by file", "by variable", "none"])
def test_the_server_prints_its_url_and_only_a_token_it_created(
    given: str, echo: Path, tmp_path: Path
) -> None:
    secret = "correct-horse-battery"
    (tmp_path / "token").write_text(f"{secret}\n")
    options = {"by file": ["--token-file", str(tmp_path / "token")], "none": ["--no-token"]}
    environ = {"QUARTERDECK_ACP_TOKEN": secret} if given == "by variable" else {}
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "quarterdeck", "acp", "serve", "--port", "0"),
            *("--agent", f"{echo}:echo", "--no-sessions", *options.get(given, [])),
        ],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        printed = ""
        while "the agent is at" not in printed:
            printed += process.stderr.readline()
        if given in ("made up", "none"):
            printed += process.stderr.readline()
        process.terminate()
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert rest == ""
    url = r"http://127\.0\.0\.1:\d+"
    assert re.search(rf"the agent is at {url}/acp, {url}/acp/rpc and {url}/acp/sse\n", printed)
    assert secret not in printed + errors
    assert bool(re.search(r"its token, new with every start, is \S{32}\n", printed)) is (
        given == "made up"
    )
    assert ("every program on this computer can use it" in printed) is (given == "none")
