"""`quarterdeck agents`: list agents; install, update and remove them through the hub's runner.

Without a running hub the command opens one for itself, so an installation needs nothing else.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio

from quarterdeck.cli.arguments import DONE, FAILED
from quarterdeck.cli.hub_access import HubAddress, open_hub
from quarterdeck.cli.machines import find_machine
from quarterdeck.cli.terminal.screen import Screen, print_json, print_note
from quarterdeck.errors import CommandFailed, HubDeclined, Misused
from quarterdeck.http.client import HubApi
from quarterdeck.http.headers import path_segment
from quarterdeck.hub.fleet.identifiers import LOCAL, machine_of
from quarterdeck.views.text import one_line

_POLL_SECONDS: Final = 0.3
_STAGES: Final = {
    "resolving": "preparing",
    "cache-hit": "using what was downloaded",
    "downloading": "downloading",
    "verifying": "verifying",
    "extracting": "unpacking",
    "installed": "installed",
    "failed": "failed",
}


def manage_agents(chosen: Namespace) -> int:
    """Run the command."""
    if chosen.action in ("list", "refresh") and chosen.names:
        raise Misused(f"agents {chosen.action} takes no name; see quarterdeck agents --help")
    if chosen.action in ("install", "remove") and not chosen.names:
        raise Misused(f"agents {chosen.action} needs a name; quarterdeck agents lists them")
    if chosen.machine is not None and chosen.action != "list":
        raise Misused(f"agents {chosen.action} has no --machine; run it on that machine")
    return anyio.run(_manage, chosen)


async def _manage(chosen: Namespace) -> int:
    async with open_hub(HubAddress.of(chosen)) as hub:
        match chosen.action:
            case "install":
                return await _install(hub.api, chosen.names, is_json=chosen.json)
            case "update":
                return await _update(hub.api, chosen)
            case "remove":
                return await _remove(hub.api, chosen)
            case "refresh":
                return await _refresh(hub.api, chosen)
            case _:
                return await _list(hub.api, chosen)


# ---- listing -----------------------------------------------------------------------------------


async def _list(api: HubApi, chosen: Namespace) -> int:
    running = (await api.get("/api/agents"))["agents"]
    query, place = "", ""
    if chosen.machine is not None:
        place = (await find_machine(api, chosen.machine))["id"]
        query = f"?machine={place}"
    known = (await api.get(f"/api/agents/known{query}"))["agents"]
    running = [each for each in running if _machine_of(each["agentId"]) == place]
    if chosen.json:
        print_json({"agents": known, "running": running})
    else:
        _print_agents(Screen(sys.stdout), known, running)
    return DONE


def _machine_of(agent_id: str) -> str:
    machine_id = machine_of(agent_id).machine_id
    return "" if machine_id == LOCAL else machine_id


def _print_agents(
    screen: Screen, known: Sequence[Mapping[str, Any]], running: Sequence[Mapping[str, Any]]
) -> None:
    """Print a line per agent: running first, then installed, then those that can be installed."""
    statuses = {each.get("name"): each["status"] for each in running}
    rows = [
        (
            str(agent["name"]),
            str(statuses.pop(agent["name"], "installed" if agent["installed"] else "not found")),
            _version(agent),
            str(agent["source"]),
            _origin(agent),
        )
        for agent in known
    ]
    rows += [
        (one_line(name or "?"), str(status), "", "by command", "")
        for name, status in statuses.items()
    ]
    order = {"not found": 2, "installed": 1}
    rows.sort(key=lambda row: order.get(row[1], 0))
    screen.table(rows, ("strong", "", "dim", "dim", "dim"))


def _version(agent: Mapping[str, Any]) -> str:
    has, tested = agent.get("installedVersion"), agent.get("testedVersion")
    if has is not None and tested is not None and has != tested:
        return f"{has} ({tested} tested)"
    return str(has or "")


def _origin(agent: Mapping[str, Any]) -> str:
    """Return what starts an agent; of one that is not there, what installs it."""
    if agent["installed"] or not agent.get("package"):
        return str(agent.get("url") or " ".join(map(str, (agent["command"], *agent["args"]))))
    return f"quarterdeck agents install {agent['name']}  ({agent['package']})"


# ---- installing --------------------------------------------------------------------------------


async def _install(api: HubApi, names: Sequence[str], *, is_json: bool) -> int:
    """Install agents one after the other, and report each."""
    jobs = []
    for word in names:
        name, _, version = word.partition("@")
        path = f"/api/agents/known/{path_segment(name)}/install"
        job = await api.post(path, {"version": version} if version else {})
        jobs.append(await _followed(api, job, InstallLine(is_quiet=is_json)))
    if is_json:
        print_json({"installs": jobs})
    else:
        for job in jobs:
            _print_result(job)
    return FAILED if any(job["state"] == "failed" for job in jobs) else DONE


def _print_result(job: Mapping[str, Any]) -> None:
    if job["state"] == "failed":
        print_note(one_line(job.get("reason") or f"{job['name']} was not installed"))
        return
    for line in job.get("changes", ()):
        Screen(sys.stdout).line(str(line))


async def _followed(api: HubApi, job: Mapping[str, Any], line: InstallLine) -> Mapping[str, Any]:
    """Wait for the end of an installation; print how far it is."""
    while job.get("state", "running") == "running":
        line.show(job)
        await anyio.sleep(_POLL_SECONDS)
        jobs = (await api.get("/api/agents/installs"))["installs"]
        found = next((each for each in jobs if each["name"] == job["name"]), None)
        if found is None:
            raise CommandFailed(f"the installation of {job['name']} is gone; start it again")
        job = found
    line.end()
    return {"state": "running", **job}


class InstallLine:
    """The progress of an installation: one line on a terminal, else a line per stage."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._screen = Screen(sys.stderr)
        self._is_quiet = is_quiet
        self._last = ""

    def show(self, job: Mapping[str, Any]) -> None:
        stage = str(job.get("stage", "resolving"))
        words = f"{job['name']} {job.get('version') or ''}: {_STAGES.get(stage, stage)}"
        if job.get("reason"):
            words += f" {one_line(job['reason'])}"
        if self._is_quiet:
            return
        if not self._screen.is_terminal:
            if words != self._last:
                print_note(words)
            self._last = words
            return
        self._last = words + _amount(job)
        self._screen.write(f"\r\x1b[K{self._last[: self._screen.width]}")
        self._screen.flush()

    def end(self) -> None:
        if self._last and self._screen.is_terminal:
            self._screen.write("\r\x1b[K")
            self._screen.flush()


