"""The hub's configuration: a TOML file in which every key has a safe default.

The file is the one named by `--config` or `QUARTERDECK_HUB_CONFIG`, else `quarterdeck/hub.toml` in
the user's configuration directory, which may be missing. It is never read from a project, because
it names programs to start. `docs/use/hub.example.toml` shows every key.
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

from quarterdeck.agents import AgentSettings, McpServerSettings, SandboxSettings
from quarterdeck.agents.mcp_servers import USE_VARIABLE, problem_of, stored_secret
from quarterdeck.errors import SettingsInvalid
from quarterdeck.http.downloads import url_refusal
from quarterdeck.http.origins import DEFAULT_PORT, LOCAL_PROXIES
from quarterdeck.http.remote_agent import header_problem, url_problem
from quarterdeck.hub.auth.device import UNUSED_SECONDS
from quarterdeck.hub.database_url import database_url_problem, has_password
from quarterdeck.hub.options import HubOptions
from quarterdeck.hub.view_cache import VIEW_BYTES
from quarterdeck.machine import ConfineMode
from quarterdeck.policy import Policy, Rule
from quarterdeck.runner import Retention, TelemetrySettings, telemetry_problem

VARIABLE: Final = "QUARTERDECK_HUB_CONFIG"
_LONGEST: Final = 1e6  # days or minutes: a larger number is a mistake
_MOST_MB: Final = 1 << 20
_T = TypeVar("_T", bound=Struct)


class TopLevel(Struct, frozen=True, kw_only=True):
    """The keys before the first table."""

    confine: ConfineMode = "on"
    hide: tuple[str, ...] = ()


class ServerSection(Struct, frozen=True, kw_only=True):
    """Where the hub listens."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tls_cert: str | None = None
    tls_key: str | None = None
    behind_proxy: bool = False
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of a proxy on another computer."""
    allow_hosts: tuple[str, ...] = ()
    phone: bool = False
    """Whether the hub also listens where phones can reach it: `up --phone`."""


class PolicySection(Struct, frozen=True, kw_only=True):
    """Rules that decide permission requests; none by default."""

    rule: tuple[Rule, ...] = ()


class ApprovalsSection(Struct, frozen=True, kw_only=True):
    expire_seconds: float = 0.0
    """How long a permission request waits before it is rejected; 0 waits for ever."""


class PushSection(Struct, frozen=True, kw_only=True):
    services: tuple[str, ...] = ()
    """Origins of your own push services, which may have private addresses."""


class DevicesSection(Struct, frozen=True, kw_only=True):
    unused_days: float = UNUSED_SECONDS / 86_400
    """After so many days without use a device must be paired again; 0 keeps it."""


class CatalogueSection(Struct, frozen=True, kw_only=True):
    registry: str = ""
    """The URL or the path of an ACP registry, whose agents can be installed, too."""


class EnvironmentSection(Struct, frozen=True, kw_only=True):
    pass_env: tuple[str, ...] = ()
    """Variables of the hub's environment that all agents inherit, besides the usual ones."""


class DatabaseSection(Struct, frozen=True, kw_only=True):
    url: str = ""
    """A PostgreSQL database for the hub's data; empty: hub.db in the data directory."""


class LogSection(Struct, frozen=True, kw_only=True):
    durability: Literal["normal", "full"] = "normal"
    """full: every event survives a power cut, for one fsync per commit."""


class SessionsSection(Struct, frozen=True, kw_only=True):
    idle_agent_minutes: float = 0.0
    """After so many minutes an idle agent is stopped until it is needed; 0 keeps it running."""
    response_seconds: float = 30.0
    """After so many seconds an agent that does not end a cancelled turn, or does not read its
    input, is reported as unresponsive."""


class EditorsSection(Struct, frozen=True, kw_only=True):
    idle_minutes: float = 5.0
    """After so many minutes without a stream or a request an ACP client on HTTP is disconnected."""


class MemorySection(Struct, frozen=True, kw_only=True):
    view_mb: int = VIEW_BYTES >> 20
    """What views of sessions may take, in MiB; those that are dropped are read again."""


class RetentionSection(Struct, frozen=True, kw_only=True):
    """For how many days prompts and decisions are kept; 0 for ever. Sessions are not affected."""

    prompts_days: float = 90.0
    decisions_days: float = 400.0


