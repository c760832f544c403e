"""A host in a process of its own, to be killed or measured: `host_program.py MODE LOG AGENT [N]`.

print    prints the number of every event that a subscriber sees, one line each, until it is killed
measure  runs one prompt with N subscribers and an iterator that is not advanced, then prints, as
         JSON, by how many kilobytes the peak of its memory grew and how many events each saw

AGENT is a JSON list: the agent's command. The log is SQLite, or JSON lines if it ends in `.jsonl`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio

from quarterdeck.host import Host, HostOptions
from quarterdeck.protocol import Event
from quarterdeck.storage import JsonlStorage, SqliteStorage


def peak_kilobytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def print_seq(event: Event) -> None:
    os.write(1, b"%d\n" % event.seq)


class Counter:
    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, event: Event) -> None:
        assert event.seq == self.seen + 1
        self.seen = event.seq


async def start(host: Host, agent: list[str]) -> str:
    command, *arguments = agent
    spawned = await host.spawn_agent({"id": "it", "command": command, "args": arguments})
    session = await host.create_session(spawned.agent_id, cwd="/")
    return session.session_id


async def print_events(host: Host, agent: list[str]) -> None:
    session_id = await start(host, agent)
    host.subscribe(session_id, 0, print_seq)
    await host.prompt(session_id, "go")
    await anyio.sleep_forever()


async def measure(host: Host, agent: list[str], subscribers: int) -> None:
    session_id = await start(host, agent)
    counters = [Counter() for _ in range(subscribers)]
    for counter in counters:
        host.subscribe(session_id, 0, counter)
    idle = host.events(session_id)
    await anext(idle)
    before = peak_kilobytes()
    await host.prompt(session_id, "go")
    grown = peak_kilobytes() - before
    seen = sorted({counter.seen for counter in counters})
    os.write(1, json.dumps({"grown_kb": grown, "seen": seen}).encode())


async def main() -> None:
    mode, log, agent, *more = sys.argv[1:]
    command = json.loads(agent)
    storage = JsonlStorage(log) if log.endswith(".jsonl") else SqliteStorage(log)
    async with Host(HostOptions(storage=storage)) as host:
        if mode == "print":
            await print_events(host, command)
        else:
            await measure(host, command, int(more[0]))


if __name__ == "__main__":
    anyio.run(main)
