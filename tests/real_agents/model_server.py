"""A model for agents that other people wrote: what to do stands in the prompt, in brackets.

    [say WORD]      says WORD
    [run COMMAND]   calls the agent's shell tool with COMMAND, then says that it has ended
    [write PATH]    calls the agent's tool that creates a file, then says that it has ended
    [edit PATH]     reads a file, then replaces `BEFORE` in it by `AFTER`
    [tell NUMBER]   says so many words, one after the other
    [wait]          says the first half of a sentence
    [recall]        says every WORD of the conversation

Nothing is counted or kept, so titles and summaries that an agent asks for on the side do not
matter: they name no tools, and get a title.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.agent.builtin.fake_provider import (
    Answer,
    EndsHere,
    Json,
    anthropic_events,
    google_events,
    openai_events,
)
from tests.real_agents.responses_api import (
    responses_events,
    responses_messages,
    responses_tools,
)
from tests.real_agents.tool_calls import Wish, call_for

FIRST_HALF, SECOND_HALF = "This much is said at once, ", "and this much never is."
ENDED = "The command has ended."
_SPOKEN = ("say", "tell", "recall", "wait")
PAUSE = 0.03  # seconds after each word that is told
_MARK = re.compile(r"\[(say|tell|run|write|edit|wait|recall)(?: ([^\]]*))?\]")
WRITTEN = "As the model wrote it.\n"
BEFORE, AFTER = "the old words", "the new words"


@dataclass(frozen=True)
class Request:
    """What an agent sent: who said what in which order, and the schemas of its tools by name."""

    said: list[tuple[str, str]]
    tools: dict[str, Json]


@contextmanager
def model_server() -> Iterator[str]:
    """Serve until the block ends; yields the address."""
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.released = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:  # type: ignore[explicit-override]
        """Say nothing: agents leave in the middle of an answer when they are cancelled."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # type: ignore[explicit-override]  # noqa: A002
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._send({})

    def do_GET(self) -> None:
        model = {"id": "fake-model", "object": "model", "type": "model", "display_name": "Fake"}
        self._send({"object": "list", "data": [model], "has_more": False, "models": []})

    def do_POST(self) -> None:
        body = self._body()
        path = self.path.partition("?")[0]
        if path.endswith(("count_tokens", ":countTokens")):
            self._send({"input_tokens": 100, "totalTokens": 100})
            return
        answer = answer_to(read_request(path, body))
        if body.get("stream") or path.endswith(":streamGenerateContent"):
            self._stream(_events(path, answer, body), answer)
        else:
            server = self.server
            assert isinstance(server, _Server)
            server.released.wait(None if answer.stalls else answer.pause * answer.pieces)
            self._send(_whole(path, answer, body))

    def _body(self) -> Json:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            received = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                received += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            received = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            received = gzip.decompress(received)
        body: Json = json.loads(received or b"{}")
        return body

    def _send(self, value: Json) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def _stream(self, events: Iterator[bytes], answer: Answer) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        server = self.server
        assert isinstance(server, _Server)
        try:
            for event in events:
                self.wfile.write(event)
                self.wfile.flush()
                time.sleep(answer.pause)
        except EndsHere:
            assert answer.stalls
            server.released.wait()


def _events(path: str, answer: Answer, body: Json) -> Iterator[bytes]:
    if path.endswith("/messages"):
        return anthropic_events(answer, body)
    if path.endswith("/chat/completions"):
        return openai_events(answer, body)
    if path.endswith("/responses"):
        return responses_events(answer, body)
    return google_events(answer)


def _whole(path: str, answer: Answer, body: Json) -> Json:
    """Return an answer in one piece: what is asked on the side wants it, and openhands."""
    if path.endswith("/messages"):
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake"}
        content = [{"type": "text", "text": answer.text}]
        usage = {"input_tokens": 100, "output_tokens": 10}
        return {**head, "content": content, "stop_reason": "end_turn", "usage": usage}
    if path.endswith("/chat/completions"):
        about: Json = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1}
        message: Json = {"role": "assistant", "content": answer.text}
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{len(body['messages'])}_{number}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for number, (name, arguments) in enumerate(answer.calls)
            ]
        stop = "tool_calls" if answer.calls else "stop"
        choice = {"index": 0, "message": message, "finish_reason": stop}
        tokens = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        return {**about, "model": "fake", "choices": [choice], "usage": tokens}
    told = {"role": "model", "parts": [{"text": answer.text}]}
    return {"candidates": [{"index": 0, "content": told, "finishReason": "STOP"}]}


