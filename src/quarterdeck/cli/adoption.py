"""Adopting sessions from the command line: programs that are followed, and agents' own sessions."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import anyio

from quarterdeck.cli.arguments import DONE
from quarterdeck.cli.hub_access import HubAddress, require_hub
from quarterdeck.cli.terminal.keyboard import has_person
from quarterdeck.cli.terminal.screen import Screen, print_json, print_note
from quarterdeck.errors import CommandFailed, Misused
from quarterdeck.http.client import HubApi
from quarterdeck.protocol.timestamps import iso_seconds
from quarterdeck.views.text import one_line

Json = Mapping[str, Any]
_POLL_SECONDS: Final = 0.5
_MOST_PAGES: Final = 20  # of the list of an agent


def adopt(chosen: Namespace) -> int:
    """Do what `quarterdeck adopt` was asked for.

    Raises:
        Misused: if its arguments contradict each other.
        CommandFailed: if it cannot be done, or was declined.
    """
    if chosen.name is None and (chosen.past or chosen.undo or chosen.list or chosen.no_hook):
        raise Misused("name a program; quarterdeck adopt lists them")
    if chosen.undo and (chosen.past or chosen.list or chosen.session):
        raise Misused("--undo takes no other option; run it by itself")
    return anyio.run(_adopt, chosen)


async def _adopt(chosen: Namespace) -> int:
    api = (await require_hub(HubAddress.of(chosen))).api
    programs = (await api.get("/api/adoption"))["programs"]
    program = next((each for each in programs if each["name"] == chosen.name), None)
    if chosen.name is None:
        _show_programs(programs, chosen)
    elif program is None:
        await _adopt_from_agent(api, chosen)
    elif chosen.undo:
        await _release(api, chosen)
    elif chosen.list:
        found = await api.get(f"{_path(chosen.name)}/sessions")
        _print(chosen, found, lambda: _print_found(found["sessions"]))
    elif chosen.session is not None:
        path = f"{_path(chosen.name)}/sessions/{quote(chosen.session, safe='')}"
        session = await api.post(path, {})
        _print(chosen, session, lambda: print(f"adopted {session['sessionId']}"))
    else:
        await _follow(api, program, chosen)
    return DONE


def _path(name: str) -> str:
    return f"/api/adoption/{quote(name, safe='')}"


def _print(chosen: Namespace, answer: Any, show: Any) -> None:
    if chosen.json:
        print_json(answer)
    else:
        show()


# ---- programs ----------------------------------------------------------------------------------


def _show_programs(programs: Sequence[Json], chosen: Namespace) -> None:
    def show() -> None:
        rows = [(str(each["name"]), _state(each), str(each["folder"])) for each in programs]
        Screen(sys.stdout).table(rows, ("strong", "", "dim"))

    _print(chosen, {"programs": programs}, show)


def _state(program: Json) -> str:
    if "mode" not in program:
        return "not followed" if program["isInstalled"] else "not found"
    words = [f"follows {program['followed']} sessions"]
    if program["running"]:
        words.append(f"{program['running']} open")
    if program["waitingBytes"]:
        words.append(f"{_size(program['waitingBytes'])} to import")
    hook = program.get("hook")
    if hook is not None:
        words.append("answers requests" if hook["isInstalled"] else "no hook")
    return ", ".join(words)


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{max(1, count // 1000)} kB"


async def _follow(api: HubApi, program: Json, chosen: Namespace) -> None:
    wants_hook = not chosen.no_hook and _has_to_add_hook(program)
    if wants_hook:
        _confirm(program, is_confirmed=chosen.yes)
    body = {"past": chosen.past, "hook": wants_hook}
    adopted = await api.post(_path(chosen.name), body)
    if chosen.past:
        adopted = await _imported(api, chosen.name, is_shown=not chosen.json)
    if adopted.get("advice") and not adopted["running"]:
        print_note(str(adopted["advice"]))
    undo = f"; undo it with: quarterdeck adopt {chosen.name} --undo"
    _print(chosen, adopted, lambda: print(f"{adopted['title']}: {_state(adopted)}{undo}"))


def _has_to_add_hook(program: Json) -> bool:
    hook = program.get("hook")
    if hook is None or hook["isInstalled"]:
        return False
    if hook["problem"]:
        raise CommandFailed(f"{hook['problem']}; repair it, or pass --no-hook")
    return True


def _confirm(program: Json, *, is_confirmed: bool) -> None:
    """Show what is added to the settings of a program, and ask for it.

    Raises:
        CommandFailed: if it was declined, or there is no terminal to ask in.
    """
    hook = program["hook"]
    print_note(f"this adds a hook for permission requests to {hook['settings']}: {hook['command']}")
    print_note("your other settings and hooks are kept; without a hub the hook does nothing")
    if is_confirmed:
        return
    if not has_person():
        raise CommandFailed("the hook has to be confirmed; pass --yes, or --no-hook to go without")
    print("Continue? [Y/n] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("", "y", "yes"):
        raise CommandFailed("nothing was changed; --no-hook follows sessions without a hook")


async def _imported(api: HubApi, name: str, *, is_shown: bool) -> Json:
    """Wait until the past of a program is imported; the runner imports it in any case."""
    shown = ""
    await anyio.sleep(2 * _POLL_SECONDS)  # for the first look at its files
    while True:
        programs = (await api.get("/api/adoption"))["programs"]
        program: Json = next(each for each in programs if each["name"] == name)
        if not program["waitingBytes"]:
            return program
        state = f"importing: {_size(program['waitingBytes'])} left"
        if is_shown and state != shown:
            print_note(state)
            shown = state
        await anyio.sleep(_POLL_SECONDS)


async def _release(api: HubApi, chosen: Namespace) -> None:
    released = await api.call("DELETE", _path(chosen.name))
    text = f"{released['title']} is not followed any more; recorded sessions are kept"
    _print(chosen, released, lambda: print(text))


def _print_found(found: Sequence[Json]) -> None:
    rows = [
        (
            str(each["session"]["id"]),
            _found_state(each),
            iso_seconds(each["session"]["changedAt"] / 1000),
            _size(each["session"]["size"]),
            one_line(each["session"]["cwd"]),
        )
        for each in found
        if each["session"].get("parentId") is None
    ]
    Screen(sys.stdout).table(rows, ("strong", "", "dim", "dim", "dim"))


def _found_state(found: Json) -> str:
    session = found["session"]
    if session["isRunning"]:
        return one_line(session["waitingFor"] or session["status"])
    return "adopted" if found["isAdopted"] else "not adopted"


# ---- agents ------------------------------------------------------------------------------------


async def _adopt_from_agent(api: HubApi, chosen: Namespace) -> None:
    """List the sessions that an agent keeps itself, or load one."""
    if chosen.past or chosen.undo or chosen.no_hook:
        raise Misused(f"{chosen.name} is an agent: its sessions are listed, and loaded by their id")
    agent = await api.post(f"/api/agents/known/{quote(chosen.name, safe='')}", {})
    path = f"/api/agents/{agent['agentId']}/sessions"
    if chosen.session is None:
        page = await api.get(path)
        _print(chosen, page, lambda: _print_agents_sessions(page))
        return
    cwd = str(chosen.cwd.absolute()) if chosen.cwd else await _cwd_of(api, path, chosen.session)
    body = {"agent": chosen.name, "cwd": cwd}
    session = await api.post(f"/api/sessions/{quote(chosen.session, safe='')}/load", body)
    _print(chosen, session, lambda: print(f"adopted {session['sessionId']}"))


async def _cwd_of(api: HubApi, path: str, session_id: str) -> str:
    """Return the folder of a session as the agent lists it; this one if it does not."""
    query = ""
    for _ in range(_MOST_PAGES):
        page = await api.get(f"{path}{query}")
        for each in page["sessions"]:
            if each.get("sessionId") == session_id and isinstance(each.get("cwd"), str):
                return str(each["cwd"])
        if not page.get("nextCursor"):
            break
        query = f"?cursor={quote(page['nextCursor'], safe='')}"
    return str(Path.cwd())


def _print_agents_sessions(page: Json) -> None:
    rows = [
        tuple(one_line(str(each.get(key) or "")) for key in ("sessionId", "title", "cwd"))
        for each in page["sessions"]
    ]
    Screen(sys.stdout).table(rows, ("strong", "", "dim"))
    if page.get("nextCursor"):
        print_note("there are more; name one by its id to load it")
