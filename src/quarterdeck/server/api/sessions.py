"""Sessions: begun, read, steered, ended."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta

from quarterdeck.errors import RequestRefused
from quarterdeck.protocol import to_json
from quarterdeck.server.handling import Answer, Asked, Body, Nothing, Query, json_app
from quarterdeck.server.hub import Hub
from quarterdeck.server.library import SessionView
from quarterdeck.server.refusals import invalid
from quarterdeck.server.routes import Endpoint

_Text = Annotated[str, Meta(min_length=1, max_length=4096)]
_Path = Annotated[str, Meta(pattern="^/", max_length=4096)]
_Seq = Annotated[int, Meta(ge=0, le=2**53)]


class SessionList(Answer, frozen=True, kw_only=True):
    sessions: list[SessionView]


class SessionListQuery(Query, frozen=True, kw_only=True):
    status: str | None = None
    agent: str | None = None
    cwd: str | None = None
    """Sessions in this folder."""


class CreateSession(Body, frozen=True, kw_only=True):
    """Where to work and with which agent: one by its name, or one that runs by its id."""

    cwd: _Path
    agent: _Text | None = None
    agent_id: _Text | None = None
    mcp_servers: tuple[dict[str, Any], ...] = ()
    """Starting these needs the scope admin: they may be any command."""
    additional_directories: tuple[_Path, ...] = ()


class OpenSession(Body, frozen=True, kw_only=True):
    """How to open a session again; what is left out stays as it was."""

    cwd: _Path | None = None
    agent: _Text | None = None
    agent_id: _Text | None = None
    mcp_servers: list[dict[str, Any]] | None = None
    additional_directories: list[_Path] | None = None


class SessionQuery(Query, frozen=True, kw_only=True):
    at: _Seq | None = None
    """The seq of the event after which the state is wanted; the newest if left out."""


class SessionState(Answer, frozen=True, kw_only=True):
    """A session and what its events come to."""

    session: SessionView
    seq: int
    """Of the last event in the state."""
    state: dict[str, Any]


class HistoryQuery(Query, frozen=True, kw_only=True):
    from_seq: _Seq = 0
    """Events after this one."""
    limit: Annotated[int, Meta(ge=1, le=5000)] = 500


class History(Answer, frozen=True, kw_only=True):
    """Events in order, as they are stored."""

    events: list[Any]
    next_seq: int
    """What `from_seq` is for the next page."""
    last_seq: int


class SetMode(Body, frozen=True, kw_only=True):
    mode_id: _Text


class SetOption(Body, frozen=True, kw_only=True):
    config_id: _Text
    value: str | bool


class Options(Answer, frozen=True, kw_only=True):
    config_options: list[Any]


class _Sessions:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._library = hub.library

    # ---- reading -------------------------------------------------------------------------------

    async def list(self, asked: Asked) -> SessionList:
        query: SessionListQuery = asked.query
        wanted = {"status": query.status, "agent": query.agent, "cwd": query.cwd}
        return SessionList(
            sessions=[
                session
                for session in self._library.all()
                if all(
                    value is None or getattr(session, name) == value
                    for name, value in wanted.items()
                )
            ]
        )

    async def get(self, asked: Asked) -> SessionState:
        session_id = asked.path["id"]
        view = self._library.get(session_id)
        # Read once before its end is looked at: that settles what a crash left open.
        await self._library.page(session_id, view.last_seq, 1)
        view = self._library.get(session_id)
        seq = view.last_seq if asked.query.at is None else asked.query.at
        if seq > view.last_seq:
            raise invalid(f"session {session_id} has {view.last_seq} events, not {seq}")
        state = await self._library.state(session_id, seq)
        return SessionState(session=view, seq=seq, state=to_json(state))

    async def history(self, asked: Asked) -> History:
        session_id, query = asked.path["id"], asked.query
        self._library.get(session_id)
        page = await self._library.page(session_id, query.from_seq, query.limit)
        last_seq = self._library.get(session_id).last_seq
        next_seq = _seq(page[-1], query.from_seq + len(page)) if page else query.from_seq
        events: list[Any] = [msgspec.Raw(event) for event in page]
        return History(events=events, next_seq=next_seq, last_seq=max(last_seq, next_seq))

    # ---- beginning and ending ------------------------------------------------------------------

    async def create(self, asked: Asked) -> SessionView:
        wanted: CreateSession = asked.body
        _check_servers(asked, wanted.mcp_servers)
        agent_id = await self._agent_id(wanted.agent, wanted.agent_id)
        session = await self._hub.host.create_session(
            agent_id,
            cwd=wanted.cwd,
            mcp_servers=wanted.mcp_servers,
            additional_directories=wanted.additional_directories,
        )
        return self._library.get(session.session_id)

    async def load(self, asked: Asked) -> SessionView:
        session_id = asked.path["id"]
        agent_id, place = await self._opening(asked)
        await self._hub.host.load_session(agent_id, session_id, **place)
        return self._library.get(session_id)

    async def resume(self, asked: Asked) -> SessionView:
        session_id = asked.path["id"]
        agent_id, place = await self._opening(asked)
        await self._hub.host.resume_session(agent_id, session_id, **place)
        return self._library.get(session_id)

    async def close(self, asked: Asked) -> SessionView:
        self._library.get(asked.path["id"])
        await self._hub.host.close_session(asked.path["id"])
        return self._library.get(asked.path["id"])

    async def delete(self, asked: Asked) -> None:
        await self._hub.delete_session(asked.path["id"])

    async def _opening(self, asked: Asked) -> tuple[str, dict[str, Any]]:
        wanted: OpenSession = asked.body
        _check_servers(asked, wanted.mcp_servers or ())
        known = next(
            (each for each in self._library.all() if each.session_id == asked.path["id"]), None
        )
        agent = wanted.agent
        if agent is None and wanted.agent_id is None and known is not None:
            agent = None if known.agent is UNSET else known.agent
        cwd = wanted.cwd or (None if known is None else known.cwd)
        if cwd is None:
            raise invalid("this session is not known here; say its cwd")
        servers = wanted.mcp_servers
        if servers is None:
            servers = [] if known is None or known.mcp_servers is UNSET else [*known.mcp_servers]
        directories = wanted.additional_directories
        if directories is None:
            directories = [] if known is None else [*known.additional_directories]
        place = {"cwd": cwd, "mcp_servers": servers, "additional_directories": directories}
        return await self._agent_id(agent, wanted.agent_id), place

    async def _agent_id(self, agent: str | None, agent_id: str | None) -> str:
        if (agent is None) == (agent_id is None):
            raise invalid("say either agent, the name of a known one, or agentId, one that runs")
        if agent_id is not None:
            return agent_id
        assert agent is not None
        return (await self._hub.keeper.spawn_known(agent)).agent_id

    # ---- steering ------------------------------------------------------------------------------

    async def cancel(self, asked: Asked) -> SessionView:
        view = self._library.get(asked.path["id"])
        if view.status == "prompting":
            await self._hub.host.cancel(view.session_id)
        return self._library.get(view.session_id)

    async def set_mode(self, asked: Asked) -> SessionView:
        session = await self._hub.keeper.active(asked.path["id"])
        await self._hub.host.set_mode(session.session_id, asked.body.mode_id)
        return self._library.get(session.session_id)

    async def set_option(self, asked: Asked) -> Options:
        session = await self._hub.keeper.active(asked.path["id"])
        options = await self._hub.host.set_config_option(
            session.session_id, asked.body.config_id, asked.body.value
        )
        return Options(config_options=options)


def _check_servers(asked: Asked, servers: Any) -> None:
    if servers and not asked.by.may("admin"):
        message = f"this device may {asked.by.scope}; starting MCP servers needs admin"
        raise RequestRefused(403, "forbidden", message)


def _seq(event: bytes, otherwise: int) -> int:
    try:
        return msgspec.json.decode(event, type=_Numbered).seq
    except msgspec.DecodeError:
        return otherwise


class _Numbered(msgspec.Struct):
    seq: int


def session_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the sessions' part of the route table."""
    api = _Sessions(hub)
    return [*_reading(api), *_lifecycle(api), *_steering(api)]


