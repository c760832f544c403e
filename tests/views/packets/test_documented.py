"""The documented packets, to the key: every example, type, table and note, one after another."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from quarterdeck.views import packets
from quarterdeck.views.packets import (
    PACKET_TYPES,
    ArtifactType,
    EditInput,
    get_file_path,
    is_new_file_operation,
    is_task_tool,
    is_todo_write_tool,
    packet_type,
    parse_packet,
    tool_kind,
)
from quarterdeck.views.packets.builders import agent_message_chunk, error, prompt_response
from quarterdeck.views.packets.parsed_packets import ToolProgress
from quarterdeck.views.packets.types import TOOL_INPUTS, TOOL_OUTPUTS
from tests.views.packets.support import TIME, Json, finished, project, text, types, update

CALL = "toolu_01JQPzZLN1GkctYVgpaaxD8X"


def call(**fields: Any) -> Json:
    return {"sessionUpdate": "tool_call", "toolCallId": CALL, "status": "pending", **fields}


def progress(**fields: Any) -> Json:
    return {"sessionUpdate": "tool_call_update", "toolCallId": CALL, **fields}


def last(*sent: Json) -> Json:
    return project(update(each) for each in sent)[-1]


DOCUMENTED = """
    AgentMessageChunkPacket ToolCallStartPacket ToolCallKind ToolCallProgressPacket
    GlobInput GrepInput ReadInput WriteInput EditInput BashInput TaskInput TodoWriteInput
    TodoItem SearchOutput ReadOutput BashOutput WriteOutput TodoWriteOutput ToolRawInput
    ToolRawOutput ToolContentArray ContentItem LocationInfo AgentPlanUpdatePacket PlanEntry
    PromptResponsePacket ErrorPacket ArtifactCreatedPacket ArtifactType
    is_new_file_operation is_todo_write_tool is_task_tool get_file_path
