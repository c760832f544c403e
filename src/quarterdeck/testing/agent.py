"""A scripted ACP agent on stdio: `python -m quarterdeck.testing.agent SCENARIO`.

This is its command line; `player` plays the scenario.
"""

from __future__ import annotations

import os
import signal
import sys

from quarterdeck.errors import ScenarioInvalid
from quarterdeck.testing.pipes import STDERR, STDIN, STDOUT, Pipes, write_all
from quarterdeck.testing.player import Player
from quarterdeck.testing.scenario import (
    ENVIRONMENT_VARIABLE,
    Scenario,
    as_bytes,
    load_scenario,
    parse_scenario,
)
from quarterdeck.testing.verbs import LARGEST, signal_number

MISUSED, INTERRUPTED = 2, 130


class _Misuse(Exception):
    """The command line is invalid."""


def _read_command_line(arguments: list[str]) -> tuple[Scenario, float]:
    """Return the scenario and the pace that a command line names."""
    pace, rest = 1.0, list(arguments)
    if rest[:1] == ["--pace"]:
        try:
            pace = float(rest[1])
        except (IndexError, ValueError):
            pace = -1
        if not 0 <= pace <= LARGEST:  # false for nan, too
            raise _Misuse(f"--pace takes a number from 0 to {LARGEST}; with 0 there are no pauses")
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


def _open_pipes(scenario: Scenario) -> Pipes:
    if sys.stdin is None or sys.stdout is None:
        raise _Misuse("standard input or output is closed; connect both")
    return Pipes(STDIN, STDOUT, with_headers=scenario.framing == "headers")


def main(arguments: list[str]) -> int:
    try:
        scenario, pace = _read_command_line(arguments)
        for name in scenario.ignore - {"eof"}:
            # A handler, because child processes would inherit SIG_IGN.
            signal.signal(signal_number(name) or 0, lambda *_: None)
        Player(scenario, _open_pipes(scenario), pace=pace).run()
    except (ScenarioInvalid, _Misuse) as error:
        write_all(STDERR, as_bytes(f"quarterdeck: {error}\n"))
        return MISUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
