"""The workspace sandbox with real processes: where it writes, what it reaches, what it uses up."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from typing_extensions import override

from quarterdeck.errors import ConfinementUnavailable
from quarterdeck.machine import (
    Confinement,
    ConfineMode,
    HiddenFolders,
    SandboxLimits,
    WorkspaceSandbox,
)
from quarterdeck.machine.confinement import Way
from quarterdeck.machine.processes import guarded_command, guarded_env
from quarterdeck.machine.proxy_program import Rejected, addresses, is_allowed, split_address
from tests.machine.users import PYTHON, USERS, as_user, open_folder_for_all

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux has the mechanisms")

# Starts the guard as a user, whose own process must be the guard's owner.
OWNER = """
import json, os, subprocess, sys
line = json.loads(sys.argv[1])
line[line.index("OWNER")] = str(os.getpid())
sys.exit(subprocess.run([sys.executable, *line[1:]]).returncode)
"""
FETCH = """
import os, sys, urllib.request
proxy = os.environ.get("HTTP_PROXY", "")
for name in ("NO_PROXY", "no_proxy"):
    os.environ.pop(name, None)
for url in sys.argv[1:]:
    for way in ({"http": proxy}, {}):
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler(way))
            print("GOT" if way else "DIRECT", opener.open(url, timeout=20).read().decode())
        except OSError as error:
            print("proxy" if way else "direct", getattr(error, "code", "none"))
"""


class Sandboxed:
    """A workspace of a user, and commands in its sandbox."""

    def __init__(self, folder: Path, uid: int) -> None:
        self.uid = uid
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        os.chown(self.workspace, uid, uid)

    def run(self, *command: str, hosts: tuple[str, ...] = (), **limits: int) -> str:
        sandbox = WorkspaceSandbox(
            write=(str(self.workspace),), hosts=hosts, limits=SandboxLimits(**limits)
        )
        start = Confinement(hidden=HiddenFolders(["/nowhere"])).start(sandbox=sandbox)
        line = guarded_command(command, start=start)
        line[line.index(str(os.getpid()))] = "OWNER"
        python = sys.executable if self.uid == os.geteuid() else PYTHON
        words = ["-I", "-c", OWNER, json.dumps(line)]
        done = subprocess.run(
            as_user(self.uid, [python, *words]),
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
            cwd=self.workspace,
            env=guarded_env({"PATH": os.environ["PATH"], "HOME": str(self.workspace)}, start),
        )
        return done.stdout + done.stderr

    @property
    def python(self) -> str:
        return sys.executable if self.uid == os.geteuid() else PYTHON


@pytest.fixture(params=USERS)
def sandboxed(request: pytest.FixtureRequest) -> Iterator[Sandboxed]:
    with open_folder_for_all() as folder:
        yield Sandboxed(folder, request.param)


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"page")

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[int]:
    """Serve a page on this machine; return its port."""
    with HTTPServer(("127.0.0.1", 0), _Page) as serving:
        thread = Thread(target=serving.serve_forever)
        thread.start()
        yield serving.server_port
        serving.shutdown()
        thread.join()


def test_it_writes_only_in_its_workspace(sandboxed: Sandboxed) -> None:
    outside = sandboxed.workspace.parent / "outside"
    outside.mkdir(mode=0o777)
    outside.chmod(0o777)
    script = f"""
echo a > mine; echo b > {outside}/not; echo c > /tmp/private; echo d > /var/tmp/private
mkdir $HOME/../not; ls {outside}; ls /tmp; ls /run; echo d > /dev/shm/x && echo SHARED
mount -o remount,rw / ; mount -o remount,bind,rw /; umount /tmp; echo END"""
    text = sandboxed.run("/bin/sh", "-c", script)
    assert "SHARED" in text
    assert "END" in text
    assert [path.name for path in outside.iterdir()] == []
    assert (sandboxed.workspace / "mine").read_text() == "a\n"
    assert not Path("/tmp/private").exists()


def test_only_listed_hosts_are_reached(sandboxed: Sandboxed, server: int) -> None:
    here, named = f"http://127.0.0.1:{server}/", f"http://localhost:{server}/"
    fetch = (sandboxed.python, "-I", "-c", FETCH)
    text = sandboxed.run(*fetch, here, named, hosts=(f"127.0.0.1:{server}",))
    assert text.split("\n")[:4] == ["GOT page", "direct none", "proxy 403", "direct none"]
    # A name that leads to this machine is refused although it is listed.
    text = sandboxed.run(*fetch, named, here, hosts=(f"localhost:{server}",))
    assert text.split("\n")[:4] == ["proxy 403", "direct none", "proxy 403", "direct none"]
    text = sandboxed.run(*fetch, here)
    assert "GOT" not in text
    assert "DIRECT" not in text


def test_the_proxy_ends_with_the_command(sandboxed: Sandboxed) -> None:
    marker = f"marker-{os.getpid()}.example"
    assert "READY" in sandboxed.run("/bin/sh", "-c", "echo READY", hosts=(marker,))
    listed = subprocess.run(["ps", "ax", "-o", "args"], capture_output=True, check=True).stdout
    assert [line for line in listed.splitlines() if marker.encode() in line] == []


FORK = """
import os, time
count = 0
try:
    while count < 400:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        count += 1
