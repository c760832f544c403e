"""The hub end to end: a real port, a real log, a real (scripted) agent."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from quarterdeck.errors import StartRefused, StorageFailed
from quarterdeck.hub import Hub, serving
from quarterdeck.protocol import decode_event, initial_state, reduce, to_json
from quarterdeck.storage.contract import Group
from tests.hub.api.kit import ASK, Json, client_of, options, running, scripted
from tests.hub.runners import runner_of

pytestmark = pytest.mark.anyio


async def test_a_prompt_goes_through_the_hub_to_the_agent_and_into_the_log(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "one two", "pieces": 2}))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        entry = await client.prompt(session, "k1", "hello")
        assert entry["state"] in ("queued", "running")
        ended = await client.ended(session, "k1")
        assert ended["state"] == "done"
        assert ended["stopReason"] == "end_turn"
        events = await client.events(session)
        first = next(event for event in events if event["type"] == "user-message-chunk")
        assert ended["seq"] == first["seq"]
        assert first["extensions"]["quarterdeck"]["promptKey"] == "k1"
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


async def test_the_state_at_every_event_is_the_fold_of_the_events_up_to_it(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "a b c", "pieces": 3}))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k1")
        await client.ended(session, "k1")
        events = await client.events(session)
        state, told = initial_state(session), {}
        for event in events:
            state = reduce(state, decode_event(event))
            told = await client.get(f"/api/sessions/{session}?at={event['seq']}")
            assert told["state"] == json.loads(json.dumps(to_json(state)))
        now = await client.get(f"/api/sessions/{session}")
        assert now["seq"] == events[-1]["seq"]
        assert now["state"] == told["state"]
        beyond = await client.get(f"/api/sessions/{session}?at={len(events) + 1}", status=400)
        assert beyond["error"]["code"] == "quarterdeck/invalid"


async def test_history_comes_in_pages_as_it_is_stored(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "a b c d", "pieces": 4}))
    async with running(given) as (hub, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k1")
        await client.ended(session, "k1")
        stored = await runner_of(hub).host.options.storage.read(session, 0, 1000)
        seen: list[Json] = []
        after = 0
        while True:
            page = await client.get(f"/api/sessions/{session}/history?from_seq={after}&limit=3")
            if not page["events"]:
                break
            assert len(page["events"]) <= 3
            seen += page["events"]
            after = page["nextSeq"]
        assert seen == [json.loads(event) for event in stored]
        assert page["lastSeq"] == len(stored)


async def test_a_session_that_waits_is_listed_after_a_restart_and_revived_by_a_prompt(
    tmp_path: Path,
) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hi"}))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k1")
        await client.ended(session, "k1")
    async with running(given) as (_, client):
        (listed,) = (await client.get("/api/sessions"))["sessions"]
        assert (listed["sessionId"], listed["status"]) == (session, "disconnected")
        assert listed["agent"] == "mine"
        await client.prompt(session, "k2")
        ended = await client.ended(session, "k2")
        assert ended["state"] == "done", ended["error"]
        assert (await client.prompt(session, "k1"))["state"] == "done"


async def test_one_hub_at_a_time_has_a_data_directory(tmp_path: Path) -> None:
    async with Hub(options(tmp_path / "home")):
        with pytest.raises(StartRefused, match=r"another command is using .*\(process \d+\)"):
            await Hub(options(tmp_path / "home")).__aenter__()
    async with Hub(options(tmp_path / "home")):
        pass


async def test_a_data_directory_that_others_can_look_into_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    with pytest.raises(StartRefused, match="chmod 700"):
        await Hub(options(home)).__aenter__()


async def test_hub_json_says_where_the_hub_is_while_it_is_there(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Hub(options(home)) as hub:
        async with serving(hub) as address:
            told = json.loads((home / "hub.json").read_text())
            assert told["url"] == address.url
            assert stat.S_IMODE((home / "hub.json").stat().st_mode) == 0o600
        assert not (home / "hub.json").exists()


def _taken(host: str, port: int) -> socket.socket | None:
    """Listen where another program of this computer could; None if it has no such address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family)
    try:
        taken.bind((host, port))
    except OSError:
        taken.close()
        return None
    taken.listen()
    return taken


