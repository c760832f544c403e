# ruff: noqa: ASYNC240  # a test may wait for its own disk
from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from quarterdeck.errors import LogGap, StorageFailed, StorageRefused
from quarterdeck.storage import JsonlStorage, SessionMeta, jsonl
from quarterdeck.storage.contract import Record
from tests.storage.support import (
    full_disk,
    last_seqs,
    meta,
    opened,
    run_of,
    seqs,
    stored,
    unwritable_folder,
)

HOST_LINE = b'{"type":"diagnostic","payload":{"level":"info"},"seq":1,"ts":1}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


async def test_the_file_is_that_of_acpjs(path: Path) -> None:
    async with opened(JsonlStorage(path)) as storage:
        await storage.append([meta("s"), stored("s", 1)])
    first, second = (json.loads(line) for line in path.read_bytes().splitlines())
    assert first == {
        "kind": "session-meta",
        "sessionId": "s",
        "cwd": "/work",
        "additionalDirectories": [],
        "lifecycle": "open",
    }
    assert second == json.loads(stored("s", 1).data)


async def test_malformed_lines_are_skipped_counted_and_kept(path: Path) -> None:
    malformed = [
        b"nonsense",
        b"[]",
        b'{"sessionId":"s"}',
        b'{"kind":"session-meta","sessionId":"s"}',
        b'{"kind":"news","type":"x","sessionId":"s","seq":9}',
        stored("s", 9, "abc").data.replace(b"abc", b"\xff\xfe"),
        stored("s", 1, "again").data,
    ]
    good = [stored("s", 1).data, HOST_LINE.strip(), b"", b"  ", stored("s", 2).data]
    path.write_bytes(b"\n".join([*good[:1], *malformed, *good[1:], b""]))
    async with opened(JsonlStorage(path)) as storage:
        assert storage.skipped == len(malformed)
        assert await seqs(storage, "s") == [1, 2]
        await storage.append([stored("s", 3)])
        await storage.delete_events("nobody")
    assert set(malformed) < set(path.read_bytes().splitlines())


async def test_a_gap_in_an_old_file_is_read_over_and_not_filled(path: Path) -> None:
    path.write_bytes(b"\n".join([stored("s", 1).data, stored("s", 4).data, b""]))
    async with opened(JsonlStorage(path)) as storage:
        assert await seqs(storage, "s", page=1) == [1, 4]
        with pytest.raises(LogGap):
            await storage.append([stored("s", 2)])
        await storage.append([stored("s", 5)])


@pytest.mark.parametrize("cut", [1, 10, 60, 100])
async def test_a_torn_last_line_is_cut_off(path: Path, cut: int) -> None:
    whole = stored("s", 1).data + b"\n"
    path.write_bytes(whole + stored("s", 2).data[:cut])
    async with opened(JsonlStorage(path)) as storage:
        assert path.read_bytes() == whole
        assert storage.skipped == 1
        await storage.append([stored("s", 2)])
    async with opened(JsonlStorage(path)) as storage:
        assert storage.skipped == 0
        assert await seqs(storage, "s") == [1, 2]


async def test_a_last_line_that_only_lacks_its_end_gets_it(path: Path) -> None:
    path.write_bytes(stored("s", 1).data + b"\n" + stored("s", 2).data)
    for expected in ([1, 2, 3], [1, 2, 3, 4]):
        async with opened(JsonlStorage(path)) as storage:
            assert storage.skipped == 0
            await storage.append([stored("s", expected[-1])])
            assert await seqs(storage, "s") == expected


async def test_a_log_whose_very_first_write_was_torn_is_still_ours(path: Path) -> None:
    path.write_bytes(stored("s", 1).data[:50])
    async with opened(JsonlStorage(path)) as storage:
        await storage.append([stored("s", 1)])
    assert path.read_bytes() == stored("s", 1).data + b"\n"


@pytest.mark.parametrize(
    "content",
    [
        b"Dear diary,\n",
        b"no newline",
        b'{"name": "a package"}\n',
        b'{"name": "a package"}',
        b"{\n}\n",
        b"SQLite format 3\x00",
        b"\x00" * 100,
    ],
)
async def test_a_foreign_file_is_rejected_and_not_touched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StorageRefused, match="none of its lines is an event; choose another path"):
        await JsonlStorage(path).open()
    assert path.read_bytes() == content


async def test_a_second_storage_on_the_same_file_is_refused(path: Path) -> None:
    async with opened(JsonlStorage(path)):
        with pytest.raises(StorageRefused, match=r"process \d+ is using it; connect to that one"):
            await JsonlStorage(path).open()
    async with opened(JsonlStorage(path)):
        pass


async def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageRefused, match="it is a folder; name a file in it"):
        await JsonlStorage(tmp_path).open()


