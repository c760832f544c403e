"""`AllRequests`: the two kinds of requests that people answer, where they end together.

A turn, a session or an agent that ends withdraws its `PermissionRequests` and its
`ElicitationRequests` alike.
"""

from __future__ import annotations

from quarterdeck.host.requests.elicitations import ElicitationRequests
from quarterdeck.host.requests.permissions import PermissionRequests
from quarterdeck.host.requests.table import AgentRequest, Concerns


class AllRequests:
    """All requests of agents to people: permission requests and elicitations."""

    def __init__(self, permissions: PermissionRequests, elicitations: ElicitationRequests) -> None:
        self.permissions = permissions
        self.elicitations = elicitations

    async def wait_stored(self) -> None:
        """Wait until all decisions so far are stored.

        Raises:
            StorageFailed: if they never will be.
        """
        await self.permissions.wait_stored()

    def number_after(self, stored: int) -> None:
        """Number after all requests of earlier hosts, of whose logs `stored` events are known.

        Each request of a session was at least one of those events, so none had a higher number,
        and what was never stored was never published. A late answer finds no request.
        """
        self.permissions.number_after(stored)
        self.elicitations.number_after(stored)

    def supersede(self, concerns: Concerns) -> None:
        """Withdraw requests that need no answer any more, and answer their agents."""
        for request in self.withdraw(concerns):
            request.release_superseded()

    def withdraw(self, concerns: Concerns) -> list[AgentRequest]:
        """Withdraw requests; the caller then answers their agents by `release_superseded`."""
        return [*self.permissions.withdraw(concerns), *self.elicitations.withdraw(concerns)]
