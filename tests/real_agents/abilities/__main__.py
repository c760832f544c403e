"""Try what every installed agent can do, and write the table of docs/use/agents.md.

    python3 dev.py agents-table                     all agents that are installed
    python3 dev.py agents-table --install           install what is missing first
    python3 dev.py agents-table --only claude pi    only these; the others keep their results

Agents are installed with `quarterdeck agents install`, each in a data directory of its own beneath
`--folder`. They run in a network of their own, in which only this machine can be reached, against
the model server of the tests. Needs Linux, `unshare` and `ip`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.agents.installs import InstallFolder
from tests.cli.kit import COMMAND, Console
from tests.real_agents.abilities.faults import FAULTS
from tests.real_agents.abilities.table import (
    RECORDINGS,
    Result,
    merged,
    recording,
    recording_name,
    table,
    unexplained,
    with_table,
)
from tests.real_agents.abilities.trial import ABILITIES, Failed, Trial
from tests.real_agents.agents import AGENTS, RealAgent
from tests.real_agents.model_server import model_server
from tests.real_agents.more_agents import MORE_AGENTS

ROOT: Final = Path(__file__).resolve().parents[3]
MODULE: Final = "tests.real_agents.abilities"
CHAPTER: Final = ROOT / "docs" / "use" / "agents.md"
RESULTS: Final = Path(__file__).with_name("results.json")
FOLDER: Final = Path.home() / ".cache" / "quarterdeck" / "agents-table"
ISOLATED: Final = "QUARTERDECK_AGENTS_TABLE_ISOLATED"
HOME: Final = "/home/user"
"""In the place of the folder that an agent had."""
AGENT_SECONDS: Final = 1500.0
"""After this time the run of an agent is given up."""
EVERYONE: Final = {each.label: each for each in (*AGENTS, *MORE_AGENTS)}


def main(arguments: list[str]) -> int:
    chosen = _parser().parse_args(arguments)
    if chosen.one is not None:
        _try_one(EVERYONE[chosen.one], chosen.folder, chosen.result)
        return 0
    wanted = [EVERYONE[label] for label in chosen.only or EVERYONE]
    if chosen.install:
        for name in dict.fromkeys(each.name for each in wanted):
            _install(name, chosen.folder)
    ready = [each for each in wanted if _installed(each, chosen.folder) is not None]
    for missing in sorted({each.name for each in wanted} - {each.name for each in ready}):
        print(f"{missing}: not installed, left out; --install installs it", file=sys.stderr)
    if not os.environ.get(ISOLATED):
        return _isolated(arguments)
    with ThreadPoolExecutor(max_workers=chosen.jobs) as pool:
        results = [each for each in pool.map(lambda each: _run(each, chosen), ready) if each]
    return _write(results)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 dev.py agents-table")
    parser.add_argument("--only", nargs="+", choices=sorted(EVERYONE), metavar="AGENT")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where agents are installed")
    parser.add_argument("--install", action="store_true", help="install agents that are missing")
    parser.add_argument("--jobs", type=int, default=2, help="agents at once (default: 2)")
    parser.add_argument("--one", choices=sorted(EVERYONE), help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    return parser


def _write(results: list[Result]) -> int:
    """Write the results and the table; fail if the reason of a failure is not known."""
    known = msgspec.json.decode(RESULTS.read_bytes(), type=list[Result]) if RESULTS.exists() else []
    every = merged(known, results)
    text = msgspec.json.format(msgspec.json.encode(every), indent=1).decode()
    RESULTS.write_text(f"{text}\n", encoding="utf-8")
    chapter = CHAPTER.read_text(encoding="utf-8")
    made = table(every, list(ABILITIES), FAULTS)
    CHAPTER.write_text(with_table(chapter, made), encoding="utf-8")
    open_questions = unexplained(every, FAULTS)
    for agent, ability in open_questions:
        print(f"{agent}: {ability} fails without a reason in faults.py", file=sys.stderr)
    return 1 if open_questions else 0


# ---- installing and isolating --------------------------------------------------------------------


def _install(name: str, folder: Path) -> None:
    home = folder / name / "data"
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    if InstallFolder(home / "agents").agent(name).current() is None:
        environ = {**os.environ, "QUARTERDECK_HOME": str(home)}
        done = subprocess.run([*COMMAND, "agents", "install", name], env=environ, check=False)
        print(f"{name}: {'installed' if done.returncode == 0 else 'could not be installed'}")


def _installed(agent: RealAgent, folder: Path) -> tuple[Path, str, str] | None:
    """Return an agent's program, its version, and PATH as it needs it."""
    found = InstallFolder(folder / agent.name / "data" / "agents").agent(agent.name).current()
    if found is None:
        return None
    place, manifest = found
    search = [str(place / each) for each in manifest.search]  # an absolute one stays as it is
    path = os.pathsep.join([*search, os.environ.get("PATH", os.defpath)])
    return place / manifest.program, manifest.version, path


