"""What providers and their libraries raise, as sentences for people that name no key.

Each says what happened and what to do next. What the provider itself said is quoted, shortened and
without keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic_ai import exceptions as raised

from quarterdeck.agent.builtin.settings import Secrets
from quarterdeck.errors import ModelFailed

_QUOTED_CHARACTERS = 300


def to_failure(
    error: BaseException, model: str, secrets: Secrets, *, has_begun: bool
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
