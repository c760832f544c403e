"""What an agent does after an approval is compared with what was shown."""

from __future__ import annotations

from typing import Any

import pytest

from quarterdeck.host.log.tool_call_repair import ToolCallRepair
from quarterdeck.host.requests.approved_calls import MOST_TEXT, ApprovedCalls
from quarterdeck.policy import read_call
from quarterdeck.protocol import Normalized

Json = dict[str, Any]
RUN: Json = {"toolCallId": "1", "kind": "execute", "rawInput": {"command": "git status"}}
DIFF = {"type": "diff", "path": "/p/a", "oldText": "a", "newText": "one\ntwo\n"}
EDIT: Json = {"toolCallId": "1", "kind": "edit", "locations": [{"path": "/p/a"}], "content": [DIFF]}
WRITE: Json = {"toolCallId": "1", "kind": "edit", "rawInput": {"path": "a", "content": "one\n"}}
TITLED: Json = {"toolCallId": "1", "kind": "execute", "title": "git status"}
NOTHING: Json = {"toolCallId": "1", "title": "Confirm"}


class Session:
    """The calls of a session in which one request was allowed."""

    def __init__(self, request: Json, *before: Json) -> None:
        self.repair = ToolCallRepair()
        self.approved = ApprovedCalls("/p")
        for message in before:
            self.repair.repaired(Normalized("tool-call", message, None))
        found = self.repair.requested(request)
        others = self.repair.open_calls(but=found.facts.id)
        call = read_call(found.facts, request, open_calls=others)
        self.approved.add("perm-1", found.facts, call)
        if call.reading.source == "turn":
            for each in others:
                self.approved.add("perm-1", each)

    def update(self, **fields: Any) -> list[str]:
        payload = {"toolCallId": "1", **fields}
        self.repair.repaired(Normalized("tool-call-update", payload, None))
        found = self.approved.mismatch(payload)
        return [] if found is None else [each["field"] for each in found.differences]

    def terminal(self, command: str, *args: str, cwd: str | None = None) -> bool:
        found = self.approved.terminal_mismatch(command, args, cwd, self.repair.open_calls())
        return found is not None

    def writes(self, path: str, text: str) -> bool:
        found = self.approved.file_mismatch(path, text, self.repair.open_calls())
        return found is not None


@pytest.mark.parametrize(
    ("request_", "update", "different"),
    [
        (RUN, {"rawInput": {"command": "git status"}}, []),
        (RUN, {"rawInput": {"command": "git status", "description": "x"}}, []),
        (RUN, {"rawInput": {"commands": ["git status"]}}, []),
        (RUN, {"rawInput": {"command": "git status", "cwd": "/p"}}, []),
        (RUN, {"status": "in_progress", "title": "Something else"}, []),
        (RUN, {"rawInput": {}}, []),
        (RUN, {"rawInput": {"command": "git status; rm x"}}, ["rawInput"]),
        (RUN, {"rawInput": {"command": "git status", "cmd": "rm x"}}, ["rawInput"]),
        (RUN, {"rawInput": {"command": "git status", "cwd": "/etc"}}, ["rawInput"]),
        (RUN, {"rawInput": {"command": "git status", "shell": "evil"}}, ["rawInput"]),
        (RUN, {"rawInput": "rm x"}, ["rawInput"]),
        (RUN, {"kind": "delete"}, ["kind"]),
        (RUN, {"kind": "other"}, []),
        (EDIT, {"locations": [{"path": "/p/a", "line": 3}]}, []),
        (EDIT, {"locations": [{"path": "a"}]}, []),
        (EDIT, {"locations": [{"path": "/etc/passwd"}]}, ["locations"]),
        (EDIT, {"content": [{**DIFF, "newText": "zero\none\ntwo\nthree\n"}]}, []),
        (EDIT, {"content": [{**DIFF, "newText": "two"}]}, []),
        (EDIT, {"content": [{**DIFF, "newText": "evil\n"}]}, ["content"]),
        (EDIT, {"content": [{**DIFF, "path": "/p/b"}]}, ["content"]),
        (EDIT, {"rawInput": {"file_path": "/p/a"}}, []),
        (EDIT, {"rawInput": {"file_path": "/p/b"}}, ["rawInput"]),
        (WRITE, {"rawInput": {"path": "/p/a", "content": "one\n"}}, []),
        (WRITE, {"rawInput": {"path": "a", "content": "evil\n"}}, ["rawInput"]),
        (TITLED, {"rawInput": {"command": "git status"}}, []),
        (TITLED, {"rawInput": {"command": "rm x"}}, ["rawInput"]),
        (NOTHING, {"kind": "execute", "rawInput": {"command": "rm x"}}, []),
    ],
)
def test_an_update_that_is_not_what_was_shown_differs(
    request_: Json, update: Json, different: list[str]
) -> None:
    session = Session(request_)
    assert session.update(**update) == different
    assert session.update(**update) == []  # reported once


def test_a_call_that_has_ended_is_not_compared_any_more() -> None:
    session = Session(RUN)
    assert session.update(status="completed") == []
    assert session.update(rawInput={"command": "rm x"}) == []


