"""Installing agents from local registries: npm, PyPI and archives."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from quarterdeck.agents import KnownAgents
from quarterdeck.agents.catalogue import BinaryArchive, CatalogueEntry, NpmPackage, PypiPackage
from quarterdeck.agents.installs import (
    InstalledAgent,
    Installer,
    InstallFolder,
    InstallProgress,
    Toolbox,
    changes_between,
    this_platform,
)
from quarterdeck.agents.installs.tools import ToolFailed
from quarterdeck.errors import InstallFailed
from quarterdeck.machine import UNCONFINED
from tests.agents.local_registry import LocalRegistry, packed, serving_registry

SCRIPT = "#!/bin/sh\necho it runs\n"
NPM = CatalogueEntry(name="mine", command="mine", npm=NpmPackage(package="@me/mine", node="18"))
PYPI = CatalogueEntry(name="mine", command="mine", pypi=PypiPackage(package="mine"))


@pytest.fixture
def registry() -> Iterator[LocalRegistry]:
    with serving_registry() as server:
        yield server


@pytest.fixture
def installer(tmp_path: Path, registry: LocalRegistry) -> Installer:
    path = os.pathsep.join((str(Path(sys.prefix) / "bin"), os.environ["PATH"]))
    environ = {
        "PATH": path,
        "HOME": str(tmp_path),
        "npm_config_registry": registry.url,
        "npm_config_fetch_retries": "0",
        "PIP_INDEX_URL": f"{registry.url}/simple",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_RETRIES": "0",
        "ANTHROPIC_API_KEY": "secret",
    }
    return Installer(InstallFolder(tmp_path / "agents"), Toolbox(environ, lambda _: UNCONFINED))


def binary(content: bytes, url: str, *, digest: str | None = None) -> CatalogueEntry:
    archive = BinaryArchive(
        archive=url,
        cmd="./run",
        sha256=digest or hashlib.sha256(content).hexdigest(),
        args=("acp",),
        env={"A": "b"},
    )
    here: dict[object, BinaryArchive] = {this_platform(): archive}
    return CatalogueEntry(name="mine", command="mine", version="1.0.0", binary=here)  # type: ignore[arg-type]


def current(installer: Installer) -> tuple[Path, InstalledAgent]:
    found = installer.folder.agent("mine").current()
    assert found is not None
    return found


async def run(program: Path) -> str:
    done = await anyio.run_process([str(program)])
    return done.stdout.decode()


async def test_an_npm_package_is_installed_updated_and_removed(
    installer: Installer, registry: LocalRegistry
) -> None:
    registry.add_npm("@me/mine", "1.0.0", SCRIPT)
    stages: list[InstallProgress] = []
    await installer.install(NPM, version="1.0.0", report=stages.append)
    assert [stages[0].stage, stages[-1].stage] == ["resolving", "installed"]
    first, installed = current(installer)
    assert (installed.version, installed.packages) == ("1.0.0", {"@me/mine": "1.0.0"})
    old = first / installed.program
    assert await run(old) == "it runs\n"

    registry.add_npm("@me/mine", "1.1.0", SCRIPT.replace("runs", "is newer"))
    now = await installer.install(NPM, version="latest", in_use=lambda: [str(old)])
    second, _ = current(installer)
    assert await run(second / now.program) == "it is newer\n"
    assert changes_between(installed, now) == ["mine 1.0.0 → 1.1.0"]
    assert await run(old) == "it runs\n"  # a session that runs keeps its version

    await installer.remove("mine", in_use=[str(old)])
    assert installer.folder.names() == []
    assert (old.exists(), second.exists()) == (True, False)
    with pytest.raises(InstallFailed, match="not installed by Quarterdeck"):
        await installer.remove("mine")


async def test_a_package_with_a_wrong_checksum_is_not_installed(
    installer: Installer, registry: LocalRegistry
) -> None:
    registry.add_npm("@me/mine", "1.0.0", SCRIPT)
    await installer.install(NPM, version="1.0.0")
    registry.add_npm("@me/mine", "1.1.0", SCRIPT, integrity="sha512-" + "A" * 86 + "==")
    with pytest.raises(InstallFailed, match="wrong checksum"):
        await installer.install(NPM, version="1.1.0")
    assert current(installer)[1].version == "1.0.0"
    with pytest.raises(InstallFailed, match=r"@me/mine@9.9.9 was not found"):
        await installer.install(NPM, version="9.9.9")


async def test_a_package_of_pypi_gets_an_environment_of_its_own(
    installer: Installer, registry: LocalRegistry
) -> None:
    code = "import os\ndef main(): print(sorted(os.environ.get('ANTHROPIC_API_KEY', '')))\n"
    registry.add_wheel("mine", "2.0", code)
    installed = await installer.install(PYPI)
    assert (installed.version, installed.packages["mine"]) == ("2.0", "2.0")
    folder, _ = current(installer)
    assert (folder / installed.program).parent.name == "bin"
    assert (await run(folder / installed.program)).startswith("[")


async def test_an_archive_is_verified_and_a_download_continues_where_it_was_cut(
    installer: Installer, registry: LocalRegistry
) -> None:
    content = packed({"run": SCRIPT, "more": os.urandom(50_000).hex()})
    registry.files["/mine.tgz"] = content
    entry = binary(content, f"{registry.url}/mine.tgz")
    registry.cut_after = 20_000
    with pytest.raises(InstallFailed, match="what was downloaded is kept"):
        await installer.install(entry)
    registry.cut_after = None
    installed = await installer.install(entry)
    assert registry.asked[-1] == ("/mine.tgz", "bytes=20000-")
    folder, _ = current(installer)
    assert await run(folder / installed.program) == "it runs\n"
    assert (installed.args, installed.env) == (("acp",), {"A": "b"})
    assert not (installer.folder.agent("mine").cache).exists()


async def test_nothing_unverified_is_installed(
    installer: Installer, registry: LocalRegistry
) -> None:
    content = packed({"run": SCRIPT})
    url = f"{registry.url}/mine.tgz"
    registry.files["/mine.tgz"] = content
    with pytest.raises(InstallFailed, match="wrong checksum"):
        await installer.install(binary(content, url, digest="0" * 64))
    unverified = BinaryArchive(archive=url, cmd="run")
    here: dict[object, BinaryArchive] = {this_platform(): unverified}
    entry = CatalogueEntry(name="mine", command="mine", binary=here)  # type: ignore[arg-type]
    with pytest.raises(InstallFailed, match="no checksum"):
        await installer.install(entry)
    for place in ("http://registry.example/x.tgz", "ftp://a/x.tgz", "/etc/passwd", "file:///x.tgz"):
        with pytest.raises(InstallFailed, match="https"):
            await installer.install(binary(content, place))
    assert installer.folder.names() == []


async def test_an_installation_that_is_cut_off_leaves_the_earlier_version(
    installer: Installer, registry: LocalRegistry
) -> None:
    content = packed({"run": SCRIPT})
    registry.files["/mine.tgz"] = content
    entry = binary(content, f"{registry.url}/mine.tgz")
    await installer.install(entry)
    agent = installer.folder.agent("mine")
    half = agent.begin("2.0.0")  # as a process that is killed leaves it
    (half / "files").mkdir()
    assert current(installer)[1].version == "1.0.0"
    await installer.install(entry)
    assert not half.exists()
    for damage in (b"", b"{", b'{"folder": "../../etc"}', b'{"folder": "none"}'):
        (agent.path / "current.json").write_bytes(damage)
        assert agent.current() is None
    await installer.install(entry)
    assert current(installer)[1].version == "1.0.0"


async def test_two_processes_do_not_install_the_same_agent(installer: Installer) -> None:
    other = InstallFolder(installer.folder.path).agent("mine")
    with other.locked(), pytest.raises(InstallFailed, match="another process"):
        await installer.install(NPM)


async def test_a_platform_or_a_python_that_is_missing_is_a_sentence(installer: Installer) -> None:
    entry = CatalogueEntry(
        name="mine", command="mine", npm=NpmPackage(package="a", platforms=("windows-aarch64",))
    )
    with pytest.raises(InstallFailed, match="no package for"):
        await installer.install(entry)
    newest = PypiPackage(package="a", python="3.99")
    with pytest.raises(InstallFailed, match=r"needs Python 3.99 or newer \(found: .*python3.99"):
        await installer.install(CatalogueEntry(name="mine", command="mine", pypi=newest))
    with pytest.raises(InstallFailed, match="does not say where"):
        await installer.install(CatalogueEntry(name="mine", command="mine"))


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("npm ERR! code ENOSPC", "the disk is full"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("npm ERR! code EINTEGRITY", "wrong checksum"),
        ("THESE PACKAGES DO NOT MATCH THE HASHES FROM", "wrong checksum"),
        ("npm error code ENOTFOUND", "cannot be reached"),
        ("npm error code ECONNREFUSED", "cannot be reached"),
        ("Temporary failure in name resolution", "cannot be reached"),
        ("npm error code E404", "was not found"),
        ("No matching distribution found for x", "was not found"),
        ("npm error EACCES: permission denied", "cannot be written"),
        ("something else", "could not be installed: something else"),
    ],
)
def test_what_a_program_prints_becomes_a_sentence(printed: str, sentence: str) -> None:
    assert sentence in str(ToolFailed([printed, ""]).explained("mine", "mine@1"))


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", ".node", "a\0b", "/etc", "a\nb", "ä"])
def test_a_name_never_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InstallFailed, match="is no name of an agent"):
        InstallFolder(tmp_path).agent(name)
    known = KnownAgents({}, {}, installs=InstallFolder(tmp_path))
    assert known.settings(name) is None
