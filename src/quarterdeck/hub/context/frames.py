"""The frames of the context protocol: what clients send, and what they are sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, assert_never, get_args

import msgspec
from msgspec import UNSET, UnsetType

from quarterdeck.agents.adapters import context_error
from quarterdeck.errors import AcpError, JsonInvalid, QuarterdeckError, RequestRejected
from quarterdeck.hub.auth.device import Scope
from quarterdeck.jsontext import decode_json, describe_mismatch, encode_json
from quarterdeck.protocol import (
    ERROR_CODES,
    SessionSnapshotWire,
    SessionStatus,
)
from quarterdeck.runner import SessionOverview
from quarterdeck.views.context import ACPCommand

MACHINE_ID: Final = "local"


class KnownSession(NamedTuple):
    """What a session is listed by."""

    title: str | None
    first_at: str
    last_at: str
    last_message: str | None = None
    model: str | None = None
    mode: str | None = None


class _Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type"):
    """A frame of a client; by its `type`."""

    scope: ClassVar[Scope] = "view"


class Auth(_Message, frozen=True, kw_only=True, tag="auth"):
    token: str


class Ping(_Message, frozen=True, kw_only=True, tag="ping"):
    """To be answered with `pong`."""


class ContextSubscribe(_Message, frozen=True, kw_only=True, tag="subscribe"):
    session_ids: tuple[str, ...] = ()
    from_seq: int = 0
    epoch: str | None = None
    """The epoch that `fromSeq` is of. A client that sends one, if only an empty text, gets the
    current one with `history_complete`."""


class ContextUnsubscribe(_Message, frozen=True, kw_only=True, tag="unsubscribe"):
    session_ids: tuple[str, ...]


class Command(_Message, frozen=True, kw_only=True, tag="command"):
    session_id: str
    command: ACPCommand


class StartSession(_Message, frozen=True, kw_only=True, tag="start_session"):
    agent: str
    project_path: str
    prompt: str = ""


class TerminateSession(_Message, frozen=True, kw_only=True, tag="terminate_session"):
    session_id: str


Message: TypeAlias = (
    Auth | Ping | ContextSubscribe | ContextUnsubscribe | Command | StartSession | TerminateSession
)
_decode: Final = msgspec.json.Decoder(Message).decode
_HALF_PAIR: Final = "a name or a type in it has half of a surrogate pair"
_SHOWN: Final = 60  # characters of what a client sent
_KINDS: Final[dict[str, type]] = {
    str(each.__struct_config__.tag): each for each in get_args(Message)
}


def read_message(text: str | bytes) -> Message:
    """Read a frame.

    Raises:
        AcpError: `acpjs/config-invalid` if it is none.
    """
    message: Message
    try:
        message = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        message = _read_slowly(text)
    return message


def _read_slowly(text: str | bytes) -> Message:
    """Read what strict JSON has not, or report in a sentence what is wrong with it."""
    content: Any = None
    message: Message
    try:
        content = decode_json(text)
        message = msgspec.convert(content, Message)
    except JsonInvalid as error:
        raise _not_understood(str(error)) from error
    except msgspec.ValidationError as error:
        raise _not_understood(_mismatch(error, content)) from error
    except UnicodeError as error:
        raise _not_understood(_HALF_PAIR) from error
    return message


def _not_understood(reason: str) -> AcpError:
    message = f"this frame cannot be understood: {reason}"
    return AcpError(ERROR_CODES["config_invalid"], message)


def _mismatch(error: msgspec.ValidationError, content: Any) -> str:
    kind = content.get("type") if isinstance(content, dict) else None
    wanted = _KINDS.get(kind) if isinstance(kind, str) else None
    if wanted is not None:
        return describe_mismatch(error, wanted)
    kinds = ", ".join(_KINDS)
    if not isinstance(content, dict):
        return f'it must be an object with a "type", one of {kinds}'
    if "type" not in content:
        return f'"type" is missing; use one of {kinds}'
    shown = encode_json(kind).decode("utf-8", "replace")[:_SHOWN]
    return f'"type" cannot be {shown}; use one of {kinds}'


def write_message(kind: str, **fields: Any) -> str:
    return encode_json({"type": kind, **fields}).decode("utf-8", "replace")


def event_frame(event: bytes) -> str:
    """Return the frame of an encoded event."""
    return f'{{"type":"acp_event","event":{event.decode("utf-8", "replace")}}}'


def error_frame(error: Exception, **about: Any) -> str:
    """Return an error with the code that it has."""
    match error:
        case RequestRejected():
            code = error.code.rpartition("/")[2].replace("-", "_").upper()
            return write_message("error", message=error.message, code=code, **about)
        case QuarterdeckError():
            shown = context_error(error)
            code = "INVALID_MESSAGE" if shown.code == "CONFIG_INVALID" else shown.code
            return write_message("error", message=shown.message, code=code, **about)
        case _:
            return write_message("error", message=str(error), code="INTERNAL", **about)


def _listed_status(status: SessionStatus) -> str:
    match status:
        case "creating" | "resuming":
            return "starting"
        case "active" | "disconnected":
            return "idle"
        case "prompting":
            return "running"
        case "closed" | "deleted":
            return "completed"
        case _:
            assert_never(status)


def session_entry(
    session: SessionSnapshotWire | SessionOverview,
    agent: str | UnsetType,
    waiting: Mapping[str, str],
    known: KnownSession,
) -> dict[str, Any]:
    """Return a session as a list has it; `waiting` has the status of those that wait."""
    return {
        "id": session.session_id,
        "agent": "unknown" if agent is UNSET else agent,
        "machineId": MACHINE_ID,
        "projectPath": session.cwd,
        "projectName": session.cwd.rstrip("/").rpartition("/")[2],
        "status": waiting.get(session.session_id) or _listed_status(session.status),
        "lastMessage": known.last_message,
        "lastActivity": known.last_at,
        "createdAt": known.first_at,
        "sessionName": known.title,
        "model": known.model,
        "agentMode": known.mode,
    }
