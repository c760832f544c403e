"""The ways to sign in to an agent: those that it offers, and those that the catalogue knows. Pure.

| kind        | from                                         | done by                            |
| ----------- | -------------------------------------------- | ---------------------------------- |
| agent       | a method without a type                      | the agent, with `authenticate`     |
| terminal    | the type `terminal`, `_meta.terminal-auth`,  | a program in a pseudo-terminal     |
|             | or the `command` in the catalogue            |                                    |
| environment | the type `env_var`, or the catalogue's       | the user, in the hub's environment |
|             | `variables`                                  |                                    |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final, Literal

from msgspec import Struct

from quarterdeck.agents import AgentSettings, CatalogueEntry

OWN: Final = "catalogue"
"""The id of the method that is the command in the catalogue."""
VARIABLES: Final = "environment"
_TERMINAL: Final = "terminal-auth"
_MOST: Final = 20


class SignInMethod(Struct, frozen=True, kw_only=True, rename="camel"):
    """A way to sign in."""

    id: str
    name: str
    kind: Literal["agent", "terminal", "environment"]
    description: str = ""
    variables: tuple[str, ...] = ()
    """Of kind environment: what has to be set."""


class TerminalCommand(Struct, frozen=True, kw_only=True):
    """What a terminal runs; never sent to a client."""

    command: tuple[str, ...]
    env: dict[str, str] = {}


def offered_methods(
    offered: Sequence[Mapping[str, Any]], entry: CatalogueEntry | None
) -> list[SignInMethod]:
    """Return the ways to sign in, the agent's own first."""
    found = [method for each in offered[:_MOST] if (method := _method(each)) is not None]
    if entry is None:
        return found
    has_terminal = any(each.kind == "terminal" for each in found)
    if entry.sign_in.command and not has_terminal:
        words = " ".join(entry.sign_in.command)
        own = SignInMethod(id=OWN, name="In a terminal", kind="terminal", description=words)
        found.append(own)
    if entry.sign_in.variables and not any(each.kind == "environment" for each in found):
        found.append(
            SignInMethod(
                id=VARIABLES,
                name="API key",
                kind="environment",
                description="set one of them where you start the hub, then: quarterdeck down,"
                " quarterdeck up",
                variables=entry.sign_in.variables,
            )
        )
    return found


def terminal_command(
    method_id: str,
    offered: Sequence[Mapping[str, Any]],
    entry: CatalogueEntry | None,
    settings: AgentSettings,
) -> TerminalCommand | None:
    """Return what to run for a method; None if it is not one of a terminal."""
    if method_id == OWN and entry is not None and entry.sign_in.command:
        return TerminalCommand(command=_own_command(entry, settings), env=dict(settings.env))
    for each in offered:
        if each.get("id") == method_id:
            return _agents_command(each, settings)
    return None


def _own_command(entry: CatalogueEntry, settings: AgentSettings) -> tuple[str, ...]:
    """Return the command in the catalogue; the agent's own program by its full path."""
    first, *rest = entry.sign_in.command
    is_same = first == entry.command and PurePath(settings.command).name == first
    return (settings.command if is_same else first, *rest)


def _agents_command(method: Mapping[str, Any], settings: AgentSettings) -> TerminalCommand | None:
    named = _mapping(_mapping(method.get("_meta")).get(_TERMINAL))
    if isinstance(named.get("command"), str) and named["command"]:
        command = (named["command"], *_texts(named.get("args")))
        env = _variables(named.get("env"))
    elif method.get("type") == "terminal":
        command = (settings.command, *settings.args, *_texts(method.get("args")))
        env = _variables(method.get("env"))
    else:
        return None
    return TerminalCommand(command=command, env={**settings.env, **env})


def _method(given: Mapping[str, Any]) -> SignInMethod | None:
    if not isinstance(given.get("id"), str):
        return None
    name, words = given.get("name"), given.get("description")
    kind: Literal["agent", "terminal", "environment"] = "agent"
    variables: tuple[str, ...] = ()
    if given.get("type") == "env_var":
        kind, variables = "environment", tuple(_variable_names(given))
    elif given.get("type") == "terminal" or _TERMINAL in _mapping(given.get("_meta")):
        kind = "terminal"
    return SignInMethod(
        id=given["id"],
        name=name if isinstance(name, str) and name else given["id"],
        kind=kind,
        description=words if isinstance(words, str) else "",
        variables=variables,
    )


def _variable_names(method: Mapping[str, Any]) -> Iterator[str]:
    listed = method.get("vars")
    for each in listed if isinstance(listed, list) else ():
        name = each.get("name") if isinstance(each, Mapping) else None
        if isinstance(name, str):
            yield name


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _variables(value: object) -> dict[str, str]:
    return {name: text for name, text in _mapping(value).items() if isinstance(text, str)}


# ---- what to do when it is missing -------------------------------------------------------------

AUTH_REQUIRED: Final = -32000
_WORDS: Final = re.compile(
    r"auth(entication|orization)?[ _]?(is )?required|not (logged|signed|authenticated)"
    r"|(log|sign)[ -]?in (first|again|to)|unauthori[sz]ed|invalid (api[ _-]?key|x-api-key)"
    r"|(missing|no|invalid|incorrect) api[ _-]?key|api[ _-]?key (is )?(missing|not|required)"
    r"|no (llm )?provider configured|failed to resolve provider|missing environment variable",
    re.IGNORECASE,
)
_NAME: Final = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")


def is_about_sign_in(message: str, code: int | None) -> bool:
    """Return whether an agent's error is for want of a sign-in."""
    return code == AUTH_REQUIRED or _WORDS.search(message) is not None


def advice(message: str, code: int | None, entry_words: str, withheld: Sequence[str]) -> str | None:
    """Return what to do about an agent's error; None if it has another cause.

    `entry_words` is how to sign in, `withheld` the variables of the hub that the agent does not
    get: if the error names one of them, the agent needs it.
    """
    named = [name for name in _NAME.findall(message) if name in withheld]
    if named:
        remedy = "add it to pass_env in hub.toml"
        return f"the hub has {named[0]}, but this agent does not get it; {remedy}"
    if not is_about_sign_in(message, code):
        return None
    hint = f"; not passed to it: {', '.join(withheld)}" if withheld else ""
    return f"sign in: {entry_words}{hint}" if entry_words else None
