"""A model for agents that other people wrote: what to do stands in the prompt, in brackets.

    [say WORD]      says WORD
    [run COMMAND]   calls the agent's shell tool with COMMAND, then says that it has ended
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

FIRST_HALF, SECOND_HALF = "This much is said at once, ", "and this much never is."
ENDED = "The command has ended."
_MARK = re.compile(r"\[(say|run|wait|recall)(?: ([^\]]*))?\]")
_SHELLS = (
    *("bash", "run_shell_command", "shell", "developer__shell", "execute", "execute_command"),
    *("exec_command", "shell_command"),
)
_ASKING = {"sandbox_permissions": "require_escalated", "justification": "May it run?"}
"""What makes codex ask instead of running a command in its own sandbox."""
_COMMANDS = ("command", "cmd", "script")


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
            self._send(_whole(path, answer))

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


def _whole(path: str, answer: Answer) -> Json:
    """Return an answer in one piece; only what is asked on the side wants one."""
    if path.endswith("/messages"):
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake"}
        content = [{"type": "text", "text": answer.text}]
        usage = {"input_tokens": 100, "output_tokens": 10}
        return {**head, "content": content, "stop_reason": "end_turn", "usage": usage}
    if path.endswith("/chat/completions"):
        about: Json = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1}
        message = {"role": "assistant", "content": answer.text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
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
        texts = [each["text"] for each in blocks if each.get("type") == "text"]
        if texts:
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
    has_result = False
    for who, text in request.said:
        if who == "result":
            has_result = True
        elif who == "user" and (found := _MARK.findall(text)):
            marks += found
            has_result = False
    if not marks or not request.tools:
        return Answer(text="A title")
    verb, rest = marks[-1]
    if verb == "say":
        return Answer(text=f"The word is {rest}.", thought="I think of a word.")
    if verb == "recall":
        words = dict.fromkeys(word for what, word in marks if what == "say")
        return Answer(text=f"The words were: {', '.join(words)}.")
    if verb == "wait":
        # Cut in the middle, so both halves must be as long.
        return Answer(text=FIRST_HALF + SECOND_HALF.ljust(len(FIRST_HALF)), stalls=True)
    if has_result:
        return Answer(text=ENDED)
    return Answer(text="I will run it.", calls=(_shell_call(rest, request.tools),))


def _shell_call(command: str, tools: dict[str, Json]) -> tuple[str, Json]:
    by_name = {name.lower(): name for name in tools}
    name = next((by_name[shell] for shell in _SHELLS if shell in by_name), None)
    assert name is not None, f"none of these is a shell: {sorted(tools)}"
    schema = tools[name]
    arguments: Json = {}
    for key, kind in schema.get("properties", {}).items():
        if key in _COMMANDS:
            arguments[key] = command
        elif key in _ASKING:
            arguments[key] = _ASKING[key]
        elif key in schema.get("required", ()):
            arguments[key] = _something(kind)
    return name, arguments


def _something(schema: Json) -> Any:
    values = {"boolean": False, "integer": 60, "number": 60, "array": [], "object": {}}
    return values.get(str(schema.get("type")).lower(), "to see what happens")
