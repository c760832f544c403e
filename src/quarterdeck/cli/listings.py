"""What the hub lists: sessions and devices; and what can be done with a device.

Each public function is a command: it takes the parsed arguments and returns the exit status.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import anyio
import msgspec

from quarterdeck.cli.arguments import DONE
from quarterdeck.cli.commands.devices import SCOPES
from quarterdeck.cli.hub_access import HubAddress, open_hub, require_hub
from quarterdeck.cli.machines import joined_machines, machine_state
from quarterdeck.cli.phone_output import PairingOffer, print_pairing, print_phone
from quarterdeck.cli.sessions import (
    STATES,
    find_session,
    match_id,
    path_of,
    short_ids,
    state_of,
    waiting_sessions,
)
from quarterdeck.cli.terminal.screen import Screen, print_json, print_note
from quarterdeck.errors import Misused
from quarterdeck.http.client import HubApi
from quarterdeck.hub.reach import Reach
from quarterdeck.views.text import one_line

# ---- sessions ----------------------------------------------------------------------------------


def list_sessions(chosen: Namespace) -> int:
    if chosen.end_agent is not None:
        return anyio.run(_end_agent, chosen)
    listed, machines = anyio.run(_fetch_sessions, chosen)
    sessions = select_sessions(listed, chosen)
    if chosen.json:
        print_json({"sessions": sessions[: chosen.limit]})
        return DONE
    _print_sessions(Screen(sys.stdout), sessions[: chosen.limit], machines)
    if not sessions:
        print_note("no matching sessions; quarterdeck run AGENT PROMPT starts one")
    elif len(sessions) > chosen.limit:
        print_note(f"{len(sessions) - chosen.limit} more; raise --limit to see them")
    return DONE


async def _end_agent(chosen: Namespace) -> int:
    """End the agent of a session that does not respond."""
    hub = await require_hub(HubAddress.of(chosen))
    session = await find_session(hub.api, chosen.end_agent)
    ended = await hub.api.post(f"{path_of(session['sessionId'])}/end-agent", {})
    if chosen.json:
        print_json(ended)
    else:
        name = one_line(session.get("agent") or "the agent")
        print_note(f"ended {name}; queued prompts run with a new process")
    return DONE


async def _fetch_sessions(
    chosen: Namespace,
) -> tuple[list[dict[str, Any]], list[Mapping[str, Any]]]:
    """Return the sessions, and the machines that have joined the hub."""
    which = "only" if chosen.archived else "exclude"
    async with open_hub(HubAddress.of(chosen)) as hub:
        listed = (await hub.api.get(f"/api/sessions?archived={which}"))["sessions"]
        waiting = await waiting_sessions(hub.api)
        machines = await joined_machines(hub.api)
    return [{**session, "state": state_of(session, waiting)} for session in listed], machines


def select_sessions(sessions: Sequence[dict[str, Any]], chosen: Namespace) -> list[dict[str, Any]]:
    """Return the sessions in the wanted state, grouped by state, the newest first."""
    short = short_ids([session["sessionId"] for session in sessions])
    wanted = [
        {**session, "shortId": short[session["sessionId"]]}
        for session in reversed(sessions)
        if (chosen.state is None or session["state"] == chosen.state)
        and (chosen.all or chosen.archived or chosen.state == "done" or session["state"] != "done")
    ]
    wanted.sort(key=lambda session: STATES.index(session["state"]))
    return wanted


def _print_sessions(
    screen: Screen, sessions: Sequence[dict[str, Any]], machines: Sequence[Mapping[str, Any]]
) -> None:
    """Print a line per session; with its machine, if there are others than the hub's own."""
    names = {each["id"]: _machine(each) for each in machines}
    screen.table(
        [
            (
                session["shortId"],
                session["state"].replace("-", " "),
                *((names.get(session.get("machine", ""), "-"),) if names else ()),
                one_line(session.get("agent") or "-"),
                f"{session['lastSeq']} events",
                _title(session),
            )
            for session in sessions
        ],
        ("strong", "", *(("",) if names else ()), "", "dim", ""),
    )


def _machine(machine: Mapping[str, Any]) -> str:
    name = one_line(machine["name"])
    return name if machine["state"] == "connected" else f"{name} ({machine_state(machine)})"


def _title(session: Mapping[str, Any]) -> str:
    title = one_line(session.get("title") or session["cwd"])
    parent = session.get("parentSessionId")
    return title if parent is None else f"{title} (sub-agent of {one_line(parent)})"


# ---- devices -----------------------------------------------------------------------------------

_OPERANDS: Final = {
    "list": "no ID",
    "pair": "no ID",
    "token": "no ID",
    "log": "no ID",
    "revoke": "one ID",
    "rename": "an ID and a name",
    "scope": "an ID and a SCOPE, or MACHINE=SCOPE for one machine",
}
_COUNTS: Final = {"list": 0, "pair": 0, "token": 0, "log": 0, "revoke": 1, "rename": 2, "scope": 2}


def manage_devices(chosen: Namespace) -> int:
    if len(chosen.words) != _COUNTS[chosen.action]:
        raise Misused(
            f"devices {chosen.action} takes {_OPERANDS[chosen.action]}, not {len(chosen.words)}"
            f" argument{'s' * (len(chosen.words) != 1)}; see quarterdeck devices --help"
        )
    return anyio.run(_manage_devices, chosen)


async def _manage_devices(chosen: Namespace) -> int:
    hub = await require_hub(HubAddress.of(chosen))
    await _ACTIONS[chosen.action](hub.api, chosen)
    return DONE


async def _list_devices(api: HubApi, chosen: Namespace) -> None:
    response = await api.get("/api/devices")
    if chosen.json:
        print_json(response)
    else:
        _print_devices(Screen(sys.stdout), response["devices"])


