"""Services of this machine that would act for a confined agent outside of its confinement.

A service that runs as the same user, or as root, and takes commands from it, starts processes that
are below no guard: they see the hub's folders, and the hub takes their calls for the owner's. The
known kinds are data here:

| kind | what it does for an agent |
| --- | --- |
| container engines, virtual machines | show it every folder |
| service managers, on a socket or a bus | start a process |
| terminal multiplexers and editors that listen | type into a shell of the owner, or start one |
| an X server | press keys and click in the owner's windows |
| an SSH server | start a shell, with a key that the agent writes to ~/.ssh |

`find_services` returns those that this user can reach now, each with the path to hide. Multiplexers
and editors have a folder of their own for their sockets: `private_folders` returns these, and a
confined agent gets an empty one in its place, where its own tmux works. A list cannot be complete:
an unknown program of the owner that executes what it receives is not found.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from glob import glob, has_magic
from pathlib import Path
from typing import Final

_CONTAINERS: Final = "start containers, which see every folder"
_PROCESSES: Final = "start processes outside"
_SHELLS: Final = "start a shell outside, or type into yours"
_SCREEN: Final = "press keys and click in your windows"
_SSH: Final = (
    "start processes outside: an SSH server runs here, and the agent can add a key to this folder"
)

_SYSTEM: Final = {
    "/run/docker.sock": _CONTAINERS,
    "/run/podman/podman.sock": _CONTAINERS,
    "/run/containerd/containerd.sock": _CONTAINERS,
    "/var/snap/lxd/common/lxd/unix.socket": _CONTAINERS,
    "/var/lib/lxd/unix.socket": _CONTAINERS,
    "/var/lib/incus/unix.socket": _CONTAINERS,
    "/run/libvirt/libvirt-sock": "start virtual machines, which see every disk",
    "/run/systemd/private": _PROCESSES,
    "/tmp/.X11-unix": _SCREEN,  # noqa: S108 - where it is
}
"""Sockets, and folders that hold some."""
_OF_ROOT: Final = {"/run/dbus/system_bus_socket": _PROCESSES}
_RUNTIME: Final = {
    "docker.sock": _CONTAINERS,
    "podman/podman.sock": _CONTAINERS,
    "systemd/private": _PROCESSES,
    "bus": f"{_PROCESSES}, with systemd-run --user",
    "nvim.*": _SHELLS,
}
"""In the user's runtime folder."""
_HOME: Final = {
    ".docker/run/docker.sock": _CONTAINERS,
    ".docker/desktop/docker.sock": _CONTAINERS,
    ".colima/*/docker.sock": _CONTAINERS,
    ".lima/*/sock/*.sock": _CONTAINERS,
    ".rd/docker.sock": _CONTAINERS,
}
_TMUX: Final = "/tmp/tmux-{uid}"  # noqa: S108 - where it is
_FOLDERS: Final = (
    _TMUX,
    "/tmp/screens/S-*",  # noqa: S108
    "/tmp/uscreens/S-*",  # noqa: S108
    "/tmp/zellij-{uid}",  # noqa: S108
    "/tmp/emacs{uid}",  # noqa: S108
    "/run/screen/S-*",
)
"""Folders of multiplexers and editors for the sockets at which they take commands."""
_ENGINES: Final = ("DOCKER_HOST", "CONTAINER_HOST")
_SSH_PORT: Final = ":0016"
_LISTENING: Final = "0A"
_DEPTH: Final = 2  # of a folder in which sockets are looked for


def find_services(environ: Mapping[str, str], *, top: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each service that this user can reach, and what it can do.

    Args:
        environ: names some of them.
        top: stands for the root folder, in tests.
    """
    uid = os.geteuid()
    wanted = {f"{top}{path}".format(uid=uid): deed for path, deed in _SYSTEM.items()}
    if uid == 0:
        wanted |= {f"{top}{path}": deed for path, deed in _OF_ROOT.items()}
    for folder in _runtime_folders(environ, top):
        wanted |= {f"{folder}/{name}": deed for name, deed in _RUNTIME.items()}
    if home := environ.get("HOME"):
        wanted |= {f"{home}/{name}": deed for name, deed in _HOME.items()}
        if _has_ssh_server(top):
            yield f"{home}/.ssh", _SSH
    wanted |= dict(_named_by(environ))
    for pattern, deed in wanted.items():
        for path in glob(pattern) if has_magic(pattern) else (pattern,):  # noqa: PTH207 - absolute
            if _has_socket(path):
                yield path, deed


def private_folders(environ: Mapping[str, str], *, top: str = "") -> list[str]:
    """Return the folders of this user in which multiplexers and editors listen, if they exist."""
    uid, home = os.geteuid(), environ.get("HOME")
    patterns = [f"{top}{pattern}".format(uid=uid) for pattern in _FOLDERS]
    for folder in _runtime_folders(environ, top):
        patterns += [f"{folder}/{name}" for name in ("zellij", "emacs", "wezterm")]
    if home:
        patterns.append(f"{home}/.screen")
    if sockets := environ.get("TMUX_TMPDIR"):
        patterns.append(f"{sockets}/tmux-{uid}")
    paths = (path for pattern in patterns for path in glob(pattern))  # noqa: PTH207 - absolute
    return list(dict.fromkeys(path for path in paths if _is_own_folder(path)))


def _runtime_folders(environ: Mapping[str, str], top: str) -> list[str]:
    """Return the user's runtime folder, also if no variable names it: an agent can set it."""
    named = (environ.get("XDG_RUNTIME_DIR"), f"{top}/run/user/{os.geteuid()}")
    return list(dict.fromkeys(filter(None, named)))


def create_private_folders(*, top: str = "") -> None:
    """Create the folder of tmux, as tmux does, so that it is there before an agent starts."""
    with suppress(OSError):
        Path(f"{top}{_TMUX}".format(uid=os.geteuid())).mkdir(mode=0o700)


def _is_own_folder(path: str) -> bool:
    with suppress(OSError):
        found = os.lstat(path)
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return False


def _tmux_socket(environ: Mapping[str, str]) -> str:
    return environ.get("TMUX", "").rpartition(",")[0].rpartition(",")[0]


def _named_by(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in _ENGINES:
        address = environ.get(name, "")
        if address.startswith("unix://"):
            yield address.removeprefix("unix://"), _CONTAINERS
    path = _tmux_socket(environ)
    if path and not any(Path(path).is_relative_to(folder) for folder in private_folders(environ)):
        yield path, _SHELLS
    for part in environ.get("DBUS_SESSION_BUS_ADDRESS", "").split(";"):
        path = part.removeprefix("unix:path=").partition(",")[0]
        if path != part.partition(",")[0]:
            yield path, _RUNTIME["bus"]


def _has_socket(path: str, depth: int = _DEPTH) -> bool:
    """Whether a path is a socket that this user can connect to, or a folder that has one."""
    with suppress(OSError):
        mode = os.stat(path).st_mode  # noqa: PTH116 - of a path of any bytes
        if stat.S_ISSOCK(mode):
            return os.access(path, os.W_OK)
        if stat.S_ISDIR(mode) and depth:
            with os.scandir(path) as entries:
                return any(_has_socket(entry.path, depth - 1) for entry in entries)
    return False


def _has_ssh_server(top: str) -> bool:
    """Whether a process listens at the port of SSH."""
    for name in ("tcp", "tcp6"):
        with suppress(OSError, IndexError):
            for line in Path(f"{top}/proc/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENING and words[1].endswith(_SSH_PORT):
                    return True
    return False
