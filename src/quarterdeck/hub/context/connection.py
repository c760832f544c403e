"""The context protocol over a WebSocket: its events out, its commands in.

    client: auth {token} · ping · subscribe {sessionIds, fromSeq?} · unsubscribe {sessionIds}
            command {sessionId, command} · start_session {agent, projectPath, prompt}
            terminate_session {sessionId}
    hub:    auth_success {machineName, machineId, capabilities} · auth_error {message}, then 4002
            sessions_list {sessions} · acp_event {event} · history_complete {sessionId, lastSeq}
            session_started {sessionId} · error {message, code} · pong

A client authenticates by a token in the head of its request, or by an `auth` frame soon after it. A
client without subscriptions gets the events of every session from now on. One with subscriptions
gets the events of those sessions, each from `fromSeq` on, and of all others the permission requests
and how they were resolved.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, assert_never

import anyio
from starlette.types import Receive, Scope as AsgiScope, Send

from quarterdeck.errors import AcpError, QuarterdeckError, StorageFailed
from quarterdeck.http.websocket import WebSocketConnection, accept_websocket
from quarterdeck.hub.api.endpoint import Asgi
from quarterdeck.hub.auth.device import SCOPE_KEY, Device
from quarterdeck.hub.context.commands import check_scope
from quarterdeck.hub.context.frames import (
    MACHINE_ID,
    Auth,
    Command,
    ContextSubscribe,
    ContextUnsubscribe,
    Message,
    Ping,
    StartSession,
    TerminateSession,
    error_frame,
    read_message,
    write_message,
)
from quarterdeck.hub.context.subscription import ContextSubscription
from quarterdeck.hub.fleet.identifiers import machine_of
from quarterdeck.hub.streams.cursors import LogCursor
from quarterdeck.hub.streams.service import StreamService
from quarterdeck.hub.streams.sources import StreamSources
from quarterdeck.protocol import has_agent
from quarterdeck.runner import (
    AgentRemoved,
    AgentUpdated,
    Diagnostic,
    HealthChanged,
    MachineUpdated,
    News,
    PromptEntry,
    QueueChanged,
    RequestUpdated,
    SessionDeleted,
    SessionUpdated,
)
from quarterdeck.views.context import SendMessageCommand, TerminateCommand

AUTH_SECONDS: Final = 10.0
MOST_UNAUTHENTICATED: Final = 16  # connections
_COMPARED: Final = ("status", "sessionName", "model", "agentMode")
"""The fields of an entry whose change sends the list again."""
_UNKNOWN: Final = "unknown token, or its device was revoked; pair again"
_REVOKED: Final = 4401


class Greeter:
    """Authenticates clients that sent no token in their head, and greets all."""

    REFUSED: ClassVar[int] = 4002

    def __init__(self, sources: StreamSources) -> None:
        self._runner = sources.runner
        self._devices = sources.devices
        self._callers = sources.callers
        self._waiting_count = 0

    async def device_of(self, token: str) -> Device | None:
        return None if self._devices is None else await self._devices.authenticate(token)

    async def serve_unauthenticated(
        self,
        scope: AsgiScope,
        receive: Receive,
        send: Send,
        serve: Callable[[Device], Awaitable[None]],
    ) -> None:
        """Serve a client that sends a token within ten seconds, until its device is revoked."""
        if self._waiting_count >= MOST_UNAUTHENTICATED:
            await self._refuse(send, "too many connections wait for their auth; try later")
            return
        self._waiting_count += 1
        try:
            with anyio.move_on_after(AUTH_SECONDS) as waiting:
                device = await self._admitted(receive, send)
        finally:
            self._waiting_count -= 1
        if waiting.cancelled_caught:
            await self._refuse(send, f"say auth within {AUTH_SECONDS:.0f} seconds")
        elif device is not None and self._devices is not None:
            # Nothing is awaited since the device was found: its end ends the checks, too.
            with self._devices.connection(device) as connection, connection.scope:
                refusal = await self._refusal(scope, device)
                if refusal:
                    await self._refuse(send, refusal)
                else:
                    await serve(device)
            if connection.scope.cancelled_caught:
                await _close(
                    send, _REVOKED, "this device was revoked or has expired; pair it again"
                )

    async def _admitted(self, receive: Receive, send: Send) -> Device | None:
        while True:
            event = await receive()
            if event["type"] != "websocket.receive":
                return None
            text = event.get("text")
            try:
                message = read_message(event["bytes"] if text is None else text)
            except QuarterdeckError as error:
                await _say(send, write_message("error", message=str(error), code="INVALID_MESSAGE"))
                continue
            if isinstance(message, Auth):
                device = await self.device_of(message.token)
                if device is None:
                    await self._refuse(send, _UNKNOWN)
                return device
            if isinstance(message, Ping):
                await _say(send, write_message("pong"))
            else:
                why = "say auth with a token first"
                await _say(send, write_message("error", message=why, code="NOT_AUTHENTICATED"))

    async def _refusal(self, scope: AsgiScope, device: Device) -> str:
        """Return why a client may not use its token here; empty if it may."""
        if self._callers is None:
            return ""
        return await self._callers.refusal(scope, device) or ""

    async def _refuse(self, send: Send, reason: str) -> None:
        await _say(send, write_message("auth_error", message=reason))
        await _close(send, self.REFUSED, reason)

    async def success(self) -> str:
        """Return the frame for a client that has authenticated."""
        return write_message(
            "auth_success",
            machineName=socket.gethostname(),
            machineId=MACHINE_ID,
            capabilities=await self._runner.context_capabilities(),
        )


async def _say(send: Send, text: str) -> None:
    await send({"type": "websocket.send", "text": text})


async def _close(send: Send, code: int, reason: str) -> None:
    with anyio.move_on_after(1, shield=True):
        try:
            await send({"type": "websocket.close", "code": code, "reason": reason})
        except OSError:
            return  # it has gone by itself


MOST_COMMANDS: Final = 64  # of one connection that are not done yet


def context_app(streams: StreamService) -> Asgi:
    """Return the WebSocket's application; every client authenticates first."""
    greeter = Greeter(streams.sources)

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if not await accept_websocket(receive, send):
            return

        async def serve(device: Device) -> None:
            socket = WebSocketConnection(streams.keep_alive, receive, send)
            await ContextConnection(streams, socket, device, greeter).run()

        device: Device | None = scope.get(SCOPE_KEY)
        if device is None:
            await greeter.serve_unauthenticated(scope, receive, send, serve)
        else:
            check_scope(device, "view", "this")
            await serve(device)

    return app


