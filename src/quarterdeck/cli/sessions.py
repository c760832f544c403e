"""Sessions of a hub: found by a part of their id, read page by page, followed live.

`SessionFollower` delivers each event once and in order, across lost connections and restarts of the
hub.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar, assert_never

import anyio
import msgspec
from msgspec import Raw, Struct

from quarterdeck.cli.hub_access import HubAddress, HubHandle, running_hub
from quarterdeck.client import Client
from quarterdeck.errors import AcpError, CommandFailed, EventInvalid, HubDeclined
from quarterdeck.http.client import HubApi
from quarterdeck.http.headers import path_segment
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol import (
    Event,
    decode_event,
    is_session_status,
)
from quarterdeck.views.text import one_line

_PAGE: Final = 1000
_SHORTEST: Final = 6  # characters of an id that are shown
_NAMED: Final = 5  # candidates that an error names

STATES: Final = ("needs-you", "running", "idle", "done")


class _History(Struct, rename="camel"):
    events: list[Raw]
    next_seq: int
    last_seq: int
    epoch: str = ""
    """Empty if the hub is older."""


def _history(content: bytes) -> _History:
    try:
        return msgspec.json.decode(content, type=_History)
    except msgspec.DecodeError:  # an agent sent half a surrogate pair
        page = decode_json(content)
        events = [Raw(encode_json(each)) for each in page["events"]]
        return _History(events, page["nextSeq"], page["lastSeq"], page.get("epoch", ""))


async def find_session(api: HubApi, given: str) -> dict[str, Any]:
    """Return the session whose id is, starts with or ends in `given`.

    Raises:
        CommandFailed: if none or several match.
    """
    listed = (await api.get("/api/sessions?archived=include"))["sessions"]
    found = match_id(given, {each["sessionId"]: each for each in listed}, "session")
    session: dict[str, Any] = found
    return session


def match_id(given: str, known: Mapping[str, Any], noun: str) -> Any:
    """Return the entry whose key is, starts with or ends in `given`.

    Raises:
        CommandFailed: if none or several match.
    """
    if given in known:
        return known[given]
    matching = [name for name in known if given and _matches(given, name)]
    if len(matching) == 1:
        return known[matching[0]]
    shown = one_line(given)
    if not matching:
        raise CommandFailed(f"unknown {noun} {shown!r}; quarterdeck {noun}s lists them")
    names = ", ".join(one_line(name) for name in matching[:_NAMED])
    more = len(matching) - _NAMED
    others = f" and {more} more" if more > 0 else ""
    raise CommandFailed(f"{shown!r} matches {names}{others}; type more of the id")


def _matches(given: str, name: str) -> bool:
    return name.startswith(given) or name.endswith(given)


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Return for each id its shortest unique ending, at least a few characters.

    The ending, because many ids start with a time or a prefix.
    """
    ordered = sorted(name[::-1] for name in ids)
    short: dict[str, str] = {}
    for index, name in enumerate(ordered):
        neighbours = (*ordered[max(0, index - 1) : index], *ordered[index + 1 : index + 2])
        needed = max((_common(name, other) + 1 for other in neighbours), default=0)
        short[name[::-1]] = name[: max(needed, _SHORTEST)][::-1]
    return short


