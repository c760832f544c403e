"""What a process that is no hub, or a broken hub, can do at the link: nothing, for a while."""

# ruff: noqa: ASYNC110 - what the other side does is waited for, which has no events

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import CancelScope, to_thread
from anyio.abc import TaskStatus

from quarterdeck.errors import RequestRejected, StartRefused
from quarterdeck.http.unix_sockets import connected
from quarterdeck.hub import Hub
from quarterdeck.hub.auth.device import OWNER
from quarterdeck.machine import guarded_command
from quarterdeck.machine.free_memory import resident_bytes
from quarterdeck.runner import Runner
from quarterdeck.runner.link import LinkServer, connected_runner, server as servers, serving_link
from quarterdeck.runner.link.frames import BatchReader, encode_batch
from quarterdeck.runner.link.peers import RECORD_SECONDS, LinkPeers
from tests.hub.api.kit import PATIENCE, options, scripted
from tests.machine.users import NOBODY, PYTHON, as_user, open_folder_for_all
from tests.runner.link.linked import LinkedRunner
from tests.runner.test_confinement import Place, output

HELLO = b'{"is":"hello"}'
DRAIN = b'{"is":"call","id":1,"method":"drain","params":{}}'
PING: dict[str, Any] = {"is": "call", "id": 99, "method": "ping", "params": {}}
Message = dict[str, Any]


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[Runner, LinkServer, Path]]:
    given = options(folder / "home", mine=scripted({"say": "hello"})).runner
    path = given.home / "runner.sock"
    with anyio.fail_after(PATIENCE):
        async with Runner(given) as runner, serving_link(runner, path) as server:
            yield runner, server, path


