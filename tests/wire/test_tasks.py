"""A failed background task is logged and ends no other."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NoReturn

import anyio
import pytest

from quarterdeck.protocol import Event
from quarterdeck.wire.tasks import IndependentTasks
from tests.hub.api.kit import ASK, options, running, scripted
from tests.hub.runners import runner_of

pytestmark = pytest.mark.anyio


async def test_a_task_that_fails_is_logged_and_ends_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended = anyio.Event()

    async def fail() -> None:
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "half of a character")

    async def go_on() -> None:
        ended.set()

    with caplog.at_level(logging.ERROR):
        async with anyio.create_task_group() as tasks:
            chores = IndependentTasks(tasks)
            chores.start_soon(fail)
            chores.start_soon(go_on)
            await ended.wait()
    assert "half of a character" in caplog.text


async def test_a_request_that_cannot_be_shown_is_cancelled_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_deep(*_: object, **__: object) -> NoReturn:
        raise RecursionError

    monkeypatch.setattr("quarterdeck.runner.permissions.inbox.inspect_request", too_deep)
    async with running(options(tmp_path / "home", mine=scripted(ASK))) as (hub, client):
        told: list[Event] = []
        runner_of(hub).host.subscribe(None, 0, told.append)
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k1")
        assert (await client.ended(session, "k1"))["state"] == "cancelled"
        codes = [each.payload["code"] for each in told if each.type == "diagnostic"]
        assert codes.count("permission/cannot-be-shown") == 1
