"""`UnstoredRefusals`: requests that were refused while the log could not be written.

A refusal reaches the agent at once, also on a full disk (`host/requests/permissions`). Its event
waits in the journal until it can be stored, and until then no client sees it. So that it is not
lost with this process it is kept in the reserve, which needs no space:

    added      the answer was given and the log did not store it within a moment
    removed    its event was published: it is in the log
    found      by the next process, where it ends a request that the log left open. That request
               then has its decision in the log, and not only that it ended with a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import anyio

from quarterdeck.host import Host
from quarterdeck.runner.permissions.decision_index import IndexEntry
from quarterdeck.storage.reserve import Reserve

logger = logging.getLogger(__name__)

_NAME: Final = "refusals"
_LOOK_SECONDS: Final = 0.2  # between two looks at a log that takes long


class UnstoredRefusals:
    """Refusals by the id of their request."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve
        self._entries: dict[str, IndexEntry] = {}

    def add(
        self, entry: IndexEntry, outcome: Mapping[str, Any], by: Mapping[str, Any]
    ) -> IndexEntry:
        """Keep a refusal; return its row with what is wrong."""
        request_id = entry.decision.request_id
        held = self._held
        held[request_id] = {
            "sessionId": entry.decision.session_id,
            "outcome": dict(outcome),
            "by": dict(by),
        }
        if self._reserve.set(_NAME, held):
            problem = (
                "rejected, but the log cannot be written, so this is stored in runner.reserve for"
                " now; free up space on the hub's disk, and the runner retries by itself"
            )
        else:
            problem = (
                "rejected, but the log cannot be written, so this is not stored yet; free up space"
                " on the hub's disk before you stop it, and the runner retries by itself"
            )
        entry = entry.with_problem(problem)
        self._entries[request_id] = entry
        return entry

    def get(self, request_id: str) -> IndexEntry | None:
        """Return a refusal of this process that is not stored yet."""
        return self._entries.get(request_id)

    def decided(
        self, session_id: str, request_id: str
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
        """Return how an earlier process decided a request: the outcome, and who decided."""
        held = self._held.get(request_id)
        if held is None or held["sessionId"] != session_id:
            return None
        return held["outcome"], held["by"]

    def remove(self, request_ids: Iterable[str]) -> None:
        """Forget refusals that the log has."""
        held = self._held
        stored = [each for each in request_ids if each in held]
        for each in stored:
            del held[each]
            self._entries.pop(each, None)
        if stored:
            self._reserve.set(_NAME, held or None)

    @property
    def _held(self) -> dict[str, Any]:
        return dict(self._reserve.get(_NAME) or {})


async def stored_or_failing(host: Host, stored: Callable[[], Awaitable[None]]) -> bool:
    """Wait until something is stored; return False if the log cannot be written."""
    while True:
        with anyio.move_on_after(_LOOK_SECONDS):
            await stored()
            return True
        if not host.is_healthy:
            return False
