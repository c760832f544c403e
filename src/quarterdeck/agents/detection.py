"""Checks which agents are installed, in which version, and how to install one.

Versions are read from files: no agent is run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quarterdeck.agents.known_agents import DEMO, KnownAgents
from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json, encode_json

_LEVELS: Final = 4  # folders between a program from npm and its package.json
_MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class AgentFinding:
    """A result of the check: what was found and what to do."""

    is_problem: bool
    found: str
    remedy: str


def check_agents(
    known: KnownAgents, environ: Mapping[str, str], listed: object
) -> Iterator[AgentFinding]:
    """Check the agents that a hub `listed`; without a list, find them as a hub does."""
    for problem in known.catalogue.problems:
        yield AgentFinding(is_problem=True, found=problem, remedy="fix it, or remove the file")
    agents = listed if isinstance(listed, list) else _plain(known)
    yield from (_missing(each) for each in agents if _is_missing(each))
    installed = [each for each in agents if each["installed"] and each["name"] != DEMO]
    names = {each["name"] for each in installed}
    listed_names = [each["name"] for each in agents if each["source"] == "well-known"]
    absent = [name for name in listed_names if name not in names]
    if installed:
        path = environ.get("PATH")
        found = ", ".join(_with_version(each, path) for each in installed)
        remedy = f'try one: quarterdeck run {installed[0]["name"]} "hello"'
    else:
        found = "only the demo agent, which needs no key and no network"
        remedy = (
            "install one: quarterdeck agents install claude; without: quarterdeck run demo hello"
        )
    missing = f"; can be installed: {', '.join(absent)}" if absent else ""
    yield AgentFinding(is_problem=False, found=found + missing, remedy=remedy)


def _plain(known: KnownAgents) -> list[Mapping[str, Any]]:
    listed: list[Mapping[str, Any]] = decode_json(encode_json(known.all()))
    return listed


def _is_missing(agent: Mapping[str, Any]) -> bool:
    return agent["source"] == "configured" and not agent["installed"]


def _missing(agent: Mapping[str, Any]) -> AgentFinding:
    name, command = agent["name"], agent["command"]
    return AgentFinding(
        is_problem=True,
        found=f"{name} is configured, but its program {command} was not found",
        remedy=f"install it, or fix agents.{name}.command in hub.toml",
    )


def _with_version(agent: Mapping[str, Any], path: str | None) -> str:
    version = agent.get("installedVersion")
    version = version or _npm_version(shutil.which(agent["command"], path=path))
    return agent["name"] if version is None else f"{agent['name']} {version}"


def _npm_version(program: str | None) -> str | None:
    """Return the version in the package.json of a program; the program is not run."""
    if program is None:
        return None
    for folder in Path(program).resolve().parents[:_LEVELS]:
        try:
            with (folder / "package.json").open("rb") as stream:
                facts = decode_json(stream.read(_MAX_BYTES))
        except (OSError, JsonInvalid):
            continue
        version = facts.get("version") if isinstance(facts, dict) else None
        return version if isinstance(version, str) else None
    return None
