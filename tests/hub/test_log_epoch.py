"""A log that went back: every reader gets a `reset`, none silently has another history."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

from quarterdeck.client import Client as HostClient, WebSocketTransport
from quarterdeck.protocol import Event
from tests.hub.api.kit import Client, Json, options, running, scripted
from tests.hub.streams.serving import EventParser, Said

pytestmark = pytest.mark.anyio


@dataclass
class Gone:
    """A hub whose log went back to the first turn and then grew past what readers had seen."""

    client: Client
    session: str
    epoch: str
    seq: int
    """What a reader had of the log before."""
    history: list[Json]
    """The log now."""
    home: Path

    async def heard(self, path: str, last_id: str | None = None) -> list[Said]:
        """Read a stream until it has caught up."""
        headers = {"last-event-id": last_id} if last_id else {}
        parser, said = EventParser(), []
        async with self.client.http.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            async for chunk in response.aiter_bytes():
                said += parser.feed(chunk)
                if any(each.name == "caught-up" for each in said):
                    return said
        raise AssertionError("the stream ended")


async def _turns(client: Client, session: str, count: int, key: str) -> None:
    for number in range(count):
        await client.prompt(session, f"{key}{number}", f"{key} {number}")
        await client.ended(session, f"{key}{number}")


@asynccontextmanager
async def gone_back(tmp_path: Path) -> AsyncIterator[Gone]:
    home = tmp_path / "home"
    given = options(home, mine=scripted({"say": "hello there"}))
    async with running(given) as (_hub, client):
        session = await client.session("mine", tmp_path)
        await _turns(client, session, 1, "a")
    shutil.copy(home / "log.db", tmp_path / "older")
    async with running(given) as (_hub, client):
        await _turns(client, session, 2, "b")
        page = await client.get(f"/api/sessions/{session}/history?limit=5000")
    shutil.copy(tmp_path / "older", home / "log.db")
    async with running(given) as (_hub, client):
        await _turns(client, session, 5, "c")
        history = await client.events(session)
        seq = page["lastSeq"]
        assert len(history) > seq
        assert history[seq - 1] != page["events"][seq - 1]  # the number means another event now
        yield Gone(client, session, page["epoch"], seq, history, home)


async def test_p18_inv_13_no_reader_of_a_log_that_went_back_continues_silently(
    tmp_path: Path,
) -> None:
    async with gone_back(tmp_path) as gone:
        events = f"/api/sessions/{gone.session}/events"
        numbers = [event["seq"] for event in gone.history]
        for path, last_id in (
            (events, f"{gone.epoch}-{gone.seq}"),
            (events, str(gone.seq)),  # an older client: nothing says what its number means
            (f"{events}?from_seq={gone.epoch}-{gone.seq}", ""),
            (f"{events}?from_seq={gone.seq}", ""),
            (f"/api/stream?session={gone.session}:{gone.epoch}-{gone.seq}", ""),
            (f"/api/stream?session={gone.session}:{gone.seq}", ""),
        ):
            said = await gone.heard(path, last_id)
            assert said[0].name == "reset", path
            assert said[0].data["reason"] == "epoch"
            current = said[0].data["epoch"]
            assert current != gone.epoch
            assert [each.data["seq"] for each in said if each.name == "message"] == numbers
            assert str(said[1].id).startswith(f"{current}-1")
        packets = await gone.heard(
            f"/api/sessions/{gone.session}/packets", f"{gone.epoch}-{gone.seq}"
        )
        assert packets[0].name == "reset"


async def test_a_reader_that_is_cut_off_before_its_reset_gets_it_again(tmp_path: Path) -> None:
    async with gone_back(tmp_path) as gone:
        path = f"/api/stream?session={gone.session}:{gone.epoch}-{gone.seq}&host="
        (first, *_rest) = [each for each in await gone.heard(path) if each.id]
        # The host's reset came first or last; whichever was seen, the other comes again.
        said = await gone.heard(path, first.id)
        is_session = "sessionId" in first.data
        resets = [each for each in said if each.name == "reset" and "sessionId" in each.data]
        assert bool(resets) != is_session


async def test_an_id_of_the_current_epoch_resumes_without_a_reset(tmp_path: Path) -> None:
    async with gone_back(tmp_path) as gone:
        path = f"/api/sessions/{gone.session}/events"
        said = await gone.heard(path)
        middle = said[len(said) // 2]
        rest = await gone.heard(path, middle.id)
        assert [each.name for each in rest][:1] == ["message"]
        assert rest[0].data["seq"] == middle.data["seq"] + 1


async def test_history_says_when_its_numbers_are_over_and_echoes_none(tmp_path: Path) -> None:
    async with gone_back(tmp_path) as gone:
        path = f"/api/sessions/{gone.session}/history"
        page = await gone.client.get(f"{path}?from_seq=999999")
        last = gone.history[-1]["seq"]
        assert (page["events"], page["lastSeq"], page["nextSeq"]) == ([], last, last)
        refused = await gone.client.get(f"{path}?from_seq=3&epoch={gone.epoch}", status=409)
        assert refused["error"]["code"] == "quarterdeck/reset"
        assert refused["error"]["data"]["epoch"] == page["epoch"]
        await gone.client.get(f"{path}?from_seq=3&epoch={page['epoch']}")
        state = await gone.client.get(f"/api/sessions/{gone.session}")
        transcript = await gone.client.get(f"/api/sessions/{gone.session}/transcript")
        listed = await gone.client.get("/api/sessions")
        assert {state["epoch"], transcript["epoch"], listed["epoch"]} == {page["epoch"]}


async def test_a_client_that_connects_again_starts_over(tmp_path: Path) -> None:
    async with (
        gone_back(tmp_path) as gone,
        HostClient(WebSocketTransport(socket=gone.home / "hub.sock")) as client,
    ):
        handle = client.sessions.get(gone.session)
        assert handle is not None
        for epoch, is_over in (
            (gone.epoch, True),
            ("", True),
            (client.connection.log_epoch, False),
        ):
            events: list[Event] = []
            resets: list[int] = []

            def on_reset(resets: list[int] = resets, events: list[Event] = events) -> None:
                resets.append(len(events))

            stop = handle.on_event(events.append, from_seq=gone.seq, epoch=epoch, on_reset=on_reset)
            wanted = [e["seq"] for e in gone.history if is_over or e["seq"] > gone.seq]
            with anyio.fail_after(30):
                while len(events) < len(wanted):
                    await anyio.lowlevel.checkpoint()
            stop()
            assert resets == ([0] if is_over else [])
            assert [event.seq for event in events] == wanted


async def test_a_killed_hub_keeps_the_numbers_of_its_readers_valid(tmp_path: Path) -> None:
    home = tmp_path / "home"
    given = options(home, mine=scripted({"say": "hello"}))
    async with running(given) as (_hub, client):
        session = await client.session("mine", tmp_path)
        await _turns(client, session, 1, "a")
        before = await client.get(f"/api/sessions/{session}/history")
    async with running(given) as (_hub, client):
        after = await client.get(f"/api/sessions/{session}/history?epoch={before['epoch']}")
        assert after["events"][: len(before["events"])] == before["events"]


async def test_damage_costs_its_session_and_is_named(tmp_path: Path) -> None:
    home = tmp_path / "home"
    given = options(home, mine=scripted({"say": "hello there"}))
    async with running(given) as (_hub, client):
        sessions = [await client.session("mine", tmp_path) for _ in range(2)]
        for session in sessions:
            await _turns(client, session, 2, "a")
        whole = await client.events(sessions[1])
        assert await client.get("/healthz") == {"status": "ok"}
    _spoil(home / "log.db", sessions[0])
    async with running(given) as (_hub, client):
        path = f"/api/sessions/{sessions[0]}"
        error = await _refused(client, f"{path}/history?limit=5000")
        assert error["code"] == "quarterdeck/damaged"
        assert f"of session {sessions[0]}: their checksum is wrong" in error["message"]
        assert "quarterdeck repair" in error["message"]
        assert (await _refused(client, path))["code"] == "quarterdeck/damaged"
        assert (await _refused(client, f"{path}/transcript"))["code"] == "quarterdeck/damaged"
        assert await client.get("/healthz") == {"status": "damaged"}
        (sentence,) = (await client.get("/api/hub"))["damages"]
        assert sessions[0] in sentence
        assert (await client.events(sessions[1]))[: len(whole)] == whole
        await _turns(client, sessions[1], 1, "b")
        assert len((await client.get("/api/sessions"))["sessions"]) == 2


async def _refused(client: Client, path: str) -> Any:
    answer = await client.http.get(path)
    assert answer.status_code == 503, answer.text
    return json.loads(answer.text)["error"]


def _spoil(path: Path, session: str) -> None:
    """Change one letter of a stored event, as a bad disk would."""
    with sqlite3.connect(path) as connection:
        query = (
            "SELECT events.id, data FROM events JOIN sessions ON session = sessions.id"
            " WHERE session_id = ? ORDER BY events.last_seq LIMIT 1 OFFSET 2"
        )
        id_, data = connection.execute(query, (session,)).fetchone()
        changed = data.replace(b'"seq"', b'"sec"', 1)
        connection.execute("UPDATE events SET data = ? WHERE id = ?", (changed, id_))
    connection.close()
