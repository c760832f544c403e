"""The transcript of a session, newest part first: what a page opens with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Endpoint,
    Query,
    json_app,
    not_found,
)
from quarterdeck.hub.hub import Hub
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import SessionState, initial_state, to_json
from quarterdeck.runner import SessionOverview
from quarterdeck.views.clipped_entries import clipped
from quarterdeck.views.entries import (
    Entry,
    MessageEntry,
    MismatchEntry,
    NoteEntry,
    StatusEntry,
    ToolEntry,
    TurnEntry,
)

_MOST_DIGITS: Final = 16  # of a seq
MOST_BYTES: Final = 128 << 10
"""Of the entries of one page, unless the first is larger: a phone shows a dozen at a time."""


class TranscriptQuery(Query, frozen=True, kw_only=True):
    before: Annotated[int, Meta(ge=0, le=2**53)] | UnsetType = UNSET
    """Entries before the one with this seq; the newest if left out."""
    limit: Annotated[int, Meta(ge=1, le=500)] = 60


class TranscriptPage(ApiResponse, frozen=True, kw_only=True):
    """Entries, oldest first, as they are after the event `seq`."""

    session: SessionOverview
    seq: int
    epoch: str
    """Of the log: keep it with `seq`, and send both to resume."""
    entries: list[MessageEntry | ToolEntry | TurnEntry | StatusEntry | MismatchEntry | NoteEntry]
    has_older: bool
    state: dict[str, Any] | UnsetType = UNSET
    """All else of the session's state; with the newest page only."""


class WholeEntry(ApiResponse, frozen=True, kw_only=True):
    """An entry as it is after the event `seq`."""

    seq: int
    epoch: str
    entry: MessageEntry | ToolEntry | TurnEntry | StatusEntry | MismatchEntry | NoteEntry


class _TranscriptApi:
    def __init__(self, hub: Hub) -> None:
        self._runner = hub.runner
        self._transcripts = hub.transcripts

    async def page(self, request: ApiRequest) -> TranscriptPage:
        session_id, query = request.path["id"], request.query_as(TranscriptQuery)
        # Before the transcript is read: it must not grow between that and its session.
        await self._runner.show_session(session_id)
        before = None if query.before is UNSET else query.before
        async with (
            self._transcripts.read(session_id) as transcript,
            aclosing(transcript.older(before)) as newest_first,
        ):
            entries = [entry async for entry in _some(newest_first, query.limit)]
            return TranscriptPage(
                session=self._runner.session(session_id),
                seq=transcript.seq,
                epoch=self._runner.log_epoch(session_id).id,
                entries=entries[::-1],
                has_older=await anext(newest_first, None) is not None,
                state=_rest(transcript.state) if before is None else UNSET,
            )

    async def entry(self, request: ApiRequest) -> WholeEntry:
        session_id, seq = request.path["id"], request.path["seq"]
        is_number = seq.isascii() and seq.isdecimal() and len(seq) <= _MOST_DIGITS
        async with self._transcripts.read(session_id) as transcript:
            entry = await transcript.entry(int(seq)) if is_number else None
            if entry is None:
                raise not_found(f"entry {seq!r} in this session", "GET its transcript to list them")
            epoch = self._runner.log_epoch(session_id).id
            return WholeEntry(seq=transcript.seq, epoch=epoch, entry=entry)


async def _some(newest_first: AsyncIterator[Entry], limit: int) -> AsyncIterator[Any]:
    size = 0
    for _ in range(limit):
        entry = await anext(newest_first, None)
        if entry is None:
            return
        written = encode_json(clipped(entry))
        yield msgspec.Raw(written)
        size += len(written)
        if size > MOST_BYTES:
            return


def _rest(state: SessionState) -> dict[str, Any]:
    """Return a state without what is in the entries."""
    empty = initial_state(state.session_id)
    rest = msgspec.structs.replace(
        state, messages=empty.messages, tool_calls=empty.tool_calls, terminals=empty.terminals
    )
    written: dict[str, Any] = to_json(rest)
    return written


def transcript_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the transcripts' part of the route table."""
    api = _TranscriptApi(hub)
    return [
        Endpoint(
            method="GET",
            path="/api/sessions/{id}/transcript",
            scope="view",
            app=json_app(api.page, query=TranscriptQuery),
            summary="Read the transcript of a session, the newest part first",
            tag="sessions",
            query=TranscriptQuery,
            returns=TranscriptPage,
            errors=(400, 404),
        ),
        Endpoint(
            method="GET",
            path="/api/sessions/{id}/transcript/{seq}",
            scope="view",
            app=json_app(api.entry),
            summary="Read one entry whole, however large it is",
            tag="sessions",
            returns=WholeEntry,
            errors=(404,),
        ),
    ]
