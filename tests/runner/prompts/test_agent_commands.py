"""Commands of agents that change what they ask for need the scope that setting a mode needs."""

from __future__ import annotations

from typing import Any

import pytest

from quarterdeck.errors import RequestRejected
from quarterdeck.runner import permitted_blocks
from quarterdeck.runner.prompts.agent_commands import changing_command


def text(*parts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": part} for part in parts]


# Of copilot, kimi, gemini, claude, codex, qwen, openhands, goose, fast-agent; then their likes.
COMMANDS = (
    *("allow-all", "autopilot", "permissions", "add-dir", "mcp", "mcp-config", "plugin", "cwd"),
    *("yolo", "plugins", "extensions install x", "update-config", "confirm", "mode auto", "env"),
    *("approvals", "approval-mode yolo", "sandbox off", "hooks", "trust", "config", "settings"),
    *("auto-approve", "auto-accept", "bypassPermissions", "full-access", "dangerously-skip"),
    *("reset-allowed-tools", "proxy-setup", "security", "AllowAll", "allow_all", "vibe:trust"),
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "prompt",
    [
        text("/{}"),
        text("  \n/{} on"),
        text("\u00a0/{}"),
        text("/", "{}"),
        text("", "/{}"),
        text("look", "/{}"),
        [{"type": "resource_link", "uri": "file:///x", "name": "x"}, *text("/{}")],
        text("${}"),
        text("/ {}"),
        "/{}",
    ],
)
def test_a_command_that_changes_what_is_asked_is_found(prompt: Any, command: str) -> None:
    filled = (
        prompt.format(command)
        if isinstance(prompt, str)
        else [
            {**block, "text": block["text"].format(command)} if "text" in block else block
            for block in prompt
        ]
    )
    assert changing_command(filled) is not None
    with pytest.raises(RequestRejected, match="needs the scope approve") as refused:
        permitted_blocks(filled, may_send_meta=False)
    assert refused.value.code == "quarterdeck/forbidden"
    assert permitted_blocks(filled, may_send_meta=True) == (filled, False)


@pytest.mark.parametrize(
    "prompt",
    [
        *("/compact", "/plan add tests", "/review", "/init", "/help", "/model x", "/status"),
        *("/home/me/allow-all is a file", "look at /allow-all", "say /yolo", "/context", "/usage"),
        *("allow all calls", "", "/", "//", "/1", "1 / 2", "/clear", "/rename a", "/goal x"),
    ],
)
def test_other_prompts_are_not_held_up(prompt: str) -> None:
    assert changing_command(text(prompt)) is None
    assert permitted_blocks(text(prompt), may_send_meta=False) == (text(prompt), False)


@pytest.mark.parametrize("prompt", [None, 1, {}, [1, None, {"text": 5}], [{"type": "text"}]])
def test_what_is_no_prompt_has_no_command(prompt: Any) -> None:
    assert changing_command(prompt) is None
