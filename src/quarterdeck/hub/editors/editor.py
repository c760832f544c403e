"""One ACP client of the hub, as everything that serves it sees it.

`rpc_error_of` maps errors of the hub to those of ACP.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from anyio.abc import TaskGroup
from msgspec.structs import replace

from quarterdeck.acp import PROTOCOL_VERSION
from quarterdeck.agent.client import ClientFacts
from quarterdeck.errors import (
    AcpError,
    DatabaseFailed,
    QuarterdeckError,
    RequestRejected,
    RpcError,
    StorageFailed,
)
from quarterdeck.hub.api.endpoint import http_status
from quarterdeck.hub.auth.device import Device, Scope
from quarterdeck.hub.hub import Hub
from quarterdeck.protocol import ERROR_CODES
from quarterdeck.runner import META_SCOPE, permitted_blocks
from quarterdeck.wire import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Connection,
)

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Editor:
    """Who is at the other end of a connection; two are never the same."""

    hub: Hub
    device: Device
    """Whose token it came with."""
    connection: Connection
    tasks: TaskGroup
    """Ends with the connection."""
    facts: ClientFacts = field(default_factory=ClientFacts)
    version: int = PROTOCOL_VERSION
    """Of ACP, chosen by `initialize`."""

    @property
    def sees_children(self) -> bool:
        """Whether it follows sub-agents as sessions; ACP 2 has them, ACP 1 on request."""
        wanted = self.facts.capabilities.get("subagents")
        return self.version > PROTOCOL_VERSION or wanted not in (None, False)

    def above(self, session_id: Any) -> list[str]:
        """Return the sessions whose sub-agent a session is, the nearest first."""
        found: list[str] = []
        while isinstance(session_id, str):
            session = self.hub.runner.session_snapshot(session_id)
            session_id = None if session is None else session.parent_session_id
            if session_id in found:
                break
            if isinstance(session_id, str):
                found.append(session_id)
        return found

    @property
    def as_device(self) -> Device:
        """The device, under a name that says which program on it."""
        given = self.facts.info.get("title") or self.facts.info.get("name")
        name = (
            "".join(each for each in given if each.isprintable()) if isinstance(given, str) else ""
        )
        program = name.strip()[:64] or "an ACP client"
        return replace(self.device, name=f"{self.device.name} via {program}")

    def need(self, scope: Scope, what: str) -> None:
        """Reject what the device may not do.

        Raises:
            RequestRejected: if its scope is too narrow.
        """
        if not self.device.may(scope):
            message = f"this device has the scope {self.device.scope}; {what} needs {scope}"
            raise RequestRejected("forbidden", message)

    def permitted(self, blocks: list[Any]) -> tuple[list[Any], bool]:
        """Return the blocks of a prompt that the device may send, and whether some was left out.

        Raises:
            RpcError: if it may not send the prompt.
        """
        try:
            return permitted_blocks(blocks, may_send_meta=self.device.may(META_SCOPE))
        except RequestRejected as error:
            raise rpc_error_of(error) from error

    def start_soon(self, what: str, work: Callable[[], Awaitable[Any]]) -> None:
        """Do something for as long as it is connected; a failure is logged."""
        self.tasks.start_soon(self._do, what, work)

    async def _do(self, what: str, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            await work()
        except QuarterdeckError as error:
            logger.info("work for an editor failed", extra={"work": what, "reason": str(error)})
        except Exception:  # one piece of work must not end the connection
            logger.exception("work for an editor failed", extra={"work": what})


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
        case StorageFailed() | DatabaseFailed():
            return RpcError(
                INTERNAL_ERROR, error.public_message, {"code": "quarterdeck/unavailable"}
            )
        case _:
            return RpcError(INTERNAL_ERROR, str(error))


async def as_rpc_errors(work: Awaitable[Any]) -> Any:
    """Await the work of a handler; raise its errors as those of ACP."""
    try:
        return await work
    except QuarterdeckError as error:
        raise rpc_error_of(error) from error
