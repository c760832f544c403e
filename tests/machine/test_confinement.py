"""Confinement with real processes: what an agent tries to reach, and what it must be able to do.

A stand-in for the hub has a data folder with a token and a socket, a configuration folder, secrets
in its environment, and another confined process. It runs as root and, if the tests do, as an
ordinary user with the interpreter of the system.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.errors import ConfinementUnavailable
from quarterdeck.machine import WorkspaceSandbox, confinement, landlock_abi
from quarterdeck.machine.confinement import Confinement, Way, choose_way, find_way
from quarterdeck.machine.hidden import HiddenFolders
from quarterdeck.machine.outside_services import find_services
from quarterdeck.machine.processes import guarded_command
from tests.machine.confined_attacks import ATTACKS
from tests.machine.users import PYTHON, USERS, as_user, open_folder_for_all

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux has the mechanisms")

SECRET = "correct-horse-battery-staple"

# Runs as the hub would: holds secrets, listens on a socket, has another agent, starts a command.
STAND_IN = """
import ctypes, json, os, socket, subprocess, sys
facts = json.loads(sys.argv[1]); guard = sys.argv[2]; options = json.loads(sys.argv[3])
command = sys.argv[4:]
os.environ["HUB_SECRET"] = facts["secret"]
token = open(facts["home"] + "/token")
listening = socket.socket(socket.AF_UNIX); listening.bind(facts["home"] + "/hub.sock")
listening.listen(5)
def start(words, **more):
    line = [sys.executable, "-I", "-S", guard, *options, str(os.getpid()), "0.5", *words]
    env = {name: value for name, value in os.environ.items() if name != "HUB_SECRET"}
    if options:
        env = {f"QUARTERDECK_GUARDED_{name}": value for name, value in env.items()}
    return subprocess.Popen(line, start_new_session=True, cwd=facts["project"], env=env, **more)
other = start(["sh", "-c", "echo $$; exec sleep 99"], stdout=-1)
pid = int(other.stdout.readline())
class Handle(ctypes.Structure):
    _fields_ = (("size", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128))
