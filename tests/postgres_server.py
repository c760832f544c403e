"""A private PostgreSQL cluster for tests: one for the whole run, shared by all workers of xdist.

The first worker that needs it starts it, behind a lock. It listens on a Unix socket alone, and ends
with the process that runs pytest, even if that is killed: a guard waits for it (`main`).

It does not sync to the disk: what these tests kill is PostgreSQL, not the machine.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tools.servers import server

USER = "quarterdeck"
OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}
GUARD_SECONDS = 0.5
START_SECONDS = 60.0


def run_as() -> dict[str, Any]:
    """Return the arguments of `Popen` for another user: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")  # made by Debian's package
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def program(name: str) -> str:
    found = server(name)
    assert found is not None, f"{name} is missing; run python3 -m tools.servers"
    return found


class Cluster:
    """A cluster in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    def create(cls) -> Cluster:
        folder = Path(tempfile.mkdtemp(prefix="qdpg"))  # short: the path of a socket is limited
        user = run_as()
        if user:
            os.chown(folder, user["user"], user["group"])
        command = [program("initdb"), "-D", str(folder / "data"), "-U", USER, "--auth=trust"]
        subprocess.run(
            [*command, "--no-sync", "--encoding=UTF8", "--locale=C"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
            **user,
        )
        return cls(folder)

    def start(self, **options: str) -> None:
        """Start the server and wait until it accepts connections."""
        settings = {**OPTIONS, "unix_socket_directories": str(self.folder), **options}
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [program("postgres"), "-D", str(self.folder / "data"), *arguments],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
                **run_as(),
            )
        deadline = time.monotonic() + START_SECONDS
        status = self.folder / "data/postmaster.pid"
        while not (status.exists() and b"ready" in status.read_bytes()):
            text = (self.folder / "log").read_text(errors="replace")
            assert self.process.poll() is None, text
            assert time.monotonic() < deadline, text
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server at once, without a checkpoint, as a crash does."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(30)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, statement: str, *, database: str = "postgres") -> None:
        """Run a statement as the user who owns everything."""
        command = [program("psql"), "-qX", "-h", str(self.folder), "-U", USER, "-d", database]
        subprocess.run(
            [*command, "-v", "ON_ERROR_STOP=1", "-c", statement],
            check=True,
            env={**os.environ, "PGOPTIONS": "-c client_min_messages=error"},
        )

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@/{database}?host={quote(str(self.folder), safe='')}"


def shared_cluster(folder: Path) -> Cluster:
    """Return the running cluster of this run, whose workers share `folder`."""
    with _locked(folder / "postgres.lock"):
        place = folder / "postgres.folder"
        if not place.exists():
            owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
            ready, wrote = os.pipe()
            with subprocess.Popen(
                [sys.executable, "-m", "tests.postgres_server", str(owner), str(wrote)],
                cwd=Path(__file__).parents[1],
                pass_fds=(wrote,),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            ) as guard:
                os.close(wrote)
                with os.fdopen(ready) as answer:
                    found = answer.read()
                assert found, "the cluster was not started; see above"
                guard.returncode = 0  # it lives on; nothing waits for it
            place.write_text(found)
        return Cluster(Path(place.read_text()))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(owner: int, answer: int) -> None:
    """Run a cluster until the process `owner` has ended."""
    cluster = Cluster.create()
    try:
        cluster.start()
        with os.fdopen(answer, "w") as file:
            file.write(str(cluster.folder))
        while _is_alive(owner):
            time.sleep(GUARD_SECONDS)
    finally:
        cluster.remove()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
