"""Commands as processes of their own, forked from one that has imported everything already.

Starting Python and importing the hub costs a second, and hundreds of tests run a command. What a
test gets is a real process with its own standard streams, environment, folder and exit status;
only the way to `main` is shorter. Tests of that way start the command as people do.
"""

from __future__ import annotations

import array
import importlib
import io
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

ROOT = Path(__file__).parents[2]
SECONDS = 60  # on a busy machine
_LENGTH = 8  # bytes for the length of a request


class Forked:
    """A command that runs, to be used as `subprocess.Popen` is."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        folder: Path,
        streams: tuple[int, int, int],
        *,
        is_leader: bool = False,
    ) -> None:
        """`streams` are its standard ones, and closed here; a leader has a session of its own."""
        self.args = list(arguments)
        self.returncode: int | None = None
        self.stdout: TextIO | None = None
        self.stderr: TextIO | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_address())
        request = {
            "arguments": self.args,
            "env": dict(env),
            "folder": str(folder),
            "isLeader": is_leader,
        }
        body = json.dumps(request).encode()
        fds = array.array("i", streams)
        length = len(body).to_bytes(_LENGTH, "big")
        self._connection.sendmsg([length], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        self._connection.sendall(body)
        for each in set(streams):
            os.close(each)
        self.pid = self._number()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.wait(SECONDS)
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float = SECONDS) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = SECONDS) -> tuple[str, str]:
        """Return what is left to read of both outputs when it has ended."""
        with ThreadPoolExecutor(2) as readers:
            outputs = [readers.submit(_rest, stream) for stream in (self.stdout, self.stderr)]
            try:
                first, second = (each.result(timeout) for each in outputs)
            except TimeoutError as error:
                self.kill()  # else the readers would wait for ever, and we for them
                raise subprocess.TimeoutExpired(self.args, timeout) from error
        self.wait(timeout)
        return first, second

    def _end(self) -> None:
        self.returncode = self._number()
        self._connection.close()

    def _number(self) -> int:
        return int.from_bytes(_received(self._connection, 4), "big", signed=True)


def _rest(stream: TextIO | None) -> str:
    return "" if stream is None or stream.closed else stream.read()


def start(arguments: Sequence[str], env: Mapping[str, str], folder: Path, stdin: int) -> Forked:
    """Start a command whose outputs are read."""
    (output, stdout), (errors, stderr) = os.pipe(), os.pipe()
    process = Forked(arguments, env, folder, (stdin, stdout, stderr))
    process.stdout = os.fdopen(output, encoding="utf-8")
    process.stderr = os.fdopen(errors, encoding="utf-8")
    return process


def run(
    arguments: Sequence[str], env: Mapping[str, str], folder: Path, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `quarterdeck` with these arguments to its end."""
    stdin, keyboard = os.pipe()
    with start(arguments, env, folder, stdin) as process:
        try:
            with suppress(BrokenPipeError):  # it does not want to know
                os.write(keyboard, typed.encode())  # less than a pipe holds
        finally:
            os.close(keyboard)
        output = process.communicate()
        return subprocess.CompletedProcess(process.args, process.wait(), *output)


@cache
def _address() -> str:
    """Return where the process listens that is forked from; started once, it ends with us."""
    folder = tempfile.mkdtemp(prefix="quarterdeck-fork-")
    address = f"{folder}/socket"
    command = [sys.executable, "-m", "tests.cli.forking", address]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,  # its end is ours
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    _kept.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return address


_kept: list[subprocess.Popen[bytes]] = []


# ---- the process that is forked from -----------------------------------------------------------


def _serve(address: str) -> None:
    from quarterdeck.cli.main import COMMANDS  # noqa: PLC0415  # not in the tests' own process

    for name in COMMANDS:
        importlib.import_module(f"quarterdeck.cli.commands.{name}").load()
    importlib.import_module("quarterdeck.cli.dispatch")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for the waiting ones
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        ready.register(0, selectors.EVENT_READ)
        while True:
            if any(key.fd == 0 for key, _ in ready.select()):
                Path(address).unlink()
                Path(address).parent.rmdir()
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                ready.close()
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _attend(connection)
            connection.close()


def _attend(connection: socket.socket) -> None:
    """Fork once more into the command; say how it ended."""
    first, ancillary, _, _ = connection.recvmsg(_LENGTH, socket.CMSG_SPACE(3 * 4))
    fds = array.array("i")
    fds.frombytes(ancillary[0][2])
    request = json.loads(_received(connection, int.from_bytes(first, "big")))
    child = os.fork()
    if child == 0:
        connection.close()
        if request["isLeader"]:
            os.setsid()
        _become(request, list(fds))
        sys.exit(_main(request["arguments"]))
    connection.sendall(child.to_bytes(4, "big"))
    for each in fds:
        os.close(each)
    _, status = os.waitpid(child, 0)
    connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
    os._exit(0)


def _become(request: Mapping[str, Any], fds: list[int]) -> None:
    """Take over the streams, environment and folder of the process that runs the command."""
    for number, each in enumerate(fds):
        os.dup2(each, number)
    for each in fds:
        os.close(each)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), encoding)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(1, "w")), encoding, line_buffering=os.isatty(1)
    )
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w")), encoding, "backslashreplace", line_buffering=True
    )


def _main(arguments: list[str]) -> int:
    from quarterdeck.cli.main import main  # noqa: PLC0415  # not in the tests' own process

    sys.argv = ["quarterdeck", *arguments]
    return main()


def _received(connection: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        assert part, "the process that is forked from has gone"
        parts += part
    return parts


if __name__ == "__main__":
    _serve(sys.argv[1])
