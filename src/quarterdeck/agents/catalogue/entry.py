"""The form of a catalogue file: what is known of one agent before it runs. Pure.

The files beside this module, and those in the user's folder of agents, have this form:

    name = "mine"                           # what people type
    command = "mine-acp"                    # the program that speaks ACP, and its arguments
    args = ["--acp"]

    [npm]                                   # or [pypi], or [binary.linux-x86_64]: how to install it
    package = "@me/mine"
    version = "1.2.3"                       # the version that was tested
    node = "22"                             # the oldest Node.js that it runs with

    [environment]
    keys = ["MINE_*"]                       # variables of the hub's environment that it gets

    [sign_in]
    variables = ["MINE_API_KEY"]
    command = ["mine", "login"]

    [[quirks]]
    what = "does not stream"
    why = "its server answers at once"

Names and packages become parts of paths and arguments of programs, so their characters are limited.
"""

from __future__ import annotations

import re
import tomllib
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from quarterdeck.errors import SettingsInvalid

Platform: TypeAlias = Literal[
    "darwin-aarch64",
    "darwin-x86_64",
    "linux-aarch64",
    "linux-x86_64",
    "windows-aarch64",
    "windows-x86_64",
]
"""The names of platforms in the ACP registry."""
Name: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,63}$")]
Version: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+!_-]{0,63}$")]
NpmName: TypeAlias = Annotated[
    str, Meta(pattern=r"^(@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*$", max_length=214)
]
NpmWanted: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^(@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*@[0-9A-Za-z.+_-]+$",
        max_length=300,
    ),
]
PypiName: TypeAlias = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?$", max_length=200)
]
Digest: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Release: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+){0,2}$")]
"""A version of Node.js or Python, as far as it matters."""
_Word: TypeAlias = Annotated[str, Meta(max_length=4096)]
_Words: TypeAlias = Annotated[tuple[_Word, ...], Meta(max_length=100)]
_Variable: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z_*?\[\]][A-Za-z0-9_*?\[\]]*$")]
_Line: TypeAlias = Annotated[str, Meta(max_length=500)]


class NpmPackage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package of npm, installed into a folder of its own."""

    package: NpmName
    version: Version | None = None
    """The one that was tested; the newest is installed if there is none."""
    also: tuple[NpmWanted, ...] = ()
    """Packages that it needs and does not name itself, with their versions."""
    program: _Word | None = None
    """Its program beneath node_modules, if that is not `.bin/` and the command."""
    node: Release = "20"
    """The oldest Node.js that it runs with."""
    platforms: tuple[Platform, ...] = ()
    """Where it works; everywhere if there are none."""


class PypiPackage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A package of PyPI, installed into a virtual environment of its own."""

    package: PypiName
    version: Version | None = None
    python: Release = "3.11"
    """The oldest Python that it runs with."""
    python_below: Release | None = None
    """The first Python that it does not run with."""


class BinaryArchive(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program in an archive; without a checksum it cannot be installed."""

    archive: _Word
    """Its URL; in a local file of the registry, also a path beside that file."""
    cmd: _Word
    """The program in it."""
    sha256: Digest | None = None
    args: _Words = ()
    env: dict[str, _Word] = {}


class EnvironmentNeeds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent gets of the environment."""

    keys: tuple[_Variable, ...] = ()
    """Variables of the hub's environment; `*` is a wildcard."""
    any_model: bool = False
    """It also gets the keys of the usual providers of models."""
    like: Name | None = None
    """It gets what this agent of the catalogue gets."""
    set: dict[str, _Word] = {}
    """Variables that are set for it."""


class SignIn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a person signs in, apart from what the agent offers itself."""

    variables: tuple[_Variable, ...] = ()
    """Any one of these, in the hub's environment, is enough."""
    command: _Words = ()
    """Run in a terminal."""


class Quirk(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way in which an agent differs, for people."""

    what: _Line
    why: _Line


class CatalogueEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent of the catalogue."""

    name: Name
    command: Annotated[str, Meta(min_length=1, max_length=4096)]
    args: _Words = ()
    title: _Line = ""
    summary: _Line = ""
    icon: Annotated[str, Meta(max_length=2)] = ""
    """One or two letters, which the page draws."""
    protocol: Literal["auto", 1, 2] | None = None
    """The version of ACP to speak with it; 1 by default."""
    tested: Literal["suite", "by hand", "sign-in", "no"] = "no"
    """By the suite of real agents, by hand, only up to its sign-in, or not."""
    on_path: bool = True
    """Whether its command on PATH is this agent; not if another one has the same command."""
    reopens: Literal["resumes", "loads", ""] = ""
    """What it does when a session is opened again."""
    npm: NpmPackage | None = None
    pypi: PypiPackage | None = None
    binary: dict[Platform, BinaryArchive] = {}
    version: Version | None = None
    """Of the binary; packages have their own."""
    environment: EnvironmentNeeds = EnvironmentNeeds()
    sign_in: SignIn = SignIn()
    quirks: tuple[Quirk, ...] = ()

    @property
    def tested_version(self) -> str | None:
        """The version that is installed unless another is named."""
        package = self.npm or self.pypi
        return self.version if package is None else package.version

    @property
    def package_words(self) -> str:
        """Where it comes from, for people."""
        if self.npm is not None:
            return f"npm {self.npm.package}"
        if self.pypi is not None:
            return f"PyPI {self.pypi.package}"
        return "a program of its own" if self.binary else ""


_PATTERNS: Final = {
    "name": "lower-case letters, digits and hyphens, beginning with a letter",
    "sha256": "64 hexadecimal digits",
    "package": "the name of a package, without a version",
    "version": "a version, such as 1.2.3",
}


def parse_entry(text: str, source: str, *, name: str | None = None) -> CatalogueEntry:
    """Parse a catalogue file; `name` is what it must be called, after its file.

    Raises:
        SettingsInvalid: with the key, and what is expected.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsInvalid(source, f"is not TOML: {error}; fix it and try again") from error
    try:
        entry = msgspec.convert(table, CatalogueEntry)
    except msgspec.ValidationError as error:
        raise SettingsInvalid(source, reason_of(error)) from error
    if name is not None and entry.name != name:
        reason = f"has the name {entry.name!r}; call the file {entry.name}.toml, or change the name"
        raise SettingsInvalid(source, reason)
    if entry.npm is not None and entry.pypi is not None:
        raise SettingsInvalid(source, "has the tables npm and pypi; keep one")
    return entry


def reason_of(error: msgspec.ValidationError) -> str:
    """Return an error of a conversion as part of a sentence."""
    words, _, where = str(error).partition(" - at ")
    path = where.strip("`").removeprefix("$.")
    key = re.split(r"[.\[]", path)[-1].rstrip("]") or path
    if "unknown field" in words:
        return f"has the unknown key {words.rpartition(' ')[2].strip('`')}; remove it"
    if "matching regex" in words and key in _PATTERNS:
        return f"{path} must be {_PATTERNS[key]}"
    if "missing required field" in words:
        return f"needs the key {words.rpartition(' ')[2].strip('`')}"
    expected = words.replace("`", "").replace("Expected ", "must be ", 1).replace(", got", ", not")
    return f"{path} {expected}" if path and path != "$" else expected
