"""Installs agents of the catalogue, each version into a folder of its own.

| kind   | into                     | verified by                                               |
| ------ | ------------------------ | --------------------------------------------------------- |
| npm    | an npm prefix            | npm, with the digests of the registry; all must have one  |
| PyPI   | a virtual environment    | pip, with the digests of the index                        |
| binary | a folder                 | the SHA-256 of the archive in the registry, or not at all |

Nothing is installed globally. A version is built in its final place and counts only when its
manifest is written, so an installation that is killed leaves the earlier version as it was;
downloads are kept and the next attempt continues with them.
"""

from __future__ import annotations

import hashlib
import os
import platform as machine
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import anyio

from quarterdeck.agents.catalogue import CatalogueEntry, NpmPackage, Platform, PypiPackage
from quarterdeck.agents.catalogue.entry import BinaryArchive
from quarterdeck.agents.catalogue.registry_cache import RegistryCache
from quarterdeck.agents.installs.archives import program_in, unpack
from quarterdeck.agents.installs.folder import (
    AgentFolder,
    InstalledAgent,
    InstallFolder,
    remove_tree,
)
from quarterdeck.agents.installs.progress import InstallProgress, OnProgress
from quarterdeck.agents.installs.tools import NodeTools, Toolbox, ToolFailed
from quarterdeck.errors import InstallFailed, JsonInvalid
from quarterdeck.http.downloads import DownloadFailed, download
from quarterdeck.jsontext import decode_json, encode_json

_MOST_BYTES: Final = 2 << 30
_LOOK_SECONDS: Final = 1.0
LATEST: Final = "latest"
_MACHINES: Final = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}


