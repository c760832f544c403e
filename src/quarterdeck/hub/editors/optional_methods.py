"""The methods that an agent need not offer, for editors of both versions of ACP.

Titles, archives and the status of sessions work with every agent: the runner asks the agent where
it offers them and keeps them otherwise. Providers, the status of a sign-in and single cancels are
passed to the agent. Headers of a provider are credentials: they are sent on and kept nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from quarterdeck.agent import checks
from quarterdeck.agent.checks import Json
from quarterdeck.errors import AcpError, RpcError
from quarterdeck.hub.editors.access import EditorAccess
from quarterdeck.hub.editors.editor import RESOURCE_NOT_FOUND, Editor
from quarterdeck.protocol import ERROR_CODES

_PROVIDER: Final = ("providerId", "apiType", "baseUrl", "headers")


class OptionalMethods:
    """What an editor can do with sessions and agents beside conversations."""

    def __init__(self, editor: Editor, access: EditorAccess) -> None:
        self._editor = editor
        self._access = access
        self._runner = editor.hub.runner
        self.handlers = {
            "session/set_title": self._set_title,
            "session/archive": self._archive,
            "session/unarchive": self._unarchive,
            "session/status": self._status,
            "auth/status": self._auth_status,
            "providers/list": self._list_providers,
            "providers/set": self._set_provider,
            "providers/disable": self._disable_provider,
        }
        self.cancels = {
            "tool_call/cancel": self._cancel_tool_call,
            "terminal/cancel": self._cancel_terminal,
        }
        """Of ACP 2 alone."""

    def of_sessions(self) -> dict[str, Any]:
        """Return the capabilities of sessions; they are the same for every agent."""
        may_change = self._editor.device.may("prompt")
        names = ("title", "archive", "status") if may_change else ("status",)
        return {name: {} for name in names}

    async def of_agent(self, agent_id: str) -> dict[str, Any]:
        """Return what an agent offers beside sessions, to a device that may use it."""
        if not self._editor.device.may("admin"):
            return {}
        offered = await self._runner.agent_offers(agent_id)
        known: dict[str, Any] = {"auth/status": {"auth": {"status": {}}}}
        known["providers"] = {"providers": {}}
        found: dict[str, Any] = {}
        for name in offered:
            found |= known.get(name, {})
        return found

    # ---- sessions ------------------------------------------------------------------------------

    async def _set_title(self, params: Json) -> Any:
        session_id, title = self._known(params), checks.required_string(params, "title")
        self._editor.need("prompt", "renaming a session")
        actor = self._editor.as_device.actor
        session = await self._runner.set_title(session_id, title, by=actor)
        return {"title": session.title if isinstance(session.title, str) else title}

    async def _archive(self, params: Json) -> Any:
        return await self._set_archived(params, is_archived=True)

    async def _unarchive(self, params: Json) -> Any:
        return await self._set_archived(params, is_archived=False)

    async def _set_archived(self, params: Json, *, is_archived: bool) -> Any:
        session_id = self._known(params)
        self._editor.need("prompt", "archiving a session")
        actor = self._editor.as_device.actor
        await self._runner.set_archived(session_id, is_archived=is_archived, by=actor)
        return {}

    async def _status(self, params: Json) -> Any:
        found = await self._runner.session_status(self._known(params))
        state = found.get("state")
        answer: dict[str, Any] = {"status": found["status"]}
        if self._editor.version > 1 and isinstance(state, Mapping):
            answer["state"] = dict(state)
        return answer

    async def _cancel_tool_call(self, params: Json) -> Any:
        session_id = self._known(params)
        call_id = checks.required_string(params, "toolCallId")
        self._editor.need("prompt", "cancelling a tool call")
        actor = self._editor.as_device.actor
        with _as_invalid():
            await self._runner.cancel_tool_call(session_id, call_id, by=actor)
        return {}

    async def _cancel_terminal(self, params: Json) -> Any:
        session_id = self._known(params)
        terminal_id = checks.required_string(params, "terminalId")
        self._editor.need("prompt", "cancelling a terminal")
        actor = self._editor.as_device.actor
        with _as_invalid():
            await self._runner.cancel_terminal(session_id, terminal_id, by=actor)
        return {}

    def _known(self, params: Json) -> str:
        """Return the id of a session of this agent.

        Raises:
            RpcError: if there is none.
        """
        session_id = checks.required_string(params, "sessionId")
        if self._access.known(session_id) is None:
            message = f"there is no session {session_id!r}"
            raise RpcError(RESOURCE_NOT_FOUND, message, {"sessionId": session_id})
        return session_id

    # ---- the agent -----------------------------------------------------------------------------

    async def _auth_status(self, _params: Json) -> Any:
        self._editor.need("admin", "seeing how an agent is signed in")
        return await self._runner.auth_status(await self._agent_id())

    async def _list_providers(self, _params: Json) -> Any:
        self._editor.need("admin", "seeing the providers of an agent")
        return {"providers": await self._runner.list_providers(await self._agent_id())}

    async def _set_provider(self, params: Json) -> Any:
        self._editor.need("admin", "configuring a provider")
        provider = {name: params[name] for name in _PROVIDER if params.get(name) is not None}
        actor = self._editor.as_device.actor
        await self._runner.set_provider(await self._agent_id(), provider, by=actor)
        return {}

    async def _disable_provider(self, params: Json) -> Any:
        provider_id = checks.required_string(params, "providerId")
        self._editor.need("admin", "disabling a provider")
        actor = self._editor.as_device.actor
        await self._runner.disable_provider(await self._agent_id(), provider_id, by=actor)
        return {}

    async def _agent_id(self) -> str:
        return (await self._access.running_agent()).agent_id


@contextmanager
def _as_invalid() -> Iterator[None]:
    """Answer a cancel that is not offered with -32602, as ACP 2 requires: the method exists."""
    try:
        yield
    except AcpError as error:
        if error.code == ERROR_CODES["capability_unsupported"]:
            raise checks.invalid(error.message) from error
        raise
