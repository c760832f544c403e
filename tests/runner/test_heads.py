"""A hub that has more events than its runner gives them back, or stops the session."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from quarterdeck.errors import AcpError, RequestRejected
from quarterdeck.host.log.heads import event_digest
from quarterdeck.protocol import decode_event, encode_event, make_session_event
from quarterdeck.runner import Diagnostic, News, Runner
from quarterdeck.runner.heads import HeadVerdict, LogHead
from quarterdeck.storage import LogEpoch
from tests.hub.api.kit import PATIENCE, options, scripted
from tests.hub.api.test_optional import able

SAY = {"say": "hello"}
CAN_BE_OPENED: dict[str, list[dict[str, dict[str, str]]]] = {
    "session/resume": [{"result": {}}],
    "session/load": [{"result": {}}],
    "session/close": [{"result": {}}],
}
TEXT = [{"type": "text", "text": "go"}]


class FakeHub:
    """The copies of a hub: every event of every session, as bytes."""

    def __init__(self) -> None:
        self.copies: dict[str, list[bytes]] = {}
        self.epoch: LogEpoch | None = None

    async def copy(self, runner: Runner) -> None:
        self.epoch = runner.log_epoch()
        for session in runner.sessions():
            name = session.session_id
            self.copies[name] = await runner.read_events(name, 0, 10_000)

    def head(self, session_id: str) -> LogHead:
        copy = self.copies[session_id]
        digest = event_digest(copy[-1]) if copy else ""
        return LogHead(session_id=session_id, last_seq=len(copy), digest=digest)

    def heads(self) -> list[LogHead]:
        return [self.head(name) for name in self.copies]


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Runner]:
    agent = scripted(SAY, methods=CAN_BE_OPENED)
    with anyio.fail_after(PATIENCE):
        async with Runner(options(home, mine=agent).runner) as runner:
            yield runner


async def turn(runner: Runner, session_id: str, key: str) -> None:
    await runner.add_prompt(session_id, key, TEXT)
    assert (await runner.wait_prompt(session_id, key)).state == "done"


async def begun(home: Path, cwd: Path) -> tuple[str, str]:
    """Run a turn in each of two sessions, and return their ids."""
    async with opened(home) as runner:
        first = (await runner.create_session("mine", cwd=str(cwd))).session_id
        other = (await runner.create_session("mine", cwd=str(cwd))).session_id
        await turn(runner, first, "one")
        await turn(runner, other, "one")
    return first, other


def lose(home: Path, copy: Path) -> None:
    """Replace the log by an older copy."""
    shutil.copyfile(copy, home / "log.db")
    for name in ("log.db-wal", "log.db-shm", "log.db.mark"):
        (home / name).unlink(missing_ok=True)


async def rewound(tmp_path: Path) -> tuple[Path, str, str, FakeHub]:
    """Return a data folder whose log has lost a turn of both sessions, and a hub that has it."""
    home, hub = tmp_path / "home", FakeHub()
    first, other = await begun(home, tmp_path)
    shutil.copyfile(home / "log.db", tmp_path / "older.db")
    async with opened(home) as runner:
        await turn(runner, first, "two")
        await turn(runner, other, "two")
        await hub.copy(runner)
    lose(home, tmp_path / "older.db")
    return home, first, other, hub


async def test_the_head_of_a_log_is_the_digest_of_its_newest_event(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as runner:
        session = await runner.create_session("mine", cwd=str(tmp_path))
        hub = FakeHub()
        await hub.copy(runner)
        assert await runner.log_heads([session.session_id, "nobody"]) == hub.heads()
        (verdict,) = await runner.compare_heads(hub.heads())
        assert verdict.verdict == "same"
        await turn(runner, session.session_id, "k")
        (later,) = await runner.compare_heads(hub.heads())
        assert (later.verdict, later.digest) == ("same", hub.heads()[0].digest)
        assert later.last_seq > verdict.last_seq


async def test_each_head_gets_its_verdict(tmp_path: Path) -> None:
    home, first, other, hub = await rewound(tmp_path)
    async with opened(home) as runner:
        (at,) = await runner.log_heads([first])
        unknown = LogHead(session_id="nobody", last_seq=3, digest="00")
        wrong = LogHead(session_id=other, last_seq=2, digest="00")
        empty = LogHead(session_id=other, last_seq=0, digest="")
        verdicts = await runner.compare_heads([hub.head(first), unknown, wrong, empty])
        assert [each.verdict for each in verdicts] == ["behind", "unknown", "diverged", "same"]
        assert (verdicts[0].last_seq, verdicts[0].digest) == (at.last_seq, at.digest)
        assert verdicts[1] == HeadVerdict(session_id="nobody", verdict="unknown")
        assert verdicts[2].digest == event_digest(hub.copies[other][1])


async def test_lost_events_come_back_as_they_were_and_numbering_continues(tmp_path: Path) -> None:
    home, first, _, hub = await rewound(tmp_path)
    news: list[News] = []
    async with opened(home) as runner:
        runner.subscribe_news(news.append)
        (verdict,) = await runner.compare_heads([hub.head(first)])
        missing = hub.copies[first][verdict.last_seq :]
        assert missing
        await runner.take_back(first, missing)
        assert await runner.log_heads([first]) == [hub.head(first)]
        await turn(runner, first, "three")
        events = await runner.read_events(first, 0, 10_000)
        assert events[: len(hub.copies[first])] == hub.copies[first]
        seqs = [decode_event(each).seq for each in events]
        assert seqs == list(range(1, len(events) + 1))
    (report,) = [each for each in news if isinstance(each, Diagnostic) and "taken" in each.code]
    assert f"{len(missing)} events of session {first}" in report.message


async def test_events_that_do_not_continue_the_log_are_refused(tmp_path: Path) -> None:
    home, first, other, hub = await rewound(tmp_path)
    async with opened(home) as runner:
        (at,) = await runner.log_heads([first])
        missing = hub.copies[first][at.last_seq :]
        for events in (
            missing[1:],
            hub.copies[first],
            [missing[0], missing[0]],
            hub.copies[other][at.last_seq :],
            [b"{}"],
            [missing[0].replace(b"{", b"{\n", 1)],
        ):
            with pytest.raises(RequestRejected, match="cannot be taken back"):
                await runner.take_back(first, events)
        with pytest.raises(RequestRejected):
            await runner.take_back("nobody", missing)
        assert await runner.log_heads([first]) == [at]


async def test_events_do_not_come_back_to_a_session_in_use(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as runner:
        session_id = (await runner.create_session("mine", cwd=str(tmp_path))).session_id
        (head,) = await runner.log_heads([session_id])
        payload = {"content": {"type": "text", "text": "late"}}
        next_event = make_session_event(
            "agent-message-chunk", session_id, seq=head.last_seq + 1, ts=1, payload=payload
        )
        with pytest.raises(RequestRejected, match="in use"):
            await runner.take_back(session_id, [encode_event(next_event)])


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_session_whose_end_or_reopening_was_lost_gets_it_back(
    tmp_path: Path, *, is_closed: bool
) -> None:
    home, hub = tmp_path / "home", FakeHub()
    first, _ = await begun(home, tmp_path)
    if is_closed:
        async with opened(home) as runner:
            await runner.close_session(first)
    shutil.copyfile(home / "log.db", tmp_path / "older.db")
    async with opened(home) as runner:
        if is_closed:
            agent = await runner.start_agent("mine")
            await runner.load_session(agent.agent_id, first, cwd=str(tmp_path))
        else:
            await runner.close_session(first)
        await hub.copy(runner)
    lose(home, tmp_path / "older.db")
    async with opened(home) as runner:
        before = "closed" if is_closed else "disconnected"
        assert runner.session(first).status == before
        (verdict,) = await runner.compare_heads([hub.head(first)])
        await runner.take_back(first, hub.copies[first][verdict.last_seq :])
        after = "disconnected" if is_closed else "closed"
        assert runner.session(first).status == after
        assert runner.session(first).last_seq == len(hub.copies[first])
        count = len(hub.copies[first])
        assert await runner.read_events(first, 0, count) == hub.copies[first]
    async with opened(home) as runner:
        assert runner.session(first).status == after


async def test_a_diverged_session_stops_for_good_and_others_go_on(tmp_path: Path) -> None:
    home, first, other, _ = await rewound(tmp_path)
    async with opened(home) as runner:
        await turn(runner, first, "another two")
        heads = await runner.log_heads([first])
        await runner.stop_diverged(first, "the hub has other events after number 9")
        with pytest.raises(AcpError, match=r"other events after number 9.*start a new session"):
            await runner.add_prompt(first, "three", TEXT)
        shown = runner.session(first)
        assert shown.status == "closed"
        assert "other events after number 9" in str(shown.damage)
        await turn(runner, other, "three")
        assert runner.session(other).damage is not shown.damage
        assert await runner.log_heads([first]) == heads
    async with opened(home) as runner:
        assert runner.session(first).status == "closed"
        assert "other events after number 9" in str(runner.session(first).damage)
        agent = await runner.start_agent("mine")
        with pytest.raises(AcpError, match="has stopped"):
            await runner.load_session(agent.agent_id, first, cwd=str(tmp_path))
        with pytest.raises(AcpError, match="has stopped"):
            await runner.add_prompt(first, "three", TEXT)
        assert await runner.log_heads([first]) == heads
        await turn(runner, other, "four")
        await runner.delete_session(first)
        assert runner.find_session(first) is None


async def test_a_diverged_session_stops_in_its_turn(tmp_path: Path) -> None:
    waits = scripted({"say": "working"}, {"wait_cancel": True})
    with anyio.fail_after(PATIENCE):
        async with Runner(options(tmp_path / "home", mine=waits).runner) as runner:
            session_id = (await runner.create_session("mine", cwd=str(tmp_path))).session_id
            await runner.add_prompt(session_id, "k", TEXT)
            async for event in runner.events(session_id):
                if event.type == "agent-message-chunk":
                    break
            heads = await runner.log_heads([session_id])
            await runner.stop_diverged(session_id, "the hub has other events")
            await runner.wait_prompt(session_id, "k")
            assert await runner.log_heads([session_id]) == heads
            assert not runner.pending_permissions()


async def test_a_session_that_does_not_exist_cannot_be_stopped(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as runner:
        with pytest.raises(RequestRejected):
            await runner.stop_diverged("nobody", "it is not here")


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_new_session_continues_one_that_has_stopped(
    tmp_path: Path, *, is_restarted: bool
) -> None:
    given = options(tmp_path / "home", mine=able()).runner
    with anyio.fail_after(PATIENCE):
        async with Runner(given) as runner:
            session_id = (await runner.create_session("mine", cwd=str(tmp_path))).session_id
            await turn(runner, session_id, "one")
            await runner.stop_diverged(session_id, "the hub has other events")
            assert "the hub has other events" in "".join(runner.health().damages)
            if not is_restarted:
                await continue_stopped(runner, session_id)
        if is_restarted:
            async with Runner(given) as runner:
                await continue_stopped(runner, session_id)


async def continue_stopped(runner: Runner, session_id: str) -> None:
    heads = await runner.log_heads([session_id])
    forked = await runner.fork_session(session_id)
    origin = forked.forked_from
    assert isinstance(origin, dict)
    assert origin["sessionId"] == session_id
    events = [decode_event(each) for each in await runner.read_events(forked.session_id, 0, 1000)]
    assert "hello" in [
        event.payload["content"]["text"] for event in events if event.type == "agent-message-chunk"
    ]
    await runner.set_title(forked.session_id, "Continued")
    assert runner.last_seq(forked.session_id) > len(events)
    assert await runner.log_heads([session_id]) == heads
