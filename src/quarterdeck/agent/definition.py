"""The `Agent` interface, and the modes and config options that an agent's sessions have. Pure.

An agent is an object with `prompt`, or just that function; every other member is optional.
`inspect_agent` reads the members once, and the server offers clients only what it found.

An agent with modes also gets a config option `mode` with the same value: newer clients show
options, older ones modes. An agent that defines its own option `mode` keeps it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from quarterdeck._version import __version__
from quarterdeck.agent.checks import Json, invalid
from quarterdeck.errors import AgentError

if TYPE_CHECKING:
    from quarterdeck.agent.session import AgentSession
    from quarterdeck.agent.turn import AgentTurn


STOP_REASONS = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")


@dataclass(frozen=True, slots=True)
class Stop:
    """Yield it to end a turn with a reason other than `end_turn`."""

    reason: str

    def __post_init__(self) -> None:
        if self.reason not in STOP_REASONS:
            known = ", ".join(STOP_REASONS)
            raise AgentError(f"there is no stop reason {self.reason!r}; choose from {known}")


@dataclass(frozen=True, slots=True)
class Mode:
    """One mode a session can be in."""

    id: str
    name: str
    description: str | None = None

    def to_json(self) -> dict[str, Any]:
        known = {"id": self.id, "name": self.name, "description": self.description}
        return {key: value for key, value in known.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Info:
    """An agent's name and version, as clients show them."""

    name: str
    version: str
    title: str | None = None

    def to_json(self) -> dict[str, Any]:
        known = {"name": self.name, "title": self.title, "version": self.version}
        return {key: value for key, value in known.items() if value is not None}


Yielded: TypeAlias = "str | Json | Stop"
"""Text of the answer, a complete ACP update, or the end of the turn."""

Prompt: TypeAlias = "Callable[[AgentTurn], AsyncIterator[Yielded] | Awaitable[str | Stop | None]]"


class Agent(Protocol):
    """The one member an agent must have.

    Optional members; clients are offered those that exist:

        info                                       Info, or a mapping: name, version, title
        prompt_capabilities                        {"image": True, "audio": True, "embeddedContext": True}
        modes, default_mode                        a sequence of Mode or mappings; an id
        async open_session(session)                after new, load and resume; raise to reject
        async close_session(session)
        async set_mode(session, mode_id)           raise to reject
        config_options(session)                    a sequence of ACP's config options
        async set_config_option(session, config_id, value)
        commands(session)                          a sequence of ACP's available commands
        auth_methods, async authenticate(method_id)
        async logout()
        async with agent                           entered for as long as it is served
    """  # noqa: E501 - a table

    def prompt(self, turn: AgentTurn) -> AsyncIterator[Yielded] | Awaitable[str | Stop | None]:
        """Answer one prompt: an async generator, or a coroutine that returns a stop reason."""
        ...


SessionHook: TypeAlias = "Callable[[AgentSession], Awaitable[None]]"
SessionFacts: TypeAlias = "Callable[[AgentSession], Sequence[Json]]"


@dataclass(frozen=True, slots=True)
class ServedAgent:
    """The members of an agent; missing ones are None or empty."""

    prompt: Prompt
    info: dict[str, Any]
    prompt_capabilities: dict[str, bool]
    modes: tuple[dict[str, Any], ...]
    default_mode: str | None
    auth_methods: tuple[Json, ...]
    open_session: SessionHook | None
    close_session: SessionHook | None
    set_mode: Callable[[AgentSession, str], Awaitable[None]] | None
    config_options: SessionFacts | None
    set_config_option: Callable[[AgentSession, str, Any], Awaitable[None]] | None
    commands: SessionFacts | None
    authenticate: Callable[[str], Awaitable[None]] | None
    logout: Callable[[], Awaitable[None]] | None

    @property
    def has_config_options(self) -> bool:
        return bool(self.modes) or self.config_options is not None


def inspect_agent(agent: Agent | Prompt) -> ServedAgent:
    """Read the members of an agent.

    Raises:
        AgentError: if the object is not an agent, or a member has the wrong shape.
    """
    prompt = getattr(agent, "prompt", None) or agent
    if isinstance(agent, type) or not callable(prompt):
        what = getattr(agent, "__name__", type(agent).__name__)
        advice = "pass a function of a turn or an object with prompt"
        raise AgentError(f"{what} is not an agent; {advice}")
    modes = tuple(_mode(each) for each in getattr(agent, "modes", ()))
    return ServedAgent(
        prompt=prompt,
        info=_info(getattr(agent, "info", None), prompt),
        prompt_capabilities=_prompt_capabilities(getattr(agent, "prompt_capabilities", {})),
        modes=modes,
        default_mode=_default_mode(getattr(agent, "default_mode", None), modes),
        auth_methods=tuple(getattr(agent, "auth_methods", ())),
        open_session=getattr(agent, "open_session", None),
        close_session=getattr(agent, "close_session", None),
        set_mode=getattr(agent, "set_mode", None),
        config_options=getattr(agent, "config_options", None),
        set_config_option=getattr(agent, "set_config_option", None),
        commands=getattr(agent, "commands", None),
        authenticate=getattr(agent, "authenticate", None),
        logout=getattr(agent, "logout", None),
    )


