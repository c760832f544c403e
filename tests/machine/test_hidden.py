"""Hidden folders: no path of any spelling leads the file services into the hub's own folders."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quarterdeck.acp import schema
from quarterdeck.errors import RequestRejected, RpcError
from quarterdeck.machine import (
    DefaultFsHandler,
    DefaultTerminalHandler,
    HiddenFolders,
    locate_by_openat2,
    open_folder,
)
from quarterdeck.machine.roots import locate_by_walk
from quarterdeck.runner.workspaces import FileNames, list_folder

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="uses /proc")]

SECRET = "owner-token"


class World:
    """A user's folder with the hub's data folder below it, and links to it of many kinds."""

    def __init__(self, folder: Path) -> None:
        self.user = folder / "user"
        self.home = self.user / "data" / "quarterdeck"
        self.project = self.user / "project"
        self.deep = self.home / "sockets"
        self.deep.mkdir(parents=True)
        self.project.mkdir()
        (self.home / "token").write_text(SECRET)
        (self.deep / "inner").write_text(SECRET)
        (self.project / "mine.txt").write_text("mine")
        (self.project / "link").symlink_to(self.home)
        (self.project / "relative").symlink_to("../data/quarterdeck")
        (self.project / "chain").symlink_to("link")
        (self.project / "token-link").symlink_to(self.home / "token")
        os.link(self.home / "token", self.project / "hard")
        os.link(self.deep / "inner", self.project / "hard-inner")
        self.hidden = HiddenFolders([self.home])

    def paths(self) -> list[str]:
        home, project = str(self.home), str(self.project)
        return [
            f"{home}/token",
            f"{home}/sockets/inner",
            f"{home}/../quarterdeck/token",
            f"{home}/./token",
            f"{home}//token",
            f"{project}/../data/quarterdeck/token",
            f"{project}/link/token",
            f"{project}/link/sockets/inner",
            f"{project}/relative/token",
            f"{project}/chain/token",
            f"{project}/token-link",
            f"{project}/hard",
            f"{project}/hard-inner",
            f"/proc/self/root{home}/token",
            f"/proc/{os.getpid()}/root{home}/token",
            f"/proc/self/cwd{'/..' * 40}{home}/token",
        ]


ROOTS: dict[str, Callable[[World], list[str]]] = {
    "the folder": lambda world: [str(world.home)],
    "inside it": lambda world: [str(world.deep)],
    "its parent": lambda world: [str(world.home.parent)],
    "a folder above": lambda world: [str(world.user)],
    "everything": lambda _world: ["/"],
    "a link to it": lambda world: [str(world.project / "link")],
    "the project": lambda world: [str(world.project)],
    "both": lambda world: [str(world.project), str(world.home)],
    "dots": lambda world: [f"{world.project}/../data/quarterdeck"],
    "proc": lambda world: [f"/proc/self/root{world.home}", "/proc"],
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("roots", ROOTS.values(), ids=ROOTS)
@pytest.mark.parametrize("locate", [locate_by_openat2, locate_by_walk])
async def test_no_file_inside_is_read_or_written(
    world: World, roots: Callable[[World], list[str]], locate: object
) -> None:
    files = DefaultFsHandler(
        locate=lambda path, given: locate(path, given, world.hidden)  # type: ignore[operator]  # one of two
    )
    for path in world.paths():
        with pytest.raises(RpcError):
            await files.read_text_file("s", path, roots=roots(world))
        with pytest.raises(RpcError):
            await files.write_text_file("s", path, "changed", roots=roots(world))
    new = [f"{world.home}/new", f"{world.project}/link/new", f"{world.deep}/new"]
    for path in new:
        with pytest.raises(RpcError):
            await files.write_text_file("s", path, "new", roots=roots(world))
    assert (world.home / "token").read_text() == SECRET
    assert sorted(path.name for path in world.home.iterdir()) == ["sockets", "token"]


@pytest.mark.parametrize("roots", ROOTS.values(), ids=ROOTS)
def test_no_folder_inside_is_opened(world: World, roots: Callable[[World], list[str]]) -> None:
    for path in (world.home, world.deep, world.project / "link", world.project / "chain"):
        with (
            pytest.raises((RpcError, OSError)),
            open_folder(str(path), roots(world), world.hidden) as fd,
        ):
            assert fd < 0


async def test_files_around_it_are_served_as_before(world: World) -> None:
    files = DefaultFsHandler(hidden=world.hidden)
    roots = [str(world.user)]
    path = f"{world.project}/mine.txt"
    assert await files.read_text_file("s", path, roots=roots) == "mine"
    await files.write_text_file("s", path, "changed", roots=roots)
    assert await files.read_text_file("s", path, roots=roots) == "changed"


async def test_the_services_environment_is_not_a_file(world: World) -> None:
    files = DefaultFsHandler(hidden=world.hidden)
    for path in ("/proc/self/environ", "/proc/self/cmdline", f"/proc/{os.getpid()}/maps"):
        with pytest.raises(RpcError) as caught:
            await files.read_text_file("s", path, roots=["/"])
        assert "outside" in str(caught.value.data)


def test_a_bind_mount_is_recognised(world: World) -> None:
    # As root, in a mount namespace of its own: of the folder, of a part of it, and of one file.
    if os.geteuid() != 0:
        return
    script = """
