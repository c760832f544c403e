"""Commands that an agent need not offer: fork, title, archive, status, providers, single cancels.

`OptionalCommandsApi` is a part of `RunnerApi`, and `OptionalCommands` the part of `Runner` that
implements it. A title and an archive work with every agent: the agent is asked where it offers
them, and the runner keeps them otherwise (`SessionLabels`). The rest is refused with
`acpjs/capability-unsupported`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from msgspec import UNSET

from quarterdeck.errors import AcpError
from quarterdeck.host import Host, check_title
from quarterdeck.protocol import ERROR_CODES, has_ended
from quarterdeck.runner.actor import PROGRAM, Actor, log_command
from quarterdeck.runner.sessions.catalogue import SessionCatalogue, SessionOverview
from quarterdeck.runner.sessions.labels import SessionLabels
from quarterdeck.runner.sessions.manager import SessionManager

JsonObject: TypeAlias = dict[str, Any]


class OptionalCommandsApi(Protocol):
    """The part of `RunnerApi` that depends on what an agent offers."""

    async def fork_session(self, session_id: str, *, by: Actor = PROGRAM) -> SessionOverview:
        """Create a session that continues another one; it has `forkedFrom`.

        Raises:
            RequestRejected: if there is no such session, or it cannot be opened again.
            AcpError: `acpjs/capability-unsupported` if its agent cannot fork.
        """

    async def set_title(
        self, session_id: str, title: str, *, by: Actor = PROGRAM
    ) -> SessionOverview:
        """Rename a session, live or closed.

        Raises:
            RequestRejected: if there is none.
            AcpError: `acpjs/config-invalid` if it is no title.
        """

    async def set_archived(
        self, session_id: str, *, is_archived: bool, by: Actor = PROGRAM
    ) -> SessionOverview:
        """Archive a session, live or closed, or undo that.

        Raises:
            RequestRejected: if there is none.
        """

    async def session_status(self, session_id: str) -> JsonObject:
        """Return `status`, open or saved, and `state`: the agent's answer, or what is known here.

        Raises:
            RequestRejected: if there is none.
        """

    async def cancel_tool_call(
        self, session_id: str, tool_call_id: str, *, by: Actor = PROGRAM
    ) -> None:
        """Cancel one tool call.

        Raises:
            AcpError: `acpjs/capability-unsupported` unless the agent offers it for this call.
        """

    async def cancel_terminal(
        self, session_id: str, terminal_id: str, *, by: Actor = PROGRAM
    ) -> None:
        """Cancel one terminal; raises what `cancel_tool_call` does."""

    async def agent_offers(self, agent_id: str) -> list[str]:
        """Return which of `auth/status` and `providers` an agent offers."""

    async def auth_status(self, agent_id: str) -> JsonObject:
        """Return `state` and `accounts` of an agent's sign-in."""

    async def list_providers(self, agent_id: str) -> list[JsonObject]:
        """Return the model providers of an agent.

        Raises:
            AcpError: `acpjs/capability-unsupported` if it offers none.
        """

    async def set_provider(
        self, agent_id: str, provider: Mapping[str, Any], *, by: Actor = PROGRAM
    ) -> None:
        """Configure a provider; its headers are sent to the agent and kept nowhere."""

    async def disable_provider(
        self, agent_id: str, provider_id: str, *, by: Actor = PROGRAM
    ) -> None:
        """Disable a provider."""


class OptionalCommands:
    """The part of `Runner` that implements `OptionalCommandsApi`."""

    host: Host
    catalogue: SessionCatalogue
    manager: SessionManager
    labels: SessionLabels

    async def fork_session(self, session_id: str, *, by: Actor = PROGRAM) -> SessionOverview:
        log_command("fork_session", by)
        if self.host.heads.stopped_sentence(session_id) is None:
            await self.manager.ensure_active(session_id)
            forked = await self.host.fork_session(session_id)
        else:  # it is never active again, but its history can be continued
            agent = await self.manager.agent_of_stopped(session_id)
            forked = await self.host.fork_session(session_id, agent_id=agent.agent_id)
        return await self.catalogue.shown(forked.session_id)

    async def set_title(
        self, session_id: str, title: str, *, by: Actor = PROGRAM
    ) -> SessionOverview:
        log_command("set_title", by)
        wanted, session = check_title(title), self.catalogue.get(session_id)
        if self.host.get_session(session_id) is not None and session.status != "closed":
            is_agents = self.host.optional.offers(session_id, "title")
            wanted = await self.host.optional.set_title(session_id, wanted)
            await self.labels.set_title(session_id, None if is_agents else wanted)
        else:
            await self.labels.set_title(session_id, wanted)
        return await self._changed(session_id)

    async def set_archived(
        self, session_id: str, *, is_archived: bool, by: Actor = PROGRAM
    ) -> SessionOverview:
        log_command("set_archived", by)
        self.catalogue.get(session_id)
        await self.host.optional.set_archived(session_id, is_archived=is_archived)
        await self.labels.set_archived(session_id, is_archived=is_archived)
        return await self._changed(session_id)

    async def _changed(self, session_id: str) -> SessionOverview:
        self.report_session(session_id)
        return await self.catalogue.shown(session_id)

    def report_session(self, session_id: str) -> None:
        """Report that a session has changed."""
        raise NotImplementedError

    async def session_status(self, session_id: str) -> JsonObject:
        if has_ended(self.catalogue.get(session_id).status):
            return {"status": "saved"}
        return await self.host.optional.session_status(session_id)

    async def cancel_tool_call(
        self, session_id: str, tool_call_id: str, *, by: Actor = PROGRAM
    ) -> None:
        log_command("cancel_tool_call", by)
        self.catalogue.get(session_id)
        await self.host.optional.cancel_tool_call(session_id, tool_call_id)

    async def cancel_terminal(
        self, session_id: str, terminal_id: str, *, by: Actor = PROGRAM
    ) -> None:
        log_command("cancel_terminal", by)
        self.catalogue.get(session_id)
        await self.host.optional.cancel_terminal(session_id, terminal_id)

    async def end_agent(self, session_id: str, *, by: Actor = PROGRAM) -> SessionOverview:
        log_command("end_agent", by)
        agent_id = self.catalogue.get(session_id).agent_id
        if agent_id is UNSET:
            message = f"session {session_id} has no running agent; send a prompt to start it"
            raise AcpError(ERROR_CODES["agent_exited"], message)
        await self.host.end_agent(agent_id, by=None if by.kind == "program" else by.name)
        return self.catalogue.get(session_id)

    async def agent_offers(self, agent_id: str) -> list[str]:
        return self.host.optional.agent_offers(agent_id)

    async def auth_status(self, agent_id: str) -> JsonObject:
        return await self.host.optional.auth_status(agent_id)

    async def list_providers(self, agent_id: str) -> list[JsonObject]:
        return await self.host.optional.list_providers(agent_id)

    async def set_provider(
        self, agent_id: str, provider: Mapping[str, Any], *, by: Actor = PROGRAM
    ) -> None:
        log_command("set_provider", by)
        await self.host.optional.set_provider(agent_id, provider)

    async def disable_provider(
        self, agent_id: str, provider_id: str, *, by: Actor = PROGRAM
    ) -> None:
        log_command("disable_provider", by)
        await self.host.optional.disable_provider(agent_id, provider_id)
