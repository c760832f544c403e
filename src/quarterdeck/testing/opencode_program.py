"""A scripted OpenCode: it writes the store of one session, and can serve as the real one does.

`OpenCodeProgram` writes the store from the caller's process. As a script it also listens:

    opencode opencode_program.py --port 0 DATABASE FOLDER NUMBER

Then `POST /test/ask` makes it wait for permission, `POST /test/reply` answers in its terminal, and
`GET /test/received` returns the replies, prompts and aborts that it got. `POST /test/hold` makes
the next answer of a path wait for `POST /test/release`, `GET /test/asked` returns the paths that
were asked for, and `POST /test/delete` deletes the session. It ends with its stdin.
Only the standard library: it runs under the name `opencode`, outside any virtual environment.
"""

import json
import queue
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BEGAN = 1_700_000_000_000
_SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS session (id text PRIMARY KEY, parent_id text, directory text NOT NULL,
  title text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL);
CREATE TABLE IF NOT EXISTS message (id text PRIMARY KEY, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE IF NOT EXISTS part (id text PRIMARY KEY, message_id text NOT NULL,
  session_id text NOT NULL, time_created integer NOT NULL, time_updated integer NOT NULL,
  data text NOT NULL);
"""
_EVENT_SCHEMA = """
CREATE TABLE IF NOT EXISTS event_sequence (aggregate_id text PRIMARY KEY, seq integer NOT NULL);
CREATE TABLE IF NOT EXISTS event (id text PRIMARY KEY, aggregate_id text NOT NULL,
  seq integer NOT NULL, type text NOT NULL, data text NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS event_aggregate_seq_idx ON event (aggregate_id, seq);
"""
Json = dict[str, Any]


class OpenCodeProgram:
    """Writes one session into a store; each step happens a second after the one before."""

    def __init__(
        self,
        database: Path,
        *,
        cwd: str = "/project",
        number: int = 1,
        parent_id: str | None = None,
        has_events: bool = True,
    ) -> None:
        """`has_events` is false for a version that keeps messages only."""
        self.session_id = f"ses_{number:024d}"
        self.cwd = cwd
        self.database = database
        self.has_events = has_events
        self._number = number
        self._parent_id = parent_id
        self._steps = 0
        self._user = ""
        self._rest: Json = {}

    # ---- the store --------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self.database.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.database, timeout=10)
        try:
            connection.executescript(_SCHEMA + (_EVENT_SCHEMA if self.has_events else ""))
            with connection:
                yield connection
        finally:
            connection.close()

    def _now(self) -> int:
        self._steps += 1
        return BEGAN + self._steps * 1000

    def _id(self, kind: str) -> str:
        """Return an id as OpenCode's are: they begin with the time."""
        at = (BEGAN + self._steps * 1000) << 12 & 0xFFFFFFFFFFFF
        return f"{kind}_{at:012x}{self._number:06d}{self._steps:06d}"

    def event(self, kind: str, data: Json | bytes) -> None:
        """Record an event, and what it changes in the other tables."""
        at = BEGAN + self._steps * 1000
        text = data if isinstance(data, bytes) else json.dumps(data)
        with self._writing() as connection:
            if isinstance(data, dict):
                self._apply(connection, kind, data, at)
            connection.execute(
                "UPDATE session SET time_updated = ? WHERE id = ?", (at, self.session_id)
            )
            if not self.has_events:
                return
            row = connection.execute(
                "SELECT seq FROM event_sequence WHERE aggregate_id = ?", (self.session_id,)
            ).fetchone()
            seq = 0 if row is None else row[0] + 1
            upsert = "INSERT INTO event_sequence VALUES (?, ?) ON CONFLICT DO UPDATE SET seq = ?"
            connection.execute(upsert, (self.session_id, seq, seq))
            event_id = f"{self._id('evt')}{seq:06d}"
            values = (event_id, self.session_id, seq, f"{kind}.1", text)
            connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, CAST(? AS TEXT))", values)

    def _apply(self, connection: sqlite3.Connection, kind: str, data: Json, at: int) -> None:
        if kind == "session.created":
            row = (self.session_id, self._parent_id, self.cwd, "New session - now", at, at)
            connection.execute("INSERT OR IGNORE INTO session VALUES (?, ?, ?, ?, ?, ?)", row)
        elif kind == "session.updated":
            change = "UPDATE session SET title = ? WHERE id = ?"
            connection.execute(change, (data["info"]["title"], self.session_id))
        elif kind == "message.updated":
            info = {key: data["info"][key] for key in data["info"] if key != "id"}
            message = (data["info"]["id"], self.session_id, at, at, json.dumps(info))
            change = "INSERT INTO message VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET data = ?"
            connection.execute(change, (*message, message[-1]))
        elif kind == "message.part.updated":
            part = {key: data["part"][key] for key in data["part"] if key != "id"}
            ids = (data["part"]["id"], data["part"]["messageID"], self.session_id)
            change = "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET data = ?"
            connection.execute(change, (*ids, at, at, json.dumps(part), json.dumps(part)))

    # ---- a session --------------------------------------------------------------------------

    def begin(self) -> None:
        """Create the session."""
        info: Json = {"id": self.session_id, "directory": self.cwd, "title": "New session - now"}
        info["time"] = {"created": self._now()}
        self.event("session.created", {"sessionID": self.session_id, "info": info})

    def rename(self, title: str) -> None:
        info = {"id": self.session_id, "title": title, "time": {"updated": self._now()}}
        self.event("session.updated", {"sessionID": self.session_id, "info": info})

    def message(self, role: str, message_id: str, **more: Any) -> None:
        info = {"id": message_id, "role": role, "time": {"created": BEGAN}, **more}
        self.event("message.updated", {"sessionID": self.session_id, "info": info})

    def part(self, message_id: str, part_id: str, **part: Any) -> None:
        at = BEGAN + self._steps * 1000
        whole = {"id": part_id, "messageID": message_id, **part}
        self.event("message.part.updated", {"part": whole, "time": at})

    def prompt(self, text: str) -> None:
        if not self._steps:
            self.begin()
        self._now()
        message_id = self._id("msg")
        self.message("user", message_id)
        self.part(message_id, self._id("prt"), type="text", text=text)

    def _answer(self) -> str:
        self._now()
        message_id = self._id("msg")
        self.message("assistant", message_id)
        return message_id

    def _finish(self, message_id: str, finish: str, **more: Any) -> None:
        at = self._now()
        times = {"created": BEGAN, "completed": at}
        self.message("assistant", message_id, **{"time": times, "finish": finish, **more})

    def answer(self, text: str) -> None:
        message_id = self._answer()
        part_id, at = self._id("prt"), self._now()
        self.part(message_id, part_id, type="text", text="", time={"start": at})
        self.part(message_id, part_id, type="text", text=text, time={"start": at, "end": at})
        self._finish(message_id, "stop")

    def start_call(self, tool: str, given: Json) -> tuple[str, str, str]:
        """Record a call that has not ended; return the ids of its message, its part and itself."""
        message_id = self._answer()
        part_id, call_id = self._id("prt"), f"call_{self._steps}"
        pending = {"status": "pending", "input": {}, "raw": ""}
        self.part(message_id, part_id, type="tool", tool=tool, callID=call_id, state=pending)
        running = {"status": "running", "input": given, "time": {"start": self._now()}}
        self.part(message_id, part_id, type="tool", tool=tool, callID=call_id, state=running)
        return message_id, part_id, call_id

    def end_call(
        self, call: tuple[str, str, str], tool: str, given: Json, output: str, error: str = ""
    ) -> None:
        message_id, part_id, call_id = call
        state: Json = {"status": "error" if error else "completed", "input": given}
        state |= {"error": error} if error else {"output": output, "title": tool, "metadata": {}}
        state["time"] = {"start": BEGAN, "end": self._now()}
        self.part(message_id, part_id, type="tool", tool=tool, callID=call_id, state=state)
        self._finish(message_id, "tool-calls")

    def call(self, command: str, output: str) -> None:
        given = {"command": command}
        self.end_call(self.start_call("bash", given), "bash", given, output)

    def abort(self) -> None:
        """Record a turn that was aborted."""
        failure = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
        message_id = self._answer()
        self.part(message_id, self._id("prt"), type="step-start")
        self._finish(message_id, "", error=failure)

    def write_half(self) -> None:
        message_id = self._answer()
        self._rest = {"message": message_id, "part": self._id("prt")}
        half = {"type": "text", "text": "half of it", "time": {"start": BEGAN}}
        self.part(message_id, self._rest["part"], **half)

    def write_rest(self) -> None:
        at = self._now()
        times = {"start": BEGAN, "end": at}
        text = "half of it, then the rest"
        message_id = self._rest["message"]
        self.part(message_id, self._rest["part"], type="text", text=text, time=times)
        self._finish(message_id, "stop")

    def damage(self) -> None:
        self._now()
        self.event("message.part.updated", b'{"part": \xff\x00 and no end')


# ---- the server ------------------------------------------------------------------------------


class ScriptedServer(ThreadingHTTPServer):
    """Serves one session, as OpenCode's server does."""

    daemon_threads = True

    def __init__(self, port: int, program: OpenCodeProgram) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.program = program
        self.listeners: list[queue.Queue[Json]] = []
        self.pending: dict[str, Json] = {}
        self.calls: dict[str, tuple[tuple[str, str, str], str, Json]] = {}
        self.received: list[Json] = []
        self.lock = threading.RLock()
        self.status = "idle"
        self.asked_for: list[str] = []
        self.held_path = ""
        self.released = threading.Event()

    def publish(self, kind: str, facts: Json) -> None:
        event = {"directory": self.program.cwd, "payload": {"type": kind, "properties": facts}}
        for each in self.listeners:
            each.put(event)

    def set_status(self, status: str) -> None:
        self.status = status
        known = {"sessionID": self.program.session_id}
        self.publish("session.status", {**known, "status": {"type": status}})
        if status == "idle":
            self.publish("session.idle", known)

    def ask(self, command: str) -> str:
        """Begin a turn that waits for permission to run a command; return the request's id."""
        given = {"command": command}
        self.set_status("busy")
        self.program.prompt(f"run {command}")
        call = self.program.start_call("bash", given)
        request_id = f"per_{self.program.session_id}_{len(self.calls) + 1}"
        self.calls[request_id] = (call, "bash", given)
        self.pending[request_id] = {
            "id": request_id,
            "sessionID": self.program.session_id,
            "permission": "bash",
            "patterns": [command],
            "metadata": given,
            "always": [f"{command.split()[0]} *"],
            "tool": {"messageID": call[0], "callID": call[2]},
        }
        self.publish("permission.asked", self.pending[request_id])
        return request_id

    def reply(self, request_id: str, reply: str) -> bool:
        """End a request and its turn, as an answer of anyone does."""
        if self.pending.pop(request_id, None) is None:
            return False
        known = {"sessionID": self.program.session_id, "requestID": request_id, "reply": reply}
        self.publish("permission.replied", known)
        error = "The user rejected permission" if reply == "reject" else ""
        self.program.end_call(*self.calls[request_id], output="done", error=error)
        self.program.answer(f"it was answered: {reply}")
        self.set_status("idle")
        return True


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: Any) -> None:  # type: ignore[explicit-override]  # no package here
        """Print nothing."""

    def _send(self, status: int, body: Any) -> None:
        data = b"" if status == 204 else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        server, program = self.server, self.server.program
        path = self.path.partition("?")[0]
        if path == "/global/event":
            self._stream()
            return
        with server.lock:
            times = {"updated": int(time.time() * 1000)}
            known = {"id": program.session_id, "directory": program.cwd, "time": times}
            statuses = {program.session_id: {"type": server.status}}
            answers = {
                "/global/health": {"healthy": True, "version": "0"},
                "/session": [known],
                "/session/status": statuses if server.status != "idle" else {},
                "/permission": list(server.pending.values()),
                "/test/received": server.received,
                "/test/asked": server.asked_for,
            }
            server.asked_for.append(path)
            found = re.fullmatch(r"/session/[^/]+/message/(\w+)", path)
            if found is not None:
                answers[path] = {"parts": self._parts(found[1])}
        if path == server.held_path:
            server.held_path = ""
            server.released.wait()
        self._send(200 if path in answers else 404, answers.get(path))

    def _parts(self, message_id: str) -> list[Json]:
        return [
            {"type": "tool", "tool": tool, "callID": call[2], "state": {"input": given}}
            for call, tool, given in self.server.calls.values()
            if call[0] == message_id
        ]

    def _stream(self) -> None:
        events: queue.Queue[Json] = queue.Queue()
        self.server.listeners.append(events)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        event: Json = {"payload": {"type": "server.connected", "properties": {}}}
        while True:
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()
            event = events.get()

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        path = self.path.partition("?")[0]
        with self.server.lock:
            self._send(*self._answer(path, body))

    def _command(self, path: str, body: Json) -> Any:
        server = self.server
        match path.removeprefix("/test/"):
            case "ask":
                return server.ask(body["command"])
            case "reply":
                return server.reply(body["id"], body["reply"])
            case "hold":
                server.held_path = body["path"]
            case "release":
                server.released.set()
            case "delete":
                server.publish("session.deleted", {"sessionID": server.program.session_id})
            case _:
                return None
        return True

    def _answer(self, path: str, body: Json) -> tuple[int, Any]:
        server, program = self.server, self.server.program
        if path.startswith("/test/"):
            return 200, self._command(path, body)
        name = path.rpartition("/")[2]
        server.received.append({"path": path, "body": body})
        if path.startswith("/permission/"):
            is_found = server.reply(path.split("/")[2], body["reply"])
            return (200, True) if is_found else (404, {"name": "NotFoundError"})
        if path == f"/session/{program.session_id}/prompt_async":
            text = body["parts"][0]["text"]
            server.set_status("busy")
            program.prompt(text)
            if not text.startswith("wait"):
                program.answer(f"you said: {text}")
                server.set_status("idle")
            return 204, None
        if name == "abort":
            failure = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
            known = {"sessionID": program.session_id, "error": failure}
            server.publish("session.error", known)
            server.set_status("idle")
            program.abort()
            server.set_status("idle")  # OpenCode reports it twice, too
            return 200, True
        return 404, {"name": "NotFoundError"}


def main() -> None:
    port, database, cwd, number = int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5]
    server = ScriptedServer(port, OpenCodeProgram(database, cwd=cwd, number=int(number)))
    server.program.begin()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
