#!/usr/bin/env python3
"""Everything a developer runs, with nothing but Python 3.11 and git installed.

python3 dev.py demo     a hub with an offline agent at work (arguments go to `quarterdeck demo`)
python3 dev.py test     run the tests (arguments go to pytest)
python3 dev.py check    format, lint, layers, sizes and types, the page's too; changes no file
python3 dev.py fix      apply safe lint fixes and format
python3 dev.py bench    run the benchmarks (arguments name them)
python3 dev.py fuzz     run a fuzzer for long: fuzz policy --lines 100000
python3 dev.py agents-table  try what installed agents can do and write the docs' table (--help)
python3 dev.py ci       what the build server runs: check, test
python3 dev.py coverage run the tests and list what they do not reach; takes twice as long
python3 dev.py setup    only install what the others need; they also do it by themselves
python3 dev.py clean    remove everything that setup and the tools made
"""
# Standard library only. Every Python 3 must be able to parse this file, so that an old one
# reaches the check below: no walrus, no match, no `from __future__ import annotations`.

import concurrent.futures
import difflib
import hashlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

if sys.version_info < (3, 11):
    sys.exit(
        "dev.py: Python 3.11 or newer is needed and this is %d.%d; "
        "run it with a newer one (python3.11 dev.py ...)" % sys.version_info[:2]
    )
if os.name != "posix":
    sys.exit("dev.py: this needs Linux or macOS; on Windows run it inside WSL")

import fcntl  # absent on Windows, which has been sent away above
import tomllib  # absent before 3.11

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
PEERS = ROOT / ".peers"
BUILD = ROOT / "build"
PYPROJECT = ROOT / "pyproject.toml"
CONSTRAINTS = ROOT / "constraints.txt"

# The package.json of .peers, with exact versions of everything: ACP's TypeScript SDK, whose JSON
# schema our types are compared with, and acpx are the other side in tests and benchmarks.
PEER_PACKAGES = ROOT / "peers.json"
OLDEST_NODE = 18

# Builds the page of the hub from web/, if it has changed.
PAGE_COMMAND = ("python", "tools/web.py")
# Install Chromium for the page's tests, shells for the policy's, servers for the relay's and the
# hub's, where they are missing and may be installed.
BROWSER_COMMAND = (sys.executable, "tools/browser.py")
SHELLS_COMMAND = (sys.executable, "-m", "tools.shells")
SERVERS_COMMAND = (sys.executable, "-m", "tools.servers")
# Each fuzzer by its name: what runs it.
FUZZERS = {"policy": ("python", "-m", "tests.policy.fuzz")}
PAGE_FOLDERS = (ROOT / "web/node_modules", ROOT / "src/quarterdeck/hub/page/built")

# The README shows this line; `ci` runs it as it is written.
TEST_COMMAND = "python3 dev.py test"
PYTEST_CLOSING_LINE = re.compile(r"(=+ )?(\d+ \w+|no tests)\b.* in [\d.]+s\b")

CHECKS = {
    "types": ("mypy",),  # first, because it takes longest
    "format": ("ruff", "format", "--check", "."),
    "lint": ("ruff", "check", "."),
    "layers": ("lint-imports", "--no-logo"),
    "sizes": ("python", "tools/check_sizes.py"),
    "page": (*PAGE_COMMAND, "check"),
}
CACHES = (".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache")

FAILED, MISUSED, INTERRUPTED, TERMINATED = 1, 2, 130, 143
# How long a program may take to end after Ctrl-C before we end it.
GRACE_SECONDS = 5


def say(text: str) -> None:
    print(f"dev.py: {text}", file=sys.stderr, flush=True)


def stop(text: str, status: int = FAILED) -> NoReturn:
    say(text)
    sys.exit(status)


def environment() -> dict[str, str]:
    """Return our environment with the programs of .venv first and the pins of constraints.txt."""
    pins = CONSTRAINTS.as_uri()  # a path may have a space, where pip would cut it in two
    leaks = ("PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX")
    # Without bytecode each of the thousands of programs that the tests start compiles us anew.
    slow = ("PYTHONDONTWRITEBYTECODE",)
    inherited = {name: value for name, value in os.environ.items() if name not in (*leaks, *slow)}
    # Python reads and writes our path in files of .venv, in an encoding that may not have it.
    spelling = {} if str(ROOT).isascii() else {"PYTHONUTF8": "1"}
    return {
        **inherited,
        **spelling,
        "PATH": f"{BIN}{os.pathsep}{inherited.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": str(VENV),
        "PIP_CONSTRAINT": pins,
        "PIP_BUILD_CONSTRAINT": pins,  # where pip 25.3 looks for build requirements
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_USER": "0",
    }


