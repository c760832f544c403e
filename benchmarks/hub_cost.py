"""What the hub costs, from an agent's output to clients in another process.

    python benchmarks/hub_cost.py hub|bare|relay sse|ws CLIENTS COUNT [INTERVAL]

Prints one JSON line: deliveries a second, the server's CPU for each, its memory for each client,
and for paced events how late they came.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Process:
    def __init__(self, script: str, *arguments: str) -> None:
        command = [sys.executable, str(HERE / script), *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            sys.exit("hub_cost.py: a process ended early; see above")
        return line

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.line())
        return facts

    def end(self) -> None:
        self.say("end")
        self._process.wait(30)


def main() -> None:
    what, kind, clients, count, *rest = sys.argv[1:]
    server = Process("hub_server.py", what, count, *rest)
    where = server.facts()
    server.say("stats")
    alone = server.facts()
    place = (str(where["port"]), where["token"], where["session"])
    readers = Process("hub_clients.py", kind, *place, clients)
    assert readers.line() == "ready"
    time.sleep(0.2)
    server.say("stats")
    before = server.facts()
    began = time.perf_counter()
    server.say("go")
    heard = readers.facts()
    server.say("stats")
    after = server.facts()
    server.end()
    deliveries = int(clients) * int(count)
    seconds = heard.pop("ended") - began
    report = {
        "deliveries": deliveries,
        "per_second": deliveries / seconds,
        "cpu_us": (after["cpu"] - before["cpu"]) * 1e6 / deliveries,
        "kb_per_client": (before["rss_mb"] - alone["rss_mb"]) * 1024 / int(clients),
        "rss_mb": after["rss_mb"],
        "bytes_per_event": heard.pop("bytes") / deliveries,
        **heard,
    }
    print(json.dumps({name: round(value, 2) for name, value in report.items()}))


if __name__ == "__main__":
    main()
