"""OpenCode's server: which sessions are open, what they ask for, answers, prompts and aborts.

Once a second the processes that listen are looked for (`servers.py`). Each is followed by its
stream of events (`/global/event`) until that breaks:

    event                    here
    permission.asked         `LiveListener.requested`, with the input of the call from its message
    permission.replied       `LiveListener.settled`
    session.status           the status of the session
    session.error            how the turn ends
    session.idle             the turn has ended
    any other of a session   the session is open there; there is more to read

What was asked before the stream was opened is asked for (`GET /permission`). A session is taken for
open in a process if something happened in it since that process started.

The server needs a password only if OPENCODE_SERVER_PASSWORD is set for it; then it has to be set
for the runner, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import anyio
from anyio.abc import TaskGroup

from quarterdeck.agents.adapters.opencode import requests
from quarterdeck.agents.adapters.opencode.servers import ListeningProcess, OpenCodeProcesses
from quarterdeck.agents.adapters.opencode.session_events import ending_of
from quarterdeck.errors import AcpError
from quarterdeck.http.client import RequestFailed
from quarterdeck.http.json_api import JsonApi, opened_api
from quarterdeck.machine.process_table import process_table
from quarterdeck.protocol import ERROR_CODES
from quarterdeck.views.context import ForeignSession, LiveListener, LiveRequest

logger = logging.getLogger(__name__)

Json = dict[str, Any]

LOOK_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 10.0
_IDLE: Final = "idle"
_OK: Final = 200
_UNAUTHORIZED: Final = 401
_GONE: Final = 404
_FIRST_ERROR: Final = 400


class _Turn:
    """A turn that runs, or the next one; an end is reported more than once if it was aborted."""

    def __init__(self) -> None:
        self.is_begun = False
        self.ended = anyio.Event()
        self.ending: Json = {}


class _OpenSession:
    """A session that is open in a server."""

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.folder = ""
        self.status = _IDLE
        self.turn = _Turn()
        self.error: Json | None = None
        self.is_reported = False
        """Whether an event has said what it does: then a list that was asked for is older."""

    def take(self, kind: Any, facts: Json) -> None:
        """Take what an event says about the turn."""
        match kind:
            case "session.status":
                self.take_status(facts.get("status"))
                self.is_reported = True
            case "session.error":
                self.error = _object(facts, "error")
                self.turn.is_begun = True
            case "session.idle" if self.turn.is_begun:
                self.end_turn()
            case _:
                pass

    def take_status(self, status: Any) -> None:
        kind = status.get("type") if isinstance(status, dict) else None
        if isinstance(kind, str) and kind != _IDLE:
            self.status = kind
            self.turn.is_begun = True

    def end_turn(self) -> None:
        self.status = _IDLE
        self.turn.ending = ending_of(self.error)
        self.turn.ended.set()
        self.turn, self.error = _Turn(), None


class _Server:
    """One process of OpenCode that listens, and what it has said."""

    def __init__(self, process: ListeningProcess, api: JsonApi) -> None:
        self.process = process
        self.api = api
        self.started_at = _started_at(process.pid)
        self.sessions: dict[str, _OpenSession] = {}
        self.asked: dict[str, Json] = {}
        """What it waits for, by the ids of the requests."""
        self._answered: set[str] = set()  # a list that was asked for before may still have them

    def session(self, session_id: str, folder: Any = "") -> _OpenSession:
        found = self.sessions.get(session_id)
        if found is None:
            found = self.sessions[session_id] = _OpenSession(session_id)
        if isinstance(folder, str) and folder:
            found.folder = folder
        return found

    def is_new(self, request_id: str) -> bool:
        return request_id not in self.asked and request_id not in self._answered

    def replied(self, listener: LiveListener, request_id: str) -> None:
        """Take note that it does not wait for a request any more."""
        self._answered.add(request_id)
        if self.asked.pop(request_id, None) is not None:
            listener.settled(request_id)

    def settle(self, listener: LiveListener, session_id: str) -> None:
        """Take note that a session waits for nothing any more."""
        for request_id, facts in tuple(self.asked.items()):
            if facts.get("sessionID") == session_id:
                self.replied(listener, request_id)

    def described(self, session: _OpenSession) -> ForeignSession:
        waiting = [
            str(each.get("permission"))
            for each in self.asked.values()
            if each.get("sessionID") == session.id
        ]
        is_busy = session.status != _IDLE
        return ForeignSession(
            id=session.id,
            cwd=session.folder,
            is_running=True,
            status="waiting" if waiting else "busy" if is_busy else "idle",
            waiting_for=f"permission: {', '.join(waiting)}" if waiting else "",
            pid=self.process.pid,
        )

    async def post(
        self, session_id: str, path: str, body: Json, accepted: tuple[int, ...] = ()
    ) -> None:
        """Send a command about a session.

        Raises:
            AcpError: if the server does not answer, or refuses.
        """
        try:
            status, answer = await self.api.call(
                "POST", f"{path}{_query(self.sessions[session_id].folder)}", body
            )
        except RequestFailed as error:
            message = f"OpenCode does not answer: {error}"
            raise AcpError(ERROR_CODES["agent_exited"], message) from error
        if status >= _FIRST_ERROR and status not in accepted:
            reason = _object(answer, "data").get("message") or f"status {status}"
            raise AcpError(ERROR_CODES["agent_error"], f"OpenCode refused: {reason}")


class OpenCodeServers:
    """Follows all servers of OpenCode on this machine."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._password = environ.get("OPENCODE_SERVER_PASSWORD", "")
        self._user = environ.get("OPENCODE_SERVER_USERNAME", "opencode")
        self._servers: dict[ListeningProcess, _Server | None] = {}
        self._retry_at: dict[ListeningProcess, float] = {}
        self._running: tuple[ForeignSession, ...] = ()

    # ---- what is known ------------------------------------------------------------------------

    def running(self) -> tuple[ForeignSession, ...]:
        """Return the sessions that are open; may be called on any thread."""
        return self._running

    def is_live(self, session_id: str) -> bool:
        return self._server_of(session_id) is not None

    def _connected(self) -> list[_Server]:
        return [each for each in self._servers.values() if each is not None]

    def _server_of(self, session_id: str) -> _Server | None:
        """Return the server that has a session open: one that is busy with it, or any."""
        found = [each for each in self._connected() if session_id in each.sessions]
        busy = [each for each in found if each.sessions[session_id].status != _IDLE]
        return next(iter(busy or found), None)

    def _note(self) -> None:
        """Make what is known visible to other threads."""
        self._running = tuple(
            server.described(session)
            for server in self._connected()
            for session in server.sessions.values()
            if self._server_of(session.id) is server
        )

    # ---- follow -------------------------------------------------------------------------------

    async def serve(self, listener: LiveListener) -> None:
        """Follow until cancelled."""
        processes = OpenCodeProcesses()
        async with anyio.create_task_group() as tasks:
            while True:
                found = await anyio.to_thread.run_sync(processes.listening)
                for process in found:
                    is_due = time.monotonic() >= self._retry_at.get(process, 0.0)
                    if process not in self._servers and is_due:
                        self._servers[process] = None
                        tasks.start_soon(self._serve, process, listener)
                self._retry_at = {each: self._retry_at.get(each, 0.0) for each in found}
                await anyio.sleep(LOOK_SECONDS)

    async def _serve(self, process: ListeningProcess, listener: LiveListener) -> None:
        url = f"http://127.0.0.1:{process.port}"
        try:
            async with opened_api(url, user=self._user, password=self._password) as api:
                await self._follow(_Server(process, api), listener)
        except RequestFailed as error:
            facts = {"pid": process.pid, "reason": str(error)}
            logger.info("a server of OpenCode is not followed", extra=facts)
        except Exception:  # the others are followed all the same
            logger.exception("following a server of OpenCode failed")
        finally:
            self._retry_at[process] = time.monotonic() + _RETRY_SECONDS
            server = self._servers.pop(process, None)
            self._note()
            if server is not None:
                _forget(server, listener)

    async def _follow(self, server: _Server, listener: LiveListener) -> None:
        status, health = await server.api.call("GET", "/global/health")
        if status == _UNAUTHORIZED:
            raise RequestFailed("it has a password; set OPENCODE_SERVER_PASSWORD for the hub, too")
        if status != _OK or not isinstance(health, dict) or health.get("healthy") is not True:
            raise RequestFailed(f"it is not as expected: status {status}")
        self._servers[server.process] = server
        async with anyio.create_task_group() as tasks:

            def on_event(event: Any) -> None:
                payload = _object(event, "payload")
                if payload.get("type") == "server.connected":
                    tasks.start_soon(self._catch_up, server, listener, tasks)
                self._take(server, payload, event.get("directory"), listener, tasks)

            try:
                await server.api.read_events("/global/event", on_event)
                reason = "it ended its stream"
            except RequestFailed as error:
                reason = str(error)
            tasks.cancel_scope.cancel()
        raise RequestFailed(reason)

    def _take(
        self, server: _Server, payload: Json, folder: Any, listener: LiveListener, tasks: TaskGroup
    ) -> None:
        facts = _object(payload, "properties")
        session_id = facts.get("sessionID")
        if not isinstance(session_id, str):
            return
        session = server.session(session_id, folder)
        match payload.get("type"):
            case "session.deleted":
                del server.sessions[session_id]
                session.end_turn()
                server.settle(listener, session_id)
            case "permission.asked":
                self._ask(server, facts, listener, tasks)
            case "permission.replied":
                server.replied(listener, str(facts.get("requestID")))
            case kind:
                session.take(kind, facts)
                if kind == "session.idle":
                    server.settle(listener, session_id)
        if payload.get("type") != "message.part.delta":  # it is not in the store
            self._note()
            listener.changed(session_id)

    async def _catch_up(self, server: _Server, listener: LiveListener, tasks: TaskGroup) -> None:
        """Find out what happened before the stream was opened."""
        try:
            _, listed = await server.api.call("GET", "/session")
            for each in _objects(listed):
                changed = _object(each, "time").get("updated")
                if isinstance(changed, int) and changed >= server.started_at:
                    server.session(str(each.get("id")), each.get("directory"))
            _, statuses = await server.api.call("GET", "/session/status")
            for session_id in statuses if isinstance(statuses, dict) else ():
                session = server.session(session_id)
                if not session.is_reported:
                    session.take_status(statuses[session_id])
            self._note()
            for folder in {"", *(each.folder for each in server.sessions.values())}:
                _, pending = await server.api.call("GET", f"/permission{_query(folder)}")
                for facts in _objects(pending):
                    self._ask(server, facts, listener, tasks)
        except RequestFailed as error:  # the stream will break, too
            logger.info("a server of OpenCode did not answer", extra={"reason": str(error)})

    # ---- requests -----------------------------------------------------------------------------

    def _ask(self, server: _Server, facts: Json, listener: LiveListener, tasks: TaskGroup) -> None:
        request_id, session_id = facts.get("id"), facts.get("sessionID")
        if not isinstance(request_id, str) or not isinstance(session_id, str):
            return
        if server.is_new(request_id):
            server.asked[request_id] = facts
            server.session(session_id)
            self._note()
            tasks.start_soon(self._request, server, request_id, listener)

    async def _request(self, server: _Server, request_id: str, listener: LiveListener) -> None:
        """Report a request with the input of its call."""
        facts = server.asked[request_id]
        session = server.session(str(facts["sessionID"]))
        part = await _part_of(server, facts, session.folder)
        if request_id in server.asked:  # and not answered meanwhile
            params = requests.request_params(facts, part, session.folder)
            listener.requested(
                LiveRequest(
                    key=request_id,
                    session_id=session.id,
                    call_id=params["toolCall"]["toolCallId"],
                    params=params,
                )
            )

    async def answer(self, key: str, outcome: Mapping[str, Any]) -> None:
        """Answer a request; one that was answered there is ignored."""
        reply = requests.reply_of(outcome)
        server = next((each for each in self._connected() if key in each.asked), None)
        if reply is not None and server is not None:
            session_id = str(server.asked[key]["sessionID"])
            path = f"/permission/{quote(key, safe='')}/reply"
            await server.post(session_id, path, reply, accepted=(_GONE,))

    # ---- prompts ------------------------------------------------------------------------------

    async def prompt(self, session_id: str, blocks: Sequence[Any]) -> Json:
        """Send a prompt when no turn runs, and wait for the end of its turn."""
        await self.wait_idle(session_id)
        turn = self._required(session_id).sessions[session_id].turn
        await self.steer(session_id, blocks)
        await turn.ended.wait()
        if self._server_of(session_id) is None:
            raise AcpError(ERROR_CODES["agent_exited"], "OpenCode ended during the turn")
        return turn.ending

    async def wait_idle(self, session_id: str) -> None:
        """Wait until no turn runs, or the server is not there any more."""
        while (server := self._server_of(session_id)) is not None:
            session = server.sessions[session_id]
            if session.status == _IDLE:
                return
            await session.turn.ended.wait()

    async def steer(self, session_id: str, blocks: Sequence[Any]) -> None:
        body = {"parts": requests.prompt_parts(blocks)}
        path = f"/session/{quote(session_id, safe='')}/prompt_async"
        await self._required(session_id).post(session_id, path, body)

    async def interrupt(self, session_id: str) -> None:
        path = f"/session/{quote(session_id, safe='')}/abort"
        await self._required(session_id).post(session_id, path, {})

    def _required(self, session_id: str) -> _Server:
        server = self._server_of(session_id)
        if server is None:
            raise AcpError(ERROR_CODES["agent_exited"], "OpenCode does not listen any more")
        return server


