"""`quarterdeck db`: look at the hub's PostgreSQL database, and bring its tables up to date."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import anyio

from quarterdeck.cli.arguments import DONE, FAILED
from quarterdeck.cli.config import load_config
from quarterdeck.cli.hub_access import HubAddress
from quarterdeck.cli.terminal.screen import Screen, print_json
from quarterdeck.errors import CommandFailed
from quarterdeck.hub.database_url import database_url
from quarterdeck.hub.store import DATABASE
from quarterdeck.machine.home_locks import locked_home


def manage_database(chosen: Namespace) -> int:
    address = HubAddress.of(chosen)
    template = load_config(address.environ, address.config_file).database.url
    if not template:
        raise CommandFailed(
            "hub.toml names no database; set url in [database], such as"
            ' "postgresql://USER@HOST/DATABASE"'
        )
    url = database_url(template, address.environ)
    if chosen.action == "import":
        home = address.home
        if not (home / DATABASE).exists():
            raise CommandFailed(f"{home} has no hub.db; pass the data directory with --home")
        with locked_home(home, "hub"):
            return anyio.run(_import, url, home, bool(chosen.json))
    run = _migrate if chosen.action == "migrate" else _check
    return anyio.run(run, url, bool(chosen.json))


async def _check(url: str, as_json: bool) -> int:  # noqa: FBT001 - given by position to anyio
    from quarterdeck.hub.postgres import STEPS, connect, inspect, refusal  # noqa: PLC0415

    async with connect(url) as postgres:
        found = await inspect(postgres)
        is_usable = found.state in ("ready", "empty")
        if as_json:
            facts = {"state": found.state, "version": found.version, "needed": len(STEPS)}
            print_json({"database": postgres.name, **facts})
        elif not is_usable:
            raise CommandFailed(str(refusal(postgres.name, found)))
        elif found.state == "empty":
            text = "is empty; a hub creates its tables when it starts"
            Screen(sys.stdout).line(f"{postgres.name} {text}", "good")
        else:
            Screen(sys.stdout).line(f"{postgres.name} has format {found.version}", "good")
    return DONE if is_usable else FAILED


async def _import(url: str, home: Path, as_json: bool) -> int:  # noqa: FBT001 - as above
    from quarterdeck.hub.postgres import connect, import_files, migrate  # noqa: PLC0415

    async with connect(url) as postgres:
        await migrate(postgres)
        await postgres.own(0)  # no hub uses it meanwhile
        found = await import_files(postgres, home)
        if as_json:
            print_json({"database": postgres.name, **asdict(found)})
        else:
            text = (
                f"{postgres.name} has {found.devices} devices and {found.machines} machines with"
                f" {found.sessions} sessions and {found.events} events now"
            )
            Screen(sys.stdout).line(text, "good")
    return DONE


async def _migrate(url: str, as_json: bool) -> int:  # noqa: FBT001 - given by position to anyio
    from quarterdeck.hub.postgres import STEPS, connect, migrate  # noqa: PLC0415

    async with connect(url) as postgres:
        before = (await migrate(postgres)).version
        if as_json:
            facts = {"state": "ready", "version": len(STEPS), "needed": len(STEPS)}
            print_json({"database": postgres.name, **facts})
        elif before == len(STEPS):
            Screen(sys.stdout).line(f"{postgres.name} already has format {before}", "good")
        else:
            Screen(sys.stdout).line(f"{postgres.name} now has format {len(STEPS)}", "good")
    return DONE
