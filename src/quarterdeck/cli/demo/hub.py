"""`quarterdeck demo`: a temporary hub with an offline agent and a first session."""

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

from quarterdeck.agents import AgentSettings
from quarterdeck.cli.arguments import DONE, INTERRUPTED
from quarterdeck.cli.demo import plain
from quarterdeck.cli.hub_access import HubAddress, HubLink, running_hub
from quarterdeck.cli.hub_service import PairingOffer, offer_pairing
from quarterdeck.cli.log_output import hub_logging
from quarterdeck.cli.terminal.keyboard import has_person
from quarterdeck.cli.terminal.requests import AnswerMode
from quarterdeck.cli.terminal.screen import Screen, print_note
from quarterdeck.cli.turns import FollowedTurn, RunOptions, session_printer
from quarterdeck.errors import CommandFailed
from quarterdeck.hub.editors import acp_endpoints
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.options import HubOptions
from quarterdeck.hub.server import serving
from quarterdeck.testing import load_scenario, scripted_agent
from quarterdeck.wire import background_tasks

AGENT: Final = "offline"


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """With a user the demo asks and keeps serving; without one it allows and ends by itself."""

    answer_mode: AnswerMode
    stays: bool

    @classmethod
    def of(cls, chosen: Namespace) -> DemoOptions:
        is_person = has_person() and sys.stdout.isatty() and not chosen.json
        mode: AnswerMode = "ask" if is_person else "wait" if chosen.stay else "allow"
        return cls(
            answer_mode="allow" if chosen.yes else mode,
            stays=(is_person or chosen.stay) and not chosen.exit,
        )


def play_demo(chosen: Namespace) -> int:
    """Run the command."""
    if chosen.list:
        plain.print_scenarios()
        return DONE
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise CommandFailed(
            "the current directory does not exist any more; change to another"
        ) from error
    if chosen.plain:
        return plain.play(chosen)
    with _folder() as folder, hub_logging(None):
        return anyio.run(_play, folder, chosen, DemoOptions.of(chosen))


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(
        prefix="quarterdeck-demo-", ignore_cleanup_errors=True
    ) as name:
        yield Path(name)


async def _play(folder: Path, chosen: Namespace, demo: DemoOptions) -> int:
    scenario = load_scenario(chosen.scenario)
    program, *arguments = scripted_agent(chosen.scenario, pace=0 if chosen.fast else 1)
    options = HubOptions(
        home=folder / "home",
        port=chosen.port or 0,
        agents={AGENT: AgentSettings(command=program, args=tuple(arguments))},
        environ=dict(os.environ),
    )
    (folder / "shop").mkdir()
    ending = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    async with Hub(options, parts=(acp_endpoints,)) as hub, serving(hub) as address:
        with anyio.open_signal_receiver(*ending) as signals:
            pairing = await offer_pairing(hub, chosen)
            if not chosen.json:
                _print_start(options.home, address.url, pairing)
            if chosen.open and pairing is not None:
                await to_thread.run_sync(webbrowser.open, pairing.link)
            link = await _link(options.home)
            turn_options = RunOptions(
                agent=AGENT,
                program=(),
                session=None,
                prompt=scenario.prompt,
                cwd=str(folder / "shop"),
                mode=None,
                answer_mode=demo.answer_mode,
                is_json=chosen.json,
            )
            printer = session_printer(is_json=chosen.json, cwd=turn_options.cwd)
            own = HubAddress(home=options.home, environ=os.environ)
            async with background_tasks() as tasks:
                turn = FollowedTurn(own, link, turn_options, printer)
                tasks.start_soon(turn.handle_signals, signals)
                status = await turn.run(tasks)
            if turn.was_interrupted or not demo.stays:
                return status
            print_note("the hub keeps running; press Ctrl-C to stop it; its data is deleted")
            await anext(aiter(signals))
    return INTERRUPTED


_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def _link(home: Path) -> HubLink:
    found = await running_hub(home)
    if found is None:
        raise CommandFailed("the hub did not start; run quarterdeck doctor")
    return found


def _print_start(home: Path, url: str, pairing: PairingOffer | None) -> None:
    screen = Screen(sys.stdout)
    screen.line(f"Quarterdeck is running at {url} until the demo ends.", "strong")
    if pairing is not None:
        screen.line(f"  link   {pairing.link}")
        screen.line(f"  code   {pairing.code}", "strong")
    screen.line("  Answer the agent's requests here, in the browser, or from a program:")
    screen.line(
        f'  curl -H "Authorization: Bearer $(cat {home}/token)" {url}/api/permissions', "dim"
    )
    screen.line()
