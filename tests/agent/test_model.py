"""Any sequence of requests: one answer each, in a state that a small model predicts."""

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given, settings, strategies as st

from quarterdeck.agent import AgentTurn, Mode, SessionStore
from tests.agent.support import Hand, Json, conversing

INVALID_PARAMS, INVALID_REQUEST = -32602, -32600

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["new", "prompt", "hang", "cancel", "close", "load", "resume", "delete", "mode", "list"]
        ),
        st.integers(0, 2),
        st.sampled_from(["full", "safe"]),
    ),
    max_size=25,
)


class Modal:
    modes = (Mode("full", "Full"), Mode("safe", "Safe"))

    async def prompt(self, turn: AgentTurn) -> AsyncIterator[str]:
        yield f"{turn.text} {turn.session.mode}"
        if turn.text == "hang":
            await anyio.sleep_forever()


class Expected:
    """What is known of one session."""

    def __init__(self) -> None:
        self.is_open = True
        self.is_stored = True
        self.mode = "full"
        self.hanging: int | None = None
        self.history: list[str] = []


class Player:
    def __init__(self, client: Hand) -> None:
        self.client = client
        self.sessions: dict[str, Expected] = {}

    async def play(self, step: str, index: int, mode: str) -> None:
        if step == "new" or not self.sessions:
            self.sessions[await self.client.open_session()] = Expected()
            return
        session_id = list(self.sessions)[index % len(self.sessions)]
        await getattr(self, step)(session_id, self.sessions[session_id], mode)

    async def call(self, method: str, session_id: str, **more: Any) -> Json:
        named = {"sessionId": session_id, "cwd": "/", "mcpServers": [], **more}
        return await self.client.call(f"session/{method}", **named)

    async def prompt(self, session_id: str, known: Expected, _mode: str) -> None:
        answer = await self.client.prompt(session_id, "prompt")
        if not known.is_open:
            assert answer["error"]["code"] == INVALID_PARAMS
        elif known.hanging is not None:
            assert answer["error"]["code"] == INVALID_REQUEST
        else:
            assert answer["result"] == {"stopReason": "end_turn"}
            known.history += ["prompt", f"prompt {known.mode}"]

    async def hang(self, session_id: str, known: Expected, mode: str) -> None:
        if not known.is_open or known.hanging is not None:
            await self.prompt(session_id, known, mode)
            return
        seen = len(self.client.updates())
        known.hanging = await self.client.ask_prompt(session_id, "hang")
        await self.client.came(lambda _each: len(self.client.updates()) > seen)
        known.history += ["hang", f"hang {known.mode}"]

    async def cancel(self, session_id: str, known: Expected, _mode: str) -> None:
        await self.client.notify("session/cancel", sessionId=session_id)
        await self.ended(known)

    async def ended(self, known: Expected) -> None:
        if known.hanging is not None:
            answer = await self.client.answered(known.hanging)
            assert answer["result"] == {"stopReason": "cancelled"}
            known.hanging = None

    async def close(self, session_id: str, known: Expected, _mode: str) -> None:
        answer = await self.call("close", session_id)
        assert ("result" in answer) is known.is_open
        await self.ended(known)
        known.is_open = False

    async def delete(self, session_id: str, known: Expected, _mode: str) -> None:
        assert (await self.call("delete", session_id))["result"] == {}
        await self.ended(known)
        known.is_open = known.is_stored = False

    async def load(self, session_id: str, known: Expected, _mode: str) -> None:
        seen = len(self.client.updates())
        if await self.reopen("load", session_id, known):
            texts = [
                each["content"]["text"]
                for each in self.client.updates()[seen:]
                if "content" in each
            ]
            assert texts == known.history

    async def resume(self, session_id: str, known: Expected, _mode: str) -> None:
        await self.reopen("resume", session_id, known)

    async def reopen(self, method: str, session_id: str, known: Expected) -> bool:
        answer = await self.call(method, session_id)
        if not known.is_stored:
            assert answer["error"]["code"] == INVALID_PARAMS
        elif known.hanging is not None:
            assert answer["error"]["code"] == INVALID_REQUEST
        else:
            assert answer["result"]["modes"]["currentModeId"] == known.mode
            known.is_open = True
            return True
        return False

    async def mode(self, session_id: str, known: Expected, mode: str) -> None:
        answer = await self.call("set_mode", session_id, modeId=mode)
        assert ("result" in answer) is known.is_open
        if known.is_open:
            known.mode = mode

    async def list(self, _session_id: str, _known: Expected, _mode: str) -> None:
        listed = (await self.client.result("session/list"))["sessions"]
        stored = {name for name, known in self.sessions.items() if known.is_stored}
        assert {each["sessionId"] for each in listed} == stored


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=40)
async def test_every_request_has_the_answer_that_its_session_calls_for(
    steps: list[tuple[str, int, str]],
) -> None:
    with TemporaryDirectory() as folder:
        async with conversing(Modal(), store=SessionStore(Path(folder, "s"))) as client:
            player = Player(client)
            for step, index, mode in steps:
                await player.play(step, index, mode)
            answers = [each["id"] for each in client.messages if "method" not in each]
            waiting = {known.hanging for known in player.sessions.values()}
            assert sorted(answers) == sorted(client.called.keys() - waiting)
