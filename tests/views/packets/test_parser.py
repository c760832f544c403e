"""Every vector: what the documented functions say of a packet, and what a page shows for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from quarterdeck.views.packets import (
    get_file_path,
    is_new_file_operation,
    is_task_tool,
    is_todo_write_tool,
    packet_type,
    parse_packet,
    relative_path,
    route,
)
from quarterdeck.views.packets.detection import without_workspaces, workspace_path
from quarterdeck.views.packets.parsed_packets import (
    ChildRoute,
    Failed,
    NormalRoute,
    Plan,
    PromptResponse,
    TaskRoute,
    ToolProgress,
    ToolStart,
    UnknownPacket,
    subagent_name,
)
from quarterdeck.views.packets.tools import clean_task_output
from tests.views.packets.logs import ANY_JSON
from tests.views.packets.support import Json, vectors

PACKETS = vectors("01", "02", "03", "04", "05", "06", "07", "08")

# Where the document says otherwise than the reader that the vectors were made with, the document
# wins. A title is that of its table; a packet without a type is what its `sessionUpdate` says.
TITLES = {"Writing": "Writing file", "Editing": "Editing file"}
DOCUMENTED: dict[str, Json] = {
    "02/empty-type-string": {
        "type": "text_chunk",
        "text": "x",
        "sessionId": None,
        "parentSessionId": None,
    },
    "02/plan-without-type": {"type": "agent_plan_update", "entries": []},
    "02/tool_call_update-without-type": {
        "type": "tool_call_progress",
        "toolName": "glob",
        "kind": "search",
        "rawOutput": "a.md",
    },
    "07/websearch-kind-other": {"kind": "other"},  # the table of tools
}


def ids(vector: Json) -> str:
    return str(vector["id"])


def expected(vector: Json) -> Json:
    shown = {**vector["parsed"]}
    if "title" in shown:
        shown["title"] = TITLES.get(shown["title"], shown["title"])
    return {**shown, **DOCUMENTED.get(vector["id"], {})}


@pytest.mark.parametrize("vector", PACKETS, ids=ids)
def test_a_page_shows_what_the_vector_has(vector: Json) -> None:
    shown = msgspec.json.decode(msgspec.json.encode(parse_packet(vector["packet"])))
    assert {key: shown.get(key) for key in expected(vector)} == expected(vector)


@pytest.mark.parametrize("vector", PACKETS, ids=ids)
def test_a_packet_has_its_documented_type(vector: Json) -> None:
    assert packet_type(vector["packet"]) == vector["documented"]["packetType"]


@pytest.mark.parametrize(
    "vector", [each for each in PACKETS if "isTask" in each["documented"]], ids=ids
)
def test_a_tool_is_detected_as_documented(vector: Json) -> None:
    packet = vector["packet"]
    assert {
        "packetType": packet_type(packet),
        "isTodoWrite": is_todo_write_tool(packet),
        "isTask": is_task_tool(packet),
        "isNewFile": is_new_file_operation(packet),
        "filePath": get_file_path(packet),
    } == vector["documented"]


ROUTES: dict[str, type] = {"normal": NormalRoute, "parentTask": TaskRoute, "child": ChildRoute}


@pytest.mark.parametrize("vector", [each for each in PACKETS if "routing" in each], ids=ids)
def test_a_packet_is_routed_as_in_the_vector(vector: Json) -> None:
    found = route(parse_packet(vector["packet"]))
    assert isinstance(found, ROUTES[vector["routing"]["kind"]])
    if isinstance(found, TaskRoute):
        assert found.subagent_session_id == vector["routing"]["subagentSessionId"]


@pytest.mark.parametrize("vector", [each for each in PACKETS if "subagentName" in each], ids=ids)
def test_a_subagent_is_named_and_its_answer_cleaned(vector: Json) -> None:
    shown = parse_packet(vector["packet"])
    assert isinstance(shown, ToolStart | ToolProgress)
    assert subagent_name(shown) == vector["subagentName"]
    if isinstance(shown, ToolProgress):
        assert clean_task_output(shown.task_output) == vector["cleanTaskOutput"]


@pytest.mark.parametrize("vector", vectors("11"), ids=ids)
def test_the_answer_of_a_subagent_is_cleaned(vector: Json) -> None:
    assert clean_task_output(vector["in"]) == vector["out"]


@pytest.mark.parametrize("vector", vectors("09", key="strip"), ids=ids)
def test_a_path_is_shortened(vector: Json) -> None:
    assert workspace_path(vector["in"]) == vector["out"]


@pytest.mark.parametrize("vector", vectors("09", key="sanitize"), ids=ids)
def test_workspaces_are_cut_out_of_a_text(vector: Json) -> None:
    assert without_workspaces(vector["in"]) == vector["out"]


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/x/outputs/web/app/page.tsx", "web/app/page.tsx"),
        ("/data/sandboxes/b29c/sessions/9c76/files/x.json", "sessions/9c76/files/x.json"),
        ("/home/me/src/main.py", "main.py"),
        ("main.py", "main.py"),
        ("/folder/", "/folder/"),
    ],
)
def test_a_file_path_is_shortened_to_what_is_in_the_workspace(path: str, short: str) -> None:
    assert relative_path(path) == short


def test_a_page_may_shorten_paths_in_its_own_way() -> None:
    packet = {"type": "tool_call_progress", "kind": "edit", "rawInput": {"filePath": "/work/a.py"}}
    shorten = lambda path: path.removeprefix("/work/")  # noqa: E731
    assert get_file_path(packet, shorten) == "a.py"
    shown = parse_packet(packet, paths=shorten)
    assert isinstance(shown, ToolProgress)
    assert shown.file_path == "a.py"


def test_a_packet_may_come_as_its_bytes() -> None:
    assert parse_packet(b'{"type": "error", "message": "m"}') == parse_packet(
        {"type": "error", "message": "m"}
    )
    assert parse_packet(b"{") == UnknownPacket()


def test_a_file_comes_out_of_its_tags_and_line_numbers() -> None:
    words = "<file>\n00001| one\n00002| two\n\n(End of file - total 2 lines)\n</file>"
    packet = {
        "type": "tool_call_progress",
        "kind": "read",
        "title": "read",
        "content": [{"type": "content", "content": {"type": "text", "text": words}}],
    }
    shown = parse_packet(packet)
    assert isinstance(shown, ToolProgress)
    assert shown.raw_output == "one\ntwo"


def test_a_name_of_javascript_is_not_a_tool() -> None:
    for name in ("constructor", "toString", "__proto__", "hasOwnProperty"):
        shown = parse_packet({"type": "tool_call_start", "title": name})
        assert isinstance(shown, ToolStart)
        assert (shown.tool_name, shown.kind, shown.title) == ("unknown", "other", "Running tool")


def shown_call(**fields: Any) -> ToolProgress:
    shown = parse_packet({"type": "tool_call_progress", **fields})
    assert isinstance(shown, ToolProgress)
    return shown


def test_what_a_subagent_did_goes_to_its_card() -> None:
    meta = {"sessionId": "c", "parentSessionId": "p", "subagentSessionId": "x"}
    for kind in ("agent_message_chunk", "agent_thought_chunk", "tool_call_start"):
        assert route(parse_packet({"type": kind, "_meta": meta})) == ChildRoute("c", "p")
    assert route(parse_packet({"type": "error", "_meta": meta})) == NormalRoute()
    assert route(shown_call(_meta={"subagentSessionId": "x"})) == TaskRoute("x")


def test_a_long_name_of_a_subagent_is_cut() -> None:
    task = {"subagent_type": "Explore", "description": "x" * 41}
    assert subagent_name(shown_call(rawInput=task)) == "x" * 40 + "…"


def test_a_plan_is_shown_with_its_entries() -> None:
    entry = {"content": "a", "status": "in_progress", "priority": "high"}
    shown = parse_packet({"type": "agent_plan_update", "entries": [entry, {"status": "odd"}]})
    assert isinstance(shown, Plan)
    assert [(each.content, each.status, each.priority) for each in shown.entries] == [
        ("a", "in_progress", "high"),
        ("", "pending", "medium"),
    ]


def test_the_reason_and_the_code_of_an_end_are_not_lost() -> None:
    end = parse_packet({"type": "prompt_response", "stopReason": "refusal"})
    failure = parse_packet({"type": "error", "message": "m", "code": -2})
    assert isinstance(end, PromptResponse)
    assert isinstance(failure, Failed)
    assert (end.stop_reason, failure.code) == ("refusal", "-2")


@pytest.mark.parametrize(
    ("packet", "name"),
    [
        ({"title": "skill", "rawInput": {"name": "pptx"}}, "pptx"),
        ({"title": "bash", "rawInput": {"command": "cat .opencode/skills/pdf/SKILL.md"}}, "pdf"),
        ({"title": "bash", "rawInput": {"command": "ls"}}, None),
    ],
)
def test_a_skill_is_found_in_an_input_or_a_command(packet: Json, name: str | None) -> None:
    assert shown_call(**packet).skill_name == name


def test_found_files_are_listed() -> None:
    found = shown_call(title="glob", rawOutput={"files": ["a", "b"]})
    assert found.raw_output == "a\nb"


@pytest.mark.parametrize(
    ("output", "answer", "session"),
    [
        ("task_id: ses_1 (x)\nok", "task_id: ses_1 (x)\nok", "ses_1"),
        (
            "ok <task_metadata>task_id: t</task_metadata> and <task_metadata>b</task_metadata>",
            "ok  and",
            "t",
        ),
        ("ok <task_metadata>never closed", "ok <task_metadata>never closed", None),
    ],
)
def test_the_output_of_a_task_is_its_answer_and_its_session(
    output: str, answer: str, session: str | None
) -> None:
    shown = shown_call(title="task", status="completed", rawOutput={"output": output})
    assert (shown.task_output, shown.subagent_session_id) == (answer, session)


def test_an_output_that_is_nested_too_deeply_is_not_shown() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    assert shown_call(title="lsp", rawOutput=deep).raw_output == ""
    assert shown_call(title="glob", rawOutput={"files": ["a", deep]}).raw_output == "a\n"
    failure = parse_packet({"type": "error", "message": "m", "code": deep})
    assert isinstance(failure, Failed)
    assert failure.code == ""


def test_cutting_workspaces_out_of_a_long_path_takes_no_time() -> None:
    """Quadratic, this would take an hour."""
    path = "/a" * 500_000
    assert without_workspaces(path) == path
    assert without_workspaces(f"{path}/sessions/abc/x") == "x"


def test_folders_of_sessions_within_a_session_are_cut_too() -> None:
    assert without_workspaces("/w/sessions/abc/b/sessions/def/x y") == "x y"
    assert without_workspaces("/w/sessions/abc/sessions/def/x") == "x"


@given(ANY_JSON)
def test_no_json_makes_a_function_fail(packet: Any) -> None:
    parse_packet(packet)
    assert isinstance(packet_type(packet), str)
    assert is_new_file_operation(packet) in (None, True, False)
    assert isinstance(is_task_tool(packet), bool)
    assert isinstance(is_todo_write_tool(packet), bool)
    assert isinstance(get_file_path(packet), str)


@given(st.binary())
def test_no_bytes_make_parsing_fail(data: bytes) -> None:
    parse_packet(data)
