"""Which params a side understands, and the fast way to read them: straight into their types. Pure.

A vocabulary names a type for the params of each known method. From it one decoder is made that
reads a whole block of lines in C, in one pass, straight into the types. It is all or nothing: a
block that holds anything else (an answer, a method without a type, noise) is read again line by
line, and a line it refuses is read by `messages.parse`. So the fast way changes the cost, never the
outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, ClassVar, Literal, Protocol, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json
from quarterdeck.wire.messages import CANCEL_REQUEST, INVALID_PARAMS, PARSE_ERROR, rpc_error

DecHook = Callable[[type, Any], Any]
Lenient = Callable[[Any, Any], Any]


class Known(Protocol):
    """A request or notification whose params were read straight into their type."""

    method: ClassVar[str]
    params: Any
    id: Raw | UnsetType


class Vocabulary:
    """The types of the params of known methods; those of all others are plain dicts.

    `dec_hook` is msgspec's. `lenient` turns an already decoded object into a type when the strict
    way refused it, or raises `msgspec.ValidationError`.
    """

    def __init__(
        self,
        params: Mapping[str, Any] | None = None,
        *,
        dec_hook: DecHook | None = None,
        lenient: Lenient | None = None,
    ) -> None:
        self._types = dict(params or {})
        self._types.pop(CANCEL_REQUEST, None)  # the connection's own: it never reaches a handler
        self._lenient = lenient
        self._decoders = {
            method: msgspec.json.Decoder(kind, dec_hook=dec_hook)
            for method, kind in self._types.items()
        }
        known = [_known(method, kind) for method, kind in self._types.items()]
        self._known: msgspec.json.Decoder[Any] | None = None
        if known:
            self._known = msgspec.json.Decoder(reduce(or_, known), dec_hook=dec_hook)

    def read_lines(self, block: bytes, count: int) -> Sequence[Known] | None:
        """Read `count` whole lines at once; None if any of them needs a closer look."""
        if self._known is None:
            return None
        try:
            messages = cast("list[Known]", self._known.decode_lines(block))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        # The decoder would also accept two messages on one line; that must not depend on the cut.
        return messages if len(messages) == count else None

    def read_line(self, line: bytes) -> Known | None:
        """Read one message; None if it needs a closer look."""
        if self._known is None:
            return None
        try:
            return cast("Known", self._known.decode(line))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None

    def read_params(self, method: str, params: bytes) -> Any:
        """Read the params of one message, forgiving what can be forgiven.

        Raises:
            RpcError: with the code and message to answer a request by.
        """
        decoder = self._decoders.get(method)
        try:
            if decoder is None:
                return decode_json(params)
            try:
                return decoder.decode(params)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                return self._read_leniently(method, params)
        except JsonInvalid as error:
            raise rpc_error(PARSE_ERROR, error.reason) from error

    def _read_leniently(self, method: str, params: bytes) -> Any:
        value = decode_json(params)
        convert = self._lenient or msgspec.convert
        try:
            return convert(value, self._types[method])
        except (msgspec.ValidationError, UnicodeError, RecursionError) as error:
            # UnicodeError: msgspec cannot look up a key that holds a lone surrogate.
            raise rpc_error(INVALID_PARAMS, str(error)) from error


def _known(method: str, params: Any) -> Any:
    """Make the struct that one method's messages are decoded into; msgspec finds it by `method`."""
    return msgspec.defstruct(
        "Known",
        [
            ("params", params),
            ("id", Raw | UnsetType, UNSET),
            ("jsonrpc", Literal["2.0"], "2.0"),
        ],
        tag_field="method",
        tag=method,
        namespace={"method": method},
        gc=False,
    )


PLAIN = Vocabulary()