@pytest.mark.parametrize(("host", "other"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
async def test_no_other_program_is_localhost_at_the_port_of_a_hub(
    tmp_path: Path, host: str, other: str
) -> None:
    given = replace(options(tmp_path / "home"), host=host)
    async with Hub(given) as hub, serving(hub) as address:
        assert _taken(other, address.port) is None
    taken = _taken(other, address.port)
    if taken is None:  # this computer has one loopback address
        return
    with taken, pytest.raises(StartRefused, match="also localhost; stop it, or choose"):
        async with Hub(replace(given, port=address.port)) as hub, serving(hub):
            pass


async def test_health_is_public_and_everything_else_is_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with (
        running(options(home)) as (_, owner),
        client_of(home, str(owner.http.base_url), "none") as client,
    ):
        client.http.headers.pop("authorization")
        assert await client.get("/healthz") == {"status": "ok"}
        for path in ("/metrics", "/openapi.json", "/api/sessions", "/nowhere"):
            await client.get(path, status=401)


async def test_metrics_count_what_is_there(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted(ASK))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k1")
        await client.pending_permissions()
        await client.prompt(session, "k2")
        text = (await client.http.get("/metrics")).text
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        assert lines['quarterdeck_sessions{status="prompting"}'] == "1"
        assert lines['quarterdeck_agents{status="ready"}'] == "1"
        assert lines["quarterdeck_pending_permissions"] == "1"
        assert lines["quarterdeck_queued_prompts"] == "1"
        assert lines["quarterdeck_storage_failures_total"] == "0"
        assert int(lines["quarterdeck_events_total"]) >= 5
        assert int(lines["quarterdeck_process_resident_bytes"]) > 1_000_000


async def test_leaving_a_hub_cancels_the_turn_and_keeps_the_queue(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted(ASK))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k1")
        await client.pending_permissions()
        await client.prompt(session, "k2")
    async with running(given) as (_, client):
        parked = await client.get(f"/api/sessions/{session}/prompts/k1")
        assert parked["state"] == "interrupted"
        await client.pending_permissions()  # the second one is run, without another call
        running_now = await client.get(f"/api/sessions/{session}/prompts/k2")
        assert running_now["state"] == "running"


@contextmanager
def disk_full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every commit of events fail."""

    def fail(_self: object, group: Group) -> None:
        if group.runs:
            raise StorageFailed("log.db", "the disk is full", "make room")

    with monkeypatch.context() as patch:
        patch.setattr("quarterdeck.storage.sqlite._SqliteLog._store", fail)
        yield


async def test_no_client_waits_for_a_log_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.hub.log_health.ACTING_SECONDS", 0.01)
    async with running(options(tmp_path / "home", mine=scripted({"say": "hi"}))) as (_, client):
        session = await client.session("mine", tmp_path)
        with disk_full(monkeypatch):
            wanted = {"agent": "mine", "cwd": str(tmp_path)}
            for _ in range(2):  # the log has not failed before the first
                refused = await client.post("/api/sessions", wanted, status=503)
                assert refused["error"]["retryable"]
            told = await client.post(f"/api/sessions/{session}/close", {}, status=503)
            assert "this request continues" in told["error"]["message"]
        # Also the one that was reported to no client.
        await client.until(
            "/api/sessions",
            lambda told: all(each["status"] == "closed" for each in told["sessions"]),
        )


async def test_a_log_that_fails_shows_in_health_and_metrics_until_it_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(options(tmp_path / "home", mine=scripted({"say": "hi"}))) as (_hub, client):
        session = await client.session("mine", tmp_path)
        with disk_full(monkeypatch):
            await client.prompt(session, "k1")
            await client.until("/healthz", lambda said: said == {"status": "degraded"})
            text = (await client.http.get("/metrics")).text
            assert "quarterdeck_storage_failures_total 1" in text
            assert "quarterdeck_log_healthy 0" in text
            wanted = {"agent": "mine", "cwd": str(tmp_path)}
            refused = await client.post("/api/sessions", wanted, status=503)
            assert refused["error"]["retryable"]
        await client.ended(session, "k1")
        assert await client.get("/healthz") == {"status": "ok"}
