"""Which variables of the hub's environment agents and their terminals get."""

import os
from pathlib import Path

import anyio
import pytest

from quarterdeck.acp import schema
from quarterdeck.agents import AgentSettings, Environment, KnownAgents
from quarterdeck.hub import Hub, HubOptions
from quarterdeck.machine import DefaultTerminalHandler
from quarterdeck.protocol import AgentDefinition
from tests.hub.api.kit import PATIENCE, running, scripted
from tests.hub.runners import runner_of

SECRET = "do-not-pass-this-on"
SHELL = {
    "PATH": os.environ["PATH"],
    "HOME": "/no-home",
    "LC_TIME": "C",
    "https_proxy": "http://proxy.example",
    "DATABASE_URL": SECRET,
    "OPENAI_API_KEY": SECRET,
    "QUARTERDECK_HOME": SECRET,
    "QUARTERDECK_ACP_TOKEN": SECRET,
    "MY_TEAM_TOKEN": "for mine",
    "SHARED_CACHE": "for all",
    "ANTHROPIC_API_KEY": "for claude",
}
USUAL = {"PATH", "HOME", "LC_TIME", "https_proxy"}


def hub_options(home: Path, *names: str, **agents: AgentSettings) -> HubOptions:
    return HubOptions(home=home, port=0, agents=agents, environ=SHELL, pass_env=names)


def recording(file: Path, *pass_env: str, **more: str) -> AgentSettings:
    """Return an agent that writes its environment to a file, then runs a script."""
    plays = scripted({"say": "hi"})
    script = 'env -0 > "$0"; exec "$@"'
    args = ("-c", script, str(file), plays.command, *plays.args)
    return AgentSettings(command="/bin/sh", args=args, pass_env=pass_env, env=more)


def recorded(file: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in file.read_text().split("\0") if line)
    set_by_shell = {"PWD", "OLDPWD", "SHLVL", "_"}
    return {name: value for name, _, value in lines if name not in set_by_shell}


async def test_an_agent_gets_common_variables_and_those_configured_for_it(tmp_path: Path) -> None:
    mine = recording(tmp_path / "mine", "MY_*", COLOUR="never")
    claude = recording(tmp_path / "claude")
    given = hub_options(tmp_path / "home", "SHARED_CACHE", mine=mine, claude=claude)
    async with Hub(given) as hub:
        for name in ("mine", "claude"):
            await hub.runner.start_agent(name)
    seen = recorded(tmp_path / "mine")
    assert set(seen) == {*USUAL, "SHARED_CACHE", "MY_TEAM_TOKEN", "COLOUR"}
    assert seen["MY_TEAM_TOKEN"] == "for mine"
    assert set(recorded(tmp_path / "claude")) == {*USUAL, "SHARED_CACHE", "ANTHROPIC_API_KEY"}


async def test_an_agent_started_by_definition_gets_only_common_variables(tmp_path: Path) -> None:
    wanted = recording(tmp_path / "seen")
    definition = {"id": "new", "command": wanted.command, "args": list(wanted.args)}
    async with running(hub_options(tmp_path / "home")) as (_, client):
        await client.post("/api/agents", {"definition": definition}, status=201)
    assert set(recorded(tmp_path / "seen")) == USUAL


async def test_a_terminal_gets_no_key_of_an_agent(tmp_path: Path) -> None:
    async with Hub(hub_options(tmp_path / "home", "SHARED_CACHE")) as hub:
        terminals = runner_of(hub).host.options.terminal
        assert isinstance(terminals, DefaultTerminalHandler)
        script = f"env -0 > {tmp_path / 'seen'}"
        request = schema.CreateTerminalRequest(
            session_id="s", command="/bin/sh", args=("-c", script), cwd=str(tmp_path)
        )
        terminal = await terminals.create_terminal("s", request)
        with anyio.fail_after(PATIENCE):
            await terminals.wait_for_terminal_exit("s", terminal)
    assert set(recorded(tmp_path / "seen")) == {*USUAL, "SHARED_CACHE"}


async def test_the_error_of_an_agent_that_exits_at_once_names_the_withheld_variables(
    tmp_path: Path,
) -> None:
    broken = AgentSettings(command="/bin/sh", args=("-c", "exit 1"))
    async with running(hub_options(tmp_path / "home", broken=broken)) as (_, client):
        body = {"agent": "broken", "cwd": str(tmp_path)}
        answer = await client.http.post("/api/sessions", json=body)
        message = answer.json()["error"]["message"]
        for name in ("OPENAI_API_KEY", "DATABASE_URL", "pass_env"):
            assert name in message
        assert SECRET not in answer.text


@pytest.mark.parametrize(
    ("words", "gets"),
    [
        (("claude", "anything"), True),
        (("mine", "npx", "-y", "@zed-industries/claude-code-acp@0.4.1"), True),
        (("mine", "node", "/x/node_modules/@a/claude-agent-acp/dist/index.js"), True),
        (("mine", "/opt/bin/claude-agent-acp"), True),
        (("mine", "/srv/claude/bin/agent"), False),
        (("mine", "claudette"), False),
        (("gemini", "gemini", "--acp"), False),
    ],
)
def test_a_known_agent_is_recognised_by_its_name_or_program(
    words: tuple[str, ...], *, gets: bool
) -> None:
    name, command, *args = words
    environment = Environment(SHELL)
    definition = AgentDefinition(name, command, args=tuple(args))
    assert ("ANTHROPIC_API_KEY" in environment.of(definition)) is gets
    assert ("ANTHROPIC_API_KEY" in environment.withheld(definition)) is not gets


def test_everything_can_be_passed_on_except_credentials_of_the_hub() -> None:
    environment = Environment(SHELL, for_all=("*",))
    assert set(SHELL) - set(environment.common()) == {"QUARTERDECK_HOME", "QUARTERDECK_ACP_TOKEN"}


def test_agents_that_were_tested_with_version_2_use_it_unless_they_are_configured() -> None:
    known = KnownAgents({"codex": AgentSettings(command="codex-acp")}, {})
    versions = {name: known.definition(name) for name in ("claude", "codex", "gemini")}
    assert {name: each and each.protocol for name, each in versions.items()} == {
        "claude": "auto",
        "codex": None,
        "gemini": None,
    }
