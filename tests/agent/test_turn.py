"""Turns that are cancelled, fail, ask, overlap, or do not end."""

import logging
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio
import pytest

from quarterdeck.agent import AgentTurn, turn as turn_module
from quarterdeck.errors import AgentError, RpcError
from tests.agent.support import PATIENCE, Hand, Json, conversing

TOOL: Json = {"toolCallId": "t1", "title": "Write a.py", "kind": "edit", "status": "pending"}
THREE: list[Json] = [
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
    {"optionId": "never", "name": "Never", "kind": "reject_always"},
]


async def forever(turn: AgentTurn) -> AsyncIterator[str]:
    yield "begun"
    await anyio.sleep_forever()


async def begun(client: Hand) -> None:
    await client.came(lambda each: each.get("method") == "session/update")


async def test_a_second_prompt_is_refused_while_one_runs_and_accepted_after() -> None:
    async with conversing(forever) as client:
        session_id = await client.open_session()
        first = await client.ask_prompt(session_id)
        refused = await client.prompt(session_id)
        await client.notify("session/cancel", sessionId=session_id)
        assert (await client.answered(first))["result"] == {"stopReason": "cancelled"}
        third = await client.ask_prompt(session_id)
        await client.notify("session/cancel", sessionId=session_id)
        assert (await client.answered(third))["result"] == {"stopReason": "cancelled"}
    assert refused["error"] == {
        "code": -32600,
        "message": "Invalid Request",
        "data": "prompt already running",
    }


async def test_a_cancel_right_behind_its_prompt_is_not_lost() -> None:
    async with conversing(forever) as client:
        session_id = await client.open_session()
        prompt = await client.ask_prompt(session_id)
        await client.notify("session/cancel", sessionId=session_id)
        assert (await client.answered(prompt))["result"] == {"stopReason": "cancelled"}


async def test_a_cancel_of_nothing_is_nothing() -> None:
    async with conversing(forever) as client:
        session_id = await client.open_session()
        await client.notify("session/cancel", sessionId=session_id)
        await client.notify("session/cancel", sessionId="session-x")
        await client.notify("session/cancel")
        await client.notify("_example/unknown")
        await client.ask_prompt(session_id)
        await begun(client)


async def test_sessions_run_side_by_side() -> None:
    meeting: dict[str, anyio.Event] = {"one": anyio.Event(), "two": anyio.Event()}

    async def waits_for_the_other(turn: AgentTurn) -> AsyncIterator[str]:
        me, other = ("one", "two") if turn.text == "one" else ("two", "one")
        meeting[me].set()
        await meeting[other].wait()
        yield me

    async with conversing(waits_for_the_other) as client:
        prompts = [
            await client.ask_prompt(await client.open_session(), name) for name in ("one", "two")
        ]
        for prompt in prompts:
            assert "result" in await client.answered(prompt)
    assert sorted(client.texts()) == ["one", "two"]


async def test_cleanup_after_a_cancel_may_wait_and_still_report_the_end_of_a_tool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_module, "CANCEL_SECONDS", PATIENCE)

    async def tidy(turn: AgentTurn) -> AsyncIterator[str]:
        yield "begun"
        try:
            await anyio.sleep_forever()
        finally:
            await anyio.sleep(0.01)
            turn.send({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "failed"})

    async with conversing(tidy) as client:
        session_id = await client.open_session()
        prompt = await client.ask_prompt(session_id)
        await begun(client)
        await client.notify("session/cancel", sessionId=session_id)
        answer = await client.answered(prompt)
    assert answer["result"] == {"stopReason": "cancelled"}
    assert (
        client.messages[client.messages.index(answer) - 1]["params"]["update"]["status"] == "failed"
    )


async def test_what_an_agent_raises_or_returns_after_a_cancel_is_still_cancelled() -> None:
    async def cross(_turn: AgentTurn) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("while I was working")

    async def calm(_turn: AgentTurn) -> str:
        try:
            await anyio.sleep_forever()
        except BaseException:  # noqa: BLE001 - as careless code does
            return "end_turn"
        raise AssertionError("it sleeps for ever")

    for agent in (cross, calm):
        async with conversing(agent) as client:
            session_id = await client.open_session()
            prompt = await client.ask_prompt(session_id)
            await client.prompt(session_id)  # refused; by now the first one runs
            await client.notify("session/cancel", sessionId=session_id)
            assert (await client.answered(prompt))["result"] == {"stopReason": "cancelled"}


