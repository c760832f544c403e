"""The connection: order, calls, cancellation, ends, and what each limit does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import pytest
from msgspec import Struct

from quarterdeck.errors import AnswerInvalid, CallTimedOut, ConnectionClosed, RpcError
from quarterdeck.wire import (
    Connection,
    ConnectionOptions,
    Failure,
    MemoryTransport,
    Report,
    ReportKind,
    Result,
    Vocabulary,
    memory_pair,
    open_connection,
    rpc_error,
)

pytestmark = pytest.mark.anyio


class Update(Struct):
    session_id: str
    n: int


TYPED = Vocabulary({"session/update": Update})


@dataclass
class Peer:
    """The other side, played by the test: raw bytes out, parsed lines in."""

    transport: MemoryTransport
    reports: list[Report]
    _rest: bytes = b""
    _lines: list[dict[str, Any]] = field(default_factory=list)

    async def say(self, *messages: dict[str, Any] | bytes) -> None:
        lines = (
            each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages
        )
        await self.transport.send(b"".join(line + b"\n" for line in lines))

    async def hear(self) -> dict[str, Any]:
        while not self._lines:
            data = await self.transport.receive()
            assert data, "the connection closed"
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines.extend(json.loads(line) for line in lines)
        return self._lines.pop(0)

    def kinds(self) -> list[ReportKind]:
        return [report.kind for report in self.reports]


@asynccontextmanager
async def connected(
    *,
    on_notification: Callable[[str, Any], None] = lambda _method, _params: None,
    on_request: Callable[[str, Any], Any] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Connection, Peer]]:
    ours, theirs = memory_pair()
    reports: list[Report] = []
    chosen = ConnectionOptions(on_report=reports.append, **options)
    handlers: dict[str, Any] = {"on_notification": on_notification}
    if on_request is not None:
        handlers["on_request"] = on_request
    with anyio.fail_after(30):
        async with open_connection(ours, options=chosen, **handlers) as connection:
            yield connection, Peer(theirs, reports)


def note(n: int) -> dict[str, Any]:
    params = {"session_id": "s", "n": n}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


async def test_a_call_returns_the_result() -> None:
    async with connected() as (connection, peer), anyio.create_task_group() as tasks:

        async def answer() -> None:
            request = await peer.hear()
            assert request["method"] == "initialize"
            assert request["params"] == {"protocolVersion": 1}
            await peer.say({"jsonrpc": "2.0", "id": request["id"], "result": {"ok": True}})

        tasks.start_soon(answer)
        assert await connection.call("initialize", {"protocolVersion": 1}) == {"ok": True}


async def test_a_call_that_fails_raises_the_error_of_the_peer() -> None:
    async with connected() as (connection, peer), anyio.create_task_group() as tasks:

        async def answer() -> None:
            error = {"code": -32602, "message": "Invalid params", "data": {"why": 1}}
            await peer.say({"id": (await peer.hear())["id"], "error": error})

        tasks.start_soon(answer)
        with pytest.raises(RpcError) as caught:
            await connection.call("m")
        assert (caught.value.code, caught.value.data) == (-32602, {"why": 1})


async def test_an_answer_is_not_seen_before_the_notifications_that_came_before_it() -> None:
    seen: list[int] = []
    vocabularies = (Vocabulary(), TYPED)
    for vocabulary in vocabularies:
        seen.clear()

        def on_update(_method: str, params: Any) -> None:
            seen.append(params.n if isinstance(params, Update) else params["n"])

        async with (
            connected(on_notification=on_update, vocabulary=vocabulary) as (connection, peer),
            anyio.create_task_group() as tasks,
        ):

            async def answer(peer: Peer = peer) -> None:
                request = await peer.hear()
                answer = {"jsonrpc": "2.0", "id": request["id"], "result": {}}
                await peer.say(*(note(n) for n in range(500)), answer, note(500))

            tasks.start_soon(answer)
            await connection.call("session/prompt")
            assert seen[:500] == list(range(500))


async def test_an_answer_is_announced_in_the_order_of_the_wire() -> None:
    order: list[str] = []
    async with (
        connected(on_notification=lambda method, _params: order.append(method)) as (
            connection,
            peer,
        ),
        anyio.create_task_group() as tasks,
    ):

        async def answer() -> None:
            request = await peer.hear()
            result = {"jsonrpc": "2.0", "id": request["id"], "result": {}}
            await peer.say({"method": "before"}, result, {"method": "after"})

        tasks.start_soon(answer)
        await connection.call("m", on_response=lambda _answer: order.append("answer"))
        while "after" not in order:
            await anyio.lowlevel.checkpoint()
    assert order == ["before", "answer", "after"]


async def test_what_the_announcement_of_an_answer_raises_the_call_raises() -> None:
    def fail(_answer: object) -> None:
        raise ZeroDivisionError

    async with connected() as (connection, peer), anyio.create_task_group() as tasks:

        async def answer() -> None:
            await peer.say({"id": (await peer.hear())["id"], "result": {}})

        tasks.start_soon(answer)
        with pytest.raises(ZeroDivisionError):
            await connection.call("m", on_response=fail)
        assert connection.is_open


async def test_a_request_handler_is_called_in_the_order_of_the_wire() -> None:
    order: list[str] = []

    def on_request(method: str, _params: Any) -> Any:
        order.append(method)

        async def work() -> str:
            return method

        return work()

    async with connected(
        on_notification=lambda method, _params: order.append(method), on_request=on_request
    ) as (_, peer):
        await peer.say(
            {"method": "a"}, {"id": 1, "method": "b"}, {"method": "c"}, {"id": 2, "method": "d"}
        )
        assert [(await peer.hear())["result"] for _ in range(2)] == ["b", "d"]
    assert order == ["a", "b", "c", "d"]


async def test_a_slow_request_does_not_hold_up_what_comes_after_it() -> None:
    release = anyio.Event()

    async def on_request(method: str, _params: Any) -> str:
        if method == "slow":
            await release.wait()
        return method

    async with connected(
        on_notification=lambda _method, _params: release.set(), on_request=on_request
    ) as (_, peer):
        await peer.say({"id": 1, "method": "slow"}, {"id": 2, "method": "fast"})
        assert (await peer.hear())["result"] == "fast"
        await peer.say({"method": "go"})
        assert (await peer.hear())["result"] == "slow"


async def test_params_of_known_methods_arrive_in_their_type_and_others_as_dicts() -> None:
    seen: list[Any] = []
    async with connected(
        on_notification=lambda _method, params: seen.append(params), vocabulary=TYPED
    ) as (connection, peer):
        await peer.say(note(1), {"method": "vendor/thing", "params": {"a": [None]}}, note(2))
        await peer.transport.aclose()
        await connection.wait_closed()
    assert seen == [Update("s", 1), {"a": [None]}, Update("s", 2)]


async def test_a_request_with_invalid_params_is_answered_and_a_notification_reported() -> None:
    async with connected(vocabulary=TYPED) as (_, peer):
        broken = {"method": "session/update", "params": {"n": "x"}}
        await peer.say(broken, {**broken, "id": 9})
        answer = await peer.hear()
    assert (answer["id"], answer["error"]["code"]) == (9, -32602)
    assert peer.kinds() == [ReportKind.INVALID_PARAMS]


async def test_an_unknown_request_is_answered_with_method_not_found_and_its_name() -> None:
    async with connected() as (_, peer):
        await peer.say({"jsonrpc": "2.0", "id": "x", "method": "no/such"})
        error = (await peer.hear())["error"]
    assert error == {"code": -32601, "message": "Method not found: no/such"}


async def test_an_error_answer_waits_for_a_peer_that_is_slow_to_read() -> None:
    async with (
        connected(high_water=1000) as (connection, peer),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(connection.notify, "big", {"text": "x" * 500_000})
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(connection.notify, "big", {"text": "x" * 5_000})
        await anyio.wait_all_tasks_blocked()
        await peer.say({"id": 101, "method": "no/such"})
        await anyio.wait_all_tasks_blocked()
        heard = [await peer.hear() for _ in range(3)]
    assert [each["error"]["code"] for each in heard if each.get("id") == 101] == [-32601]


async def test_a_notification_with_positional_params_is_reported_and_not_answered() -> None:
    async with connected() as (_, peer):
        await peer.say({"method": "n", "params": [1]}, {"id": 1, "method": "m"})
        assert (await peer.hear())["id"] == 1
    assert peer.kinds() == [ReportKind.MALFORMED]


async def test_a_call_that_takes_too_long_is_cancelled_at_the_peer() -> None:
    async with connected() as (connection, peer):
        with pytest.raises(CallTimedOut, match=r"slow was not answered within 0\.01 s"):
            await connection.call("slow", timeout_seconds=0.01)
        request, cancel = await peer.hear(), await peer.hear()
        assert cancel["method"] == "$/cancel_request"
        assert cancel["params"] == {"requestId": request["id"]}
        await peer.say({"id": request["id"], "result": {}}, {"id": 999, "result": {}})
        await peer.transport.aclose()
        await connection.wait_closed()
    assert peer.kinds() == [ReportKind.UNKNOWN_ANSWER] * 2
    assert [each.reason for each in peer.reports] == [
        "an answer that came too late",
        "an answer to no request of ours",
    ]


async def test_cancelling_the_caller_cancels_the_call_at_the_peer() -> None:
    async with connected() as (connection, peer):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.call, "slow")
            request = await peer.hear()
            tasks.cancel_scope.cancel()
        assert (await peer.hear())["params"] == {"requestId": request["id"]}


async def test_a_request_that_its_asker_cancels_is_answered_with_request_cancelled() -> None:
    async def on_request(_method: str, _params: Any) -> None:
        await anyio.sleep_forever()

    async with connected(on_request=on_request) as (_, peer):
        cancel = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": "r"}}
        await peer.say({"id": "r", "method": "m"}, cancel)
        answer = await peer.hear()
    assert (answer["id"], answer["error"]["code"]) == ("r", -32800)


@pytest.mark.parametrize("spelled", ['"0"', "0.0", "0e0", "-0"])
async def test_an_answer_whose_id_is_spelled_oddly_is_taken_and_reported(spelled: str) -> None:
    async with connected() as (connection, peer), anyio.create_task_group() as tasks:

        async def answer() -> None:
            await peer.hear()
            await peer.say(b'{"id":' + spelled.encode() + b',"result":"yes"}')

        tasks.start_soon(answer)
        assert await connection.call("m") == "yes"
    assert peer.kinds() == [ReportKind.ODD_ANSWER]


async def test_an_answer_without_result_and_error_fails_its_call() -> None:
    async with connected() as (connection, peer), anyio.create_task_group() as tasks:

        async def answer() -> None:
            await peer.say({"id": (await peer.hear())["id"]})

        tasks.start_soon(answer)
        with pytest.raises(AnswerInvalid, match="needs a result or an error"):
            await connection.call("m")


async def test_an_answer_beyond_the_limit_fails_its_call_and_nothing_else() -> None:
    async with (
        connected(max_message=1000) as (connection, peer),
        anyio.create_task_group() as tasks,
    ):

        async def answer() -> None:
            for result in ("x" * 2000, "small"):
                await peer.say(
                    {"jsonrpc": "2.0", "id": (await peer.hear())["id"], "result": result}
                )

        tasks.start_soon(answer)
        with pytest.raises(AnswerInvalid, match="exceeds the limit of 1000 bytes"):
            await connection.call("m")
        assert await connection.call("m") == "small"


async def test_a_request_beyond_the_limit_is_answered_by_an_error() -> None:
    async with connected(max_message=1000) as (_, peer):
        params = {"a": "x" * 2000}
        await peer.say({"jsonrpc": "2.0", "id": 4, "method": "m", "params": params})
        answer = await peer.hear()
    assert (answer["id"], answer["error"]["code"]) == (4, -32600)
    assert "limit of 1000 bytes" in answer["error"]["data"]


@pytest.mark.parametrize(
    ("garbage", "code"),
    [(b"hello", -32700), (b"{bad", -32700), (b"[]", -32600), (b'{"method":1}', -32600)],
)
async def test_garbage_is_answered_by_a_server_and_only_reported_by_a_host(
    garbage: bytes, code: int
) -> None:
    async with connected() as (_, peer):
        await peer.say(garbage)
        answer = await peer.hear()
    assert (answer["id"], answer["error"]["code"]) == (None, code)
    async with connected(answers_garbage=False) as (_, peer):
        await peer.say(garbage, {"id": 1, "method": "m"})
        assert (await peer.hear())["id"] == 1
    assert len(peer.reports) == 1


async def test_the_answer_speaks_the_framing_of_the_first_message() -> None:
    ours, theirs = memory_pair()
    async with open_connection(ours):
        await theirs.send(b'Content-Length: 25\r\n\r\n{"id":1,"method":"nope"}\n')
        with anyio.fail_after(30):
            data = await theirs.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    assert head == b"Content-Length: %d" % len(body)
    assert json.loads(body)["id"] == 1


async def test_a_dead_peer_fails_the_calls_that_wait_and_those_that_come() -> None:
    async with connected() as (connection, peer):
        async with anyio.create_task_group() as tasks:

            async def die() -> None:
                await peer.hear()
                await peer.transport.aclose()

            tasks.start_soon(die)
            with pytest.raises(ConnectionClosed, match="m was not answered"):
                await connection.call("m")
        await connection.wait_closed()
        assert not connection.is_open
        with pytest.raises(ConnectionClosed):
            await connection.call("m")
        with pytest.raises(ConnectionClosed):
            await connection.notify("n")


async def test_leaving_the_connection_writes_what_was_said_before() -> None:
    async with connected() as (connection, peer):
        for n in range(100):
            await connection.notify("n", {"n": n})
    assert [(await peer.hear())["params"]["n"] for _ in range(100)] == list(range(100))


async def test_a_peer_that_does_not_read_makes_senders_wait_and_nothing_is_lost() -> None:
    async with connected(high_water=10_000) as (connection, peer):
        sent = 0

        async def send() -> None:
            nonlocal sent
            for n in range(1000):
                await connection.notify("n", {"n": n, "padding": "x" * 1000})
                sent += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send)
            await anyio.wait_all_tasks_blocked()
            assert sent < 200, "the pipe, the write under way and the outbox hold no more"
            heard = [(await peer.hear())["params"]["n"] for _ in range(1000)]
    assert heard == list(range(1000))


async def test_an_exception_of_the_body_leaves_as_itself() -> None:
    with pytest.raises(ZeroDivisionError):
        async with connected():
            raise ZeroDivisionError


async def test_more_requests_than_the_limit_are_refused() -> None:
    async def on_request(_method: str, _params: Any) -> None:
        await anyio.sleep_forever()

    async with connected(on_request=on_request, max_requests=3) as (_, peer):
        await peer.say(*({"id": n, "method": "m"} for n in range(5)))
        refused = [await peer.hear() for _ in range(2)]
    assert [each["id"] for each in refused] == [3, 4]
    assert "more than 3 requests" in refused[0]["error"]["data"]
    assert peer.kinds() == [ReportKind.OVERLOADED] * 2


async def test_requests_under_way_may_be_answered_after_the_input_has_ended() -> None:
    async def on_request(_method: str, _params: Any) -> str:
        await anyio.lowlevel.checkpoint()
        return "done"

    ours, theirs = memory_pair()
    options = ConnectionOptions(grace_seconds=5)
    with anyio.fail_after(30):
        async with open_connection(ours, on_request=on_request, options=options) as connection:
            await theirs.send(b'{"id":1,"method":"m"}')
            theirs._outgoing.writer_closed = True  # noqa: SLF001 - a half-closed pair
            theirs._outgoing.wake()  # noqa: SLF001
            await connection.wait_closed()
        assert json.loads(await theirs.receive())["result"] == "done"


async def test_an_error_a_handler_raises_is_the_answer() -> None:
    async def on_request(_method: str, _params: Any) -> None:
        raise rpc_error(-32602, "cwd is required")

    async with connected(on_request=on_request) as (_, peer):
        await peer.say({"id": 1, "method": "session/new"})
        error = (await peer.hear())["error"]
    assert error == {"code": -32602, "message": "Invalid params", "data": "cwd is required"}


async def test_a_handler_that_fails_is_an_internal_error_without_its_secrets() -> None:
    def on_notification(_method: str, _params: Any) -> None:
        raise ValueError("token=s3cret")

    async def on_request(_method: str, _params: Any) -> None:
        raise ValueError("token=s3cret")

    async with connected(on_notification=on_notification, on_request=on_request) as (_, peer):
        await peer.say({"method": "n"}, {"id": 1, "method": "m"})
        answer = await peer.hear()
    assert answer["error"] == {"code": -32603, "message": "Internal error"}
    assert peer.kinds() == [ReportKind.HANDLER_FAILED] * 2
    assert not any("s3cret" in each.reason for each in peer.reports)


def cyclic() -> list[Any]:
    result: list[Any] = []
    result.append(result)
    return result


@pytest.mark.parametrize(
    "make", [object, lambda: {"f": print}, cyclic], ids=["object", "function", "cycle"]
)
async def test_a_result_that_is_not_json_is_an_internal_error(make: Callable[[], Any]) -> None:
    async def on_request(_method: str, _params: Any) -> Any:
        return make()

    async with connected(on_request=on_request) as (_, peer):
        await peer.say({"id": 1, "method": "m"})
        assert (await peer.hear())["error"]["code"] == -32603


async def test_an_answer_to_a_caller_that_has_gone_still_reaches_who_wants_to_know() -> None:
    answers: list[Result | Failure] = []
    async with connected() as (connection, peer):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(connection.call, "slow", on_response=answers.append))
            request = await peer.hear()
            tasks.cancel_scope.cancel()
        await peer.hear()
        await peer.say({"id": request["id"], "result": {"late": True}})
        await peer.transport.aclose()
        await connection.wait_closed()
    (answer,) = answers
    assert isinstance(answer, Result)
    assert peer.kinds() == []
