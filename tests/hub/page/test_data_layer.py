"""The page's data layer in node, against a hub in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.agents import AgentSettings
from tests.hub.api.kit import ASK, scripted
from tests.hub.local_owner import make_token
from tools.web import ROOT, WEB, node

TALK: tuple[dict[str, Any], ...] = (
    {"think": "let me see", "pieces": 3},
    {"say": "I look at it, then I say what I see. ", "pieces": 12},
    {"tool": "call-1", "title": "Look", "kind": "read", "input": {"path": "a.py"}},
    {"plan": ["[x] look", "[>] say", "rest"]},
    {"finish": "call-1", "text": "its content"},
    {"say": "Es ist schön: 😀.", "pieces": 9},
    {"usage": 1200, "size": 200000},
)
LONG = {"repeat": 90, "steps": [{"say": "word "}, {"think": "hm"}]}


@contextmanager
def hub_process(home: Path, agents: Mapping[str, AgentSettings]) -> Iterator[str]:
    """Run a hub, and give its address."""
    commands = {name: [each.command, *each.args] for name, each in agents.items()}
    program = [sys.executable, "-m", "tests.hub.page.hub_process", str(home)]
    with subprocess.Popen(
        [*program, json.dumps(commands)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(30)


@pytest.mark.slow
def test_the_data_layer_works_with_a_hub(tmp_path: Path) -> None:
    agents = {
        "talker": scripted(*TALK, sessions={"id": "talk-{n}"}),
        "asker": scripted(ASK, sessions={"id": "ask-{n}"}),
        "long": scripted(LONG, sessions={"id": "long-{n}"}),
    }
    home = tmp_path / "home"
    with hub_process(home, agents) as url:
        given = {
            "HUB_URL": url,
            "HUB_TOKEN": make_token(home),
            "HUB_CWD": str(tmp_path),
        }
        result = subprocess.run(
            [
                node(),
                "--test",
                "--test-timeout=60000",
                "--test-reporter=spec",
                "tests/hub/data.hub.ts",
            ],
            cwd=WEB,
            env={**os.environ, **given},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=100,
        )
    assert result.returncode == 0, result.stdout
