"""Questions of agents beside permission: emitted as questions, answered in words."""

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


def elicited(log: Log, request: dict[str, Any], status: str = "pending", **more: Any) -> Log:
    return log.form(request, status, **more)


def test_a_form_with_one_field_is_one_question_and_the_session_waits_for_input() -> None:
    log = elicited(Log().started().prompted().think("Hm."), form("db", db=DATABASE))
    emitted = log.emitted()
    question = only(emitted, "interaction:question")
    assert (question.question_id, question.question) == ("elic-1", "Which one?")
    assert question.options == ("PostgreSQL", "MySQL")
    assert question.default_value == "PostgreSQL"
    assert statuses(emitted)[-1] == ("thinking", "waiting_for_input")
    assert emitted[-1].reason == "the agent asks a question"  # type: ignore[union-attr]


def test_after_an_answer_the_session_runs_again_and_every_view_learns_it() -> None:
    request = form("db", db=DATABASE)
    log = elicited(
        elicited(Log().started().prompted(), request), request, "answered", action="accept"
    )
    emitted = log.emitted()
    resolved = only(emitted, "custom")
    assert (resolved.namespace, resolved.event_name) == ("acp", "elicitation")
    assert resolved.data == {"requestId": "elic-1", "status": "answered", "action": "accept"}
    assert statuses(emitted)[-1] == ("waiting_for_input", "running")


def test_a_withdrawn_elicitation_is_removed_once() -> None:
    request = form("db", db=DATABASE)
    log = elicited(Log().started().prompted(), request).status("disconnected")
    emitted = elicited(log, request, "superseded").emitted()
    (taken_back,) = every(emitted, "custom")
    assert taken_back.data["status"] == "superseded"
    assert statuses(emitted)[-1] == ("waiting_for_input", "error")


def test_an_elicitation_outside_a_turn_makes_the_session_wait_too() -> None:
    emitted = elicited(Log().started(), form("db", db=DATABASE)).emitted()
    assert statuses(emitted)[-1] == ("idle", "waiting_for_input")


def test_waiting_for_permission_takes_precedence_over_elicitations() -> None:
    log = elicited(Log().started().prompted(), form("db", db=DATABASE))
    log.ask({"toolCallId": "t1", "title": "Edit"}).answer("yes")
    assert [to for _, to in statuses(log.emitted())][-3:] == [
        "waiting_for_input",
        "waiting_for_approval",
        "waiting_for_input",
    ]


def test_a_form_with_several_fields_is_emitted_whole_and_as_a_question_for_each_required() -> None:
    request = form("name", "db", name={"type": "string"}, db=DATABASE, age={"type": "integer"})
    emitted = elicited(Log().started().prompted(), request).emitted()
    whole = only(emitted, "custom")
    assert whole.data == {"requestId": "elic-1", "status": "pending", "request": request}
    questions = every(emitted, "interaction:question")
    assert [each.question_id for each in questions] == ["elic-1#name", "elic-1#db"]
    assert questions[1].question == "Which one?\nDatabase"


def test_a_page_to_visit_is_a_notification_with_its_address_and_a_question() -> None:
    log = elicited(Log().started().prompted(), PAGE)
    emitted = elicited(log, PAGE, "answered", action="accept", completed=True).emitted()
    page, done = every(emitted, "interaction:notification")
    assert (page.level, page.message, page.action_url) == ("info", "Sign in", PAGE["url"])
    assert (done.level, done.action_url) == ("success", None)
    assert only(emitted, "interaction:question").options == ("accept", "decline")


def test_an_agent_cannot_forge_an_elicitation_of_the_host() -> None:
    update = {"requestId": "elic-1", "status": "pending", "request": PAGE}
    log = Log().started().update("quarterdeck/elicitation-updated", **update)
    assert only(log.emitted(), "custom").event_name == "quarterdeck/elicitation-updated"


def test_pending_questions_are_listed() -> None:
    projector = ContextProjector(SESSION)
    for event in elicited(Log().started(), form("db", db=DATABASE)).events:
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
