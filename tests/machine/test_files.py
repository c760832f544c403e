"""The default file handler: one contract for both ways to find a file beneath the roots."""

from __future__ import annotations

import errno
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import anyio
import pytest
from hypothesis import given, strategies as st

from quarterdeck.errors import RpcError
from quarterdeck.machine.files import DefaultFsHandler, _Lines
from quarterdeck.machine.hidden import HiddenFolders
from quarterdeck.machine.roots import Locate, locate_by_openat2, locate_by_walk

pytestmark = pytest.mark.anyio

PATIENCE = 60
LOCATES: dict[str, Locate] = {"openat2": locate_by_openat2, "walk": locate_by_walk}


class Files:
    """A handler and the one root of its session."""

    def __init__(self, handler: DefaultFsHandler, root: Path) -> None:
        self.handler = handler
        self.root = root

    async def read(
        self, path: Path | str, line: int | None = None, limit: int | None = None
    ) -> str:
        with anyio.fail_after(PATIENCE):
            return await self.handler.read_text_file(
                "s", str(path), line=line, limit=limit, roots=[str(self.root)]
            )

    async def write(self, path: Path | str, content: str) -> None:
        with anyio.fail_after(PATIENCE):
            await self.handler.write_text_file("s", str(path), content, roots=[str(self.root)])

    async def refusal(self, path: Path | str, line: int | None = None) -> tuple[int, str]:
        """Return code and sentence of a read that must fail."""
        with pytest.raises(RpcError) as caught:
            await self.read(path, line)
        return caught.value.code, str(caught.value.data)

    async def write_refusal(self, path: Path | str, content: str = "x") -> tuple[int, str]:
        with pytest.raises(RpcError) as caught:
            await self.write(path, content)
        return caught.value.code, str(caught.value.data)


@pytest.fixture(params=LOCATES)
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    root = tmp_path / "root"
    root.mkdir()
    return Files(DefaultFsHandler(locate=LOCATES[request.param], max_bytes=1 << 20), root)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("SECRET")
    return folder


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def open_descriptors() -> int:
    return len(names(Path("/proc/self/fd")))


OUTSIDE = (-32602, "path outside session roots")


# Where a file may be.


async def test_a_relative_path_is_refused(fs: Files) -> None:
    assert await fs.refusal("file") == (-32602, "path must be absolute")


@pytest.mark.parametrize(
    "spelling",
    [
        "{outside}/secret",
        "{root}/../outside/secret",
        "{root}/sub/../../outside/secret",
        "/",
        "/etc",
    ],
)
async def test_a_path_that_leads_outside_is_refused(
    fs: Files, outside: Path, spelling: str
) -> None:
    (fs.root / "sub").mkdir()
    path = spelling.format(root=fs.root, outside=outside)
    assert await fs.refusal(path) == OUTSIDE
    assert await fs.write_refusal(path) == OUTSIDE
    assert (outside / "secret").read_text() == "SECRET"


async def test_a_path_outside_does_not_reveal_whether_it_exists(fs: Files, outside: Path) -> None:
    (fs.root / "link").symlink_to(outside / "missing" / "more")
    assert await fs.refusal(outside / "missing") == OUTSIDE
    assert await fs.refusal(fs.root / "link") == OUTSIDE
    assert await fs.refusal("/proc/self/root/etc/passwd") == OUTSIDE


async def test_a_sibling_with_the_same_beginning_is_outside(fs: Files) -> None:
    twin = fs.root.with_name("root2")
    twin.mkdir()
    (twin / "f").write_text("x")
    assert await fs.refusal(twin / "f") == OUTSIDE


@pytest.mark.parametrize("target", ["{outside}/secret", "../outside/secret", "hop"])
async def test_a_link_that_leads_outside_is_refused(fs: Files, outside: Path, target: str) -> None:
    (fs.root / "hop").symlink_to(outside / "secret")
    (fs.root / "link").symlink_to(target.format(outside=outside))
    (fs.root / "folder").symlink_to(outside)
    for path in (fs.root / "link", fs.root / "folder" / "secret", fs.root / "folder" / "new"):
        assert await fs.refusal(path) == OUTSIDE
        assert await fs.write_refusal(path) == OUTSIDE
    assert (outside / "secret").read_text() == "SECRET"
    assert not (outside / "new").exists()


