"""What a hub and a runner say to each other over the link, and how values and errors cross. Pure.

    hub → runner                                runner → hub
    HubHello     protocols, features, version   RunnerHello   protocol, features, identity, state
    Call         a method (see below)           Refused       why there is no link; it ends
    Cancel       a call is not waited for       Result        of a call; events are in the body
    OpenLog      follow a session's log         Failure       of a call
    CloseLog     follow it no longer            Opened        a log, from its head on
    Ack          bytes of runs that arrived     Run           consecutive new events of a log
                                                Skipped       new events that must be read
                                                Ended         a log gets no more events
                                                Heads         numbers of logs that are not followed
                                                Changed       news, and the state that changed

**Methods.** A call names a coroutine method of `RunnerApi` (`api_methods`), or one of the others
that `LinkServer.perform` lists: the envelope endpoint, older events of the host stream, plain
functions of `RunnerApi`, and `shut_down`.

**Versions.** Each side says which protocols it speaks; the highest common one is used. Hub N works
with runner N and N-1, and the reverse. Within a protocol, unknown fields are ignored, unknown
messages and news are skipped, and a method or message that is not in the other side's `features` is
not used.

**Order.** What a runner publishes crosses in that order. A result is sent after everything that was
published before it: a caller that has a result finds its effects in the mirror.
"""

from __future__ import annotations

import inspect
import logging
import types
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from quarterdeck._version import __version__
from quarterdeck.agents import AgentSettings, McpServerSettings, SandboxSettings
from quarterdeck.errors import (
    AcpError,
    DatabaseFailed,
    JsonInvalid,
    LinkBroken,
    LogDamaged,
    QuarterdeckError,
    RequestRejected,
    RpcError,
    StorageFailed,
)
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.machine import ConfineMode
from quarterdeck.policy import Policy
from quarterdeck.protocol import (
    AgentSnapshotWire,
    HostElicitationSnapshot,
    SessionSnapshotWire,
)
from quarterdeck.runner.api import News, PermissionView, RunnerApi, RunnerHealth
from quarterdeck.runner.options import Retention, RunnerOptions
from quarterdeck.runner.sessions.catalogue import SessionOverview
from quarterdeck.storage import LogEpoch

logger = logging.getLogger(__name__)

LINK_PROTOCOL: Final = 1
OLDEST_PROTOCOL: Final = 1
FEATURES: Final[tuple[str, ...]] = ("drain", "heads", "shut-down")
"""What this side can do beyond the first version of its protocol."""

# ---- what crosses --------------------------------------------------------------------------------


