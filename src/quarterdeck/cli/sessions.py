"""`quarterdeck sessions`: a line for each, those that need somebody first."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, Final

import anyio

from quarterdeck.cli.arguments import DONE, read
from quarterdeck.cli.hub_link import Place, open_hub
from quarterdeck.cli.hub_sessions import STATES, short_ids, state_of, waiting_sessions
from quarterdeck.cli.parsers import sessions_parser
from quarterdeck.cli.printing import print_json
from quarterdeck.cli.screen import Screen, say
from quarterdeck.cli.text import one_line

_STYLES: Final = {"needs-you": "question", "running": "good", "idle": "", "done": "dim"}


def run(arguments: list[str]) -> int:
    chosen = read(sessions_parser(), arguments)
    if chosen is None:
        return DONE
    sessions = chosen_ones(anyio.run(_ask, Place.of(chosen)), chosen)
    if chosen.json:
        print_json({"sessions": sessions[: chosen.limit]})
        return DONE
    screen = Screen(sys.stdout)
    show(screen, sessions[: chosen.limit])
    if not sessions:
        say("there are no such sessions; quarterdeck run AGENT PROMPT begins one")
    elif len(sessions) > chosen.limit:
        say(f"{len(sessions) - chosen.limit} more; --limit shows them")
    return DONE


async def _ask(place: Place) -> list[dict[str, Any]]:
    async with open_hub(place) as hub:
        listed = (await hub.api.get("/api/sessions"))["sessions"]
        waiting = await waiting_sessions(hub.api)
    return [{**session, "state": state_of(session, waiting)} for session in listed]


def chosen_ones(sessions: Sequence[dict[str, Any]], chosen: Namespace) -> list[dict[str, Any]]:
    """Return the sessions that were asked for: by state, the newest first."""
    short = short_ids([session["sessionId"] for session in sessions])
    wanted = [
        {**session, "shortId": short[session["sessionId"]]}
        for session in reversed(sessions)
        if (chosen.state is None or session["state"] == chosen.state)
        and (chosen.all or chosen.state == "done" or session["state"] != "done")
    ]
    wanted.sort(key=lambda session: STATES.index(session["state"]))
    return wanted


def show(screen: Screen, sessions: Sequence[dict[str, Any]]) -> None:
    screen.table(
        [
            (
                session["shortId"],
                session["state"].replace("-", " "),
                one_line(session.get("agent") or "-"),
                f"{session['lastSeq']} events",
                one_line(session.get("title") or session["cwd"]),
            )
            for session in sessions
        ],
        ("strong", "", "", "dim", ""),
    )
