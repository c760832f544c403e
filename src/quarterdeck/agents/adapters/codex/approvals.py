"""Approvals of Codex's daemon in ACP's words, and decisions in Codex's. Pure.

    request of the daemon                     becomes a request about
    item/commandExecution/requestApproval     the command that would be run
    item/fileChange/requestApproval           the changes of the item that was announced before

    chosen option                             decision
    accept                                    accept
    always                                    acceptForSession, or the first amendment of Codex's
                                              own rules that it offers
    reject                                    decline, or cancel if only that is offered
    cancelled                                 cancel: Codex ends the turn

Other requests (questions, forms, more permissions) are left to the terminal.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

from quarterdeck.agents.adapters.outcomes import chosen_option

Json = dict[str, Any]

COMMAND: Final = "item/commandExecution/requestApproval"
CHANGES: Final = "item/fileChange/requestApproval"
ANSWERABLE: Final = frozenset({COMMAND, CHANGES})
_ACCEPT, _ALWAYS, _REJECT = "accept", "always", "reject"
_AMENDMENT: Final = "acceptWithExecpolicyAmendment"
_SHELL_OPTIONS: Final = ("-c", "-lc")
_SHELL_WORDS: Final = 3  # a shell, its option and a script


def request_params(method: str, params: Mapping[str, Any], item: Mapping[str, Any]) -> Json:
    """Return a request as the params of `session/request_permission`.

    `item` is the one that the request is about, as it was announced; empty if it was not.
    """
    call: Json = {"toolCallId": str(params.get("itemId", "")), "status": "pending"}
    call |= _command(params, item) if method == COMMAND else _changes(item)
    options = [{"optionId": _ACCEPT, "name": "Allow", "kind": "allow_once"}]
    always = _always(params)
    if always is not None:
        options.append({"optionId": _ALWAYS, "name": _always_name(always), "kind": "allow_always"})
    options.append({"optionId": _REJECT, "name": "Reject", "kind": "reject_once"})
    kept = {key: params[key] for key in ("reason", "grantRoot", "environmentId") if params.get(key)}
    return {"toolCall": call, "options": options, "_meta": {"codex": kept}}


def decision(params: Mapping[str, Any], outcome: Mapping[str, Any]) -> Any:
    """Return the decision for an outcome of a request."""
    chosen = chosen_option(outcome)
    if chosen == _ACCEPT:
        return "accept"
    if chosen == _ALWAYS:
        return _always(params) or "accept"
    return "decline" if chosen == _REJECT and "decline" in _offered(params) else "cancel"


def _offered(params: Mapping[str, Any]) -> list[Any]:
    given = params.get("availableDecisions")
    return given if isinstance(given, list) else ["accept", "acceptForSession", "decline"]


def _always(params: Mapping[str, Any]) -> Any:
    """Return the decision that allows more than this call; None if none is offered."""
    offered = _offered(params)
    if "acceptForSession" in offered:
        return "acceptForSession"
    return next((each for each in offered if isinstance(each, dict) and _AMENDMENT in each), None)


def _always_name(always: Any) -> str:
    amendment = always.get(_AMENDMENT) if isinstance(always, dict) else None
    words = amendment.get("execpolicy_amendment") if isinstance(amendment, dict) else None
    if isinstance(words, list) and words:
        return f"Always allow commands that begin with {shlex.join(map(str, words))}"
    return "Allow for this session"


def _command(params: Mapping[str, Any], item: Mapping[str, Any]) -> Json:
    command = params.get("command") or item.get("command") or ""
    given = {"command": script_of(str(command))}
    cwd = params.get("cwd") or item.get("cwd")
    if isinstance(cwd, str):
        given["cwd"] = cwd
    return {"title": given["command"], "kind": "execute", "rawInput": given}


def script_of(command: str) -> str:
    """Return what a shell would run; the whole command unless it is exactly a shell's."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    is_shell = len(words) == _SHELL_WORDS and words[1] in _SHELL_OPTIONS
    return words[2] if is_shell and words[0].endswith("sh") else command


def _changes(item: Mapping[str, Any]) -> Json:
    given = item.get("changes")
    changes = [each for each in (given if isinstance(given, list) else ()) if _has_path(each)]
    paths = [str(each["path"]) for each in changes]
    return {
        "title": f"Edit {', '.join(paths)}" if paths else "Edit files",
        "kind": "edit",
        "locations": [{"path": path} for path in paths],
        "content": [diff_of(each) for each in changes],
        "rawInput": {"changes": changes},
    }


def _has_path(change: Any) -> bool:
    return isinstance(change, dict) and isinstance(change.get("path"), str)


def diff_of(change: Mapping[str, Any]) -> Json:
    """Return a change of a file as ACP's diff; of an update, only the lines around it."""
    kind, diff = change.get("kind"), str(change.get("diff", ""))
    name = kind.get("type") if isinstance(kind, dict) else kind
    if name == "add":
        old, new = None, diff
    elif name == "delete":
        old, new = diff, ""
    else:
        lines = [each for each in diff.splitlines(keepends=True) if not _is_head(each)]
        old = "".join(each[1:] for each in lines if each[:1] in " -")
        new = "".join(each[1:] for each in lines if each[:1] in " +")
    return {"type": "diff", "path": change.get("path"), "oldText": old, "newText": new}


def _is_head(line: str) -> bool:
    return line.startswith(("@@", "--- ", "+++ ", "\\"))
