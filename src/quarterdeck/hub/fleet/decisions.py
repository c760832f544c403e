"""`MergedDecisions`: the audit of several machines as one list, the newest decision first.

Each machine numbers its decisions. In the joined list a decision has another number, made of when
it was requested: seconds, then the number on its machine, then the machine. So numbers of the list
are unique and in its order, and "before this number" means the same to every machine.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import anyio
from msgspec.structs import replace

from quarterdeck.errors import QuarterdeckError
from quarterdeck.hub.fleet.translated import TranslatedRunner
from quarterdeck.runner import RecordedDecision

_ROW_BITS: Final = 14
_MACHINE_BITS: Final = 8
MOST_POSITIONS: Final = 1_000
PAGES: Final = 100
"""That are read of one machine to find a position."""
READ_SECONDS: Final = 4.0
"""For the decisions of one machine; if it does not answer, the list is without them."""


class MergedDecisions:
    """Pages of the joined list."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._positions: OrderedDict[tuple[str, int], int] = OrderedDict()
        """By machine and number of the list: the number on the machine that is not older."""

    async def page(
        self, machines: Sequence[TranslatedRunner], *, before: int | None, limit: int
    ) -> list[RecordedDecision]:
        """Return the newest decisions before a number of the list."""
        found: list[tuple[RecordedDecision, str, int]] = []
        for machine in machines:
            if not machine.health().is_connected:
                continue  # its decisions are listed when it is back
            with anyio.move_on_after(READ_SECONDS):
                try:
                    found += await self._of(machine, before, limit)
                except QuarterdeckError:
                    continue  # as if it were away
        found.sort(key=lambda each: each[0].id, reverse=True)
        page = found[:limit]
        if page:
            self._remember(page)
        return [decision for decision, _, _ in page]

    async def _of(
        self, machine: TranslatedRunner, before: int | None, limit: int
    ) -> list[tuple[RecordedDecision, str, int]]:
        position = None
        if before is not None:
            position = self._positions.get((machine.machine_id, before))
        found: list[tuple[RecordedDecision, str, int]] = []
        for _ in range(PAGES):
            listed = await machine.list_decisions(before=position, session_id=None, limit=limit)
            for each in listed:
                number = self._number(machine.machine_id, each)
                if before is None or number < before:
                    found.append((replace(each, id=number), machine.machine_id, each.id))
            if len(listed) < limit or len(found) >= limit:
                break
            position = listed[-1].id
        return found

    def _number(self, machine_id: str, decision: RecordedDecision) -> int:
        slot = self._slots.setdefault(machine_id, len(self._slots))
        try:
            seconds = int(datetime.fromisoformat(decision.requested_at).timestamp())
        except ValueError:
            seconds = 0
        row = decision.id & ((1 << _ROW_BITS) - 1)
        low = (row << _MACHINE_BITS) | (slot & ((1 << _MACHINE_BITS) - 1))
        return (max(0, seconds) << (_ROW_BITS + _MACHINE_BITS)) | low

    def _remember(self, page: Sequence[tuple[RecordedDecision, str, int]]) -> None:
        """Note where each machine stands at the end of a page."""
        last = page[-1][0].id
        for _, machine_id, row in page:
            self._positions[machine_id, last] = row
        while len(self._positions) > MOST_POSITIONS:
            self._positions.popitem(last=False)
