"""`quarterdeck devices`: who may use the hub."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import anyio

from quarterdeck.cli.arguments import DONE, read
from quarterdeck.cli.hub_link import Place, require_hub
from quarterdeck.cli.hub_sessions import match_id, short_ids
from quarterdeck.cli.parsers import devices_parser
from quarterdeck.cli.printing import print_json
from quarterdeck.cli.screen import Screen, say
from quarterdeck.cli.text import one_line
from quarterdeck.errors import Misused
from quarterdeck.http.client import HubApi
from quarterdeck.server.invitation import qr_text

_WORDS: Final = {"list": 0, "pair": 0, "revoke": 1, "rename": 2}


def run(arguments: list[str]) -> int:
    chosen = read(devices_parser(), arguments)
    if chosen is None:
        return DONE
    if len(chosen.words) != _WORDS[chosen.action]:
        raise Misused(
            f"devices {chosen.action} takes {_WORDS[chosen.action]} words, not"
            f" {len(chosen.words)}; quarterdeck devices --help shows how"
        )
    return anyio.run(_run, chosen)


async def _run(chosen: Namespace) -> int:
    hub = await require_hub(Place.of(chosen))
    await _ACTIONS[chosen.action](hub.api, chosen)
    return DONE


async def _list(api: HubApi, chosen: Namespace) -> None:
    answer = await api.get("/api/devices")
    if chosen.json:
        print_json(answer)
    else:
        show(Screen(sys.stdout), answer["devices"])


async def _pair(api: HubApi, chosen: Namespace) -> None:
    body = {"scope": chosen.scope, "name": chosen.name or ""}
    answer = await api.post("/api/pairings", body)
    if chosen.json:
        print_json(answer)
        return
    invite(Screen(sys.stdout), answer, with_qr=sys.stdout.isatty())


async def _revoke(api: HubApi, chosen: Namespace) -> None:
    device = await _find(api, chosen.words[0])
    await api.call("DELETE", f"/api/devices/{quote(device['id'], safe='')}")
    _told(chosen, {"revoked": device["id"]}, f"{one_line(device['name'])} is out")


async def _rename(api: HubApi, chosen: Namespace) -> None:
    device = await _find(api, chosen.words[0])
    place = f"/api/devices/{quote(device['id'], safe='')}"
    changed = await api.call("PATCH", place, {"name": chosen.words[1]})
    words = f"{one_line(device['name'])} is now called {one_line(changed['name'])}"
    _told(chosen, changed, words)


async def _find(api: HubApi, given: str) -> Mapping[str, Any]:
    listed = (await api.get("/api/devices"))["devices"]
    found: Mapping[str, Any] = match_id(given, {each["id"]: each for each in listed}, "device")
    return found


def _told(chosen: Namespace, answer: Any, words: str) -> None:
    if chosen.json:
        print_json(answer)
    else:
        say(words)


def show(screen: Screen, devices: Sequence[Mapping[str, Any]]) -> None:
    """Write a line for each device."""
    short = short_ids([device["id"] for device in devices])
    screen.table(
        [
            (
                short[device["id"]],
                device["scope"],
                _seen(device),
                device["name"],
            )
            for device in devices
        ],
        ("strong", "", "dim", ""),
    )


def _seen(device: Mapping[str, Any]) -> str:
    seen = f"seen {device.get('lastSeenAt') or 'never'}"
    address = device.get("lastAddress")
    return f"{seen} from {one_line(address)}" if address else seen


def invite(screen: Screen, answer: Mapping[str, Any], *, with_qr: bool) -> None:
    """Show the codes that let one device in."""
    link = str(answer["link"])
    if with_qr and screen.is_fancy:
        screen.line(qr_text(link).rstrip("\n"))
    screen.line(f"link  {link}")
    screen.line(f"code  {answer['code']}", "strong")
    pairing = answer["pairing"]
    screen.line(f"for one device that may {pairing['scope']}, until {pairing['expiresAt']}", "dim")


_ACTIONS: Final[Mapping[str, Callable[[HubApi, Namespace], Awaitable[None]]]] = {
    "list": _list,
    "pair": _pair,
    "revoke": _revoke,
    "rename": _rename,
}