except OSError:
    print("LIMITED")
print("END", flush=True)
"""


def test_processes_memory_and_files_are_limited(sandboxed: Sandboxed) -> None:
    text = sandboxed.run(sandboxed.python, "-I", "-c", FORK, processes=100)
    assert "LIMITED" in text
    text = sandboxed.run(
        "/bin/sh",
        "-c",
        "dd if=/dev/zero of=big bs=1M count=9 && echo BIG; echo END",
        file_size_mb=5,
    )
    assert "BIG" not in text
    assert "END" in text
    use = "try: x = bytearray(900 << 20); print('USED')\nexcept MemoryError: print('LIMITED')"
    assert "LIMITED" in sandboxed.run(sandboxed.python, "-I", "-c", use, memory_mb=400)
    groups = list(Path("/sys/fs/cgroup").glob("**/quarterdeck-*"))
    assert groups == []


def test_a_machine_that_cannot_does_not_start_it() -> None:
    sandbox = WorkspaceSandbox(write=("/tmp",))
    ways = (Way(name=None, reason="cannot; do this"), Way(name="bubblewrap"))
    modes: tuple[ConfineMode, ...] = ("on", "off", "require")
    for way in ways:
        for mode in modes:
            with pytest.raises(ConfinementUnavailable):
                Confinement(way=way).start(mode, sandbox)


@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [
        ("api.example.com", 443, True),
        ("API.Example.com.", 443, True),
        ("api.example.com", 80, True),
        ("api.example.com", 22, False),
        ("example.com", 443, False),
        ("xapi.example.com", 443, False),
        ("a.example.org", 443, True),
        ("a.b.example.org", 443, True),
        ("example.org", 443, False),
        ("evilexample.org", 443, False),
        ("example.net", 8443, True),
        ("example.net", 443, False),
        ("", 443, False),
    ],
)
def test_hosts_are_matched_by_name_and_port(host: str, port: int, *, expected: bool) -> None:
    hosts = ["api.example.com", "*.example.org", "example.net:8443"]
    assert is_allowed(host, port, hosts) is expected


def test_addresses_of_a_request_are_read_and_private_ones_refused() -> None:
    assert split_address("a:8443", 443) == ("a", 8443)
    assert split_address("a", 443) == ("a", 443)
    assert split_address("[::1]:80", 443) == ("::1", 80)
    assert split_address("[::1]", 443) == ("::1", 443)
    for wrong in ("a:", "a:0", "a:99999", "a:b"):
        with pytest.raises(Rejected):
            split_address(wrong, 443)
    with pytest.raises(Rejected, match="not public"):
        addresses("localhost", 80)
    assert addresses("127.0.0.1", 80) == ["127.0.0.1"]


def test_a_service_that_listens_anywhere_but_in_the_workspace_is_not_reached(
    sandboxed: Sandboxed,
) -> None:
    """A socket can be used on a read-only file system: that of a container engine, for one."""
    code = """
import socket, sys
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print("REACHED", path)
    except OSError as error:
        print("failed", path)
"""
    elsewhere = "/opt" if os.geteuid() == 0 else Path.home()
    with tempfile.TemporaryDirectory(dir=elsewhere) as made, ExitStack() as stack:
        Path(made).chmod(0o755)
        outside, inside = Path(made, "engine.sock"), sandboxed.workspace / "own.sock"
        for path in (outside, inside):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen()
            path.chmod(0o777)
        printed = sandboxed.run(sandboxed.python, "-I", "-c", code, str(outside), str(inside))
    assert printed.splitlines() == [f"failed {outside}", f"REACHED {inside}"]
