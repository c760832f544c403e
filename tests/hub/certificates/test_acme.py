"""Certificates of a real authority, through a real relay."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio.streams.tls import TLSAttribute, TLSStream
from cryptography import x509

from quarterdeck.hub import Hub, serving
from quarterdeck.hub.certificates.acme_renewal import AcmeCertificate
from quarterdeck.hub.relay import RelayService
from quarterdeck.hub.relay.certificates import self_signed
from quarterdeck.relay import AcmeSettings, RelaySettings
from tests.hub.api.kit import options
from tests.hub.certificates.pebble import running_pebble
from tests.hub.relay.kit import far_relay
from tests.relay.kit import until

pytestmark = pytest.mark.anyio


async def test_a_hub_gets_a_certificate_through_its_relay(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with (
        far_relay(tmp_path / "relay") as (_, address),
        running_pebble(tmp_path / "pebble", address.port) as pebble,
    ):
        settings = RelaySettings(address=address, acme=pebble.settings)
        wanted = replace(options(home), relay=settings)
        async with Hub(wanted) as hub, serving(hub):
            relay = hub.relay
            assert relay is not None
            await until(lambda: relay.state.certificate.kind == "acme")
            state = relay.state
            assert state.certificate.problem is None
            assert state.certificate.account is not None
            shown = await _shown(relay, address.port)
            names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            assert names.get_values_for_type(x509.DNSName) == [
                relay.origin.removeprefix("https://").partition(":")[0]
            ]
        issued = {each.name: each.read_bytes() for each in (home / "acme").iterdir()}
        assert {each.stat().st_mode & 0o777 for each in (home / "acme").iterdir()} == {0o600}
        async with Hub(wanted) as hub, serving(hub):
            assert hub.relay is not None
            assert hub.relay.state.certificate.kind == "acme", "used again, not ordered again"
        assert {each.name: each.read_bytes() for each in (home / "acme").iterdir()} == issued


async def test_a_certificate_is_renewed_while_phones_stay_connected(tmp_path: Path) -> None:
    async with (
        far_relay(tmp_path / "relay") as (_, address),
        running_pebble(tmp_path / "pebble", address.port, seconds=6) as pebble,
        hub_with(tmp_path / "home", RelaySettings(address=address, acme=pebble.settings)) as relay,
    ):
        await until(lambda: relay.state.certificate.kind == "acme")
        first, before = relay.state.certificate.expires_at, await _shown(relay, address.port)
        phone = await _connected(relay, address.port)
        await until(lambda: relay.state.certificate.expires_at != first)
        assert (await _shown(relay, address.port)).serial_number != before.serial_number
        host = relay.origin.removeprefix("https://")
        await phone.send(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        with anyio.fail_after(30):
            assert (await phone.receive()).startswith(b"HTTP/1.1 200 ")
        await phone.aclose()


async def test_a_name_that_cannot_be_checked_is_a_sentence_and_not_tried_in_a_loop(
    tmp_path: Path,
) -> None:
    async with (
        far_relay(tmp_path / "relay") as (_, address),
        running_pebble(tmp_path / "pebble", 1) as pebble,
        hub_with(tmp_path / "home", RelaySettings(address=address, acme=pebble.settings)) as relay,
    ):
        await until(lambda: relay.state.certificate.problem is not None)
        state = relay.state
        assert state.certificate.kind == "none"
        assert "localhost could not check the name" in (state.certificate.problem or "")
        assert "DNS name *.relay.test" in (state.next_step or "")
        assert not state.is_usable


@pytest.mark.parametrize(
    ("directory", "said"),
    [
        ("https://localhost:1/dir", "cannot reach localhost"),
        ("{relay}/healthz", "cannot reach relay.test"),
    ],
)
async def test_an_authority_that_is_none_is_a_sentence(
    tmp_path: Path, directory: str, said: str
) -> None:
    async with far_relay(tmp_path / "relay") as (_, address):
        acme = AcmeSettings(directory=directory.format(relay=address.url), is_agreed=True)
        settings = RelaySettings(address=address, acme=acme)
        async with hub_with(tmp_path / "home", settings) as relay:
            await until(lambda: relay.state.certificate.problem is not None)
            assert said in (relay.state.certificate.problem or "")
            step = said.replace("cannot reach", "check that this computer reaches")
            assert step in (relay.state.next_step or "")


async def test_an_authority_whose_certificate_is_not_trusted_is_a_sentence(tmp_path: Path) -> None:
    """It is not the DNS name of the relay that the owner should look at."""
    async with (
        far_relay(tmp_path / "relay") as (_, address),
        running_pebble(tmp_path / "pebble", address.port) as pebble,
    ):
        acme = replace(pebble.settings, trusted=None)
        settings = RelaySettings(address=address, acme=acme)
        async with hub_with(tmp_path / "home", settings) as relay:
            await until(lambda: relay.state.certificate.problem is not None)
            state = relay.state
            problem, step = state.certificate.problem or "", state.next_step or ""
            assert problem.startswith("this computer does not trust localhost: its certificate is")
            assert "--acme-ca FILE" in step
            assert "DNS" not in step
            assert not state.is_usable


@pytest.mark.parametrize(
    ("directory", "is_test"),
    [
        ("https://acme-staging-v02.api.letsencrypt.org/directory", True),
        ("https://acme-v02.api.letsencrypt.org/directory", False),
        ("https://localhost:1/dir", False),
    ],
)
@pytest.mark.parametrize("has_own_authority", [True, False])
async def test_only_a_staging_authority_is_a_test(
    tmp_path: Path, directory: str, is_test: bool, has_own_authority: bool
) -> None:
    """Whether phones trust a private one is found out by trying."""
    trusted = tmp_path / "authority.pem"
    trusted.write_bytes(self_signed("localhost"))
    acme = AcmeSettings(
        directory=directory, trusted=trusted if has_own_authority else None, is_agreed=True
    )
    made = AcmeCertificate(
        tmp_path, "name.relay.test", acme, lambda _: ssl.create_default_context(),
        is_reachable=lambda: False,
    )  # fmt: skip
    assert made.state.is_test is is_test


@asynccontextmanager
async def hub_with(home: Path, settings: RelaySettings) -> AsyncIterator[RelayService]:
    async with Hub(replace(options(home), relay=settings)) as hub, serving(hub):
        assert hub.relay is not None
        yield hub.relay


async def _connected(relay: RelayService, port: int) -> TLSStream:
    """Connect as a phone that accepts every certificate."""
    host = relay.origin.removeprefix("https://").partition(":")[0]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return await anyio.connect_tcp(
        "127.0.0.1",
        port,
        tls=True,
        ssl_context=context,
        tls_hostname=host,
        tls_standard_compatible=False,
    )


async def _shown(relay: RelayService, port: int) -> x509.Certificate:
    """Return the certificate that a phone is shown."""
    async with await _connected(relay, port) as stream:
        shown = stream.extra(TLSAttribute.peer_certificate_binary)
    return x509.load_der_x509_certificate(shown or b"")
