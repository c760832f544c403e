"""How this Quarterdeck was installed, and the command that installs another version the same way.

Every installer leaves a trace, and nothing is guessed beyond it:

| installed by | found by |
| --- | --- |
| the container image | `QUARTERDECK_IMAGE`, which the Dockerfile sets |
| `pip install --editable`, `python3 dev.py setup` | `direct_url.json` with `editable` |
| `uv tool install` | `uv-receipt.toml` in the environment |
| `pipx install` | `pipx_metadata.json` in the environment |
| pip or uv in a virtual environment | `sys.prefix` is not `sys.base_prefix` |
| a package of the system | `INSTALLER` names neither pip nor uv |
| `pip install --user` | the package is in the user's site-packages |
| pip into a whole Python | none of these |

A Python that a system manages (PEP 668, `EXTERNALLY-MANAGED`) is never changed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import site
import sys
import sysconfig
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from quarterdeck.errors import CommandFailed

PACKAGE: Final = "quarterdeck"
IMAGE_VARIABLE: Final = "QUARTERDECK_IMAGE"
_EXTRA: Final = re.compile(r"([\w.-]+)[^;]*;.*\bextra == ['\"]([\w.-]+)['\"]")


@dataclass(frozen=True, kw_only=True)
class InstallTraces:
    """What an installer has left."""

    prefix: Path
    is_environment: bool
    """Whether the prefix is a virtual environment."""
    executable: str
    package_folder: Path | None
    """The site-packages that has Quarterdeck; None if it was not installed."""
    version: str
    installer: str
    direct_url: Mapping[str, Any] | None
    """PEP 610: where the package came from, if not from an index."""
    is_in_user_site: bool
    is_externally_managed: bool
    has_pip: bool
    extras: tuple[str, ...]
    environ: Mapping[str, str]


def find_traces(environ: Mapping[str, str]) -> InstallTraces:
    """Return the traces of the installer of this Quarterdeck."""
    try:
        found = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        found = None
    folder = None if found is None else Path(str(found.locate_file("")))
    direct_url = None if found is None else found.read_text("direct_url.json")
    managed = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"
    return InstallTraces(
        prefix=Path(sys.prefix),
        is_environment=sys.prefix != sys.base_prefix,
        executable=sys.executable,
        package_folder=folder,
        version="" if found is None else found.version,
        installer="" if found is None else (found.read_text("INSTALLER") or "").strip(),
        direct_url=json.loads(direct_url) if direct_url else None,
        is_in_user_site=folder is not None and folder == Path(site.getusersitepackages()),
        is_externally_managed=managed.exists(),
        has_pip=importlib.util.find_spec("pip") is not None,
        extras=() if found is None else installed_extras(found.requires or ()),
        environ=environ,
    )


def installed_extras(requirements: Sequence[str]) -> tuple[str, ...]:
    """Return the extras of which every package is installed."""
    packages: dict[str, list[str]] = {}
    for requirement in requirements:
        if found := _EXTRA.match(requirement):
            packages.setdefault(found[2], []).append(found[1])
    return tuple(extra for extra, names in packages.items() if all(map(_is_installed, names)))


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def installed_version() -> tuple[str, str]:
    """Return the version of the installed package and the list of its files, read anew."""
    importlib.invalidate_caches()
    found = metadata.distribution(PACKAGE)
    return found.version, found.read_text("RECORD") or ""


# ---- the command ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class InstallCommand:
    """Commands that install another version, one after the other."""

    steps: tuple[tuple[str, ...], ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    @override
    def __str__(self) -> str:
        return " && ".join(map(shlex.join, self.steps))


def install_command(traces: InstallTraces, wheel: Path | None) -> InstallCommand:
    """Return what installs a wheel, or without one the newest version of the package index.

    Raises:
        CommandFailed: if Quarterdeck must not do that itself, with what to do instead.
    """
    _check_owner(traces)
    if wheel is None and traces.direct_url is not None:
        raise CommandFailed(
            f"this version was installed from {traces.direct_url.get('url', 'a file')}, not from a"
            " package index; pass a newer wheel: quarterdeck upgrade --from FILE"
        )
    command = _command(traces, wheel)
    if traces.package_folder is not None and not os.access(traces.package_folder, os.W_OK):
        raise CommandFailed(
            f"you cannot write to {traces.package_folder}; as its owner, run: {command}; then, as"
            " yourself: quarterdeck upgrade"
        )
    return command


def _check_owner(traces: InstallTraces) -> None:
    """Refuse to change what another program or a person looks after.

    Raises:
        CommandFailed: with what to do instead.
    """
    if traces.environ.get(IMAGE_VARIABLE):
        raise CommandFailed(
            "this is a container, which is replaced, not changed; on its host, build or pull the"
            " newer image and run: docker compose up --detach"
        )
    if traces.package_folder is None:
        raise CommandFailed(
            "no installer knows this copy of Quarterdeck; update it the way you got it, then run:"
            " quarterdeck upgrade"
        )
    if (traces.direct_url or {}).get("dir_info", {}).get("editable"):
        clone = str((traces.direct_url or {}).get("url", "")).removeprefix("file://")
        raise CommandFailed(
            f"Quarterdeck runs from the clone {clone}; update it with git pull and python3 dev.py"
            " setup, then run: quarterdeck restart, quarterdeck restart --runner"
        )
    if traces.is_environment:
        return
    if traces.installer not in ("pip", "uv"):
        raise CommandFailed(
            "Quarterdeck is a package of this system; upgrade it with the system's package"
            " manager, then run: quarterdeck upgrade"
        )
    if traces.is_externally_managed:
        raise CommandFailed(
            "this Python is managed by the system (PEP 668), so Quarterdeck does not change it;"
            " install Quarterdeck with uv tool install or pipx, or upgrade it the way you"
            " installed it, then run: quarterdeck upgrade"
        )


def _command(traces: InstallTraces, wheel: Path | None) -> InstallCommand:
    extras = f"[{','.join(traces.extras)}]" if traces.extras else ""
    requirement = PACKAGE + extras + (f" @ {wheel.as_uri()}" if wheel else "")
    if traces.is_environment and (traces.prefix / "uv-receipt.toml").is_file():
        return _uv_tool(traces, requirement, is_file=wheel is not None)
    if traces.is_environment and (traces.prefix / "pipx_metadata.json").is_file():
        return _pipx(traces, requirement, is_file=wheel is not None)
    if traces.has_pip:
        return InstallCommand(steps=_pip(traces, requirement, wheel))
    uv = _program("uv", traces.environ)
    again = ("--reinstall-package", PACKAGE) if wheel else ("--upgrade-package", PACKAGE)
    return InstallCommand(
        steps=((uv, "pip", "install", *again, "--python", traces.executable, requirement),)
    )


def _pip(
    traces: InstallTraces, requirement: str, wheel: Path | None
) -> tuple[tuple[str, ...], ...]:
    user = ("--user",) if traces.is_in_user_site and not traces.is_environment else ()
    pip = (traces.executable, "-m", "pip", "install", *user)
    first = (*pip, "--upgrade", requirement)
    if wheel is None or wheel.name.split("-")[1] != traces.version:
        return (first,)
    # The same version with other code. pip reinstalls all dependencies or none.
    return first, (*pip, "--force-reinstall", "--no-deps", requirement)


def _uv_tool(traces: InstallTraces, requirement: str, *, is_file: bool) -> InstallCommand:
    """Return the command for a tool of uv, in the folders that it is in now."""
    uv = _program("uv", traces.environ)
    receipt = tomllib.loads((traces.prefix / "uv-receipt.toml").read_text(encoding="utf-8"))
    tool = receipt.get("tool", {})
    variables = {"UV_TOOL_DIR": str(traces.prefix.parent)}
    for entry in tool.get("entrypoints", ()):
        if isinstance(entry, dict) and "install-path" in entry:
            variables["UV_TOOL_BIN_DIR"] = str(Path(entry["install-path"]).parent)
    if not is_file:
        words: tuple[str, ...] = (uv, "tool", "upgrade", PACKAGE)
    else:
        words = (uv, "tool", "install", "--reinstall-package", PACKAGE)
        words = (*words, *_other_packages(tool.get("requirements", ())), requirement)
    return InstallCommand(steps=(words,), variables=variables)


def _other_packages(requirements: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the options for packages that were installed with the tool, `uv tool --with`.

    Raises:
        CommandFailed: if one of them did not come from an index.
    """
    words: list[str] = []
    for each in requirements:
        name = str(each.get("name", ""))
        if name == PACKAGE:
            continue
        if not each.keys() <= {"name", "extras", "specifier"}:
            raise CommandFailed(
                f"{name} was installed with Quarterdeck from a file or a repository; run uv tool"
                " install yourself, then: quarterdeck upgrade"
            )
        extras = f"[{','.join(each['extras'])}]" if each.get("extras") else ""
        words += ("--with", f"{name}{extras}{each.get('specifier', '')}")
    return tuple(words)


def _pipx(traces: InstallTraces, requirement: str, *, is_file: bool) -> InstallCommand:
    """Return the command for pipx, in the folder that it uses now; injected packages stay."""
    pipx = _program("pipx", traces.environ)
    name = traces.prefix.name  # with a suffix, if it was installed with one
    if not is_file:
        words: tuple[str, ...] = (pipx, "upgrade", name)
    else:
        suffix = name.removeprefix(PACKAGE)
        more = ("--suffix", suffix) if suffix else ()
        words = (pipx, "install", "--force", *more, requirement)
    home = traces.prefix.parent.parent
    if str(home) == traces.environ.get("PIPX_GLOBAL_HOME", "/opt/pipx"):
        return InstallCommand(steps=((*words, "--global"),))
    return InstallCommand(steps=(words,), variables={"PIPX_HOME": str(home)})


def _program(name: str, environ: Mapping[str, str]) -> str:
    if shutil.which(name, path=environ.get("PATH")) is None:
        raise CommandFailed(
            f"Quarterdeck was installed with {name}, which is not on PATH; add its folder to PATH,"
            " or upgrade Quarterdeck yourself and then run: quarterdeck upgrade"
        )
    return name
