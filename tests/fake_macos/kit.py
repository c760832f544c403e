"""Starts programs on a machine like macOS."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fake_macos import run

_WRAPPER = """#!/bin/sh
case "$1" in
-I) exec {python} -I -S {run} "$0" "$@" ;;
*) exec {python} {run} "$0" "$@" ;;
esac
"""


def mac_python(folder: Path) -> str:
    """Write a `python` of such a machine into a folder; return its path."""
    path = folder / "python"
    path.write_text(_WRAPPER.format(python=sys.executable, run=run.__file__))
    path.chmod(0o755)
    return str(path)
