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
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SECONDS = 60  # on a busy machine
_LENGTH = 8  # bytes that tell how long a request is


def run(
    arguments: Sequence[str], env: Mapping[str, str], folder: Path, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `quarterdeck` with these arguments to its end."""
    (stdin, keyboard), (output, stdout), (complaints, stderr) = os.pipe(), os.pipe(), os.pipe()
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(_address())
        request = {"arguments": list(arguments), "env": dict(env), "folder": str(folder)}
        body = json.dumps(request).encode()
        told = len(body).to_bytes(_LENGTH, "big") + body
        fds = array.array("i", (stdin, stdout, stderr))
        asking.sendmsg([told[:_LENGTH]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        asking.sendall(told[_LENGTH:])
        for each in (stdin, stdout, stderr):
            os.close(each)
        said = _communicated(keyboard, typed.encode(), output, complaints)
        asking.settimeout(SECONDS)
        status = int.from_bytes(_received(asking, 4), "big", signed=True)
    return subprocess.CompletedProcess(list(arguments), status, *said)


def _communicated(keyboard: int, typed: bytes, *outputs: int) -> tuple[str, str]:
    """Write what is typed, and read all that is said, until nobody can say more."""
    said = dict.fromkeys(outputs, b"")
    deadline = time.monotonic() + SECONDS
    with selectors.DefaultSelector() as ready:
        for output in outputs:
            ready.register(output, selectors.EVENT_READ)
        if typed:
            ready.register(keyboard, selectors.EVENT_WRITE)
        else:
            os.close(keyboard)
        while ready.get_map():
            found = ready.select(max(0.0, deadline - time.monotonic()))
            assert found, f"the command does not end: {said}"
            for key, _ in found:
                place = key.fd
                if place == keyboard:
                    typed = typed[_written(keyboard, typed) :]
                    is_over = not typed
                else:
                    part = os.read(place, 65536)
                    said[place] += part
                    is_over = not part
                if is_over:
                    ready.unregister(place)
                    os.close(place)
    first, second = (text.decode() for text in said.values())
    return first, second


def _written(keyboard: int, typed: bytes) -> int:
    try:
        return os.write(keyboard, typed[:4096])
    except BrokenPipeError:  # it does not want to know
        return len(typed)


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
    from quarterdeck.cli.main import VERBS  # noqa: PLC0415  # not in the tests' own process

    for module, _summary in VERBS.values():
        importlib.import_module(module)
    importlib.import_module("quarterdeck.cli.command")
    importlib.import_module("quarterdeck.cli.parsers")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
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
            asking, _ = listener.accept()
            if os.fork() == 0:
                ready.close()
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _attend(asking)
            asking.close()


def _attend(asking: socket.socket) -> None:
    """Fork once more into the command; say how it ended."""
    first, ancillary, _, _ = asking.recvmsg(_LENGTH, socket.CMSG_SPACE(3 * 4))
    fds = array.array("i")
    fds.frombytes(ancillary[0][2])
    request = json.loads(_received(asking, int.from_bytes(first, "big")))
    child = os.fork()
    if child == 0:
        asking.close()
        _become(request, list(fds))
        sys.exit(_main(request["arguments"]))
    for each in fds:
        os.close(each)
    _, status = os.waitpid(child, 0)
    asking.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
    os._exit(0)


def _become(request: Mapping[str, Any], fds: list[int]) -> None:
    """Take over the streams, the environment and the folder of whoever runs the command."""
    for number, each in enumerate(fds):
        os.dup2(each, number)
        os.close(each)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), encoding)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w")), encoding)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w")), encoding, "backslashreplace", line_buffering=True
    )


def _main(arguments: list[str]) -> int:
    from quarterdeck.cli.main import main  # noqa: PLC0415  # not in the tests' own process

    sys.argv = ["quarterdeck", *arguments]
    return main()


def _received(asking: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = asking.recv(count - len(parts))
        assert part, "the process that is forked from has gone"
        parts += part
    return parts


if __name__ == "__main__":
    _serve(sys.argv[1])
