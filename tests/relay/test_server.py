"""A relay under use and abuse, with real sockets and real TLS."""

from __future__ import annotations

import asyncio  # noqa: TID251 - raw connections, and gather
import socket
import ssl
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from quarterdeck.relay import RelayLimits, TunnelKey, tunnel
from quarterdeck.relay.client_hello import INTERNAL_ERROR, UNRECOGNIZED_NAME
from quarterdeck.relay.messages import MessageReader, Ping, Refused, Register, encode_message
from tests.relay.kit import DOMAIN, EchoHub, echo_hub, running_relay, until
from tests.relay.test_client_hello import hello, records

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


async def answer_to(port: int, *parts: bytes, ends: bool = False) -> bytes:
    """Send bytes; return all that comes until the relay closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.01)
        if ends:
            writer.write_eof()
        with anyio.fail_after(30):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


async def test_a_phone_reaches_the_hub_of_its_name(tmp_path: Path) -> None:
    async with (
        running_relay(tmp_path / "relay") as (_, address),
        echo_hub(address, tmp_path / "one") as one,
        echo_hub(address, tmp_path / "two") as two,
    ):
        assert await one.echo(b"to one") == b"to one"
        assert await two.echo(b"to two") == b"to two"
        assert one.host != two.host
        assert one.host.endswith(f".{DOMAIN}")
        assert [peer.address for peer in one.peers] == ["127.0.0.1"]
        assert one.peers[0].is_near


async def test_megabytes_pass_both_ways_and_a_slow_reader_is_waited_for(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40_000  # 10 MB
    async with (
        running_relay(tmp_path / "relay") as (_, address),
        echo_hub(address, tmp_path / "one") as one,
        one.phone() as (reader, writer),
    ):
        with anyio.fail_after(60):
            writer.write(content)
            await anyio.sleep(0.2)
            assert await reader.readexactly(len(content)) == content


async def test_a_hello_in_pieces_is_passed_on_whole(tmp_path: Path) -> None:
    async with (
        running_relay(tmp_path / "relay") as (_, address),
        echo_hub(address, tmp_path / "one") as one,
    ):
        raw = hello(one.host)
        spread = records(raw[5:], [1, 2, 50, 3])
        for sent in (raw, spread):
            reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
            for start in range(0, len(sent), 40):
                writer.write(sent[start : start + 40])
                await asyncio.sleep(0.001)
            with anyio.fail_after(30):
                answer = await reader.readexactly(6)
            assert answer[0] == 22, "a handshake of the hub"
            assert answer[5] == 2, "its hello"
            writer.transport.abort()


async def test_the_relay_sees_no_byte_of_what_is_said(tmp_path: Path) -> None:
    """Everything that reaches its sockets is written down, both ways."""
    planted = [f"planted-{number:02d}-{'x' * number}".encode() for number in range(50)]
    seen = bytearray()

    many = RelayLimits(new_per_address=1_000, new_per_second=1_000)
    async with running_relay(tmp_path / "relay", many) as (_, address):

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while received := await reader.read(65_536):
                seen.extend(received)
                writer.write(received)
            writer.close()

        async def tapped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there = await asyncio.open_connection("127.0.0.1", address.port)
            await asyncio.gather(
                pump(reader, there[1]), pump(there[0], writer), return_exceptions=True
            )

        tap = await asyncio.start_server(tapped, "127.0.0.1", 0)
        port = tap.sockets[0].getsockname()[1]
        async with echo_hub(replace(address, port=port), tmp_path / "one") as one:
            for each in planted:
                assert await one.echo(each) == each
            assert len(seen) > 50 * 1_000
            assert not [each for each in planted if each in seen]
            assert one.tunnel.address.token.encode() not in seen
        tap.close()


async def test_changed_repeated_and_added_bytes_break_the_connection(tmp_path: Path) -> None:
    """A relay that tampers gets nothing but a closed connection."""
    async with (
        running_relay(tmp_path / "relay") as (_, address),
        echo_hub(address, tmp_path / "one") as one,
    ):
        for tamper in (_changed, _repeated, _added):
            received = await _tampered(one, address.port, tamper)
            assert b"said twice" not in received.replace(b"said twice", b"", 1)
            assert received in (b"", b"said twice"), tamper


def _changed(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


def _repeated(data: bytes) -> bytes:
    return data + data


def _added(data: bytes) -> bytes:
    return data + b"\x17\x03\x03\x00\x20" + b"x" * 32


async def _tampered(one: EchoHub, port: int, tamper: object) -> bytes:
    """Talk to a hub through something that tampers with one message of the phone."""
    assert callable(tamper)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(one.certificate)
    context.check_hostname = False
    tls = context.wrap_bio(incoming, outgoing, server_hostname=one.host)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with anyio.fail_after(30):
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65_536))
        writer.write(outgoing.read())
        await asyncio.sleep(0.05)
        tls.write(b"said twice")
        writer.write(tamper(outgoing.read()))
        received = bytearray()
        while True:
            try:
                content = await reader.read(65_536)
            except ConnectionError:
                content = b""
            incoming.write(content)
            try:
                while part := tls.read(65_536):
                    received += part
            except ssl.SSLError:
                pass
            if not content:
                writer.transport.abort()
                return bytes(received)


async def test_a_name_cannot_be_taken_with_another_key(tmp_path: Path) -> None:
    async with (
        running_relay(tmp_path / "relay") as (relay, address),
        echo_hub(address, tmp_path / "one") as one,
    ):
        thief = TunnelKey.generate()
        for key, signed_by in ((one.tunnel.key, thief), (thief, thief)):
            reply = await _register(address, key, signed_by)
            assert (reply == "signature") == (key is not thief)
        assert relay.hubs[one.tunnel.key.label].control is not None
        assert await one.echo() == b"hello"


async def _register(address: object, key: TunnelKey, signed_by: TunnelKey, **more: str) -> str:
    """Try to register a key with a signature of another one; return the code of the refusal."""
    forged = tunnel.RelayTunnel(address, signed_by, lambda *_: None)  # type: ignore[arg-type]
    reader, writer = await forged._connect()  # noqa: SLF001 - a hub that lies
    messages = MessageReader()
    with anyio.fail_after(30):
        (challenge,) = messages.feed(await reader.read(4_096))
        made = forged._registration(challenge)  # type: ignore[arg-type]  # noqa: SLF001
        changed = Register(key=key.public, signature=made.signature, token=made.token)
        writer.write(encode_message(changed))
        (answer,) = messages.feed(await reader.read(4_096))
    writer.transport.abort()
    return answer.code if isinstance(answer, Refused) else ""


async def test_a_hub_needs_the_token_and_knows_its_relay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "REFUSED_PAUSE", 0.01)
    async with running_relay(tmp_path / "relay") as (relay, address):
        for wrong in (replace(address, token="x"), replace(address, token="")):
            async with echo_hub(wrong, tmp_path / "one", is_awaited=False) as one:
                await until(lambda: "rejects this link" in (one.tunnel.problem or ""))
        other = replace(address, fingerprint="A" * 43)
        async with echo_hub(other, tmp_path / "one", is_awaited=False) as one:
            await until(lambda: "is not the relay" in (one.tunnel.problem or ""))
        assert not relay.hubs


async def test_unknown_names_and_garbage_are_answered_or_closed(tmp_path: Path) -> None:
    quick = RelayLimits(hello_seconds=0.3)
    async with running_relay(tmp_path / "relay", quick) as (relay, address):
        port = address.port
        for name in (f"{'a' * 32}.{DOMAIN}", f"x.y.{DOMAIN}", "example.org", f"a{DOMAIN}", None):
            assert await answer_to(port, hello(name)) == UNRECOGNIZED_NAME
        for raw in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 99, b"QDR1" + b"x" * 16, b"QX", b"\x16\x03"):
            assert await answer_to(port, raw) == b""
        assert await answer_to(port) == b"", "a client that says nothing"
        assert await answer_to(port, b"\x16", ends=True) == b""
        await until(lambda: not relay.connections)
        assert len(relay.undecided) == 0


async def test_a_hub_that_does_not_come_for_its_client_costs_that_client_only(
    tmp_path: Path,
) -> None:
    limits = RelayLimits(take_seconds=0.2)
    async with (
        running_relay(tmp_path / "relay", limits) as (relay, address),
        echo_hub(address, tmp_path / "one") as one,
    ):
        one.tunnel._opening = tunnel.MAX_OPENING  # noqa: SLF001 - it takes none
        assert await answer_to(address.port, hello(one.host)) == INTERNAL_ERROR
        one.tunnel._opening = 0  # noqa: SLF001
        assert await one.echo() == b"hello"
        assert not relay._tickets  # noqa: SLF001 - nothing is left


async def test_a_flood_of_one_address_leaves_room_for_others(tmp_path: Path) -> None:
    limits = RelayLimits(undecided=64, undecided_per_address=16, connections_per_address=40)
    async with (
        running_relay(tmp_path / "relay", limits) as (relay, address),
        echo_hub(address, tmp_path / "one") as one,
    ):
        opened = [socket.create_connection(("127.0.0.1", address.port)) for _ in range(100)]
        await until(lambda: len(relay.undecided) == 16)
        async with one.phone(local="127.0.0.2") as (reader, writer):
            writer.write(b"through")
            with anyio.fail_after(30):
                assert await reader.readexactly(7) == b"through"
        for each in opened:
            each.close()
        await until(lambda: len(relay.undecided) == 0)
        assert await one.echo() == b"hello"


async def test_each_hub_has_its_own_limits(tmp_path: Path) -> None:
    limits = RelayLimits(clients_per_hub=4)
    async with (
        running_relay(tmp_path / "relay", limits) as (_, address),
        echo_hub(address, tmp_path / "one") as one,
        echo_hub(address, tmp_path / "two") as two,
        one.phone(),
        one.phone(),
        one.phone(),
    ):
        assert await answer_to(address.port, hello(one.host)) == INTERNAL_ERROR
        assert await two.echo() == b"hello"


async def test_one_address_does_not_use_up_the_share_of_a_hub(tmp_path: Path) -> None:
    limits = RelayLimits(new_per_address=3, clients_per_hub=8)
    async with (
        running_relay(tmp_path / "relay", limits) as (_, address),
        echo_hub(address, tmp_path / "one") as one,
    ):
        answers = [await _first_byte(address.port, hello(one.host)) for _ in range(10)]
        assert answers.count(INTERNAL_ERROR[0]) > 2
        async with one.phone(local="127.0.0.2") as (reader, writer):
            writer.write(b"x")
            with anyio.fail_after(30):
                assert await reader.readexactly(1) == b"x"


async def _first_byte(port: int, sent: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    with anyio.fail_after(30):
        received = await reader.readexactly(1)
    writer.transport.abort()
    return received[0]


async def test_a_hub_that_talks_without_end_is_disconnected(tmp_path: Path) -> None:
    async with running_relay(tmp_path / "relay") as (relay, address):
        talker = tunnel.RelayTunnel(address, TunnelKey.generate(), lambda *_: None)
        reader, writer = await talker._connect()  # noqa: SLF001 - a hub that misbehaves
        await reader.readline()
        writer.write(encode_message(Ping()) * 100)
        with anyio.fail_after(30):
            assert await reader.read() == b""
        writer.transport.abort()
        await until(lambda: not relay.connections)


async def test_a_hub_is_slowed_to_its_rate(tmp_path: Path) -> None:
    limits = RelayLimits(bytes_per_second=200_000)
    async with (
        running_relay(tmp_path / "relay", limits) as (_, address),
        echo_hub(address, tmp_path / "one") as one,
        echo_hub(address, tmp_path / "two") as two,
    ):
        begun = asyncio.get_running_loop().time()
        # Both ways: 1 MB at 0.2 MB/s, of which 0.4 MB are there at first.
        assert len(await one.echo(b"x" * 500_000)) == 500_000
        assert asyncio.get_running_loop().time() - begun > 0.8
        assert await two.echo() == b"hello"


async def test_a_hub_that_is_away_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    key = TunnelKey.generate()
    async with running_relay(tmp_path / "relay") as (relay, address):
        async with echo_hub(address, tmp_path / "one", key) as one:
            assert await one.echo() == b"hello"
        await until(lambda: relay.hubs[key.label].control is None)
        async with anyio.create_task_group() as tasks:
            answers: list[bytes] = []

            async def call() -> None:
                answers.append(await one.echo(b"waited"))

            tasks.start_soon(call)
            await until(lambda: len(relay.hubs[key.label].absent) == 1)
            async with echo_hub(address, tmp_path / "one", key):
                await until(lambda: answers == [b"waited"])


async def test_a_hub_that_stays_away_is_forgotten(tmp_path: Path) -> None:
    key = TunnelKey.generate()
    limits = RelayLimits(away_seconds=0.1)
    async with running_relay(tmp_path / "relay", limits) as (relay, address):
        async with echo_hub(address, tmp_path / "one", key) as one:
            host = one.host
        await until(lambda: not relay.hubs)
        assert await answer_to(address.port, hello(host)) == UNRECOGNIZED_NAME


async def test_a_hub_comes_back_to_a_relay_that_was_restarted(tmp_path: Path) -> None:
    async with running_relay(tmp_path / "relay") as (_, address):
        port = address.port
        hub = echo_hub(address, tmp_path / "one")
        one = await hub.__aenter__()
        assert await one.echo() == b"hello"
    try:
        await until(lambda: not one.tunnel.is_connected)
        async with running_relay(tmp_path / "relay", port=port):
            await until(lambda: one.tunnel.is_connected)
            assert await one.echo() == b"hello"
    finally:
        await hub.__aexit__(None, None, None)


async def test_a_second_hub_with_the_same_key_replaces_the_first(tmp_path: Path) -> None:
    key = TunnelKey.generate()
    async with (
        running_relay(tmp_path / "relay") as (_, address),
        echo_hub(address, tmp_path / "one", key) as one,
        echo_hub(address, tmp_path / "two", key) as two,
    ):
        await until(lambda: "another connection" in (one.tunnel.problem or ""))
        assert await two.echo() == b"hello"


async def test_a_connected_phone_survives_the_end_of_the_control_connection(tmp_path: Path) -> None:
    async with (
        running_relay(tmp_path / "relay") as (relay, address),
        echo_hub(address, tmp_path / "one") as one,
        one.phone() as (reader, writer),
    ):
        writer.write(b"1")
        assert await reader.readexactly(1) == b"1"
        control = relay.hubs[one.tunnel.key.label].control
        assert control is not None
        control.close()
        await until(lambda: not one.tunnel.is_connected)
        writer.write(b"2")
        with anyio.fail_after(30):
            assert await reader.readexactly(1) == b"2"
        await until(lambda: one.tunnel.is_connected)


async def test_nothing_is_left_of_connections_that_have_ended(tmp_path: Path) -> None:
    async with (
        running_relay(tmp_path / "relay") as (relay, address),
        echo_hub(address, tmp_path / "one") as one,
    ):
        for _ in range(5):
            assert await one.echo() == b"hello"
        async with one.phone() as (reader, writer):
            writer.write(b"x")
            await reader.readexactly(1)
        await until(lambda: len(relay.connections) == 1)
        assert not relay.hubs[one.tunnel.key.label].clients
        assert not relay.connection_shares._counts  # noqa: SLF001 - all were given back
