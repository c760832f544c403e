"""Which process opened a connection, and whether it is an agent's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.machine import guarded_command, process_origin, process_table
from quarterdeck.machine.guard_program import MARK_BYTES
from quarterdeck.machine.process_origin import (
    Origin,
    PeerOrigin,
    TcpOrigins,
    below_guards,
    boot_seconds,
    found_origins,
    origin_of_pid,
    origin_of_socket,
)
from quarterdeck.machine.process_table import ENDED, NOT_SHOWN
from quarterdeck.machine.socket_peers import TcpAddress, is_own_address, socket_peer, tcp_end

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says it")

CONNECT = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
connection = socket.socket(family)
if len(sys.argv) > 3:
    connection.bind((sys.argv[3], 0))
connection.connect((sys.argv[1], int(sys.argv[2])))
sys.stdin.read()
"""
CONNECT_UNIX = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
sys.stdin.read()
"""


@contextmanager
def child(code: str, *arguments: str, is_agent: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-S", "-c", code, *arguments]
    with subprocess.Popen(
        guarded_command(command) if is_agent else command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()


def origin_at(listener: socket.socket) -> PeerOrigin | None:
    accepted, _ = listener.accept()
    with accepted:
        ends = TcpAddress.of(accepted.getpeername()), TcpAddress.of(accepted.getsockname())
        return TcpOrigins().find(*ends)


def lan_address() -> str:
    """Return an address of this machine that is not loopback; loopback if there is no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.3"
        return str(probe.getsockname()[0])