def this_platform() -> str:
    """Return the name of this platform in the ACP registry."""
    name = machine.machine().lower()
    return f"{sys.platform}-{_MACHINES.get(name, name)}"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What is installed, and where."""

    entry: CatalogueEntry
    agent: AgentFolder
    version: str | None
    """None for the newest."""
    report: OnProgress


class Installer:
    """Installs, updates and removes agents of one folder."""

    def __init__(
        self, folder: InstallFolder, tools: Toolbox, registry: RegistryCache | None = None
    ) -> None:
        self.folder = folder
        self._tools = tools
        self.registry = registry

    async def install(
        self,
        entry: CatalogueEntry,
        *,
        version: str | None = None,
        in_use: Callable[[], Sequence[str]] = tuple,
        report: OnProgress = lambda progress: None,
    ) -> InstalledAgent:
        """Install a version, by default the tested one, and use it from now on.

        `in_use` returns the programs of running agents, whose versions are kept.

        Raises:
            InstallFailed: with the reason; the version that was there before still works.
        """
        wanted = None if version == LATEST else (version or entry.tested_version)
        agent = self.folder.agent(entry.name)
        with agent.locked():
            given = Installation(entry=entry, agent=agent, version=wanted, report=report)
            report(InstallProgress(stage="resolving", version=wanted, platform=this_platform()))
            try:
                installed = await self._install(given)
            except OSError as error:
                reason = f"{entry.name} could not be installed: {error.strerror or error}"
                remedy = "free some space, or check the data directory, then try again"
                raise InstallFailed(reason, remedy) from error
            remove_tree(agent.cache)
            agent.prune(in_use())
            self._prune_node(in_use())
        report(InstallProgress(stage="installed", version=installed.version))
        return installed

    async def remove(self, name: str, *, in_use: Sequence[str] = ()) -> None:
        """Remove an agent.

        Raises:
            InstallFailed: if it was not installed here.
        """
        agent = self.folder.agent(name)
        if agent.current() is None:
            reason = f"{name} was not installed by Quarterdeck"
            raise InstallFailed(reason, "remove it in the way in which you installed it")
        with agent.locked():
            await anyio.to_thread.run_sync(agent.remove, in_use)
            self._prune_node(in_use)

    async def _install(self, given: Installation) -> InstalledAgent:
        entry = given.entry
        if entry.npm is not None:
            return await self._install_npm(given, entry.npm)
        if entry.pypi is not None:
            return await self._install_pypi(given, entry.pypi)
        if entry.binary:
            return await self._install_binary(given)
        reason = f"the catalogue does not say where {entry.name} comes from"
        raise InstallFailed(reason, f"install its program {entry.command} yourself")

    def _prune_node(self, in_use: Sequence[str]) -> None:
        used = self.folder.used_node_versions()
        if not self.folder.node.is_dir():
            return
        for place in self.folder.node.iterdir():
            if place.name not in used and not any(each.startswith(f"{place}/") for each in in_use):
                remove_tree(place)

    # ---- npm -----------------------------------------------------------------------------------

    async def _install_npm(self, given: Installation, package: NpmPackage) -> InstalledAgent:
        entry, agent = given.entry, given.agent
        if package.platforms and this_platform() not in package.platforms:
            reason = f"{entry.name} has no package for {this_platform()}"
            raise InstallFailed(reason, f"install its program {entry.command} yourself")
        tools = await self._node(given, package.node)
        folder = agent.begin(given.version or LATEST)
        await self._run_npm(given, package, tools, folder)
        given.report(InstallProgress(stage="verifying", version=given.version))
        packages, version = _npm_packages(folder, package.package)
        installed = InstalledAgent(
            name=entry.name,
            version=version,
            kind="npm",
            source=package.package,
            program=_npm_program(folder, package, entry.command),
            env=dict(entry.environment.set),
            search=("node_modules/.bin", str(tools.folder)),
            packages=packages,
            installed_at=time.time(),
            node=tools.installed,
        )
        agent.commit(folder, installed)
        return installed

    async def _run_npm(
        self, given: Installation, package: NpmPackage, tools: NodeTools, folder: Path
    ) -> None:
        wanted = f"{package.package}@{given.version or LATEST}"
        cache = given.agent.cache / "npm"
        command: list[str | Path] = [
            *tools.npm_command,
            "install",
            "--prefix",
            folder,
            "--cache",
            cache,
        ]
        flags = ["--no-audit", "--no-fund", "--no-update-notifier", "--omit=dev", "--global=false"]
        path = os.pathsep.join((str(tools.folder), self._tools.environ.get("PATH", os.defpath)))

        async def run() -> None:
            # Without it npm would look for one in the folders above.
            (folder / "package.json").write_bytes(encode_json({"private": True}))
            words: list[str | Path] = [*command, *flags, wanted, *package.also]
            await self._tools.run(words, folder=given.agent.path, env={"PATH": path})

        await self._measured(given, folder, run, wanted)

    async def _node(self, given: Installation, oldest: str) -> NodeTools:
        found = await anyio.to_thread.run_sync(self._tools.find_node, oldest)
        if found is not None:
            return found
        given.report(InstallProgress(stage="downloading", reason="Node.js"))
        return await self._tools.install_node(self.folder.node)

    async def _measured(
        self,
        given: Installation,
        folder: Path,
        work: Callable[[], Awaitable[object]],
        wanted: str,
    ) -> None:
        """Run a program that downloads into a folder, and report how much is there."""
        places = (folder, given.agent.cache)
        progress = InstallProgress(stage="downloading", version=given.version, downloaded_bytes=0)
        given.report(progress)
        try:
            async with anyio.create_task_group() as tasks:

                async def look() -> None:
                    while True:
                        await anyio.sleep(_LOOK_SECONDS)
                        size = await anyio.to_thread.run_sync(_size, places)
                        given.report(replace(progress, downloaded_bytes=size))

                tasks.start_soon(look)
                await work()
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            (error,) = group.exceptions if len(group.exceptions) == 1 else (group,)
            if isinstance(error, ToolFailed):
                raise error.explained(given.entry.name, wanted) from error
            raise error from None

    # ---- PyPI ----------------------------------------------------------------------------------

    async def _install_pypi(self, given: Installation, package: PypiPackage) -> InstalledAgent:
        entry, agent = given.entry, given.agent
        python = await anyio.to_thread.run_sync(
            self._tools.find_python, package.python, package.python_below, entry.name
        )
        folder = agent.begin(given.version or LATEST)
        own = await self._tools.create_environment(python, folder, entry.name)
        version = f"=={given.version}" if given.version else ""
        wanted = f"{package.package}{version}"
        command: list[str | Path] = [
            own,
            "-m",
            "pip",
            "install",
            "--no-input",
            "--disable-pip-version-check",
        ]
        command += ["--cache-dir", agent.cache / "pip", wanted]
        await self._measured(
            given, folder, lambda: self._tools.run(command, folder=agent.path), wanted
        )
        given.report(InstallProgress(stage="verifying", version=given.version))
        packages = _pypi_packages(folder)
        name = _normal(package.package.partition("[")[0])
        program = f"venv/bin/{entry.command}"
        if not os.access(folder / program, os.X_OK):
            reason = f"{wanted} has no program {entry.command}"
            raise InstallFailed(reason, "another version may have it: agents install NAME@VERSION")
        installed = InstalledAgent(
            name=entry.name,
            version=packages.get(name, given.version or "?"),
            kind="pypi",
            source=package.package,
            program=program,
            env=dict(entry.environment.set),
            search=("venv/bin",),
            packages=packages,
            installed_at=time.time(),
        )
        agent.commit(folder, installed)
        return installed

    # ---- a binary ------------------------------------------------------------------------------

    async def _install_binary(self, given: Installation) -> InstalledAgent:
        entry, agent, here = given.entry, given.agent, this_platform()
        target = entry.binary.get(cast("Platform", here))
        if target is None:
            has = ", ".join(entry.binary)
            raise InstallFailed(f"{entry.name} has no program for {here}", f"it has: {has}")
        if target.sha256 is None:
            reason = f"the registry has no checksum for {entry.name}, so it is not installed"
            raise InstallFailed(reason, "ask its authors to add sha256 to its agent.json")
        if given.version not in (None, entry.version):
            reason = f"the registry has only version {entry.version} of {entry.name}"
            raise InstallFailed(reason, "install that one, without a version")
        agent.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        archive = agent.cache / target.sha256
        await self._fetch(given, target, archive)
        given.report(InstallProgress(stage="verifying", version=entry.version))
        await anyio.to_thread.run_sync(_verify, archive, target.sha256, entry.name)
        given.report(InstallProgress(stage="extracting", version=entry.version))
        folder = agent.begin(entry.version or "0")
        name = target.archive.partition("?")[0].rpartition("/")[2]
        await anyio.to_thread.run_sync(unpack, archive, name, folder / "files", target.cmd)
        program = await anyio.to_thread.run_sync(program_in, folder / "files", target.cmd)
        installed = InstalledAgent(
            name=entry.name,
            version=entry.version or "0",
            kind="binary",
            source=target.archive,
            program=str(program.relative_to(folder)),
            args=target.args,
            env=dict(target.env),
            sha256=target.sha256,
            installed_at=time.time(),
        )
        agent.commit(folder, installed)
        return installed

    async def _fetch(self, given: Installation, target: BinaryArchive, archive: Path) -> None:
        registry = self.registry
        if "://" not in target.archive or target.archive.startswith("file://"):
            if registry is None or not registry.is_local:
                reason = f"the archive of {given.entry.name} is not at an https URL"
                raise InstallFailed(reason, "report it to the registry")
            path = registry.path.parent / target.archive.removeprefix("file://")
            await anyio.to_thread.run_sync(shutil.copyfile, path, archive)
            return

        def on_bytes(done: int, total: int | None) -> None:
            given.report(
                InstallProgress(
                    stage="downloading",
                    version=given.entry.version,
                    downloaded_bytes=done,
                    total_bytes=total,
                )
            )

        try:
            await download(target.archive, archive, max_bytes=_MOST_BYTES, on_bytes=on_bytes)
        except DownloadFailed as error:
            reason = f"{given.entry.name} could not be downloaded: {error}"
            remedy = "check the network, then try again: what was downloaded is kept"
            raise InstallFailed(reason, remedy) from error


def _verify(archive: Path, expected: str, name: str) -> None:
    digest = hashlib.sha256()
    with archive.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != expected:
        archive.unlink()
        reason = f"the archive of {name} has a wrong checksum and was not installed"
        remedy = "try again; if it stays, report it to the registry"
        raise InstallFailed(reason, remedy)


def _size(places: Sequence[Path]) -> int:
    """Return how many bytes are in folders, roughly."""
    total, pending = 0, [str(place) for place in places]
    while pending:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    with suppress(OSError):  # gone meanwhile
                        total += entry.stat(follow_symlinks=False).st_size
    return total


def _npm_packages(folder: Path, name: str) -> tuple[dict[str, str], str]:
    """Return what npm installed, with versions, and the version of the package itself.

    Raises:
        InstallFailed: if a package has no digest: then nothing has verified it.
    """
    try:
        content = (folder / "node_modules" / ".package-lock.json").read_bytes()
        listed: dict[str, Any] = decode_json(content)["packages"]
    except (OSError, JsonInvalid, KeyError, TypeError) as error:
        reason = f"npm has not listed what it installed for {name}"
        raise InstallFailed(reason, "install a newer npm, then try again") from error
    found: dict[str, str] = {}
    for path, facts in listed.items():
        is_part = bool(facts.get("inBundle") or facts.get("link"))
        if not is_part and not facts.get("integrity"):
            reason = f"{path.removeprefix('node_modules/')} has no checksum in the registry"
            raise InstallFailed(reason, "do not install it from there")
        found[path.rpartition("node_modules/")[2]] = str(facts.get("version", "?"))
    return found, str(listed.get(f"node_modules/{name}", {}).get("version", "?"))


def _npm_program(folder: Path, package: NpmPackage, command: str) -> str:
    """Return the program of a package, beneath the folder of its version.

    Raises:
        InstallFailed: if it has none.
    """
    for name in (package.program, f".bin/{command}", *_npm_commands(folder, package.package)):
        if name is not None and os.access(folder / "node_modules" / name, os.X_OK):
            return f"node_modules/{name}"
    reason = f"{package.package} has no program {command}"
    raise InstallFailed(reason, "another version may have it: agents install NAME@VERSION")


def _npm_commands(folder: Path, name: str) -> list[str]:
    """Return what npx would run: the only command of a package, or the one of its name."""
    try:
        facts = decode_json((folder / "node_modules" / name / "package.json").read_bytes())
    except (OSError, JsonInvalid):
        return []
    own = name.rpartition("/")[2]
    commands = facts.get("bin") if isinstance(facts, dict) else None
    if isinstance(commands, str):
        return [f".bin/{own}"]
    names = list(commands) if isinstance(commands, dict) else []
    chosen = names if len(names) == 1 else [each for each in names if each == own]
    return [f".bin/{each}" for each in chosen if "/" not in each]


def _pypi_packages(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.glob("venv/lib/python*/site-packages/*.dist-info"):
        name, _, version = path.name.removesuffix(".dist-info").rpartition("-")
        found[_normal(name)] = version
    found.pop("pip", None)
    return found


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def changes_between(before: InstalledAgent | None, now: InstalledAgent) -> list[str]:
    """Return what an update changed, a line each: the agent first, then its packages."""
    if before is None:
        return [f"{now.name} {now.version}: installed"]
    if before.version == now.version and before.packages == now.packages:
        return [f"{now.name} {now.version}: up to date"]
    lines = [f"{now.name} {before.version} → {now.version}"]
    for name in sorted(before.packages.keys() | now.packages.keys()):
        old, new = before.packages.get(name), now.packages.get(name)
        if old != new and name != now.source:
            lines.append(f"  {name} {_change(old, new)}")
    return lines


def _change(old: str | None, new: str | None) -> str:
    if old is None:
        return f"{new} added"
    return f"{old} removed" if new is None else f"{old} → {new}"
