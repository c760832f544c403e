"""Agents that say texts that are found nowhere else, so that a capture can be searched for them."""

from __future__ import annotations

import json
import secrets
from typing import Any, Final

from quarterdeck.testing import scripted_agent
from tests.cli.kit import agent_toml

PLANTED: Final = tuple(f"planted-{number:02}-{secrets.token_hex(8)}" for number in range(40))
PROMPTS, OUTPUTS, FILES = PLANTED[:10], PLANTED[10:24], PLANTED[24:32]
TITLES, COMMANDS = PLANTED[32:36], PLANTED[36:40]

ASK: Final[dict[str, Any]] = {
    "ask": "call-1",
    "title": TITLES[0],
    "kind": "execute",
    "input": {"command": f"ls {' '.join(COMMANDS)}"},
    "locations": [f"/srv/{name}.py" for name in FILES[:4]],
    "allowed": [
        {"finish": "call-1", "text": OUTPUTS[0]},
        {"say": "It was allowed. And so it streams, piece by piece.", "pieces": 9, "pause": 0.1},
        {"say": " ".join(OUTPUTS[1:7])},
        {
            "tool": "call-2",
            "title": TITLES[1],
            "kind": "edit",
            "diff": {"path": f"/srv/{FILES[4]}", "new": OUTPUTS[7]},
            "locations": [f"/srv/{name}.md" for name in FILES[5:]],
        },
        {"finish": "call-2"},
        {"think": " ".join(OUTPUTS[8:11])},
        {"title": TITLES[2]},
        {"say": f"The end. {' '.join(OUTPUTS[11:])} {{prompt}}"},
    ],
    "rejected": [{"say": "It was rejected."}],
}
HEARD: Final[dict[str, Any]] = {"say": "Heard {prompt}. "}
WORD: Final[list[dict[str, Any]]] = [{"say": "word "}, {"pause": 0.1}]
TURNS: Final[list[dict[str, Any]]] = [
    # Longer than it takes a hub to notice that a machine is cut off; other prompts pass quickly.
    {"when": "one", "steps": [HEARD, {"repeat": 180, "steps": WORD}]},
    {"steps": [HEARD, {"repeat": 10, "steps": WORD}]},
]
RESUMES: Final = {"loadSession": True, "sessionCapabilities": {"resume": {}}}


def _slow() -> str:
    """Return an agent whose sessions can be resumed; ids are new after a restart, too."""
    scenario = {
        "name": "slow",
        "sessions": {"id": "slow-PROCESS-{n}"},
        "capabilities": RESUMES,
        "methods": {"session/resume": [{"result": {}}]},
        "turns": TURNS,
    }
    command = ["-c", 'exec "${@//PROCESS/$$}"', "bash", *scripted_agent(scenario, pace=1)]
    return f'[agents.slow]\ncommand = "bash"\nargs = {json.dumps(command)}\n'


AGENTS: Final = agent_toml("asking", ASK, pace=1) + _slow()
