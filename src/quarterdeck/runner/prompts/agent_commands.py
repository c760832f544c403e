"""Commands of agents in prompts, such as `/allow-all`, that change what an agent asks for.

Most agents read a prompt that begins with a slash as a command. Some of these commands turn off
permission requests, open more folders, or load programs: as much as setting a mode or an option,
and so they need the same scope. Commands have no kinds; they are recognised by their names, those
of the agents that were tried and their likes. A command that an agent names unlike all others is
not recognised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from quarterdeck.errors import RequestRejected

_COMMAND: Final = re.compile(r"[/$!:@\\]+\s*([A-Za-z][\w:.-]*)", re.ASCII)
_PARTS: Final = (
    *("allow", "yolo", "autopilot", "approv", "permission", "trust", "bypass", "sandbox"),
    *("fullaccess", "dangerous", "unsafe", "autoaccept", "autorun", "autoedit", "acceptedits"),
    *("adddir", "mcp", "plugin", "extension", "hook", "install", "config", "setting", "confirm"),
    *("security", "skipcheck", "proxysetup", "noask", "dontask"),
)
"""Parts of names; `config` also stands for `update-config` and `mcp-config`."""
_NAMES: Final = frozenset(
    {"mode", "auto", "env", "environment", "cwd", "cd", "setmode", "login", "logout", "tools"}
)
_MOST_SPACE: Final = 1_000  # characters before a command that are looked at


def check_commands(blocks: Any, *, may_change: bool) -> None:
    """Check that a prompt has no command that changes what an agent asks for.

    Raises:
        RequestRejected: `forbidden`, if it has one and `may_change` is False.
    """
    found = None if may_change else changing_command(blocks)
    if found is not None:
        message = (
            f"the agent's command /{found} can change what it asks permission for; sending it needs"
            " the scope approve"
        )
        raise RequestRejected("forbidden", message)


def changing_command(blocks: Any) -> str | None:
    """Return the command in a prompt that changes what an agent asks for; None without."""
    texts = [text for text in _texts(blocks) if text]
    # An agent may join the texts, or look at the first one that is not empty.
    for text in ("".join(texts), *texts):
        found = _COMMAND.match(text[:_MOST_SPACE].lstrip())
        if found is not None and _changes(found[1]):
            return found[1][:40]
    return None


def _texts(blocks: Any) -> Iterator[str]:
    if isinstance(blocks, str):
        yield blocks
    for block in blocks if isinstance(blocks, list | tuple) else ():
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str):
            yield text


def _changes(name: str) -> bool:
    bare = re.sub(r"[\W_]", "", name.lower())
    return bare in _NAMES or any(part in bare for part in _PARTS)