async def test_an_agent_that_swallows_cancellation_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turn_module, "CANCEL_SECONDS", 0.05)
    monkeypatch.setattr(turn_module, "LEFTOVER_SECONDS", 0.05)
    release, refused = anyio.Event(), anyio.Event()
    refusals: list[AgentError] = []

    async def stubborn(turn: AgentTurn) -> AsyncIterator[Any]:
        if turn.text == "next":
            yield "done"
            return
        yield {"sessionUpdate": "tool_call", "toolCallId": "done", "title": "a"}
        yield {"sessionUpdate": "tool_call_update", "toolCallId": "done", "status": "completed"}
        yield {"sessionUpdate": "tool_call", "toolCallId": "open", "title": "b"}
        yield "begun"
        while not release.is_set():
            try:
                await release.wait()
            except BaseException:  # noqa: BLE001 - as careless code does
                continue
        try:
            turn.say("too late")
        except AgentError as error:
            refusals.append(error)
            refused.set()

    async with conversing(stubborn) as client:
        session_id = await client.open_session()
        prompt = await client.ask_prompt(session_id)
        await client.came(lambda each: "begun" in str(each))
        await client.notify("session/cancel", sessionId=session_id)
        answer = await client.answered(prompt)
        assert answer["result"] == {"stopReason": "cancelled"}
        ended = client.messages[client.messages.index(answer) - 1]["params"]["update"]
        assert (ended["toolCallId"], ended["status"]) == ("open", "failed")
        assert (await client.prompt(session_id, "next"))["result"] == {"stopReason": "end_turn"}
        release.set()
        with anyio.fail_after(PATIENCE):
            await refused.wait()
    assert client.texts() == ["begun", "done"]
    assert str(refusals[0]) == "this turn was cancelled and has been answered"


async def test_a_prompt_can_be_cancelled_as_a_request() -> None:
    ended = anyio.Event()

    async def noting(_turn: AgentTurn) -> AsyncIterator[str]:
        try:
            yield "begun"
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with conversing(noting) as client:
        session_id = await client.open_session()
        prompt = await client.ask_prompt(session_id)
        await begun(client)
        await client.notify("$/cancel_request", requestId=prompt)
        answer = await client.answered(prompt)
        assert ended.is_set()
        assert (await client.ask_prompt(session_id)) > prompt
    assert answer["error"]["code"] == -32800


async def test_a_pending_permission_is_withdrawn_by_a_cancel() -> None:
    async def requesting(turn: AgentTurn) -> AsyncIterator[str]:
        yield str(await turn.ask_permission(TOOL))

    async with conversing(requesting) as client:
        session_id = await client.open_session()
        prompt = await client.ask_prompt(session_id)
        request = await client.requested("session/request_permission")
        await client.notify("session/cancel", sessionId=session_id)
        await client.answer(request, {"outcome": {"outcome": "cancelled"}})
        answer = await client.answered(prompt)
    withdrawn = {"requestId": request["id"]}
    assert [
        each["params"] for each in client.messages if each.get("method") == "$/cancel_request"
    ] == [withdrawn]
    assert answer["result"] == {"stopReason": "cancelled"}
    assert client.texts() == []


