"""The Responses API of OpenAI, as codex uses it: what it asks, and an answer as events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

from tests.agent.builtin.fake_provider import Answer, EndsHere, Json, text_pieces

_USAGE: Final = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 10,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 110,
}
_CALLABLE: Final = ("function", "custom")


def responses_messages(body: Json) -> Iterator[tuple[str, str]]:
    """Yield who said what, in order; the result of a tool is "result"."""
    for item in body.get("input") or []:
        kind = item.get("type", "message")
        if kind.endswith("_output"):
            yield "result", ""
        elif kind.endswith("_call"):
            yield "assistant", ""
        elif kind == "message":
            blocks = item["content"] if isinstance(item["content"], list) else []
            yield item["role"], "\n".join(each.get("text", "") for each in blocks)


def responses_tools(body: Json) -> dict[str, Json]:
    """Return the schemas of what can be called, by name; a tool that takes text has none."""
    callable_ = [each for each in body.get("tools") or [] if each.get("type") in _CALLABLE]
    return {each["name"]: each.get("parameters") or {} for each in callable_}


def responses_events(answer: Answer, body: Json) -> Iterator[bytes]:
    """Yield an answer as server-sent events; a stalled one ends in the middle of its text."""
    del body
    head = {"id": f"resp_{uuid4().hex}", "object": "response", "created_at": 1, "model": "fake"}
    yield _event("response.created", response={**head, "status": "in_progress", "output": []})
    items: list[Json] = []
    if answer.text:
        item_id = f"msg_{uuid4().hex}"
        message = {"type": "message", "id": item_id, "role": "assistant"}
        yield _event("response.output_item.added", output_index=0, item={**message, "content": []})
        for piece in text_pieces(answer):
            place = {"item_id": item_id, "output_index": 0, "content_index": 0}
            yield _event("response.output_text.delta", **place, delta=piece)
            if answer.stalls:
                raise EndsHere
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        items.append({**message, "content": content})
        yield _event("response.output_item.done", output_index=0, item=items[-1])
    for name, arguments in answer.calls:
        items.append(_call(name, arguments))
        yield from _call_events(items[-1], len(items) - 1)
    ended = {**head, "status": "completed", "output": items, "usage": _USAGE}
    yield _event("response.completed", response=ended)


def _call(name: str, arguments: Json | str) -> Json:
    call: Json = {"call_id": f"call_{uuid4().hex}", "name": name, "status": "completed"}
    if isinstance(arguments, str):
        return {"type": "custom_tool_call", "id": f"ctc_{uuid4().hex}", **call, "input": arguments}
    text = json.dumps(arguments)
    return {"type": "function_call", "id": f"fc_{uuid4().hex}", **call, "arguments": text}


def _call_events(call: Json, index: int) -> Iterator[bytes]:
    """Yield a call in pieces, which some clients put together, and whole, which others take."""
    place = {"item_id": call["id"], "output_index": index}
    if "arguments" in call:
        begun = {**call, "arguments": "", "status": "in_progress"}
        yield _event("response.output_item.added", output_index=index, item=begun)
        text = call["arguments"]
        yield _event("response.function_call_arguments.delta", **place, delta=text)
        yield _event("response.function_call_arguments.done", **place, arguments=text)
    yield _event("response.output_item.done", output_index=index, item=call)


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