class HubConfig(Struct, frozen=True, kw_only=True):
    confine: ConfineMode = "on"
    """Whether agents are kept from the hub's folders: on, off, or require."""
    hide: tuple[str, ...] = ()
    """Further folders, files and sockets that no agent can use."""
    projects: dict[str, SandboxSettings] = {}
    """Sandboxes by the folder of a project."""
    server: ServerSection = ServerSection()
    agents: dict[str, AgentSettings] = {}
    policy: PolicySection = PolicySection()
    approvals: ApprovalsSection = ApprovalsSection()
    push: PushSection = PushSection()
    database: DatabaseSection = DatabaseSection()
    log: LogSection = LogSection()
    sessions: SessionsSection = SessionsSection()
    editors: EditorsSection = EditorsSection()
    retention: RetentionSection = RetentionSection()
    memory: MemorySection = MemorySection()
    devices: DevicesSection = DevicesSection()
    environment: EnvironmentSection = EnvironmentSection()
    catalogue: CatalogueSection = CatalogueSection()
    mcp: dict[str, McpServerSettings] = {}
    """MCP servers of sessions, by name."""
    telemetry: TelemetrySettings = TelemetrySettings()


def hub_options(
    config: HubConfig,
    *,
    home: Path,
    environ: Mapping[str, str],
    config_file: Path | None = None,
    **given: Any,
) -> HubOptions:
    """Return the options of a hub; those given on the command line override the file.

    `config_file` is the one that was named on the command line: agents must not see it.
    """
    server, expiry = config.server, config.approvals.expire_seconds
    chosen: dict[str, Any] = {
        "host": server.host,
        "port": server.port,
        "certificate": None if server.tls_cert is None else Path(server.tls_cert).expanduser(),
        "private_key": None if server.tls_key is None else Path(server.tls_key).expanduser(),
        "behind_proxy": server.behind_proxy,
        "trusted_proxies": (*LOCAL_PROXIES, *server.trusted_proxies),
        "allowed_hosts": server.allow_hosts,
        "phone": server.phone,
        "agents": config.agents,
        "catalogue_folder": catalogue_folder(environ),
        "registry": config.catalogue.registry,
        "mcp": config.mcp,
        "policy": Policy(rule=config.policy.rule, expiry_seconds=expiry or None),
        "push_services": config.push.services,
        "database": config.database.url,
        "synchronous": config.log.durability,
        "idle_agent_minutes": config.sessions.idle_agent_minutes,
        "editor_idle_seconds": config.editors.idle_minutes * 60,
        "response_seconds": config.sessions.response_seconds,
        "retention": Retention(
            prompts_days=config.retention.prompts_days,
            decisions_days=config.retention.decisions_days,
        ),
        "view_bytes": config.memory.view_mb << 20,
        "device_unused_seconds": config.devices.unused_days * 86_400,
        "pass_env": config.environment.pass_env,
        "confine": config.confine,
        "hidden": tuple(Path(path).expanduser() for path in config.hide),
        "projects": config.projects,
        "telemetry": config.telemetry,
        **{name: value for name, value in given.items() if value is not None},
    }
    chosen["hidden"] += own_paths(environ, config_file)
    chosen["kept"] = tuple(path / "agent.toml" for path in own_paths(environ, None))
    return HubOptions(home=home, environ=environ, **chosen)


def catalogue_folder(environ: Mapping[str, str]) -> Path | None:
    """Return where the user's own files of agents are: beside the configuration."""
    default, _ = config_path({**environ, VARIABLE: ""})
    return None if default is None else default.parent / "agents"


def own_paths(environ: Mapping[str, str], named: Path | None) -> tuple[Path, ...]:
    """Return the folder of the configuration, and a file that is used instead of the one in it."""
    default, _ = config_path({**environ, VARIABLE: ""})
    chosen, is_named = config_path(environ, named)
    folders = () if default is None else (default.parent,)
    return (*folders, chosen.absolute()) if chosen is not None and is_named else folders


NOT_A_FILE = "is not a regular file; replace it, or choose another with --config"