class RunnerIdentity(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which runner this is."""

    version: str = __version__
    pid: int
    boot_id: str
    """Another one for each start of a runner."""
    started_at: float


class AgentEntry(Struct, frozen=True, kw_only=True):
    agent: AgentSnapshotWire
    name: str | None


class SessionEntry(Struct, frozen=True, kw_only=True):
    overview: SessionOverview
    live: SessionSnapshotWire | None
    """None if it was closed before the runner started."""


class StateChange(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What has changed of a runner's state; `RunnerMirror` has all of it."""

    is_whole: bool = False
    """It is the whole state: what is not in it is gone."""
    agents: tuple[AgentEntry, ...] = ()
    removed_agents: tuple[str, ...] = ()
    sessions: tuple[SessionEntry, ...] = ()
    removed_sessions: tuple[str, ...] = ()
    permissions: tuple[PermissionView, ...] = ()
    elicitations: tuple[HostElicitationSnapshot, ...] = ()
    removed_requests: tuple[str, ...] = ()
    health: RunnerHealth | None = None
    policy: Policy | None = None
    log_epoch: LogEpoch | None = None
    unconfirmed_epoch: LogEpoch | None = None
    """The epoch before a power cut, while the runner waits for heads to compare."""
    host_epoch: str | None = None


class RunnerSettings(Struct, frozen=True, kw_only=True):
    """The part of `RunnerOptions` that can change while a runner runs."""

    agents: dict[str, AgentSettings]
    policy: Policy
    idle_agent_minutes: float
    retention: Retention
    confine: ConfineMode
    projects: dict[str, SandboxSettings]
    mcp: dict[str, McpServerSettings] = {}
    registry: str = ""

    @classmethod
    def of(cls, options: RunnerOptions) -> RunnerSettings:
        return cls(
            agents=dict(options.agents),
            policy=options.policy,
            idle_agent_minutes=options.idle_agent_minutes,
            retention=options.retention,
            confine=options.confine,
            projects=dict(options.projects),
            mcp=dict(options.mcp),
            registry=options.registry,
        )

    def options(self) -> RunnerOptions:
        """Return them as options; a runner ignores the rest."""
        return RunnerOptions(
            home=Path(),
            agents=self.agents,
            policy=self.policy,
            idle_agent_minutes=self.idle_agent_minutes,
            retention=self.retention,
            environ={},
            confine=self.confine,
            projects=self.projects,
            mcp=self.mcp,
            registry=self.registry,
        )


# ---- hub to runner -------------------------------------------------------------------------------


class _Message(Struct, frozen=True, kw_only=True, tag_field="is", rename="camel"):
    """One header."""


class HubHello(_Message, frozen=True, tag="hello"):
    oldest: int = OLDEST_PROTOCOL
    newest: int = LINK_PROTOCOL
    features: tuple[str, ...] = FEATURES
    version: str = __version__


class Call(_Message, frozen=True, tag="call"):
    id: int
    method: str
    params: dict[str, Any]
    sizes: tuple[int, ...] | None = None
    """Of the parts of the body, which are the parameter `events`."""


class Cancel(_Message, frozen=True, tag="cancel"):
    id: int


class OpenLog(_Message, frozen=True, tag="open"):
    id: int
    """As of a call: `Opened` or `Failure` answers it."""
    log: int
    """The hub's name for it."""
    session_id: str | None = None


class CloseLog(_Message, frozen=True, tag="close"):
    log: int


class Ack(_Message, frozen=True, tag="ack"):
    size: int


FromHub: TypeAlias = HubHello | Call | Cancel | OpenLog | CloseLog | Ack

# ---- runner to hub -------------------------------------------------------------------------------


class RunnerHello(_Message, frozen=True, tag="hello"):
    protocol: int
    features: tuple[str, ...]
    identity: RunnerIdentity
    state: StateChange


class Refused(_Message, frozen=True, tag="refused"):
    message: str


class Result(_Message, frozen=True, tag="result", omit_defaults=True):
    id: int
    value: Any = None
    sizes: tuple[int, ...] | None = None
    """Of the parts of the body, if the result is a list of bytes."""


class LinkError(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An exception, as the other side raises it again."""

    kind: str
    message: str
    code: str | int = ""
    data: Any = None
    retryable: bool = False
    path: str = ""
    remedy: str = ""
    session_id: str = ""
    is_final: bool = False


class Failure(_Message, frozen=True, tag="failure"):
    id: int
    error: LinkError


class Opened(_Message, frozen=True, tag="opened"):
    id: int
    log: int
    head: int
    first: int
    has_ended: bool
    was_closed: bool


class Run(_Message, frozen=True, tag="run", omit_defaults=True):
    """Consecutive events of a log that were published together; their bytes are the body."""

    log: int
    last: int
    sizes: tuple[int, ...]
    first: int = 1
    """The number of the oldest event that can be read."""


class Skipped(_Message, frozen=True, tag="skipped", omit_defaults=True):
    log: int
    head: int
    first: int = 1


class Ended(_Message, frozen=True, tag="ended"):
    log: int


class Heads(_Message, frozen=True, tag="heads"):
    heads: dict[str, int]


class Changed(_Message, frozen=True, tag="changed"):
    change: StateChange
    news: Any = None
    """Read by `read_news`: a newer runner may report what this hub does not know."""


FromRunner: TypeAlias = (
    RunnerHello | Refused | Result | Failure | Opened | Run | Skipped | Ended | Heads | Changed
)


# ---- reading -------------------------------------------------------------------------------------


class _Tagged(Struct):
    is_: str = msgspec.field(name="is")


_TAGS: Final = {
    union: frozenset(str(each.__struct_config__.tag) for each in get_args(union))
    for union in (FromHub, FromRunner)
}
_read_tag = msgspec.json.Decoder(_Tagged).decode


def message_reader(union: Any) -> Callable[[bytes], Any]:
    """Return what reads a header of one direction; None for a message of a newer version.

    Raises, when called:
        LinkBroken: if it is not a message.
    """
    read = msgspec.json.Decoder(union).decode

    def reader(header: bytes) -> Any:
        try:
            return read(header)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return _read_slowly(header, union)

    return reader


def _read_slowly(header: bytes, union: Any) -> Any:
    """Read a message that has half of a surrogate pair, or that is not for us."""
    try:
        return msgspec.convert(decode_json(header), union)
    except (msgspec.ValidationError, JsonInvalid) as error:
        try:
            is_newer = _read_tag(header).is_ not in _TAGS[union]
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            is_newer = False
        if is_newer:
            logger.debug("a message of a newer version was skipped")
            return None
        raise LinkBroken(f"a message of the link cannot be read: {error}") from error


def read_news(value: Any) -> News | None:
    """Return news; None if there are none, or of a kind that a newer version added."""
    news: News | None = None
    try:
        news = msgspec.convert(value, News | None)
    except msgspec.ValidationError:
        logger.debug("news of a newer version were skipped")
    return news


# ---- values --------------------------------------------------------------------------------------


class MethodShape(Struct, frozen=True):
    """The types of a method's parameters and of its result."""

    parameters: dict[str, Any]
    required: frozenset[str]
    result: Any

    @property
    def returns_bytes(self) -> bool:
        return bool(self.result == list[bytes])


@cache
def method_shape(method: str) -> MethodShape:
    """Return the types of a method of `RunnerApi`."""
    function = getattr(RunnerApi, method)
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    required = (each.name for each in parameters if each.default is each.empty)
    return MethodShape(
        result=hints.pop("return"),
        required=frozenset(required) - {"self"},
        parameters=hints,
    )


@cache
def api_methods() -> frozenset[str]:
    """Return the names of all methods of `RunnerApi` that can be awaited."""
    members = inspect.getmembers(RunnerApi, inspect.iscoroutinefunction)
    return frozenset(name for name, _ in members if not name.startswith("_")) - {"open_log"}


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    return msgspec.to_builtins(value, enc_hook=_written)


def typed(value: Any, hint: Any) -> Any:
    """Return a JSON value as its type."""
    if hint is type(None) or hint is Any:
        return value
    if _is_json(hint):
        return value
    return msgspec.convert(value, hint, dec_hook=_read_path)


def _is_json(hint: Any) -> bool:
    """Whether a type is JSON that is passed on as it is."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return all(each is type(None) or _is_json(each) for each in get_args(hint))
    return origin in (dict, list, Mapping) and Any in get_args(hint)


def _written(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"objects of type {type(value).__name__} cannot cross the link")


def _read_path(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value)
    raise TypeError(f"objects of type {kind.__name__} cannot cross the link")


def encode_message(message: Struct) -> bytes:
    """Return a header as JSON."""
    try:
        return msgspec.json.encode(message, enc_hook=_written)
    except UnicodeEncodeError:  # half of a surrogate pair
        return encode_json(plain(message))


# ---- errors --------------------------------------------------------------------------------------


def error_to_wire(error: BaseException) -> LinkError:
    """Return an exception as it crosses."""
    match error:
        case RequestRejected() | AcpError():
            is_ours = isinstance(error, RequestRejected)
            return LinkError(
                kind="rejected" if is_ours else "acp",
                code=error.code.removeprefix("quarterdeck/") if is_ours else str(error.code),
                message=error.message,
                data=plain(error.data),
                retryable=error.retryable,
            )
        case RpcError():
            return LinkError(
                kind="rpc", code=error.code, message=error.message, data=plain(error.data)
            )
        case LogDamaged():
            return LinkError(
                kind="damaged",
                message=error.reason,
                path=error.path,
                session_id=error.session_id,
            )
        case StorageFailed() | DatabaseFailed():
            is_log = isinstance(error, StorageFailed)
            return LinkError(
                kind="storage" if is_log else "database",
                message=error.reason,
                path=error.path,
                remedy=error.remedy,
                is_final=isinstance(error, StorageFailed) and error.is_final,
            )
        case QuarterdeckError():
            return LinkError(kind="rejected", code="failed", message=str(error))
        case _:
            return LinkError(
                kind="rejected",
                code="failed",
                message="the runner failed to carry this out; runner.log has the reason",
            )


def error_from_wire(error: LinkError) -> QuarterdeckError:
    """Return the exception that crossed."""
    code, data = str(error.code), error.data
    match error.kind:
        case "acp":
            return AcpError(code, error.message, data=data, retryable=error.retryable)
        case "rpc":
            number = error.code if isinstance(error.code, int) else 0
            return RpcError(number, error.message, data)
        case "damaged":
            return LogDamaged(error.path, error.session_id, error.message)
        case "storage":
            return StorageFailed(error.path, error.message, error.remedy, is_final=error.is_final)
        case "database":
            return DatabaseFailed(error.path, error.message, error.remedy)
        case _:
            return RequestRejected(code, error.message, data=data, retryable=error.retryable)
