"""What the benchmarks share: contenders, rounds, the best of them, tables."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PEERS = ROOT / ".peers"

OURS, PYTHON, TYPESCRIPT = "quarterdeck", "official Python 0.12.1", "official TypeScript 2.4.0"

Figures = dict[str, Any]
Table = list[str]


def commands(*what: str) -> dict[str, list[str]]:
    return {
        OURS: [sys.executable, str(HERE / "ours.py"), *what],
        PYTHON: [sys.executable, str(HERE / "official.py"), *what],
        TYPESCRIPT: ["node", str(_typescript()), str(HERE / "peer.py"), *what],
    }


def _typescript() -> Path:
    """Put the script where node finds the SDK: beside its node_modules."""
    target = PEERS / "typescript.mjs"
    shutil.copyfile(HERE / "typescript.mjs", target)
    return target


def run(command: Sequence[str]) -> Figures:
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        sys.exit(f"benchmarks: {' '.join(command)} failed:\n{done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def contest(contenders: dict[str, list[str]], rounds: int) -> dict[str, list[Figures]]:
    results: dict[str, list[Figures]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, command in contenders.items():
            results[name].append(run(command))
    return results


def best(results: list[Figures], key: str, choose: Callable[..., Any] = min) -> float:
    return float(choose(each[key] for each in results))


def middle(results: list[Figures], key: str) -> float:
    return float(statistics.median(each[key] for each in results))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def lines_of(script: str, *arguments: str) -> list[Figures]:
    """Run a script of this folder and return the JSON lines that it prints."""
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"benchmarks: {script} failed; see above")
    return [json.loads(line) for line in done.stdout.splitlines()]
