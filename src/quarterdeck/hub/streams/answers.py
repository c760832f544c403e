"""Answers of people, from whatever surface: recorded with the device that gave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quarterdeck.errors import AcpError
from quarterdeck.host import HostEndpoint
from quarterdeck.hub.auth.device import Device
from quarterdeck.hub.streams.needs import Approvals
from quarterdeck.protocol import ERROR_CODES, InboundResponse


class Answers:
    """Takes answers to the hub's inbox, if it has one, and else to the host."""

    def __init__(self, inbox: Approvals | None, endpoint: HostEndpoint) -> None:
        self._inbox = inbox
        self._endpoint = endpoint

    async def give(self, request_id: str, result: Any, device: Device) -> None:
        """Answer a permission request or a question.

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if it is no answer.
        """
        if not isinstance(result, Mapping):
            raise AcpError(ERROR_CODES["config_invalid"], "the answer to a question is an object")
        if self._inbox is None:
            await self._endpoint.respond_inbound(InboundResponse(id=request_id, result=result))
        else:
            await self._inbox.answer_outcome(request_id, result, device.actor)