@pytest.mark.parametrize(("is_agent", "expected"), [(True, "agent"), (False, "other")])
@pytest.mark.parametrize(
    ("listens", "connects", "source"),
    [
        ("127.0.0.1", "127.0.0.1", None),
        ("127.0.0.1", "127.0.0.1", "127.9.8.7"),
        ("0.0.0.0", "127.0.0.2", None),
        ("0.0.0.0", "LAN", None),
        ("0.0.0.0", "127.0.0.1", "LAN"),
        ("::1", "::1", None),
        ("::", "::1", None),
        ("::", "127.0.0.1", None),
        ("::", "::ffff:127.0.0.1", None),
        ("::", "LAN", None),
    ],
)
def test_a_tcp_connection_is_found_whatever_addresses_it_has(
    listens: str, connects: str, source: str | None, is_agent: bool, expected: Origin
) -> None:
    connects = lan_address() if connects == "LAN" else connects
    source = lan_address() if source == "LAN" else source
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    with socket.socket(family) as listener:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((listens, 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        arguments = [connects, port, *([source] if source else [])]
        with child(CONNECT, *arguments, is_agent=is_agent):
            found = origin_at(listener)
    assert found is not None
    assert found.origin == expected


def test_a_connection_of_this_process_is_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()):
            found = origin_at(listener)
        assert found == PeerOrigin("other", os.getpid())


def test_a_connection_that_is_closed_is_gone_although_another_listens_at_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        client.bind(("127.0.0.1", 0))
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            peer, here = (
                TcpAddress.of(accepted.getpeername()),
                TcpAddress.of(accepted.getsockname()),
            )
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()  # resets it
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind((peer.host, peer.port))
                other.listen()
                assert tcp_end(peer, here) is None
                assert TcpOrigins().find(peer, here) == PeerOrigin("gone")


def test_an_address_of_another_machine_is_not_checked() -> None:
    here = TcpAddress("127.0.0.1", 7272)
    assert TcpOrigins().find(TcpAddress("192.0.2.7", 4711), here) is None
    assert TcpOrigins().find(TcpAddress("2001:db8::7", 4711), TcpAddress("::1", 7272)) is None


def test_which_addresses_are_of_this_machine() -> None:
    own = ("127.0.0.1", "127.200.3.4", "::1", lan_address())
    assert all(is_own_address(TcpAddress(each, 1)) for each in own)
    others = ("192.0.2.1", "8.8.8.8", "2001:db8::1")
    assert not any(is_own_address(TcpAddress(each, 1)) for each in others)


def test_an_ipv4_address_in_ipv6_is_ipv4() -> None:
    assert TcpAddress.of(("::ffff:127.0.0.1", 80, 0, 0)) == TcpAddress("127.0.0.1", 80)
    assert TcpAddress.of(("fe80::1%eth0", 80, 0, 3)) == TcpAddress("fe80::1", 80, 3)


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
            assert origin_of_socket(accepted, boot_seconds()).origin == expected
        process.wait()
        with accepted:
            assert origin_of_socket(accepted, boot_seconds()).origin == "gone"
            accepted.close()
            assert origin_of_socket(accepted, boot_seconds()).origin == "gone"


def test_a_number_that_was_given_to_a_newer_process_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the handle of newer kernels, the time of the start says it."""
    monkeypatch.setattr("quarterdeck.machine.socket_peers._SO_PEERPIDFD", 9_999)
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        before = boot_seconds() - 1
        with child(CONNECT_UNIX, str(path)):
            accepted, _ = listener.accept()
            with accepted:
                assert origin_of_socket(accepted, boot_seconds()).origin == "other"
                assert origin_of_socket(accepted, before).origin == "gone"


def test_a_peer_outside_of_our_namespace_is_no_agent_of_ours() -> None:
    assert origin_of_pid(0) == "other"


def test_a_process_that_ends_while_we_walk_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent: Any = vars(process_origin)["_parent"]
    calls = [0]

    def vanishing(pid: int) -> Any:
        calls[0] += 1
        return ENDED if calls[0] == 2 else parent(pid)

    with child("import sys; sys.stdin.read()") as process:
        monkeypatch.setattr(process_origin, "_parent", vanishing)
        assert origin_of_pid(process.pid) == "other"
        monkeypatch.setattr(process_origin, "_parent", lambda _pid: ENDED)
        assert origin_of_pid(process.pid) == "gone"
        monkeypatch.setattr(process_origin, "_parent", lambda _pid: NOT_SHOWN)
        assert origin_of_pid(process.pid) == "unknown"


NESTED = """
import subprocess, sys
from quarterdeck.machine import guarded_command
from quarterdeck.machine.process_origin import origin_of_pid
sleep = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
plain = subprocess.Popen(sleep, **pipes)
guarded = subprocess.Popen(guarded_command(sleep), **pipes)
plain.stdout.readline(), guarded.stdout.readline()  # both run
print(origin_of_pid(plain.pid), origin_of_pid(guarded.pid), flush=True)
plain.stdin.close()
guarded.stdin.close()
guarded.wait()
"""


def test_a_hub_that_an_agent_starts_serves_that_agent() -> None:
    command = guarded_command([sys.executable, "-c", NESTED])
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["other", "agent"]


LOWERED = """
import resource, sys
limit = int(sys.argv[1])
resource.prlimit(0, 12, (min(limit, resource.prlimit(0, 12)[0]), limit))
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("limit", [0, 1, MARK_BYTES - 1, MARK_BYTES])
def test_a_process_that_lowers_its_mark_is_still_marked(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with child(LOWERED, str(limit)) as process:  # below no guard, as if it had killed them
        assert process.stdout is not None
        process.stdout.readline()
        assert origin_of_pid(process.pid) == "agent"
        limits: Any = vars(process_table)["_marked_limit"]
        # A hub that an agent started has such a limit itself.
        monkeypatch.setattr(process_table, "_marked_limit", lambda pid: min(limits(pid), limit))
        assert origin_of_pid(process.pid) == "other"


OTHER_HUB = """
import subprocess, sys
from quarterdeck.machine import guarded_command
agent = [sys.executable, "-c", "import os, sys; print(os.getpid(), flush=True); sys.stdin.read()"]
subprocess.run(guarded_command(agent))
"""


def test_the_agents_of_another_hub_are_agents() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_HUB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        agent = int(other.stdout.readline())
        assert origin_of_pid(agent) == "agent"
        assert origin_of_pid(other.pid) == "other"
        other.stdin.close()


SHARING_HUB = """
import socket, subprocess, sys
from quarterdeck.machine import guarded_command
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sys.stdin.readline()
agent = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
subprocess.run(guarded_command(agent), pass_fds=[connection.fileno()])
"""


def test_a_connection_that_an_agent_of_another_hub_shares_is_an_agents() -> None:
    origins = TcpOrigins()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        subprocess.Popen(
            [sys.executable, "-c", SHARING_HUB, str(listener.getsockname()[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as other,
    ):
        listener.settimeout(30)
        assert other.stdin is not None
        assert other.stdout is not None
        accepted, _ = listener.accept()
        ends = TcpAddress.of(accepted.getpeername()), TcpAddress.of(accepted.getsockname())
        origins.refresh()
        assert origins.find(*ends) == PeerOrigin("other", other.pid)
        other.stdin.write(b"\n")
        other.stdin.flush()
        other.stdout.readline()
        found = origins.find(*ends)
        assert found is not None
        assert found.origin == "agent"
        origins.refresh()
        assert origins.find(*ends) == found
        accepted.close()
        other.stdin.close()


def test_a_process_that_hides_what_it_has_open_is_taken_for_the_holder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    holds: Any = vars(process_origin)["_holds"]
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        child(CONNECT, "127.0.0.1", str(listener.getsockname()[1]), is_agent=True),
    ):
        accepted, _ = listener.accept()
        agents = below_guards(os.getpid())

        def hiding(pid: int, link: str) -> bool | None:
            return None if pid in agents else holds(pid, link)

        monkeypatch.setattr(process_origin, "_holds", hiding)
        ends = TcpAddress.of(accepted.getpeername()), TcpAddress.of(accepted.getsockname())
        found = TcpOrigins().find(*ends)
        assert found is not None
        assert found.origin == "agent"
        # One that killed its guards is not below them any more.
        monkeypatch.setattr(TcpOrigins, "_agents", lambda _origins: set())
        found = TcpOrigins().find(*ends)
        assert found is not None
        assert found.origin == "agent"
        monkeypatch.setattr(process_origin, "origin_of_pid", lambda _pid: "other")
        found = TcpOrigins().find(*ends)
        assert found is not None
        assert found.origin == "unknown"
        accepted.close()


def test_an_old_process_that_never_called_is_found_without_searching_idle_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    holds: Any = vars(process_origin)["_holds"]
    searched: list[int] = []

    def recorded(pid: int, link: str) -> bool | None:
        searched.append(pid)
        found: bool | None = holds(pid, link)
        return found

    wait = "import sys; sys.stdin.readline();"
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:
        port = str(listener.getsockname()[1])
        caller = stack.enter_context(child(wait + CONNECT, "127.0.0.1", port))
        running = "import sys; print(flush=True); sys.stdin.read()"
        idle = [stack.enter_context(child(running)) for _ in range(5)]
        for process in idle:  # all are newer, and have fewer files open
            assert process.stdout is not None
            process.stdout.readline()
        origins = TcpOrigins()
        origins.refresh()
        assert caller.stdin is not None
        caller.stdin.write(b"\n")
        caller.stdin.flush()
        accepted, _ = listener.accept()
        monkeypatch.setattr(process_origin, "_holds", recorded)
        ends = TcpAddress.of(accepted.getpeername()), TcpAddress.of(accepted.getsockname())
        assert origins.find(*ends) == PeerOrigin("other", caller.pid)
        accepted.close()
    is_counted = os.stat("/proc/self/fd").st_size > 0  # noqa: PTH116 - since Linux 6.2
    if is_counted:
        assert not {process.pid for process in idle} & set(searched)
    assert searched[-1] == caller.pid


def test_this_machine_can_say_it() -> None:
    assert found_origins() == "all"
    with socket.socket() as plain:
        assert socket_peer(plain) is None


def test_children_are_found_without_the_list_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    with child(code, is_agent=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        known = below_guards(os.getpid())
        assert process.pid in known
        assert len(known) > 2
        monkeypatch.setattr(process_origin, "_HAS_CHILDREN", False)
        assert known <= below_guards(os.getpid())


def test_a_program_with_the_name_of_the_guard_among_its_arguments_is_no_guard() -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    for names in (("/src/guard_program.py",), ("-I", "-S", "/src/guard_program.py")):
        with child(code, *names) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert origin_of_pid(process.pid) == "other"
