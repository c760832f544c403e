"""JSON-RPC 2.0 messages: read, classify, write. Pure.

Reading never raises: what is not a message is a `Malformed`, with the error to respond with. Ids
are kept as the bytes that arrived, so every legal id is echoed unchanged (1, 1.0, "1", null,
2**70). Params, result and error stay bytes until a caller decodes them.

    a payload                                    is read as
    {method, id}                                 Request; id null is a legal id and is answered
    {method}                                     Notification
    {id, result} or {id, error: not null}        Result, Failure; `error` may be anything
    {id} alone, ids that are objects or booleans Malformed -32600
    "jsonrpc" other than "2.0"                   Malformed -32600; absent is accepted
    params neither object nor null               Malformed -32602: no method of ACP takes positions
    an array                                     Malformed -32600: batches are not supported
    broken JSON that starts with a brace         Malformed -32700
    any other JSON value                         Noise -32600
    anything else                                Noise -32700

JSON-RPC on ids: "MUST contain a String, Number, or NULL value if included". It discourages null and
fractions, but a peer that sends them waits for its response, so they are accepted.

A `Vocabulary` is the fast way to read params: it names a type for the params of each known method,
and from these types makes one decoder that reads a whole block of lines in C, in one pass. It is
all or nothing: a block that holds anything else (a response, a method without a type, noise) is
read again line by line, and a line that the decoder rejects is read by `parse`. So the fast way
changes the cost, never the outcome.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, ClassVar, Literal, Protocol, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from quarterdeck.errors import JsonInvalid, RpcError
from quarterdeck.jsontext import NESTED_TOO_DEEPLY, decode_json, encode_json

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800

TITLES = {
    PARSE_ERROR: "Parse error",
    INVALID_REQUEST: "Invalid Request",
    METHOD_NOT_FOUND: "Method not found",
    INVALID_PARAMS: "Invalid params",
    INTERNAL_ERROR: "Internal error",
    REQUEST_CANCELLED: "Request cancelled",
}

CANCEL_REQUEST = "$/cancel_request"

NULL_ID = b"null"
_HEAD = 512  # bytes at the start of an unreadable message that are searched for its id
ILLEGAL_ID = "the id of a message must be a string, a number or null"


class Request(Struct, frozen=True, gc=False):
    id: bytes
    method: str
    params: bytes


class Notification(Struct, frozen=True, gc=False):
    method: str
    params: bytes


class Result(Struct, frozen=True, gc=False):
    id: bytes
    value: bytes


class Failure(Struct, frozen=True, gc=False):
    id: bytes
    error: bytes


class Malformed(Struct, frozen=True, gc=False):
    """JSON that is no message, or a message that breaks the rules; respond to `id` with `code`."""

    code: int
    reason: str
    id: bytes = NULL_ID
    is_answer: bool = False
    """It has no method, so it is a response; responding to responses would never end."""
    is_notification: bool = False
    """JSON-RPC: "The Server MUST NOT reply to a Notification"."""


class Noise(Struct, frozen=True, gc=False):
    """A line that is not a message: a greeting, a warning, a progress bar, a stray value."""

    code: int


Message = Request | Notification | Result | Failure | Malformed | Noise


class _Envelope(Struct, gc=False):
    """The shape of every message; `Raw` leaves the parts undecoded."""

    jsonrpc: Raw = Raw(b'"2.0"')
    id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    params: Raw = Raw(b"{}")
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def parse(payload: bytes) -> Message:
    """Classify one payload."""
    try:
        envelope = _decode_envelope(payload)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _parse_slowly(payload)
    return _classify(envelope)


def _parse_slowly(payload: bytes) -> Message:
    """Read what msgspec rejects: lone surrogates, NaN, other JSON values, text that is not JSON."""
    try:
        value = decode_json(payload)
    except JsonInvalid as error:
        if payload.startswith((b"{", b"[")):
            return _unreadable(payload, error.reason)
        return Noise(PARSE_ERROR)
    if isinstance(value, list):
        return Malformed(INVALID_REQUEST, "batches are not supported; send one message at a time")
    if not isinstance(value, dict):
        return Noise(INVALID_REQUEST)
    try:
        known = {name: Raw(encode_json(value[name])) for name in _FIELDS if name in value}
    except JsonInvalid as error:
        return Malformed(PARSE_ERROR, error.reason)
    if "id" in known:
        known["id"] = Raw(_as_spelled(bytes(known["id"]), payload))
    return _classify(_Envelope(**known))


def _unreadable(payload: bytes, reason: str) -> Malformed:
    """Find the id of a message that cannot be read, so that its sender or caller does not wait.

    For a response an intact head is enough. A request gets the null id that JSON-RPC requires after
    a parse error, unless only its depth is wrong.
    """
    found = owner(payload[:_HEAD])
    if reason == NESTED_TOO_DEEPLY and found.id == NULL_ID:
        found = owner_by_end(payload[:_HEAD], payload[-_HEAD:]) or found
    is_known = found.is_answer or reason == NESTED_TOO_DEEPLY
    request_id = found.id if is_known else NULL_ID
    return Malformed(PARSE_ERROR, reason, request_id, is_answer=found.is_answer)


def _as_spelled(request_id: bytes, payload: bytes) -> bytes:
    """Return an id as the peer spelled it, if it is found: 1.10 must not become 1.1."""
    spelled = owner(payload[:_HEAD]).id
    return spelled if decode_json(spelled) == decode_json(request_id) else request_id


_FIELDS = _Envelope.__struct_fields__


def _classify(envelope: _Envelope) -> Message:
    if isinstance(envelope.id, UnsetType):
        request_id = None
    else:
        request_id = bytes(envelope.id)
        if not is_request_id(request_id):
            is_answer = isinstance(envelope.method, UnsetType)
            return Malformed(INVALID_REQUEST, ILLEGAL_ID, is_answer=is_answer)
    if isinstance(envelope.method, UnsetType):
        return _classify_answer(request_id, envelope)
    return _classify_call(request_id, bytes(envelope.method), envelope)


def _classify_call(request_id: bytes | None, name: bytes, envelope: _Envelope) -> Message:
    reply_to = NULL_ID if request_id is None else request_id
    if bytes(envelope.jsonrpc) != b'"2.0"':
        return Malformed(INVALID_REQUEST, 'jsonrpc must be "2.0"', reply_to)
    if not name.startswith(b'"'):
        return Malformed(INVALID_REQUEST, "method must be a string", reply_to)
    params = bytes(envelope.params)
    if params == b"null":
        params = b"{}"
    if not params.startswith(b"{"):
        is_notification = request_id is None
        reason = "params must be an object"
        return Malformed(INVALID_PARAMS, reason, reply_to, is_notification=is_notification)
    try:
        method: str = decode_json(name)
    except JsonInvalid as error:
        return Malformed(PARSE_ERROR, error.reason, reply_to)
    if request_id is None:
        return Notification(method, params)
    return Request(request_id, method, params)


def _classify_answer(request_id: bytes | None, envelope: _Envelope) -> Message:
    if request_id is None:
        return Malformed(INVALID_REQUEST, "a message needs a method or an id")
    if not isinstance(envelope.error, UnsetType) and bytes(envelope.error) != b"null":
        return Failure(request_id, bytes(envelope.error))
    if not isinstance(envelope.result, UnsetType):
        return Result(request_id, bytes(envelope.result))
    reason = "an answer needs a result or an error"
    return Malformed(INVALID_REQUEST, reason, request_id, is_answer=True)


def rpc_error(code: int, detail: str | None = None) -> RpcError:
    """Return an error with the standard title of its code."""
    return RpcError(code, TITLES[code], detail)


def method_not_found(method: str) -> RpcError:
    """Return the error for an unknown method; its message names the method."""
    return RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")


def is_request_id(text: bytes) -> bool:
    """Return whether encoded JSON is an id: a string, a number or null."""
    if text.startswith(b'"'):
        return text.isascii() or _is_utf8(text)  # it is echoed: our own output must stay UTF-8
    return text == NULL_ID or text[:1] in b"-0123456789"


def canonical_id(request_id: bytes) -> bytes:
    """Return the one spelling of an id, to compare ids that peers spell differently."""
    try:
        return encode_json(decode_json(request_id))
    except JsonInvalid:  # a number of more digits than Python reads
        return request_id


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def read_error(error: bytes) -> RpcError:
    """Read the `error` of a failure, whatever the peer put there."""
    try:
        value = decode_json(error)
    except JsonInvalid as problem:
        return RpcError(INTERNAL_ERROR, f"an error that cannot be read: {problem.reason}")
    if not isinstance(value, dict):
        return RpcError(INTERNAL_ERROR, value if isinstance(value, str) else error.decode())
    code = value.get("code")
    message = value.get("message")
    return RpcError(
        code if type(code) is int else INTERNAL_ERROR,
        message if isinstance(message, str) else "an error without a message",
        value.get("data"),
    )


class _Outgoing(Struct, omit_defaults=True, gc=False):
    """Every message sent; the order of the fields is the order on the wire."""

    jsonrpc: str
    id: Any = UNSET
    method: str | UnsetType = UNSET
    params: Any = UNSET
    result: Any = UNSET
    error: Any = UNSET


class ErrorBody(Struct, omit_defaults=True, gc=False):
    code: int
    message: str
    data: Any = None


_START = b'{"jsonrpc":"2.0",'


class MessageWriter:
    """Encode messages; `enc_hook` is msgspec's hook for types it does not know."""

    def __init__(self, enc_hook: Any = None) -> None:
        self._encode = msgspec.json.Encoder(enc_hook=enc_hook).encode
        self._enc_hook = enc_hook

    def request(self, request_id: int, method: str, params: Any) -> bytes:
        return self._write(_Outgoing("2.0", request_id, method, params))

    def notification(self, method: str, params: Any) -> bytes:
        return self._write(_Outgoing("2.0", method=method, params=params))

    def result(self, request_id: bytes, value: Any) -> bytes:
        # JSON-RPC: `result` "is REQUIRED on success", so nothing is null.
        result = None if value is UNSET else value
        return self._write(_Outgoing("2.0", Raw(request_id), result=result))

    def failure(self, request_id: bytes, error: RpcError) -> bytes:
        body = ErrorBody(error.code, error.message, error.data)
        return self._write(_Outgoing("2.0", Raw(request_id), error=body))

    def _write(self, message: _Outgoing) -> bytes:
        try:
            return self._encode(message)
        except UnicodeEncodeError:  # a lone surrogate: only an escape can carry it
            request_id, message.id = message.id, UNSET
            text = encode_json(msgspec.to_builtins(message, enc_hook=self._enc_hook))
            if request_id is UNSET:
                return text
            spelled = bytes(request_id) if isinstance(request_id, Raw) else b"%d" % request_id
            return b'{"jsonrpc":"2.0","id":%b,%b' % (spelled, text.removeprefix(_START))


