"""Where things are kept. Standard library only: completion needs it fast."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def data_directory(environ: Mapping[str, str]) -> Path:
    """Return the hub's `default_home`; here as well, because its package is slow to import."""
    if environ.get("QUARTERDECK_HOME"):
        return Path(environ["QUARTERDECK_HOME"]).absolute()
    share = environ.get("XDG_DATA_HOME")
    if share and Path(share).is_absolute():
        return Path(share) / "quarterdeck"
    return Path(environ.get("HOME") or os.curdir).absolute() / ".local" / "share" / "quarterdeck"
