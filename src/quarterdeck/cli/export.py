"""`quarterdeck export SESSION`: the log as it is stored, a document, or the state, in a file."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Mapping
from typing import Any, BinaryIO

import anyio

from quarterdeck.cli.arguments import DONE, read
from quarterdeck.cli.document import document
from quarterdeck.cli.files import whole_file
from quarterdeck.cli.hub_link import Place, open_hub
from quarterdeck.cli.hub_sessions import find_session, read_events, stored_events
from quarterdeck.cli.parsers import export_parser
from quarterdeck.cli.screen import say
from quarterdeck.http.client import HubApi
from quarterdeck.jsontext import encode_json
from quarterdeck.protocol import SessionState, initial_state, reduce, to_json


def run(arguments: list[str]) -> int:
    chosen = read(export_parser(), arguments)
    if chosen is None:
        return DONE
    if chosen.json:
        chosen.format = "json"
    return anyio.run(_export, chosen)


async def _export(chosen: Namespace) -> int:
    async with open_hub(Place.of(chosen)) as hub:
        session = await find_session(hub.api, chosen.session)
        parts = _parts(hub.api, session, chosen.format)
        if chosen.output is None:
            await _write(parts, sys.stdout.buffer)
            return DONE
        with whole_file(chosen.output, replaces=chosen.force) as stream:
            await _write(parts, stream)
    say(f"wrote {chosen.output}: {session['lastSeq']} events of {session['sessionId']}")
    return DONE


async def _write(parts: AsyncIterator[bytes], stream: BinaryIO) -> None:
    async for part in parts:
        stream.write(part)
    stream.flush()


async def _parts(api: HubApi, session: Mapping[str, Any], form: str) -> AsyncIterator[bytes]:
    session_id, last_seq = session["sessionId"], session["lastSeq"]
    if form == "jsonl":
        async for stored in stored_events(api, session_id, until=last_seq):
            yield stored + b"\n"
        return
    state = await _folded(api, session_id, last_seq)
    if form == "markdown":
        yield document(state, cwd=session["cwd"], last_seq=last_seq).encode()
    else:
        facts = {"session": dict(session), "seq": last_seq, "state": to_json(state)}
        yield encode_json(facts) + b"\n"


async def _folded(api: HubApi, session_id: str, until: int) -> SessionState:
    state = initial_state(session_id)
    async for event in read_events(api, session_id, until=until):
        state = reduce(state, event)
    return state
