"""The hub's configuration: a TOML file, whose every key has a safe default.

It is the one named by `--config` or `QUARTERDECK_HUB_CONFIG`, else `quarterdeck/hub.toml` in the
user's folder for configuration, where it may be missing. It is never looked for in a project: what
is in it starts programs. `docs/hub.example.toml` shows every key.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_type_hints

import msgspec
from msgspec import Struct

from quarterdeck.errors import SettingsInvalid

VARIABLE: Final = "QUARTERDECK_HUB_CONFIG"
_EXAMPLE: Final = "docs/hub.example.toml shows every key"


class _Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ServerSection(_Section, frozen=True, kw_only=True):
    """Where the hub listens."""

    host: str = "127.0.0.1"
    port: int = 4640
    tls_cert: str | None = None
    tls_key: str | None = None
    behind_proxy: bool = False
    allow_hosts: tuple[str, ...] = ()


class AgentSection(_Section, frozen=True, kw_only=True):
    """An agent that devices may start by its name."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None


Rule = bool | tuple[str, ...]


class RulesSection(_Section, frozen=True, kw_only=True):
    """All calls of a class, none of them, or those that a glob matches."""

    reads: Rule = False
    writes: Rule = False
    commands: Rule = False
    searches: Rule = False


class PolicySection(_Section, frozen=True, kw_only=True):
    """What is decided without asking; by default nothing."""

    allow: RulesSection = RulesSection()
    deny: RulesSection = RulesSection()


class ApprovalsSection(_Section, frozen=True, kw_only=True):
    expire_seconds: float = 0.0
    """How long a question waits before it is rejected; 0 waits for ever."""


class LogSection(_Section, frozen=True, kw_only=True):
    durability: Literal["normal", "full"] = "normal"
    """full: every event survives a power cut, for one fsync per commit."""


class HubConfig(_Section, frozen=True, kw_only=True):
    server: ServerSection = ServerSection()
    agents: dict[str, AgentSection] = {}
    policy: PolicySection = PolicySection()
    approvals: ApprovalsSection = ApprovalsSection()
    log: LogSection = LogSection()


def config_path(environ: Mapping[str, str], named: Path | None = None) -> tuple[Path | None, bool]:
    """Return where the configuration is, and whether somebody said so: then it must be there."""
    if named is not None:
        return named, True
    if text := environ.get(VARIABLE):
        return Path(text), True
    if folder := environ.get("XDG_CONFIG_HOME"):
        return Path(folder, "quarterdeck", "hub.toml"), False
    if home := environ.get("HOME"):
        return Path(home, ".config", "quarterdeck", "hub.toml"), False
    return None, False


def load_config(environ: Mapping[str, str], named: Path | None = None) -> HubConfig:
    """Read the configuration; the defaults if there is none.

    Raises:
        SettingsInvalid: naming the file, the line or key, and what would be right.
    """
    path, is_named = config_path(environ, named)
    if path is None:
        return HubConfig()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if not is_named:
            return HubConfig()
        reason = f"there is no such file; check --config and ${VARIABLE}"
        raise SettingsInvalid(str(path), reason) from error
    except UnicodeDecodeError as error:
        raise SettingsInvalid(str(path), "is not UTF-8; save it as that") from error
    except OSError as error:
        reason = f"cannot be read: {error.strerror}; make it readable, or name another"
        raise SettingsInvalid(str(path), reason) from error
    return parse_config(text, str(path))


