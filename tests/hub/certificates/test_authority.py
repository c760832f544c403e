"""`hub.certificates.authority`: what the hub's own authority can certify, and for how long."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import stat
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quarterdeck.errors import StartRefused
from quarterdeck.http.certificate_pins import chain_problem
from quarterdeck.hub.certificates import PrivateAuthority, open_authority

NOW = time.time()
DAY = 86_400.0
ADDRESSES = ("192.168.1.20", "fd00::2")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


def leaf(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def refusal(authority: PrivateAuthority, server: bytes, name: str) -> str:
    """Return why a client that trusts the authority alone refuses a server with this PEM file."""
    path = authority.folder / "tried.pem"
    path.write_bytes(server)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(path)
    trusting = ssl.create_default_context(cadata=authority.pem)
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        trusting.wrap_bio(down, up, server_hostname=name),
        serving.wrap_bio(up, down, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return ""


def forged(authority: PrivateAuthority, *names: x509.GeneralName) -> bytes:
    """Return a certificate, with its key, as a thief of the authority's key would make it."""
    key, at = ec.generate_private_key(ec.SECP256R1()), dt.datetime.fromtimestamp(NOW, dt.UTC)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    identity = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    signed = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "A thief")]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(at - dt.timedelta(days=1))
        .not_valid_after(at + dt.timedelta(days=1))
        .add_extension(usage, critical=False)
        .add_extension(identity, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + signed.public_bytes(Encoding.PEM)


def test_its_files_are_private(home: Path) -> None:
    open_authority(home, NOW).certified(ADDRESSES, NOW)
    assert stat.S_IMODE((home / "certificates").stat().st_mode) == 0o700
    files = [each for each in home.rglob("*") if each.is_file()]
    assert len(files) == 3
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}


def test_it_is_the_same_after_a_restart(home: Path) -> None:
    first = open_authority(home, NOW)
    path = first.certified(ADDRESSES, NOW)
    content = path.read_bytes()
    second = open_authority(home, NOW + DAY)
    assert second.pin == first.pin
    assert second.certified(ADDRESSES, NOW + DAY).read_bytes() == content


@pytest.mark.parametrize("address", ADDRESSES)
def test_its_certificate_is_valid_for_the_addresses_of_the_hub(home: Path, address: str) -> None:
    authority = open_authority(home, NOW)
    server = authority.certified(ADDRESSES, NOW).read_bytes()
    assert refusal(authority, server, address) == ""
    assert "mismatch" in refusal(authority, server, "192.168.1.21")


def test_a_pin_of_the_authority_accepts_its_certificates(home: Path) -> None:
    authority = open_authority(home, NOW)
    certificate = leaf(authority.certified(ADDRESSES, NOW)).public_bytes(Encoding.DER)
    assert chain_problem([certificate, authority.der], authority.pin, NOW) == ""


@pytest.mark.parametrize("name", ["bank.example", "localhost", "printer.local"])
def test_a_stolen_key_certifies_no_other_name(home: Path, name: str) -> None:
    authority = open_authority(home, NOW)
    assert "permitted" in refusal(authority, forged(authority, x509.DNSName(name)), name)


@pytest.mark.parametrize("address", ["8.8.8.8", "127.0.0.1", "2a00::1", "169.254.169.254"])
def test_a_stolen_key_certifies_no_address_of_others(home: Path, address: str) -> None:
    authority = open_authority(home, NOW)
    certificate = forged(authority, x509.IPAddress(ipaddress.ip_address(address)))
    assert "permitted" in refusal(authority, certificate, address)


def test_its_certificate_issues_no_further_ones(home: Path) -> None:
    authority = open_authority(home, NOW)
    issued = leaf(authority.certified(ADDRESSES, NOW))
    for certificate, is_authority in ((authority.certificate, True), (issued, False)):
        limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        assert (limits.critical, limits.value.ca) == (True, is_authority)
    held = authority.certificate.extensions.get_extension_for_class(x509.NameConstraints)
    assert held.critical


def test_phones_accept_how_long_it_is_valid(home: Path) -> None:
    found = leaf(open_authority(home, NOW).certified(ADDRESSES, NOW))
    assert found.not_valid_after_utc - found.not_valid_before_utc <= dt.timedelta(days=397)


@pytest.mark.parametrize(
    ("addresses", "days", "is_new"),
    [
        (ADDRESSES, 0, False),
        (ADDRESSES[::-1], 300, False),
        (("192.168.1.21",), 0, True),
        ((*ADDRESSES, "10.0.0.2"), 0, True),
        (ADDRESSES, 361, True),
        (ADDRESSES, 500, True),
        (ADDRESSES, -30, True),  # the clock was wrong
    ],
)
def test_it_is_issued_again_when_addresses_change_or_it_expires_soon(
    home: Path, addresses: tuple[str, ...], days: int, is_new: bool
) -> None:
    authority = open_authority(home, NOW)
    before = leaf(authority.certified(ADDRESSES, NOW)).serial_number
    after = leaf(authority.certified(addresses, NOW + days * DAY))
    assert (after.serial_number != before) is is_new
    names = after.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = {str(each) for each in names.get_values_for_type(x509.IPAddress)}
    assert found == set(addresses)


def test_a_server_can_use_its_file(home: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(open_authority(home, NOW).certified(ADDRESSES, NOW))


@pytest.mark.parametrize("name", ["authority.key", "authority.pem", "certificates/network.pem"])
def test_a_file_that_others_can_read_is_refused(home: Path, name: str) -> None:
    open_authority(home, NOW).certified(ADDRESSES, NOW)
    (home / name).chmod(0o644)
    with pytest.raises(StartRefused, match="other users can read"):
        open_authority(home, NOW).certified(ADDRESSES, NOW)


@pytest.mark.parametrize("name", ["authority.key", "authority.pem"])
def test_a_damaged_file_is_refused_with_what_to_do(home: Path, name: str) -> None:
    open_authority(home, NOW)
    (home / name).write_bytes(b"damaged")
    with pytest.raises(StartRefused, match=r"rm .*authority"):
        open_authority(home, NOW)


def test_a_key_of_another_authority_is_refused(home: Path, tmp_path: Path) -> None:
    open_authority(home, NOW)
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    open_authority(other, NOW)
    key = (other / "authority.key").read_bytes()
    (home / "authority.key").write_bytes(key)
    with pytest.raises(StartRefused, match="do not belong together"):
        open_authority(home, NOW)


def test_an_expired_authority_is_refused(home: Path) -> None:
    open_authority(home, NOW)
    with pytest.raises(StartRefused, match="expired"):
        open_authority(home, NOW + 4_000 * DAY)


def test_half_an_authority_is_made_anew(home: Path) -> None:
    before = open_authority(home, NOW).pin
    (home / "authority.key").unlink()
    assert open_authority(home, NOW).pin != before
