"""Claude Code's hook: its entry in the settings, and its requests in ACP's words. Pure.

Its documented settings (`settings.json`) are a JSON object with

    {"hooks": {"PermissionRequest": [
        {"matcher": "*", "hooks": [{"type": "command", "command": …, "timeout": …}]}]}}

One entry is added under `PermissionRequest`; it is recognised by the name of its script, and all
other settings stay as they are. The hook runs while the dialog is on the screen, and whichever is
answered first counts.

    decision here       the hook prints
    allow once          {"behavior": "allow"}
    allow always        the same, with the rules that Claude Code suggests, for this session
    reject              {"behavior": "deny", "message": the reason}
    cancelled, or none  nothing: the dialog stays
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from quarterdeck.agents.adapters.claude.tool_calls import call_fields
from quarterdeck.agents.adapters.outcomes import chosen_option, reason_of

Json = dict[str, Any]

EVENT: Final = "PermissionRequest"
SCRIPT: Final = "permission_hook.py"
HOOK_SECONDS: Final = 86_400
"""After which Claude Code ends the hook; its dialog stays."""
UNANSWERABLE: Final = frozenset({"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"})
"""Tools whose dialogs are more than a yes or a no: they are left to the terminal."""
_ALLOW, _ALWAYS, _REJECT = "allow", "allow_always", "reject"
_REJECTED: Final = "The user rejected this call."


def hook_command(python: str, script: str, socket: str) -> str:
    """Return the command of the hook, for a shell."""
    return shlex.join([python, "-I", script, socket])


def with_hook(settings: Mapping[str, Any], command: str) -> Json:
    """Return settings with the hook; one that was there is replaced.

    Raises:
        ValueError: if the settings are not as documented, so that nothing can be added.
    """
    changed = deepcopy(without_hook(settings))
    hooks = changed.setdefault("hooks", {})
    entries = hooks.setdefault(EVENT, []) if isinstance(hooks, dict) else None
    if not isinstance(entries, list):
        raise ValueError(f"hooks.{EVENT} is not a list")  # noqa: TRY004 - of a file
    hook = {"type": "command", "command": command, "timeout": HOOK_SECONDS}
    entries.append({"matcher": "*", "hooks": [hook]})
    return changed


def without_hook(settings: Mapping[str, Any], command: str | None = None) -> Json:
    """Return settings without the hook; everything else is as it was.

    With a `command`, only the hook for the same socket is removed: one of another runner stays.
    """
    hooks = settings.get("hooks")
    entries = hooks.get(EVENT) if isinstance(hooks, dict) else None
    if not isinstance(hooks, dict) or not isinstance(entries, list):
        return dict(settings)
    socket = None if command is None else _socket_of(command)
    kept = [left for entry in entries for left in _without(entry, socket)]
    others = {name: value for name, value in hooks.items() if name != EVENT}
    changed = {**hooks, EVENT: kept} if kept else others
    rest = {name: value for name, value in settings.items() if name != "hooks"}
    return {**settings, "hooks": changed} if changed else rest


def _without(entry: Any, socket: str | None) -> list[Any]:
    """Return an entry without our hook, in a list; an empty one if nothing else was in it."""
    commands = entry.get("hooks") if isinstance(entry, dict) else None
    if not isinstance(commands, list):
        return [entry]
    left = [each for each in commands if not _is_ours(each, socket)]
    if len(left) == len(commands):
        return [entry]
    return [{**entry, "hooks": left}] if left else []


def _is_ours(hook: Any, socket: str | None) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    if not isinstance(command, str) or SCRIPT not in command or "quarterdeck" not in command:
        return False
    return socket is None or _socket_of(command) == socket


def _socket_of(command: str) -> str | None:
    try:
        return shlex.split(command)[-1]
    except (ValueError, IndexError):
        return None


# ---- requests ----------------------------------------------------------------------------------


def request_params(hook: Mapping[str, Any], call_id: str) -> Json:
    """Return a request as the params of `session/request_permission`."""
    name, given = str(hook.get("tool_name", "")), hook.get("tool_input")
    cwd = hook.get("cwd")
    call = {
        "toolCallId": call_id,
        **call_fields(name, given, cwd if isinstance(cwd, str) else ""),
        "status": "pending",
        "rawInput": given,
    }
    options = [{"optionId": _ALLOW, "name": "Allow", "kind": "allow_once"}]
    suggested = _suggestions(hook)
    if suggested:
        always = f"Allow {_suggested_names(suggested)} for this session"
        options.append({"optionId": _ALWAYS, "name": always, "kind": "allow_always"})
    options.append({"optionId": _REJECT, "name": "Reject", "kind": "reject_once"})
    return {"toolCall": call, "options": options, "_meta": {"claudeCode": {"toolName": name}}}


def _suggestions(hook: Mapping[str, Any]) -> list[Json]:
    """Return the rules that Claude Code suggests, else its mode for edits; for this session."""
    given = hook.get("permission_suggestions")
    suggestions = [
        {**each, "destination": "session"}
        for each in (given if isinstance(given, list) else ())
        if isinstance(each, dict)
    ]
    rules = [each for each in suggestions if each.get("type") == "addRules"]
    edits = [each for each in suggestions if each.get("type") == "setMode"]
    return rules or [each for each in edits if each.get("mode") == "acceptEdits"]


def _suggested_names(suggestions: Sequence[Json]) -> str:
    if suggestions[0].get("type") == "setMode":
        return "all edits"
    rules = [rule for each in suggestions for rule in each.get("rules") or ()]
    names = [
        f"{rule.get('toolName')}({rule['ruleContent']})"
        if rule.get("ruleContent")
        else str(rule.get("toolName"))
        for rule in rules
        if isinstance(rule, dict)
    ]
    return ", ".join(names) or "it"


def hook_output(hook: Mapping[str, Any], outcome: Mapping[str, Any]) -> Json | None:
    """Return what the hook prints for an outcome; None if it prints nothing."""
    decision: Json
    match chosen_option(outcome):
        case "allow":
            decision = {"behavior": "allow"}
        case "allow_always":
            decision = {"behavior": "allow", "updatedPermissions": _suggestions(hook)}
        case "reject":
            decision = {"behavior": "deny", "message": reason_of(outcome) or _REJECTED}
        case _:
            return None
    return {"hookSpecificOutput": {"hookEventName": EVENT, "decision": decision}}
