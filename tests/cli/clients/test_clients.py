"""Every official client on every surface: the same session, with handlers that work or throw.

What handlers that throw cannot answer is rejected where the client is the only one that could be
asked. A hub keeps the request: another device answers it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.cli.clients.sdk_clients import CLIENTS, Prompt, Surface
from tests.cli.kit import COMMAND, Console, RunningHub
from tests.hub.local_owner import make_token

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(180)]

SURFACES = ["acp", "acp serve ws", "acp serve http", "proxy", "hub ws", "hub http"]
CASES = [
    pytest.param(surface, client, id=f"{client} on {surface}")
    for surface in SURFACES
    for client in CLIENTS
]


@contextmanager
def _serving(desk: Console) -> Iterator[str]:
    """Run `acp serve` without a token until the block ends; yields its address."""
    command = [*COMMAND, "acp", "serve", "--model", "demo", "--port", "0", "--no-token"]
    with subprocess.Popen(
        command, env=desk.environ, cwd=desk.work, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        while "the agent is at" not in line:
            assert line
            line = process.stderr.readline()
        try:
            yield line.partition("the agent is at ")[2].partition(",")[0]
        finally:
            process.terminate()
            process.communicate(timeout=60)


@contextmanager
def _surface(name: str, desk: Console) -> Iterator[tuple[Surface, RunningHub | None]]:
    folder = str(desk.work)
    if name == "acp":
        command = [*map(str, COMMAND), "acp", "--model", "demo"]
        yield Surface(kind="stdio", folder=folder, command=command, env=desk.environ), None
        return
    *_, kind = name.split()
    if name.startswith("acp serve"):
        with _serving(desk) as url:
            yield _remote(kind, folder, url), None
        return
    with desk.hub() as hub:
        if name == "proxy":
            command = [*map(str, COMMAND), "proxy", "demo"]
            yield Surface(kind="stdio", folder=folder, command=command, env=desk.environ), hub
        else:
            token = make_token(desk.home)
            yield _remote(kind, folder, f"{hub.url}/acp?agent=demo", token), hub


def _remote(kind: str, folder: str, url: str, token: str = "") -> Surface:
    address = url if kind == "http" else url.replace("http", "ws", 1)
    return Surface(kind=kind, folder=folder, url=address, token=token)


@asynccontextmanager
async def _another_device(hub: RunningHub | None, path: Path) -> AsyncIterator[None]:
    """Reject what is asked about a file, as a phone would, while the block runs."""

    async def reject() -> None:
        assert hub is not None
        while True:
            for each in (await to_thread.run_sync(hub.call, "GET", "/api/permissions"))[
                "permissions"
            ]:
                if path.name in json.dumps(each["toolCall"]):
                    await to_thread.run_sync(hub.answer, each, "reject_once")
            await anyio.sleep(0.05)

    async with anyio.create_task_group() as tasks:
        if hub is not None:
            tasks.start_soon(reject)
        yield
        tasks.cancel_scope.cancel()


def _write(path: Path) -> str:
    return f"/tool write {json.dumps({'path': path.name, 'content': 'written'})}"


@pytest.mark.parametrize(("surface_name", "client"), CASES)
async def test_a_session(surface_name: str, client: str, tmp_path: Path) -> None:
    desk = Console(tmp_path)
    desk.environ["QUARTERDECK_SESSIONS"] = str(tmp_path / "sessions")
    allowed, refused = desk.work / "allowed.txt", desk.work / "refused.txt"
    prompts = [
        Prompt("/say Hello there."),
        Prompt(_write(allowed)),
        Prompt(_write(refused), throws=True),
        Prompt("/say Still here.", throws=True),
    ]
    with _surface(surface_name, desk) as (surface, hub):
        async with _another_device(hub, refused):
            seen = await CLIENTS[client](surface, prompts)
        again = await CLIENTS[client](surface, [Prompt("/say Back.")], load=seen.session_id)
    assert seen.errors == []
    assert seen.version == (2 if client == "TypeScript 2" else 1)
    assert seen.stops == ["end_turn"] * len(prompts)
    assert "Hello there." in seen.text
    assert "Still here." in seen.text
    assert (allowed.exists(), refused.exists()) == (True, False)
    assert (seen.asked, seen.listed) == (2, 1)
    assert (again.errors, again.stops) == ([], ["end_turn"])
    assert again.text.startswith(seen.text)
    assert "Back." in again.text
