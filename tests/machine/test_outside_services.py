"""Which services of a machine would act for an agent outside."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from quarterdeck.machine.outside_services import (
    create_private_folders,
    find_services,
    private_folders,
)

UID = os.geteuid()


class Machine:
    """A folder that stands for the root of a file system, with sockets in it."""

    def __init__(self, top: Path, stack: ExitStack) -> None:
        self.top = top
        self._stack = stack

    def listen(self, path: str) -> str:
        full = Path(f"{self.top}{path}")
        full.parent.mkdir(parents=True, exist_ok=True)
        listener = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        folder = os.open(full.parent, os.O_PATH)
        listener.bind(f"/proc/self/fd/{folder}/{full.name}")
        os.close(folder)
        return str(full)

    def found(self, **environ: str) -> dict[str, str]:
        return dict(find_services(environ, top=str(self.top)))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with ExitStack() as stack:
        yield Machine(tmp_path, stack)


@pytest.mark.parametrize(
    ("path", "hide", "deed"),
    [
        ("/run/docker.sock", "/run/docker.sock", "start containers"),
        (f"/run/user/{UID}/bus", f"/run/user/{UID}/bus", "systemd-run --user"),
        (f"/run/user/{UID}/nvim.77.0", f"/run/user/{UID}/nvim.77.0", "start a shell"),
        ("/tmp/.X11-unix/X0", "/tmp/.X11-unix", "press keys"),
        ("/home/me/.colima/default/docker.sock", None, "start containers"),
        ("/home/me/.docker/desktop/docker.sock", None, "start containers"),
    ],
)
def test_a_socket_is_found_wherever_it_is(
    machine: Machine, path: str, hide: str | None, deed: str
) -> None:
    """Without a variable that names it: an agent can set such a variable for itself."""
    home = f"{machine.top}/home/me"
    assert machine.found(HOME=home) == {}
    machine.listen(path)
    ((found, what),) = machine.found(HOME=home).items()
    assert found == f"{machine.top}{hide or path}"
    assert deed in what


def test_a_socket_that_a_variable_names_is_found(machine: Machine) -> None:
    path = machine.listen("/elsewhere/s")
    for name, value in {
        "DOCKER_HOST": f"unix://{path}",
        "CONTAINER_HOST": f"unix://{path}",
        "TMUX": f"{path},123,0",
        "DBUS_SESSION_BUS_ADDRESS": f"unix:abstract=/tmp/x;unix:path={path},guid=1",
    }.items():
        assert list(machine.found(**{name: value})) == [path]


@pytest.mark.parametrize(
    "path",
    [
        f"/tmp/tmux-{UID}/default",
        f"/tmp/zellij-{UID}/session",
        f"/run/user/{UID}/emacs/server",
        f"/elsewhere/tmux-{UID}/other",
        "/run/screen/S-me/12.pts-0",
        "/home/me/.screen/12.pts-0",
    ],
)
def test_the_folder_of_a_multiplexer_is_replaced(machine: Machine, path: str) -> None:
    """A multiplexer of the owner starts programs for who can connect; agents use their own."""
    top = str(machine.top)
    environ = {"HOME": f"{top}/home/me", "TMUX_TMPDIR": f"{top}/elsewhere"}
    assert private_folders(environ, top=top) == []
    socket_path = machine.listen(path)
    assert private_folders(environ, top=top) == [str(Path(socket_path).parent)]
    assert machine.found(**environ) == {}


def test_the_folder_of_tmux_is_there_before_an_agent_starts(machine: Machine) -> None:
    top = str(machine.top)
    (machine.top / "tmp").mkdir()
    create_private_folders(top=top)
    create_private_folders(top=top)
    assert private_folders({}, top=top) == [f"{top}/tmp/tmux-{UID}"]
    assert stat.S_IMODE(Path(f"{top}/tmp/tmux-{UID}").stat().st_mode) == 0o700


def test_a_folder_without_a_socket_is_no_service(machine: Machine) -> None:
    Path(f"{machine.top}/tmp/tmux-{UID}").mkdir(parents=True)
    assert machine.found(HOME=str(machine.top), XDG_RUNTIME_DIR=f"{machine.top}/tmp") == {}


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("0: 00000000:0016 00000000:0000 0A 0 0 0 0 0 1", True),
        ("0: 00000000:0016 0100007F:9999 01 0 0 0 0 0 1", False),
        ("0: 00000000:1F90 00000000:0000 0A 0 0 0 0 0 1", False),
    ],
)
def test_an_ssh_server_starts_processes_for_who_can_add_a_key(
    machine: Machine, line: str, is_found: bool
) -> None:
    table = machine.top / "proc" / "net" / "tcp"
    table.parent.mkdir(parents=True)
    table.write_text(f"  sl  local_address rem_address   st\n   {line}\n")
    found = machine.found(HOME="/home/me")
    assert list(found) == (["/home/me/.ssh"] if is_found else [])