# ---- what was asked ------------------------------------------------------------------------------


def read_request(path: str, body: Json) -> Request:
    if path.endswith("/messages"):
        offered = body.get("tools") or []
        tools = {each["name"]: each.get("input_schema", {}) for each in offered}
        return Request(list(_messages(body)), tools)
    if path.endswith("/chat/completions"):
        functions = [each["function"] for each in body.get("tools") or []]
        tools = {each["name"]: each.get("parameters", {}) for each in functions}
        return Request(list(_messages(body)), tools)
    if path.endswith("/responses"):
        return Request(list(responses_messages(body)), responses_tools(body))
    declared = [each for tool in body.get("tools") or [] for each in tool["functionDeclarations"]]
    tools = {
        each["name"]: each.get("parametersJsonSchema") or each.get("parameters", {})
        for each in declared
    }
    return Request(list(_contents(body)), tools)


def _messages(body: Json) -> Iterator[tuple[str, str]]:
    for message in body["messages"]:
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        if message["role"] == "tool" or any(each["type"] == "tool_result" for each in blocks):
            yield "result", ""
        elif message["role"] == "assistant":
            yield "assistant", ""
        texts = [each["text"] for each in blocks if each.get("type") == "text"]
        if texts and message["role"] == "user":
            yield message["role"], "\n".join(texts)


def _contents(body: Json) -> Iterator[tuple[str, str]]:
    for content in body["contents"]:
        parts = content["parts"]
        if any("functionResponse" in part for part in parts):
            yield "result", ""
        yield content.get("role", "user"), "\n".join(part.get("text", "") for part in parts)


# ---- what is answered ----------------------------------------------------------------------------


def answer_to(request: Request) -> Answer:
    marks: list[tuple[str, str]] = []
    rounds, before = 0, ""
    for who, text in request.said:
        if who == "result":
            rounds += before != "result"  # calls that were made together have several results
        elif who == "user" and (found := _MARK.findall(text)):
            marks += found
            rounds = 0
        before = who
    if not marks or not request.tools:
        return Answer(text="A title")
    verb, rest = marks[-1]
    if verb in _SPOKEN:
        return _spoken(verb, rest, marks)
    wishes = _wishes(verb, rest)
    if rounds >= len(wishes):
        return Answer(text=ENDED)
    call = call_for(wishes[rounds], request.tools)
    if call is None:
        return Answer(text=f"There is no tool to {verb} among {', '.join(sorted(request.tools))}.")
    return Answer(text=f"I will {wishes[rounds].deed} it.", calls=(call,))


def _wishes(verb: str, rest: str) -> tuple[Wish, ...]:
    """Return what is done, one after the other."""
    if verb == "run":
        return (Wish(deed="run", command=rest),)
    if verb == "write":
        return (Wish(deed="write", path=rest, content=WRITTEN),)
    return Wish(deed="read", path=rest), Wish(deed="edit", path=rest, old=BEFORE, new=AFTER)


def _spoken(verb: str, rest: str, marks: list[tuple[str, str]]) -> Answer:
    """Return what needs no tool."""
    match verb:
        case "say":
            return Answer(text=f"The word is {rest}.", thought="I think of a word.")
        case "tell":
            told = [f"word-{number} " for number in range(int(rest))]
            return Answer(text="".join(told), pieces=len(told), pause=PAUSE)
        case "recall":
            words = dict.fromkeys(word for what, word in marks if what == "say")
            return Answer(text=f"The words were: {', '.join(words)}.")
        case _:
            # Cut in the middle, so both halves must be as long.
            return Answer(text=FIRST_HALF + SECOND_HALF.ljust(len(FIRST_HALF)), stalls=True)
