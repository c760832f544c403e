"""A hub whose disk is full: devices are revoked, requests rejected and turns cancelled."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from quarterdeck.agents import AgentSettings
from quarterdeck.hub import HubOptions
from tests.hub.api.kit import ASK, Client, paired, running, scripted
from tests.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.anyio


def note(name: str) -> dict[str, Any]:
    """Return a step that leaves a file in the folder of the session, which has space."""
    params = {"sessionId": "{session}", "path": f"{{cwd}}/{name}", "content": "here"}
    return {"request": "fs/write_text_file", "params": params}


def given(home: Path) -> HubOptions:
    return HubOptions(home=home, port=0, agents=agents())


def agents() -> dict[str, AgentSettings]:
    asking = scripted({**ASK, "allowed": [note("allowed")], "rejected": [note("rejected")]})
    return {
        "asking": asking,
        "other": scripted({**ASK, "allowed": [note("allowed")]}, sessions={"id": "other-{n}"}),
        "waiting": scripted({"wait_cancel": True}, note("cancelled"), sessions={"id": "wait-{n}"}),
        "talking": scripted(
            {"repeat": 10_000, "steps": [{"say": "x" * 2_000}]}, sessions={"id": "talk-{n}"}
        ),
    }


async def until_there(path: Path) -> None:
    while not await anyio.Path(path).exists():  # noqa: ASYNC110 - it is another program's
        await anyio.sleep(0.01)


async def fill(disk: SmallDisk, client: Client, session: str) -> None:
    """Let an agent fill the log until it cannot be written, and something else the rest."""
    await client.prompt(session, "talk")
    if not disk.is_mounted:
        disk.fill()
    while (await client.http.get("/healthz")).json()["status"] == "ok":  # noqa: ASYNC110
        await anyio.sleep(0.01)
    disk.fill()


async def answer(client: Client, card: dict[str, Any], kind: str) -> httpx2.Response:
    option = next(each["optionId"] for each in card["options"] if each["kind"] == kind)
    body = {"digest": card["digest"], "optionId": option, "key": "k"}
    return await client.http.post(f"/api/permissions/{card['requestId']}/answer", json=body)


async def check_answers(client: Client, one: dict[str, Any], other: dict[str, Any]) -> None:
    """Try to allow one request, which is refused, and reject another."""
    refused = await answer(client, one, "allow_once")
    assert refused.status_code == 503
    assert "nothing can be allowed now; free up space" in refused.json()["error"]["message"]
    for _ in range(2):  # the second is a retry
        rejected = await answer(client, other, "reject_once")
        assert rejected.status_code == 200
        decision = rejected.json()
        assert decision["optionKind"] == "reject_once"
        assert "runner.reserve" in decision["problem"]


async def test_on_a_full_disk_people_can_still_say_no(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        home, cwd = disk.folder / "home", tmp_path / "work"
        cwd.mkdir()
        async with running(given(home)) as (hub, client):
            token = await paired(client, "approve")
            sessions = {name: await client.session(name, cwd) for name in agents()}
            await client.prompt(sessions["asking"], "k1")
            await client.prompt(sessions["other"], "k2")
            await client.prompt(sessions["waiting"], "k3")
            cards = {card["sessionId"]: card for card in await client.pending_permissions(2)}
            await client.until(
                f"/api/sessions/{sessions['waiting']}",
                lambda shown: shown["session"]["status"] == "prompting",
            )
            await fill(disk, client, sessions["talking"])

            await check_answers(client, cards[sessions["other"]], cards[sessions["asking"]])
            await until_there(cwd / "rejected")

            await client.post(f"/api/sessions/{sessions['waiting']}/cancel")
            await until_there(cwd / "cancelled")

            (device,) = [each for each in hub.auth.devices.all if each.id != "owner"]
            revoked = await client.http.delete(f"/api/devices/{device.id}")
            assert revoked.status_code in (202, 204)  # hub.db may have had a few bytes left
            assert await hub.auth.devices.authenticate(token) is None

            left = shutil.copytree(
                home, tmp_path / "killed", ignore=shutil.ignore_patterns("*.sock")
            )  # what a kill would leave now
            disk.free()
            await client.until(
                "/api/decisions",
                lambda listed: any(
                    each.get("optionKind") == "reject_once" for each in listed["decisions"]
                ),
            )
            assert not (cwd / "allowed").exists()
        left.chmod(0o700)
        async with running(given(left)) as (hub, client):
            events = await client.events(sessions["asking"])
            (resolved,) = [each for each in events if each["type"] == "permission-request-resolved"]
            assert resolved["payload"]["status"] == "answered"
            by = resolved["extensions"]["quarterdeck"]["decidedBy"]
            assert (by["kind"], by["deviceName"]) == ("device", "this computer")
            listed = (await client.get("/api/decisions"))["decisions"]
            decided = {each["sessionId"]: each for each in listed}
            assert decided[sessions["asking"]]["state"] == "answered"
            assert decided[sessions["other"]]["state"] == "superseded"
            assert await hub.auth.devices.authenticate(token) is None
