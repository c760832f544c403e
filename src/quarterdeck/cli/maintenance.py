"""The data folder: check, repair, back up, restore and compact it.

Each public function is a command: it takes the parsed arguments and returns the exit status. A
check and a backup read the files beside a running hub; a compaction is done by the hub, if one
runs; a repair and a restore need the folder for themselves.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from quarterdeck.cli.arguments import DONE, FAILED
from quarterdeck.cli.hub_access import HubAddress, running_hub
from quarterdeck.cli.runner_start import RUNNER_SOCKET
from quarterdeck.cli.running_processes import find_process
from quarterdeck.cli.terminal.screen import Screen, print_json
from quarterdeck.errors import CommandFailed, StartRefused
from quarterdeck.machine.home_locks import BOTH, lock_owner, locked_home
from quarterdeck.runner.link import connected_runner
from quarterdeck.storage.backup import restore_backup, write_backup
from quarterdeck.storage.check import HUB, FileReport, check_folder
from quarterdeck.storage.compaction import compact_folder
from quarterdeck.storage.database import vacuum_file
from quarterdeck.storage.repair import repair_folder
from quarterdeck.views.text import plain

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STYLES: Final = {"ok": "good", "damaged": "bad", "absent": ""}


def check_data(chosen: Namespace) -> int:
    home = _home(chosen)
    reports = check_folder(home)
    is_damaged = any(each.status == "damaged" for each in reports)
    if chosen.json:
        files = msgspec.to_builtins(reports)
        print_json({"home": str(home), "isDamaged": is_damaged, "files": files})
    else:
        _print_reports(Screen(sys.stdout), home, reports)
    return FAILED if is_damaged else DONE


def _print_reports(screen: Screen, home: Path, reports: list[FileReport]) -> None:
    rows = [
        (
            each.file,
            each.status,
            "" if each.status == "absent" else size_text(each.size),
            f"{each.sessions} sessions, {each.events} events" if each.sessions else "",
        )
        for each in reports
    ]
    screen.table(rows)
    for each in reports:
        for problem in each.problems:
            style = "bad" if each.status == "damaged" else ""
            screen.line(f"{each.file}: {plain(problem)}", style)
    if any(each.status == "damaged" for each in reports):
        advice = "to recover what is intact, run: quarterdeck down, then quarterdeck repair"
        screen.line(f"{home} is damaged; {advice}", "strong")
    else:
        screen.line(f"{home} is intact", "good")


def repair_data(chosen: Namespace) -> int:
    home = _home(chosen)
    if not home.is_dir():
        raise CommandFailed(f"there is no folder {home}; pass the data directory with --home")
    repair = _alone(home, lambda: repair_folder(home))
    if chosen.json:
        print_json(msgspec.to_builtins(repair))
        return DONE
    screen = Screen(sys.stdout)
    if not repair.backup:
        screen.line(f"{home} is intact; nothing was changed", "good")
        return DONE
    for sentence in repair.done:
        screen.line(plain(sentence))
    screen.line(f"copies of the original files: {repair.backup}", "strong")
    return DONE


def back_up(chosen: Namespace) -> int:
    target = chosen.target.absolute()
    path, manifest = write_backup(_home(chosen), target)
    if chosen.json:
        print_json({"path": str(path), **msgspec.to_builtins(manifest)})
        return DONE
    size = size_text(path.stat().st_size)
    Screen(sys.stdout).line(
        f"wrote {path}: {manifest.sessions} sessions, {manifest.events} events, {size}"
    )
    return DONE


def restore(chosen: Namespace) -> int:
    home = _home(chosen)
    aside, manifest = _alone(home, lambda: restore_backup(chosen.source.absolute(), home))
    if chosen.json:
        kept = None if aside is None else str(aside)
        print_json({"home": str(home), "aside": kept, **msgspec.to_builtins(manifest)})
        return DONE
    screen = Screen(sys.stdout)
    screen.line(
        f"restored {home} as of {manifest.created_at}: {manifest.sessions} sessions,"
        f" {manifest.events} events"
    )
    if aside is not None:
        screen.line(f"the old directory: {aside}", "strong")
    return DONE


def compact(chosen: Namespace) -> int:
    files = anyio.run(_compact, HubAddress.of(chosen))
    if chosen.json:
        print_json({"files": files})
        return DONE
    rows = [(each["file"], size_text(each["before"]), size_text(each["after"])) for each in files]
    Screen(sys.stdout).table([("file", "before", "after"), *rows])
    return DONE


async def _compact(address: HubAddress) -> list[dict[str, Any]]:
    found = await running_hub(address.home)
    if found is not None:
        answer = await found.api.call("POST", "/api/compact", {})
        files: list[dict[str, Any]] = answer["files"]
        return files
    if not address.home.is_dir():
        raise CommandFailed(
            f"there is no folder {address.home}; pass the data directory with --home"
        )
    if find_process(address.home, "runner") is not None:
        return await _compact_beside_runner(address.home)
    compacted: list[dict[str, Any]] = msgspec.to_builtins(await compact_folder(address.home))
    return compacted


async def _compact_beside_runner(home: Path) -> list[dict[str, Any]]:
    """Compact what no process uses; the runner compacts its own files."""
    with locked_home(home, "hub"):
        async with connected_runner(home / RUNNER_SOCKET) as runner:
            files = await runner.compact()
        if (home / HUB).exists():
            files.append(vacuum_file(home / HUB))
    compacted: list[dict[str, Any]] = msgspec.to_builtins(files)
    return compacted


def _alone(home: Path, work: Any) -> Any:
    """Run what needs the folder for itself; explain who has it."""
    try:
        return work()
    except StartRefused as error:
        raise _used_by(home) or error from error


def _used_by(home: Path) -> CommandFailed | None:
    owners = [(role, lock_owner(home, role)) for role in BOTH]
    held = [(role, owner) for role, owner in owners if owner is not None]
    if not held:
        return None
    running = [f"a {role} (process {owner})" for role, owner in held if find_process(home, role)]
    if running:
        return CommandFailed(
            f"{' and '.join(running)} uses {home}; stop it first: quarterdeck down"
        )
    return CommandFailed(f"another command (process {held[0][1]}) uses {home}; wait until it ends")


def _home(chosen: Namespace) -> Path:
    return HubAddress.of(chosen).home


def size_text(size: int) -> str:
    """Return a size as people write it."""
    number, unit = float(size), 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{number:.1f} {_UNITS[unit]}"
