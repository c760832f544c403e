"""Turns that go on while their hub is killed or replaced, and clients that resume by number."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from typing_extensions import override
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from quarterdeck.machine import living_descendants
from tests.cli.kit import SECONDS, Console, RunningHub
from tests.hub.editors.kit_v2 import after, shown
from tests.hub.local_owner import make_token, owner_call

Json = dict[str, Any]
PAUSE = 0.02  # between two attempts to connect
LONGEST = 0.15  # that a hub serves before its end


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Reader(threading.Thread):
    """A client that connects again and again, each time from where it was."""

    def __init__(self, port: int, token: str, session_id: str) -> None:
        super().__init__(daemon=True)
        self.connections = 0
        self._port, self._token, self._session_id = port, token, session_id
        self._is_over = threading.Event()
        self.failure: BaseException | None = None

    @override
    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                with suppress(OSError, http.client.HTTPException, WebSocketException, EOFError):
                    self.connections += 1
                    self.follow()
                time.sleep(PAUSE)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.failure = error

    def follow(self) -> None:
        raise NotImplementedError

    @property
    def head(self) -> int:
        raise NotImplementedError

    def end(self, head: int) -> None:
        """Wait until it has everything."""
        deadline = time.monotonic() + SECONDS
        while self.head < head and self.failure is None:
            assert time.monotonic() < deadline, (self.head, head, self.connections)
            time.sleep(PAUSE)
        self._is_over.set()
        if self.failure is not None:
            raise self.failure


class Browser(Reader):
    """Reads events of a session as the page does: server-sent events, by `Last-Event-ID`."""

    def __init__(self, port: int, token: str, session_id: str) -> None:
        super().__init__(port, token, session_id)
        self.events: list[bytes] = []
        self._last_id = ""

    @property
    @override
    def head(self) -> int:
        return len(self.events)

    @override
    def follow(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
        headers = {"authorization": f"Bearer {self._token}"}
        if self._last_id:
            headers["last-event-id"] = self._last_id
        connection.request("GET", f"/api/sessions/{self._session_id}/events", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, (answer.status, answer.read())
        fields: dict[bytes, bytes] = {}
        while line := answer.readline():
            if line != b"\n":
                name, _, value = line.rstrip(b"\n").partition(b": ")
                fields[name] = value
                continue
            if b"event" not in fields and b"data" in fields:
                self.events.append(fields[b"data"])
                self._last_id = fields[b"id"].decode()
            assert fields.get(b"event") != b"reset", fields
            fields = {}
        connection.close()


class Editor(Reader):
    """Reads a session as an editor of ACP 2 does, and resumes by its number."""

    def __init__(self, port: int, token: str, session_id: str, agent: str, cwd: str) -> None:
        super().__init__(port, token, session_id)
        self._agent, self._cwd = agent, cwd
        self.updates: list[Json] = []
        self.numbers: list[Json] = []

    @property
    @override
    def head(self) -> int:
        return int(self.numbers[-1]["seq"]) if self.numbers else 0

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(each["seq"], each.get("part", 0)) for each in self.numbers]

    @override
    def follow(self) -> None:
        url = f"ws://127.0.0.1:{self._port}/acp?agent={self._agent}"
        headers = {"authorization": f"Bearer {self._token}"}
        with connect(url, additional_headers=headers, proxy=None, max_size=None) as link:
            info = {"name": "editor", "version": "2"}
            params = {"protocolVersion": 2, "info": info, "capabilities": {}}
            link.send(json.dumps(_call(1, "initialize", params)))
            where: Json = {"type": "start"} if not self.numbers else after(self.numbers[-1])
            resumed = {"sessionId": self._session_id, "cwd": self._cwd, "replayFrom": where}
            link.send(json.dumps(_call(2, "session/resume", resumed)))
            for text in link:
                message = json.loads(text)
                assert "error" not in message, message
                if message.get("method") == "session/update":
                    params = message["params"]
                    if params["sessionId"] == self._session_id:
                        self.updates.append(params["update"])
                        self.numbers.append(params["_meta"]["quarterdeck"])


def _call(number: int, method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


class Survival:
    """A runner with turns under way, and a hub that ends again and again."""

    def __init__(self, console: Console, agent: str) -> None:
        self._console = console
        self._agent = agent
        self.port = free_port()

    @contextmanager
    def serving(self) -> Iterator[RunningHub]:
        """Run a hub at the port; it may be killed."""
        with self._console.start("up", "--port", str(self.port), "--json") as process:
            assert process.stdout is not None
            facts = process.stdout.readline()
            if not facts:
                raise AssertionError(process.communicate(timeout=SECONDS)[1])
            yield RunningHub(process, json.loads(facts), self._console.home)
            process.kill()
            process.communicate(timeout=SECONDS)

    def run(
        self,
        prompts: int,
        end_hub: Callable[[RunningHub], bool],
        times: int,
        text: str,
    ) -> None:
        """Send prompts, end the hub so many times, and compare what clients have with the log.

        `end_hub` ends a hub and returns whether the same process serves on.
        """
        home, work = self._console.home, str(self._console.work)
        chance = random.Random(times)
        with self._console.runner() as runner:
            with self.serving():
                made = owner_call(
                    home, "POST", "/api/sessions", {"agent": self._agent, "cwd": work}
                )
                session_id = str(made["sessionId"])
                token = make_token(home)
                for number in range(prompts):
                    body = {"key": f"key-{number}", "prompt": f"{text} {number}"}
                    owner_call(home, "POST", f"/api/sessions/{session_id}/prompts", body)
            agents = agent_processes(runner.pid)
            assert agents
            browser = Browser(self.port, token, session_id)
            editor = Editor(self.port, token, session_id, self._agent, work)
            for reader in (browser, editor):
                reader.start()
            ended = 0
            while ended < times:
                with self.serving() as hub:
                    serves = True
                    while serves and ended < times:
                        self._answer(chance.uniform(0, LONGEST))
                        serves = end_hub(hub)
                        ended += 1
            with self.serving():
                self._wait_done(session_id, prompts)
                assert agent_processes(runner.pid) == agents
                self._compare(session_id, browser, editor, token)

    def _answer(self, seconds: float) -> None:
        """Allow whatever is asked, for a while."""
        deadline = time.monotonic() + seconds
        while True:
            allow_all(self._console)
            if time.monotonic() >= deadline:
                return
            time.sleep(0.01)

    def _wait_done(self, session_id: str, prompts: int) -> None:
        path = f"/api/sessions/{session_id}/prompts"
        deadline = time.monotonic() + SECONDS
        while True:
            allow_all(self._console)
            found = owner_call(self._console.home, "GET", f"{path}?limit=1000")["prompts"]
            states = [each["state"] for each in found]
            if states == ["done"] * prompts:
                return
            assert set(states) <= {"done", "running", "queued"}, states
            assert time.monotonic() < deadline, states
            time.sleep(PAUSE)

    def _compare(self, session_id: str, browser: Browser, editor: Editor, token: str) -> None:
        home = self._console.home
        head = owner_call(home, "GET", f"/api/sessions/{session_id}")["session"]["lastSeq"]
        browser.end(head)
        log = list(_history(home, session_id, head))
        assert [json.loads(each) for each in browser.events] == log
        assert [each["seq"] for each in log] == list(range(1, head + 1))
        fresh = Editor(self.port, token, session_id, self._agent, str(self._console.work))
        fresh.start()
        deadline = time.monotonic() + SECONDS
        while not fresh.numbers or shown(fresh.updates) != shown(editor.updates):
            assert time.monotonic() < deadline, (fresh.head, editor.head, editor.connections)
            time.sleep(PAUSE)
        assert editor.places == sorted(editor.places)
        assert browser.connections > 1
        assert editor.connections > 1


def agent_processes(runner: int) -> set[int]:
    """Return the guards of a runner's agents, each of which ends with its agent.

    What an agent starts itself may come and go.
    """
    return {each for each in living_descendants(runner) if _parent(each) == runner}


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def allow_all(console: Console) -> None:
    """Allow what is pending; a hub that has just gone is no failure."""
    with suppress(OSError, AssertionError, http.client.HTTPException):
        for each in owner_call(console.home, "GET", "/api/permissions")["permissions"]:
            allowed = _allowing(each)
            path = f"/api/permissions/{each['requestId']}/answer"
            answer = {"digest": each["digest"], "optionId": allowed, "key": each["requestId"]}
            owner_call(console.home, "POST", path, answer)


def _allowing(request: Mapping[str, Any]) -> str:
    found: str = next(
        each["optionId"] for each in request["options"] if each["kind"] == "allow_once"
    )
    return found


def _history(home: Any, session_id: str, head: int) -> Iterator[Json]:
    after_seq = 0
    while after_seq < head:
        path = f"/api/sessions/{session_id}/history?from_seq={after_seq}&limit=1000"
        page = owner_call(home, "GET", path)["events"]
        yield from page
        after_seq = page[-1]["seq"]


def kill_hub(hub: RunningHub) -> bool:
    """End a hub as a crash does."""
    os.kill(hub.process.pid, 9)
    hub.process.wait(SECONDS)
    return False
