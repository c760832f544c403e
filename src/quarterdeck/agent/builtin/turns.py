"""One turn of the built-in agent: ask the model, run the tools it calls, ask again.

Whatever ends a turn, a cancellation included, the conversation is kept so that every provider
accepts it, and every call that the client was told of has an end.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from anyio.lowlevel import checkpoint

from quarterdeck.agent.builtin.asking import Asking
from quarterdeck.agent.builtin.calling import Calling
from quarterdeck.agent.builtin.compaction import FULL, compacted, split, summary_request
from quarterdeck.agent.builtin.conversation import (
    AssistantMessage,
    Call,
    Result,
    ResultsMessage,
    Text,
    UserMessage,
    estimated_tokens,
    settled,
)
from quarterdeck.agent.builtin.instructions import instructions
from quarterdeck.agent.builtin.model import (
    CallStarted,
    Model,
    Reply,
    Request,
    TextDelta,
    ThoughtDelta,
    ToolSpec,
)
from quarterdeck.agent.builtin.settings import Settings
from quarterdeck.agent.builtin.tools import Tool
from quarterdeck.agent.builtin.work import Work
from quarterdeck.agent.builtin.workshop import Workshop
from quarterdeck.errors import ModelFailed, QuarterdeckError

if TYPE_CHECKING:
    from quarterdeck.agent.turn import Turn


class Answering:
    """One prompt, from the user's words to a stop reason."""

    def __init__(self, turn: Turn, model: Model, work: Work, workshop: Workshop) -> None:
        self._turn = turn
        self._model = model
        self._work = work
        self._workshop = workshop
        self._settings: Settings = workshop.setup.settings
        self._asking = Asking(self._settings, turn.think)
        self._calling = Calling(turn, workshop.workplace(turn, work), work.allowed)
        self._said = ""
        self._has_spoken = False

    async def answer(self, message: UserMessage, *, mode: str | None = None) -> str:
        """Answer the user; `mode` is for this turn alone. Returns the stop reason.

        Raises:
            ModelFailed: if the model does not answer.
        """
        self._work.messages.append(message)
        self._calling.mode = mode
        try:
            for _ in range(self._settings.max_steps):
                stop = await self._step(mode)
                if stop is not None:
                    return stop
        except ModelFailed as failure:
            if failure.reason == "rejected" and self._work.messages[-1] is message:
                self._work.messages.pop()  # else the next prompt would be rejected for it as well
            raise
        else:
            self._turn.say(f"\n[stopped after {self._settings.max_steps} requests to the model]")
            return "max_turn_requests"
        finally:
            self._put_away()

    async def compact(self) -> int:
        """Summarise the conversation now; return about how many tokens are left of it."""
        await self._compact(keep=False)
        self._work.remember()
        return self._work.tokens

    async def _step(self, mode: str | None) -> str | None:
        """Ask the model once and do what it wants; return a stop reason if that was all."""
        tools = self._tools(mode)
        if self._work.tokens + self._pending_tokens() > FULL * self._model.context_window:
            await self._compact(keep=True)
        reply = await self._ask(tools, mode)
        self._keep(reply)
        self._count(reply)
        if reply.stop != "stop":
            return "max_tokens" if reply.stop == "length" else "refusal"
        if reply.message.calls:
            await self._run(reply.message.calls, mode)
            return None
        if not self._has_spoken:
            sentence = f"{self._model.name} gave an empty answer"
            raise ModelFailed("malformed", f"{sentence}; send the prompt again or say it otherwise")
        return "end_turn"

    def _keep(self, reply: Reply) -> None:
        """Remember an answer; what is blank, or was cut in the middle of a call, is left out."""
        self._said = ""
        message = reply.message
        if message.calls and reply.stop != "stop":  # nobody knows what was meant
            self._calling.abandon("the model's answer was cut before this call was complete")
            message = AssistantMessage(text=message.text)
        if message.calls or message.text.strip():
            self._work.messages.append(message)

    async def _ask(self, tools: dict[str, Tool], mode: str | None) -> Reply:
        """Ask; if the provider says that the conversation is too long, compact it and ask again."""
        try:
            return await self._ask_once(tools, mode)
        except ModelFailed as failure:
            if failure.reason != "context" or self._said:
                raise
        await self._compact(keep=True)
        return await self._ask_once(tools, mode)

    async def _ask_once(self, tools: dict[str, Tool], mode: str | None) -> Reply:
        session = self._turn.session
        told = await instructions(
            cwd=str(session.cwd),
            roots=[str(root) for root in session.roots],
            mode=mode or session.mode or "",
            now=self._workshop.now(),
            files=self._workshop.files,
        )
        specs = tuple(ToolSpec(t.name, t.description, t.schema) for t in tools.values())
        request = Request(told, settled(self._work.messages), specs)

        def show(delta: TextDelta | ThoughtDelta | CallStarted) -> None:
            match delta:
                case TextDelta(text):
                    self._said += text
                    self._has_spoken |= bool(text.strip())
                    self._turn.say(text)
                case ThoughtDelta(text):
                    self._turn.think(text)
                case CallStarted(call_id, name):
                    self._calling.announce(call_id, name, tools)

        return await self._asking.ask(self._model, request, show)

    def _tools(self, mode: str | None) -> dict[str, Tool]:
        """Return the tools of the session's mode at this moment that `mode`, if given, has, too."""
        tools = self._workshop.tools(self._turn.session.mode, self._work)
        if mode is None:
            return tools
        of_turn = self._workshop.tools(mode, self._work)
        return {name: tool for name, tool in tools.items() if name in of_turn}

    async def _run(self, calls: Sequence[Call], mode: str | None) -> None:
        """Run calls one after the other."""
        results: list[Result] = []
        try:
            for call in calls:
                await self._turn.room()
                await checkpoint()
                results.append(await self._calling.run(call, lambda: self._tools(mode)))
        finally:
            self._has_spoken = True
            self._work.messages.append(ResultsMessage(results=tuple(results)))
            self._work.remember()

    async def _compact(self, *, keep: bool) -> None:
        """Replace the older part of the conversation by a summary that the model writes."""
        window = self._model.context_window
        messages = settled(self._work.messages)
        older, kept = split(messages, window) if keep else (messages, ())
        if not older:
            return
        before = estimated_tokens(messages)
        reply = await self._asking.ask(self._model, summary_request(older, window), _ignore)
        if not reply.message.text.strip():
            raise ModelFailed("malformed", f"{self._model.name} gave an empty summary; try again")
        self._work.messages = list(compacted(reply.message.text, kept))
        self._work.tokens = estimated_tokens(self._work.messages)
        self._turn.think(f"[compacted from about {before} to {self._work.tokens} tokens]\n")

    def _pending_tokens(self) -> int:
        """Guess the tokens of what came after the last answer, which the provider counted."""
        pending = []
        for message in reversed(self._work.messages):
            if isinstance(message, AssistantMessage):
                break
            pending.append(message)
        return estimated_tokens(pending)

    def _count(self, reply: Reply) -> None:
        used = reply.usage.input + reply.usage.output
        self._work.tokens = used or estimated_tokens(self._work.messages)
        size = self._model.context_window
        self._turn.send({"sessionUpdate": "usage_update", "used": self._work.tokens, "size": size})

    def _put_away(self) -> None:
        if self._said.strip():  # the answer broke off; what was shown was said
            self._work.messages.append(AssistantMessage(text=self._said))
        # The client may be gone, or was answered already: then nobody waits for these.
        with suppress(QuarterdeckError):
            self._calling.abandon("the turn ended before this tool was run")
        self._work.remember()


def _ignore(_delta: object) -> None:
    """Let nobody see a summary while it is written."""


def text_message(text: str) -> UserMessage:
    return UserMessage(parts=(Text(text=text),))
