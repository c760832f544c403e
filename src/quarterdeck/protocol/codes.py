"""Names that both ends of an envelope spell alike: error codes and method names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from typing_extensions import override


class AcpErrorCode(StrEnum):
    """The closed set of codes an `AcpError` and an `ErrorObject` carry."""

    CONFIG_INVALID = "acpjs/config-invalid"
    PROMPT_IN_FLIGHT = "acpjs/prompt-in-flight"
    ALREADY_ANSWERED = "acpjs/already-answered"
    SESSION_CLOSED = "acpjs/session-closed"
    AGENT_EXITED = "acpjs/agent-exited"
    CAPABILITY_UNSUPPORTED = "acpjs/capability-unsupported"
    # The two codes of the contract itself: an agent's own JSON-RPC error, carried in `data`, and a
    # call refused because the transport has closed, which may be tried again.
    AGENT_ERROR = "acpjs/agent-error"
    TRANSPORT_CLOSED = "acpjs/transport-closed"


class AcpRpcMethod(StrEnum):
    """What a client may ask of a host through an envelope."""

    SPAWN_AGENT = "agents/spawn"
    LIST_AGENTS = "agents/list"
    DISPOSE_AGENT = "agents/dispose"
    CREATE_SESSION = "sessions/create"
    LOAD_SESSION = "sessions/load"
    LIST_SESSIONS = "sessions/list"
    RESUME_SESSION = "sessions/resume"
    DELETE_SESSION = "sessions/delete"
    PROMPT = "sessions/prompt"
    CANCEL = "sessions/cancel"
    CLOSE_SESSION = "sessions/close"
    SET_MODE = "sessions/setMode"
    SET_CONFIG_OPTION = "sessions/setConfigOption"
    GET_ALL_SESSIONS = "sessions/getAll"
    RESTORE_SESSIONS = "sessions/restore"
    # From later versions of acpjs than 0.4.0: our host signs in and out.
    AUTHENTICATE = "agents/authenticate"
    LOGOUT = "agents/logout"


class Names(Mapping[str, str]):
    """Spellings by name; cannot be changed. Both a name and a spelling are `in` it."""

    def __init__(self, members: type[StrEnum]) -> None:
        self._spellings = {member.name.lower(): member.value for member in members}

    @override
    def __getitem__(self, name: str) -> str:
        return self._spellings[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._spellings)

    @override
    def __len__(self) -> int:
        return len(self._spellings)

    @override
    def __contains__(self, name: object) -> bool:
        return name in self._spellings or name in self._spellings.values()

    @override
    def __repr__(self) -> str:
        return repr(self._spellings)


ERROR_CODES: Final = Names(AcpErrorCode)
"""`config_invalid` → "acpjs/config-invalid", and so on."""

HOST_RPC_METHODS: Final = Names(AcpRpcMethod)
"""`spawn_agent` → "agents/spawn", and so on."""

_CODES: Final = frozenset(ERROR_CODES.values())


def is_error_code(value: object) -> bool:
    """Tell whether `value` is one of `ERROR_CODES`."""
    return isinstance(value, str) and value in _CODES