handle, number = Handle(128), ctypes.c_int()
libc = ctypes.CDLL(None)
libc.name_to_handle_at(-100, facts["home"].encode(), ctypes.byref(handle), ctypes.byref(number), 0)
facts["handle"] = (handle.kind, bytes(handle.data[:handle.size]).hex())
facts["pids"] = [os.getpid(), other.pid, pid]
command = [word.replace("FACTS", json.dumps(facts)) for word in command]
status = start(command).wait()
other.kill(); other.wait()
sys.exit(status)
"""


class Place:
    """The folders of a stand-in, and a way to run a command in it."""

    def __init__(self, folder: Path, uid: int) -> None:
        self.uid = uid
        self.only: list[str] = []
        """Names of attacks; empty: all."""
        self.user = folder / "user"
        self.home = self.user / ".local" / "share" / "quarterdeck"
        self.config = self.user / ".config" / "quarterdeck"
        self.project = self.user / "project"
        self.named = self.user / "named.toml"
        for path in (self.home, self.config, self.project):
            path.mkdir(parents=True)
        (self.home / "token").write_text(SECRET)
        (self.config / "hub.toml").write_text("[server]\n")
        (self.config / "agent.toml").write_text("model = 'demo'\n")
        self.named.write_text("[server]\n")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, uid)

    @property
    def options(self) -> list[str]:
        hidden = [f"--hide={path}" for path in (self.home, self.config, self.named)]
        return [*hidden, f"--keep={self.config}/agent.toml"]

    def run(self, *command: str, options: list[str] | None = None) -> str:
        guard = Path(confinement.__file__).with_name("guard_program.py")
        facts: dict[str, Any] = {"only": self.only} if self.only else {}
        facts |= {
            "secret": SECRET,
            "home": str(self.home),
            "config": str(self.config),
            "project": str(self.project),
            "named": str(self.named),
            "signals_kept": landlock_abi() >= 6,
        }
        python = sys.executable if self.uid == os.geteuid() else PYTHON
        words = [json.dumps(self.options if options is None else options), *command]
        done = subprocess.run(
            as_user(
                self.uid, [python, "-I", "-c", STAND_IN, json.dumps(facts), str(guard), *words]
            ),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={"PATH": os.environ["PATH"], "HOME": str(self.user)},
            cwd="/",
        )
        return done.stdout + done.stderr


@pytest.fixture(params=USERS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with open_folder_for_all() as folder:
        yield Place(folder / "place", request.param)


def attacked(place: Place, options: list[str] | None = None) -> dict[str, str]:
    script = place.project / "attacks.py"
    script.write_text(Path(__file__).with_name("confined_attacks.py").read_text())
    script.chmod(0o644)
    python = sys.executable if place.uid == os.geteuid() else PYTHON
    output = place.run(python, "-I", str(script), "FACTS", options=options)
    assert output.rstrip().endswith("END"), output
    lines = [line.partition(": ") for line in output.splitlines() if ": " in line]
    return {name: result for name, _, result in lines}


def test_every_attack_fails(place: Place) -> None:
    results = attacked(place)
    assert [name for name in results if results[name].startswith("BROKEN")] == [], "\n".join(
        f"{a}: {b}" for a, b in results.items()
    )
    assert set(results) >= {each.__name__ for each in ATTACKS}
    assert (place.home / "token").read_text() == SECRET
    assert (place.config / "hub.toml").read_text() == "[server]\n"
    assert place.named.read_text() == "[server]\n"


def test_without_confinement_the_attacks_succeed(place: Place) -> None:
    # Or they would prove nothing.
    place.only = [
        *("read_the_token", "list_the_folders", "read_memory_and_environments"),
        *("connect_to_the_socket", "write_the_configuration"),
    ]
    results = attacked(place, options=[])
    assert [result for result in results.values() if not result.startswith("BROKEN")] == []


def test_with_landlock_alone_every_attack_fails_but_those_that_are_said(place: Place) -> None:
    results = attacked(place, options=[*place.options, "--landlock=files"])
    broken = {name for name in results if results[name].startswith("BROKEN")}
    # Landlock knows no sockets, and names can be seen. As root, settings of the kernel and disks
    # stay open, unless a container closes them.
    of_root = {"change_the_kernel", "read_disks"} if place.uid == 0 else set()
    said = {"list_the_folders", "connect_to_the_socket"}
    assert said <= broken <= said | of_root, "\n".join(f"{a}: {b}" for a, b in results.items())
    assert set(results) >= {each.__name__ for each in ATTACKS}
    assert (place.home / "token").read_text() == SECRET
    assert (place.config / "hub.toml").read_text() == "[server]\n"
    assert place.named.read_text() == "[server]\n"


def test_landlock_scopes_keep_other_processes_out_of_reach(place: Place) -> None:
    processes = ["read_memory_and_environments", "trace_processes", "signal_processes"]
    place.only = ["read_the_token", *processes]
    results = attacked(place, options=["--landlock=scopes"])
    assert results.pop("read_the_token").startswith("BROKEN")  # files stay open
    assert [results[name].partition(" ")[0] for name in processes] == ["failed"] * 3


ORDINARY_UNDER_LANDLOCK = """
set -e
cd "$HOME/project"; echo a > new-file; mkdir new; mv new-file new; ln new/new-file hard
echo a > /dev/null; echo a > "/dev/shm/landlock-$$"; mv "/dev/shm/landlock-$$" .
cat "$HOME/.config/quarterdeck/agent.toml" > /dev/null
ls "$HOME" > /dev/null; sleep 9 & kill $!
cat /proc/self/environ /proc/$$/maps > /dev/null
! echo a > "$HOME/direct" || exit 1
! mkdir "$HOME/.config/new" || exit 1
echo FINE
"""


def test_landlock_alone_permits_work_but_next_to_hidden_folders(place: Place) -> None:
    options = [*place.options, "--landlock=files"]
    assert "FINE" in place.run("/bin/sh", "-c", ORDINARY_UNDER_LANDLOCK, options=options)


ORDINARY = """
set -e
echo a > "$HOME/new-file"; mkdir "$HOME/.new-tool"; echo a > "$HOME/.new-tool/state"
echo a > "$HOME/.config/other"; mv "$HOME/new-file" "$HOME/.local/share/moved"
ln "$HOME/.local/share/moved" "$HOME/hard"; mkdir "$HOME/.local/share/tool"
cat "$HOME/.config/quarterdeck/agent.toml" > /dev/null
unshare --user --map-root-user true
unshare --user --map-root-user --mount mount -t tmpfs none /mnt
sleep 9 & kill $!
cat /proc/self/environ /proc/$$/maps > /dev/null
test -w /dev/null; test -r /dev/urandom; ls /dev/pts > /dev/null
echo FINE
"""


def test_ordinary_work_is_not_disturbed(place: Place) -> None:
    assert "FINE" in place.run("/bin/sh", "-c", ORDINARY)


def test_there_is_no_second_way_to_all_files(place: Place) -> None:
    # codex protects a file in every mount that shows it, and fails at one that it cannot reach.
    mounts = [line.split() for line in place.run("cat", "/proc/self/mountinfo").splitlines()]
    (whole,) = (each[2:4] for each in mounts if each[4] == "/")
    assert [each[4] for each in mounts if each[2:4] == whole] == ["/"]


@pytest.mark.parametrize("more", [[], ["--landlock=files"]])
def test_a_locked_program_cannot_be_changed_but_what_is_free_in_it_can(
    place: Place, more: list[str]
) -> None:
    library = place.user / "lib" / "python"
    free = library / "site-packages"
    free.mkdir(parents=True)
    (library / "os.py").write_text("good")
    for path in (library.parent, library, free, library / "os.py"):
        os.chown(path, place.uid, place.uid)
    script = f"""
