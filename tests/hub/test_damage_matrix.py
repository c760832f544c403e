"""Damage over HTTP (INV-13): every answer is right, or says that something is damaged.

A hub is killed, one of its files is damaged, and a hub is started on what is left. It does not
start and says why in a sentence, or every answer is the one of an undamaged hub, an error that says
so, or an answer that names the damage. To try more places: QUARTERDECK_FLIPS=2000.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.errors import StartRefused, StorageRefused
from quarterdeck.hub import HubOptions
from tests.hub.api.kit import Client, options, running, scripted
from tests.hub.streams.serving import EventParser

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FLIPS = max(3, int(os.environ.get("QUARTERDECK_FLIPS", "120")) // 40)
FILES = (
    "log.db",
    "log.db-wal",
    "log.db.mark",
    "runner.db",
    "runner.db-wal",
    "hub.db",
    "hub.db-wal",
)
VOLATILE = {"epoch", "startedAt", "home", "version", "status", "agentId", "updatedAt", "lastSeenAt"}
VOLATILE |= {"lastAt", "at", "endedAt"}
Answers = dict[str, Any]


def stable(value: Any) -> Any:
    """Return an answer without what differs from start to start."""
    if isinstance(value, dict):
        # A restart adds that its sessions are disconnected.
        volatile = VOLATILE | ({"ts"} if value.get("type") == "session-status-change" else set())
        return {key: stable(each) for key, each in value.items() if key not in volatile}
    return [stable(each) for each in value] if isinstance(value, list) else value


async def streamed(client: Client, path: str) -> Any:
    """Read a stream until it has caught up or ended."""
    parser, said = EventParser(), []
    async with client.http.stream("GET", path) as response:
        if response.status_code != 200:
            await response.aread()
            return {"status": response.status_code, "error": response.json()["error"]}
        async for chunk in response.aiter_bytes():
            said += parser.feed(chunk)
            if any(each.name in ("caught-up", "ended") for each in said):
                break
    damage = [each.data["message"] for each in said if each.data.get("reason") == "damaged"]
    events = [each.data for each in said if each.name == "message"]
    return {"events": stable(events), "damage": damage} if damage else {"events": stable(events)}


async def answers(client: Client, sessions: list[str]) -> Answers:
    """Read everything that a device with the scope view reads."""
    paths = ["/api/sessions", "/api/decisions", "/api/permissions", "/api/hub", "/api/devices"]
    for each in sessions:
        own = f"/api/sessions/{each}"
        paths += [own, f"{own}/history?limit=5000", f"{own}/transcript", f"{own}/prompts"]
    found: Answers = {}
    for path in paths:
        response = await client.http.get(path)
        body = response.json()
        found[path] = (
            {"status": response.status_code, "error": body["error"]}
            if response.status_code != 200
            else stable(body)
        )
    for each in sessions:
        found[f"stream {each}"] = await streamed(client, f"/api/sessions/{each}/events")
    return found


def says_so(answer: Any, damages: list[str], path: str) -> bool:
    """Return whether an answer that differs says that something is damaged."""
    if "error" in answer:
        error = answer["error"]
        is_sentence = error["message"] and "internal error" not in error["message"]
        is_known = error["code"] in ("quarterdeck/damaged", "quarterdeck/unavailable")
        is_gone = error["code"] == "quarterdeck/not-found" and bool(damages)
        return bool(is_sentence and (is_known or is_gone))
    if answer.get("damage") or answer.get("damages"):
        return True
    if answer.get("session", {}).get("damage"):
        return True
    # A stream has no place for it but its epoch, which is another one: readers start over.
    return path.startswith("stream ") and bool(damages)


async def prepared(folder: Path, killed: Path, given: HubOptions) -> list[str]:
    """Run a hub for a while, and copy its folder as `kill -9` leaves it; return its sessions."""
    async with running(given) as (_hub, client):
        sessions = [await client.session("mine", folder) for _ in range(2)]
        for number in range(3):
            for each in sessions:
                await client.prompt(each, f"k{number}", f"prompt {number}")
                await client.ended(each, f"k{number}")
        copy_files(given.home, killed)
    return sessions


def copy_files(home: Path, copy: Path) -> None:
    copy.mkdir(mode=0o700)
    for each in home.iterdir():
        if each.is_file():
            shutil.copy2(each, copy / each.name)


Damage = Callable[[Path, random.Random], None]


def flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def flip_text(path: Path, chance: random.Random) -> None:
    """Change a letter of a stored text, as a careless editor would."""
    data = bytearray(path.read_bytes())
    places = [at for at in range(len(data) - 6) if data[at : at + 6] == b"prompt"]
    data[(chance.choice(places) if places else chance.randrange(len(data)))] ^= 1
    path.write_bytes(data)


def truncate(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size))


def empty(path: Path, _chance: random.Random) -> None:
    os.truncate(path, 0)


def swap_pages(path: Path, chance: random.Random) -> None:
    data, size = path.read_bytes(), 4096
    first, second = (chance.randrange(len(data) // size or 1) * size for _ in range(2))
    parts = bytearray(data)
    parts[first : first + size] = data[second : second + size]
    parts[second : second + size] = data[first : first + size]
    path.write_bytes(parts[: len(data)])


def remove(path: Path, _chance: random.Random) -> None:
    path.unlink()


def damages() -> Iterator[tuple[str, Damage]]:
    for kind in (flip, flip_text, truncate, empty, swap_pages, remove):
        for number in range(FLIPS if kind is flip else 1):
            yield f"{kind.__name__} {number}", kind


async def outcome(given: HubOptions, sessions: list[str], right: Answers) -> str:
    """Start a hub on a damaged folder; return what became of it."""
    try:
        async with running(given) as (hub, client):
            found = await answers(client, sessions)
            named = list(hub.runner.health().damages)
    except (StartRefused, StorageRefused) as error:
        return "refused" if "\n" not in str(error) else f"refused by {error!r}"
    wrong = [path for path in right if found[path] != right[path]]
    for path in wrong:
        told = f"{path}\n is {found[path]}\nnot {right[path]}\n{named}"
        assert says_so(found[path], named, path), told
    return "damaged" if wrong or named else "equal"


@pytest.mark.parametrize("name", FILES)
async def test_inv_13_no_answer_differs_silently_after_damage(name: str, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    given = options(tmp_path / "home", mine=scripted({"say": "hello there"}, {"say": "x" * 3000}))
    sessions = await prepared(tmp_path, killed, given)
    if not (killed / name).exists():
        pytest.fail(f"{name} is not among the files of a hub")
    right = await copied(tmp_path / "right", killed, given, sessions)
    outcomes: dict[str, str] = {}
    chance = random.Random(name)
    for label, damage in damages():
        home = tmp_path / label.replace(" ", "-")
        shutil.copytree(killed, home, copy_function=shutil.copy2)
        if (home / name).stat().st_size == 0 or (damage is remove and name.endswith(".db")):
            continue  # moving a database away is how its owner begins an empty one
        damage(home / name, chance)
        outcomes[label] = await outcome(replace(given, home=home), sessions, right)
        shutil.rmtree(home)
    assert set(outcomes.values()) <= {"refused", "damaged", "equal"}


async def copied(home: Path, killed: Path, given: HubOptions, sessions: list[str]) -> Answers:
    shutil.copytree(killed, home, copy_function=shutil.copy2)
    async with running(replace(given, home=home)) as (_hub, client):
        return await answers(client, sessions)
