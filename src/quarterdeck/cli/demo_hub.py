"""The demo's hub: in a folder of its own that goes with it, with an agent that asks something."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import webbrowser
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread

from quarterdeck.bridge import acp_endpoints
from quarterdeck.cli.answering import How
from quarterdeck.cli.arguments import INTERRUPTED
from quarterdeck.cli.hub_link import HubLink, Place, running_hub
from quarterdeck.cli.hub_log import hub_logging
from quarterdeck.cli.keyboard import has_person
from quarterdeck.cli.screen import Screen, say
from quarterdeck.cli.story import JsonView, SessionView, StoryView
from quarterdeck.cli.turn import Errand, Turn
from quarterdeck.cli.up import Invitation, invite
from quarterdeck.errors import CommandFailed
from quarterdeck.server.hub import Hub
from quarterdeck.server.known_agents import AgentSettings
from quarterdeck.server.options import HubOptions
from quarterdeck.server.running import serving
from quarterdeck.testing import load_scenario, scripted_agent
from quarterdeck.wire import background_tasks

AGENT: Final = "offline"


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How the demo behaves: with a person it stays, without one it ends by itself."""

    how: How
    stays: bool

    @classmethod
    def of(cls, chosen: Namespace) -> Manner:
        is_person = has_person() and sys.stdout.isatty() and not chosen.json
        how: How = "ask" if is_person else "wait" if chosen.stay else "allow"
        return cls(
            how="allow" if chosen.yes else how, stays=(is_person or chosen.stay) and not chosen.exit
        )


def play(chosen: Namespace) -> int:
    """Start a hub, let its first session run, and serve until Ctrl-C; nothing is left behind."""
    manner = Manner.of(chosen)
    with _folder() as folder, hub_logging(None):
        return anyio.run(_play, folder, chosen, manner)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(
        prefix="quarterdeck-demo-", ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


async def _play(folder: Path, chosen: Namespace, manner: Manner) -> int:
    scenario = load_scenario(chosen.scenario)
    program, *arguments = scripted_agent(chosen.scenario, pace=0 if chosen.fast else 1)
    options = HubOptions(
        home=folder / "home",
        port=chosen.port or 0,
        agents={AGENT: AgentSettings(command=program, args=tuple(arguments))},
        environ=dict(os.environ),
    )
    (folder / "shop").mkdir()
    view = _view(chosen, str(folder / "shop"))
    ending = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    async with Hub(options, parts=(acp_endpoints,)) as hub, serving(hub) as address:
        with anyio.open_signal_receiver(*ending) as signals:
            invitation = await invite(hub, chosen)
            if not chosen.json:
                _show(options.home, address.url, invitation, chosen)
            if chosen.open and invitation is not None:
                await to_thread.run_sync(webbrowser.open, invitation.link)
            link = await _link(options.home)
            errand = Errand(
                agent=AGENT,
                command=(),
                session=None,
                prompt=scenario.prompt,
                cwd=str(folder / "shop"),
                mode=None,
                how=manner.how,
                is_json=chosen.json,
            )
            place = Place(home=options.home, environ=os.environ)
            async with background_tasks() as tasks:
                turn = Turn(place, link, errand, view)
                tasks.start_soon(turn.heed, signals)
                status = await turn.run(tasks)
            if turn.was_interrupted or not manner.stays:
                return status
            say("the hub goes on; Ctrl-C ends it, and nothing is kept")
            await anext(aiter(signals))
    return INTERRUPTED


_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def _link(home: Path) -> HubLink:
    found = await running_hub(home)
    if found is None:
        raise CommandFailed("the hub did not start; quarterdeck doctor tells more")
    return found


def _view(chosen: Namespace, cwd: str) -> SessionView:
    if chosen.json:
        return JsonView(sys.stdout)
    return StoryView(Screen(sys.stdout), cwd=cwd, shows_questions=False)


def _show(home: Path, url: str, invitation: Invitation | None, chosen: Namespace) -> None:
    screen = Screen(sys.stdout)
    screen.line(f"Quarterdeck is running at {url}, for as long as the demo does.", "strong")
    if invitation is not None:
        screen.line(f"  link   {invitation.link}")
        screen.line(f"  code   {invitation.code}", "strong")
    screen.line("  What the agent asks can be answered here, in the browser, or by a program:")
    screen.line(
        f'  curl -H "Authorization: Bearer $(cat {home}/token)" {url}/api/permissions', "dim"
    )
    screen.line()
