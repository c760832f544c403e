"""Reading and changing files, through a session: what is done, what is shown, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.agent.builtin.driver import ALLOW, REJECT, at_work, texts_of

pytestmark = pytest.mark.anyio


async def test_a_file_is_read_with_numbers_for_the_model_and_as_it_is_for_people(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    async with at_work(tmp_path) as driver:
        done = await driver.use("read", '{"path": "a.txt", "line": 2, "limit": 1}')
    assert done["status"] == "completed"
    assert texts_of(done) == "two"
    assert done["rawOutput"] == "2\ttwo\n[more follows; read on with line 3]"
    started = next(e for e in driver.hand.updates("tool_call_update") if "locations" in e)
    assert started["locations"] == [{"path": f"{tmp_path}/a.txt", "line": 2}]
    assert started["kind"] == "read"


async def test_a_folder_is_listed(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "b.txt").touch()
    async with at_work(tmp_path) as driver:
        assert texts_of(await driver.use("list")) == "b.txt\nsrc/"


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read", {"path": "../outside.txt"}),
        ("read", {"path": "link.txt"}),
        ("read", {"path": "folder/outside.txt"}),
        ("write", {"path": "../new.txt", "content": "x"}),
        ("write", {"path": "link.txt", "content": "x"}),
        ("write", {"path": "folder/deep/new.txt", "content": "x"}),
        ("edit", {"path": "link.txt", "old": "secret", "new": "x"}),
        ("list", {"path": ".."}),
        ("list", {"path": "folder"}),
        ("glob", {"pattern": "*", "path": "folder"}),
        ("grep", {"pattern": "secret", "path": ".."}),
    ],
)
async def test_nothing_outside_the_roots_is_read_or_changed(
    tmp_path: Path, tool: str, arguments: dict[str, str]
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    outside = tmp_path / "outside.txt"
    outside.write_text("secret")
    (project / "link.txt").symlink_to(outside)
    (project / "folder").symlink_to(tmp_path)
    async with at_work(project) as driver:
        done = await driver.use(tool, json.dumps(arguments))
    assert done["status"] == "failed"
    assert "outside the session's folders" in texts_of(done)
    assert "secret" not in texts_of(done)
    assert outside.read_text() == "secret"
    assert _names(tmp_path) == ["outside.txt", "project"]


async def test_another_root_may_be_worked_in(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with at_work(first, additionalDirectories=[str(second)]) as driver:
        arguments = {"path": str(second / "a.txt"), "content": "hello\n"}
        done = await driver.use("write", json.dumps(arguments))
    assert done["status"] == "completed"
    assert (second / "a.txt").read_text() == "hello\n"


async def test_a_new_file_and_its_folders_are_made_and_the_diff_is_shown_before(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as driver:
        permissions = driver.answer_permissions(ALLOW)
        done = await driver.use("write", '{"path": "a/b/c.txt", "content": "new\\n"}')
    path = tmp_path / "a/b/c.txt"
    diff = {"type": "diff", "path": str(path), "oldText": None, "newText": "new\n"}
    assert permissions[0]["toolCall"]["content"] == [diff]
    assert permissions[0]["toolCall"]["title"] == "Create a/b/c.txt"
    assert done["content"] == [diff]
    assert path.read_text() == "new\n"


async def test_a_passage_is_replaced_and_its_line_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("one\ntwo\nthree\n")
    async with at_work(tmp_path) as driver:
        permissions = driver.answer_permissions(ALLOW)
        await driver.use("edit", '{"path": "a.py", "old": "two", "new": "2"}')
    assert path.read_text() == "one\n2\nthree\n"
    assert permissions[0]["toolCall"]["locations"] == [{"path": str(path), "line": 2}]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"old": "nothing", "new": "x"}, "is not in"),
        ({"old": "e", "new": "x"}, "occurs 2 times"),
        ({"old": "", "new": "x"}, "old is empty"),
        ({"old": "one", "new": "one"}, "nothing would change"),
    ],
)
async def test_an_edit_that_is_not_exact_is_refused_before_anyone_is_asked(
    tmp_path: Path, arguments: dict[str, str], reason: str
) -> None:
    (tmp_path / "a.txt").write_text("one\nthe\n")
    async with at_work(tmp_path) as driver:
        permissions = driver.answer_permissions(ALLOW)
        done = await driver.use("edit", json.dumps({"path": "a.txt", **arguments}))
    assert reason in texts_of(done)
    assert permissions == []
    assert (tmp_path / "a.txt").read_text() == "one\nthe\n"


async def test_every_occurrence_is_replaced_on_request(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("e e")
    async with at_work(tmp_path) as driver:
        await driver.use("edit", '{"path": "a.txt", "old": "e", "new": "x", "all": true}')
    assert (tmp_path / "a.txt").read_text() == "x x"


async def test_lines_that_end_with_carriage_returns_can_be_edited(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    async with at_work(tmp_path) as driver:
        await driver.use("edit", '{"path": "a.txt", "old": "one\\ntwo", "new": "1\\n2"}')
    assert (tmp_path / "a.txt").read_bytes() == b"1\r\n2\r\n"


async def test_a_refused_change_is_not_made_and_the_model_is_told(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        driver.answer_permissions(REJECT)
        done = await driver.use("write", '{"path": "a.txt", "content": "x"}')
        assert done["status"] == "failed"
        assert "the user refused" in texts_of(done)
    assert not (tmp_path / "a.txt").exists()


async def test_a_file_that_changes_while_the_user_decides_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    async with at_work(tmp_path) as driver:

        def decide(_params: object) -> object:
            path.write_text("somebody else's")
            return ALLOW

        driver.hand.answers["session/request_permission"] = decide
        done = await driver.use("edit", '{"path": "a.txt", "old": "one", "new": "two"}')
    assert "changed meanwhile" in texts_of(done)
    assert path.read_text() == "somebody else's"


async def test_a_client_that_offers_its_files_serves_them(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("on disk")
    offers = {"fs": {"readTextFile": True, "writeTextFile": True}}
    async with at_work(tmp_path, capabilities=offers) as driver:
        written: list[dict[str, str]] = []

        def write(params: dict[str, str]) -> dict[str, str]:
            written.append(params)
            return {}

        driver.hand.answers["fs/read_text_file"] = lambda _params: {"content": "unsaved"}
        driver.hand.answers["fs/write_text_file"] = write
        await driver.use("edit", '{"path": "a.txt", "old": "unsaved", "new": "saved"}')
    assert [(each["path"], each["content"]) for each in written] == [(f"{tmp_path}/a.txt", "saved")]
    assert (tmp_path / "a.txt").read_text() == "on disk"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"details": "EACCES: permission denied"}, "EACCES: permission denied"),
        ({"error": {"message": "the disk is gone"}}, "the disk is gone"),
        ("locked by its editor", "locked by its editor"),
        ({"errno": 13}, "Internal error"),
        (None, "Internal error"),
    ],
)
async def test_why_a_client_does_not_hand_over_a_file_is_told(
    tmp_path: Path, data: Any, words: str
) -> None:
    async with at_work(tmp_path, capabilities={"fs": {"readTextFile": True}}) as driver:
        prompt = await driver.hand.ask_prompt(driver.session_id, '/tool read {"path": "a.txt"}')
        request = await driver.hand.requested("fs/read_text_file")
        error = {"code": -32603, "message": "Internal error", "data": data}
        await driver.hand.send({"id": request["id"], "error": error})
        await driver.hand.answered(prompt)
        done = driver.hand.updates("tool_call_update")[-1]
    assert texts_of(done) == f"Error: {tmp_path}/a.txt: {words}"


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        {"code": -32603, "message": "Internal error", "data": {"details": "ENOENT"}},
        {"code": -32602, "message": "Invalid params"},
        {"code": -32000, "message": "boom"},
        {"code": -32002, "message": "Resource not found"},
    ],
    ids=lambda error: str(error["code"]),
)
async def test_a_missing_file_is_created_whatever_error_the_client_has_for_it(
    tmp_path: Path, error: dict[str, Any], is_there: bool
) -> None:
    if is_there:
        (tmp_path / "a.txt").write_text("old")
    offers = {"fs": {"readTextFile": True}}
    async with at_work(tmp_path, capabilities=offers) as driver:
        tool = '/tool write {"path": "a.txt", "content": "new"}'
        prompt = await driver.hand.ask_prompt(driver.session_id, tool)

        async def refuse() -> None:
            refused: list[Any] = []
            while True:
                request = await driver.hand.came(
                    lambda each: (
                        each.get("method") == "fs/read_text_file" and each["id"] not in refused
                    )
                )
                refused.append(request["id"])
                await driver.hand.send({"id": request["id"], "error": error})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refuse)
            await driver.hand.answered(prompt)
            tasks.cancel_scope.cancel()
    is_written = (tmp_path / "a.txt").read_text() == "new"
    assert is_written == (not is_there or error["code"] == -32002)


async def test_no_file_behind_a_link_that_leads_out_is_requested_from_a_client(
    tmp_path: Path,
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (project / "link.txt").symlink_to(tmp_path / "secret.txt")
    async with at_work(project, capabilities={"fs": {"readTextFile": True}}) as driver:
        driver.hand.answers["fs/read_text_file"] = lambda _params: {"content": "secret"}
        done = await driver.use("read", '{"path": "link.txt"}')
    assert "outside the session's folders" in texts_of(done)


async def test_a_session_whose_folder_is_gone_reports_it(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    async with at_work(folder) as driver:
        folder.rmdir()
        for tool, arguments in (("list", "{}"), ("read", '{"path": "a"}')):
            assert "none of the session's folders exists" in texts_of(
                await driver.use(tool, arguments)
            )


async def test_files_are_found_by_name_and_by_what_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "src/deep").mkdir(parents=True)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "src/a.py").write_text("import os\n")
    (tmp_path / "src/deep/b.py").write_text("x = 1\nimport sys\n")
    (tmp_path / "node_modules/c.py").write_text("import no\n")
    (tmp_path / "src/picture.py").write_bytes(b"import\0")
    async with at_work(tmp_path) as driver:
        names = await driver.use("glob", '{"pattern": "**/*.py"}')
        assert texts_of(names) == "src/a.py\nsrc/picture.py\nsrc/deep/b.py"
        absolute = await driver.use("glob", json.dumps({"pattern": f"{tmp_path}/src/*.py"}))
        assert texts_of(absolute) == "src/a.py\nsrc/picture.py"
        lines = await driver.use("grep", '{"pattern": "^import", "glob": "*.py"}')
        assert texts_of(lines) == "src/a.py:1: import os\nsrc/deep/b.py:2: import sys"
        assert lines["locations"][1] == {"path": f"{tmp_path}/src/deep/b.py", "line": 2}
        nothing = await driver.use("grep", '{"pattern": "IMPORT"}')
        assert texts_of(nothing) == "[nothing found]"
        wrong = await driver.use("grep", '{"pattern": "("}')
        assert "not a regular expression" in texts_of(wrong)
