"""A consumer that knows only the protocol's description can live on what we tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agents.adapters import AcpAdapter
from quarterdeck.host import Host, HostOptions
from quarterdeck.views.context import (
    ContextEvent,
    StartSessionOptions,
    decode_command,
    encode_context_event,
)
from quarterdeck.views.context.events import EVENT_CLASSES
from tests.agents.adapters.test_acp import definition
from tests.views.context.consumer import EVENTS, Consumer
from tests.views.context.example_log import everything
from tests.views.context.golden import MADE_UP, RECORDINGS, read
from tests.views.shapes import Misfit

Json = dict[str, Any]


def written(event: ContextEvent) -> Json:
    sent: Json = json.loads(encode_context_event(event))
    return sent


@pytest.mark.parametrize("name", [*RECORDINGS, MADE_UP])
def test_it_reads_the_golden_projections(name: str) -> None:
    for session in read(name):
        consumer = Consumer()
        for event in session["context"]:
            consumer.take(event)
        assert consumer.seen


def test_it_reads_a_log_with_every_event() -> None:
    consumer = Consumer()
    for event in everything().emitted():
        consumer.take(written(event))
    assert set(consumer.seen) == set(EVENTS) == set(EVENT_CLASSES)
    assert consumer.status == "completed"
    assert consumer.summary is not None
    assert {change["path"] for change in consumer.files} <= {
        change["path"] for change in consumer.summary["filesChanged"]
    }


STARTED = {
    "seq": 1,
    "sessionId": "s",
    "timestamp": "2026-01-22T19:13:30.917Z",
    "type": "tool:start",
    "toolCallId": "t",
    "name": "Read",
    "category": "file_read",
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "tool:begin"},
        {"seq": 2},
        {"seq": "1"},
        {"timestamp": "2026-01-22 19:13:30"},
        {"category": "reading"},
        {"toolCallId": 7},
        {"surprise": True},
        {"type": "tool:result", "output": "", "duration": 1},
    ],
)
def test_it_refuses_what_is_not_described(wrong: Json) -> None:
    Consumer().take(STARTED)
    with pytest.raises(Misfit):
        Consumer().take({**STARTED, **wrong})


FORM = {
    "mode": "form",
    "sessionId": "{session}",
    "message": "Which database?",
    "requestedSchema": {
        "type": "object",
        "properties": {"db": {"type": "string", "enum": ["PostgreSQL", "MySQL"]}},
        "required": ["db"],
    },
}
EDIT = {
    "ask": "t1",
    "title": "Edit",
    "kind": "edit",
    "diff": {"path": "{cwd}/a.py", "old": "x = 1\n", "new": "x = 2\n"},
    "allowed": [{"finish": "t1", "text": "done"}],
}


class Phone:
    """A user of the consumer: approves, answers, and ends the session when all is done."""

    def __init__(self, session: Any) -> None:
        self.consumer = Consumer()
        self.is_over = anyio.Event()
        self._session = session
        self._commands, self._inbox = anyio.create_memory_object_stream[Json](100)

    def __call__(self, event: ContextEvent) -> None:
        sent = written(event)
        self.consumer.take(sent)
        if sent["type"] == "approval:requested":
            ids = {key: sent[key] for key in ("requestId", "toolCallId")}
            self._commands.send_nowait({"command": "approve_tool_call", **ids})
        elif sent["type"] == "interaction:question":
            question = sent["questionId"]
            answer = {"questionId": question, "answer": sent["options"][0]}
            self._commands.send_nowait({"command": "answer_question", **answer})
        elif sent["type"] == "session:status_changed" and sent["to"] == "idle":
            self._commands.send_nowait({"command": "terminate"})
        elif sent["type"] == "session:completed":
            self._commands.close()
            self.is_over.set()

    async def work(self) -> None:
        with self._inbox:
            async for command in self._inbox:
                await self._session.execute(decode_command(command))


@pytest.mark.anyio
async def test_it_lives_through_a_session_of_a_real_agent(tmp_path: Path) -> None:
    steps = (
        {"think": "Which database?"},
        {"request": "elicitation/create", "params": FORM},
        {"say": "I take {last.content}.", "pieces": 3},
        EDIT,
        {"plan": ["[x] Choose", "[>] Edit"]},
        {"usage": 100, "size": 1000},
        {"say": "Done."},
    )
    agent = definition(*steps, capabilities={"sessionCapabilities": {"close": {}}})
    with anyio.fail_after(60):
        offered = HostOptions(elicitation=("form",))
        async with Host(offered) as host, AcpAdapter(host, agent) as adapter:
            options = StartSessionOptions(project_path=str(tmp_path), prompt="")
            session = await adapter.start_session(options)
            phone = Phone(session)
            history = await session.get_history()
            for event in history:
                phone.consumer.take(written(event))
            session.on_event(phone)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(phone.work)
                command = {"command": "send_message", "message": "Set up the database"}
                await session.execute(decode_command(command))
                await phone.is_over.wait()
    consumer = phone.consumer
    assert consumer.status == "completed"
    assert consumer.summary is not None
    assert consumer.summary["toolCallsCount"] == 1
    roles = [role for role, _ in consumer.transcript]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert [change["changeType"] for change in consumer.files] == ["modified"]
    assert not consumer.pending
