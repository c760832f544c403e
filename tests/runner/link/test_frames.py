"""The bytes of the link: any cut, any noise."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from quarterdeck.errors import LinkBroken
from quarterdeck.runner.link.frames import BatchReader, Message, encode_batch, split_body

MESSAGES = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40)), max_size=5)


def read(reader: BatchReader, data: bytes) -> list[list[Message]]:
    return list(reader.feed(data))


@given(st.lists(MESSAGES, max_size=5), st.data())
def test_batches_are_the_same_wherever_their_bytes_are_cut(
    batches: list[list[Message]], data: st.DataObject
) -> None:
    whole = b"".join(encode_batch(batch) for batch in batches)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    reader, found = BatchReader(), []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += read(reader, whole[start:end])
    assert found == batches


@given(st.binary(max_size=200))
def test_noise_is_refused_or_waited_for_and_never_raises_anything_else(noise: bytes) -> None:
    try:
        read(BatchReader(), noise)
    except LinkBroken:
        return


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_a_body_has_the_parts_that_were_joined(parts: list[bytes]) -> None:
    assert split_body(b"".join(parts), [len(part) for part in parts]) == parts


@pytest.mark.parametrize("sizes", [[3], [5, 1], [-1, 5], []])
def test_a_body_of_another_size_is_refused(sizes: list[int]) -> None:
    with pytest.raises(LinkBroken):
        split_body(b"body", sizes)


def test_a_size_that_no_batch_has_is_refused_at_once() -> None:
    with pytest.raises(LinkBroken, match="does not speak"):
        read(BatchReader(), b"GET / HTTP/1.1\r\n\r\n"[:4] + b"\xff" * 8)
    with pytest.raises(LinkBroken):
        read(BatchReader(), b"\xff\xff\xff\xff")