def test_the_last_message_of_a_call_is_compared() -> None:
    assert Session(RUN).update(status="completed", rawInput={"command": "rm x"}) == ["rawInput"]


@pytest.mark.parametrize(
    ("command", "args", "cwd", "differs"),
    [
        ("git status", (), None, False),
        ("git", ("status",), "/p", False),
        ("/bin/sh", ("-lc", "git status"), None, False),
        ("/bin/bash", ("-c", "cd '/p' && git status"), None, False),
        ("/bin/bash", ("-c", "cd /etc && git status"), None, True),
        ("/bin/bash", ("-c", "cd '/p' && rm x; git status"), None, True),
        ("git status", (), "/etc", True),
        ("git status; rm x", (), None, True),
        ("rm", ("x",), None, True),
        ("git", ("status", "--porcelain"), None, True),
        ("bash", ("-c", "git status", "x"), None, True),
    ],
)
def test_a_terminal_that_runs_something_else_differs(
    command: str, args: tuple[str, ...], cwd: str | None, differs: bool
) -> None:
    assert Session(RUN).terminal(command, *args, cwd=cwd) is differs


def test_a_terminal_of_another_open_call_does_not_differ() -> None:
    other = {"toolCallId": "2", "kind": "execute", "rawInput": {"command": "ls"}}
    assert not Session(RUN, other).terminal("ls")
    assert not Session(EDIT).terminal("rm x")  # no command was allowed: nothing to compare


@pytest.mark.parametrize(
    ("request_", "path", "text", "differs"),
    [
        (EDIT, "/p/a", "zero\none\ntwo\n", False),
        (EDIT, "/p/./a", "one\ntwo\n", False),
        (EDIT, "/p/a", "evil\n", True),
        (EDIT, "/p/b", "one\ntwo\n", True),
        (WRITE, "/p/a", "one\n", False),
        (WRITE, "/p/a", "evil\n", True),
        (WRITE, "/etc/passwd", "one\n", True),
        (RUN, "/p/b", "x", False),
    ],
)
def test_a_file_that_was_not_shown_differs(
    request_: Json, path: str, text: str, differs: bool
) -> None:
    assert Session(request_).writes(path, text) is differs


def test_the_calls_behind_a_confirmation_are_compared() -> None:
    confirm = {"toolCallId": "confirm", "kind": "other", "title": "Confirm"}
    assert Session(confirm, RUN).update(rawInput={"command": "rm x"}) == ["rawInput"]
    assert Session(confirm, RUN).terminal("rm x")
    assert not Session(confirm, RUN).terminal("git status")


def test_a_difference_says_what_was_shown_and_what_was_done() -> None:
    session = Session(RUN)
    payload = {"toolCallId": "1", "rawInput": {"command": "rm " + "x" * 5000}}
    found = session.approved.mismatch(payload)
    assert found is not None
    assert (found.request_id, found.tool_call_id) == ("perm-1", "1")
    (difference,) = found.differences
    assert difference["shown"] == ["git status"]
    assert difference["done"][0].endswith("… (5003 characters in all)")
    assert len(difference["done"][0]) < MOST_TEXT + 50


@pytest.mark.parametrize(
    "odd", [None, 1, "x", [], [None], [[]], {"a": 1}, [{"path": 3}], [{"type": "diff"}]]
)
def test_odd_values_of_an_agent_do_not_raise(odd: Any) -> None:
    for request in (RUN, EDIT, WRITE, TITLED, NOTHING):
        session = Session(request)
        for name in ("kind", "rawInput", "locations", "content", "status"):
            session.update(**{name: odd})


STARTED = 1794872751422
COMMAND = {"command": ["/bin/bash", "-lc", "git status"], "cwd": "/p"}


@pytest.mark.parametrize(
    ("shown", "done", "differs"),
    [
        ({"started_at_ms": STARTED}, {"started_at_ms": STARTED + 9, "process_id": "10"}, False),
        ({"startedAt": STARTED}, {"startedAt": STARTED + 9, "pid": 10}, False),
        ({}, {"started_at": STARTED, "timestamp": STARTED}, False),
        ({"started_at_ms": STARTED}, {"started_at_ms": "rm x"}, True),
        ({"process_id": "10"}, {"process_id": "11"}, True),
        ({}, {"process_id": "x; rm y"}, True),
        ({}, {"start_at": STARTED}, True),
    ],
)
def test_the_time_and_the_process_of_a_command_are_no_difference(
    shown: Any, done: Any, differs: bool
) -> None:
    asked = {**RUN, "rawInput": {**COMMAND, **shown}}
    found = Session(asked).update(rawInput={**COMMAND, **done})
    assert found == (["rawInput"] if differs else [])


def test_the_process_of_what_is_no_command_is_a_difference() -> None:
    asked = {"toolCallId": "1", "kind": "other", "title": "end", "rawInput": {"name": "end"}}
    found = Session(asked).update(rawInput={"name": "end", "process_id": "1"})
    assert found == ["rawInput"]
