"""A scripted daemon of Codex: its socket, and the rollout file that it writes.

    async with CodexDaemonScript(folder).running() as codex:
        await codex.begin_turn("make a file")
        await codex.add_text("I will ", "make it")
        await codex.end_text()
        await codex.ask("touch a")
        await codex.answer("accept")          # in the terminal
        await codex.end_turn()

It sends what the real one sends (0.166), in the same order: a line is in the file first, unless
`is_late` is set; then lines are written by `catch_up`. Clients answer requests and start turns as
with the real one; `received` has all that they sent.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
from websockets.asyncio.server import ServerConnection, unix_serve
from websockets.exceptions import ConnectionClosed

from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.testing.foreign import BEGAN, CodexProgram

Json = dict[str, Any]

SOCKET: Final = "app-server-control/app-server-control.sock"
_REFUSED: Final = -32600


class CodexDaemonScript:
    """One thread of a daemon; the person at its terminal is the caller."""

    def __init__(self, folder: Path, *, cwd: str = "/project", number: int = 1) -> None:
        """`folder` is the one that CODEX_HOME names."""
        self.program = CodexProgram(folder, cwd=cwd, number=number)
        self.session_id = self.program.session_id
        self.path = folder / SOCKET
        self.received: list[Json] = []
        self.sent: list[Json] = []
        self.decisions: list[Any] = []
        self.gone: list[str] = []
        """Threads that are listed, and end before they are looked at."""
        self.is_late = False
        self._late: list[tuple[str, Json]] = []
        self._clients: set[ServerConnection] = set()
        self._subscribers: set[ServerConnection] = set()
        self._status: Json = {"type": "idle"}
        self._subscribed = anyio.Event()
        self.decided = anyio.Event()
        self._count = 0
        self.turn_id = ""
        self._text: tuple[str, str] = ("", "")
        self._request: tuple[int, Json, str] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[CodexDaemonScript]:
        """Listen until the block ends; the socket is a link, as the paths of tests are long."""
        short = Path(tempfile.mkdtemp(prefix="codex-"))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.symlink_to(short / "socket")
        try:
            async with unix_serve(self._serve, str(short / "socket"), compression=None):
                yield self
        finally:
            self._clients.clear()
            self._subscribers.clear()
            self.path.unlink()
            shutil.rmtree(short, ignore_errors=True)

    async def disconnect(self) -> None:
        """Close all connections."""
        for client in tuple(self._clients):
            await client.close()

    # ---- the protocol ------------------------------------------------------------------------

    async def _serve(self, client: ServerConnection) -> None:
        self._clients.add(client)
        try:
            async for data in client:
                await self._receive(client, decode_json(data))
        except ConnectionClosed:
            pass
        finally:
            self._clients.discard(client)
            self._subscribers.discard(client)

    async def _receive(self, client: ServerConnection, message: Json) -> None:
        self.received.append(message)
        method, params = message.get("method"), message.get("params") or {}
        if method is None:
            await self._answered(message)
        elif "id" in message:
            result = await self._result(client, method, params)
            key = "error" if "code" in result else "result"
            await self._send(client, {"id": message["id"], key: result})
            await self._after(client, method, params)

    async def _result(self, client: ServerConnection, method: str, params: Json) -> Json:
        match method:
            case "initialize":
                return {"userAgent": "codex-tui/0.166.0", "codexHome": str(self.path.parents[1])}
            case "thread/loaded/list":
                return {"data": [*self.gone, self.session_id], "nextCursor": None}
            case "thread/read" if params.get("threadId") == self.session_id:
                return {"thread": self._thread()}
            case "thread/resume" if not self.program.path.exists():
                return {"code": _REFUSED, "message": "no rollout found for thread id"}
            case "thread/resume":
                self._subscribers.add(client)
                self._subscribed.set()
                return {"thread": self._thread(), "cwd": self.program.cwd}
            case _:
                return self._turn_result(method, params)

    def _turn_result(self, method: str, params: Json) -> Json:
        match method:
            case "turn/start":
                self.turn_id = self._id("turn")
                return {"turn": self._turn("inProgress")}
            case "thread/turns/list":
                return {"data": [self._turn("inProgress")] if self.turn_id else []}
            case "turn/steer" if params.get("expectedTurnId") == self.turn_id:
                return {"turnId": self.turn_id}
            case "turn/interrupt" if params.get("turnId") == self.turn_id:
                return {}
            case _:
                return {"code": _REFUSED, "message": f"{method} is refused"}

    async def _after(self, client: ServerConnection, method: str, params: Json) -> None:
        """Do what a client asked for, after it was answered."""
        if method == "turn/start":
            await self.begin_turn(params["input"][0]["text"], turn_id=self.turn_id)
        elif method == "turn/steer":
            await self._user_message(params["input"][0]["text"])
        elif method == "turn/interrupt":
            await self.end_turn("interrupted")
        elif method == "thread/resume" and self._request is not None:
            await self._send(client, self._request[1])  # a late client is asked, too

    async def _send(self, client: ServerConnection, message: Json) -> None:
        self.sent.append(message)
        with suppress(ConnectionClosed):
            await client.send(encode_json(message).decode())

    async def _notify(self, method: str, params: Json, *, to_all: bool = False) -> None:
        message = {"method": method, "params": params, "emittedAtMs": BEGAN + self._count}
        for client in tuple(self._clients if to_all else self._subscribers):
            await self._send(client, message)

    def _thread(self) -> Json:
        return {
            "id": self.session_id,
            "cwd": self.program.cwd,
            "path": str(self.program.path),
            "ephemeral": False,
            "name": None,
            "status": self._status,
            "updatedAt": BEGAN // 1000,
        }

    def _turn(self, status: str) -> Json:
        return {"id": self.turn_id, "items": [], "status": status, "error": None}

    def _id(self, kind: str) -> str:
        self._count += 1
        return f"{kind}_{self._count}"

    def _write(self, kind: str, payload: Json) -> None:
        if self.is_late:
            self._late.append((kind, payload))
        else:
            self.program.write(kind, payload)

    def catch_up(self) -> None:
        """Write the lines that are late."""
        self.is_late = False
        for kind, payload in self._late:
            self.program.write(kind, payload)
        self._late.clear()

    # ---- what happens ------------------------------------------------------------------------

    async def set_status(self, kind: str, *flags: str) -> None:
        self._status = {"type": kind} if kind == "idle" else {"type": kind, "activeFlags": [*flags]}
        params = {"threadId": self.session_id, "status": self._status}
        await self._notify("thread/status/changed", params, to_all=True)

    async def begin_turn(self, text: str, *, turn_id: str = "") -> None:
        """Start a turn: a person has sent a prompt."""
        self.turn_id = turn_id or self._id("turn")
        if not self.program.path.exists():
            facts = {"id": self.session_id, "cwd": self.program.cwd}
            self.program.write("session_meta", facts)
        self._write("event_msg", {"type": "task_started", "turn_id": self.turn_id})
        await self.set_status("active")
        await self._notify("turn/started", self._with_turn("inProgress"))
        await self._user_message(text)

    def _with_turn(self, status: str) -> Json:
        return {"threadId": self.session_id, "turn": self._turn(status)}

    async def _user_message(self, text: str) -> None:
        item_id = self._id("user")
        content = [{"type": "input_text", "text": text}]
        message = {"type": "message", "id": f"msg_{item_id}", "role": "user", "content": content}
        self._write("response_item", message)
        shown = [{"type": "text", "text": text, "text_elements": []}]
        await self._item("userMessage", item_id, is_over=False, clientId=None, content=shown)
        self._completed("UserMessage", item_id)
        await self._item("userMessage", item_id, is_over=True, clientId=None, content=shown)

    async def _item(self, kind: str, item_id: str, *, is_over: bool, **facts: Any) -> None:
        method = "item/completed" if is_over else "item/started"
        at = "completedAtMs" if is_over else "startedAtMs"
        item = {"type": kind, "id": item_id, **facts, "startedAtMs": BEGAN, "completedAtMs": None}
        params = {"item": item, "threadId": self.session_id, "turnId": self.turn_id, at: BEGAN}
        await self._notify(method, params)

    def _completed(self, kind: str, item_id: str) -> None:
        item = {"type": kind, "id": item_id}
        facts = {"type": "item_completed", "thread_id": self.session_id, "turn_id": self.turn_id}
        self._write("event_msg", {**facts, "item": item})

    async def add_text(self, *pieces: str) -> str:
        """Stream pieces of an answer; return the id of its item."""
        item_id, text = self._text
        if not item_id:
            item_id = self._id("msg")
            await self._item("agentMessage", item_id, is_over=False, text="")
        for piece in pieces:
            where = {"threadId": self.session_id, "turnId": self.turn_id, "itemId": item_id}
            await self._notify("item/agentMessage/delta", {**where, "delta": piece})
        self._text = (item_id, text + "".join(pieces))
        return item_id

    async def end_text(self) -> None:
        """Complete the answer that was streamed."""
        item_id, text = self._text
        self._text = ("", "")
        self._completed("AgentMessage", item_id)
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"type": "message", "id": item_id, "role": "assistant", "content": content}
        self._write("response_item", message)
        await self._item("agentMessage", item_id, is_over=True, text=text)

    async def think(self, text: str) -> None:
        """Show a thought."""
        item_id = self._id("rs")
        where = {"threadId": self.session_id, "turnId": self.turn_id, "itemId": item_id}
        await self._item("reasoning", item_id, is_over=False, summary=[], content=[])
        delta = {**where, "delta": text, "summaryIndex": 0}
        await self._notify("item/reasoning/summaryTextDelta", delta)
        self._completed("Reasoning", item_id)
        summary = [{"type": "summary_text", "text": text}]
        self._write("response_item", {"type": "reasoning", "id": item_id, "summary": summary})
        await self._item("reasoning", item_id, is_over=True, summary=[text], content=[])

    async def ask(self, command: str, **more: Any) -> str:
        """Ask whether a command may run; return the id of its call."""
        call_id = self._id("call")
        arguments = encode_json({"cmd": command}).decode()
        call = {"type": "function_call", "id": f"fc_{call_id}", "name": "exec_command"}
        self._write("response_item", {**call, "call_id": call_id, "arguments": arguments})
        facts = {"command": f"/bin/bash -lc '{command}'", "cwd": self.program.cwd}
        await self.set_status("active", "waitingOnApproval")
        await self._item("commandExecution", call_id, is_over=False, **facts, status="inProgress")
        await self._ask("item/commandExecution/requestApproval", call_id, {**facts, **more})
        return call_id

    async def ask_change(self, path: str, text: str) -> str:
        """Ask whether a file may be created; return the id of its call."""
        call_id = self._id("call")
        call = {"type": "custom_tool_call", "id": f"ctc_{call_id}", "name": "apply_patch"}
        self._write("response_item", {**call, "call_id": call_id, "input": f"*** Add File: {path}"})
        changes = [{"path": path, "kind": {"type": "add"}, "diff": text}]
        await self.set_status("active", "waitingOnApproval")
        await self._item("fileChange", call_id, is_over=False, changes=changes, status="inProgress")
        await self._ask("item/fileChange/requestApproval", call_id, {"grantRoot": None})
        return call_id

    async def _ask(self, method: str, call_id: str, facts: Json) -> None:
        where = {"threadId": self.session_id, "turnId": self.turn_id, "itemId": call_id}
        params = {**where, "startedAtMs": BEGAN, "reason": None, **facts}
        number = len(self.decisions)
        self._request = (number, {"method": method, "id": number, "params": params}, call_id)
        for client in tuple(self._subscribers):
            await self._send(client, self._request[1])

    async def _answered(self, message: Json) -> None:
        if self._request is not None and message.get("id") == self._request[0]:
            await self.answer(message["result"]["decision"])

    async def answer(self, decision: Any) -> None:
        """Decide the request: the person does it in the terminal, or a client has."""
        assert self._request is not None
        number, _, call_id = self._request
        self._request = None
        self.decisions.append(decision)
        self.decided.set()
        resolved = {"threadId": self.session_id, "requestId": number}
        await self._notify("serverRequest/resolved", resolved)
        await self.set_status("active")
        self._completed("CommandExecution", call_id)
        output = "Exit code: 0\n" if decision != "decline" else "rejected by user"
        ended = {"type": "function_call_output", "call_id": call_id, "output": output}
        self._write("response_item", ended)
        await self._item("commandExecution", call_id, is_over=True, status="completed")
        if decision == "cancel":
            await self.end_turn("interrupted")

    async def end_turn(self, status: str = "completed") -> None:
        """End the turn; a text that was not completed is not in the file."""
        self._text = ("", "")
        kind = "task_complete" if status == "completed" else "turn_aborted"
        self._write("event_msg", {"type": kind, "turn_id": self.turn_id})
        await self.set_status("idle")
        await self._notify("turn/completed", self._with_turn(status))

    async def wait_subscribed(self) -> None:
        """Wait until a client follows the thread."""
        await self._subscribed.wait()
