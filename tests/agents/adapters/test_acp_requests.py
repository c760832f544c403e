"""Forms of an agent, answered by `answer_question`; each test runs a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agents.adapters import AcpAdapter
from quarterdeck.host import Host, HostOptions
from quarterdeck.views.context import AnswerQuestionCommand, SendMessageCommand
from tests.agents.adapters.test_acp import Seen, definition, refused, started

pytestmark = pytest.mark.anyio

FIELDS: dict[str, Any] = {
    "name": {"type": "string", "title": "Name"},
    "age": {"type": "integer"},
}


def requesting(*required: str) -> dict[str, Any]:
    properties = {name: FIELDS[name] for name in required}
    schema = {"type": "object", "properties": properties, "required": list(required)}
    params = {
        "mode": "form",
        "sessionId": "{session}",
        "message": "Who are you?",
        "requestedSchema": schema,
    }
    return definition({"request": "elicitation/create", "params": params}, {"say": "{last}"})


async def statuses_of(seen: Seen) -> list[str]:
    await seen.idle()
    return [event.to for event in seen.events if event.type == "session:status_changed"]


async def test_a_question_is_answered_and_the_turn_continues(tmp_path: Path) -> None:
    options = HostOptions(elicitation=("form",))
    with anyio.fail_after(60):
        async with Host(options) as host, AcpAdapter(host, requesting("name")) as adapter:
            session, seen = await started(adapter, tmp_path)
            assert session.capabilities.features.user_interaction.questions
            await session.execute(SendMessageCommand(message="go"))
            question = await seen.type("interaction:question")
            await session.execute(
                AnswerQuestionCommand(question_id=question.question_id, answer="Ann")
            )
            assert await statuses_of(seen) == ["running", "waiting_for_input", "running", "idle"]
            assert "accept" in "".join(seen.messages)
            assert "Ann" in "".join(seen.messages)
            again = AnswerQuestionCommand(question_id=question.question_id, answer="Bob")
            assert await refused(session, again) == "already-answered"
            logged = [event.type for event in await session.get_history()]
            assert logged.count("interaction:question") == 1


async def test_a_form_waits_for_all_its_answers_and_refuses_a_wrong_one(tmp_path: Path) -> None:
    options = HostOptions(elicitation=("form",))
    with anyio.fail_after(60):
        async with Host(options) as host, AcpAdapter(host, requesting("name", "age")) as adapter:
            session, seen = await started(adapter, tmp_path)
            await session.execute(SendMessageCommand(message="go"))
            await seen.until(lambda event: getattr(event, "to", None) == "waiting_for_input")
            age, name = "elic-1#age", "elic-1#name"
            wrong = AnswerQuestionCommand(question_id=age, answer="old")
            assert await refused(session, wrong) == "config-invalid"
            await session.execute(AnswerQuestionCommand(question_id=age, answer="7"))
            assert [each.status for each in host.get_elicitations()] == ["pending"]
            await session.execute(AnswerQuestionCommand(question_id=name, answer="Ann"))
            assert (await statuses_of(seen))[-1] == "idle"
            assert "7" in "".join(seen.messages)
            assert "Ann" in "".join(seen.messages)


async def test_an_empty_answer_declines(tmp_path: Path) -> None:
    options = HostOptions(elicitation=("form",))
    with anyio.fail_after(60):
        async with Host(options) as host, AcpAdapter(host, requesting("name")) as adapter:
            session, seen = await started(adapter, tmp_path)
            await session.execute(SendMessageCommand(message="go"))
            question = await seen.type("interaction:question")
            await session.execute(
                AnswerQuestionCommand(question_id=question.question_id, answer="")
            )
            await seen.idle()
            assert "decline" in "".join(seen.messages)


async def test_the_identity_that_the_agent_reports_is_in_the_environment_event(
    tmp_path: Path,
) -> None:
    with anyio.fail_after(60):
        async with Host() as host, AcpAdapter(host, requesting("name")) as adapter:
            session, _ = await started(adapter, tmp_path)
            (environment,) = [
                event for event in await session.get_history() if event.type == "environment:info"
            ]
            assert environment.context.agent.name == "scripted"
            assert environment.context.agent.display_name == "Scripted"
            assert environment.context.agent.version != "7"  # that is in the definition
