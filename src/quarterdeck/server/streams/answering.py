"""Answers of people, from whatever surface: recorded with the device that gave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from quarterdeck.errors import AcpError, RequestRefused
from quarterdeck.host import HostEndpoint
from quarterdeck.protocol import ERROR_CODES, InboundResponse
from quarterdeck.server.decision_rows import Decider
from quarterdeck.server.device import Device
from quarterdeck.server.streams.needs import HasHost


class Answers:
    """Takes answers to the hub's inbox, if it has one, and else to the host."""

    def __init__(self, hub: HasHost, endpoint: HostEndpoint) -> None:
        self._inbox = getattr(hub, "approvals", None)
        self._host = hub.host
        self._endpoint = endpoint

    async def give(self, request_id: str, result: Any, device: Device) -> None:
        """Answer a permission request or a question.

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if it is no answer.
        """
        if self._inbox is None or self._inbox.get(request_id) is None:
            await self._endpoint.respond_inbound(InboundResponse(id=request_id, result=result))
            return
        by = Decider(kind="device", device_id=device.id, device_name=device.name)
        try:
            await self._inbox.answer(request_id, _option(result), by=by)
        except RequestRefused as error:
            raise acp_error(error) from error


def _option(result: Any) -> str | None:
    outcome = result.get("outcome") if isinstance(result, Mapping) else None
    option_id = result.get("optionId") if isinstance(result, Mapping) else None
    if outcome == "cancelled":
        return None
    if outcome == "selected" and isinstance(option_id, str):
        return option_id
    message = 'an answer is {"outcome": "selected", "optionId": …} or {"outcome": "cancelled"}'
    raise AcpError(ERROR_CODES["config_invalid"], message)


def acp_error(refused: RequestRefused) -> AcpError:
    """Return a refusal of the hub as an error that envelopes have a code for."""
    is_over = refused.code.rpartition("/")[2] in ("already-answered", "gone", "not-found")
    code = ERROR_CODES["already_answered" if is_over else "config_invalid"]
    data = None if refused.data is UNSET else refused.data
    return AcpError(code, refused.message, data=data)
