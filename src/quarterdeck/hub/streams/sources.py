"""`StreamSources`: what the streams use of a hub."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
from starlette.types import Scope as AsgiScope

from quarterdeck.errors import AcpError
from quarterdeck.hub.auth.device import Device
from quarterdeck.protocol import ERROR_CODES
from quarterdeck.runner import RunnerApi


class RevocableConnection(Protocol):
    """A connection that ends with its device."""

    @property
    def scope(self) -> anyio.CancelScope:
        """Cancelled when the device is revoked or expires."""


class Authenticator(Protocol):
    """Knows devices by their tokens."""

    def authenticate(self, token: str) -> Awaitable[Device | None]: ...

    def connection(self, device: Device) -> AbstractContextManager[RevocableConnection]:
        """Register a connection that ends with its device."""


class CallerCheck(Protocol):
    """Knows which callers of this machine are processes of agents."""

    async def refusal(self, scope: AsgiScope, device: Device) -> str | None:
        """Return why a connection may not be used in the name of a device."""


@dataclass(frozen=True, kw_only=True)
class StreamSources:
    """A runner, and the parts of a hub around it."""

    runner: RunnerApi
    start_in_background: Callable[[Callable[[], Awaitable[Any]]], None]
    """Runs work that outlives the connection it was requested on."""
    devices: Authenticator | None = None
    callers: CallerCheck | None = None
    before_end: Callable[[Callable[[], None]], None] | None = None
    """Registers what is called when the hub is about to end."""

    async def answer(self, request_id: str, result: Any, device: Device) -> None:
        """Answer a permission request or an elicitation in the name of a device.

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if it is not an answer.
        """
        if not isinstance(result, Mapping):
            raise AcpError(ERROR_CODES["config_invalid"], "the answer to a request is an object")
        await self.runner.answer_request(request_id, result, by=device.actor)
