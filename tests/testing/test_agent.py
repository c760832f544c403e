"""The command line of the agent, and the agent as our own client sees it."""

import os
import subprocess
import sys
from typing import Any

import anyio
import pytest

from quarterdeck.acp import Handlers, methods, open_peer, schema
from quarterdeck.testing import scripted_agent
from quarterdeck.wire import open_process
from tests.testing.driving import turn


def run_agent(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "quarterdeck.testing.agent", *arguments],
        env={**os.environ, **variables},
        input='{"id":1,"method":"initialize"}\n',
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["fix-a-bug"], {}),
        (["--pace", "0", "fix-a-bug"], {}),
        (["--json", '{"name": "fix-a-bug"}'], {}),
        ([], {"QUARTERDECK_SCENARIO": '{"name": "fix-a-bug"}'}),
    ],
)
def test_a_scenario_comes_by_name_as_text_or_from_the_environment(
    arguments: list[str], variables: dict[str, str]
) -> None:
    done = run_agent(*arguments, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"name":"fix-a-bug"' in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "quarterdeck: no scenario; usage: python -m quarterdeck.testing.agent"),
        *(
            (["--pace", pace, "fix-a-bug"], "quarterdeck: --pace takes a number from 0 to 1000000;")
            for pace in ("x", "nan", "-1", "inf", "1e300")
        ),
        (["\udcff.toml"], "quarterdeck: cannot play \\udcff.toml: there is no such file"),
        (["/dev/zero"], "quarterdeck: cannot play /dev/zero: it is not a regular file; copy it"),
        (["/dev/stdin"], "quarterdeck: cannot play /dev/stdin: it is not a regular file; copy it"),
        (["--json", "{"], "quarterdeck: cannot play --json: "),
        (["nowhere.toml"], "quarterdeck: cannot play nowhere.toml: there is no such file"),
    ],
)
def test_misuse_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    done = run_agent(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
def test_a_stream_that_is_closed_is_one_line_and_status_2(closed: str) -> None:
    command = f'exec "$0" -m quarterdeck.testing.agent fix-a-bug {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    message = "quarterdeck: standard input or output is closed; connect both\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


async def test_our_client_opens_a_session_answers_a_permission_and_gets_its_updates() -> None:
    updates_seen: list[Any] = []

    async def allow(request: schema.RequestPermissionRequest) -> schema.RequestPermissionResponse:
        outcome = schema.AllowedOutcome(option_id=request.options[0].option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    def hear(notification: schema.SessionNotification) -> None:
        updates_seen.append(notification.update)

    handlers = Handlers()
    handlers.answer(methods.SESSION_REQUEST_PERMISSION, allow)
    handlers.on(methods.SESSION_UPDATE, hear)
    command = scripted_agent(turn({"ask": "t", "title": "T", "allowed": [{"say": "thanks"}]}))
    with anyio.fail_after(10):
        async with open_process(command) as process, open_peer(process, handlers) as agent:
            await agent.call(methods.INITIALIZE, schema.InitializeRequest(protocol_version=1))
            request = schema.NewSessionRequest(cwd="/work", mcp_servers=())
            session = await agent.call(methods.SESSION_NEW, request)
            prompt = schema.PromptRequest(session_id=session.session_id, prompt=())
            answer = await agent.call(methods.SESSION_PROMPT, prompt)
    assert answer.stop_reason == "end_turn"
    assert updates_seen == [
        schema.AgentMessageChunk(content=schema.TextContentBlock(text="thanks"))
    ]
