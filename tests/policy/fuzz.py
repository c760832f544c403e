"""Executes what rules allow, in five shells, and counts effects that no rule allows.

`python3 dev.py fuzz policy --lines 100000` runs it for long, `test_differential.py` for a short
time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from quarterdeck.policy import Call, Policy, Rule, SimpleCommand, decide, read_command
from quarterdeck.policy.simple_command import without_wrapper
from tests.policy.hostile_lines import hostile_lines
from tests.policy.shell_box import Box, BoxClient, Effect, found_shells, opened

PATTERNS: Final = ("git status*", "ls*", "npm test*")
POLICY: Final = Policy(rule=(Rule(decision="allow", name="few", commands=PATTERNS),))
ALLOWED: Final = frozenset({"git", "ls", "npm"})


@dataclass
class Tally:
    """What a run has seen."""

    judged: int = 0
    allowed: int = 0
    executed: int = 0
    """Lines times shells."""
    foreign: list[str] = field(default_factory=list)
    """One sentence for each effect that no rule allows."""


def is_allowed(line: str, workspace: Path) -> bool:
    call = Call("Bash", {"command": line}, kind="execute")
    return decide(POLICY, call, workspace=str(workspace)).decision == "allow"


def foreign_effects(line: str, effects: list[Effect]) -> list[str]:
    """Return what a line did that no rule allows, or that was not read from it."""
    expected = _expected(line)
    found = []
    for effect in effects:
        if effect.changed:
            found.append(f"{effect.shell}: {line!r} changed {effect.changed}")
        for ran in effect.ran:
            inner = _recorded(_unwrapped(ran))  # `time` is a program where it is no keyword
            is_read = expected is None or inner in expected
            if inner[0] not in ALLOWED or not is_read:
                found.append(f"{effect.shell}: {line!r} ran {ran}")
    return found


def _expected(line: str) -> set[tuple[str, ...]] | None:
    """Return the programs and arguments that were read; None if the shell expands some of them."""
    commands = read_command(line).understood or ()
    if any(_expands(command) for command in commands):
        return None
    return {_recorded(_unwrapped(command.words)) for command in commands}


def _expands(command: SimpleCommand) -> bool:
    return any(set(word) & set("*?[$") for word in command.words)


def _recorded(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return words as the recorder sees them: it cannot tell `ls ''` from `ls`."""
    return words[:1] if words[1:] == ("",) else words


def _unwrapped(words: tuple[str, ...]) -> tuple[str, ...]:
    inner = without_wrapper(words)
    return words if inner is None else _unwrapped(tuple(inner))


def run(box: Box | BoxClient, *, seed: int, lines: int, shells: list[str]) -> Tally:
    """Judge so many lines, and execute those that are allowed."""
    tally = Tally()
    seen: set[str] = set()
    for line in islice(hostile_lines(seed), lines):
        tally.judged += 1
        if line in seen or not is_allowed(line, box.work):
            continue
        seen.add(line)
        tally.allowed += 1
        tally.executed += len(shells)
        tally.foreign += foreign_effects(line, box.run(line, shells))
    return tally


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev.py fuzz policy", description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000, help="lines to judge")
    parser.add_argument(
        "--interactive", action="store_true", help="run lines in interactive shells as well"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()), help="repeat a run")
    chosen = parser.parse_args()
    shells = found_shells(interactive=chosen.interactive)
    _say(f"seed {chosen.seed}, shells: {', '.join(shells)}")
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder, "box")) as box:
        tally = run(box, seed=chosen.seed, lines=chosen.lines, shells=shells)
    for sentence in tally.foreign[:50]:
        _say(sentence)
    kinds = Counter(sentence.partition(":")[0] for sentence in tally.foreign)
    _say(
        f"{tally.judged:,} lines judged, {tally.allowed:,} different ones allowed,"
        f" {tally.executed:,} executions, {len(tally.foreign):,} foreign effects {dict(kinds)}"
    )
    return 1 if tally.foreign else 0


if __name__ == "__main__":
    sys.exit(main())
