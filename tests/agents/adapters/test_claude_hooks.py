"""The hook is added to Claude Code's settings and removed again; its requests are translated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.agents.adapters.claude import ClaudeAdapter
from quarterdeck.agents.adapters.claude.hooks import (
    hook_command,
    hook_output,
    request_params,
    with_hook,
    without_hook,
)

COMMAND = hook_command("/usr/bin/python", "/lib/quarterdeck/permission_hook.py", "/h/adopt.sock")
THEIRS = {"matcher": "Bash", "hooks": [{"type": "command", "command": "./mine.sh"}]}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"model": "opus", "permissions": {"allow": ["Read"]}},
    {"hooks": {"Stop": [THEIRS]}},
    {"hooks": {"PermissionRequest": [THEIRS]}},
    {"model": "opus", "hooks": {"PermissionRequest": [THEIRS, {"hooks": []}], "Stop": [THEIRS]}},
    {"hooks": {"PermissionRequest": [{"hooks": "not a list"}, None, 5]}},
]
HOOK = {
    "hook_event_name": "PermissionRequest",
    "session_id": "s",
    "cwd": "/project",
    "tool_name": "Bash",
    "tool_input": {"command": "make"},
}
RULES = {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "make"}]}


@pytest.mark.parametrize("settings", SETTINGS, ids=range(len(SETTINGS)))
def test_settings_are_as_before_after_the_hook_was_removed(settings: dict[str, Any]) -> None:
    installed = with_hook(settings, COMMAND)
    added = installed["hooks"]["PermissionRequest"][-1]
    assert added["hooks"][0]["command"] == COMMAND
    others = settings.get("hooks", {}).get("PermissionRequest", [])
    assert installed["hooks"]["PermissionRequest"][:-1] == others
    assert with_hook(installed, COMMAND) == installed
    assert without_hook(installed) == settings
    assert without_hook(settings) == settings


def test_the_hook_of_another_runner_is_replaced() -> None:
    old = with_hook({"hooks": {"Stop": [THEIRS]}}, COMMAND.replace("/h/", "/old/"))
    assert with_hook(old, COMMAND) == with_hook({"hooks": {"Stop": [THEIRS]}}, COMMAND)


def test_only_the_hook_of_the_same_runner_is_removed() -> None:
    other = with_hook({"hooks": {"Stop": [THEIRS]}}, COMMAND.replace("/h/", "/other/"))
    assert without_hook(other, COMMAND) == other
    older = with_hook({}, COMMAND.replace("/usr/bin/python", "/old/python"))
    assert without_hook(older, COMMAND) == {}


@pytest.mark.parametrize("settings", [{"hooks": []}, {"hooks": {"PermissionRequest": {}}}])
def test_settings_of_another_shape_are_not_touched(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not a list"):
        with_hook(settings, COMMAND)


def test_a_command_with_spaces_is_quoted() -> None:
    command = hook_command("/a b/python", "/c d/permission_hook.py", "/e'f/adopt.sock")
    assert command.startswith("'/a b/python' -I ")


@pytest.mark.parametrize("text", ["{half", "[]", "5"])
def test_a_settings_file_that_is_not_an_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(ValueError, match=r"settings\.json is not"):
        ClaudeAdapter({"CLAUDE_CONFIG_DIR": str(tmp_path)}).hook_settings(COMMAND)


def test_a_request_is_one_of_acp_with_the_rules_that_are_suggested() -> None:
    def kinds(*suggestions: dict[str, Any]) -> list[str]:
        hook = {**HOOK, "permission_suggestions": list(suggestions)}
        return [each["kind"] for each in request_params(hook, "t")["options"]]

    params = request_params(HOOK, "t")
    call = params["toolCall"]
    assert (call["toolCallId"], call["title"], call["kind"]) == ("t", "make", "execute")
    assert call["rawInput"] == HOOK["tool_input"]
    assert kinds() == ["allow_once", "reject_once"]
    assert kinds(RULES) == ["allow_once", "allow_always", "reject_once"]
    assert kinds({"type": "setMode", "mode": "acceptEdits"})[1] == "allow_always"
    assert kinds({"type": "setMode", "mode": "bypassPermissions"}) == kinds()
    assert kinds({"type": "addDirectories", "directories": ["/"]}) == kinds()
    hook = {**HOOK, "permission_suggestions": [RULES]}
    names = [each["name"] for each in request_params(hook, "t")["options"]]
    assert names[1] == "Allow Bash(make) for this session"


def test_an_outcome_is_what_the_hook_prints() -> None:
    def decision(option: str, **more: Any) -> Any:
        hook = {**HOOK, "permission_suggestions": [{**RULES, "destination": "userSettings"}]}
        output = hook_output(hook, {"outcome": "selected", "optionId": option, **more})
        assert output is not None
        specific = output["hookSpecificOutput"]
        assert specific["hookEventName"] == "PermissionRequest"
        return specific["decision"]

    reason = {"_meta": {"quarterdeck": {"reason": "not now"}}}
    assert decision("allow") == {"behavior": "allow"}
    assert decision("reject", **reason) == {"behavior": "deny", "message": "not now"}
    assert decision("reject")["message"]
    always = decision("allow_always")["updatedPermissions"]
    assert always == [{**RULES, "destination": "session"}]
    assert hook_output(HOOK, {"outcome": "cancelled"}) is None
    assert hook_output(HOOK, {"outcome": "selected", "optionId": "unknown"}) is None


def test_a_hook_names_a_transcript_and_no_other_file(tmp_path: Path) -> None:
    adapter = ClaudeAdapter({"CLAUDE_CONFIG_DIR": str(tmp_path)})

    def session(**more: Any) -> object:
        return adapter.hook_session({**HOOK, **more})

    inside = str(tmp_path / "projects" / "-project" / "s.jsonl")
    assert session(transcript_path=inside) is not None
    assert session(transcript_path="/etc/passwd") is None
    assert session(transcript_path=str(tmp_path / "projects" / "p" / ".." / "s.jsonl")) is None
    assert session(transcript_path=inside, session_id="other") is None
    assert session() is None
    assert session(transcript_path=inside, tool_name="AskUserQuestion") is None
    assert session(transcript_path=inside, hook_event_name="Stop") is None


def test_the_json_of_settings_is_kept_readable(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"language": "Français"}))
    settings = ClaudeAdapter({"CLAUDE_CONFIG_DIR": str(tmp_path)}).hook_settings(COMMAND)
    assert "Français" in settings.installed
    assert "\n" in settings.installed
    assert not settings.has_hook
