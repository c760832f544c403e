"""The settings file of a foreign program: the hook is added to it, and removed again.

Only what the program documents is changed, and everything else in the file stays. The file is
replaced in one step, with the permissions that it had; a symbolic link to it stays one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from msgspec import Struct

from quarterdeck.errors import RequestRejected
from quarterdeck.views.context import HookedAdapter, HookSettings

_PRIVATE: Final = 0o600
_NAME: Final = b"quarterdeck"  # in every command of a hook
_EMPTY: Final = "{}\n"


class ProgramHook(Struct, frozen=True, kw_only=True, rename="camel"):
    """The hook by which a program asks for permission, in the program's own settings."""

    settings: str
    """The file of these settings."""
    command: str
    is_installed: bool
    problem: str = ""
    """Why it cannot be installed."""


class HookFile:
    """The hook of one program; every method blocks."""

    def __init__(self, adapter: HookedAdapter, command: str) -> None:
        self._adapter = adapter
        self._command = command

    def status(self) -> ProgramHook:
        try:
            settings = self._adapter.hook_settings(self._command)
        except (OSError, ValueError) as error:
            return ProgramHook(
                settings="", command=self._command, is_installed=False, problem=str(error)
            )
        return ProgramHook(
            settings=settings.path, command=self._command, is_installed=settings.is_current
        )

    def install(self) -> None:
        """Add the hook; one of another runner is replaced.

        Raises:
            RequestRejected: if the settings cannot be read, are not as documented, or cannot be
                written.
        """
        settings = self._settings()
        if not settings.is_current:
            _write(settings.path, settings.installed)

    def remove(self, config: str | None = None) -> None:
        """Remove the hook, not one of another runner; a file that would be left empty is removed.

        Settings in `config` that cannot be read have no hook if they do not name it.

        Raises:
            RequestRejected: as `install`.
        """
        try:
            settings = self._settings()
        except RequestRejected:
            if config is None or _may_name(config, _NAME):
                raise
            return
        if settings.has_hook:
            _write(settings.path, settings.removed)

    def _settings(self) -> HookSettings:
        try:
            return self._adapter.hook_settings(self._command)
        except (OSError, ValueError) as error:
            message = f"the settings cannot be changed: {error}; repair them, then try again"
            raise RequestRejected("invalid", message) from error


def _may_name(path: str, word: bytes) -> bool:
    try:
        return word in Path(path).read_bytes()
    except OSError:
        return True


def _write(name: str, text: str) -> None:
    path = Path(name).resolve()
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else _PRIVATE
        if not mode & 0o222:
            raise RequestRejected("unavailable", f"{name} is read-only; make it writable first")
        if not text and not Path(name).is_symlink():
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text or _EMPTY, mode)
    except OSError as error:
        message = f"{name} cannot be written: {error.strerror or error}"
        raise RequestRejected("unavailable", message) from error


def _replace(path: Path, text: str, mode: int) -> None:
    """Replace a file in one step; its new content is private until it has the old permissions."""
    new = path.with_name(f"{path.name}.quarterdeck-{os.getpid()}")
    new.unlink(missing_ok=True)
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        new.chmod(mode)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
