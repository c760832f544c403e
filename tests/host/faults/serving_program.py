"""A host in a process of its own that serves until it gets a signal: `… LOG AGENT`.

It writes, a line each: `ready` when there is a session; `event` and the event as it is encoded, for
all that a subscriber of the session sees; `diagnostic` and its code, for each; `finished` when the
turn has ended. The turn begins with the first line on standard input. SIGTERM ends it politely.
AGENT is a JSON list: the agent's command. A log that ends in `.jsonl` is one of JSON lines, else it
is SQLite's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress

import anyio

from quarterdeck.errors import AcpError
from quarterdeck.host import Host, HostOptions
from quarterdeck.protocol import Event, encode_event
from quarterdeck.storage import JsonlStorage, SqliteStorage


def write(line: bytes) -> None:
    rest = memoryview(line + b"\n")
    while rest:
        rest = rest[os.write(1, rest) :]


def report(event: Event) -> None:
    if event.type == "diagnostic":
        write(f"diagnostic {event.payload['code']}".encode())


async def serve(host: Host, agent: list[str]) -> None:
    command, *arguments = agent
    host.subscribe(None, 0, report)
    spawned = await host.spawn_agent({"id": "it", "command": command, "args": arguments})
    session = await host.create_session(spawned.agent_id, cwd="/")
    host.subscribe(session.session_id, 0, lambda event: write(b"event " + encode_event(event)))
    write(b"ready")
    await anyio.wait_readable(sys.stdin)
    with suppress(AcpError):  # the agent was ended
        await host.prompt(session.session_id, "go")
        write(b"finished")


async def main() -> None:
    log, agent = sys.argv[1:]
    storage = JsonlStorage(log) if log.endswith(".jsonl") else SqliteStorage(log)
    options = HostOptions(storage=storage, kill_timeout_ms=500)
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with Host(options) as host, anyio.create_task_group() as tasks:
            tasks.start_soon(serve, host, json.loads(agent))
            async for _signal in signals:
                tasks.cancel_scope.cancel()
                break


if __name__ == "__main__":
    anyio.run(main)
