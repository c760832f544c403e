"""What agents ask of people, as a program answers it: the part of `Host` that is about that.

And whether there is any point in answering: what cannot be recorded is not begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quarterdeck.host.asked import Asked
from quarterdeck.host.journal import Journal
from quarterdeck.host.verdicts import PermissionRequest
from quarterdeck.host.work import Done
from quarterdeck.protocol import HostElicitationSnapshot, HostPermissionSnapshot


class Answering:
    """Answers questions, and lists them."""

    _asked: Asked
    _journal: Journal

    def respond_permission(
        self, request_id: str, outcome: Mapping[str, Any], *, by: Mapping[str, Any] | None = None
    ) -> Done:
        """Answer a permission request; await the result to know that it is stored.

        A refusal goes to the agent at once, a permission after it is stored. `by` names who or
        what decided; the log keeps it with the answer, agents do not get it.

        Raises:
            AcpError: `acpjs/already-answered`.
        """
        self._asked.permissions.respond(request_id, dict(outcome), by)
        return Done(self._journal.settled)

    def respond_elicitation(
        self, request_id: str, response: Mapping[str, Any], *, by: Mapping[str, Any] | None = None
    ) -> Done:
        """Answer an elicitation: `{"action": "accept", "content": …}`, "decline" or "cancel".

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if it is no answer.
        """
        self._asked.elicitations.respond(request_id, response, by)
        return Done(self._journal.settled)

    async def settled(self) -> None:
        """Wait until all that was decided so far is stored and published.

        Raises:
            StorageFailed: if it never will be.
        """
        await self._journal.settled()

    def pending_permissions(self) -> list[PermissionRequest]:
        """Return the permission requests that wait, the oldest first."""
        return self._asked.permissions.pending

    def pending_permission(self, request_id: str) -> PermissionRequest | None:
        """Return a permission request if it waits."""
        return self._asked.permissions.get(request_id)

    def get_permissions(self) -> list[HostPermissionSnapshot]:
        """Return the permission requests that were resolved lately, then those that wait."""
        return [request.snapshot() for request in self._asked.permissions.all()]

    def get_elicitations(self) -> list[HostElicitationSnapshot]:
        """Return the questions to people that were resolved lately, then those that wait."""
        return [question.snapshot() for question in self._asked.elicitations.all()]

    def pending_elicitations(self) -> list[HostElicitationSnapshot]:
        """Return the elicitations that wait, the oldest first."""
        return [each.snapshot() for each in self._asked.elicitations.pending]

    def get_elicitation(self, request_id: str) -> HostElicitationSnapshot | None:
        """Return an elicitation that waits, or was resolved lately."""
        found = self._asked.elicitations.find(request_id)
        return None if found is None else found.snapshot()

    @property
    def is_healthy(self) -> bool:
        """Whether the log takes events now."""
        return self._journal.failure is None
