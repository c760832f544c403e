"""What a session has while it is open: its memory, its permissions, its servers, its scratch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quarterdeck.agent.builtin.conversation import (
    Conversation,
    Message,
    decode_conversation,
    encode_conversation,
    settled,
)
from quarterdeck.agent.builtin.mcp import McpServers
from quarterdeck.agent.builtin.sandbox import Scratch
from quarterdeck.errors import AgentError, JsonInvalid

if TYPE_CHECKING:
    from quarterdeck.agent.session import AgentSession


class Work:
    """The live half of a session; `session.memory` is the lasting one."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self.messages: list[Message] = []
        self.tokens = 0
        self.allowed: set[str] = set()
        """What the user allowed for the session; forgotten when the session is closed."""
        self.scratch = Scratch()
        self.servers: McpServers | None = None
        if session.memory:
            self._recall(session.memory)

    def remember(self) -> None:
        """Keep the conversation, in a form every provider accepts, for the next process."""
        self.messages = list(settled(self.messages))
        kept = Conversation(messages=tuple(self.messages), tokens=self.tokens)
        self._session.remember(encode_conversation(kept))

    def _recall(self, memory: bytes) -> None:
        try:
            kept = decode_conversation(memory)
        except JsonInvalid as error:
            # Going on without it would overwrite it.
            sentence = f"what the model knew of this session cannot be read: {error.reason}"
            advice = "use the version of quarterdeck that wrote it, or start a new session"
            raise AgentError(f"{sentence}; {advice}") from error
        self.messages = list(settled(kept.messages))
        self.tokens = kept.tokens
