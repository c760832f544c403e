from hypothesis import given, strategies

from quarterdeck.testing.scenario import Step
from quarterdeck.testing.updates import chunks, cut, fill, permission_of, update_of


@given(strategies.text(), strategies.integers(1, 20))
def test_the_pieces_of_a_text_are_the_text(text: str, count: int) -> None:
    pieces = cut(text, count)
    assert len(pieces) == count
    assert "".join(pieces) == text


def test_a_text_is_cut_between_words() -> None:
    assert cut("one two three", 2) == ["one two ", "three"]


def test_placeholders_are_replaced_wherever_there_is_text() -> None:
    known = {"n": 2, "last": {"content": "x"}, "cwd": "/work"}
    value = {"a": ["{n}. {last.content}"], "b": {"c": "{cwd}/f"}, "d": 1}
    assert fill(value, known) == {"a": ["2. x"], "b": {"c": "/work/f"}, "d": 1}


def test_a_text_that_is_only_a_placeholder_becomes_the_value() -> None:
    assert fill("{id}", {"id": 7}) == 7


def test_a_value_in_a_text_is_written_as_json() -> None:
    assert fill("got {last}", {"last": {"a": [1]}}) == 'got {"a": [1]}'


def test_other_braces_are_left_alone() -> None:
    assert fill("{x} {} {n", {"n": 1}) == "{x} {} {n"


def test_a_chunk_carries_the_id_of_its_message_if_it_has_one() -> None:
    assert list(chunks(Step("think", "a", {"id": "m"}))) == [
        {
            "sessionUpdate": "agent_thought_chunk",
            "content": {"type": "text", "text": "a"},
            "messageId": "m",
        }
    ]


def test_a_mark_in_front_of_a_plan_entry_is_its_status() -> None:
    update = update_of(Step("plan", ["[x] a", "[>] b", "c", {"content": "d"}], {}))
    assert [(each["content"], each["status"]) for each in update["entries"]] == [
        ("a", "completed"),
        ("b", "in_progress"),
        ("c", "pending"),
        ("d", "pending"),
    ]


def test_a_tool_call_is_in_progress_and_named_after_its_id_unless_it_says_otherwise() -> None:
    assert update_of(Step("tool", "t", {})) == {
        "sessionUpdate": "tool_call",
        "toolCallId": "t",
        "title": "t",
        "status": "in_progress",
    }


def test_a_finished_tool_call_is_completed_and_shows_what_it_did() -> None:
    options = {
        "text": "done",
        "diff": {"path": "/f", "new": "x"},
        "terminal": "term-1",
        "output": None,
        "locations": ["/f", {"path": "/g", "line": 2}],
    }
    assert update_of(Step("finish", "t", options)) == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "t",
        "status": "completed",
        "rawOutput": None,
        "locations": [{"path": "/f"}, {"path": "/g", "line": 2}],
        "content": [
            {"type": "content", "content": {"type": "text", "text": "done"}},
            {"type": "diff", "path": "/f", "newText": "x"},
            {"type": "terminal", "terminalId": "term-1"},
        ],
    }


def test_a_permission_request_offers_three_options_unless_it_says_otherwise() -> None:
    assert [each["kind"] for each in permission_of(Step("ask", "t", {}))["options"]] == [
        "allow_once",
        "allow_always",
        "reject_once",
    ]
    own = {"optionId": "ok", "name": "OK", "kind": "allow_once"}
    assert permission_of(Step("ask", "t", {"options": [own]}))["options"] == [own]
