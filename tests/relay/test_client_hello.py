"""The one message that a relay reads: any cut of it, any bytes in its place."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given, settings, strategies as st

from quarterdeck.relay.client_hello import (
    HELLO_BYTES,
    MAX_RECORDS,
    ClientHello,
    HelloRejected,
    read_client_hello,
)

LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
NAMES = st.lists(LABELS, min_size=2, max_size=4).map(".".join).filter(lambda name: len(name) < 100)


def hello(name: str | None, *protocols: str) -> bytes:
    """Return the hello that OpenSSL sends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    sent = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return sent.read()


def records(message: bytes, sizes: list[int]) -> bytes:
    """Spread a handshake message over records of these sizes; the last one takes the rest."""
    parts = []
    for size in sizes:
        if size < len(message):
            parts.append(message[:size])
            message = message[size:]
    return b"".join(
        b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in [*parts, message]
    )


SAMPLE = hello("k7.relay.test", "h2", "http/1.1")


@given(name=NAMES)
@settings(max_examples=50)
def test_the_name_of_a_real_hello_is_read(name: str) -> None:
    assert read_client_hello(hello(name, "acme-tls/1")) == ClientHello(name, (b"acme-tls/1",))


def test_a_hello_without_a_name_has_none() -> None:
    assert read_client_hello(hello(None)) == ClientHello(None)


def test_the_name_is_in_lower_case() -> None:
    upper = SAMPLE.replace(b"k7.relay.test", b"K7.RELAY.Test")
    found = read_client_hello(upper)
    assert found is not None
    assert found.server_name == "k7.relay.test"


def test_a_hello_is_incomplete_until_its_last_byte() -> None:
    for end in range(len(SAMPLE)):
        assert read_client_hello(SAMPLE[:end]) is None, end
    assert read_client_hello(SAMPLE) is not None


@given(sizes=st.lists(st.integers(1, 200), max_size=MAX_RECORDS - 1), more=st.binary(max_size=20))
def test_a_hello_may_be_spread_over_records(sizes: list[int], more: bytes) -> None:
    spread = records(SAMPLE[5:], sizes)
    assert read_client_hello(spread + more) == read_client_hello(SAMPLE)
    for end in range(0, len(spread), 7):
        assert read_client_hello(spread[:end]) is None


def test_too_many_records_are_rejected_early() -> None:
    with pytest.raises(HelloRejected, match="too many records"):
        read_client_hello(records(SAMPLE[5:], [1] * MAX_RECORDS))


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x16\x02\x00\x00\x05",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        b"\x16\x03\x01\x00\x04\x01" + (HELLO_BYTES + 1).to_bytes(3, "big"),
        SAMPLE.replace(b"k7.relay.test", b"k7.relay\0test"),
        SAMPLE.replace(b"k7.relay.test", b"-7.relay.test"),
        SAMPLE.replace(b"k7.relay.test", b"k7..elay.test"),
        SAMPLE.replace(b"k7.relay.test", "k7.rel\u00e4.test".encode()),
    ],
)
def test_what_is_not_a_hello_is_rejected_at_once(raw: bytes) -> None:
    with pytest.raises(HelloRejected):
        read_client_hello(raw)


@given(raw=st.binary(max_size=400))
@settings(max_examples=300)
def test_no_bytes_do_anything_else(raw: bytes) -> None:
    _read(raw)
    _read(b"\x16\x03\x01" + raw)
    _read(b"\x16\x03\x01" + len(raw).to_bytes(2, "big") + raw)


@given(position=st.integers(0, len(SAMPLE) - 1), value=st.integers(0, 255))
@settings(max_examples=300)
def test_a_changed_byte_never_leads_to_a_name_that_is_not_there(position: int, value: int) -> None:
    changed = SAMPLE[:position] + bytes((value,)) + SAMPLE[position + 1 :]
    found = _read(changed)
    if found is not None and found.server_name is not None:
        assert found.server_name.encode() in changed.lower()


def _read(raw: bytes) -> ClientHello | None:
    try:
        return read_client_hello(raw)
    except HelloRejected:
        return None