# `*+` does not backtrack: for an id of megabytes, the positions to return to would cost a hundred
# times its size in memory.
_HEAD_ID = rb'"id"\s*:\s*(?P<id>-?[0-9][0-9.eE+-]*+|"[^"\\]*+(?:\\.[^"\\]*+)*+"|null)'
_HEAD_VERSION = rb'(?:\s*,\s*"jsonrpc"\s*:\s*"2\.0")?'  # behind the id where keys are sorted
_HEAD_START = rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_HEAD_ID_FIRST = re.compile(
    _HEAD_START + _HEAD_ID + _HEAD_VERSION + rb'\s*,\s*"(?P<next>method|result|error)"'
)
_HEAD_METHOD_FIRST = re.compile(_HEAD_START + rb'"method"\s*:\s*"[^"\\]*"\s*,\s*' + _HEAD_ID)


def owner(head: bytes) -> Malformed:
    """Find the id of a message beyond the limit in its first bytes; null if it is not there."""
    reason = "the message is too long"
    found = _HEAD_ID_FIRST.match(head) or _HEAD_METHOD_FIRST.match(head)
    if found is None or not _is_json(found["id"]):
        return Malformed(INVALID_REQUEST, reason)
    is_answer = found.groupdict().get("next") in {b"result", b"error"}
    return Malformed(INVALID_REQUEST, reason, found["id"], is_answer=is_answer)