def _common(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def state_of(session: Mapping[str, Any], waiting: Iterable[str]) -> str:
    """Return the state of a session for people: one of `STATES`."""
    if session["sessionId"] in set(waiting):
        return "needs-you"
    status = session["status"]
    if not is_session_status(status):
        return "idle"
    match status:
        case "prompting" | "creating" | "resuming":
            return "running"
        case "active" | "disconnected":
            return "idle"
        case "closed" | "deleted":
            return "done"
        case _:
            assert_never(status)


async def waiting_sessions(api: HubApi) -> set[str]:
    """Return the ids of the sessions with a pending request."""
    permissions = (await api.get("/api/permissions"))["permissions"]
    elicitations = (await api.get("/api/elicitations"))["elicitations"]
    return {str(each.get("sessionId")) for each in (*permissions, *elicitations)}


async def stored_pages(
    api: HubApi, session_id: str, *, after: int = 0, until: int | None = None
) -> AsyncIterator[list[Raw]]:
    """Read the events of a session as they are stored, in pages."""
    path = f"{path_of(session_id)}/history"
    epoch = ""
    while until is None or after < until:
        limit = _PAGE if until is None else min(_PAGE, until - after)
        content = await api.read("GET", f"{path}?from_seq={after}&limit={limit}{epoch}")
        page = _history(content)
        epoch = f"&epoch={page.epoch}" if page.epoch else ""
        yield page.events
        if not page.events or page.next_seq <= after:
            return
        after = page.next_seq
        if after >= page.last_seq:
            return


async def stored_events(
    api: HubApi, session_id: str, *, after: int = 0, until: int | None = None
) -> AsyncIterator[bytes]:
    """Read the events of a session as they are stored, one by one."""
    async for page in stored_pages(api, session_id, after=after, until=until):
        for raw in page:
            yield bytes(raw)


async def event_pages(
    api: HubApi, session_id: str, *, after: int = 0, until: int | None = None
) -> AsyncIterator[list[Event]]:
    """Read the events of a session in pages; damaged ones are skipped."""
    async for page in stored_pages(api, session_id, after=after, until=until):
        events: list[Event] = []
        for raw in page:
            with suppress(EventInvalid):
                events.append(decode_event(bytes(raw)))
        yield [event for event in events if until is None or event.seq <= until]


async def read_events(
    api: HubApi, session_id: str, *, after: int = 0, until: int | None = None
) -> AsyncIterator[Event]:
    """Read the events of a session one by one; damaged ones are skipped."""
    async for page in event_pages(api, session_id, after=after, until=until):
        for event in page:
            yield event


def path_of(session_id: str) -> str:
    """Return the path of a session in the API."""
    return f"/api/sessions/{path_segment(session_id)}"


_FIRST_SECONDS, _LAST_SECONDS = 0.2, 5.0  # between attempts to reconnect
_RETRY_SECONDS: Final = 60.0  # for a hub that restarts

_T = TypeVar("_T")


class SessionFollower:
    """Follows sessions of a hub; reconnects, to a restarted hub as well."""

    def __init__(self, address: HubAddress, hub: HubHandle, note: Callable[[str], None]) -> None:
        self.hub = hub
        self._address = address
        self._note = note
        self._seqs: dict[str, int] = {}
        self._epochs: dict[str, str] = {}

    def last_seq(self, session_id: str) -> int:
        return self._seqs.get(session_id, 0)

    def begin_after(self, session_id: str, seq: int) -> None:
        """Skip the events of a session up to this one."""
        self._seqs[session_id] = max(seq, self.last_seq(session_id))

    async def keep_connected(self, on_connected: Callable[[Client], None]) -> None:
        """Connect, and reconnect after each loss, until cancelled; report each new client."""
        delay = _FIRST_SECONDS
        while True:
            if await self._connect_once(on_connected):
                delay = _FIRST_SECONDS
                self._note("lost the connection to the hub; reconnecting")
            await anyio.sleep(delay)
            delay = min(delay * 2, _LAST_SECONDS)
            await self._find_hub_again()

    def follow(self, client: Client, session_id: str, on_new: Callable[[Event], None]) -> None:
        """Deliver every event of a session that was not delivered yet."""
        epoch = client.connection.epoch_of(session_id)

        def on_event(event: Event) -> None:
            if event.seq > self.last_seq(session_id):
                self._seqs[session_id] = event.seq
                on_new(event)

        def on_reset() -> None:
            self._note("the log has gone back or was replaced; this is all of it")
            self._seqs[session_id], self._epochs[session_id] = 0, epoch

        client.connection.subscribe_events(
            session_id,
            self.last_seq(session_id),
            on_event,
            epoch=self._epochs.setdefault(session_id, epoch),
            on_reset=on_reset,
        )

    async def _connect_once(self, on_connected: Callable[[Client], None]) -> bool:
        """Stay connected until the connection is lost; return whether there was one."""
        is_connected = False
        try:
            async with Client(self.hub.transport()) as client:
                closed = anyio.Event()

                def on_status() -> None:
                    if client.connection.status == "closed":
                        closed.set()

                client.connection.subscribe(on_status)
                on_connected(client)
                is_connected = client.connection.status != "closed"
                if is_connected:
                    await closed.wait()
        except AcpError:
            pass  # the caller reports the loss and tries again
        return is_connected

    async def _find_hub_again(self) -> None:
        if self.hub.is_embedded:
            return
        try:
            found = await running_hub(self._address.home)
        except (CommandFailed, HubDeclined):
            return
        if found is not None:
            self.hub = found

    async def retry(self, call: Callable[[HubHandle], Awaitable[_T]]) -> _T:
        """Make an idempotent call, again and again while the hub is away.

        Raises:
            CommandFailed: if the hub does not return in time.
        """
        deadline = anyio.current_time() + _RETRY_SECONDS
        while True:
            try:
                return await call(self.hub)
            except CommandFailed:
                if anyio.current_time() > deadline:
                    raise
                await anyio.sleep(_FIRST_SECONDS)
                await self._find_hub_again()
