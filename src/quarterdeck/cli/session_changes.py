"""Changes to one session: fork, rename and archive it.

Each public function is a command: it takes the parsed arguments and returns the exit status.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

import anyio

from quarterdeck.cli.arguments import DONE
from quarterdeck.cli.hub_access import HubAddress, open_hub
from quarterdeck.cli.sessions import find_session, path_of
from quarterdeck.cli.terminal.screen import Screen, print_json
from quarterdeck.views.text import one_line


def fork(chosen: Namespace) -> int:
    session = anyio.run(_change, chosen, "POST", "fork", {})
    return _print(chosen, session, session["sessionId"])


def rename(chosen: Namespace) -> int:
    session = anyio.run(_change, chosen, "PUT", "title", {"title": chosen.title})
    return _print(chosen, session, f"{session['sessionId']}: {session.get('title')}")


def archive(chosen: Namespace) -> int:
    session = anyio.run(_change, chosen, "PUT", "archived", {"archived": not chosen.undo})
    what = "archived" if session["archived"] else "listed again"
    return _print(chosen, session, f"{session['sessionId']}: {what}")


async def _change(
    chosen: Namespace, method: str, what: str, body: dict[str, Any]
) -> dict[str, Any]:
    async with open_hub(HubAddress.of(chosen)) as hub:
        session = await find_session(hub.api, chosen.session)
        path = f"{path_of(session['sessionId'])}/{what}"
        changed: dict[str, Any] = await hub.api.call(method, path, body)
        return changed


def _print(chosen: Namespace, session: dict[str, Any], line: str) -> int:
    if chosen.json:
        print_json(session)
    else:
        Screen(sys.stdout).line(one_line(line))
    return DONE
