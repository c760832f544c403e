"""Folders that clients name for sessions."""

from __future__ import annotations

from typing import Any

from quarterdeck.errors import AcpError
from quarterdeck.protocol import ERROR_CODES


def relative_folder(*folders: Any) -> str | None:
    """Return a sentence if one would be relative to wherever the hub was started."""
    for folder in folders:
        if not isinstance(folder, str):
            continue
        if not folder.startswith("/"):
            return f"{folder!r} is no absolute path; begin it with a slash"
        if "\0" in folder or not _is_writable(folder):
            return f"{folder!r} is no path: it has half a character or a NUL; leave that out"
    return None


def _is_writable(folder: str) -> bool:
    try:
        folder.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_absolute(*folders: Any) -> None:
    """Refuse a relative one.

    Raises:
        AcpError: `acpjs/config-invalid`.
    """
    sentence = relative_folder(*folders)
    if sentence is not None:
        raise AcpError(ERROR_CODES["config_invalid"], sentence)