def _amount(job: Mapping[str, Any]) -> str:
    done, total = job.get("downloadedBytes"), job.get("totalBytes")
    if not done:
        return ""
    return f", {done / 1e6:.1f} MB" + (f" of {total / 1e6:.1f} MB" if total else "")


async def _update(api: HubApi, chosen: Namespace) -> int:
    """Update what was installed: to the tested versions, or to those that are named."""
    known = (await api.get("/api/agents/known"))["agents"]
    installed = [each for each in known if each.get("installedVersion") is not None]
    names = chosen.names
    if not names:
        names = [
            each["name"]
            for each in installed
            if each.get("testedVersion") not in (None, each["installedVersion"])
        ]
    missing = [
        word for word in names if word.partition("@")[0] not in {each["name"] for each in installed}
    ]
    if missing:
        raise CommandFailed(
            f"{missing[0]} was not installed here; quarterdeck agents install {missing[0]}"
        )
    if not names and not chosen.json:
        listed = ", ".join(f"{each['name']} {each['installedVersion']}" for each in installed)
        print_note(f"everything is up to date: {listed}" if listed else "no agent is installed")
        return DONE
    return await _install(api, names, is_json=chosen.json)


async def _remove(api: HubApi, chosen: Namespace) -> int:
    for name in chosen.names:
        await api.call("DELETE", f"/api/agents/known/{path_segment(name)}/install")
        if not chosen.json:
            print_note(
                f"removed {one_line(name)}; a process that runs keeps its files until it ends"
            )
    if chosen.json:
        print_json({"removed": chosen.names})
    return DONE


async def _refresh(api: HubApi, chosen: Namespace) -> int:
    try:
        found = await api.post("/api/agents/registry")
    except HubDeclined as error:
        raise CommandFailed(str(error)) from error
    if chosen.json:
        print_json(found)
    else:
        print_note("the registry has changed" if found["changed"] else "the registry is up to date")
    return DONE