def start(
    command: tuple[str, ...],
    stdout: int | None = None,
    stderr: int | None = None,
    variables: Mapping[str, str] = {},
) -> "subprocess.Popen[str]":
    """Start a program of .venv, or one that is named by its whole path."""
    # Never through PATH: the user's own Python would be found there, and installed into.
    program = shutil.which(command[0], path=str(BIN))
    if program is None:
        stop(f"cannot find {command[0]} in {BIN}; run python3 dev.py clean and try again")
    sys.stdout.flush()
    return subprocess.Popen(
        [program, *command[1:]],
        cwd=ROOT,
        env={**environment(), **variables},
        stdout=stdout,
        stderr=stderr,
        errors="replace",
    )


@contextmanager
def owned(process: "subprocess.Popen[str]") -> Iterator[None]:
    """What we started must not outlive us."""
    try:
        yield
    except KeyboardInterrupt:
        # The terminal has sent Ctrl-C to the program too: let it say its last words.
        end(process, patience=GRACE_SECONDS)
        raise
    except SystemExit:
        end(process, patience=0)
        raise


def end(process: "subprocess.Popen[str]", patience: float) -> None:
    """Wait, ask, insist."""
    for seconds, insist in ((patience, process.terminate), (GRACE_SECONDS, process.kill)):
        try:
            process.wait(seconds)
            return
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            insist()
    process.wait()


def status_of(command: tuple[str, ...]) -> int:
    """Run a program to its end and return its exit status as a shell would give it."""
    process = start(command)
    with owned(process):
        status = process.wait()
    return 128 - status if status < 0 else status


def complaints_of(command: tuple[str, ...]) -> str | None:
    """Run a program to its end; return what it said on stderr if it failed.

    It is printed only then: the traceback of a program that Ctrl-C ended is of no use.
    """
    process = start(command, stderr=subprocess.PIPE)
    with process, owned(process):
        _, complaints = process.communicate()
    if process.returncode in (INTERRUPTED, -signal.SIGINT):
        raise KeyboardInterrupt
    if process.returncode == 0:
        return None
    print(complaints, end="", file=sys.stderr, flush=True)
    return complaints


def run(command: tuple[str, ...], advice: str) -> None:
    """Run a program of .venv; if it fails, say so in one line and stop with its status."""
    status = status_of(command)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    if status:
        stop(f"{command[0]} ended with status {status}; {advice}", status)


def digest(*parts: str) -> str:
    """Return what a stamp says: everything that decides what is installed, in one word."""
    everything = "\0".join((sys.version, str(ROOT), *parts))
    # ROOT may hold bytes of a name that the locale cannot read.
    return hashlib.sha256(everything.encode("utf-8", "surrogateescape")).hexdigest()


def is_stamped(folder: Path, stamp: str) -> bool:
    try:
        return (folder / "stamp").read_text(encoding="utf-8") == stamp
    except (OSError, UnicodeError):
        return False


def write_stamp(folder: Path, stamp: str) -> None:
    """Record that `folder` is complete, in one step: half a stamp never counts."""
    partial = folder / "stamp.partial"
    partial.write_text(stamp, encoding="utf-8")
    partial.replace(folder / "stamp")


@contextmanager
def only_one() -> Iterator[None]:
    """Let one dev.py at a time change .venv and .peers; the others wait."""
    with Path(__file__).open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another dev.py to finish its own")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def setup() -> None:
    peers = digest(PEER_PACKAGES.read_text(encoding="utf-8"))
    if not (is_installed("dev") and is_stamped(PEERS, peers)):
        say("setting up .venv and .peers; a minute or two, the first time only")
        with only_one(), concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
            if not is_installed("dev"):
                prepare_venv()
            # The machine's own npm need not wait for pip; the other one comes with it.
            npm = None if is_stamped(PEERS, peers) else find_npm()
            peers_installed = pool.submit(install_peers, peers, *npm) if npm else None
            if not is_installed("dev"):
                install_packages("dev")
            if peers_installed:
                peers_installed.result()
            if not is_stamped(PEERS, peers):
                install_peers(peers, str(BIN / "npm"), environment())
    build_page()


def setup_hub() -> None:
    """Install what the hub itself needs: who wants to see it waits for no tools of ours."""
    if not (is_installed("fast") or is_installed("dev")):
        say("setting up .venv; less than a minute, the first time only")
        with only_one():
            if not (is_installed("fast") or is_installed("dev")):
                prepare_venv()
                install_packages("fast")
    build_page()


def build_page() -> None:
    with only_one():
        run(PAGE_COMMAND, "the page of the hub was not built; see above")


def packages_stamp(extra: str) -> str:
    sources = (PYPROJECT, CONSTRAINTS, ROOT / "src/quarterdeck/_version.py")
    return digest(extra, *(path.read_text(encoding="utf-8") for path in sources))


