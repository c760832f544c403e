"""`OptionalCalls`: what an agent may offer, and need not. `Host.optional` has it.

| call                              | sent, if the agent offers it           | otherwise           |
| --------------------------------- | -------------------------------------- | ------------------- |
| `set_title`                       | `session/set_title`                    | recorded here alone |
| `set_archived`                    | `session/archive`, `session/unarchive` | False is returned   |
| `session_status`                  | `session/status`                       | as it is known here |
| `auth_status`                     | `auth/status`                          | its last report     |
| `list_providers`, `set_provider`, | `providers/list`, `providers/set`,     | refused             |
| `disable_provider`                | `providers/disable`                    |                     |
| `cancel_tool_call`                | `tool_call/cancel`                     | refused             |
| `cancel_terminal`                 | `terminal/cancel`                      | refused             |

The methods have the same shape in both versions of ACP, so one class calls both. Headers of a
provider are credentials: they are sent, never logged, and hidden in the agent's diagnostics
(INV-7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from quarterdeck.errors import RpcError
from quarterdeck.host.acp2.children import refuse_sub_agent
from quarterdeck.host.agent_process import AgentProcess
from quarterdeck.host.checks import check_json, check_text, config_invalid, unsupported
from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.log.tool_call_repair import mark
from quarterdeck.host.sessions.registry import SessionRegistry
from quarterdeck.host.sessions.session import HostSession
from quarterdeck.host.sessions.updates import UpdateRecorder
from quarterdeck.protocol import Normalized

TITLE_LENGTH: Final = 1000
"""Characters of a title that a person gives."""
RENAMED: Final = "the session was renamed"
_UNKNOWN: Final = {"state": "unknown"}


class OptionalCalls:
    """Calls the methods that agents need not have."""

    def __init__(
        self,
        emitter: Emitter,
        sessions: SessionRegistry,
        agent: Callable[[str], AgentProcess],
        agent_of: Callable[[HostSession], AgentProcess],
    ) -> None:
        self._emitter = emitter
        self._sessions = sessions
        self._recorder = UpdateRecorder(emitter, sessions)
        self._agent = agent
        self._agent_of = agent_of

    # ---- sessions --------------------------------------------------------------------------

    def offers(self, session_id: str, capability: str) -> bool:
        """Return whether the running agent of a session declares a session capability."""
        return self._offering(session_id, capability) is not None

    async def set_title(self, session_id: str, title: str) -> str:
        """Rename a session; return the title as it is stored.

        The log has the event either way, marked as ours.

        Raises:
            AcpError: `acpjs/config-invalid` if it is no title, `acpjs/session-closed`.
        """
        wanted = check_title(title)
        await self._emitter.hold.passed()
        session = self._sessions.live(session_id)
        refuse_sub_agent(session, "rename it")
        agent = self._offering(session_id, "title")
        if agent is not None:
            params = {"sessionId": session_id, "title": wanted}
            answer = await agent.call("session/set_title", params)
            stored = answer.get("title") if isinstance(answer, dict) else None
            wanted = stored if isinstance(stored, str) and stored.strip() else wanted
        if session.is_live:
            payload = {"title": wanted}
            self._recorder.record(
                session, Normalized("session-info-update", payload, mark(RENAMED))
            )
            await self._emitter.journal.wait_stored()
        return wanted

    async def set_archived(self, session_id: str, *, is_archived: bool) -> bool:
        """Archive a session at its agent, or undo that; return whether the agent offers it."""
        agent = self._offering(session_id, "archive")
        if agent is None:
            return False
        method = "session/archive" if is_archived else "session/unarchive"
        await agent.call(method, {"sessionId": session_id})
        return True

    async def session_status(self, session_id: str) -> dict[str, Any]:
        """Return `status`, open or saved, and in version 2 `state`: the agent's answer, or ours.

        Raises:
            AcpError: `acpjs/session-closed` if there is no such session.
        """
        agent = self._offering(session_id, "status")
        if agent is not None:
            answer = await agent.call("session/status", {"sessionId": session_id})
            if isinstance(answer, dict) and isinstance(answer.get("status"), str):
                return answer
        session = self._sessions.live(session_id)
        is_open = session.status in ("active", "prompting")
        found: dict[str, Any] = {"status": "open" if is_open else "saved"}
        if is_open:
            found["state"] = {"state": "running" if session.status == "prompting" else "idle"}
        return found

    def report_install(self, name: str, progress: Mapping[str, Any]) -> None:
        """Publish how far the installation of an agent is, on the host's stream."""
        self._emitter.host_event("install-progress", dict(progress), name)

    async def cancel_tool_call(self, session_id: str, tool_call_id: str) -> None:
        """Cancel one tool call; the turn continues.

        Raises:
            AcpError: `acpjs/capability-unsupported` unless the agent offers it for this call.
        """
        await self._cancel(session_id, "tool call", tool_call_id)

    async def cancel_terminal(self, session_id: str, terminal_id: str) -> None:
        """Cancel what runs in one terminal of the agent.

        Raises:
            AcpError: `acpjs/capability-unsupported` unless the agent offers it for this terminal.
        """
        await self._cancel(session_id, "terminal", terminal_id)

    async def _cancel(self, session_id: str, what: str, wanted: str) -> None:
        session = self._sessions.live(session_id)
        kind = what.replace(" ", "_")
        if (kind, check_text(wanted, f"the id of the {what}")) not in session.cancellable:
            raise unsupported(
                f"{what} {wanted} of session {session_id} cannot be cancelled by itself;"
                " cancel the turn"
            )
        name = "toolCallId" if kind == "tool_call" else "terminalId"
        params = {"sessionId": session_id, name: wanted}
        await self._agent_of(session).call(f"{kind}/cancel", params)

    def _offering(self, session_id: str, capability: str) -> AgentProcess | None:
        session = self._sessions.find(session_id)
        if session is None or session.status not in ("active", "prompting"):
            return None
        agent = self._agent_of(session)
        return agent if agent.can(capability) and agent.is_connected else None

    # ---- agents ----------------------------------------------------------------------------

    async def auth_status(self, agent_id: str) -> dict[str, Any]:
        """Return `state` and `accounts` of the sign-in: asked for, or as last reported."""
        agent = self._agent(agent_id)
        agent.connection()
        if _declares(agent.capabilities.get("auth"), "status"):
            answer = await agent.call("auth/status", {})
            if isinstance(answer, dict) and isinstance(answer.get("state"), str):
                return answer
        return dict(agent.auth_status or _UNKNOWN)

    def agent_offers(self, agent_id: str) -> list[str]:
        """Return which of `auth/status` and `providers` a connected agent offers."""
        agent = self._agent(agent_id)
        found = ["auth/status"] if _declares(agent.capabilities.get("auth"), "status") else []
        return [*found, "providers"] if _declares(agent.capabilities, "providers") else found

    async def list_providers(self, agent_id: str) -> list[dict[str, Any]]:
        """Return the model providers of an agent.

        Raises:
            AcpError: `acpjs/capability-unsupported` if it offers none.
        """
        answer = await self._with_providers(agent_id).call("providers/list", {})
        listed = answer.get("providers") if isinstance(answer, dict) else None
        return [each for each in listed if isinstance(each, dict)] if listed else []

    async def set_provider(self, agent_id: str, provider: Mapping[str, Any]) -> None:
        """Configure a provider: `providerId`, `apiType`, `baseUrl` and maybe `headers`.

        Raises:
            AcpError: `acpjs/config-invalid`, or `acpjs/capability-unsupported`.
        """
        agent = self._with_providers(agent_id)
        for name in ("providerId", "apiType", "baseUrl"):
            check_text(provider.get(name), name)
        headers = provider.get("headers")
        if headers is not None:
            if not isinstance(headers, Mapping):
                raise config_invalid("headers must be an object")
            agent.secrets.add(check_text(each, "a header") for each in headers.values())
        check_json(provider, "the provider")
        try:
            await agent.call("providers/set", dict(provider))
        except RpcError as error:
            raise RpcError(error.code, agent.secrets.hidden(error.message)) from None

    async def disable_provider(self, agent_id: str, provider_id: str) -> None:
        """Disable a provider.

        Raises:
            AcpError: `acpjs/capability-unsupported` if the agent offers none.
        """
        params = {"providerId": check_text(provider_id, "the provider")}
        await self._with_providers(agent_id).call("providers/disable", params)

    def _with_providers(self, agent_id: str) -> AgentProcess:
        agent = self._agent(agent_id)
        agent.connection()
        if not _declares(agent.capabilities, "providers"):
            raise unsupported(f"agent {agent_id} offers no providers; configure the agent itself")
        return agent


def _declares(capabilities: Any, name: str) -> bool:
    return isinstance(capabilities, Mapping) and capabilities.get(name) not in (None, False)


def check_title(title: Any) -> str:
    """Return a title of a session as one line.

    Raises:
        AcpError: `acpjs/config-invalid`.
    """
    line = " ".join(check_text(title, "the title").split())
    if not line or len(line) > TITLE_LENGTH:
        raise config_invalid(f"a title has 1 to {TITLE_LENGTH} characters; send another")
    return line
