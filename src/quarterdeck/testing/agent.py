"""A scripted ACP agent on stdio: `python -m quarterdeck.testing.agent SCENARIO`.

This is its command line; what it does is in `player`.
"""

from __future__ import annotations

import os
import signal
import sys

from quarterdeck.errors import ScenarioInvalid
from quarterdeck.testing.launch import ENVIRONMENT_VARIABLE, load_scenario
from quarterdeck.testing.pipes import STDERR, STDIN, STDOUT, Pipes, write_all
from quarterdeck.testing.player import Player
from quarterdeck.testing.scenario import Scenario, parse_scenario
from quarterdeck.testing.verbs import signal_number

MISUSED, INTERRUPTED = 2, 130


class _Misuse(Exception):
    """The command line cannot be understood."""


def _read_command_line(arguments: list[str]) -> tuple[Scenario, float]:
    """Return the scenario and the pace that a command line asks for."""
    pace, rest = 1.0, list(arguments)
    if rest[:1] == ["--pace"]:
        try:
            pace = float(rest[1])
        except (IndexError, ValueError):
            raise _Misuse("--pace takes a number; 0 leaves out all pauses") from None
        del rest[:2]
    match rest:
        case ["--json", text]:
            return parse_scenario(text, "--json"), pace
        case [which] if not which.startswith("-"):
            return load_scenario(which), pace
        case [] if ENVIRONMENT_VARIABLE in os.environ:
            return parse_scenario(os.environ[ENVIRONMENT_VARIABLE], ENVIRONMENT_VARIABLE), pace
        case _:
            raise _Misuse(
                "no scenario; usage: python -m quarterdeck.testing.agent"
                " [--pace NUMBER] (NAME | FILE | --json TEXT)"
            )


def main(arguments: list[str]) -> int:
    try:
        scenario, pace = _read_command_line(arguments)
        for name in scenario.ignore - {"eof"}:
            # A handler, not SIG_IGN: that one would be inherited by what we spawn.
            signal.signal(signal_number(name) or 0, lambda *_: None)
        pipes = Pipes(STDIN, STDOUT, with_headers=scenario.framing == "headers")
        Player(scenario, pipes, pace=pace).run()
    except (ScenarioInvalid, _Misuse) as error:
        write_all(STDERR, f"quarterdeck: {error}\n".encode())
        return MISUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
