"""One machine that answers with nonsense, or never, costs the lists of the others nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.hub.fleet import decisions, machine_runner
from quarterdeck.runner.link import remote
from tests.hub.api.kit import options, running, scripted
from tests.hub.fleet.kit import on_hub, other_machine

LISTS = ("/api/sessions", "/api/decisions", "/api/agents", "/api/hub", "/api/machines", "/metrics")


@pytest.mark.parametrize("answer", [[{"x": 1}], None, "text", [1], "never"])
async def test_a_machine_without_proper_answers_leaves_the_lists_of_others(
    answer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "READ_SECONDS", 0.05)
    monkeypatch.setattr(decisions, "READ_SECONDS", 0.05)
    monkeypatch.setattr(machine_runner, "CATCH_UP_SECONDS", 0.05)
    say = scripted({"say": "hello"})
    async with (
        running(options(tmp_path / "home", mine=say)) as (hub, client),
        other_machine(tmp_path / "other", mine=say) as laptop,
    ):
        await laptop.join(hub)
        here = await client.session("mine", tmp_path)
        body = {"agent": "mine", "cwd": str(tmp_path), "machine": laptop.id}
        await client.post("/api/sessions", body, status=201)

        async def call(_method: str, _params: Any, _events: Sequence[bytes] | None = None) -> Any:
            if answer == "never":
                await anyio.sleep_forever()
            return answer

        monkeypatch.setattr(on_hub(hub, laptop.id).connection, "call", call)
        with anyio.fail_after(20):
            found = {path: (await client.http.get(path)).status_code for path in LISTS}
        assert found == dict.fromkeys(LISTS, 200)
        listed = (await client.get("/api/sessions"))["sessions"]
        assert here in [each["sessionId"] for each in listed]
