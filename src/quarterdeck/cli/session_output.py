"""A session from its log: printed in one of several forms, or written to a file.

`show_session` and `export_session` are commands: they take the parsed arguments and return the exit
status. Both read the log page by page, because a log may be larger than memory.
"""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

import anyio
from anyio import from_thread, to_thread

from quarterdeck.cli.arguments import DONE
from quarterdeck.cli.hub_access import HubAddress, open_hub
from quarterdeck.cli.sessions import event_pages, find_session, read_events, stored_events
from quarterdeck.cli.terminal.log_rows import VIEWS, ViewName, show_lines
from quarterdeck.cli.terminal.screen import Screen, print_note
from quarterdeck.cli.terminal.session_printer import TextPrinter
from quarterdeck.errors import CommandFailed
from quarterdeck.http.client import HubApi
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import Event, SessionState, initial_state, reduce, to_json
from quarterdeck.protocol.shown_events import reduce_shown
from quarterdeck.views.context import ContextProjector, encode_context_event
from quarterdeck.views.entries import NoteEntry
from quarterdeck.views.markdown import document
from quarterdeck.views.packets import PacketProjector
from quarterdeck.views.transcript import Transcript

_Session = Mapping[str, Any]

# ---- show --------------------------------------------------------------------------------------


def show_session(chosen: Namespace) -> int:
    if chosen.json and chosen.form == "text":
        chosen.form = "events"
    return anyio.run(_show, chosen)


async def _show(chosen: Namespace) -> int:
    async with open_hub(HubAddress.of(chosen)) as hub:
        session = await find_session(hub.api, chosen.session)
        last_seq = session["lastSeq"]
        if chosen.at is not None and chosen.at > last_seq:
            raise CommandFailed(
                f"the session has {last_seq} events, not {chosen.at}; choose a lower --at"
            )
        until = last_seq if chosen.at is None else chosen.at
        if chosen.form in VIEWS and not chosen.json:
            await _print_lines(hub.api, session, chosen.from_seq, until, chosen.form)
        elif chosen.form == "text":
            await _print_text(hub.api, session, chosen.from_seq, until, shows_all=chosen.settings)
        else:
            await _PRINTERS[chosen.form](hub.api, session, chosen.from_seq, until)
    return DONE


async def _print_text(
    api: HubApi, session: _Session, after: int, until: int, *, shows_all: bool = False
) -> None:
    printer = TextPrinter(Screen(sys.stdout), cwd=session["cwd"], shows_all=shows_all)
    state = initial_state(session["sessionId"])
    async for event in read_events(api, session["sessionId"], until=until):
        state = reduce_shown(state, event)
        if event.seq > after:
            printer.event(event, state)
    printer.end()
    for request in state.pending_permission_requests:
        printer.note(f"{request.request_id} is waiting for an answer")


async def _print_lines(
    api: HubApi, session: _Session, after: int, until: int, view: ViewName
) -> None:
    """Print a view for people, without what it shows of the events up to `after`.

    The lines are made on a thread, which fetches page after page.
    """
    screen = Screen(sys.stdout)
    facts = {**session, "agentDefinitionId": session.get("agent")}

    def lines(last: int) -> Iterator[str]:
        pages = event_pages(api, session["sessionId"], until=last)
        return show_lines(facts, _events_on_thread(pages), view, screen.width)

    def show() -> None:
        hidden = sum(1 for _ in lines(min(after, until))) if after > 0 else 0
        for line in islice(lines(until), hidden, None):
            screen.line(line)

    await to_thread.run_sync(show)


def _events_on_thread(pages: AsyncIterator[list[Event]]) -> Iterator[Event]:
    async def next_page() -> list[Event] | None:
        return await anext(pages, None)

    while (page := from_thread.run(next_page)) is not None:
        yield from page


async def _print_events(api: HubApi, session: _Session, after: int, until: int) -> None:
    async for stored in stored_events(api, session["sessionId"], after=after, until=until):
        _print_line(stored)


async def _print_state(api: HubApi, session: _Session, _after: int, until: int) -> None:
    state = await _state_at(api, session["sessionId"], until)
    _print_line(encode_json(to_json(state)))


