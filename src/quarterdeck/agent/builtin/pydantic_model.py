"""Models of providers, by pydantic-ai: one request at a time, without its agent loop.

Everything here is imported when a provider is first used: it takes a second, and the packages come
with the extra `quarterdeck[agent]`. Keys are handed over here, not looked up by the libraries, and
these do not repeat requests by themselves: `asking` does, and the user sees it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeAlias

import pydantic_ai.messages as told
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import Model as ProviderModel, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from quarterdeck.agent.builtin.model import (
    CallStarted,
    Delta,
    Reply,
    Request,
    TextDelta,
    ThoughtDelta,
    ToolSpec,
    Usage,
)
from quarterdeck.agent.builtin.pydantic_failures import to_failure
from quarterdeck.agent.builtin.pydantic_history import from_response, to_history
from quarterdeck.agent.builtin.settings import Provider, Setup, split_model
from quarterdeck.errors import ModelFailed

_WINDOW = 128_000  # if nobody knows better
_ANTHROPIC_TOKENS = 16_384  # its API wants a number, and the library's is too small for a file
_LONGEST_SECONDS = 600.0  # between two bytes; `asking` gives up earlier unless it is told not to

Connected: TypeAlias = tuple[ProviderModel[Any], Callable[[], Awaitable[None]]]
_NO_KEY = "none"  # servers of one's own want no key, but the library wants something


class PydanticModel:
    """A model of a provider; see `model.Model`."""

    def __init__(
        self, name: str, model_name: str, provider: Provider, key: str | None, setup: Setup
    ) -> None:
        self.name = name
        self._setup = setup
        self._kind = provider.kind
        connect = {"anthropic": _anthropic, "google": _google}.get(provider.kind, _openai)
        self._model, self._close = connect(name, model_name, provider, key or _NO_KEY)
        known = self._model.context_window or _WINDOW
        self.context_window = setup.settings.context_window or known

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        history = to_history(request.messages, request.instructions)
        parameters = ModelRequestParameters(function_tools=[_tool(t) for t in request.tools])
        has_begun = False
        try:
            async with model_request_stream(
                self._model,
                history,
                model_settings=self._settings(),
                model_request_parameters=parameters,
            ) as answer:
                has_begun = True
                async for event in answer:
                    for delta in _deltas(event):
                        yield delta
                yield self._reply(answer)
        except ModelFailed:
            raise
        except Exception as error:  # noqa: BLE001 - each of the libraries has errors of its own
            secrets = self._setup.secrets
            raise to_failure(error, self.name, secrets, has_begun=has_begun) from None

    async def aclose(self) -> None:
        await self._close()

    def _settings(self) -> ModelSettings:
        settings = self._setup.settings
        chosen: ModelSettings = {"timeout": settings.stall_seconds}
        if settings.thinking is not None:
            chosen["thinking"] = settings.thinking
        if self._kind == "anthropic":  # the others do it by themselves
            chosen["cache"] = True
        if settings.max_output_tokens is not None:
            chosen["max_tokens"] = settings.max_output_tokens
        elif self._kind == "anthropic":
            chosen["max_tokens"] = _ANTHROPIC_TOKENS
        return chosen

    def _ending(self, response: told.ModelResponse) -> str | None:
        """Return why the answer ended; None if it only broke off.

        Of OpenAI's format the library says `stop` even then; but the provider's own word is
        missing, and so is the number of tokens, which comes last.
        """
        has_word = "finish_reason" in (response.provider_details or {})
        if self._kind == "openai" and not (has_word or response.usage.output_tokens):
            return None
        return response.finish_reason

    def _reply(self, answer: StreamedResponse) -> Reply:
        response = answer.get()
        usage = Usage(
            response.usage.input_tokens,
            response.usage.output_tokens,
            response.usage.cache_read_tokens,
        )
        message = from_response(response)
        match self._ending(response):
            case "length":
                return Reply(message, usage, "length")
            case "content_filter":
                return Reply(message, usage, "refusal")
            case "error":
                sentence = f"{self.name}: the provider ended its answer with an error; try again"
                raise ModelFailed("malformed", sentence)
            case None:
                raise ModelFailed(
                    "cut", f"{self.name}: the answer broke off; send the prompt again"
                )
            case _:
                return Reply(message, usage)


def _deltas(event: Any) -> list[TextDelta | ThoughtDelta | CallStarted]:
    match event:
        case told.PartStartEvent(part=told.TextPart(content=text)) if text:
            return [TextDelta(text)]
        case told.PartStartEvent(part=told.ThinkingPart(content=text)) if text:
            return [ThoughtDelta(text)]
        case told.PartStartEvent(part=told.ToolCallPart(tool_name=name, tool_call_id=call_id)):
            return [CallStarted(call_id, name)]
        case told.PartDeltaEvent(delta=told.TextPartDelta(content_delta=text)) if text:
            return [TextDelta(text)]
        case told.PartDeltaEvent(delta=told.ThinkingPartDelta(content_delta=text)) if text:
            return [ThoughtDelta(text)]
        case _:
            return []


def _tool(spec: ToolSpec) -> ToolDefinition:
    # Strict schemas have rules of their own for what is optional, and not every server knows them.
    return ToolDefinition(
        name=spec.name,
        parameters_json_schema=dict(spec.schema),
        description=spec.description,
        strict=False,
    )


def _openai(name: str, model_name: str, provider: Provider, key: str) -> Connected:
    from openai import AsyncOpenAI  # noqa: PLC0415 - only the provider that is used
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider  # noqa: PLC0415

    client = AsyncOpenAI(api_key=key, base_url=provider.base_url, max_retries=0)
    service, _ = split_model(name)
    if service == "openai":
        openai = OpenAIProvider(openai_client=client)
        return OpenAIChatModel(model_name, provider=openai), client.close
    other = OpenAICompatibleProvider(service, openai_client=client)
    return OpenAIChatModel(model_name, provider=other), client.close


def _anthropic(_name: str, model_name: str, provider: Provider, key: str) -> Connected:
    from anthropic import AsyncAnthropic  # noqa: PLC0415
    from pydantic_ai.models.anthropic import AnthropicModel  # noqa: PLC0415
    from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: PLC0415

    client = AsyncAnthropic(api_key=key, base_url=provider.base_url, max_retries=0)
    own = AnthropicProvider(anthropic_client=client)
    return AnthropicModel(model_name, provider=own), client.close


def _google(_name: str, model_name: str, provider: Provider, key: str) -> Connected:
    import httpx2  # noqa: PLC0415 - pydantic-ai's, and what it leaves open is for us to close
    from pydantic_ai.models.google import GoogleModel  # noqa: PLC0415
    from pydantic_ai.providers.google import GoogleProvider  # noqa: PLC0415

    http = httpx2.AsyncClient(timeout=httpx2.Timeout(_LONGEST_SECONDS, connect=30))
    own = GoogleProvider(api_key=key, base_url=provider.base_url, http_client=http)
    return GoogleModel(model_name, provider=own), http.aclose
