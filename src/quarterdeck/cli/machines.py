"""`quarterdeck machines`: lists, adds, renames and removes the machines of a running hub."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import anyio

from quarterdeck.cli.arguments import DONE
from quarterdeck.cli.hub_access import HubAddress, require_hub
from quarterdeck.cli.sessions import match_id
from quarterdeck.cli.terminal.screen import Screen, print_json, print_note
from quarterdeck.errors import CommandFailed, HubDeclined, Misused
from quarterdeck.http.client import HubApi
from quarterdeck.protocol.timestamps import seconds_of
from quarterdeck.views.text import one_line

_OPERANDS: Final = {
    "list": (0, "no MACHINE"),
    "add": (0, "no MACHINE"),
    "rename": (2, "a MACHINE and a name"),
    "remove": (1, "one MACHINE"),
}
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def manage_machines(chosen: Namespace) -> int:
    """Run the command."""
    count, words = _OPERANDS[chosen.action]
    if len(chosen.words) != count:
        raise Misused(
            f"machines {chosen.action} takes {words}, not {len(chosen.words)}"
            f" argument{'s' * (len(chosen.words) != 1)}; see quarterdeck machines --help"
        )
    return anyio.run(_manage, chosen)


async def _manage(chosen: Namespace) -> int:
    hub = await require_hub(HubAddress.of(chosen))
    await _ACTIONS[chosen.action](hub.api, chosen)
    return DONE


async def _list(api: HubApi, chosen: Namespace) -> None:
    response = await api.get("/api/machines")
    if chosen.json:
        print_json(response)
        return
    print_machines(Screen(sys.stdout), response["machines"])
    if not response["machines"]:
        print_note("no other machine has joined; for the command to run there: machines add")


def print_machines(screen: Screen, machines: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each machine, and what is wrong with its version."""
    screen.table(
        [
            (
                one_line(each["name"]),
                each["id"],
                machine_state(each),
                f"version {one_line(each['version']) or 'unknown'}",
                f"{each['sessions']} session{'s' * (each['sessions'] != 1)}",
            )
            for each in machines
        ],
        ("strong", "dim", "", "dim", "dim"),
    )
    for each in machines:
        if each["skew"]:
            screen.line(f"{one_line(each['name'])}: {one_line(each['skew'])}", "warn")


def machine_state(machine: Mapping[str, Any]) -> str:
    """Return the state of a machine, and for how long; as `away for 5 min`."""
    if machine["since"] is None:
        return "never connected"
    return f"{machine['state']} for {duration(time.time() - seconds_of(machine['since']))}"


def duration(seconds: float) -> str:
    """Return a time in its largest unit."""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "0 s"


async def joined_machines(api: HubApi) -> list[Mapping[str, Any]]:
    """Return the machines that have joined a hub; none if it is of an earlier version."""
    try:
        return list((await api.get("/api/machines"))["machines"])
    except HubDeclined as error:
        if error.status == 404:
            return []
        raise


async def find_machine(api: HubApi, given: str) -> Mapping[str, Any]:
    """Return a machine by its name, its id or the beginning of its id.

    Raises:
        CommandFailed: if there is none.
    """
    listed = (await api.get("/api/machines"))["machines"]
    named = [each for each in listed if each["name"].casefold() == given.casefold()]
    if named:
        only: Mapping[str, Any] = named[0]  # names are unique
        return only
    found: Mapping[str, Any] = match_id(given, {each["id"]: each for each in listed}, "machine")
    return found


async def _add(api: HubApi, chosen: Namespace) -> None:
    response = await api.post("/api/machines/codes", {"name": chosen.name or ""})
    if chosen.json:
        print_json(response)
        return
    print_note(
        "run this on the other machine, which must have Quarterdeck; it works once, for 10 min:"
    )
    Screen(sys.stdout).line(response["command"], "strong")
    if not response["isReachable"]:
        print_note(
            "this hub can be reached from this computer alone; for an address that others can"
            " reach, start it with quarterdeck up --phone, or see quarterdeck up --help"
        )


async def _rename(api: HubApi, chosen: Namespace) -> None:
    machine = await find_machine(api, chosen.words[0])
    changed = await api.call("PATCH", _path(machine), {"name": chosen.words[1]})
    if chosen.json:
        print_json(changed)
    else:
        print_note(f"renamed {one_line(machine['name'])} to {one_line(changed['name'])}")


async def _remove(api: HubApi, chosen: Namespace) -> None:
    machine = await find_machine(api, chosen.words[0])
    name = one_line(machine["name"])
    if not chosen.yes:
        _confirm(
            f"Remove {name}? This hub will show none of its sessions; agents there keep running."
        )
    await api.call("DELETE", _path(machine))
    if chosen.json:
        print_json({"removed": machine["id"]})
    else:
        print_note(f"removed {name}; its runner is disconnected, and refused from now on")


def _confirm(question: str) -> None:
    """Ask, and return if the answer is yes.

    Raises:
        CommandFailed: if it is not, or there is no terminal to ask at.
    """
    if not sys.stdin.isatty():
        raise CommandFailed("this must be confirmed; add --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was removed")


def _path(machine: Mapping[str, Any]) -> str:
    return f"/api/machines/{quote(machine['id'], safe='')}"


_ACTIONS: Final[Mapping[str, Callable[[HubApi, Namespace], Awaitable[None]]]] = {
    "list": _list,
    "add": _add,
    "rename": _rename,
    "remove": _remove,
}