cd {library}; echo bad > os.py; rm os.py; mv os.py other; echo bad > new.py
mv {library} {library}.moved; mv {library.parent} {library.parent}.moved
echo fine > {free}/module.py; cat {library}/os.py; echo END"""
    options = [*place.options, *more, f"--lock={library}", f"--free={free}"]
    assert "goodEND" in place.run("/bin/sh", "-c", script, options=options)
    assert (library / "os.py").read_text() == "good"
    assert sorted(path.name for path in library.iterdir()) == ["os.py", "site-packages"]
    assert (free / "module.py").read_text() == "fine\n"


def test_an_agent_of_root_is_advisory_unless_sandboxed(hidden: HiddenFolders) -> None:
    way = Way(name="namespace", how="namespaces", is_root=True)
    root = Confinement(hidden=hidden, environ={}, way=way)
    assert root.start().options
    assert root.status().status == "advisory"
    assert "run the hub as an ordinary user" in root.status().reason
    assert root.status(sandbox=WorkspaceSandbox(write=())).status == "enforced"


@pytest.mark.parametrize("more", [[], ["--landlock=files"]])
@pytest.mark.parametrize("inside", ["", "/deeper"])
def test_a_command_does_not_start_in_a_hidden_folder(
    place: Place, inside: str, more: list[str]
) -> None:
    folder = Path(f"{place.home}{inside}")
    folder.mkdir(exist_ok=True)
    os.chown(folder, place.uid, place.uid)
    place.project = folder
    options = [*place.options, *more]
    assert "cannot confine" in place.run("/bin/sh", "-c", "ls; echo STARTED", options=options)


def test_a_program_that_cannot_be_confined_does_not_run(tmp_path: Path) -> None:
    command = guarded_command(["/bin/sh", "-c", "echo STARTED"])
    broken = [*command[:4], "--write=/nowhere", "--network=none", *command[4:]]
    done = subprocess.run(broken, capture_output=True, text=True, check=False)
    assert done.returncode == 126
    assert "STARTED" not in done.stdout
    assert "cannot confine the command: " in done.stderr


# ---- what is said ------------------------------------------------------------------------------

NO_WAY = Way(name=None, reason="it cannot; do something")


@pytest.fixture
def hidden(tmp_path: Path) -> HiddenFolders:
    return HiddenFolders([tmp_path / "home"])


def test_off_is_said_and_nothing_is_confined(hidden: HiddenFolders) -> None:
    off = Confinement(hidden=hidden, mode="off")
    assert off.start() == confinement.UNCONFINED
    assert off.status().status == "advisory"
    assert 'confine = "off"' in off.status().reason


def test_an_agent_can_have_a_mode_of_its_own(hidden: HiddenFolders) -> None:
    way = Way(name="namespace", how="namespaces")
    on = Confinement(hidden=hidden, environ={}, way=way)
    assert on.start().options == (f"--hide={hidden.paths[0]}",)
    assert on.start("off") == confinement.UNCONFINED
    assert on.status("off").status == "advisory"


def test_a_machine_that_cannot_is_advisory_and_require_refuses(hidden: HiddenFolders) -> None:
    on = Confinement(hidden=hidden, way=NO_WAY)
    assert on.start() == confinement.UNCONFINED
    assert on.status().status == "advisory"
    assert on.status().reason == NO_WAY.reason
    with pytest.raises(ConfinementUnavailable, match="do something"):
        on.start("require")


def test_other_systems_are_advisory() -> None:
    for platform in ("darwin", "freebsd"):  # a Mac without Seatbelt
        way = choose_way(platform)
        assert way.name is None
        assert "run the hub on Linux" in way.reason


SEATBELT = """#!{python} -IS
import os, re, sys
assert sys.argv[1] == "-p"
profile, command = sys.argv[2], sys.argv[3:]
assert profile.startswith("(version 1)\\n(allow default)\\n")
assert all(line[0] == "(" and line[-1] == ")" for line in profile.splitlines())
found = re.findall(r'^\\(deny file-read\\* file-write\\* \\(subpath "(.+)"\\)\\)$', profile, re.M)
if {is_broken}:
    sys.exit("sandbox-exec: sandbox_apply: Operation not permitted")
