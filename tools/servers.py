"""See to it that the servers of the tests are installed; the build server runs this."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.browser import permission

PACKAGES = {"pebble": "pebble", "nginx": "nginx-light", "postgres": "postgresql"}
"""Programs, each with its Debian package: an ACME authority, a reverse proxy, a database."""


def server(name: str) -> str | None:
    """Return the path of a program; None if it is not installed."""
    # Debian keeps the programs of PostgreSQL out of PATH: several versions may be installed.
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    newest = sorted(versions, key=lambda each: int(each.parent.name), reverse=True)
    folders = (os.environ.get("PATH", os.defpath), "/usr/sbin", *map(str, newest))
    return shutil.which(name, path=os.pathsep.join(folders))


def missing() -> list[str]:
    """Return the packages of the servers that are not installed."""
    return [package for name, package in PACKAGES.items() if server(name) is None]


def main() -> int:
    names = missing()
    if not names:
        return 0
    prefix = permission()
    if prefix is None:
        print(
            f"servers: the tests need {', '.join(names)}, which cannot be installed"
            " from here; install them with your package manager",
            file=sys.stderr,
        )
        return 1
    print(f"servers: installing {', '.join(names)}", file=sys.stderr)
    # Debian starts nginx when it is installed, at port 80; the tests start their own.
    quietly = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    install = ("apt-get", "-qq", "install", "-y", "--no-install-recommends", *names)
    for step in (("apt-get", "-qq", "update"), install):
        if subprocess.run([*prefix, *step], env=quietly, check=False).returncode:
            print(f"servers: {' '.join(step)} failed; see above", file=sys.stderr)
            return 1
    return 1 if missing() else 0


if __name__ == "__main__":
    sys.exit(main())
