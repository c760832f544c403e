"""An agent that does what its prompt says; `python example_agent.py stdio|http FOLDER [PORT]`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio

from quarterdeck.agent import (
    AgentSession,
    AgentTurn,
    HttpOptions,
    Mode,
    SessionStore,
    serve_http,
    serve_stdio,
)

TOKEN = "0123456789abcdef"
TOOL = {"toolCallId": "t1", "title": "Write", "kind": "edit", "status": "pending"}


class ExampleAgent:
    """One verb a prompt."""

    modes = (Mode("full", "Full"), Mode("safe", "Safe"))

    async def prompt(self, turn: AgentTurn) -> AsyncIterator[Any]:
        verb, _, rest = turn.text.partition(" ")
        async for piece in getattr(self, verb)(turn, rest):
            yield piece

    async def close_session(self, session: AgentSession) -> None:
        await anyio.Path(session.cwd, "closed").write_text(session.id, encoding="utf-8")

    async def echo(self, _turn: AgentTurn, rest: str) -> AsyncIterator[str]:
        yield rest

    async def noise(self, _turn: AgentTurn, _rest: str) -> AsyncIterator[str]:
        print("printed")  # noqa: T201 - that is the point
        sys.stdout.write("written")
        os.write(1, b"to the descriptor\n")
        subprocess.run(["echo", "by a child"], check=True)  # noqa: ASYNC221 - careless code
        yield f"read: {sys.stdin.read()!r}"

    async def count(self, _turn: AgentTurn, rest: str) -> AsyncIterator[str]:
        for number in range(int(rest)):
            yield f"{number} "

    async def wait(self, _turn: AgentTurn, rest: str) -> AsyncIterator[str]:
        yield rest
        await anyio.sleep_forever()

    async def stubborn(self, _turn: AgentTurn, rest: str) -> AsyncIterator[str]:
        yield rest
        while True:
            try:
                await anyio.sleep(3600)
            except BaseException:  # noqa: BLE001 - as careless code does
                continue

    async def ask(self, turn: AgentTurn, _rest: str) -> AsyncIterator[str]:
        yield str(await turn.ask_permission(TOOL))

    async def fail(self, _turn: AgentTurn, rest: str) -> AsyncIterator[str]:
        yield "about to fail"
        raise ValueError(rest)

    async def remember(self, turn: AgentTurn, rest: str) -> AsyncIterator[str]:
        yield repr(turn.session.memory)
        turn.session.remember(rest.encode())

    async def block(self, _turn: AgentTurn, rest: str) -> AsyncIterator[str]:
        time.sleep(float(rest))  # noqa: ASYNC251 - as careless code does
        yield "done"


def main() -> None:
    how, folder, *rest = sys.argv[1:]
    store = SessionStore(folder)
    if how == "stdio":
        serve_stdio(ExampleAgent(), store=store)
    else:
        options = HttpOptions(token=TOKEN, idle_seconds=float(rest[1]) if rest[1:] else 300)
        serve_http(ExampleAgent(), port=int(rest[0]), store=store, options=options)


if __name__ == "__main__":
    main()
