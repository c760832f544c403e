"""Awkward peers, part 2: well-formed messages with unexpected content.

| no | the peer sends | defined outcome |
| --- | --- | --- |
| 30 | an unknown `sessionUpdate` | delivered as it is |
| 31 | an unknown type of content | delivered as it is |
| 32, 33 | a tool call of an unknown kind, with an unknown status | delivered as it is |
| 34 | a tool call with an unknown piece of content | delivered as it is |
| 35 | a plan entry of an unknown priority | delivered as it is |
| 36 | unknown fields | delivered as they are |
| 37 | an unknown `stopReason` | returned as it is |
| 38 | an unknown notification | delivered under its name |
| 39 | a vendor's methods without a leading underscore | delivered, or -32601 |
| 40 | `_meta: {"path": …}` beside `path` | the handler sees `path`; `_meta` is a field |
| 41, 42 | `_meta: {"update": …}`, `{"self": 1}` | the update is the update |
| 43 | lone surrogates, both ways | kept, and sent as escapes |
| 44 | `title: null` (ours) | sent as null: absent is something else |
"""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

from quarterdeck.wire import ConnectionOptions, ReportKind, Vocabulary, method_not_found
from tests.wire.awkward.helpers import PATIENCE, awkward_peer, line, update

pytestmark = pytest.mark.anyio


class SessionUpdate(msgspec.Struct, rename="camel"):
    session_id: str
    update: dict[str, Any]
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class WriteTextFile(msgspec.Struct, rename="camel"):
    session_id: str
    path: str
    content: str
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


TYPED = ConnectionOptions(
    vocabulary=Vocabulary({"session/update": SessionUpdate, "fs/write_text_file": WriteTextFile}),
    answers_garbage=False,
)
PLAIN = ConnectionOptions(answers_garbage=False)

TOOL_CALL = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "x"}
UPDATES = {
    "update": {"sessionUpdate": "subagent_started", "agent": {"name": "x"}},
    "content": {"sessionUpdate": "agent_message_chunk", "content": {"type": "hologram", "z": 1}},
    "kind": {**TOOL_CALL, "kind": "teleport"},
    "status": {**TOOL_CALL, "status": "paused"},
    "piece": {**TOOL_CALL, "content": [{"type": "video", "frames": [1, 2]}]},
    "priority": {
        "sessionUpdate": "plan",
        "entries": [{"content": "a", "priority": "urgent", "status": "pending"}],
    },
    "fields": {**TOOL_CALL, "confidence": 0.25, "nested": {"deep": [None, {"er": True}]}},
}


@pytest.mark.parametrize("value", UPDATES.values(), ids=UPDATES)
async def test_what_a_newer_peer_puts_into_an_update_arrives_as_it_is(value: Any) -> None:
    async with awkward_peer(options=TYPED) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", update(value)])
    ((_, params),) = peer.notifications
    assert params.update == value
    assert not peer.reports


async def test_an_unknown_stop_reason_is_returned_as_it_is() -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            answer = '{"jsonrpc":"2.0","id":$ID,"result":{"stopReason":"bored"}}\n'
            result = await peer.do(["unanswered"], ["write", answer])
    assert result == {"stopReason": "bored"}


@pytest.mark.parametrize(
    "method", ["session/sparkle", "qwen/notify/tokens", "_vendor/x", "", "é\n"]
)
async def test_an_unknown_notification_is_delivered_under_its_name(method: str) -> None:
    async with awkward_peer(options=TYPED) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", line(method=method, params={"a": 1})])
    assert peer.notifications == [(method, {"a": 1})]


@pytest.mark.parametrize("method", ["terminal/create", "craft/drainMidTurnQueue", "_vendor/x", ""])
async def test_an_unknown_request_is_answered_with_method_not_found(method: str) -> None:
    async def refuse(name: str, _params: Any) -> Any:
        raise method_not_found(name)

    async with awkward_peer(on_request=refuse, options=TYPED) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", line(id="r", method=method, params={})])
            (answer,) = await peer.heard()
    assert answer["error"] == {"code": -32601, "message": f"Method not found: {method}"}


@pytest.mark.parametrize("options", [TYPED, PLAIN], ids=["typed", "plain"])
async def test_meta_never_replaces_an_argument(options: ConnectionOptions) -> None:
    seen: list[Any] = []

    async def write_file(_method: str, params: Any) -> Any:
        seen.append(msgspec.to_builtins(params))
        return {}

    params_sent = {
        "sessionId": "s",
        "path": "/home/me/notes.txt",
        "content": "harmless",
        "_meta": {"path": "/etc/passwd", "content": "root::0:0", "self": 1, "params": {}},
    }
    async with awkward_peer(on_request=write_file, options=options) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", line(id=1, method="fs/write_text_file", params=params_sent)])
            (answer,) = await peer.heard()
    assert seen == [params_sent]
    assert answer == {"jsonrpc": "2.0", "id": 1, "result": {}}