guard = [{python!r}, "-I", "-S", {guard!r}, *(f"--hide={{path}}" for path in found)]
os.execv(guard[0], [*guard, str(os.getppid()), "0", *command])
"""
"""Seatbelt on Linux: hides the folders of a profile, by our own means."""


@pytest.fixture(params=[False, True], ids=["works", "fails"])
def seatbelt(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> bool:
    program = tmp_path / "sandbox-exec"
    text = SEATBELT.format(
        python=sys.executable, guard=vars(confinement)["_GUARD"], is_broken=request.param
    )
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setattr(confinement, "_SEATBELT", program)
    return not request.param


def test_seatbelt_is_used_where_it_works_and_is_required(
    seatbelt: bool, hidden: HiddenFolders
) -> None:
    way = choose_way("darwin")
    assert (way.name == "seatbelt") == seatbelt
    kept = Path(hidden.paths[0], "kept")
    on = Confinement(hidden=hidden, kept=[kept], environ={}, way=way)
    assert on.start() == confinement.UNCONFINED  # some agents start a sandbox of their own
    assert on.status().status == on.status("require").status == "advisory"
    if not seatbelt:
        assert "sandbox_apply: Operation not permitted" in on.status().reason
        with pytest.raises(ConfinementUnavailable, match="sandbox_apply"):
            on.start("require")
        return
    assert 'set confine = "require"' in on.status().reason
    opened = Path(hidden.paths[0], "opened")
    *_, profile = on.start("require", opened=[opened]).prefix
    assert f'(allow file-read* file-write* (subpath "{opened}"))' in profile
    assert f'(allow file-read* (literal "{kept}"))' in profile
    assert f'(deny file-write-unlink (literal "{Path(hidden.paths[0]).parent}"))' in profile
    assert f'(remote unix-socket (subpath "{hidden.paths[0]}"))' in profile
    with pytest.raises(ConfinementUnavailable, match="a sandbox needs Linux"):
        on.start(sandbox=WorkspaceSandbox(write=()))


def test_a_path_of_a_profile_is_quoted() -> None:
    *_, profile = vars(confinement)["_seatbelt"](['/a "b\\c'], ())
    assert '(subpath "/a \\"b\\\\c")' in profile


def test_a_service_that_would_act_outside_makes_it_advisory_until_it_is_hidden(
    tmp_path: Path,
) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    path = runtime / "bus"
    subprocess.run(
        [sys.executable, "-c", f"import socket; socket.socket(1).bind({str(path)!r})"], check=True
    )
    environ = {"XDG_RUNTIME_DIR": str(runtime)}
    way = Way(name="namespace", how="namespaces")
    home = tmp_path / "home"
    found = Confinement(hidden=HiddenFolders([home]), environ=environ, way=way).status()
    assert found.status == "advisory"
    assert f'hide = ["{path}"]' in found.reason
    closed = Confinement(hidden=HiddenFolders([home, path]), environ=environ, way=way).status()
    assert closed.status == "enforced"


def test_what_an_agent_can_change_for_later_is_said_for_each(hidden: HiddenFolders) -> None:
    """Nothing can prevent it: the owner runs it, outside."""
    found = Confinement(hidden=hidden, environ={}, way=Way(name="namespace", how="namespaces"))
    assert any("what you start later" in limit for limit in found.status().limits)
    sandbox = found.status(sandbox=WorkspaceSandbox(write=()))
    assert any("start yourself from the workspace" in limit for limit in sandbox.limits)


def test_with_the_sockets_of_x_its_abstract_ones_are_closed(tmp_path: Path) -> None:
    way = Way(name="namespace", how="namespaces")
    for more in ([], ["/tmp/.X11-unix"]):
        paths, is_closed = [str(tmp_path), *more], bool(more)
        start = Confinement(hidden=HiddenFolders(paths), environ={}, way=way).start()
        assert ("--scope=abstract" in start.options) == is_closed


@pytest.mark.skipif(landlock_abi() < 6, reason="older kernels have no such scope")
def test_an_abstract_socket_outside_can_be_closed(place: Place) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        name = f"quarterdeck-test-abstract-{os.getpid()}"
        listener.bind(f"\0{name}")
        listener.listen()
        script = "import socket; s = socket.socket(socket.AF_UNIX)\n"
        script += f"s.connect(chr(0) + '{name}'); print('REACHED')"
        python = sys.executable if place.uid == os.geteuid() else PYTHON
        closed = [*place.options, "--scope=abstract"]
        assert "PermissionError" in place.run(python, "-I", "-c", script, options=closed)
        (place.home / "hub.sock").unlink()
        assert "REACHED" in place.run(python, "-I", "-c", script)


@pytest.mark.parametrize(
    ("name", "is_locked"), [("", False), ("uv-receipt.toml", True), ("pipx_metadata.json", True)]
)
def test_an_environment_that_is_ours_alone_cannot_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_locked: bool
) -> None:
    package = tmp_path / "lib" / "python3" / "site-packages" / "quarterdeck"
    (package / "machine").mkdir(parents=True)
    if name:
        (tmp_path / name).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(confinement, "__file__", str(package / "machine" / "confinement.py"))
    own = vars(confinement)["_own_installation"]
    own.cache_clear()
    try:
        locked = own().locked
        read_only = Confinement().read_only.paths
    finally:
        own.cache_clear()
    assert str(package) in locked
    assert (str(tmp_path) in locked) == is_locked
    assert read_only == HiddenFolders(locked).paths


def test_bubblewrap_is_used_where_we_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def probe(prefix: list[str]) -> str | None:
        tried.append(Path(prefix[0]).name)
        return "not permitted" if len(tried) == 1 else None

    monkeypatch.setattr(confinement, "_probe", probe)
    monkeypatch.setattr(shutil, "which", lambda _name: "/usr/bin/bwrap")
    way = choose_way("linux")
    assert (way.name, tried[1]) == ("bubblewrap", "bwrap")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    tried.clear()
    assert "not permitted" in choose_way("linux").reason


@pytest.mark.parametrize(("abi", "name"), [(0, None), (2, None), (3, "landlock"), (7, "landlock")])
def test_landlock_alone_is_used_where_nothing_else_can_be_had(
    monkeypatch: pytest.MonkeyPatch, hidden: HiddenFolders, abi: int, name: str | None
) -> None:
    def probe(prefix: list[str]) -> str | None:
        return None if "--landlock=files" in prefix else "not permitted"

    monkeypatch.setattr(confinement, "_probe", probe)
    monkeypatch.setattr(confinement, "_landlock_abi", lambda: abi)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    way = choose_way("linux")
    assert way.name == name
    assert "not permitted" in way.reason
    found = Confinement(hidden=hidden, environ={}, way=way)
    if name is None:
        assert found.start() == confinement.UNCONFINED
        with pytest.raises(ConfinementUnavailable, match="not permitted"):
            found.start("require")
        return
    assert found.start().options == ("--landlock=scopes",)
    required = found.start("require").options
    assert {"--landlock=files", f"--hide={hidden.paths[0]}"} <= set(required)
    assert found.status().status == "advisory"
    assert 'confine = "require"' in found.status().reason
    status = found.status("require")
    assert (status.status, status.how) == ("advisory", f"Landlock alone (ABI {abi})")
    assert "sockets are not" in status.reason
    assert any("send signals" in each for each in status.limits) == (abi < 6)
    with pytest.raises(ConfinementUnavailable, match="not permitted"):
        found.start(sandbox=WorkspaceSandbox(write=()))


def test_a_probe_that_landlock_fails_leaves_no_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "_probe", lambda _prefix: "not permitted")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert choose_way("linux").name is None


def test_the_folder_of_a_multiplexer_is_another_one_for_an_agent(place: Place) -> None:
    folder = place.user / "tmux"
    folder.mkdir(mode=0o700)
    (folder / "default").touch()
    os.chown(folder, place.uid, place.uid)
    script = f"ls -A {folder}; stat -c '%a %u' {folder}; touch {folder}/own && echo MADE"
    options = [*place.options, f"--private={folder}", f"--private={place.user}/missing"]
    assert place.run("/bin/sh", "-c", script, options=options) == f"700 {place.uid}\nMADE\n"
    assert [path.name for path in folder.iterdir()] == ["default"]


def test_a_hidden_socket_is_closed(place: Place) -> None:
    path = f"{place.home}/hub.sock"
    script = f"import socket; socket.socket(socket.AF_UNIX).connect({path!r})"
    options = [f"--hide={place.home}/hub.sock"]
    python = sys.executable if place.uid == os.geteuid() else PYTHON
    assert "ConnectionRefusedError" in place.run(python, "-I", "-c", script, options=options)


@pytest.fixture(autouse=True)
def _no_services_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = partial(find_services, top=str(tmp_path / "top"))
    monkeypatch.setattr(confinement, "find_services", found)
    monkeypatch.setattr(confinement, "private_folders", lambda _environ: [])


@pytest.fixture(autouse=True, scope="module")
def _fresh() -> Iterator[None]:
    yield
    find_way.cache_clear()


def test_a_kept_folder_is_read_and_run_and_an_open_one_is_changed(place: Place) -> None:
    tool = place.home / "agents" / "mine" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho it runs\n")
    tool.chmod(0o755)
    for path in (place.home / "agents", tool.parent, tool):
        os.chown(path, place.uid, place.uid)
    agents, secret = place.home / "agents", place.home / "token"
    script = (
        f"{tool}; touch {agents}/mine/new && echo changed mine; touch {agents}/new && echo changed"
        f" all; cat {secret}; echo > {secret}.new && echo changed home; true"
    )
    kept = [*place.options, f"--keep={agents}"]
    seen = place.run("/bin/sh", "-c", script, options=kept)
    assert ("it runs" in seen, "changed" in seen, SECRET in seen) == (True, False, False), seen
    (place.home / "hub.sock").unlink()
    seen = place.run("/bin/sh", "-c", script, options=[*kept, f"--open={agents}/mine"])
    assert "it runs" in seen, seen
    assert "changed mine" in seen, seen
    assert ("changed all" in seen, "changed home" in seen, SECRET in seen) == (False, False, False)
    assert (agents / "mine" / "new").exists()
