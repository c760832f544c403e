"""`CodexDaemon`: a client of the daemon that Codex's terminals are clients of, too.

Codex starts it by itself, and it runs on when a terminal is closed:

    <folder>/app-server-control/app-server-control.sock    WebSocket over a Unix socket

Every thread that it has open is subscribed to; one that has no rollout file yet is, once its first
turn runs. Requests go to all subscribers, and the first answer counts: the dialogs of the others
close. Order is decided in the read loop, by plain functions; only calls to the daemon are tasks.

    what is lost                 what follows
    the connection               all requests are withdrawn, no session runs; it connects again
    the daemon                   the same; the rollout files have what happened
    a request that is not ours   it is left to the terminal
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from quarterdeck.agents.adapters.codex import approvals
from quarterdeck.agents.adapters.codex.app_server import (
    Thread,
    finished_of,
    input_of,
    thread_of,
    with_status,
)
from quarterdeck.agents.adapters.codex.live_items import LiveItems
from quarterdeck.agents.adapters.outcomes import reason_of
from quarterdeck.errors import AcpError, JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol import ERROR_CODES
from quarterdeck.views.context import ForeignSession, LiveListener, LiveRequest

logger = logging.getLogger(__name__)

Json = dict[str, Any]

LOOK_SECONDS: Final = 0.5
"""How often a daemon is looked for."""
CALL_SECONDS: Final = 20.0
"""That the daemon has for an answer."""
OPEN_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 1.0
_MOST_BYTES: Final = 256 << 20  # of a message: the output of a command may be in it
_REMEMBERED_TURNS: Final = 100
_SOCKET: Final = "app-server-control/app-server-control.sock"
_CLIENT: Final = {"name": "quarterdeck", "title": "Quarterdeck", "version": "0"}


class _Call:
    """A request to the daemon that waits for its answer."""

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.message: Json = {}


class CodexDaemon:
    """The connection, the threads that the daemon has open, and their requests."""

    def __init__(self, folder: Path, items: LiveItems) -> None:
        self.path = folder / _SOCKET
        self.items = items
        self._running: tuple[ForeignSession, ...] = ()  # replaced as a whole: threads read it
        self._threads: dict[str, Thread] = {}
        self._listener: LiveListener | None = None
        self._socket: ClientConnection | None = None
        self._tasks: TaskGroup | None = None
        self._calls: dict[int, _Call] = {}
        self._last_call = 0
        self._connections = 0
        self._requests: dict[str, tuple[Any, str, Json]] = {}
        self._ended: dict[str, Json] = {}  # how turns ended, by their ids
        self._changed = anyio.Event()
        self._notifications: Mapping[str, Callable[[Json], None]] = {
            "thread/started": self._thread_started,
            "thread/status/changed": self._status_changed,
            "thread/name/updated": self._name_updated,
            "thread/closed": self._thread_closed,
            "turn/started": self._turn_started,
            "turn/completed": self._turn_completed,
            "item/started": self._item_started,
            "item/completed": self._item_completed,
            "item/agentMessage/delta": self._text_added,
            "item/reasoning/summaryTextDelta": self._text_added,
            "serverRequest/resolved": self._request_resolved,
        }

    def running(self) -> tuple[ForeignSession, ...]:
        """Return the sessions that the daemon has open; may be called on any thread."""
        return self._running

    def is_live(self, session_id: str) -> bool:
        return session_id in self._threads

    # ---- the connection --------------------------------------------------------------------

    async def serve(self, listener: LiveListener) -> None:
        """Stay connected until cancelled."""
        self._listener = listener
        while True:
            if is_own_socket(self.path):
                try:
                    await self._connect()
                except (OSError, EOFError, TimeoutError, InvalidHandshake, ConnectionClosed) as e:
                    logger.debug("no connection to Codex's daemon", extra={"reason": str(e)})
                except AcpError as error:
                    logger.warning("Codex's daemon refused", extra={"reason": str(error)})
            await anyio.sleep(LOOK_SECONDS)

    async def _connect(self) -> None:
        connecting = unix_connect(
            str(self.path.resolve()),
            "ws://localhost/",
            compression=None,
            max_size=_MOST_BYTES,
            open_timeout=OPEN_SECONDS,
            close_timeout=CLOSE_SECONDS,
            proxy=None,
        )
        async with connecting as socket:
            self._socket = socket
            self._connections += 1
            try:
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    tasks.start_soon(self._greet)
                    await self._read(socket)
                    tasks.cancel_scope.cancel()
            except* AcpError as errors:
                raise errors.exceptions[0] from errors
            finally:
                self._disconnected()
                with anyio.CancelScope(shield=True):
                    await socket.close()  # bounded by `close_timeout`

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for data in socket:
                self._receive(data)
        except ConnectionClosed:
            return

    def _disconnected(self) -> None:
        self._socket = self._tasks = None
        for call in self._calls.values():
            call.answered.set()
        self._calls.clear()
        sessions = list(self._threads)
        self._threads.clear()
        self.items.clear()
        self._update_running()
        for key in tuple(self._requests):
            self._settle(key)
        for session_id in sessions:
            self._report(session_id)

    async def _greet(self) -> None:
        capabilities = {"experimentalApi": True}
        await self._call("initialize", {"clientInfo": _CLIENT, "capabilities": capabilities})
        await self._send({"method": "initialized", "params": {}})
        cursor: Any = None
        while True:
            page = await self._call("thread/loaded/list", {"cursor": cursor} if cursor else {})
            for thread_id in page.get("data") or ():
                await self._quietly(partial(self._look_at, thread_id))  # it may be gone by now
            cursor = page.get("nextCursor")
            if not cursor:
                return

    # ---- calls -----------------------------------------------------------------------------

    async def _send(self, message: Json) -> None:
        socket = self._socket
        if socket is None:
            raise _gone()
        try:
            await socket.send(encode_json(message).decode())
        except ConnectionClosed as error:
            raise _gone() from error

    async def _call(self, method: str, params: Json) -> Json:
        """Return the result of a call.

        Raises:
            AcpError: if the daemon refuses, does not answer, or is gone.
        """
        self._last_call += 1
        number, call = self._last_call, _Call()
        self._calls[number] = call
        try:
            await self._send({"id": number, "method": method, "params": params})
            with anyio.move_on_after(CALL_SECONDS):
                await call.answered.wait()
        finally:
            self._calls.pop(number, None)
        result = call.message.get("result")
        if isinstance(result, dict):
            return result
        failure = call.message.get("error")
        if isinstance(failure, dict):
            message = f"Codex refused: {failure.get('message')}"
            raise AcpError(ERROR_CODES["agent_error"], message)
        raise _gone()

    def _receive(self, data: str | bytes) -> None:
        try:
            message = decode_json(data)
        except JsonInvalid as error:
            logger.warning("Codex's daemon sent no JSON", extra={"reason": str(error)})
            return
        if not isinstance(message, dict):
            return
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str):
            call = self._calls.get(message.get("id", 0))
            if call is not None:
                call.message = message
                call.answered.set()
            return
        if not isinstance(params, dict):
            return
        if "id" in message:
            self._request(message["id"], method, params)
        elif method in self._notifications:
            at = message.get("emittedAtMs")
            self._notifications[method]({**params, "at": at if isinstance(at, int) else 0})

    # ---- threads ---------------------------------------------------------------------------

    def _start(self, task: Callable[[], Any]) -> None:
        if self._tasks is not None:
            self._tasks.start_soon(self._quietly, task)

    async def _quietly(self, task: Callable[[], Any]) -> None:
        try:
            await task()
        except AcpError as error:
            logger.debug("a call to Codex's daemon failed", extra={"reason": str(error)})

    async def _look_at(self, thread_id: Any) -> None:
        """Ask what a thread is, and subscribe to it."""
        read = await self._call("thread/read", {"threadId": thread_id})
        thread = thread_of(read.get("thread"))
        if thread is not None and thread.id not in self._threads:
            self._put(thread)
            await self._quietly(partial(self._subscribe, thread.id))

    async def _subscribe(self, thread_id: str) -> None:
        thread = self._threads.get(thread_id)
        if thread is None or thread.is_subscribed:
            return
        self._put(replace(thread, is_subscribed=True))
        try:
            await self._call("thread/resume", {"threadId": thread_id, "excludeTurns": True})
        except AcpError:  # it has no rollout file yet: again when a turn begins, or has by now
            known = self._threads.get(thread_id)
            if known is None:
                return
            self._put(replace(known, is_subscribed=False))
            if known.status in ("busy", "waiting"):
                await anyio.sleep(LOOK_SECONDS)
                self._start(partial(self._subscribe, thread_id))

    def _put(self, thread: Thread) -> None:
        self._threads[thread.id] = thread
        self._update_running()
        self._report(thread.id)

    def _update_running(self) -> None:
        self._running = tuple(each.session(None) for each in self._threads.values())
        self._changed.set()
        self._changed = anyio.Event()

    def _report(self, session_id: str) -> None:
        if self._listener is not None:
            self._listener.changed(session_id)

    def _thread_started(self, params: Json) -> None:
        thread = thread_of(params.get("thread"))
        if thread is not None and thread.id not in self._threads:
            self._put(thread)
            self._start(partial(self._subscribe, thread.id))

    def _status_changed(self, params: Json) -> None:
        thread_id, status = params.get("threadId"), params.get("status")
        thread = self._threads.get(str(thread_id))
        if isinstance(status, dict) and status.get("type") == "notLoaded":
            self._thread_closed(params)
        elif thread is None:
            self._start(partial(self._look_at, thread_id))
        else:
            self._put(with_status(thread, status, params["at"]))
            if not thread.is_subscribed:
                self._start(partial(self._subscribe, thread.id))

    def _name_updated(self, params: Json) -> None:
        thread = self._threads.get(str(params.get("threadId")))
        name = params.get("threadName") or params.get("name")
        if thread is not None and isinstance(name, str):
            self._put(replace(thread, title=name))

    def _thread_closed(self, params: Json) -> None:
        thread = self._threads.pop(str(params.get("threadId")), None)
        if thread is not None:
            self.items.ended(thread.id)
            self._settle_all(thread.id)
            self._update_running()
            self._report(thread.id)

    # ---- turns and items -------------------------------------------------------------------

    def _turn_started(self, params: Json) -> None:
        thread, turn = self._threads.get(str(params.get("threadId"))), params.get("turn")
        if thread is not None and isinstance(turn, dict) and isinstance(turn.get("id"), str):
            self._put(replace(thread, turn_id=turn["id"], status="busy"))

    def _turn_completed(self, params: Json) -> None:
        session_id, turn = str(params.get("threadId")), params.get("turn")
        if not isinstance(turn, dict):
            return
        self._ended[str(turn.get("id"))] = finished_of(turn)
        while len(self._ended) > _REMEMBERED_TURNS:
            del self._ended[next(iter(self._ended))]
        self.items.ended(session_id)
        self._settle_all(session_id)
        thread = self._threads.get(session_id)
        if thread is not None:
            self._put(replace(thread, turn_id=None, status="idle", waiting_for=""))

    def _item_started(self, params: Json) -> None:
        session_id, item = str(params.get("threadId")), params.get("item")
        thread, turn_id = self._threads.get(session_id), params.get("turnId")
        if thread is not None and thread.turn_id is None and isinstance(turn_id, str):
            self._put(replace(thread, turn_id=turn_id))  # subscribed in the middle of it
        if isinstance(item, dict):
            self.items.started(session_id, item)

    def _item_completed(self, params: Json) -> None:
        session_id, item = str(params.get("threadId")), params.get("item")
        if isinstance(item, dict):
            self.items.completed(session_id, item)
            self._report(session_id)

    def _text_added(self, params: Json) -> None:
        session_id = str(params.get("threadId"))
        self.items.added(session_id, params.get("itemId"), params.get("delta"), params["at"])
        self._report(session_id)

    # ---- requests --------------------------------------------------------------------------

    def _request(self, request_id: Any, method: str, params: Json) -> None:
        session_id = str(params.get("threadId"))
        if method not in approvals.ANSWERABLE or self._listener is None:
            return  # its terminal answers it
        key = f"{self._connections}-{request_id}"
        self._requests[key] = (request_id, session_id, params)
        item = self.items.facts(session_id, params.get("itemId"))
        request = LiveRequest(
            key=key,
            session_id=session_id,
            call_id=str(params.get("itemId", "")),
            params=approvals.request_params(method, params, item),
        )
        self._listener.requested(request)

    def _request_resolved(self, params: Json) -> None:
        self._settle(f"{self._connections}-{params.get('requestId')}")

    def _settle_all(self, session_id: str) -> None:
        for key in [key for key, known in self._requests.items() if known[1] == session_id]:
            self._settle(key)

    def _settle(self, key: str) -> None:
        if self._requests.pop(key, None) is not None and self._listener is not None:
            self._listener.settled(key)

    # ---- commands --------------------------------------------------------------------------

    async def answer(self, key: str, outcome: Mapping[str, Any]) -> None:
        known = self._requests.pop(key, None)
        if known is None:
            return
        request_id, session_id, params = known
        decided = approvals.decision(params, outcome)
        await self._send({"id": request_id, "result": {"decision": decided}})
        reason = reason_of(outcome)
        if reason and decided in ("decline", "cancel"):
            # As in Codex's own dialog, what to do instead is a prompt.
            block = {"type": "text", "text": reason}
            self._start(partial(self.say, session_id, [block], is_turn_over=decided == "cancel"))

    async def say(self, session_id: str, blocks: Sequence[Any], *, is_turn_over: bool) -> None:
        """Add to the turn that runs, or start one after it; do not wait for its end."""
        if is_turn_over:
            await self._begin(session_id, blocks)
        else:
            await self.steer(session_id, blocks)

    async def prompt(self, session_id: str, blocks: Sequence[Any]) -> Json:
        turn_id = await self._begin(session_id, blocks)
        await self._until(session_id, lambda _: turn_id in self._ended)
        return self._ended[turn_id]

    async def _begin(self, session_id: str, blocks: Sequence[Any]) -> str:
        await self.wait_idle(session_id)
        params = {"threadId": session_id, "input": input_of(blocks)}
        turn = (await self._call("turn/start", params)).get("turn")
        return str(turn.get("id")) if isinstance(turn, dict) else ""

    async def wait_idle(self, session_id: str) -> None:
        await self._until(session_id, lambda thread: thread.status == "idle")

    async def steer(self, session_id: str, blocks: Sequence[Any]) -> None:
        if session_id not in self._threads:
            raise _gone()
        turn_id = await self._running_turn(session_id)
        if turn_id is None:
            await self._begin(session_id, blocks)
            return
        params = {"threadId": session_id, "expectedTurnId": turn_id}
        await self._call("turn/steer", {**params, "input": input_of(blocks)})

    async def interrupt(self, session_id: str) -> None:
        turn_id = await self._running_turn(session_id)
        if turn_id is not None:
            params = {"threadId": session_id, "turnId": turn_id}
            await self._call("turn/interrupt", params)

    async def _running_turn(self, session_id: str) -> str | None:
        """Return the turn that runs; the daemon is asked for one that began before it was known."""
        thread = self._threads.get(session_id)
        if thread is None or thread.turn_id is not None or thread.status == "idle":
            return None if thread is None else thread.turn_id
        params = {"threadId": session_id, "limit": 1, "itemsView": "notLoaded"}
        listed = (await self._call("thread/turns/list", params)).get("data")
        last = listed[0] if isinstance(listed, list) and listed else {}
        return str(last["id"]) if last.get("status") == "inProgress" else None

    async def _until(self, session_id: str, holds: Callable[[Thread], bool]) -> None:
        """Wait until something holds for a thread that is open.

        Raises:
            AcpError: if it is not open any more.
        """
        while True:
            thread = self._threads.get(session_id)
            if thread is None:
                raise _gone()
            if holds(thread):
                return
            await self._changed.wait()


def _gone() -> AcpError:
    message = "Codex's daemon has ended or does not answer; the session continues when it is back"
    return AcpError(ERROR_CODES["agent_exited"], message)


def is_own_socket(path: Path) -> bool:
    """Return whether there is a socket of this user; links lead to a folder that all can write."""
    try:
        status = path.stat()
    except OSError:
        return False
    return stat.S_ISSOCK(status.st_mode) and status.st_uid == os.getuid()