def _info(info: Info | Json | None, prompt: Any) -> dict[str, Any]:
    match info:
        case None:
            name = getattr(prompt, "__name__", "agent")
            return Info(name if name != "prompt" else "agent", __version__).to_json()
        case Info():
            return info.to_json()
        case _ if isinstance(info.get("name"), str) and isinstance(info.get("version"), str):
            return dict(info)
        case _:
            raise AgentError("the info of an agent needs a name and a version, both strings")


def _prompt_capabilities(named: Json) -> dict[str, bool]:
    known = ("image", "audio", "embeddedContext")
    strange = [name for name in named if name not in known]
    if strange:
        raise AgentError(f"there is no prompt capability {strange[0]!r}; there are {known}")
    return {name: bool(named.get(name)) for name in known}


def _mode(mode: Mode | Json) -> dict[str, Any]:
    plain = mode.to_json() if isinstance(mode, Mode) else dict(mode)
    if not isinstance(plain.get("id"), str) or not isinstance(plain.get("name"), str):
        raise AgentError("a mode needs an id and a name, both strings")
    return plain


def _default_mode(named: str | None, modes: Sequence[Json]) -> str | None:
    ids = [each["id"] for each in modes]
    if named is None:
        return ids[0] if ids else None
    if named not in ids:
        raise AgentError(f"the default mode {named!r} is not among the modes")
    return named


MODE_OPTION: Final = "mode"


def mode_state(modes: Sequence[Json], current: str | None) -> dict[str, Any] | None:
    """Return the `modes` field of a response; None if the agent has no modes."""
    if not modes or current is None:
        return None
    return {"currentModeId": current, "availableModes": [dict(mode) for mode in modes]}


def check_mode(modes: Sequence[Json], mode_id: str) -> None:
    """Raise `RpcError` for an unknown mode."""
    ids = [mode["id"] for mode in modes]
    if mode_id not in ids:
        raise invalid(f"unsupported mode {mode_id!r}; there are {', '.join(ids)}")


def option_state(
    modes: Sequence[Json], current: str | None, own: Sequence[Json], values: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return all config options with their current values; `own` are those the agent defines."""
    options = [{**each, "currentValue": _current(each, values)} for each in own]
    if modes and current is not None and all(each.get("id") != MODE_OPTION for each in options):
        options.insert(0, _mode_option(modes, current))
    return options


def _current(option: Json, values: Mapping[str, Any]) -> Any:
    """Return the value that was set, or the default if the option no longer accepts it."""
    if not isinstance(option.get("id"), str) or "currentValue" not in option:
        raise AgentError("a config option needs an id, a name, a type and a currentValue")
    chosen = values.get(option["id"])
    is_accepted = chosen is not None and option_problem(option, chosen) is None
    return chosen if is_accepted else option["currentValue"]


def _mode_option(modes: Sequence[Json], current: str) -> dict[str, Any]:
    known = ("description",)
    options = [
        {"value": mode["id"], "name": mode["name"], **{k: mode[k] for k in known if k in mode}}
        for mode in modes
    ]
    return {
        "id": MODE_OPTION,
        "name": "Mode",
        "category": MODE_OPTION,
        "type": "select",
        "currentValue": current,
        "options": options,
    }


def find_option(options: Sequence[Json], config_id: str) -> Json:
    for option in options:
        if option["id"] == config_id:
            return option
    ids = ", ".join(str(option["id"]) for option in options)
    raise invalid(f"there is no config option {config_id!r}; there are {ids}")


def option_problem(option: Json, value: Any) -> str | None:
    """Return why an option rejects a value; None if it accepts it."""
    if option.get("type") == "boolean":
        return None if isinstance(value, bool) else f"{option['id']} must be true or false"
    if not isinstance(value, str):
        return f"{option['id']} must be a string"
    values = list(_values(option.get("options", ())))
    if value in values:
        return None
    return f"{option['id']} cannot be {value!r}; there are {', '.join(values)}"


def _values(options: Sequence[Json]) -> Iterator[str]:
    for each in options:
        if "value" in each:
            yield each["value"]
        else:
            yield from _values(each.get("options", ()))
