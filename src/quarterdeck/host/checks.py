"""Checks of what callers pass to a host, and the coded errors that a host raises.

A value is checked before anything is done with it: a call that raises has changed nothing.
"""

from __future__ import annotations

from typing import Any, Final

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


LONGEST_SESSION_ID: Final = 1024
"""Bytes: an id is part of addresses, which servers and proxies limit to a few kilobytes."""


def check_session_id(value: Any) -> str:
    """Return a session's id as it is.

    Raises:
        AcpError: `acpjs/config-invalid` if it is none, or too long.
    """
    text = check_text(value, "the session's id")
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LONGEST_SESSION_ID:
        message = f"a session's id has at most {LONGEST_SESSION_ID} bytes; this one has {size}"
        raise config_invalid(message)
    return text


def check_text(value: Any, what: str) -> str:
    """Return a string as it is.

    Raises:
        AcpError: `acpjs/config-invalid` if it is none.
    """
    if not isinstance(value, str):
        raise config_invalid(f"{what} must be a text, not {type(value).__name__}")
    return value


def stop_sentence(session_id: str, reason: str) -> str:
    """Return what to tell a user about a session that gets no more events."""
    return (
        f"session {session_id} has stopped: {reason};"
        " its log can be read, start a new session to continue"
    )
