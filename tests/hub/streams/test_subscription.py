"""Several logs on one connection, and a session as packets: cut anywhere, they go on exactly."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest

from quarterdeck.host import Host
from quarterdeck.protocol import decode_event
from quarterdeck.storage import SqliteStorage
from quarterdeck.views.packets import PacketProjector
from tests.host.test_host import running
from tests.hub.streams.serving import Said, bare_hub, reading, serving
from tests.hub.streams.test_sse import PIECES, opened, stored

pytestmark = pytest.mark.anyio


async def two_sessions(host: Host, cwd: Path) -> list[str]:
    first = await opened(host, cwd, PIECES, {"plan": ["a", "b"]})
    second = (await host.create_session("agent-1", cwd=str(cwd))).session_id
    for session_id in (first, second, first):
        await host.prompt(session_id, "go")
    return [first, second]


def path_of(sessions: list[str], host: str = "0") -> str:
    named = "&".join(f"session={quote(each)}:0" for each in sessions)
    return f"/api/stream?{named}&host={host}"


async def cut_and_resumed(port: int, path: str, seed: int, is_all: Any) -> list[Said]:
    """Read a stream through connections that are cut after some bytes, until there is all."""
    chance = random.Random(seed)
    said: list[Said] = []
    last_id = ""
    with anyio.fail_after(60):
        while not is_all(said):
            async with reading(port, path, last_id=last_id) as reader:
                assert reader.status == 200, reader.body
                for _ in range(chance.randint(1, 40)):
                    said += await reader.some(chance.randint(1, 2000))
                    if is_all(said):
                        break
                last_id = reader.parser.last_id or last_id
    return said


@pytest.mark.parametrize("seed", range(3))
async def test_a_stream_of_several_logs_that_is_cut_at_any_byte_resumes_exactly(
    tmp_path: Path, seed: int
) -> None:
    async with running(SqliteStorage(tmp_path / "log.db")) as host:
        sessions = await two_sessions(host, tmp_path)
        logs = {each: await stored(host, each) for each in sessions}
        async with serving(bare_hub(host)) as port:
            async with reading(port, path_of(sessions)) as reader:
                while (said := await reader.some()) == []:
                    pass
                seen = Seen()
                seen.take(said)
            head = 0
            async with reading(port, "/api/events?from_seq=0") as reader:
                head = (await reader.until("caught-up"))[-1].data["seq"]

            def is_all(said: list[Said]) -> bool:
                seen = Seen()
                seen.take(said)
                return (
                    all(len(seen.numbers.get(each, [])) >= len(logs[each]) for each in sessions)
                    and len(seen.numbers.get("host", [])) >= head
                )

            said = await cut_and_resumed(port, path_of(sessions), seed, is_all)
            seen = Seen()
            seen.take(said)
            for each in sessions:
                assert seen.numbers[each] == list(range(1, len(logs[each]) + 1))
            assert seen.numbers["host"] == list(range(1, head + 1))


class Seen:
    """Numbers by log."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = {}

    def take(self, said: list[Said]) -> None:
        for each in said:
            if each.name in ("message", "host"):
                name = "host" if each.name == "host" else each.data["sessionId"]
                self.numbers.setdefault(name, []).append(each.data["seq"])


async def test_no_log_waits_for_another_that_is_long(tmp_path: Path) -> None:
    async with running(SqliteStorage(tmp_path / "log.db")) as host:
        sessions = await two_sessions(host, tmp_path)
        lengths = [len(await stored(host, each)) for each in sessions]
        assert lengths[0] > lengths[1]
        async with (
            serving(bare_hub(host)) as port,
            reading(port, path_of(sessions)) as reader,
        ):
            order: list[str] = []
            while order.count("caught-up") < 3:
                order += [
                    each.data["sessionId"] if each.name == "message" else each.name
                    for each in await reader.some()
                ]
            shorter = [index for index, each in enumerate(order) if each == sessions[1]]
            assert shorter[0] < 300
            assert shorter[-1] < len(order) - 200


