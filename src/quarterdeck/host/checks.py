"""Checks of what callers pass to a host, and the coded errors that a host raises.

A value is checked before anything is done with it: a call that raises has changed nothing.
"""

from __future__ import annotations

from typing import Any

from quarterdeck.errors import AcpError
from quarterdeck.jsontext import UNWRITABLE, encode_json
from quarterdeck.protocol import ERROR_CODES


def config_invalid(message: str) -> AcpError:
    return AcpError(ERROR_CODES["config_invalid"], message)


def session_closed(message: str) -> AcpError:
    return AcpError(ERROR_CODES["session_closed"], message)


def agent_exited(message: str) -> AcpError:
    return AcpError(ERROR_CODES["agent_exited"], message)


def agent_misbehaved(message: str) -> AcpError:
    return AcpError(ERROR_CODES["agent_error"], message)


def unsupported(message: str) -> AcpError:
    return AcpError(ERROR_CODES["capability_unsupported"], message)


def check_json(value: Any, what: str) -> None:
    """Refuse a value that cannot be sent or stored.

    Raises:
        AcpError: `acpjs/config-invalid`.
    """
    try:
        encode_json(value)
    except UNWRITABLE as error:
        raise config_invalid(f"{what} cannot be written as JSON: {error}") from error


def check_text(value: Any, what: str) -> str:
    """Return a string as it is.

    Raises:
        AcpError: `acpjs/config-invalid` if it is none.
    """
    if not isinstance(value, str):
        raise config_invalid(f"{what} must be a text, not {type(value).__name__}")
    return value
