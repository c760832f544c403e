"""The ACP registry's format: `agent.json`, or `registry.json` with many of them. Pure.

    {"version": "1.0.0", "agents": [{"id": "mine", "name": "Mine", "version": "1.2.3",
     "description": "…", "distribution": {
         "npx": {"package": "@me/mine@1.2.3", "args": ["--acp"], "env": {}},
         "uvx": {"package": "mine==1.2.3", "args": []},
         "binary": {"linux-x86_64": {"archive": "https://…", "cmd": "./mine", "sha256": "…"}}}}]}

The document comes from elsewhere: everything in it is checked and bounded. An agent that breaks
the rules is left out, with a reason; fields that this version does not know are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Final, TypeAlias, get_args

import msgspec
from msgspec import Meta, Struct

from quarterdeck.agents.catalogue.entry import (
    BinaryArchive,
    CatalogueEntry,
    EnvironmentNeeds,
    Name,
    NpmPackage,
    Platform,
    PypiPackage,
    reason_of,
)
from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json

MOST_BYTES: Final = 8 << 20
_MOST_AGENTS: Final = 2000
_MOST_REASONS: Final = 20
_PLATFORMS: Final = frozenset(get_args(Platform))
_NPM: Final = re.compile(r"((?:@[^/@]+/)?[^@]+)(?:@(.+))?")
_PYPI: Final = re.compile(r"([^=@<>!~\s]+)(?:(?:==|@)([^\s]+))?")
_RELEASE: Final = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")

_Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=4096)]
_Args: TypeAlias = Annotated[tuple[_Text, ...], Meta(max_length=100)]
_Env: TypeAlias = Annotated[dict[str, Annotated[str, Meta(max_length=4096)]], Meta(max_length=100)]


class _Package(Struct, frozen=True, kw_only=True):
    package: _Text
    args: _Args = ()
    env: _Env = {}


class _Target(Struct, frozen=True, kw_only=True):
    archive: _Text
    cmd: _Text
    sha256: str | None = None
    args: _Args = ()
    env: _Env = {}


class _Distribution(Struct, frozen=True, kw_only=True):
    npx: _Package | None = None
    uvx: _Package | None = None
    binary: dict[str, _Target] = {}


class _Agent(Struct, frozen=True, kw_only=True):
    id: Name
    name: _Text
    version: _Text
    description: _Text
    distribution: _Distribution


def parse_registry(content: bytes) -> tuple[list[CatalogueEntry], list[str]]:
    """Return the entries of a document, and why others were left out.

    Raises:
        JsonInvalid: if it is not a registry at all.
    """
    if len(content) > MOST_BYTES:
        raise JsonInvalid("it is larger than 8 MiB")
    entries: dict[str, CatalogueEntry] = {}
    reasons: list[str] = []
    for number, raw in enumerate(_agents(decode_json(content)), 1):
        if number > _MOST_AGENTS:
            reasons.append(f"the registry has more than {_MOST_AGENTS} agents; the rest is ignored")
            break
        label = _label(raw, number)
        try:
            entry = _entry(msgspec.convert(raw, _Agent))
        except msgspec.ValidationError as error:
            reasons.append(f"{label} of the registry: {reason_of(error)}")
            continue
        except ValueError as error:
            reasons.append(f"{label} of the registry: {error}")
            continue
        if entry.name in entries:
            reasons.append(f"{label} of the registry: it is listed twice; the first counts")
            continue
        entries[entry.name] = entry
    return list(entries.values()), reasons[:_MOST_REASONS]


def _agents(document: Any) -> Iterable[Any]:
    if isinstance(document, dict) and isinstance(document.get("agents"), list):
        agents: list[Any] = document["agents"]
        return agents
    if isinstance(document, dict) and "distribution" in document:
        return [document]
    raise JsonInvalid("it is neither a registry with agents nor one agent")


def _label(raw: Any, number: int) -> str:
    found = raw.get("id") if isinstance(raw, dict) else None
    return f"agent {found[:64]!r}" if isinstance(found, str) else f"agent {number}"


def _entry(agent: _Agent) -> CatalogueEntry:
    """Return an agent of the registry in the form of the catalogue.

    Of several distributions, a binary for this or another platform comes first if it has a
    checksum, since it needs nothing else; then npm, then PyPI.
    """
    ways = agent.distribution
    binary = {
        platform: msgspec.convert(msgspec.to_builtins(target), BinaryArchive)
        for platform, target in ways.binary.items()
        if platform in _PLATFORMS
    }
    verified = {name: each for name, each in binary.items() if each.sha256 is not None}
    facts: dict[str, Any] = {
        "name": agent.id,
        "title": agent.name[:500],
        "summary": agent.description[:500],
        "command": agent.id,
    }
    if verified or (binary and ways.npx is None and ways.uvx is None):
        version = _RELEASE.match(agent.version)
        kept = msgspec.to_builtins(verified or binary)
        facts |= {"binary": kept, "version": version[0] if version else None}
        first = next(iter((verified or binary).values()))
        facts["args"] = first.args
    elif ways.npx is not None:
        facts |= _package(ways.npx, {"npm": _npm(ways.npx.package)})
    elif ways.uvx is not None:
        facts |= _package(ways.uvx, {"pypi": _pypi(ways.uvx.package)})
        facts["command"] = facts["pypi"]["package"].partition("[")[0]
    else:
        raise ValueError("it has no distribution that this version knows")
    return msgspec.convert(facts, CatalogueEntry)


def _package(way: _Package, facts: dict[str, Any]) -> dict[str, Any]:
    environment = EnvironmentNeeds(set=dict(way.env))
    return {**facts, "args": way.args, "environment": msgspec.to_builtins(environment)}


def _npm(words: str) -> dict[str, Any]:
    found = _NPM.fullmatch(words)
    if found is None:
        raise ValueError("its npm package has no valid name")
    version = None if found[2] in (None, "latest") else found[2]
    package = NpmPackage(package=found[1], version=version)
    return msgspec.to_builtins(msgspec.convert(msgspec.to_builtins(package), NpmPackage))  # type: ignore[no-any-return]


def _pypi(words: str) -> dict[str, Any]:
    found = _PYPI.fullmatch(words)
    if found is None:
        raise ValueError("its PyPI package has no valid name")
    version = None if found[2] in (None, "latest") else found[2]
    package = PypiPackage(package=found[1], version=version)
    return msgspec.to_builtins(msgspec.convert(msgspec.to_builtins(package), PypiPackage))  # type: ignore[no-any-return]
