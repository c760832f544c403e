"""One place turns what went wrong in the hub into the errors of ACP."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from quarterdeck.errors import (
    AcpError,
    HubDatabaseFailed,
    QuarterdeckError,
    RequestRejected,
    RpcError,
    StorageFailed,
)
from quarterdeck.protocol import ERROR_CODES
from quarterdeck.server.refusals import http_status
from quarterdeck.wire import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

RESOURCE_NOT_FOUND: Final = -32002

_CODES: Final = {
    ERROR_CODES["config_invalid"]: INVALID_PARAMS,
    ERROR_CODES["capability_unsupported"]: METHOD_NOT_FOUND,
    ERROR_CODES["session_closed"]: RESOURCE_NOT_FOUND,
    ERROR_CODES["prompt_in_flight"]: INVALID_REQUEST,
}
_BY_STATUS: Final = {
    400: INVALID_PARAMS,
    403: INVALID_REQUEST,
    404: RESOURCE_NOT_FOUND,
    409: INVALID_REQUEST,
    422: INVALID_PARAMS,
}


def rpc_error_of(error: QuarterdeckError) -> RpcError:
    """Return what an editor is answered; the message is a sentence, for it is what people see."""
    match error:
        case RpcError():
            return error
        case RequestRejected():
            code = _BY_STATUS.get(http_status(error), INTERNAL_ERROR)
            return RpcError(code, error.message, {"code": error.code})
        case AcpError():
            code = _CODES.get(error.code, INTERNAL_ERROR)
            return RpcError(code, error.message, {"code": str(error.code)})
        case StorageFailed() | HubDatabaseFailed():
            return RpcError(INTERNAL_ERROR, error.told, {"code": "quarterdeck/unavailable"})
        case _:
            return RpcError(INTERNAL_ERROR, str(error))


async def told(work: Awaitable[Any]) -> Any:
    """Await the work of a handler, and say what went wrong as ACP does."""
    try:
        return await work
    except QuarterdeckError as error:
        raise rpc_error_of(error) from error
