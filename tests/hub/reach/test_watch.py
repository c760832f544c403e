"""A look at the machine that fails costs a report, never the hub."""

from __future__ import annotations

import logging
from pathlib import Path

import anyio
import pytest

from quarterdeck.http.origins import Listening
from quarterdeck.http.server import ServerOptions, running_server, server_config
from quarterdeck.hub.auth.accepted_sites import AcceptedSites
from quarterdeck.hub.auth.device_keys import hub_key
from quarterdeck.hub.reach import MachineFacts
from quarterdeck.hub.reach.service import ReachOptions, open_reach
from quarterdeck.hub.reach.trust_page import TrustPage


async def _nothing() -> None:
    """Do nothing."""


async def test_a_look_that_fails_is_logged_and_the_next_report_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failed = anyio.Event()

    async def look() -> MachineFacts:
        if not failed.is_set():
            failed.set()
            raise OSError(24, "Too many open files")
        return MachineFacts()

    listening = Listening(port=7272)
    options = ReachOptions(
        home=tmp_path,
        environ={},
        listening=listening,
        is_for_phones=True,
        key=hub_key(tmp_path / "identity.key"),
    )
    config = server_config(TrustPage(), ServerOptions(), end_seconds=1)
    with anyio.fail_after(30), caplog.at_level(logging.ERROR):
        async with (
            running_server(config, before_end=_nothing) as server,
            open_reach(options, AcceptedSites(listening), server, look) as reach,
        ):
            await failed.wait()
            assert not (await reach.report()).is_usable
    assert "phones' access could not be checked" in caplog.text