class ContextConnection:
    """One client, authenticated."""

    def __init__(
        self, streams: StreamService, socket: WebSocketConnection, device: Device, greeter: Greeter
    ) -> None:
        self._streams = streams
        self._runner = streams.runner
        self._socket = socket
        self._device = device
        self._greeter = greeter
        self._subscriptions: dict[str, ContextSubscription] = {}
        self._subscribed: set[str] = set()
        self._listed: dict[str, tuple[Any, ...]] | None = None
        self._old: set[str] = set()
        """Sessions that this client came too late for, or has begun with already."""
        self._commands = 0
        self._changed = anyio.Event()
        self._requesting: set[str] = set()

    async def run(self) -> None:
        """Serve the client until it disconnects."""
        await self._streams.listing.learn()
        unsubscribe = self._runner.subscribe_news(self._on_news)
        live = {each.session_id for each in self._runner.session_snapshots()}
        self._old = live | self._streams.listing.closed_ids()
        try:
            async with anyio.create_task_group() as tasks:
                await self._greet()
                tasks.start_soon(self._follow_all)
                await self._socket.run(self._on_frame)
                tasks.cancel_scope.cancel()
        finally:
            unsubscribe()
            for session_id in tuple(self._subscriptions):
                self._leave(session_id)

    async def _greet(self) -> None:
        self._listed = None
        self._socket.push(await self._greeter.success())
        self._list()

    # ---- what the client sends -------------------------------------------------------------

    async def _on_frame(self, text: str | bytes) -> None:
        try:
            message = read_message(text)
            await self._take(message)
        except QuarterdeckError as error:
            self._socket.push(error_frame(error))

    async def _take(self, message: Message) -> None:
        match message:
            case Ping():
                self._socket.push(write_message("pong"))
            case Auth(token=token):
                await self._again(token)
            case ContextSubscribe():
                for session_id in message.session_ids:
                    await self._subscribe(session_id, message)
            case ContextUnsubscribe():
                self._unsubscribe(message.session_ids)
            case Command():
                self._start(partial(self._execute, message))
            case StartSession():
                device = self._device.on(machine_of(message.agent).machine_id)
                check_scope(device, "prompt", "start_session")
                self._start(partial(self._begin, message))
            case TerminateSession(session_id=session_id):
                command = Command(session_id=session_id, command=TerminateCommand())
                self._start(partial(self._execute, command))
            case _:
                assert_never(message)

    async def _again(self, token: str) -> None:
        """Greet an authenticated client again; its token must be of the same device."""
        device = await self._greeter.device_of(token)
        if device is None or device.id != self._device.id:
            self._socket.push(write_message("auth_error", message="unknown token; pair again"))
            self._socket.close(self._greeter.REFUSED, "unknown token; pair again")
        else:
            await self._greet()

    def _is_valid(self, session_id: str, message: ContextSubscribe) -> bool:
        """Return whether the number of a client still means the event it meant."""
        cursor = LogCursor(message.epoch or None, message.from_seq)
        return cursor.is_valid(self._streams.logs.log_epoch(session_id))

    async def _subscribe(self, session_id: str, message: ContextSubscribe) -> None:
        subscription = self._subscriptions.get(session_id)
        if (
            session_id in self._subscribed
            and subscription is not None
            and subscription.is_replaying
        ):
            return  # the client is getting it already
        try:
            is_valid = self._is_valid(session_id, message)
            from_seq = message.from_seq if is_valid else 0
            subscription = await self._open(session_id, from_seq=from_seq, is_replay=True)
            subscription.wants_epoch = message.epoch is not None
            if not is_valid:
                subscription.begin_with_reset()
        except (AcpError, StorageFailed) as error:
            self._socket.push(error_frame(error, sessionId=session_id))
            self._socket.push(write_message("history_complete", sessionId=session_id, lastSeq=0))
            return
        self._socket.due(subscription)
        if not self._subscribed:
            for other in self._subscriptions.values():
                if other is not subscription:
                    other.send_only_approvals()
        self._subscribed.add(session_id)

    def _unsubscribe(self, session_ids: Sequence[str]) -> None:
        was_subscribed = bool(self._subscribed)
        for session_id in session_ids:
            if session_id in self._subscribed:
                self._subscribed.discard(session_id)
                self._subscriptions[session_id].send_only_approvals()
        if was_subscribed and not self._subscribed:
            for session_id in tuple(self._subscriptions):
                self._leave(session_id)
            self._requesting = self._waiting()
            self._changed.set()

    def _waiting(self) -> set[str]:
        return {each.request.session_id for each in self._runner.pending_permissions()}

    def _start(self, work: Any) -> None:
        if self._commands >= MOST_COMMANDS:
            message = f"{MOST_COMMANDS} commands are being carried out; wait for one"
            raise AcpError("quarterdeck/too-many", message)
        self._streams.sources.start_in_background(work)
        self._commands += 1

    async def _execute(self, requested: Command) -> None:
        try:
            await self._streams.commander.execute(
                requested.session_id, requested.command, self._device, self._on_queued
            )
        except (QuarterdeckError, TimeoutError) as error:
            about = {"sessionId": requested.session_id, "command": requested.command.command}
            self._socket.push(error_frame(error, **about))
        finally:
            self._commands -= 1

    def _on_queued(self, entry: PromptEntry) -> None:
        facts = {"sessionId": entry.session_id, "key": entry.key}
        self._socket.push(write_message("prompt_queued", **facts))

    async def _begin(self, wanted: StartSession) -> None:
        try:
            session = await self._streams.commander.start(wanted, self._device)
            self._socket.push(write_message("session_started", sessionId=session.session_id))
            if wanted.prompt:
                command = SendMessageCommand(message=wanted.prompt)
                await self._streams.commander.execute(
                    session.session_id, command, self._device, self._on_queued
                )
        except (QuarterdeckError, TimeoutError) as error:
            self._socket.push(error_frame(error, agent=wanted.agent))
        finally:
            self._commands -= 1

    # ---- what the client gets --------------------------------------------------------------

    def _on_news(self, news: News) -> None:
        match news:
            case RequestUpdated(kind="permission"):
                self._on_permission(news)
                self._changed.set()
            case SessionUpdated() | RequestUpdated() | SessionDeleted():
                self._changed.set()
            case AgentUpdated() | AgentRemoved() | QueueChanged():
                pass  # none of these is in the list of sessions
            case MachineUpdated():
                self._changed.set()
            case Diagnostic() | HealthChanged():
                pass
            case _:
                assert_never(news)

    def _on_permission(self, news: RequestUpdated) -> None:
        session_id = str(news.session_id)
        subscription = self._subscriptions.get(session_id)
        if subscription is not None:
            self._socket.due(subscription)
        elif news.status == "pending":
            self._requesting.add(session_id)

    def _list(self) -> None:
        """Send the list of sessions if it is another one than before."""
        elicitations = self._runner.pending_elicitations()
        waiting = {str(each.session_id): "waiting_for_input" for each in elicitations}
        waiting |= dict.fromkeys(self._waiting(), "waiting_for_approval")
        entries = self._streams.listing.entries(waiting)
        shown = {each["id"]: tuple(each[key] for key in _COMPARED) for each in entries}
        if shown != self._listed:
            self._listed = shown
            self._socket.push(write_message("sessions_list", sessions=entries))

    async def _follow_all(self) -> None:
        """Follow every session that lives: for all its events, or for its approvals."""
        self._requesting = self._waiting()
        while True:
            self._changed = anyio.Event()
            await self._streams.listing.learn()
            await self._continue_reopened()
            requesting, self._requesting = self._requesting, set()
            for session in self._runner.session_snapshots():
                is_new = session.session_id not in self._old  # it may have ended already
                is_wanted = not self._subscribed and (is_new or has_agent(session.status))
                if session.session_id in requesting or is_wanted:
                    await self._follow(
                        session.session_id, has_request=session.session_id in requesting
                    )
                else:
                    self._old.add(session.session_id)
            self._list()
            await self._changed.wait()

    async def _follow(self, session_id: str, *, has_request: bool) -> None:
        """Begin with what happens now; a session that is new has nothing before that."""
        if session_id in self._subscriptions:
            return
        is_old = session_id in self._old
        try:
            subscription = await self._open(session_id, is_quiet=is_old)
        except (AcpError, StorageFailed):
            return  # it went while we looked
        if has_request or not is_old:
            self._socket.due(subscription)

    async def _open(
        self,
        session_id: str,
        *,
        from_seq: int = 0,
        is_replay: bool = False,
        is_quiet: bool = False,
    ) -> ContextSubscription:
        found = await self._runner.context_sessions([session_id])
        if not found:
            raise AcpError("acpjs/session-closed", f"there is no session {session_id}")
        # Nothing waits from here on: the log is followed from where it is opened.
        log = await self._streams.logs.open(session_id)
        subscription = self._subscriptions.get(session_id)
        if subscription is not None and not is_replay:
            self._streams.logs.release(log)
            return subscription  # the client has subscribed to it meanwhile
        self._leave(session_id)
        only_approvals = bool(self._subscribed) and not is_replay
        subscription = ContextSubscription(
            log, found[0].facts, from_seq=from_seq, only_approvals=only_approvals
        )
        if is_replay:
            subscription.replay()
        if is_quiet:
            subscription.begin_after(log.head)
        self._subscriptions[session_id] = subscription
        self._old.add(session_id)
        if not only_approvals:
            subscription.leave = log.join(partial(self._socket.due, subscription))
        return subscription

    async def _continue_reopened(self) -> None:
        """Follow the live log of each session that was closed when the client subscribed to it."""
        for session_id, subscription in tuple(self._subscriptions.items()):
            if not subscription.log.was_closed:
                continue
            if self._runner.session_snapshot(session_id) is None:
                continue
            try:
                log = await self._streams.logs.open(session_id)
            except (AcpError, StorageFailed):
                continue  # it went while we looked
            if self._subscriptions.get(session_id) is not subscription or log.was_closed:
                self._streams.logs.release(log)
                continue
            subscription.leave()
            self._streams.logs.release(subscription.log)
            subscription.log = log
            subscription.leave = log.join(partial(self._socket.due, subscription))
            self._socket.due(subscription)

    def _leave(self, session_id: str) -> None:
        subscription = self._subscriptions.pop(session_id, None)
        if subscription is not None:
            self._socket.drop(subscription)
            subscription.leave()
            self._streams.logs.release(subscription.log)