class Peer:
    """A process that speaks to a runner in its own way."""

    def __init__(self, path: Path) -> None:
        self._socket = connected(path)
        self._socket.settimeout(PATIENCE)
        self._reader = BatchReader()
        self._messages: list[Message] = []

    def send(self, *messages: Message | bytes) -> None:
        headers = (
            each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages
        )
        self.send_raw(encode_batch((header, b"") for header in headers))

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def read(self) -> Message | None:
        """Return the next message; None if the runner has ended the link."""
        while not self._messages:
            try:
                data = self._socket.recv(1 << 20)
            except ConnectionError:
                return None
            if not data:
                return None
            for batch in self._reader.feed(data):
                self._messages += [json.loads(header) for header, _ in batch]
        return self._messages.pop(0)

    def answer(self, call_id: int) -> Message | None:
        """Return the answer to a call."""
        while (message := self.read()) is not None and message.get("id") != call_id:
            pass
        return message

    def settimeout(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def peer_of(path: Path) -> Iterator[Peer]:
    peer = Peer(path)
    try:
        yield peer
    finally:
        peer.close()


async def links_of(server: LinkServer, most: int) -> None:
    """Wait until a runner has so few links."""
    while server.connections > most:
        await anyio.sleep(0.001)


async def in_thread(work: Any, *arguments: Any) -> Any:
    return await to_thread.run_sync(work, *arguments)


# ---- who may connect -----------------------------------------------------------------------------

SAY_HELLO = """
import os, socket, struct, sys, time
way, path = sys.argv[1:]
header = b'{"is":"hello"}'
if way == "daemon" and os.fork():
    os.wait()
    sys.exit()
if way == "daemon":
    os.setsid()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os._exit(0)
connection = socket.socket(socket.AF_UNIX)
try:
    connection.connect(path)
    if way == "silent":
        time.sleep(0.5)
        sys.exit()
    if way == "noise":
        connection.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    connection.sendall(struct.pack(">III", len(header) + 8, len(header), 0) + header)
    answer = connection.recv(65536)[12:]
except OSError as error:
    answer = repr(error).encode()
sys.stdout.buffer.write(answer)
sys.stdout.flush()
"""


async def said_to(path: Path, way: str = "plain", uid: int | None = None, *, agent: bool) -> str:
    """Say hello from another process; return the answer."""
    command = [PYTHON, "-I", "-S", "-c", SAY_HELLO, way, str(path)]
    if uid is not None:
        command = as_user(uid, command)
    command = guarded_command(command) if agent else command
    done = await anyio.run_process(command, stdin=subprocess.DEVNULL)
    return done.stdout.decode(errors="replace")


@pytest.mark.parametrize("way", ["plain", "daemon", "silent", "noise"])
async def test_a_process_of_an_agent_is_refused_recorded_and_pushed_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    monkeypatch.setattr("quarterdeck.hub.hub.Runner", LinkedRunner)
    given = options(tmp_path / "home", mine=scripted({"say": "hello"}))
    path = given.home / "runner.sock"
    with anyio.fail_after(PATIENCE):
        async with Hub(given) as hub:
            pushed: list[str] = []
            monkeypatch.setattr(
                hub.push, "_send_soon", lambda send: pushed.append(send.__qualname__)
            )
            for _ in range(3):
                answer = await said_to(path, way, agent=True)
                assert ("an agent's process" in answer) == (way in ("plain", "daemon"))
                assert "bootId" not in answer
            assert "bootId" in await said_to(path, agent=False)
            while not (events := await hub.auth.devices.events()):
                await anyio.sleep(0.01)
            assert [(each.what, each.device_id) for each in events] == [("refused-agent", OWNER)]
            detail = str(events[0].detail)
            assert detail.startswith("a connection to the runner by process ")
            assert "(python" in detail
            assert len(pushed) == 1
            assert hub.runner.health().refused_agent == detail
            said = [each.message for each in caplog.records if "of an agent" in each.message]
            assert len(said) == 1


@pytest.mark.parametrize("confine", ["on", "off"])
@pytest.mark.parametrize("detached", [False, True])
async def test_an_agent_that_a_runner_runs_gets_no_link(
    tmp_path: Path, confine: str, detached: bool
) -> None:
    place = Place(tmp_path)
    program = place.project / "hello.py"
    program.write_text(SAY_HELLO)
    path = place.home / "runner.sock"
    async with place.running(confine=confine) as runner, serving_link(runner, path) as server:
        session = await runner.create_session("shell", cwd=str(place.project))
        command = f"{'setsid -w ' * detached}{PYTHON} -I {program} daemon {path} 2>&1; echo END"
        text = await output(runner, session.session_id, command)
        assert "END" in text
        assert "bootId" not in text
        assert "an agent's process" in text or (confine == "on" and "Error" in text), text
        assert ("an agent's process" in text) == bool(server.peers.refused_agent)


async def test_what_was_refused_while_no_hub_was_there_is_recorded_by_the_next_one(
    tmp_path: Path,
) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hello"}))
    path = given.home / "runner.sock"
    with anyio.fail_after(PATIENCE):
        async with Runner(given.runner) as runner, serving_link(runner, path):
            assert "an agent's process" in await said_to(path, agent=True)
            for _ in range(2):  # the second one finds it in the history
                async with connected_runner(path) as remote, Hub(given, remote) as hub:
                    while not (events := await hub.auth.devices.events()):
                        await anyio.sleep(0.01)
                    assert [each.what for each in events] == ["refused-agent"]


def test_refusals_in_between_are_counted() -> None:
    now = [0.0]
    peers = LinkPeers(clock=lambda: now[0])
    agent = type("Found", (), {"pid": 4711, "program": "python\n"})()
    peers._record(agent)  # noqa: SLF001 - the real thing takes a minute
    first = peers.refused_agent
    peers._record(agent)  # noqa: SLF001 - as above
    assert peers.refused_agent == first
    now[0] += RECORD_SECONDS
    peers._record(agent)  # noqa: SLF001 - as above
    assert peers.refused_agent.endswith(", and 1 more before")
    assert "\n" not in peers.refused_agent


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_another_user_gets_no_link_even_where_the_folder_is_open() -> None:
    with open_folder_for_all() as folder:
        async with served(folder) as (_, _, path):
            assert "PermissionError" in await said_to(path, uid=NOBODY, agent=False)
            for each in (path.parent, path):
                each.chmod(0o777)
            answer = await said_to(path, uid=NOBODY, agent=False)
            assert "belongs to another user" in answer
            assert "bootId" not in answer
            assert "bootId" in await said_to(path, uid=0, agent=False)


LISTEN = """
import os, socket, sys, time
way, path = sys.argv[1:]
if way == "left" and os.fork():
    time.sleep(600)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
if way == "left" and os.fork():
    os._exit(0)  # the process that listened has ended
time.sleep(0.1)
print(os.getpid(), flush=True)
hello = b'{"is":"hello","protocol":1,"features":[],"identity":{}}'
while True:
    connection, _ = listener.accept()
    connection.settimeout(60)
    try:
        connection.sendall((len(hello) + 8).to_bytes(4, "big") + len(hello).to_bytes(4, "big"))
        connection.sendall(bytes(4) + hello)
        received = connection.recv(100)
    except OSError:
        received = b""
    print("received", received, flush=True)
"""


@contextmanager
def impostor(path: Path, way: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process of an agent that listens in the place of a runner."""
    command = guarded_command([PYTHON, "-I", "-S", "-c", LISTEN, way, str(path)])
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.terminate()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who listens")
@pytest.mark.parametrize("way", ["stays", "left"])
async def test_a_process_of_an_agent_in_the_place_of_a_restarting_runner_receives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr("quarterdeck.runner.link.connection.WAIT_SECONDS", 0.1)
    given = options(tmp_path / "home", mine=scripted({"say": "hello"}))
    path = given.home / "runner.sock"

    async def serve(runner: Runner, *, task_status: TaskStatus[CancelScope]) -> None:
        with CancelScope() as scope:
            async with serving_link(runner, path):
                task_status.started(scope)
                await anyio.sleep_forever()

    with anyio.fail_after(PATIENCE):
        async with Runner(given.runner) as runner, anyio.create_task_group() as tasks:
            link = await tasks.start(serve, runner)
            async with connected_runner(path) as remote, Hub(given, remote) as hub:
                link.cancel()
                while remote.health().is_connected or path.exists():
                    await anyio.sleep(0.001)
                with impostor(path, way) as process:
                    assert process.stdout is not None
                    assert await in_thread(process.stdout.readline) == "received b''\n"
                    with pytest.raises(RequestRejected, match=r"cannot be reached: .* listen"):
                        await remote.known_agents()
                    with pytest.raises(StartRefused, match="listen"):
                        async with connected_runner(path):
                            pass
                    while not (events := await hub.auth.devices.events()):
                        await anyio.sleep(0.01)
                    assert [each.what for each in events] == ["refused-agent"]
                path.unlink()
                link = await tasks.start(serve, runner)
                while not remote.health().is_connected:
                    await anyio.sleep(0.01)
            link.cancel()


# ---- what is no hub ------------------------------------------------------------------------------

NOISE: dict[str, bytes] = {
    "text": b"GET / HTTP/1.1\r\nHost: runner\r\n\r\n",
    "zeros": bytes(64),
    "a giant size": struct.pack(">I", 0xFFFFFFFF),
    "a batch that is too large before hello": struct.pack(">I", servers.HELLO_BYTES + 1),
    "a message larger than its batch": struct.pack(">III", 8, 1_000_000, 0),
    "half a header": struct.pack(">I", 4) + b"half",
    "no JSON": encode_batch([(b"\xff\xfe", b"")]),
    "deep JSON": encode_batch([(b"[" * 50_000, b"")]),
    "no object": encode_batch([(b"[1]", b"")]),
    "a tag that is no text": encode_batch([(b'{"is":1}', b"")]),
    "a hello of other types": encode_batch([(b'{"is":"hello","oldest":"x"}', b"")]),
    "a call before hello": encode_batch(
        [(b'{"is":"call","id":1,"method":"drain","params":{}}', b"")]
    ),
    "a log before hello": encode_batch([(b'{"is":"open","id":1,"log":1}', b"")]),
    "two hellos": encode_batch([(HELLO, b""), (HELLO, b"")]),
}


@pytest.mark.parametrize("name", NOISE)
async def test_noise_ends_its_own_connection_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(servers, "HELLO_SECONDS", 0.5)
    async with served(tmp_path) as (runner, server, path), connected_runner(path) as remote:
        with peer_of(path) as peer:
            peer.send_raw(NOISE[name])

            def all_read() -> list[Message]:
                found = []
                while (message := peer.read()) is not None:
                    found.append(message)
                return found

            answers = await in_thread(all_read)
        assert [each["is"] for each in answers] == (["hello"] if name == "two hellos" else [])
        await links_of(server, 1)
        assert await remote.known_agents() == await runner.known_agents()
        assert not runner.health().is_draining


async def test_connections_that_say_nothing_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as (_, server, path):
        # Many at once: only so many wait, and a hub is never one of those that are closed.
        idle = [Peer(path) for _ in range(3 * servers.MOST_WAITING)]
        async with connected_runner(path) as remote:
            await links_of(server, servers.MOST_WAITING + 1)
            assert remote.health().is_connected
        for each in idle:
            each.close()
        await links_of(server, 0)
        monkeypatch.setattr(servers, "HELLO_SECONDS", 0.05)
        for start in (b"", struct.pack(">I", 100), struct.pack(">I", 100) + b"half of it"):
            with peer_of(path) as peer:
                peer.send_raw(start)
                assert await in_thread(peer.read) is None
        await links_of(server, 0)


async def test_there_are_only_so_many_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "MOST_LINKS", 3)
    async with (
        served(tmp_path) as (_, server, path),
        connected_runner(path),
        connected_runner(path),
        connected_runner(path),
    ):
        with pytest.raises(StartRefused, match="3 hubs and commands"):
            async with connected_runner(path):
                pass
        assert server.connections == 3


# ---- a hub that is broken ------------------------------------------------------------------------

REFUSED: dict[str, Message] = {
    "an unknown method": {"method": "reboot", "params": {}},
    "a private method": {"method": "__init__", "params": {}},
    "a part of the runner": {"method": "host", "params": {}},
    "a method without its parameters": {"method": "create_session", "params": {}},
    "a parameter of another type": {
        "method": "add_prompt",
        "params": {"session_id": 1, "key": [], "prompt": {}},
    },
    "an actor of another type": {
        "method": "cancel_turn",
        "params": {"session_id": "x", "by": "owner"},
    },
    "a log that is not followed": {
        "method": "read_log",
        "params": {"log": 7, "after": 0, "limit": 1},
    },
    "a log of another type": {"method": "read_log", "params": {"log": {}, "path": "/etc/passwd"}},
    "settings of another type": {"method": "reconfigure", "params": {"agents": 1}},
    "an endpoint request of another type": {"method": "endpoint_request", "params": {"id": []}},
}


async def test_calls_that_are_not_calls_get_an_error_and_end_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path) as (runner, _, path):
        before = runner.policy()
        with peer_of(path) as peer:
            peer.send(HELLO)
            for number, call in enumerate(REFUSED.values()):
                peer.send({"is": "call", "id": number, **call})
                answer = await in_thread(peer.answer, number)
                assert answer is not None
                assert answer["is"] == "failure", (call, answer)
                assert answer["error"]["code"] in ("invalid", "unsupported", "not-found"), answer
            peer.send(
                {"is": "from-the-future"}, {"is": "call", "id": 99, "method": "ping", "params": {}}
            )
            assert (await in_thread(peer.answer, 99))["is"] == "result"
        assert runner.policy() == before
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    "messages",
    [
        [{"is": "call", "id": 1, "method": "wait_prompt", "params": {}}] * 2,
        [{"is": "ack", "size": -1}],
        [HELLO],
        [{"is": "call", "id": 1, "method": "read_log", "params": {}, "sizes": [5]}],
        [{"is": "call", "id": 1, "method": "read_log", "params": {}, "sizes": [-1, 1]}],
    ],
    ids=["a number twice", "a negative size", "hello again", "sizes of nothing", "negative parts"],
)
async def test_a_hub_that_breaks_the_protocol_is_disconnected(
    tmp_path: Path, messages: list[Any]
) -> None:
    async with served(tmp_path) as (_, server, path):
        with peer_of(path) as peer:
            peer.send(HELLO)
            peer.send(*messages)

            def last() -> None:
                while peer.read() is not None:
                    pass

            await in_thread(last)
        await links_of(server, 0)


async def test_a_hub_that_never_reads_does_not_fill_the_memory(tmp_path: Path) -> None:
    given = scripted({"repeat": 40, "steps": [{"say": "x" * 50_000}]})
    opts = options(tmp_path / "home", mine=given).runner
    path = opts.home / "runner.sock"
    with anyio.fail_after(PATIENCE):
        async with Runner(opts) as runner, serving_link(runner, path) as server:
            session = await runner.create_session("mine", cwd=str(tmp_path))
            await runner.add_prompt(session.session_id, "k", [{"type": "text", "text": "go"}])
            await runner.wait_prompt(session.session_id, "k")
            before = resident_bytes()
            with peer_of(path) as peer:
                peer.send(HELLO)
                params = {"session_id": session.session_id, "after": 0, "limit": 100}
                calls = [
                    {"is": "call", "id": number, "method": "read_events", "params": params}
                    for number in range(2_000)
                ]  # their results have 4 GB

                most = [0]

                def flood() -> None:
                    peer.settimeout(1)
                    with suppress(OSError):  # nothing more is read of it, or it is disconnected
                        for call in calls:
                            peer.send(call)

                async def watch() -> None:
                    while True:
                        most[0] = max(most[0], resident_bytes() - before)
                        await anyio.sleep(0.01)

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(watch)
                    await in_thread(flood)
                    await runner.known_agents()  # it works on
                    tasks.cancel_scope.cancel()
                assert most[0] < 600 << 20
            await links_of(server, 0)


async def test_a_hub_follows_only_so_many_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "MOST_LOGS", 5)
    async with served(tmp_path) as (_, _, path):
        with peer_of(path) as peer:
            peer.send(HELLO)
            peer.send(*({"is": "open", "id": number, "log": number} for number in range(8)))
            answers = [await in_thread(peer.answer, number) for number in (7,)]
            assert answers[0]["error"]["code"] == "too-many"
