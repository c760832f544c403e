"""What distinguishes sessions: titles, and when something last happened in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from typing_extensions import override

from quarterdeck.errors import StorageFailed
from quarterdeck.protocol import decode_event, encode_event
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.runner.sessions.catalogue import LONGEST, MOST, SessionTitles, title_of
from quarterdeck.storage import MemoryStorage, SessionMeta, Stored
from tests.hub.api.kit import Client, options, running, scripted

TITLED = {"update": {"sessionUpdate": "session_info_update", "title": "The agent's own"}}
OTHER: tuple[str, dict[str, Any]] = ("current-mode-update", {"currentModeId": "m"})


def prompted(text: str) -> tuple[str, dict[str, Any]]:
    return "user-message-chunk", {"content": {"type": "text", "text": text}}


def said(text: str) -> tuple[str, dict[str, Any]]:
    return "agent-message-chunk", {"content": {"type": "text", "text": text}}


class CountingStorage(MemoryStorage):
    """Counts what is read, and fails on demand."""

    reads = 0
    fails = False

    @override
    async def read(self, session_id: str, after: int, limit: int) -> list[bytes]:
        self.reads += 1
        if self.fails:
            raise StorageFailed(Path("log.db"), "it cannot be read", "wait")
        return await super().read(session_id, after, limit)

    async def add(self, first: int, *events: tuple[str, dict[str, Any]]) -> int:
        """Append events from a seq on, each at that second; return the last seq."""
        records: list[Stored | SessionMeta] = []
        for seq, (kind, payload) in enumerate(events, first):
            facts = {"seq": seq, "ts": seq * 1000, "sessionId": "s", "payload": payload}
            data = encode_event(decode_event({"type": kind, **facts}))
            records.append(Stored("s", seq, data))
        await self.append(records)
        return first + len(events) - 1


async def opened() -> tuple[CountingStorage, SessionTitles]:
    storage = CountingStorage()
    await storage.open()
    return storage, SessionTitles(storage)


async def only(client: Client) -> dict[str, Any]:
    (session,) = (await client.get("/api/sessions"))["sessions"]
    found: dict[str, Any] = session
    return found


async def test_a_session_is_called_by_its_first_prompt_also_after_restarts_and_its_end(
    tmp_path: Path,
) -> None:
    settings = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    async with running(settings) as (_, client):
        session = await client.session("mine", tmp_path)
        assert "title" not in await only(client)
        for key, text in (("k1", "Mend the\n\tfence\x07"), ("k2", "and the gate")):
            await client.prompt(session, key, text)
            await client.ended(session, key)
        assert (await only(client))["title"] == "Mend the fence"
    async with running(settings) as (_, client):
        assert (await only(client))["title"] == "Mend the fence"
        await client.prompt(session, "k3", "once more")
        await client.ended(session, "k3")
        await client.post(f"/api/sessions/{session}/close")
    async with running(settings) as (_, client):
        for path in (f"/api/sessions/{session}", f"/api/sessions/{session}/transcript"):
            assert (await client.get(path))["session"]["title"] == "Mend the fence"
        listed = await only(client)
        assert (listed["status"], listed["title"]) == ("closed", "Mend the fence")


async def test_the_title_that_an_agent_gives_goes_before_the_first_prompt(tmp_path: Path) -> None:
    settings = options(tmp_path / "home", mine=scripted(TITLED))
    async with running(settings) as (_, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k1", "Mend the fence")
        await client.ended(session, "k1")
        assert (await only(client))["title"] == "The agent's own"
    async with running(settings) as (_, client):
        assert (await only(client))["title"] == "The agent's own"


async def test_a_session_says_when_its_last_event_was_also_after_a_restart(tmp_path: Path) -> None:
    settings = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    async with running(settings) as (_, client):
        session = await client.session("mine", tmp_path)
        for key in ("k1", "k2"):
            await client.prompt(session, key)
            await client.ended(session, key)
            listed = await only(client)
            last = (await client.events(session))[listed["lastSeq"] - 1]
            assert listed["lastAt"] == iso_seconds(last["ts"] / 1000)
    async with running(settings) as (_, client):
        listed = await only(client)
        last = (await client.events(session))[listed["lastSeq"] - 1]
        assert listed["lastAt"] == iso_seconds(last["ts"] / 1000)


async def test_nothing_is_read_of_a_session_without_news_and_little_of_a_long_one() -> None:
    storage, headings = await opened()
    last = await storage.add(1, OTHER, prompted("Mend "), prompted("it"), *[said("word")] * 5000)
    await headings.learn([("s", last)])
    assert (headings.get("s").title, headings.get("s").last_at) == ("Mend it", iso_seconds(last))
    assert storage.reads == 2
    await headings.learn([("s", last)])
    assert storage.reads == 2
    last = await storage.add(last + 1, prompted("more"))
    await headings.learn([("s", last)])
    assert (headings.get("s").title, headings.get("s").last_at) == ("Mend it", iso_seconds(last))
    assert storage.reads == 3


async def test_a_prompt_whose_parts_are_not_all_stored_is_read_again() -> None:
    storage, headings = await opened()
    last = await storage.add(1, OTHER, prompted("Mend "))
    await headings.learn([("s", last)])
    assert headings.get("s").title == "Mend"
    last = await storage.add(last + 1, prompted("it"), said("done"))
    await headings.learn([("s", last)])
    assert headings.get("s").title == "Mend it"


async def test_a_prompt_without_words_gives_no_title_and_the_next_one_does() -> None:
    storage, headings = await opened()
    picture = ("user-message-chunk", {"content": {"type": "image", "data": "", "mimeType": "x/y"}})
    last = await storage.add(1, picture, said("nice"), *[OTHER] * 40, prompted("Paint it"), OTHER)
    await headings.learn([("s", last)])
    assert headings.get("s").title == "Paint it"


async def test_a_first_prompt_is_not_looked_for_without_end() -> None:
    storage, headings = await opened()
    last = await storage.add(1, *[OTHER] * MOST, prompted("late"), OTHER)
    await headings.learn([("s", last)])
    assert headings.get("s").title is None
    reads = storage.reads
    last = await storage.add(last + 1, OTHER)
    await headings.learn([("s", last)])
    assert storage.reads == reads + 1


async def test_sessions_are_listed_although_their_events_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage, headings = await opened()
    last = await storage.add(1, prompted("Mend it"), OTHER)
    storage.fails = True
    await headings.learn([("s", last)])
    assert headings.get("s").title is None
    assert "a session could not be read" in caplog.text
    storage.fails = False
    await headings.learn([("s", last)])
    assert headings.get("s").title == "Mend it"
    headings.forget("s")
    assert headings.get("s").title is None


@given(st.text(st.characters(), max_size=400))
def test_a_title_is_one_short_line_that_can_be_seen_and_stored(words: str) -> None:
    title = title_of(words)
    assert title is None or 0 < len(title) <= LONGEST
    assert title is None or title.replace("\u200c", "").replace("\u200d", "").isprintable()
    assert title is None or title == title.strip()


def test_a_long_title_ends_with_dots() -> None:
    assert title_of("word " * 100) == ("word " * 100)[: LONGEST - 1].rstrip() + "…"
    assert title_of("w" * LONGEST) == "w" * LONGEST
    assert title_of(" \n\u202e \u200d") is None