async def test_a_session_that_is_gone_does_not_stop_the_others(tmp_path: Path) -> None:
    async with running() as host, serving(bare_hub(host)) as port:
        session_id = await opened(host, tmp_path, {"say": "hi"})
        path = f"/api/stream?session=gone:5&session={session_id}:0"
        async with reading(port, path) as reader:
            said = await reader.until("caught-up")
            assert said[0].data == {"sessionId": "gone", "reason": "unknown"}
            assert [each.data["seq"] for each in said[1:-1]] == [1, 2]
            last_id = reader.parser.last_id
        async with reading(port, path, last_id=last_id) as reader:
            said = await reader.until("caught-up")
            assert [each.name for each in said] == ["ended", "caught-up"]


@pytest.mark.parametrize(
    ("query", "last_id"),
    [
        ("", ""),
        ("?session=a", ""),
        ("?session=:1", ""),
        ("?session=a:x", ""),
        ("?session=a:1&session=a:2", ""),
        ("?host=x-y", ""),
        ("?host=1&host=2", ""),
        ("?" + "&".join(f"session={n}:0" for n in range(65)), ""),
        ("?session=a:1", "5"),
        ("?session=a:1", "5@0/00000000/"),
        ("?session=a:1", "5@9/00000000/"),
        ("?session=a:1", "5@-1/00000000/"),
    ],
)
async def test_what_says_nothing_clear_is_refused_in_a_sentence(query: str, last_id: str) -> None:
    async with (
        running() as host,
        serving(bare_hub(host)) as port,
        reading(port, f"/api/stream{query}", last_id=last_id) as reader,
    ):
        assert reader.status == 400
        assert json.loads(reader.body)["error"]["code"] == "quarterdeck/invalid"


async def test_packets_are_those_of_the_log_and_go_on_after_any_of_them(tmp_path: Path) -> None:
    async with running(SqliteStorage(tmp_path / "log.db")) as host:
        (session_id, _other) = await two_sessions(host, tmp_path)
        projector = PacketProjector(session_id)
        events = [decode_event(data) for data in await stored(host, session_id)]
        wanted = [json.loads(json.dumps(p)) for event in events for p in projector.feed(event)]
        path = f"/api/sessions/{session_id}/packets"
        async with serving(bare_hub(host)) as port:
            async with reading(port, path) as reader:
                said = [each for each in await reader.until("caught-up") if each.name == "message"]
            assert [each.data for each in said] == wanted
            assert len({each.id for each in said}) == len(said)
            for index in random.Random(1).sample(range(len(said)), 12):
                async with reading(port, path, last_id=str(said[index].id)) as reader:
                    rest = await reader.until("caught-up")
                    assert [each.data for each in rest[:-1]] == wanted[index + 1 :]


async def test_a_late_page_gets_the_prompts_too_and_goes_on_after_any_packet(
    tmp_path: Path,
) -> None:
    async with running(SqliteStorage(tmp_path / "log.db")) as host:
        session_id = await opened(host, tmp_path, {"say": "one two", "pieces": 2})
        for prompt in ("first", "second"):
            await host.prompt(session_id, prompt)
        path = f"/api/sessions/{session_id}/packets?prompts=all"
        async with serving(bare_hub(host)) as port:
            async with reading(port, path) as reader:
                said = (await reader.until("caught-up"))[:-1]
                await host.prompt(session_id, "third")
                live = await reader.some()
                assert live[0].data["content"]["text"] == "third"  # before the agent answers
            prompts = [each.data for each in said if each.data.get("type") == "user_message"]
            assert [each["content"]["text"] for each in prompts] == ["first", "second"]
            for index, each in enumerate(said):
                async with reading(port, path, last_id=str(each.id)) as reader:
                    rest = await reader.until("caught-up")
                    kept = [later.data for later in rest][: len(said) - index - 1]
                    assert kept == [later.data for later in said[index + 1 :]]
            async with reading(port, path.replace("all", "some")) as reader:
                assert reader.status == 400
                assert "prompts" in json.loads(reader.body)["error"]["message"]


async def test_several_packets_of_one_event_have_numbers_of_their_own(tmp_path: Path) -> None:
    async with running() as host, serving(bare_hub(host)) as port:
        session_id = await opened(host, tmp_path, {"tool": "t", "title": "T", "kind": "edit"})
        await host.prompt(session_id, "x")
        path = f"/api/sessions/{session_id}/packets"
        async with reading(port, path) as reader:
            said = (await reader.until("caught-up"))[:-1]
        assert said
        assert all(each.id is not None for each in said)
