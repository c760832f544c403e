"""Archives are unpacked without trusting them: nothing leaves the folder, whatever they say."""

from __future__ import annotations

import io
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from quarterdeck.agents.installs import archives
from quarterdeck.errors import InstallFailed
from tests.agents.local_registry import packed

Entry = tuple[str, bytes, str]
"""The type of an entry, its content or target, its name."""


def tarred(*entries: Entry) -> bytes:
    types = {"file": tarfile.REGTYPE, "link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE}
    types |= {"device": tarfile.CHRTYPE, "pipe": tarfile.FIFOTYPE, "folder": tarfile.DIRTYPE}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for kind, content, name in entries:
            member = tarfile.TarInfo(name)
            member.type, member.mode = types[kind], 0o4777
            if kind == "file":
                member.size = len(content)
            elif kind in ("link", "hard"):
                member.linkname = content.decode()
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zipped(*entries: Entry) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for kind, content, name in entries:
            member = zipfile.ZipInfo(name)
            mode = stat.S_IFLNK | 0o777 if kind == "link" else 0o755
            member.external_attr = mode << 16
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # two entries of the same name are the attack
                target.writestr(member, content)
    return buffer.getvalue()


FORMATS: dict[str, Callable[..., bytes]] = {"x.tar.gz": tarred, "x.zip": zipped}
HOSTILE: dict[str, tuple[Entry, ...]] = {
    "up": (("file", b"x", "../evil"),),
    "up later": (("file", b"x", "a/../../evil"),),
    "absolute": (("file", b"x", "/tmp/quarterdeck-evil"),),
    "backslash": (("file", b"x", "..\\evil"),),
    "link outside": (("link", b"../../evil", "a"),),
    "absolute link": (("link", b"/etc/passwd", "a"),),
    "link after a link": (("link", b"..", "d/up"), ("link", b"up/../evil", "d/more")),
    "through a link": (("link", b".", "a"), ("file", b"x", "a/evil")),
    "over a link": (("file", b"x", "b"), ("link", b"b", "a"), ("file", b"y", "a")),
    "twice": (("file", b"x", "a"), ("file", b"y", "a")),
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_archive_writes_nothing_outside(attack: str, name: str, tmp_path: Path) -> None:
    archive, target = tmp_path / "archive", tmp_path / "deep" / "files"
    archive.write_bytes(FORMATS[name](*HOSTILE[attack]))
    target.mkdir(parents=True)
    with pytest.raises(InstallFailed):
        archives.unpack(archive, name, target, "a")
    assert not list(tmp_path.rglob("*evil*"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["archive", "deep"]


def test_a_link_that_is_moved_up_by_a_hard_link_does_not_lead_outside(tmp_path: Path) -> None:
    archive, target = tmp_path / "archive", tmp_path / "files"
    archive.write_bytes(tarred(("link", b"../..", "a/b/up"), ("hard", b"a/b/up", "up")))
    target.mkdir()
    with pytest.raises(InstallFailed, match="link to a link"):
        archives.unpack(archive, "x.tar.gz", target, "a")
    links = [each for each in target.rglob("*") if each.is_symlink()]
    assert [each for each in links if not each.resolve().is_relative_to(target)] == []


@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_only_files_and_folders_are_unpacked(kind: str, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(tarred((kind, b"", "a")))
    with pytest.raises(InstallFailed, match="device"):
        archives.unpack(archive, "x.tgz", tmp_path / "files", "a")


@pytest.mark.parametrize("name", ["x.tar.gz", "x.zip", "x.tar.bz2", "x.tar.xz"])
@pytest.mark.parametrize("content", [b"", b"junk" * 100, b"\x1f\x8b\x08", b"PK\x03\x04"])
def test_a_damaged_archive_is_a_sentence(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(content)
    with pytest.raises(InstallFailed, match="cannot be unpacked"):
        archives.unpack(tmp_path / "archive", name, tmp_path / "files", "a")


def test_an_archive_that_grows_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_MOST_BYTES", 1000)
    (tmp_path / "archive").write_bytes(tarred(("file", b"0" * 2000, "a")))
    with pytest.raises(InstallFailed, match="too large"):
        archives.unpack(tmp_path / "archive", "x.tgz", tmp_path / "files", "a")


def test_programs_and_links_inside_are_unpacked_without_special_rights(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(
        tarred(("folder", b"", "d"), ("file", b"#!/bin/sh\n", "d/run"), ("link", b"d/run", "go"))
    )
    target = tmp_path / "files"
    target.mkdir()
    archives.unpack(tmp_path / "archive", "x.tgz", target, "go")
    program = archives.program_in(target, "./go")
    assert program.resolve() == (target / "d" / "run").resolve()
    assert stat.S_IMODE(program.stat().st_mode) == 0o755
    with pytest.raises(InstallFailed, match="no program"):
        archives.program_in(target, "absent")
    with pytest.raises(InstallFailed, match="outside"):
        archives.program_in(target, "../archive")


def test_a_file_that_is_no_archive_is_the_program(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(b"#!/bin/sh\n")
    target = tmp_path / "files"
    target.mkdir()
    archives.unpack(tmp_path / "archive", "mine-linux-x64", target, "./mine")
    assert archives.program_in(target, "./mine").read_bytes() == b"#!/bin/sh\n"


def test_tar_archives_of_each_compression_are_unpacked(tmp_path: Path) -> None:
    for kind, name in (("w:gz", "a.tgz"), ("w:bz2", "a.tbz2"), ("w:xz", "a.tar.xz")):
        target = tmp_path / name
        target.mkdir()
        (tmp_path / "archive").write_bytes(packed({"run": "x"}, kind))
        archives.unpack(tmp_path / "archive", name, target, "run")
        assert (target / "run").read_text() == "x"
