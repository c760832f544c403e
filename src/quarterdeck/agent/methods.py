"""What the methods of both versions of ACP share, on the sessions of an agent.

A method that needs a member the agent lacks is not announced by `initialize` and gets the error
"method not found". Invalid params get an error with a sentence (see `checks`).
"""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from anyio import to_thread

from quarterdeck.agent import checks, definition
from quarterdeck.agent.checks import Json
from quarterdeck.agent.session import AgentSession, ClientLink
from quarterdeck.agent.sessions import AgentSessions, SessionParams
from quarterdeck.agent.store import StoredSessionInfo

PAGE: Final = 50
"""Sessions in one response to `session/list`."""

_BAD_CURSOR: Final = "cursor was not returned by session/list"

AgentHandler: TypeAlias = Callable[[Json], Awaitable[Any]]


class AgentMethods(ABC):
    """The methods of one connection, in the version that `initialize` chose."""

    def __init__(self, sessions: AgentSessions, link: ClientLink) -> None:
        self._sessions = sessions
        self._agent = sessions.agent
        self.link = link

    @property
    @abstractmethod
    def handlers(self) -> Mapping[str, AgentHandler]:
        """The handlers of requests by method, but `initialize`."""

    @abstractmethod
    def introduce(self) -> dict[str, Any]:
        """Return the answer to `initialize`."""

    @abstractmethod
    def on_cancel(self, session_id: str) -> None:
        """Handle `session/cancel`."""

    async def _authenticate(self, params: Json) -> Any:
        method_id = checks.required_string(params, "methodId")
        known = [method.get("id") for method in self._agent.auth_methods]
        if known and method_id not in known:
            raise checks.invalid(f"there is no auth method {method_id!r}")
        if self._agent.authenticate is not None:
            await self._agent.authenticate(method_id)
        return {}

    async def _logout(self, _params: Json) -> Any:
        assert self._agent.logout is not None
        await self._agent.logout()
        return {}

    async def _delete(self, params: Json) -> Any:
        session_id = checks.session_id(params)
        async with self._sessions.alone(session_id):
            await self._sessions.delete(session_id, self.link)
        return {}

    async def _list(self, params: Json) -> Any:
        cwd = checks.optional_string(params, "cwd")
        if cwd is not None and not cwd.startswith("/"):
            raise checks.invalid("cwd must be an absolute path")
        after = _read_cursor(checks.optional_string(params, "cursor"))
        assert self._sessions.store is not None, "without a store there is no session/list"
        listed = await to_thread.run_sync(self._sessions.store.list)
        wanted = [
            each
            for each in listed
            if (cwd is None or each.record.cwd == cwd) and (after is None or each.sort_key < after)
        ]
        answer: dict[str, Any] = {"sessions": [_session_info(each) for each in wanted[:PAGE]]}
        if len(wanted) > PAGE:
            answer["nextCursor"] = _write_cursor(wanted[PAGE - 1])
        return answer

    async def _change_mode(self, session: AgentSession, mode_id: str) -> None:
        if self._agent.set_mode is not None:
            await self._agent.set_mode(session, mode_id)
        session.change_mode(mode_id)

    async def _change_option(self, session: AgentSession, config_id: str, value: Any) -> None:
        option = definition.find_option(session.config_options(), config_id)
        problem = definition.option_problem(option, value)
        if problem is not None:
            raise checks.invalid(problem)
        if config_id == definition.MODE_OPTION and self._agent.modes:
            await self._change_mode(session, value)
            return
        if self._agent.set_config_option is not None:
            await self._agent.set_config_option(session, config_id, value)
        session.change_config(config_id, value)

    def _session(self, params: Json) -> AgentSession:
        return self._sessions.find(checks.session_id(params), self.link)


def session_params(params: Json) -> SessionParams:
    cwd = checks.directory(params.get("cwd"), "cwd")
    servers = checks.mcp_servers(params)
    return SessionParams(cwd, checks.additional_directories(params), servers)


def resume_params(params: Json) -> SessionParams:
    return session_params({**params, "mcpServers": params.get("mcpServers") or []})


def _session_info(listed: StoredSessionInfo) -> dict[str, Any]:
    record = listed.record
    info: dict[str, Any] = {"sessionId": listed.id, "cwd": record.cwd}
    if record.additional_directories:
        info["additionalDirectories"] = list(record.additional_directories)
    if record.title is not None:
        info["title"] = record.title
    return {**info, "updatedAt": listed.updated_at}


def _write_cursor(last: StoredSessionInfo) -> str:
    return base64.urlsafe_b64encode(" ".join(last.sort_key).encode()).decode()


def _read_cursor(cursor: str | None) -> tuple[str, str] | None:
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise checks.invalid(_BAD_CURSOR) from error
    updated_at, _, session_id = text.partition(" ")
    if not checks.SESSION_ID.fullmatch(session_id):
        raise checks.invalid(_BAD_CURSOR)
    return updated_at, session_id
