"""A malicious agent swaps folders and links while we read and write: nothing may escape.

Adapted from the prototype that defeats "realpath, check, open" within a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from quarterdeck.errors import RpcError
from quarterdeck.machine.files import DefaultFsHandler
from quarterdeck.machine.roots import Locate, locate_by_openat2, locate_by_walk

pytestmark = [
    pytest.mark.slow,
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="RENAME_EXCHANGE is Linux's"),
]

SECONDS = float(os.environ.get("QUARTERDECK_RACE_SECONDS", "0.3"))
PATIENCE = 60  # for the swapper to begin
LOCATES: dict[str, Locate] = {"openat2": locate_by_openat2, "walk": locate_by_walk}
SWAPPER = """
import ctypes, sys
swap = ctypes.CDLL(None).renameat2
a, b = (name.encode() for name in sys.argv[1:])
while True:
    swap(-100, a, -100, b, 2)
"""


class Trap:
    """`root/folder/f` and `root/f`: now a file inside, now a link to the secret outside."""

    def __init__(self, base: Path) -> None:
        self.root, self.outside = base / "root", base / "outside"
        for folder in (self.root, self.root / "folder", self.outside):
            folder.mkdir()
            (folder / "f").write_text("SECRET" if folder == self.outside else "inside")
        (self.root / "link").symlink_to(self.outside)
        (self.root / "g").symlink_to(self.outside / "f")

    def escapes(self) -> list[str]:
        text = (self.outside / "f").read_text()
        names = [path.name for path in self.outside.iterdir()]
        return [] if (names, text) == (["f"], "SECRET") else [*names, text]


@pytest.fixture(params=[("folder", "link", "folder/f"), ("f", "g", "f")], ids=["folder", "file"])
def trap(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Trap, str]]:
    trap = Trap(tmp_path)
    one, other, path = request.param
    command = [sys.executable, "-I", "-S", "-c", SWAPPER]
    swapper = subprocess.Popen([*command, str(trap.root / one), str(trap.root / other)])
    try:
        yield trap, str(trap.root / path)
    finally:
        swapper.kill()
        swapper.wait()


@pytest.mark.parametrize("locate", LOCATES)
async def test_no_read_escapes_while_folders_and_links_are_swapped(
    trap: tuple[Trap, str], locate: str
) -> None:
    victim, path = trap
    handler, roots = DefaultFsHandler(locate=LOCATES[locate]), [str(victim.root)]
    texts: Counter[str] = Counter()
    deadline = time.monotonic() + SECONDS
    with anyio.fail_after(SECONDS + PATIENCE):
        while time.monotonic() < deadline or len(texts) < 2:
            try:
                texts[await handler.read_text_file("s", path, roots=roots)] += 1
            except RpcError:
                texts["refused"] += 1
    print(locate, dict(texts))  # noqa: T201 - `pytest -s` shows how hard it was tried
    assert set(texts) == {"inside", "refused"}


@pytest.mark.parametrize("locate", LOCATES)
async def test_no_write_escapes_while_folders_and_links_are_swapped(
    trap: tuple[Trap, str], locate: str
) -> None:
    victim, path = trap
    handler, roots = DefaultFsHandler(locate=LOCATES[locate]), [str(victim.root)]
    outcomes: Counter[str] = Counter()
    deadline = time.monotonic() + SECONDS
    with anyio.fail_after(SECONDS + PATIENCE):
        while time.monotonic() < deadline or not outcomes["written"]:
            try:
                await handler.write_text_file("s", path, "inside", roots=roots)
                outcomes["written"] += 1
            except RpcError:
                outcomes["refused"] += 1
    print(locate, dict(outcomes))  # noqa: T201 - `pytest -s` shows how hard it was tried
    assert victim.escapes() == []