_TAIL_ID = re.compile(_HEAD_ID + _HEAD_VERSION + rb"\s*\}\s*$")
_HEAD_OF_ANSWER = re.compile(_HEAD_START + rb'"(?:result|error)"')
_HEAD_OF_REQUEST = re.compile(_HEAD_START + rb'"(?:method|params)"')


def owner_by_end(head: bytes, tail: bytes) -> Malformed | None:
    """Do the same for a message with its id at the end; return None if it is not there."""
    found = _TAIL_ID.search(tail)
    is_answer = _HEAD_OF_ANSWER.match(head) is not None
    if found is None or not _is_json(found["id"]):
        return None
    if not is_answer and not _HEAD_OF_REQUEST.match(head):
        return None
    return Malformed(INVALID_REQUEST, "the message is too long", found["id"], is_answer=is_answer)


def _is_json(text: bytes) -> bool:
    """Return whether an id that was found by a pattern may be echoed."""
    try:
        decode_json(text)
    except JsonInvalid:
        return False
    return True


DecHook = Callable[[type, Any], Any]
Lenient = Callable[[Any, Any], Any]


class KnownParams(Protocol):
    """A request or notification whose params were read straight into their type."""

    method: ClassVar[str]
    params: Any
    id: Raw | UnsetType


class Vocabulary:
    """The types of the params of known methods; those of all others are plain dicts.

    `dec_hook` is msgspec's. `lenient` converts a decoded object that strict decoding rejected, or
    raises `msgspec.ValidationError`.
    """

    def __init__(
        self,
        params: Mapping[str, Any] | None = None,
        *,
        dec_hook: DecHook | None = None,
        lenient: Lenient | None = None,
    ) -> None:
        self._types = dict(params or {})
        self._types.pop(CANCEL_REQUEST, None)  # handled by the connection, never by a handler
        self._lenient = lenient
        self._decoders = {
            method: msgspec.json.Decoder(kind, dec_hook=dec_hook)
            for method, kind in self._types.items()
        }
        known = [_known(method, kind) for method, kind in self._types.items()]
        self._known: msgspec.json.Decoder[Any] | None = None
        if known:
            self._known = msgspec.json.Decoder(reduce(or_, known), dec_hook=dec_hook)

    def read_lines(self, block: bytes, count: int) -> Sequence[KnownParams] | None:
        """Read `count` whole lines at once; return None if any needs the slow path."""
        if self._known is None:
            return None
        try:
            messages = cast("list[KnownParams]", self._known.decode_lines(block))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        # The decoder would also accept two messages on one line; that must not depend on the cut.
        return messages if len(messages) == count else None

    def read_line(self, line: bytes) -> KnownParams | None:
        """Read one message; return None if it needs the slow path."""
        if self._known is None:
            return None
        try:
            return cast("KnownParams", self._known.decode(line))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None

    def read_params(self, method: str, params: bytes) -> Any:
        """Read the params of one message, leniently where the schema allows it.

        Raises:
            RpcError: the error to respond with.
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
    """Return the struct for the messages of one method; msgspec selects it by `method`."""
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
