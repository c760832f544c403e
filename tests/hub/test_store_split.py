"""The tables of an older hub.db move to runner.db once, whenever the process is killed."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from quarterdeck.errors import StartRefused
from quarterdeck.hub import Hub, HubOptions
from quarterdeck.hub.auth.tokens import digest, make_token
from quarterdeck.hub.store import HUB_TABLES, MOVED
from quarterdeck.runner import Retention
from quarterdeck.runner.schema import RUNNER_TABLES
from quarterdeck.storage.database import open_database
from tests.hub.old_hub import AT, HUB, PUSH, RUNNER, make_old_hub, open_once, rows

pytestmark = pytest.mark.anyio


def test_every_table_of_an_older_hub_is_in_the_right_file(tmp_path: Path) -> None:
    make_old_hub(tmp_path)
    before = rows(tmp_path / "hub.db")
    is_delivered = 11  # the column that an index over the log has no use for
    before["decisions"] = [
        (*row[:is_delivered], *row[is_delivered + 1 :], None, None)  # columns of later versions
        for row in before["decisions"]
    ]
    (device_id, *keys, _kinds, problem, created_at) = before[PUSH][0]
    kinds = '{"permissions":false,"failed":false}'  # as the API names requests
    before[PUSH] = [(device_id, *keys, kinds, problem, created_at)]
    before["devices"] = [(*row, None) for row in before["devices"]]  # no limits on machines
    before["device_log"] = [(*row, None) for row in before["device_log"]]  # no detail was noted
    for _ in range(2):  # the second time there is nothing to do
        open_once(tmp_path)
        runner, hub = rows(tmp_path / "runner.db"), rows(tmp_path / "hub.db")
        assert {name: runner[name] for name in RUNNER} == {name: before[name] for name in RUNNER}
        assert {name: hub[name] for name in (*HUB, PUSH)} == {
            name: before[name] for name in (*HUB, PUSH)
        }
        assert not {*RUNNER} & {*hub}
        assert not {*HUB, PUSH} & {*runner}
        assert {name for name, _ in hub["parts"]} == {
            "devices", "device_keys", "device_log", "fleet", "machines",
            "pairings", "push", "row_sums", "split",
        }  # fmt: skip
        # Numbers that were given are not given again, also if their row was deleted.
        assert dict(runner["sqlite_sequence"]) == {"prompts": 9, "decisions": 1}


async def test_a_hub_continues_with_the_data_of_an_older_version(tmp_path: Path) -> None:
    make_old_hub(tmp_path / "home")
    options = HubOptions(
        home=tmp_path / "home",
        port=0,
        device_unused_seconds=0,
        retention=Retention(prompts_days=0, decisions_days=0),
    )
    async with Hub(options) as hub:
        assert await hub.runner.knows_agent("mine")
        assert {device.id for device in hub.auth.devices.all} == {"owner", "dev_1"}
        assert await hub.auth.pairings.usable() == []  # codes end with the hub that made them
        (decision,) = await hub.runner.list_decisions(before=None, session_id=None, limit=10)
        assert decision.request_id == "perm-1"
        subscription = await hub.push.subscription("dev_1")
        assert subscription is not None
        assert (await hub.runner.get_prompt("s\ud800", "odd")).state == "done"
        assert (await hub.runner.get_prompt("s", "waits")).prompt == [
            {"type": "text", "text": "hello"}
        ]


@pytest.mark.slow
def test_a_process_that_is_killed_at_any_statement_loses_nothing(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "tests.hub.old_hub", str(tmp_path))
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=230)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["killed"] for each in reports] == [True] * (len(reports) - 1) + [False]
    assert all(
        each["counts"]
        == {"agents": 1, "prompts": 2, "decisions": 1, "devices": 1, "device_log": 1}
        | {"pairings": 1, "push_subscriptions": 1}
        for each in reports
    )
    # Some were killed before the copy, some between copy and drop, some after both.
    stages = {
        ("prompts" in each["found"]["runner"], "prompts" in each["found"]["hub"])
        for each in reports
    }
    assert stages == {(False, True), (True, True), (True, False)}


async def test_an_older_version_refuses_the_file_instead_of_creating_the_tables_again(
    tmp_path: Path,
) -> None:
    make_old_hub(tmp_path)
    open_once(tmp_path)
    older = [*RUNNER_TABLES, *(part for part in HUB_TABLES if part.name != "split")]
    with pytest.raises(StartRefused, match="newer Quarterdeck"):
        async with open_database(tmp_path / "hub.db", older):
            pass


@pytest.mark.parametrize("content", [b"no database at all", b"SQLite format 3\0" + b"x" * 100])
async def test_a_damaged_older_file_is_named_and_nothing_is_copied(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "hub.db"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(StartRefused, match=r"hub\.db"):
        async with open_database(tmp_path / "runner.db", RUNNER_TABLES, moved_from=path):
            pass
    assert path.read_bytes() == content
    assert (tmp_path / "runner.db").stat().st_size == 0


async def test_a_newer_format_of_a_table_that_would_move_is_refused(tmp_path: Path) -> None:
    make_old_hub(tmp_path)
    fewer = [part for part in RUNNER_TABLES if part.name != "prompts"]
    none = [type(part)(part.name, ()) for part in RUNNER_TABLES if part.name == "prompts"]
    with pytest.raises(StartRefused, match="format prompts 1"):
        async with open_database(
            tmp_path / "runner.db", [*fewer, *none], moved_from=tmp_path / "hub.db"
        ):
            pass
    assert MOVED == ("agents", "prompts", "decisions")


async def test_browsers_of_an_older_version_must_be_paired_again_and_programs_need_not(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    make_old_hub(home)
    tokens = {name: make_token() for name in ("browser", "program")}
    agents = {"browser": "Mozilla/5.0 (iPhone) Safari/604.1", "program": "python-httpx/0.28"}
    with closing(sqlite3.connect(home / "hub.db")) as database:
        database.executemany(
            "INSERT INTO devices (id, name, scope, token_hash, created_at, user_agent)"
            f" VALUES (?, ?, 'admin', ?, '{AT}', ?)",
            [(name, name, digest(token), agents[name]) for name, token in tokens.items()],
        )
        database.commit()
    for _ in range(2):  # the second start finds it done
        async with Hub(HubOptions(home=home, port=0, device_unused_seconds=0)) as hub:
            devices = hub.auth.devices
            assert await devices.authenticate(tokens["browser"]) is None
            assert await devices.authenticate(tokens["program"]) is not None
            ended = [each.device_id for each in await devices.events() if each.what == "expired"]
            assert ended == ["browser"]
