"""Installing, updating and removing agents of the catalogue."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Body,
    EmptyBody,
    Endpoint,
    json_endpoint,
)
from quarterdeck.hub.hub import Hub
from quarterdeck.runner import InstallJob


class InstallAgent(Body, frozen=True, kw_only=True):
    version: Annotated[str, Meta(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+!_-]{0,63}$")] | None = None
    """The tested one by default; `latest` is the newest."""


class InstallList(ApiResponse, frozen=True, kw_only=True):
    installs: list[InstallJob]


class RegistryFetched(ApiResponse, frozen=True, kw_only=True):
    changed: bool


class _Installs:
    def __init__(self, hub: Hub) -> None:
        self._runner = hub.runner

    async def list(self, _request: ApiRequest) -> InstallList:
        return InstallList(installs=await self._runner.install_jobs())

    async def install(self, request: ApiRequest) -> InstallJob:
        version = request.body_as(InstallAgent).version
        name = request.path["name"]
        return await self._runner.install_agent(name, version=version, by=request.by.actor)

    async def remove(self, request: ApiRequest) -> None:
        await self._runner.remove_agent(request.path["name"], by=request.by.actor)

    async def refresh(self, request: ApiRequest) -> RegistryFetched:
        changed = await self._runner.refresh_registry(by=request.by.actor)
        return RegistryFetched(changed=changed)


def install_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the part of the route table that installs agents."""
    api = _Installs(hub)
    return [
        json_endpoint(
            "view",
            "GET /api/agents/installs",
            api.list,
            "List installations of agents: those that run, and the last one of each agent",
            returns=InstallList,
        ),
        json_endpoint(
            "admin",
            "POST /api/agents/known/{name}/install",
            api.install,
            "Install an agent, or another version of it, without waiting for the end",
            body=InstallAgent,
            returns=InstallJob,
            status=202,
            errors=(404,),
        ),
        json_endpoint(
            "admin",
            "DELETE /api/agents/known/{name}/install",
            api.remove,
            "Remove an agent that was installed here",
            status=204,
            errors=(409,),
        ),
        json_endpoint(
            "admin",
            "POST /api/agents/registry",
            api.refresh,
            "Fetch the registry of agents that is configured",
            body=EmptyBody,
            returns=RegistryFetched,
            errors=(400, 503),
        ),
    ]
