"""What agents ask of people, as a program answers it: the part of `Host` that is about that.

And whether there is any point in answering: what cannot be recorded is not begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quarterdeck.host.asked import Asked
from quarterdeck.host.journal import Journal
from quarterdeck.host.work import Done
from quarterdeck.protocol import HostElicitationSnapshot, HostPermissionSnapshot


class Answering:
    """Answers questions, and lists them."""

    _asked: Asked
    _journal: Journal

    def respond_permission(
        self, request_id: str, outcome: Mapping[str, Any], *, by: Mapping[str, Any] | None = None
    ) -> Done:
        """Answer a permission request, at once; await the result to know that it is stored.

        `by` says who or what decided; the log keeps it beside the answer, agents do not get it.

        Raises:
            AcpError: `acpjs/already-answered`.
        """
        self._asked.permissions.respond(request_id, dict(outcome), by)
        return Done(self._journal.settled)

    def respond_elicitation(self, request_id: str, response: Mapping[str, Any]) -> Done:
        """Answer a question: `{"action": "accept", "content": …}`, "decline" or "cancel".

        Raises:
            AcpError: `acpjs/already-answered`, or `acpjs/config-invalid` if it is no answer.
        """
        self._asked.elicitations.respond(request_id, response)
        return Done(self._journal.settled)

    def get_permissions(self) -> list[HostPermissionSnapshot]:
        """Return the permission requests that were resolved lately, then those that wait."""
        return [request.snapshot() for request in self._asked.permissions.all()]

    def get_elicitations(self) -> list[HostElicitationSnapshot]:
        """Return the questions to people that were resolved lately, then those that wait."""
        return [question.snapshot() for question in self._asked.elicitations.all()]

    @property
    def is_healthy(self) -> bool:
        """Whether the log takes events now."""
        return self._journal.failure is None
