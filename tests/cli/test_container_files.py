"""The Dockerfile and compose.yaml, read as far as that shows mistakes.

`tests/container` builds the image and runs it.
"""

from __future__ import annotations

import importlib
import json
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from quarterdeck.cli.arguments import Parser
from quarterdeck.cli.init_process import GRACE_SECONDS
from quarterdeck.cli.installers import IMAGE_VARIABLE
from quarterdeck.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, continued lines joined."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    joined = text.replace("\\\n", " ").splitlines()
    found = (line.split(None, 1) for line in joined if line.strip())
    return [(name, rest) for name, rest in found]


def last_stage() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, rest in instructions():
        if name == "FROM":
            found = {}
        found.setdefault(name, []).append(rest)
    return found


def words(text: str) -> list[str]:
    """Return the command of an instruction in its exec form: no shell is process 1."""
    command: list[str] = json.loads(text[text.index("[") :])
    return command


def variables() -> dict[str, str]:
    return dict(pair.split("=", 1) for line in last_stage()["ENV"] for pair in shlex.split(line))


def compose() -> dict[str, Any]:
    yaml: Any = importlib.import_module("yaml")  # it has no types
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    return found


def is_sent(name: str) -> bool:
    """Return whether .dockerignore leaves a file of the root in: the last matching line decides."""
    is_left_in = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").split():
        if fnmatch(name, line.removeprefix("!")):
            is_left_in = line.startswith("!")
    return is_left_in


def test_everything_that_is_copied_exists_and_is_sent_to_the_builder() -> None:
    copied = [rest.split() for name, rest in instructions() if name == "COPY"]
    sources = {each for line in copied if "--from=" not in line[0] for each in line[:-1]}
    assert {"pyproject.toml", "src", "tools", "web"} <= sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert is_sent(source), source
    # What hatchling reads besides.
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert {*re.findall(r'^readme = "(.+)"', project, re.MULTILINE), "LICENSE"} <= sources
    assert not any(map(is_sent, (".git", ".venv", ".peers", "tests", "build")))


def test_the_image_does_not_run_as_root() -> None:
    stage = last_stage()
    (user,) = stage["USER"]
    uid, gid = map(int, user.split(":"))
    assert uid >= 1000
    assert gid >= 1000
    made = " ".join(stage["RUN"])
    assert f"useradd --uid {uid} --gid {gid}" in made
    for folder in words(stage["VOLUME"][0]):
        assert folder == "/deck" or re.search(rf"--owner=deck .*--mode=7.. {folder}\b", made)


def test_its_commands_are_commands_of_ours() -> None:
    stage = last_stage()
    entry, health = words(stage["ENTRYPOINT"][0]), words(stage["HEALTHCHECK"][0])
    assert entry == ["quarterdeck"]
    for command in (words(stage["CMD"][0]), health[1:]):
        assert command[0] in COMMANDS
        module = importlib.import_module(f"quarterdeck.cli.commands.{command[0]}")
        parser: Parser = module.parser()
        assert parser.read(command[1:]) is not None
    assert health[0] == entry[0]


def test_its_variables_are_those_that_are_read() -> None:
    found = variables()
    assert found[IMAGE_VARIABLE]
    assert found["QUARTERDECK_HOME"] in words(last_stage()["VOLUME"][0])
    # An agent can write in its home folder: what it puts there must not replace our command.
    first, *others = found["PATH"].split(":")
    assert not first.startswith("/home")
    assert f"{found['NPM_CONFIG_PREFIX']}/bin" in others


def test_compose_keeps_every_volume_and_gives_the_runner_time_to_end() -> None:
    found = compose()
    service = found["services"]["quarterdeck"]
    mounted = {line.rpartition(":")[2]: line.rpartition(":")[0] for line in service["volumes"]}
    assert mounted.keys() == set(words(last_stage()["VOLUME"][0]))
    named = {source for source in mounted.values() if re.fullmatch(r"\w+", source)}
    assert named == set(found["volumes"]) == {"data", "home"}
    assert int(service["stop_grace_period"].removesuffix("s")) > GRACE_SECONDS
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    # A published port would need TLS: the hub refuses to listen beyond loopback without.
    assert (service["network_mode"], service.get("ports")) == ("host", None)
