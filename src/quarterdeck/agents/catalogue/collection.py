"""All agents that are known by name: those of the package, of the user's folder and of a registry.

An entry of the user's folder replaces one of the package, and either replaces one of the registry.
A file that cannot be read is left out and reported: one mistake does not stop a hub.
"""

from __future__ import annotations

import difflib
import logging
import os
import stat
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Final

from quarterdeck.agents.catalogue.entry import CatalogueEntry, parse_entry
from quarterdeck.agents.catalogue.registry_cache import RegistryCache
from quarterdeck.errors import SettingsInvalid

logger = logging.getLogger(__name__)

_SUFFIX: Final = ".toml"
_MOST_FILES: Final = 500
_MOST_BYTES: Final = 1 << 18


@cache
def built_in_entries() -> Mapping[str, CatalogueEntry]:
    """Return the entries of the package, by name."""
    folder = files(__package__)
    texts = {
        each.name.removesuffix(_SUFFIX): each.read_text(encoding="utf-8")
        for each in folder.iterdir()
        if each.name.endswith(_SUFFIX)
    }
    found = {name: parse_entry(texts[name], f"{name}.toml", name=name) for name in sorted(texts)}
    return MappingProxyType(found)


class AgentCatalogue:
    """The entries that a runner, a command or the page can use."""

    def __init__(self, folder: Path | None = None, registry: RegistryCache | None = None) -> None:
        self._folder = folder
        self.registry = registry
        self.problems: tuple[str, ...] = ()
        """What could not be read, a sentence each."""
        self._entries: Mapping[str, CatalogueEntry] = built_in_entries()
        self.reload()

    def reload(self) -> None:
        """Read the user's folder and the stored registry again."""
        problems: list[str] = []
        own = dict(_read_folder(self._folder, problems))
        listed: Mapping[str, CatalogueEntry] = {}
        if self.registry is not None:
            listed, reasons = self.registry.entries()
            problems += reasons
        self._entries = {**listed, **built_in_entries(), **own}
        self._own = frozenset(own)
        self.problems = tuple(problems)
        for problem in problems:  # doctor shows them; a command would print each without its reason
            logger.info("a file of an agent was left out", extra={"reason": problem})

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[CatalogueEntry]:
        """Yield the entries of the package and the user's folder, then those of the registry."""
        known = built_in_entries().keys() | self._own
        yield from (self._entries[name] for name in sorted(known))
        yield from (each for name, each in sorted(self._entries.items()) if name not in known)

    def get(self, name: str) -> CatalogueEntry | None:
        return self._entries.get(name)

    def is_listed_only(self, name: str) -> bool:
        """Return whether an entry comes from the registry alone."""
        return name in self._entries and name not in built_in_entries() and name not in self._own

    def nearest(self, name: str) -> str | None:
        """Return the name that a mistyped one was meant to be."""
        found = difflib.get_close_matches(name.lower(), self._entries, n=1)
        return found[0] if found else None


def _read_folder(folder: Path | None, problems: list[str]) -> Iterator[tuple[str, CatalogueEntry]]:
    if folder is None:
        return
    try:
        paths = sorted(each for each in folder.iterdir() if each.name.endswith(_SUFFIX))
        _check_writers(folder, folder.stat())
    except FileNotFoundError:
        return
    except SettingsInvalid as error:
        problems.append(str(error))
        return
    except OSError as error:
        problems.append(f"{folder} cannot be read: {error.strerror}; make it readable")
        return
    for path in paths[:_MOST_FILES]:
        try:
            entry = _read_entry(path)
        except SettingsInvalid as error:
            problems.append(str(error))
            continue
        yield entry.name, entry


def _read_entry(path: Path) -> CatalogueEntry:
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise SettingsInvalid(str(path), "is not a regular file; replace it")
            _check_writers(path, facts)
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        reason = f"cannot be read: {error.strerror}; make it readable, or remove it"
        raise SettingsInvalid(str(path), reason) from error
    if len(content) > _MOST_BYTES:
        raise SettingsInvalid(str(path), "is larger than 256 KiB; shorten it")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise SettingsInvalid(str(path), "is not UTF-8; save it as UTF-8") from error
    return parse_entry(text, str(path), name=path.name.removesuffix(_SUFFIX))


def _check_writers(path: Path, facts: os.stat_result) -> None:
    """Refuse what other users can change: it names programs to start."""
    is_others = facts.st_uid not in (os.geteuid(), 0)
    if is_others or facts.st_mode & stat.S_IWOTH:
        reason = "can be changed by other users, who could start programs as you; chmod go-w it"
        raise SettingsInvalid(str(path), reason)
