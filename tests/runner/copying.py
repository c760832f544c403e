"""A runner whose API copies everything through JSON: what would not survive a socket fails."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from functools import wraps
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from quarterdeck.errors import (
    AcpError,
    DatabaseFailed,
    QuarterdeckError,
    RequestRejected,
    RpcError,
    StorageFailed,
)
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol import EnvelopeEndpoint, Event, decode_event, encode_event
from quarterdeck.runner import LogSource, News, Runner, RunnerApi
from quarterdeck.runner.api import OnHead, OnNews, Unsubscribe

SUBSCRIPTIONS = (OnHead, OnNews, Unsubscribe, LogSource, AsyncIterator[Event], EnvelopeEndpoint)
"""What crosses as a subscription: its content is copied below, or is bytes already."""
CROSSED: set[str] = set()
"""The methods that were called."""
CROSSING = (RequestRejected, AcpError, RpcError, StorageFailed, DatabaseFailed)


def copied(value: Any, hint: Any) -> Any:
    """Return a value as it is after its way through JSON, read as its type."""
    if any(hint == each for each in SUBSCRIPTIONS):
        return value
    if hint is type(None):
        assert value is None
        return None
    written = msgspec.to_builtins(value, enc_hook=_written)
    return msgspec.convert(decode_json(encode_json(written)), hint, dec_hook=_read)


def _written(value: Any) -> Any:
    if isinstance(value, Path):  # of `RunnerOptions`
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot cross")


def _read(kind: type, value: Any) -> Any:
    assert kind is Path, kind
    return Path(value)


def _again(error: QuarterdeckError) -> QuarterdeckError:
    """Return an error made of what a link would carry."""
    assert isinstance(error, CROSSING), f"{type(error).__name__} cannot cross"
    match error:
        case RequestRejected():
            code = error.code.removeprefix("quarterdeck/")
            data = copied(error.data, Any)
            return RequestRejected(code, error.message, data=data, retryable=error.retryable)
        case AcpError():
            data = copied(error.data, Any)
            return AcpError(error.code, error.message, data=data, retryable=error.retryable)
        case _:
            return error


def _copying(name: str) -> Callable[..., Any]:
    real = getattr(Runner, name)
    hints = get_type_hints(getattr(RunnerApi, name))
    signature = inspect.signature(getattr(RunnerApi, name))
    result = hints.pop("return")

    def given(runner: Runner, arguments: Any, keywords: Any) -> tuple[Any, Any]:
        CROSSED.add(name)
        bound = signature.bind(runner, *arguments, **keywords)
        for each, value in bound.arguments.items():
            if each != "self":
                bound.arguments[each] = copied(value, hints[each])
        return bound.args[1:], bound.kwargs

    @wraps(real)
    async def later(self: Runner, *arguments: Any, **keywords: Any) -> Any:
        args, kwargs = given(self, arguments, keywords)
        try:
            return copied(await real(self, *args, **kwargs), result)
        except QuarterdeckError as error:
            raise _again(error) from None

    @wraps(real)
    def now(self: Runner, *arguments: Any, **keywords: Any) -> Any:
        args, kwargs = given(self, arguments, keywords)
        try:
            return copied(real(self, *args, **kwargs), result)
        except QuarterdeckError as error:
            raise _again(error) from None

    return later if inspect.iscoroutinefunction(real) else now


class CopyingRunner(Runner):
    """A `Runner` of which only copies cross."""


API = [name for name, value in inspect.getmembers(RunnerApi, inspect.isfunction)]
API = [name for name in API if not name.startswith("_")]
for _name in API:
    setattr(CopyingRunner, _name, _copying(_name))


def _subscribe_news(self: CopyingRunner, on_news: Callable[[News], None]) -> Callable[[], None]:
    return Runner.subscribe_news(self, lambda news: on_news(copied(news, News)))


async def _events(
    self: CopyingRunner, session_id: str | None, from_seq: int = 0
) -> AsyncIterator[Event]:
    async for event in Runner.events(self, session_id, from_seq):
        yield decode_event(encode_event(event))


setattr(CopyingRunner, "subscribe_news", _subscribe_news)  # noqa: B010 - the loop above set it
setattr(CopyingRunner, "events", _events)  # noqa: B010
