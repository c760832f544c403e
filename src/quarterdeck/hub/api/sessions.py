"""Sessions: create, read, control, end."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from quarterdeck.agents import McpChoice, McpServerSettings
from quarterdeck.errors import RequestRejected
from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Body,
    EmptyBody,
    Endpoint,
    Query,
    invalid,
    json_endpoint,
    not_found,
    to_completion,
    unless_log_fails,
)
from quarterdeck.hub.auth.device import Scope
from quarterdeck.hub.fleet.identifiers import agent_name_of, machine_of
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.log_health import LogHealth
from quarterdeck.hub.view_cache import read_some
from quarterdeck.runner import SessionOverview, relative_folder

_Text = Annotated[str, Meta(min_length=1, max_length=4096)]
# Begins with a slash; not as a pattern, for the reason that `prompts` gives.
_Path = Annotated[str, Meta(min_length=1, max_length=4096)]
MOST_DAMAGES: Final = 5
HISTORY_BYTES: Final = 4 << 20
"""A page of events ends when it has as many bytes: a few large events must not fill the memory."""
_Seq = Annotated[int, Meta(ge=0, le=2**53)]


class SessionList(ApiResponse, frozen=True, kw_only=True):
    sessions: list[SessionOverview]
    epoch: str
    """Of the log: keep it with each `lastSeq`, and send both to resume."""
    epochs: dict[str, str]
    """By the id of a machine that is not the hub's own: the epoch of its sessions."""
    damages: tuple[str, ...]
    """A sentence for each damage that was found in the log; the first few."""


class SessionListQuery(Query, frozen=True, kw_only=True):
    status: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    """Sessions in this folder."""
    archived: Literal["exclude", "include", "only"] = "exclude"
    """Whether archived sessions are listed, too, or alone."""


class AddedServer(Body, frozen=True, kw_only=True):
    """An MCP server for one session: a command, or a URL. Secrets are references alone."""

    name: _Text
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    """Each value is `${NAME}`, a variable of the hub's environment."""
    url: str = ""
    transport: Literal["http", "sse"] = "http"
    headers: dict[str, str] = field(default_factory=dict)
    """Each value is `${NAME}`, or a word and that, as in `Bearer ${TOKEN}`."""


class McpServers(Body, frozen=True, kw_only=True):
    """The MCP servers of a new session."""

    configured: tuple[_Text, ...] | None = None
    """Names of those that hub.toml has for its folder; all of them if left out."""
    added: tuple[AddedServer, ...] = ()
    """Further ones. Starting these needs the scope admin: they may be any command."""


class CreateSession(Body, frozen=True, kw_only=True):
    """Where to work and with which agent: one by its name, or one that runs by its id."""

    cwd: _Path
    agent: _Text | None = None
    agent_id: _Text | None = None
    mcp_servers: tuple[dict[str, Any], ...] = ()
    """Starting these needs the scope admin: they may be any command."""
    mcp: McpServers | None = None
    """Which MCP servers of hub.toml it gets, and others whose secrets are named."""
    additional_directories: tuple[_Path, ...] = ()
    machine: _Text | None = None
    """The id or name of the machine where `agent` is; the hub's own if left out."""


class OpenSession(Body, frozen=True, kw_only=True):
    """How to open a session again; what is left out stays as it was."""

    cwd: _Path | None = None
    agent: _Text | None = None
    agent_id: _Text | None = None
    mcp_servers: list[dict[str, Any]] | None = None
    additional_directories: list[_Path] | None = None


class SessionQuery(Query, frozen=True, kw_only=True):
    at: _Seq | UnsetType = UNSET
    """The seq of the event after which the state is wanted; the newest if left out."""


class StateResponse(ApiResponse, frozen=True, kw_only=True):
    """A session and what its events come to."""

    session: SessionOverview
    seq: int
    """Of the last event in the state."""
    epoch: str
    """Of the log: keep it with `seq`, and send both to resume."""
    state: dict[str, Any]


class HistoryQuery(Query, frozen=True, kw_only=True):
    from_seq: _Seq = 0
    """Events after this one."""
    epoch: str | UnsetType = UNSET
    """The epoch that `fromSeq` is of; if it is over, the response is 409."""
    limit: Annotated[int, Meta(ge=1, le=5000)] = 500
    """How many events; of large ones the response has fewer."""


