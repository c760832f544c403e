"""What `doctor` says of agents: which are there, of which version, and how to get one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from quarterdeck.cli.checkup import Check, Patient
from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.server.known_agents import DEMO, KnownAgents

_FOLDERS: Final = 4  # between a program from npm and what says its version
_MOST_BYTES: Final = 1 << 20


def check_agents(patient: Patient) -> Iterator[Check]:
    """Look for agents where the hub does, or take its word for it."""
    agents = _known(patient)
    yield from (_missing(each) for each in agents if _is_missing(each))
    there = [each for each in agents if each["installed"] and each["name"] != DEMO]
    others = [each["name"] for each in agents if each["source"] == "well-known"]
    absent = [name for name in others if name not in {each["name"] for each in there}]
    if there:
        path = patient.environ.get("PATH")
        found = ", ".join(_told(each, path) for each in there)
        remedy = f'try one: quarterdeck run {there[0]["name"]} "hello"'
    else:
        found = "none but the demo, which needs no key and no network"
        remedy = "install one (docs/use/agents.md), or try quarterdeck run demo hello"
    missing = f"; not found: {', '.join(absent)}" if absent else ""
    yield Check(name="agents", status="ok", found=found + missing, remedy=remedy)


def _known(patient: Patient) -> list[Mapping[str, Any]]:
    told = None if patient.hub is None else patient.hub.get("agents")
    if isinstance(told, list):
        return told
    configured = {} if patient.config is None else patient.config.agents
    known = KnownAgents(configured, patient.environ).all()
    listed: list[Mapping[str, Any]] = decode_json(encode_json(known))
    return listed


def _is_missing(agent: Mapping[str, Any]) -> bool:
    return agent["source"] == "configured" and not agent["installed"]


def _missing(agent: Mapping[str, Any]) -> Check:
    name, command = agent["name"], agent["command"]
    return Check(
        name="agents",
        status="warn",
        found=f"{name} is set up, but its program {command} was not found",
        remedy=f"install it, or mend agents.{name}.command in hub.toml",
    )


def _told(agent: Mapping[str, Any], path: str | None) -> str:
    version = _npm_version(shutil.which(agent["command"], path=path))
    return agent["name"] if version is None else f"{agent['name']} {version}"


def _npm_version(program: str | None) -> str | None:
    """Return what the package of a program says; nothing is run: a name proves no program."""
    if program is None:
        return None
    for folder in Path(program).resolve().parents[:_FOLDERS]:
        try:
            with (folder / "package.json").open("rb") as stream:
                facts = decode_json(stream.read(_MOST_BYTES))
        except (OSError, JsonInvalid):
            continue
        version = facts.get("version") if isinstance(facts, dict) else None
        return version if isinstance(version, str) else None
    return None
