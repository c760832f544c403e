"""Restarting the hub and its runner: for a hub that `quarterdeck up` runs.

Only a process can replace itself and start another one, so these endpoints are parts that its
command adds (`Hub.parts`); an embedded hub does not have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Body,
    EmptyBody,
    Endpoint,
    json_endpoint,
)
from quarterdeck.hub.hub import Hub
from quarterdeck.runner import Actor

RestartState: TypeAlias = Literal["none", "draining", "restarting", "done", "cancelled", "failed"]


class HubRestart(ApiResponse, frozen=True, kw_only=True):
    """The hub replaces itself when this is sent; streams end and can be resumed by number."""

    version: str
    """The one that starts."""


class RestartRunner(Body, frozen=True, kw_only=True):
    wait_seconds: float | None = None
    """After which running turns are cancelled; null: they are waited for, however long."""


class RunnerRestart(ApiResponse, frozen=True, kw_only=True):
    """The restart of the runner that is under way, or was the last one."""

    state: RestartState
    """Draining: no turn starts, and running ones are waited for."""
    running_turns: int
    error: str = ""
    """Why it failed."""


class RunnerFacts(ApiResponse, frozen=True, kw_only=True):
    pid: int
    version: str
    started_at: str
    is_connected: bool
    """False while it is restarted, or cannot be reached; the rest is as of then."""
    is_draining: bool
    running_turns: int
    restart: RunnerRestart


class ProcessControl(Protocol):
    """What the command that runs a hub can do with its processes."""

    async def restart_hub(self) -> HubRestart:
        """Check that the installed version starts, then replace this process by it.

        Raises:
            RequestRejected: if it does not; this hub keeps running.
        """

    async def restart_runner(self, wait_seconds: float | None, by: Actor) -> RunnerRestart:
        """Begin to restart the runner.

        Raises:
            RequestRejected: if a restart is under way, or the installed version does not start.
        """

    async def cancel_runner_restart(self) -> RunnerRestart:
        """Cancel a restart that waits for turns to end; queued prompts run again."""

    def runner_facts(self) -> RunnerFacts: ...


def process_endpoints(control: ProcessControl) -> Callable[[Hub], list[Endpoint]]:
    """Return the part of the route table for restarts."""
    return lambda _hub: [_hub_restart(control), *_runner_restart(control)]


def _hub_restart(control: ProcessControl) -> Endpoint:
    async def restart(_request: ApiRequest) -> HubRestart:
        return await control.restart_hub()

    return json_endpoint(
        "admin",
        "POST /api/restart",
        restart,
        "Replace the hub by the installed version; agents keep running",
        body=EmptyBody,
        returns=HubRestart,
        errors=(409,),
    )


def _runner_restart(control: ProcessControl) -> list[Endpoint]:
    async def restart(request: ApiRequest) -> RunnerRestart:
        wanted = request.body_as(RestartRunner)
        return await control.restart_runner(wanted.wait_seconds, request.by.actor)

    async def show(_request: ApiRequest) -> RunnerFacts:
        return control.runner_facts()

    async def cancel(_request: ApiRequest) -> RunnerRestart:
        return await control.cancel_runner_restart()

    path = "/api/runner/restart"
    return [
        json_endpoint(
            "admin",
            f"POST {path}",
            restart,
            "Restart the runner when running turns have ended",
            body=RestartRunner,
            returns=RunnerRestart,
            errors=(409,),
        ),
        json_endpoint(
            "view",
            "GET /api/runner",
            show,
            "Facts about the process that runs agents",
            returns=RunnerFacts,
        ),
        json_endpoint(
            "admin",
            f"DELETE {path}",
            cancel,
            "Cancel a restart that waits for turns to end",
            returns=RunnerRestart,
        ),
    ]
