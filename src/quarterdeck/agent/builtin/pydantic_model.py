"""`PydanticModel`: models of providers through pydantic-ai, one request at a time.

pydantic-ai's own agent loop is not used. This module is imported when a provider is first used,
because that takes a second and the packages are in the extra `quarterdeck[agent]`. Keys are passed
explicitly: the libraries do not look for them. Nor do they retry: `ModelRequests` does, visibly.

Three parts: the model itself; our history converted to pydantic-ai's messages and back; exceptions
of providers and their libraries converted to `ModelFailed`, whose message says what happened and
what to do next, and quotes the provider, shortened and without keys.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_ai import exceptions as raised
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
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

_WINDOW = 128_000  # tokens, for models that pydantic-ai does not know
_ANTHROPIC_TOKENS = (
    16_384  # the API requires a number; the library's default is too small for a file
)
_LONGEST_SECONDS = 600.0  # between two bytes; `ModelRequests` usually times out earlier

Connected: TypeAlias = tuple[ProviderModel[Any], Callable[[], Awaitable[None]]]
_QUOTED_CHARACTERS = 300
_NO_KEY = "none"  # self-hosted servers need no key, but the library requires one

logger = logging.getLogger(__name__)


class PydanticModel:
    """A model of a provider; implements `model.Model`."""

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
            keys = self._setup.keys
            raise to_failure(error, self.name, keys, has_begun=has_begun) from None

    async def aclose(self) -> None:
        await self._close()

    def _settings(self) -> ModelSettings:
        settings = self._setup.settings
        chosen: ModelSettings = {"timeout": settings.stall_seconds}
        if settings.thinking is not None:
            chosen["thinking"] = settings.thinking
        if self._kind == "anthropic":  # other providers cache by default
            chosen["cache"] = True
        if settings.max_output_tokens is not None:
            chosen["max_tokens"] = settings.max_output_tokens
        elif self._kind == "anthropic":
            chosen["max_tokens"] = _ANTHROPIC_TOKENS
        return chosen

    def _ending(self, response: ModelResponse) -> str | None:
        """Return why the answer ended; None if it broke off.

        For OpenAI's format the library reports `stop` even then; but the provider's own finish
        reason is missing, and so is the number of tokens, which is sent last.
        """
        has_reason = "finish_reason" in (response.provider_details or {})
        if self._kind == "openai" and not (has_reason or response.usage.output_tokens):
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
        case PartStartEvent(part=TextPart(content=text)) if text:
            return [TextDelta(text)]
        case PartStartEvent(part=ThinkingPart(content=text)) if text:
            return [ThoughtDelta(text)]
        case PartStartEvent(part=ToolCallPart(tool_name=name, tool_call_id=call_id)):
            return [CallStarted(call_id, name)]
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
            return [TextDelta(text)]
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)) if text:
            return [ThoughtDelta(text)]
        case _:
            return []


def _tool(spec: ToolSpec) -> ToolDefinition:
    # Strict schemas treat optional fields differently, and not every server supports them.
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
    import httpx2  # noqa: PLC0415 - pydantic-ai's; it does not close a client that was passed in
    from pydantic_ai.models.google import GoogleModel  # noqa: PLC0415
    from pydantic_ai.providers.google import GoogleProvider  # noqa: PLC0415

    http = httpx2.AsyncClient(timeout=httpx2.Timeout(_LONGEST_SECONDS, connect=30))
    own = GoogleProvider(api_key=key, base_url=provider.base_url, http_client=http)
    return GoogleModel(model_name, provider=own), http.aclose


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
    """Return the provider's own form of an answer if it was stored, else build one."""
    if message.native is not None:
        try:
            native = ModelMessagesTypeAdapter.validate_json(message.native)
        except ValidationError:  # written by another version of the library
            logger.warning("an answer is sent to the model without the provider's additions")
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


def to_failure(
    error: BaseException, model: str, keys: ProviderKeys, *, has_begun: bool
) -> ModelFailed:
    """Convert an exception of a request to an error for the user.

    `has_begun` means that the answer had started: then a lost connection has cut it off.
    """
    reason, advice = _reason(error)
    if reason == "connection" and has_begun:
        reason, advice = _CUT
    quoted = keys.redacted(_quoted_message(error))[:_QUOTED_CHARACTERS]
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
        return "malformed", "try again; if it persists, check the base URL of the provider"
    if _is_transport_error(error):
        return _CUT
    return "malformed", "try again; if it persists, choose another model"


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


def _quoted_message(error: BaseException) -> str:
    body = getattr(error, "body", None)
    message = _message_in(body)
    return message or str(error).strip().partition("\n")[0]


def _message_in(body: Any) -> str:
    """Find the message in a provider's JSON error."""
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
    """Return whether a connection broke; by class name, because the libraries differ."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(
        names & {"TransportError", "StreamError", "APIConnectionError", "ClosedResourceError"}
    )