def is_installed(extra: str) -> bool:
    # The link's target is gone when the Python it was made with has been removed.
    return (BIN / "python").exists() and is_stamped(VENV, packages_stamp(extra))


def is_usable_venv() -> bool:
    """Whether .venv belongs to this Python and this folder, and was not left half made."""
    try:
        # The script, not the module: in a copied folder it starts the Python of the original.
        told = subprocess.check_output([str(BIN / "pip"), "--version"], stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return False
    version, python = os.fsdecode(told), "(python %d.%d)" % sys.version_info[:2]
    is_ours = f" from {VENV}{os.sep}" in version and version.rstrip().endswith(python)
    # The script may name another link to Python than the one that we start.
    return is_ours and os.access(BIN / "python", os.X_OK)


def prepare_venv() -> None:
    try:
        tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    except ValueError as error:
        stop(f"{PYPROJECT} is not TOML: {error}; fix it and run it again")
    if not is_usable_venv():
        create_venv()


def install_packages(extra: str) -> None:
    """Install ourselves with an extra of pyproject.toml."""
    command = ("python", "-m", "pip", "install", "-qq", "--editable", f".[{extra}]")
    complaints = complaints_of(command)
    if complaints is not None:
        stop(f"pip could not install the packages; {pip_advice(complaints)}")
    write_stamp(VENV, packages_stamp(extra))


def pip_advice(complaints: str) -> str:
    """Tell a package that cannot be had from one that cannot be built, which may be our own."""
    if re.search(r"No matching distribution|onnection|[Tt]imed? ?out|SSL|Proxy", complaints):
        return "check the network and `pip config list`"
    return "fix what it names above and run it again"


def create_venv() -> None:
    if importlib.util.find_spec("ensurepip") is None:
        stop(
            "this Python cannot create environments; install its venv package "
            "(Debian, Ubuntu: sudo apt install python%d.%d-venv)" % sys.version_info[:2]
        )
    if VENV.exists() and not VENV.is_dir():
        stop(f"{VENV} is not a folder; remove it, or let python3 dev.py clean do that")
    if complaints_of((sys.executable, "-m", "venv", "--clear", str(VENV))) is not None:
        stop(f"cannot create {VENV}; is the disk full or the folder read-only?")


def install_peers(stamp: str, npm: str, env: Mapping[str, str]) -> None:
    remove(PEERS)
    PEERS.mkdir()
    shutil.copyfile(PEER_PACKAGES, PEERS / "package.json")
    quietly = ("--loglevel=error", "--no-audit", "--no-fund", "--no-update-notifier")
    only = ("--no-package-lock", "--no-save", "--ignore-scripts")
    soon = ("--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000")  # not minutes
    command = [npm, "install", *quietly, *only, *soon]
    done = subprocess.run(
        command, cwd=PEERS, env=env, capture_output=True, errors="replace", check=False
    )
    if done.returncode:
        print(done.stderr, end="", file=sys.stderr, flush=True)
        stop("npm could not install its packages; check the network and `npm config list`")
    write_stamp(PEERS, stamp)


def find_npm() -> tuple[str, dict[str, str]] | None:
    """Return the system's npm if its node is new enough."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm and node:
        asked = subprocess.run([node, "--version"], stdout=subprocess.PIPE, text=True, check=False)
        major = re.match(r"v(\d+)\.", asked.stdout)
        if major and int(major[1]) >= OLDEST_NODE:
            return npm, dict(os.environ)
    return None


def demo(*arguments: str) -> None:
    setup_hub()
    run(("quarterdeck", "demo", *arguments), "see above")


def test(*arguments: str) -> None:
    setup()
    # Whole runs of tests to each worker, stolen at the end: what a module starts is started once.
    everything = ("-n4", "--dist=worksteal")
    run(("pytest", *(arguments or everything)), "see the lines that start with FAILED or ERROR")


def bench(*arguments: str) -> None:
    setup()
    run(("python", "benchmarks/run.py", *arguments), "see above")


def fuzz(*arguments: str) -> None:
    if not arguments or arguments[0] not in FUZZERS:
        stop(f"fuzz needs the name of a fuzzer: {', '.join(FUZZERS)}", MISUSED)
    setup()
    run((*FUZZERS[arguments[0]], *arguments[1:]), "see above")


def agents_table(*arguments: str) -> None:
    setup()
    run(("python", "-m", "tests.real_agents.abilities", *arguments), "see above")


def fix() -> None:
    setup()
    status = status_of(("ruff", "check", "--fix", "."))
    run(("ruff", "format", "."), "see above")
    if status:
        stop("ruff found what it cannot fix; see above")


def check() -> None:
    setup()
    if not checks_pass():
        stop("check failed; python3 dev.py fix corrects format and some of lint")


def checks_pass() -> bool:
    """Run every check, whatever the others say, and report each in a line."""

    def outcome(name: str) -> tuple[str, bool, float]:
        started = time.monotonic()
        process = start(CHECKS[name], stdout=subprocess.PIPE)
        output, _ = process.communicate()
        if process.returncode:
            print(output, end="", flush=True)
        return name, process.returncode == 0, time.monotonic() - started

    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        outcomes = list(pool.map(outcome, CHECKS))
    for name, passed, seconds in outcomes:
        print(f"{name:8} {'ok' if passed else 'FAILED':8} {seconds:5.1f} s")
    return all(passed for _, passed, _ in outcomes)


def ci() -> None:
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        # One after the other: apt-get runs only once at a time.
        installing = {
            "browser": pool.submit(status_of, BROWSER_COMMAND),
            "shells": pool.submit(status_of, SHELLS_COMMAND),
            "servers": pool.submit(status_of, SERVERS_COMMAND),
        }
        setup()
        failed = [name for name, status in installing.items() if status.result()]
    # Tests wait for processes half of their time; mypy is the one that waits for nothing.
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as pool:
        checked = pool.submit(checks_pass)
        tests_passed, closing_line = run_tests()
        if not checked.result():
            failed.append("check")
    if not tests_passed:
        failed.append("test")
    if failed:
        say(f"ci failed in {', '.join(failed)}; each can be run by itself, see python3 dev.py help")
    print(closing_line, flush=True)
    sys.exit(FAILED if failed else 0)


def coverage() -> None:
    setup()
    # Python starts coverage by itself when this names a configuration, in every process of .venv.
    measured = {"COVERAGE_PROCESS_START": str(PYPROJECT), "COVERAGE_FILE": str(ROOT / ".coverage")}
    tests_passed, _closing_line = run_tests(measured)
    reported = ("coverage", "combine", "-q"), ("coverage", "report")
    sys.exit(0 if tests_passed and not any(map(status_of, reported)) else FAILED)


def run_tests(variables: Mapping[str, str] = {}) -> tuple[bool, str]:
    """Run the README's test command; return whether it passed and pytest's closing line."""
    print(f"$ {TEST_COMMAND}", flush=True)
    closing_line = "pytest printed no closing line"
    process = start(tuple(shlex.split(TEST_COMMAND)), stdout=subprocess.PIPE, variables=variables)
    with process, owned(process):
        for line in process.stdout or ():
            print(line, end="", flush=True)
            if PYTEST_CLOSING_LINE.match(line):
                closing_line = line.strip()
        return process.wait() == 0, closing_line


def clean() -> None:
    with only_one():
        for folder in (VENV, PEERS, BUILD, *PAGE_FOLDERS, *(ROOT / name for name in CACHES)):
            remove(folder)
        for code in ("src", "tests", "tools", "benchmarks"):
            for folder in list((ROOT / code).rglob("__pycache__")):
                remove(folder)
        for data in (ROOT / ".coverage", *ROOT.glob(".coverage.*")):
            if data.is_file():  # a folder of such a name is none of ours
                data.unlink()


def remove(path: Path) -> None:
    """Take a folder away, or the file or link that stands in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


WITH_ARGUMENTS = {
    "demo": demo,
    "test": test,
    "bench": bench,
    "fuzz": fuzz,
    "agents-table": agents_table,
}
WITHOUT_ARGUMENTS = {
    "check": check,
    "fix": fix,
    "ci": ci,
    "coverage": coverage,
    "setup": setup,
    "clean": clean,
}


def main(name: str = "help", *arguments: str) -> None:
    if name in ("help", "-h", "--help"):
        print(__doc__.strip())
    elif name in WITH_ARGUMENTS:
        WITH_ARGUMENTS[name](*arguments)
    elif name not in WITHOUT_ARGUMENTS:
        near = difflib.get_close_matches(name, [*WITH_ARGUMENTS, *WITHOUT_ARGUMENTS], n=1)
        hint = f"did you mean {near[0]}?" if near else "python3 dev.py help lists them"
        stop(f"there is no command {name!r}; {hint}", MISUSED)
    elif arguments:
        stop(f"{name} takes no arguments; leave out {shlex.join(arguments)}", MISUSED)
    else:
        WITHOUT_ARGUMENTS[name]()


def leave_stdout() -> None:
    """Point stdout at nothing, or Python's last flush would complain once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    if sys.stdout is None:
        stop("standard output is closed; give it a place to go, such as /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # programs print any bytes
    try:
        main(*sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        stop("interrupted; run it again to carry on", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has closed it
        leave_stdout()
        sys.exit(FAILED)
    except OSError as error:  # a disk that is full, a folder that is read-only
        leave_stdout()
        stop(f"{error}; fix that and run it again")
