"""What the agent sends: 100,000 `session/update` notifications of two kinds, the same on every day.

chunks   message chunks of three to six words: what streaming looks like
mix      what a coding agent sends: 68 % message chunks, 10 % thoughts, 7 % tool calls, 10 % tool
         updates (half with a diff of 1.5 kB, half with text), 2 % plans, 2 % usage, 1 % commands

`acp2-chunks` and `acp2-mix` are the same in version 2 of ACP, as one turn: the agent's state, the
prompt as a user message, the updates, `idle`. Diffs are patches of about the same size.
"""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

COUNT = 100_000
ACP2 = "acp2-"
"""Begins the names of traffic in version 2."""
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


def as_acp2(update: Update) -> Update:
    """Return an update as an agent with version 2 sends it."""
    match update["sessionUpdate"]:
        case "tool_call":
            return {**update, "sessionUpdate": "tool_call_update"}
        case "tool_call_update" if update["content"][0]["type"] == "diff":
            return {**update, "content": [_patch(update["content"][0])]}
        case "plan":
            items = {"type": "items", "planId": "plan", "entries": update["entries"]}
            return {"sessionUpdate": "plan_update", "plan": items}
        case _:
            return update


def _patch(diff: Update) -> Update:
    lines = difflib.unified_diff(diff["oldText"].splitlines(), diff["newText"].splitlines())
    path = diff["path"]
    return {
        "type": "diff",
        "changes": [{"operation": "modify", "path": path}],
        "patch": {"format": "git_patch", "text": f"--- a{path}\n+++ b{path}\n" + "\n".join(lines)},
    }


def turn_of_acp2(kind: str, count: int = COUNT) -> list[Update]:
    """Return the updates of one kind in version 2, as one turn."""
    message = [{"type": "text", "text": "go"}]
    return [
        {"sessionUpdate": "state_update", "state": "running"},
        {"sessionUpdate": "user_message", "messageId": "prompt", "content": message},
        *(as_acp2(each) for each in updates(kind, count)),
        {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"},
    ]


def updates(kind: str, count: int = COUNT) -> list[Update]:
    """Return the updates of one kind."""
    chance = random.Random(1)
    return [KINDS[kind](chance, n) for n in range(count)]


def write_traffic(folder: Path) -> None:
    """Write `<kind>.ndjson` for each kind, unless it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    traffic = {
        **{kind: partial(updates, kind) for kind in KINDS},
        **{f"{ACP2}{kind}": partial(turn_of_acp2, kind) for kind in KINDS},
    }
    for name, updates_of in traffic.items():
        target = folder / f"{name}.ndjson"
        if target.exists():
            continue
        with target.open("w", encoding="utf-8") as file:
            for update in updates_of():
                params = {"sessionId": SESSION, "update": update}
                note = {"jsonrpc": "2.0", "method": "session/update", "params": params}
                file.write(json.dumps(note, ensure_ascii=False, separators=(",", ":")) + "\n")