@pytest.mark.parametrize("options", [TYPED, PLAIN], ids=["typed", "plain"])
@pytest.mark.parametrize("meta", [{"update": {"sessionUpdate": "spoofed"}}, {"self": 1}])
async def test_meta_never_replaces_an_update(
    options: ConnectionOptions, meta: dict[str, Any]
) -> None:
    params = {"sessionId": "s", "update": {"sessionUpdate": "real"}, "_meta": meta}
    async with awkward_peer(options=options) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", line(method="session/update", params=params)])
    ((_, seen),) = peer.notifications
    assert msgspec.to_builtins(seen) == params


@pytest.mark.parametrize("options", [TYPED, PLAIN], ids=["typed", "plain"])
async def test_a_lone_surrogate_arrives_and_the_order_is_kept(options: ConnectionOptions) -> None:
    texts = ["before", "half a smile: \ud83d", "\ude00 the other half", "after"]
    async with awkward_peer(options=options) as peer:
        with anyio.fail_after(PATIENCE):
            # `json.dumps` writes escapes only, so the halves travel as \\ud83d and \\ude00.
            await peer.do(["write", "".join(update({"text": text}) for text in texts)])
    seen = [msgspec.to_builtins(params)["update"]["text"] for _, params in peer.notifications]
    assert seen == texts


@pytest.mark.parametrize("text", ["\ud83d", "\ude00 tail", "a\udcffb", "\ud83d\ude00", "\x00\x7f"])
async def test_a_lone_surrogate_of_ours_reaches_the_peer_and_comes_back(text: str) -> None:
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            params_sent = {"text": text, text: [text], "number": 2**70}
            joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            assert await peer.connection.call("echo", params_sent) == {
                "text": joined,
                joined: [joined],
                "number": 2**70,
            }


async def test_a_result_with_a_lone_surrogate_answers_its_request() -> None:
    async def half(_method: str, _params: Any) -> Any:
        return {"text": "\ud83d"}

    async with awkward_peer(on_request=half) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", line(id="\ude00", method="m", params={})])
            (answer,) = await peer.heard()
    assert (answer["id"], answer["result"]) == ("\ude00", {"text": "\ud83d"})


async def test_a_key_with_a_lone_surrogate_costs_no_more_than_its_message() -> None:
    params = {"sessionId": "s", "update": {}, "\ud83d": 1}
    async with awkward_peer(options=TYPED) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(
                ["write", line(method="session/update", params=params)],
                ["write", line(id="r", method="fs/write_text_file", params=params)],
            )
            (answer,) = await peer.heard()
    assert peer.kinds == [ReportKind.INVALID_PARAMS]
    assert (answer["id"], answer["error"]["code"]) == ("r", -32602)


async def test_a_message_too_deep_for_patient_reading_costs_no_more_than_itself() -> None:
    def depth(value: Any, _kind: Any) -> int:
        return 1 + max((depth(each, None) for each in value.values()), default=0)

    options = ConnectionOptions(vocabulary=Vocabulary({"ask": SessionUpdate}, lenient=depth))
    params = '{"a":' * 900 + "{}" + "}" * 900
    async with awkward_peer(options=options) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(
                ["write", f'{{"jsonrpc":"2.0","id":1,"method":"ask","params":{params}}}\n']
            )
            (answer,) = await peer.heard()
    assert (answer["id"], answer["error"]["code"]) == (1, -32602)


async def test_null_is_sent_where_null_is_meant() -> None:
    cleared = {"sessionUpdate": "session_info_update", "title": None}
    async with awkward_peer() as peer:
        with anyio.fail_after(PATIENCE):
            await peer.connection.notify("session/update", {"sessionId": "s", "update": cleared})
            (sent,) = await peer.heard()
    assert sent["params"]["update"] == cleared


async def test_no_result_is_sent_as_null() -> None:
    async def nothing(_method: str, _params: Any) -> Any:
        return None

    async with awkward_peer(on_request=nothing) as peer:
        with anyio.fail_after(PATIENCE):
            await peer.do(["write", line(id=1, method="m")])
            assert await peer.heard() == [{"jsonrpc": "2.0", "id": 1, "result": None}]
