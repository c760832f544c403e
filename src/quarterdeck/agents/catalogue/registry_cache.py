"""A registry at a URL or in a file, stored so that it can be used offline.

The stored copy is one file, replaced in one step: it never mixes two versions, and a copy that was
cut off by a power cut is ignored. It belongs to one address; with another it is not used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from quarterdeck.agents.catalogue.entry import CatalogueEntry
from quarterdeck.agents.catalogue.registry import MOST_BYTES, parse_registry
from quarterdeck.errors import InstallFailed, JsonInvalid
from quarterdeck.http.downloads import DownloadFailed, download

NAME: Final = "registry.json"


class _Stored(Struct, frozen=True, kw_only=True, rename="camel"):
    source: str
    etag: str | None
    fetched_at: float
    document: Raw


class RegistryCache:
    """A registry, and the copy of it in the folder of agents."""

    def __init__(self, source: str, folder: Path) -> None:
        """`source` is a URL, or the path of a file."""
        self.source = source
        self._folder = folder

    @property
    def is_local(self) -> bool:
        """Whether it is a file on this machine: then its archives may be, too."""
        return "://" not in self.source or self.source.startswith("file://")

    @property
    def path(self) -> Path:
        """The file, if it is local."""
        return Path(self.source.removeprefix("file://")).expanduser()

    def entries(self) -> tuple[Mapping[str, CatalogueEntry], list[str]]:
        """Return what is known without the network, by name, and what is wrong with it."""
        try:
            content = self._local() if self.is_local else self._stored_document()
            if content is None:
                return {}, []
            found, reasons = parse_registry(content)
        except (JsonInvalid, OSError) as error:
            words = getattr(error, "strerror", None) or str(error)
            return {}, [f"the registry {self.source} cannot be read: {words}"]
        return {each.name: each for each in found}, reasons

    def fetched_at(self) -> float | None:
        """Return when the copy was made; None if there is none, or none is needed."""
        stored = self._stored()
        return None if stored is None else stored.fetched_at

    async def refresh(self, now: float) -> bool:
        """Fetch the registry; return whether it has changed.

        Raises:
            InstallFailed: if that is not possible; the copy stays as it is.
        """
        if self.is_local:
            return True  # read whenever it is needed
        stored = self._stored()
        part = self._folder / f".{NAME}.part"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            etag = None if stored is None else stored.etag
            found = await download(self.source, part, max_bytes=MOST_BYTES, etag=etag)
            if not found.is_modified:
                return False
            content = part.read_bytes()
            parse_registry(content)
            self._store(content, found.etag, now)
        except DownloadFailed as error:
            raise InstallFailed(
                f"the registry cannot be fetched: {error}",
                "check the network, or use what is stored",
            ) from error
        except JsonInvalid as error:
            raise InstallFailed(
                f"{self.source} is no registry: {error}", "check catalogue.registry in hub.toml"
            ) from error
        except OSError as error:
            raise InstallFailed(
                f"the registry cannot be stored: {error.strerror}", f"check {self._folder}"
            ) from error
        finally:
            part.unlink(missing_ok=True)
        return True

    def _local(self) -> bytes:
        with self.path.open("rb") as file:
            return file.read(MOST_BYTES + 1)

    def _stored(self) -> _Stored | None:
        try:
            with (self._folder / NAME).open("rb") as file:
                found: _Stored = msgspec.json.decode(file.read(2 * MOST_BYTES), type=_Stored)
        except (OSError, msgspec.DecodeError):
            return None
        return found if found.source == self.source else None

    def _stored_document(self) -> bytes | None:
        stored = self._stored()
        return None if stored is None else bytes(stored.document)

    def _store(self, content: bytes, etag: str | None, now: float) -> None:
        stored: Any = _Stored(source=self.source, etag=etag, fetched_at=now, document=Raw(content))
        temporary = self._folder / f".{NAME}.new"
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(stored))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._folder / NAME)
