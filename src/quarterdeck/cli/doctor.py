"""`quarterdeck doctor`: looks for what could be wrong, and says what to do about it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio

from quarterdeck.cli.agent_checks import check_agents
from quarterdeck.cli.arguments import DONE, FAILED, read
from quarterdeck.cli.checkup import CHECKS, Check, Patient
from quarterdeck.cli.hub_config import HubConfig, load_config
from quarterdeck.cli.hub_link import running_hub
from quarterdeck.cli.parsers import doctor_parser
from quarterdeck.cli.screen import Screen
from quarterdeck.cli.text import plain, wrapped
from quarterdeck.errors import QuarterdeckError, SettingsInvalid
from quarterdeck.server.options import default_home

_STYLES = {"ok": "good", "warn": "warn", "fail": "bad"}
_NAME = 15  # the width of the names


def run(arguments: list[str]) -> int:
    chosen = read(doctor_parser(), arguments)
    if chosen is None:
        return DONE
    checks = examine(os.environ, chosen.home, chosen.config)
    if chosen.json:
        print(json.dumps({"checks": [asdict(each) for each in checks]}, indent=2))
    else:
        show(Screen(sys.stdout), checks)
    return FAILED if any(each.status == "fail" for each in checks) else DONE


def examine(environ: Mapping[str, str], home: Path | None, config: Path | None) -> list[Check]:
    """Make all checks."""
    folder = home.absolute() if home is not None else default_home(environ)
    loaded: HubConfig | None = None
    with suppress(SettingsInvalid):  # what is wrong with it is told by its own check
        loaded = load_config(environ, config)
    patient = Patient(
        home=folder,
        environ=environ,
        config_file=config,
        config=loaded,
        hub=anyio.run(_running, folder),
    )
    return [check for look in (*CHECKS, check_agents) for check in look(patient)]


async def _running(home: Path) -> Mapping[str, Any] | None:
    try:
        found = await running_hub(home)
    except QuarterdeckError:
        return None
    if found is None:
        return None
    try:
        agents = (await found.api.get("/api/agents/known"))["agents"]
    except QuarterdeckError:
        agents = None  # of another version, maybe; it is looked for here
    return {"url": found.url, "agents": agents}


def show(screen: Screen, checks: Sequence[Check]) -> None:
    """Write a line for each check, what to do beneath it, and the sum."""
    for check in checks:
        head = screen.painted(f"{check.status:5}", _STYLES[check.status])
        indent = " " * (5 + _NAME)
        first, *rest = wrapped(plain(check.found), screen.width - len(indent))
        screen.line(f"{head}{check.name:{_NAME}}{first}")
        for line in rest:
            screen.line(indent + line)
        if check.remedy:
            # On one line, however long: it may be a command that somebody copies.
            screen.line(f"{indent}-> {plain(check.remedy)}", "strong")
    failed = sum(check.status == "fail" for check in checks)
    warned = sum(check.status == "warn" for check in checks)
    if failed:
        screen.line(f"{failed} of {len(checks)} checks failed", "bad")
    elif warned:
        screen.line(f"nothing is broken; {warned} could be better", "warn")
    else:
        screen.line("all is well", "good")
