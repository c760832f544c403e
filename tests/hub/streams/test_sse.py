"""Event streams over real sockets: what is sent, from which number, and what is rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.host import Host
from quarterdeck.storage import SqliteStorage
from tests.host.test_host import ASK, Seen, agent, running
from tests.hub.streams.serving import bare_hub, events_of, reading, serving

pytestmark = pytest.mark.anyio
PIECES = {"say": " ".join(["word"] * 300), "pieces": 300}


@pytest.fixture(params=["h11", "httptools"])
def http(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def opened(host: Host, cwd: Path, *steps: dict[str, Any], **more: Any) -> str:
    spawned = await host.spawn_agent(agent(*steps, **more))
    created = await host.create_session(spawned.agent_id, cwd=str(cwd))
    return created.session_id


async def stored(host: Host, session_id: str) -> list[bytes]:
    return await host.options.storage.read(session_id, 0, 1_000_000)


async def test_a_reader_gets_every_stored_byte_once_then_what_happens_live(
    tmp_path: Path, http: str
) -> None:
    async with running(SqliteStorage(tmp_path / "log.db")) as host:
        session_id = await opened(host, tmp_path, PIECES)
        await host.prompt(session_id, "one")
        async with (
            serving(bare_hub(host), http) as port,
            reading(port, events_of(session_id)) as reader,
        ):
            assert reader.status == 200
            assert reader.headers["content-type"].startswith("text/event-stream")
            said = await reader.until("caught-up")
            assert said[-1].data == {"sessionId": session_id, "seq": len(said) - 1}
            before = len(said) - 1
            await host.prompt(session_id, "two")
            live: list[Any] = []
            log = await stored(host, session_id)
            while len(live) < len(log) - before:
                live += [each for each in await reader.some() if each.name == "message"]
            events = [each for each in said if each.name == "message"] + live
            assert [each.id for each in events] == [
                f"{host.log_epoch.id}-{n}" for n in range(1, len(log) + 1)
            ]
            assert [each.data for each in events] == [json.loads(data) for data in log]


@pytest.mark.parametrize("start", [0, 1, 5, 127, 128, 129, 300])
async def test_from_any_number_the_rest_follows_without_gap(tmp_path: Path, start: int) -> None:
    async with running(SqliteStorage(tmp_path / "log.db")) as host:
        session_id = await opened(host, tmp_path, PIECES)
        await host.prompt(session_id, "one")
        head = len(await stored(host, session_id))
        async with (
            serving(bare_hub(host)) as port,
            reading(port, events_of(session_id, f"?from_seq={start}")) as by_query,
            reading(port, events_of(session_id, "?from_seq=0"), last_id=str(start)) as by_id,
        ):
            wanted = list(range(start + 1, head + 1))
            assert await by_query.numbers(head) == wanted
            assert await by_id.numbers(head) == wanted  # the header wins


async def test_a_reader_that_is_ahead_of_the_log_is_sent_back_to_its_beginning(
    tmp_path: Path,
) -> None:
    async with running() as host:
        session_id = await opened(host, tmp_path, {"say": "hi"})
        head = len(await stored(host, session_id))
        async with (
            serving(bare_hub(host)) as port,
            reading(port, events_of(session_id, "?from_seq=9999")) as reader,
        ):
            said = await reader.until("caught-up")
            assert (said[0].name, said[0].id) == ("reset", f"{host.log_epoch.id}-0")
            assert said[0].data["head"] == head
            assert [each.data["seq"] for each in said[1:-1]] == list(range(1, head + 1))


@pytest.mark.parametrize(
    ("query", "last_id"),
    [
        ("?from_seq=x", ""),
        ("?from_seq=-1", ""),
        ("?from_seq=", ""),
        ("?from_seq=1.5", ""),
        ("?from_seq=%D9%A3", ""),
        ("?from_seq=99999999999999999999", ""),
        ("?from_seq=1&from_seq=2", ""),
        ("", "abc-1"),
        ("", "12x"),
    ],
)
async def test_a_cursor_that_is_none_is_refused_in_a_sentence(
    tmp_path: Path, query: str, last_id: str, http: str
) -> None:
    async with running() as host:
        session_id = await opened(host, tmp_path, {"say": "hi"})
        async with (
            serving(bare_hub(host), http) as port,
            reading(port, events_of(session_id, query), last_id=last_id) as reader,
        ):
            assert reader.status == 400
            error = json.loads(reader.body)["error"]
            assert error["code"] == "quarterdeck/invalid"
            assert "from_seq" in error["message"] or "Last-Event-ID" in error["message"]


async def test_sessions_that_are_not_there_are_not_found(tmp_path: Path, http: str) -> None:
    async with running() as host, serving(bare_hub(host), http) as port:
        session_id = await opened(host, tmp_path, {"say": "hi"})
        agent_id = host.get_agents()[0].agent_id
        for path in (events_of("nobody"), "/api/sessions/nobody/packets"):
            async with reading(port, path) as reader:
                assert reader.status == 404
                assert json.loads(reader.body)["error"]["code"] == "quarterdeck/not-found"
        async with reading(port, events_of(session_id)) as follower:
            await follower.until("caught-up")
            await host.delete_session(agent_id, session_id)
            said = await follower.to_the_end()
            assert said[-1].data == {"sessionId": session_id, "reason": "deleted"}
            assert said[-2].data["payload"]["status"] == "deleted"
        async with reading(port, events_of(session_id)) as reader:
            assert reader.status == 404


async def test_a_closed_session_is_read_to_its_end_and_the_stream_stays(tmp_path: Path) -> None:
    async with running() as host, serving(bare_hub(host)) as port:
        session_id = await opened(host, tmp_path, {"say": "hi"}, load=[{"say": "again"}])
        agent_id = host.get_agents()[0].agent_id
        await host.close_session(session_id)
        async with reading(port, events_of(session_id)) as reader:
            said = await reader.until("caught-up")
            assert said[-2].data["payload"]["status"] == "closed"
            await host.load_session(agent_id, session_id, cwd=str(tmp_path))
            live = await reader.some()
            assert live[0].data["seq"] == said[-2].data["seq"] + 1


async def test_when_the_host_stops_every_stream_reports_it(tmp_path: Path) -> None:
    async with running() as host, serving(bare_hub(host)) as port:
        session_id = await opened(host, tmp_path, {"say": "hi"})
        async with (
            reading(port, events_of(session_id)) as one,
            reading(port, "/api/events") as other,
        ):
            await one.until("caught-up")
            await other.until("caught-up")
            await host.dispose()
            assert (await one.to_the_end())[-1].data["reason"] == "shutdown"
            assert (await other.to_the_end())[-1].data["reason"] == "shutdown"


async def test_the_host_stream_begins_with_the_current_state_and_resumes_by_its_ids(
    tmp_path: Path,
) -> None:
    async with running() as host, serving(bare_hub(host)) as port, anyio.create_task_group() as t:
        session_id = await opened(host, tmp_path, ASK)
        seen = Seen()
        host.subscribe(None, 0, seen)
        t.start_soon(host.prompt, session_id, "x")
        await seen.first("permission-updated")
        async with reading(port, "/api/events") as reader:
            said = await reader.until("caught-up")
            assert [each.name for each in said] == ["reset", "caught-up"]
            standing = said[0].data
            assert standing["reason"] == "start"
            assert [each["sessionId"] for each in standing["sessions"]] == [session_id]
            assert [each["agentId"] for each in standing["agents"]] == ["agent-1"]
            (question,) = standing["permissions"]
            last_id = reader.parser.last_id
            assert last_id == f"{standing['epoch']}-{standing['seq']}"
        await host.respond_permission(question["requestId"], {"outcome": "cancelled"})
        async with reading(port, "/api/events", last_id=last_id) as reader:
            said = await reader.until("caught-up")
            assert said[0].data["type"] == "permission-updated"
            assert said[0].data["seq"] == standing["seq"] + 1
        for foreign in ("0123abcd-3", f"{standing['epoch']}-99999"):
            async with reading(port, "/api/events", last_id=foreign) as reader:
                (reset, *_) = await reader.until("caught-up")
                assert reset.name == "reset"
                assert reset.data["permissions"] == []
        async with reading(port, "/api/events?from_seq=0") as reader:
            said = await reader.until("caught-up")
            assert [each.data["seq"] for each in said[:-1]] == list(range(1, len(said)))


async def test_events_that_the_host_has_forgotten_are_replaced_by_how_things_stand(
    tmp_path: Path,
) -> None:
    async with running() as host, serving(bare_hub(host)) as port:
        for number in range(1200):
            host.diagnose("info", "test/many", str(number))
        async with reading(port, "/api/events?from_seq=5") as reader:
            said = await reader.until("caught-up")
            assert (said[0].name, said[0].data["reason"]) == ("reset", "forgotten")
        async with reading(port, "/api/events?from_seq=700") as reader:
            said = await reader.until("caught-up")
            assert [each.data["seq"] for each in said[:-1]] == list(range(701, 1201))


async def test_nothing_an_agent_says_can_break_out_of_its_event(tmp_path: Path, http: str) -> None:
    evil = "x\nid: 9\ndata: {}\n\n\r\rid: 9\u2028data: {}\u2029"
    raw = {"update": {"sessionUpdate": evil, "text": evil, evil: [evil]}}
    async with running() as host, serving(bare_hub(host), http) as port:
        session_id = await opened(host, tmp_path, raw, {"say": evil})
        await host.prompt(session_id, evil)
        log = [json.loads(data) for data in await stored(host, session_id)]
        async with reading(port, events_of(session_id)) as reader:
            said = await reader.until("caught-up")
            assert [each.name for each in said[:-1]] == ["message"] * len(log)
            assert [each.data for each in said[:-1]] == log
        (strange,) = [each for each in log if each["type"] == "unrecognized-update"]
        assert strange["payload"]["sessionUpdate"] == evil
        async with reading(port, f"/api/stream?session={session_id}:0&host=0") as reader:
            said = await reader.until("caught-up")
            assert {each.name for each in said} <= {"message", "caught-up", "host"}


async def test_who_asks_only_whether_there_is_a_stream_gets_its_head(tmp_path: Path) -> None:
    async with running() as host, serving(bare_hub(host)) as port:
        session_id = await opened(host, tmp_path, {"say": "hi"})
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            head = f"HEAD {events_of(session_id)} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            await stream.send(f"{head}Authorization: Bearer view\r\n\r\n".encode())
            answer = await stream.receive()
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b"\r\n\r\n")
