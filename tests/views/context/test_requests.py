"""Questions of agents beside permission: told as questions, answered in words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.errors import AcpError
from quarterdeck.views.context import ContextProjector
from quarterdeck.views.context.requests import PendingForm, questions_of, response_to
from tests.views.context.support import SESSION, Log, every, only, statuses
from tests.views.context.test_properties import FORM

DATABASE = {
    "type": "string",
    "title": "Database",
    "oneOf": [{"const": "pg", "title": "PostgreSQL"}, {"const": "my", "title": "MySQL"}],
    "default": "pg",
}
PAGE = {"mode": "url", "message": "Sign in", "elicitationId": "e", "url": "https://x.test/in"}


def form(*required: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"mode": "form", "message": "Which one?", "requestedSchema": schema}


def asked(log: Log, request: dict[str, Any], status: str = "pending", **more: Any) -> Log:
    return log.form(request, status, **more)


def test_a_form_with_one_field_is_one_question_and_the_session_waits_for_input() -> None:
    log = asked(Log().started().prompted().think("Hm."), form("db", db=DATABASE))
    told = log.told()
    question = only(told, "interaction:question")
    assert (question.question_id, question.question) == ("elic-1", "Which one?")
    assert question.options == ("PostgreSQL", "MySQL")
    assert question.default_value == "PostgreSQL"
    assert statuses(told)[-1] == ("thinking", "waiting_for_input")
    assert told[-1].reason == "the agent asks a question"  # type: ignore[union-attr]


def test_an_answered_question_lets_the_session_run_on_and_every_view_knows() -> None:
    request = form("db", db=DATABASE)
    log = asked(asked(Log().started().prompted(), request), request, "answered", action="accept")
    told = log.told()
    resolved = only(told, "custom")
    assert (resolved.namespace, resolved.event_name) == ("acp", "elicitation")
    assert resolved.data == {"requestId": "elic-1", "status": "answered", "action": "accept"}
    assert statuses(told)[-1] == ("waiting_for_input", "running")


def test_a_withdrawn_question_is_taken_back_once() -> None:
    request = form("db", db=DATABASE)
    log = asked(Log().started().prompted(), request).status("disconnected")
    told = asked(log, request, "superseded").told()
    (taken_back,) = every(told, "custom")
    assert taken_back.data["status"] == "superseded"
    assert statuses(told)[-1] == ("waiting_for_input", "error")


def test_a_question_outside_a_turn_makes_the_session_wait_too() -> None:
    told = asked(Log().started(), form("db", db=DATABASE)).told()
    assert statuses(told)[-1] == ("idle", "waiting_for_input")


def test_permission_comes_before_questions() -> None:
    log = asked(Log().started().prompted(), form("db", db=DATABASE))
    log.ask({"toolCallId": "t1", "title": "Edit"}).answer("yes")
    assert [to for _, to in statuses(log.told())][-3:] == [
        "waiting_for_input",
        "waiting_for_approval",
        "waiting_for_input",
    ]


def test_a_form_with_several_fields_is_told_whole_and_as_a_question_for_each_required() -> None:
    request = form("name", "db", name={"type": "string"}, db=DATABASE, age={"type": "integer"})
    told = asked(Log().started().prompted(), request).told()
    whole = only(told, "custom")
    assert whole.data == {"requestId": "elic-1", "status": "pending", "request": request}
    questions = every(told, "interaction:question")
    assert [each.question_id for each in questions] == ["elic-1#name", "elic-1#db"]
    assert questions[1].question == "Which one?\nDatabase"


def test_a_page_to_visit_is_a_notification_with_its_address_and_a_question() -> None:
    log = asked(Log().started().prompted(), PAGE)
    told = asked(log, PAGE, "answered", action="accept", completed=True).told()
    page, done = every(told, "interaction:notification")
    assert (page.level, page.message, page.action_url) == ("info", "Sign in", PAGE["url"])
    assert (done.level, done.action_url) == ("success", None)
    assert only(told, "interaction:question").options == ("accept", "decline")


def test_an_agent_cannot_pretend_that_the_host_asks() -> None:
    update = {"requestId": "elic-1", "status": "pending", "request": PAGE}
    log = Log().started().update("quarterdeck/elicitation-updated", **update)
    assert only(log.told(), "custom").event_name == "quarterdeck/elicitation-updated"


def test_the_questions_that_wait_are_known() -> None:
    projector = ContextProjector(SESSION)
    for event in asked(Log().started(), form("db", db=DATABASE)).events:
        projector.feed(event)
    (pending,) = projector.questions
    assert (pending.request_id, [each.id for each in pending.questions]) == ("elic-1", ["elic-1"])


def respond(request: dict[str, Any], *answers: str) -> dict[str, Any] | None:
    pending = PendingForm("e", questions_of("e", request))
    ids = [question.id for question in pending.questions]
    return response_to(pending, dict(zip(ids, answers, strict=False)))


@pytest.mark.parametrize(
    ("schema", "answer", "value"),
    [
        ({"type": "string"}, " Ann ", "Ann"),
        (DATABASE, "postgresql", "pg"),
        (DATABASE, "my", "my"),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["A!", "B!"]}, "b!", "b"),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "no", False),
        ({"type": "integer", "minimum": 1, "maximum": 9}, "7", 7),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, "a, b", ["a", "b"]),
        ({"type": "array", "items": {"anyOf": [{"const": "x", "title": "X ray"}]}}, "x ray", ["x"]),
    ],
)
def test_an_answer_gets_the_type_of_its_field(schema: Any, answer: str, value: Any) -> None:
    response = respond(form("it", it=schema), answer)
    assert response == {"action": "accept", "content": {"it": value}}
    assert response is not None
    assert type(response["content"]["it"]) is type(value)


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        (DATABASE, "Oracle"),
        ({"type": "boolean"}, "perhaps"),
        ({"type": "integer"}, "1.5"),
        ({"type": "integer", "maximum": 9}, "10"),
        ({"type": "number"}, "nan"),
        ({"type": "number"}, "1e400"),
        ({"type": "integer"}, "9" * 400),
        ({"type": "integer"}, "9" * 5000),
        ({"type": "string", "minLength": 3}, "ab"),
        ({"type": "array", "maxItems": 1, "items": {"enum": ["a", "b"]}}, "a,b"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_in_a_sentence(schema: Any, answer: str) -> None:
    with pytest.raises(AcpError) as caught:
        respond(form("it", it=schema), answer)
    assert caught.value.code == "acpjs/config-invalid"


def test_a_form_is_answered_when_its_last_question_is() -> None:
    request = form("a", "b", a={"type": "string"}, b={"type": "integer"})
    assert respond(request, "x") is None
    assert respond(request, "x", "2") == {"action": "accept", "content": {"a": "x", "b": 2}}


def test_an_empty_answer_declines_or_leaves_out_what_is_not_required() -> None:
    assert respond(form("a", a={"type": "string"}), " ") == {"action": "decline"}
    optional = form(a={"type": "string"}, b={"type": "string"})
    assert respond(optional, "", "x") == {"action": "accept", "content": {"b": "x"}}


@pytest.mark.parametrize(("answer", "action"), [("accept", "accept"), ("decline", "decline")])
@pytest.mark.parametrize("request_", [PAGE, form()], ids=["page", "empty form"])
def test_what_has_no_fields_is_accepted_or_declined(
    request_: Any, answer: str, action: str
) -> None:
    assert respond(request_, answer) == {"action": action}


@given(FORM, st.lists(st.text(max_size=6), max_size=4))
def test_no_form_and_no_answer_gives_more_than_a_sentence(
    request_: dict[str, Any], answers: list[str]
) -> None:
    try:
        response = respond(request_, *answers)
    except AcpError as refusal:
        response = {"action": refusal.code}
    assert response is None or response["action"] in ("accept", "decline", "acpjs/config-invalid")
