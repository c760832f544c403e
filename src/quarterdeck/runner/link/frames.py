"""The bytes of the link: messages in batches. Pure.

    batch     u32 size of the rest, then messages
    message   u32 size of its header, u32 size of its body, header (JSON), body (bytes)

A batch is what one side had to say in one step of its event loop. The other side handles it in one
step, too: what belongs together, such as an event of the host and the state after it, is never seen
in part. A body has what need not be parsed: events as they were stored, one after the other; the
header has their sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final

from quarterdeck.errors import LinkBroken

MOST_BATCH: Final = 1 << 30
"""Bytes. Larger is no batch but noise: what a peer sends that does not speak this protocol."""

_SIZE: Final = struct.Struct(">I")
_SIZES: Final = struct.Struct(">II")

Message = tuple[bytes, bytes]
"""A header and a body."""


def encode_batch(messages: Iterable[Message]) -> bytes:
    """Return messages as the bytes of one batch."""
    parts = [b""]
    for header, body in messages:
        parts += (_SIZES.pack(len(header), len(body)), header, body)
    parts[0] = _SIZE.pack(sum(map(len, parts)))
    return b"".join(parts)


def split_body(body: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Return the parts of a body.

    Raises:
        LinkBroken: if their sizes are not those of the body.
    """
    ends = [0, *accumulate(sizes)]
    if ends[-1] != len(body) or min(sizes, default=0) < 0:
        raise LinkBroken("a message of the link has parts of another size than it says")
    return [body[start:end] for start, end in pairwise(ends)]


class BatchReader:
    """Cuts bytes, as they arrive, into batches."""

    def __init__(self) -> None:
        self.most = MOST_BATCH
        """Bytes of a batch; a larger one is refused before it is received."""
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[list[Message]]:
        """Iterate over the batches that are complete with `data`.

        Raises:
            LinkBroken: if these are not batches.
        """
        if not self._buffer and len(data) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(data)
            if size == len(data) - _SIZE.size <= self.most:  # the usual case: no copy
                yield _messages(data, _SIZE.size, len(data))
                return
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(buffer)
            if size > self.most:
                raise LinkBroken("the other side does not speak the protocol of the link")
            end = _SIZE.size + size
            if len(buffer) < end:
                return
            batch = bytes(memoryview(buffer)[:end])
            del buffer[:end]
            yield _messages(batch, _SIZE.size, end)


def _messages(batch: bytes, start: int, end: int) -> list[Message]:
    messages = []
    while start < end:
        if end - start < _SIZES.size:
            raise LinkBroken("a batch of the link ends in the middle of a message")
        header_size, body_size = _SIZES.unpack_from(batch, start)
        header_at = start + _SIZES.size
        body_at = header_at + header_size
        start = body_at + body_size
        if start > end:
            raise LinkBroken("a batch of the link ends in the middle of a message")
        messages.append((batch[header_at:body_at], batch[body_at:start]))
    return messages
