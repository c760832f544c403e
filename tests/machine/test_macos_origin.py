"""Which process opened a connection, on a machine like macOS."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.machine import macos_processes, process_origin, process_table
from quarterdeck.machine.process_origin import (
    Origin,
    PeerOrigin,
    TcpOrigins,
    boot_seconds,
    found_origins,
    origin_of_pid,
    origin_of_socket,
)
from quarterdeck.machine.socket_peers import SocketPeer, TcpAddress, is_own_address, socket_peer
from tests.fake_macos import libproc
from tests.fake_macos.in_process import macos
from tests.machine.test_process_origin import CONNECT, CONNECT_UNIX, child, origin_at

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the fake library reads /proc"),
    pytest.mark.usefixtures(macos.__name__),
]

WAIT = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"


@pytest.mark.parametrize(("is_agent", "expected"), [(True, "agent"), (False, "other")])
@pytest.mark.parametrize(
    ("listens", "connects"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")],
)
def test_the_holder_of_a_tcp_connection_is_found(
    listens: str, connects: str, is_agent: bool, expected: Origin
) -> None:
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    with socket.socket(family) as listener:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((listens, 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        with child(CONNECT, connects, port, is_agent=is_agent):
            found = origin_at(listener)
    assert found is not None
    assert found.origin == expected


def test_a_tcp_connection_that_no_process_shows_is_unknown() -> None:
    here, peer = TcpAddress("127.0.0.1", 7272), TcpAddress("127.0.0.1", 1)
    assert TcpOrigins().find(peer, here) == PeerOrigin("unknown")


def test_an_address_of_another_machine_is_not_checked() -> None:
    assert TcpOrigins().find(TcpAddress("192.0.2.7", 4711), TcpAddress("127.0.0.1", 1)) is None
    assert is_own_address(TcpAddress("127.0.0.1", 1))
    assert is_own_address(TcpAddress("::1", 1))
    assert not is_own_address(TcpAddress("2001:db8::1", 1))
    TcpOrigins().refresh()  # does nothing


def test_an_address_of_one_link_is_compared_without_its_interface() -> None:
    unscoped: Any = vars(process_origin)["_unscoped"]
    plain = socket.inet_pton(socket.AF_INET6, "fe80::7")
    assert unscoped(socket.inet_pton(socket.AF_INET6, "fe80:4::7")) == plain
    other = socket.inet_pton(socket.AF_INET6, "2001:4::7")
    assert unscoped(other) == other


@pytest.mark.parametrize(("is_agent", "expected"), [(True, "agent"), (False, "other")])
def test_the_process_at_a_unix_socket_is_found(
    tmp_path: Path, is_agent: bool, expected: Origin
) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with child(CONNECT_UNIX, str(path), is_agent=is_agent) as process:
            accepted, _ = listener.accept()
            found = origin_of_socket(accepted, boot_seconds())
            assert found.origin == expected
            assert found.program.startswith("python")
            peer = socket_peer(accepted)
            assert peer == SocketPeer(pid=found.pid, uid=os.geteuid(), gid=os.getegid())
            if not is_agent:  # a number that a newer process has
                assert found.pid == process.pid
                assert origin_of_socket(accepted, boot_seconds() - 3600).origin == "gone"
        process.wait()
        with accepted:
            assert origin_of_socket(accepted, boot_seconds()).origin == "gone"
            accepted.close()
            assert origin_of_socket(accepted, boot_seconds()).origin == "gone"


ORPHAN = """
import os, subprocess, sys
options = {"start_new_session": sys.argv[1] != "group"}
if sys.argv[1] == "clean":
    options["env"] = {}
code = "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"
python = sys.argv[2]
if os.fork() == 0:
    subprocess.Popen([python, "-I", "-S", "-c", code], **options)
    os._exit(0)
