"""What the tests with awkward peers share: a scripted child at the other end of a connection."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quarterdeck.wire import (
    Connection,
    ConnectionOptions,
    ProcessTransport,
    Report,
    ReportKind,
    open_connection,
    open_process,
)
from quarterdeck.wire.connection import OnNotification
from quarterdeck.wire.requests import OnRequest

PEER = Path(__file__).with_name("peer.py")
PATIENCE = 60  # seconds; every wait of these tests ends far earlier unless something hangs

Step = Sequence[object]


def peer_command(*steps: Step) -> list[str]:
    return [sys.executable, "-I", "-S", str(PEER), json.dumps(steps)]


def line(**message: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", **message}) + "\n"


def update(value: Any, session: str = "s") -> str:
    return line(method="session/update", params={"sessionId": session, "update": value})


async def refuse_nothing(_method: str, params: Any) -> Any:
    return {"seen": params}


@dataclass(frozen=True)
class AwkwardPeer:
    """Our connection to a scripted peer, and everything it reported."""

    connection: Connection
    process: ProcessTransport
    reports: list[Report]
    notifications: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def kinds(self) -> list[ReportKind]:
        return [report.kind for report in self.reports]

    async def do(self, *steps: Step) -> Any:
        """Have steps played; when this returns, all that they wrote has been handled."""
        return await self.connection.call("do", {"steps": steps})

    async def heard(self, count: int = 1) -> list[Any]:
        """Return the next messages of ours that the peer reads, apart from what drives it."""
        messages: list[Any] = []
        while len(messages) < count:
            messages += [json.loads(each) for each in await self.heard_lines()]
        return messages

    async def heard_lines(self) -> list[str]:
        """Return what the peer has read by now, as it was spelled, apart from what drives it."""
        lines: list[str] = await self.connection.call("heard")
        drives = ('"method":"do"', '"method":"heard"')
        return [each for each in lines if not any(text in each[:60] for text in drives)]


@asynccontextmanager
async def awkward_peer(
    *steps: Step,
    on_notification: OnNotification | None = None,
    on_request: OnRequest = refuse_nothing,
    options: ConnectionOptions | None = None,
    stop_seconds: float = 5,
) -> AsyncIterator[AwkwardPeer]:
    """Start a peer that plays `steps`, and connect to it as a host connects to an agent."""
    reports: list[Report] = []
    notifications: list[tuple[str, Any]] = []
    options = options or ConnectionOptions(answers_garbage=False)
    if options.on_report is ConnectionOptions.on_report:
        options = replace(options, on_report=reports.append)

    def remember(method: str, params: Any) -> None:
        notifications.append((method, params))

    async with (
        open_process(peer_command(*steps), stop_seconds=stop_seconds) as process,
        open_connection(
            process,
            on_notification=on_notification or remember,
            on_request=on_request,
            options=options,
        ) as connection,
    ):
        yield AwkwardPeer(connection, process, reports, notifications)
