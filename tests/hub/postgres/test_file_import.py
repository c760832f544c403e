"""A hub moves from files to PostgreSQL and loses nothing."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import msgspec
import pytest

from quarterdeck.cli.main import main
from quarterdeck.errors import CommandFailed
from quarterdeck.hub.auth.device import Device
from quarterdeck.hub.auth.device_store import Sighting, event_of
from quarterdeck.hub.log import Acknowledged, HubLog, LogCursor, LogRun
from quarterdeck.hub.postgres import (
    connect,
    file_import,
    import_files,
    migrate,
    open_postgres_store,
)
from quarterdeck.hub.push.store import PushKinds, Subscription
from quarterdeck.hub.store import HubStore, open_sqlite_store
from quarterdeck.runner.link import NOTHING_KNOWN
from tests.hub.test_log import event
from tests.hub.test_store import (
    AT,
    NOW,
    ODD,
    PAIRING,
    SECRETS,
    command,
    entry,
    machine,
    paired,
)

pytestmark = pytest.mark.anyio


async def write(log: HubLog, session: str, first: int, last: int) -> None:
    head = await log.claim("m1", session, "hub", take=True)
    assert head is not None
    events = [event(seq) for seq in range(first, last + 1)]
    assert await log.append([LogRun("m1", session, head.epoch, last, events)]) == [
        Acknowledged(last)
    ]


async def fill(store: HubStore) -> None:
    await store.devices.load(b"owner", AT)
    await store.pairings.add(PAIRING, SECRETS, NOW)
    device = await paired(store)
    assert device is not None
    await store.devices.set_next_token(device.id, b"next")
    revoked = Device(id="gone", name="old", scope="view", created_at=AT)
    await store.devices.add(revoked, b"hash")
    await store.devices.end("gone", AT, event_of("revoked", revoked, AT))
    await store.push.put(
        Subscription(device_id="d", endpoint="https://e", p256dh="p", auth="a", kinds=PushKinds())
    )
    await store.machines.add(machine(1, "Laptop"), b"key", Sighting())
    for key in ("gone", "\0kept"):
        await store.fleet.add(command(key))
    await store.fleet.remove(1)
    await store.fleet.save_state("m1", NOTHING_KNOWN, {ODD: entry(ODD, 5)}, [])
    await store.log.open_space("m1")
    await write(store.log, ODD, 1, 3_000)
    await write(store.log, "deleted", 1, 4)
    await store.log.forget("m1", "deleted")
    await write(store.log, "again", 1, 4)
    await store.log.forget("m1", "again")
    await write(store.log, "again", 5, 6)


async def everything(store: HubStore) -> list[object]:
    epoch = await store.log.open_space("m1")
    heads = await store.log.heads("m1")
    cursors = [LogCursor("m1", name, 0) for name in sorted(heads)]
    found = [
        *(await store.devices.load(b"owner", AT), await store.devices.events()),
        *(await store.device_keys.load(), await store.pairings.usable(NOW)),
        *(await store.push.all(), await store.machines.load(), await store.fleet.state("m1")),
        *(await store.fleet.commands("m1"), epoch, heads, await store.log.read(cursors, 10_000)),
    ]
    await store.log.close_space("m1")
    return found


async def test_everything_is_imported_with_its_numbers(tmp_path: Path, postgres_url: str) -> None:
    async with open_sqlite_store(tmp_path) as store:
        await fill(store)
        await store.log.close_space("m1")
    async with open_sqlite_store(tmp_path) as store:
        expected = await everything(store)
    async with connect(postgres_url) as postgres:
        await migrate(postgres)
        found = await import_files(postgres, tmp_path)
        assert (found.devices, found.machines, found.sessions, found.events) == (2, 1, 3, 3_002)
        with pytest.raises(CommandFailed, match="has the devices of a hub already"):
            await import_files(postgres, tmp_path)
    async with open_postgres_store(postgres_url) as moved:
        assert await everything(moved) == expected
        # Numbers continue where they were.
        await write(moved.log, "deleted", 5, 5)
        added = await moved.fleet.add(command("new"))
        assert added == msgspec.structs.replace(command("new"), id=3)


async def test_an_import_that_was_interrupted_is_started_again(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sqlite_store(tmp_path) as store:
        await fill(store)
        await store.log.close_space("m1")
        expected = await everything(store)
    async with connect(postgres_url) as postgres:
        await migrate(postgres)
        with monkeypatch.context() as patched:
            # The logs are copied by then; the tables are not.
            patched.setattr(file_import, "_read_tables", _interrupted)
            with pytest.raises(OSError, match="interrupted"):
                await import_files(postgres, tmp_path)
        assert (await import_files(postgres, tmp_path)).events == 3_002
    async with open_postgres_store(postgres_url) as moved:
        assert await everything(moved) == expected


def test_the_command_imports_a_stopped_hub(
    tmp_path: Path, postgres_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    config, home = tmp_path / "hub.toml", tmp_path / "home"
    config.write_text(f'[database]\nurl = "{postgres_url}"', encoding="utf-8")
    words = ["db", "import", "--json", "--config", str(config), "--home", str(home)]
    assert main(words) == 1
    assert "has no hub.db" in capfd.readouterr().err
    assert main(["db", "migrate", "--config", str(config)]) == 0
    capfd.readouterr()
    home.mkdir(mode=0o700)
    _create(home)
    assert main(words) == 0
    facts = json.loads(capfd.readouterr().out)
    assert (facts["devices"], facts["machines"], facts["events"]) == (1, 0, 0)


def _interrupted(path: Path) -> None:
    raise OSError(f"interrupted before {path} was read")


def _create(home: Path) -> None:
    async def load() -> None:
        async with open_sqlite_store(home) as store:
            await store.devices.load(b"owner", AT)

    anyio.run(load)
