"""A server that speaks the wire formats of OpenAI, Anthropic and Google, and their failures.

Answers are given in the order they were laid out; requests are kept.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from uuid import uuid4

Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What the model says; `calls` are names and arguments, text for arguments that are no JSON."""

    text: str = ""
    thought: str = ""
    calls: tuple[tuple[str, Json | str], ...] = ()
    stop: str = "stop"
    input_tokens: int = 100
    cut: Literal["closed", "too short", "unfinished", "reset"] | None = None
    """How the connection ends in the middle of the text: closed where that is the end of a body,
    before as many bytes came as were announced, before the last chunk, or reset."""
    garbage: bytes = b""
    """Sent in the middle of the text."""
    stalls: bool = False
    """Whether nothing comes after half of the text."""
    pieces: int = 2
    """In which the text comes."""
    pause: float = 0.0
    """Seconds after each event, where a server heeds it."""


@dataclass(frozen=True)
class Refusal:
    status: int
    message: str = "no"
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


class FakeProvider:
    def __init__(self, port: int) -> None:
        self.port = port
        self.answers: deque[Answer | Refusal] = deque()
        self.bodies: list[Json] = []
        """Bodies of requests."""
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()
        """Set when the test is over, for answers that stall."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def will(self, *answers: Answer | Refusal) -> None:
        self.answers.extend(answers)


@contextmanager
def fake_provider() -> Iterator[FakeProvider]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    provider = FakeProvider(server.server_address[1])
    server.provider = provider  # type: ignore[attr-defined]  # for the handler
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield provider
    finally:
        provider.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # type: ignore[explicit-override]  # noqa: A002
        """Say nothing."""

    def do_POST(self) -> None:
        provider: FakeProvider = self.server.provider  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        provider.bodies.append(body)
        provider.headers.append({name.lower(): value for name, value in self.headers.items()})
        answer = provider.answers.popleft()
        if isinstance(answer, Refusal):
            self._refuse(answer)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        if answer.cut == "too short":
            self.send_header("Content-Length", "100000")
        if answer.cut == "unfinished":
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        try:
            for event in self._events(answer, body):
                is_chunk = answer.cut == "unfinished"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event) if is_chunk else event)
                self.wfile.flush()
        except EndsHere:
            if answer.stalls:
                provider.released.wait(30)
            if answer.cut == "reset":
                no_linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
        except OSError:  # the client has gone: it was cancelled
            pass

    def _refuse(self, refusal: Refusal) -> None:
        if self.path.endswith("/messages"):
            kinds = {400: "invalid_request_error", 401: "authentication_error"}
            kind = kinds.get(refusal.status, "api_error")
            body: Json = {"type": "error", "error": {"type": kind, "message": refusal.message}}
        else:
            error = {"message": refusal.message, "type": "x", "code": refusal.code, "param": None}
            body = {"error": error}
        text = json.dumps(body).encode()
        self.send_response(refusal.status)
        for name, value in refusal.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _events(self, answer: Answer, body: Json) -> Iterator[bytes]:
        if self.path.endswith("/messages"):
            return anthropic_events(answer, body)
        if self.path.endswith("/chat/completions"):
            return openai_events(answer, body)
        return google_events(answer)


class EndsHere(Exception):
    """The stream ends in the middle."""


def text_pieces(answer: Answer) -> list[str]:
    """Return the text of an answer in as many pieces as it comes in."""
    size = max(1, -(-len(answer.text) // answer.pieces))
    return [answer.text[start : start + size] for start in range(0, len(answer.text), size)]


def _text(answer: Answer) -> Iterator[str | bytes]:
    if answer.pieces > 2:
        yield from text_pieces(answer)
        return
    half = len(answer.text) // 2
    yield answer.text[:half]
    if answer.garbage:
        yield answer.garbage
    if answer.cut or answer.stalls:
        raise EndsHere
    yield answer.text[half:]


def _written(arguments: Json | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _data(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def openai_events(answer: Answer, body: Json) -> Iterator[bytes]:
    answer_id = f"chatcmpl-{len(body['messages'])}"
    base = {"id": answer_id, "object": "chat.completion.chunk", "created": 1, "model": "fake"}

    def chunk(delta: Json, finish: str | None = None) -> bytes:
        return _data({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    if answer.thought:
        yield chunk({"reasoning_content": answer.thought})
    if answer.text:
        for piece in _text(answer):
            yield _data(piece) if isinstance(piece, bytes) else chunk({"content": piece})
    for index, (name, arguments) in enumerate(answer.calls):
        call = {"index": index, "id": f"call_{len(body['messages'])}_{index}", "type": "function"}
        yield chunk({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]})
        text = _written(arguments)
        for piece in (text[:7], text[7:]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    stops = {"length": "length", "refusal": "content_filter"}
    yield chunk({}, stops.get(answer.stop, "tool_calls" if answer.calls else "stop"))
    tokens = {"prompt_tokens": answer.input_tokens, "completion_tokens": 10}
    total = {"total_tokens": answer.input_tokens + 10}
    yield _data({**base, "choices": [], "usage": {**tokens, **total}})
    yield _data(b"[DONE]")


def anthropic_events(answer: Answer, body: Json) -> Iterator[bytes]:
    def event(kind: str, **rest: Any) -> bytes:
        return f"event: {kind}\n".encode() + _data({"type": kind, **rest})

    usage = {"input_tokens": answer.input_tokens, "output_tokens": 1}
    message = {"id": f"msg_{uuid4().hex}", "type": "message", "role": "assistant", "model": "fake"}
    empty: Json = {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield event("message_start", message={**message, **empty})
    index = 0
    if answer.thought:
        opened = {"type": "thinking", "thinking": "", "signature": ""}
        yield event("content_block_start", index=index, content_block=opened)
        delta = {"type": "thinking_delta", "thinking": answer.thought}
        yield event("content_block_delta", index=index, delta=delta)
        delta = {"type": "signature_delta", "signature": "c2lnbmVk"}
        yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
        index += 1
    if answer.text:
        yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for piece in _text(answer):
            if isinstance(piece, bytes):
                yield b"event: content_block_delta\n" + _data(piece)
            else:
                delta = {"type": "text_delta", "text": piece}
                yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
        index += 1
    prefix = f"toolu_{len(body['messages'])}"
    for number, (name, arguments) in enumerate(answer.calls):
        block: Json = {"type": "tool_use", "id": f"{prefix}_{number}", "name": name, "input": {}}
        yield event("content_block_start", index=index, content_block=block)
        delta = {"type": "input_json_delta", "partial_json": _written(arguments)}
        yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
        index += 1
    stops = {"length": "max_tokens", "refusal": "refusal"}
    stop = stops.get(answer.stop, "tool_use" if answer.calls else "end_turn")
    ending = {"stop_reason": stop, "stop_sequence": None}
    yield event("message_delta", delta=ending, usage={"output_tokens": 10})
    yield event("message_stop")


def google_events(answer: Answer) -> Iterator[bytes]:
    tokens = {"promptTokenCount": answer.input_tokens, "candidatesTokenCount": 10}

    def chunk(parts: list[Json], finish: str | None = None) -> bytes:
        ending = {"finishReason": finish} if finish else {}
        candidate = {"index": 0, "content": {"role": "model", "parts": parts}, **ending}
        usage = {**tokens, "totalTokenCount": answer.input_tokens + 10}
        return _data({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"})

    if answer.thought:
        yield chunk([{"text": answer.thought, "thought": True}])
    if answer.text:
        for piece in _text(answer):
            yield _data(piece) if isinstance(piece, bytes) else chunk([{"text": piece}])
    for name, arguments in answer.calls:
        yield chunk([{"functionCall": {"name": name, "args": arguments}}])
    stops = {"length": "MAX_TOKENS", "refusal": "SAFETY"}
    yield chunk([{"text": ""}], stops.get(answer.stop, "STOP"))