os.wait()
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("keeps", "expected"),
    [("group", "agent"), ("environment", "agent"), ("clean", "unknown")],
)
def test_a_process_of_an_agent_that_lost_its_parent(keeps: str, expected: Origin) -> None:
    with child(ORPHAN, keeps, sys.executable, is_agent=True) as guard:
        assert guard.stdout is not None
        orphan = int(guard.stdout.readline())
        libproc.LOST.add(orphan)
        assert origin_of_pid(orphan) == expected


def test_a_process_that_launchd_has_started_is_no_agents() -> None:
    """A browser, for example; one whose first parent is not known can be anything."""
    detached = [sys.executable, "-c", f"import os\nif os.fork(): os._exit(0)\nos.setsid()\n{WAIT}"]
    with subprocess.Popen(detached, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        found = macos_processes.find(pid)
        assert found is not None
        if found.parent == 1:  # else a subreaper above these tests has it
            assert origin_of_pid(pid) == "other"
            libproc.LOST.add(pid)
            assert origin_of_pid(pid) == "unknown"
        assert process.stdin is not None
        process.stdin.close()


def test_an_agent_is_recognised_by_the_variable_even_if_its_guards_were_killed() -> None:
    variable = f"{macos_processes.MARK_VARIABLE.decode()}=1-2"
    command = ["env", variable, sys.executable, "-c", WAIT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert origin_of_pid(pid) == "agent"
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.parametrize("words", [(), ("-I",), ("-I", "-S")])
def test_a_python_without_a_program_is_no_guard(words: tuple[str, ...]) -> None:
    command = [sys.executable, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert origin_of_pid(process.pid) == "other"
        assert process.stdin is not None
        process.stdin.close()


def test_this_machine_says_that_it_finds_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_origins() == "most"
    monkeypatch.setattr(process_origin, "process_table", lambda: None)
    assert found_origins() == "none"
    assert origin_of_pid(os.getpid()) == "unknown"
    assert TcpOrigins().find(TcpAddress("127.0.0.1", 1), TcpAddress("127.0.0.1", 2)) == PeerOrigin(
        "unknown"
    )


def test_a_library_without_libproc_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(macos_processes, "_loaded", [])  # the C library of Linux
    assert process_table.table_of("darwin") is None
    assert process_table.table_of("freebsd") is None


@pytest.mark.parametrize("name", ["proc_pidinfo", "proc_listpids", "proc_pidfdinfo", "sysctl"])
def test_an_answer_of_another_size_is_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = libproc.library()
    setattr(library, name, lambda *_: 3)
    monkeypatch.setattr(macos_processes, "_loaded", [library])
    pid = os.getpid()
    if name == "proc_pidinfo":
        assert macos_processes.find(pid) is None
        assert macos_processes.started_at(pid) is None
        assert macos_processes.resident_bytes(pid) == 0
        assert macos_processes.has_lost_parent(pid)
        assert origin_of_pid(pid) == "other"  # this process itself
    elif name == "proc_listpids":
        assert macos_processes.all_pids() == []
    elif name == "proc_pidfdinfo":
        assert macos_processes.tcp_connections(pid) == []
    else:
        assert macos_processes.arguments(pid) == ([], [])
        assert macos_processes.mark_of(pid) is None


def test_the_table_of_each_system_answers_alike() -> None:
    linux, mac = process_table.LinuxTable(), process_table.MacTable()
    with child(WAIT, is_agent=True) as guard:
        assert guard.stdout is not None
        agent = int(guard.stdout.readline())
        for pid in (os.getpid(), os.getppid(), guard.pid, agent):
            assert mac.parent(pid) == linux.parent(pid)
            assert mac.program(pid) == linux.program(pid)
            assert (
                abs((mac.clock() - mac.started_at(pid)) - (linux.clock() - linux.started_at(pid)))
                < 1
            )
        assert list(mac.words(agent)) == [
            *(word.encode() for word in (sys.executable, "-S", "-c", WAIT)),
        ]
        assert list(mac.words(guard.pid))[1:3] == [b"-I", b"-S"]
    guard.wait()
    assert mac.parent(agent) == linux.parent(agent) == process_table.ENDED
    assert mac.started_at(agent) == linux.started_at(agent) == float("inf")
