"""Sessions of a hub as commands need them: found by a part of their id, read page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from quarterdeck.cli.text import one_line
from quarterdeck.errors import CommandFailed, EventInvalid
from quarterdeck.http.client import HubApi
from quarterdeck.http.headers import path_segment
from quarterdeck.protocol import Event, decode_event

_PAGE: Final = 1000
_SHORTEST: Final = 6  # of what is shown of an id
_NAMED: Final = 5  # of those that an abbreviation may mean

STATES: Final = ("needs-you", "running", "idle", "done")


class _History(Struct, rename="camel"):
    events: list[Raw]
    next_seq: int
    last_seq: int


async def find_session(api: HubApi, given: str) -> dict[str, Any]:
    """Return the session whose id is, begins with or ends in what was given.

    Raises:
        CommandFailed: if there is none, or several.
    """
    listed = (await api.get("/api/sessions"))["sessions"]
    found = match_id(given, {each["sessionId"]: each for each in listed}, "session")
    session: dict[str, Any] = found
    return session


def match_id(given: str, known: Mapping[str, Any], noun: str) -> Any:
    """Return what an abbreviation means.

    Raises:
        CommandFailed: if it means nothing, or several things.
    """
    if given in known:
        return known[given]
    matching = [name for name in known if given and _may_mean(given, name)]
    if len(matching) == 1:
        return known[matching[0]]
    shown = one_line(given)
    if not matching:
        raise CommandFailed(
            f"there is no {noun} {shown!r}; quarterdeck {noun}s lists those there are"
        )
    names = ", ".join(one_line(name) for name in matching[:_NAMED])
    more = len(matching) - _NAMED
    others = f" and {more} more" if more > 0 else ""
    raise CommandFailed(f"{shown!r} may be {names}{others}; give more of the id")


def _may_mean(given: str, name: str) -> bool:
    return name.startswith(given) or name.endswith(given)


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Return for each id the shortest end that means it alone, at least a few characters.

    The end, because many ids begin with the time or a word for what they are.
    """
    ordered = sorted(name[::-1] for name in ids)
    short: dict[str, str] = {}
    for place, name in enumerate(ordered):
        neighbours = (*ordered[max(0, place - 1) : place], *ordered[place + 1 : place + 2])
        needed = max((_common(name, other) + 1 for other in neighbours), default=0)
        short[name[::-1]] = name[: max(needed, _SHORTEST)][::-1]
    return short


def _common(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def state_of(session: Mapping[str, Any], waiting: Iterable[str]) -> str:
    """Say in a word how a session is: one of `STATES`."""
    if session["sessionId"] in set(waiting):
        return "needs-you"
    status = session["status"]
    if status in ("prompting", "creating", "resuming"):
        return "running"
    return "done" if status in ("closed", "deleted") else "idle"


async def waiting_sessions(api: HubApi) -> set[str]:
    """Return the sessions that wait for an answer."""
    permissions = (await api.get("/api/permissions"))["permissions"]
    questions = (await api.get("/api/elicitations"))["elicitations"]
    return {str(each.get("sessionId")) for each in (*permissions, *questions)}


async def stored_pages(
    api: HubApi, session_id: str, *, after: int = 0, until: int | None = None
) -> AsyncIterator[list[Raw]]:
    """Read the events of a session as they are stored, in pages."""
    place = f"{path_of(session_id)}/history"
    while until is None or after < until:
        limit = _PAGE if until is None else min(_PAGE, until - after)
        content = await api.read("GET", f"{place}?from_seq={after}&limit={limit}")
        page = msgspec.json.decode(content, type=_History)
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
    """Read the events of a session in pages; damaged ones are left out."""
    async for page in stored_pages(api, session_id, after=after, until=until):
        events: list[Event] = []
        for raw in page:
            with suppress(EventInvalid):
                events.append(decode_event(bytes(raw)))
        yield [event for event in events if until is None or event.seq <= until]


async def read_events(
    api: HubApi, session_id: str, *, after: int = 0, until: int | None = None
) -> AsyncIterator[Event]:
    """Read the events of a session one by one; damaged ones are left out."""
    async for page in event_pages(api, session_id, after=after, until=until):
        for event in page:
            yield event


def path_of(session_id: str) -> str:
    """Return the address of a session."""
    return f"/api/sessions/{path_segment(session_id)}"
