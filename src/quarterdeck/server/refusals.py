"""One place turns exceptions into the HTTP answers of the hub."""

from __future__ import annotations

import logging
from typing import Any, Final

from starlette.responses import Response

from quarterdeck.errors import (
    AcpError,
    HubDatabaseFailed,
    QuarterdeckError,
    RequestRefused,
    RequestRejected,
    RpcError,
    StorageFailed,
)
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import ERROR_CODES

logger = logging.getLogger(__name__)

_STATUSES: Final = {
    ERROR_CODES["config_invalid"]: 400,
    ERROR_CODES["already_answered"]: 409,
    ERROR_CODES["prompt_in_flight"]: 409,
    ERROR_CODES["session_closed"]: 409,
    ERROR_CODES["capability_unsupported"]: 422,
}
_REJECTIONS: Final = {
    "quarterdeck/ambiguous": 409,
    "quarterdeck/already-answered": 409,
    "quarterdeck/forbidden": 403,
    "quarterdeck/gone": 410,
    "quarterdeck/invalid": 400,
    "quarterdeck/key-reused": 409,
    "quarterdeck/name-taken": 409,
    "quarterdeck/not-found": 404,
    "quarterdeck/not-startable": 409,
    "quarterdeck/stale": 409,
    "quarterdeck/too-large": 413,
    "quarterdeck/too-many": 429,
    "quarterdeck/unavailable": 503,
}
"""The statuses of `RequestRejected`, by its code."""
_AGENT_FAILED: Final = 424
"""Failed Dependency. Not 502: that is what a proxy in front of a hub that is down says, and what
programs repeat by themselves."""


def not_found(what: str, remedy: str) -> RequestRefused:
    return RequestRefused(404, "not-found", f"there is no {what}; {remedy}")


def invalid(message: str) -> RequestRefused:
    return RequestRefused(400, "invalid", message)


def http_status(error: RequestRejected) -> int:
    """Return the HTTP status of a rejection."""
    return error.status if isinstance(error, RequestRefused) else _REJECTIONS[error.code]


def refusal_of(error: Exception) -> Response:
    """Return the answer to whoever asked for what ended in `error`."""
    match error:
        case RequestRejected():
            return error_response(
                http_status(error),
                error.code,
                error.message,
                retryable=error.retryable,
                data=error.data,
            )
        case AcpError():
            status = _STATUSES.get(error.code, _AGENT_FAILED)
            facts = {"retryable": error.retryable, "data": error.data}
            return error_response(status, error.code, error.message, **facts)
        case RpcError():
            data = {"code": error.code, "message": error.message, "data": error.data}
            message = f"the agent refused: {error.explanation}"
            code = ERROR_CODES["agent_error"]
            return error_response(_AGENT_FAILED, code, message, data=data)
        case StorageFailed():
            code = "quarterdeck/unavailable"
            return error_response(503, code, error.told, retryable=not error.is_final)
        case HubDatabaseFailed():
            return error_response(503, "quarterdeck/unavailable", error.told, retryable=True)
        case QuarterdeckError():
            return error_response(500, "quarterdeck/failed", str(error))
        case _:
            logger.error("a request failed", exc_info=error)
            message = "the hub failed at this; its log tells more"
            return error_response(500, "quarterdeck/failed", message)


def error_response(
    status: int, code: str, message: str, *, retryable: bool = False, data: Any = None
) -> Response:
    facts: dict[str, Any] = {"code": str(code), "message": message, "retryable": retryable}
    if data is not None:
        facts["data"] = data
    return Response(encode_json({"error": facts}), status, media_type="application/json")
