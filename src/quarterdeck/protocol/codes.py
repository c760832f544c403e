"""Names that both ends of an envelope spell alike: error codes and method names."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final


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


ERROR_CODES: Final = MappingProxyType({code.name.lower(): code.value for code in AcpErrorCode})
"""`config_invalid` → "acpjs/config-invalid", and so on; cannot be changed."""

HOST_RPC_METHODS: Final = MappingProxyType(
    {method.name.lower(): method.value for method in AcpRpcMethod}
)
"""`spawn_agent` → "agents/spawn", and so on; cannot be changed."""

_CODES: Final = frozenset(ERROR_CODES.values())


def is_error_code(value: object) -> bool:
    """Tell whether `value` is one of `ERROR_CODES`."""
    return isinstance(value, str) and value in _CODES
