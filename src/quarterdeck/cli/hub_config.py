"""The hub's configuration: a TOML file, whose every key has a safe default.

It is the one named by `--config` or `QUARTERDECK_HUB_CONFIG`, else `quarterdeck/hub.toml` in the
user's folder for configuration, where it may be missing. It is never looked for in a project: what
is in it starts programs. `docs/use/hub.example.toml` shows every key.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Struct

from quarterdeck.errors import SettingsInvalid
from quarterdeck.http.origins import DEFAULT_PORT
from quarterdeck.server.device import UNUSED_SECONDS
from quarterdeck.server.known_agents import AgentSettings
from quarterdeck.server.options import HubOptions, Policy, PolicyRule
from quarterdeck.server.retention import Retention

VARIABLE: Final = "QUARTERDECK_HUB_CONFIG"
_EXAMPLE: Final = "docs/use/hub.example.toml shows every key"
_LONGEST: Final = 1e6  # of days or minutes: what is longer is a mistake
_T = TypeVar("_T", bound=Struct)


class ServerSection(Struct, frozen=True, kw_only=True):
    """Where the hub listens."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tls_cert: str | None = None
    tls_key: str | None = None
    behind_proxy: bool = False
    allow_hosts: tuple[str, ...] = ()


class PolicySection(Struct, frozen=True, kw_only=True):
    """What is decided without asking; by default nothing."""

    rule: tuple[PolicyRule, ...] = ()


class ApprovalsSection(Struct, frozen=True, kw_only=True):
    expire_seconds: float = 0.0
    """How long a question waits before it is rejected; 0 waits for ever."""


class PushSection(Struct, frozen=True, kw_only=True):
    services: tuple[str, ...] = ()
    """Origins of push services of your own, which need not be at a public address."""


class DevicesSection(Struct, frozen=True, kw_only=True):
    unused_days: float = UNUSED_SECONDS / 86_400
    """After which a device that was not heard of has to be paired again; 0 keeps it."""


class EnvironmentSection(Struct, frozen=True, kw_only=True):
    pass_env: tuple[str, ...] = ()
    """Variables of the hub's environment that all agents get beside the usual ones."""


class LogSection(Struct, frozen=True, kw_only=True):
    durability: Literal["normal", "full"] = "normal"
    """full: every event survives a power cut, for one fsync per commit."""


class SessionsSection(Struct, frozen=True, kw_only=True):
    idle_agent_minutes: float = 0.0
    """After which an agent that does nothing is stopped until it is needed; 0 lets it run."""


class RetentionSection(Struct, frozen=True, kw_only=True):
    """How many days the hub remembers what is over; 0 for ever. Sessions stay as they are."""

    prompts_days: float = 90.0
    decisions_days: float = 400.0


class HubConfig(Struct, frozen=True, kw_only=True):
    server: ServerSection = ServerSection()
    agents: dict[str, AgentSettings] = {}
    policy: PolicySection = PolicySection()
    approvals: ApprovalsSection = ApprovalsSection()
    push: PushSection = PushSection()
    log: LogSection = LogSection()
    sessions: SessionsSection = SessionsSection()
    retention: RetentionSection = RetentionSection()
    devices: DevicesSection = DevicesSection()
    environment: EnvironmentSection = EnvironmentSection()


def hub_options(
    config: HubConfig, *, home: Path, environ: Mapping[str, str], **given: Any
) -> HubOptions:
    """Return what a hub is told: what was given on the command line wins over the file."""
    server, expiry = config.server, config.approvals.expire_seconds
    chosen: dict[str, Any] = {
        "host": server.host,
        "port": server.port,
        "certificate": None if server.tls_cert is None else Path(server.tls_cert).expanduser(),
        "private_key": None if server.tls_key is None else Path(server.tls_key).expanduser(),
        "behind_proxy": server.behind_proxy,
        "allowed_hosts": server.allow_hosts,
        "agents": config.agents,
        "policy": Policy(rule=config.policy.rule, expiry_seconds=expiry or None),
        "push_services": config.push.services,
        "synchronous": config.log.durability,
        "idle_agent_minutes": config.sessions.idle_agent_minutes,
        "retention": Retention(
            prompts_days=config.retention.prompts_days,
            decisions_days=config.retention.decisions_days,
        ),
        "device_unused_seconds": config.devices.unused_days * 86_400,
        "pass_env": config.environment.pass_env,
        **{name: value for name, value in given.items() if value is not None},
    }
    return HubOptions(home=home, environ=environ, **chosen)


