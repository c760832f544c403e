"""Options of a host and definitions of agents, validated before anything runs.

`resolve_*` accept plain objects (JSON, keyword dicts) or the classes here, and return the frozen,
complete result or raise `AcpError` with `acpjs/config-invalid`. No other code checks options again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from quarterdeck.host.acp2.handshake import PROTOCOLS, Protocol
from quarterdeck.host.capabilities import (
    SHOWN_FEATURES,
    FsHandler,
    TerminalHandler,
    check_terminal,
)
from quarterdeck.host.checks import config_invalid
from quarterdeck.host.requests.permission_request import FindDecision, OnPermission
from quarterdeck.host.secrets import Inherit
from quarterdeck.http.remote_agent import header_problem, url_problem
from quarterdeck.machine import NOTHING_HIDDEN, ConfinedStart, DefaultFsHandler, HiddenFolders
from quarterdeck.protocol import AgentDefinition
from quarterdeck.storage import MemoryStorage, Storage

RestartPolicy = Literal["never", "on-crash"]
ElicitationMode = Literal["form", "url"]
ShownFeature = Literal["notices", "compaction", "boolean-options", "terminal-sign-in"]
Confine = Callable[[AgentDefinition], ConfinedStart]
CheckWorkspace = Callable[[AgentDefinition, str], str | None]
PromptMeta = Callable[[str, int], Mapping[str, Any]]
MODES = ("form", "url")
STORAGE_METHODS = ("open", "append", "read", "sessions", "delete_events", "close")


@dataclass(frozen=True, kw_only=True)
class RestartBackoff:
    """Wait `initial_ms`, then `factor` times as long after each failure, at most `max_ms`."""

    initial_ms: float = 1000
    factor: float = 2
    max_ms: float = 30_000

    def delay_ms(self, restarts: int) -> float:
        """Return how long to wait before restart number `restarts` + 1."""
        try:
            return min(self.initial_ms * self.factor**restarts, self.max_ms)
        except OverflowError:
            return self.max_ms


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """How a host runs its agents; immutable, build another host to change it."""

    restart: RestartPolicy | None = None
    restart_limit: int | None = None
    restart_backoff: RestartBackoff | Mapping[str, Any] | None = None
    storage: Storage | None = None
    fs: FsHandler | None = None
    terminal: TerminalHandler | None = None
    kill_timeout_ms: float | None = None
    open_timeout_ms: float | None = None
    response_timeout_ms: float | None = None
    elicitation: Sequence[ElicitationMode] | None = None
    shows: Sequence[ShownFeature] | None = None
    inherit: Inherit | None = None
    on_permission: OnPermission | None = None
    find_decision: FindDecision | None = None
    hidden: Sequence[str | Path] | None = None
    confine: Confine | None = None
    check_workspace: CheckWorkspace | None = None
    prompt_meta: PromptMeta | None = None


@dataclass(frozen=True, kw_only=True)
class ResolvedHostOptions:
    """`HostOptions` with every default filled in."""

    restart: RestartPolicy = "never"
    restart_limit: int = 3
    restart_backoff: RestartBackoff = field(default_factory=RestartBackoff)
    storage: Storage = field(default_factory=MemoryStorage)
    fs: FsHandler = field(default_factory=DefaultFsHandler)
    terminal: TerminalHandler | None = None
    kill_timeout_ms: float = 5000
    open_timeout_ms: float = 600_000
    """For an agent to answer `session/new`, `session/load` or `session/resume`: a long history
    takes long, but an agent that never answers must not keep a session busy for ever."""
    response_timeout_ms: float = 30_000
    """After which an agent that does not end a cancelled turn, or does not read its input during a
    turn, is reported as unresponsive."""
    elicitation: tuple[ElicitationMode, ...] = ()
    """The modes of elicitations that the embedding program answers: "form", "url", or both."""
    shows: tuple[ShownFeature, ...] = ()
    """What the embedding program shows, of what agents send only if it is shown: "notices",
    "compaction", "boolean-options", "terminal-sign-in". None by default."""
    inherit: Inherit | None = None
    """Returns the environment that an agent inherits, below its own `env`; by default that of this
    process, without the tokens of Quarterdeck."""
    on_permission: OnPermission | None = None
    """Decides permission requests before they are published; by default all become pending."""
    find_decision: FindDecision | None = None
    """Returns how a permission request that a log leaves open was decided, if that is known: the
    outcome, and who or what decided. By default such requests are superseded."""
    hidden: HiddenFolders = NOTHING_HIDDEN
    """Folders that no session can work in and no file service reads; none by default."""
    confine: Confine | None = None
    """Returns how the process of an agent is confined; it may block for a moment. By default an
    agent runs with all rights of this process."""
    check_workspace: CheckWorkspace | None = None
    """Returns why an agent must not work in a folder, or None."""
    prompt_meta: PromptMeta | None = None
    """Returns the `_meta` of a prompt that is sent to an agent, given the session and the number of
    the event that began the turn; none by default."""


def resolve_host_options(
    options: HostOptions | Mapping[str, Any] | None = None,
) -> ResolvedHostOptions:
    """Check options and fill in the defaults; None means the default everywhere.

    Raises:
        AcpError: `acpjs/config-invalid`, naming the first option that is wrong.
    """
    given = _as_mapping(options)
    chosen: dict[str, Any] = {}
    for name, check in _CHECKS.items():
        value = given.get(name)
        if value is not None:
            chosen[name] = check(value)
    if "hidden" in chosen:
        chosen.setdefault("fs", DefaultFsHandler(hidden=chosen["hidden"]))
    return ResolvedHostOptions(**chosen)


def _as_mapping(options: HostOptions | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if options is None:
        return {}
    if isinstance(options, HostOptions):
        return {each.name: getattr(options, each.name) for each in fields(options)}
    if not isinstance(options, Mapping):
        raise config_invalid("host options must be an object")
    return {_SNAKE.get(name, name): value for name, value in options.items()}


_SNAKE = {
    "restartLimit": "restart_limit",
    "restartBackoff": "restart_backoff",
    "killTimeoutMs": "kill_timeout_ms",
    "openTimeoutMs": "open_timeout_ms",
    "responseTimeoutMs": "response_timeout_ms",
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_Check = Callable[[Any], Any]
"""Returns the value of an option as the host uses it, or raises `acpjs/config-invalid`."""


def _check_restart(value: Any) -> RestartPolicy:
    if value not in ("never", "on-crash"):
        raise config_invalid("invalid restart mode: it is 'never' or 'on-crash'")
    return "never" if value == "never" else "on-crash"


def _check_restart_limit(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise config_invalid("invalid restartLimit: it is a whole number, 0 or more")
    return value


def _check_backoff(value: Any) -> RestartBackoff:
    if isinstance(value, RestartBackoff):
        parts: Any = (value.initial_ms, value.factor, value.max_ms)
    elif isinstance(value, Mapping):
        parts = tuple(
            value.get(camel, value.get(snake))
            for camel, snake in (
                ("initialMs", "initial_ms"),
                ("factor", "factor"),
                ("maxMs", "max_ms"),
            )
        )
    else:
        parts = (None,)
    if not all(map(_is_number, parts)) or parts[0] <= 0 or parts[1] < 1 or parts[2] <= 0:
        raise config_invalid(
            "invalid restartBackoff: initialMs and maxMs are above 0, the factor is at least 1"
        )
    initial_ms, factor, max_ms = parts
    return RestartBackoff(initial_ms=initial_ms, factor=factor, max_ms=max_ms)


def _milliseconds(name: str) -> _Check:
    def check(value: Any) -> float:
        if not _is_number(value) or value <= 0:
            raise config_invalid(f"invalid {name}: it is a number of milliseconds above 0")
        return float(value)

    return check


def _function_of(name: str, arguments: str) -> _Check:
    """Return the check of an option that is a function; its arguments cannot be checked."""

    def check(value: Any) -> Any:
        if not callable(value):
            raise config_invalid(f"{name} must be a function of {arguments}")
        return value

    return check


def _check_elicitation(value: Any) -> tuple[ElicitationMode, ...]:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or not all(each in MODES for each in value):
        raise config_invalid("invalid elicitation: it is a list of 'form', 'url' or both")
    return tuple(dict.fromkeys(value))


def _check_shows(value: Any) -> tuple[ShownFeature, ...]:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or not all(each in SHOWN_FEATURES for each in value):
        raise config_invalid(f"invalid shows: it is a list of {', '.join(SHOWN_FEATURES)}")
    return tuple(dict.fromkeys(value))


def _check_storage(value: Any) -> Storage:
    missing = [name for name in STORAGE_METHODS if not callable(getattr(value, name, None))]
    if missing:
        raise config_invalid(f"storage has no method {missing[0]}")
    storage: Storage = value
    return storage


def _check_fs(value: Any) -> FsHandler:
    handler: FsHandler = value
    return handler


def _check_terminal(value: Any) -> TerminalHandler | None:
    check_terminal(value)
    handler: TerminalHandler = value
    return handler


def _check_hidden(value: Any) -> HiddenFolders:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or not all(isinstance(each, str | Path) for each in value):
        raise config_invalid("invalid hidden: it is a list of folders")
    return HiddenFolders(value)


_CHECKS: dict[str, _Check] = {
    "restart": _check_restart,
    "restart_limit": _check_restart_limit,
    "restart_backoff": _check_backoff,
    "kill_timeout_ms": _milliseconds("killTimeoutMs"),
    "storage": _check_storage,
    "fs": _check_fs,
    "terminal": _check_terminal,
    "open_timeout_ms": _milliseconds("openTimeoutMs"),
    "response_timeout_ms": _milliseconds("responseTimeoutMs"),
    "elicitation": _check_elicitation,
    "shows": _check_shows,
    "inherit": _function_of("inherit", "an agent's definition"),
    "on_permission": _function_of("onPermission", "a permission request"),
    "find_decision": _function_of("findDecision", "a session and a request"),
    "hidden": _check_hidden,
    "confine": _function_of("confine", "an agent's definition"),
    "check_workspace": _function_of("checkWorkspace", "a definition and a folder"),
    "prompt_meta": _function_of("promptMeta", "a session and a number"),
}


def resolve_agent_definition(
    definition: AgentDefinition | Mapping[str, Any], *, host_cwd: Path | None = None
) -> AgentDefinition:
    """Check how to start an agent and make its directory absolute.

    Raises:
        AcpError: `acpjs/config-invalid`, naming what is wrong.
    """
    given = _definition_mapping(definition)
    names = ("id",) if given.get("url") is not None else ("id", "command")
    for name in names:
        value = given.get(name)
        if not isinstance(value, str) or not value.strip():
            raise config_invalid(f"agent definition {name} must be a non-empty string")
    _check_url(given)
    cwd = given.get("cwd", "")
    if not isinstance(cwd, str):
        raise config_invalid("agent definition cwd must be a string")
    return AgentDefinition(
        id=given["id"],
        command=given.get("command", ""),
        args=_args(given.get("args")),
        env=_env(given),
        cwd=_absolute(host_cwd or Path.cwd(), cwd),
        meta=_meta(given),
        url=given.get("url"),
        headers=_headers(given),
        protocol=_protocol(given.get("protocol")),
    )


def _protocol(value: Any) -> Protocol | None:
    if value is None or (value in PROTOCOLS and not isinstance(value, bool)):
        return value
    raise config_invalid('agent definition protocol must be "auto", 1 or 2')


def _definition_mapping(definition: Any) -> Mapping[str, Any]:
    if isinstance(definition, AgentDefinition):
        return {
            name: value
            for name in definition.__struct_fields__
            if (value := getattr(definition, name)) is not None
        }
    if not isinstance(definition, Mapping):
        raise config_invalid("agent definition must be an object")
    return definition


def _absolute(base: Path, path: str) -> str:
    """Resolve as node's path.resolve does: dots are folded, links are not followed."""
    parts: list[str] = []
    for part in (base / path).parts[1:]:
        if part == "..":
            parts = parts[:-1]
        elif part != ".":
            parts.append(part)
    return "/" + "/".join(parts)