async def _print_context(api: HubApi, session: _Session, after: int, until: int) -> None:
    facts = {**session, "agentDefinitionId": session.get("agent")}
    projector = ContextProjector(facts)
    async for event in read_events(api, session["sessionId"], until=until):
        for projected in projector.feed(event):
            if event.seq > after:
                _print_line(encode_context_event(projected))


async def _print_packets(api: HubApi, session: _Session, after: int, until: int) -> None:
    projector = PacketProjector(session["sessionId"])
    async for event in read_events(api, session["sessionId"], until=until):
        for packet in projector.feed(event):
            if event.seq > after:
                _print_line(encode_json(packet))


def _print_line(content: bytes) -> None:
    sys.stdout.write(content.decode("utf-8", "replace") + "\n")


_PRINTERS: Final[Mapping[str, Callable[[HubApi, _Session, int, int], Awaitable[None]]]] = {
    "text": _print_text,
    "context": _print_context,
    "packets": _print_packets,
    "events": _print_events,
    "state": _print_state,
}

# ---- export ------------------------------------------------------------------------------------


def export_session(chosen: Namespace) -> int:
    if chosen.json:
        chosen.format = "json"
    return anyio.run(_export, chosen)


async def _export(chosen: Namespace) -> int:
    async with open_hub(HubAddress.of(chosen)) as hub:
        session = await find_session(hub.api, chosen.session)
        parts = _export_parts(hub.api, session, chosen.format)
        if chosen.output is None:
            await _write(parts, sys.stdout.buffer)
            return DONE
        with whole_file(chosen.output, replaces=chosen.force) as stream:
            await _write(parts, stream)
    print_note(f"wrote {chosen.output}: {session['lastSeq']} events of {session['sessionId']}")
    return DONE


async def _write(parts: AsyncIterator[bytes], stream: BinaryIO) -> None:
    async for part in parts:
        stream.write(part)
    stream.flush()


async def _export_parts(api: HubApi, session: _Session, form: str) -> AsyncIterator[bytes]:
    session_id, last_seq = session["sessionId"], session["lastSeq"]
    if form == "jsonl":
        async for stored in stored_events(api, session_id, until=last_seq):
            yield stored + b"\n"
        return
    if form == "markdown":
        yield await _markdown(api, session)
    else:
        state = await _state_at(api, session_id, last_seq)
        facts = {"session": dict(session), "seq": last_seq, "state": to_json(state)}
        yield encode_json(facts) + b"\n"


async def _markdown(api: HubApi, session: _Session) -> bytes:
    session_id, last_seq = session["sessionId"], session["lastSeq"]
    state, transcript = initial_state(session_id), Transcript(session_id)
    async for event in read_events(api, session_id, until=last_seq):
        state = reduce_shown(state, event)
        transcript.apply(event)
    notes = [entry for entry in transcript.older(None) if isinstance(entry, NoteEntry)]
    shown = document(state, cwd=session["cwd"], last_seq=last_seq, notes=notes[::-1])
    return shown.encode()


async def _state_at(api: HubApi, session_id: str, seq: int) -> SessionState:
    state = initial_state(session_id)
    async for event in read_events(api, session_id, until=seq):
        state = reduce(state, event)
    return state


@contextmanager
def whole_file(path: Path, *, replaces: bool) -> Iterator[BinaryIO]:
    """Write an owner-only file that appears at `path` when the block ends, and not if it fails.

    Raises:
        CommandFailed: if its directory cannot be written to, or if the file exists and is not to be
        replaced.
    """
    if not replaces and (path.exists() or path.is_symlink()):
        raise _exists(path)
    try:
        descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:  # it names the temporary file, which says nothing to the user
        raise CommandFailed(
            f"cannot write to {path.parent}: {error.strerror}; choose another directory"
        ) from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if replaces:
            Path(partial).replace(path)
            return
        try:
            os.link(partial, path)  # unlike a rename, it fails if the file appeared meanwhile
        except FileExistsError as error:
            raise _exists(path) from error
        Path(partial).unlink()
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _exists(path: Path) -> CommandFailed:
    return CommandFailed(f"{path} already exists; choose another file or overwrite it with --force")