class History(ApiResponse, frozen=True, kw_only=True):
    """Events in order, as they are stored."""

    events: list[Any]
    next_seq: int
    """What `from_seq` is for the next page; never beyond `lastSeq`."""
    last_seq: int
    epoch: str
    """Of the log: keep it with a number, and send both to resume."""
    damage: str | UnsetType = UNSET
    """What is known to be wrong with the log of this session, as a sentence."""


class SetMode(Body, frozen=True, kw_only=True):
    mode_id: _Text


class SetOption(Body, frozen=True, kw_only=True):
    config_id: _Text
    value: str | bool


class Options(ApiResponse, frozen=True, kw_only=True):
    config_options: list[Any]


class _Sessions:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._runner = hub.runner

    # ---- reading -------------------------------------------------------------------------------

    async def list(self, request: ApiRequest) -> SessionList:
        query = request.query_as(SessionListQuery)
        wanted = {"status": query.status, "agent": query.agent, "cwd": query.cwd}
        listed = await self._runner.list_sessions()
        return SessionList(
            epoch=self._runner.log_epoch().id,
            epochs=self._hub.fleet.epochs(),
            damages=self._runner.health().damages[:MOST_DAMAGES],
            sessions=[
                session
                for session in listed
                if query.archived == "include" or session.archived == (query.archived == "only")
                if all(
                    value is UNSET or getattr(session, name) == value
                    for name, value in wanted.items()
                )
            ],
        )

    async def get(self, request: ApiRequest) -> StateResponse:
        session_id = request.path["id"]
        view = self._runner.session(session_id)
        # Read once before its end is looked at: that settles what a crash left open.
        await self._runner.read_events(session_id, view.last_seq, 1)
        view = await self._runner.show_session(session_id)
        query = request.query_as(SessionQuery)
        seq = view.last_seq if query.at is UNSET else query.at
        if seq > view.last_seq:
            raise invalid(
                f"session {session_id} has {view.last_seq} events, so it has no state at {seq}"
            )
        state: Any = msgspec.Raw(await self._hub.states.encoded_at(session_id, seq))
        epoch = self._runner.log_epoch(session_id).id
        return StateResponse(session=view, seq=seq, epoch=epoch, state=state)

    async def history(self, request: ApiRequest) -> History:
        session_id, query = request.path["id"], request.query_as(HistoryQuery)
        self._runner.session(session_id)
        epoch = self._runner.log_epoch(session_id).id
        if query.epoch is not UNSET and query.epoch != epoch:
            message = "the log was rolled back or replaced in the meantime; read it again from 0"
            raise RequestRejected("reset", message, data={"epoch": epoch})
        page = await read_some(
            self._runner.read_events, session_id, query.from_seq, query.limit, HISTORY_BYTES
        )
        next_seq = _seq(page[-1], query.from_seq + len(page)) if page else query.from_seq
        session = self._runner.session(session_id)
        last_seq = max(session.last_seq, next_seq) if page else session.last_seq
        events: list[Any] = [msgspec.Raw(event) for event in page]
        return History(
            events=events,
            next_seq=min(next_seq, last_seq),
            last_seq=last_seq,
            epoch=epoch,
            damage=session.damage,
        )

    # ---- beginning and ending ------------------------------------------------------------------

    async def create(self, request: ApiRequest) -> SessionOverview:
        wanted = request.body_as(CreateSession)
        _check_folders(wanted.cwd, *wanted.additional_directories)
        agent = wanted.agent
        if agent is not None and wanted.machine is not None:
            agent = self._hub.fleet.name_on(wanted.machine, agent)
        name = agent or wanted.agent_id or ""
        if wanted.mcp is not None and wanted.mcp_servers:
            raise invalid("send either mcpServers or mcp; mcp.added takes further servers")
        adds = bool(wanted.mcp_servers) or (wanted.mcp is not None and bool(wanted.mcp.added))
        _check_machine(request, name, "admin" if adds else "prompt")
        agent_id = await self._agent_id(request, agent, wanted.agent_id)
        return await self._runner.create_session(
            agent_id=agent_id,
            cwd=wanted.cwd,
            mcp_servers=wanted.mcp_servers if wanted.mcp is None else _choice(wanted.mcp),
            additional_directories=wanted.additional_directories,
            by=request.by.actor,
        )

    async def load(self, request: ApiRequest) -> SessionOverview:
        agent_id, folders = await self._opening(request)
        return await self._runner.load_session(
            agent_id, request.path["id"], by=request.by.actor, **folders
        )

    async def resume(self, request: ApiRequest) -> SessionOverview:
        agent_id, folders = await self._opening(request)
        return await self._runner.resume_session(
            agent_id, request.path["id"], by=request.by.actor, **folders
        )

    async def close(self, request: ApiRequest) -> SessionOverview:
        self._runner.session(request.path["id"])
        await self._runner.close_session(request.path["id"], by=request.by.actor)
        return self._runner.session(request.path["id"])

    async def delete(self, request: ApiRequest) -> None:
        await self._runner.delete_session(request.path["id"], by=request.by.actor)

    async def _opening(self, request: ApiRequest) -> tuple[str, dict[str, Any]]:
        wanted = request.body_as(OpenSession)
        _check_servers(request, wanted.mcp_servers or ())
        # Of another machine than the session's, it would be started before that is noticed.
        _check_machine(request, wanted.agent or wanted.agent_id or request.path["id"], "prompt")
        known = self._runner.find_session(request.path["id"])
        agent = wanted.agent
        if agent is None and wanted.agent_id is None and known is not None:
            agent = agent_name_of(known)
        cwd = wanted.cwd or (None if known is None else known.cwd)
        if cwd is None:
            raise invalid("the hub does not know this session; send its cwd")
        servers = wanted.mcp_servers
        if servers is None:
            servers = []
            if known is not None:
                servers = await self._runner.stored_servers(known.session_id)
            if known is not None and cwd != known.cwd:
                # In another folder, their commands may mean other programs.
                _check_servers(request, servers)
        directories = wanted.additional_directories
        if directories is None:
            directories = [] if known is None else [*known.additional_directories]
        _check_folders(cwd, *directories)
        folders = {"cwd": cwd, "mcp_servers": servers, "additional_directories": directories}
        return await self._agent_id(request, agent, wanted.agent_id), folders

    async def _agent_id(self, request: ApiRequest, agent: str | None, agent_id: str | None) -> str:
        if (agent is None) == (agent_id is None):
            raise invalid("send either agent, a known name, or agentId, the id of a running agent")
        if agent_id is not None:
            if self._runner.agent(agent_id) is None:
                raise not_found(f"agent {agent_id!r}", "list the agents to see which ones run")
            return agent_id
        assert agent is not None
        return (await self._runner.start_agent(agent, by=request.by.actor)).agent_id

    # ---- steering ------------------------------------------------------------------------------

    async def cancel(self, request: ApiRequest) -> SessionOverview:
        view = self._runner.session(request.path["id"])
        is_elsewhere = view.foreign is not UNSET and view.foreign.is_running
        if view.status == "prompting" or is_elsewhere:
            await self._runner.cancel_turn(view.session_id, by=request.by.actor)
        return self._runner.session(view.session_id)

    async def end_agent(self, request: ApiRequest) -> SessionOverview:
        view = self._runner.session(request.path["id"])
        return await self._runner.end_agent(view.session_id, by=request.by.actor)

    async def set_mode(self, request: ApiRequest) -> SessionOverview:
        session = await self._runner.ensure_active(request.path["id"])
        mode_id = request.body_as(SetMode).mode_id
        await self._runner.set_mode(session.session_id, mode_id, by=request.by.actor)
        return self._runner.session(session.session_id)

    async def set_option(self, request: ApiRequest) -> Options:
        session = await self._runner.ensure_active(request.path["id"])
        wanted = request.body_as(SetOption)
        options = await self._runner.set_option(
            session.session_id, wanted.config_id, wanted.value, by=request.by.actor
        )
        return Options(config_options=options)