def absolute_path(path: str) -> str:
    """Make a path absolute against the directory the host runs in."""
    return _absolute(Path.cwd(), path)


def _args(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise config_invalid("agent definition args must be a string array")
    return tuple(value)


def _env(given: Mapping[str, Any]) -> Mapping[str, str] | None:
    if "env" not in given:
        return None
    env = given["env"]
    if not isinstance(env, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in env.items()
    ):
        raise config_invalid("agent definition env must be a string map")
    return MappingProxyType(dict(env))


def _check_url(given: Mapping[str, Any]) -> None:
    url = given.get("url")
    if url is None:
        if given.get("headers"):
            raise config_invalid("agent definition headers need a url")
        return
    if not isinstance(url, str):
        raise config_invalid("agent definition url must be a string")
    for name in ("command", "args", "env"):
        if given.get(name):
            raise config_invalid(f"agent definition has a url and {name}; it takes one of them")
    problem = url_problem(url)
    if problem is not None:
        raise config_invalid(f"agent definition url: {problem}")


def _headers(given: Mapping[str, Any]) -> Mapping[str, str] | None:
    headers = given.get("headers")
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise config_invalid("agent definition headers must be a string map")
    problem = next(filter(None, (header_problem(*each) for each in headers.items())), None)
    if problem is not None:
        raise config_invalid(f"agent definition headers: {problem}")
    return MappingProxyType(dict(headers))


def _meta(given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if "meta" not in given:
        return None
    meta = given["meta"]
    if isinstance(meta, list | tuple):  # in JavaScript an array is an object, too
        meta = {str(index): value for index, value in enumerate(meta)}
    if not isinstance(meta, Mapping):
        raise config_invalid("agent definition meta must be an object")
    return MappingProxyType(dict(meta))