def _reading(api: _Sessions) -> list[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/sessions",
            scope="view",
            app=json_app(api.list, query=SessionListQuery),
            summary="List sessions",
            tag="sessions",
            query=SessionListQuery,
            answer=SessionList,
        ),
        Endpoint(
            method="GET",
            path="/api/sessions/{id}",
            scope="view",
            app=json_app(api.get, query=SessionQuery),
            summary="Show a session and its state, now or after an event",
            tag="sessions",
            query=SessionQuery,
            answer=SessionState,
            errors=(400, 404),
        ),
        Endpoint(
            method="GET",
            path="/api/sessions/{id}/history",
            scope="view",
            app=json_app(api.history, query=HistoryQuery),
            summary="Read the events of a session, page by page",
            tag="sessions",
            query=HistoryQuery,
            answer=History,
            errors=(400, 404),
        ),
    ]


def _lifecycle(api: _Sessions) -> list[Endpoint]:
    opening = {"body": OpenSession, "answer": SessionView, "errors": (400, 403, 404, 409, 422, 502)}
    return [
        Endpoint(
            method="POST",
            path="/api/sessions",
            scope="prompt",
            app=json_app(api.create, body=CreateSession, status=201),
            summary="Begin a session",
            tag="sessions",
            body=CreateSession,
            answer=SessionView,
            status=201,
            errors=(400, 403, 404, 409, 502),
        ),
        Endpoint(
            method="POST",
            path="/api/sessions/{id}/load",
            scope="prompt",
            app=json_app(api.load, body=OpenSession),
            summary="Open a session again; its agent tells its history anew",
            tag="sessions",
            **opening,  # type: ignore[arg-type]  # as they are written above
        ),
        Endpoint(
            method="POST",
            path="/api/sessions/{id}/resume",
            scope="prompt",
            app=json_app(api.resume, body=OpenSession),
            summary="Go on with a session where it was left",
            tag="sessions",
            **opening,  # type: ignore[arg-type]  # as they are written above
        ),
        Endpoint(
            method="POST",
            path="/api/sessions/{id}/close",
            scope="prompt",
            app=json_app(api.close, body=Nothing),
            summary="Close a session; load opens it again",
            tag="sessions",
            body=Nothing,
            answer=SessionView,
            errors=(404, 409),
        ),
        Endpoint(
            method="DELETE",
            path="/api/sessions/{id}",
            scope="admin",
            app=json_app(api.delete, status=204),
            summary="Delete a session for ever",
            tag="sessions",
            status=204,
            errors=(404, 409, 502),
        ),
    ]


def _steering(api: _Sessions) -> list[Endpoint]:
    return [
        Endpoint(
            method="POST",
            path="/api/sessions/{id}/cancel",
            scope="prompt",
            app=json_app(api.cancel, body=Nothing),
            summary="Cancel the turn that runs; prompts that wait stay",
            tag="sessions",
            body=Nothing,
            answer=SessionView,
            errors=(404, 409),
        ),
        Endpoint(
            method="PUT",
            path="/api/sessions/{id}/mode",
            scope="prompt",
            app=json_app(api.set_mode, body=SetMode),
            summary="Change the mode of a session",
            tag="sessions",
            body=SetMode,
            answer=SessionView,
            errors=(400, 404, 409, 422, 502),
        ),
        Endpoint(
            method="PUT",
            path="/api/sessions/{id}/options",
            scope="prompt",
            app=json_app(api.set_option, body=SetOption),
            summary="Change an option of a session",
            tag="sessions",
            body=SetOption,
            answer=Options,
            errors=(400, 404, 409, 422, 502),
        ),
    ]
