"""Awkward peers, part 3: requests of the peer, their handlers, and calls that are given up.

| no | what happens | defined outcome |
| --- | --- | --- |
| 45 | a handler raises | -32603 without the exception's text; reported |
| 46 | a handler returns what is not JSON | -32603; reported |
| 47 | a handler of notifications raises | reported; the next ones arrive |
| 48 | handlers that await | updates stay in order |
| 49 | 20 updates, then the answer | all 20 are handled when the call returns |
| 50 | a call from inside a handler, 5,000 updates behind it | answered |
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - a handler may use futures of the loop; its cancellation is ours
import json
import logging
from typing import Any

import anyio
import msgspec
import pytest

from quarterdeck.errors import CallTimedOut, RpcError
from quarterdeck.wire import ConnectionOptions, Report, ReportKind, Vocabulary
from tests.wire.awkward.helpers import PATIENCE, awkward_peer, line, update

pytestmark = pytest.mark.anyio

HOST = ConnectionOptions(answers_garbage=False)


class Ask(msgspec.Struct):
    n: int


TYPED = ConnectionOptions(vocabulary=Vocabulary({"ask": Ask}), answers_garbage=False)


def ask(request_id: Any, n: int = 0) -> str:
    return line(id=request_id, method="ask", params={"n": n})


def cancel(request_id: Any) -> str:
    return line(method="$/cancel_request", params={"requestId": request_id})


async def never(_method: str, _params: Any) -> Any:
    await anyio.sleep_forever()


async def test_a_handler_that_raises_is_an_internal_error_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_method: str, _params: Any) -> Any:
        raise KeyError("the password is swordfish")

    async with awkward_peer(on_request=fail) as peer:
        with anyio.fail_after(PATIENCE), caplog.at_level(logging.CRITICAL):
            await peer.do(["write", ask(1)])
            (answer,) = await peer.heard()
    assert answer["error"] == {"code": -32603, "message": "Internal error"}
    assert peer.kinds == [ReportKind.HANDLER_FAILED]
    assert "swordfish" not in str(peer.reports)


def contains_itself() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    "result", [object(), {"a": object()}, contains_itself(), {(1, 2): 3}, 1 + 2j, ...]
)
async def test_a_result_that_is_not_json_is_an_internal_error(result: Any) -> None:
    async def answer_with_it(_method: str, _params: Any) -> Any:
        return result

    async with awkward_peer(on_request=answer_with_it) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", ask(1)])
            (answer,) = await peer.heard()
    assert (answer["id"], answer["error"]["code"]) == (1, -32603)
    assert peer.kinds == [ReportKind.HANDLER_FAILED]


@pytest.mark.parametrize(
    ("result", "written"),
    [({1}, [1]), (b"\x00", "AA=="), (float("nan"), None), (float("inf"), None), ((1,), [1])],
    ids=str,
)
async def test_what_json_has_a_word_for_is_written_with_it(result: Any, written: Any) -> None:
    async def answer_with_it(_method: str, _params: Any) -> Any:
        return result

    async with awkward_peer(on_request=answer_with_it) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", ask(1)])
            assert await peer.heard() == [{"jsonrpc": "2.0", "id": 1, "result": written}]


@pytest.mark.parametrize("data", [object(), {object()}, contains_itself()])
@pytest.mark.parametrize("at_once", [True, False], ids=["when called", "when awaited"])
async def test_an_error_whose_data_is_not_json_is_sent_without_it(at_once: bool, data: Any) -> None:
    async def fail(_method: str, _params: Any) -> Any:
        raise RpcError(-5, "no luck", data)

    def fail_at_once(_method: str, _params: Any) -> Any:
        raise RpcError(-5, "no luck", data)

    async with awkward_peer(on_request=fail_at_once if at_once else fail) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", ask(1)])
            (answer,) = await peer.heard()
    assert answer["error"] == {"code": -5, "message": "no luck"}


async def test_a_handler_whose_own_work_was_cancelled_elsewhere_is_an_internal_error() -> None:
    async def await_what_is_cancelled(_method: str, _params: Any) -> Any:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async with awkward_peer(on_request=await_what_is_cancelled) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", ask(1)])
            (answer,) = await peer.heard()
    assert answer["error"]["code"] == -32603
    assert peer.kinds == [ReportKind.HANDLER_FAILED]


async def test_a_handler_that_is_no_coroutine_function_is_an_internal_error() -> None:
    def forgot_async(_method: str, _params: Any) -> Any:
        return {}

    async with awkward_peer(on_request=forgot_async) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", ask(1)])
            (answer,) = await peer.heard()
    assert answer["error"]["code"] == -32603


@pytest.mark.parametrize("options", [HOST, TYPED], ids=["plain", "typed"])
@pytest.mark.parametrize("problem", [ValueError, asyncio.CancelledError])
async def test_a_notification_handler_that_raises_does_not_stop_the_next(
    problem: type[BaseException], options: ConnectionOptions
) -> None:
    seen = []

    def fail_on_the_first(method: str, _params: Any) -> None:
        seen.append(method)
        if len(seen) == 1:
            raise problem

    notes = line(method="ask", params={"n": 1}) + line(method="b") + line(method="c")
    async with awkward_peer(on_notification=fail_on_the_first, options=options) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", notes])
    assert seen == ["ask", "b", "c"]
    assert peer.kinds == [ReportKind.HANDLER_FAILED]


async def test_a_handler_that_raises_a_cancellation_when_called_is_an_internal_error() -> None:
    def fail(_method: str, _params: Any) -> Any:
        raise asyncio.CancelledError

    async with awkward_peer(on_request=fail) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", ask(1)])
            (answer,) = await peer.heard()
    assert answer["error"]["code"] == -32603


async def test_a_report_callback_that_raises_does_not_end_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_report: Report) -> None:
        raise ValueError("no reports, please")

    options = ConnectionOptions(on_report=fail, max_requests=1, answers_garbage=False)
    async with awkward_peer(on_request=never, options=options) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", "noise\n[]\n" + line(id=99, result=1) + ask(1) + ask(2)])
            (answer,) = await peer.heard()
    assert (answer["id"], answer["error"]["code"]) == (2, -32603)
    assert [record.message for record in caplog.records] == ["report callback failed"] * 4


async def test_updates_stay_in_order_whatever_request_handlers_do() -> None:
    seen: list[str] = []
    started: list[int] = []

    async def dawdle(params: Any) -> Any:
        started.append(params["n"])
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        return {}

    def begin(_method: str, params: Any) -> Any:
        seen.append(f"request {params['n']}")
        return dawdle(params)

    def note(_method: str, params: Any) -> None:
        seen.append(f"update {params['update']}")

    text = "".join(update(n) + ask(n, n) for n in range(50))
    async with awkward_peer(on_notification=note, on_request=begin) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", text])
            await peer.heard(50)
    assert seen == [f"{what} {n}" for n in range(50) for what in ("update", "request")]
    assert started == list(range(50))


async def test_all_that_came_before_an_answer_is_handled_when_the_call_returns() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["flood", 20, update("replayed")])
            assert len(peer.notifications) == 20
            await peer.do(["flood", 5000, update("replayed")])
            assert len(peer.notifications) == 5020


async def test_a_handler_may_call_the_peer_with_5000_updates_behind_its_request() -> None:
    answers: list[Any] = []
    answered = anyio.Event()

    async def call_back(_method: str, _params: Any) -> Any:
        answers.append(await peer.connection.call("echo", {"from": "a handler"}))
        answered.set()
        return {}

    async with awkward_peer(on_request=call_back) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", ask("r")], ["flood", 5000, update("$N")])
            await answered.wait()
            assert len(peer.notifications) == 5000
    assert answers == [{"from": "a handler"}]


@pytest.mark.parametrize("options", [HOST, TYPED], ids=["plain", "typed"])
@pytest.mark.parametrize(
    "request_id", ["7", '"seven"', '"\\u00e9\\ud83d"', "1.50", str(2**70), "null", "9" * 5000, "-0"]
)
async def test_every_legal_id_is_echoed_as_it_was_spelled(
    options: ConnectionOptions, request_id: str
) -> None:
    async with awkward_peer(options=options) as peer:
        with anyio.fail_after(PATIENCE):
            request = ask("$").replace('"$"', request_id)
            await peer.do(["write", request])
            while not (lines := await peer.heard_lines()):
                pass
    (answer,) = lines
    assert answer.startswith('{"jsonrpc":"2.0","id":' + request_id + ',"result":')


@pytest.mark.parametrize("options", [HOST, TYPED], ids=["plain", "typed"])
@pytest.mark.parametrize("request_id", ["[]", "{}", "true"])
async def test_a_request_with_an_illegal_id_is_reported_and_not_served(
    options: ConnectionOptions, request_id: str
) -> None:
    async with awkward_peer(options=options) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", ask("$").replace('"$"', request_id) + ask("legal")])
            (answer,) = await peer.heard()
    assert answer["id"] == "legal"
    assert peer.kinds == [ReportKind.MALFORMED]


async def test_two_requests_with_one_id_are_both_answered() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", ask("twin", 1) + ask("twin", 2)])
            answers = await peer.heard(2)
    assert [(each["id"], each["result"]["seen"]["n"]) for each in answers] == [
        ("twin", 1),
        ("twin", 2),
    ]


@pytest.mark.parametrize("request_id", [3, "three", None, 2**70, 0.5])
async def test_a_cancel_right_behind_its_request_cancels_it(request_id: Any) -> None:
    async with awkward_peer(on_request=never) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", ask(request_id) + cancel(request_id)])
            (answer,) = await peer.heard()
    assert (answer["id"], answer["error"]["code"]) == (request_id, -32800)


async def test_cancels_of_nothing_are_ignored() -> None:
    ids = [99, "99", [], {}, True, None, 2**70, 1.5, "\ud83d"]
    odd = [line(method="$/cancel_request"), line(method="$/cancel_request", params={"id": 1})]
    async with awkward_peer(on_request=never) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", ask(1) + "".join([*map(cancel, ids), *odd]) + cancel(1)])
            (answer,) = await peer.heard()
    assert (answer["id"], answer["error"]["code"]) == (1, -32800)
    assert not peer.reports


async def test_a_cancelled_caller_notifies_the_peer_once() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(peer.connection.call, "never")
                await peer.connection.call("echo")
                tasks.cancel_scope.cancel()
            heard = {each["method"]: each for each in await peer.heard(3)}
    assert heard["$/cancel_request"]["params"] == {"requestId": heard["never"]["id"]}


async def test_a_call_whose_time_is_up_is_cancelled_at_the_peer() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            with pytest.raises(CallTimedOut, match="never was not answered within"):
                await peer.connection.call("never", timeout_seconds=0.01)
            methods = [each["method"] for each in await peer.heard(2)]
    assert methods == ["never", "$/cancel_request"]


async def test_a_call_that_cannot_be_written_leaves_no_trace() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            with pytest.raises(TypeError):
                await peer.connection.call("broken", {"a": object()})
            assert await peer.connection.call("echo", {"a": 1}) == {"a": 1}
            assert [each["method"] for each in await peer.heard()] == ["echo"]


async def test_requests_beyond_the_limit_are_refused_and_the_others_run_on() -> None:
    release = anyio.Event()

    async def wait(_method: str, _params: Any) -> Any:
        await release.wait()
        return "done"

    options = ConnectionOptions(max_requests=3, answers_garbage=False)
    async with awkward_peer(on_request=wait, options=options) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", "".join(ask(n) for n in range(10))])
            refused = await peer.heard(7)
            release.set()
            served = await peer.heard(3)
    assert [each["id"] for each in refused] == list(range(3, 10))
    assert {json.dumps(each["error"]["code"]) for each in refused} == {"-32603"}
    assert sorted(each["id"] for each in served) == [0, 1, 2]
    assert peer.kinds == [ReportKind.OVERLOADED] * 7
