"""An agent that is an async context manager is open for as long as it is served."""

from __future__ import annotations

from types import TracebackType

import pytest

from quarterdeck.agent import AgentServer, AgentTurn
from tests.agent.support import conversing


class Diary:
    """An agent that notes when it is opened and closed."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    async def __aenter__(self) -> Diary:
        self.notes.append("opened")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.notes.append("closed")

    async def prompt(self, turn: AgentTurn) -> None:
        self.notes.append(turn.text)


@pytest.mark.anyio
async def test_an_agent_is_opened_before_its_first_turn_and_closed_after_its_last() -> None:
    diary = Diary()
    server = AgentServer(diary)
    async with server.running(), conversing(server) as hand:
        await hand.prompt(await hand.open_session(), "a turn")
    assert diary.notes == ["opened", "a turn", "closed"]
