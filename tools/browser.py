"""See to it that there is a Chromium for the tests of the page; the build server runs this."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
INSTALLING = (
    ("apt-get", "-qq", "update"),
    (
        *("apt-get", "-qq", "install", "-y", "--no-install-recommends"),
        *("chromium", "fonts-noto-core", "libnss3-tools"),  # the last: what a browser trusts
    ),
)


def found() -> str | None:
    """Return the browser; None if there is none."""
    named = os.environ.get("QUARTERDECK_CHROMIUM")
    return named or next(filter(None, map(shutil.which, PROGRAMS)), None)


def permission() -> tuple[str, ...] | None:
    """Return what has to stand before apt-get; None if we may not use it."""
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return ()
    sudo = shutil.which("sudo")
    if sudo is None or subprocess.run([sudo, "-n", "true"], check=False).returncode:
        return None
    return (sudo, "-n")


def main() -> int:
    if found() is not None and shutil.which("certutil") is not None:
        return 0
    prefix = permission()
    if prefix is None:
        print(
            "browser: the tests of the page need Chromium and it cannot be installed from here;"
            " install it, or set QUARTERDECK_CHROMIUM to its path",
            file=sys.stderr,
        )
        return 1
    print("browser: installing Chromium", file=sys.stderr)
    quietly = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for step in INSTALLING:
        if subprocess.run([*prefix, *step], env=quietly, check=False).returncode:
            print(f"browser: {' '.join(step)} failed; see above", file=sys.stderr)
            return 1
    return 0 if found() is not None else 1


if __name__ == "__main__":
    sys.exit(main())
