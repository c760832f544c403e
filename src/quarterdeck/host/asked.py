"""All requests of agents that wait for a decision: permissions and elicitations."""

from __future__ import annotations

from quarterdeck.host.elicitations import Elicitations
from quarterdeck.host.permissions import PermissionRequests
from quarterdeck.host.questions import AgentRequest, Concerns


class Asked:
    """The requests of a host, of all kinds."""

    def __init__(self, permissions: PermissionRequests, elicitations: Elicitations) -> None:
        self.permissions = permissions
        self.elicitations = elicitations

    async def settled(self) -> None:
        """Wait until all decisions so far are stored.

        Raises:
            StorageFailed: if they never will be.
        """
        await self.permissions.settled()

    def number_after(self, stored: int) -> None:
        """Number after all requests of earlier hosts, of whose logs `stored` events are known.

        Each request of a session was at least one of those events, so none had a higher number,
        and what was never stored was never published. An answer that is too late finds nothing.
        """
        self.permissions.number_after(stored)
        self.elicitations.number_after(stored)

    def supersede(self, concerns: Concerns) -> None:
        """Withdraw requests that need no answer any more, and answer their agents so."""
        for request in self.withdraw(concerns):
            request.refuse()

    def withdraw(self, concerns: Concerns) -> list[AgentRequest]:
        """Withdraw requests without answering their agents: the caller does, by `refuse`."""
        return [*self.permissions.withdraw(concerns), *self.elicitations.withdraw(concerns)]
