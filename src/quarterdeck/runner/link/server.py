"""The runner's end of the link: serves a `RunnerApi` on a Unix socket, and on TLS WebSockets.

    async with Runner(options) as runner, serving_link(runner, home / "runner.sock") as server:
        async with serving_remote_link(server, "0.0.0.0", 7443, token=token, tls=tls):
            await anyio.sleep_forever()

A runner has one `LinkServer`, with one identity, however many listeners accept hubs for it. Each
hub that is connected is a `HubConnection`; its other end, in the hub, is a `RunnerConnection`.

Any number of hubs may be connected: the one that people use, and commands that run beside it. Each
gets the whole state at first (`RunnerHello`), then every change in the step that makes it, in the
order of events. A hub costs the runner bytes, not waiting: events of logs that it follows are sent
until a window of unacknowledged bytes is full. After that it gets only the number of the newest
event, and reads the rest itself (`Skipped`).

A command is carried out to its end, also if its hub has gone: its outcome is in the log and in the
database. Only waiting (`WAITS`) ends with the connection.

Over the link, requests can be answered in the name of any device. So at the Unix socket only
processes of this user or of root may connect, and none that an agent started (`LinkPeers`); at a
WebSocket, a token is needed.

What any process can do, before its hello: hold one of few connections for a few seconds, with a few
bytes. What a hub can do: have so many calls carried out and so many logs followed at once. It has
to read results before further calls of it are read.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from typing import Any, Final, assert_never

import anyio
from msgspec.structs import replace

from quarterdeck.errors import LinkBroken, QuarterdeckError, RequestRejected
from quarterdeck.machine.process_origin import boot_seconds
from quarterdeck.protocol import InboundResponse, RpcRequest, to_json
from quarterdeck.runner.api import (
    LogSource,
    News,
    RunnerApi,
    RunnerHealth,
    Unsubscribe,
)
from quarterdeck.runner.link.frames import Message, split_body
from quarterdeck.runner.link.messages import (
    FEATURES,
    LINK_PROTOCOL,
    OLDEST_PROTOCOL,
    Ack,
    AgentEntry,
    Call,
    Cancel,
    Changed,
    CloseLog,
    Ended,
    Failure,
    FromHub,
    Heads,
    HubHello,
    Opened,
    OpenLog,
    Refused,
    Result,
    Run,
    RunnerHello,
    RunnerIdentity,
    RunnerSettings,
    Skipped,
    StateChange,
    api_methods,
    error_to_wire,
    message_reader,
    method_shape,
    plain,
)
from quarterdeck.runner.link.parameters import LogPage, call_arguments, convert_params
from quarterdeck.runner.link.peers import LinkPeers
from quarterdeck.runner.link.state import change_of, damaged_sessions, whole_state
from quarterdeck.runner.link.transport import LinkSocket
from quarterdeck.wire import IndependentTasks

logger = logging.getLogger(__name__)

WINDOW: Final = 8 << 20
"""Bytes of events on their way to one hub."""
MOST_CALLS: Final = 4_096
"""Of one hub that are being carried out; more are refused."""
MOST_LOGS: Final = 16_384
"""That one hub follows; more are refused."""
MOST_LINKS: Final = 256
"""Hubs and commands at once; more are refused."""
MOST_WAITING: Final = 32
"""Connections that have not said hello; for another one, the oldest is closed."""
HELLO_SECONDS: Final = 5.0
"""For a process that has connected to say hello."""
HELLO_BYTES: Final = 64 << 10
"""Of all that a process sends before it is known."""
CALL_BYTES: Final = 256 << 20
"""Of a batch of calls; a prompt may have 16 MiB."""
HEALTH_SECONDS: Final = 0.5
"""Between two looks at the health of a log that could not be written."""
WAITS: Final = frozenset({"wait_prompt", "drain"})
"""Calls that are cancelled when their hub has gone."""
_read: Final = message_reader(FromHub)


class LinkServer:
    """All links of one runner, whatever listener accepted them."""

    def __init__(self, runner: RunnerApi, tasks: IndependentTasks) -> None:
        self.runner = runner
        self.tasks = tasks
        self.identity = RunnerIdentity(
            pid=os.getpid(), boot_id=secrets.token_hex(8), started_at=time.time()
        )
        self.shut_down = anyio.Event()
        """Set when a hub wants the runner to end."""
        self.links: set[HubConnection] = set()
        self.peers = LinkPeers()
        self._waiting: dict[HubConnection, None] = {}
        self._draining: set[HubConnection] = set()

    @property
    def connections(self) -> int:
        """The hubs that are connected."""
        return len(self.links)

    def health(self) -> RunnerHealth:
        return replace(self.runner.health(), refused_agent=self.peers.refused_agent)

    def add(self, link: HubConnection) -> None:
        """Add a link, which has not said hello."""
        self.links.add(link)
        self._waiting[link] = None
        if len(self._waiting) > MOST_WAITING:
            # A hub says hello at once, so it is never the oldest one.
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.socket.close("too many connections wait")
        self.tasks.start_soon(link.await_hello)

    def admit(self, link: HubConnection) -> str | None:
        """Take a link out of those that wait; return why it is refused, if there are too many."""
        self._waiting.pop(link, None)
        if sum(each.has_begun for each in self.links) >= MOST_LINKS:
            return f"{MOST_LINKS} hubs and commands are connected to this runner; end some"
        return None

    def end(self) -> None:
        """End all links."""
        for link in tuple(self.links):
            link.socket.close("the runner has ended")

    # ---- calls -----------------------------------------------------------------------------

    async def perform(self, link: HubConnection, call: Call) -> Result | tuple[Result, bytes]:
        """Carry out a call: most are coroutine methods of `RunnerApi` (`_perform_api`).

        The cases here are the others: parts of `RunnerApi` that are not coroutine methods (its
        envelope endpoint, plain functions, the reading of a log), methods that concern other hubs
        as well (`confirm_heads`, `drain`), and `shut_down`, which only the link has. (`ping`, which
        has no effect, is answered before it gets here.)

        Raises:
            RequestRejected: if there is no such method, or its parameters are not of its types.
        """
        runner = self.runner
        match call.method:
            case "endpoint_request":
                request = convert_params(call.params, RpcRequest)
                value = to_json(await runner.endpoint.request(request))
                return Result(id=call.id, value=value)
            case "endpoint_respond":
                await runner.endpoint.respond_inbound(convert_params(call.params, InboundResponse))
            case "report_removed_meta":
                runner.report_removed_meta(**call_arguments("report_removed_meta", call.params))
            case "set_policy":
                runner.set_policy(**call_arguments("set_policy", call.params))
                link.broadcast(StateChange(policy=runner.policy()))
            case "reconfigure":
                runner.reconfigure(convert_params(call.params, RunnerSettings).options())
                link.broadcast(StateChange(policy=runner.policy()))
            case "read_log":
                wanted = convert_params(call.params, LogPage)
                events = await link.read_log(wanted.log, wanted.after, wanted.limit)
                return _bytes_result(call.id, events)
            case "confirm_heads":
                epoch = await runner.confirm_heads()
                link.broadcast(StateChange(log_epoch=epoch))
                return Result(id=call.id, value=plain(epoch))
            case "shut_down":
                self._draining.clear()  # it ends: there is nothing to resume
                self.shut_down.set()
            case "drain":
                self._draining.add(link)
                await runner.drain(**call_arguments("drain", call.params))
            case _:
                return await self._perform_api(call)
        return Result(id=call.id)

    async def _perform_api(self, call: Call) -> Result | tuple[Result, bytes]:
        if call.method not in api_methods():
            message = f"this runner does not know {call.method!r}; upgrade it: quarterdeck upgrade"
            raise RequestRejected("unsupported", message)
        if call.method == "resume_turns":
            self._draining.clear()
        value = await getattr(self.runner, call.method)(**call_arguments(call.method, call.params))
        if method_shape(call.method).returns_bytes:
            return _bytes_result(call.id, value)
        return Result(id=call.id, value=plain(value))

    def forget(self, link: HubConnection) -> None:
        """Forget a link that has ended; what it held back continues."""
        self.links.discard(link)
        self._waiting.pop(link, None)
        if link in self._draining:
            self._draining.discard(link)
            if not self._draining:
                self.tasks.start_soon(self.runner.resume_turns)


def _bytes_result(call_id: int, parts: list[bytes]) -> tuple[Result, bytes]:
    return Result(id=call_id, sizes=tuple(map(len, parts))), b"".join(parts)


class _FollowedLog:
    """A log that a hub follows; a `RunSubscriber` of it."""

    def __init__(
        self, link: HubConnection, name: int, session_id: str | None, source: LogSource
    ) -> None:
        self.session_id = session_id
        self.source = source
        self._link = link
        self._name = name
        self._is_skipping = False
        self.unsubscribe = source.subscribe(self)

    def on_published(self, last_seq: int, encoded: list[bytes]) -> None:
        if self._is_skipping:
            return
        body = b"".join(encoded)
        if not self._link.takes(len(body)):
            self._is_skipping = True
            return
        sizes = tuple(map(len, encoded))
        run = Run(log=self._name, last=last_seq, sizes=sizes, first=self.source.first)
        self._link.socket.send(run, body)

    def on_skipped(self, last_seq: int) -> None:
        if not self._is_skipping:
            head, first = last_seq, self.source.first
            self._link.socket.send(Skipped(log=self._name, head=head, first=first))

    def on_ended(self) -> None:
        self.catch_up()
        self._link.socket.send(Ended(log=self._name))

    def catch_up(self) -> None:
        """Follow again after the window was full."""
        if self._is_skipping:
            self._is_skipping = False
            self.on_skipped(self.source.head)


class HubConnection:
    """The link of one hub: the calls that it makes, the logs that it follows; a `LinkEnd`."""

    def __init__(self, server: LinkServer, socket: LinkSocket, *, is_local: bool = True) -> None:
        """`is_local`: its peer is a process of this machine, which has to be checked."""
        self.socket = socket
        self._is_local = is_local
        self._server = server
        self._accepted_at = boot_seconds()
        # At once, for the record: an agent may connect and say nothing, or noise.
        self._peer_refusal = self._check_peer()
        self.has_begun = False
        self._logs: dict[int, _FollowedLog] = {}
        self._followed: dict[str, int] = {}
        self._calls: dict[int, anyio.CancelScope | None] = {}
        self._unacknowledged = 0
        self._heads: dict[str, int] = {}
        self._health: Any = None
        self._names: dict[str, str | None] = {}
        self._opening = 0
        self._unsubscribe: list[Unsubscribe] = []
        self._past_hello = anyio.Event()
        """Set when the hello has arrived, or the link has ended."""
        socket.limit_batches(HELLO_BYTES)
        server.add(self)

    # ---- the other side --------------------------------------------------------------------

    def on_batch(self, batch: list[Message]) -> None:
        for header, body in batch:
            message = _read(header)
            if isinstance(message, Call) and message.sizes is not None:
                events = split_body(body, message.sizes)
                message = replace(message, params={**message.params, "events": events})
            if message is not None:
                self._on_message(message)

    def on_lost(self, reason: str) -> None:
        level = logging.INFO if self.has_begun else logging.DEBUG
        logger.log(level, "a hub has disconnected", extra={"reason": reason})
        self._past_hello.set()
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        for log in self._logs.values():
            log.unsubscribe()
        self._logs.clear()
        for scope in self._calls.values():
            if scope is not None:
                scope.cancel()
        self._server.forget(self)

    def _on_message(self, message: FromHub) -> None:
        if not self.has_begun and not isinstance(message, HubHello):
            raise LinkBroken("a hub must say hello first")
        if self.has_begun and isinstance(message, HubHello):
            raise LinkBroken("a hub must say hello once")
        match message:
            case HubHello():
                self._begin(message)
            case Call():
                self._start(message)
            case Cancel():
                scope = self._calls.get(message.id)
                if scope is not None:
                    scope.cancel()
            case OpenLog():
                self._start_opening(message)
            case CloseLog():
                self._close(message.log)
            case Ack():
                self._acknowledge(message.size)
            case _:
                assert_never(message)

    # ---- hello -----------------------------------------------------------------------------

    async def await_hello(self) -> None:
        """Close the connection if no hello arrives."""
        with anyio.move_on_after(HELLO_SECONDS):
            await self._past_hello.wait()
            return
        self.socket.close("a hub must say hello first")

    def _begin(self, hello: HubHello) -> None:
        refusal = self._refusal(hello)
        if refusal is not None:
            logger.debug("a connection to the runner was refused", extra={"reason": refusal})
            self.socket.send(Refused(message=refusal))
            self.socket.close(refusal)
            return
        self.has_begun = True
        self._past_hello.set()
        self.socket.limit_batches(CALL_BYTES)
        runner = self._server.runner
        # In one step: what happens from here on is sent after the state that it changes.
        state = whole_state(runner, self._server.health())
        self._health = state.health
        self._unsubscribe = [
            runner.subscribe_news(self._on_news),
            runner.subscribe_heads(self._on_head),
        ]
        self.socket.send(
            RunnerHello(
                protocol=min(LINK_PROTOCOL, hello.newest),
                features=FEATURES,
                identity=self._server.identity,
                state=state,
            )
        )
        self._server.tasks.start_soon(self._watch_health)

    def _check_peer(self) -> str | None:
        if not self._is_local:
            return None
        return self._server.peers.refusal(self.socket.raw, self._accepted_at)

    def _refusal(self, hello: HubHello) -> str | None:
        # The hello is the first thing that arrives, and nothing is done before it. A process that
        # has ended since it connected may have handed its connection over.
        refusal = self._peer_refusal or self._check_peer()
        if refusal is not None:
            return refusal
        if hello.newest < OLDEST_PROTOCOL or hello.oldest > LINK_PROTOCOL:
            return (
                f"the runner speaks link protocols {OLDEST_PROTOCOL} to {LINK_PROTOCOL}, this"
                f" version {hello.oldest} to {hello.newest}"
            )
        return self._server.admit(self)

    # ---- calls -----------------------------------------------------------------------------

    def _start(self, call: Call) -> None:
        if call.method == "ping":
            self.socket.send(Result(id=call.id))
            return
        if call.id in self._calls:
            raise LinkBroken("a hub used the number of a call twice")
        if len(self._calls) >= MOST_CALLS:
            message = f"{MOST_CALLS} commands of this hub are being carried out; try again"
            rejected = RequestRejected("too-many", message, retryable=True)
            self.socket.send(Failure(id=call.id, error=error_to_wire(rejected)))
            return
        self._calls[call.id] = anyio.CancelScope() if call.method in WAITS else None
        self._server.tasks.start_soon(self._perform, call)

    async def _perform(self, call: Call) -> None:
        scope = self._calls[call.id]
        try:
            if scope is None:
                answer = await self._server.perform(self, call)
            else:
                with scope:
                    answer = await self._server.perform(self, call)
                if scope.cancelled_caught:
                    return
        except QuarterdeckError as error:
            self.socket.send(Failure(id=call.id, error=error_to_wire(error)))
        except Exception as error:
            logger.exception("a command failed", extra={"method": call.method})
            self.socket.send(Failure(id=call.id, error=error_to_wire(error)))
        else:
            result, body = answer if isinstance(answer, tuple) else (answer, b"")
            self._send_heads()
            self._send_names()
            self.socket.send(result, body)
        finally:
            self._calls.pop(call.id, None)

    # ---- logs ------------------------------------------------------------------------------

    def _start_opening(self, wanted: OpenLog) -> None:
        if self._opening + len(self._logs) >= MOST_LOGS:
            message = f"this hub follows {MOST_LOGS} sessions; try again when it follows fewer"
            rejected = RequestRejected("too-many", message, retryable=True)
            self.socket.send(Failure(id=wanted.id, error=error_to_wire(rejected)))
            return
        self._opening += 1
        self._server.tasks.start_soon(self._open, wanted)

    async def _open(self, wanted: OpenLog) -> None:
        try:
            source = await self._server.runner.open_log(wanted.session_id)
        except QuarterdeckError as error:
            self.socket.send(Failure(id=wanted.id, error=error_to_wire(error)))
            return
        except Exception as error:
            logger.exception("a log was not opened")
            self.socket.send(Failure(id=wanted.id, error=error_to_wire(error)))
            return
        finally:
            self._opening -= 1
        if not self.socket.is_open:
            return
        self._close(wanted.log)
        # In one step: what is published from here on follows the head that is sent.
        log = self._logs[wanted.log] = _FollowedLog(self, wanted.log, wanted.session_id, source)
        if wanted.session_id is not None:
            self._followed[wanted.session_id] = wanted.log
        self.socket.send(
            Opened(
                id=wanted.id,
                log=wanted.log,
                head=log.source.head,
                first=log.source.first,
                has_ended=log.source.has_ended,
                was_closed=log.source.was_closed,
            )
        )

    def _close(self, name: int) -> None:
        log = self._logs.pop(name, None)
        if log is not None:
            log.unsubscribe()
            if log.session_id is not None and self._followed.get(log.session_id) == name:
                del self._followed[log.session_id]

    async def read_log(self, log: int | None, after: int, limit: int) -> list[bytes]:
        """Read events of a followed log.

        Raises:
            RequestRejected: if it is not followed.
            StorageFailed: if they cannot be read.
        """
        followed = None if log is None else self._logs.get(log)
        if followed is None:
            raise RequestRejected("not-found", "this log is not followed any more", retryable=True)
        return await followed.source.read(after, limit)

    def takes(self, size: int) -> bool:
        """Count bytes that are sent; return False if they must not be, since the window is full.

        Anything fits into a window that is not full, since an event can be larger than it. A hub
        acknowledges every `ACK_BYTES`, far less than `WINDOW`, so a full window always drains.
        """
        if self._unacknowledged >= WINDOW:
            return False
        self._unacknowledged += size
        return True

    def _acknowledge(self, size: int) -> None:
        if size < 0:
            raise LinkBroken("a hub acknowledged less than nothing")
        self._unacknowledged = max(0, self._unacknowledged - size)
        if self._unacknowledged <= WINDOW // 2:
            for log in tuple(self._logs.values()):
                log.catch_up()

    # ---- what the runner reports -----------------------------------------------------------

    def _on_head(self, session_id: str, seq: int) -> None:
        if session_id not in self._followed:
            if not self._heads:
                self.socket.soon(self._send_heads)
            self._heads[session_id] = seq

    def _send_heads(self) -> None:
        if self._heads:
            self.socket.send(Heads(heads=self._heads))
            self._heads = {}

    def _send_names(self) -> None:
        """Send names of agents that were given without news: after the agent had started."""
        runner = self._server.runner
        agents = [(each, runner.agent_name(each.agent_id)) for each in runner.agents()]
        names = {agent.agent_id: name for agent, name in agents}
        if names != self._names:
            self._names = names
            entries = tuple(AgentEntry(agent=agent, name=name) for agent, name in agents)
            self.socket.send(Changed(change=StateChange(agents=entries)))

    def _on_news(self, news: News) -> None:
        self._send_heads()
        change = change_of(self._server.runner, news, self._server.health)
        if change.health is not None:
            self._health = change.health
        self.socket.send(Changed(change=change, news=plain(news)))

    def broadcast(self, change: StateChange) -> None:
        """Send a change without news to all hubs."""
        for link in self._server.links:
            if link.has_begun:
                link.socket.send(Changed(change=change))

    async def _watch_health(self) -> None:
        """Send what changes of the health without news: that the log can be written again."""
        while self.socket.is_open:
            await anyio.sleep(HEALTH_SECONDS)
            health = self._server.health()
            if health != self._health:
                self._health = health
                damaged = damaged_sessions(self._server.runner) if health.damages else ()
                change = StateChange(health=health, sessions=tuple(damaged))
                self.socket.send(Changed(change=change))
