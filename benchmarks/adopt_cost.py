"""What it costs to import, to find and to watch sessions of another program.

    PYTHONPATH=src python benchmarks/adopt_cost.py WHAT PROGRAM

Prints one JSON line. PROGRAM is claude, codex or opencode, WHAT is
    import      a session of 100 MB into the log: CPU seconds, MB/s of CPU time, memory
    find        1,000 sessions, for the first time and again
    watch       50 idle sessions for ten seconds: share of a core
    huge        a session of 1 GB with a line of 900 MB in it: seconds, memory; not for opencode
"""

from __future__ import annotations

import json
import os
import random
import resource
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio

from quarterdeck.agents.adapters.installed import installed_adapters
from quarterdeck.runner import Runner, RunnerOptions
from quarterdeck.testing.foreign import ClaudeProgram, CodexProgram
from quarterdeck.testing.opencode_program import OpenCodeProgram

MB = 1_000_000
WATCH_SECONDS = 10.0


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


LineProgram = ClaudeProgram | CodexProgram
Program = LineProgram | OpenCodeProgram
_FILES: dict[str, type[LineProgram]] = {"claude": ClaudeProgram, "codex": CodexProgram}


def environ_of(folder: Path) -> dict[str, str]:
    """Return where the programs keep their sessions: all in one folder."""
    names = ("HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME")
    return {**dict.fromkeys(names, str(folder)), "PATH": os.environ["PATH"]}


def program_of(name: str, folder: Path, cwd: str, number: int = 1) -> Program:
    if name == "opencode":
        return OpenCodeProgram(folder / "opencode" / "opencode.db", cwd=cwd, number=number)
    return _FILES[name](folder, cwd=cwd, number=number)


def write_session(name: str, folder: Path, size: int) -> tuple[Program, int]:
    """Write a session whose lines are about as long as in real ones; return its size, too."""
    program, rnd = program_of(name, folder, str(folder)), random.Random(1)
    words = ["".join(rnd.choices("abcdefgh ", k=60)) for _ in range(200)]
    written = 0
    while written < 2 * MB:
        program.prompt("\n".join(rnd.choices(words, k=4)))
        for _ in range(4):
            output = "\n".join(rnd.choices(words, k=rnd.choice((2, 30, 60, 200))))
            program.call("cat file", output)
        program.answer("\n".join(rnd.choices(words, k=8)))
        written = size_of(program)
    if isinstance(program, OpenCodeProgram):
        _repeat_events(program, size // written)
    else:
        data = program.path.read_bytes()
        with program.path.open("ab") as file:
            for _ in range(size // len(data) - 1):
                file.write(data)
    return program, size_of(program)


def size_of(program: Program) -> int:
    if not isinstance(program, OpenCodeProgram):
        return program.path.stat().st_size
    with closing(sqlite3.connect(program.database)) as connection:
        return int(connection.execute("SELECT sum(length(data)) FROM event").fetchone()[0])


def _repeat_events(program: OpenCodeProgram, times: int) -> None:
    """Write the same events again, about other messages and parts."""
    with closing(sqlite3.connect(program.database)) as connection, connection:
        rows = connection.execute("SELECT id, type, data FROM event ORDER BY seq").fetchall()[1:]
        seq = len(rows)
        for number in range(1, times):
            for event_id, kind, data in rows:
                seq += 1
                other = data
                for each in ("msg_", "prt_", "call_"):
                    other = other.replace(each, f"{each}{number}x")
                row = (f"{event_id}x{number}", program.session_id, seq, kind, other)
                connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?)", row)
        connection.execute("UPDATE event_sequence SET seq = ?", (seq,))


async def imported(name: str, folder: Path, program: Program, size: int) -> dict[str, float]:
    options = RunnerOptions(home=folder / "home", environ=environ_of(folder))
    async with Runner(options) as runner:
        before, cpu, began = memory_mb(), time.process_time(), time.monotonic()
        await runner.adopt_program(name, past=True)
        await runner.adopt_session(name, program.session_id)
        used = time.process_time() - cpu
        return {
            "mb": size / MB,
            "cpu_seconds": used,
            "mb_per_cpu_second": size / MB / used,
            "seconds": time.monotonic() - began,
            "events": runner.last_seq(program.session_id),
            "rss_before_mb": before,
            "rss_mb": memory_mb(),
        }


def measure_import(name: str, folder: Path) -> dict[str, float]:
    program, size = write_session(name, folder, 100 * MB)
    return anyio.run(imported, name, folder, program, size)


def measure_huge(name: str, folder: Path) -> dict[str, float]:
    program, size = write_session(name, folder, 100 * MB)
    assert not isinstance(program, OpenCodeProgram)
    with program.path.open("ab") as file:
        file.truncate(size + 900 * MB)  # a hole: zeros, and no newline
        file.seek(0, os.SEEK_END)
        file.write(b"\n")
    return anyio.run(imported, name, folder, program, size_of(program))


def _many(name: str, folder: Path, count: int) -> None:
    for number in range(1, count + 1):
        program = program_of(name, folder, f"{folder}/{number % 20}", number)
        program.prompt("hello")
        program.answer("good day")


def measure_find(name: str, folder: Path) -> dict[str, float]:
    _many(name, folder, 1_000)
    adapter, figures = installed_adapters(environ_of(folder))[name], {}
    for key in ("first_seconds", "again_seconds"):
        began = time.monotonic()
        assert len(adapter.find_sessions()) == 1_000
        figures[key] = time.monotonic() - began
    return figures


def measure_watch(name: str, folder: Path) -> dict[str, float]:
    _many(name, folder, 50)
    if name == "claude":
        ClaudeProgram(folder, cwd=f"{folder}/1").run("idle")
    options = RunnerOptions(home=folder / "home", environ=environ_of(folder))

    async def watch() -> dict[str, float]:
        async with Runner(options) as runner:
            await runner.adopt_program(name, past=True)
            await anyio.sleep(3)
            before = time.process_time()
            await anyio.sleep(WATCH_SECONDS)
            return {"percent": 100 * (time.process_time() - before) / WATCH_SECONDS}

    return anyio.run(watch)


MEASURED: dict[str, Any] = {
    "import": measure_import,
    "find": measure_find,
    "watch": measure_watch,
    "huge": measure_huge,
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(MEASURED[sys.argv[1]](sys.argv[2], Path(folder))))


if __name__ == "__main__":
    main()
