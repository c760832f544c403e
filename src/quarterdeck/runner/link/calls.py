"""What a hub has sent to its runner and waits for."""

from __future__ import annotations

import logging
from typing import Any, Final

import anyio
from typing_extensions import override

from quarterdeck.errors import RequestRejected
from quarterdeck.runner.link.messages import Opened
from quarterdeck.runner.link.remote_log import RemoteLog

logger = logging.getLogger(__name__)

REPEATABLE: Final = frozenset(
    {
        "add_prompt",
        "agent_confinement",
        "agent_offers",
        "auth_status",
        "cancel_turn",
        "close_session",
        "compact",
        "context_capabilities",
        "context_sessions",
        "count_queued_prompts",
        "drain",
        "ensure_active",
        "find_files",
        "get_prompt",
        "known_agents",
        "knows_agent",
        "list_decisions",
        "list_folder",
        "list_mcp_servers",
        "list_prompts",
        "list_providers",
        "list_sessions",
        "read_events",
        "reconfigure",
        "resume_turns",
        "session_status",
        "set_mode",
        "set_option",
        "set_policy",
        "show_session",
        "start_agent",
        "stored_servers",
        "wait_prompt",
    }
)
"""Calls that can be sent twice: they only read, have a key, or state what is to be."""
KEYED: Final = frozenset({"answer_permission"})
"""Calls that can be sent twice if they have a key."""


class LinkLost(Exception):
    """The connection ended before the call was answered."""


class LinkCall:
    """A call that waits for its answer."""

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.value: Any = None
        self.failure: Exception | None = None

    def complete(self, value: Any = None, failure: Exception | None = None) -> None:
        self.value, self.failure = value, failure
        self.ended.set()

    async def result(self) -> Any:
        await self.ended.wait()
        if self.failure is not None:
            raise self.failure
        return self.value


class PendingLog(LinkCall):
    """A log that is being opened."""

    def __init__(self, log: RemoteLog) -> None:
        super().__init__()
        self._log = log

    @override
    def complete(self, value: Any = None, failure: Exception | None = None) -> None:
        super().complete(value, failure)
        if isinstance(value, Opened):
            self._log.begin(
                value.head, value.first, has_ended=value.has_ended, was_closed=value.was_closed
            )
        elif not isinstance(failure, LinkLost):  # that one is opened again with the next connection
            self._log.fail(failure or unreachable())


class UnwatchedCall(LinkCall):
    """A command that is not waited for."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    @override
    def complete(self, value: Any = None, failure: Exception | None = None) -> None:
        super().complete(value, failure)
        if failure is not None:
            facts = {"command": self._method, "reason": str(failure)}
            logger.warning("a command failed", extra=facts)


def unreachable(problem: str = "") -> RequestRejected:
    """Return the error of a call while there is no connection."""
    reason = problem or "it is restarting or has failed; run quarterdeck status"
    message = f"the runner cannot be reached: {reason}"
    return RequestRejected("unavailable", message, retryable=True)
