"""What two sides say before a link begins: nothing that is sent raises anything else."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from quarterdeck.errors import LinkBroken
from quarterdeck.runner.link.handshake import (
    HANDSHAKE_BYTES,
    HubChallenge,
    LinkRefused,
    MachineHello,
    MachineProof,
    Welcome,
    hub_text,
    is_hello,
    machine_text,
    random_text,
    read_handshake,
    write_handshake,
)

WORDS = st.text(alphabet=st.characters(codec="utf-8"), max_size=40)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_no_bytes_raise_anything_else(sent: str | bytes) -> None:
    try:
        found = read_handshake(sent)
    except LinkBroken:
        return
    is_hello(found)


def test_a_message_that_is_too_long_is_refused_whatever_it_says() -> None:
    long = write_handshake(Welcome(name="x" * HANDSHAKE_BYTES))
    with pytest.raises(LinkBroken, match="too long"):
        read_handshake(long)


@given(WORDS, WORDS)
def test_every_message_is_read_as_it_was_written(first: str, second: str) -> None:
    for message in (
        MachineHello(machine=first, challenge=second),
        HubChallenge(nonce=first, signature=second),
        MachineProof(signature=first),
        Welcome(name=first, version=second),
        LinkRefused(code=first, message=second),
    ):
        assert read_handshake(write_handshake(message)) == message


PLACES = st.tuples(
    st.sampled_from(["https://a.example", "https://a.example:7272", "http://127.0.0.1:7272"]),
    st.from_regex(r"m[a-z0-9]{8}", fullmatch=True),
)


@given(PLACES, PLACES)
def test_a_signed_text_is_for_one_side_one_hub_one_machine_and_one_connection(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    texts = set()
    for origin, machine in {one, other}:
        for _ in range(2):
            hello = MachineHello(machine=machine, challenge=random_text())
            assert is_hello(hello)
            nonce = random_text()
            texts.add(hub_text(origin, hello, nonce))
            texts |= {machine_text(origin, key, hello, nonce) for key in ("k1", "k2")}
    assert len(texts) == 6 * len({one, other})
