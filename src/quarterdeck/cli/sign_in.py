"""`quarterdeck login`: the ways to sign in to an agent, and a terminal in the terminal.

The program that signs in runs in a pseudo-terminal of the runner, like the agent itself. This
command shows what it prints and sends what is typed; it keeps neither.
"""

from __future__ import annotations

import os
import shutil
import sys
import termios
import tty
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import anyio

from quarterdeck.cli.arguments import DONE, FAILED
from quarterdeck.cli.hub_access import HubAddress, open_hub, unknown_agent
from quarterdeck.cli.terminal.keyboard import has_person
from quarterdeck.cli.terminal.screen import Screen, print_json, print_note
from quarterdeck.errors import CommandFailed, HubDeclined
from quarterdeck.http.client import HubApi
from quarterdeck.http.headers import path_segment
from quarterdeck.views.text import one_line
from quarterdeck.wire import background_tasks

_NOT_FOUND: Final = 404
_ESCAPE: Final = b"\x1d"  # Ctrl-]
_KINDS: Final = {"agent": "the agent does it", "terminal": "in this terminal"}


def sign_in(chosen: Namespace) -> int:
    """Run the command."""
    return anyio.run(_sign_in, chosen)


async def _sign_in(chosen: Namespace) -> int:
    async with open_hub(HubAddress.of(chosen)) as hub:
        path = f"/api/agents/known/{path_segment(chosen.agent)}/sign-in"
        try:
            methods = (await hub.api.get(path))["methods"]
        except HubDeclined as error:
            if error.status == _NOT_FOUND:
                raise await unknown_agent(hub.api, chosen.agent) from error
            raise
        if chosen.list or not methods:
            return _list(chosen, methods)
        method = _choose(chosen, methods)
        if method["kind"] == "environment":
            names = " or ".join(method["variables"])
            print_note(f"set {names} in the environment of the hub, then: quarterdeck restart")
            return DONE
        size = shutil.get_terminal_size()
        body = {"methodId": method["id"], "columns": size.columns, "rows": size.lines}
        begun = await hub.api.post(path, body)
        if begun["kind"] == "terminal" and sys.stdin.isatty():
            print_note("press Ctrl-] to cancel")
        elif begun["kind"] == "agent":
            print_note("follow the agent's own sign-in, for instance in the browser that it opens")
        return _report(chosen, await _followed(hub.api, begun))


def _list(chosen: Namespace, methods: Sequence[Mapping[str, Any]]) -> int:
    if chosen.json:
        print_json({"methods": methods})
    elif not methods:
        print_note(f"{one_line(chosen.agent)} offers no sign-in: it needs none, or has one already")
    else:
        rows = [(each["id"], _way(each), _words(each)) for each in methods]
        Screen(sys.stdout).table(rows, ("strong", "dim", ""))
    return DONE


def _way(method: Mapping[str, Any]) -> str:
    if method["kind"] == "environment":
        return " or ".join(method["variables"])
    return _KINDS.get(method["kind"], str(method["kind"]))


def _words(method: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (method["name"], method.get("description", ""))))


def _choose(chosen: Namespace, methods: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the method that is named; else the only one, or the one that the user chooses."""
    if chosen.method is not None:
        for each in methods:
            if each["id"] == chosen.method:
                return each
        listed = ", ".join(str(each["id"]) for each in methods)
        raise CommandFailed(f"unknown method {one_line(chosen.method)!r}; choose one of {listed}")
    if len(methods) == 1:
        return methods[0]
    if not has_person():
        listed = ", ".join(str(each["id"]) for each in methods)
        raise CommandFailed(f"choose a sign-in method with --method: {listed}")
    screen = Screen(sys.stderr)
    for number, each in enumerate(methods, 1):
        screen.line(f"{number}  {one_line(_words(each))}  ({_way(each)})")
    answer = input(f"sign in by (1-{len(methods)}): ").strip()
    if not answer.isdecimal() or not 1 <= int(answer) <= len(methods):
        raise CommandFailed("nothing was chosen; run the command again")
    return methods[int(answer) - 1]


async def _followed(api: HubApi, begun: Mapping[str, Any]) -> Mapping[str, Any]:
    """Show a terminal until its program has ended; return how the sign-in ended."""
    path = f"/api/sign-ins/{begun['id']}"
    position = 0
    state = begun
    try:
        async with background_tasks() as tasks:
            # Without a terminal to type into, Ctrl-C has to end this command.
            with _raw_keyboard(is_used=begun["kind"] == "terminal") as keyboard:
                if keyboard is not None:
                    tasks.start_soon(_type, api, path, keyboard)
                while state["state"] == "running":
                    shown = await api.get(f"{path}?after={position}")
                    position, state = shown["position"], shown["signIn"]
                    sys.stdout.write(shown["text"])
                    sys.stdout.flush()
    except BaseException:
        with anyio.CancelScope(shield=True), anyio.move_on_after(5):
            await _cancel(api, path)
        raise
    return state


async def _cancel(api: HubApi, path: str) -> None:
    try:
        await api.call("DELETE", path)
    except (HubDeclined, CommandFailed):
        return  # it has ended with the hub


async def _type(api: HubApi, path: str, keyboard: int) -> None:
    """Send what is typed; Ctrl-] cancels, also if the program ignores Ctrl-C."""
    while True:
        await anyio.wait_readable(keyboard)
        typed = os.read(keyboard, 1024)
        if not typed:
            return
        if _ESCAPE in typed:
            await _cancel(api, path)
            return
        try:
            await api.post(f"{path}/input", {"text": typed.decode(errors="replace")})
        except HubDeclined:
            continue  # its program does not read it


@contextmanager
def _raw_keyboard(*, is_used: bool) -> Iterator[int | None]:
    """Send every key as it is, Ctrl-C included; None without a terminal."""
    if not is_used or not sys.stdin.isatty():
        yield None
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setraw(keyboard, termios.TCSADRAIN)
    try:
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _report(chosen: Namespace, state: Mapping[str, Any]) -> int:
    if chosen.json:
        print_json(state)
    elif state["state"] == "failed":
        print_note(one_line(state.get("reason") or "the sign-in failed"))
    else:
        retried = len(state.get("retried", ()))
        again = f"; {retried} failed prompt{'s' * (retried != 1)} sent again" if retried else ""
        print_note(f"signed in to {one_line(chosen.agent)}{again}")
    return FAILED if state["state"] == "failed" else DONE