async def test_links_that_stay_inside_work_in_every_spelling(fs: Files) -> None:
    (fs.root / "real").mkdir()
    (fs.root / "real" / "f").write_text("here")
    (fs.root / "relative").symlink_to("real")
    (fs.root / "absolute").symlink_to(fs.root / "real")
    (fs.root / "around").symlink_to("../root/absolute/../real/f")
    for path in (
        "relative/f",
        "absolute/f",
        "around",
        "absolute/../relative/./f",
        "../root/around",
    ):
        assert await fs.read(f"{fs.root}/{path}") == "here"


async def test_a_root_may_be_reached_by_a_link_on_either_side(fs: Files, tmp_path: Path) -> None:
    (fs.root / "f").write_text("here")
    alias = tmp_path / "alias"
    alias.symlink_to(fs.root)
    assert await fs.read(alias / "f") == "here"
    fs.root = alias
    assert await fs.read(alias / "f") == "here"
    assert await fs.read(alias.resolve() / "f") == "here"


async def test_a_link_from_one_root_to_another_works(fs: Files, outside: Path) -> None:
    (fs.root / "link").symlink_to(outside / "secret")
    roots = [str(fs.root), str(outside)]
    text = await fs.handler.read_text_file("s", str(fs.root / "link"), roots=roots)
    assert text == "SECRET"


async def test_a_missing_root_is_ignored_until_none_is_left(fs: Files) -> None:
    (fs.root / "f").write_text("here")
    missing = str(fs.root / "missing")
    path = str(fs.root / "f")
    assert await fs.handler.read_text_file("s", path, roots=[missing, str(fs.root)]) == "here"
    with pytest.raises(RpcError) as caught:
        await fs.handler.read_text_file("s", path, roots=["/missing/folder"])
    assert (caught.value.code, caught.value.data) == (
        -32602,
        "none of the session's folders exists",
    )


async def test_a_root_inside_a_root_cannot_be_turned_into_another(fs: Files, outside: Path) -> None:
    """The agent may write in the outer root, so what the inner one's name means is not ours."""
    inner = fs.root / "inner"
    inner.symlink_to(outside)
    for roots in ([str(fs.root), str(inner)], [str(inner), str(fs.root)]):
        with pytest.raises(RpcError) as caught:
            await fs.handler.read_text_file("s", str(inner / "secret"), roots=roots)
        assert (caught.value.code, caught.value.data) == OUTSIDE


async def test_links_in_a_circle_are_refused(fs: Files) -> None:
    (fs.root / "a").symlink_to("b")
    (fs.root / "b").symlink_to("a")
    code, sentence = await fs.refusal(fs.root / "a")
    assert code == -32602
    assert "symbolic links" in sentence


@pytest.mark.parametrize("name", ["nul\0", "half\ud800", "x" * 300, "x/" * 3000])
async def test_names_that_no_file_can_have_are_refused(fs: Files, name: str) -> None:
    code, _ = await fs.refusal(f"{fs.root}/{name}")
    assert code == -32602


async def test_deeply_nested_folders_do_not_use_up_descriptors(fs: Files) -> None:
    (fs.root / "deep").symlink_to("a/" * 200)
    folder = fs.root
    for _ in range(200):
        folder /= "a"
    folder.mkdir(parents=True)
    (folder / "f").write_text("x")
    code, sentence = await fs.refusal(fs.root / "deep" / "g" / "h")
    assert (code, "deep" in sentence) in {(-32602, True), (-32002, True)}


# What may be read.


async def test_a_missing_file_is_resource_not_found(fs: Files) -> None:
    path = fs.root / "missing" / "f"
    with pytest.raises(RpcError, match="Resource not found: ") as caught:
        await fs.read(path)
    assert caught.value.code == -32002
    assert caught.value.data == {"uri": str(path)}


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (Path.mkdir, "a folder"),
        (os.mkfifo, "a named pipe"),
        (make_socket, "a socket"),
    ],
)
async def test_what_is_no_file_is_refused_without_waiting(
    fs: Files, make: Callable[[Path], None], sentence: str
) -> None:
    path = fs.root / "thing"
    make(path)
    assert await fs.refusal(path) == (-32602, f"{path} is {sentence}, not a file")
    assert await fs.write_refusal(path) == (-32602, f"{path} is {sentence}, not a file")


@pytest.mark.parametrize("name", ["zero", "null", "tty"])
async def test_a_device_is_refused_without_waiting(fs: Files, name: str) -> None:
    fs.root = Path("/dev")
    assert await fs.refusal(f"/dev/{name}") == (-32602, f"/dev/{name} is a device, not a file")
    assert await fs.write_refusal(f"/dev/{name}") == (
        -32602,
        f"/dev/{name} is a device, not a file",
    )


