"""The permission path through a hub: rules first, one decision, an index that equals the log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from quarterdeck.errors import AcpError
from quarterdeck.host import HostEndpoint
from quarterdeck.hub import Hub
from quarterdeck.policy import Policy, Rule
from quarterdeck.protocol import Event, decode_event, encode_event
from quarterdeck.runner.permissions.decision_index import DecisionIndex
from quarterdeck.runner.permissions.decision_recorder import SessionDecisions
from quarterdeck.storage import SqliteStorage, Stored
from tests.hub.api.kit import ASK, Client, Json, client_of, options, paired, running, scripted
from tests.hub.api.processes import hub_process
from tests.hub.runners import runner_of

pytestmark = pytest.mark.anyio

ROUNDS = 100
DENY = Policy(rule=(Rule(decision="deny", name="never", writes=True),))
ALLOW = Policy(rule=(Rule(decision="allow", name="always", writes=True),))
PATIENCE = 90


async def logged(client: Client, sessions: Iterable[str]) -> dict[str, Json]:
    """Return what the logs say of each permission request."""
    found: dict[str, Json] = {}
    for session in sessions:
        for event in await client.events(session):
            payload = event["payload"]
            ours = event.get("extensions", {}).get("quarterdeck", {})
            if event["type"] == "permission-request-created":
                found[payload["requestId"]] = {
                    "sessionId": session,
                    "digest": ours["request"]["digest"],
                    "request": payload["toolCall"],
                    "state": "pending",
                }
            elif event["type"] == "permission-request-resolved":
                row = found[payload["requestId"]]
                row["state"] = payload["status"]
                if payload["status"] == "answered":
                    row["option"] = payload["outcome"].get("optionId")
                row["by"] = ours.get("decidedBy", {"kind": "withdrawn"})["kind"]
    return found


async def indexed(client: Client) -> dict[str, Json]:
    """Return what the index says of each."""
    found = {}
    for line in (await client.get("/api/decisions?limit=500"))["decisions"]:
        row = {name: line[name] for name in ("sessionId", "digest", "request", "state")}
        if line["state"] == "answered":
            row["option"] = line["outcome"].get("optionId")
        if line["state"] != "pending":
            row["by"] = line["by"]["kind"]
        found[line["requestId"]] = row
    return found


async def check_index(client: Client, *sessions: str) -> dict[str, Json]:
    expected = await logged(client, sessions)
    assert await indexed(client) == expected
    return expected


async def answer(client: Client, request: Json, option: str, **more: Any) -> Json:
    body = {"optionId": option, "digest": request["digest"], **more}
    path = f"/api/permissions/{request['requestId']}/answer"
    decision: Json = await client.post(path, body)
    return decision


# ---- rules first ---------------------------------------------------------------------------------


async def test_a_client_that_allows_everything_never_sees_what_a_rule_denies(
    tmp_path: Path,
) -> None:
    steps = [{**ASK, "ask": f"edit-{number}"} for number in range(ROUNDS)]
    given = options(tmp_path / "home", DENY, mine=scripted(*steps))
    async with running(given) as (hub, client):
        pending: list[str] = []
        accepted: list[str] = []

        def allow(event: Event) -> None:
            if event.type != "permission-updated":
                return
            if event.payload["status"] == "pending":
                pending.append(event.payload["requestId"])
            try:
                yes = {"outcome": "selected", "optionId": "allow_once"}
                _ = runner_of(hub).host.respond_permission(event.payload["requestId"], yes)
            except AcpError:
                return
            accepted.append(event.payload["requestId"])

        runner_of(hub).host.subscribe(None, 0, allow)
        HostEndpoint(runner_of(hub).host).on_inbound_request(
            lambda request: pending.append(request.id)
        )
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k")
        assert (await client.ended(session, "k"))["state"] == "done"
        assert (pending, accepted) == ([], [])
        rows = await check_index(client, session)
        assert {(each["option"], each["by"]) for each in rows.values()} == {
            ("reject_once", "policy")
        }
        assert len(rows) == ROUNDS


async def test_new_rules_decide_what_is_pending_in_the_same_step(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home", mine=scripted(ASK))) as (hub, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k")
        (request,) = await client.pending_permissions()
        hub.runner.set_policy(DENY)
        assert (
            hub.runner.pending_permission(request["requestId"]) is None
        )  # before anything else runs
        assert (await client.ended(session, "k"))["state"] == "done"
        await check_index(client, session)


# ---- one decision --------------------------------------------------------------------------------


async def test_a_retry_gets_the_first_decision_and_another_device_the_winner(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with running(options(home, mine=scripted(ASK))) as (_, owner):
        other_token = await paired(owner, "approve")
        async with client_of(home, str(owner.http.base_url), other_token) as other:
            session = await owner.session("mine", tmp_path)
            await owner.prompt(session, "k")
            (request,) = await owner.pending_permissions()
            path = f"/api/permissions/{request['requestId']}/answer"
            body = {"optionId": "allow_once", "digest": request["digest"], "key": "one"}
            replies: list[tuple[str, int, Json]] = []

            async def send(name: str, device: Client, option: str) -> None:
                reply = await device.http.post(path, json={**body, "optionId": option})
                replies.append((name, reply.status_code, reply.json()))

            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(send, "owner", owner, "allow_once")
                    tasks.start_soon(send, "other", other, "reject_once")
            won = {name for name, status, _ in replies if status == 200}
            assert len(won) == 1
            decisions = [reply for _, status, reply in replies if status == 200]
            assert len(decisions) == 3
            assert all(each == decisions[0] for each in decisions)
            losers = [reply for name, _, reply in replies if name not in won]
            assert {each["error"]["code"] for each in losers} == {"quarterdeck/already-answered"}
            assert all(
                each["error"]["data"]["outcome"] == decisions[0]["outcome"] for each in losers
            )
            await owner.ended(session, "k")
            await check_index(owner, session)


async def test_a_retry_after_a_restart_gets_the_first_decision(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted(ASK))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k")
        (request,) = await client.pending_permissions()
        first = await answer(client, request, "allow_once", key="once")
        await client.ended(session, "k")
    async with running(given) as (_, client):
        assert await answer(client, request, "allow_once", key="once") == first


# ---- the index equals the log --------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Policy(), DENY, ALLOW], ids=["ask", "deny", "allow"])
@pytest.mark.parametrize("is_answered", [False, True], ids=["pending", "answered"])
@pytest.mark.parametrize("written", [0, 1], ids=["nothing", "first"])
async def test_what_a_killed_hub_did_not_index_is_read_from_the_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    policy: Policy,
    is_answered: bool,
    written: int,
) -> None:
    """A hub that ends after so many writes of its index has what the log has at its next start."""
    given = options(tmp_path / "home", policy, mine=scripted(ASK))
    writes = 0
    record = DecisionIndex.record

    async def killed(self: DecisionIndex, entries: Any, progress: Any) -> None:
        nonlocal writes
        writes += bool(entries)
        if entries and writes <= written:
            await record(self, entries, progress)

    async with running(given) as (_, client):
        monkeypatch.setattr(DecisionIndex, "record", killed)
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k")
        if policy == Policy():
            (request,) = await client.pending_permissions()
            await client.get("/api/decisions")  # what is pending is indexed now, or never
            if is_answered:
                await answer(client, request, "allow_once", key="once")
        if is_answered or policy != Policy():
            await client.ended(session, "k")
    monkeypatch.setattr(DecisionIndex, "record", record)
    async with running(given) as (_, client):
        rows = await check_index(client, session)
        assert {each["state"] for each in rows.values()} <= {"answered", "superseded"}
        assert len(rows) >= 1


@pytest.mark.slow
async def test_a_kill_after_any_event_leaves_every_request_in_the_audit(tmp_path: Path) -> None:
    """A log that ends after each of its events in turn, as a kill leaves it, and no index."""
    changed = {"progress": "edit-1", "input": {"path": "/etc/passwd"}}
    agent = scripted({**ASK, "allowed": [changed, {"finish": "edit-1"}]})
    async with running(options(tmp_path / "home", mine=agent)) as (hub, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k")
        (request,) = await client.pending_permissions()
        await answer(client, request, "allow_once")
        await client.ended(session, "k")
        storage = runner_of(hub).host.options.storage
        (meta,) = await storage.sessions()
        events = [decode_event(data) for data in await storage.read(session, 0, 1000)]
    types = [event.type for event in events]
    created, resolved = (
        types.index(f"permission-request-{end}") for end in ("created", "resolved")
    )
    mismatch = types.index("approval-mismatch")
    for last in range(created, len(events)):
        home = tmp_path / f"killed-{last}"
        home.mkdir(mode=0o700)
        cut = SqliteStorage(home / "log.db")
        await cut.open()
        kept = [Stored(session, each.seq, encode_event(each)) for each in events[: last + 1]]
        await cut.append([replace(meta, last_seq=0), *kept])
        await cut.close()
        async with Hub(options(home, mine=agent)) as again:
            (row,) = await again.runner.list_decisions(before=None, session_id=None, limit=10)
            assert row.request_id == request["requestId"]
            assert row.state == ("answered" if last >= resolved else "superseded")
            assert (row.mismatch is not UNSET) == (last >= mismatch)


@pytest.mark.parametrize("written", [0, 1, 2], ids=["nothing", "request", "answer"])
async def test_a_mismatch_that_a_killed_hub_did_not_index_is_read_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    changed = {"progress": "edit-1", "input": {"path": "/etc/passwd"}}
    given = options(
        tmp_path / "home", mine=scripted({**ASK, "allowed": [changed, {"finish": "edit-1"}]})
    )
    writes, record = 0, DecisionIndex.record

    async def killed(self: DecisionIndex, entries: Any, progress: Any) -> None:
        nonlocal writes
        writes += bool(entries)
        if entries and writes <= written:
            await record(self, entries, progress)

    async with running(given) as (_, client):
        monkeypatch.setattr(DecisionIndex, "record", killed)
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k")
        (request,) = await client.pending_permissions()
        await client.get("/api/decisions")
        await answer(client, request, "allow_once")
        await client.ended(session, "k")
    monkeypatch.setattr(DecisionIndex, "record", record)
    async with running(given) as (_, client):
        (line,) = (await client.get("/api/decisions"))["decisions"]
        assert line["state"] == "answered"
        assert line["mismatch"][0]["done"] == ["/etc/passwd"]


async def test_a_log_whose_decisions_cannot_be_read_does_not_keep_the_hub_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options(tmp_path / "home", mine=scripted(ASK))

    async def unwritten(_self: DecisionIndex, _entries: Any, _progress: Any) -> None:
        """As in a hub that is killed before it writes its index."""

    with monkeypatch.context() as patch:
        patch.setattr(DecisionIndex, "record", unwritten)
        async with running(given) as (_, client):
            session = await client.session("mine", tmp_path)
            await client.prompt(session, "k")
            await client.pending_permissions()

    def damaged(_self: SessionDecisions, _event: Any) -> None:
        raise TypeError("unhashable")

    with monkeypatch.context() as patch:
        patch.setattr(SessionDecisions, "take", damaged)
        async with running(given) as (_, client):
            assert (await client.get("/api/decisions"))["decisions"] == []
    async with running(given) as (_, client):
        assert len(await check_index(client, session)) == 1


@pytest.mark.slow
async def test_after_kills_at_any_moment_the_index_equals_the_log(tmp_path: Path) -> None:
    home = tmp_path / "home"
    agent = scripted(*[{**ASK, "ask": f"edit-{number}"} for number in range(20)])
    with anyio.fail_after(PATIENCE):
        async with hub_process(home, agent) as hub:
            session = await hub.client.session("mine", tmp_path)
        for number in range(5):
            async with hub_process(home, agent) as hub, anyio.create_task_group() as tasks:
                await hub.client.prompt(session, f"k{number}")
                tasks.start_soon(_answer_all, hub.client, anyio.Event())
                await anyio.sleep(0.02 + 0.04 * number)  # somewhere in it
                await hub.kill()
        async with hub_process(home, agent) as hub:
            async with anyio.create_task_group() as tasks:
                has_ended = anyio.Event()
                tasks.start_soon(_answer_all, hub.client, has_ended)
                for number in range(5):  # a prompt that a kill found in the queue runs now
                    await hub.client.ended(session, f"k{number}")
                has_ended.set()
            rows = await check_index(hub.client, session)
            assert {each["state"] for each in rows.values()} <= {"answered", "superseded"}
            restarts = [each for each in rows.values() if each["by"] == "restart"]
            assert all(each["state"] == "superseded" for each in restarts)


async def _answer_all(client: Client, has_ended: anyio.Event) -> None:
    """Allow what is asked until an end, never cancelled in the middle of a request."""
    try:
        while not has_ended.is_set():
            for request in (await client.get("/api/permissions"))["permissions"]:
                body = {"optionId": "allow_once", "digest": request["digest"]}
                path = f"/api/permissions/{request['requestId']}/answer"
                await client.http.post(path, json=body)
    except httpx2.TransportError:
        return  # it was killed


async def test_a_request_that_a_crash_left_open_is_ended_in_the_log(tmp_path: Path) -> None:
    home, agent = tmp_path / "home", scripted(ASK)
    with anyio.fail_after(PATIENCE):
        async with hub_process(home, agent) as hub:
            session = await hub.client.session("mine", tmp_path)
            await hub.client.prompt(session, "k")
            await hub.client.pending_permissions()
            await hub.kill()
        async with Hub(options(home, mine=agent)) as again:
            # Without anyone who asks for that log.
            page = await runner_of(again).host.options.storage.read(session, 0, 1000)
            ends = [each for each in page if b'"permission-request-resolved"' in each]
            assert len(ends) == 1
            assert b'"status":"superseded"' in ends[0]
            assert b'"decidedBy":{"kind":"restart"}' in ends[0]
            (line,) = await again.runner.list_decisions(before=None, session_id=None, limit=9)
            assert (line.state, getattr(line.by, "kind", None)) == ("superseded", "restart")