def _choice(wanted: McpServers) -> McpChoice:
    added = {
        each.name: McpServerSettings(
            command=each.command,
            args=each.args,
            env=each.env,
            url=each.url,
            transport=each.transport,
            headers=each.headers,
        )
        for each in wanted.added
    }
    if len(added) < len(wanted.added):
        raise invalid("two added MCP servers have the same name; rename one")
    return McpChoice(configured=wanted.configured, added=added)


def _check_machine(request: ApiRequest, hub_id: str, needed: Scope) -> None:
    """Reject what the device may not do on the machine that an id belongs to."""
    device = request.by.on(machine_of(hub_id).machine_id)
    if not device.may(needed):
        what = "starting MCP servers" if needed == "admin" else "opening a session"
        message = (
            f"on that machine, this device has the scope {device.scope}; {what} needs {needed}"
        )
        raise RequestRejected("forbidden", message)


def _check_servers(request: ApiRequest, servers: Any) -> None:
    if servers and not request.by.may("admin"):
        message = f"this device has the scope {request.by.scope}; starting MCP servers needs admin"
        raise RequestRejected("forbidden", message)


def _check_folders(*folders: str) -> None:
    """Reject a relative folder: it would depend on where the hub was started."""
    sentence = relative_folder(*folders)
    if sentence is not None:
        raise invalid(sentence)