async def test_the_root_itself_is_a_folder(fs: Files) -> None:
    assert await fs.refusal(fs.root) == (-32602, f"{fs.root} is a folder, not a file")
    assert await fs.write_refusal(f"{fs.root}/.") == (
        -32602,
        f"{fs.root}/. is a folder, not a file",
    )


async def test_a_binary_file_is_refused(fs: Files) -> None:
    path = fs.root / "f"
    path.write_bytes(b"a" * 8000 + b"\0")
    assert await fs.refusal(path) == (-32602, f"{path} is not text: it has NUL bytes")
    assert await fs.refusal(path, 2) == (-32602, f"{path} is not text: it has NUL bytes")


async def test_a_huge_file_is_refused_at_once_and_can_be_read_by_line(fs: Files) -> None:
    path = fs.root / "f"
    path.write_bytes(b"first\nsecond\n" + b"." * 9000)
    os.truncate(path, 5 << 30)  # sparse
    sentence = f"{path} has more than 1048576 bytes of text; use line and limit"
    assert await fs.refusal(path) == (-32602, sentence)
    assert await fs.refusal(path, 2) == (-32602, sentence)
    assert await fs.read(path, 2, 1) == "second"


async def test_lines_of_a_large_file_are_found_across_the_pieces_it_is_read_in(fs: Files) -> None:
    lines = [f"line {number}" for number in range(1, 200_001)]
    path = fs.root / "f"
    path.write_text("\n".join(lines))
    assert path.stat().st_size > 2 * (1 << 20)
    assert await fs.read(path, 150_000, 3) == "line 150000\nline 150001\nline 150002"
    assert await fs.read(path, 200_000) == "line 200000"
    assert await fs.read(path, 200_001) == ""


async def test_a_byte_order_mark_is_dropped_and_bytes_that_are_no_text_replaced(fs: Files) -> None:
    path = fs.root / "f"
    path.write_bytes(b"\xef\xbb\xbfcaf\xe9\r\nna\xc3\xafve\n")
    assert await fs.read(path) == "caf�\r\nnaïve\n"
    assert await fs.read(path, 1, 1) == "caf�\r"


@given(
    text=st.text(st.sampled_from("ab\n\r\u2028é"), max_size=30),
    line=st.none() | st.integers(-2, 9),
    limit=st.none() | st.integers(-2, 9),
    cut=st.integers(1, 9),
)
def test_lines_are_those_of_a_split_text_however_it_is_cut(
    text: str, line: int | None, limit: int | None, cut: int
) -> None:
    encoded = text.encode()
    pieces = iter([encoded[start : start + cut] for start in range(0, len(encoded), cut)])
    start = max(line or 1, 1) - 1
    end = None if limit is None else start + max(limit, 0)
    expected = "\n".join(text.split("\n")[start:end])
    got = b"" if limit is not None and limit <= 0 else b"".join(_Lines(line, limit).of(pieces))
    assert got.decode() == expected


# What writing does.


async def test_a_new_file_gets_the_usual_mode_and_leaves_nothing_else_behind(fs: Files) -> None:
    old_mask = os.umask(0o027)
    try:
        await fs.write(fs.root / "f", "häl\r\nlo\n")
    finally:
        os.umask(old_mask)
    assert (fs.root / "f").read_bytes() == "häl\r\nlo\n".encode()
    assert stat.S_IMODE((fs.root / "f").stat().st_mode) == 0o640
    assert names(fs.root) == ["f"]


async def test_an_old_file_keeps_its_mode_and_byte_order_mark(fs: Files) -> None:
    path = fs.root / "f"
    path.write_bytes(b"\xef\xbb\xbfold")
    path.chmod(0o751)
    await fs.write(path, "new")
    assert path.read_bytes() == b"\xef\xbb\xbfnew"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert await fs.read(path) == "new"
    assert names(fs.root) == ["f"]


async def test_a_file_is_replaced_and_not_written_over(fs: Files) -> None:
    path, twin = fs.root / "f", fs.root / "twin"
    path.write_text("old")
    twin.hardlink_to(path)
    with path.open() as reader:
        await fs.write(path, "new")
        assert reader.read() == "old"
    assert (path.read_text(), twin.read_text()) == ("new", "old")