async def _pair(api: HubApi, chosen: Namespace) -> None:
    body = {"scope": chosen.scope or "approve", "name": chosen.name or ""}
    if chosen.expires is not None:
        body["deviceSeconds"] = chosen.expires
    response = await api.post("/api/pairings", body)
    if chosen.json:
        print_json(response)
        return
    _print_pairing(Screen(sys.stdout), response, with_qr=sys.stdout.isatty())


async def _create_token(api: HubApi, chosen: Namespace) -> None:
    body = {"scope": chosen.scope or "prompt", "name": chosen.name or ""}
    if chosen.expires is not None:
        body["deviceSeconds"] = chosen.expires
    response = await api.post("/api/devices", body)
    if chosen.json:
        print_json(response)
        return
    device = response["device"]
    # The token alone is on standard output, so that a script can store it.
    Screen(sys.stdout).line(str(response["token"]))
    print_note(
        f"this is shown once; {one_line(device['name'])} has scope {device['scope']}, and ends with"
        f" quarterdeck devices revoke {device['id']}"
    )


async def _print_history(api: HubApi, chosen: Namespace) -> None:
    response = await api.get("/api/devices/log")
    if chosen.json:
        print_json(response)
        return
    Screen(sys.stdout).table(
        [
            (
                each["at"],
                each["what"],
                one_line(each["name"]),
                one_line(each.get("detail") or each.get("address") or ""),
            )
            for each in response["events"]
        ],
        ("dim", "strong", "", ""),
    )


async def _revoke(api: HubApi, chosen: Namespace) -> None:
    device = await _find_device(api, chosen.words[0])
    answer = await api.call("DELETE", f"/api/devices/{quote(device['id'], safe='')}")
    _report(chosen, {"revoked": device["id"]}, f"revoked {one_line(device['name'])}")
    if answer:  # not stored yet
        print_note(answer["message"])


async def _rename(api: HubApi, chosen: Namespace) -> None:
    device = await _find_device(api, chosen.words[0])
    path = f"/api/devices/{quote(device['id'], safe='')}"
    changed = await api.call("PATCH", path, {"name": chosen.words[1]})
    words = f"renamed {one_line(device['name'])} to {one_line(changed['name'])}"
    _report(chosen, changed, words)


async def _change_scope(api: HubApi, chosen: Namespace) -> None:
    device = await _find_device(api, chosen.words[0])
    machine, equals, scope = chosen.words[1].rpartition("=")
    if scope not in SCOPES:
        raise Misused(f"{scope!r} is not a scope; choose one of: {', '.join(SCOPES)}")
    change: dict[str, Any] = {"scope": scope}
    where = ""
    if equals:
        limits = {**device.get("machineScopes", {}), await _machine_id(api, machine): scope}
        change, where = {"machineScopes": limits}, f" on {one_line(machine)}"
    path = f"/api/devices/{quote(device['id'], safe='')}"
    changed = await api.call("PATCH", path, change)
    _report(chosen, changed, f"{one_line(device['name'])} has the scope {scope}{where}")


async def _machine_id(api: HubApi, given: str) -> str:
    """Return the id of a machine by its name or id; `here` is the hub's own, `*` all others."""
    if given in ("here", "*"):
        return given
    machines = (await api.get("/api/machines"))["machines"]
    for each in machines:
        if given in (each["id"], each["name"]):
            return str(each["id"])
    names = ", ".join(["here", "*", *(one_line(each["name"]) for each in machines)])
    raise Misused(f"there is no machine {given!r}; choose one of: {names}")


async def _find_device(api: HubApi, given: str) -> Mapping[str, Any]:
    listed = (await api.get("/api/devices"))["devices"]
    found: Mapping[str, Any] = match_id(given, {each["id"]: each for each in listed}, "device")
    return found


def _report(chosen: Namespace, response: Any, words: str) -> None:
    if chosen.json:
        print_json(response)
    else:
        print_note(words)


def _print_devices(screen: Screen, devices: Sequence[Mapping[str, Any]]) -> None:
    short = short_ids([device["id"] for device in devices])
    screen.table(
        [(short[each["id"]], _scope(each), _last_seen(each), each["name"]) for each in devices],
        ("strong", "", "dim", ""),
    )


def _scope(device: Mapping[str, Any]) -> str:
    is_limited = bool(device.get("machineScopes"))
    return f"{device['scope']}, less on some machines" if is_limited else str(device["scope"])


def _last_seen(device: Mapping[str, Any]) -> str:
    seen = f"seen {device.get('lastSeenAt') or 'never'}"
    address = device.get("lastAddress")
    return f"{seen} from {one_line(address)}" if address else seen


def _print_pairing(screen: Screen, response: Mapping[str, Any], *, with_qr: bool) -> None:
    """Print the link and the code that pair one device; a QR code only if a phone can open it."""
    pairing = response["pairing"]
    offer = PairingOffer(link=response["link"], code=response["code"], scope=pairing["scope"])
    # A hub of an earlier version does not report how phones reach it.
    reach = msgspec.convert(response["reach"], Reach) if "reach" in response else None
    if reach is not None and reach.is_usable:
        print_phone(screen, reach, offer, with_qr=with_qr)
        return
    print_pairing(screen, offer)
    if reach is not None:
        screen.line(f"{reach.found}; this link works only on this computer.", "dim")
        screen.line(reach.next_step, "dim")


_ACTIONS: Final[Mapping[str, Callable[[HubApi, Namespace], Awaitable[None]]]] = {
    "list": _list_devices,
    "pair": _pair,
    "token": _create_token,
    "log": _print_history,
    "revoke": _revoke,
    "rename": _rename,
    "scope": _change_scope,
}
