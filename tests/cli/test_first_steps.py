"""What `up` says about agents leads to a first session."""

import re
import shlex

import pytest

from quarterdeck.agents import KnownAgent, KnownAgents
from quarterdeck.cli.commands import agents, run
from quarterdeck.cli.first_steps import agent_lines
from quarterdeck.cli.main import COMMANDS


def known(*installed: str) -> list[KnownAgent]:
    names = ("demo", "claude", "codex", "gemini", "goose", "vibe")
    made = ((name, name == "demo" or name in installed) for name in names)
    return [
        KnownAgent(
            name=name,
            command=name,
            args=(),
            source="well-known",
            installed=is_installed,
            tested_version=None if name == "gemini" else "1.0",
        )
        for name, is_installed in made
    ]


def test_installed_agents_are_named_and_the_first_is_suggested() -> None:
    first, start = agent_lines(known("codex", "vibe"))
    assert "codex, vibe" in first
    assert "demo" not in first
    assert start.endswith("quarterdeck run codex PROMPT")


def test_without_agents_the_demo_is_offered_with_what_can_be_installed() -> None:
    first, start = agent_lines(known())
    assert "none yet; to install claude, codex, goose, vibe:" in first
    assert first.endswith("quarterdeck agents install claude")
    assert start.endswith("quarterdeck run demo hello")


@pytest.mark.parametrize("installed", [(), ("claude",)])
def test_every_command_that_is_suggested_exists(installed: tuple[str, ...]) -> None:
    for line in agent_lines(known(*installed)):
        command, *arguments = shlex.split(line.partition("quarterdeck ")[2].strip("()"))
        assert command in COMMANDS
        parser = {"run": run, "agents": agents}[command].parser()
        assert parser.read(arguments if "lists" not in arguments else []) is not None


def test_the_catalogue_has_agents_to_install() -> None:
    first, _ = agent_lines(KnownAgents({}, {"PATH": "/nowhere"}).all())
    names = "claude, codex, gemini, opencode"
    assert re.search(rf"to install {names} and \d+ more: .* install claude$", first)