NO_FILE = "is no regular file; put one there, or name another with --config"


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
        if not is_named and (path.exists() or path.is_symlink()) and not path.is_file():
            # A pipe would have us wait. One that somebody names, as a shell's <(…), is meant.
            raise SettingsInvalid(str(path), NO_FILE)
        with path.open(encoding="utf-8") as file:
            _check_writers(path, os.fstat(file.fileno()))
            text = file.read()
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


def _check_writers(path: Path, facts: os.stat_result) -> None:
    us = {"user": os.geteuid(), "group": os.getegid()}
    if (others := others_who_write(facts, **us)) is not None:
        raise SettingsInvalid(str(path), others)
    folder = path.resolve().parent
    if stat.S_ISREG(facts.st_mode) and others_who_write(folder.stat(), **us) is not None:
        reason = f"stands in {folder}, where others could put another; chmod go-w that folder"
        raise SettingsInvalid(str(path), reason)


def others_who_write(facts: os.stat_result, *, user: int, group: int) -> str | None:
    """Return a sentence if somebody else could change a file: what stands in it starts programs.

    The group that new files of this user get may write: often there is one for each user. In a
    folder with the sticky bit others cannot replace what is not theirs.
    """
    if facts.st_uid not in (user, 0):
        return f"belongs to user {facts.st_uid}, who could start programs as you; make it yours"
    others = stat.S_IWOTH if facts.st_gid in (group, 0) else stat.S_IWOTH | stat.S_IWGRP
    is_open = stat.S_ISREG(facts.st_mode) or (
        stat.S_ISDIR(facts.st_mode) and not facts.st_mode & stat.S_ISVTX
    )
    if is_open and facts.st_mode & others:
        return "can be changed by others, who could start programs as you; chmod go-w it"
    return None


def parse_config(text: str, source: str) -> HubConfig:
    """Read a configuration.

    Raises:
        SettingsInvalid: naming the line or key, and what would be right.
    """
    try:
        known = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsInvalid(source, f"is not TOML: {error}; {_EXAMPLE}") from error
    reader = _Reader(text, source)
    reader.refuse_strangers(known, HubConfig.__struct_fields__, ())
    policy = reader.table(known.get("policy", {}), ("policy",))
    reader.refuse_strangers(policy, PolicySection.__struct_fields__, ("policy",))
    config = HubConfig(
        server=reader.section(known.get("server", {}), ServerSection, ("server",)),
        agents={
            name: reader.section(agent, AgentSettings, ("agents", name))
            for name, agent in reader.table(known.get("agents", {}), ("agents",)).items()
        },
        policy=PolicySection(
            rule=tuple(
                _Reader(text, source, nth=number).section(rule, PolicyRule, ("policy", "rule"))
                for number, rule in enumerate(
                    reader.tables(policy.get("rule", []), ("policy", "rule"))
                )
            )
        ),
        approvals=reader.section(known.get("approvals", {}), ApprovalsSection, ("approvals",)),
        push=reader.section(known.get("push", {}), PushSection, ("push",)),
        log=reader.section(known.get("log", {}), LogSection, ("log",)),
        sessions=reader.section(known.get("sessions", {}), SessionsSection, ("sessions",)),
        retention=reader.section(known.get("retention", {}), RetentionSection, ("retention",)),
        devices=reader.section(known.get("devices", {}), DevicesSection, ("devices",)),
        environment=reader.section(
            known.get("environment", {}), EnvironmentSection, ("environment",)
        ),
    )
    _check(config, reader)
    return config


