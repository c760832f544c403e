"""The official TypeScript SDK's client of ACP 2: on stdio by `quarterdeck proxy`, and on `/acp`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.agent.builtin.official_clients import NODE
from tests.agent.remote_clients import SDK
from tests.cli.kit import ASK as CLI_ASK, COMMAND, Console, agent_toml
from tests.hub.api.kit import ASK, Json, paired
from tests.hub.editors.kit import hub_with
from tests.hub.editors.kit_v2 import after, text_of
from tests.hub.editors.test_streamable import url_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("client_v2.mjs")
SECONDS = 90
KINDS = pytest.mark.parametrize("kind", ["stdio", "ws", "http"])


async def run_client(order: Json, **more: Any) -> Json:
    known = {"sdk": str(SDK), "prompts": [], **order, **more}
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process(
            [str(NODE), str(SCRIPT)],
            input=json.dumps(known).encode(),
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    seen: Json = json.loads(done.stdout)
    return seen


@asynccontextmanager
async def _place(kind: str, folder: Path, *, asks: bool) -> AsyncIterator[Json]:
    """Run a hub and return how a client reaches its agent."""
    if kind == "stdio":
        steps = [{"say": "before "}, *([CLI_ASK] if asks else []), {"say": "after"}]
        desk = Console(folder, agent_toml("mine", *steps))
        with desk.hub():
            command = [*map(str, COMMAND), "proxy", "mine"]
            yield {"kind": kind, "command": command, "env": desk.environ, "folder": str(desk.work)}
        return
    steps = [{"say": "before "}, *([ASK] if asks else []), {"say": "after"}]
    async with hub_with(folder / "home", *steps) as (_, owner):
        token = await paired(owner, "admin")
        headers = {"Authorization": f"Bearer {token}"}
        url = url_of(owner, kind)
        yield {"kind": kind, "url": url, "headers": headers, "folder": str(folder)}


def _text(seen: Json) -> str:
    return "".join(text_of(each["update"]) for each in seen["updates"])


@KINDS
async def test_the_official_client_has_a_whole_session_and_resumes_it(
    kind: str, tmp_path: Path
) -> None:
    async with _place(kind, tmp_path, asks=True) as order:
        first = await run_client(order, prompts=["one", "two"])
        assert first["errors"] == []
        hello, made, _, one, two, listed = first["answers"]
        assert hello["protocolVersion"] == 2
        session_id = made["sessionId"]
        assert one["messageId"] != two["messageId"]
        assert [each["sessionId"] for each in listed["sessions"]] == [session_id]
        assert len(first["permissions"]) == 2
        assert all(each["title"] for each in first["permissions"])
        assert _text(first).startswith("before ")

        again = await run_client(order, resume=session_id, replayFrom={"type": "start"})
        assert again["errors"] == []
        assert _text(again) == _text(first)
        assert again["answers"][2]["replayed"] == len(again["updates"]), "before the answer"

        numbers = [each["_meta"]["quarterdeck"] for each in first["updates"]]
        cut = len(numbers) // 2
        rest = await run_client(order, resume=session_id, replayFrom=after(numbers[cut]))
        assert rest["errors"] == []
        half = {"updates": first["updates"][: cut + 1]}
        assert _text(half) + _text(rest) == _text(first)


@KINDS
async def test_handlers_that_throw_change_nothing(kind: str, tmp_path: Path) -> None:
    async with _place(kind, tmp_path, asks=False) as order:
        seen = await run_client(order, prompts=["one", "two"], throws=True)
        assert seen["errors"] == []
        assert _text(seen) == "before after" * 2
