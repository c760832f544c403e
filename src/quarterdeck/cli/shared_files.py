"""Files for other programs that a wheel installs below `share`: completion scripts, the man page.

`tools/hatch_page.py` writes them into a wheel. An installer that gives each tool an environment of
its own puts them where no shell looks: `quarterdeck completion install` links them from the user's
data folder, and copies them where the wheel's files do not exist, as in a clone. It changes no
start-up file of a shell, and neither replaces nor removes a file that it has not made.
"""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

from quarterdeck.cli.arguments import DONE
from quarterdeck.cli.commands.completion import script
from quarterdeck.cli.man_page import man_page
from quarterdeck.errors import CommandFailed

PATHS: Final[Mapping[str, str]] = {
    "bash": "bash-completion/completions/quarterdeck",
    "zsh": "zsh/site-functions/_quarterdeck",
    "fish": "fish/vendor_completions.d/quarterdeck.fish",
    "man": "man/man1/quarterdeck.1",
}
"""Where each file is below `share`, by the program that reads it."""
PACKAGE: Final = "quarterdeck"
_MARK: Final = "quarterdeck completion install"
"""In the first lines of a copy."""

Outcome = Literal["linked", "copied", "found", "removed", "missing", "foreign"]


def contents(reader: str) -> str:
    """Return the file for a program."""
    return man_page() if reader == "man" else script(reader)


def write_files(folder: Path) -> dict[str, str]:
    """Write every file into a folder; return the path below `share` of each by its own."""
    written = {}
    for reader, path in PATHS.items():
        file = folder / path
        file.parent.mkdir(parents=True)
        file.write_text(contents(reader), encoding="utf-8")
        written[str(file)] = f"share/{path}"
    return written


# ---- quarterdeck completion install --------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LinkedFile:
    """A file for one program: where the wheel has it, and where the program finds it."""

    reader: str
    source: Path | None
    """None if the package has none, as in a clone."""
    target: Path

    def install(self) -> Outcome:
        """Link or copy the file.

        Raises:
            OSError: if that is not possible.
        """
        if _is_same(self.source, self.target):
            return "found"
        if not self.is_ours and (self.target.exists() or self.target.is_symlink()):
            return "foreign"
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self.target.unlink(missing_ok=True)
        if self.source is not None and self.source.is_file():
            self.target.symlink_to(self.source)
            return "linked"
        self.target.write_text(_marked(self.reader), encoding="utf-8")
        return "copied"

    def remove(self) -> Outcome:
        """Remove what `install` made.

        Raises:
            OSError: if that is not possible.
        """
        if self.is_packaged or not (self.target.is_symlink() or self.target.exists()):
            return "missing"
        if not self.is_ours:
            return "foreign"
        self.target.unlink()
        return "removed"

    @property
    def is_packaged(self) -> bool:
        """Whether the wheel itself has put the file there, as `pip install --user` does."""
        return not self.target.is_symlink() and _is_same(self.source, self.target)

    @property
    def is_ours(self) -> bool:
        if self.target.is_symlink():
            return self.target.readlink().parts[-2:] == self.target.parts[-2:]
        try:
            return _MARK in "".join(self.target.read_text(encoding="utf-8").split("\n")[:3])
        except (OSError, UnicodeError):
            return False


def _is_same(one: Path | None, other: Path) -> bool:
    try:
        return one is not None and one.samefile(other)
    except OSError:
        return False


def _marked(reader: str) -> str:
    sign = '.\\"' if reader == "man" else "#"
    first, rest = contents(reader).split("\n", 1)
    return f"{first}\n{sign} Written by: {_MARK}\n{rest}"


def packaged_files() -> dict[str, Path]:
    """Return the files that the installed package has, by the program that reads each.

    Read from its list of files: `pip install --user` has them beside another Python's.
    """
    try:
        listed = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return {}
    found = {}
    for reader, path in PATHS.items():
        for file in listed:
            if file.as_posix().endswith(f"share/{path}"):
                found[reader] = Path(str(file.locate())).resolve()
    return found


def linked_files(
    environ: Mapping[str, str], packaged: Mapping[str, Path], readers: tuple[str, ...]
) -> list[LinkedFile]:
    """Return the files for some programs; `packaged` are those of the installed package.

    Raises:
        CommandFailed: if the user has no home folder.
    """
    share = Path(environ.get("XDG_DATA_HOME", ""))
    if not share.is_absolute():
        home = Path(environ.get("HOME", ""))
        if not home.is_absolute():
            raise CommandFailed("HOME is not set; set it to the folder of the user")
        share = home / ".local" / "share"
    return [
        LinkedFile(reader=each, source=packaged.get(each), target=share / PATHS[each])
        for each in readers
    ]


def change_files(chosen: Namespace) -> int:
    """Run `quarterdeck completion install`."""
    readers = (chosen.shell, "man") if chosen.shell else _installed_readers(os.environ)
    files = linked_files(os.environ, packaged_files(), readers)
    for each in files:
        _report(each, each.remove() if chosen.remove else each.install())
    return DONE


def _installed_readers(environ: Mapping[str, str]) -> tuple[str, ...]:
    path = environ.get("PATH")
    return tuple(each for each in PATHS if shutil.which(each, path=path) is not None)


def _report(file: LinkedFile, outcome: Outcome) -> None:
    words = {
        "linked": f"{file.target} -> {file.source}",
        "copied": f"{file.target} (a copy: run this again after an upgrade)",
        "found": f"{file.target}, installed already",
        "removed": f"removed {file.target}",
        "missing": "nothing to remove",
        "foreign": f"{file.target} is another file and was left as it is",
    }
    print(f"{file.reader:5} {words[outcome]}")
    if outcome in ("linked", "copied", "found") and (step := _next_step(file)):
        print(f"      {step}", file=sys.stderr)


def _next_step(file: LinkedFile) -> str:
    """Return what a shell needs besides the file; fish and man need nothing."""
    if file.reader == "bash":
        return (
            "read by the package bash-completion in a new shell; without it, add to ~/.bashrc:"
            f" . {file.target}"
        )
    if file.reader == "zsh":
        return (
            "unless $fpath has the folder, add to ~/.zshrc, before compinit:"
            f" fpath+=({file.target.parent})"
        )
    return ""
