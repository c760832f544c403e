"""Joins telemetry to a runner; without it nothing is joined, and no event costs anything."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol

from quarterdeck.host import Host
from quarterdeck.protocol import AgentDefinition, AgentUpdatedEvent, Event
from quarterdeck.runner.options import RunnerOptions
from quarterdeck.runner.prompts.queue import PromptQueue
from quarterdeck.runner.sessions.catalogue import SessionCatalogue
from quarterdeck.runner.telemetry.progress import TelemetryProgress
from quarterdeck.runner.telemetry.service import Telemetry, open_telemetry
from quarterdeck.storage.database import Database
from quarterdeck.views.traces import TurnIdentity, agent_span
from quarterdeck.wire import IndependentTasks

Inherit = Callable[[AgentDefinition], Mapping[str, str]]
_DISABLED: Final = "OTEL_SDK_DISABLED"
_TRACEPARENT: Final = "TRACEPARENT"


class TracedRunner(Protocol):
    """What telemetry needs of a runner."""

    host: Host
    catalogue: SessionCatalogue
    database: Database
    prompts: PromptQueue


class RunnerTelemetry:
    """The telemetry of a runner, if it has any."""

    def __init__(self, options: RunnerOptions) -> None:
        is_disabled = options.environ.get(_DISABLED, "").lower() == "true"
        self._settings = options.telemetry
        self._environ = options.environ
        self.is_enabled = options.telemetry.enabled and not is_disabled
        self.service: Telemetry | None = None
        self._starting: dict[str, tuple[TurnIdentity, float]] = {}
        """Agents that start, by the id of their definition."""

    def host_options(self, inherit: Inherit) -> dict[str, Any]:
        """Return options of the host: traces for its agents, if there are any."""
        if not self.is_enabled:
            return {"inherit": inherit}
        return {"inherit": self._traced(inherit), "prompt_meta": self._prompt_meta}

    def _traced(self, inherit: Inherit) -> Inherit:
        """Return what agents inherit, with the trace of their start."""

        def traced(definition: AgentDefinition) -> Mapping[str, str]:
            identity = TurnIdentity(secrets.token_hex(16), secrets.token_hex(8))
            self._starting[definition.id] = (identity, time.time() * 1000)
            return {**inherit(definition), _TRACEPARENT: identity.traceparent}

        return traced

    def _prompt_meta(self, session_id: str, seq: int) -> Mapping[str, Any]:
        return {} if self.service is None else self.service.prompt_meta(session_id, seq)

    async def start(
        self, runner: TracedRunner, tasks: IndependentTasks, stack: AsyncExitStack
    ) -> None:
        """Export what an earlier runner has left, then follow the logs until the stack is closed.

        Raises:
            StartRefused: if the packages for it are not installed.
        """
        if not self.is_enabled:
            return
        exporter = open_telemetry(self._settings, self._environ)
        self.service = service = Telemetry(
            runner.host,
            runner.catalogue,
            TelemetryProgress(runner.database),
            exporter,
            self._settings,
            lambda: _gauges(runner),
        )
        stack.push_async_callback(service.stop)
        stack.callback(runner.host.subscribe_heads(service.on_head))
        stack.callback(
            runner.host.subscribe(None, 0, lambda event: self._on_event(runner.host, event))
        )
        await service.start(tasks)

    def _on_event(self, host: Host, event: Event) -> None:
        if not isinstance(event, AgentUpdatedEvent) or self.service is None:
            return
        status, agent_id = event.payload["status"], event.payload["agentId"]
        definition = host.agent_definition(agent_id)
        if status not in ("ready", "exited") or definition is None:
            return
        started = self._starting.pop(definition.id, None)
        if started is not None:
            error = "exited" if status == "exited" else None
            identity, began = started
            self.service.take_agent(agent_span(definition.id, identity, began, event.ts, error))


def _gauges(runner: TracedRunner) -> dict[str, dict[str, int]]:
    return {
        "quarterdeck.sessions": dict(Counter(each.status for each in runner.catalogue.all())),
        "quarterdeck.agents": dict(Counter(each.status for each in runner.host.get_agents())),
        "quarterdeck.pending_permissions": {"": len(runner.host.pending_permissions())},
        "quarterdeck.running_turns": {"": runner.prompts.running_turns},
    }
