"""The `Model` interface: what the agent needs of a language model, independent of any provider.

A model streams its answer to one request and keeps no state between requests. Every failure is a
`ModelFailed` with a message for users that never contains a key.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from quarterdeck.agent.builtin.history import AssistantMessage, Message

FAILURES: dict[str, bool] = {
    "authentication": False,
    "context": False,
    "malformed": False,
    "not_found": False,
    "quota": False,
    "rejected": False,
    "setup": False,
    "stalled": False,
    "cut": False,
    "connection": True,
    "overloaded": True,
    "rate_limit": True,
    "server": True,
}
"""Reasons for failure, and whether the same request may succeed a little later."""


@dataclass(frozen=True)
class ToolSpec:
    """A tool as it is described to the model."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True)
class ModelInput:
    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True)
class TextDelta:
    text: str


@dataclass(frozen=True)
class ThoughtDelta:
    text: str


@dataclass(frozen=True)
class CallStarted:
    """The model has begun to write a tool call; its arguments are not known yet."""

    id: str
    name: str


@dataclass(frozen=True)
class ModelUsage:
    """Tokens of one request and its answer."""

    input: int = 0
    output: int = 0
    cached: int = 0
    """Input tokens that the provider read from its cache."""


@dataclass(frozen=True)
class Reply:
    """A complete answer; the last delta of a stream."""

    message: AssistantMessage
    usage: ModelUsage
    stop: Literal["stop", "length", "refusal"] = "stop"


Delta: TypeAlias = TextDelta | ThoughtDelta | CallStarted | Reply


class Model(Protocol):
    """A language model; implemented by `DemoModel` and `PydanticModel`."""

    @property
    def name(self) -> str: ...

    @property
    def context_window(self) -> int:
        """How many tokens a request and its answer may have together."""
        ...

    def stream(self, request: ModelInput) -> AsyncGenerator[Delta]:
        """Answer a request; the last delta, and only the last, is a `Reply`.

        Raises:
            ModelFailed: if there is no answer, or the stream breaks off.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections to the provider."""
        ...
