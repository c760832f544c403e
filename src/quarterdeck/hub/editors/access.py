"""How an editor opens a session: a new one, or an existing one; and the list of sessions.

A live session is joined as it is: it keeps its folder and its MCP servers, and those of the editor
are ignored. One whose agent has ended is opened again with the editor's folders and servers. One
that the runner does not know is the agent's own, and is loaded from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from quarterdeck.agent import checks
from quarterdeck.agent.checks import Json, invalid
from quarterdeck.errors import AcpError, RpcError
from quarterdeck.host.log.stream import FIRST_LIMIT, next_limit
from quarterdeck.hub.editors.editor import Editor
from quarterdeck.hub.fleet.identifiers import agent_name_of
from quarterdeck.protocol import (
    ERROR_CODES,
    AgentSnapshotWire,
    Event,
    SessionStatus,
    decode_event,
)
from quarterdeck.runner import SessionOverview, can_load, can_resume
from quarterdeck.wire import INVALID_REQUEST

_RESET: Final = b'"session-reset"'


@dataclass(frozen=True, kw_only=True)
class OpenParams:
    """Where an editor wants a session to work."""

    cwd: str
    mcp_servers: tuple[Mapping[str, Any], ...]
    additional_directories: tuple[str, ...]

    @property
    def as_keywords(self) -> dict[str, Any]:
        return {
            "cwd": self.cwd,
            "mcp_servers": list(self.mcp_servers),
            "additional_directories": list(self.additional_directories),
        }


def open_params(params: Json, *, needs_servers: bool) -> OpenParams:
    """Return where a request wants a session to work.

    Raises:
        RpcError: if it does not say, or not as ACP does.
    """
    cwd = checks.required_string(params, "cwd")
    servers = params.get("mcpServers")
    if servers is None and needs_servers:
        raise invalid("mcpServers is required")
    if servers is not None and not _is_list(servers, dict):
        raise invalid("mcpServers must be an array of objects")
    folders = params.get("additionalDirectories") or []
    if not _is_list(folders, str):
        raise invalid("additionalDirectories must be an array of strings")
    for folder in (cwd, *folders):
        if not folder.startswith("/") or "\0" in folder:
            raise invalid(f"{folder!r} is not an absolute path")
    return OpenParams(
        cwd=cwd, mcp_servers=tuple(servers or ()), additional_directories=tuple(folders)
    )


def prompt_blocks(params: Json) -> list[Any]:
    """Return the content of a prompt.

    Raises:
        RpcError: if it is empty, or not content.
    """
    blocks = params.get("prompt")
    if not isinstance(blocks, list) or not blocks:
        raise invalid("prompt must be a list of content blocks, and not empty")
    if not all(isinstance(each, dict) and isinstance(each.get("type"), str) for each in blocks):
        raise invalid("each block of a prompt needs a type")
    return blocks


def _is_list(value: Any, of: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, of) for each in value)


class EditorAccess:
    """Opens sessions of one agent for one editor."""

    def __init__(self, editor: Editor, agent: str) -> None:
        self._editor = editor
        self._hub = editor.hub
        self._runner = editor.hub.runner
        self._agent = agent

    async def running_agent(self) -> AgentSnapshotWire:
        return await self._runner.start_agent(self._agent, by=self._editor.as_device.actor)

    async def create(self, params: OpenParams) -> SessionOverview:
        self._check_servers(params)
        actor = self._editor.as_device.actor
        return await self._hub.log_health.begin(
            lambda: self._runner.create_session(self._agent, by=actor, **params.as_keywords)
        )

    async def reopen(self, session_id: str, params: OpenParams) -> None:
        """Make a session ready for prompts.

        Raises:
            AcpError: if the agent cannot open it again.
            RpcError: if the agent does not have it, or it is another agent's.
        """
        view = self.known(session_id)
        status: SessionStatus = "closed" if view is None else view.status
        match status:
            case "active" | "prompting":
                return
            case "creating" | "resuming":
                self._check_servers(params)
                await self._runner.ensure_active(session_id)
            case "closed":
                self._check_servers(params)
                await self._load(await self.running_agent(), session_id, params)
            case "disconnected" | "deleted":
                self._check_servers(params)
                await self._open_again(await self.running_agent(), session_id, params)
            case _:
                assert_never(status)

    def known(self, session_id: str) -> SessionOverview | None:
        """Return a session that the runner knows; None if it does not.

        Raises:
            RpcError: if it is another agent's.
        """
        view = self._runner.find_session(session_id)
        if view is not None and agent_name_of(view) != self._agent:
            message = (
                f"session {session_id} is one of {agent_name_of(view)}, and this is {self._agent}"
            )
            message += "; open it with its own agent"
            raise RpcError(INVALID_REQUEST, message, {"code": "quarterdeck/invalid"})
        return view

    async def _open_again(
        self, agent: AgentSnapshotWire, session_id: str, params: OpenParams
    ) -> None:
        if can_resume(agent):
            try:
                await self._runner.resume_session(
                    agent.agent_id,
                    session_id,
                    by=self._editor.as_device.actor,
                    **params.as_keywords,
                )
            except RpcError:
                if not can_load(agent):
                    raise
            else:
                return
        await self._load(agent, session_id, params)

    async def _load(self, agent: AgentSnapshotWire, session_id: str, params: OpenParams) -> None:
        if not can_load(agent):
            message = (
                f"{self._agent} cannot load sessions, so an ended one cannot be opened again; "
                "quarterdeck show prints what is in it"
            )
            raise AcpError(ERROR_CODES["capability_unsupported"], message)
        actor = self._editor.as_device.actor
        await self._runner.load_session(agent.agent_id, session_id, by=actor, **params.as_keywords)

    def _check_servers(self, params: OpenParams) -> None:
        if params.mcp_servers:
            self._editor.need("admin", "starting MCP servers")

    async def history_begins(self, session_id: str, until: int) -> int:
        """Return the number behind which the history begins: that of the last reset."""
        begins = after = 0
        limit = FIRST_LIMIT
        while after < until:
            page = await self._runner.read_events(session_id, after, limit)
            if not page:
                break
            limit = next_limit(page)
            begins = max([begins, *map(_reset_seq, page)])
            after += len(page)
        return begins


def _reset_seq(stored: bytes) -> int:
    if _RESET not in stored:
        return 0
    event: Event = decode_event(stored)
    return event.seq if event.type == "session-reset" else 0


PAGE: Final = 50
"""Sessions in one response, at most."""


def listed(
    sessions: Sequence[SessionOverview], *, agent: str, cwd: str | None, cursor: str | None
) -> dict[str, Any]:
    """Return one page, the newest first.

    Raises:
        RpcError: if the cursor is none.
    """
    wanted = [
        each
        for each in reversed(sessions)
        if agent_name_of(each) == agent and each.status != "deleted" and cwd in (None, each.cwd)
    ]
    begin = 0
    if cursor is not None:
        positions = [index for index, each in enumerate(wanted, 1) if each.session_id == cursor]
        if not positions:
            raise invalid("cursor is none that session/list gave, or its session is gone")
        begin = positions[0]
    page = wanted[begin : begin + PAGE]
    answer: dict[str, Any] = {"sessions": [_info(each) for each in page]}
    if len(wanted) > begin + PAGE:
        answer["nextCursor"] = page[-1].session_id
    return answer


def _info(session: SessionOverview) -> dict[str, Any]:
    info: dict[str, Any] = {"sessionId": session.session_id, "cwd": session.cwd}
    if session.additional_directories:
        info["additionalDirectories"] = list(session.additional_directories)
    given = {"title": session.title, "updatedAt": session.updated_at}
    info |= {name: value for name, value in given.items() if isinstance(value, str)}
    return {**info, "archived": True} if session.archived else info