def _seq(event: bytes, otherwise: int) -> int:
    try:
        return msgspec.json.decode(event, type=_Numbered).seq
    except msgspec.DecodeError:
        return otherwise


class _Numbered(msgspec.Struct):
    seq: int


_OPENING = (400, 403, 404, 409, 422, 424)


def session_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the sessions' part of the route table."""
    api = _Sessions(hub)
    log = hub.log_health
    return [*_reading(api), *_opening(api, log), *_ending(api, log), *_steering(api, log)]


def _reading(api: _Sessions) -> list[Endpoint]:
    return [
        json_endpoint(
            "view",
            "GET /api/sessions",
            api.list,
            "List sessions",
            query=SessionListQuery,
            returns=SessionList,
        ),
        json_endpoint(
            "view",
            "GET /api/sessions/{id}",
            api.get,
            "Show a session and its state, now or after an event",
            query=SessionQuery,
            returns=StateResponse,
            errors=(400, 404, 413),
        ),
        json_endpoint(
            "view",
            "GET /api/sessions/{id}/history",
            api.history,
            "Read the events of a session, page by page",
            query=HistoryQuery,
            returns=History,
            errors=(400, 404, 409),
        ),
    ]


def _opening(api: _Sessions, log: LogHealth) -> list[Endpoint]:
    return [
        json_endpoint(
            "prompt",
            "POST /api/sessions",
            unless_log_fails(log, api.create),
            "Create a session",
            body=CreateSession,
            returns=SessionOverview,
            status=201,
            errors=(400, 403, 404, 409, 424),
        ),
        json_endpoint(
            "prompt",
            "POST /api/sessions/{id}/load",
            unless_log_fails(log, api.load),
            "Open a session again; its agent sends its history again",
            body=OpenSession,
            returns=SessionOverview,
            errors=_OPENING,
        ),
        json_endpoint(
            "prompt",
            "POST /api/sessions/{id}/resume",
            unless_log_fails(log, api.resume),
            "Open a session again where it stopped",
            body=OpenSession,
            returns=SessionOverview,
            errors=_OPENING,
        ),
    ]


def _ending(api: _Sessions, log: LogHealth) -> list[Endpoint]:
    return [
        json_endpoint(
            "prompt",
            "POST /api/sessions/{id}/close",
            to_completion(log, api.close),
            "Close a session; load opens it again",
            body=EmptyBody,
            returns=SessionOverview,
            errors=(404, 409),
        ),
        json_endpoint(
            "admin",
            "DELETE /api/sessions/{id}",
            to_completion(log, api.delete),
            "Delete a session and its log",
            status=204,
            errors=(404, 409, 424),
        ),
    ]


def _steering(api: _Sessions, log: LogHealth) -> list[Endpoint]:
    return [
        json_endpoint(
            "prompt",
            "POST /api/sessions/{id}/cancel",
            to_completion(log, api.cancel),
            "Cancel the running turn; queued prompts stay",
            body=EmptyBody,
            returns=SessionOverview,
            errors=(404, 409),
        ),
        json_endpoint(
            "approve",  # it ends the turns of all sessions of that agent
            "POST /api/sessions/{id}/end-agent",
            to_completion(log, api.end_agent),
            "End the agent of a session that does not respond; queued prompts run with a new one",
            body=EmptyBody,
            returns=SessionOverview,
            errors=(404, 424),
        ),
        json_endpoint(
            "approve",  # a mode can allow every call
            "PUT /api/sessions/{id}/mode",
            unless_log_fails(log, api.set_mode),
            "Change the mode of a session",
            body=SetMode,
            returns=SessionOverview,
            errors=(400, 404, 409, 422, 424),
        ),
        json_endpoint(
            "approve",
            "PUT /api/sessions/{id}/options",
            unless_log_fails(log, api.set_option),
            "Change an option of a session",
            body=SetOption,
            returns=Options,
            errors=(400, 404, 409, 422, 424),
        ),
    ]