async def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageRefused, match="check its disk and that this user may write there"):
        await JsonlStorage(unwritable_folder(tmp_path) / "log.jsonl").open()


async def test_superseded_metas_are_dropped_when_they_fill_half_the_file(path: Path) -> None:
    async with opened(JsonlStorage(path)) as storage:
        await storage.append([meta("a", "x" * 10_000), stored("a", 1), meta("b"), stored("b", 1)])
        for number in range(150):
            await storage.append([meta("a", f"{number:10000}")])
        await storage.append([stored("a", 2)])
        assert path.stat().st_size < 1_000_000  # 1.5 MB were written
        assert [session.session_id for session in await storage.sessions()] == ["a", "b"]
        assert await seqs(storage, "a") == [1, 2]
    async with opened(JsonlStorage(path)) as storage:
        assert [session.session_id for session in await storage.sessions()] == ["a", "b"]
        assert (await storage.sessions())[0].title == f"{149:10000}"
        assert await seqs(storage, "a") == [1, 2]
    assert not path.with_name("log.jsonl.tmp").exists()


async def test_deleted_text_is_not_in_the_file_after_closing(path: Path) -> None:
    path.write_bytes(HOST_LINE)
    async with opened(JsonlStorage(path)) as storage:
        await storage.append([stored("s", 1, "secret"), stored("t", 1), stored("s", 2, "secret")])
        await storage.delete_events("s")
        await storage.append([replace(meta("s"), lifecycle="deleted"), stored("s", 3, "new")])
    text = path.read_bytes()
    assert b"secret" not in text
    assert text.startswith(HOST_LINE)
    async with opened(JsonlStorage(path)) as storage:
        assert await last_seqs(storage) == {"s": 3, "t": 1}
        assert await seqs(storage, "s") == [3]


async def test_a_session_that_never_had_a_meta_keeps_its_number_when_deleted(path: Path) -> None:
    async with opened(JsonlStorage(path)) as storage:
        await storage.append(run_of("s", 1, 9))
        await storage.delete_events("s")
    async with opened(JsonlStorage(path)) as storage:
        assert await storage.sessions() == [SessionMeta(session_id="s", cwd="", last_seq=9)]


async def test_pages_are_read_while_the_file_is_rewritten(path: Path) -> None:
    async with opened(JsonlStorage(path)) as storage:
        await storage.append(run_of("s", 1, 300, "x" * 100))
        for first in range(1, 40):
            await storage.append([meta("t", f"{first:50000}")])
            assert await storage.read("s", 200, 100) == [
                event.data for event in run_of("s", 201, 300, "x" * 100)
            ]


async def test_a_full_disk_loses_nothing_and_the_same_batch_can_be_stored_later(
    path: Path,
) -> None:
    async with opened(JsonlStorage(path)) as storage:
        await storage.append(run_of("s", 1, 10))
        batch: list[Record] = [*run_of("s", 11, 60, "x" * 1_000), meta("s")]
        with full_disk(40_000):
            for _ in range(3):
                with pytest.raises(StorageFailed, match="free up space"):
                    await storage.append(batch)
            assert await seqs(storage, "s") == list(range(1, 11))
        await storage.append(batch)
        assert await seqs(storage, "s") == list(range(1, 61))
    async with opened(JsonlStorage(path)) as storage:
        assert storage.skipped == 0
        assert await seqs(storage, "s") == list(range(1, 61))


async def test_a_rewrite_that_fails_leaves_the_log_as_it_was(path: Path) -> None:
    async with opened(JsonlStorage(path)) as storage:
        await storage.append([*run_of("s", 1, 60, "x" * 1_000), *run_of("t", 1, 20)])
        with full_disk(1_000):
            await storage.close()
        await storage.open()
        await storage.delete_events("t")
        with full_disk(10_000):
            await storage.close()  # would rewrite, cannot
    assert not path.with_name("log.jsonl.tmp").exists()
    async with opened(JsonlStorage(path)) as storage:
        assert await seqs(storage, "s") == list(range(1, 61))
        assert await last_seqs(storage) == {"s": 60, "t": 20}


async def test_a_failed_fsync_is_not_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async with opened(JsonlStorage(path)) as storage:
        await storage.append([stored("s", 1)])
        with monkeypatch.context() as disk:
            disk.setattr(jsonl, "flush_to_disk", fail)
            with pytest.raises(StorageFailed, match="Input/output error; check the disk"):
                await storage.append([stored("s", 2)])
        with pytest.raises(StorageFailed):
            await storage.append([stored("s", 2)])
        assert await seqs(storage, "s") == [1]
        await storage.close()
        await storage.open()
        await storage.append([stored("s", 2)])
