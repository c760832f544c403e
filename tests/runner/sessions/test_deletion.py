"""Deleting a session removes its texts and requests for ever, and keeps who decided."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agents import AgentSettings
from quarterdeck.client import Client as EnvelopeClient, WebSocketTransport
from quarterdeck.errors import RequestRejected
from quarterdeck.hub import Hub
from quarterdeck.protocol import Event
from tests.hub.api.kit import ASK, Client, options, running, scripted
from tests.hub.runners import runner_of

pytestmark = pytest.mark.anyio

SAID = "the-words-of-a-prompt"
ASKED = {**ASK, "title": "the-title-of-a-request"}


async def decided_session(client: Client, folder: Path) -> str:
    """Return a session with a message, a permission request and its decision."""
    session = await client.session("mine", folder)
    await client.prompt(session, "k", SAID)
    (waiting,) = await client.pending_permissions()
    answer = {"optionId": "allow_once", "digest": waiting["digest"]}
    await client.post(f"/api/permissions/{waiting['requestId']}/answer", answer)
    assert (await client.ended(session, "k"))["prompt"] == [{"type": "text", "text": SAID}]
    return session


async def check_forgotten(client: Client, session: str) -> None:
    await client.get(f"/api/sessions/{session}/prompts/k", status=404)
    (decision,) = (await client.get(f"/api/decisions?session={session}"))["decisions"]
    assert decision["request"] is None
    assert decision["by"]["deviceId"] == "owner"
    assert (decision["state"], decision["optionKind"]) == ("answered", "allow_once")
    assert decision["decidedAt"]


def check_files(home: Path) -> None:
    for name in ("runner.db", "hub.db", "log.db"):
        stored = (home / name).read_bytes()
        assert SAID.encode() not in stored, name
        assert b'"title":"the-title-of-a-request"' not in stored, name


async def delete_by_http(hub: Hub, client: Client, session: str) -> None:
    await client.call("DELETE", f"/api/sessions/{session}", status=204)


async def delete_by_envelope(hub: Hub, client: Client, session: str) -> None:
    snapshot = runner_of(hub).host.get_session(session)
    assert snapshot is not None
    assert isinstance(snapshot.agent_id, str)
    transport = WebSocketTransport(socket=hub.options.home / "hub.sock")
    async with EnvelopeClient(transport) as envelopes:
        await envelopes.sessions.delete(snapshot.agent_id, session)


@pytest.mark.parametrize("delete", [delete_by_http, delete_by_envelope])
async def test_a_deleted_session_takes_its_words_along_and_leaves_the_audit(
    tmp_path: Path, delete: Any
) -> None:
    home = tmp_path / "home"
    async with running(options(home, mine=scripted(ASKED))) as (hub, client):
        session = await decided_session(client, tmp_path)
        await delete(hub, client, session)
        await check_forgotten(client, session)
    check_files(home)


async def test_what_an_earlier_hub_left_of_a_deleted_session_goes_at_the_start(
    tmp_path: Path,
) -> None:
    given = options(tmp_path / "home", mine=scripted(ASKED))
    async with running(given) as (hub, client):
        session = await decided_session(client, tmp_path)
        snapshot = runner_of(hub).host.get_session(session)
        assert snapshot is not None
        await runner_of(hub).host.delete_session(
            str(snapshot.agent_id), session
        )  # and nothing after that
        await client.get(f"/api/sessions/{session}/prompts/k")
    async with running(given) as (_, client):
        await check_forgotten(client, session)
    check_files(given.home)


async def test_a_repeated_answer_shows_nothing_of_a_deleted_session(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home", mine=scripted(ASKED))) as (_, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k", SAID)
        (waiting,) = await client.pending_permissions()
        path = f"/api/permissions/{waiting['requestId']}/answer"
        answer = {"optionId": "allow_once", "digest": waiting["digest"], "key": "first"}
        decided = await client.post(path, answer)
        assert decided["request"]
        assert decided["call"]
        await client.ended(session, "k")
        await client.call("DELETE", f"/api/sessions/{session}", status=204)
        again = await client.post(path, answer)
        assert (again["state"], again["decidedAt"]) == ("answered", decided["decidedAt"])
        assert again["request"] is None
        assert not {"call", "mismatch"} & set(again)


async def test_other_sessions_keep_their_prompts_and_requests(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted(ASKED))
    async with running(given) as (_, client):
        kept = await decided_session(client, tmp_path)
        gone = await decided_session(client, tmp_path)
        await client.call("DELETE", f"/api/sessions/{gone}", status=204)
    async with running(given) as (_, client):
        assert (await client.get(f"/api/sessions/{kept}/prompts/k"))["state"] == "done"
        (decision,) = (await client.get(f"/api/decisions?session={kept}"))["decisions"]
        assert decision["request"]["title"] == "the-title-of-a-request"


async def test_a_prompt_of_a_deleted_session_is_cancelled_for_waiting_callers(
    tmp_path: Path,
) -> None:
    async with running(options(tmp_path / "home", mine=scripted(ASKED))) as (hub, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "runs", SAID)
        await client.prompt(session, "waits", SAID)
        await client.pending_permissions()
        ends: dict[str, Any] = {}

        async def wait(key: str) -> None:
            ends[key] = await hub.runner.wait_prompt(session, key)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "runs")
            tasks.start_soon(wait, "waits")
            await anyio.wait_all_tasks_blocked()
            await hub.runner.delete_session(session)
        assert {key: entry.state for key, entry in ends.items()} == {
            "runs": "cancelled",
            "waits": "cancelled",
        }
        late = await hub.runner.wait_prompt(session, "runs")
        assert (late.state, late.prompt) == ("cancelled", [])
        for key in ("runs", "waits"):
            await client.get(f"/api/sessions/{session}/prompts/{key}", status=404)
        (decision,) = (await client.get(f"/api/decisions?session={session}"))["decisions"]
        assert decision["request"] is None


async def test_a_prompt_that_comes_while_its_session_is_deleted_is_refused_and_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(options(tmp_path / "home", mine=scripted({"say": "hi"}))) as (hub, client):
        session = await client.session("mine", tmp_path)
        write = runner_of(hub).database.write

        async def delete_first(change: Any) -> Any:
            monkeypatch.setattr(runner_of(hub).database, "write", write)
            await hub.runner.delete_session(session)
            return await write(change)

        monkeypatch.setattr(runner_of(hub).database, "write", delete_first)
        with pytest.raises(RequestRejected, match="deleted just now"):
            await hub.runner.add_prompt(session, "late", [{"type": "text", "text": SAID}])
        await client.get(f"/api/sessions/{session}/prompts/late", status=404)


async def test_a_deletion_completes_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home", mine=scripted(ASKED))) as (hub, client):
        session = await decided_session(client, tmp_path)
        forgotten = runner_of(hub).prompts.changes.next
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(hub.runner.delete_session, session))
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await forgotten.wait()
        await check_forgotten(client, session)


@pytest.mark.parametrize("is_broken", [False, True], ids=["not set up", "cannot be started"])
async def test_a_closed_session_is_deleted_after_a_restart_without_its_agent(
    tmp_path: Path, *, is_broken: bool
) -> None:
    home = tmp_path / "home"
    async with running(options(home, mine=scripted(ASKED))) as (_, client):
        session = await decided_session(client, tmp_path)
        await client.post(f"/api/sessions/{session}/close")
    agents = {"mine": AgentSettings(command=str(tmp_path / "nowhere"))} if is_broken else {}
    async with running(options(home, None, **agents)) as (hub, client):
        told: list[Event] = []
        runner_of(hub).host.subscribe(None, 0, told.append)
        await client.call("DELETE", f"/api/sessions/{session}", status=204)
        await client.get(f"/api/sessions/{session}", status=404)
        await check_forgotten(client, session)
        codes = [each.payload["code"] for each in told if each.type == "diagnostic"]
        assert "session/delete-skipped" in codes
        await client.call("DELETE", f"/api/sessions/{session}", status=404)
    check_files(home)
    async with running(options(home)) as (_, client):
        assert (await client.get("/api/sessions"))["sessions"] == []


async def test_a_session_that_is_not_closed_is_deleted_after_a_restart_without_its_agent(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with running(options(home, mine=scripted(ASKED))) as (_, client):
        session = await decided_session(client, tmp_path)
    async with running(options(home)) as (_, client):
        await client.call("DELETE", f"/api/sessions/{session}", status=204)
        await check_forgotten(client, session)
