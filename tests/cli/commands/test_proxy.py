"""`quarterdeck proxy`, as an editor starts it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.cli.editor_relay import LOST, MOST_BYTES
from tests.cli.kit import ASK, COMMAND, SECONDS, Console, agent_toml

pytestmark = pytest.mark.slow


class Framed:
    """An editor that writes `Content-Length`, as language servers do."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout is not None
        head = self.process.stdout.readline()
        assert head.startswith(b"Content-Length: "), head
        assert self.process.stdout.readline() == b"\r\n"
        return json.loads(self.process.stdout.read(int(head.split()[1])))

    def call(self, number: int, method: str, **params: Any) -> Any:
        self.send({"id": number, "method": method, "params": params})
        while (message := self.receive()).get("id") != number or "method" in message:
            pass
        return message


@contextmanager
def editor(console: Console) -> Iterator[Framed]:
    process = subprocess.Popen(
        [*COMMAND, "proxy", "mine"],
        env=console.environ,
        cwd=console.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield Framed(process)
        finally:
            process.kill()


def test_when_the_hub_is_killed_open_requests_get_an_error(tmp_path: Path) -> None:
    console = Console(tmp_path, agent_toml("mine", ASK))
    with console.hub() as hub, editor(console) as framed:
        framed.call(1, "initialize", protocolVersion=1)
        made = framed.call(2, "session/new", cwd=str(console.work), mcpServers=[])
        long = {"type": "text", "text": "x" * MOST_BYTES}
        session_id = made["result"]["sessionId"]
        refused = framed.call(3, "session/prompt", sessionId=session_id, prompt=[long])
        assert "16 MiB" in refused["error"]["message"]
        blocks = [{"type": "text", "text": "go"}]
        framed.send(
            {
                "id": 4,
                "method": "session/prompt",
                "params": {"sessionId": session_id, "prompt": blocks},
            }
        )
        while framed.receive().get("method") != "session/request_permission":
            pass
        hub.process.kill()
        while "error" not in (message := framed.receive()):
            pass
        assert message == {"jsonrpc": "2.0", "id": 4, "error": {"code": -32603, "message": LOST}}
        assert framed.process.wait(SECONDS) == 1
        assert framed.process.stderr is not None
        assert LOST in framed.process.stderr.read().decode()


@pytest.mark.parametrize(
    ("decision", "words"), [("allow", "It was allowed."), ("deny", "It was rejected.")]
)
def test_what_a_rule_decides_is_never_put_before_the_editor(
    tmp_path: Path, decision: str, words: str
) -> None:
    rule = f'[[policy.rule]]\ndecision = "{decision}"\nname = "mine"\ncommands = true\n'
    steps = [{**ASK, "input": {"command": "ls"}}] * 10
    console = Console(tmp_path, rule + agent_toml("mine", *steps))
    with editor(console) as framed:
        framed.call(1, "initialize", protocolVersion=1)
        made = framed.call(2, "session/new", cwd=str(console.work), mcpServers=[])
        session_id = made["result"]["sessionId"]
        blocks = [{"type": "text", "text": "go"}]
        params = {"sessionId": session_id, "prompt": blocks}
        framed.send({"id": 3, "method": "session/prompt", "params": params})
        heard = []
        while (message := framed.receive()).get("id") != 3 or "method" in message:
            heard.append(message)
        assert "session/request_permission" not in [each.get("method") for each in heard]
        assert json.dumps(heard).count(words) == 10


@pytest.mark.parametrize("has_runner", [False, True])
def test_a_prompt_that_is_piped_in_is_answered_before_the_end(
    tmp_path: Path, has_runner: bool
) -> None:
    console = Console(tmp_path, agent_toml("mine", {"say": "hello"}))
    lines = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {"id": 2, "method": "session/list", "params": {}},
    ]
    typed = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
    with console.runner() if has_runner else nullcontext():
        done = console.run("proxy", "mine", typed=typed)
    assert done.returncode == 0, done.stderr
    answers = {each["id"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert answers[1]["result"]["protocolVersion"] == 1
    assert answers[2]["result"] == {"sessions": []}


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("unheard-of", "unknown agent 'unheard-of'; quarterdeck agents lists them"),
        ("clade", "unknown agent 'clade'; did you mean claude?"),
    ],
)
def test_an_unknown_agent_is_reported_in_one_line(
    tmp_path: Path, agent: str, expected: str
) -> None:
    done = Console(tmp_path).run("proxy", agent)
    assert done.returncode == 1
    assert done.stdout == ""
    assert expected in done.stderr
