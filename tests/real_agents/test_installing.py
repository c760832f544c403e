"""Six agents from nothing: installed by the command, then run, on a machine without Node.js.

`python3 dev.py test -m real_agents tests/real_agents/test_installing.py` downloads them: three from
npm, two from PyPI, and one as an archive of a registry in a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from quarterdeck.agents.installs import this_platform
from tests.cli.kit import COMMAND, Console
from tests.real_agents.agents import AGENTS, RealAgent
from tests.real_agents.model_server import model_server

pytestmark = [pytest.mark.real_agents, pytest.mark.timeout(1200)]

NAMES = ("qwen", "opencode", "goose", "hermes", "vibe")
BY_NAME = {agent.name: agent for agent in AGENTS}
ABSENT = ("node", "npm", "npx", "corepack", "uv", "uvx")


def empty_path(folder: Path) -> str:
    """Return a PATH with the programs of this system but Node.js."""
    folder.mkdir()
    for place in ("/usr/bin", "/bin"):
        for program in Path(place).iterdir():
            target = folder / program.name
            if program.name not in ABSENT and not target.is_symlink():
                target.symlink_to(program)
    versions = Path.home() / ".pyenv" / "versions"
    pythons = [str(each.parent) for each in sorted(versions.glob("*/bin/python3.12"))]
    return os.pathsep.join([str(folder), *pythons])


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_is_installed_and_answers(name: str, tmp_path: Path) -> None:
    desk = Console(tmp_path)
    answers(desk, BY_NAME[name], name, empty_path(tmp_path / "bin"))


def test_a_program_in_an_archive_is_installed_and_answers(tmp_path: Path) -> None:
    desk, path = Console(tmp_path), empty_path(tmp_path / "bin")
    install(desk, "goose", path)
    (program,) = (desk.home / "agents" / "goose").glob("*/node_modules/@aaif/*/bin/goose")
    archive = tmp_path / "goose.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(program, "goose-package/goose")
    target = {
        "archive": archive.name,
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "cmd": "./goose-package/goose",
        "args": ["acp"],
    }
    facts = {"id": "my-goose", "name": "Goose", "version": "1.52.0", "description": "An archive."}
    document = {"agents": [{**facts, "distribution": {"binary": {this_platform(): target}}}]}
    (tmp_path / "registry.json").write_text(json.dumps(document))
    keys = '["OPENAI_*", "GOOSE_*"]'
    desk.config.write_text(
        f'[catalogue]\nregistry = "{tmp_path}/registry.json"\n[environment]\npass_env = {keys}\n'
    )
    answers(desk, BY_NAME["goose"], "my-goose", path)


def install(desk: Console, name: str, path: str) -> str:
    """Install an agent, which takes as long as its download; return what was printed."""
    environ = {**desk.environ, "PATH": path}
    command = [*COMMAND, "agents", "install", name]
    done = subprocess.run(
        command, env=environ, cwd=desk.work, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def answers(desk: Console, agent: RealAgent, name: str, path: str) -> None:
    assert f"{name} " in install(desk, name, path)
    with model_server() as url:
        agent.settle(desk.folder, url)
        done = desk.run("run", name, "[say alpha]", **{**agent.environ(url), "PATH": path})
    assert (done.returncode, "The word is alpha." in done.stdout) == (0, True), done.stderr
    removed = desk.run("agents", "remove", name, PATH=path)
    assert removed.returncode == 0, removed.stderr
    assert desk.run("run", name, "hello", PATH=path).returncode == 1
