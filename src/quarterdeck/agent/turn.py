"""One turn: a prompt, and everything an agent's code can do until it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from quarterdeck.acp import methods, schema
from quarterdeck.agent.checks import prompt_text
from quarterdeck.agent.client import Client
from quarterdeck.agent.definition import Json
from quarterdeck.agent.session import AgentSession, call_failed, follow_call
from quarterdeck.errors import AgentError, ConnectionFailed, RpcError

ALLOW_OR_REJECT: Final[tuple[Json, ...]] = (
    {"optionId": "allow_once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"},
)


CUT_SHORT: Final = "the turn ended while this was running; it may have done a part of its work"


class Turn:
    """What an agent is given for each prompt."""

    def __init__(self, session: AgentSession, prompt: Sequence[dict[str, Any]]) -> None:
        self.session = session
        self.prompt = tuple(prompt)
        """The content blocks, as the client sent them."""
        self.is_abandoned = False
        self._unfinished: dict[str, None] = {}

    @property
    def text(self) -> str:
        """The prompt as text: embedded texts are in it, links are named, images are not."""
        return prompt_text(self.prompt)

    @property
    def client(self) -> Client:
        return self.session.client

    def send(self, update: Json) -> None:
        """Record an update and send it to the client, in order, without waiting.

        Raises:
            AgentError: if it is no update, or the turn was cancelled and the client was told so.
            StorageFailed: if it cannot be recorded; it is not sent then.
        """
        if self.is_abandoned:
            raise AgentError("this turn was cancelled and has been answered")
        self.session.send(update)
        follow_call(update, self._unfinished)

    def send_ending(self, update: Json) -> None:
        """Send how a tool call ended, even if that cannot be recorded, on a full disk for example.

        Raises:
            AgentError: as `send` does.
        """
        if self.is_abandoned:
            raise AgentError("this turn was cancelled and has been answered")
        self.session.send_ending(update)
        follow_call(update, self._unfinished)

    def abandon(self) -> None:
        """Let nothing more be sent, and end the calls that are open: nobody else will."""
        self.is_abandoned = True
        with suppress(AgentError):  # the client is gone: nobody waits for these
            for call_id in self._unfinished:
                self.session.send_ending(call_failed(call_id, rawOutput=CUT_SHORT))

    def say(self, text: str) -> None:
        """Send a piece of the answer; white space is kept, nothing is sent for nothing."""
        self._send_text("agent_message_chunk", text)

    def think(self, text: str) -> None:
        """Send a piece of what the agent thinks."""
        self._send_text("agent_thought_chunk", text)

    async def room(self) -> None:
        """Wait while the client is far behind with reading; for agents that send a lot."""
        await self.session.room()

    async def ask_permission(
        self, tool_call: Json, options: Sequence[Json] | None = None
    ) -> str | None:
        """Ask the user whether a tool may be used; return the `optionId` that was chosen.

        None means that the question was cancelled. Whatever else comes back (an error, an option
        that was not offered, nonsense) counts as the first option that rejects, and as None if
        there is none: no answer but an offered one can allow anything.
        """
        offered = ALLOW_OR_REJECT if options is None else tuple(options)
        if not isinstance(tool_call.get("toolCallId"), str):
            raise AgentError("a tool call needs a toolCallId")
        asked = {"sessionId": self.session.id, "toolCall": tool_call, "options": offered}
        ask = methods.SESSION_REQUEST_PERMISSION
        try:
            answer = await self.session.link.connection.call(
                ask.name, asked, read=ask.read_response
            )
        except (RpcError, ConnectionFailed):
            return _rejection(offered)
        return _chosen(answer.outcome, offered)

    def _send_text(self, kind: str, text: str) -> None:
        if text:
            self.send({"sessionUpdate": kind, "content": {"type": "text", "text": text}})


def _chosen(outcome: schema.RequestPermissionOutcome, offered: Sequence[Json]) -> str | None:
    match outcome:
        case schema.DeniedOutcome():
            return None
        case schema.AllowedOutcome(option_id=chosen) if any(
            each.get("optionId") == chosen for each in offered
        ):
            return chosen
        case _:
            return _rejection(offered)


def _rejection(offered: Sequence[Json]) -> str | None:
    rejecting = (each for each in offered if str(each.get("kind")).startswith("reject"))
    return next((str(each["optionId"]) for each in rejecting), None)