def _forget(server: _Server, listener: LiveListener) -> None:
    """Report that a server is not there any more."""
    for request_id in server.asked:
        listener.settled(request_id)
    for session in server.sessions.values():
        session.end_turn()
        listener.changed(session.id)


async def _part_of(server: _Server, facts: Json, folder: str) -> Json:
    """Return the call that a request is about; empty if there is none."""
    tool = _object(facts, "tool")
    if not tool:
        return {}
    session_id = quote(str(facts["sessionID"]), safe="")
    message_id = quote(str(tool.get("messageID")), safe="")
    path = f"/session/{session_id}/message/{message_id}{_query(folder)}"
    try:
        _, message = await server.api.call("GET", path)
    except RequestFailed:
        return {}
    parts = _objects(message.get("parts") if isinstance(message, dict) else ())
    return next((each for each in parts if each.get("callID") == tool.get("callID")), {})


def _query(folder: str) -> str:
    return f"?directory={quote(folder, safe='')}" if folder else ""


def _started_at(pid: int) -> int:
    """Return when a process started, in milliseconds since 1970; the future if unknown."""
    table = process_table()
    if table is None:
        return 1 << 62
    age = table.clock() - table.started_at(pid)
    return int((time.time() - age) * 1000) if age > float("-inf") else 1 << 62


def _object(value: Any, key: str) -> Json:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _objects(value: Any) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