class _Reader:
    """Turns tables into structs, and complaints into sentences with a place."""

    def __init__(self, text: str, source: str, *, nth: int = 0) -> None:
        """Of several tables with the same header, take the places from number `nth`."""
        self._text = text
        self._source = source
        self._nth = nth

    def section(self, table: Any, kind: type[_T], keys: tuple[str, ...]) -> _T:
        self.refuse_strangers(self.table(table, keys), kind.__struct_fields__, keys)
        try:
            return msgspec.convert(table, kind)
        except msgspec.ValidationError as error:
            reason, _, where = str(error).partition(" - at ")
            inner = tuple(re.findall(r"[A-Za-z_]\w*", where))
            wrong = (*keys, *inner)
            words = _words(reason, _choices(kind, inner))
            raise self.refusal(wrong, f"{'.'.join(wrong)} {words}; {_EXAMPLE}") from error

    def table(self, value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.refusal(keys, f"{'.'.join(keys)} must be a table: [{'.'.join(keys)}]")
        return value

    def tables(self, value: Any, keys: tuple[str, ...]) -> list[Any]:
        if not isinstance(value, list):
            raise self.refusal(keys, f"{'.'.join(keys)} must be tables: [[{'.'.join(keys)}]]")
        return value

    def refuse_strangers(
        self, table: dict[str, Any], names: tuple[str, ...], keys: tuple[str, ...]
    ) -> None:
        for name in table:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
                wrong = (*keys, name)
                raise self.refusal(wrong, f"{'.'.join(wrong)} is not known; {hint}")

    def refusal(self, keys: tuple[str, ...], reason: str) -> SettingsInvalid:
        line = _line_of(self._text, keys, self._nth)
        return SettingsInvalid(
            self._source if line is None else f"{self._source}, line {line}", reason
        )


def _check(config: HubConfig, reader: _Reader) -> None:
    """Refuse what has the right type and makes no sense."""
    server = config.server
    if not 0 <= server.port <= 65535:
        reason = f"server.port is {server.port}; it is a number from 0 to 65535, 0 for any free"
        raise reader.refusal(("server", "port"), reason)
    if (server.tls_cert is None) != (server.tls_key is None):
        reason = "server.tls_cert and server.tls_key belong together; give both or none"
        raise reader.refusal(("server",), reason)
    if config.approvals.expire_seconds < 0:
        reason = "approvals.expire_seconds is below 0; it is a number of seconds, 0 waits for ever"
        raise reader.refusal(("approvals", "expire_seconds"), reason)
    spans = {
        ("sessions", "idle_agent_minutes"): config.sessions.idle_agent_minutes,
        ("retention", "prompts_days"): config.retention.prompts_days,
        ("retention", "decisions_days"): config.retention.decisions_days,
    }
    for keys, span in spans.items():
        if not 0 <= span < _LONGEST:
            reason = f"{'.'.join(keys)} is {span}; it is a number from 0, which means never, on"
            raise reader.refusal(keys, reason)
    if config.devices.unused_days < 0:
        reason = "devices.unused_days is below 0; it is a number of days, 0 keeps devices for ever"
        raise reader.refusal(("devices", "unused_days"), reason)
    for name, agent in config.agents.items():
        if not agent.command.strip():
            reason = f"agents.{name}.command is empty; it is the program that starts the agent"
            raise reader.refusal(("agents", name, "command"), reason)


def _choices(kind: type[Struct], inner: tuple[str, ...]) -> str:
    """Return the values that a key may have, if they are named."""
    return ", ".join(map(str, get_args(get_type_hints(kind).get(inner[0] if inner else ""))))


def _words(reason: str, choices: str) -> str:
    """Turn msgspec's `Expected ...` into words of a sentence."""
    words = reason.replace("`", "")
    if missing := re.match(r"Object missing required field (\w+)", words):
        return f"lacks the key {missing[1]}"
    if wrong := re.match(r"Invalid enum value (.*)", words):
        return f"cannot be {wrong[1]}; it is one of {choices}"
    words = (
        words.replace("Expected ", "must be ", 1).replace(", got", ", not").replace(" | ", " or ")
    )
    for name, meaning in _MEANINGS.items():
        words = re.sub(rf"\b{name}\b", meaning, words)
    return words


_MEANINGS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def _line_of(text: str, keys: tuple[str, ...], nth: int = 0) -> int | None:
    """Return the line of a key, or of the nearest table around it."""
    current: tuple[str, ...] = ()
    seen: Counter[tuple[str, ...]] = Counter()
    nearest: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*(\[+)\s*([^\]]+?)\s*\]+", line):
            current = found = _key_path(header[2])
            seen[current] += 1
        elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
            found = (*current, *_key_path(key[1]))
        else:
            continue
        if current and seen[current] - 1 < nth and current == keys[: len(current)]:
            continue
        if found == keys:
            return number
        if found == keys[: len(found)]:
            nearest = number
    return nearest


def _key_path(written: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in written.split("."))