def parse_config(text: str, source: str) -> HubConfig:
    """Read a configuration.

    Raises:
        SettingsInvalid: naming the line or key, and what would be right.
    """
    try:
        known = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsInvalid(source, f"is not TOML: {error}; {_EXAMPLE}") from error
    for keys, names in _strangers(known):
        near = difflib.get_close_matches(keys[-1], names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
        raise SettingsInvalid(_place(text, source, keys), f"{'.'.join(keys)} is not known; {hint}")
    try:
        config = msgspec.convert(known, HubConfig)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at ")
        keys = tuple(re.findall(r"\w[\w-]*", where.strip("`$")))
        keys = tuple(name for name in keys if not name.isdecimal())
        place = _place(text, source, _complete(keys, known))
        raise SettingsInvalid(place, f"{_sentence(keys, reason)}; {_EXAMPLE}") from error
    _check(config, text, source)
    return config


def _check(config: HubConfig, text: str, source: str) -> None:
    """Refuse what has the right type and makes no sense."""
    server = config.server
    if not 0 <= server.port <= 65535:
        place = _place(text, source, ("server", "port"))
        raise SettingsInvalid(place, f"server.port is {server.port}; it is 0 to 65535, 0: any free")
    if (server.tls_cert is None) != (server.tls_key is None):
        place = _place(text, source, ("server",))
        raise SettingsInvalid(place, "server.tls_cert and server.tls_key belong together")
    if config.approvals.expire_seconds < 0:
        place = _place(text, source, ("approvals", "expire_seconds"))
        reason = "approvals.expire_seconds is below 0; it is a number of seconds, 0 waits for ever"
        raise SettingsInvalid(place, reason)
    for name, agent in config.agents.items():
        if not agent.command.strip():
            place = _place(text, source, ("agents", name, "command"))
            reason = f"agents.{name}.command is empty; it is the program that starts the agent"
            raise SettingsInvalid(place, reason)


_SECTIONS: Final[Mapping[str, type[Struct]]] = {
    "server": ServerSection,
    "policy": PolicySection,
    "approvals": ApprovalsSection,
    "log": LogSection,
}


def _strangers(known: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield every key that is not known, and those that stand beside it."""
    yield from _unknown(known, HubConfig, ())
    for name, section in _SECTIONS.items():
        yield from _unknown(known.get(name), section, (name,))
    policy = known.get("policy")
    if isinstance(policy, dict):
        for name in ("allow", "deny"):
            yield from _unknown(policy.get(name), RulesSection, ("policy", name))
    agents = known.get("agents")
    if isinstance(agents, dict):
        for name, agent in agents.items():
            yield from _unknown(agent, AgentSection, ("agents", name))


def _unknown(
    table: Any, section: type[Struct], keys: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    names = section.__struct_fields__
    if isinstance(table, dict):
        yield from (((*keys, name), names) for name in table if name not in names)


def _sentence(keys: tuple[str, ...], reason: str) -> str:
    """Turn `Expected `int`, got `str`` into words with the key in front."""
    words = reason.replace("`", "").replace("Expected ", "must be ", 1).replace(", got", ", not")
    for type_name, meaning in _MEANINGS.items():
        words = re.sub(rf"\b{type_name}\b", meaning, words)
    words = words.replace("Object missing required field", "lacks the key")
    return f"{'.'.join(keys) or 'it'} {words[:1].lower()}{words[1:]}"


_MEANINGS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def _complete(keys: tuple[str, ...], known: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the agent in a path that has `[...]` for it."""
    if keys[:1] != ("agents",) or len(keys) < 2 or keys[1] in known.get("agents", {}):
        return keys
    return keys


def _place(text: str, source: str, keys: tuple[str, ...]) -> str:
    """Name the line on which a key stands, if it can be found."""
    line = _line_of(text, keys)
    return source if line is None else f"{source}, line {line}"


def _line_of(text: str, keys: tuple[str, ...]) -> int | None:
    current: tuple[str, ...] = ()
    nearest: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            current = _key_path(header[1])
            found = current
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            found = (*current, *_key_path(key[1]))
        else:
            continue
        if found == keys:
            return number
        if found and found == keys[: len(found)]:
            nearest = number
    return nearest


def _key_path(written: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in written.split("."))


def describe_types() -> dict[str, dict[str, Any]]:
    """Return the types of all sections, for the test that compares them with the example."""
    return {name: get_type_hints(section) for name, section in _SECTIONS.items()}
