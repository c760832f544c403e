"""A program that calls a hub in every way that a process can; run by `test_local_peers`.

    python calling_program.py WAY

It reads one JSON object from standard input, `{"socket": PATH, "port": PORT, "requests": [TEXT]}`,
and prints a JSON list with `[STATUS, BODY]` for each request. With a port it connects by TCP to
`host`, else to the socket. Status 0 is a closed connection.

    plain     from this process
    daemon    from a process that was forked twice and has a session of its own
    orphan    after its guards were killed
    lowered   the same, after it lowered the limit that marks it
    thread    from a thread with a table of files of its own
    leaving   the process that connects ends as soon as it has sent; nothing is printed for it
    flight    the connection is put into a message that is never received; the same
    outside   the connection is passed to the process at the other end of descriptor `outside`
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import resource
import signal
import socket
import sys
import threading
import time
from typing import Any

CLONE_FILES = 0x400
RLIMIT_MSGQUEUE = 12
SECONDS = 60


def opened(given: dict[str, Any]) -> socket.socket:
    if given.get("port"):
        address = (given.get("host", "127.0.0.1"), given["port"])
        return socket.create_connection(address, timeout=SECONDS)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SECONDS)
    connection.connect(given["socket"])
    return connection


def answer(connection: socket.socket) -> list[Any]:
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            piece = connection.recv(65536)
            if not piece:
                return [0, ""]
            data += piece
    except ConnectionError:
        return [0, ""]
    head, _, body = data.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    lengths = [
        int(line.partition(b":")[2])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    while lengths and len(body) < lengths[0] and status >= 400:
        body += connection.recv(65536)
    return [status, body.decode(errors="replace") if status >= 400 else ""]


def report(results: list[Any]) -> None:
    sys.stdout.write(json.dumps(results) + "\n")
    sys.stdout.flush()


def call_all(given: dict[str, Any]) -> None:
    results = []
    for request in given["requests"]:
        with opened(given) as connection:
            connection.sendall(request.encode())
            results.append(answer(connection))
    report(results)


def by_daemon(given: dict[str, Any]) -> None:
    done, working = os.pipe()
    child = os.fork()
    if child:
        os.close(working)
        os.waitpid(child, 0)
        os.read(done, 1)  # until the daemon ends: a guard would end it with us
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    deadline = time.monotonic() + SECONDS
    while os.getppid() == os.getsid(0) and time.monotonic() < deadline:
        time.sleep(0.001)  # until the parent has ended
    call_all(given)
    os._exit(0)


def by_orphan(given: dict[str, Any]) -> None:
    """Kill both guards: stopped first, they cannot react."""
    inner = os.getppid()
    with open(f"/proc/{inner}/stat") as file:  # noqa: PTH123 - as small as possible
        outer = int(file.read().rpartition(")")[2].split()[1])
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for guard in (inner, outer):
            os.kill(guard, number)
    deadline = time.monotonic() + SECONDS
    while os.getppid() in (inner, outer) and time.monotonic() < deadline:
        time.sleep(0.001)
    call_all(given)


def by_lowered(given: dict[str, Any]) -> None:
    resource.prlimit(0, RLIMIT_MSGQUEUE, (0, 0))
    by_orphan(given)


def by_thread(given: dict[str, Any]) -> None:
    def work() -> None:
        ctypes.CDLL(None).unshare(CLONE_FILES)
        call_all(given)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def by_leaving(given: dict[str, Any]) -> None:
    for request in given["requests"]:
        child = os.fork()
        if child == 0:
            opened(given).sendall(request.encode())
            os._exit(0)
        os.waitpid(child, 0)
    report([])


def by_flight(given: dict[str, Any]) -> None:
    kept = []
    for request in given["requests"]:
        connection = opened(given)
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        rights = array.array("i", [connection.fileno()])
        ends[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        connection.sendall(request.encode())
        connection.close()
        kept.append(ends)
    report([])
    sys.stdin.read()  # until the test is done


def by_outside(given: dict[str, Any]) -> None:
    with socket.socket(fileno=given["outside"]) as outside:
        for request in given["requests"]:
            connection = opened(given)
            connection.sendall(request.encode())
            rights = array.array("i", [connection.fileno()])
            outside.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            if given.get("keeps"):
                answer(connection)
            connection.close()
    report([])


WAYS = {
    "plain": call_all,
    "daemon": by_daemon,
    "orphan": by_orphan,
    "lowered": by_lowered,
    "thread": by_thread,
    "leaving": by_leaving,
    "flight": by_flight,
    "outside": by_outside,
}

if __name__ == "__main__":
    WAYS[sys.argv[1]](json.loads(sys.stdin.readline()))
