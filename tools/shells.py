"""See to it that the shells of the policy's tests are installed; the build server runs this."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tools.browser import permission

PROGRAMS = ("bash", "dash", "zsh", "mksh", "busybox")


def missing() -> list[str]:
    """Return the shells that are not installed; each has a package of its name."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def main() -> int:
    names = missing()
    if not names:
        return 0
    prefix = permission()
    if prefix is None:
        print(
            f"shells: the tests of the policy need {', '.join(names)}, which cannot be installed"
            " from here; install them with your package manager",
            file=sys.stderr,
        )
        return 1
    print(f"shells: installing {', '.join(names)}", file=sys.stderr)
    quietly = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ("apt-get", "-qq", "install", "-y", "--no-install-recommends", *names)
    for step in (("apt-get", "-qq", "update"), install):
        if subprocess.run([*prefix, *step], env=quietly, check=False).returncode:
            print(f"shells: {' '.join(step)} failed; see above", file=sys.stderr)
            return 1
    return 1 if missing() else 0


if __name__ == "__main__":
    sys.exit(main())
