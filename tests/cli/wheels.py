"""The wheel of this tree, another one of a newer version, and an environment to install them in."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_OURS: Final = re.compile(r"PYTHON|VIRTUAL_ENV|QUARTERDECK|XDG_|UV_TOOL|PIPX_|COVERAGE_|HOME$")


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this tree into a folder, as `dev.py ci` does."""
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-qq"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (wheel,) = folder.glob("quarterdeck-*.whl")
    return wheel


def renumbered(wheel: Path, version: str, folder: Path) -> Path:
    """Write a copy of a wheel that has another version; return it."""
    before = wheel.name.split("-")[1]
    made = folder / wheel.name.replace(f"-{before}-", f"-{version}-")
    record = f"quarterdeck-{version}.dist-info/RECORD"
    lines: list[str] = []
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            name = entry.filename.replace(f"quarterdeck-{before}.", f"quarterdeck-{version}.")
            if name == record:
                continue
            content = old.read(entry)
            if name.endswith(("/METADATA", "quarterdeck/_version.py")):
                content = content.replace(before.encode(), version.encode(), 1)
            new.writestr(name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            lines.append(f"{name},sha256={digest.decode()},{len(content)}")
        new.writestr(record, "\n".join((*lines, f"{record},,", "")))
    return made


def empty_environ(home: Path) -> dict[str, str]:
    """Return an environment with an empty home folder; how to reach an index stays as it is."""
    home.mkdir()
    kept = {name: text for name, text in os.environ.items() if not _OURS.match(name)}
    programs = Path(sys.executable).parent
    return {
        **kept,
        "HOME": str(home),
        "PATH": os.pathsep.join((str(home / ".local/bin"), str(programs), os.environ["PATH"])),
        "UV_CONSTRAINT": str(ROOT / "constraints.txt"),
        "UV_LINK_MODE": "copy",
        "UV_PYTHON_DOWNLOADS": "never",
    }


def installed_by_uv(wheel: Path, environ: dict[str, str]) -> Path:
    """Install a wheel as a tool of uv; return the environment that it is in."""
    _run(["uv", "tool", "install", "--python", sys.executable, str(wheel)], environ)
    return Path(environ["HOME"], ".local/share/uv/tools/quarterdeck")


def installed_by_pipx(wheel: Path, environ: dict[str, str]) -> Path:
    """Install a wheel with pipx; return the environment that it is in."""
    _run(["pipx", "install", "--python", sys.executable, str(wheel)], environ)
    return Path(environ["HOME"], ".local/share/pipx/venvs/quarterdeck")


def installed_by_pip(wheel: Path, environ: dict[str, str]) -> Path:
    """Install a wheel with pip into a new environment, which is returned."""
    folder = Path(environ["HOME"], "environment")
    _run([sys.executable, "-m", "venv", str(folder)], environ)
    _run([f"{folder}/bin/pip", "install", "-q", str(wheel)], environ)
    command = Path(environ["HOME"], ".local/bin/quarterdeck")
    command.parent.mkdir(parents=True)
    command.symlink_to(folder / "bin/quarterdeck")
    return folder


def _run(command: list[str], environ: dict[str, str]) -> None:
    program = shutil.which(command[0], path=environ["PATH"])
    assert program is not None, f"{command[0]} is missing; run python3 dev.py setup"
    done = subprocess.run(
        [program, *command[1:]], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
