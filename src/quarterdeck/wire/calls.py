"""Calls that wait for an answer, numbered from 0.

A caller waits on a future of asyncio: making, setting and awaiting an `anyio.Event` costs a
quarter of a call (docs/adr/0002-reading-by-callback.md).
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - see above
from collections.abc import Callable
from typing import TypeVar

import msgspec

from quarterdeck.errors import AnswerInvalid, ConnectionClosed, JsonInvalid, ProtocolError
from quarterdeck.jsontext import decode_json
from quarterdeck.wire.messages import Failure, Result, read_error

T = TypeVar("T")

_GIVEN_UP_KEPT = 1000  # abandoned calls, to recognise a late answer
_TOO_LATE = "an answer that came too late"
_NOT_OURS = "an answer to no request of ours"


OnResponse = Callable[[Result | Failure], None]


class PendingCall:
    """One call and what its caller waits for."""

    __slots__ = ("answer", "arrived", "method", "on_response")

    def __init__(self, method: str, on_response: OnResponse | None = None) -> None:
        self.method = method
        self.on_response = on_response
        self.arrived = asyncio.get_running_loop().create_future()
        self.answer: Result | Failure | Exception | None = None

    def complete(self, answer: Result | Failure | Exception) -> None:
        self.answer = answer
        if self.on_response is not None and not isinstance(answer, Exception):
            try:
                self.on_response(answer)
            except Exception as error:  # noqa: BLE001 - the caller's code: the call raises it
                self.answer = error
        if not self.arrived.done():  # done: the caller was cancelled just now
            self.arrived.set_result(None)


class Calls:
    """The pending calls; finds the one an answer belongs to."""

    def __init__(self) -> None:
        self._waiting: dict[int, PendingCall] = {}
        self._given_up: dict[int, PendingCall] = {}  # oldest first
        self.next_id = 0

    @property
    def last_id(self) -> int:
        return self.next_id - 1

    def open(self, method: str, on_response: OnResponse | None = None) -> tuple[int, PendingCall]:
        call_id = self.next_id
        self.next_id += 1
        call = self._waiting[call_id] = PendingCall(method, on_response)
        return call_id, call

    def give_up(self, call_id: int) -> bool:
        """Abandon a call; return whether its answer was still missing."""
        call = self._waiting.pop(call_id, None)
        if call is None:
            return False
        self._given_up[call_id] = call
        if len(self._given_up) > _GIVEN_UP_KEPT:
            del self._given_up[next(iter(self._given_up))]
        return True

    def find(self, answer_id: bytes) -> tuple[PendingCall | None, str | None]:
        """Remove and return the call an answer belongs to, and what was odd about the answer.

        An abandoned call is found if it has an `on_response`: it releases what the peer has opened
        for a caller that is gone. Peers in loosely typed languages answer `"1"` or `1.0` to `1`.
        Only one call can be meant, and its caller would wait for ever, so both are accepted.
        """
        call_id = _number(answer_id)
        if call_id is None:
            return None, _NOT_OURS
        call = self._waiting.pop(call_id, None)
        if call is None:
            call = self._given_up.pop(call_id, None)
            if call is None or call.on_response is None:
                return None, _NOT_OURS if call is None else _TOO_LATE
        is_exact = answer_id == b"%d" % call_id
        return call, None if is_exact else "the id of an answer is not spelled as ours was"

    def fail_after(self, call_id: int, reason: str) -> None:
        """Fail every pending call with an id above `call_id`."""
        for waiting_id in [each for each in self._waiting if each > call_id]:
            call = self._waiting.pop(waiting_id)
            call.complete(ConnectionClosed(f"{call.method} was not answered: {reason}"))


def read_answer(call: PendingCall, read: Callable[[bytes], T]) -> T:
    """Return the result of an answered call, or raise its error.

    Raises:
        RpcError: the error of the peer.
        AnswerInvalid: if `read` cannot decode the result.
        ConnectionClosed: if there will be no answer.
    """
    match call.answer:
        case Result(value=value):
            try:
                return read(value)
            except (ProtocolError, msgspec.DecodeError, ValueError) as error:
                raise AnswerInvalid(call.method, str(error)) from error
        case Failure(error=error):
            raise read_error(error)
        case Exception() as problem:
            raise problem
        case None:
            raise AssertionError("an answer that arrived is there")


def _number(answer_id: bytes) -> int | None:
    """Read the id of an answer as the number one of our calls can have."""
    if answer_id.isdigit():
        return int(answer_id) if len(answer_id) < 20 else None
    try:
        value = decode_json(answer_id)
    except JsonInvalid:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if type(value) is int else None  # `-0`; a boolean is no number
