"""`quarterdeck show SESSION`: a session as the log has it, in the words that are wanted."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import anyio
from anyio import from_thread, to_thread

from quarterdeck.cli.arguments import DONE, read
from quarterdeck.cli.hub_link import Place, open_hub
from quarterdeck.cli.hub_sessions import event_pages, find_session, read_events, stored_events
from quarterdeck.cli.parsers import show_parser
from quarterdeck.cli.screen import Screen
from quarterdeck.cli.show_view import VIEWS, View, show_lines
from quarterdeck.cli.story import StoryView
from quarterdeck.dialects.context import ContextProjector, encode_context_event
from quarterdeck.dialects.packets import PacketProjector
from quarterdeck.errors import CommandFailed
from quarterdeck.http.client import HubApi
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import Event, initial_state, reduce, to_json


def run(arguments: list[str]) -> int:
    chosen = read(show_parser(), arguments)
    if chosen is None:
        return DONE
    if chosen.json and chosen.form == "text":
        chosen.form = "events"
    return anyio.run(_show, chosen)


async def _show(chosen: Namespace) -> int:
    async with open_hub(Place.of(chosen)) as hub:
        session = await find_session(hub.api, chosen.session)
        last_seq = session["lastSeq"]
        if chosen.at is not None and chosen.at > last_seq:
            raise CommandFailed(f"the session has {last_seq} events, not {chosen.at}")
        until = last_seq if chosen.at is None else chosen.at
        if chosen.form in VIEWS and not chosen.json:
            await _lines(hub.api, session, chosen.from_seq, until, chosen.form)
        else:
            await _FORMS[chosen.form](hub.api, session, chosen.from_seq, until)
    return DONE


_Session = Mapping[str, Any]


async def _text(api: HubApi, session: _Session, after: int, until: int) -> None:
    view = StoryView(Screen(sys.stdout), cwd=session["cwd"])
    state = initial_state(session["sessionId"])
    async for event in read_events(api, session["sessionId"], until=until):
        state = reduce(state, event)
        if event.seq > after:
            view.event(event, state)
    view.end()
    for request in state.pending_permission_requests:
        view.note(f"{request.request_id} waits for an answer")


async def _lines(api: HubApi, session: _Session, after: int, until: int, view: View) -> None:
    """Show a vocabulary to people; what was told up to `after` is left out.

    A log may be longer than memory: the lines are made on a thread, which asks for page after page.
    """
    screen = Screen(sys.stdout)
    facts = {**session, "agentDefinitionId": session.get("agent")}

    def lines(last: int) -> Iterator[str]:
        pages = event_pages(api, session["sessionId"], until=last)
        return show_lines(facts, _waited_for(pages), view, screen.width)

    def show() -> None:
        hidden = sum(1 for _ in lines(min(after, until))) if after > 0 else 0
        for line in islice(lines(until), hidden, None):
            screen.line(line)

    await to_thread.run_sync(show)


def _waited_for(pages: AsyncIterator[list[Event]]) -> Iterator[Event]:
    """Iterate over pages from a thread."""

    async def following() -> list[Event] | None:
        return await anext(pages, None)

    while (page := from_thread.run(following)) is not None:
        yield from page


async def _events(api: HubApi, session: _Session, after: int, until: int) -> None:
    async for stored in stored_events(api, session["sessionId"], after=after, until=until):
        _line(stored)


async def _state(api: HubApi, session: _Session, _after: int, until: int) -> None:
    state = initial_state(session["sessionId"])
    async for event in read_events(api, session["sessionId"], until=until):
        state = reduce(state, event)
    _line(encode_json(to_json(state)))


async def _context(api: HubApi, session: _Session, after: int, until: int) -> None:
    facts = {**session, "agentDefinitionId": session.get("agent")}
    projector = ContextProjector(facts)
    async for event in read_events(api, session["sessionId"], until=until):
        for told in projector.feed(event):
            if event.seq > after:
                _line(encode_context_event(told))


async def _packets(api: HubApi, session: _Session, after: int, until: int) -> None:
    projector = PacketProjector(session["sessionId"])
    async for event in read_events(api, session["sessionId"], until=until):
        for packet in projector.feed(event):
            if event.seq > after:
                _line(encode_json(packet))


def _line(content: bytes) -> None:
    sys.stdout.write(content.decode("utf-8", "replace") + "\n")


_FORMS: Final[Mapping[str, Callable[[HubApi, _Session, int, int], Awaitable[None]]]] = {
    "text": _text,
    "context": _context,
    "packets": _packets,
    "events": _events,
    "state": _state,
}