import sys
from quarterdeck.machine import HiddenFolders, locate_by_openat2
from quarterdeck.errors import RpcError
home, project = sys.argv[1:]
hidden = HiddenFolders([home])
for path in ("whole/token", "part/inner", "one"):
    try:
        with locate_by_openat2(f"{project}/{path}", [project], hidden):
            print("REACHED", path)
    except RpcError:
        print("refused")
"""
    home, project = world.home, world.project
    for name in ("whole", "part"):
        (project / name).mkdir()
    (project / "one").touch()
    mounts = (
        f"mount --bind {home} {project}/whole && mount --bind {home}/sockets {project}/part"
        f" && mount --bind {home}/token {project}/one"
    )
    line = f'{mounts} && exec {sys.executable} -c "$0" {home} {project}'
    done = subprocess.run(
        ["unshare", "--mount", "/bin/sh", "-c", line, script],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["refused"] * 3


async def test_names_inside_are_not_listed(world: World) -> None:
    names = FileNames(world.hidden)
    for root in (world.user, world.home, world.home.parent, world.project):
        found = await names.find([str(root)], "", 100)
        assert [each for each in found if "token" in each.name or "inner" in each.name] == []
        assert not any("hard" in each.name for each in found)
    found = await names.find([str(world.user)], "mine", 10)
    assert [each.name for each in found] == ["project/mine.txt"]


async def test_the_folder_picker_does_not_show_it(world: World) -> None:
    listed = await list_folder(str(world.home.parent), world.hidden)
    assert listed.folders == []
    for path in (world.home, world.deep, world.project / "link"):
        with pytest.raises(RequestRejected):
            await list_folder(str(path), world.hidden)


async def test_no_terminal_starts_inside(world: World) -> None:
    async with DefaultTerminalHandler(hidden=world.hidden) as terminals:
        for path in (world.home, world.deep, world.project / "link", world.project / "chain"):
            request = schema.CreateTerminalRequest(session_id="s", command="ls", cwd=str(path))
            with pytest.raises(RpcError) as caught:
                await terminals.create_terminal("s", request)
            assert "folder of the hub" in str(caught.value.data)


def test_a_folder_that_is_created_later_is_hidden(tmp_path: Path) -> None:
    hidden = HiddenFolders([tmp_path / "later"])
    assert hidden.contains(tmp_path / "later")
    assert hidden.contains(tmp_path / "later" / "deep")
    assert not hidden.contains(tmp_path)
    assert not hidden.contains(tmp_path / "later-not")
