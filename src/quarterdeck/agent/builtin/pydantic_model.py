"""Models of providers, by pydantic-ai: one request at a time, without its agent loop.

Everything here is imported when a provider is first used: it takes a second, and the packages come
with the extra `quarterdeck[agent]`. Keys are handed over here, not looked up by the libraries, and
these do not repeat requests by themselves: `asking` does, and the user sees it.

PART: Our conversation in the words of pydantic-ai, and back.

PART: What providers and their libraries raise, as sentences for people that name no key.

Each says what happened and what to do next. What the provider itself said is quoted, shortened and
without keys.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pydantic_ai.messages as told
from pydantic import ValidationError
from pydantic_ai import exceptions as raised
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model as ProviderModel, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from quarterdeck.agent.builtin.history import (
    AssistantMessage,
    Media,
    Message,
    ResultsMessage,
    ToolUse,
    UserMessage,
)
from quarterdeck.agent.builtin.model import (
    CallStarted,
    Delta,
    ModelInput,
    ModelUsage,
    Reply,
    TextDelta,
    ThoughtDelta,
    ToolSpec,
)
from quarterdeck.agent.builtin.settings import Provider, ProviderKeys, Setup, split_model
from quarterdeck.errors import JsonInvalid, ModelFailed
from quarterdeck.jsontext import decode_json

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

    async def stream(self, request: ModelInput) -> AsyncGenerator[Delta]:
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
        usage = ModelUsage(
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


logger = logging.getLogger(__name__)


def to_history(messages: Sequence[Message], instructions: str) -> list[ModelMessage]:
    return list(_history(messages, instructions))


def _history(messages: Sequence[Message], instructions: str) -> Iterator[ModelMessage]:
    for message in messages:
        match message:
            case UserMessage(parts=parts):
                content: list[UserContent] = [
                    BinaryContent(part.content, media_type=part.media_type)
                    if isinstance(part, Media)
                    else part.text
                    for part in parts
                ]
                yield ModelRequest([UserPromptPart(content)], instructions=instructions)
            case AssistantMessage():
                yield _response(message)
            case ResultsMessage(results=results):
                returns = [
                    ToolReturnPart(result.name, result.text, result.call_id) for result in results
                ]
                yield ModelRequest(returns, instructions=instructions)


def _response(message: AssistantMessage) -> ModelResponse:
    """Return the provider's own words if they were kept, else ours."""
    if message.native is not None:
        try:
            native = ModelMessagesTypeAdapter.validate_json(message.native)
        except ValidationError:  # of another version of the library
            logger.warning("an answer is told to the model without what its provider added")
        else:
            if len(native) == 1 and isinstance(native[0], ModelResponse):
                return native[0]
    text = [TextPart(message.text)] if message.text.strip() else []
    calls = [ToolCallPart(call.name, call.arguments, call.id) for call in message.calls]
    return ModelResponse([*text, *calls])


def from_response(response: ModelResponse) -> AssistantMessage:
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    thought = "".join(part.content for part in response.parts if isinstance(part, ThinkingPart))
    calls = tuple(_call(part) for part in response.parts if isinstance(part, ToolCallPart))
    native = ModelMessagesTypeAdapter.dump_json([response]).decode()
    return AssistantMessage(text=text, thought=thought, calls=calls, native=native)


def _call(part: ToolCallPart) -> ToolUse:
    raw = part.args if part.args is not None else {}
    if isinstance(raw, str):
        try:
            raw = decode_json(raw or "{}")
        except JsonInvalid:
            return _invalid(part)
    if not isinstance(raw, dict):
        return _invalid(part)
    return ToolUse(id=part.tool_call_id, name=part.tool_name, arguments=raw)


def _invalid(part: ToolCallPart) -> ToolUse:
    written = part.args if isinstance(part.args, str) else str(part.args)
    return ToolUse(id=part.tool_call_id, name=part.tool_name, arguments={}, invalid=written)


_QUOTED_CHARACTERS = 300


def to_failure(
    error: BaseException, model: str, secrets: ProviderKeys, *, has_begun: bool
) -> ModelFailed:
    """Turn what was raised while a model was asked into what its user is told.

    `has_begun` tells whether an answer was coming already: then a connection that fails cut it off.
    """
    reason, advice = _reason(error)
    if reason == "connection" and has_begun:
        reason, advice = _CUT
    quoted = secrets.removed_from(_said(error))[:_QUOTED_CHARACTERS]
    sentence = f"{model}: {_TITLES[reason]}"
    if quoted:
        sentence += f" ({quoted})"
    retry_after = getattr(error, "retry_after", None)
    return ModelFailed(reason, f"{sentence}; {advice}", retry_after=retry_after)


_TITLES = {
    "authentication": "the provider refused the key",
    "connection": "the provider could not be reached",
    "context": "the conversation is longer than the model's window",
    "cut": "the answer broke off",
    "malformed": "the answer could not be read",
    "not_found": "the provider does not know the model",
    "overloaded": "the provider is overloaded",
    "quota": "the account has no credit left",
    "rate_limit": "too many requests",
    "rejected": "the provider rejected the request",
    "server": "the provider failed",
    "stalled": "the provider did not answer in time",
}


_CUT = ("cut", "send the prompt again")


def _reason(error: BaseException) -> tuple[str, str]:
    for kind, reason, advice in _KINDS:
        if isinstance(error, kind):
            return reason, advice
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and status >= 500:
        return "server", "try again later"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "malformed", "try again; if it stays so, check the base URL of the provider"
    if _is_transport_error(error):
        return _CUT
    return "malformed", "try again; if it stays so, choose another model"


_KINDS: tuple[tuple[type[BaseException], str, str], ...] = (
    (raised.ModelContextWindowExceededError, "context", "use /compact or start a new session"),
    (raised.ModelAuthenticationError, "authentication", "check the key in the environment"),
    (
        raised.ModelNotFoundError,
        "not_found",
        "check the model's name and the base URL of the provider",
    ),
    (raised.ModelQuotaExceededError, "quota", "top up the account or choose another model"),
    (raised.ModelRateLimitError, "rate_limit", "wait a moment and send the prompt again"),
    (raised.ModelOverloadedError, "overloaded", "wait a moment and send the prompt again"),
    (raised.ModelUnavailableError, "overloaded", "wait a moment and send the prompt again"),
    (raised.ModelServerError, "server", "try again later"),
    (raised.ModelTimeoutError, "stalled", "send the prompt again"),
    (raised.ModelRequestTimeout, "stalled", "send the prompt again"),
    (
        raised.ModelConnectionError,
        "connection",
        "check the network and the base URL of the provider",
    ),
    (raised.ModelRequestRejectedError, "rejected", "choose another model or change the prompt"),
    (raised.UserError, "rejected", "choose another model or change the prompt"),
)


def _said(error: BaseException) -> str:
    body = getattr(error, "body", None)
    said = _message_in(body)
    return said or str(error).strip().partition("\n")[0]


def _message_in(body: Any) -> str:
    """Find the sentence in the JSON that providers answer with."""
    match body:
        case {"error": Mapping() as inner}:
            return _message_in(inner)
        case {"message": str(message)}:
            return message
        case {"error": str(message)}:
            return message
        case _:
            return ""


def _is_transport_error(error: BaseException) -> bool:
    """Whether a connection broke: by name, because two libraries have each their own."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(
        names & {"TransportError", "StreamError", "APIConnectionError", "ClosedResourceError"}
    )