"""


def test_every_type_and_function_of_the_description_is_here() -> None:
    assert set(DOCUMENTED.split()) <= set(packets.__all__)
    assert all(hasattr(packets, name) for name in packets.__all__)


def test_a_message_chunk_is_the_documented_example() -> None:
    sent = {"sessionUpdate": "agent_message_chunk", "content": text("I'll help you create")}
    example = {
        "_meta": None,
        "content": {
            "_meta": None,
            "annotations": None,
            "text": "I'll help you create",
            "type": "text",
        },
        "sessionUpdate": "agent_message_chunk",
        "type": "agent_message_chunk",
    }
    assert last(sent) == example
    assert agent_message_chunk("I'll help you create") == example


def test_chunks_arrive_one_by_one_and_add_up() -> None:
    words = ["I'll ", "help ", "you"]
    sent = [{"sessionUpdate": "agent_message_chunk", "content": text(word)} for word in words]
    packets = project(update(each) for each in sent)
    assert "".join(packet["content"]["text"] for packet in packets) == "I'll help you"


@pytest.mark.parametrize(
    ("title", "kind", "call_id"),
    [("glob", "search", CALL), ("todowrite", "other", "toolu_01RcpWgYMMtMch3XPebkLwcp")],
)
def test_the_start_of_a_call_is_the_documented_example(title: str, kind: str, call_id: str) -> None:
    assert last(call(title=title, kind=kind, toolCallId=call_id)) == {
        "_meta": None,
        "content": None,
        "kind": kind,
        "locations": [],
        "rawInput": {},
        "rawOutput": None,
        "status": "pending",
        "title": title,
        "toolCallId": call_id,
        "sessionUpdate": "tool_call",
    }


def test_the_start_of_a_call_has_no_type_and_no_results_yet() -> None:
    start, state = project(
        [update(call(title="read", kind="read", status="completed", rawOutput={"output": "x"}))]
    )
    assert "type" not in start
    assert (start["status"], start["rawOutput"], start["content"]) == ("pending", None, None)
    assert packet_type(start) == "tool_call_start"
    assert (state["status"], state["rawOutput"]) == ("completed", {"output": "x"})


READ_TEXT = "<file>\n00001| {content}\n...\n</file>"


def test_progress_has_all_documented_fields() -> None:
    packet = last(
        call(title="read", kind="read"),
        progress(
            status="completed",
            rawInput={"filePath": "/a/b.ts"},
            rawOutput={"output": READ_TEXT, "metadata": {"preview": "", "truncated": False}},
            content=[{"type": "content", "content": text(READ_TEXT)}],
            locations=[{"path": "/a/b.ts"}, {"path": "/a/c.ts", "line": 7}],
        ),
    )
    assert packet == {
        "_meta": None,
        "type": "tool_call_progress",
        "sessionUpdate": "tool_call_update",
        "timestamp": TIME,
        "toolCallId": CALL,
        "title": "read",
        "kind": "read",
        "status": "completed",
        "rawInput": {"filePath": "/a/b.ts"},
        "rawOutput": {"output": READ_TEXT, "metadata": {"preview": "", "truncated": False}},
        "content": [
            {
                "_meta": None,
                "type": "content",
                "content": {"_meta": None, "type": "text", "text": READ_TEXT, "annotations": None},
            }
        ],
        "locations": [
            {"_meta": None, "path": "/a/b.ts", "line": None},
            {"_meta": None, "path": "/a/c.ts", "line": 7},
        ],
    }


def test_input_comes_with_the_progress_and_output_with_its_end() -> None:
    command = {"command": "npm test", "description": "Run tests"}
    packets = project(
        update(each)
        for each in (
            call(title="bash", kind="execute"),
            progress(status="in_progress", rawInput=command),
            progress(status="completed", rawOutput={"output": "ok"}, title="Run tests"),
        )
    )
    facts = [(p["status"], p["title"], p["rawInput"], p["rawOutput"]) for p in packets]
    assert facts == [
        ("pending", "bash", {}, None),
        ("in_progress", "bash", command, None),
        ("completed", "Run tests", command, {"output": "ok"}),
    ]


TODO = {"content": "Create API", "status": "in_progress", "activeForm": "Creating API endpoint"}
INPUTS: list[tuple[str, Json]] = [
    ("glob", {"pattern": "files/linear/**/*.json"}),
    ("grep", {"pattern": "TODO"}),
    ("grep", {"pattern": "TODO", "path": "src"}),
    ("read", {"filePath": "/a/b.ts"}),
    ("write", {"filePath": "/a/b.ts", "content": "x"}),
    ("edit", {"filePath": "/a/b.ts", "old_string": "a", "new_string": "b"}),
    ("bash", {"command": "ls", "description": "List"}),
    ("task", {"prompt": "Find", "description": "Find it", "subagent_type": "Explore"}),
    ("todowrite", {"todos": [TODO]}),
]
OUTPUTS: list[tuple[str, Json]] = [
    ("glob", {"output": "No files found", "metadata": {"count": 0, "truncated": False}}),
    ("grep", {"output": "a\nb", "metadata": {"count": 2, "truncated": False}}),
    ("read", {"output": "<file></file>", "metadata": {"preview": "", "truncated": False}}),
    (
        "bash",
        {
            "output": "x",
            "metadata": {"output": "x", "exit": 0, "description": "List", "truncated": False},
        },
    ),
    (
        "write",
        {
            "output": "Wrote file successfully.",
            "metadata": {
                "diagnostics": {"a.ts": []},
                "filepath": "/a/b.ts",
                "exists": False,
                "truncated": False,
            },
        },
    ),
    ("todowrite", {"output": "[]", "metadata": {"todos": [TODO], "truncated": False}}),
]


@pytest.mark.parametrize(("tool", "raw_input"), INPUTS)
def test_an_input_has_its_documented_shape_and_passes_unchanged(tool: str, raw_input: Json) -> None:
    assert msgspec.convert(raw_input, TOOL_INPUTS[tool], strict=True) == raw_input
    packet = last(call(title=tool), progress(status="in_progress", rawInput=raw_input))
    assert packet["rawInput"] == raw_input


@pytest.mark.parametrize(("tool", "raw_output"), OUTPUTS)
def test_an_output_has_its_documented_shape_and_passes_unchanged(
    tool: str, raw_output: Json
) -> None:
    assert msgspec.convert(raw_output, TOOL_OUTPUTS[tool], strict=True) == raw_output
    packet = last(call(title=tool), progress(status="completed", rawOutput=raw_output))
    assert packet["rawOutput"] == raw_output


def test_an_input_without_a_required_key_is_not_of_its_shape() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"filePath": "/a"}, EditInput)


def written(old: str | None, new: str) -> list[Json]:
    diff: Json = {"type": "diff", "path": "/path/to/file.ts", "oldText": old, "newText": new}
    return [{"type": "content", "content": text("Wrote file successfully.")}, diff]


@pytest.mark.parametrize(
    ("old", "new", "is_new", "title"),
    [
        (None, "// new file content...", True, "Writing file"),
        ("", "// new file content...", True, "Writing file"),
        ("const x = 1;", "const x = 2;\nconst y = 3;", False, "Editing file"),
    ],
)
def test_a_write_and_an_edit_are_the_documented_examples(
    old: str | None, new: str, is_new: bool, title: str
) -> None:
    packet = last(
        call(title="write", kind="edit"), progress(status="completed", content=written(old, new))
    )
    assert packet["content"] == [
        {
            "_meta": None,
            "type": "content",
            "content": {
                "_meta": None,
                "type": "text",
                "text": "Wrote file successfully.",
                "annotations": None,
            },
        },
        {
            "_meta": None,
            "type": "diff",
            "newText": new,
            "oldText": old or "",
            "path": "/path/to/file.ts",
        },
    ]
    assert is_new_file_operation(packet) is is_new
    shown = parse_packet(packet)
    assert isinstance(shown, ToolProgress)
    assert (shown.title, shown.is_new_file) == (title, is_new)
    assert packet["kind"] == "edit"


@pytest.mark.parametrize(
    "packet",
    [
        {"kind": "read", "content": [{"type": "diff", "oldText": ""}]},
        {"content": [{"type": "diff", "oldText": ""}]},
        {"kind": "edit", "content": None},
        {"kind": "edit"},
        {"kind": "edit", "content": []},
        {"kind": "edit", "content": [None, {"type": "content"}]},
    ],
)
def test_what_is_no_edit_or_has_no_diff_is_neither_new_nor_old(packet: Json) -> None:
    assert is_new_file_operation(packet) is None


def test_the_first_diff_decides() -> None:
    first, second = {"type": "diff", "oldText": ""}, {"type": "diff", "oldText": "x"}
    assert is_new_file_operation({"kind": "edit", "content": [first, second]}) is True
    assert is_new_file_operation({"kind": "edit", "content": [second, first]}) is False
    assert is_new_file_operation({"kind": "edit", "content": [{"type": "diff"}]}) is False


def test_a_plan_is_the_documented_example() -> None:
    entries = [
        {"content": "Create prepare.sh script", "priority": "medium", "status": "completed"},
        {"content": "Build dashboard page", "priority": "medium", "status": "in_progress"},
    ]
    assert last({"sessionUpdate": "plan", "entries": entries}) == {
        "_meta": None,
        "entries": [{"_meta": None, **entry} for entry in entries],
        "sessionUpdate": "plan",
        "type": "agent_plan_update",
        "timestamp": TIME,
    }


def test_a_plan_comes_beside_the_progress_of_its_tool() -> None:
    packets = project(
        update(each)
        for each in (
            call(title="todowrite", kind="other"),
            progress(status="completed", title="1 todos", rawInput={"todos": [TODO]}),
            {
                "sessionUpdate": "plan",
                "entries": [{"content": "a", "priority": "high", "status": "pending"}],
            },
        )
    )
    assert types(packets) == ["tool_call", "tool_call_progress", "agent_plan_update"]


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "stop_sequence"])
def test_the_end_of_a_turn_is_the_documented_example(reason: str) -> None:
    example = {"_meta": {}, "stopReason": reason, "type": "prompt_response"}
    assert project([finished(reason)]) == [example]
    assert prompt_response(reason) == example


def test_an_error_has_a_message_and_perhaps_a_code() -> None:
    assert project([finished(error={"code": -32603, "message": "no", "data": 1})]) == [
        {"type": "error", "message": "no", "code": "-32603"}
    ]
    assert error("no") == {"type": "error", "message": "no"}
    assert msgspec.convert(error("no"), PACKET_TYPES["error"]) == error("no")


@pytest.mark.parametrize("kind", get_args(ArtifactType))
def test_an_artifact_is_announced_in_meta(kind: str) -> None:
    artifact = {"id": "1", "type": kind, "name": "n", "path": "outputs/n", "preview_url": None}
    packet = last(
        {
            "sessionUpdate": "agent_message_chunk",
            "content": text("see"),
            "_meta": {"artifact": artifact},
        }
    )
    assert packet == {"type": "artifact_created", "artifact": artifact}


@pytest.mark.parametrize("more", [{}, {"preview_url": None}, {"preview_url": "/preview/1"}])
def test_an_artifact_may_have_a_preview(more: Json) -> None:
    artifact = {"id": "1", "type": "web_app", "name": "n", "path": "outputs/n", **more}
    packet = last(progress(status="completed", _meta={"artifact": artifact}))
    assert packet == {"type": "artifact_created", "artifact": artifact}
    assert msgspec.convert(packet, PACKET_TYPES["artifact_created"]) == packet


@pytest.mark.parametrize(
    ("packet", "kind"),
    [
        ({"type": "error", "sessionUpdate": "plan"}, "error"),
        ({"sessionUpdate": "agent_message_chunk"}, "agent_message_chunk"),
        ({"sessionUpdate": "tool_call"}, "tool_call_start"),
        ({"sessionUpdate": "tool_call_update"}, "tool_call_progress"),
        ({"sessionUpdate": "plan"}, "agent_plan_update"),
        ({"sessionUpdate": "something"}, "unknown"),
        ({}, "unknown"),
        ({"type": None, "sessionUpdate": ["plan"]}, "unknown"),
    ],
)
def test_the_type_is_determined_in_the_documented_order(packet: Json, kind: str) -> None:
    assert packet_type(packet) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("glob", "search"),
        ("grep", "search"),
        ("read", "read"),
        ("write", "edit"),
        ("edit", "edit"),
        ("bash", "execute"),
        ("task", "task"),
        ("todowrite", "other"),
        ("webfetch", "other"),
        ("websearch", "other"),
        ("Bash", "execute"),
        ("todo_write", "other"),
        ("hologram", "other"),
    ],
)
def test_every_tool_has_its_documented_kind(name: str, kind: str) -> None:
    assert tool_kind(name) == kind
    sent = last(call(title=name))["kind"]
    assert sent == ("other" if kind == "task" else kind)


def test_a_task_is_known_by_its_name_not_by_its_kind() -> None:
    assert is_task_tool({"title": "Task", "kind": "other"})
    assert not is_task_tool({"title": "Find it", "kind": "task"})


def test_todos_are_known_after_their_title_became_a_count() -> None:
    start, end = project(
        update(each)
        for each in (
            call(title="todowrite", kind="other"),
            progress(status="completed", title="6 todos", rawInput={"todos": [TODO] * 6}),
        )
    )
    assert (start["title"], end["title"]) == ("todowrite", "6 todos")
    assert is_todo_write_tool(start)
    assert is_todo_write_tool(end)


@pytest.mark.parametrize(
    ("packet", "is_todo"),
    [
        ({"title": "TodoWrite"}, True),
        ({"title": "TODO_WRITE"}, True),
        ({"title": "6 todos", "rawInput": {"todos": []}}, True),
        ({"title": "6 todos", "raw_input": {"todos": []}}, True),
        ({"title": "6 todos", "rawInput": {"todos": {}}}, False),
        ({"title": "6 todos", "raw_input": {}, "rawInput": {"todos": []}}, False),
        ({"title": "6 todos", "raw_input": None, "rawInput": {"todos": []}}, True),
        ({"title": 6}, False),
        ({}, False),
    ],
)
def test_todos_are_detected_by_title_then_by_input(packet: Json, is_todo: bool) -> None:
    assert is_todo_write_tool(packet) is is_todo


@pytest.mark.parametrize(
    ("packet", "is_task"),
    [
        ({"title": "task"}, True),
        ({"title": "TASK"}, True),
        ({"title": "x", "rawInput": {"subagent_type": "Explore"}}, True),
        ({"title": "x", "rawInput": {"subagentType": "Plan"}}, True),
        ({"title": "x", "raw_input": {"subagent_type": "Bash"}}, True),
        ({"title": "x", "rawInput": {"subagent_type": ""}}, False),
        ({"title": "x", "rawInput": "subagent_type"}, False),
        ({"title": None}, False),
    ],
)
def test_tasks_are_detected_by_title_then_by_input(packet: Json, is_task: bool) -> None:
    assert is_task_tool(packet) is is_task


DIFF = {"type": "diff", "path": "/x/diff.ts"}


@pytest.mark.parametrize(
    ("packet", "path"),
    [
        ({"rawInput": {"file_path": "/x/a.ts", "filePath": "/x/b.ts", "path": "/x/c.ts"}}, "a.ts"),
        ({"rawInput": {"filePath": "/x/b.ts", "path": "/x/c.ts"}}, "b.ts"),
        ({"rawInput": {"path": "/x/c.ts"}, "content": [DIFF]}, "c.ts"),
        ({"raw_input": {"path": "/x/c.ts"}, "rawInput": {"path": "/x/d.ts"}}, "c.ts"),
        ({"rawInput": {}, "content": [None, {"type": "content"}, DIFF], "title": "y/z"}, "diff.ts"),
        ({"content": [{"type": "diff"}], "title": "path/to/file.tsx"}, "file.tsx"),
        ({"title": "path/to/file.tsx"}, "file.tsx"),
        ({"title": "edit"}, ""),
        ({}, ""),
    ],
)
def test_a_file_path_is_looked_for_in_the_documented_order(packet: Json, path: str) -> None:
    assert get_file_path({"kind": "edit", **packet}) == path


def test_an_edit_whose_title_became_its_path_is_still_an_edit() -> None:
    packet = last(
        call(title="edit", kind="edit"), progress(status="completed", title="path/to/file.tsx")
    )
    shown = parse_packet(packet)
    assert isinstance(shown, ToolProgress)
    assert (shown.tool_name, shown.kind, shown.file_path) == ("edit", "edit", "path/to/file.tsx")
