from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from quarterdeck.relay import TunnelKey
from quarterdeck.relay.keys import verified_label
from quarterdeck.relay.messages import (
    LINE_BYTES,
    Challenge,
    Message,
    MessageReader,
    MessageRejected,
    Open,
    Ping,
    Refused,
    Register,
    Registered,
    encode_message,
)

TEXT = st.text(max_size=40)
MESSAGES = st.one_of(
    st.builds(Challenge, nonce=TEXT),
    st.builds(Register, key=TEXT, signature=TEXT, token=TEXT),
    st.builds(Registered, name=TEXT, seen_as=TEXT),
    st.builds(Refused, code=TEXT, message=TEXT),
    st.builds(Open, ticket=TEXT, address=TEXT, port=st.integers(0, 65_535)),
    st.builds(Ping),
)


@given(messages=st.lists(MESSAGES, max_size=6), size=st.integers(1, 50))
def test_messages_arrive_whatever_the_cuts(messages: list[Message], size: int) -> None:
    sent = b"".join(map(encode_message, messages))
    reader = MessageReader()
    parts = [sent[start : start + size] for start in range(0, len(sent), size)]
    assert [found for part in parts for found in reader.feed(part)] == messages


@given(raw=st.binary(max_size=200))
def test_garbage_is_rejected_or_left_out(raw: bytes) -> None:
    with suppress(MessageRejected):
        MessageReader().feed(raw + b"\n")


def test_a_message_of_a_newer_version_is_left_out() -> None:
    reader = MessageReader()
    assert reader.feed(b'{"type":"later","x":1}\n{"type":"ping","y":2}\n') == [Ping()]


@pytest.mark.parametrize("raw", [b"x" * (LINE_BYTES + 1), b"[" * 3_000 + b"\n", b"{}\n", b"1\n"])
def test_what_is_not_a_message_is_rejected(raw: bytes) -> None:
    with pytest.raises(MessageRejected):
        MessageReader().feed(raw)


def test_a_signature_is_for_one_relay_one_challenge_and_one_key() -> None:
    key, other = TunnelKey.generate(), TunnelKey.generate()
    at = {"domain": "relay.test", "fingerprint": "f"}
    signature = key.sign("nonce", **at)
    assert verified_label(key.public, signature, "nonce", **at) == key.label
    assert verified_label(other.public, signature, "nonce", **at) is None
    assert verified_label(key.public, signature, "another", **at) is None
    assert verified_label(key.public, signature, "nonce", domain="x", fingerprint="f") is None
    assert (
        verified_label(key.public, signature, "nonce", domain="relay.test", fingerprint="g") is None
    )
    for odd in ("", "x", "!!", key.public[:-2]):
        assert verified_label(odd, signature, "nonce", **at) is None
        assert verified_label(key.public, odd, "nonce", **at) is None
