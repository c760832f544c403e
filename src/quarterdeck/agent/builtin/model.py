"""What the loop needs of a language model, and nothing of any provider's library.

A model is asked once per step and streams its answer. It keeps nothing between requests. Whatever
goes wrong is a `ModelFailed`, with a sentence for people in which no key ever stands.
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
"""Why a model gives no answer, and whether the same request may succeed a little later."""


@dataclass(frozen=True)
class ToolSpec:
    """A tool as the model is told of it."""

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
    """The model has begun to write a call; its arguments are not known yet."""

    id: str
    name: str


@dataclass(frozen=True)
class ModelUsage:
    """Tokens of one request."""

    input: int = 0
    output: int = 0
    cached: int = 0
    """Of the input, how many the provider had kept from before."""


@dataclass(frozen=True)
class Reply:
    """The end of an answer, and all of it."""

    message: AssistantMessage
    usage: ModelUsage
    stop: Literal["stop", "length", "refusal"] = "stop"


Delta: TypeAlias = TextDelta | ThoughtDelta | CallStarted | Reply


class Model(Protocol):
    """A language model; `demo` and the providers' are two implementations."""

    @property
    def name(self) -> str: ...

    @property
    def context_window(self) -> int:
        """How many tokens a request and its answer may have."""
        ...

    def stream(self, request: ModelInput) -> AsyncGenerator[Delta]:
        """Answer a request; the last delta, and only the last, is a `Reply`.

        Raises:
            ModelFailed: if there is no answer, or its stream breaks off.
        """
        ...

    async def aclose(self) -> None:
        """Let go of the provider; no more requests."""
        ...
