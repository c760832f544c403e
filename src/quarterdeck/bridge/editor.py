"""One ACP client of the hub, as everything that serves it sees it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from anyio.abc import TaskGroup
from msgspec.structs import replace

from quarterdeck.agent.client import ClientFacts
from quarterdeck.errors import QuarterdeckError, RequestRefused
from quarterdeck.server.device import Device, Scope
from quarterdeck.server.hub import Hub
from quarterdeck.wire import Connection

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

    @property
    def as_device(self) -> Device:
        """The device, under a name that says which program on it."""
        name = self.facts.info.get("title") or self.facts.info.get("name")
        if not isinstance(name, str) or not name.strip():
            name = "an ACP client"
        return replace(self.device, name=f"{self.device.name} via {name.strip()[:64]}")

    def need(self, scope: Scope, what: str) -> None:
        """Refuse what the device may not do.

        Raises:
            RequestRefused: with a sentence.
        """
        if not self.device.may(scope):
            message = f"this device may {self.device.scope}; {what} needs {scope}"
            raise RequestRefused(403, "forbidden", message)

    def start_soon(self, what: str, work: Callable[[], Awaitable[Any]]) -> None:
        """Do something for as long as it is connected; a failure is logged."""
        self.tasks.start_soon(self._do, what, work)

    async def _do(self, what: str, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            await work()
        except QuarterdeckError as error:
            logger.info("%s failed", what, extra={"reason": str(error)})
        except Exception:  # one piece of work must not end the connection
            logger.exception("%s failed", what)