def _isolated(arguments: list[str]) -> int:
    """Run this again where nothing but this machine can be reached."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    line = 'ip link set lo up && exec "$@"'
    command = [sys.executable, "-m", MODULE, *arguments]
    done = subprocess.run(
        ["unshare", *as_root, "--net", "--", "sh", "-c", line, "sh", *command],
        env={**os.environ, ISOLATED: "1"},
        check=False,
    )
    return done.returncode


# ---- running -------------------------------------------------------------------------------------


def _run(agent: RealAgent, chosen: argparse.Namespace) -> Result | None:
    """Try one agent in a process of its own, which may be given up."""
    with tempfile.NamedTemporaryFile(suffix=".json") as answer:
        command = [sys.executable, "-m", MODULE, "--one", agent.label]
        where = ["--folder", str(chosen.folder), "--result", answer.name]
        try:
            done = subprocess.run([*command, *where], timeout=AGENT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            print(f"{agent.label}: given up after {AGENT_SECONDS:.0f} s", file=sys.stderr)
            return None
        if done.returncode:
            print(f"{agent.label}: the trial itself failed; see above", file=sys.stderr)
            return None
        return msgspec.json.decode(Path(answer.name).read_bytes(), type=Result)


def _try_one(agent: RealAgent, folder: Path, answer: Path) -> None:
    installed = _installed(agent, folder)
    assert installed is not None
    program, version, path = installed
    home = Path(tempfile.mkdtemp(prefix=f"qd-{agent.label}-"))
    try:
        with model_server() as url:
            # What the agent starts itself is found as after `agents install`.
            given = {**agent.environ(url), "PATH": path}
            args = (*agent.args, *agent.shell_args)
            settled = replace(agent, environ=lambda _url: given, args=args)
            desk = Console(home, settled.configuration(folder, url, program))
            agent.settle(home, url)
            if agent.prepare is not None:
                agent.prepare(program, {**desk.environ, **given}, url)
            failures = _tried(Trial(agent, desk), agent.label, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    date = time.strftime("%Y-%m-%d")
    result = Result(agent=agent.label, version=version, date=date, failures=failures)
    answer.write_bytes(msgspec.json.encode(result))


def _tried(trial: Trial, label: str, home: Path) -> dict[str, str]:
    """Return what happened instead of each ability that the agent does not have."""
    failures = {}
    trial.start()
    for ability, attempt in ABILITIES.items():
        started = time.monotonic()
        path = ROOT / RECORDINGS / recording_name(label, ability)
        path.unlink(missing_ok=True)
        events = []
        try:
            attempt(trial)
        except (Failed, AssertionError) as error:
            failures[ability] = " ".join(str(error).replace(str(home), HOME).split())[:400]
            with suppress(OSError, AssertionError, json.JSONDecodeError):
                events = trial.events()
            path.parent.mkdir(exist_ok=True)
            names = {str(home): HOME}
            path.write_text(recording(events, failures[ability], names), encoding="utf-8")
        took = time.monotonic() - started
        print(f"{label}: {ability}: {failures.get(ability, 'ok')} ({took:.1f} s)", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