async def test_a_link_is_kept_and_its_target_written(fs: Files) -> None:
    (fs.root / "sub").mkdir()
    (fs.root / "link").symlink_to("sub/f")
    await fs.write(fs.root / "link", "created")
    assert (fs.root / "sub" / "f").read_text() == "created"
    await fs.write(fs.root / "link", "replaced")
    assert (fs.root / "sub" / "f").read_text() == "replaced"
    assert (fs.root / "link").is_symlink()
    assert names(fs.root / "sub") == ["f"]


async def test_folders_are_not_created(fs: Files) -> None:
    path = fs.root / "missing" / "f"
    with pytest.raises(RpcError, match=r"the folder of .*; create it first") as caught:
        await fs.write(path, "x")
    assert caught.value.code == -32002
    assert names(fs.root) == []


async def test_content_that_no_file_can_hold_or_that_is_too_large_is_refused(fs: Files) -> None:
    code, sentence = await fs.write_refusal(fs.root / "f", "\ud800")
    assert (code, "surrogate" in sentence) == (-32602, True)
    code, sentence = await fs.write_refusal(fs.root / "f", "x" * ((1 << 20) + 1))
    assert (code, "1048577 bytes" in sentence) == (-32602, True)
    assert names(fs.root) == []


async def test_a_full_disk_leaves_the_old_file_and_no_other(
    fs: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fs.root / "f"
    path.write_text("old")

    def no_space(_fd: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_space)
    assert await fs.write_refusal(path, "new") == (-32603, f"{path}: No space left on device")
    assert path.read_text() == "old"
    assert names(fs.root) == ["f"]


@contextmanager
def without_the_rights_of_root() -> Iterator[None]:
    """Root may write everything; nobody may not."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may write to; pytest's own are for their owner only."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        root.chmod(0o777)
        yield root


async def test_a_file_that_may_not_be_written_is_not_replaced(open_folder: Path) -> None:
    path = open_folder / "f"
    path.write_text("old")
    path.chmod(0o444)
    with without_the_rights_of_root(), pytest.raises(RpcError) as caught:
        await DefaultFsHandler().write_text_file("s", str(path), "new", roots=[str(open_folder)])
    assert (caught.value.code, caught.value.data) == (-32603, f"{path}: Permission denied")
    assert path.read_text() == "old"


async def test_a_cancelled_write_changes_nothing(
    fs: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fs.root / "f"
    path.write_text("old")
    writing, go_on = anyio.Event(), threading.Event()
    finished = threading.Event()

    def wait(_fd: int) -> None:
        anyio.from_thread.run_sync(writing.set)
        go_on.wait(PATIENCE)

    real_unlink = os.unlink

    def unlink(name: str, *, dir_fd: int) -> None:
        real_unlink(name, dir_fd=dir_fd)
        finished.set()

    monkeypatch.setattr(os, "fsync", wait)
    monkeypatch.setattr(os, "unlink", unlink)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fs.write, path, "new")
            await writing.wait()
            tasks.cancel_scope.cancel()
        go_on.set()
        await anyio.to_thread.run_sync(finished.wait, PATIENCE)
    assert path.read_text() == "old"
    assert names(fs.root) == ["f"]


async def test_descriptors_are_closed_whatever_happens(fs: Files, outside: Path) -> None:
    (fs.root / "f").write_text("x")
    (fs.root / "link").symlink_to(outside / "secret")
    await fs.read(fs.root / "f")
    before = open_descriptors()
    for name in ("f", "link", "missing", "missing/f", "../outside/secret", "."):
        for _ in range(5):
            with anyio.fail_after(PATIENCE):
                try:
                    await fs.read(f"{fs.root}/{name}")
                    await fs.write(f"{fs.root}/{name}", "x")
                except RpcError:
                    pass
    assert open_descriptors() == before


@pytest.mark.parametrize("way", ["plain", "link", "file"])
async def test_what_runs_unconfined_is_read_but_not_written(tmp_path: Path, way: str) -> None:
    """A session may work in the home folder, where the hub's own program is."""
    program = tmp_path / "lib" / "program"
    program.mkdir(parents=True)
    (program / "guard.py").write_text("good")
    (tmp_path / "link").symlink_to(program)
    locked = HiddenFolders([program / "guard.py" if way == "file" else program])
    files = Files(DefaultFsHandler(read_only=locked), tmp_path)
    path = (tmp_path / "link" if way == "link" else program) / "guard.py"
    assert await files.read(path) == "good"
    assert "the hub's own program" in (await files.write_refusal(path))[1]
    assert (program / "guard.py").read_text() == "good"
    if way != "file":
        assert "own program" in (await files.write_refusal(program / "new.py"))[1]
    await files.write(tmp_path / "lib" / "mine", "x")