def config_path(environ: Mapping[str, str], named: Path | None = None) -> tuple[Path | None, bool]:
    """Return the path of the configuration, and whether it was named: then it must exist."""
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
        SettingsInvalid: with the file, the line or key, and what is expected.
    """
    path, is_named = config_path(environ, named)
    if path is None:
        return HubConfig()
    try:
        if not is_named and (path.exists() or path.is_symlink()) and not path.is_file():
            # Reading a pipe would block. One that was named, as a shell's <(…), is intended.
            raise SettingsInvalid(str(path), NOT_A_FILE)
        with path.open(encoding="utf-8") as file:
            facts = os.fstat(file.fileno())
            _check_writers(path, facts)
            text = file.read()
    except FileNotFoundError as error:
        if not is_named:
            return HubConfig()
        reason = f"does not exist; check --config and ${VARIABLE}"
        raise SettingsInvalid(str(path), reason) from error
    except UnicodeDecodeError as error:
        raise SettingsInvalid(str(path), "is not UTF-8; save it as UTF-8") from error
    except OSError as error:
        reason = f"cannot be read: {error.strerror}; make it readable, or choose another"
        raise SettingsInvalid(str(path), reason) from error
    config = parse_config(text, str(path))
    if has_password(config.database.url) and facts.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        reason = (
            "has the password of database.url and can be read by other users; name a variable"
            " instead, such as ${QUARTERDECK_DB_PASSWORD}, or chmod go-r it"
        )
        raise SettingsInvalid(str(path), reason)
    return config


def _check_writers(path: Path, facts: os.stat_result) -> None:
    us = {"user": os.geteuid(), "group": os.getegid()}
    if (others := others_who_write(facts, **us)) is not None:
        raise SettingsInvalid(str(path), others)
    folder = path.resolve().parent
    if stat.S_ISREG(facts.st_mode) and others_who_write(folder.stat(), **us) is not None:
        reason = f"is in {folder}, where other users could replace it; chmod go-w that directory"
        raise SettingsInvalid(str(path), reason)


def others_who_write(facts: os.stat_result, *, user: int, group: int) -> str | None:
    """Return the problem if other users could change a file, which names programs to start.

    The user's own group may write: often every user has one. In a directory with the sticky bit
    others cannot replace a file that is not theirs.
    """
    if facts.st_uid not in (user, 0):
        return f"belongs to user {facts.st_uid}, who could start programs as you; change its owner"
    others = stat.S_IWOTH if facts.st_gid in (group, 0) else stat.S_IWOTH | stat.S_IWGRP
    is_open = stat.S_ISREG(facts.st_mode) or (
        stat.S_ISDIR(facts.st_mode) and not facts.st_mode & stat.S_ISVTX
    )
    if is_open and facts.st_mode & others:
        return "can be changed by other users, who could start programs as you; chmod go-w it"
    return None


_SECTIONS: Final[dict[str, type[Any]]] = {
    "server": ServerSection,
    "approvals": ApprovalsSection,
    "push": PushSection,
    "database": DatabaseSection,
    "log": LogSection,
    "sessions": SessionsSection,
    "editors": EditorsSection,
    "retention": RetentionSection,
    "memory": MemorySection,
    "devices": DevicesSection,
    "environment": EnvironmentSection,
    "catalogue": CatalogueSection,
    "telemetry": TelemetrySettings,
}
"""The tables that are read as they are."""


def parse_config(text: str, source: str) -> HubConfig:
    """Parse a configuration.

    Raises:
        SettingsInvalid: with the line or key, and what is expected.
    """
    try:
        known = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsInvalid(source, f"is not TOML: {error}; fix it and try again") from error
    reader = _Reader(text, source)
    reader.reject_unknown(known, HubConfig.__struct_fields__, ())
    policy = reader.table(known.get("policy", {}), ("policy",))
    reader.reject_unknown(policy, PolicySection.__struct_fields__, ("policy",))
    config = HubConfig(
        **_confinement(known, reader),
        agents={
            name: reader.section(agent, AgentSettings, ("agents", name))
            for name, agent in reader.table(known.get("agents", {}), ("agents",)).items()
        },
        policy=PolicySection(
            rule=tuple(
                _Reader(text, source, nth=number).section(rule, Rule, ("policy", "rule"))
                for number, rule in enumerate(
                    reader.tables(policy.get("rule", []), ("policy", "rule"))
                )
            )
        ),
        **{
            name: reader.section(known.get(name, {}), kind, (name,))
            for name, kind in _SECTIONS.items()
        },
        mcp=_mcp_servers(known, reader),
    )
    _check(config, reader)
    return config


def _mcp_servers(known: dict[str, Any], reader: _Reader) -> dict[str, McpServerSettings]:
    return {
        name: reader.section(server, McpServerSettings, ("mcp", name))
        for name, server in reader.table(known.get("mcp", {}), ("mcp",)).items()
    }


def _confinement(known: dict[str, Any], reader: _Reader) -> dict[str, Any]:
    """Return the keys before the first table, and the projects."""
    names = TopLevel.__struct_fields__
    top = reader.section({name: known[name] for name in names if name in known}, TopLevel, ())
    projects = reader.table(known.get("projects", {}), ("projects",))
    return {
        "confine": top.confine,
        "hide": top.hide,
        "projects": {
            folder: reader.section(project, SandboxSettings, ("projects", folder))
            for folder, project in projects.items()
        },
    }


class _Reader:
    """Converts tables to structs, and errors to sentences with a line number."""

    def __init__(self, text: str, source: str, *, nth: int = 0) -> None:
        """Of several tables with the same header, report the lines of number `nth`."""
        self._text = text
        self._source = source
        self._nth = nth

    def section(self, table: Any, kind: type[_T], keys: tuple[str, ...]) -> _T:
        self.reject_unknown(self.table(table, keys), kind.__struct_fields__, keys)
        try:
            return msgspec.convert(table, kind)
        except msgspec.ValidationError as error:
            reason, _, where = str(error).partition(" - at ")
            inner = tuple(re.findall(r"[A-Za-z_]\w*", where))
            wrong = (*keys, *inner)
            words = _words(reason, _choices(kind, inner))
            raise self.invalid(wrong, f"{'.'.join(wrong)} {words}") from error

    def table(self, value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.invalid(keys, f"{'.'.join(keys)} must be a table: [{'.'.join(keys)}]")
        return value

    def tables(self, value: Any, keys: tuple[str, ...]) -> list[Any]:
        if not isinstance(value, list):
            raise self.invalid(keys, f"{'.'.join(keys)} must be tables: [[{'.'.join(keys)}]]")
        return value

    def reject_unknown(
        self, table: dict[str, Any], names: tuple[str, ...], keys: tuple[str, ...]
    ) -> None:
        for name in table:
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(names)}"
                wrong = (*keys, name)
                raise self.invalid(wrong, f"unknown key {'.'.join(wrong)}; {hint}")

    def invalid(self, keys: tuple[str, ...], reason: str) -> SettingsInvalid:
        line = _line_of(self._text, keys, self._nth)
        return SettingsInvalid(
            self._source if line is None else f"{self._source}, line {line}", reason
        )


def _check(config: HubConfig, reader: _Reader) -> None:
    """Reject values that have the right type but make no sense."""
    server = config.server
    if not 0 <= server.port <= 65535:
        reason = f"server.port is {server.port}; use a number from 0 to 65535, 0 for any free port"
        raise reader.invalid(("server", "port"), reason)
    if (server.tls_cert is None) != (server.tls_key is None):
        reason = "server.tls_cert and server.tls_key belong together; set both or none"
        raise reader.invalid(("server",), reason)
    if config.approvals.expire_seconds < 0:
        reason = "approvals.expire_seconds is below 0; use a number of seconds, 0 to wait for ever"
        raise reader.invalid(("approvals", "expire_seconds"), reason)
    if (problem := database_url_problem(config.database.url)) is not None:
        raise reader.invalid(("database", "url"), f"database.url {problem}")
    _check_spans(config, reader)
    _check_telemetry(config.telemetry, reader)
    if config.devices.unused_days < 0:
        reason = "devices.unused_days is below 0; use a number of days, 0 to keep devices for ever"
        raise reader.invalid(("devices", "unused_days"), reason)
    registry = config.catalogue.registry
    if "://" in registry and (refusal := url_refusal(registry)) is not None:
        reason = f"catalogue.registry: {refusal}; use an https URL, or the path of a file"
        raise reader.invalid(("catalogue", "registry"), reason)
    _check_mcp(config, reader)
    for name, agent in config.agents.items():
        _check_agent(name, agent, reader)
    _check_sandboxes(config, reader)


def _check_mcp(config: HubConfig, reader: _Reader) -> None:
    for name, settings in config.mcp.items():
        if (problem := problem_of(settings)) is not None:
            raise reader.invalid(("mcp", name), f"mcp.{name} {problem}")
        if (secret := stored_secret(settings)) is not None:
            raise reader.invalid(("mcp", name), f"mcp.{name}: {secret}; {USE_VARIABLE}")


def _check_telemetry(settings: TelemetrySettings, reader: _Reader) -> None:
    if (problem := telemetry_problem(settings)) is not None:
        raise reader.invalid(("telemetry",), f"telemetry.{problem}")


def _check_spans(config: HubConfig, reader: _Reader) -> None:
    spans = {
        ("sessions", "idle_agent_minutes"): config.sessions.idle_agent_minutes,
        ("retention", "prompts_days"): config.retention.prompts_days,
        ("retention", "decisions_days"): config.retention.decisions_days,
    }
    for keys, span in spans.items():
        if not 0 <= span < _LONGEST:
            reason = f"{'.'.join(keys)} is {span}; use a number of at least 0, 0 for never"
            raise reader.invalid(keys, reason)
    seconds, minutes = config.sessions.response_seconds, config.editors.idle_minutes
    if not 0 < seconds < _LONGEST:
        reason = f"sessions.response_seconds is {seconds}; use a number of seconds above 0"
        raise reader.invalid(("sessions", "response_seconds"), reason)
    if not 0 < minutes < _LONGEST:
        reason = f"editors.idle_minutes is {minutes}; use a number above 0"
        raise reader.invalid(("editors", "idle_minutes"), reason)
    if not 1 <= config.memory.view_mb <= _MOST_MB:
        reason = f"memory.view_mb is {config.memory.view_mb}; use a number from 1 to {_MOST_MB}"
        raise reader.invalid(("memory", "view_mb"), reason)


def _check_agent(name: str, agent: AgentSettings, reader: _Reader) -> None:
    if agent.url is not None:
        _check_remote_agent(name, agent, agent.url, reader)
    elif agent.headers:
        reason = f"agents.{name}.headers are sent to a url; set agents.{name}.url"
        raise reader.invalid(("agents", name, "headers"), reason)
    elif not agent.command:
        reason = f"agents.{name} needs the key command, or url for an agent that runs elsewhere"
        raise reader.invalid(("agents", name), reason)
    elif not agent.command.strip():
        reason = f"agents.{name}.command is empty; set it to the program that starts the agent"
        raise reader.invalid(("agents", name, "command"), reason)


def _check_remote_agent(name: str, agent: AgentSettings, url: str, reader: _Reader) -> None:
    for key in ("command", "args", "env", "pass_env", "cwd", "confine"):
        if getattr(agent, key):
            reason = f"agents.{name} has a url and {key}; an agent at a url is not started here"
            raise reader.invalid(("agents", name, key), reason)
    if agent.sandbox != "off":
        reason = f"agents.{name} has a url and a sandbox; an agent elsewhere cannot be sandboxed"
        raise reader.invalid(("agents", name, "sandbox"), reason)
    problem = url_problem(url)
    if problem is not None:
        raise reader.invalid(("agents", name, "url"), f"agents.{name}.url: {problem}")
    for header, value in agent.headers.items():
        problem = header_problem(header, value)
        if problem is not None:
            raise reader.invalid(("agents", name, "headers"), f"agents.{name}.headers: {problem}")


def _check_sandboxes(config: HubConfig, reader: _Reader) -> None:
    for folder in (*config.hide, *config.projects):
        if not Path(folder).expanduser().is_absolute():
            key = "hide" if folder in config.hide else "projects"
            reason = f"{key}: {folder!r} is not an absolute path; start it with / or ~"
            raise reader.invalid((key,), reason)
    tables: list[tuple[str, str, SandboxSettings]] = []
    tables += [("agents", name, settings) for name, settings in config.agents.items()]
    tables += [("projects", name, settings) for name, settings in config.projects.items()]
    for table, name, settings in tables:
        for host in settings.sandbox_hosts:
            if not re.fullmatch(r"(\*\.)?[\w.-]+(:\d{1,5})?", host):
                reason = (
                    f"{table}.{name}.sandbox_hosts: {host!r} is not a host; use a name such as"
                    " api.example.com, *.example.com or example.com:8443"
                )
                raise reader.invalid((table, name, "sandbox_hosts"), reason)


def _choices(kind: type[Struct], inner: tuple[str, ...]) -> str:
    """Return the values that a key can have, if there is a fixed set."""
    return ", ".join(map(str, get_args(get_type_hints(kind).get(inner[0] if inner else ""))))


def _words(reason: str, choices: str) -> str:
    """Rewrite msgspec's `Expected ...` as part of a sentence."""
    words = reason.replace("`", "")
    if missing := re.match(r"Object missing required field (\w+)", words):
        return f"needs the key {missing[1]}"
    if wrong := re.match(r"Invalid enum value (.*)", words):
        return f"cannot be {wrong[1]}; use one of {choices}"
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
