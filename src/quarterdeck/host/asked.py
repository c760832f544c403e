"""Everything that agents ask of people, whatever its kind."""

from __future__ import annotations

from quarterdeck.host.elicitations import Elicitations
from quarterdeck.host.permissions import Permissions
from quarterdeck.host.questions import Concerns, Question


class Asked:
    """The questions of a host, of all kinds."""

    def __init__(self, permissions: Permissions, elicitations: Elicitations) -> None:
        self.permissions = permissions
        self.elicitations = elicitations

    def number_after(self, stored: int) -> None:
        """Number on after all questions of earlier hosts, of whose logs `stored` events are known.

        Each question of a session was at least one of those events, so none had a higher number,
        and what was never stored nobody has seen. An answer that comes too late finds nothing.
        """
        self.permissions.number_after(stored)
        self.elicitations.number_after(stored)

    def supersede(self, concerns: Concerns) -> None:
        """Withdraw what nobody needs to answer any more, and let its agents know."""
        for question in self.withdraw(concerns):
            question.refuse()

    def withdraw(self, concerns: Concerns) -> list[Question]:
        """Do the same without letting agents know: whoever calls this does, by `refuse`."""
        return [*self.permissions.withdraw(concerns), *self.elicitations.withdraw(concerns)]
