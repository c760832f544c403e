"""A runner beside a scripted Claude Code."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from quarterdeck.protocol import Event, decode_event
from quarterdeck.runner import Runner, RunnerOptions
from quarterdeck.testing.foreign import ClaudeProgram

PATIENCE = 10.0


def options(folder: Path, **more: Any) -> RunnerOptions:
    environ = {
        "HOME": str(folder),
        "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        "PATH": os.environ["PATH"],
    }
    return RunnerOptions(home=folder / "home", environ=environ, **more)


def program(folder: Path, number: int = 1) -> ClaudeProgram:
    cwd = folder / "project"
    cwd.mkdir(exist_ok=True)
    return ClaudeProgram(folder / "claude", cwd=str(cwd), number=number)


@asynccontextmanager
async def running(folder: Path, **more: Any) -> AsyncIterator[Runner]:
    with anyio.fail_after(PATIENCE):
        async with Runner(options(folder, **more)) as runner:
            yield runner


async def log_of(runner: Runner, session_id: str) -> list[Event]:
    await runner.host.wait_stored()
    return [decode_event(each) for each in await runner.read_events(session_id, 0, 10_000)]


def prompts(events: list[Event]) -> list[str]:
    chunks = [each.payload for each in events if each.type == "user-message-chunk"]
    return [each["content"]["text"] for each in chunks]


async def until(runner: Runner, session_id: str, text: str, kind: str = "") -> list[Event]:
    """Wait until a prompt or an answer of this text is in the log, and an event of this type."""
    while True:
        if runner.find_session(session_id) is not None:
            events = await log_of(runner, session_id)
            is_there = any(text in str(each.payload.get("content")) for each in events)
            if is_there and (not kind or kind in {each.type for each in events}):
                return events
        await anyio.sleep(0.02)


async def holds(condition: Callable[[], Any]) -> Any:
    """Wait until a condition holds; return its value."""
    while True:
        if found := condition():
            return found
        await anyio.sleep(0.02)