async def test_the_default_permission_request_offers_to_allow_or_to_reject() -> None:
    async def requesting(turn: AgentTurn) -> AsyncIterator[str]:
        yield str(await turn.ask_permission(TOOL))

    async with conversing(requesting) as client:
        session_id = await client.open_session()
        prompt = await client.ask_prompt(session_id)
        request = await client.requested("session/request_permission")
        await client.select(request, "allow_once")
        await client.answered(prompt)
    assert request["params"] == {
        "sessionId": session_id,
        "toolCall": TOOL,
        "options": [
            {"optionId": "allow_once", "name": "Allow", "kind": "allow_once"},
            {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"},
        ],
    }
    assert client.texts() == ["allow_once"]


@pytest.mark.parametrize(
    ("answer", "means"),
    [
        ({"result": {"outcome": {"outcome": "selected", "optionId": "yes"}}}, "yes"),
        ({"result": {"outcome": {"outcome": "selected", "optionId": "never"}}}, "never"),
        ({"result": {"outcome": {"outcome": "cancelled"}}}, None),
        ({"result": {"outcome": {"outcome": "selected", "optionId": "allow_once"}}}, "no"),
        ({"result": {"outcome": {"outcome": "selected", "optionId": "YES"}}}, "no"),
        ({"result": {"outcome": {"outcome": "selected"}}}, "no"),
        ({"result": {"outcome": {"outcome": "selected", "optionId": 1}}}, "no"),
        ({"result": {"outcome": {"outcome": "granted", "optionId": "yes"}}}, "no"),
        ({"result": {"outcome": "selected"}}, "no"),
        ({"result": {"outcome": None}}, "no"),
        ({"result": {}}, "no"),
        ({"result": None}, "no"),
        ({"result": "yes"}, "no"),
        ({"result": True}, "no"),
        ({"error": {"code": -32601, "message": "Method not found"}}, "no"),
        ({"error": "yes"}, "no"),
    ],
)
async def test_nothing_but_an_offered_option_allows_anything(
    answer: Json, means: str | None
) -> None:
    chosen: list[Any] = []

    async def requesting(turn: AgentTurn) -> None:
        chosen.append(await turn.ask_permission(TOOL, THREE))
        chosen.append(await turn.ask_permission(TOOL, THREE[:1]))

    async with conversing(requesting) as client:
        prompt = await client.ask_prompt(await client.open_session())
        for request_number in range(2):
            request = await client.came(
                lambda each, request_number=request_number: (
                    each.get("method") == "session/request_permission"  # type: ignore[misc]
                    and each["id"] == request_number
                )
            )
            await client.send({"id": request["id"], **answer})
        await client.answered(prompt)
    assert chosen == [means, "yes" if means == "yes" else None]


async def test_a_permission_request_to_a_client_that_leaves_is_rejected() -> None:
    chosen: list[Any] = []

    async def requesting(turn: AgentTurn) -> None:
        try:
            chosen.append(await turn.ask_permission(TOOL))
        except BaseException:
            chosen.append("cancelled")
            raise

    async with conversing(requesting) as client:
        await client.ask_prompt(await client.open_session())
        await client.requested("session/request_permission")
    assert chosen in (["reject_once"], ["cancelled"])


FAILURES: list[tuple[Callable[[], BaseException], Json]] = [
    (
        lambda: ValueError("the model said no"),
        {"code": -32603, "message": "the agent failed: ValueError: the model said no"},
    ),
    (KeyError, {"code": -32603, "message": "the agent failed: KeyError"}),
    (
        lambda: AgentError("the key is wrong; set another"),
        {"code": -32603, "message": "the key is wrong; set another"},
    ),
    (
        lambda: RpcError(-32000, "Log in", {"a": 1}),
        {"code": -32000, "message": "Log in", "data": {"a": 1}},
    ),
    (lambda: SystemExit(3), {"code": -32603, "message": "the agent tried to exit with 3"}),
]


@pytest.mark.parametrize(("make", "error"), FAILURES)
async def test_a_failure_is_an_error_behind_what_was_said_and_never_an_end(
    make: Callable[[], BaseException], error: Json, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(_turn: AgentTurn) -> AsyncIterator[str]:
        yield "so far so good"
        raise make()

    async with conversing(fails) as client:
        session_id = await client.open_session()
        assert (await client.prompt(session_id))["error"] == error
        assert (await client.prompt(session_id))["error"] == error
    assert client.texts() == ["so far so good"] * 2
    ours = (AgentError, RpcError, SystemExit)
    has_traceback = any(record.exc_info for record in caplog.records)
    assert has_traceback is not isinstance(make(), ours)


async def test_an_agent_that_fails_before_it_begins_is_an_error_too() -> None:
    def broken(_turn: AgentTurn) -> Any:
        raise ValueError("no")

    def plain(_turn: AgentTurn) -> Any:
        return "end_turn"

    async def cancels_itself(_turn: AgentTurn) -> None:
        raise anyio.get_cancelled_exc_class()

    async def talks_nonsense(_turn: AgentTurn) -> str:
        return "because"

    async def yields_nonsense(_turn: AgentTurn) -> AsyncIterator[Any]:
        yield 42

    messages = []
    for agent in (broken, plain, cancels_itself, talks_nonsense, yields_nonsense):
        async with conversing(agent) as client:
            answer = await client.prompt(await client.open_session())
        messages.append(answer["error"]["message"])
    assert messages == [
        "the agent failed: ValueError: no",
        "the agent's prompt is neither an async generator nor a coroutine",
        "the agent cancelled its own turn",
        "the agent returned 'because', which is none of "
        "end_turn, max_tokens, max_turn_requests, refusal, cancelled",
        "an update is a mapping with a sessionUpdate",
    ]


async def test_what_a_stray_task_sends_after_the_answer_goes_out_as_long_as_the_session_is_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    turns: list[AgentTurn] = []

    async def quick(turn: AgentTurn) -> None:
        turns.append(turn)

    async with conversing(quick) as client:
        session_id = await client.open_session()
        await client.prompt(session_id)
        turns[0].say("by the way")
        await client.came(lambda each: each.get("method") == "session/update")
        await client.result("session/close", sessionId=session_id)
        with pytest.raises(AgentError, match=f"{session_id} is closed; nothing can be sent"):
            turns[0].say("too late")
    assert client.texts() == ["by the way"]


async def test_an_update_from_another_thread_is_refused_with_the_right_way() -> None:
    problems: list[str] = []

    async def threaded(turn: AgentTurn) -> None:
        def work() -> None:
            try:
                turn.say("from elsewhere")
            except AgentError as error:
                problems.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        await anyio.to_thread.run_sync(
            lambda: anyio.from_thread.run_sync(turn.say, "the right way")
        )

    async with conversing(threaded) as client:
        await client.prompt(await client.open_session())
    assert problems == [
        "an update was sent from another thread; use anyio.from_thread.run_sync(turn.send, update)"
    ]
    assert client.texts() == ["the right way"]


@pytest.mark.slow
async def test_many_pieces_arrive_in_order_before_the_answer() -> None:
    count = 5_000

    async def chatty(_turn: AgentTurn) -> AsyncIterator[str]:
        for number in range(count):
            yield f" {number}"

    async with conversing(chatty, buffer=4096, high_water=8192) as client:
        await client.prompt(await client.open_session())
        texts = client.texts()
        assert client.messages[-1]["result"] == {"stopReason": "end_turn"}
    assert texts == [f" {number}" for number in range(count)]


async def test_an_update_may_be_any_mapping_but_has_to_be_json() -> None:
    plan = MappingProxyType({"sessionUpdate": "plan", "entries": []})

    async def odd(_turn: AgentTurn) -> AsyncIterator[Any]:
        yield plan
        yield {"sessionUpdate": "plan", "entries": [Path("/")]}

    async with conversing(odd) as client:
        answer = await client.prompt(await client.open_session())
    assert client.updates() == [plan]
    assert answer["error"]["message"] == (
        "an update cannot be written as JSON: Encoding objects of type PosixPath is unsupported"
    )


async def test_a_client_that_never_reads_is_not_sent_more_than_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quarterdeck.agent.session.UNSENT_LIMIT", 100_000)
    sent: list[int] = []

    async def thoughtless(turn: AgentTurn) -> None:
        for number in range(1_000_000):
            turn.say("x" * 1000)  # and never waits for room
            sent.append(number)

    async with conversing(thoughtless) as client:
        session_id = await client.open_session()
        answer = await client.prompt(session_id)
        del client.messages[:]
    assert answer["error"]["message"] == (
        f"the client of {session_id} does not read; it has missed too much"
    )
    assert len(sent) < 200


async def test_an_agent_that_only_yields_can_be_cancelled() -> None:
    async def endless(_turn: AgentTurn) -> AsyncIterator[str]:
        while True:
            yield "x"

    async with conversing(endless, buffer=65536) as client:
        session_id = await client.open_session()
        prompt = await client.ask_prompt(session_id)
        await begun(client)
        await client.notify("session/cancel", sessionId=session_id)
        assert (await client.answered(prompt))["result"] == {"stopReason": "cancelled"}
        del client.messages[:]
