"""What the agent sends: 100,000 `session/update` notifications of two kinds, the same on every day.

chunks   message chunks of three to six words: what streaming looks like
mix      what a coding agent sends: 68 % message chunks, 10 % thoughts, 7 % tool calls, 10 % tool
         updates (half with a diff of 1.5 kB, half with text), 2 % plans, 2 % usage, 1 % commands
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

COUNT = 100_000
SESSION = "sess_0191f3c2-7b1e-7c55-9d0a-3f7be1c0a001"
SENTENCE = (
    "the function returns a list of sessions and then we update the plan because tests fail when "
    "naïve input ✓ arrives"
)
WORDS = SENTENCE.split()
CODE = "\n".join(
    f"    value_{n} = compute(value_{n - 1}, option={n})  # step {n}" for n in range(14)
)

Update = dict[str, Any]


def text(chance: random.Random, words: int) -> str:
    return " " + " ".join(chance.choice(WORDS) for _ in range(words))


def chunk(chance: random.Random, n: int, kind: str = "agent_message_chunk") -> Update:
    content = {"type": "text", "text": text(chance, chance.randint(3, 6))}
    return {"sessionUpdate": kind, "content": content, "messageId": f"msg_{n // 200}"}


def thought(chance: random.Random, n: int) -> Update:
    return chunk(chance, n, "agent_thought_chunk")


def tool_call(chance: random.Random, n: int) -> Update:
    path = f"/home/user/project/src/module_{n % 40}.py"
    return {
        "sessionUpdate": "tool_call",
        "toolCallId": f"call_{n}",
        "title": f"Edit {path}",
        "kind": "edit",
        "status": "pending",
        "locations": [{"path": path, "line": n % 300}],
        "rawInput": {"path": path, "old": text(chance, 20), "new": text(chance, 20)},
    }


def edited(_chance: random.Random, n: int) -> Update:
    diff = {
        "type": "diff",
        "path": f"/home/user/project/src/module_{n % 40}.py",
        "oldText": CODE,
        "newText": CODE.replace("compute", "evaluate"),
    }
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": f"call_{n}",
        "status": "completed",
        "content": [diff],
        "rawOutput": {"ok": True},
    }


def progress(chance: random.Random, n: int) -> Update:
    content = {"type": "content", "content": {"type": "text", "text": text(chance, 60)}}
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": f"call_{n}",
        "status": "in_progress",
        "content": [content],
        "_meta": {"durationMs": n},
    }


def plan(chance: random.Random, _n: int) -> Update:
    entry = {"priority": "medium", "status": "pending"}
    return {
        "sessionUpdate": "plan",
        "entries": [{"content": text(chance, 8), **entry} for _ in range(6)],
    }


def usage(_chance: random.Random, n: int) -> Update:
    cost = {"amount": n / 1e4, "currency": "USD"}
    return {"sessionUpdate": "usage_update", "used": 1000 + n, "size": 200_000, "cost": cost}


def commands(chance: random.Random, _n: int) -> Update:
    known = [{"name": f"cmd{k}", "description": text(chance, 6)} for k in range(8)]
    return {"sessionUpdate": "available_commands_update", "availableCommands": known}


MIX: list[tuple[float, Callable[[random.Random, int], Update]]] = [
    (0.68, chunk),
    (0.10, thought),
    (0.07, tool_call),
    (0.05, edited),
    (0.05, progress),
    (0.02, plan),
    (0.02, usage),
    (0.01, commands),
]


def mixed(chance: random.Random, n: int) -> Update:
    makers = [maker for _, maker in MIX]
    weights = [weight for weight, _ in MIX]
    return chance.choices(makers, weights)[0](chance, n)


KINDS: dict[str, Callable[[random.Random, int], Update]] = {"chunks": chunk, "mix": mixed}


def updates(kind: str, count: int = COUNT) -> list[Update]:
    """Return the updates of one kind."""
    chance = random.Random(1)
    return [KINDS[kind](chance, n) for n in range(count)]


def write_traffic(folder: Path) -> None:
    """Write `<kind>.ndjson` for each kind, unless it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        target = folder / f"{kind}.ndjson"
        if target.exists():
            continue
        with target.open("w", encoding="utf-8") as file:
            for update in updates(kind):
                params = {"sessionId": SESSION, "update": update}
                note = {"jsonrpc": "2.0", "method": "session/update", "params": params}
                file.write(json.dumps(note, ensure_ascii=False, separators=(",", ":")) + "\n")
