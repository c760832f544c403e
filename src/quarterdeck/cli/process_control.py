"""`down`, `status`, `restart`, and the second half of `upgrade`: hub and runner as processes.

Each public function is a command: it takes the parsed arguments and returns the exit status. `down`
sends signals, which works when nothing else does; the others ask the hub.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread

from quarterdeck._version import __version__
from quarterdeck.cli.arguments import DONE, FAILED
from quarterdeck.cli.hub_access import HubAddress, HubHandle, require_hub, running_hub
from quarterdeck.cli.machines import duration, print_machines
from quarterdeck.cli.runner_start import RUNNER_SOCKET
from quarterdeck.cli.running_processes import RunningProcess, end_process, find_process
from quarterdeck.cli.services import stop_by_service
from quarterdeck.cli.terminal.screen import Screen, print_json, print_note
from quarterdeck.errors import CommandFailed, HubDeclined, QuarterdeckError
from quarterdeck.machine.home_locks import BOTH, Role, lock_owner
from quarterdeck.protocol.timestamps import seconds_of

_RESTART_SECONDS: Final = 30.0
"""For a hub to replace itself; connections wait meanwhile."""
_POLL_SECONDS: Final = 0.1
JOINED: Final = "joined.json"
"""Of the package `runner.link`, which is slow to import."""


# ---- down ----------------------------------------------------------------------------------------


def stop(chosen: Namespace) -> int:
    home = HubAddress.of(chosen).home
    ended = anyio.run(_end_all, home, ("hub",) if chosen.hub else BOTH)
    if chosen.json:
        print_json({"ended": [{"role": each.role, "pid": each.pid} for each in ended]})
        return DONE
    screen = Screen(sys.stdout)
    for process in ended:
        screen.line(f"the {process.role} (process {process.pid}) has ended")
    if not ended:
        screen.line(f"nothing runs in {home}")
    if any(each.role == "runner" for each in ended) and _joined_hubs(home):
        print_note("hubs that this machine has joined have it again after: quarterdeck join")
    return DONE


async def _end_all(home: Path, roles: tuple[Role, ...]) -> list[RunningProcess]:
    """End the hub first: it would start a runner again."""
    ended = []
    for role in roles:
        process = find_process(home, role)
        if process is None:
            continue
        # A service would start again what ends in another way.
        if await to_thread.run_sync(stop_by_service, role, process.pid, home):
            print_note(f"the {role} starts at the next login, or by: quarterdeck service start")
        else:
            await end_process(process)
        ended.append(process)
    return ended


# ---- status --------------------------------------------------------------------------------------


def show_status(chosen: Namespace) -> int:
    home = HubAddress.of(chosen).home
    facts = anyio.run(_status, home)
    if chosen.json:
        print_json(facts)
    else:
        _print_status(Screen(sys.stdout), facts)
    is_served = facts["hub"] or facts["joined"]
    return DONE if is_served and facts["work"] and facts["work"]["isConnected"] else FAILED


async def _status(home: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {"home": str(home), "hub": None, "runner": None, "work": None}
    facts |= {"machines": [], "joined": []}
    for role in BOTH:
        process = find_process(home, role)
        if process is not None:
            known = ("pid", "version", "startedAt", "url")
            facts[role] = {name: process.facts[name] for name in known if name in process.facts}
    try:
        facts["joined"] = _joined_hubs(home)
        if facts["hub"] is not None:
            hub = await running_hub(home)
            facts["work"] = await _work_of_hub(hub)
            facts["machines"] = await _machines_of(hub)
        elif facts["runner"] is not None:
            facts["work"] = await _work_of_runner(home)
    except QuarterdeckError as error:
        facts["problem"] = str(error)
    return facts


async def _work_of_hub(hub: HubHandle | None) -> dict[str, Any] | None:
    if hub is None:
        return None  # it has just ended
    runner = await _asked(hub, "GET", "/api/runner")
    found = await hub.api.get("/api/hub")
    return {
        "sessions": found["sessions"],
        "runningTurns": runner["runningTurns"],
        "pendingRequests": found["pendingPermissions"],
        "queuedPrompts": found["queuedPrompts"],
        "log": (await hub.api.get("/healthz"))["status"],
        "isConnected": runner["isConnected"],
        "isDraining": runner["isDraining"],
    }


async def _machines_of(hub: HubHandle | None) -> list[dict[str, Any]]:
    if hub is None:
        return []
    with suppress(HubDeclined):  # an older version
        listed: list[dict[str, Any]] = (await hub.api.get("/api/machines"))["machines"]
        return listed
    return []


def _joined_hubs(home: Path) -> list[dict[str, Any]]:
    if not (home / JOINED).exists():
        return []
    from quarterdeck.cli.joining import joined_hubs  # noqa: PLC0415  # slow, and seldom used

    return joined_hubs(home)


async def _work_of_runner(home: Path) -> dict[str, Any]:
    from quarterdeck.runner.link import connected_runner  # noqa: PLC0415  # slow, and seldom used

    async with connected_runner(home / RUNNER_SOCKET) as runner:
        health = runner.health()
        pending = (*runner.pending_permissions(), *runner.pending_elicitations())
        return {
            "sessions": len(runner.sessions()),
            "runningTurns": health.running_turns,
            "pendingRequests": len(pending),
            "queuedPrompts": await runner.count_queued_prompts(),
            "log": "ok" if health.is_healthy and not health.damages else "damaged or degraded",
            "isConnected": True,
            "isDraining": health.is_draining,
        }


def _print_status(screen: Screen, facts: Mapping[str, Any]) -> None:
    hub, runner, work = facts["hub"], facts["runner"], facts["work"]
    screen.table([("hub", *_process_cells(hub)), ("runner", *_process_cells(runner))])
    if work is not None:
        _print_work(screen, work)
    if facts["machines"]:
        print_machines(screen, facts["machines"])
    if facts["joined"]:
        from quarterdeck.cli.joining import print_hubs  # noqa: PLC0415  # as above

        print_hubs(screen, facts["joined"])
    if "problem" in facts:
        screen.line(facts["problem"], "bad")
    if hub is None and not facts["joined"]:
        doing = "agents run; to connect to them" if runner else "nothing runs; to start"
        screen.line(f"{doing}: quarterdeck up", "strong")


def _print_work(screen: Screen, work: Mapping[str, Any]) -> None:
    turns = _count(work["runningTurns"], "running turn")
    requests = _count(work["pendingRequests"], "pending request")
    queued = _count(work["queuedPrompts"], "queued prompt")
    screen.line(f"{_count(work['sessions'], 'session')}: {turns}, {requests}, {queued}")
    if work["log"] != "ok":
        screen.line(f"the log is {work['log']}; run quarterdeck doctor", "bad")
    if work["isDraining"]:
        screen.line("no turn starts: the runner restarts when running turns have ended", "warn")
    if not work["isConnected"]:
        screen.line("the hub cannot reach its runner; see runner.log", "bad")


def _process_cells(facts: Mapping[str, Any] | None) -> tuple[str, ...]:
    if facts is None:
        return ("not running", "", "", "")
    version = str(facts.get("version", "unknown"))
    other = "" if version == __version__ else f" (installed: {__version__})"
    up = f"up {duration(time.time() - seconds_of(facts['startedAt']))}"
    return (f"process {facts['pid']}", f"version {version}{other}", up, str(facts.get("url", "")))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


# ---- restart, upgrade ----------------------------------------------------------------------------


def restart(chosen: Namespace) -> int:
    address = HubAddress.of(chosen)
    if chosen.runner:
        anyio.run(_restart_runner, address, _wait_seconds(chosen))
    else:
        anyio.run(_restart_hub, address)
    return DONE


def use_installed_version(chosen: Namespace) -> int:
    """Restart what has another version than the installed one: the hub, then the runner."""
    anyio.run(_upgrade, HubAddress.of(chosen), _wait_seconds(chosen))
    return DONE


async def _upgrade(address: HubAddress, wait_seconds: float | None) -> None:
    if _is_runner_alone(address):
        await _upgrade_runner(address, wait_seconds)
        return
    hub = await require_hub(address)
    version = (await hub.api.get("/api/hub"))["version"]
    if version == __version__:
        print_note(f"the hub has version {version} already")
    else:
        await _restart_hub(address)
        hub = await require_hub(address)
    version = (await _asked(hub, "GET", "/api/runner"))["version"]
    if version == __version__:
        print_note(f"the runner has version {version} already")
    else:
        await _restart_runner(address, wait_seconds)


async def _upgrade_runner(address: HubAddress, wait_seconds: float | None) -> None:
    found = find_process(address.home, "runner")
    version = None if found is None else found.facts.get("version")
    if version == __version__:
        print_note(f"the runner has version {version} already")
    else:
        await _restart_runner(address, wait_seconds)


def _is_runner_alone(address: HubAddress) -> bool:
    """Whether a runner runs without a hub, on a machine that has joined one elsewhere."""
    home = address.home
    has_joined = (home / JOINED).exists()
    return has_joined and lock_owner(home, "hub") is None and lock_owner(home, "runner") is not None


def _wait_seconds(chosen: Namespace) -> float | None:
    if chosen.now:
        return 0.0
    return None if chosen.wait is None else chosen.wait * 60.0


async def _restart_hub(address: HubAddress) -> None:
    """Restart the hub and wait until the new one answers.

    Raises:
        CommandFailed: if it does not.
    """
    hub = await require_hub(address)
    before = _instance(address)
    version = (await _asked(hub, "POST", "/api/restart", {}))["version"]
    with anyio.move_on_after(_RESTART_SECONDS):
        while _instance(address) == before:  # noqa: ASYNC110 - another process writes it
            await anyio.sleep(_POLL_SECONDS)
        if _instance(address) is None:
            raise CommandFailed(
                "the hub has ended while it was restarted, and agents keep running; its output"
                " has the reason; to start it: quarterdeck up"
            )
        await require_hub(address)
        print_note(f"the hub was restarted: version {version}; agents kept running")
        return
    raise CommandFailed("the hub does not answer; see its output, or run: quarterdeck status")


async def _asked(hub: HubHandle, method: str, path: str, body: Any = None) -> Any:
    """Call a hub that `up` runs.

    Raises:
        CommandFailed: if it is another hub.
    """
    try:
        return await hub.api.call(method, path, body)
    except HubDeclined as error:
        if error.status != 404:
            raise
        raise CommandFailed(
            "this hub has no runner of its own: it is an older version, or belongs to"
            " quarterdeck proxy; stop it with quarterdeck down, then run quarterdeck up"
        ) from error


def _instance(address: HubAddress) -> object:
    """Return what differs for each start of a hub; None if none runs."""
    found = find_process(address.home, "hub")
    return None if found is None else found.facts.get("instance")


async def _restart_runner(address: HubAddress, wait_seconds: float | None) -> None:
    """Restart the runner and wait for it; Ctrl-C cancels that while turns run.

    Raises:
        CommandFailed: if it does not restart.
    """
    if _is_runner_alone(address):
        from quarterdeck.cli.runner_restart import restart_alone  # noqa: PLC0415  # seldom used

        await restart_alone(address, wait_seconds)
        return
    hub = await require_hub(address)
    body = {} if wait_seconds is None else {"waitSeconds": wait_seconds}
    await _asked(hub, "POST", "/api/runner/restart", body)
    try:
        await _follow_restart(hub)
    except BaseException:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_RESTART_SECONDS):
            await _cancel_restart(hub)
        raise


async def _follow_restart(hub: HubHandle) -> None:
    told: int | None = None
    while True:
        runner = await hub.api.get("/api/runner")
        state, turns = runner["restart"]["state"], runner["runningTurns"]
        if state == "draining" and turns and turns != told:
            told = turns
            print_note(f"waiting for {_count(turns, 'running turn')} to end; Ctrl-C cancels this")
        if state == "failed":
            raise CommandFailed(runner["restart"]["error"])
        if state == "none":
            raise CommandFailed("the hub was restarted meanwhile; the runner keeps running")
        if state == "cancelled":
            raise CommandFailed("the restart was cancelled; the runner keeps running")
        if state == "done":
            print_note(f"the runner was restarted: version {runner['version']}")
            return
        await anyio.sleep(_POLL_SECONDS)


async def _cancel_restart(hub: HubHandle) -> None:
    with suppress(QuarterdeckError):  # the hub has gone, and the restart with it
        state = (await hub.api.call("DELETE", "/api/runner/restart", None))["state"]
        if state == "cancelled":
            print_note("the restart was cancelled; the runner keeps running")
